//! A PTX parser and interpreter that checks CUDA kernels on a CPU.
//!
//! PTX as NVRTC and Triton write it is parsed ([`parse`]), a kernel is resolved ([`Program::load`]) and executed on
//! buffers of the caller ([`Program::run`]), warp by warp, with divergence, barriers, shuffles, atomics, asynchronous
//! copies and tensor-core instructions. While it runs it reports out-of-bounds and misaligned accesses, reads of
//! memory nothing wrote, races, barrier mistakes, deadlocks and missing fences at the PTX line and, with `-lineinfo`,
//! the source line; and it counts what the kernel moves and executes.
//!
//! Invariants: an instruction that is not executed exactly is refused when the kernel is loaded, with its line; no input
//! makes the crate panic; results, findings and counters of a kernel without races are the same for every number of
//! threads. The crate depends on no other of the workspace and needs neither a GPU nor CUDA.
//!
//! ```
//! use spinec_ptx::{Access, Arg, Launch, Memory, Program, parse};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let module = parse(
//!     ".version 9.0\n.target sm_80\n.address_size 64\n
//!      .visible .entry double(.param .u64 x) {
//!        .reg .b64 %rd<4>; .reg .b32 %r<4>;
//!        ld.param.u64 %rd1, [x];
//!        mov.u32 %r1, %tid.x;
//!        mul.wide.u32 %rd2, %r1, 4;
//!        add.s64 %rd3, %rd1, %rd2;
//!        ld.global.u32 %r2, [%rd3];
//!        add.u32 %r3, %r2, %r2;
//!        st.global.u32 [%rd3], %r3;
//!        ret;
//!      }",
//! )?;
//! let kernel = Program::load(&module, "double").map_err(|e| e[0].clone())?;
//! let mut mem = Memory::new();
//! let x = mem.add("x", &7u32.to_le_bytes().repeat(32), Access::InOut);
//! let report = kernel.run(&mem, &Launch::new([1; 3], [33, 1, 1]).arg(x))?;
//! assert_eq!(mem.bytes(x)[..4], 14u32.to_le_bytes());
//! assert!(report.findings[0].message.contains("buffer `x`: offset 128 size 4 of 128 bytes"));
//! # Ok(()) }
//! ```

// Lane loops index several arrays by one counter; written so, they vectorise.
#![allow(clippy::needless_range_loop)]
// The bit twiddling here reads better without parentheses around every shift.
#![allow(clippy::precedence)]

mod check;
pub mod cli;
mod counters;
mod error;
mod exec;
mod lower;
mod memory;
pub mod numeric;
mod report;
pub mod syntax;
mod tensormap;

pub use check::{Finding, FindingKind, Severity};
pub use counters::{BufferTraffic, ClassCounters, Counters, InstCounters, LineCounters};
pub use error::{Diagnostic, DiagnosticKind, LaunchError, Pos};
pub use exec::inst::Class;
pub use exec::launch::{Arg, Launch, Options, Report};
pub use lower::{OpcodeForm, Param, Program, opcode_forms};
pub use memory::{Access, BufferId, Memory};
pub use syntax::parse;
pub use tensormap::{TensorMap, TensorType};
