//! Checkpoint loading and execution of spinec systems.
//!
//! Invariants of this crate: it never sees the compiler. Files are hostile until checked; every error a user can cause is
//! a typed value that states place, cause and remedy, and a panic is a bug of this crate. A row's bits depend on that
//! row's inputs alone, never on the number of rows, requests or threads that share a call.

pub mod checkpoint;
pub mod cpu;
pub mod engine;
pub mod eval;
pub mod host;
pub mod interp_runtime;
pub mod kernels;
pub mod philox;
pub mod planned;
pub mod runtime;
pub mod synth;
pub mod tensorfile;
pub mod text;
pub mod threads;
pub mod weights;
