//! What a kernel reads and writes, as formulas: every operand is followed through accesses and repeated work to what lies
//! in memory.

use super::families::TILE_COLUMNS;
use super::role::{Role, Roles, inner_operands, is_statistic};
use super::{CONTEXT, Place};
use crate::ir::{Attr, Func, Module, OpId, StateId, ValueDef, ValueId, WeightId};
use crate::ops::Opcode;
use crate::ty::{Dim, StateKind, TensorType, Type};
use std::collections::{BTreeMap, BTreeSet};

/// Something read or written: a value, its row statistics, a weight or a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// A weight, at the index of the loops around or at a constant one.
    Weight(WeightId, Option<i64>),
    /// A value in memory.
    Value(ValueId),
    /// Parts of the row statistics of a value.
    Partial(ValueId),
    /// A state.
    State(StateId),
}

/// What the operands of a kernel come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Bytes by item.
    pub items: BTreeMap<Item, Dim>,
    /// Ops every reader repeats that this kernel needs.
    pub repeated: BTreeSet<OpId>,
    /// Accesses between ops of the kernel.
    pub inner_access: BTreeSet<OpId>,
    /// Statistics formed of values that the kernel itself makes.
    pub inner_statistics: BTreeSet<OpId>,
}

/// Number of elements.
pub fn elements(t: &TensorType) -> Option<Dim> {
    t.dims.iter().try_fold(Dim::from(1), |n, d| n.mul(d))
}

/// Bytes of a tensor.
pub fn tensor_bytes(t: &TensorType) -> Option<Dim> {
    elements(t)?.mul(&Dim::from(t.dtype.bytes()))
}

/// Bytes of the partial row statistics of a value: 8 a row and column tile.
pub fn partial_bytes(t: &TensorType) -> Option<Dim> {
    let (last, rows) = t.dims.split_last()?;
    let rows = rows.iter().try_fold(Dim::from(8), |n, d| n.mul(d))?;
    let tiles = last.add(&Dim::from(TILE_COLUMNS - 1))?.floor_div(&Dim::from(TILE_COLUMNS))?;
    rows.mul(&tiles)
}

/// What a kernel of these ops reads; `None` if a size overflows.
pub fn reads(module: &Module, func: &Func, roles: &Roles, ops: &BTreeSet<OpId>) -> Option<Reads> {
    let mut w = Walk {
        module,
        func,
        roles,
        ops,
        out: Reads::default(),
        parts: BTreeMap::new(),
        known: BTreeMap::new(),
        walked: BTreeSet::new(),
    };
    for id in ops {
        if roles.role[id.index()] == Role::Work {
            w.operands(*id)?;
        }
    }
    for (item, parts) in w.parts {
        // The whole is read once, however many parts of it are read besides.
        let bytes = match parts.get("") {
            Some(whole) => whole.clone(),
            None => within(module, item, parts.values().try_fold(Dim::from(0), |n, b| n.add(b))?),
        };
        w.out.items.insert(item, bytes);
    }
    Some(w.out)
}

/// Rows of a weight that are taken by index may be more than it has; no kernel moves more than the weight then.
fn within(module: &Module, item: Item, bytes: Dim) -> Dim {
    let Item::Weight(w, _) = item else { return bytes };
    let ty = &module.weight(w).ty;
    let Some(whole) = tensor_bytes(ty).filter(|whole| whole.as_const().is_some()) else { return bytes };
    let [_, largest] = super::range(module);
    let more = bytes.eval(&largest).zip(whole.as_const()).is_some_and(|(b, w)| b > w);
    if more { bytes.minimum(&whole) } else { bytes }
}

/// What one op would read as a kernel of its own.
pub fn op_reads(module: &Module, func: &Func, roles: &Roles, id: OpId) -> Option<Reads> {
    reads(module, func, roles, &BTreeSet::from([id]))
}

struct Walk<'a> {
    module: &'a Module,
    func: &'a Func,
    roles: &'a Roles,
    ops: &'a BTreeSet<OpId>,
    out: Reads,
    /// Bytes by item and by which part of it: empty for the whole, else the cuts on the way.
    parts: BTreeMap<Item, BTreeMap<String, Dim>>,
    /// Whether values are made by the kernel.
    known: BTreeMap<ValueId, bool>,
    /// What has been followed: there may be more paths to a value than can be walked.
    walked: BTreeSet<(ValueId, Dim, String)>,
}

