//! The spec language: YAML text to a spanned tree, expressions, names, dims, types, lowering to the graph IR.

pub mod ast;
mod bare;
pub mod expr;
mod fields;
mod hygiene;
mod load;
mod lower;
mod parse_graph;
pub mod statics;
pub mod system;
pub mod yaml;

pub use bare::{BareGraph, load_graph};
pub use load::Host;

use crate::diag::{Diagnostic, Diagnostics, SourceMap, codes};
use load::Loader;
use system::{LoadedSystem, Overrides};

/// A loaded file: a system, or a graph on its own.
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
/// stays.
pub(crate) fn once(diags: Diagnostics) -> Diagnostics {
    let mut seen = std::collections::BTreeSet::new();
    let mut out = Diagnostics::default();
    for d in diags.iter() {
        if seen.insert((d.code, d.span, d.message.clone())) {
            out.push(d.clone());
        }
    }
    out
}

/// Loads and checks a file. Whether it is a system or a graph is decided by its first key.
pub fn load(path: &str, host: &dyn Host, over: &Overrides) -> Loaded {
    let mut loader = Loader::new(host);
    let Some(root) = loader.tree(path, None) else {
        return Loaded::Graph { sources: loader.sources, diags: loader.diags };
    };
    if root.get("system").is_some() {
        return Loaded::System(system::load(loader, root, path, host, over));
    }
    if root.get("graph").is_none() {
        loader.diags.push(
            Diagnostic::error(codes::MISSING_KEY, root.span, "a spec file begins with `graph: NAME` or `system: NAME`")
                .help("a part of a system file that others extend is checked through them"),
        );
        return Loaded::Graph { sources: loader.sources, diags: loader.diags };
    }
    let index = loader.graph_from(path, &root);
    let Loader { sources, mut diags, files, .. } = loader;
    if let Some(index) = index {
        for i in 0..files.list.len() {
            hygiene::file(&files, i, &mut diags);
        }
        lower::check_file(&files, index, &mut diags);
    }
    Loaded::Graph { sources, diags: once(diags) }
}
