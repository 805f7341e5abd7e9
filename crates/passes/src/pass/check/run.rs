//! A call of a function on the reference interpreter, and what its values were.

use super::super::{PassError, Program};
use super::marks::{cut_open, split};
use super::{Check, Given};
use spinec_ir::interp::{Mode, NoObserver, Observer, RequestState, WeightStore, run};
use spinec_ir::ir::{Func, Module, WeightId};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, Dim, Env, TensorType};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// By what a value is known in two programs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The number of a mark.
    Mark(usize),
    /// A full path.
    Name(String),
}

/// A value that was computed.
pub(super) struct Event {
    pub key: Key,
    /// How often the value had been computed before.
    pub time: usize,
    /// Full path, without a mark.
    pub path: String,
    pub value: Tensor,
}

/// All of them in the order of evaluation, and what was left at the end.
#[derive(Default)]
pub(super) struct Log {
    pub events: Vec<Event>,
    at: BTreeMap<Key, Vec<usize>>,
    pub outputs: Vec<(String, Tensor)>,
    pub states: Vec<(String, Tensor)>,
    /// Marks of values that stand for several whose bits were not the same.
    pub several: Vec<usize>,
    marks_only: bool,
}

impl Log {
    /// The value as it was computed the `time`th time.
    pub fn get(&self, key: &Key, time: usize) -> Option<&Tensor> {
        self.at.get(key)?.get(time).map(|i| &self.events[*i].value)
    }

    /// How often the value was computed before event `now`.
    pub fn times(&self, key: &Key, now: usize) -> usize {
        self.at.get(key).map_or(0, |at| at.partition_point(|i| *i < now))
    }

    fn last(&self, mark: usize) -> Option<(&Tensor, usize)> {
        let at = self.at.get(&Key::Mark(mark))?;
        at.last().map(|i| (&self.events[*i].value, at.len() - 1))
    }
}

struct Recorder<'a>(&'a RefCell<Log>);

impl Observer for Recorder<'_> {
    fn wants(&self, path: &str) -> bool {
        self.0.borrow().marks_only == split(path).1.is_some()
    }

    fn value(&mut self, path: &str, t: &Tensor) {
        let mut log = self.0.borrow_mut();
        let (name, mark) = split(path);
        let key = mark.map_or_else(|| Key::Name(name.to_owned()), Key::Mark);
        let event = log.events.len();
        let at = log.at.entry(key.clone()).or_default();
        at.push(event);
        let time = at.len() - 1;
        log.events.push(Event { key, time, path: name.to_owned(), value: t.clone() });
    }
}

/// Calls a function and records its marked values, or its named ones. With a `reference`, everything that uses a marked
/// value is given the value the reference had in its place, so that no difference is carried on.
pub(super) fn call(
    weights: &Weights,
    func: &Func,
    inputs: &[Tensor],
    marks_only: bool,
    reference: Option<&Log>,
) -> Result<Log, PassError> {
    let fail = |e: String| PassError::Internal(format!("function `{}` cannot be evaluated: {e}", func.name));
    let program = weights.program;
    let mut states = Vec::new();
    for _ in 0..inputs.first().and_then(|t| t.shape.first()).copied().unwrap_or(1) {
        states.push(RequestState::new(&program.module).map_err(|e| fail(format!("{e:?}")))?);
    }
    let log = RefCell::new(Log { marks_only, ..Log::default() });
    let mut all = Recorder(&log);
    let out = match reference {
        None => run(&program.module, func, inputs, weights, &mut states, Mode::Immediate, &mut all),
        Some(reference) => {
            let first = program.module.weights.len();
            let (open, more, marks) = cut_open(func, first);
            let mut module = Module { funcs: vec![], ..program.module.clone() };
            module.weights.extend(more);
            let store = Reference { weights, first, marks: &marks, own: &log, reference };
            run(&module, &open, inputs, &store, &mut states, Mode::Immediate, &mut all)
        }
    };
    let out = out.map_err(|e| fail(e.to_string()))?;
    let mut log = log.into_inner();
    log.outputs = func.outputs.iter().cloned().zip(out).collect();
    for (i, state) in states.iter().enumerate() {
        log.states.extend(state.export().into_iter().map(|(name, t)| (format!("state {name} of request {i}"), t)));
    }
    Ok(log)
}

