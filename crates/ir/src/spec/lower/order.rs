//! Puts the ops of every region into an execution order and drops what nothing needs.
//!
//! Edges: a value before its uses (also uses inside nested regions), readers of a state version before the op that
//! advances it, and ops that touch the same state in the order they were lowered. Among ready ops the one lowered first
//! comes first, so the order is a function of the files alone.

use super::Lower;
use crate::diag::{Diagnostic, codes};
use crate::ir::{Func, OpId, RegionId, ValueDef, ValueId};
use crate::ops::{Effect, Opcode};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

impl Lower<'_> {
    pub(crate) fn ordered(&mut self, mut func: Func) -> Func {
        drop_dead(&mut func);
        for r in 0..func.regions.len() {
            let region = RegionId(r as u32);
            match order_region(&func, region) {
                Ok(ops) => func.regions[r].ops = ops,
                Err(stuck) => {
                    let op = func.op(stuck);
                    let d = match op.loc.span {
                        Some(span) => Diagnostic::error(
                            codes::STATE_MISUSE,
                            span,
                            "this reads a version of a state that has to be advanced before it can be read",
                        ),
                        None => Diagnostic::error_nowhere(codes::INTERNAL_IR, "ops depend on each other in a cycle"),
                    };
                    self.report(d);
                }
            }
        }
        func
    }
}

/// Everything an op uses, nested regions included.
fn uses(func: &Func, op: OpId, out: &mut Vec<ValueId>) {
    let o = func.op(op);
    out.extend(&o.operands);
    for r in &o.regions {
        let region = func.region(*r);
        out.extend(&region.yields);
        for inner in &region.ops {
            uses(func, *inner, out);
        }
    }
}

/// States an op opens or closes, nested regions included, by module state.
fn touched(func: &Func, op: OpId, out: &mut BTreeSet<i64>) {
    let o = func.op(op);
    if o.code == Opcode::StateOpen {
        out.extend(o.int("state"));
    }
    if o.code == Opcode::StateClose {
        let mut v = o.operands[0];
        // The chain of versions leads back to the op that opened it.
        while let ValueDef::Result(def, _) = func.value(v).def {
            let d = func.op(def);
            if d.code == Opcode::StateOpen {
                out.extend(d.int("state"));
                break;
            }
            match d.operands.iter().find(|x| func.ty(**x).is_state()) {
                Some(x) => v = *x,
                None => break,
            }
        }
    }
    for r in &o.regions {
        for inner in &func.region(*r).ops {
            touched(func, *inner, out);
        }
    }
}

fn order_region(func: &Func, region: RegionId) -> Result<Vec<OpId>, OpId> {
    let ops = &func.region(region).ops;
    let place: BTreeMap<OpId, usize> = ops.iter().enumerate().map(|(i, o)| (*o, i)).collect();
    let mut edges: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); ops.len()];
    let mut readers: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    let mut consumer: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut last_touch: BTreeMap<i64, usize> = BTreeMap::new();
    for (i, op) in ops.iter().enumerate() {
        let mut used = Vec::new();
        uses(func, *op, &mut used);
        for v in used {
            if let ValueDef::Result(def, _) = func.value(v).def
                && let Some(d) = place.get(&def)
                && *d != i
            {
                edges[*d].insert(i);
            }
        }
        let o = func.op(*op);
        for v in o.operands.iter().filter(|v| func.ty(**v).is_state()) {
            match o.code.def().effect {
                Effect::ReadsState => readers.entry(*v).or_default().push(i),
                _ => {
                    consumer.insert(*v, i);
                }
            }
        }
        let mut states = BTreeSet::new();
        touched(func, *op, &mut states);
        for s in states {
            if let Some(prev) = last_touch.insert(s, i)
                && prev != i
            {
                edges[prev].insert(i);
            }
        }
    }
    for (v, list) in readers {
        if let Some(c) = consumer.get(&v) {
            for r in list {
                edges[r].insert(*c);
            }
        }
    }
    let mut waiting = vec![0usize; ops.len()];
    for e in &edges {
        for t in e {
            waiting[*t] += 1;
        }
    }
    let mut ready: BinaryHeap<std::cmp::Reverse<usize>> =
        (0..ops.len()).filter(|i| waiting[*i] == 0).map(std::cmp::Reverse).collect();
    let mut out = Vec::with_capacity(ops.len());
    while let Some(std::cmp::Reverse(i)) = ready.pop() {
        out.push(ops[i]);
        for t in &edges[i] {
            waiting[*t] -= 1;
            if waiting[*t] == 0 {
                ready.push(std::cmp::Reverse(*t));
            }
        }
    }
    match (0..ops.len()).find(|i| waiting[*i] > 0) {
        Some(stuck) => Err(ops[stuck]),
        None => Ok(out),
    }
}

/// Removes ops whose results nothing uses, and that advance no state.
fn drop_dead(func: &mut Func) {
    let mut live_ops: BTreeSet<OpId> = BTreeSet::new();
    let mut todo: Vec<OpId> = Vec::new();
    let body = func.body;
    let mut roots: Vec<ValueId> = func.region(body).yields.clone();
    let effectful: Vec<bool> = (0..func.ops.len()).map(|i| has_effect(func, OpId(i as u32))).collect();
    let reachable = reachable_regions(func);
    for r in &reachable {
        for op in &func.region(*r).ops {
            if effectful[op.index()] {
                todo.push(*op);
            }
        }
    }
    loop {
        while let Some(v) = roots.pop() {
            if let ValueDef::Result(op, _) = func.value(v).def {
                todo.push(op);
            }
        }
        let Some(op) = todo.pop() else { break };
        if !live_ops.insert(op) {
            continue;
        }
        roots.extend(&func.op(op).operands);
        for r in &func.op(op).regions {
            roots.extend(&func.region(*r).yields);
        }
    }
    for region in &mut func.regions {
        region.ops.retain(|op| live_ops.contains(op));
    }
}

fn has_effect(func: &Func, op: OpId) -> bool {
    let o = func.op(op);
    o.code.def().effect == Effect::AdvancesState
        || o.regions.iter().any(|r| func.region(*r).ops.iter().any(|i| has_effect(func, *i)))
}

fn reachable_regions(func: &Func) -> Vec<RegionId> {
    let mut out = vec![func.body];
    let mut i = 0;
    while i < out.len() {
        for op in &func.region(out[i]).ops {
            out.extend(&func.op(*op).regions);
        }
        i += 1;
    }
    out
}
