//! The spec language: YAML text to a spanned tree, expressions, names, dims, types, lowering to the graph IR.

pub mod ast;
mod bare;
pub mod device;
pub mod expr;
mod fields;
mod help;
mod hygiene;
mod load;
mod lower;
mod parse_graph;
mod parse_nodes;
pub mod reference;
pub mod statics;
pub mod system;
pub mod yaml;

pub use bare::{BareGraph, load_graph};
pub use load::Host;

use crate::diag::{Diagnostic, Diagnostics, FileId, SourceMap, codes};
use load::Loader;
use std::collections::BTreeMap;
use system::{LoadedSystem, Overrides};

/// A loaded file: a system, or a graph on its own.
#[allow(clippy::large_enum_variant)] // There is one of them in a run.
pub enum Loaded {
    /// A system file.
    System(LoadedSystem),
    /// A graph file, checked with its dims unbound.
    Graph {
        /// The files read.
        sources: SourceMap,
        /// Messages.
        diags: Diagnostics,
    },
}

/// The diagnostics without those that only say once more what another said: the first of the same code, place and text
/// stays, and a name that is unused because its one use is misspelled is not reported as unused.
pub(crate) fn once(diags: Diagnostics) -> Diagnostics {
    let mut seen = std::collections::BTreeSet::new();
    let mut out = Diagnostics::default();
    let meant: Vec<_> = diags
        .iter()
        .filter(|d| d.code == codes::UNKNOWN_NAME)
        .filter_map(|d| Some((d.span?.file, d.help.as_deref()?)))
        .collect();
    for d in diags.iter() {
        let consequence = d.code == codes::UNUSED
            && d.span.is_some_and(|s| {
                let name = out_of(&d.message);
                meant.iter().any(|(file, help)| {
                    *file == s.file && name.is_some_and(|n| *help == format!("did you mean `{n}`?"))
                })
            });
        if !consequence && seen.insert((d.code, d.span, d.message.clone())) {
            out.push(help::with_help(d.clone()));
        }
    }
    out
}

/// Codes of errors that say that something is not there, or that nothing needs it.
const ABSENT: &[&str] = &[
    codes::UNKNOWN_NAME,
    codes::UNKNOWN_FUNCTION,
    codes::UNUSED,
    codes::STATE_UNUSED,
    codes::WEIGHT_BINDING,
    codes::MISSING_KEY,
    codes::UNBOUND_DIM,
    codes::BAD_CALL,
    codes::SYSTEM,
];

/// What was `found` in files that were read, without what can be a consequence of those in which parts could not be: that
/// something is absent, said of a file of which `partial` holds. Their cause was reported when they were read.
pub(crate) fn causes(found: Diagnostics, partial: impl Fn(FileId) -> bool) -> Diagnostics {
    let mut out = Diagnostics::default();
    for d in found.iter() {
        if !(ABSENT.contains(&d.code) && d.span.is_some_and(|s| partial(s.file))) {
            out.push(d.clone());
        }
    }
    out
}

/// The first name a message quotes.
fn out_of(message: &str) -> Option<&str> {
    message.split('`').nth(1)
}

/// Loads and checks a file. Whether it is a system or a graph is decided by its first key.
pub fn load(path: &str, host: &dyn Host, over: &Overrides) -> Loaded {
    let mut loader = Loader::new(host);
    let Some(root) = loader.tree(path, None) else {
        return Loaded::Graph { sources: loader.sources, diags: once(loader.diags) };
    };
    if root.get("system").is_some() {
        return Loaded::System(system::load(loader, root, path, host, over));
    }
    if root.get("graph").is_none() {
        loader.diags.push(
            Diagnostic::error(codes::MISSING_KEY, root.span, "a spec file begins with `graph: NAME` or `system: NAME`")
                .help("a part of a system file that others extend is checked through them"),
        );
        return Loaded::Graph { sources: loader.sources, diags: once(loader.diags) };
    }
    let index = loader.graph_from(path, &root);
    let Loader { sources, mut diags, files, .. } = loader;
    if let Some(index) = index {
        let mut found = Diagnostics::default();
        for i in 0..files.list.len() {
            hygiene::file(&files, i, &mut found);
        }
        lower::check_file(&files, index, &mut found);
        diags.extend(causes(found, |f| files.partial(f)));
        // Given values, the graph is checked with them too, as `eval` does.
        if !over.sets.is_empty() && !diags.has_errors() {
            return match bare::load_graph(path, host, over, None, &BTreeMap::new(), None) {
                Ok(_) => Loaded::Graph { sources, diags: once(diags) },
                Err((sources, diags)) => Loaded::Graph { sources, diags: once(diags) },
            };
        }
    }
    Loaded::Graph { sources, diags: once(diags) }
}
