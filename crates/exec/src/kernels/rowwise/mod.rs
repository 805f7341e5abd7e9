//! Elementwise operations, row reductions and norms over dense rows.
//!
//! A row reduction of a sum or maximum runs over [`LANES`](super::simd::LANES) lanes (lane = element modulo 16, in
//! order) and folds them by the fixed tree; an elementwise result depends on its own operands alone.

mod elementwise;
mod norm;
mod reduce;
mod rope;
mod rows;

pub use elementwise::{Binary, Operand, Unary, binary, silu_mul, unary, unary_in_place};
pub use norm::{l2_normalise, rms_norm, softmax};
pub use reduce::{Reduction, cumsum, reduce};
pub use rope::rotate;
pub use rows::{gather_rows, gather_rows_bf16};
