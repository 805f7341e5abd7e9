//! Elementwise ops: broadcasting and promotion.

use super::super::infer::{Blame, InferError};
use super::super::table::Opcode;
use super::{Call, Result};
use crate::diag::codes;
use crate::ty::{DType, Dim, TensorType, Type};

pub(super) fn infer(code: Opcode, call: &Call) -> Result<Vec<Type>> {
    use Opcode::*;
    let out = match code {
        Neg | Abs => {
            let t = call.tensor(0)?;
            if t.dtype == DType::Bool || t.dtype == DType::F8E4M3 {
                return Err(InferError::dtype(0, format!("`{}` needs numbers, this is {t}", code.name())));
            }
            t.with_dtype(t.dtype.compute())
        }
        Exp | Log | Sqrt | Rsqrt | Sin | Cos | Tanh | Erf | Sigmoid | Silu | Softplus | Relu | Floor => {
            let t = call.float(0)?;
            t.with_dtype(t.dtype.compute())
        }
        IsFinite => call.float(0)?.with_dtype(DType::Bool),
        Not => boolean(call, 0)?.clone(),
        Cast => {
            let t = call.tensor(0)?;
            let to = call.attr_dtype("dtype")?;
            if to == DType::F8E4M3 || (t.dtype == DType::F8E4M3 && !to.is_float()) {
                return Err(InferError::attr("dtype", format!("there is no cast from {} to {to}", t.dtype))
                    .help("quantize_rows makes an f8e4m3 copy with scales"));
            }
            TensorType { dtype: to, dims: t.dims.clone(), dist: t.dist && to.is_float() }
        }
        Add | Sub | Mul | FloorDiv | Mod | Pow | Minimum | Maximum => {
            let (dims, dtype) = pair(call, code)?;
            TensorType::new(dtype.compute(), dims)
        }
        Div => {
            let (dims, dtype) = pair(call, code)?;
            TensorType::new(if dtype.is_float() { dtype.compute() } else { DType::F32 }, dims)
        }
        Eq | Ne | Lt | Le | Gt | Ge => {
            let (a, b) = (call.tensor(0)?, call.tensor(1)?);
            let both_bool = a.dtype == DType::Bool && b.dtype == DType::Bool && matches!(code, Eq | Ne);
            let dims = broadcast(&a.dims, &b.dims, 0, 1)?;
            if !both_bool {
                pair(call, code)?;
            }
            TensorType::new(DType::Bool, dims)
        }
        And | Or => {
            let (a, b) = (boolean(call, 0)?, boolean(call, 1)?);
            TensorType::new(DType::Bool, broadcast(&a.dims, &b.dims, 0, 1)?)
        }
        Where => {
            let cond = boolean(call, 0)?;
            let (a, b) = (call.tensor(1)?, call.tensor(2)?);
            let dtype = if a.dtype == b.dtype {
                a.dtype
            } else {
                a.dtype.promote(b.dtype).ok_or_else(|| mixed(1, 2, a, b))?.compute()
            };
            let dims = broadcast(&broadcast(&a.dims, &b.dims, 1, 2)?, &cond.dims, 1, 0)?;
            // Choosing whole rows keeps them distributions; choosing entries does not.
            let rowwise = cond.dims.last().is_none_or(|d| *d == Dim::from(1));
            let dist = a.dist && b.dist && a.dims == dims && b.dims == dims && rowwise;
            TensorType { dtype, dims, dist }
        }
        other => unreachable!("{} is not elementwise", other.name()),
    };
    Ok(vec![out.into()])
}

fn boolean<'a>(call: &'a Call, i: usize) -> Result<&'a TensorType> {
    let t = call.tensor(i)?;
    if t.dtype == DType::Bool {
        Ok(t)
    } else {
        Err(InferError::dtype(i, format!("a truth value is expected here, this is {t}")).help("compare it: `x != 0`"))
    }
}

fn pair(call: &Call, code: Opcode) -> Result<(Vec<Dim>, DType)> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    for (i, t) in [a, b].into_iter().enumerate() {
        if t.dtype == DType::Bool || t.dtype == DType::F8E4M3 {
            return Err(InferError::dtype(i, format!("`{}` needs numbers, this is {t}", code.name()))
                .help("cast(x, f32) turns truth values into 0 and 1"));
        }
    }
    let dtype = a.dtype.promote(b.dtype).ok_or_else(|| mixed(0, 1, a, b))?;
    Ok((broadcast(&a.dims, &b.dims, 0, 1)?, dtype))
}

fn mixed(i: usize, j: usize, a: &TensorType, b: &TensorType) -> InferError {
    InferError::new(codes::DTYPE_MISMATCH, Blame::Pair(i, j), format!("{a} and {b} do not mix"))
        .help("cast one of them")
}

/// Broadcasts two shapes from the right: equal extents, or one of them 1. `i` and `j` are the operands for the message.
pub(super) fn broadcast(a: &[Dim], b: &[Dim], i: usize, j: usize) -> Result<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let one = Dim::from(1);
    let mut out = Vec::with_capacity(rank);
    for axis in 0..rank {
        let get = |t: &[Dim]| (axis + t.len()).checked_sub(rank).map(|k| t[k].clone());
        out.push(match (get(a), get(b)) {
            (Some(x), Some(y)) if x == y => x,
            (Some(x), Some(y)) if x == one => y,
            (Some(x), Some(y)) if y == one => x,
            (Some(x), None) | (None, Some(x)) => x,
            (Some(x), Some(y)) => {
                let show = |t: &[Dim]| t.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
                return Err(InferError::dims(
                    i,
                    j,
                    format!("[{}] and [{}] do not broadcast: {x} against {y}", show(a), show(b)),
                )
                .help("axes align from the right and must be equal or 1"));
            }
            (None, None) => unreachable!("axis is below the larger rank"),
        });
    }
    Ok(out)
}
