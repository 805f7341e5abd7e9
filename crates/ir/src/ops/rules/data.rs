//! Constants and data movement.

use super::super::infer::InferError;
use super::super::table::Opcode;
use super::{Call, Result, leading};
use crate::ir::Attr;
use crate::ty::{DType, Dim, TensorType, Type};

pub(super) fn infer(code: Opcode, call: &Call) -> Result<Vec<Type>> {
    use Opcode::*;
    let out = match code {
        Const => {
            call.attr_float("value")?;
            TensorType::scalar(call.attr_dtype("dtype")?)
        }
        DimValue => {
            call.attr_dim("value")?;
            TensorType::scalar(DType::I32)
        }
        Iota => TensorType::new(DType::I32, vec![call.attr_dim("n")?.clone()]),
        Fill => {
            let v = call.tensor(0)?;
            if v.rank() != 0 {
                return Err(InferError::rank(0, format!("fill takes a scalar, this is {v}")).help("use broadcast"));
            }
            TensorType::new(v.dtype, call.attr_dims("dims")?.to_vec())
        }
        Reshape => reshape(call)?,
        Transpose => transpose(call)?,
        Broadcast => {
            let x = call.tensor(0)?;
            let dims = call.attr_dims("dims")?;
            let fits = x.rank() <= dims.len()
                && x.dims.iter().rev().zip(dims.iter().rev()).all(|(a, b)| a == b || *a == Dim::from(1));
            if !fits {
                let show: Vec<String> = dims.iter().map(Dim::to_string).collect();
                return Err(InferError::attr("dims", format!("{x} does not broadcast to [{}]", show.join(", ")))
                    .help("axes align from the right and must be equal or 1"));
            }
            let dist = x.dist && x.dims.last() == dims.last();
            TensorType { dtype: x.dtype, dims: dims.to_vec(), dist }
        }
        Concat => concat(call)?,
        Slice => slice(call)?,
        IndexAt => {
            let (x, i) = (call.tensor(0)?, call.int(1)?);
            if i.rank() != 0 {
                return Err(InferError::rank(1, format!("an index in brackets is a scalar, this is {i}"))
                    .help("use take(x, index, axis) or gather(table, index)"));
            }
            let axis = call.axis(0, x.rank())?;
            let mut dims = x.dims.clone();
            dims.remove(axis);
            TensorType { dtype: x.dtype, dims, dist: x.dist && axis + 1 < x.rank() }
        }
        Shift => {
            let x = call.tensor(0)?;
            call.axis(0, x.rank())?;
            call.attr_int("by")?;
            call.attr_float("fill")?;
            x.with_dtype(x.dtype)
        }
        Take => {
            let (x, index) = (call.tensor(0)?, call.int(1)?);
            let axis = call.axis(0, x.rank())?;
            leading(0, &x.dims[..axis], 1, index, "the index of `take`")?;
            let mut dims = index.dims.clone();
            dims.extend_from_slice(&x.dims[axis + 1..]);
            TensorType { dtype: x.dtype, dims, dist: x.dist && axis + 1 < x.rank() }
        }
        OneHot => {
            let index = call.int(0)?;
            let mut dims = index.dims.clone();
            dims.push(call.attr_dim("n")?.clone());
            TensorType { dtype: DType::F64, dims, dist: true }
        }
        ScatterAdd => {
            let (x, index, upd) = (call.float(0)?, call.int(1)?, call.float(2)?);
            let Some((_, lead)) = x.dims.split_last() else {
                return Err(InferError::rank(0, "scatter_add needs at least one axis"));
            };
            if index.dims.len() != x.dims.len() {
                return Err(InferError::rank(1, format!("the index must have as many axes as {x}, it is {index}")));
            }
            leading(0, lead, 1, index, "the index of `scatter_add`")?;
            if index.dims != upd.dims {
                return Err(InferError::dims(1, 2, format!("index is {index}, but updates are {upd}")));
            }
            let dtype = x.dtype.promote(upd.dtype).unwrap_or(x.dtype);
            TensorType::new(dtype, x.dims.clone())
        }
        Sort => {
            let x = call.tensor(0)?;
            if x.rank() == 0 {
                return Err(InferError::rank(0, "sort needs at least one axis"));
            }
            x.with_dtype(x.dtype)
        }
        other => unreachable!("{} is not data movement", other.name()),
    };
    Ok(vec![out.into()])
}

