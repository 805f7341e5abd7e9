//! Whether ops may share a kernel: the families' rules of [`spinec_ir::plan::families`], applied.

use super::context::Context;
use spinec_ir::ir::{OpId, ValueDef, ValueId};
use spinec_ir::ops::{Effect, Opcode};
use spinec_ir::plan::build::rows;
use spinec_ir::plan::families::{Family, MAX_OPERANDS, MAX_OPS, Mechanism, Reason, TINY, tiles_rows};
use spinec_ir::plan::lead::{dims, space};
use spinec_ir::plan::role::{Role, is_statistic, keeps_last, rows_only};
use spinec_ir::plan::traffic::{Item, Reads, partial_bytes, reads, stored_base};
use spinec_ir::ty::Dim;
use std::collections::BTreeSet;

/// A group of ops as a kernel.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub family: Family,
    pub mechanisms: BTreeSet<Mechanism>,
    pub reads: Reads,
    /// Leading dims that blocks share out.
    pub rows: Vec<Dim>,
    /// True if every element is independent.
    pub pointwise: bool,
    /// True if rows are staged for other rows than their own.
    pub moved: bool,
}

/// Why not: the reason and its particulars.
pub(super) type Refusal = (Reason, String);

/// Bytes of shared memory a block can hold results in, beside what staging takes.
const SHARED_BYTES: i64 = 160 * 1024;

/// The kernel a group of ops makes, if there can be one.
pub(super) fn form(c: &Context, ops: &BTreeSet<OpId>) -> Result<Form, Refusal> {
    if ops.len() > MAX_OPS {
        return Err((Reason::Capacity, format!("{} ops, at most {MAX_OPS}", ops.len())));
    }
    let too_large = || (Reason::Capacity, "a size does not fit 64 bits".to_owned());
    let read = reads(c.module, c.func, c.roles, ops).ok_or_else(too_large)?;
    let written = ops.iter().filter(|id| c.escapes(**id, ops)).count();
    // What one op needs it needs; the limit is one of fusion.
    if ops.len() > 1 && read.items.len() + written > MAX_OPERANDS {
        let n = read.items.len() + written;
        return Err((Reason::Capacity, format!("{n} operands, at most {MAX_OPERANDS}")));
    }
    let codes: Vec<Opcode> = ops.iter().map(|id| c.code(*id)).collect();
    let effects = codes.iter().filter(|code| code.def().effect != Effect::Pure).count();
    if effects > 1 {
        return Err((Reason::EffectBetween, "two ops on states need an order between all blocks".to_owned()));
    }
    let family = Family::of(&codes);
    let anchors: Vec<OpId> = ops.iter().filter(|id| family.def().anchors.contains(&c.code(**id))).copied().collect();
    let mut form =
        Form { family, mechanisms: BTreeSet::new(), reads: read, rows: Vec::new(), pointwise: false, moved: false };
    if family.is_row() {
        row(c, ops, &mut form)?;
    } else {
        anchored(c, ops, &anchors, &mut form)?;
    }
    Ok(form)
}

/// Ops of the group that an op depends on, itself not among them.
fn before(c: &Context, ops: &BTreeSet<OpId>, of: &[OpId]) -> BTreeSet<OpId> {
    let mut out = BTreeSet::new();
    let mut stack: Vec<OpId> = of.to_vec();
    while let Some(id) = stack.pop() {
        for d in c.deps[id.index()].iter().filter(|d| ops.contains(d)) {
            if out.insert(*d) {
                stack.push(*d);
            }
        }
    }
    out
}

/// The op of the group that makes a value, through accesses, and the accesses on the way, outermost first.
fn inner_maker(c: &Context, ops: &BTreeSet<OpId>, v: ValueId, path: &mut Vec<OpId>) -> Option<OpId> {
    maker(c, ops, v, path, &mut BTreeSet::new())
}

/// `seen` are values that nothing of the group makes: there may be more paths to a value than can be walked.
fn maker(
    c: &Context,
    ops: &BTreeSet<OpId>,
    v: ValueId,
    path: &mut Vec<OpId>,
    seen: &mut BTreeSet<ValueId>,
) -> Option<OpId> {
    let ValueDef::Result(id, _) = c.func.value(v).def else { return None };
    match c.roles.role[id.index()] {
        Role::Work => ops.contains(&id).then_some(id),
        Role::Control => None,
        Role::Free | Role::Repeated => {
            if !seen.insert(v) {
                return None;
            }
            path.push(id);
            let found = c.func.op(id).operands.iter().find_map(|v| maker(c, ops, *v, path, seen));
            if found.is_none() {
                path.pop();
            }
            found
        }
    }
}

