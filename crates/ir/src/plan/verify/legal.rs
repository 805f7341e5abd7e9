//! What kernels hold, against the legality table.

use super::{Check, Cx, Role, name};
use crate::ir::{OpId, ValueDef, ValueId};
use crate::ops::{Effect, Opcode};
use crate::plan::Place;
use crate::plan::build::rows;
use crate::plan::families::{FAMILIES, Family, MAX_OPERANDS, MAX_OPS, Mechanism, TINY, tiles_rows};
use crate::plan::role::{inner_operands, is_statistic};
use crate::plan::traffic::{Reads, reads};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(cx: &mut Cx) {
    for k in 0..cx.phase.kernels.len() {
        let ops = cx.work[k].clone();
        if ops.is_empty() {
            continue;
        }
        let codes: Vec<Opcode> = ops.iter().map(|id| cx.func.op(*id).code).collect();
        let (family, said) = (Family::of(&codes), cx.phase.kernels[k].family);
        if said != family {
            cx.error(Check::Family, Some(k), None, format!("its ops make it {}, not {}", family.name(), said.name()));
        }
        limits(cx, k, &ops);
        let Some(read) = reads(cx.module, cx.func, &cx.roles, &ops) else {
            cx.error(Check::Reads, Some(k), None, "a size does not fit 64 bits");
            continue;
        };
        let group = Group::new(cx, k, family, &ops, &read);
        if family.is_row() {
            row(cx, &group);
        } else {
            anchored(cx, &group);
        }
        mechanisms(cx, &group);
    }
}

fn limits(cx: &mut Cx, k: usize, ops: &BTreeSet<OpId>) {
    let kernel = &cx.phase.kernels[k];
    let operands = kernel.reads.len() + kernel.writes.len();
    if ops.len() > MAX_OPS {
        cx.error(Check::Limits, Some(k), None, format!("{} ops, at most {MAX_OPS}", ops.len()));
    }
    // What one op needs it needs; the limit is one of fusion.
    if ops.len() > 1 && operands > MAX_OPERANDS {
        cx.error(Check::Limits, Some(k), None, format!("{operands} operands, at most {MAX_OPERANDS}"));
    }
    let mut effects = ops.iter().filter(|id| cx.func.op(**id).code.def().effect != Effect::Pure).copied();
    if effects.next().is_some()
        && let Some(second) = effects.next()
    {
        cx.error(Check::Legality, Some(k), Some(second), "a second op on a state in one kernel");
    }
}

/// A kernel and how its ops depend on each other.
struct Group<'a> {
    k: usize,
    family: Family,
    ops: &'a BTreeSet<OpId>,
    read: &'a Reads,
    /// By op, the ops of the kernel whose results it uses, through accesses and repeated work, each with the shifts on the way.
    uses: BTreeMap<OpId, BTreeMap<OpId, BTreeSet<OpId>>>,
}

impl<'a> Group<'a> {
    fn new(cx: &Cx, k: usize, family: Family, ops: &'a BTreeSet<OpId>, read: &'a Reads) -> Group<'a> {
        let uses = ops.iter().map(|id| (*id, uses(cx, ops, *id))).collect();
        Group { k, family, ops, read, uses }
    }

    fn anchors(&self, cx: &Cx) -> Vec<OpId> {
        let anchors = self.family.def().anchors;
        self.ops.iter().copied().filter(|id| anchors.contains(&cx.func.op(*id).code)).collect()
    }

    /// Ops of the kernel that one of `of` depends on; `of` are among them only if one needs another.
    fn before(&self, of: &[OpId]) -> BTreeSet<OpId> {
        let mut out = BTreeSet::new();
        let mut stack = of.to_vec();
        while let Some(id) = stack.pop() {
            for d in self.uses.get(&id).into_iter().flat_map(|u| u.keys()) {
                if out.insert(*d) {
                    stack.push(*d);
                }
            }
        }
        out
    }

    /// Whether the kernel is one piece.
    fn connected(&self) -> bool {
        let Some(first) = self.ops.first() else { return true };
        let mut seen = BTreeSet::from([*first]);
        let mut stack = vec![*first];
        while let Some(id) = stack.pop() {
            let users = self.uses.iter().filter(|(_, u)| u.contains_key(&id)).map(|(user, _)| *user);
            let made = self.uses.get(&id).into_iter().flat_map(|u| u.keys().copied());
            stack.extend(users.chain(made).filter(|n| seen.insert(*n)));
        }
        seen.len() == self.ops.len()
    }
}

