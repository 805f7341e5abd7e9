//! CUDA code generation: the NVRTC driver and what is read back from its output.
//!
//! NVRTC is found and loaded at run time (feature `nvrtc`), so nothing here needs CUDA to build. Without the library
//! every call returns a typed error.

mod cubin;
mod log;
#[cfg(feature = "nvrtc")]
mod nvrtc;

pub use cubin::{CubinError, CubinKernel, read_cubin};
pub use log::{LogKernel, read_log};
#[cfg(feature = "nvrtc")]
pub use nvrtc::{Compiled, Kernel, Nvrtc, NvrtcError, Options};
