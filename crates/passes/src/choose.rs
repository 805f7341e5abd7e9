//! From a saturated graph to one term: extraction with derived weights and a memory budget.
//!
//! A class that depends on weights only may be *derived*: computed once, before the first run, and kept. That costs no time
//! in a run and resident bytes, whose price in time is part of the device record. What is only a view of weights is never
//! derived, since reading it through the view costs the same.

use crate::cost::{self, Device, Operand};
use crate::dag::{Dag, DagNode};
use crate::extract::{Choice, Picks, Problem, extract};
use crate::rules::Class;
use crate::term::{Graph, Head, Term};
use egg::Id;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Env, Type};
use std::cell::RefCell;
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

/// Prices of resident bytes the variants are found at, as multiples of the device's.
const VARIANT_PRICES: [u64; 4] = [0, 1, 1 << 6, 1 << 12];

/// A graph's classes with their nodes in order.
struct Classes<'a> {
    g: &'a Graph,
    ids: Vec<Id>,
    index: BTreeMap<Id, usize>,
    nodes: Vec<Vec<Term>>,
    /// Bytes of an element as it is read from memory.
    width: Vec<u64>,
    /// Bytes of the narrowest dtype that holds the values, which decides how fast products of them are.
    value: Vec<u64>,
    /// Resident bytes if derived, and the storage dtype; none if it cannot be.
    derivable: Vec<Option<(u64, DType)>>,
    /// The nodes as choices.
    base: Vec<Vec<Choice>>,
    /// The same with choices for what depends on weights and constants only.
    fixed: Vec<Vec<Choice>>,
    definitions: RefCell<BTreeMap<usize, Dag>>,
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

