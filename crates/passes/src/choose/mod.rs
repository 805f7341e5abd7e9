//! From a saturated graph to one term: extraction with derived weights and a memory budget.
//!
//! A class that depends on weights only may be *derived*: computed once, before the first run, and kept. That costs no time
//! in a run and resident bytes, whose price in time is part of the device record. What is only a view of weights is never
//! derived, since reading it through the view costs the same.

mod classes;
mod define;
mod slow;
mod widths;

use crate::cost::Device;
use crate::dag::Dag;
use crate::extract::{Picks, Problem, extract};
use crate::term::Graph;
use classes::Classes;
use egg::Id;
use spinec_ir::ir::Weight;
use spinec_ir::ty::{DType, Env};
use std::collections::{BTreeMap, BTreeSet};

/// The choice to store a derived weight narrower than it is computed, which moves a rounding point: of class
/// [`Class::RoundingChanging`](crate::rules::Class::RoundingChanging), and left out by this name as rules are by theirs.
pub const NARROW_STORAGE: &str = "narrow-storage";

/// What extraction is asked for.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// What times are costed against.
    pub device: &'a Device,
    /// Values of the symbols that sizes are costed at.
    pub env: &'a Env,
    /// Whether a derived weight may be stored narrower than it is computed ([`NARROW_STORAGE`]).
    pub narrow: bool,
    /// The module's weights.
    pub weights: &'a [Weight],
    /// How often the region runs: resident bytes have to pay once for all runs.
    pub runs: u64,
    /// Classes of values the spec computes itself. Such a value is kept in its own dtype; one that rewriting made is rounded,
    /// once, to the widest dtype of the weights it comes from, if its own is the one they are computed with.
    pub written: &'a BTreeSet<Id>,
}

/// A derived weight of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derivation {
    /// How it is computed, in the dtype of its value; the root is the last node. Leaf `i` is the index of loop `i`.
    pub definition: Dag,
    /// The loops it depends on: their index among the leaves of the region, and for which indices it exists.
    pub loops: Spread,
    /// The dtype it is rounded to, once, after everything else.
    pub storage: DType,
    /// Resident bytes of all elements.
    pub bytes: u64,
    /// Picoseconds a run would take longer without it, everything else chosen anew.
    pub saving_ps: u64,
}

/// Over which loops a derived weight has elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Leaves of the region that are the loops' indices; at most one.
    pub leaves: Vec<u32>,
    /// The loops' variables and extents.
    pub loops: Vec<(String, i64)>,
    /// For which indices it exists: those for which all weights it is made of do. Empty means all.
    pub present: Vec<bool>,
}

impl Spread {
    /// Number of elements.
    pub fn count(&self) -> u64 {
        if self.present.is_empty() {
            return self.loops.iter().map(|(_, n)| n.unsigned_abs()).product();
        }
        self.present.iter().filter(|p| **p).count() as u64
    }
}

/// A derived weight that was not made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// Its type and what it is made of.
    pub what: String,
    /// Resident bytes it would take.
    pub bytes: u64,
    /// Picoseconds a run it would save, added to what was chosen.
    pub saving_ps: u64,
    /// Why.
    pub reason: Reason,
}

/// Why a derived weight was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The budget does not hold it besides what saves more.
    Capacity {
        /// Bytes that all derived weights of the module would take without a budget.
        wanted: u64,
        /// Bytes there are.
        budget: u64,
    },
    /// It would save time, but less than its resident bytes are worth on the device.
    Costlier,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Capacity { wanted, budget } => {
                write!(f, "capacity: {wanted} bytes are wanted in all, the budget is {budget}")
            }
            Reason::Costlier => f.write_str("costlier: its resident bytes are worth more than the time it saves"),
        }
    }
}

impl Derivation {
    /// Whether it is kept in a narrower dtype than it is computed in.
    pub fn narrowed(&self) -> bool {
        let computed = self.definition.nodes.last().and_then(|n| n.types.first()?.tensor());
        computed.is_some_and(|t| t.dtype != self.storage)
    }
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
    /// For every node the results it is equal to, by the place of their op in the region and their number.
    pub same: Vec<Vec<(usize, usize)>>,
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

/// The extraction problem of the roots.
pub fn problem(g: &Graph, roots: &[Id], wish: &Wish) -> Problem {
    let chooser = Chooser::new(g, roots, wish);
    chooser.classes.problem(&chooser.roots, &BTreeSet::new(), &BTreeSet::new(), Some(1))
}

/// Choices for the roots of one region, made again and again as derived weights are refused or shared.
pub struct Chooser<'a> {
    classes: Classes<'a>,
    roots: Vec<usize>,
}

