//! Kernels and buffers of a phase from its groups of ops: everything that follows from which ops share a kernel.

use super::cost::flops;
use super::families::{Family, Mechanism, TILE_COLUMNS, TILE_ROWS};
use super::lead::{dims, lead, space};
use super::role::{Role, Roles, inner_operands};
use super::traffic::{Item, Reads, partial_bytes, reads, state_of, state_writes, stored_base, tensor_bytes};
use super::{Access, Buffer, BufferId, Kernel, KernelId};
use crate::ir::{Func, Module, OpId, ValueDef, ValueId};
use crate::ops::{Effect, Opcode};
use crate::ty::Dim;
use std::collections::{BTreeMap, BTreeSet};

/// Ops of a kernel, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The ops that work.
    pub ops: BTreeSet<OpId>,
    /// Its family.
    pub family: Family,
    /// Its mechanisms; that it leaves row statistics for others is found out here.
    pub mechanisms: BTreeSet<Mechanism>,
}

/// The kernels of a phase, in the order of the groups, and the buffers between them.
///
/// # Errors
/// A size that does not fit 64 bits, or groups that do not cover the function.
pub fn kernels(
    module: &Module,
    func: &Func,
    roles: &Roles,
    groups: &[Group],
) -> Result<(Vec<Kernel>, Vec<Buffer>), String> {
    let too_large = || "a size does not fit 64 bits".to_owned();
    let mut owner: BTreeMap<OpId, usize> = BTreeMap::new();
    for (k, g) in groups.iter().enumerate() {
        owner.extend(g.ops.iter().map(|id| (*id, k)));
    }
    let mut read: Vec<Reads> = Vec::new();
    for g in groups {
        let mut r = reads(module, func, roles, &g.ops).ok_or_else(too_large)?;
        norms(func, roles, g, &mut r).ok_or_else(too_large)?;
        read.push(r);
    }
    // Who has to leave row statistics, and what has to be in memory.
    let mut leaves: Vec<BTreeSet<ValueId>> = vec![BTreeSet::new(); groups.len()];
    let mut wanted: BTreeSet<ValueId> = BTreeSet::new();
    for (k, r) in read.iter().enumerate() {
        for item in r.items.keys() {
            match item {
                Item::Partial(v) => {
                    let sources = roles.leaving(func, *v).ok_or("a row statistic that nobody leaves")?;
                    for s in sources {
                        let ValueDef::Result(id, _) = func.value(s).def else { continue };
                        let maker = owner.get(&id).ok_or("a row statistic of what no kernel makes")?;
                        leaves[*maker].insert(s);
                    }
                }
                Item::Value(v) => {
                    let made_by = match func.value(*v).def {
                        ValueDef::Result(id, _) => owner.get(&id),
                        ValueDef::Param(..) => None,
                    };
                    if made_by != Some(&k) {
                        wanted.insert(*v);
                    }
                }
                Item::Weight(..) | Item::State(_) => {}
            }
        }
    }
    let mut b = Buffers { func, list: Vec::new(), index: BTreeMap::new() };
    for v in &func.region(func.body).params {
        b.get(*v, false).ok_or_else(too_large)?;
    }
    let mut out = Vec::new();
    for (k, g) in groups.iter().enumerate() {
        let mut writes: BTreeMap<Item, Dim> = BTreeMap::new();
        for id in &g.ops {
            for v in &func.op(*id).results {
                match func.tensor(*v) {
                    Some(t) if wanted.contains(v) || roles.roots[v.index()] => {
                        writes.insert(Item::Value(*v), tensor_bytes(t).ok_or_else(too_large)?);
                    }
                    _ => {}
                }
            }
            if func.op(*id).code.def().effect == Effect::AdvancesState
                && let Some(state) = func.op(*id).operands.iter().find_map(|v| state_of_version(func, *v))
            {
                writes.insert(Item::State(state), state_writes(func, *id).ok_or_else(too_large)?);
            }
        }
        for v in &leaves[k] {
            let t = func.tensor(*v).ok_or("a row statistic of a state")?;
            writes.insert(Item::Partial(*v), partial_bytes(t).ok_or_else(too_large)?);
        }
        let mut ops: Vec<OpId> = g.ops.iter().chain(&read[k].repeated).copied().collect();
        ops.sort_unstable();
        let mut mechanisms = g.mechanisms.clone();
        if !leaves[k].is_empty() {
            mechanisms.insert(Mechanism::PartialSums);
        }
        let mut work = Dim::from(0);
        for id in &ops {
            work = flops(func, *id).and_then(|n| work.add(&n)).ok_or_else(too_large)?;
        }
        let mut access = |items: &BTreeMap<Item, Dim>| {
            items
                .iter()
                .map(|(item, bytes)| {
                    let place = match item {
                        Item::Value(v) => b.get(*v, false),
                        Item::Partial(v) => b.get(*v, true),
                        _ => Some(BufferId(0)),
                    };
                    let place = item.place(&|_, _| place)?;
                    Some(Access { place, bytes: bytes.clone() })
                })
                .collect::<Option<Vec<Access>>>()
        };
        let block = g.ops.first().and_then(|id| roles.block[id.index()]).ok_or("a kernel without ops")?;
        out.push(Kernel {
            family: g.family,
            block,
            ops,
            leaves: leaves[k].iter().copied().collect(),
            mechanisms: mechanisms.into_iter().collect(),
            grid: grid(func, g, &read[k]).ok_or_else(too_large)?,
            reads: access(&read[k].items).ok_or_else(too_large)?,
            writes: access(&writes).ok_or_else(too_large)?,
            flops: work,
            after: after(func, roles, g, &owner, k),
        });
    }
    Ok((out, b.list))
}

