//! Loading files: a graph or system file with everything it refers to.

use super::fields::dropped;
use super::lower::Files;
use super::parse_graph;
use super::yaml::{Node, parse_bytes};
use crate::diag::{Diagnostic, Diagnostics, FileId, SourceMap, Span, codes};
use std::collections::BTreeMap;

/// How this crate reads files. Paths are as written in specs, relative ones resolved against the file that names them.
pub trait Host {
    /// The bytes of a file, or why it cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;
}

/// Loads graph files, each once.
pub(crate) struct Loader<'h> {
    host: &'h dyn Host,
    pub sources: SourceMap,
    pub diags: Diagnostics,
    pub files: Files,
    /// Files of which a part is not in their tree, such as what stands under a key that was there before.
    pub cut: Vec<FileId>,
    by_path: BTreeMap<String, Option<usize>>,
}

/// Most files of one system, and most that extend each other in a row.
pub(crate) const MAX_FILES: usize = 256;

impl<'h> Loader<'h> {
    pub fn new(host: &'h dyn Host) -> Self {
        Loader {
            host,
            sources: SourceMap::default(),
            diags: Diagnostics::default(),
            files: Files::default(),
            cut: Vec::new(),
            by_path: BTreeMap::new(),
        }
    }

    /// The tree of a file; `from` is the place that names it.
    pub fn tree(&mut self, path: &str, from: Option<Span>) -> Option<Node> {
        match self.host.read(path) {
            Ok(bytes) => {
                let before = dropped(&self.diags);
                let (file, tree) = parse_bytes(path, &bytes, &mut self.sources, &mut self.diags);
                if dropped(&self.diags) > before {
                    self.cut.push(file);
                }
                tree
            }
            Err(why) => {
                let text = format!("{path} cannot be read: {why}");
                self.diags.push(match from {
                    Some(span) => Diagnostic::error(codes::FILE, span, text)
                        .help("paths are relative to the file that names them"),
                    None => Diagnostic::error_nowhere(codes::FILE, text),
                });
                None
            }
        }
    }

    /// The graph file at a path, with its imports.
    pub fn graph(&mut self, path: &str, from: Option<Span>) -> Option<usize> {
        let path = normal(path);
        if let Some(known) = self.by_path.get(&path) {
            return *known;
        }
        if self.by_path.len() >= MAX_FILES {
            let text = format!("more than {MAX_FILES} files");
            self.diags.push(match from {
                Some(span) => Diagnostic::error(codes::FILE, span, text),
                None => Diagnostic::error_nowhere(codes::FILE, text),
            });
            return None;
        }
        self.by_path.insert(path.clone(), None);
        let root = self.tree(&path, from)?;
        if root.get("graph").is_none() {
            let text = format!("{path} is no graph file: it does not begin with `graph: NAME`");
            self.diags.push(
                Diagnostic::error(codes::MISSING_KEY, from.unwrap_or(root.span), text)
                    .related(root.span, "this file")
                    .help("components and imports are graph files; a system file is built upon with `extends`"),
            );
            return None;
        }
        self.graph_from(&path, &root)
    }

    /// A graph file whose tree is already read.
    pub fn graph_from(&mut self, path: &str, root: &Node) -> Option<usize> {
        let mut file = parse_graph::graph_file(root.span.file, path, root, &mut self.diags)?;
        file.partial |= self.cut.contains(&file.file);
        let index = self.files.list.len();
        self.by_path.insert(normal(path), Some(index));
        self.files.list.push(file);
        self.files.imports.push(BTreeMap::new());
        let uses: Vec<(String, String, Span)> = self.files.list[index]
            .uses
            .iter()
            .map(|u| (u.name.name.clone(), super::system::relative(&self.sources, u.path_span, &u.path), u.path_span))
            .collect();
        for (name, path, span) in uses {
            match self.graph(&path, Some(span)) {
                Some(i) => {
                    self.files.imports[index].insert(name, i);
                }
                None => self.files.list[index].partial = true,
            }
        }
        Some(index)
    }
}

/// A path without `.` and `x/..` parts, so that one file has one name.
pub(crate) fn normal(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if out.last().is_some_and(|p| *p != ".." && !p.is_empty()) => {
                out.pop();
            }
            p => out.push(p),
        }
    }
    out.join("/")
}

#[cfg(test)]
mod tests {
    use super::normal;

    #[test]
    fn paths_are_normalised() {
        assert_eq!(normal("a/../b/./c.yaml"), "b/c.yaml");
        assert_eq!(normal("../x/../y"), "../y");
        assert_eq!(normal("/a/../b"), "/b");
    }
}
