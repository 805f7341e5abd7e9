//! One op about to be evaluated: operands, attributes and declared results.

use super::state::StateValue;
use crate::ir::Op;
use crate::tensor::Tensor;
use crate::ty::{DType, Dim, Env, TensorType};
use std::sync::Arc;

/// Most elements a tensor may have. A mistyped dim is then an error here and not an attempt to take all memory.
const MAX_ELEMENTS: usize = 1 << 32;

/// A value at run time.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    Tensor(Arc<Tensor>),
    State(Arc<StateValue>),
}

impl From<Tensor> for Slot {
    fn from(t: Tensor) -> Self {
        Slot::Tensor(Arc::new(t))
    }
}

impl From<StateValue> for Slot {
    fn from(s: StateValue) -> Self {
        Slot::State(Arc::new(s))
    }
}

/// A declared tensor type with its symbols replaced by their values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Declared {
    pub dtype: DType,
    pub shape: Vec<usize>,
}

/// Extents under `env`.
pub(super) fn extents(dims: &[Dim], env: &Env) -> Result<Vec<usize>, String> {
    let shape = dims.iter().map(|d| extent(d, env)).collect::<Result<Vec<usize>, String>>()?;
    match shape.iter().try_fold(1usize, |acc, d| acc.checked_mul(*d)) {
        Some(n) if n <= MAX_ELEMENTS => Ok(shape),
        _ => Err(format!("a tensor of extents {shape:?} has more than {MAX_ELEMENTS} elements")),
    }
}

/// One extent under `env`.
pub(super) fn extent(d: &Dim, env: &Env) -> Result<usize, String> {
    let value = number(d, env)?;
    usize::try_from(value).map_err(|_| format!("the extent {d} is {value}"))
}

/// The value of a dim under `env`.
pub(super) fn number(d: &Dim, env: &Env) -> Result<i64, String> {
    d.eval(env).ok_or_else(|| format!("{d} has no value: a symbol is not bound by the inputs, or it overflows"))
}

impl Declared {
    pub fn new(ty: &TensorType, env: &Env) -> Result<Declared, String> {
        Ok(Declared { dtype: ty.dtype, shape: extents(&ty.dims, env)? })
    }
}

/// The call.
pub(super) struct Call<'a> {
    pub op: &'a Op,
    pub operands: &'a [Slot],
    /// Declared results; `None` for states.
    pub results: &'a [Option<Declared>],
    pub env: &'a Env,
}

impl Call<'_> {
    pub fn tensor(&self, i: usize) -> Result<&Tensor, String> {
        match self.operands.get(i) {
            Some(Slot::Tensor(t)) => Ok(t),
            Some(Slot::State(_)) => Err(format!("operand {} is a state, a tensor is needed", i + 1)),
            None => Err(format!("operand {} is missing", i + 1)),
        }
    }

    pub fn optional(&self, i: usize) -> Result<Option<&Tensor>, String> {
        if i < self.operands.len() { self.tensor(i).map(Some) } else { Ok(None) }
    }

    pub fn tensors(&self) -> Result<Vec<&Tensor>, String> {
        (0..self.operands.len()).map(|i| self.tensor(i)).collect()
    }

    pub fn state(&self, i: usize) -> Result<&StateValue, String> {
        match self.operands.get(i) {
            Some(Slot::State(s)) => Ok(s),
            _ => Err(format!("operand {} must be a state", i + 1)),
        }
    }

    /// Declared tensor result `i`.
    pub fn out(&self, i: usize) -> Result<&Declared, String> {
        self.results.get(i).and_then(Option::as_ref).ok_or_else(|| format!("result {} must be a tensor", i + 1))
    }

    /// True if the op computes in f64: one of its operands, its state or its results is f64. Otherwise it computes in
    /// f32.
    pub fn wide(&self) -> bool {
        let operand = self.operands.iter().any(|s| match s {
            Slot::Tensor(t) => t.dtype == DType::F64,
            Slot::State(s) => s.dtype == DType::F64,
        });
        operand || self.results.iter().flatten().any(|d| d.dtype == DType::F64)
    }

    pub fn int(&self, name: &str) -> Result<i64, String> {
        self.op.int(name).ok_or_else(|| missing(name))
    }

    pub fn float(&self, name: &str) -> Result<f64, String> {
        self.op.float(name).ok_or_else(|| missing(name))
    }

    pub fn bool(&self, name: &str) -> Result<bool, String> {
        self.op.bool(name).ok_or_else(|| missing(name))
    }

    pub fn text(&self, name: &str) -> Result<&str, String> {
        self.op.str(name).ok_or_else(|| missing(name))
    }

    pub fn dtype(&self, name: &str) -> Result<DType, String> {
        self.op.dtype(name).ok_or_else(|| missing(name))
    }

    pub fn dim(&self, name: &str) -> Result<i64, String> {
        number(self.op.dim(name).ok_or_else(|| missing(name))?, self.env)
    }

    /// Attribute `axis` as an axis of a tensor of `rank`.
    pub fn axis(&self, rank: usize) -> Result<usize, String> {
        let axis = self.int("axis")?;
        let positive = if axis < 0 { axis + rank as i64 } else { axis };
        usize::try_from(positive).ok().filter(|a| *a < rank).ok_or_else(|| format!("axis {axis} of {rank} axes"))
    }
}

fn missing(name: &str) -> String {
    format!("attribute `{name}` is missing or of another kind")
}
