//! Normalisation, position, attention, recurrence, quantisation.

use super::super::infer::{Blame, InferError};
use super::super::table::Opcode;
use super::{Call, Result, leading};
use crate::diag::codes;
use crate::ty::{DType, Dim, StateKind, TensorType, Type};

pub(super) fn infer(code: Opcode, call: &Call) -> Result<Vec<Type>> {
    use Opcode::*;
    match code {
        RmsNorm => {
            let x = call.float(0)?;
            let Some(last) = x.dims.last() else {
                return Err(InferError::rank(0, "rms_norm needs at least one axis"));
            };
            eps(call)?;
            if let Some(w) = call.optional(1)? {
                if !w.dtype.is_float() {
                    return Err(InferError::dtype(1, format!("the weight of rms_norm is a float vector, this is {w}")));
                }
                if w.dims.as_slice() != std::slice::from_ref(last) {
                    return Err(InferError::dims(
                        0,
                        1,
                        format!("rms_norm over {last} entries needs a weight [{last}], this is {w}"),
                    ));
                }
            }
            Ok(vec![x.with_dtype(x.dtype).into()])
        }
        L2Norm => {
            let x = call.float(0)?;
            if x.rank() == 0 {
                return Err(InferError::rank(0, "l2_norm needs at least one axis"));
            }
            eps(call)?;
            Ok(vec![x.with_dtype(x.dtype).into()])
        }
        Rope => rope(call),
        Attention => attention(call),
        KvWrite => kv_write(call),
        CausalConv => causal_conv(call),
        DeltaRule => delta_rule(call),
        QuantizeRows => {
            let w = call.float(0)?;
            let [v, h] = w.dims.as_slice() else {
                return Err(InferError::rank(0, format!("quantize_rows takes a matrix, this is {w}")));
            };
            Ok(vec![
                TensorType::new(DType::F8E4M3, vec![v.clone(), h.clone()]).into(),
                TensorType::new(DType::F32, vec![v.clone()]).into(),
            ])
        }
        other => unreachable!("{} is not a model op", other.name()),
    }
}

fn eps(call: &Call) -> Result<()> {
    let eps = call.attr_float("eps")?;
    if eps >= 0.0 { Ok(()) } else { Err(InferError::attr("eps", format!("eps must not be negative, it is {eps}"))) }
}

fn rope(call: &Call) -> Result<Vec<Type>> {
    let (x, pos) = (call.float(0)?, call.int(1)?);
    if x.rank() < 2 {
        return Err(InferError::rank(0, format!("rope takes [..., heads, head width], this is {x}")));
    }
    let lead = &x.dims[..x.rank() - 2];
    if pos.dims != lead {
        return Err(InferError::dims(
            0,
            1,
            format!("positions must have the axes of x before the heads: x is {x}, positions are {pos}"),
        ));
    }
    let base = call.attr_float("base")?;
    if !(base.is_finite() && base > 0.0) {
        return Err(InferError::attr("base", format!("the base must be positive, it is {base}")));
    }
    let width = call.attr_int("width")?;
    let head = &x.dims[x.rank() - 1];
    if width < 0 || width % 2 != 0 || head.as_const().is_some_and(|h| width > h || (width == 0 && h % 2 != 0)) {
        return Err(InferError::attr("width", format!("a rotary width of {width} does not fit heads of width {head}"))
            .help("it must be even and at most the head width"));
    }
    let held = call.attr_str("frequencies")?;
    if !DType::from_name(held).is_some_and(|d| d.is_float() && d != DType::F8E4M3) {
        return Err(InferError::attr("frequencies", format!("frequencies cannot be held in '{held}'"))
            .help("one of 'f64', 'f32', 'f16', 'bf16'"));
    }
    Ok(vec![x.with_dtype(x.dtype).into()])
}

/// Checks an optional `rows` operand: i32[N].
fn rows(call: &Call, i: usize, n: &Dim) -> Result<()> {
    if i < call.operands.len() {
        let t = call.int(i)?;
        if t.dims.as_slice() != std::slice::from_ref(n) {
            return Err(InferError::dims(1, i, format!("rows must be i32[{n}], one count a request, this is {t}")));
        }
    }
    Ok(())
}

fn rank4<'a>(call: &'a Call, i: usize, what: &str) -> Result<(&'a TensorType, [&'a Dim; 4])> {
    let t = call.float(i)?;
    match t.dims.as_slice() {
        [a, b, c, d] => Ok((t, [a, b, c, d])),
        _ => Err(InferError::rank(i, format!("{what} must be [N, T, heads, width], this is {t}"))),
    }
}

fn positions(call: &Call, i: usize, n: &Dim, t: &Dim) -> Result<()> {
    let at = call.int(i)?;
    if at.dims.as_slice() != [n.clone(), t.clone()] {
        return Err(InferError::dims(1, i, format!("positions must be i32[{n}, {t}], this is {at}")));
    }
    Ok(())
}

