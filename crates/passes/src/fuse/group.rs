//! Groups of ops of a block, merged while that is legal and not slower.

use super::context::Context;
use super::legal::{Form, form};
use super::time::time;
use spinec_ir::ir::{OpId, RegionId};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::Decision;
use spinec_ir::plan::families::{Family, Mechanism, Reason};
use spinec_ir::plan::role::Role;
use spinec_ir::plan::traffic::Item;
use std::collections::{BTreeMap, BTreeSet};

/// A kernel to be, or a control op.
pub(super) struct Node {
    /// Its ops; one if it is control.
    pub ops: BTreeSet<OpId>,
    /// Its form; `None` for control.
    pub form: Option<Form>,
    times: [u64; 2],
    /// Ops of this block it waits for.
    deps: BTreeSet<OpId>,
}

/// The groups of a block.
pub(super) struct Groups<'a> {
    c: &'a Context<'a>,
    pub nodes: Vec<Option<Node>>,
    /// The node of an op of this block.
    pub of: BTreeMap<OpId, usize>,
    order: Vec<OpId>,
    decisions: BTreeMap<(OpId, OpId), Decision>,
    /// By op of this block, the ops of this block it waits for.
    waits: BTreeMap<OpId, BTreeSet<OpId>>,
}

impl<'a> Groups<'a> {
    /// Every op by itself.
    ///
    /// # Errors
    /// An op that no family can hold even alone; the text says which.
    pub fn new(c: &'a Context<'a>, block: RegionId) -> Result<Groups<'a>, String> {
        let order: Vec<OpId> = c.func.region(block).ops.iter().filter(|id| c.works(**id)).copied().collect();
        let mut inside: BTreeMap<OpId, BTreeSet<OpId>> = BTreeMap::new();
        for id in (0..c.func.ops.len() as u32).map(OpId).filter(|id| c.works(*id)) {
            let Some(top) = c.lifted(id, block) else { continue };
            let deps = c.deps[id.index()].iter().filter_map(|d| c.lifted(*d, block)).filter(|d| *d != top);
            inside.entry(top).or_default().extend(deps);
        }
        let mut g = Groups {
            c,
            nodes: Vec::new(),
            of: BTreeMap::new(),
            order: order.clone(),
            decisions: BTreeMap::new(),
            waits: inside,
        };
        for id in order {
            let ops = BTreeSet::from([id]);
            let deps = g.waits.get(&id).cloned().unwrap_or_default();
            let (form, times) = if c.roles.role[id.index()] == Role::Control {
                (None, [0; 2])
            } else {
                let form = form(c, &ops).map_err(|(_, why)| format!("{} has no kernel: {why}", c.path(id)))?;
                let times = time(c, &ops, &form);
                (Some(form), times)
            };
            g.of.insert(id, g.nodes.len());
            g.nodes.push(Some(Node { ops, form, times, deps }));
        }
        Ok(g)
    }

    /// Merges until nothing more can be.
    pub fn merge(&mut self) {
        self.pack();
        loop {
            let mut changed = self.along_edges();
            changed |= self.siblings();
            if !changed {
                break;
            }
        }
        self.sink();
    }

    /// Elementwise ops whose only reader is one kernel move there if less is moved: what is small between two kernels goes
    /// between them, not what was made of it.
    fn sink(&mut self) {
        for id in self.order.clone().into_iter().rev() {
            let from = self.of[&id];
            let users = &self.c.uses[id.index()];
            let Some((first, _)) = users.first() else { continue };
            let Some(to) = self.of.get(first).copied().filter(|to| *to != from) else { continue };
            let alone = users.iter().all(|(u, partial)| !partial && self.of.get(u) == Some(&to));
            let rooted = self.c.func.op(id).results.iter().any(|v| self.c.roles.roots[v.index()]);
            if rooted || !alone || !self.c.code(id).def().elementwise {
                continue;
            }
            let (Some(a), Some(b)) = (&self.nodes[from], &self.nodes[to]) else { continue };
            if a.ops.len() < 2 || a.form.is_none() || b.form.is_none() {
                continue;
            }
            let (mut less, mut more) = (a.ops.clone(), b.ops.clone());
            less.remove(&id);
            more.insert(id);
            let (Ok(fa), Ok(fb)) = (form(self.c, &less), form(self.c, &more)) else { continue };
            let (ta, tb) = (time(self.c, &less, &fa), time(self.c, &more, &fb));
            let now = [0, 1].map(|e| a.times[e].saturating_add(b.times[e]));
            let then = [0, 1].map(|e| ta[e].saturating_add(tb[e]));
            if then[0] > now[0] || then[1] > now[1] || then == now {
                continue;
            }
            self.nodes[from] = Some(self.node(less, fa, ta));
            self.nodes[to] = Some(self.node(more, fb, tb));
            self.of.insert(id, to);
            self.moved(id, from, to);
        }
    }

    fn node(&self, ops: BTreeSet<OpId>, form: Form, times: [u64; 2]) -> Node {
        let mut deps: BTreeSet<OpId> = ops.iter().filter_map(|id| self.waits.get(id)).flatten().copied().collect();
        deps.retain(|d| !ops.contains(d));
        Node { ops, form: Some(form), times, deps }
    }

    /// Sets the records of an op's edges right after it moved.
    fn moved(&mut self, id: OpId, from: usize, to: usize) {
        let producers: Vec<OpId> =
            self.c.deps[id.index()].iter().copied().filter(|p| self.of.get(p) == Some(&from)).collect();
        for p in producers {
            self.refuse(p, id, Reason::Costlier, "less is moved if it is computed where it is used".to_owned());
        }
        let users: Vec<OpId> =
            self.c.uses[id.index()].iter().map(|u| u.0).filter(|u| self.of.get(u) == Some(&to)).collect();
        for u in users {
            let reason = self.reason(self.family(id), id, u, Reason::SameRows);
            self.record(id, u, reason, String::new());
        }
    }

    /// What was decided, by consumer and producer in textual order.
    pub fn decisions(&self) -> Vec<Decision> {
        let place: BTreeMap<OpId, usize> = self.order.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        // What was refused may have been brought together by other edges: an edge is taken then, and two parts without an
        // edge between them were not decided about.
        let together = |d: &Decision| self.of.get(&d.producer) == self.of.get(&d.consumer);
        let last = |d: &Decision| {
            if d.accepted || !together(d) {
                return Some(d.clone());
            }
            let edge = self.c.deps[d.consumer.index()].contains(&d.producer);
            let reason = self.reason(self.family(d.producer), d.producer, d.consumer, Reason::SameRows);
            edge.then(|| Decision { accepted: true, reason, detail: String::new(), ..d.clone() })
        };
        let mut out: Vec<Decision> = self.decisions.values().filter_map(last).collect();
        out.sort_by_key(|d| (place.get(&d.consumer).copied(), place.get(&d.producer).copied()));
        out
    }

    /// Products of the same rows.
    fn pack(&mut self) {
        let linears: Vec<OpId> = self.order.iter().filter(|id| self.c.code(**id) == Opcode::Linear).copied().collect();
        for (i, b) in linears.iter().enumerate() {
            for a in &linears[..i] {
                if self.c.func.op(*a).operands[0] == self.c.func.op(*b).operands[0] && self.of[a] != self.of[b] {
                    self.attempt(*a, *b, Reason::Packed);
                }
            }
        }
    }

    fn along_edges(&mut self) -> bool {
        let mut changed = false;
        for consumer in self.order.clone() {
            for producer in self.c.deps[consumer.index()].clone() {
                let (Some(p), Some(q)) = (self.of.get(&producer), self.of.get(&consumer)) else { continue };
                if p == q {
                    self.accepted(producer, consumer);
                    continue;
                }
                if self.nodes[*p].as_ref().is_none_or(|n| n.form.is_none())
                    || self.nodes[*q].as_ref().is_none_or(|n| n.form.is_none())
                {
                    self.refuse(producer, consumer, Reason::Control, "their blocks run one after the other".to_owned());
                    continue;
                }
                changed |= self.attempt(producer, consumer, Reason::SameRows);
            }
        }
        changed
    }

    /// An edge inside a kernel that was merged for another edge.
    fn accepted(&mut self, producer: OpId, consumer: OpId) {
        let known = self.decisions.get(&(producer, consumer));
        if known.is_some_and(|d| d.accepted) {
            return;
        }
        let family = self.family(producer);
        let reason = self.reason(family, producer, consumer, Reason::SameRows);
        self.record(producer, consumer, reason, String::new());
    }

    fn family(&self, op: OpId) -> Family {
        let node = self.of.get(&op).and_then(|n| self.nodes[*n].as_ref());
        node.and_then(|n| n.form.as_ref()).map_or(Family::Row, |f| f.family)
    }

    fn reason(&self, family: Family, producer: OpId, consumer: OpId, asked: Reason) -> Reason {
        if matches!(asked, Reason::Packed | Reason::Siblings) || family.is_row() {
            return asked;
        }
        let anchors = family.def().anchors;
        let code = |id: OpId| self.c.code(id);
        let leads_to_anchor = anchors.contains(&code(consumer)) || self.before_anchor(family, consumer);
        if leads_to_anchor && !anchors.contains(&code(producer)) {
            let partial = self.form_of(consumer).is_some_and(|f| f.mechanisms.contains(&Mechanism::PartialSums));
            return if partial && code(producer) == Opcode::RmsNorm { Reason::PartialSums } else { Reason::Prologue };
        }
        Reason::Epilogue
    }

    fn form_of(&self, op: OpId) -> Option<&Form> {
        self.of.get(&op).and_then(|n| self.nodes[*n].as_ref()).and_then(|n| n.form.as_ref())
    }

    /// Whether an op of a kernel stands before its anchor.
    fn before_anchor(&self, family: Family, op: OpId) -> bool {
        let Some(node) = self.of.get(&op).and_then(|n| self.nodes[*n].as_ref()) else { return false };
        let mut stack: Vec<OpId> =
            node.ops.iter().filter(|id| family.def().anchors.contains(&self.c.code(**id))).copied().collect();
        let mut seen: BTreeSet<OpId> = BTreeSet::new();
        while let Some(id) = stack.pop() {
            for d in self.c.deps[id.index()].iter().filter(|d| node.ops.contains(d)) {
                if *d == op {
                    return true;
                }
                if seen.insert(*d) {
                    stack.push(*d);
                }
            }
        }
        false
    }

    /// Row-wise kernels that read the same thing or come from the same kernel.
    fn siblings(&mut self) -> bool {
        let mut changed = false;
        for i in 0..self.order.len() {
            for j in 0..i {
                let (a, b) = (self.order[j], self.order[i]);
                let (p, q) = (self.of[&a], self.of[&b]);
                let firsts = |n: &Option<Node>, op: OpId| {
                    n.as_ref().is_some_and(|n| {
                        n.ops.first() == Some(&op) && n.form.as_ref().is_some_and(|f| f.family.is_row())
                    })
                };
                if p == q || !firsts(&self.nodes[p], a) || !firsts(&self.nodes[q], b) || !self.related(p, q) {
                    continue;
                }
                changed |= self.attempt(a, b, Reason::Siblings);
            }
        }
        changed
    }

    fn related(&self, p: usize, q: usize) -> bool {
        let (Some(a), Some(b)) = (&self.nodes[p], &self.nodes[q]) else { return false };
        let (Some(fa), Some(fb)) = (&a.form, &b.form) else { return false };
        let value = |i: &&Item| matches!(i, Item::Value(_) | Item::Partial(_));
        let shared = fa.reads.items.keys().filter(value).any(|i| fb.reads.items.contains_key(i));
        let from = |n: &Node| n.deps.iter().filter_map(|d| self.of.get(d).copied()).collect::<BTreeSet<_>>();
        shared || from(a).intersection(&from(b)).next().is_some()
    }

    /// Tries to make one kernel of two; records the outcome.
    fn attempt(&mut self, producer: OpId, consumer: OpId, asked: Reason) -> bool {
        let (p, q) = (self.of[&producer], self.of[&consumer]);
        let (Some(a), Some(b)) = (&self.nodes[p], &self.nodes[q]) else { return false };
        let ops: BTreeSet<OpId> = a.ops.union(&b.ops).copied().collect();
        let sum = [a.times[0].saturating_add(b.times[0]), a.times[1].saturating_add(b.times[1])];
        if let Some(between) = self.between(p, q) {
            self.refuse(producer, consumer, Reason::Cycle, between);
            return false;
        }
        let form = match form(self.c, &ops) {
            Ok(form) => form,
            Err((reason, why)) => {
                // What is fused already goes along, and may be what is in the way.
                let own = [producer, consumer].iter().any(|id| why.starts_with(&self.c.path(*id)));
                let why = if own || !why.contains('`') { why } else { format!("of what the two kernels hold, {why}") };
                self.refuse(producer, consumer, reason, why);
                return false;
            }
        };
        let times = time(self.c, &ops, &form);
        if times[0] > sum[0] || times[1] > sum[1] {
            let end = usize::from(times[0] <= sum[0]);
            let why = format!("{} ps in one kernel, {} ps in two", times[end], sum[end]);
            self.refuse(producer, consumer, Reason::Costlier, why);
            return false;
        }
        let family = form.family;
        for id in &ops {
            self.of.insert(*id, p);
        }
        self.nodes[q] = None;
        self.nodes[p] = Some(self.node(ops, form, times));
        let reason = self.reason(family, producer, consumer, asked);
        self.record(producer, consumer, reason, String::new());
        true
    }

    fn record(&mut self, producer: OpId, consumer: OpId, reason: Reason, detail: String) {
        let accepted = reason.accepts();
        self.decisions.insert((producer, consumer), Decision { producer, consumer, accepted, reason, detail });
    }

    fn refuse(&mut self, producer: OpId, consumer: OpId, reason: Reason, detail: String) {
        self.record(producer, consumer, reason, detail);
    }

    /// Nodes a node waits for.
    fn before(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        let deps = self.nodes[n].iter().flat_map(|n| &n.deps);
        deps.filter_map(|d| self.of.get(d).copied()).filter(move |d| *d != n)
    }

    /// What stands between two nodes if one reaches the other through a third: an op of the third, for people.
    fn between(&self, p: usize, q: usize) -> Option<String> {
        let third = |from: usize, to: usize| {
            let mut reached: Vec<Option<usize>> = vec![None; self.nodes.len()];
            let mut stack: Vec<(usize, usize)> = self.before(from).filter(|n| *n != to).map(|n| (n, n)).collect();
            while let Some((n, first)) = stack.pop() {
                if n == to {
                    return Some(first);
                }
                if reached[n].is_none() {
                    reached[n] = Some(first);
                    stack.extend(self.before(n).map(|n| (n, first)));
                }
            }
            None
        };
        let n = third(p, q).or_else(|| third(q, p))?;
        let op = self.nodes[n].as_ref().and_then(|n| n.ops.last().copied());
        Some(op.map_or_else(|| "another kernel".to_owned(), |op| self.c.path(op)))
    }

    /// Nodes in an order that respects what they wait for; earlier in the text first.
    pub fn sorted(&self) -> Vec<usize> {
        let mut out: Vec<usize> = Vec::new();
        let mut done = vec![false; self.nodes.len()];
        for id in &self.order {
            self.visit(self.of[id], &mut done, &mut out);
        }
        out
    }

    fn visit(&self, n: usize, done: &mut [bool], out: &mut Vec<usize>) {
        if std::mem::replace(&mut done[n], true) {
            return;
        }
        let mut before: Vec<usize> = self.before(n).collect();
        before.sort_unstable();
        before.dedup();
        for d in before {
            self.visit(d, done, out);
        }
        out.push(n);
    }
}
