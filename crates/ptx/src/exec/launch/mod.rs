//! Launching a kernel: configuration, arguments, options and the report.

mod context;
mod execute;
mod prepare;
mod report;

use crate::check::{Finding, Severity};
use crate::counters::Counters;
use crate::memory::BufferId;
use crate::tensormap::TensorMap;
pub(crate) use context::LaunchCx;

/// A kernel argument.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Arg {
    /// Address of byte `offset` of a buffer.
    Buffer {
        id: BufferId,
        offset: u64,
    },
    U8(u8),
    U16(u16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    /// A tensor map given by value.
    Map(TensorMap),
    /// A structure given by value.
    Bytes(Vec<u8>),
}

impl From<BufferId> for Arg {
    fn from(id: BufferId) -> Self {
        Self::Buffer { id, offset: 0 }
    }
}

/// What a launch checks and counts, and its limits.
#[derive(Clone, Debug)]
pub struct Options {
    /// Unwritten bytes, bytes in flight, proxies, lane conflicts; races too when [`Self::races`] is set.
    pub check: bool,
    /// Races between warps and between blocks. Needs [`Self::check`].
    pub races: bool,
    /// Counters, and findings about bank conflicts and uncoalesced access.
    pub count: bool,
    /// Threads of this machine that execute blocks; 0 means all it has. Results do not depend on it for kernels without
    /// races.
    pub threads: usize,
    /// All blocks are resident together, as in a cooperative launch.
    pub cooperative: bool,
    /// Instructions that one warp may execute.
    pub instruction_budget: u64,
    /// Scheduler rounds in which everything spins and nothing changes before a livelock is reported.
    pub idle_rounds: u32,
    /// Wavefronts per conflict-free wavefront from which a shared access counts as conflicted.
    pub bank_conflict_ratio: f64,
    /// Sectors per ideal sector from which a global access counts as uncoalesced.
    pub uncoalesced_ratio: f64,
}

impl Default for Options {
    /// All checks and counters, one thread.
    fn default() -> Self {
        Self {
            check: true,
            races: true,
            count: true,
            threads: 1,
            cooperative: false,
            instruction_budget: 1 << 28,
            idle_rounds: 2000,
            bank_conflict_ratio: 2.0,
            uncoalesced_ratio: 6.0,
        }
    }
}

impl Options {
    /// Execution alone: bounds, alignment and synchronisation are still checked.
    pub fn unchecked() -> Self {
        Self { check: false, races: false, count: false, ..Self::default() }
    }
}

/// Shape and arguments of a launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster; the kernel's own, or 1, when absent.
    pub cluster: Option<[u32; 3]>,
    /// Dynamic shared memory in bytes.
    pub shared: usize,
    /// Arguments in order.
    pub args: Vec<Arg>,
    /// Checks and limits.
    pub options: Options,
}

impl Launch {
    /// A launch of `grid` blocks of `block` threads, without arguments.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, cluster: None, shared: 0, args: Vec::new(), options: Options::default() }
    }

    /// Sets dynamic shared memory.
    pub fn shared(mut self, bytes: usize) -> Self {
        self.shared = bytes;
        self
    }

    /// Appends an argument.
    pub fn arg(mut self, a: impl Into<Arg>) -> Self {
        self.args.push(a.into());
        self
    }

    /// Sets the options.
    pub fn options(mut self, o: Options) -> Self {
        self.options = o;
        self
    }

    /// Sets the cluster shape.
    pub fn cluster(mut self, c: [u32; 3]) -> Self {
        self.cluster = Some(c);
        self
    }
}

/// What a launch did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Mistakes, in the order of the PTX text; performance findings last.
    pub findings: Vec<Finding>,
    /// Counters; empty unless counting was on.
    pub counters: Counters,
    /// What the kernel printed, in block order.
    pub output: String,
    /// Lane-level instructions executed.
    pub warp_instructions: u64,
}

impl Report {
    /// Findings that make the kernel wrong.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.severity == Severity::Error)
    }

    /// Whether the kernel did nothing wrong; performance findings do not count.
    pub fn is_clean(&self) -> bool {
        self.errors().next().is_none()
    }
}
