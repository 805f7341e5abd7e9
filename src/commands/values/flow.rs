//! How values are had from each other through the kernels, loops and cases of a phase.

use super::ValuePath;
use spinec_ir::ir::{Attr, Func, Nest, OpId, RegionId, ValueDef, ValueId};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::{Phase, Place};
use std::collections::{BTreeMap, BTreeSet};

/// Iterations of loops, as far as they are known.
pub type At = BTreeMap<OpId, i64>;

/// Whether two can be of the same iterations.
pub fn compatible(a: &At, b: &At) -> bool {
    a.iter().all(|(l, i)| b.get(l).is_none_or(|j| i == j))
}

/// A kernel in iterations of the loops around it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Launch {
    pub kernel: usize,
    pub at: At,
}

/// How a value is had from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is computed or read out of it.
    Read,
    /// So, and the loop stands around the reader only.
    Inside(OpId),
    /// A loop begins with it.
    Begins(OpId),
    /// The iteration before hands it on.
    Carried(OpId),
    /// A loop ends with it, or keeps it.
    Ends(OpId),
    /// A case yields it.
    Case(OpId),
}

/// What a value is had from.
#[derive(Clone, Debug)]
pub struct Source {
    pub value: ValueId,
    pub at: At,
    pub way: Way,
}

/// A phase seen as values that are made of values.
pub struct Flow<'a> {
    pub func: &'a Func,
    pub phase: &'a Phase,
    pub nest: Nest<'a>,
    /// By op, the kernels that compute it.
    kernels: Vec<Vec<usize>>,
}

