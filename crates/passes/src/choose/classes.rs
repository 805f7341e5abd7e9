//! A saturated graph as an extraction problem, and a solution of the problem as a term.

use super::{Derivation, Reason, Refusal, Solution, Variant, Wish, pareto};
use crate::cost::{self, Operand};
use crate::dag::{Dag, DagNode};
use crate::extract::{Choice, Picks, Problem, extract};
use crate::rules::Class;
use crate::term::{Graph, Head, Key, Term};
use egg::Id;
use spinec_ir::ir::Attrs;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Env, Type};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Prices of resident bytes the variants are found at, as multiples of the device's.
const VARIANT_PRICES: [u64; 4] = [0, 1, 1 << 6, 1 << 12];

/// Picks as a term.
#[derive(Default)]
struct Picked {
    dag: Dag,
    /// The node of every class.
    place: BTreeMap<usize, usize>,
    /// The class of every node.
    classes: Vec<Id>,
    /// The maps of every pack that has several.
    groups: Vec<Vec<usize>>,
}

/// A graph's classes with their nodes in order.
pub(super) struct Classes<'a> {
    g: &'a Graph,
    ids: Vec<Id>,
    pub index: BTreeMap<Id, usize>,
    nodes: Vec<Vec<Term>>,
    /// Bytes of an element as it is read from memory.
    width: Vec<u64>,
    /// Bytes of the narrowest dtype that holds the values, which decides how fast products of them are.
    value: Vec<u64>,
    /// Resident bytes if derived, and the storage dtype; none if it cannot be.
    pub derivable: Vec<Option<(u64, DType)>>,
    /// The nodes as choices.
    base: Vec<Vec<Choice>>,
    /// The same with choices for what depends on weights and constants only.
    fixed: Vec<Vec<Choice>>,
    definitions: RefCell<BTreeMap<usize, Dag>>,
}

impl<'a> Classes<'a> {
    pub fn new(g: &'a Graph, wish: &Wish) -> Classes<'a> {
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
        let is_fixed = |k: usize| g.facts(c.ids[k]).fixed();
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
    pub fn resident(&self, derived: &BTreeMap<usize, u64>) -> u64 {
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
        if n.head == Head::Pack {
            return n.children.first().map(|c| width[self.child(*c)]);
        }
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

    /// The time of a node in a run. A pack reads its operand once: what that adds to the map it adds most to, so that one map
    /// packed costs what it costs alone.
    fn time(&self, k: usize, node: &Term, wish: &Wish) -> u64 {
        let (operands, results) = self.moved(k, node);
        let own = cost::time(wish.device, node, &operands, &results, wish.env);
        if node.head != Head::Pack {
            return own;
        }
        let maps = self.nodes.iter().enumerate().flat_map(|(m, nodes)| nodes.iter().map(move |n| (m, n)));
        let maps = maps.filter(|(_, n)| n.head == Head::Packed && self.child(n.children[0]) == k);
        let reading = maps.map(|(m, n)| {
            let (operands, results) = self.moved(m, n);
            cost::exposed(wish.device, n, &operands, &results, wish.env)
        });
        own.saturating_add(reading.max().unwrap_or(0))
    }

    /// Operands and results of a node.
    fn moved(&self, k: usize, node: &Term) -> (Vec<Operand<'_>>, Vec<Operand<'_>>) {
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
        (operands, results)
    }

    /// The extraction problem: a class's nodes in order, then, if it may be, its derivation. `price` multiplies the price of
    /// resident bytes; `None` derives nothing.
    pub fn problem(&self, roots: &[usize], banned: &BTreeSet<usize>, price: Option<u64>, wish: &Wish) -> Problem {
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
    pub fn solve(
        &self,
        roots: &[usize],
        banned: &BTreeSet<usize>,
        wish: &Wish,
    ) -> Option<(Picks, BTreeMap<usize, u64>)> {
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
    pub fn costlier(&self, roots: &[usize], banned: &BTreeSet<usize>, picks: &Picks, wish: &Wish) -> Vec<Refusal> {
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
        let dag = self.dag(&problem, &picks).map(|p| p.dag).unwrap_or_default();
        self.definitions.borrow_mut().insert(k, dag.clone());
        dag
    }

    pub fn describe(&self, k: usize) -> String {
        let ty = self.g.facts(self.ids[k]).tensor().map(ToString::to_string).unwrap_or_default();
        format!("{ty} = {}", self.definition(k).expression())
    }

    /// The picked nodes in order, with the place of every class. Packed maps are plain ones; those of one pack stand in
    /// [`Picked::groups`].
    fn dag(&self, problem: &Problem, picks: &Picks) -> Option<Picked> {
        let order = problem.order(&|k| picks.get(k).copied().flatten())?;
        let mut out = Picked::default();
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for k in order {
            let types = self.g.facts(self.ids[k]).types.clone();
            let node = if self.is_derived(picks, k) {
                DagNode { head: None, key: Key::new(Attrs::new()), children: vec![], types }
            } else {
                let n = &self.nodes[k][picks[k]?];
                let children =
                    n.children.iter().map(|c| out.place.get(&self.child(*c)).copied()).collect::<Option<Vec<_>>>()?;
                let head = match n.head {
                    Head::Pack => {
                        // Stands for its operand.
                        out.place.insert(k, children[0]);
                        continue;
                    }
                    Head::Packed => {
                        groups.entry(self.child(n.children[0])).or_default().push(out.dag.nodes.len());
                        Head::Op(Opcode::Linear)
                    }
                    head => head,
                };
                DagNode { head: Some(head), key: n.key.clone(), children, types }
            };
            out.place.insert(k, out.dag.nodes.len());
            out.classes.push(self.ids[k]);
            out.dag.nodes.push(node);
        }
        out.groups = groups.into_values().filter(|g| g.len() > 1).collect();
        Some(out)
    }

    pub fn solution(
        &self,
        roots: &[usize],
        picks: &Picks,
        savings: &BTreeMap<usize, u64>,
        refused: Vec<Refusal>,
        wish: &Wish,
    ) -> Option<Solution> {
        let none = BTreeSet::new();
        let problem = self.problem(roots, &none, Some(1), wish);
        let Picked { dag, place, classes, groups } = self.dag(&problem, picks)?;
        let mut derived = BTreeMap::new();
        for (k, saving_ps) in savings {
            let (bytes, storage) = self.derivable[*k]?;
            derived.insert(
                place[k],
                Derivation { definition: self.definition(*k), storage, bytes, saving_ps: *saving_ps },
            );
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
            groups,
            refused,
            variants: pareto(variants),
        })
    }
}