/// Families with a product or a state op at their centre.
fn anchored(c: &Context, ops: &BTreeSet<OpId>, anchors: &[OpId], form: &mut Form) -> Result<(), Refusal> {
    let first = c.func.op(anchors[0]);
    if let Some(id) = ops.iter().find(|id| !anchors.contains(id) && is_anchor(c.code(**id))) {
        let why = format!("{} needs its operands from all blocks", c.path(*id));
        return Err((Reason::GridDependency, why));
    }
    let x = first.operands[if form.family == Family::Gemm { 0 } else { 1 }];
    let rows: Vec<Dim> = match form.family {
        Family::Gemm => dims(c.func, x).split_last().map_or(Vec::new(), |(_, rows)| rows.to_vec()),
        _ => space(c.func, anchors[0]).get(..2).unwrap_or_default().to_vec(),
    };
    for other in &anchors[1..] {
        let op = c.func.op(*other);
        if form.family != Family::Gemm {
            return Err((Reason::GridDependency, format!("{} follows another state op", c.path(*other))));
        }
        if op.operands[0] != x {
            let why = format!("{} multiplies other rows", c.path(*other));
            return Err((
                if before(c, ops, &[*other]).iter().any(|b| anchors.contains(b)) {
                    Reason::GridDependency
                } else {
                    Reason::Shape
                },
                why,
            ));
        }
        let kind = |op: &spinec_ir::ir::Op| (op.dtype("acc"), c.func.tensor(op.operands[1]).map(|t| t.dtype));
        if kind(op) != kind(first) {
            return Err((Reason::Dtype, format!("{} has a weight or an accumulator of another dtype", c.path(*other))));
        }
        form.mechanisms.insert(Mechanism::Packed);
    }
    let early = before(c, ops, anchors);
    let behind: Vec<OpId> =
        ops.iter().copied().filter(|id| before(c, ops, &[*id]).iter().any(|b| anchors.contains(b))).collect();
    // Elementwise work on other operands of what stands behind the anchor.
    let beside = before(c, ops, &behind);
    for id in ops.iter().filter(|id| !anchors.contains(id)) {
        let late = behind.contains(id);
        match (early.contains(id), late) {
            (true, true) => {
                let why = format!("{} stands between two products", c.path(*id));
                return Err((Reason::GridDependency, why));
            }
            (false, false) if beside.contains(id) && c.code(*id).def().elementwise => {
                epilogue(c, ops, *id, &rows, form)?
            }
            (false, false) => {
                return Err((Reason::Shape, format!("{} has nothing to do with the anchor", c.path(*id))));
            }
            (true, false) => prologue(c, ops, *id, x, &rows, form)?,
            (false, true) => epilogue(c, ops, *id, &rows, form)?,
        }
    }
    if form.moved && form.mechanisms.contains(&Mechanism::FirstTile) {
        let why = "what is also needed outside is staged for other rows than its own".to_owned();
        return Err((Reason::SeveralUsers, why));
    }
    if let Some(id) = form.reads.inner_statistics.first() {
        let why = format!("{} needs every column tile of its row", c.path(*id));
        return Err((Reason::GridDependency, why));
    }
    if form.family == Family::DeltaRule {
        form.mechanisms.insert(Mechanism::HeadRows);
    }
    if form.family == Family::Attention {
        form.mechanisms.insert(Mechanism::SplitKv);
    }
    if form.family == Family::Gemm && c.roles.reassociate {
        form.mechanisms.insert(Mechanism::SplitK);
    }
    if form.reads.items.keys().any(|i| matches!(i, Item::Partial(_))) {
        form.mechanisms.insert(Mechanism::PartialSums);
    }
    form.rows = rows;
    Ok(())
}

fn is_anchor(code: Opcode) -> bool {
    matches!(code, Opcode::Linear | Opcode::Attention | Opcode::DeltaRule | Opcode::CausalConv)
}

