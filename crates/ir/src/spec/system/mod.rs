//! Systems: components with bound dims, limits, phases and entries.

mod bind;
mod check;
mod components;
mod configs;
mod decl;
pub mod engine;
mod facts;
mod fit;
mod functions;
mod given;
mod hygiene;
mod kinds;
mod limits;
mod origins;
mod parse;
mod patches;
mod serving;
mod spellings;
mod tables;
mod values;

pub(crate) use fit::fit;
pub use functions::{EntryModule, Phase, PhaseModule, Stream, Wire};
pub(crate) use given::{given_help, name_of, parse_sets};
pub(crate) use parse::relative;
pub use values::Config;

use super::load::{Host, Loader};
use super::lower::{ComponentRef, Files, Shared, Surroundings};
use super::statics::Static;
use super::yaml::{Node, Value};
use crate::diag::{Diagnostic, Diagnostics, SourceMap, Span, codes};
use crate::ir::{StateDecl, Weight};
use crate::ty::{Numerics, RuleClass};
use decl::SystemDecl;
use std::collections::{BTreeMap, BTreeSet};

/// What the command line says about a system.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `NAME=VALUE`: dims, lists, parameters, `COMPONENT.NAME` and `serve.KEY`.
    pub sets: Vec<(String, String)>,
    /// Checkpoint directories by name.
    pub checkpoints: BTreeMap<String, String>,
    /// Numerics policy; `None` takes the system file's, or f32.
    pub numerics: Option<Numerics>,
    /// Only limits about what is computed apply, not those about serving (`eval`).
    pub no_limits: bool,
}

/// A checkpoint a system names.
#[derive(Clone, Debug)]
pub struct CheckpointRef {
    /// Name in the system file.
    pub name: String,
    /// Directory.
    pub dir: String,
    /// Patterns of tensors nobody needs, with the reason.
    pub ignore: Vec<(String, String)>,
}

/// Serving bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serve {
    /// Most requests at once.
    pub requests: i64,
    /// Most positions of a request.
    pub context: i64,
    /// Most rows of one prefill call.
    pub chunk: i64,
    /// Positions the drafter was made for; requests past them are decoded plainly.
    pub draft_context: i64,
    /// Rows of a block, the anchor included.
    pub block: i64,
}

/// A width rule: requests in flight to rows verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// Least number of requests.
    pub from: i64,
    /// Largest number of requests.
    pub to: i64,
    /// Rows a request, the anchor included.
    pub width: i64,
}

/// A system with bound values.
pub struct System {
    decl: SystemDecl,
    files: Files,
    component_files: BTreeMap<String, usize>,
    values: BTreeMap<String, BTreeMap<String, Static>>,
    paths: BTreeMap<String, Static>,
    shares: BTreeMap<String, Shared>,
    set_values: BTreeMap<String, Static>,
    patches: Vec<patches::Patch>,
    sets: given::Sets,
    /// Name.
    pub name: String,
    /// Numerics policy of the run.
    pub numerics: Numerics,
    /// Classes of rewrite rules that may fire.
    pub rules: BTreeSet<RuleClass>,
    /// Checkpoints in file order.
    pub checkpoints: Vec<CheckpointRef>,
    /// Serving bounds.
    pub serve: Serve,
    /// Width rules by law.
    pub widths: BTreeMap<String, Vec<Width>>,
    /// Every weight, with its tensor.
    pub weights: Vec<Weight>,
    /// Every state.
    pub states: Vec<StateDecl>,
    /// Config values by checkpoint, as read.
    pub configs: BTreeMap<String, Config>,
}

/// What loading gave: messages, and the system if it can be used.
pub struct LoadedSystem {
    /// The files read.
    pub sources: SourceMap,
    /// Messages.
    pub diags: Diagnostics,
    /// The system; `None` if a part is missing that nothing can go on without.
    pub system: Option<System>,
}

/// Loads a system file whose tree is `root`.
pub(crate) fn load(mut loader: Loader, root: Node, path: &str, host: &dyn Host, over: &Overrides) -> LoadedSystem {
    let root = extend(&mut loader, root, path, &mut Vec::new());
    let decl = root.and_then(|r| parse::system(&r, &loader.sources, &mut loader.diags));
    // So far no graph file was read.
    let cut = !loader.cut.is_empty();
    let Some(mut decl) = decl else {
        return LoadedSystem { sources: loader.sources, diags: super::once(loader.diags), system: None };
    };
    decl.partial |= cut;
    let mut component_files = BTreeMap::new();
    for c in &decl.components {
        if let Some((path, span)) = &c.graph
            && let Some(i) = loader.graph(path, Some(*span))
        {
            component_files.insert(c.name.name.clone(), i);
        }
    }
    bind::bind(loader, decl, component_files, host, over)
}

