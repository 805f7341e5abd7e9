//! How the terms of a region came about: the chain of rules from every value as it is written to the value that is computed.
//!
//! A graph records terms and rule applications only if asked to ([`Options::record`](crate::pass::Options)): saturation,
//! choice and plan are the same either way. From the record follow, once terms are chosen, the chains of all values.

mod build;
mod chain;
mod prove;
pub(crate) mod record;
mod show;
mod store;

pub(crate) use build::history;
pub use chain::{Chain, Fate, Step, Why};
pub use show::{Names, Shown};
pub use store::{Node, Store, TermId};

use spinec_ir::diag::Span;
use spinec_ir::ir::{Taken, WeightId};
use std::sync::Arc;

/// The history of a region, and of all regions of its structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// All terms. The leaves are those of the region, by number.
    pub store: Store,
    /// For every op of the region its results as they are written.
    pub written: Vec<Vec<TermId>>,
    /// For every result of every op the chain to what is computed; none if that value is not computed any more.
    pub values: Vec<Vec<Option<Chain>>>,
    /// The chains of what the region hands on, in order.
    pub roots: Vec<Chain>,
    /// The derived weights.
    pub held: Vec<Held>,
    /// Where the regions of this structure are.
    pub places: Vec<Place>,
}

/// A derived weight of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The weight in the program.
    pub weight: WeightId,
    /// The first of its columns; other than zero only where tables were joined.
    pub column: Option<i64>,
    /// What it is.
    pub term: TermId,
}

/// A region of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function.
    pub func: String,
    /// Its ops.
    pub ops: Vec<PlaceOp>,
    /// What stands for the leaves: node paths, else what makes them.
    pub leaves: Vec<String>,
    /// The values that are handed on: op and result.
    pub roots: Vec<(usize, usize)>,
    /// For every loop whose index chooses a case around the region, the iterations in which it runs.
    pub taken: Vec<Taken>,
}

/// An op of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceOp {
    /// The names of its results.
    pub names: Vec<Vec<Arc<str>>>,
    /// The node it is part of.
    pub path: Arc<str>,
    /// The expression in the YAML file.
    pub span: Option<Span>,
}

impl History {
    /// The ops and results of a place that a node path names.
    pub fn named(&self, place: &Place, path: &str) -> Vec<(usize, usize)> {
        let results = |(i, op): (usize, &PlaceOp)| -> Vec<(usize, usize)> {
            let named = op.names.iter().enumerate().filter(|(_, names)| names.iter().any(|n| **n == *path));
            named.map(|(r, _)| (i, r)).collect()
        };
        place.ops.iter().enumerate().flat_map(results).collect()
    }

    /// The ops and results of a place that are intermediates of the node of a path.
    pub fn within(&self, place: &Place, path: &str) -> Vec<(usize, usize)> {
        let inside = place.ops.iter().enumerate().filter(|(_, op)| *op.path == *path);
        inside.flat_map(|(i, op)| (0..op.names.len()).map(move |r| (i, r))).collect()
    }

    /// The op of a place that a term is written as.
    pub fn op_of(&self, term: TermId) -> Option<(usize, usize)> {
        let at = |(i, all): (usize, &Vec<TermId>)| all.iter().position(|t| *t == term).map(|r| (i, r));
        self.written.iter().enumerate().find_map(at)
    }
}