/// A choice for a region.
#[derive(Clone, Debug)]
pub struct Choosing {
    picks: Picks,
    /// Time of a run, picoseconds.
    pub time_ps: u64,
    /// The derived weights by definition, with the class and the resident bytes of each.
    pub derived: BTreeMap<String, (usize, u64)>,
    /// Derived weights that would have been chosen and are banned.
    pub missed: BTreeMap<String, (usize, u64)>,
}

impl<'a> Chooser<'a> {
    /// For some roots of a saturated graph.
    pub fn new(g: &'a Graph, roots: &[Id], wish: &'a Wish<'a>) -> Chooser<'a> {
        let classes = Classes::new(g, wish);
        let roots = roots.iter().map(|r| classes.index[&g.eg.find(*r)]).collect();
        Chooser { classes, roots }
    }

    /// The best term without the derived weights whose definitions are `banned`; those `present` cost nothing more.
    ///
    /// # Errors
    /// A root that no acyclic term makes: saturation lost it.
    pub fn choose(&self, banned: &BTreeSet<String>, present: &BTreeSet<String>) -> Result<Choosing, String> {
        let mut without: BTreeSet<usize> = BTreeSet::new();
        let mut missed: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        let there = self.classes.there(present);
        loop {
            let problem = self.classes.problem(&self.roots, &without, &there, Some(1));
            let picks = extract(&problem).ok_or_else(|| "a root has no acyclic term".to_owned())?;
            let derived = self.classes.derived(&picks);
            let refused: Vec<&String> = derived.keys().filter(|d| banned.contains(*d)).collect();
            if refused.is_empty() {
                let time_ps = self.classes.measure(&problem, &picks).time_ps;
                return Ok(Choosing { picks, time_ps, derived, missed });
            }
            for text in refused {
                without.insert(derived[text].0);
                missed.insert(text.clone(), derived[text]);
            }
        }
    }

    /// The definitions of everything that may be derived.
    pub fn definitions(&self) -> BTreeSet<String> {
        self.classes.definitions()
    }

    /// Time a run takes longer if one more class is not derived, nor another in its place that is as large: the same table
    /// turned, say.
    fn saving(&self, chosen: &Choosing, present: &BTreeSet<String>, class: usize, bytes: u64) -> u64 {
        let mut without: BTreeSet<usize> = chosen.missed.values().map(|m| m.0).collect();
        without.insert(class);
        let there = self.classes.there(present);
        loop {
            let problem = self.classes.problem(&self.roots, &without, &there, Some(1));
            let Some(picks) = extract(&problem) else { return u64::MAX };
            let before = without.len();
            let derived = self.classes.derived(&picks);
            let instead = derived.iter().filter(|(text, d)| !chosen.derived.contains_key(*text) && d.1 >= bytes);
            without.extend(instead.map(|(_, d)| d.0));
            if without.len() == before {
                return self.classes.measure(&problem, &picks).time_ps.saturating_sub(chosen.time_ps);
            }
        }
    }

    /// What each derived weight of a choice saves a run, by definition.
    pub fn savings(&self, chosen: &Choosing, present: &BTreeSet<String>) -> BTreeMap<String, u64> {
        let saving = |(k, bytes): &(usize, u64)| self.saving(chosen, present, *k, *bytes);
        chosen.derived.iter().map(|(text, d)| (text.clone(), saving(d))).collect()
    }

    /// The choice as a term. `wanted` are derived weights the region would have without a budget; `reason` is why those it
    /// does not get are refused.
    ///
    /// # Errors
    /// The choice is not one of this region.
    pub fn solution(
        &self,
        chosen: &Choosing,
        present: &BTreeSet<String>,
        wanted: &BTreeMap<String, (usize, u64)>,
        reason: Reason,
    ) -> Result<Solution, String> {
        let mut unwanted = chosen.missed.clone();
        unwanted.extend(
            wanted.iter().filter(|(text, _)| !chosen.derived.contains_key(*text)).map(|(t, w)| (t.clone(), *w)),
        );
        let mut refused: Vec<Refusal> = Vec::new();
        for (text, (class, bytes)) in unwanted {
            let banned: BTreeSet<String> = chosen.missed.keys().filter(|t| **t != text).cloned().collect();
            let with = self.choose(&banned, present)?;
            let saving_ps = chosen.time_ps.saturating_sub(with.time_ps);
            if saving_ps > 0 || wanted.contains_key(&text) {
                refused.push(Refusal { what: self.classes.describe(class), bytes, saving_ps, reason });
            }
        }
        refused.sort();
        refused.extend(self.classes.costlier(&self.roots, chosen, present));
        let savings = self.savings(chosen, present);
        self.classes
            .solution(&self.roots, chosen, &savings, refused)
            .ok_or_else(|| "a choice does not fit its region".to_owned())
    }
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
