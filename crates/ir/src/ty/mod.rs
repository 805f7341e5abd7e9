//! Types: dims, dtypes, tensors, states.

mod dim;
mod dtype;
mod rule_class;
mod types;

pub use dim::{Bounds, Dim, Env};
pub use dtype::{DType, Numerics};
pub use rule_class::RuleClass;
pub use types::{StateKind, TensorType, Type};
