//! Shape functions, by family.

mod contract;
mod data;
mod elementwise;
mod model;
mod random;
mod reduce;

use super::infer::{Blame, InferError};
use super::table::Opcode;
use crate::diag::codes;
use crate::ir::{Attr, Attrs};
use crate::ty::{DType, Dim, TensorType, Type};

/// Operands and attributes of the call being typed.
pub(super) struct Call<'a> {
    pub operands: &'a [&'a Type],
    pub attrs: &'a Attrs,
}

type Result<T> = std::result::Result<T, InferError>;

pub(super) fn infer(code: Opcode, operands: &[&Type], attrs: &Attrs) -> Result<Vec<Type>> {
    use Opcode::*;
    let call = Call { operands, attrs };
    check_arity(code, &call)?;
    match code {
        Const | DimValue | Iota | Fill | Reshape | Transpose | Broadcast | Concat | Slice | IndexAt | Shift | Take
        | OneHot | ScatterAdd | Sort => data::infer(code, &call),
        Neg | Abs | Exp | Log | Sqrt | Rsqrt | Sin | Cos | Tanh | Erf | Sigmoid | Silu | Softplus | Relu | Floor
        | IsFinite | Not | Cast | Add | Sub | Mul | Div | FloorDiv | Mod | Pow | Minimum | Maximum | Eq | Ne | Lt
        | Le | Gt | Ge | And | Or | Where => elementwise::infer(code, &call),
        Sum | Mean | ReduceMax | ReduceMin | Rms | Norm2 | Cumsum | Cumprod | Argmax | TopK | Softmax => {
            reduce::infer(code, &call)
        }
        Linear | Einsum => contract::infer(code, &call),
        RmsNorm | L2Norm | Rope | Attention | KvWrite | CausalConv | DeltaRule | QuantizeRows => {
            model::infer(code, &call)
        }
        Guarded => guarded(&call),
        Coin | SamplingLaw | Draw => random::infer(code, &call),
        StateClose => {
            call.state(0)?;
            Ok(vec![])
        }
        Weight | StateOpen | Loop | Cases => Err(InferError::new(
            codes::INTERNAL_IR,
            Blame::Call,
            format!("the type of `{}` does not follow from its operands", code.name()),
        )),
    }
}

/// The choice has the type of what it chooses from, but mixing rows need not keep a distribution.
fn guarded(call: &Call) -> Result<Vec<Type>> {
    let (ok, fast) = (call.tensor(0)?, call.tensor(1)?);
    if ok.dtype != DType::Bool {
        return Err(InferError::dtype(0, format!("a truth value is expected here, this is {ok}")));
    }
    if ok.dims != fast.dims {
        return Err(InferError::dims(0, 1, format!("{ok} and {fast} must have the same dims")));
    }
    Ok(vec![TensorType::new(fast.dtype, fast.dims.clone()).into()])
}

fn check_arity(code: Opcode, call: &Call) -> Result<()> {
    let def = code.def();
    let required = def.operands.iter().filter(|o| !o.optional && !o.variadic).count();
    let max = if def.operands.iter().any(|o| o.variadic) { usize::MAX } else { def.operands.len() };
    let n = call.operands.len();
    if n < required || n > max {
        let names: Vec<&str> = def.operands.iter().map(|o| o.name).collect();
        return Err(InferError::new(
            codes::BAD_CALL,
            Blame::Call,
            format!("`{}` takes ({}), but {n} operands are given", def.name, names.join(", ")),
        ));
    }
    Ok(())
}

