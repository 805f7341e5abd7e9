//! Execution of resolved kernels.

mod access;
mod account;
pub(crate) mod alu;
mod atomic;
mod barrier;
mod bulk;
mod cp_async;
pub(crate) mod gang;
pub(crate) mod inst;
pub(crate) mod launch;
mod loadstore;
mod matrix;
mod mbarrier;
pub(crate) mod mma;
mod printf;
pub(crate) mod regs;
mod step;
mod tma;
mod warp_ops;
mod wgmma;
pub(crate) mod wmma;
