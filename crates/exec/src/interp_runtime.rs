//! The reference interpreter as a runtime: slow, plain, the oracle of the others.

use crate::runtime::{Bytes, Mode, ProgramId, RequestId, RunError, Runtime, Tables};
use spinec_ir::interp::{self, NoObserver, Observer, RequestState, WeightStore};
use spinec_ir::ir::{Module, WeightId, text};
use spinec_ir::plan::{Plan, derived_element};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Numerics;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Runs modules by `spinec_ir::interp`.
pub struct InterpRuntime {
    store: Cached,
    tables: Module,
    programs: Vec<Program>,
    requests: Vec<Option<RequestState>>,
}

struct Program {
    module: Module,
    /// By derived weight in the order of their ids, the function that computes it.
    load: Module,
    /// What each of them is: equal for equal derivations, whatever program they belong to.
    keys: Vec<String>,
}

impl Program {
    fn new(module: Module, load: Module) -> Program {
        let text = |f: &spinec_ir::ir::Func| {
            let mut f = f.clone();
            f.name.clear();
            text::print(&Module { weights: Vec::new(), states: Vec::new(), funcs: vec![f], ..load.clone() })
        };
        Program { keys: load.funcs.iter().map(text).collect(), module, load }
    }
}

/// The weights of a program: those of the runtime, then what the program derives from them.
struct Derived<'a> {
    base: &'a Cached,
    program: &'a Program,
    /// Weights of the runtime.
    own: usize,
}

impl WeightStore for Derived<'_> {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        let Some(number) = id.index().checked_sub(self.own) else { return self.base.weight(id, index) };
        let load = &self.program.load;
        let func = load.funcs.get(number).ok_or_else(|| format!("there is no derived weight {number}"))?;
        let weight = self.program.module.weight(id);
        let element = derived_element(weight, index);
        if element.is_none() && !weight.loops.is_empty() {
            return Err(format!("derived weight `{}` does not exist at {index:?}", weight.name));
        }
        let key = &self.program.keys[number];
        let known = self.base.derived.borrow().get(key).cloned();
        let whole = match known {
            Some(t) => t,
            None => {
                let out = interp::run(load, func, &[], self.base, &mut [], Mode::Immediate, &mut NoObserver);
                let out = out.map_err(|e| e.to_string())?.into_iter().next();
                let t = out.ok_or_else(|| format!("derived weight `{}` has no value", func.name))?;
                self.base.derived.borrow_mut().insert(key.clone(), t.clone());
                t
            }
        };
        match element {
            None => Ok(whole),
            Some(i) => row(&whole, i).ok_or_else(|| format!("derived weight `{}` has no element {i}", weight.name)),
        }
    }
}

/// Entry `i` of the first axis.
fn row(t: &Tensor, i: usize) -> Option<Tensor> {
    let mut one = t.rows(i..i.checked_add(1)?)?;
    one.shape.remove(0);
    Some(one)
}

/// Keeps every weight once it was asked for.
struct Cached {
    inner: Box<dyn WeightStore + Send + Sync>,
    known: RefCell<BTreeMap<(WeightId, Vec<i64>), Tensor>>,
    /// Derived weights by what they are.
    derived: RefCell<BTreeMap<String, Tensor>>,
}

impl WeightStore for Cached {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        let key = (id, index.to_vec());
        if let Some(t) = self.known.borrow().get(&key) {
            return Ok(t.clone());
        }
        let t = self.inner.weight(id, index)?;
        self.known.borrow_mut().insert(key, t.clone());
        Ok(t)
    }
}

impl InterpRuntime {
    /// A runtime whose modules share `tables`.
    pub fn new(tables: &Tables, numerics: Numerics, store: Box<dyn WeightStore + Send + Sync>) -> Self {
        let tables = Module {
            name: String::new(),
            numerics,
            symbols: Vec::new(),
            weights: tables.weights.clone(),
            states: tables.states.clone(),
            funcs: Vec::new(),
        };
        InterpRuntime {
            store: Cached { inner: store, known: RefCell::default(), derived: RefCell::default() },
            tables,
            programs: Vec::new(),
            requests: Vec::new(),
        }
    }

