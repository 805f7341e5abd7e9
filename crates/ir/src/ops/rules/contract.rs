//! Matrix products.

use super::super::infer::InferError;
use super::super::table::Opcode;
use super::{Call, Result};
use crate::ir::Attr;
use crate::ty::{DType, Dim, TensorType, Type};
use std::collections::BTreeMap;

pub(super) fn infer(code: Opcode, call: &Call) -> Result<Vec<Type>> {
    let acc = call.attr_dtype("acc")?;
    if !matches!(acc, DType::F32 | DType::F64) {
        return Err(InferError::attr("acc", format!("products accumulate in f32 or f64, not {acc}")));
    }
    let out = if code == Opcode::Linear { linear(call)? } else { einsum(call)? };
    Ok(vec![out.into()])
}

/// Float or f8e4m3 operand.
fn factor<'a>(call: &'a Call, i: usize) -> Result<&'a TensorType> {
    let t = call.tensor(i)?;
    if t.dtype == DType::F8E4M3 { Ok(t) } else { call.float(i) }
}

fn product_dtype(a: DType, b: DType) -> DType {
    match (a, b) {
        (DType::F8E4M3, x) | (x, DType::F8E4M3) => x.compute(),
        (a, b) => a.promote(b).unwrap_or(DType::F32),
    }
}

fn linear(call: &Call) -> Result<TensorType> {
    let (x, w) = (call.float(0)?, factor(call, 1)?);
    let Some((k, lead)) = x.dims.split_last() else {
        return Err(InferError::rank(0, "linear needs at least one axis"));
    };
    let [o, wk] = w.dims.as_slice() else {
        return Err(InferError::rank(1, format!("the weight of `linear` has two axes [out, in], this is {w}")));
    };
    if k != wk {
        return Err(InferError::dims(
            0,
            1,
            format!("`linear` sums over {k} (last axis of {x}) and {wk} (last axis of {w})"),
        )
        .help("a weight is [out, in]: its last axis meets the last axis of x"));
    }
    let mut dims = lead.to_vec();
    dims.push(o.clone());
    Ok(TensorType::new(product_dtype(x.dtype, w.dtype), dims))
}

/// Axis names of the operands and of the result of an einsum specification.
pub(crate) fn parse_einsum(spec: &str) -> Option<(Vec<Vec<&str>>, Vec<&str>)> {
    let (left, right) = spec.split_once("->")?;
    let names = |s: &'_ str| -> bool { s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') };
    let side = |s| -> Vec<&str> { str::split_whitespace(s).collect() };
    let parts: Vec<Vec<&str>> = left.split(',').map(side).collect();
    let out = side(right);
    let ok = parts.iter().flatten().chain(&out).all(|n| names(n)) && !right.contains(',');
    ok.then_some((parts, out))
}

fn einsum(call: &Call) -> Result<TensorType> {
    let spec = match call.attrs.get("spec") {
        Some(Attr::Str(s)) => s,
        _ => return Err(InferError::attr("spec", "einsum needs its specification first")),
    };
    let Some((parts, out)) = parse_einsum(spec) else {
        return Err(InferError::attr("spec", format!("`{spec}` is not an einsum specification"))
            .help("axis names separated by blanks: \"n t h, n c h -> n t c\""));
    };
    if parts.len() != call.operands.len() || !(1..=2).contains(&parts.len()) {
        return Err(InferError::attr(
            "spec",
            format!(
                "`{spec}` names {} operands, {} are given (one or two are possible)",
                parts.len(),
                call.operands.len()
            ),
        ));
    }
    let mut extent: BTreeMap<&str, (usize, Dim)> = BTreeMap::new();
    let mut dtype: Option<DType> = None;
    for (i, axes) in parts.iter().enumerate() {
        let t = factor(call, i)?;
        if axes.len() != t.rank() {
            return Err(InferError::rank(
                i,
                format!("`{spec}` gives operand {} {} axes, it is {t}", i + 1, axes.len()),
            ));
        }
        for (k, (name, d)) in axes.iter().zip(&t.dims).enumerate() {
            if axes[..k].contains(name) {
                return Err(InferError::attr("spec", format!("axis `{name}` occurs twice in one operand")));
            }
            match extent.get(name) {
                Some((j, other)) if other != d => {
                    return Err(InferError::dims(
                        *j,
                        i,
                        format!("axis `{name}` is {other} in operand {} and {d} in operand {}", j + 1, i + 1),
                    ));
                }
                _ => {
                    extent.insert(name, (i, d.clone()));
                }
            }
        }
        dtype = Some(dtype.map_or(t.dtype, |d| product_dtype(d, t.dtype)));
    }
    let mut dims = Vec::new();
    for (k, name) in out.iter().enumerate() {
        if out[..k].contains(name) {
            return Err(InferError::attr("spec", format!("axis `{name}` occurs twice in the result")));
        }
        match extent.get(name) {
            Some((_, d)) => dims.push(d.clone()),
            None => return Err(InferError::attr("spec", format!("axis `{name}` of the result is in no operand"))),
        }
    }
    Ok(TensorType::new(dtype.unwrap_or(DType::F32), dims))
}
