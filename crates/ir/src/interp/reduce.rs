//! Reductions, scans and selections along one axis.
//!
//! Everything runs in ascending order along the axis. Sums and products of 16-bit floats are held in f32 and rounded
//! where they become a result; those of integers wrap around. An empty axis sums to 0, has the mean NaN, the maximum
//! minus infinity (integers: the smallest number), the minimum plus infinity (integers: the largest), the argmax 0.

use super::call::Call;
use super::index::Lanes;
use super::number::{Real, from_ints, from_reals, ints, reals, tensor};
use crate::ops::Opcode;
use crate::tensor::{Data, Tensor};
use crate::ty::DType;
use std::cmp::Ordering;

/// Sum, Mean, ReduceMax, ReduceMin, Rms, Norm2.
pub(super) fn reduce(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let lanes = Lanes::new(&x.shape, call.axis(x.shape.len())?);
    let out = call.out(0)?;
    if !out.dtype.is_int() {
        return if call.wide() { reduce_in::<f64>(call, lanes) } else { reduce_in::<f32>(call, lanes) };
    }
    let (lowest, highest) = if out.dtype == DType::U8 { (0, 255) } else { (i32::MIN, i32::MAX) };
    let (start, f): (i32, fn(i32, i32) -> i32) = match call.op.code {
        Opcode::Sum => (0, i32::wrapping_add),
        Opcode::ReduceMax => (lowest, |a, b| a.max(b)),
        Opcode::ReduceMin => (highest, |a, b| a.min(b)),
        other => return Err(format!("`{}` has no integer form", other.name())),
    };
    let values = ints(x)?;
    let fold = |(o, i)| (0..lanes.extent).fold(start, |acc, e| f(acc, values[lanes.at(o, e, i)]));
    from_ints(out.dtype, out.shape.clone(), lanes.lanes().map(fold).collect())
}

fn reduce_in<R: Real>(call: &Call, lanes: Lanes) -> Result<Tensor, String> {
    let out = call.out(0)?;
    let values = reals::<R>(call.tensor(0)?);
    let n = R::from_f64(lanes.extent as f64);
    let lane = |o: usize, i: usize| (0..lanes.extent).map(|e| values[lanes.at(o, e, i)]).collect::<Vec<R>>();
    let sum = |v: &[R]| v.iter().fold(R::ZERO, |acc, x| acc + *x);
    let squares = |v: &[R]| v.iter().fold(R::ZERO, |acc, x| acc + *x * *x);
    let f = |v: Vec<R>| match call.op.code {
        Opcode::Sum => Ok(sum(&v)),
        Opcode::Mean => Ok(sum(&v) / n),
        Opcode::ReduceMax => Ok(v.into_iter().fold(R::from_f64(f64::NEG_INFINITY), R::larger)),
        Opcode::ReduceMin => Ok(v.into_iter().fold(R::from_f64(f64::INFINITY), R::smaller)),
        Opcode::Rms => Ok((squares(&v) / n).sqrt()),
        Opcode::Norm2 => Ok(squares(&v).sqrt()),
        other => Err(format!("`{}` is not a reduction", other.name())),
    };
    let values = lanes.lanes().map(|(o, i)| f(lane(o, i))).collect::<Result<Vec<R>, String>>()?;
    from_reals(out.dtype, out.shape.clone(), values)
}

/// Cumsum and Cumprod; of truth values the running `and`.
pub(super) fn scan(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let lanes = Lanes::new(&x.shape, call.axis(x.shape.len())?);
    let product = call.op.code == Opcode::Cumprod;
    if x.dtype.is_int() || x.dtype == DType::Bool {
        // The product of zeros and ones is their `and`.
        let f = if product { i32::wrapping_mul } else { i32::wrapping_add };
        return from_ints(x.dtype, x.shape.clone(), running(ints(x)?, lanes, f));
    }
    if call.wide() { scan_in::<f64>(x, lanes, product) } else { scan_in::<f32>(x, lanes, product) }
}