/// An op that is computed while the anchor's operands are staged.
fn prologue(
    c: &Context,
    ops: &BTreeSet<OpId>,
    id: OpId,
    x: ValueId,
    rows: &[Dim],
    form: &mut Form,
) -> Result<(), Refusal> {
    let op = c.func.op(id);
    let code = op.code;
    let def = form.family.def();
    let gemm = form.family == Family::Gemm;
    if !code.def().elementwise && !def.rows_before.contains(&code) {
        return Err((Reason::Shape, format!("{} is not computed while rows are staged", c.path(id))));
    }
    let out = dims(c.func, op.results[0]);
    if gemm {
        let last = dims(c.func, x).last();
        let own = out.last();
        if own != last && own.and_then(|d| d.as_const()) != Some(1) {
            return Err((Reason::Layout, format!("{} has another row than the product", c.path(id))));
        }
    }
    // From here to whatever in the group uses it.
    for user in ops.iter().filter(|u| c.deps[u.index()].contains(&id)) {
        for v in &c.func.op(*user).operands {
            let mut path = Vec::new();
            if inner_maker(c, ops, *v, &mut path) != Some(id) {
                continue;
            }
            if let Some(bad) = path.iter().find(|a| gemm && !keeps_rows(c, **a)) {
                let why = format!("{} between the two moves elements across rows", c.code(*bad).name());
                return Err((Reason::Layout, why));
            }
            form.moved |= path.iter().any(|a| matches!(c.code(*a), Opcode::Shift | Opcode::Slice));
        }
    }
    if c.escapes(id, ops) {
        let whole = out.len() == rows.len() + 1 && out[..rows.len()] == *rows;
        if !gemm || !whole {
            return Err((Reason::SeveralUsers, format!("{} is also needed outside the kernel", c.path(id))));
        }
        form.mechanisms.insert(Mechanism::FirstTile);
    }
    if gemm && code == Opcode::RmsNorm {
        let v = op.operands[0];
        if !c.roles.reassociate {
            let why = format!("{} would add its row up in parts", c.path(id));
            return Err((Reason::NumericsPolicy, why));
        }
        let outside = inner_maker(c, ops, v, &mut Vec::new()).is_none();
        let sources = c.roles.leaving(c.func, v);
        let base = stored_base(c.func, c.roles, v);
        let (true, Some(_), Some(base)) = (outside, sources, base) else {
            let why = format!("nobody can leave the row statistics of {}", c.path(id));
            return Err((Reason::GridDependency, why));
        };
        if dims(c.func, v).last() != dims(c.func, base).last() {
            let why = format!("the rows of {} are not those of what is in memory", c.path(id));
            return Err((Reason::Layout, why));
        }
        let bytes = c.func.tensor(v).and_then(partial_bytes);
        let bytes = bytes.ok_or_else(|| (Reason::Capacity, "a size does not fit 64 bits".to_owned()))?;
        form.reads.items.insert(Item::Partial(base), bytes);
        form.mechanisms.insert(Mechanism::PartialSums);
    }
    Ok(())
}

/// Accesses that leave every row as it is.
fn keeps_rows(c: &Context, id: OpId) -> bool {
    let op = c.func.op(id);
    match op.code {
        Opcode::Cast | Opcode::Broadcast | Opcode::Fill => true,
        Opcode::Reshape => keeps_last(c.func, id),
        Opcode::Slice | Opcode::Shift => rows_only(c.func, id),
        code => code.def().elementwise,
    }
}

/// An op that is computed on the anchor's results before they are written.
fn epilogue(c: &Context, ops: &BTreeSet<OpId>, id: OpId, rows: &[Dim], form: &mut Form) -> Result<(), Refusal> {
    let op = c.func.op(id);
    let def = form.family.def();
    let row_work = def.rows_after.contains(&op.code);
    if !op.code.def().elementwise && !row_work {
        let reason =
            if is_statistic(op.code) || def.rows_after.is_empty() { Reason::GridDependency } else { Reason::Shape };
        return Err((reason, format!("{} needs results of other tiles", c.path(id))));
    }
    let out = dims(c.func, op.results[0]);
    if out.len() < rows.len() || out[..rows.len()] != *rows {
        return Err((Reason::Layout, format!("{} has other rows than the anchor", c.path(id))));
    }
    for v in &op.operands {
        let mut path = Vec::new();
        if inner_maker(c, ops, *v, &mut path).is_none() {
            continue;
        }
        for a in path {
            let access = c.func.op(a);
            let inner = dims(c.func, access.results[0]);
            let fits = match access.code {
                Opcode::Cast => true,
                Opcode::Reshape | Opcode::Broadcast => inner.len() >= rows.len() && inner[..rows.len()] == *rows,
                Opcode::Slice => access.int("axis").is_some_and(|a| a >= rows.len() as i64),
                Opcode::Shift => {
                    let axis = access.int("axis").unwrap_or(-1);
                    let extent = rows.last().and_then(|d| d.as_const());
                    let one_tile = axis + 1 == rows.len() as i64 && extent.is_some_and(tiles_rows);
                    if one_tile && form.family == Family::Gemm {
                        form.mechanisms.insert(Mechanism::BlockShift);
                    }
                    one_tile && form.family == Family::Gemm
                }
                code => code.def().elementwise,
            };
            if !fits {
                let why = format!("{} between the two leaves the tile", access.code.name());
                return Err((Reason::Layout, why));
            }
        }
    }
    Ok(())
}

