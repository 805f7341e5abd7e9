//! Entries that work on a stream of rows: the prompt in chunks, then verify blocks of which a prefix is kept.

use super::inputs::fit;
use super::{EVAL_POSITIONS, EvalError, EvalOptions, Evaluated, observed};
use crate::runtime::{Mode, ProgramId, Runtime};
use spinec_ir::ir::Func;
use spinec_ir::spec::system::{Stream, System};
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::DType;
use std::collections::BTreeMap;

#[allow(clippy::too_many_arguments)]
pub(super) fn run(
    system: &System,
    runtime: &mut dyn Runtime,
    program: ProgramId,
    func: &Func,
    stream: &Stream,
    given: &BTreeMap<String, Tensor>,
    options: &EvalOptions,
    out: &mut Evaluated,
) -> Result<(), EvalError> {
    let bad = |m: String| EvalError::Inputs(m);
    let prompt = ints(given, &stream.tokens)?;
    let [t] = prompt.0.as_slice() else {
        return Err(bad(format!("`{}` must be [T], it is {:?}", stream.tokens, prompt.0)));
    };
    let (t, prompt) = (*t, prompt.1);
    if t == 0 {
        return Err(bad(format!("`{}` is empty", stream.tokens)));
    }
    let chunk = options.chunk.unwrap_or(usize::try_from(system.serve.chunk).unwrap_or(64));
    if chunk == 0 {
        return Err(bad("--chunk must be at least 1".into()));
    }
    let blocks = match (&stream.blocks, &stream.keep) {
        (Some(b), Some(k)) if given.contains_key(b) || given.contains_key(k) => {
            Some((ints(given, b)?, ints(given, k)?))
        }
        _ => None,
    };
    let request = runtime.open(EVAL_POSITIONS)?;
    let mut parts: BTreeMap<String, Vec<Tensor>> = BTreeMap::new();
    let mut at = 0;
    while at < t {
        let n = chunk.min(t - at);
        let args = rows(func, &prompt[at..at + n], at, given)?;
        let refs: Vec<&Tensor> = args.iter().collect();
        let mut piece = Evaluated::default();
        let results = observed(runtime, program, &refs, &[request], Mode::Immediate, &options.dump, &mut piece)?;
        runtime.commit(request, n)?;
        for (name, r) in func.outputs.iter().zip(results) {
            parts.entry(name.clone()).or_default().push(r);
        }
        // Dumped values are those of the last chunk.
        out.tensors.extend(piece.tensors);
        out.notes.extend(piece.notes);
        at += n;
    }
    out.notes.dedup();
    for (name, list) in parts {
        let joined =
            join(&list).ok_or_else(|| bad(format!("chunks of output `{name}` do not join along their first axis")))?;
        out.tensors.insert(name, joined);
    }
    if let Some(((shape, ids), (keep_shape, keep))) = blocks {
        let [k, r] = shape.as_slice() else { return Err(bad(format!("blocks must be [k, R], they are {shape:?}"))) };
        if keep_shape.as_slice() != [*k] {
            return Err(bad(format!("one count a block is needed: [{k}], there are {keep_shape:?}")));
        }
        let mut parts: BTreeMap<String, Vec<Tensor>> = BTreeMap::new();
        for (b, kept) in keep.iter().enumerate() {
            let kept = usize::try_from(*kept)
                .ok()
                .filter(|c| c <= r)
                .ok_or_else(|| bad(format!("block {b} cannot keep {kept} of {r} rows")))?;
            let args = rows(func, &ids[b * r..(b + 1) * r], runtime.len(request), given)?;
            let refs: Vec<&Tensor> = args.iter().collect();
            let results = runtime.run(program, 0, &refs, &[request], Mode::Tentative, None)?;
            runtime.commit(request, kept)?;
            for (name, t) in func.outputs.iter().zip(results) {
                if stream.block_outputs.contains(name) {
                    parts.entry(format!("block_{name}")).or_default().push(t);
                }
            }
        }
        for (name, list) in parts {
            let mut joined = join(&list).ok_or_else(|| bad(format!("blocks of output `{name}` do not stack")))?;
            let rest: Vec<usize> = joined.shape[1..].to_vec();
            joined.shape = [vec![*k, *r], rest].concat();
            out.tensors.insert(name, joined);
        }
    }
    for (name, t) in runtime.export(request)? {
        out.tensors.insert(format!("state.{name}"), t);
    }
    runtime.close(request);
    Ok(())
}

/// An integer tensor: shape and values.
fn ints(given: &BTreeMap<String, Tensor>, name: &str) -> Result<(Vec<usize>, Vec<i32>), EvalError> {
    let Some(t) = given.get(name) else {
        let have: Vec<&str> = given.keys().map(String::as_str).collect();
        return Err(EvalError::Inputs(format!("input tensor `{name}` is missing; the file holds {}", have.join(", "))));
    };
    let t = fit(name, t, DType::I32)?;
    match t.data {
        Data::I32(v) => Ok((t.shape, v)),
        _ => Err(EvalError::Inputs(format!("input `{name}` is no integer tensor"))),
    }
}

/// Arguments for `ids` at positions from `start` on; other inputs are taken from the file.
fn rows(func: &Func, ids: &[i32], start: usize, given: &BTreeMap<String, Tensor>) -> Result<Vec<Tensor>, EvalError> {
    let n = ids.len();
    let mut out = Vec::new();
    for (name, v) in func.inputs.iter().zip(&func.region(func.body).params) {
        out.push(match name.as_str() {
            "tokens" => Tensor::i32(vec![1, n], ids.to_vec()),
            "positions" => Tensor::i32(vec![1, n], (start..start + n).map(|p| p as i32).collect()),
            "rows" => Tensor::i32(vec![1], vec![n as i32]),
            other => {
                let want = func.tensor(*v).map_or(DType::F32, |t| t.dtype);
                let t =
                    given.get(other).ok_or_else(|| EvalError::Inputs(format!("input tensor `{other}` is missing")))?;
                fit(other, t, want)?
            }
        });
    }
    Ok(out)
}

/// Tensors joined along their first axis.
fn join(list: &[Tensor]) -> Option<Tensor> {
    let first = list.first()?;
    let mut shape = first.shape.clone();
    let rows: usize = list.iter().map(|t| t.shape.first().copied().unwrap_or(0)).sum();
    *shape.first_mut()? = rows;
    if list.iter().any(|t| t.shape[1..] != first.shape[1..] || t.dtype != first.dtype) {
        return None;
    }
    let mut data = Data::zeros(first.dtype, 0);
    for t in list {
        match (&mut data, &t.data) {
            (Data::F64(a), Data::F64(b)) => a.extend_from_slice(b),
            (Data::F32(a), Data::F32(b)) => a.extend_from_slice(b),
            (Data::I32(a), Data::I32(b)) => a.extend_from_slice(b),
            (Data::U8(a), Data::U8(b)) => a.extend_from_slice(b),
            (Data::Bool(a), Data::Bool(b)) => a.extend_from_slice(b),
            _ => return None,
        }
    }
    Tensor::new(first.dtype, shape, data)
}
