//! Checkpoint loading and execution of compiled systems.
//!
//! Invariants of this crate: it never sees the compiler, so whatever it runs came from a plan; a row's bits depend on
//! that row's inputs alone, never on the number of rows, requests or threads that share a call.

pub mod kernels;
pub mod threads;