fn kv_kind<'a>(call: &'a Call, i: usize) -> Result<(&'a Dim, &'a Dim)> {
    match call.state(i)? {
        Type::State { kind: StateKind::KvPool { heads, width }, .. } => Ok((heads, width)),
        other => Err(wrong_state(i, "a kv_pool", other)),
    }
}

fn wrong_state(i: usize, want: &str, have: &Type) -> InferError {
    InferError::new(codes::STATE_MISUSE, Blame::Operand(i), format!("{want} is expected here, this is {have}"))
}

fn attention(call: &Call) -> Result<Vec<Type>> {
    let (q, [n, t, qh, width]) = rank4(call, 0, "q")?;
    let (heads, head_width) = kv_kind(call, 1)?;
    if width != head_width {
        return Err(InferError::dims(0, 1, format!("q has heads of width {width}, the pool {head_width}")));
    }
    if let (Some(q), Some(k)) = (qh.as_const(), heads.as_const())
        && (k == 0 || q % k != 0)
    {
        return Err(InferError::dims(0, 1, format!("{q} query heads do not divide over {k} key/value heads")));
    }
    positions(call, 2, n, t)?;
    rows(call, 3, n)?;
    call.attr_bool("causal")?;
    let window = call.attr_int("window")?;
    if window < 0 {
        return Err(InferError::attr("window", format!("a window of {window} positions sees nothing"))
            .help("`none` reads everything"));
    }
    call.attr_float("scale")?;
    Ok(vec![q.with_dtype(q.dtype).into()])
}

fn kv_write(call: &Call) -> Result<Vec<Type>> {
    let (heads, width) = kv_kind(call, 0)?;
    let (k, [n, t, kh, kw]) = rank4(call, 1, "k")?;
    let (v, _) = rank4(call, 2, "v")?;
    if k.dims != v.dims {
        return Err(InferError::dims(1, 2, format!("k is {k}, but v is {v}")));
    }
    if kh != heads || kw != width {
        return Err(InferError::dims(
            1,
            0,
            format!("k has {kh} heads of width {kw}, the pool {heads} of width {width}"),
        ));
    }
    positions(call, 3, n, t)?;
    rows(call, 4, n)?;
    Ok(vec![call.state(0)?.clone()])
}

fn causal_conv(call: &Call) -> Result<Vec<Type>> {
    let (channels, taps) = match call.state(0)? {
        Type::State { kind: StateKind::Window { channels, taps }, .. } => (channels, taps),
        other => return Err(wrong_state(0, "a window", other)),
    };
    let x = call.float(1)?;
    let [n, _, ch] = x.dims.as_slice() else {
        return Err(InferError::rank(1, format!("the convolution takes [N, T, channels], this is {x}")));
    };
    if ch != channels {
        return Err(InferError::dims(1, 0, format!("x has {ch} channels, the window {channels}")));
    }
    let w = call.float(2)?;
    let fits = match w.dims.as_slice() {
        [c, k] => c == ch && k == taps,
        [c, one, k] => c == ch && *one == Dim::from(1) && k == taps,
        _ => false,
    };
    if !fits {
        return Err(InferError::dims(1, 2, format!("taps must be [{ch}, {taps}] or [{ch}, 1, {taps}], these are {w}")));
    }
    rows(call, 3, n)?;
    Ok(vec![x.with_dtype(x.dtype).into(), call.state(0)?.clone()])
}

fn delta_rule(call: &Call) -> Result<Vec<Type>> {
    let (shape, dtype) = match call.state(0)? {
        Type::State { kind: StateKind::Recurrent { shape }, dtype } => (shape, *dtype),
        other => return Err(wrong_state(0, "a recurrent state", other)),
    };
    let (q, [n, t, gk, dk]) = rank4(call, 1, "q")?;
    let (k, _) = rank4(call, 2, "k")?;
    if q.dims != k.dims {
        return Err(InferError::dims(1, 2, format!("q is {q}, but k is {k}")));
    }
    let (v, [_, _, gv, dv]) = rank4(call, 3, "v")?;
    leading(1, &[n.clone(), t.clone()], 3, v, "v")?;
    if shape.as_slice() != [gv.clone(), dk.clone(), dv.clone()] {
        return Err(InferError::dims(
            3,
            0,
            format!(
                "the state must be [value heads, key width, value width] = [{gv}, {dk}, {dv}], it is {}",
                call.state(0)?
            ),
        ));
    }
    if let (Some(a), Some(b)) = (gv.as_const(), gk.as_const())
        && (b == 0 || a % b != 0)
    {
        return Err(InferError::dims(1, 3, format!("{a} value heads do not divide over {b} key heads")));
    }
    for (i, what) in [(4, "decay"), (5, "beta")] {
        let x = call.float(i)?;
        if x.dims.as_slice() != [n.clone(), t.clone(), gv.clone()] {
            return Err(InferError::dims(3, i, format!("{what} must be [{n}, {t}, {gv}], it is {x}")));
        }
    }
    rows(call, 6, n)?;
    Ok(vec![
        TensorType::new(if dtype == DType::F64 { DType::F64 } else { DType::F32 }, v.dims.clone()).into(),
        call.state(0)?.clone(),
    ])
}
