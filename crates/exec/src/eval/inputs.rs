//! Tensors from files as arguments.

use super::EvalError;
use crate::checkpoint::Dtype;
use crate::tensorfile::{self, TensorData};
use spinec_ir::ir::Func;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::DType;
use std::collections::BTreeMap;

/// A tensor of a file as a host tensor. I64 becomes i32 where every value fits.
pub fn from_file(name: &str, t: tensorfile::Tensor) -> Result<Tensor, String> {
    let (stored, shape, data) = t.into_parts();
    let (dtype, data) = match data {
        TensorData::F64(v) => (DType::F64, Data::F64(v)),
        TensorData::F32(v) => {
            let dtype = match stored {
                Dtype::BF16 => DType::BF16,
                Dtype::F16 => DType::F16,
                _ => DType::F32,
            };
            (dtype, Data::F32(v))
        }
        TensorData::I32(v) => (DType::I32, Data::I32(v)),
        TensorData::I64(v) => {
            let narrow: Option<Vec<i32>> = v.iter().map(|x| i32::try_from(*x).ok()).collect();
            (DType::I32, Data::I32(narrow.ok_or_else(|| format!("tensor `{name}` holds integers beyond i32"))?))
        }
        TensorData::U8(v) => (DType::U8, Data::U8(v)),
        TensorData::Bool(v) => (DType::Bool, Data::Bool(v)),
    };
    Tensor::new(dtype, shape, data).ok_or_else(|| format!("tensor `{name}` does not fill its shape"))
}

/// A host tensor for a file; f8e4m3 is written as its bits.
pub fn to_file(name: &str, t: &Tensor) -> Result<tensorfile::Tensor, String> {
    let fail = |e: tensorfile::TensorError| format!("tensor `{name}`: {e}");
    let data = match &t.data {
        Data::F64(v) => TensorData::F64(v.clone()),
        Data::F32(v) => TensorData::F32(v.clone()),
        Data::I32(v) => TensorData::I32(v.clone()),
        Data::U8(v) => TensorData::U8(v.clone()),
        Data::Bool(v) => TensorData::Bool(v.clone()),
    };
    match t.dtype {
        DType::BF16 => tensorfile::Tensor::stored_as(Dtype::BF16, t.shape.clone(), data).map_err(fail),
        DType::F16 => tensorfile::Tensor::stored_as(Dtype::F16, t.shape.clone(), data).map_err(fail),
        _ => tensorfile::Tensor::new(t.shape.clone(), data).map_err(fail),
    }
}

/// The arguments of a function in order, each in the dtype it declares.
pub(crate) fn arguments(func: &Func, given: &BTreeMap<String, Tensor>) -> Result<Vec<Tensor>, EvalError> {
    let mut missing = Vec::new();
    let mut out = Vec::new();
    for (name, v) in func.inputs.iter().zip(&func.region(func.body).params) {
        let Some(t) = given.get(name) else {
            missing.push(name.as_str());
            continue;
        };
        let want = func.tensor(*v).map_or(t.dtype, |t| t.dtype);
        out.push(fit(name, t, want)?);
    }
    if missing.is_empty() {
        return Ok(out);
    }
    let have: Vec<&str> = given.keys().map(String::as_str).collect();
    Err(EvalError::Inputs(format!(
        "input tensors are missing: {}; the file holds {}",
        missing.join(", "),
        have.join(", ")
    )))
}

/// A tensor in the dtype an input declares: floats to floats, integers to integers.
pub(crate) fn fit(name: &str, t: &Tensor, want: DType) -> Result<Tensor, EvalError> {
    let same_kind = (t.dtype.is_float() && want.is_float())
        || (t.dtype.is_int() && want.is_int())
        || t.dtype == want
        || (t.dtype == DType::U8 && want == DType::Bool);
    let cast = if same_kind { t.cast(want) } else { None };
    cast.ok_or_else(|| EvalError::Inputs(format!("input `{name}` is {want}, the tensor is {}", t.dtype)))
}
