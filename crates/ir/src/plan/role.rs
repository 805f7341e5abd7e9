//! What part an op has in a plan: free access, cheap work that readers repeat, work of a kernel, or control.

use super::families::{Family, TILE_COLUMNS};
use super::traffic::{constant, opened};
use crate::ir::{Func, OpId, RegionId, ValueDef, ValueId};
use crate::ops::{Effect, Opcode};
use crate::ty::{DType, Env};
use std::collections::{BTreeMap, BTreeSet};

/// The part of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Address arithmetic or a constant: done wherever its result is read.
    Free,
    /// Little work on what is small, or the finish of a row statistic: repeated by every kernel that uses it.
    Repeated,
    /// Work of exactly one kernel.
    Work,
    /// A loop or a case whose blocks hold kernels.
    Control,
}

/// Elements up to which elementwise work on small operands is repeated by its readers.
const SMALL: i64 = 65_536;

/// Roles of a function's ops, and where they stand.
#[derive(Clone, Debug)]
pub struct Roles {
    /// By op.
    pub role: Vec<Role>,
    /// The block an op stands in; blocks inside a serial loop that is one kernel count as the loop's.
    pub block: Vec<Option<RegionId>>,
    /// The op a block belongs to.
    pub owner: Vec<Option<OpId>>,
    /// Values that have to be in memory for control or for the caller.
    pub roots: Vec<bool>,
    /// The ops that use a value, in textual order; control ops and blocks that end with it are not among them.
    pub users: Vec<Vec<OpId>>,
    /// By op on a state, the ops on an element that was closed before it was opened again for this one.
    pub behind: BTreeMap<OpId, Vec<OpId>>,
    /// Whether sums may be left in parts.
    pub reassociate: bool,
}

impl Roles {
    /// Roles in a verified function; `env` gives the largest values of the symbols. Sums are left in parts only if
    /// `reassociate` says that their order may change.
    pub fn of(func: &Func, env: &Env, reassociate: bool) -> Roles {
        let mut r = Roles {
            role: vec![Role::Work; func.ops.len()],
            block: vec![None; func.ops.len()],
            owner: vec![None; func.regions.len()],
            roots: vec![false; func.values.len()],
            users: vec![Vec::new(); func.values.len()],
            behind: behind(func),
            reassociate,
        };
        r.place(func, func.body);
        r.roles(func, func.body, env);
        r.alias_roots(func, func.body);
        r.settle(func);
        r
    }

    /// A statistic of a carried value was looked at before the roles of what makes the value were known.
    fn settle(&mut self, func: &Func) {
        loop {
            let unsettled = |id: &OpId| {
                let op = func.op(*id);
                let repeated = self.role[id.index()] == Role::Repeated && self.block[id.index()].is_some();
                repeated && is_statistic(op.code) && self.leaving(func, op.operands[0]).is_none()
            };
            let Some(id) = (0..func.ops.len() as u32).map(OpId).find(unsettled) else { return };
            self.role[id.index()] = Role::Work;
        }
    }

    /// What is read under another shape has to be in memory itself.
    fn alias_roots(&mut self, func: &Func, block: RegionId) {
        for id in func.region(block).ops.iter().rev() {
            let op = func.op(*id);
            if self.role[id.index()] == Role::Control {
                op.regions.iter().for_each(|r| self.alias_roots(func, *r));
            } else if op.code == Opcode::Reshape
                && self.role[id.index()] == Role::Free
                && self.roots[op.results[0].index()]
            {
                self.roots[op.operands[0].index()] = true;
            }
        }
    }

    fn place(&mut self, func: &Func, block: RegionId) {
        for id in &func.region(block).ops {
            self.block[id.index()] = Some(block);
            let op = func.op(*id);
            if matches!(op.code, Opcode::Loop | Opcode::Cases) {
                if is_scan(func, *id) {
                    continue;
                }
                self.role[id.index()] = Role::Control;
                op.operands.iter().for_each(|v| self.roots[v.index()] = true);
                for inner in &op.regions {
                    self.owner[inner.index()] = Some(*id);
                    self.place(func, *inner);
                }
            }
        }
        func.region(block).yields.iter().for_each(|v| self.roots[v.index()] = true);
    }

