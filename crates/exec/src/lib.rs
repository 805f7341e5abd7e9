//! Checkpoint loading and execution of spinec systems.
//!
//! Invariants of this crate: it never sees the compiler. Files are hostile until checked; every error a user can cause is
//! a typed value that states place, cause and remedy, and a panic is a bug of this crate.

pub mod checkpoint;
pub mod philox;
pub mod tensorfile;
pub mod text;
