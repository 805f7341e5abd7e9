//! A saturated graph as an extraction problem, and a solution of the problem as a term.

use super::define::{Definition, Definitions};
use super::{Choosing, Derivation, Reason, Refusal, Solution, Variant, Wish, pareto};
use crate::cost::{self, Operand};
use crate::dag::{Dag, DagNode};
use crate::extract::{Choice, Picks, Problem, extract, greedy};
use crate::term::{Graph, Head, Key, Term};
use egg::Id;
use spinec_ir::ir::Attrs;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::DType;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Prices of resident bytes the variants are found at, as multiples of the device's.
const VARIANT_PRICES: [u64; 4] = [0, 1, 1 << 6, 1 << 12];

/// Picks as a term.
#[derive(Default)]
pub(super) struct Picked {
    pub dag: Dag,
    /// The node of every class.
    place: BTreeMap<usize, usize>,
    /// The class of every node.
    classes: Vec<Id>,
    /// The maps of every pack that has several.
    groups: Vec<Vec<usize>>,
}

/// A graph's classes with their nodes in order.
pub(super) struct Classes<'a> {
    pub g: &'a Graph,
    pub ids: Vec<Id>,
    pub index: BTreeMap<Id, usize>,
    pub(super) nodes: Vec<Vec<Term>>,
    /// Bytes of an element as it is read from memory.
    width: Vec<u64>,
    /// Bytes of the narrowest dtype that holds the values, which decides how fast products of them are.
    value: Vec<u64>,
    /// Resident bytes if derived, and the storage dtype; none if it cannot be.
    pub derivable: Vec<Option<(u64, DType)>>,
    /// The nodes as choices.
    pub(super) base: Vec<Vec<Choice>>,
    /// The same with choices for what depends on weights, constants and indices of loops only.
    pub(super) held: Problem,
    /// For every class that can be made so, how, at the least time.
    pub(super) held_picks: Picks,
    pub wish: &'a Wish<'a>,
    pub(super) definitions: RefCell<Definitions>,
}

impl<'a> Classes<'a> {
    pub fn new(g: &'a Graph, wish: &'a Wish<'a>) -> Classes<'a> {
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
            held: Problem::default(),
            held_picks: vec![],
            wish,
            definitions: RefCell::default(),
        };
        let free = c.free();
        c.derivable = (0..c.ids.len()).map(|k| if free[k] { None } else { c.residence(k) }).collect();
        c.width = c.widths(true);
        c.value = c.widths(false);
        c.base = (0..c.ids.len()).map(|k| c.nodes[k].iter().map(|n| c.choice(k, n)).collect()).collect();
        c.held = Problem { classes: (0..c.ids.len()).map(|k| c.held_choices(k)).collect(), roots: vec![] };
        c.held_picks = greedy(&c.held).unwrap_or_default();
        // How many elements there are is known once there are definitions.
        for k in 0..c.ids.len() {
            if c.derivable[k].is_some() && !g.facts(c.ids[k]).loops.is_empty() {
                let spread = c.definition(k).spread;
                c.derivable[k] =
                    c.derivable[k].and_then(|(bytes, dtype)| Some((bytes.checked_mul(spread?.count())?, dtype)));
            }
        }
        c
    }

    /// The choices of a class that depend on weights, constants and indices of loops only.
    fn held_choices(&self, k: usize) -> Vec<Choice> {
        let is_held = |k: usize| self.g.facts(self.ids[k]).held;
        let mut choices = self.base[k].clone();
        for (choice, node) in choices.iter_mut().zip(&self.nodes[k]) {
            let index = |n: &usize| node.code() == Some(Opcode::Weight) && self.is_index(*n);
            let leaf = matches!(node.head, Head::Leaf(_)) && self.is_index(k);
            if !leaf && (!is_held(k) || !choice.needs.iter().all(|n| is_held(*n) || index(n))) {
                // Positions must stay those of the nodes, so what is no choice here needs itself.
                choice.needs = vec![k];
            }
        }
        choices
    }

    /// True if the class is the index of a loop that may select weights.
    fn is_index(&self, k: usize) -> bool {
        let indices = &self.g.eg.analysis.indices;
        self.nodes[k].iter().any(|n| matches!(n.head, Head::Leaf(l) if indices.contains_key(&l)))
    }

    pub(super) fn child(&self, id: Id) -> usize {
        self.index[&self.g.eg.find(id)]
    }

    fn choice(&self, k: usize, n: &Term) -> Choice {
        let mut needs: Vec<usize> = eager(n).iter().map(|c| self.child(*c)).collect();
        needs.sort_unstable();
        needs.dedup();
        Choice { needs, cost: self.time(k, n) }
    }