fn reshape(call: &Call) -> Result<TensorType> {
    let x = call.tensor(0)?;
    let mut dims = call.attr_dims("dims")?.to_vec();
    let overflow = || InferError::attr("dims", "the number of elements overflows");
    let total = x.elements().ok_or_else(overflow)?;
    let holes: Vec<usize> = (0..dims.len()).filter(|&i| dims[i] == Dim::from(-1)).collect();
    let product = |dims: &[Dim], skip: Option<usize>| {
        dims.iter()
            .enumerate()
            .filter(|(i, _)| Some(*i) != skip)
            .try_fold(Dim::from(1), |acc, (_, d)| acc.mul(d))
            .ok_or_else(overflow)
    };
    let shown = |dims: &[Dim]| dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
    match holes.as_slice() {
        [] => {}
        [hole] => {
            let rest = product(&dims, Some(*hole))?;
            dims[*hole] = total
                .exact_div(&rest)
                .ok_or_else(|| InferError::attr("dims", format!("{total} elements of {x} do not divide by {rest}")))?;
        }
        _ => return Err(InferError::attr("dims", "at most one dim may be -1")),
    }
    let have = product(&dims, None)?;
    if have != total {
        return Err(InferError::attr("dims", format!("{x} has {total} elements, but [{}] has {have}", shown(&dims))));
    }
    let dist = x.dist && x.dims.last() == dims.last();
    Ok(TensorType { dtype: x.dtype, dims, dist })
}

fn transpose(call: &Call) -> Result<TensorType> {
    let x = call.tensor(0)?;
    let axes = match call.attrs.get("axes") {
        Some(Attr::Ints(v)) => v,
        _ => return Err(InferError::attr("axes", "`axes` must be a list of integers")),
    };
    let mut sorted: Vec<i64> = axes.clone();
    sorted.sort_unstable();
    if sorted != (0..x.rank() as i64).collect::<Vec<_>>() {
        return Err(InferError::attr("axes", format!("axes {axes:?} are not a permutation of the axes of {x}")));
    }
    Ok(TensorType::new(x.dtype, axes.iter().map(|&a| x.dims[a as usize].clone()).collect()))
}

fn concat(call: &Call) -> Result<TensorType> {
    if call.operands.is_empty() {
        return Err(InferError::attr("axis", "concat needs at least one part"));
    }
    let first = call.tensor(0)?;
    let axis = call.axis(0, first.rank())?;
    let mut dtype = first.dtype;
    let mut extent = first.dims[axis].clone();
    let mut dist = first.dist && axis + 1 < first.rank();
    for i in 1..call.operands.len() {
        let t = call.tensor(i)?;
        let same = t.rank() == first.rank()
            && t.dims.iter().zip(&first.dims).enumerate().all(|(k, (a, b))| k == axis || a == b);
        if !same {
            return Err(InferError::dims(0, i, format!("{first} and {t} differ outside axis {axis}")));
        }
        if t.dtype != dtype {
            dtype = dtype
                .promote(t.dtype)
                .ok_or_else(|| InferError::dtype(i, format!("{first} and {t} do not mix")).help("cast one of them"))?;
        }
        extent = extent.add(&t.dims[axis]).ok_or_else(|| InferError::attr("axis", "the extent overflows"))?;
        dist &= t.dist;
    }
    let mut dims = first.dims.clone();
    dims[axis] = extent;
    Ok(TensorType { dtype, dims, dist })
}

fn slice(call: &Call) -> Result<TensorType> {
    let x = call.tensor(0)?;
    let axis = call.axis(0, x.rank())?;
    let (start, len) = (call.attr_dim("start")?, call.attr_dim("len")?);
    let end = start.add(len).ok_or_else(|| InferError::attr("len", "the range overflows"))?;
    let extent = &x.dims[axis];
    let outside = |d: &Dim| d.as_const().is_some_and(|v| v < 0);
    let past = extent.sub(&end).is_none_or(|rest| outside(&rest));
    if outside(start) || outside(len) || past {
        let range = format!("{start}:{end}");
        return Err(InferError::attr(
            "start",
            format!("the range {range} does not lie within axis {axis} of {x}, whose extent is {extent}"),
        ));
    }
    let mut dims = x.dims.clone();
    dims[axis] = len.clone();
    Ok(TensorType { dtype: x.dtype, dims, dist: x.dist && axis + 1 < x.rank() })
}