impl<'a> Classes<'a> {
    fn new(g: &'a Graph, wish: &Wish) -> Classes<'a> {
        let mut ids: Vec<Id> = g.eg.classes().map(|c| c.id).collect();
        ids.sort();
        let index = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let nodes = ids
            .iter()
            .map(|id| {
                let mut nodes = g.eg[*id].nodes.clone();
                nodes.sort();
                nodes
            })
            .collect();
        let mut c = Classes {
            g,
            ids,
            index,
            nodes,
            width: vec![],
            value: vec![],
            derivable: vec![],
            base: vec![],
            fixed: vec![],
            definitions: RefCell::default(),
        };
        let free = c.free();
        c.derivable = (0..c.ids.len()).map(|k| if free[k] { None } else { c.residence(k, wish) }).collect();
        c.width = c.widths(true);
        c.value = c.widths(false);
        c.base = (0..c.ids.len()).map(|k| c.nodes[k].iter().map(|n| c.choice(k, n, wish)).collect()).collect();
        let is_fixed = |k: usize| g.facts(c.ids[k]).fixed;
        c.fixed = c.base.clone();
        for (k, choices) in c.fixed.iter_mut().enumerate() {
            // Positions must stay those of the nodes, so what is no choice here needs itself.
            for choice in choices.iter_mut().filter(|ch| !is_fixed(k) || !ch.needs.iter().all(|n| is_fixed(*n))) {
                choice.needs = vec![k];
            }
        }
        c
    }

    /// Resident bytes of derived classes.
    fn resident(&self, derived: &BTreeMap<usize, u64>) -> u64 {
        derived.keys().map(|k| self.derivable[*k].map_or(0, |d| d.0)).sum()
    }

    fn child(&self, id: Id) -> usize {
        self.index[&self.g.eg.find(id)]
    }

    /// Classes that are weights or views of weights.
    fn free(&self) -> Vec<bool> {
        use Opcode::*;
        let mut free = vec![false; self.ids.len()];
        loop {
            let mut changed = false;
            for k in 0..free.len() {
                let is_free = |n: &Term| match n.code() {
                    Some(Weight) => true,
                    Some(Reshape | Transpose | Slice | Cast | Broadcast) => free[self.child(n.children[0])],
                    _ => false,
                };
                if !free[k] && self.nodes[k].iter().any(is_free) {
                    free[k] = true;
                    changed = true;
                }
            }
            if !changed {
                return free;
            }
        }
    }

    /// Bytes and dtype of a class kept in memory.
    fn residence(&self, k: usize, wish: &Wish) -> Option<(u64, DType)> {
        let facts = self.g.facts(self.ids[k]);
        let ty = facts.tensor().filter(|_| facts.weight_only())?;
        let source = facts.source?;
        let may = wish.classes.contains(&Class::RoundingChanging) && !wish.written.contains(&self.ids[k]);
        let narrow = may && source.is_float() && source.compute() == ty.dtype;
        let storage = if narrow { source } else { ty.dtype };
        let bytes = cost::elements(ty, &Env::new()) * u128::from(storage.bytes().unsigned_abs());
        Some((u64::try_from(bytes).ok()?, storage))
    }

    /// Element widths. Views hold the values of what is below them. `read`: elementwise ops run where their result is read, so
    /// what is below them is read.
    fn widths(&self, read: bool) -> Vec<u64> {
        let own = |k: usize| match (self.derivable[k], self.g.facts(self.ids[k]).types.as_slice()) {
            (Some((_, storage)), _) => storage.bytes().unsigned_abs(),
            (None, [Type::Tensor(t)]) => t.dtype.bytes().unsigned_abs(),
            _ => 1,
        };
        let mut width: Vec<u64> = (0..self.ids.len()).map(own).collect();
        loop {
            let mut changed = false;
            for k in 0..width.len() {
                for n in &self.nodes[k] {
                    if let Some(below) = self.below(k, n, read, &width)
                        && below < width[k]
                    {
                        width[k] = below;
                        changed = true;
                    }
                }
            }
            if !changed {
                return width;
            }
        }
    }

    /// The width read below a view or an elementwise op: that of its largest operands.
    fn below(&self, k: usize, n: &Term, read: bool, width: &[u64]) -> Option<u64> {
        let code = n.code()?;
        if cost::is_view(code) {
            return n.children.first().map(|c| width[self.child(*c)]);
        }
        let dims = &self.g.facts(self.ids[k]).tensor()?.dims;
        let full = |c: &&Id| self.g.ty(**c).is_some_and(|t| t.dims == *dims);
        (read && code.def().elementwise).then(|| n.children.iter().filter(full).map(|c| width[self.child(*c)]).max())?
    }

    fn choice(&self, k: usize, n: &Term, wish: &Wish) -> Choice {
        let mut needs: Vec<usize> = n.children.iter().map(|c| self.child(*c)).collect();
        needs.sort_unstable();
        needs.dedup();
        Choice { needs, cost: self.time(k, n, wish) }
    }

    /// The time of a node in a run.
    fn time(&self, k: usize, node: &Term, wish: &Wish) -> u64 {
        let operand = |c: &Id| {
            let child = self.child(*c);
            Operand { ty: &self.g.facts(self.ids[child]).types[0], width: self.width[child], value: self.value[child] }
        };
        let operands: Vec<Operand> = node.children.iter().map(operand).collect();
        let results: Vec<Operand> = self
            .g
            .facts(self.ids[k])
            .types
            .iter()
            .map(|ty| {
                let width = ty.tensor().map_or(1, |t| t.dtype.bytes().unsigned_abs());
                Operand { ty, width, value: width }
            })
            .collect();
        cost::time(wish.device, node, &operands, &results, wish.env)
    }

    /// The extraction problem: a class's nodes in order, then, if it may be, its derivation. `price` multiplies the price of
    /// resident bytes; `None` derives nothing.
    fn problem(&self, roots: &[usize], banned: &BTreeSet<usize>, price: Option<u64>, wish: &Wish) -> Problem {
        let mut classes = self.base.clone();
        for (k, choices) in classes.iter_mut().enumerate() {
            if let (Some(weight), Some((bytes, _)), false) = (price, self.derivable[k], banned.contains(&k)) {
                let there = !wish.present.is_empty() && wish.present.contains(&self.definition(k).text());
                let cost = if there { 1 } else { wish.device.resident_ps(bytes, weight) };
                choices.push(Choice { needs: vec![], cost });
            }
        }
        Problem { classes, roots: roots.to_vec() }
    }

    fn is_derived(&self, picks: &Picks, k: usize) -> bool {
        picks[k] == Some(self.nodes[k].len())
    }

    /// Time and resident bytes of picks, resident bytes unpriced.
    fn measure(&self, problem: &Problem, picks: &Picks) -> Variant {
        let mut out = Variant { time_ps: 0, resident: 0 };
        for (k, pick) in picks.iter().enumerate() {
            let Some(pick) = pick else { continue };
            if self.is_derived(picks, k) {
                out.time_ps = out.time_ps.saturating_add(1);
                out.resident += self.derivable[k].map_or(0, |d| d.0);
            } else {
                out.time_ps = out.time_ps.saturating_add(problem.classes[k][*pick].cost);
            }
        }
        out
    }

    /// The picks at the device's price, and for every derived class the time its absence would cost.
    fn solve(&self, roots: &[usize], banned: &BTreeSet<usize>, wish: &Wish) -> Option<(Picks, BTreeMap<usize, u64>)> {
        let problem = self.problem(roots, banned, Some(1), wish);
        let picks = extract(&problem)?;
        let with = self.measure(&problem, &picks).time_ps;
        let mut savings = BTreeMap::new();
        for k in (0..picks.len()).filter(|k| self.is_derived(&picks, *k)) {
            let mut fewer = problem.clone();
            fewer.classes[k].truncate(self.nodes[k].len());
            let without = extract(&fewer).map_or(u64::MAX, |p| self.measure(&fewer, &p).time_ps);
            savings.insert(k, without.saturating_sub(with));
        }
        Some((picks, savings))
    }

    /// What only the price of memory keeps out: derived at no price, not derived at the device's.
    fn costlier(&self, roots: &[usize], banned: &BTreeSet<usize>, picks: &Picks, wish: &Wish) -> Vec<Refusal> {
        let problem = self.problem(roots, banned, Some(0), wish);
        let Some(free) = extract(&problem) else { return Vec::new() };
        let with = self.measure(&problem, &free).time_ps;
        let unwanted = (0..free.len()).filter(|k| self.is_derived(&free, *k) && !self.is_derived(picks, *k));
        unwanted
            .map(|k| {
                let mut fewer = problem.clone();
                fewer.classes[k].truncate(self.nodes[k].len());
                let without = extract(&fewer).map_or(u64::MAX, |p| self.measure(&fewer, &p).time_ps);
                Refusal {
                    what: self.describe(k),
                    bytes: self.derivable[k].map_or(0, |d| d.0),
                    saving_ps: without.saturating_sub(with),
                    reason: Reason::Costlier,
                }
            })
            .collect()
    }

    /// How a class is computed from weights alone, at the least time and with no derived weights in it.
    fn definition(&self, k: usize) -> Dag {
        if let Some(known) = self.definitions.borrow().get(&k) {
            return known.clone();
        }
        let problem = Problem { classes: self.fixed.clone(), roots: vec![k] };
        let picks = extract(&problem).unwrap_or_default();
        let dag = self.dag(&problem, &picks).map(|(dag, _)| dag).unwrap_or_default();
        self.definitions.borrow_mut().insert(k, dag.clone());
        dag
    }

    fn describe(&self, k: usize) -> String {
        let ty = self.g.facts(self.ids[k]).tensor().map(ToString::to_string).unwrap_or_default();
        format!("{ty} = {}", self.definition(k).expression())
    }

    /// The picked nodes in order, with the place of every class.
    fn dag(&self, problem: &Problem, picks: &Picks) -> Option<(Dag, BTreeMap<usize, usize>)> {
        let order = problem.order(&|k| picks.get(k).copied().flatten())?;
        let mut place: BTreeMap<usize, usize> = BTreeMap::new();
        let mut dag = Dag::default();
        for k in order {
            let types = self.g.facts(self.ids[k]).types.clone();
            let node = if self.is_derived(picks, k) {
                DagNode { head: None, key: crate::term::Key::new(Default::default()), children: vec![], types }
            } else {
                let n = &self.nodes[k][picks[k]?];
                let children =
                    n.children.iter().map(|c| place.get(&self.child(*c)).copied()).collect::<Option<Vec<_>>>()?;
                DagNode { head: Some(n.head), key: n.key.clone(), children, types }
            };
            place.insert(k, dag.nodes.len());
            dag.nodes.push(node);
        }
        Some((dag, place))
    }

    fn solution(
        &self,
        roots: &[usize],
        picks: &Picks,
        savings: &BTreeMap<usize, u64>,
        refused: Vec<Refusal>,
        wish: &Wish,
    ) -> Option<Solution> {
        let none = BTreeSet::new();
        let problem = self.problem(roots, &none, Some(1), wish);
        let (dag, place) = self.dag(&problem, picks)?;
        let mut derived = BTreeMap::new();
        for (k, saving_ps) in savings {
            let (bytes, storage) = self.derivable[*k]?;
            derived.insert(
                place[k],
                Derivation { definition: self.definition(*k), storage, bytes, saving_ps: *saving_ps },
            );
        }
        let mut classes = vec![self.ids[0]; dag.nodes.len()];
        for (k, at) in &place {
            classes[*at] = self.ids[*k];
        }
        let mut variants: Vec<Variant> = Vec::new();
        for price in VARIANT_PRICES.map(Some).into_iter().chain([None]) {
            let problem = self.problem(roots, &none, price, wish);
            if let Some(picks) = extract(&problem) {
                variants.push(self.measure(&problem, &picks));
            }
        }
        Some(Solution {
            roots: roots.iter().map(|r| place[r]).collect(),
            origin: Vec::new(),
            time_ps: self.measure(&problem, picks).time_ps,
            dag,
            derived,
            classes,
            refused,
            variants: pareto(variants),
        })
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

/// True if a node is a leaf of its region.
pub fn is_leaf(node: &DagNode) -> bool {
    matches!(node.head, Some(Head::Leaf(_)))
}