    /// Operands come before their users, so one walk in textual order is enough; statistics of carried values look ahead, at
    /// opcodes alone.
    fn roles(&mut self, func: &Func, block: RegionId, env: &Env) {
        for id in &func.region(block).ops {
            let op = func.op(*id);
            if self.role[id.index()] == Role::Control {
                op.regions.iter().for_each(|r| self.roles(func, *r, env));
                continue;
            }
            inner_operands(func, *id).into_iter().for_each(|v| self.users[v.index()].push(*id));
            self.role[id.index()] = self.one(func, *id, env);
        }
    }

    fn one(&self, func: &Func, id: OpId, env: &Env) -> Role {
        let op = func.op(id);
        let rooted = op.results.iter().any(|v| self.roots[v.index()]);
        match op.code {
            Opcode::Const | Opcode::DimValue | Opcode::Weight | Opcode::StateOpen | Opcode::StateClose => Role::Free,
            // The same bytes in the same order: the value is its operand under another name.
            Opcode::Reshape if self.in_memory(func, op.operands[0]) => Role::Free,
            _ if rooted => Role::Work,
            _ if is_access(func, id) => Role::Free,
            code if code.def().elementwise && self.small(func, id, env) => Role::Repeated,
            code if is_statistic(code) && (self.reassociate || is_selection(code)) && self.can_leave(func, id) => {
                Role::Repeated
            }
            _ => Role::Work,
        }
    }

    /// Whether a value is in memory as it is, also when its readers find it there under another shape.
    fn in_memory(&self, func: &Func, v: ValueId) -> bool {
        match func.value(v).def {
            ValueDef::Param(..) => true,
            ValueDef::Result(op, _) => match self.role[op.index()] {
                Role::Work | Role::Control => true,
                Role::Free => func.op(op).code == Opcode::Reshape && self.in_memory(func, func.op(op).operands[0]),
                Role::Repeated => false,
            },
        }
    }

    /// Elementwise work whose result is small and whose operands no kernel has to compute.
    fn small(&self, func: &Func, id: OpId, env: &Env) -> bool {
        let small = |v: ValueId| {
            let n = func.tensor(v).and_then(|t| t.dims.iter().try_fold(1i64, |n, d| n.checked_mul(d.eval(env)?)));
            n.is_some_and(|n| n <= SMALL)
        };
        let op = func.op(id);
        let mut all = op.results.iter().chain(&op.operands);
        all.all(|v| small(*v)) && op.operands.iter().all(|v| self.cheap(func, *v))
    }

    fn cheap(&self, func: &Func, v: ValueId) -> bool {
        let mut seen = BTreeSet::from([v]);
        let mut stack = vec![v];
        while let Some(v) = stack.pop() {
            match func.value(v).def {
                // Inputs of the phase and loop indices, not activations of an enclosing loop.
                ValueDef::Param(region, index) => {
                    if region != func.body && index > 0 {
                        return false;
                    }
                }
                ValueDef::Result(op, _) => match self.role[op.index()] {
                    Role::Repeated => {}
                    Role::Free => stack.extend(func.op(op).operands.iter().filter(|v| seen.insert(**v))),
                    Role::Work | Role::Control => return false,
                },
            }
        }
        true
    }

    /// Whether the statistic of an op can be left behind by what makes its operand.
    fn can_leave(&self, func: &Func, id: OpId) -> bool {
        let x = func.op(id).operands[0];
        let Some(t) = func.tensor(x) else { return false };
        let Some(last) = t.dims.last().and_then(|d| d.as_const()) else { return false };
        let axis = func.op(id).int("axis").unwrap_or(-1);
        let on_last = axis == -1 || axis + 1 == t.rank() as i64;
        on_last && t.rank() >= 2 && last >= 2 * TILE_COLUMNS && self.leaving(func, x).is_some()
    }

    /// The values whose makers have to leave row statistics so that those of `v` are known; `None` if one cannot.
    pub fn leaving(&self, func: &Func, v: ValueId) -> Option<Vec<ValueId>> {
        let mut out = Vec::new();
        let mut seen = vec![false; func.values.len()];
        self.sources(func, v, &mut seen, &mut out).then_some(out)
    }

