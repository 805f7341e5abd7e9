//! Matrix products. Terms are added one by one in ascending order of the summed index (of several summed axes in
//! row-major order of their first occurrence), so that a row's result does not depend on the other rows.

use super::call::Call;
use super::index::{count, offsets, strides};
use super::number::{Real, from_reals, reals};
use crate::tensor::Tensor;
use crate::ty::DType;
use std::collections::BTreeMap;

/// True if products are accumulated in f64: `acc` says so or an operand is f64.
fn wide(call: &Call) -> Result<bool, String> {
    Ok(call.wide() || call.dtype("acc")? == DType::F64)
}

pub(super) fn linear(call: &Call) -> Result<Tensor, String> {
    if wide(call)? { linear_in::<f64>(call) } else { linear_in::<f32>(call) }
}

fn linear_in<R: Real>(call: &Call) -> Result<Tensor, String> {
    let (x, w) = (call.tensor(0)?, call.tensor(1)?);
    let (Some((k, lead)), [outs, wk]) = (x.shape.split_last(), w.shape.as_slice()) else {
        return Err(format!("linear of {:?} and {:?}", x.shape, w.shape));
    };
    if k != wk {
        return Err(format!("linear sums over {k} and {wk} entries"));
    }
    let (rows, k, outs) = (count(lead), *k, *outs);
    let (x, w) = (reals::<R>(x), reals::<R>(w));
    let mut out = Vec::with_capacity(rows * outs);
    for r in 0..rows {
        for o in 0..outs {
            let (a, b) = (&x[r * k..(r + 1) * k], &w[o * k..(o + 1) * k]);
            out.push(a.iter().zip(b).fold(R::ZERO, |acc, (a, b)| acc + *a * *b));
        }
    }
    let declared = call.out(0)?;
    from_reals(declared.dtype, declared.shape.clone(), out)
}

pub(super) fn einsum(call: &Call) -> Result<Tensor, String> {
    if wide(call)? { einsum_in::<f64>(call) } else { einsum_in::<f32>(call) }
}

fn einsum_in<R: Real>(call: &Call) -> Result<Tensor, String> {
    let spec = call.text("spec")?;
    let parts = call.tensors()?;
    let (left, right) = spec.split_once("->").ok_or_else(|| format!("`{spec}` has no arrow"))?;
    let names: Vec<Vec<&str>> = left.split(',').map(|s| s.split_whitespace().collect()).collect();
    let kept: Vec<&str> = right.split_whitespace().collect();
    let mut extent: BTreeMap<&str, usize> = BTreeMap::new();
    let mut summed: Vec<&str> = Vec::new();
    for (axes, t) in names.iter().zip(&parts) {
        if axes.len() != t.shape.len() {
            return Err(format!("`{spec}` gives {} axes to an operand of extents {:?}", axes.len(), t.shape));
        }
        for (name, n) in axes.iter().zip(&t.shape) {
            if *extent.entry(name).or_insert(*n) != *n {
                return Err(format!("axis `{name}` of `{spec}` has extents {} and {n}", extent[name]));
            }
            if !kept.contains(name) && !summed.contains(name) {
                summed.push(name);
            }
        }
    }
    let extents = |axes: &[&str]| -> Result<Vec<usize>, String> {
        axes.iter().map(|a| extent.get(a).copied().ok_or_else(|| format!("axis `{a}` is in no operand"))).collect()
    };
    let (kept_shape, summed_shape) = (extents(&kept)?, extents(&summed)?);
    // Where operand `i` stands for every combination of the given axes.
    let places = |i: usize, axes: &[&str], shape: &[usize]| {
        let own = strides(&parts[i].shape);
        let step = |a: &&str| names[i].iter().position(|n| n == a).map_or(0, |k| own[k]);
        offsets(shape, &axes.iter().map(step).collect::<Vec<usize>>())
    };
    let of = |i: usize| (places(i, &kept, &kept_shape), places(i, &summed, &summed_shape), reals::<R>(parts[i]));
    let out: Vec<R> = match (names.len(), parts.len()) {
        (1, 1) => {
            let (base, step, x) = of(0);
            base.iter().map(|b| step.iter().fold(R::ZERO, |acc, s| acc + x[b + s])).collect()
        }
        (2, 2) => {
            let ((base_a, step_a, a), (base_b, step_b, b)) = (of(0), of(1));
            let terms =
                |i: usize, j: usize| step_a.iter().zip(&step_b).fold(R::ZERO, |acc, (s, t)| acc + a[i + s] * b[j + t]);
            base_a.iter().zip(&base_b).map(|(i, j)| terms(*i, *j)).collect()
        }
        _ => return Err(format!("`{spec}` does not name the {} operands", parts.len())),
    };
    let declared = call.out(0)?;
    from_reals(declared.dtype, declared.shape.clone(), out)
}
