//! Walking a function: loops are unrolled, cases resolved, states followed.

use super::consts::{Shared, Val};
use super::emit::{Call, Emitter, StateOperand, Step};
use super::instr::{Code, Guarded, StateRef, Tape};
use spinec_ir::interp::{Observer, bind_symbols};
use spinec_ir::ir::{Attr, Attrs, Func, Module, Op, OpId, RegionId, ValueId, WeightId};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::derived_element;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, Dim, Env, TensorType};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most elements a tensor may have. A mistyped dim is then an error here and not an attempt to take all memory.
const MAX_ELEMENTS: usize = 1 << 32;

/// A value while a tape is built.
#[derive(Clone, Debug)]
enum Slot {
    Tensor(Val),
    State(StateRef),
}

/// What a program is run by.
pub(super) struct Source {
    pub module: Module,
    /// By derived weight in the order of their ids, the function that computes it.
    pub load: Module,
    /// By function and op, the kernel of the plan that computes it.
    pub kernels: Vec<Vec<Option<u32>>>,
}

/// Builds the tape of a function for the shapes of these inputs and so many requests.
pub(super) fn build(
    shared: &mut Shared,
    source: &Source,
    func: usize,
    inputs: &[&Tensor],
    requests: usize,
    observer: Option<&dyn Observer>,
) -> Step<Tape> {
    let module = &source.module;
    let kernels = source.kernels.get(func).map_or(&[][..], Vec::as_slice);
    let func = module.funcs.get(func).ok_or("there is no such function")?;
    let owned: Vec<Tensor> = inputs.iter().map(|t| (*t).clone()).collect();
    let env = bind_symbols(func, &module.symbols, &owned).map_err(|e| e.to_string())?;
    let mut walk = Walk {
        module,
        load: &source.load,
        kernels,
        launch: (None, 0),
        func,
        env,
        requests,
        observer,
        emit: Emitter::new(shared),
        slots: vec![None; func.values.len()],
        loops: Vec::new(),
        opened: BTreeSet::new(),
    };
    let body = func.region(func.body);
    let mut given = Vec::new();
    for (id, t) in body.params.iter().zip(&owned) {
        let v = walk.emit.fresh(t.dtype, &t.shape);
        given.push((t.dtype, t.shape.clone(), v.clone()));
        walk.set(*id, Slot::Tensor(v))?;
    }
    for op in &body.ops {
        walk.op(*op)?;
    }
    let mut outputs = Vec::new();
    for v in &body.yields {
        outputs.push(walk.tensor(*v)?);
    }
    walk.emit.finish(given, &outputs, requests)
}

struct Walk<'a> {
    module: &'a Module,
    load: &'a Module,
    kernels: &'a [Option<u32>],
    /// The kernel that is being launched, and the number of the launch.
    launch: (Option<u32>, u32),
    func: &'a Func,
    env: Env,
    requests: usize,
    observer: Option<&'a dyn Observer>,
    emit: Emitter<'a>,
    slots: Vec<Option<Slot>>,
    /// Path and iteration of the running loops, outermost first.
    loops: Vec<(Arc<str>, usize)>,
    opened: BTreeSet<(usize, usize)>,
}