    /// The time of a node in a run. A pack reads its operand once: what that adds to the map it adds most to, so that one map
    /// packed costs what it costs alone.
    fn time(&self, k: usize, node: &Term) -> u64 {
        let wish = self.wish;
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

    /// The extraction problem: a class's nodes in order, then, if it may be, its derivation. `there` cost nothing more;
    /// `price` multiplies the price of resident bytes; `None` derives nothing.
    pub fn problem(
        &self,
        roots: &[usize],
        without: &BTreeSet<usize>,
        there: &BTreeSet<usize>,
        price: Option<u64>,
    ) -> Problem {
        let mut classes = self.base.clone();
        for (k, choices) in classes.iter_mut().enumerate() {
            if let (Some(weight), Some((bytes, _)), false) = (price, self.derivable[k], without.contains(&k)) {
                let all = cost::resident_ps(self.wish.device, bytes, weight);
                let cost = if there.contains(&k) { 1 } else { (all / self.wish.runs.max(1)).max(1) };
                choices.push(Choice { needs: vec![], cost });
            }
        }
        Problem { classes, roots: roots.to_vec() }
    }

    /// The classes that are derived already, by definition.
    pub fn there(&self, present: &BTreeSet<String>) -> BTreeSet<usize> {
        if present.is_empty() {
            return BTreeSet::new();
        }
        (0..self.ids.len())
            .filter(|k| self.derivable[*k].is_some() && present.contains(&self.definition(*k).text))
            .collect()
    }

    /// The definitions of everything that may be derived.
    pub fn definitions(&self) -> BTreeSet<String> {
        (0..self.ids.len()).filter(|k| self.derivable[*k].is_some()).map(|k| self.definition(k).text).collect()
    }

    /// The derived classes of picks by definition, with their bytes.
    pub fn derived(&self, picks: &Picks) -> BTreeMap<String, (usize, u64)> {
        let derived = (0..picks.len()).filter(|k| self.is_derived(picks, *k));
        derived.map(|k| (self.definition(k).text, (k, self.bytes(k)))).collect()
    }

    fn bytes(&self, k: usize) -> u64 {
        self.derivable[k].map_or(0, |d| d.0)
    }

    fn is_derived(&self, picks: &Picks, k: usize) -> bool {
        picks[k] == Some(self.nodes[k].len())
    }

    /// Time and resident bytes of picks, resident bytes unpriced.
    pub fn measure(&self, problem: &Problem, picks: &Picks) -> Variant {
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

    /// What only the price of memory keeps out: derived at no price, not derived at the device's.
    pub fn costlier(&self, roots: &[usize], chosen: &Choosing, present: &BTreeSet<String>) -> Vec<Refusal> {
        let without: BTreeSet<usize> = chosen.missed.values().map(|m| m.0).collect();
        let problem = self.problem(roots, &without, &self.there(present), Some(0));
        let Some(free) = extract(&problem) else { return Vec::new() };
        let with = self.measure(&problem, &free).time_ps;
        let unwanted = (0..free.len()).filter(|k| self.is_derived(&free, *k) && !self.is_derived(&chosen.picks, *k));
        unwanted
            .map(|k| {
                let mut fewer = problem.clone();
                fewer.classes[k].truncate(self.nodes[k].len());
                let time = extract(&fewer).map_or(u64::MAX, |p| self.measure(&fewer, &p).time_ps);
                Refusal {
                    what: self.describe(k),
                    bytes: self.bytes(k),
                    saving_ps: time.saturating_sub(with),
                    reason: Reason::Costlier,
                }
            })
            .collect()
    }

    pub fn describe(&self, k: usize) -> String {
        let ty = self.g.facts(self.ids[k]).tensor().map(ToString::to_string).unwrap_or_default();
        format!("{ty} = {}", self.definition(k).dag.expression())
    }

    /// The picked nodes in order, with the place of every class. Packed maps are plain ones; those of one pack stand in
    /// [`Picked::groups`].
    pub(super) fn dag(&self, problem: &Problem, roots: &[usize], picks: &Picks) -> Option<Picked> {
        let order = problem.order_of(roots, &|k| picks.get(k).copied().flatten())?;
        let mut out = Picked::default();
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for k in order {
            let types = self.g.facts(self.ids[k]).types.clone();
            let node = if self.is_derived(picks, k) {
                DagNode { head: None, key: Key::new(Attrs::new()), children: vec![], types }
            } else {
                let n = &self.nodes[k][picks[k]?];
                let children =
                    eager(n).iter().map(|c| out.place.get(&self.child(*c)).copied()).collect::<Option<Vec<_>>>()?;
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
                    Head::Guard(_) => {
                        let slow = self.slow(k, n, &out.dag, &out.place, &children)?;
                        out.dag.slow.insert(out.dag.nodes.len(), slow);
                        n.head
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
        chosen: &Choosing,
        savings: &BTreeMap<String, u64>,
        refused: Vec<Refusal>,
    ) -> Option<Solution> {
        let (none, picks) = (BTreeSet::new(), &chosen.picks);
        let Picked { dag, place, classes, groups } =
            self.dag(&self.problem(roots, &none, &none, Some(1)), roots, picks)?;
        let mut derived = BTreeMap::new();
        for (text, (k, bytes)) in &chosen.derived {
            let Definition { dag: definition, spread, .. } = self.definition(*k);
            let (saving_ps, storage) = (*savings.get(text)?, self.derivable[*k]?.1);
            derived.insert(place[k], Derivation { definition, loops: spread?, storage, bytes: *bytes, saving_ps });
        }
        let mut variants: Vec<Variant> = Vec::new();
        for price in VARIANT_PRICES.map(Some).into_iter().chain([None]) {
            let problem = self.problem(roots, &none, &none, price);
            if let Some(picks) = extract(&problem) {
                variants.push(self.measure(&problem, &picks));
            }
        }
        Some(Solution {
            roots: roots.iter().map(|r| place[r]).collect(),
            origin: Vec::new(),
            same: Vec::new(),
            time_ps: chosen.time_ps,
            dag,
            derived,
            classes,
            groups,
            refused,
            variants: pareto(variants),
        })
    }
}

/// The operands of a node that are computed whenever it is.
fn eager(node: &Term) -> &[Id] {
    match node.head {
        Head::Guard(_) => &node.children[..2],
        _ => &node.children,
    }
}
