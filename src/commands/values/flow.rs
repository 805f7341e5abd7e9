//! How values reach each other through the kernels, loops and cases of a phase.

use spinec_ir::ir::{Attr, Func, Nest, OpId, ValueDef, ValueId};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::role::inner_operands;
use spinec_ir::plan::{Phase, Place};
use std::collections::{BTreeSet, VecDeque};

/// A phase seen as values that are made of values.
pub struct Flow<'a> {
    pub func: &'a Func,
    pub phase: &'a Phase,
    nest: Nest<'a>,
    /// By op, the kernels that compute it.
    kernels: Vec<Vec<usize>>,
}

/// How a value is had from another without a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is read out of it where it lies.
    Read,
    /// A loop begins with it.
    Begins(OpId),
    /// The iteration before hands it on.
    Carried(OpId),
    /// A loop ends with it.
    Ends(OpId),
    /// A case yields it.
    Case(OpId),
}

/// How the result of a kernel reaches another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Kernels between the two, in the order data goes.
    pub between: Vec<usize>,
    /// Loops and cases on the way, in the order data goes, each with the value that goes in.
    pub ways: Vec<(Way, ValueId)>,
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

    /// Whether every reader computes an op again.
    pub fn repeated(&self, id: OpId) -> bool {
        self.computing(id).len() > 1
    }

    /// The op that makes a value, if one does.
    pub fn op(&self, v: ValueId) -> Option<OpId> {
        match self.func.value(v).def {
            ValueDef::Result(op, _) => Some(op),
            // A parameter inside a scan is the scan's.
            ValueDef::Param(r, _) => self.nest.owner(r).filter(|op| !self.computing(*op).is_empty()),
        }
    }

    /// What a value that no kernel computes is had from; nothing for an input, a weight or a constant.
    pub fn from(&self, v: ValueId) -> Vec<(ValueId, Way)> {
        match self.func.value(v).def {
            ValueDef::Param(region, i) => {
                let Some(id) = self.nest.owner(region) else { return Vec::new() };
                let Some(i) = (i as usize).checked_sub(1) else { return Vec::new() };
                let first = self.func.op(id).operands.get(i).map(|v| (*v, Way::Begins(id)));
                let next = self.func.region(region).yields.get(i).map(|v| (*v, Way::Carried(id)));
                first.into_iter().chain(next).collect()
            }
            ValueDef::Result(id, i) => {
                let op = self.func.op(id);
                let yields = |way: Way| {
                    let of = |r| self.func.region(r).yields.get(i as usize).map(|v| (*v, way));
                    op.regions.iter().filter_map(|r| of(*r)).collect()
                };
                match op.code {
                    Opcode::Loop if self.computing(id).is_empty() => yields(Way::Ends(id)),
                    Opcode::Cases if self.computing(id).is_empty() => yields(Way::Case(id)),
                    _ => inner_operands(self.func, id).into_iter().map(|v| (v, Way::Read)).collect(),
                }
            }
        }
    }

    /// The kernels that compute a value, or what it is had from.
    pub fn makers(&self, v: ValueId) -> BTreeSet<usize> {
        self.sources(v).into_iter().filter_map(|v| self.op(v)).flat_map(|op| self.computing(op)).copied().collect()
    }

    /// A value and all it is had from without a kernel.
    pub fn sources(&self, v: ValueId) -> BTreeSet<ValueId> {
        let (mut out, mut open) = (BTreeSet::new(), vec![v]);
        while let Some(v) = open.pop() {
            if out.insert(v) && self.op(v).is_none_or(|op| self.computing(op).is_empty()) {
                open.extend(self.from(v).into_iter().map(|(v, _)| v));
            }
        }
        out
    }

    /// The kernels that read a value in memory, or row statistics of it.
    pub fn readers(&self, v: ValueId) -> Vec<usize> {
        let of = |p: Place| matches!(p, Place::Buffer(b) if self.phase.buffers[b.index()].value == v);
        let reads = |k: &usize| self.phase.kernels[*k].reads.iter().any(|a| of(a.place));
        (0..self.phase.kernels.len()).filter(reads).collect()
    }

    /// What the ops of a kernel use that it does not make.
    fn outside(&self, k: usize) -> Vec<ValueId> {
        let ops = &self.phase.kernels[k].ops;
        let made: BTreeSet<ValueId> = ops.iter().flat_map(|id| self.func.op(*id).results.clone()).collect();
        let used: BTreeSet<ValueId> = ops.iter().flat_map(|id| inner_operands(self.func, *id)).collect();
        used.difference(&made).copied().collect()
    }

    /// The way from a kernel of `from` to one of `to` with the fewest kernels between them. `apart` asks that so many
    /// iterations of the loops of a path are crossed; otherwise at most one iteration is.
    pub fn route(&self, from: &BTreeSet<usize>, to: &BTreeSet<usize>, apart: Option<(&str, i64)>) -> Option<Route> {
        struct Stop {
            value: ValueId,
            crossed: i64,
            back: Option<usize>,
            way: Option<Way>,
            kernel: Option<usize>,
        }
        let most = apart.map_or(1, |(_, n)| n);
        let mut stops: Vec<Stop> = Vec::new();
        let mut seen: BTreeSet<(ValueId, i64)> = BTreeSet::new();
        let mut open: VecDeque<usize> = VecDeque::new();
        for value in to.iter().flat_map(|k| self.outside(*k)) {
            open.push_back(stops.len());
            stops.push(Stop { value, crossed: 0, back: None, way: None, kernel: None });
        }
        while let Some(at) = open.pop_front() {
            let (value, crossed) = (stops[at].value, stops[at].crossed);
            if !seen.insert((value, crossed)) {
                continue;
            }
            let op = self.op(value).filter(|op| !self.computing(*op).is_empty());
            let Some(op) = op.filter(|op| !self.repeated(*op) || self.computing(*op).iter().any(|k| from.contains(k)))
            else {
                for (value, way) in self.from(value) {
                    let counts = match way {
                        Way::Carried(id) => apart.is_none_or(|(path, _)| *self.func.op(id).loc.path == *path),
                        _ => false,
                    };
                    let crossed = crossed + i64::from(counts);
                    if crossed <= most {
                        open.push_front(stops.len());
                        stops.push(Stop { value, crossed, back: Some(at), way: Some(way), kernel: None });
                    }
                }
                continue;
            };
            let kernels = self.computing(op);
            if kernels.iter().any(|k| from.contains(k)) && apart.is_none_or(|(_, n)| n == crossed) {
                let mut route = Route { between: Vec::new(), ways: Vec::new() };
                let mut step = Some(at);
                while let Some(s) = step.map(|i| &stops[i]) {
                    route.between.extend(s.kernel);
                    route.ways.extend(s.way.filter(|w| *w != Way::Read).map(|w| (w, s.value)));
                    step = s.back;
                }
                return Some(route);
            }
            for k in kernels {
                for value in self.outside(*k) {
                    open.push_back(stops.len());
                    stops.push(Stop { value, crossed, back: Some(at), way: None, kernel: Some(*k) });
                }
            }
        }
        None
    }

    /// The kept iterations of a result of a loop, if it is a kept one.
    pub fn kept(&self, id: OpId, result: usize) -> Option<Option<Vec<i64>>> {
        let op = self.func.op(id);
        let at = result.checked_sub(op.operands.len())?;
        match op.attrs.get("keep") {
            Some(Attr::Keeps(keeps)) => keeps.get(at).map(|k| k.at.clone()),
            _ => None,
        }
    }
}
