//! What the tests of specs share: files of the repository, and expected errors that stand in them.
#![allow(dead_code)]

use spinec_ir::diag::{Diagnostic, SourceMap};
use spinec_ir::spec::system::{Overrides, System};
use spinec_ir::spec::{Host, Loaded, load};
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files of the repository by their path from its root.
pub struct Repository;

impl Host for Repository {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        // The reason must not depend on the system the tests run on.
        std::fs::read(root().join(path)).map_err(|e| e.kind().to_string())
    }
}

/// Paths of the YAML files of a folder, from the root, in order.
pub fn yaml_files(folder: &str) -> Vec<String> {
    let dir = root().join(folder);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let names = entries.map(|e| e.expect("entry").file_name().into_string().expect("UTF-8 name"));
    let mut out: Vec<String> = names.filter(|n| n.ends_with(".yaml")).map(|n| format!("{folder}/{n}")).collect();
    out.sort();
    out
}

/// Loads a file: its sources, its diagnostics in order, and the system if it is a usable one.
pub fn check(path: &str, host: &dyn Host, over: &Overrides) -> (SourceMap, Vec<Diagnostic>, Option<System>) {
    match load(path, host, over) {
        Loaded::Graph { sources, diags } => (sources, diags.into_sorted(), None),
        Loaded::System(s) => (s.sources, s.diags.into_sorted(), s.system),
    }
}

/// An expected error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Name of the file; empty for an error without a place.
    pub file: String,
    /// Line from one; 0 without a place, and in a claim that gives the line by its text.
    pub line: usize,
    /// The line itself, without the spaces around it: claims about files that others edit name it by that.
    pub written: String,
    /// Code.
    pub code: String,
    /// Part of the message.
    pub text: String,
}

/// The claims of a file: `#! E0301 part of the message` behind the line that causes it; in lines of their own
/// `#! line N E0301 ...`, `#! at FILE <<the line>> E0301 ...` and `#! nowhere E0301 ...`. Also its options: `#! set NAME=VALUE`.
pub fn claims(file: &str, text: &str, over: &mut Overrides) -> Vec<Claim> {
    let mut out = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for part in line.split("#! ").skip(1) {
            let part = part.trim();
            let (word, rest) = part.split_once(' ').unwrap_or((part, ""));
            let (place, claim) = match word {
                "set" => {
                    let (name, value) =
                        rest.split_once('=').unwrap_or_else(|| panic!("{file}: `{part}` needs NAME=VALUE"));
                    over.sets.push((name.to_string(), value.to_string()));
                    continue;
                }
                "line" => {
                    let (n, claim) = rest.split_once(' ').unwrap_or((rest, ""));
                    ((file.to_string(), n.parse().unwrap_or_else(|_| panic!("{file}: `{part}`"))), claim)
                }
                "at" => {
                    let parts = rest.split_once(" <<").and_then(|(name, rest)| Some((name, rest.rsplit_once(">> ")?)));
                    let (name, (line, claim)) = parts.unwrap_or_else(|| panic!("{file}: `{part}` needs FILE <<LINE>>"));
                    let (code, text) = claim.split_once(' ').unwrap_or((claim, ""));
                    let written = line.to_string();
                    out.push(Claim {
                        file: name.into(),
                        line: 0,
                        written,
                        code: code.into(),
                        text: text.trim().into(),
                    });
                    continue;
                }
                "nowhere" => ((String::new(), 0), rest),
                _ => ((file.to_string(), i + 1), part),
            };
            let (code, text) = claim.split_once(' ').unwrap_or((claim, ""));
            out.push(Claim {
                file: place.0,
                line: place.1,
                written: String::new(),
                code: code.to_string(),
                text: text.trim().to_string(),
            });
        }
    }
    out
}

/// Where a diagnostic stands, as a claim with its whole message.
pub fn claim_of(d: &Diagnostic, sources: &SourceMap) -> Claim {
    let (file, line, written) = match d.span {
        Some(s) => {
            let f = sources.file(s.file);
            let line = f.line_col(s.start).0 as usize;
            (f.name.clone(), line + 1, f.text.lines().nth(line).unwrap_or("").trim().to_string())
        }
        None => (String::new(), 0, String::new()),
    };
    Claim { file, line, written, code: d.code.to_string(), text: d.message.clone() }
}

/// True if a claim says what was found.
pub fn fits(claim: &Claim, found: &Claim) -> bool {
    let same_line = if claim.written.is_empty() { claim.line == found.line } else { claim.written == found.written };
    claim.file == found.file && same_line && claim.code == found.code && found.text.contains(&claim.text)
}