fn uses(cx: &Cx, ops: &BTreeSet<OpId>, id: OpId) -> BTreeMap<OpId, BTreeSet<OpId>> {
    let mut out: BTreeMap<OpId, BTreeSet<OpId>> = BTreeMap::new();
    // A value with the last shift on the way to it.
    let mut seen: BTreeSet<(ValueId, Option<OpId>)> = BTreeSet::new();
    let mut stack: Vec<(ValueId, Option<OpId>)> = inner_operands(cx.func, id).into_iter().map(|v| (v, None)).collect();
    while let Some((v, shift)) = stack.pop() {
        if !seen.insert((v, shift)) {
            continue;
        }
        let ValueDef::Result(def, _) = cx.func.value(v).def else { continue };
        match cx.roles.role[def.index()] {
            Role::Work if def != id && ops.contains(&def) => out.entry(def).or_default().extend(shift),
            Role::Work | Role::Control => {}
            Role::Free | Role::Repeated => {
                let op = cx.func.op(def);
                let shift = if op.code == Opcode::Shift { Some(def) } else { shift };
                stack.extend(op.operands.iter().map(|v| (*v, shift)));
            }
        }
    }
    out
}

fn row(cx: &mut Cx, g: &Group) {
    let tiny = |id: &OpId| {
        let results = cx.func.op(*id).results.iter().filter_map(|v| cx.func.tensor(*v));
        let sizes = results.map(|t| t.dims.iter().try_fold(1i64, |n, d| n.checked_mul(d.eval(cx.large)?)));
        sizes.max().is_some_and(|n| n.is_some_and(|n| n <= TINY))
    };
    let single = g.ops.len() == 1;
    if !single && rows(cx.func, g.ops, g.read).is_empty() && !g.ops.iter().all(tiny) {
        cx.error(Check::Rows, Some(g.k), None, "no leading axis is kept apart by all its ops");
    }
}

fn anchored(cx: &mut Cx, g: &Group) {
    let def = g.family.def();
    let anchors = g.anchors(cx);
    let first = cx.func.op(anchors[0]);
    let mut found: Vec<(Option<OpId>, &str)> = Vec::new();
    for id in &anchors[1..] {
        let op = cx.func.op(*id);
        if g.family != Family::Gemm {
            found.push((Some(*id), "a second anchor, which only products have"));
        } else if op.operands.first() != first.operands.first() {
            found.push((Some(*id), "a product of other rows"));
        } else if op.dtype("acc") != first.dtype("acc") {
            found.push((Some(*id), "a product with another accumulator"));
        }
    }
    let early = g.before(&anchors);
    let behind: Vec<OpId> =
        g.ops.iter().copied().filter(|id| g.before(&[*id]).iter().any(|b| anchors.contains(b))).collect();
    // Elementwise work on other operands of what stands behind the anchor.
    let beside = g.before(&behind);
    if anchors.iter().any(|a| early.contains(a)) {
        found.push((None, "a product of what another product of the kernel makes"));
    }
    for id in g.ops.iter().filter(|id| !anchors.contains(id)) {
        let code = cx.func.op(*id).code;
        let late = behind.contains(id);
        let elementwise = code.def().elementwise;
        let other = FAMILIES.iter().any(|d| !d.family.is_row() && d.anchors.contains(&code));
        let why = match (early.contains(id), late) {
            _ if other => Some("is the anchor of another family"),
            (true, true) => Some("stands before and behind the anchor"),
            (false, false) if elementwise && beside.contains(id) => None,
            (false, false) => Some("has nothing to do with the anchor"),
            (true, false) if !elementwise && !def.rows_before.contains(&code) => Some("cannot stand before the anchor"),
            (false, true) if !elementwise && !def.rows_after.contains(&code) => Some("cannot stand behind the anchor"),
            _ => None,
        };
        found.extend(why.map(|w| (Some(*id), w)));
        // A norm in front of a product finishes statistics that another kernel left.
        if g.family == Family::Gemm && code == Opcode::RmsNorm && !g.uses[id].is_empty() {
            found.push((Some(*id), "needs a whole row of what the kernel makes in tiles"));
        }
    }
    for id in &g.read.inner_statistics {
        found.push((Some(*id), "needs a whole row of what the kernel makes in tiles"));
    }
    for (op, why) in found {
        cx.error(Check::Legality, Some(g.k), op, why);
    }
}