/// The tree of a system file laid over those it extends. `chain` holds the files on the way here.
fn extend(loader: &mut Loader, root: Node, path: &str, chain: &mut Vec<(String, Span)>) -> Option<Node> {
    let Some(entry) = root.get("extends") else { return Some(root) };
    let span = entry.value.span;
    let Some(base) = entry.value.as_str().map(str::to_string) else {
        let d = Diagnostic::error(codes::YAML_SHAPE, span, "`extends` names a system file");
        loader.diags.push(d.help("extends: parts/base.yaml"));
        return None;
    };
    chain.push((super::load::normal(path), span));
    let base_path = super::load::normal(&parse::relative(&loader.sources, span, &base));
    if let Some(first) = chain.iter().position(|(p, _)| *p == base_path) {
        let mut d = Diagnostic::error(codes::RECURSION, span, "system files extend each other in a circle");
        for (p, s) in &chain[first..chain.len() - 1] {
            d = d.related(*s, format!("by way of {p}"));
        }
        loader.diags.push(d.help("a system extends files that do not extend it"));
        return None;
    }
    // This file and those it extends by way of others are on the stack.
    if chain.len() >= super::load::MAX_FILES {
        let d = Diagnostic::error(
            codes::FILE,
            span,
            format!("more than {} files extend each other in a row", super::load::MAX_FILES),
        );
        loader.diags.push(d.help("a file may extend one that holds what several of these hold"));
        return None;
    }
    let tree = loader.tree(&base_path, Some(span))?;
    if tree.as_map().is_none_or(|entries| entries.is_empty()) {
        let what = match &tree.value {
            Value::Null | Value::Map(_) => "empty".to_string(),
            other => format!("{}, not a mapping", other.describe()),
        };
        let d = Diagnostic::error(codes::YAML_SHAPE, span, format!("{base_path} is {what}; it cannot be extended"));
        loader.diags.push(d.related(tree.span, "this file").help("a system file, or a part of one, is a mapping"));
        return None;
    }
    if tree.get("graph").is_some() {
        let d = Diagnostic::error(codes::FILE, span, format!("{base_path} is a graph file, it cannot be extended"));
        loader.diags.push(d.help("a component names its graph file: components: {NAME: {graph: FILE}}"));
        return None;
    }
    let tree = extend(loader, tree, &base_path, chain)?;
    Some(parse::merge(tree, root))
}

impl System {
    /// The config.json of a checkpoint (from the place the system names on), with what `--set` bound instead of its keys.
    pub fn patched_config(&self, checkpoint: &str) -> Option<serde_json::Value> {
        let mut json = self.configs.get(checkpoint)?.json.clone();
        for p in self.patches.iter().filter(|p| p.checkpoint == checkpoint) {
            if let Some(at) = p.path.iter().try_fold(&mut json, |at, key| at.get_mut(key)) {
                *at = p.value.clone();
            }
        }
        Some(json)
    }
}

impl Surroundings for System {
    fn component(&self, name: &str) -> Option<ComponentRef<'_>> {
        Some(ComponentRef { file: *self.component_files.get(name)?, values: self.values.get(name)? })
    }

    fn components(&self) -> Vec<&str> {
        self.component_files.keys().map(String::as_str).collect()
    }

    fn path(&self, path: &[&str]) -> Option<Static> {
        self.paths.get(&path.join(".")).cloned()
    }

    fn share(&self, path: &str) -> Option<Shared> {
        self.shares.get(&super::lower::weight_key(path)).map(|s| {
            // Indices of the line are named by its own variables; the path names the loops around the weight.
            let vars = super::lower::weight_vars(path);
            let mut s = s.clone();
            for index in &mut s.indices {
                if let super::lower::SharedIndex::Var(v) = index
                    && let Some(place) = v.strip_prefix('#').and_then(|p| p.parse::<usize>().ok())
                    && let Some(name) = vars.get(place)
                {
                    *v = name.clone();
                }
            }
            s
        })
    }
}
