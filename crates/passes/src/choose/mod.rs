//! From a saturated graph to one term: extraction with derived weights and a memory budget.
//!
//! A class that depends on weights only may be *derived*: computed once, before the first run, and kept. That costs no time
//! in a run and resident bytes, whose price in time is part of the device record. What is only a view of weights is never
//! derived, since reading it through the view costs the same.

mod classes;

use crate::cost::Device;
use crate::dag::Dag;
use crate::extract::Problem;
use crate::rules::Class;
use crate::term::Graph;
use classes::Classes;
use egg::Id;
use spinec_ir::ty::{DType, Env};
use std::collections::{BTreeMap, BTreeSet};

/// What extraction is asked for.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// What times are costed against.
    pub device: &'a Device,
    /// Values of the symbols that sizes are costed at.
    pub env: &'a Env,
    /// Classes of rules allowed; a derived weight is stored narrower than it is computed only if it may change rounding.
    pub classes: &'a BTreeSet<Class>,
    /// Resident bytes that derived weights of the region may take; `None` is no limit.
    pub budget: Option<u64>,
    /// Derived weights that are there already, by definition: they cost nothing more.
    pub present: &'a BTreeSet<String>,
    /// Classes of values the spec computes itself. Such a value is kept in its own dtype; one that rewriting made is rounded,
    /// once, to the widest dtype of the weights it comes from, if its own is the one they are computed with.
    pub written: &'a BTreeSet<Id>,
}

/// A derived weight of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derivation {
    /// How it is computed, in the dtype of its value; the root is the last node.
    pub definition: Dag,
    /// The dtype it is rounded to, once, after everything else.
    pub storage: DType,
    /// Resident bytes.
    pub bytes: u64,
    /// Picoseconds a run would take longer without it, everything else chosen anew.
    pub saving_ps: u64,
}

/// A derived weight that was not made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// Its type and what it is made of.
    pub what: String,
    /// Resident bytes it would take.
    pub bytes: u64,
    /// Picoseconds a run it would save.
    pub saving_ps: u64,
    /// Why.
    pub reason: Reason,
}

/// Why a derived weight was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The budget does not hold it besides what saves more per byte.
    Capacity {
        /// Bytes wanted by all derived weights of the region when it was refused.
        wanted: u64,
        /// Bytes there are.
        budget: u64,
    },
    /// It would save time, but less than its resident bytes are worth on the device.
    Costlier,
}

/// The term chosen for a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// Nodes, what is used before what uses it; derived weights have no children.
    pub dag: Dag,
    /// The nodes of the roots.
    pub roots: Vec<usize>,
    /// Derived weights by node.
    pub derived: BTreeMap<usize, Derivation>,
    /// For every node the class it comes from.
    pub classes: Vec<Id>,
    /// For every node the place in the region of the first op that it is equal to, if there is one.
    pub origin: Vec<Option<usize>>,
    /// Linear maps of one operand that are costed as one kernel, each with two members or more.
    pub groups: Vec<Vec<usize>>,
    /// Refused derived weights, in order.
    pub refused: Vec<Refusal>,
    /// Time of a run, picoseconds.
    pub time_ps: u64,
    /// Other choices by time and resident bytes, the fastest first, none worse than another in both; at most four.
    pub variants: Vec<Variant>,
}

/// A trade of time for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variant {
    /// Time of a run, picoseconds.
    pub time_ps: u64,
    /// Resident bytes of its derived weights.
    pub resident: u64,
}

/// The extraction problem of the roots, without regard to the budget.
pub fn problem(g: &Graph, roots: &[Id], wish: &Wish) -> Problem {
    let c = Classes::new(g, wish);
    let roots: Vec<usize> = roots.iter().map(|r| c.index[&g.eg.find(*r)]).collect();
    c.problem(&roots, &BTreeSet::new(), Some(1), wish)
}

/// Chooses a term for the roots.
///
/// # Errors
/// A root that no acyclic term makes: saturation lost it.
pub fn choose(g: &Graph, roots: &[Id], wish: &Wish) -> Result<Solution, String> {
    let c = Classes::new(g, wish);
    let roots: Vec<usize> = roots.iter().map(|r| c.index[&g.eg.find(*r)]).collect();
    let mut banned: BTreeSet<usize> = BTreeSet::new();
    let mut refused: Vec<Refusal> = Vec::new();
    let mut victims: Vec<usize> = Vec::new();
    let lost = || "a root has no acyclic term".to_owned();
    let mut found = loop {
        let (picks, savings) = c.solve(&roots, &banned, wish).ok_or_else(lost)?;
        let wanted = c.resident(&savings);
        let Some(budget) = wish.budget.filter(|b| wanted > *b) else { break (picks, savings) };
        // The one that saves least for its bytes goes; ties go to the later class.
        let worth = |k: &usize| {
            let bytes = c.derivable[*k].map_or(1, |d| d.0.max(1));
            u128::from(savings[k]) * (1 << 40) / u128::from(bytes)
        };
        let Some(victim) = savings.keys().rev().min_by_key(|k| worth(k)).copied() else { break (picks, savings) };
        refused.push(Refusal {
            what: c.describe(victim),
            bytes: c.derivable[victim].map_or(0, |d| d.0),
            saving_ps: savings[&victim],
            reason: Reason::Capacity { wanted, budget },
        });
        banned.insert(victim);
        victims.push(victim);
    };
    // What was refused early may fit beside what was refused later.
    for i in 0..victims.len().saturating_sub(1) {
        banned.remove(&victims[i]);
        let again = c.solve(&roots, &banned, wish).filter(|(_, s)| wish.budget.is_none_or(|b| c.resident(s) <= b));
        match again {
            Some(better) => {
                refused[i].bytes = 0;
                found = better;
            }
            None => {
                banned.insert(victims[i]);
            }
        }
    }
    refused.retain(|r| r.bytes > 0);
    let (picks, savings) = found;
    refused.extend(c.costlier(&roots, &banned, &picks, wish));
    c.solution(&roots, &picks, &savings, refused, wish).ok_or_else(lost)
}

/// Those that no other beats in both, the fastest first, at most four: the ends and what lies between.
fn pareto(mut all: Vec<Variant>) -> Vec<Variant> {
    all.sort();
    all.dedup();
    let mut out: Vec<Variant> = Vec::new();
    for v in all {
        if out.last().is_none_or(|l| v.resident < l.resident) {
            out.push(v);
        }
    }
    if out.len() > 4 {
        out.remove(3);
    }
    out
}