impl Walk<'_> {
    fn operands(&mut self, id: OpId) -> Option<()> {
        let op = self.func.op(id);
        for v in inner_operands(self.func, id) {
            if self.func.ty(v).is_state() {
                continue;
            }
            if op.code == Opcode::Guarded && !op.operands.contains(&v) {
                // Read where the guard fails, which is what a plan does not count on; it has to be in memory.
                self.value(v, Dim::from(0), "guarded")?;
            } else if op.code == Opcode::Take && op.operands[0] == v && op.operands[1] != v {
                let rows = elements(self.func.tensor(op.results[0])?)?;
                self.value(v, rows, &format!("take {}", op.operands[1].0))?;
            } else {
                self.whole(v)?;
            }
        }
        let state = op.operands.iter().find(|v| self.func.ty(**v).is_state());
        if let Some(v) = state {
            let bytes = state_reads(self.func, id)?;
            let state = state_of(self.func, *v)?;
            self.add(Item::State(state), bytes, "");
        }
        Some(())
    }

    fn add(&mut self, item: Item, bytes: Dim, part: &str) {
        self.parts.entry(item).or_default().insert(part.to_owned(), bytes);
    }

    /// `need` elements of a value, wherever they lie.
    fn value(&mut self, v: ValueId, need: Dim, part: &str) -> Option<()> {
        if !self.walked.insert((v, need.clone(), part.to_owned())) {
            return Some(());
        }
        let func = self.func;
        let ValueDef::Result(id, _) = func.value(v).def else {
            return self.stored(v, need, part);
        };
        let op = func.op(id);
        if self.ops.contains(&id) && self.roles.role[id.index()] == Role::Work {
            return Some(());
        }
        match self.roles.role[id.index()] {
            Role::Work | Role::Control => self.stored(v, need, part),
            Role::Repeated => {
                if !self.out.repeated.insert(id) {
                    return Some(());
                }
                if is_statistic(op.code) {
                    return self.statistic(id);
                }
                op.operands.iter().try_for_each(|v| self.whole(*v))
            }
            Role::Free => self.access(id, need, part),
        }
    }

    fn access(&mut self, id: OpId, need: Dim, part: &str) -> Option<()> {
        use Opcode::*;
        let func = self.func;
        let op = func.op(id);
        match op.code {
            Const | DimValue | Iota | StateOpen | StateClose => return Some(()),
            Weight => {
                let at = op.operands.first().and_then(|v| constant(func, *v));
                let w = WeightId(u32::try_from(op.int("weight")?).ok()?);
                let bytes = need.mul(&Dim::from(self.module.weight(w).ty.dtype.bytes()))?;
                self.add(Item::Weight(w, at), bytes, part);
                return Some(());
            }
            _ => {}
        }
        if op.operands.iter().any(|v| self.inside(*v)) {
            self.out.inner_access.insert(id);
        }
        match op.code {
            Reshape | Transpose | Cast => self.value(op.operands[0], need, part),
            Slice => {
                let cut = |name| op.dim(name).map_or(String::new(), |d| d.to_string());
                let part = format!("{part}[{}, {}, {}]", op.int("axis")?, cut("start"), cut("len"));
                self.value(op.operands[0], need, &part)
            }
            IndexAt | Take => {
                let part = format!("{part} {} {}", op.code.name(), op.operands[1].0);
                self.value(op.operands[0], need, &part)?;
                self.whole(op.operands[1])
            }
            _ => op.operands.iter().try_for_each(|v| self.whole(*v)),
        }
    }

    fn whole(&mut self, v: ValueId) -> Option<()> {
        self.value(v, elements(self.func.tensor(v)?)?, "")
    }

    /// True if the value is made by the kernel, seen through accesses.
    fn inside(&mut self, v: ValueId) -> bool {
        if let Some(known) = self.known.get(&v) {
            return *known;
        }
        let func = self.func;
        let found = match func.value(v).def {
            ValueDef::Param(..) => false,
            ValueDef::Result(id, _) => match self.roles.role[id.index()] {
                Role::Work => self.ops.contains(&id),
                Role::Free | Role::Repeated => func.op(id).operands.iter().any(|v| self.inside(*v)),
                Role::Control => false,
            },
        };
        self.known.insert(v, found);
        found
    }

    fn stored(&mut self, v: ValueId, need: Dim, part: &str) -> Option<()> {
        let t = self.func.tensor(v)?;
        self.add(Item::Value(v), need.mul(&Dim::from(t.dtype.bytes()))?, part);
        Some(())
    }

    /// A statistic of a value: formed in the kernel if the value is, else finished from its parts.
    fn statistic(&mut self, id: OpId) -> Option<()> {
        let x = self.func.op(id).operands[0];
        if self.inside(x) {
            self.out.inner_statistics.insert(id);
            return self.whole(x);
        }
        self.parts(x)
    }

    fn parts(&mut self, x: ValueId) -> Option<()> {
        let base = stored_base(self.func, self.roles, x)?;
        let bytes = partial_bytes(self.func.tensor(x)?)?;
        self.add(Item::Partial(base), bytes, "");
        Some(())
    }
}

