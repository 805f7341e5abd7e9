//! CPU kernels, one family a file.
//!
//! The law of every kernel here: an output element is a fixed sequence of floating-point operations on its own inputs.
//! Neither the number of rows, requests or threads in a call, nor where an element sits, nor the instruction set may
//! change a bit of it. Sums run in index order with fused multiply-add, or over [`simd::LANES`] virtual lanes that are
//! folded by one fixed tree; see [`simd`].
//!
//! Shapes are checked by assertions: a violated one is a bug of the caller, not of user input.

#![allow(clippy::needless_range_loop, reason = "lanes and register tiles are indexed by constants")]

pub mod attention;
pub mod bmm;
pub mod conv;
pub mod delta;
pub mod gemm;
pub mod rowwise;
pub mod sampling;
pub mod select;
pub mod simd;