/// Values of a reference in place of computed ones.
struct Reference<'a> {
    weights: &'a Weights<'a>,
    first: usize,
    marks: &'a [Vec<usize>],
    own: &'a RefCell<Log>,
    reference: &'a Log,
}

impl WeightStore for Reference<'_> {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        let Some(marks) = id.index().checked_sub(self.first).and_then(|i| self.marks.get(i)) else {
            return self.weights.weight(id, index);
        };
        let mut log = self.own.borrow_mut();
        let (own, time) = log.last(marks[0]).ok_or("a value is read before it is computed")?;
        let fits = |t: &&Tensor| t.shape == own.shape && t.dtype == own.dtype;
        let known = marks.iter().filter_map(|m| self.reference.get(&Key::Mark(*m), time)).filter(fits);
        let known: Vec<&Tensor> = known.collect();
        let Some(first) = known.first() else { return Ok(own.clone()) };
        if known.iter().any(|t| t.data != first.data) {
            log.several.extend(marks);
        }
        Ok(Tensor::clone(first))
    }
}

/// Made-up weights; derived ones are computed from them.
pub(super) struct Weights<'a> {
    program: &'a Program,
    seed: u64,
    derived: RefCell<BTreeMap<usize, Tensor>>,
}

impl<'a> Weights<'a> {
    pub fn new(program: &'a Program, seed: u64) -> Weights<'a> {
        Weights { program, seed, derived: RefCell::default() }
    }
}

impl WeightStore for Weights<'_> {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        let weight = self.program.module.weights.get(id.index()).ok_or("no such weight")?;
        let Some(i) = self.program.derived.iter().position(|d| d.weight == id) else {
            let flat =
                index.iter().fold(id.index() as u64 + 1, |h, i| h.wrapping_mul(1_000_003).wrapping_add(*i as u64));
            return made_up(&weight.ty, &Env::new(), self.seed ^ flat);
        };
        if !self.derived.borrow().contains_key(&i) {
            let load = &self.program.load;
            let out = run(load, &load.funcs[i], &[], self, &mut [], Mode::Immediate, &mut NoObserver);
            let value = out.map_err(|e| e.to_string())?.pop().ok_or("a weight is computed by a function")?;
            self.derived.borrow_mut().insert(i, value);
        }
        let known = self.derived.borrow();
        let all = known.get(&i).ok_or("a derived weight is missing")?;
        if weight.loops.is_empty() {
            return Ok(all.clone());
        }
        let at = self.program.element(i, index).ok_or("the weight does not exist there")?;
        let mut part = all.rows(at..at + 1).ok_or("the weight has too few elements")?;
        part.shape.remove(0);
        Ok(part)
    }
}

/// Inputs of a function: what the check gives, else made up.
pub(super) fn inputs(func: &Func, check: &Check, seed: u64) -> Result<Vec<Tensor>, String> {
    let given: Given = check.given;
    let params = func.inputs.iter().zip(&func.region(func.body).params);
    params
        .enumerate()
        .map(|(i, (name, v))| {
            let ty = func.tensor(*v).ok_or("an input is a tensor")?;
            match given(func, name, ty) {
                Some(t) => Ok(t),
                None => made_up(ty, &check.env, seed.wrapping_add(1 + i as u64)),
            }
        })
        .collect()
}

/// Reals in [-1, 1), integers that count along the last axis, truths that alternate; the same for the same seed.
fn made_up(ty: &TensorType, env: &Env, seed: u64) -> Result<Tensor, String> {
    let extent = |d: &Dim| d.eval(env).and_then(|n| usize::try_from(n).ok());
    let shape =
        ty.dims.iter().map(|d| extent(d).ok_or_else(|| format!("{d} has no value"))).collect::<Result<Vec<_>, _>>()?;
    let (n, last) = (shape.iter().product::<usize>(), shape.last().copied().unwrap_or(1).max(1));
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut real = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let value = |i: usize| match ty.dtype {
        DType::I32 | DType::U8 => (i % last) as f64,
        DType::Bool => f64::from(u8::from(i.is_multiple_of(2))),
        _ if ty.dist => 1.0 / last as f64,
        _ => real(),
    };
    let wide = Tensor::f64(shape, (0..n).map(value).collect());
    wide.cast(ty.dtype).ok_or_else(|| format!("{ty} has no values"))
}