    fn sources(&self, func: &Func, v: ValueId, seen: &mut [bool], out: &mut Vec<ValueId>) -> bool {
        if std::mem::replace(&mut seen[v.index()], true) {
            return true;
        }
        match func.value(v).def {
            ValueDef::Param(region, index) => {
                let Some(owner) = self.owner[region.index()] else { return false };
                if func.op(owner).code != Opcode::Loop || index == 0 {
                    return false;
                }
                let k = index as usize - 1;
                let init = func.op(owner).operands.get(k).copied();
                let next = func.region(region).yields.get(k).copied();
                [init, next].into_iter().all(|v| v.is_some_and(|v| self.sources(func, v, seen, out)))
            }
            ValueDef::Result(id, index) => {
                let op = func.op(id);
                match op.code {
                    Opcode::Loop if self.role[id.index()] == Role::Control => {
                        let next = func.region(op.regions[0]).yields.get(index as usize).copied();
                        let init = op.operands.get(index as usize).copied();
                        next.into_iter().chain(init).all(|v| self.sources(func, v, seen, out))
                    }
                    Opcode::Cases => op.regions.iter().all(|r| {
                        let y = func.region(*r).yields.get(index as usize).copied();
                        y.is_some_and(|v| self.sources(func, v, seen, out))
                    }),
                    Opcode::Loop | Opcode::Attention | Opcode::DeltaRule | Opcode::CausalConv => false,
                    Opcode::Cast if is_access(func, id) && !self.rooted(op) => {
                        self.sources(func, op.operands[0], seen, out)
                    }
                    Opcode::Reshape if keeps_last(func, id) => self.sources(func, op.operands[0], seen, out),
                    Opcode::Slice if !self.rooted(op) && rows_only(func, id) => {
                        self.sources(func, op.operands[0], seen, out)
                    }
                    _ if is_access(func, id) && !self.rooted(op) => false,
                    // Only what a kernel makes has one to leave its statistics.
                    _ if self.role[id.index()] != Role::Work || behind_anchor(func, id) => false,
                    _ => {
                        out.push(v);
                        true
                    }
                }
            }
        }
    }

    fn rooted(&self, op: &crate::ir::Op) -> bool {
        op.results.iter().any(|v| self.roots[v.index()])
    }
}

/// Ops on states that are opened more than once, by what has to come before.
fn behind(func: &Func) -> BTreeMap<OpId, Vec<OpId>> {
    let opens = func.ops.iter().filter(|op| op.code == Opcode::StateOpen).filter_map(|op| op.int("state"));
    let mut count: BTreeMap<i64, usize> = BTreeMap::new();
    opens.for_each(|s| *count.entry(s).or_default() += 1);
    let mut out = BTreeMap::new();
    if count.values().all(|n| *n == 1) {
        return out;
    }
    let mut seen: Vec<(OpId, OpId)> = Vec::new();
    for id in (0..func.ops.len() as u32).map(OpId).filter(|id| func.op(*id).code.def().effect != Effect::Pure) {
        let state = func.op(id).operands.iter().find(|v| func.ty(**v).is_state());
        let Some(open) = state.and_then(|v| opened(func, *v)) else { continue };
        let earlier = seen.iter().filter(|(_, other)| *other != open && may_be_one(func, *other, open));
        let earlier: Vec<OpId> = earlier.map(|(id, _)| *id).collect();
        if !earlier.is_empty() {
            out.insert(id, earlier);
        }
        seen.push((id, open));
    }
    out
}

/// Whether two ops may open the same element.
pub fn may_be_one(func: &Func, a: OpId, b: OpId) -> bool {
    let (a, b) = (func.op(a), func.op(b));
    let index = |op: &crate::ir::Op| op.operands.first().and_then(|v| constant(func, *v));
    a.int("state") == b.int("state") && !matches!((index(a), index(b)), (Some(a), Some(b)) if a != b)
}

