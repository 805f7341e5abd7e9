//! Reductions, scans and selections along one axis.

use super::super::infer::InferError;
use super::super::table::Opcode;
use super::{Call, Result};
use crate::ty::{DType, Dim, TensorType, Type};

pub(super) fn infer(code: Opcode, call: &Call) -> Result<Vec<Type>> {
    use Opcode::*;
    let x = call.tensor(0)?;
    if x.rank() == 0 {
        return Err(InferError::rank(0, format!("`{}` needs at least one axis, this is a scalar", code.name())));
    }
    if x.dtype == DType::F8E4M3 || (x.dtype == DType::Bool && code != Cumprod) {
        return Err(InferError::dtype(0, format!("`{}` needs numbers, this is {x}", code.name()))
            .help("cast(x, f32) or cast(x, i32) turns truth values into 0 and 1"));
    }
    Ok(match code {
        Sum | ReduceMax | ReduceMin => vec![reduced(call, x, x.dtype)?.into()],
        Mean | Rms | Norm2 => {
            let x = call.float(0)?;
            let dtype = if code == Mean { x.dtype } else { x.dtype.compute() };
            vec![reduced(call, x, dtype)?.into()]
        }
        Cumsum | Cumprod => {
            call.axis(0, x.rank())?;
            vec![x.with_dtype(x.dtype).into()]
        }
        Argmax => {
            let axis = call.axis(0, x.rank())?;
            let mut dims = x.dims.clone();
            dims.remove(axis);
            vec![TensorType::new(DType::I32, dims).into()]
        }
        TopK => {
            let k = call.attr_dim("k")?;
            let extent = &x.dims[x.rank() - 1];
            if let (Some(k), Some(n)) = (k.as_const(), extent.as_const())
                && !(1..=n).contains(&k)
            {
                return Err(InferError::attr(
                    "k",
                    format!("k = {k} is not within 1..{n}, the extent of the last axis"),
                ));
            }
            let mut dims = x.dims.clone();
            dims[x.rank() - 1] = k.clone();
            vec![TensorType::new(x.dtype, dims.clone()).into(), TensorType::new(DType::I32, dims).into()]
        }
        Softmax => {
            let x = call.float(0)?;
            let axis = call.axis(0, x.rank())?;
            vec![TensorType { dtype: x.dtype, dims: x.dims.clone(), dist: axis + 1 == x.rank() }.into()]
        }
        other => unreachable!("{} is not a reduction", other.name()),
    })
}

fn reduced(call: &Call, x: &TensorType, dtype: DType) -> Result<TensorType> {
    let axis = call.axis(0, x.rank())?;
    let mut dims = x.dims.clone();
    if call.attr_bool("keep")? {
        dims[axis] = Dim::from(1);
    } else {
        dims.remove(axis);
    }
    Ok(TensorType::new(dtype, dims))
}
