//! What follows from which ops share a kernel, computed again: repeated work, reads, writes, statistics, grid, arithmetic,
//! waits, buffers.

use super::{Check, Cx};
use crate::ir::{OpId, StateId, ValueId, WeightId};
use crate::plan::build::{Group, kernels};
use crate::plan::families::Family;
use crate::plan::{Access, Buffer, Kernel, Place};

pub(super) fn check(cx: &mut Cx) {
    ids(cx);
    // Kernels that are not what they are said to be have no formulas.
    let structural = [Check::Ids, Check::Cover, Check::Ops, Check::Block];
    if cx.errors.iter().any(|e| structural.contains(&e.check)) {
        return;
    }
    let groups: Vec<Group> = cx.work.iter().zip(&cx.phase.kernels).map(|(ops, k)| group(cx, ops, k)).collect();
    match kernels(cx.module, cx.func, &cx.roles, &groups) {
        Err(why) => cx.error(Check::Reads, None, None, format!("the kernels have no formulas: {why}")),
        Ok((want, buffers)) => {
            if cx.phase.buffers != buffers {
                compare_buffers(cx, &buffers);
            } else {
                for (k, want) in want.iter().enumerate() {
                    compare(cx, k, want);
                }
            }
        }
    }
}

fn group(cx: &Cx, ops: &std::collections::BTreeSet<OpId>, k: &Kernel) -> Group {
    let codes: Vec<_> = ops.iter().map(|id| cx.func.op(*id).code).collect();
    Group { ops: ops.clone(), family: Family::of(&codes), mechanisms: k.mechanisms.iter().copied().collect() }
}

/// Values, weights, states and buffers that accesses and buffers name.
fn ids(cx: &mut Cx) {
    let phase = cx.phase;
    let value = |cx: &Cx, v: ValueId| cx.func.values.get(v.index()).is_some_and(|v| !v.ty.is_state());
    for (i, b) in phase.buffers.iter().enumerate() {
        if !value(cx, b.value) {
            cx.error(Check::Ids, None, None, format!("buffer {i} holds value {}, which is no tensor", b.value.0));
        }
    }
    for (k, kernel) in phase.kernels.iter().enumerate() {
        for v in kernel.leaves.iter().filter(|v| !value(cx, **v)).copied().collect::<Vec<_>>() {
            cx.error(Check::Ids, Some(k), None, format!("it leaves statistics of value {}, which is no tensor", v.0));
        }
        for access in kernel.reads.iter().chain(&kernel.writes) {
            let known = match access.place {
                Place::Weight(WeightId(w), _) => (w as usize) < cx.module.weights.len(),
                Place::State(StateId(s)) => (s as usize) < cx.module.states.len(),
                Place::Buffer(b) => b.index() < phase.buffers.len(),
            };
            if !known {
                cx.error(Check::Ids, Some(k), None, format!("it touches {:?}, which does not exist", access.place));
            }
        }
    }
}

fn compare(cx: &mut Cx, k: usize, want: &Kernel) {
    let Kernel { family, block: _, ops, leaves, mechanisms, grid, reads, writes, flops, after } = &cx.phase.kernels[k];
    let mut found: Vec<(Check, Option<OpId>, String)> = Vec::new();
    for id in ops.iter().filter(|id| !want.ops.contains(id)) {
        found.push((Check::Repeated, Some(*id), "is not needed by the kernel's work".to_owned()));
    }
    for id in want.ops.iter().filter(|id| !ops.contains(id)) {
        found.push((Check::Repeated, Some(*id), "is needed by the kernel's work and not among its ops".to_owned()));
    }
    if *leaves != want.leaves {
        found.push((Check::Leaves, None, format!("statistics of {:?}, not {:?}", want.leaves, leaves)));
    }
    if *mechanisms != want.mechanisms {
        let message = format!("what readers need makes the mechanisms {:?}, not {mechanisms:?}", want.mechanisms);
        found.push((Check::Mechanisms, None, message));
    }
    // The grid is the family's: one that is wrong is reported as such.
    if *family == want.family && *grid != want.grid {
        found.push((Check::Grid, None, format!("{} blocks, not {grid}", want.grid)));
    }
    if *flops != want.flops {
        found.push((Check::Flops, None, format!("{} operations, not {flops}", want.flops)));
    }
    if *after != want.after {
        found.push((Check::After, None, format!("it waits for {:?}, not {after:?}", want.after)));
    }
    for (check, have, want) in [(Check::Reads, reads, &want.reads), (Check::Writes, writes, &want.writes)] {
        found.extend(differences(have, want).into_iter().map(|m| (check, None, m)));
    }
    for (check, op, message) in found {
        cx.error(check, Some(k), op, message);
    }
}

fn differences(have: &[Access], want: &[Access]) -> Vec<String> {
    let mut out = Vec::new();
    for a in have.iter().filter(|a| !want.contains(a)) {
        out.push(format!("{:?} with {} bytes is not among them", a.place, a.bytes));
    }
    for a in want.iter().filter(|a| !have.contains(a)) {
        out.push(format!("{:?} with {} bytes is missing", a.place, a.bytes));
    }
    if out.is_empty() && have != want {
        out.push("they do not stand in order, each once".to_owned());
    }
    out
}

fn compare_buffers(cx: &mut Cx, want: &[Buffer]) {
    let have = &cx.phase.buffers;
    let mut found = Vec::new();
    if have.len() != want.len() {
        found.push(format!("{} buffers, there must be {}", have.len(), want.len()));
    }
    for (i, (have, want)) in have.iter().zip(want).enumerate() {
        if have != want {
            found.push(format!("buffer {i} is {have:?}, it must be {want:?}"));
        }
    }
    for message in found {
        cx.error(Check::Buffers, None, None, message);
    }
}