/// Whether an op may end up behind the anchor of a family whose kernels leave no row statistics.
fn behind_anchor(func: &Func, id: OpId) -> bool {
    let mut seen = BTreeSet::from([id]);
    let mut stack = vec![id];
    while let Some(id) = stack.pop() {
        let op = func.op(id);
        match Family::of(&[op.code]) {
            Family::Row => {}
            family if !family.leaves() => return true,
            _ => continue,
        }
        stack.extend(op.operands.iter().filter_map(|v| match func.value(*v).def {
            ValueDef::Result(def, _) => seen.insert(def).then_some(def),
            ValueDef::Param(..) => None,
        }));
    }
    false
}

/// Operands of an op and, for a loop that is one kernel, what its blocks use from outside.
pub fn inner_operands(func: &Func, id: OpId) -> Vec<ValueId> {
    let op = func.op(id);
    let mut out = op.operands.clone();
    let mut made: Vec<ValueId> = Vec::new();
    let mut blocks = op.regions.clone();
    while let Some(block) = blocks.pop() {
        let block = func.region(block);
        made.extend(&block.params);
        out.extend(&block.yields);
        for inner in &block.ops {
            let inner = func.op(*inner);
            out.extend(&inner.operands);
            made.extend(&inner.results);
            blocks.extend(&inner.regions);
        }
    }
    let mut seen = BTreeSet::new();
    out.retain(|v| !made.contains(v) && seen.insert(*v));
    out
}

/// A serial loop of nothing but row-wise work: one kernel.
pub fn is_scan(func: &Func, id: OpId) -> bool {
    let op = func.op(id);
    op.code == Opcode::Loop && op.bool("serial") == Some(true) && op.regions.iter().all(|r| row_wise(func, *r))
}

fn row_wise(func: &Func, block: RegionId) -> bool {
    func.region(block).ops.iter().all(|id| {
        let op = func.op(*id);
        let kernel =
            matches!(op.code, Opcode::Linear | Opcode::Loop | Opcode::Cases | Opcode::Guarded | Opcode::QuantizeRows);
        op.code.def().effect == Effect::Pure && !kernel
    })
}

/// Reductions over a row that come out of parts.
pub fn is_statistic(code: Opcode) -> bool {
    use Opcode::*;
    matches!(code, Sum | Mean | ReduceMax | ReduceMin | Rms | Norm2 | Argmax)
}

/// Statistics whose parts give the same bits in any order.
pub fn is_selection(code: Opcode) -> bool {
    matches!(code, Opcode::ReduceMax | Opcode::ReduceMin | Opcode::Argmax)
}

/// Ops that only say where an element is read, or widen it.
pub fn is_access(func: &Func, id: OpId) -> bool {
    use Opcode::*;
    let op = func.op(id);
    match op.code {
        Const | DimValue | Weight | Iota | Fill | Reshape | Transpose | Broadcast | Concat | Slice | IndexAt
        | Shift | Take => true,
        Cast => {
            let from = func.tensor(op.operands[0]).map(|t| t.dtype);
            let to = func.tensor(op.results[0]).map(|t| t.dtype);
            matches!((from, to), (Some(from), Some(to)) if widens(from, to))
        }
        _ => false,
    }
}

/// Whether every value of `from` is one of `to`.
fn widens(from: DType, to: DType) -> bool {
    match (from.is_float(), to.is_float()) {
        (true, true) => from == to || from.promote(to) == Some(to) && from.bytes() < to.bytes(),
        (false, false) => from.bytes() <= to.bytes(),
        (false, true) => from.bytes() < to.bytes() || from == DType::Bool,
        (true, false) => false,
    }
}

/// A reshape that leaves the last axis as it is.
pub fn keeps_last(func: &Func, id: OpId) -> bool {
    let op = func.op(id);
    match (func.tensor(op.operands[0]), func.tensor(op.results[0])) {
        (Some(a), Some(b)) => a.dims.last() == b.dims.last(),
        _ => false,
    }
}

/// A slice along an axis that is not the last.
pub fn rows_only(func: &Func, id: OpId) -> bool {
    let op = func.op(id);
    let rank = func.tensor(op.results[0]).map_or(0, |t| t.rank()) as i64;
    op.int("axis").is_some_and(|a| a >= 0 && a + 1 < rank)
}
