//! Ops of a block in launch order: kernel after kernel, what readers repeat in front of the first that needs it.

use spinec_ir::ir::{Func, OpId, RegionId, ValueDef, ValueId};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::role::{Role, Roles, may_be_one};
use spinec_ir::plan::traffic::opened;
use std::collections::{BTreeMap, BTreeSet};

/// Brings every block into the order of its kernels and control ops.
pub(super) fn reorder(func: &mut Func, roles: &Roles, orders: &BTreeMap<RegionId, Vec<Vec<OpId>>>) {
    for (block, nodes) in orders {
        let old = func.region(*block).ops.clone();
        let own: BTreeSet<OpId> = old.iter().copied().collect();
        let mut out = Placer { func, roles, own: &own, placed: BTreeSet::new(), order: Vec::new() };
        for ops in nodes {
            for id in ops {
                out.op(*id);
            }
        }
        for v in func.region(*block).yields.clone() {
            out.value(v);
        }
        // What nobody here needs keeps its place behind the rest: names somebody may ask for, and ends of states.
        for id in old {
            out.op(id);
        }
        let order = out.order;
        func.regions[block.index()].ops = order;
    }
}

struct Placer<'a> {
    func: &'a Func,
    roles: &'a Roles,
    own: &'a BTreeSet<OpId>,
    placed: BTreeSet<OpId>,
    order: Vec<OpId>,
}

impl Placer<'_> {
    fn op(&mut self, id: OpId) {
        if self.placed.contains(&id) {
            return;
        }
        for v in crate::region::needs(self.func, id) {
            self.value(v);
        }
        self.closes_before(id);
        if self.placed.insert(id) {
            self.order.push(id);
        }
    }

    /// An element that is opened here or inside has to be closed before, where it was open.
    fn closes_before(&mut self, id: OpId) {
        let mut opens: Vec<OpId> = Vec::new();
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            let op = self.func.op(id);
            opens.extend((op.code == Opcode::StateOpen).then_some(id));
            stack.extend(op.regions.iter().flat_map(|r| &self.func.region(*r).ops));
        }
        if opens.is_empty() {
            return;
        }
        let closes = self.own.iter().copied().filter(|c| *c < id && self.func.op(*c).code == Opcode::StateClose);
        for c in closes.collect::<Vec<_>>() {
            let first = self.func.op(c).operands.first().and_then(|v| opened(self.func, *v));
            if first.is_some_and(|first| opens.iter().any(|o| may_be_one(self.func, first, *o))) {
                self.op(c);
            }
        }
    }

    /// Places what makes a value if it stands in this block and is no kernel's work: kernels come in their own order.
    fn value(&mut self, v: ValueId) {
        let ValueDef::Result(id, _) = self.func.value(v).def else { return };
        let free = matches!(self.roles.role[id.index()], Role::Free | Role::Repeated);
        if self.own.contains(&id) && free && self.func.op(id).code != Opcode::StateClose {
            self.op(id);
        }
    }
}

/// Old op ids to new ones of the same function in canonical numbering: both are walked in the order of the text.
pub(super) fn renumbered(old: &Func, new: &Func) -> BTreeMap<OpId, OpId> {
    let mut out = BTreeMap::new();
    walk(old, new, old.body, new.body, &mut out);
    out
}

fn walk(old: &Func, new: &Func, a: RegionId, b: RegionId, out: &mut BTreeMap<OpId, OpId>) {
    for (x, y) in old.region(a).ops.iter().zip(&new.region(b).ops) {
        out.insert(*x, *y);
        for (p, q) in old.op(*x).regions.iter().zip(&new.op(*y).regions) {
            walk(old, new, *p, *q, out);
        }
    }
}