impl Call<'_> {
    /// Operand `i` as a tensor.
    fn tensor(&self, i: usize) -> Result<&TensorType> {
        match self.operands.get(i) {
            Some(Type::Tensor(t)) => Ok(t),
            Some(other) => Err(InferError::dtype(i, format!("a tensor is expected here, this is {other}"))),
            None => Err(InferError::new(codes::BAD_CALL, Blame::Call, format!("operand {} is missing", i + 1))),
        }
    }

    /// Operand `i` as a tensor, if it is given.
    fn optional(&self, i: usize) -> Result<Option<&TensorType>> {
        if i < self.operands.len() { self.tensor(i).map(Some) } else { Ok(None) }
    }

    /// Operand `i` as a state.
    fn state(&self, i: usize) -> Result<&Type> {
        match self.operands.get(i) {
            Some(t @ Type::State { .. }) => Ok(t),
            Some(other) => Err(InferError::new(
                codes::STATE_MISUSE,
                Blame::Operand(i),
                format!("a state is expected here, this is {other}"),
            )),
            None => Err(InferError::new(codes::BAD_CALL, Blame::Call, format!("operand {} is missing", i + 1))),
        }
    }

    /// Operand `i` as a tensor of floats.
    fn float(&self, i: usize) -> Result<&TensorType> {
        let t = self.tensor(i)?;
        if t.dtype.is_float() {
            Ok(t)
        } else {
            Err(InferError::dtype(i, format!("a floating-point tensor is expected here, this is {t}")))
        }
    }

    /// Operand `i` as an i32 tensor.
    fn int(&self, i: usize) -> Result<&TensorType> {
        let t = self.tensor(i)?;
        if t.dtype == DType::I32 {
            Ok(t)
        } else {
            Err(InferError::dtype(i, format!("an i32 tensor is expected here, this is {t}")))
        }
    }

    fn attr_int(&self, name: &'static str) -> Result<i64> {
        match self.attrs.get(name) {
            Some(Attr::Int(v)) => Ok(*v),
            _ => Err(InferError::attr(name, format!("`{name}` must be an integer"))),
        }
    }

    fn attr_float(&self, name: &'static str) -> Result<f64> {
        match self.attrs.get(name) {
            Some(Attr::Float(v)) => Ok(*v),
            _ => Err(InferError::attr(name, format!("`{name}` must be a number"))),
        }
    }

    fn attr_bool(&self, name: &'static str) -> Result<bool> {
        match self.attrs.get(name) {
            Some(Attr::Bool(v)) => Ok(*v),
            _ => Err(InferError::attr(name, format!("`{name}` must be true or false"))),
        }
    }

    fn attr_str(&self, name: &'static str) -> Result<&str> {
        match self.attrs.get(name) {
            Some(Attr::Str(v)) => Ok(v),
            _ => Err(InferError::attr(name, format!("`{name}` must be a word"))),
        }
    }

    fn attr_dim(&self, name: &'static str) -> Result<&Dim> {
        match self.attrs.get(name) {
            Some(Attr::Dim(v)) => Ok(v),
            _ => Err(InferError::attr(name, format!("`{name}` must be a dim"))),
        }
    }

    fn attr_dims(&self, name: &'static str) -> Result<&[Dim]> {
        match self.attrs.get(name) {
            Some(Attr::Dims(v)) => Ok(v),
            _ => Err(InferError::attr(name, format!("`{name}` must be a list of dims"))),
        }
    }

    fn attr_dtype(&self, name: &'static str) -> Result<DType> {
        match self.attrs.get(name) {
            Some(Attr::DType(v)) => Ok(*v),
            _ => Err(InferError::attr(name, format!("`{name}` must be a dtype"))),
        }
    }

    /// Attribute `axis`, normalised to `0..rank`; a negative axis counts from the end.
    fn axis(&self, operand: usize, rank: usize) -> Result<usize> {
        let axis = self.attr_int("axis")?;
        let norm = if axis < 0 { axis + rank as i64 } else { axis };
        if (0..rank as i64).contains(&norm) {
            Ok(norm as usize)
        } else {
            Err(InferError::attr(
                "axis",
                format!("axis {axis} does not exist: operand {} has {rank} axes", operand + 1),
            ))
        }
    }
}

/// Checks that the leading axes of `t` (operand `i`) equal `dims` (from operand `of`).
fn leading(of: usize, dims: &[Dim], i: usize, t: &TensorType, what: &str) -> Result<()> {
    if t.dims.len() < dims.len() || t.dims[..dims.len()] != *dims {
        let want: Vec<String> = dims.iter().map(Dim::to_string).collect();
        return Err(InferError::dims(
            of,
            i,
            format!("{what} must begin with axes [{}], but it is {t}", want.join(", ")),
        ));
    }
    Ok(())
}