/// Norms in front of a product finish the row statistics of their operand.
fn norms(func: &Func, roles: &Roles, g: &Group, r: &mut Reads) -> Option<()> {
    if g.family != Family::Gemm {
        return Some(());
    }
    for id in g.ops.iter().filter(|id| func.op(**id).code == Opcode::RmsNorm) {
        let v = func.op(*id).operands[0];
        let base = stored_base(func, roles, v)?;
        r.items.insert(Item::Partial(base), partial_bytes(func.tensor(v)?)?);
    }
    Some(())
}

fn state_of_version(func: &Func, v: ValueId) -> Option<crate::ir::StateId> {
    func.ty(v).is_state().then(|| state_of(func, v)).flatten()
}

struct Buffers<'a> {
    func: &'a Func,
    list: Vec<Buffer>,
    index: BTreeMap<(ValueId, bool), BufferId>,
}

impl Buffers<'_> {
    fn get(&mut self, value: ValueId, partial: bool) -> Option<BufferId> {
        if let Some(id) = self.index.get(&(value, partial)) {
            return Some(*id);
        }
        let t = self.func.tensor(value)?;
        let bytes = if partial { partial_bytes(t)? } else { tensor_bytes(t)? };
        let input = matches!(self.func.value(value).def, ValueDef::Param(r, _) if r == self.func.body);
        let id = BufferId(self.list.len() as u32);
        self.list.push(Buffer { value, partial, input, dtype: t.dtype, bytes });
        self.index.insert((value, partial), id);
        Some(id)
    }
}

/// Kernels of the same block a kernel waits for.
fn after(func: &Func, roles: &Roles, g: &Group, owner: &BTreeMap<OpId, usize>, own: usize) -> Vec<KernelId> {
    let mut out = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut stack: Vec<ValueId> = Vec::new();
    for id in &g.ops {
        let operands = inner_operands(func, *id);
        if func.op(*id).code.def().effect == Effect::AdvancesState {
            for v in operands.iter().filter(|v| func.ty(**v).is_state()) {
                out.extend(roles.users[v.index()].iter().filter_map(|u| owner.get(u)));
            }
        }
        out.extend(roles.behind.get(id).into_iter().flatten().filter_map(|u| owner.get(u)));
        stack.extend(operands);
    }
    while let Some(v) = stack.pop() {
        if !seen.insert(v) {
            continue;
        }
        if let ValueDef::Result(id, _) = func.value(v).def {
            match roles.role[id.index()] {
                Role::Work => out.extend(owner.get(&id)),
                Role::Control => {}
                Role::Free | Role::Repeated => stack.extend(&func.op(id).operands),
            }
        }
    }
    let block = g.ops.first().and_then(|id| roles.block[id.index()]);
    let same = |k: &usize| owner.iter().any(|(id, o)| o == k && roles.block[id.index()] == block);
    out.into_iter().filter(|k| *k != own && same(k)).map(|k| KernelId(k as u32)).collect()
}