impl<'a> Flow<'a> {
    /// The flow of a phase of a plan.
    pub fn of(func: &'a Func, phase: &'a Phase) -> Flow<'a> {
        let mut kernels = vec![Vec::new(); func.ops.len()];
        for (k, kernel) in phase.kernels.iter().enumerate() {
            kernel.ops.iter().for_each(|id| kernels[id.index()].push(k));
        }
        Flow { func, phase, nest: Nest::of(func), kernels }
    }

    /// The op that kernels and control know: an op inside a scan or a guard stands for that.
    fn top(&self, id: OpId) -> OpId {
        let mut top = id;
        let mut at = self.nest.region(id).and_then(|r| self.nest.owner(r));
        while let Some(owner) = at {
            if !self.kernels[owner.index()].is_empty() {
                top = owner;
            }
            at = self.nest.region(owner).and_then(|r| self.nest.owner(r));
        }
        top
    }

    /// The kernels that compute an op: several if readers repeat it, none if it is no work.
    pub fn computing(&self, id: OpId) -> &[usize] {
        &self.kernels[self.top(id).index()]
    }

    /// The op that makes a value; for a parameter inside a scan that is the scan.
    fn op(&self, v: ValueId) -> Option<OpId> {
        match self.func.value(v).def {
            ValueDef::Result(op, _) => Some(op),
            ValueDef::Param(r, _) => self.nest.owner(r).filter(|op| !self.computing(*op).is_empty()),
        }
    }

    /// Whether a kernel computes a value.
    pub fn computed(&self, v: ValueId) -> bool {
        self.op(v).is_some_and(|op| !self.computing(op).is_empty())
    }

    /// The loops around a region, from the inside out.
    pub fn loops(&self, region: RegionId) -> impl Iterator<Item = OpId> + '_ {
        self.nest
            .outwards(region)
            .filter_map(|r| self.nest.owner(r))
            .filter(|id| self.func.op(*id).code == Opcode::Loop)
    }

    /// The iterations that matter in a region.
    fn trim(&self, region: Option<RegionId>, at: &At) -> At {
        let around: BTreeSet<OpId> = region.into_iter().flat_map(|r| self.loops(r)).collect();
        at.iter().filter(|(l, _)| around.contains(l)).map(|(l, i)| (*l, *i)).collect()
    }

    /// The iterations a path names, of the loops around a value.
    pub fn at(&self, v: ValueId, path: &ValuePath) -> At {
        let index = |id: &OpId| path.indices.iter().find(|(p, _)| **p == *self.func.op(*id).loc.path).map(|(_, i)| *i);
        let loops = self.nest.home(v).into_iter().flat_map(|r| self.loops(r));
        loops.filter_map(|id| Some((id, index(&id)?))).collect()
    }

    /// What a value is had from; nothing for an input, a weight or a constant.
    pub fn from(&self, v: ValueId, at: &At) -> Vec<Source> {
        let mut out = Vec::new();
        let mut push = |value: ValueId, way: Way, at: &At| {
            out.push(Source { value, way, at: self.trim(self.nest.home(value), at) });
        };
        let with = |id: OpId, i: i64| {
            let mut at = at.clone();
            at.insert(id, i);
            at
        };
        match self.func.value(v).def {
            ValueDef::Param(region, i) => {
                let (Some(id), Some(i)) = (self.nest.owner(region), (i as usize).checked_sub(1)) else { return out };
                let known = at.get(&id).copied();
                if let Some(v) = self.func.op(id).operands.get(i).filter(|_| known.is_none_or(|n| n == 0)) {
                    push(*v, Way::Begins(id), at);
                }
                if let Some(v) = self.func.region(region).yields.get(i).filter(|_| known != Some(0)) {
                    push(*v, Way::Carried(id), &known.map_or_else(|| at.clone(), |n| with(id, n - 1)));
                }
            }
            ValueDef::Result(id, i) => {
                let op = self.func.op(id);
                let yielded = |r: &RegionId| self.func.region(*r).yields.get(i as usize).copied();
                match op.code {
                    Opcode::Loop => {
                        let last = || op.dim("extent").and_then(|d| d.as_const()).map(|n| vec![n - 1]);
                        let iterations = self.kept(id, i as usize).unwrap_or_else(last);
                        for v in op.regions.iter().filter_map(yielded) {
                            match &iterations {
                                Some(list) => list.iter().for_each(|n| push(v, Way::Ends(id), &with(id, *n))),
                                None => push(v, Way::Ends(id), at),
                            }
                        }
                    }
                    Opcode::Cases => {
                        let taken = self.taken(id, at);
                        let arms = op.regions.iter().enumerate().filter(|(n, _)| taken.contains(n));
                        arms.filter_map(|(_, r)| yielded(r)).for_each(|v| push(v, Way::Case(id), at));
                    }
                    _ => {
                        let inner = op.regions.iter().filter_map(yielded);
                        let own = self.nest.region(id);
                        for v in op.operands.iter().copied().chain(inner) {
                            let outer: BTreeSet<OpId> =
                                self.nest.home(v).into_iter().flat_map(|r| self.loops(r)).collect();
                            let entered = own.and_then(|r| self.loops(r).filter(|l| !outer.contains(l)).last());
                            push(v, entered.map_or(Way::Read, Way::Inside), at);
                        }
                    }
                }
            }
        }
        out
    }

    /// The cases of an op that the iterations take.
    fn taken(&self, id: OpId, at: &At) -> BTreeSet<usize> {
        let op = self.func.op(id);
        let select = op.ints("select").unwrap_or_default();
        let around = op.operands.first().and_then(|v| match self.func.value(*v).def {
            ValueDef::Param(body, 0) => self.nest.owner(body),
            _ => None,
        });
        let known = around.and_then(|l| at.get(&l)).and_then(|i| select.get(usize::try_from(*i).ok()?));
        let arms = known.map_or(select, std::slice::from_ref);
        arms.iter().filter_map(|a| usize::try_from(*a).ok()).collect()
    }

    /// The loop of kernels that carries a value, or hands it on.
    pub fn carrying(&self, v: ValueId) -> Option<OpId> {
        let op = match self.func.value(v).def {
            ValueDef::Param(r, _) => self.nest.owner(r)?,
            ValueDef::Result(op, _) => op,
        };
        (self.func.op(op).code == Opcode::Loop && self.computing(op).is_empty()).then_some(op)
    }

    /// The launches that compute a value itself; several if readers repeat it.
    pub fn own(&self, v: ValueId, at: &At) -> Vec<Launch> {
        let kernels = self.op(v).map(|op| self.computing(op)).unwrap_or_default();
        let of = |k: &usize| Launch { kernel: *k, at: self.trim(Some(self.phase.kernels[*k].block), at) };
        kernels.iter().map(of).collect()
    }

    /// A value and all it is had from without a kernel.
    pub fn sources(&self, v: ValueId, at: &At) -> BTreeSet<(ValueId, At)> {
        let (mut out, mut open) = (BTreeSet::new(), vec![(v, at.clone())]);
        while let Some((v, at)) = open.pop() {
            if out.insert((v, at.clone())) && !self.computed(v) {
                open.extend(self.from(v, &at).into_iter().map(|s| (s.value, s.at)));
            }
        }
        out
    }

    /// The launches that compute a value, or what it is had from.
    pub fn makers(&self, v: ValueId, at: &At) -> BTreeSet<Launch> {
        self.sources(v, at).into_iter().flat_map(|(v, at)| self.own(v, &at)).collect()
    }

    /// The kernels that read a value in memory, or row statistics of it, in those iterations.
    pub fn readers(&self, v: ValueId, path: &ValuePath) -> Vec<usize> {
        let of = |p: Place| matches!(p, Place::Buffer(b) if self.phase.buffers[b.index()].value == v);
        let reads = |k: &usize| {
            let kernel = &self.phase.kernels[*k];
            path.reaches(&self.nest.taken(kernel.block)) && kernel.reads.iter().any(|a| of(a.place))
        };
        (0..self.phase.kernels.len()).filter(reads).collect()
    }

    /// The kept iterations of a result of a loop, all if none are listed; none if it is a carried one.
    pub fn kept(&self, id: OpId, result: usize) -> Option<Option<Vec<i64>>> {
        let op = self.func.op(id);
        let at = result.checked_sub(op.operands.len())?;
        match op.attrs.get("keep") {
            Some(Attr::Keeps(keeps)) => keeps.get(at).map(|k| k.at.clone()),
            _ => None,
        }
    }
}