fn mechanisms(cx: &mut Cx, g: &Group) {
    use Mechanism::*;
    let kernel = &cx.phase.kernels[g.k];
    let have = &kernel.mechanisms;
    let mut found: Vec<String> = Vec::new();
    if !have.is_sorted_by(|a, b| a < b) {
        found.push("mechanisms do not stand in order, each once".to_owned());
    }
    for m in have.iter().filter(|m| !g.family.def().mechanisms.contains(m)) {
        found.push(format!("{} is no mechanism of {}", m.name(), g.family.name()));
    }
    let buffer = |p: &Place| match p {
        Place::Buffer(b) => cx.phase.buffers.get(b.index()),
        _ => None,
    };
    let anchors = g.anchors(cx);
    let early = g.before(&anchors);
    let written: BTreeSet<ValueId> =
        kernel.writes.iter().filter_map(|a| buffer(&a.place)).filter(|b| !b.partial).map(|b| b.value).collect();
    let gemm = g.family == Family::Gemm;
    let partial = !kernel.leaves.is_empty() || kernel.reads.iter().filter_map(|a| buffer(&a.place)).any(|b| b.partial);
    let (staged, held): (Vec<_>, Vec<_>) =
        g.uses.iter().partition(|(id, _)| early.contains(id) || anchors.contains(id));
    let shifts: BTreeSet<OpId> = held.iter().flat_map(|(_, u)| u.values().flatten()).copied().collect();
    // Rows that are staged for the row below are not those a tile has to write.
    if have.contains(&FirstTile) && staged.iter().any(|(_, u)| u.values().any(|s| !s.is_empty())) {
        found.push(format!("names {}, but rows are staged for other rows", FirstTile.name()));
    }
    for id in shifts.iter().filter(|_| gemm) {
        let op = cx.func.op(*id);
        let rows = usize::try_from(op.int("axis").unwrap_or(-1)).ok();
        let rows = rows.and_then(|a| cx.func.tensor(op.operands[0])?.dims.get(a)?.as_const());
        if !rows.is_some_and(tiles_rows) {
            found.push(format!("{} goes along rows that no tile holds together", name(cx.func, *id)));
        }
    }
    let needs = [
        (Packed, gemm && anchors.len() > 1),
        (PartialSums, partial),
        (BlockShift, gemm && !shifts.is_empty()),
        (FirstTile, gemm && early.iter().any(|id| cx.func.op(*id).results.iter().any(|v| written.contains(v)))),
        (SplitKv, g.family == Family::Attention),
        (SplitK, gemm && cx.roles.reassociate),
        (HeadRows, g.family == Family::DeltaRule),
        (Siblings, g.family.is_row() && !g.connected()),
    ];
    for (m, needed) in needs {
        match (needed, have.contains(&m)) {
            (true, false) => found.push(format!("needs {}", m.name())),
            (false, true) => found.push(format!("names {}, which nothing in it needs", m.name())),
            _ => {}
        }
    }
    if !kernel.leaves.is_empty() && !g.family.leaves() {
        found.push(format!("{} leaves no row statistics", g.family.name()));
    }
    let long = |id: &OpId| cx.func.op(*id).code == Opcode::TopK || is_statistic(cx.func.op(*id).code);
    if have.contains(&SplitRow) && !g.ops.iter().chain(&g.read.inner_statistics).any(long) {
        found.push(format!("names {}, which nothing in it needs", SplitRow.name()));
    }
    for message in found {
        cx.error(Check::Mechanisms, Some(g.k), None, message);
    }
}