/// Thread blocks of a kernel.
fn grid(func: &Func, g: &Group, r: &Reads) -> Option<Dim> {
    let first = *g.ops.iter().find(|id| g.family.def().anchors.contains(&func.op(**id).code)).or(g.ops.first())?;
    let op = func.op(first);
    let product = |d: &[Dim]| d.iter().try_fold(Dim::from(1), |n, d| n.mul(d));
    let tiles = |n: &Dim, of: i64| n.add(&Dim::from(of - 1))?.floor_div(&Dim::from(of));
    match g.family {
        Family::Gemm => {
            let x = dims(func, op.operands[0]);
            let rows = tiles(&product(x.get(..x.len().saturating_sub(1))?)?, TILE_ROWS)?;
            let mut columns = Dim::from(0);
            for id in g.ops.iter().filter(|id| func.op(**id).code == Opcode::Linear) {
                let n = dims(func, func.op(*id).results[0]).last()?;
                columns = columns.add(&tiles(n, TILE_COLUMNS)?)?;
            }
            rows.mul(&columns)
        }
        Family::Attention => {
            let q = dims(func, op.operands[0]);
            product(&[q.first()?.clone(), q.get(2)?.clone()])
        }
        Family::DeltaRule => {
            let v = dims(func, op.operands[3]);
            product(&[v.first()?.clone(), v.get(2)?.clone()])
        }
        Family::Convolution => {
            let x = dims(func, op.operands[1]);
            product(&[x.first()?.clone(), tiles(x.get(2)?, TILE_COLUMNS)?])
        }
        _ => product(&rows(func, &g.ops, r)),
    }
}

/// Leading dims that all ops of a row-wise kernel keep apart.
pub fn rows(func: &Func, ops: &BTreeSet<OpId>, r: &Reads) -> Vec<Dim> {
    let all: BTreeSet<OpId> = ops.union(&r.inner_statistics).copied().collect();
    let mut rows: Option<Vec<Dim>> = None;
    for id in &all {
        let own = space(func, *id);
        rows = Some(match rows {
            None => own.to_vec(),
            Some(r) => r[..super::lead::common(&r, own)].to_vec(),
        });
    }
    let mut rows = rows.unwrap_or_default();
    for id in all.iter().chain(&r.inner_access) {
        for v in inner_operands(func, *id).iter().filter(|v| !func.ty(**v).is_state()) {
            if made_inside(func, ops, r, *v) {
                rows.truncate(lead(func, *id, *v));
            }
        }
        let op = func.op(*id);
        if all.contains(id)
            && reduces(op.code)
            && let Some(x) = op.operands.first()
        {
            rows.truncate(lead(func, *id, *x));
        }
    }
    rows
}

/// Whether a value is made by ops of the kernel, seen through what the kernel repeats and accesses between its ops.
fn made_inside(func: &Func, ops: &BTreeSet<OpId>, r: &Reads, v: ValueId) -> bool {
    let mut seen = BTreeSet::from([v]);
    let mut stack = vec![v];
    while let Some(v) = stack.pop() {
        let ValueDef::Result(id, _) = func.value(v).def else { continue };
        if ops.contains(&id) {
            return true;
        }
        if r.repeated.contains(&id) || r.inner_access.contains(&id) {
            stack.extend(func.op(id).operands.iter().filter(|v| seen.insert(**v)));
        }
    }
    false
}

/// Ops that give a whole row to one block, also one that is read from memory.
pub fn reduces(code: Opcode) -> bool {
    use Opcode::*;
    super::role::is_statistic(code)
        || matches!(code, TopK | Sort | Softmax | RmsNorm | L2Norm | Cumsum | Cumprod | Rope | SamplingLaw)
}
