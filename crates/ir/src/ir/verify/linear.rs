//! The linear rule: every version of a state is consumed exactly once on every path, and read only before that.
//!
//! Consumers are the ops that advance a state, `state_close`, loops that take it as an initial value, and yields. Of
//! several cases one runs, so either each consumes an outer version or none does. A loop body runs any number of times,
//! so it may not consume an outer version at all.

use super::tree::{OpNode, RegionNode};
use super::{Cx, Site};
use crate::ir::ValueId;
use crate::ops::{Effect, Opcode};
use crate::ty::Type;
use std::collections::BTreeSet;

/// Where a version is defined.
#[derive(Clone, Copy)]
struct Home {
    regions: usize,
    loops: usize,
}

struct Linear<'c, 'a> {
    cx: &'c mut Cx<'a>,
    /// Versions in scope.
    home: Vec<Option<Home>>,
    /// Name of the consumer.
    consumed: Vec<Option<&'static str>>,
    /// Versions in the order they were consumed.
    log: Vec<ValueId>,
    here: Home,
}

pub(super) fn check(cx: &mut Cx, body: &RegionNode) {
    let n = cx.func.values.len();
    let mut linear = Linear {
        cx,
        home: vec![None; n],
        consumed: vec![None; n],
        log: Vec::new(),
        here: Home { regions: 0, loops: 0 },
    };
    linear.region(body);
}

impl Linear<'_, '_> {
    fn is_state(&self, v: ValueId) -> bool {
        self.cx.ty(v).is_some_and(Type::is_state)
    }

    fn define(&mut self, v: ValueId, site: Site, defined: &mut Vec<(ValueId, Site)>) {
        if self.is_state(v) && self.home[v.index()].is_none() {
            self.home[v.index()] = Some(self.here);
            defined.push((v, site));
        }
    }

    fn region(&mut self, node: &RegionNode) {
        let id = self.cx.id;
        let mut defined = Vec::new();
        for (i, &v) in node.params.iter().enumerate() {
            self.define(v, Site::Param(id, node.id, i as u32), &mut defined);
        }
        for op_node in &node.ops {
            self.op(op_node);
            let results = &self.cx.func.op(op_node.id).results;
            for &v in results {
                self.define(v, Site::Op(id, op_node.id), &mut defined);
            }
        }
        for &v in self.cx.yields(node) {
            self.consume(v, Site::Yield(id, node.id), "yield");
        }
        for (v, site) in defined {
            if self.consumed[v.index()].is_none() {
                let shown = self.cx.show(v);
                self.cx.error(site, format!("the version {shown} is lost: advance it, close it or yield it"));
            }
            self.home[v.index()] = None;
        }
    }

    fn op(&mut self, node: &OpNode) {
        let (op, site) = (self.cx.func.op(node.id), Site::Op(self.cx.id, node.id));
        let consumes = op.code == Opcode::Loop || op.code.def().effect == Effect::AdvancesState;
        for &v in &op.operands {
            if consumes {
                self.consume(v, site, op.code.name());
            } else if self.is_state(v)
                && let Some(by) = self.consumed[v.index()]
            {
                let shown = self.cx.show(v);
                self.cx.error(site, format!("the version {shown} is read after `{by}` consumed it"));
            }
        }
        let outer = self.here;
        self.here.regions += 1;
        if op.code == Opcode::Cases {
            self.cases(node, site);
        } else {
            self.here.loops += 1;
            for inner in node.regions.iter().flatten() {
                self.region(inner);
            }
        }
        self.here = outer;
    }

    fn cases(&mut self, node: &OpNode, site: Site) {
        let mut taken: Vec<BTreeSet<ValueId>> = Vec::new();
        let mut by = None;
        for inner in node.regions.iter().flatten() {
            let mark = self.log.len();
            let visible: Vec<bool> = self.home.iter().map(Option::is_some).collect();
            self.region(inner);
            let mut set = BTreeSet::new();
            for v in self.log.split_off(mark) {
                if visible[v.index()] {
                    by = self.consumed[v.index()].take().or(by);
                    set.insert(v);
                }
            }
            taken.push(set);
        }
        let all: BTreeSet<ValueId> = taken.iter().flatten().copied().collect();
        for v in all {
            if node.regions.iter().all(Option::is_some)
                && let Some(k) = taken.iter().position(|set| !set.contains(&v))
            {
                let shown = self.cx.show(v);
                self.cx.error(site, format!("the version {shown} is consumed in some cases but not in case {k}"));
            }
            self.consumed[v.index()] = by;
            self.log.push(v);
        }
    }

    fn consume(&mut self, v: ValueId, site: Site, by: &'static str) {
        if !self.is_state(v) {
            return;
        }
        let Some(home) = self.home[v.index()] else { return };
        let shown = self.cx.show(v);
        if let Some(first) = self.consumed[v.index()] {
            self.cx.error(site, format!("the version {shown} is consumed by `{first}` and again by `{by}`"));
            return;
        }
        if home.loops < self.here.loops {
            self.cx.error(
                site,
                format!("the version {shown} is consumed in every iteration of a loop it comes from outside of"),
            );
        }
        self.consumed[v.index()] = Some(by);
        self.log.push(v);
    }
}