    fn state(&self, id: RequestId) -> Result<&RequestState, RunError> {
        self.requests
            .get(id.0)
            .and_then(Option::as_ref)
            .ok_or_else(|| RunError::Failed("the request is not open".into()))
    }
}

impl Runtime for InterpRuntime {
    fn add(&mut self, module: Module) -> Result<ProgramId, RunError> {
        let load = Module { weights: Vec::new(), states: Vec::new(), funcs: Vec::new(), ..module.clone() };
        self.programs.push(Program::new(module, load));
        Ok(ProgramId(self.programs.len() - 1))
    }

    fn add_plan(&mut self, plan: Plan) -> Result<ProgramId, RunError> {
        self.programs.push(Program::new(plan.module, plan.load));
        Ok(ProgramId(self.programs.len() - 1))
    }

    fn run(
        &mut self,
        program: ProgramId,
        func: usize,
        inputs: &[&Tensor],
        requests: &[RequestId],
        mode: Mode,
        observer: Option<&mut dyn Observer>,
    ) -> Result<Vec<Tensor>, RunError> {
        let program =
            self.programs.get(program.0).ok_or_else(|| RunError::Failed("there is no such program".into()))?;
        let module = &program.module;
        let store = Derived { base: &self.store, program, own: self.tables.weights.len() };
        let f = module.funcs.get(func).ok_or_else(|| RunError::Failed("there is no such function".into()))?;
        let inputs: Vec<Tensor> = inputs.iter().map(|t| (*t).clone()).collect();
        let mut states = Vec::new();
        for r in requests {
            states.push(self.state(*r)?.clone());
        }
        let mut none = NoObserver;
        let observer: &mut dyn Observer = match observer {
            Some(o) => o,
            None => &mut none,
        };
        let out = interp::run(module, f, &inputs, &store, &mut states, mode, observer)
            .map_err(|e| RunError::Failed(e.to_string()))?;
        for (r, s) in requests.iter().zip(states) {
            self.requests[r.0] = Some(s);
        }
        Ok(out)
    }

    fn open(&mut self, _positions: usize) -> Result<RequestId, RunError> {
        let state = RequestState::new(&self.tables).map_err(|e| RunError::Failed(e.to_string()))?;
        let free = self.requests.iter().position(Option::is_none);
        match free {
            Some(i) => {
                self.requests[i] = Some(state);
                Ok(RequestId(i))
            }
            None => {
                self.requests.push(Some(state));
                Ok(RequestId(self.requests.len() - 1))
            }
        }
    }

    fn close(&mut self, request: RequestId) {
        if let Some(slot) = self.requests.get_mut(request.0) {
            *slot = None;
        }
    }

    fn commit(&mut self, request: RequestId, rows: usize) -> Result<(), RunError> {
        let slot = self.requests.get_mut(request.0).and_then(Option::as_mut);
        let state = slot.ok_or_else(|| RunError::Failed("the request is not open".into()))?;
        state.commit(rows).map_err(|e| RunError::Failed(e.to_string()))
    }

    fn len(&self, request: RequestId) -> usize {
        self.state(request).map_or(0, RequestState::len)
    }

    fn poison_stale(&mut self, request: RequestId) {
        if let Some(s) = self.requests.get_mut(request.0).and_then(Option::as_mut) {
            s.poison_stale();
        }
    }

    fn export(&self, request: RequestId) -> Result<BTreeMap<String, Tensor>, RunError> {
        Ok(self.state(request)?.export().into_iter().collect())
    }

    fn bytes(&self) -> Bytes {
        let weights = self.store.known.borrow().values().map(|t| t.len() as u64 * t.dtype.bytes().unsigned_abs()).sum();
        Bytes::from([("weights", weights)])
    }
}