/// The value in memory that a value is a view of.
pub fn stored_base(func: &Func, roles: &Roles, v: ValueId) -> Option<ValueId> {
    match func.value(v).def {
        ValueDef::Param(..) => Some(v),
        ValueDef::Result(id, _) => match roles.role[id.index()] {
            Role::Free => stored_base(func, roles, *func.op(id).operands.first()?),
            _ => Some(v),
        },
    }
}

/// A scalar constant.
pub fn constant(func: &Func, v: ValueId) -> Option<i64> {
    match func.value(v).def {
        ValueDef::Result(id, _) if func.op(id).code == Opcode::Const => func.op(id).float("value").map(|x| x as i64),
        _ => None,
    }
}

/// The state a version belongs to.
pub fn state_of(func: &Func, v: ValueId) -> Option<StateId> {
    match func.op(opened(func, v)?).attrs.get("state") {
        Some(Attr::Int(s)) => u32::try_from(*s).ok().map(StateId),
        _ => None,
    }
}

/// The op that opens the element a version belongs to; of cases that of the first.
pub fn opened(func: &Func, v: ValueId) -> Option<OpId> {
    match func.value(v).def {
        ValueDef::Result(id, index) => {
            let op = func.op(id);
            match op.code {
                Opcode::StateOpen => Some(id),
                Opcode::Loop => opened(func, *op.operands.get(index as usize)?),
                Opcode::Cases => opened(func, *func.region(*op.regions.first()?).yields.get(index as usize)?),
                _ => opened(func, *op.operands.iter().find(|v| func.ty(**v).is_state())?),
            }
        }
        ValueDef::Param(region, index) => {
            let owner = func.ops.iter().find(|op| op.regions.contains(&region))?;
            opened(func, *owner.operands.get((index as usize).checked_sub(1)?)?)
        }
    }
}

fn kind(func: &Func, id: OpId) -> Option<(&StateKind, i64)> {
    func.op(id).operands.iter().find_map(|v| match func.ty(*v) {
        Type::State { kind, dtype } => Some((kind, dtype.bytes())),
        Type::Tensor(_) => None,
    })
}

/// Requests a state op works on: the leading extent of its rows.
fn requests(func: &Func, id: OpId) -> Option<Dim> {
    let op = func.op(id);
    op.operands.iter().find_map(|v| func.tensor(*v)).and_then(|t| t.dims.first().cloned())
}

/// Bytes of state an op reads.
pub fn state_reads(func: &Func, id: OpId) -> Option<Dim> {
    let (kind, size) = kind(func, id)?;
    let n = requests(func, id)?;
    let op = func.op(id);
    match (op.code, kind) {
        (Opcode::Attention, StateKind::KvPool { heads, width }) => {
            let row = heads.mul(width)?.mul(&Dim::from(2 * size))?;
            let window = op.int("window").unwrap_or(0);
            let context = Dim::symbol(CONTEXT);
            let seen = if window > 0 { context.minimum(&Dim::from(window)) } else { context };
            n.mul(&seen)?.mul(&row)
        }
        (Opcode::KvWrite, _) => Some(Dim::from(0)),
        _ => n.mul(&held(kind)?)?.mul(&Dim::from(size)),
    }
}

/// Bytes of state an op writes.
pub fn state_writes(func: &Func, id: OpId) -> Option<Dim> {
    let op = func.op(id);
    let (kind, size) = kind(func, id)?;
    match (op.code, kind) {
        (Opcode::KvWrite, _) => {
            let rows = elements(func.tensor(op.operands[1])?)?;
            rows.mul(&Dim::from(2 * size))
        }
        (Opcode::CausalConv | Opcode::DeltaRule, _) => requests(func, id)?.mul(&held(kind)?)?.mul(&Dim::from(size)),
        _ => Some(Dim::from(0)),
    }
}

/// Elements of a recurrent state or a window.
fn held(kind: &StateKind) -> Option<Dim> {
    match kind {
        StateKind::Recurrent { shape } => shape.iter().try_fold(Dim::from(1), |n, d| n.mul(d)),
        StateKind::Window { channels, taps } => channels.mul(&taps.sub(&Dim::from(1))?),
        StateKind::KvPool { .. } => Some(Dim::from(0)),
    }
}

impl Item {
    /// The place in a plan, given where buffers are.
    pub fn place(self, buffer: &dyn Fn(ValueId, bool) -> Option<super::BufferId>) -> Option<Place> {
        Some(match self {
            Item::Weight(w, at) => Place::Weight(w, at),
            Item::Value(v) => Place::Buffer(buffer(v, false)?),
            Item::Partial(v) => Place::Buffer(buffer(v, true)?),
            Item::State(s) => Place::State(s),
        })
    }
}