/// Row-wise families: what leading axes do all ops keep apart?
fn row(c: &Context, ops: &BTreeSet<OpId>, form: &mut Form) -> Result<(), Refusal> {
    let all: BTreeSet<OpId> = ops.union(&form.reads.inner_statistics).copied().collect();
    let rows = rows(c.func, ops, &form.reads);
    let same = |id: &OpId| c.code(*id).def().elementwise && space(c.func, *id) == rows;
    let pointwise = form.reads.inner_access.is_empty() && all.iter().all(same);
    let single = ops.len() == 1;
    if rows.is_empty() && !single && !tiny(c, ops) {
        return Err((Reason::Shape, "no leading axis is kept apart by both".to_owned()));
    }
    let held = shared_bytes(c, &all, ops, &rows);
    if held > SHARED_BYTES && !single {
        return Err((Reason::OverSharedMemory, format!("{held} bytes a block, at most {SHARED_BYTES}")));
    }
    let long = |id: &OpId| {
        let op = c.func.op(*id);
        let last = op.operands.first().and_then(|v| dims(c.func, *v).last()).and_then(|d| d.as_const());
        (op.code == Opcode::TopK || is_statistic(op.code)) && last.is_some_and(|n| n >= 2 * super::time::SPLIT_COLUMNS)
    };
    if all.iter().any(long) && form.family.def().mechanisms.contains(&Mechanism::SplitRow) && c.roles.reassociate {
        form.mechanisms.insert(Mechanism::SplitRow);
    }
    if form.reads.items.keys().any(|i| matches!(i, Item::Partial(_))) {
        form.mechanisms.insert(Mechanism::PartialSums);
    }
    if !connected(c, ops) {
        form.mechanisms.insert(Mechanism::Siblings);
    }
    form.rows = rows;
    form.pointwise = pointwise;
    Ok(())
}

/// Whether a group is one piece: no two parts of it without an edge between them.
fn connected(c: &Context, ops: &BTreeSet<OpId>) -> bool {
    let Some(first) = ops.first() else { return true };
    let mut seen = BTreeSet::from([*first]);
    let mut stack = vec![*first];
    while let Some(id) = stack.pop() {
        let users = c.uses[id.index()].iter().map(|(user, _)| user).filter(|user| ops.contains(user));
        let makers = c.makers[id.index()].iter().filter(|m| ops.contains(m));
        stack.extend(users.chain(makers).copied().filter(|n| seen.insert(*n)));
    }
    seen.len() == ops.len()
}

/// Whether one block can do all of it without being waited for.
fn tiny(c: &Context, ops: &BTreeSet<OpId>) -> bool {
    let elements = |id: &OpId| c.func.op(*id).results.iter().filter_map(|v| size(c, *v, 1)).max().unwrap_or(i64::MAX);
    ops.iter().all(|id| elements(id) <= TINY)
}

/// Elements of a value at the small (0) or large (1) end of the symbols.
fn size(c: &Context, v: ValueId, end: usize) -> Option<i64> {
    let t = c.func.tensor(v)?;
    t.dims.iter().try_fold(1i64, |n, d| n.checked_mul(d.eval(&c.range[end])?))
}

/// Bytes of results that cannot be made again element by element and are used within the kernel, a block.
fn shared_bytes(c: &Context, all: &BTreeSet<OpId>, ops: &BTreeSet<OpId>, rows: &[Dim]) -> i64 {
    let blocks = rows.iter().try_fold(1i64, |n, d| n.checked_mul(d.eval(&c.range[1])?)).unwrap_or(1).max(1);
    let mut total = 0i64;
    for id in all {
        let op = c.func.op(*id);
        let inner = c.uses[id.index()].iter().any(|(u, _)| ops.contains(u)) || !ops.contains(id);
        if op.code.def().elementwise || !inner {
            continue;
        }
        for v in &op.results {
            let Some(t) = c.func.tensor(*v) else { continue };
            let bytes = size(c, *v, 1).and_then(|n| n.checked_mul(t.dtype.bytes())).unwrap_or(i64::MAX);
            total = total.saturating_add(bytes / blocks);
        }
    }
    total
}
