//! Types: dims, dtypes, tensors, states.

mod dim;
mod dtype;
mod types;

pub use dim::{Bounds, Dim, Env};
pub use dtype::{DType, Numerics};
pub use types::{StateKind, TensorType, Type};
