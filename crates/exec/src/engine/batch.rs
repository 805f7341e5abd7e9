//! The tensors a phase takes, made from the requests of the call and from what earlier phases gave.

use super::programs::PhaseFn;
use super::request::Active;
use super::{Engine, EngineError};
use crate::runtime::{Mode, RunError, Runtime};
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::DType;
use std::collections::BTreeMap;

/// Values of the call by input name, and outputs of earlier phases by `phase.output`.
#[derive(Default)]
pub(super) struct Feed {
    pub values: BTreeMap<&'static str, Tensor>,
    pub wires: BTreeMap<String, Tensor>,
}

impl Feed {
    /// What every phase may ask of a batch: laws, seeds, anchors and their positions.
    pub fn of(batch: &[&Active], runtime: &dyn Runtime) -> Feed {
        let n = batch.len();
        let s = |f: &dyn Fn(&Active) -> f64| Tensor::f64(vec![n], batch.iter().map(|a| f(a)).collect());
        let i = |f: &dyn Fn(&Active) -> i32| Tensor::i32(vec![n], batch.iter().map(|a| f(a)).collect());
        let seeds = batch.iter().flat_map(|a| {
            let seed = a.request.sampling.seed;
            [seed as u32 as i32, (seed >> 32) as u32 as i32]
        });
        let mut values = BTreeMap::new();
        values.insert("anchor", i(&|a| a.anchor() as i32));
        values.insert("position", i(&|a| runtime.len(a.slot) as i32));
        // A greedy row takes the most likely token whatever its temperature says; 1 keeps its unused law finite.
        values.insert(
            "temperature",
            s(&|a| if a.request.sampling.is_greedy() { 1.0 } else { a.request.sampling.temperature }),
        );
        values.insert("top_k", i(&|a| a.request.sampling.top_k));
        values.insert("top_p", s(&|a| a.request.sampling.top_p));
        values.insert("seed", Tensor::i32(vec![n, 2], seeds.collect()));
        let greedy = Data::Bool(batch.iter().map(|a| a.request.sampling.is_greedy()).collect());
        values.insert("greedy", Tensor { dtype: DType::Bool, shape: vec![n], data: greedy });
        Feed { values, wires: BTreeMap::new() }
    }

    /// The same for the members at `live` of a batch of `n`; of the wires those that `wanted` names, by `phase.output`.
    pub fn part(&self, live: &[usize], n: usize, wanted: impl Fn(&str) -> bool) -> Feed {
        let pick = |t: &Tensor| if live.len() == n { t.clone() } else { take_rows(t, live) };
        Feed {
            values: self.values.iter().map(|(name, t)| (*name, pick(t))).collect(),
            wires: self.wires.iter().filter(|(wire, _)| wanted(wire)).map(|(w, t)| (w.clone(), pick(t))).collect(),
        }
    }

    /// Rows of positions from each request's committed length on.
    pub fn positions(&mut self, starts: &[usize], rows: usize) {
        let data = starts.iter().flat_map(|s| (*s..*s + rows).map(|p| p as i32)).collect();
        self.values.insert("positions", Tensor::i32(vec![starts.len(), rows], data));
    }
}

impl Engine<'_> {
    /// Runs a phase for the requests at `batch`; its outputs become wires.
    pub(super) fn run_phase(
        &mut self,
        name: &str,
        phase: &PhaseFn,
        feed: &mut Feed,
        batch: &[usize],
        mode: Mode,
    ) -> Result<(), EngineError> {
        let mut args: Vec<&Tensor> = Vec::with_capacity(phase.inputs.len());
        for input in &phase.inputs {
            let found = match phase.wires.get(input) {
                Some(w) => feed.wires.get(&format!("{}.{}", w.phase, w.output)),
                None => feed.values.get(input.as_str()),
            };
            args.push(found.ok_or_else(|| {
                EngineError::Run(RunError::Failed(format!("phase `{name}` asks for `{input}`, which nobody gives")))
            })?);
        }
        let slots: Vec<_> = batch.iter().map(|i| self.active[*i].slot).collect();
        let results = self.runtime.run(phase.program, phase.func, &args, &slots, mode, None)?;
        for (output, t) in phase.outputs.iter().zip(results) {
            feed.wires.insert(format!("{name}.{output}"), t);
        }
        Ok(())
    }
}

/// An i32 output of a phase, one row or more a request.
pub(super) fn ints<'f>(feed: &'f Feed, wire: &str) -> Result<&'f [i32], EngineError> {
    match feed.wires.get(wire).map(|t| &t.data) {
        Some(Data::I32(v)) => Ok(v),
        _ => Err(EngineError::Run(RunError::Failed(format!("`{wire}` is not an i32 output")))),
    }
}