impl Walk<'_> {
    /// Gives a value its content and reports it if it is wanted.
    fn set(&mut self, id: ValueId, slot: Slot) -> Step<()> {
        if let (Slot::Tensor(v), Some(observer)) = (&slot, self.observer) {
            for name in &self.func.value(id).names {
                let path = full_path(name, &self.loops);
                if observer.wants(&path) {
                    let code = Code::Report { path, dtype: v.dtype, view: v.view.clone() };
                    let x = self.emit.read(v)?;
                    self.emit.push(code, vec![x], &[])?;
                }
            }
        }
        *self.slots.get_mut(id.index()).ok_or("a value does not belong to the function")? = Some(slot);
        Ok(())
    }

    fn get(&self, id: ValueId) -> Step<&Slot> {
        self.slots.get(id.index()).and_then(Option::as_ref).ok_or_else(|| format!("value {} is not computed", id.0))
    }

    fn tensor(&self, id: ValueId) -> Step<Val> {
        match self.get(id)? {
            Slot::Tensor(v) => Ok(v.clone()),
            Slot::State(_) => Err("a state stands for a tensor".into()),
        }
    }

    fn state(&self, id: ValueId) -> Step<StateRef> {
        match self.get(id)? {
            Slot::State(s) => Ok(*s),
            Slot::Tensor(_) => Err("a tensor stands for a state".into()),
        }
    }

    fn declared(&self, ty: &TensorType) -> Step<(DType, Vec<usize>)> {
        let mut shape = Vec::with_capacity(ty.dims.len());
        for d in &ty.dims {
            let value = self.number(d)?;
            shape.push(usize::try_from(value).map_err(|_| format!("the extent {d} is {value}"))?);
        }
        match shape.iter().try_fold(1usize, |acc, d| acc.checked_mul(*d)) {
            Some(n) if n <= MAX_ELEMENTS => Ok((ty.dtype, shape)),
            _ => Err(format!("a tensor of extents {shape:?} has more than {MAX_ELEMENTS} elements")),
        }
    }

    fn number(&self, d: &Dim) -> Step<i64> {
        d.eval(&self.env)
            .ok_or_else(|| format!("{d} has no value: a symbol is not bound by the inputs, or it overflows"))
    }

    /// The attributes with dims as numbers.
    fn attrs(&self, op: &Op) -> Step<Attrs> {
        let mut out = op.attrs.clone();
        for attr in out.values_mut() {
            match attr {
                Attr::Dim(d) => *d = Dim::from(self.number(d)?),
                Attr::Dims(list) => {
                    for d in list {
                        *d = Dim::from(self.number(d)?);
                    }
                }
                _ => {}
            }
        }
        Ok(out)
    }

    fn op(&mut self, id: OpId) -> Step<()> {
        let func = self.func;
        let op = func.op(id);
        let here = |m: String| format!("{}: `{}`: {m}", op.loc.path, op.code.name());
        self.enter(self.kernels.get(id.index()).copied().flatten());
        let slots = match op.code {
            Opcode::Loop => return self.repeat(op),
            Opcode::Cases => return self.cases(op),
            Opcode::Guarded => vec![Slot::Tensor(self.guarded(op).map_err(here)?)],
            Opcode::Weight => vec![Slot::Tensor(self.weight(op).map_err(here)?)],
            Opcode::StateOpen => vec![Slot::State(self.open(op).map_err(here)?)],
            Opcode::StateClose => vec![],
            Opcode::Attention | Opcode::KvWrite | Opcode::CausalConv | Opcode::DeltaRule => {
                self.on_state(op).map_err(here)?
            }
            _ => self.plain(op).map_err(here)?.into_iter().map(Slot::Tensor).collect(),
        };
        if slots.len() != op.results.len() {
            return Err(here(format!("{} results for {} values", slots.len(), op.results.len())));
        }
        for (id, slot) in op.results.iter().zip(slots) {
            if let (Slot::Tensor(v), Some(ty)) = (&slot, func.tensor(*id)) {
                let (dtype, shape) = self.declared(ty).map_err(here)?;
                if (v.dtype, &v.view.shape) != (dtype, &shape) {
                    return Err(here(format!(
                        "the result is {}{:?}, its type says {dtype}{shape:?}",
                        v.dtype, v.view.shape
                    )));
                }
            }
            self.set(*id, slot)?;
        }
        Ok(())
    }

    fn results(&self, op: &Op) -> Step<Vec<(DType, Vec<usize>)>> {
        op.results.iter().filter_map(|v| self.func.tensor(*v)).map(|t| self.declared(t)).collect()
    }

    fn plain(&mut self, op: &Op) -> Step<Vec<Val>> {
        let attrs = self.attrs(op)?;
        let results = self.results(op)?;
        let operands = op.operands.iter().map(|v| self.tensor(*v)).collect::<Step<Vec<_>>>()?;
        self.emit.op(&Call { code: op.code, attrs: &attrs, operands: &operands, results: &results })
    }

    /// A constant scalar: the index of a loop, or a number.
    fn index(&mut self, id: ValueId) -> Step<i64> {
        let v = self.tensor(id)?;
        if !v.is_const() || v.view.len() != 1 {
            return Err("an index must be the index of a loop or a constant".into());
        }
        Ok(self.emit.shared.number(&v)? as i64)
    }

    /// Follows the launches of a plan. Ops of no kernel belong to whichever they stand next to.
    fn enter(&mut self, kernel: Option<u32>) {
        if kernel.is_some() && kernel != self.launch.0 {
            self.launch = (kernel, self.launch.1 + 1);
        }
        self.emit.launch = kernel.map(|_| self.launch.1);
    }

    fn weight(&mut self, op: &Op) -> Step<Val> {
        let id = op.int("weight").and_then(|w| u32::try_from(w).ok()).ok_or("attribute `weight` is missing")?;
        let index = op.operands.iter().map(|v| self.index(*v)).collect::<Step<Vec<i64>>>()?;
        match (id as usize).checked_sub(self.emit.shared.weights()) {
            Some(derived) => self.derived(derived, &index),
            None => self.emit.shared.weight(WeightId(id), &index),
        }
    }

    /// A derived weight: what its function computes, which is a constant since it depends on weights alone.
    fn derived(&mut self, number: usize, index: &[i64]) -> Step<Val> {
        let load = self.load;
        let func = load.funcs.get(number).ok_or_else(|| format!("there is no derived weight {number}"))?;
        let body = func.region(func.body);
        let weight = self.module.weights.get(self.emit.shared.weights() + number);
        let weight = weight.ok_or_else(|| format!("there is no derived weight {number}"))?;
        let element = derived_element(weight, index);
        if element.is_none() && !weight.loops.is_empty() {
            return Err(format!("derived weight `{}` does not exist at {index:?}", weight.name));
        }
        let mut inner = Walk {
            module: load,
            load,
            kernels: &[],
            launch: (None, 0),
            func,
            env: Env::new(),
            requests: 0,
            observer: None,
            emit: self.emit.nested(),
            slots: vec![None; func.values.len()],
            loops: Vec::new(),
            opened: BTreeSet::new(),
        };
        let mut region = func.body;
        if element.is_some() {
            // The elements are the turns of a loop; only the one that is asked for is computed.
            let turns = body.ops.iter().map(|id| func.op(*id)).find(|op| op.code == Opcode::Loop);
            region = *turns.and_then(|op| op.regions.first()).ok_or("a derived weight of a loop has no loop")?;
            let param = *func.region(region).params.first().ok_or("a loop has no index")?;
            let turn = index.first().and_then(|i| i32::try_from(*i).ok()).ok_or("an index is too large")?;
            let turn = inner.emit.shared.value(&Tensor::i32(vec![], vec![turn]));
            inner.set(param, Slot::Tensor(turn))?;
        }
        let Some(Slot::Tensor(out)) = inner.region(region)?.into_iter().next() else {
            return Err("a derived weight has no value".into());
        };
        if !out.is_const() {
            return Err(format!("derived weight `{}` is not constant", func.name));
        }
        self.emit.shared.name(&out, &weight.name);
        Ok(out)
    }

    fn open(&mut self, op: &Op) -> Step<StateRef> {
        let state = op.int("state").and_then(|s| usize::try_from(s).ok()).ok_or("attribute `state` is missing")?;
        let decl = self.module.states.get(state).ok_or_else(|| format!("there is no state {state}"))?;
        let element = match op.operands.first() {
            None => 0,
            Some(v) => {
                let index = self.index(*v)?;
                let known = usize::try_from(index).ok().and_then(|i| decl.element.get(i).copied());
                if decl.element.is_empty() { index } else { known.unwrap_or(-1) }
            }
        };
        let found = usize::try_from(element).ok().filter(|e| (*e as i64) < decl.count);
        let element = found.ok_or_else(|| format!("state `{}` has no element {element}", decl.name))?;
        if self.requests == 0 {
            return Err(format!("state `{}` is used, but the call has no request", decl.name));
        }
        let at = StateRef { state, element };
        // An element that was closed goes on from its last version.
        if self.opened.insert((state, element)) {
            self.emit.push(Code::Open { at }, vec![], &[])?;
        }
        Ok(at)
    }

    fn on_state(&mut self, op: &Op) -> Step<Vec<Slot>> {
        let (attrs, results) = (self.attrs(op)?, self.results(op)?);
        let place = if op.code == Opcode::Attention { 1 } else { 0 };
        let at = self.state(*op.operands.get(place).ok_or("a state is missing")?)?;
        let others = op.operands.iter().enumerate().filter(|(i, _)| *i != place);
        let operands = others.map(|(_, v)| self.tensor(*v)).collect::<Step<Vec<_>>>()?;
        let call = Call { code: op.code, attrs: &attrs, operands: &operands, results: &results };
        let decl = &self.module.states[at.state];
        let state = StateOperand { at, kind: &decl.kind, dtype: decl.dtype, requests: self.requests };
        Ok(match op.code {
            Opcode::Attention => vec![Slot::Tensor(self.emit.attention(&call, &state)?)],
            Opcode::KvWrite => {
                self.emit.kv_write(&call, &state)?;
                vec![Slot::State(at)]
            }
            Opcode::CausalConv => vec![Slot::Tensor(self.emit.conv(&call, &state)?), Slot::State(at)],
            _ => vec![Slot::Tensor(self.emit.delta(&call, &state)?), Slot::State(at)],
        })
    }

    /// The ops of a region whose parameters are set; what it yields.
    fn region(&mut self, id: RegionId) -> Step<Vec<Slot>> {
        let region = self.func.region(id);
        for op in &region.ops {
            self.op(*op)?;
        }
        region.yields.iter().map(|v| self.get(*v).cloned()).collect()
    }

    fn repeat(&mut self, op: &Op) -> Step<()> {
        let here = |m: String| format!("{}: `loop`: {m}", op.loc.path);
        let func = self.func;
        let id = *op.regions.first().ok_or_else(|| here("it has no region".into()))?;
        let region = func.region(id);
        let extent =
            self.number(op.dim("extent").ok_or_else(|| here("attribute `extent` is missing".into()))?).map_err(here)?;
        let extent =
            i32::try_from(extent).ok().filter(|n| *n >= 0).ok_or_else(|| here(format!("{extent} iterations")))?;
        let carries = op.operands.len();
        if region.params.len() != carries + 1 || op.results.len() != carries + op.keeps().len() {
            return Err(here("its region does not fit its operands".into()));
        }
        let mut carried = op.operands.iter().map(|v| self.get(*v).cloned()).collect::<Step<Vec<_>>>()?;
        let mut kept = Vec::new();
        for result in &op.results[carries..] {
            let ty = func.tensor(*result).ok_or_else(|| here("a kept value must be a tensor".into()))?;
            let (dtype, shape) = self.declared(ty).map_err(here)?;
            kept.push((self.emit.fresh(dtype, &shape), 0));
        }
        for iteration in 0..extent {
            self.loops.push((op.loc.path.clone(), iteration as usize));
            let index = self.emit.shared.value(&Tensor::i32(vec![], vec![iteration]));
            self.set(region.params[0], Slot::Tensor(index))?;
            for (param, slot) in region.params[1..].iter().zip(carried) {
                self.set(*param, slot)?;
            }
            carried = self.region(id)?;
            self.loops.pop();
            let extra = carried.split_off(carries);
            for ((keep, slot), (place, done)) in op.keeps().iter().zip(extra).zip(&mut kept) {
                if keep.at.as_ref().is_none_or(|at| at.contains(&i64::from(iteration))) {
                    let Slot::Tensor(v) = slot else { return Err(here("a state cannot be kept".into())) };
                    if *done >= place.view.shape[keep.axis] {
                        return Err(here("more values are kept than there is room for".into()));
                    }
                    let to = Val { view: place.view.index(keep.axis, *done), ..place.clone() };
                    self.emit.copy(&v, &to)?;
                    *done += 1;
                }
            }
        }
        carried.extend(kept.into_iter().map(|(v, _)| Slot::Tensor(v)));
        for (id, slot) in op.results.iter().zip(carried) {
            self.set(*id, slot)?;
        }
        Ok(())
    }

    /// The region becomes a tape of its own, which takes what it uses from outside and is no constant.
    fn guarded(&mut self, op: &Op) -> Step<Val> {
        let [ok, fast] = op.operands.as_slice() else { return Err("it takes two operands".into()) };
        let (ok, fast) = (self.tensor(*ok)?, self.tensor(*fast)?);
        let (dtype, shape) = self.results(op)?.pop().ok_or("a result is missing")?;
        let id = *op.regions.first().ok_or("it has no region")?;
        let mut ins = vec![self.emit.dense_ref(&ok)?, self.emit.dense_ref(&fast)?];
        let mut slots: Vec<Option<Slot>> = vec![None; self.slots.len()];
        let mut taken = Vec::new();
        for v in uses(self.func, id) {
            match self.slots.get(v.index()) {
                Some(Some(Slot::Tensor(outer))) if !outer.is_const() => taken.push((v, outer.clone())),
                Some(known) => slots[v.index()] = known.clone(),
                None => {}
            }
        }
        for (_, outer) in &taken {
            ins.push(self.emit.dense_ref(outer)?);
        }
        let mut inner = Walk {
            module: self.module,
            load: self.load,
            kernels: &[],
            launch: (None, 0),
            func: self.func,
            env: self.env.clone(),
            requests: self.requests,
            observer: self.observer,
            emit: Emitter::new(&mut *self.emit.shared),
            slots,
            loops: self.loops.clone(),
            opened: BTreeSet::new(),
        };
        let mut given = Vec::new();
        for (v, outer) in taken {
            let shape = outer.view.shape.clone();
            let input = inner.emit.fresh(outer.dtype, &shape);
            given.push((outer.dtype, shape, input.clone()));
            inner.slots[v.index()] = Some(Slot::Tensor(input));
        }
        let slow = match inner.region(id)?.pop() {
            Some(Slot::Tensor(v)) => v,
            _ => return Err("its region yields no tensor".into()),
        };
        let slow = inner.emit.finish(given, &[slow], self.requests)?;
        let out = self.emit.fresh(dtype, &shape);
        self.emit.push(Code::Guarded(Box::new(Guarded { dtype, shape, slow })), ins, &[&out])?;
        Ok(out)
    }

    fn cases(&mut self, op: &Op) -> Step<()> {
        let here = |m: String| format!("{}: `cases`: {m}", op.loc.path);
        let index = *op.operands.first().ok_or_else(|| here("operand 1 is missing".into()))?;
        let index = self.index(index).map_err(here)?;
        let select = op.ints("select").unwrap_or(&[]);
        let case = usize::try_from(index).ok().and_then(|i| select.get(i).copied());
        let region = case.and_then(|c| usize::try_from(c).ok()).and_then(|c| op.regions.get(c));
        let region = *region.ok_or_else(|| here(format!("there is no case for index {index}")))?;
        let slots = self.region(region)?;
        for (id, slot) in op.results.iter().zip(slots) {
            self.set(*id, slot)?;
        }
        Ok(())
    }
}

/// Values a region uses, at any depth, its own among them, each once.
fn uses(func: &Func, id: RegionId) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        let region = func.region(id);
        out.extend(&region.yields);
        for op in &region.ops {
            out.extend(&func.op(*op).operands);
            open.extend(&func.op(*op).regions);
        }
    }
    out
}

/// `name` with the indices of the running loops, given outermost first by path and iteration: each stands after its
/// loop's own path.
fn full_path(name: &str, loops: &[(Arc<str>, usize)]) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut done = 0;
    for (path, iteration) in loops {
        let inside = name.strip_prefix(&**path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if inside && !path.is_empty() && path.len() >= done {
            out.push_str(&name[done..path.len()]);
            out.push_str(&format!(".{iteration}"));
            done = path.len();
        }
    }
    out.push_str(&name[done..]);
    out
}
