//! Walking a function.

use super::call::{Call, Declared, Slot, extent};
use super::dispatch::evaluate;
use super::elementwise::select;
use super::number::{bools, ints, tensor};
use super::observe::{Observer, full_path};
use super::state::{RequestState, StateValue};
use super::{InterpError, Mode, WeightStore};
use crate::ir::{Func, Module, Op, OpId, RegionId, StateId, ValueId, WeightId};
use crate::ops::Opcode;
use crate::tensor::Tensor;
use crate::ty::Env;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) struct Machine<'a> {
    pub module: &'a Module,
    pub func: &'a Func,
    pub weights: &'a dyn WeightStore,
    pub states: &'a [RequestState],
    pub mode: Mode,
    pub observer: &'a mut dyn Observer,
    pub env: Env,
    /// What every value holds now; values of regions that are not running hold nothing.
    pub slots: Vec<Option<Slot>>,
    /// Path and iteration of the running loops, outermost first.
    pub loops: Vec<(Arc<str>, usize)>,
    pub opened: BTreeSet<(StateId, usize)>,
    /// Elements in their last versions.
    pub closed: Vec<StateValue>,
}

type Step<T> = Result<T, String>;

impl Machine<'_> {
    /// Gives a value its content and tells the observer.
    pub fn set(&mut self, id: ValueId, slot: Slot) -> Step<()> {
        if let Slot::Tensor(t) = &slot {
            for name in &self.func.value(id).names {
                let path = full_path(name, &self.loops);
                if self.observer.wants(&path) {
                    self.observer.value(&path, t);
                }
            }
        }
        *self.slots.get_mut(id.index()).ok_or("a value does not belong to the function")? = Some(slot);
        Ok(())
    }

    pub fn get(&self, id: ValueId) -> Step<&Slot> {
        self.slots.get(id.index()).and_then(Option::as_ref).ok_or_else(|| format!("value {} is not computed", id.0))
    }

    fn get_all(&self, ids: &[ValueId]) -> Step<Vec<Slot>> {
        ids.iter().map(|id| self.get(*id).cloned()).collect()
    }

    /// Runs the ops of a region whose parameters are set, and hands out what it yields. Its other values are freed.
    pub fn region(&mut self, id: RegionId, owner: &Op) -> Result<Vec<Slot>, InterpError> {
        let func = self.func;
        let region = func.region(id);
        for op in &region.ops {
            self.op(*op)?;
        }
        let yields = self.get_all(&region.yields).map_err(|m| InterpError::at(&owner.loc, m))?;
        let results = region.ops.iter().flat_map(|op| &func.op(*op).results);
        for id in region.params.iter().chain(results) {
            self.slots[id.index()] = None;
        }
        Ok(yields)
    }

    /// Evaluates one op.
    pub fn op(&mut self, id: OpId) -> Result<(), InterpError> {
        let func = self.func;
        let op = func.op(id);
        let here = |m: String| InterpError::at(&op.loc, format!("`{}`: {m}", op.code.name()));
        let results = match op.code {
            Opcode::Weight => vec![self.weight(op).map_err(here)?],
            Opcode::StateOpen => vec![self.state_open(op).map_err(here)?],
            Opcode::StateClose => {
                self.state_close(op).map_err(here)?;
                vec![]
            }
            Opcode::Loop => self.repeat(op)?,
            Opcode::Cases => self.cases(op)?,
            Opcode::Guarded => self.guarded(op)?,
            _ => self.plain(op).map_err(here)?,
        };
        if results.len() != op.results.len() {
            return Err(here(format!("{} results for {} values", results.len(), op.results.len())));
        }
        for (id, slot) in op.results.iter().zip(results) {
            self.check(*id, &slot).map_err(here)?;
            self.set(*id, slot).map_err(here)?;
        }
        Ok(())
    }

    fn declared(&self, id: ValueId) -> Step<Option<Declared>> {
        self.func.tensor(id).map(|ty| Declared::new(ty, &self.env)).transpose()
    }

    /// A result must be what its type says.
    fn check(&self, id: ValueId, slot: &Slot) -> Step<()> {
        match (self.declared(id)?, slot) {
            (Some(want), Slot::Tensor(t)) if want.dtype == t.dtype && want.shape == t.shape => Ok(()),
            (Some(want), Slot::Tensor(t)) => {
                Err(format!("the result is {}{:?}, its type says {}{:?}", t.dtype, t.shape, want.dtype, want.shape))
            }
            (None, Slot::State(_)) => Ok(()),
            _ => Err("a state stands for a tensor".into()),
        }
    }

    fn plain(&mut self, op: &Op) -> Step<Vec<Slot>> {
        let operands = self.get_all(&op.operands)?;
        let results = op.results.iter().map(|id| self.declared(*id)).collect::<Step<Vec<_>>>()?;
        evaluate(&Call { op, operands: &operands, results: &results, env: &self.env })
    }

    fn scalar(&self, id: ValueId) -> Step<i32> {
        match self.get(id)? {
            Slot::Tensor(t) if t.len() == 1 => Ok(ints(t)?[0]),
            _ => Err("an index must be an i32 scalar".into()),
        }
    }

    fn weight(&mut self, op: &Op) -> Step<Slot> {
        let id = op.int("weight").and_then(|w| u32::try_from(w).ok()).ok_or("attribute `weight` is missing")?;
        let weight = self.module.weights.get(id as usize).ok_or_else(|| format!("there is no weight {id}"))?;
        let index = op.operands.iter().map(|v| self.scalar(*v).map(i64::from)).collect::<Step<Vec<i64>>>()?;
        if index.len() != weight.loops.len() {
            return Err(format!("weight `{}` takes {} indices, not {index:?}", weight.name, weight.loops.len()));
        }
        let mut flat = 0;
        for (i, (variable, n)) in index.iter().zip(&weight.loops) {
            if !(0..*n).contains(i) {
                return Err(format!("weight `{}`: {variable} = {i} is not within 0..{n}", weight.name));
            }
            flat = flat * n + i;
        }
        if !weight.present.is_empty() && weight.present.get(flat as usize) != Some(&true) {
            return Err(format!("weight `{}` does not exist at {index:?}", weight.name));
        }
        let t = self
            .weights
            .weight(WeightId(id), &index)
            .map_err(|m| format!("weight `{}` at {index:?}: {m}", weight.name))?;
        // Data that does not fill its shape would be a panic further down.
        Ok(tensor(t.dtype, t.shape, t.data)?.into())
    }

    fn state_open(&mut self, op: &Op) -> Step<Slot> {
        let id = op.int("state").and_then(|s| u32::try_from(s).ok()).ok_or("attribute `state` is missing")?;
        let decl = self.module.states.get(id as usize).ok_or_else(|| format!("there is no state {id}"))?;
        let element = match op.operands.first() {
            None => 0,
            Some(v) => {
                let index = i64::from(self.scalar(*v)?);
                let known = usize::try_from(index).ok().and_then(|i| decl.element.get(i).copied());
                if decl.element.is_empty() { index } else { known.unwrap_or(-1) }
            }
        };
        let found = usize::try_from(element).ok().filter(|e| (*e as i64) < decl.count);
        let found = found.ok_or_else(|| format!("state `{}` has no element {element}", decl.name))?;
        if self.states.is_empty() {
            return Err(format!("state `{}` is used, but the call has no request", decl.name));
        }
        if !self.opened.insert((StateId(id), found)) {
            // An element that was closed goes on from its last version.
            let last = self.closed.iter().position(|v| v.id == StateId(id) && v.element == found);
            return match last {
                Some(i) => Ok(Slot::from(self.closed.remove(i))),
                None => Err(format!("element {found} of state `{}` is opened while it is open", decl.name)),
            };
        }
        let tentative = self.mode == Mode::Tentative;
        StateValue::open(self.states, StateId(id), found, tentative)
            .map(Slot::from)
            .ok_or_else(|| format!("a request has no element {found} of state `{}`", decl.name))
    }

    fn state_close(&mut self, op: &Op) -> Step<()> {
        let id = *op.operands.first().ok_or("operand 1 is missing")?;
        match self.get(id)? {
            Slot::State(s) => {
                let last = StateValue::clone(s);
                self.closed.push(last);
                Ok(())
            }
            Slot::Tensor(_) => Err("only a state can be closed".into()),
        }
    }

    fn repeat(&mut self, op: &Op) -> Result<Vec<Slot>, InterpError> {
        let here = |m: String| InterpError::at(&op.loc, format!("`loop`: {m}"));
        let func = self.func;
        let id = *op.regions.first().ok_or_else(|| here("it has no region".into()))?;
        let region = func.region(id);
        let dim = op.dim("extent").ok_or_else(|| here("attribute `extent` is missing".into()))?;
        let extent = extent(dim, &self.env).map_err(here)?;
        if i32::try_from(extent).is_err() {
            return Err(here(format!("{extent} iterations do not fit i32")));
        }
        let carries = op.operands.len();
        let values = carries + op.keeps().len();
        if region.params.len() != carries + 1 || region.yields.len() != values || op.results.len() != values {
            return Err(here("its region does not fit its operands".into()));
        }
        let mut carried = self.get_all(&op.operands).map_err(here)?;
        let mut kept: Vec<Vec<Arc<Tensor>>> = vec![Vec::new(); op.keeps().len()];
        for iteration in 0..extent {
            self.loops.push((op.loc.path.clone(), iteration));
            let index = Tensor::i32(vec![], vec![iteration as i32]);
            self.set(region.params[0], index.into()).map_err(here)?;
            for (param, slot) in region.params[1..].iter().zip(carried) {
                self.check(*param, &slot).map_err(here)?;
                self.set(*param, slot).map_err(here)?;
            }
            carried = self.region(id, op)?;
            self.loops.pop();
            let extra = carried.split_off(carries);
            for ((keep, slot), list) in op.keeps().iter().zip(extra).zip(&mut kept) {
                if keep.at.as_ref().is_none_or(|at| at.contains(&(iteration as i64))) {
                    match slot {
                        Slot::Tensor(t) => list.push(t),
                        Slot::State(_) => return Err(here("a state cannot be kept".into())),
                    }
                }
            }
        }
        for ((keep, list), result) in op.keeps().iter().zip(kept).zip(&op.results[carries..]) {
            let want = self.declared(*result).map_err(here)?;
            let want = want.ok_or_else(|| here("a kept value must be a tensor".into()))?;
            carried.push(super::keep::stack(&want, keep.axis, &list).map_err(here)?.into());
        }
        Ok(carried)
    }

    fn cases(&mut self, op: &Op) -> Result<Vec<Slot>, InterpError> {
        let here = |m: String| InterpError::at(&op.loc, format!("`cases`: {m}"));
        let index = op.operands.first().ok_or_else(|| here("operand 1 is missing".into()))?;
        let index = self.scalar(*index).map_err(here)?;
        let select = op.ints("select").unwrap_or(&[]);
        let case = usize::try_from(index).ok().and_then(|i| select.get(i).copied());
        let region = case.and_then(|c| usize::try_from(c).ok()).and_then(|c| op.regions.get(c).copied());
        let region = region.ok_or_else(|| here(format!("there is no case for index {index}")))?;
        self.region(region, op)
    }

    fn guarded(&mut self, op: &Op) -> Result<Vec<Slot>, InterpError> {
        let here = |m: String| InterpError::at(&op.loc, format!("`guarded`: {m}"));
        let operands = self.get_all(&op.operands).map_err(here)?;
        let [Slot::Tensor(ok), Slot::Tensor(fast)] = operands.as_slice() else {
            return Err(here("it takes two tensors".into()));
        };
        if bools(ok).map_err(here)?.iter().all(|ok| *ok) {
            return Ok(vec![Slot::Tensor(fast.clone())]);
        }
        let region = *op.regions.first().ok_or_else(|| here("it has no region".into()))?;
        let slow = match self.region(region, op)?.pop() {
            Some(Slot::Tensor(t)) => t,
            _ => return Err(here("its region yields no tensor".into())),
        };
        Ok(vec![select(ok, fast, &slow).map_err(here)?.into()])
    }

    /// The results of the function.
    pub fn outputs(&self) -> Step<Vec<Tensor>> {
        let yields = &self.func.region(self.func.body).yields;
        yields
            .iter()
            .map(|id| match self.get(*id)? {
                Slot::Tensor(t) => Ok(Tensor::clone(t)),
                Slot::State(_) => Err("a state cannot be an output".into()),
            })
            .collect()
    }
}