/// A truth-value output of a phase; all true if the phase has none.
pub(super) fn flags(feed: &Feed, wire: &str, n: usize) -> Result<Vec<bool>, EngineError> {
    match feed.wires.get(wire).map(|t| &t.data) {
        Some(Data::Bool(v)) if v.len() == n => Ok(v.clone()),
        None => Ok(vec![true; n]),
        _ => Err(EngineError::Run(RunError::Failed(format!("`{wire}` is not one truth value a request")))),
    }
}

/// Rows `at` of a tensor whose first axis counts requests.
pub(super) fn take_rows(t: &Tensor, at: &[usize]) -> Tensor {
    let per: usize = t.shape.iter().skip(1).product();
    let mut shape = t.shape.clone();
    if let Some(first) = shape.first_mut() {
        *first = at.len();
    }
    fn pick<T: Copy>(v: &[T], at: &[usize], per: usize) -> Vec<T> {
        at.iter().flat_map(|i| v[i * per..(i + 1) * per].iter().copied()).collect()
    }
    let data = match &t.data {
        Data::F64(v) => Data::F64(pick(v, at, per)),
        Data::F32(v) => Data::F32(pick(v, at, per)),
        Data::I32(v) => Data::I32(pick(v, at, per)),
        Data::U8(v) => Data::U8(pick(v, at, per)),
        Data::Bool(v) => Data::Bool(pick(v, at, per)),
    };
    Tensor { dtype: t.dtype, shape, data }
}

/// The first `rows` rows of each request of a tensor [N, rows, ...].
pub(super) fn first_rows(t: Tensor, rows: usize) -> Tensor {
    match t.shape.as_slice() {
        [n, all, rest @ ..] if rows < *all => {
            let (n, all, rest) = (*n, *all, rest.to_vec());
            let flat = Tensor { shape: [vec![n * all], rest.clone()].concat(), ..t };
            let at: Vec<usize> = (0..n).flat_map(|i| i * all..i * all + rows).collect();
            Tensor { shape: [vec![n, rows], rest].concat(), ..take_rows(&flat, &at) }
        }
        _ => t,
    }
}

/// Tensors [N, rows, ...] one after the other along their rows; `None` where they do not fit each other.
pub(super) fn join_rows(mut parts: Vec<Tensor>) -> Option<Tensor> {
    if parts.len() == 1 {
        return parts.pop();
    }
    fn join<T: Copy>(parts: Vec<&[T]>, n: usize) -> Vec<T> {
        let mut out = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
        for i in 0..n {
            for p in &parts {
                let per = p.len() / n;
                out.extend_from_slice(&p[i * per..(i + 1) * per]);
            }
        }
        out
    }
    let first = parts.first()?;
    let mut shape = first.shape.clone();
    let n = *shape.first().filter(|n| **n > 0)?;
    let fits = |t: &Tensor| {
        t.dtype == first.dtype && t.shape.len() == shape.len() && t.shape[0] == n && t.shape[2..] == shape[2..]
    };
    if shape.len() < 2 || !parts.iter().all(fits) {
        return None;
    }
    macro_rules! all {
        ($kind:ident) => {{
            let slices: Option<Vec<_>> = parts
                .iter()
                .map(|t| match &t.data {
                    Data::$kind(v) => Some(v.as_slice()),
                    _ => None,
                })
                .collect();
            Data::$kind(join(slices?, n))
        }};
    }
    let data = match &first.data {
        Data::F64(_) => all!(F64),
        Data::F32(_) => all!(F32),
        Data::I32(_) => all!(I32),
        Data::U8(_) => all!(U8),
        Data::Bool(_) => all!(Bool),
    };
    let dtype = first.dtype;
    shape[1] = parts.iter().map(|t| t.shape[1]).sum();
    Tensor::new(dtype, shape, data)
}

/// Replaces rows `at` of `into` by the rows of `from`.
pub(super) fn put_rows(into: &mut Tensor, from: &Tensor, at: &[usize]) {
    let per: usize = into.shape.iter().skip(1).product();
    fn put<T: Copy>(into: &mut [T], from: &[T], at: &[usize], per: usize) {
        for (k, i) in at.iter().enumerate() {
            into[i * per..(i + 1) * per].copy_from_slice(&from[k * per..(k + 1) * per]);
        }
    }
    match (&mut into.data, &from.data) {
        (Data::F64(a), Data::F64(b)) => put(a, b, at, per),
        (Data::F32(a), Data::F32(b)) => put(a, b, at, per),
        (Data::I32(a), Data::I32(b)) => put(a, b, at, per),
        (Data::U8(a), Data::U8(b)) => put(a, b, at, per),
        (Data::Bool(a), Data::Bool(b)) => put(a, b, at, per),
        _ => {}
    }
}