fn scan_in<R: Real>(x: &Tensor, lanes: Lanes, product: bool) -> Result<Tensor, String> {
    let f: fn(R, R) -> R = if product { |a, b| a * b } else { |a, b| a + b };
    from_reals(x.dtype, x.shape.clone(), running(reals::<R>(x), lanes, f))
}

fn running<T: Copy>(mut values: Vec<T>, lanes: Lanes, f: impl Fn(T, T) -> T) -> Vec<T> {
    for (o, i) in lanes.lanes() {
        for e in 1..lanes.extent {
            values[lanes.at(o, e, i)] = f(values[lanes.at(o, e - 1, i)], values[lanes.at(o, e, i)]);
        }
    }
    values
}

/// The order of selection: larger first, NaN after everything, equal ones as they stand.
pub(super) fn descending(a: f64, b: f64) -> Ordering {
    a.is_nan().cmp(&b.is_nan()).then(b.partial_cmp(&a).unwrap_or(Ordering::Equal))
}

pub(super) fn argmax(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let lanes = Lanes::new(&x.shape, call.axis(x.shape.len())?);
    let values = reals::<f64>(x);
    let best = |(o, i)| {
        let mut best: Option<(usize, f64)> = None;
        for e in 0..lanes.extent {
            let v = values[lanes.at(o, e, i)];
            if !v.is_nan() && best.is_none_or(|(_, b)| v > b) {
                best = Some((e, v));
            }
        }
        best.map_or(0, |(e, _)| e as i32)
    };
    tensor(DType::I32, call.out(0)?.shape.clone(), Data::I32(lanes.lanes().map(best).collect()))
}

/// Values and positions of the k largest; NaN comes after everything else.
pub(super) fn top_k(call: &Call) -> Result<Vec<Tensor>, String> {
    let x = call.tensor(0)?;
    let extent = *x.shape.last().ok_or("topk needs at least one axis")?;
    let k = usize::try_from(call.dim("k")?).ok().filter(|k| *k <= extent);
    let k = k.ok_or_else(|| format!("topk of {:?} entries from {extent}", call.op.dim("k")))?;
    let values = reals::<f64>(x);
    let mut places = Vec::new();
    for start in (0..x.len()).step_by(extent.max(1)) {
        let mut order: Vec<usize> = (start..start + extent).collect();
        order.sort_by(|a, b| descending(values[*a], values[*b]));
        places.extend_from_slice(&order[..k]);
    }
    let shape = &call.out(0)?.shape;
    let positions = places.iter().map(|p| (p % extent) as i32).collect();
    Ok(vec![
        tensor(x.dtype, shape.clone(), super::index::pick(&x.data, &places))?,
        tensor(DType::I32, shape.clone(), Data::I32(positions))?,
    ])
}

pub(super) fn softmax(call: &Call) -> Result<Tensor, String> {
    if call.wide() { softmax_in::<f64>(call) } else { softmax_in::<f32>(call) }
}

fn softmax_in<R: Real>(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let lanes = Lanes::new(&x.shape, call.axis(x.shape.len())?);
    let mut values = reals::<R>(x);
    for (o, i) in lanes.lanes() {
        let lane: Vec<R> = (0..lanes.extent).map(|e| values[lanes.at(o, e, i)]).collect();
        for (e, p) in normalised_exp(&lane).into_iter().enumerate() {
            values[lanes.at(o, e, i)] = p;
        }
    }
    from_reals(x.dtype, x.shape.clone(), values)
}

/// exp(x - max) / sum.
pub(super) fn normalised_exp<R: Real>(x: &[R]) -> Vec<R> {
    let max = x.iter().fold(R::from_f64(f64::NEG_INFINITY), |acc, v| acc.larger(*v));
    let e: Vec<R> = x.iter().map(|v| (*v - max).exp()).collect();
    let sum = e.iter().fold(R::ZERO, |acc, v| acc + *v);
    e.into_iter().map(|v| v / sum).collect()
}
