//! Launching a kernel: configuration, arguments, workers and the report.

use super::gang::Gang;
use super::mma;
use crate::check::global::GlobalShadow;
use crate::check::{Finding, Findings, Severity};
use crate::counters::{BufferTraffic, ClassCounters, Counters, InstCounters, LineCounters, Tally};
use crate::error::LaunchError;
use crate::exec::inst::Class;
use crate::lower::{GLOBAL_VAR_WINDOW, Program, Special};
use crate::memory::{Access, Buffer, BufferId, FIRST_WINDOW, Memory};
use crate::tensormap::TensorMap;
use std::sync::atomic::{AtomicU64, Ordering};

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
            instruction_budget: 1 << 32,
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

/// Limits of launches, those of the largest supported architecture.
const MAX_BLOCK: u64 = 1024;
const MAX_SHARED: usize = 227 << 10;
const MAX_CLUSTER: u64 = 16;
/// Blocks that may be resident together.
const MAX_RESIDENT: u64 = 1 << 12;

/// What all workers of a launch share.
pub(crate) struct LaunchCx<'a> {
    pub(crate) prog: &'a Program,
    pub(crate) mem: &'a Memory,
    globals: Vec<Buffer>,
    pub(crate) params: Vec<u8>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) dynamic_shared: usize,
    pub(crate) shared_bytes: usize,
    pub(crate) threads: u32,
    pub(crate) warps_per_block: u32,
    pub(crate) options: Options,
    pub(crate) simd: bool,
}

impl LaunchCx<'_> {
    pub(crate) fn buffer_count(&self) -> usize {
        self.mem.buffers.len() + self.globals.len()
    }

    /// Buffer of an address window, with its number.
    #[inline]
    pub(crate) fn buffer(&self, window: u64) -> Option<(usize, &Buffer)> {
        if window >= GLOBAL_VAR_WINDOW {
            let k = (window - GLOBAL_VAR_WINDOW) as usize;
            return self.globals.get(k).map(|b| (self.mem.buffers.len() + k, b));
        }
        let k = window.checked_sub(FIRST_WINDOW)? as usize;
        self.mem.buffers.get(k).map(|b| (k, b))
    }

    #[inline]
    pub(crate) fn buffer_at(&self, k: usize) -> &Buffer {
        let n = self.mem.buffers.len();
        if k < n { &self.mem.buffers[k] } else { &self.globals[k - n] }
    }

    fn clusters(&self) -> [u32; 3] {
        [0, 1, 2].map(|k| self.grid[k] / self.cluster[k])
    }

    fn gangs(&self) -> u64 {
        if self.options.cooperative { 1 } else { self.clusters().iter().map(|c| u64::from(*c)).product() }
    }

    /// Blocks of a gang with their ranks, cluster by cluster.
    pub(crate) fn gang_blocks(&self, number: u64) -> Vec<([u32; 3], u32)> {
        let count = self.clusters();
        let total: u64 = count.iter().map(|c| u64::from(*c)).product();
        let range = if self.options.cooperative { 0..total } else { number..number + 1 };
        let [cx, cy, cz] = self.cluster;
        let mut out = Vec::new();
        for n in range {
            let x = (n % u64::from(count[0])) as u32;
            let y = (n / u64::from(count[0]) % u64::from(count[1])) as u32;
            let z = (n / u64::from(count[0]) / u64::from(count[1])) as u32;
            for k in 0..cz {
                for j in 0..cy {
                    for i in 0..cx {
                        let rank = i + cx * (j + cy * k);
                        out.push(([x * cx + i, y * cy + j, z * cz + k], rank));
                    }
                }
            }
        }
        out
    }

    /// Value of a special register.
    pub(crate) fn special(&self, s: Special, block: [u32; 3], rank: u32, warp: u32, lane: u32) -> u64 {
        let t = warp * 32 + lane;
        let axis = |v: [u32; 3], k: u8| u64::from(v[usize::from(k)]);
        let tid = [t % self.block[0], t / self.block[0] % self.block[1], t / self.block[0] / self.block[1]];
        let below = (1u64 << lane) - 1;
        let all = u64::from(u32::MAX);
        let blocks: u32 = self.cluster.iter().product();
        match s {
            Special::Tid(k) => axis(tid, k),
            Special::Ntid(k) => axis(self.block, k),
            Special::Ctaid(k) => axis(block, k),
            Special::Nctaid(k) => axis(self.grid, k),
            Special::LaneId => u64::from(lane),
            Special::WarpId => u64::from(warp),
            Special::NwarpId => u64::from(self.warps_per_block),
            Special::LaneMaskEq => 1 << lane,
            Special::LaneMaskLe => below | 1 << lane,
            Special::LaneMaskLt => below,
            Special::LaneMaskGe => all & !below,
            Special::LaneMaskGt => all & !(below | 1 << lane),
            Special::ClusterId(k) => u64::from(block[usize::from(k)] / self.cluster[usize::from(k)]),
            Special::NclusterId(k) => axis(self.clusters(), k),
            Special::ClusterCtaid(k) => u64::from(block[usize::from(k)] % self.cluster[usize::from(k)]),
            Special::ClusterNctaid(k) => axis(self.cluster, k),
            Special::ClusterCtaRank => u64::from(rank),
            Special::ClusterNctaRank => u64::from(blocks),
            Special::IsExplicitCluster => u64::from(blocks > 1),
            Special::DynamicShared => self.dynamic_shared as u64,
            Special::TotalShared => self.shared_bytes as u64,
            Special::SmId => 0,
            Special::NsmId => 1,
            Special::GridId => 1,
            Special::Zero => 0,
        }
    }
}

impl Program {
    /// Runs the kernel on `mem`. Mistakes of the kernel are findings of the report.
    ///
    /// # Errors
    /// A configuration or arguments that cannot be launched.
    pub fn run(&self, mem: &Memory, launch: &Launch) -> Result<Report, LaunchError> {
        let cx = self.prepare(mem, launch)?;
        Ok(match (launch.options.check, launch.options.count) {
            (false, false) => execute::<false, false>(&cx),
            (false, true) => execute::<false, true>(&cx),
            (true, false) => execute::<true, false>(&cx),
            (true, true) => execute::<true, true>(&cx),
        })
    }

    fn prepare<'a>(&'a self, mem: &'a Memory, l: &Launch) -> Result<LaunchCx<'a>, LaunchError> {
        let config = |m: String| Err(LaunchError::Config(m));
        let threads: u64 = l.block.iter().map(|v| u64::from(*v)).product();
        if l.block[0].max(l.block[1]) > 1024 || l.block[2] > 64 || !(1..=MAX_BLOCK).contains(&threads) {
            return config(format!("block {:?} is not 1 to {MAX_BLOCK} threads (at most 64 in z)", l.block));
        }
        if l.grid.contains(&0) || l.grid[1].max(l.grid[2]) > 65535 || l.grid[0] > i32::MAX as u32 {
            return config(format!("grid {:?} is outside [1..2^31, 1..65536, 1..65536]", l.grid));
        }
        if let Some(max) = self.max_threads
            && threads > max
        {
            return config(format!("{threads} threads a block, the kernel allows {max}"));
        }
        if let Some(r) = self.required_block
            && r != l.block.map(u64::from)
        {
            return config(format!("block {:?}, the kernel requires {r:?}", l.block));
        }
        let cluster = match (l.cluster, self.cluster) {
            (Some(a), Some(b)) if a != b => {
                return config(format!("cluster {a:?}, the kernel requires {b:?}"));
            }
            (a, b) => a.or(b).unwrap_or([1; 3]),
        };
        let size: u64 = cluster.iter().map(|v| u64::from(*v)).product();
        if !(1..=MAX_CLUSTER).contains(&size) {
            return config(format!("cluster {cluster:?} is not 1 to {MAX_CLUSTER} blocks"));
        }
        if (0..3).any(|k| !l.grid[k].is_multiple_of(cluster[k])) {
            return config(format!("grid {:?} is not a multiple of cluster {cluster:?}", l.grid));
        }
        let shared_bytes = self.dynamic_base.saturating_add(l.shared);
        if shared_bytes > MAX_SHARED {
            return config(format!("{shared_bytes} bytes of shared memory exceed {MAX_SHARED}"));
        }
        let blocks: u64 = l.grid.iter().map(|v| u64::from(*v)).product();
        if l.options.cooperative && blocks > MAX_RESIDENT {
            return config(format!("{blocks} blocks exceed the {MAX_RESIDENT} that can be resident"));
        }
        let globals = self
            .globals
            .iter()
            .map(|g| Buffer::new(g.name.clone(), &g.bytes, if g.constant { Access::In } else { Access::InOut }))
            .collect();
        Ok(LaunchCx {
            prog: self,
            mem,
            globals,
            params: self.parameter_block(mem, &l.args)?,
            grid: l.grid,
            block: l.block,
            cluster,
            dynamic_shared: l.shared,
            shared_bytes,
            threads: threads as u32,
            warps_per_block: (threads as u32).div_ceil(32),
            options: l.options.clone(),
            simd: mma::detect(),
        })
    }

    fn parameter_block(&self, mem: &Memory, args: &[Arg]) -> Result<Vec<u8>, LaunchError> {
        if args.len() != self.params.len() {
            return Err(LaunchError::ArgumentCount { expected: self.params.len(), given: args.len() });
        }
        let mut block = vec![0; self.param_bytes];
        for (index, (a, p)) in args.iter().zip(&self.params).enumerate() {
            let fail = |message: String| Err(LaunchError::Argument { index, message });
            let bytes = match a {
                Arg::Buffer { id, .. } if id.0 >= mem.buffers.len() => return fail("no such buffer".into()),
                Arg::Buffer { id, offset } => mem.address(*id, *offset).to_le_bytes().to_vec(),
                Arg::U8(v) => vec![*v],
                Arg::U16(v) => v.to_le_bytes().to_vec(),
                Arg::U32(v) => v.to_le_bytes().to_vec(),
                Arg::I32(v) => v.to_le_bytes().to_vec(),
                Arg::U64(v) => v.to_le_bytes().to_vec(),
                Arg::I64(v) => v.to_le_bytes().to_vec(),
                Arg::F32(v) => v.to_le_bytes().to_vec(),
                Arg::F64(v) => v.to_le_bytes().to_vec(),
                Arg::Map(m) => match m.encode() {
                    Ok(raw) => raw.to_vec(),
                    Err(e) => return fail(e),
                },
                Arg::Bytes(b) => b.clone(),
            };
            if bytes.len() as u64 != p.size {
                return fail(format!("`{}` takes {} bytes, {} given", p.name, p.size, bytes.len()));
            }
            block[p.offset as usize..p.offset as usize + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(block)
    }
}

/// What a worker brings home.
struct Harvest {
    findings: Findings,
    tally: Tally,
    output: Vec<(u64, String)>,
    global: GlobalShadow,
    conflict: bool,
    executed: u64,
}

fn work<const CHECK: bool, const COUNT: bool>(cx: &LaunchCx, next: &AtomicU64) -> Harvest {
    let mut gang = Gang::<CHECK, COUNT>::new(cx);
    let mut executed = 0;
    let gangs = cx.gangs();
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= gangs {
            break;
        }
        gang.start(n);
        gang.run();
        executed += gang.warps.iter().map(|w| w.executed).sum::<u64>();
    }
    Harvest {
        findings: gang.findings,
        tally: gang.tally,
        output: gang.output,
        global: gang.global,
        conflict: gang.conflict,
        executed,
    }
}

fn execute<const CHECK: bool, const COUNT: bool>(cx: &LaunchCx) -> Report {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if cx.options.threads == 0 { available } else { cx.options.threads };
    let threads = if cx.prog.ordered_blocks { 1 } else { wanted.min(cx.gangs().min(1 << 16) as usize).max(1) };
    if threads == 1 {
        return report(cx, vec![work::<CHECK, COUNT>(cx, &AtomicU64::new(0))]);
    }
    let snapshot: Vec<_> = if CHECK {
        (0..cx.buffer_count())
            .map(|k| (cx.buffer_at(k).access != Access::In).then(|| cx.buffer_at(k).snapshot()))
            .collect()
    } else {
        Vec::new()
    };
    let next = AtomicU64::new(0);
    let harvests: Vec<Harvest> = std::thread::scope(|s| {
        let handles: Vec<_> = (0..threads).map(|_| s.spawn(|| work::<CHECK, COUNT>(cx, &next))).collect();
        handles
            .into_iter()
            .map(|h| match h.join() {
                Ok(x) => x,
                Err(p) => std::panic::resume_unwind(p),
            })
            .collect()
    });
    // Blocks that race with each other may see each other's writes in any order: such a launch is repeated in block
    // order, so that the report is the same for every number of threads.
    let clash = harvests.iter().any(|h| h.conflict)
        || (0..harvests.len()).any(|a| (0..a).any(|b| harvests[a].global.conflicts(&harvests[b].global)));
    if CHECK && clash {
        for (k, s) in snapshot.iter().enumerate() {
            if let Some(s) = s {
                cx.buffer_at(k).restore(s);
            }
        }
        return report(cx, vec![work::<CHECK, COUNT>(cx, &AtomicU64::new(0))]);
    }
    report(cx, harvests)
}

fn report(cx: &LaunchCx, harvests: Vec<Harvest>) -> Report {
    let mut findings = Findings::default();
    let mut tally = Tally::new(cx.prog.code.len(), cx.buffer_count());
    let mut output = Vec::new();
    let mut executed = 0;
    for h in harvests {
        findings.merge(h.findings);
        tally.merge(&h.tally);
        output.extend(h.output);
        executed += h.executed;
    }
    // Stable: the pieces of one block all come from one worker, in order.
    output.sort_by_key(|o| o.0);
    let mut list: Vec<Finding> = findings
        .0
        .into_iter()
        .map(|((pc, kind), raw)| {
            let block = raw.cta;
            let x = block % u64::from(cx.grid[0]);
            let y = block / u64::from(cx.grid[0]) % u64::from(cx.grid[1]);
            let z = block / u64::from(cx.grid[0]) / u64::from(cx.grid[1]);
            let place = cx.prog.places[pc as usize];
            let other = raw.other.and_then(|p| cx.prog.places.get(p as usize));
            Finding {
                kind,
                severity: kind.severity(),
                ptx_line: place.line,
                source_line: source_line(place.source_line),
                source_file: file(cx, place.file),
                other_ptx_line: other.map(|p| p.line),
                other_source_line: other.and_then(|p| source_line(p.source_line)),
                message: raw.message,
                cta: [x as u32, y as u32, z as u32],
                warp: raw.warp,
                lane: raw.lane,
                count: raw.count,
            }
        })
        .collect();
    if cx.options.count {
        list.extend(performance(cx, &tally));
    }
    list.sort_by_key(|f| (f.severity, f.ptx_line, f.kind));
    let counters = if cx.options.count { counters(cx, &tally) } else { Counters::default() };
    let output = output.into_iter().map(|o| o.1).collect();
    Report { findings: list, counters, output, warp_instructions: executed }
}

fn source_line(n: u32) -> Option<u32> {
    (n != 0).then_some(n)
}

fn file(cx: &LaunchCx, index: u32) -> Option<String> {
    cx.prog.files.iter().find(|f| f.0 == index).map(|f| f.1.clone())
}

/// Findings about memory requests that cost more than their data.
fn performance(cx: &LaunchCx, tally: &Tally) -> Vec<Finding> {
    use crate::check::FindingKind::{BankConflict, Uncoalesced};
    let mut out = Vec::new();
    for (pc, c) in tally.insts.iter().enumerate() {
        let place = cx.prog.places[pc];
        let mut add = |kind: crate::check::FindingKind, message: String, count: u64| {
            out.push(Finding {
                kind,
                severity: kind.severity(),
                ptx_line: place.line,
                source_line: source_line(place.source_line),
                source_file: file(cx, place.file),
                other_ptx_line: None,
                other_source_line: None,
                message,
                cta: [0; 3],
                warp: 0,
                lane: 0,
                count,
            });
        };
        let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        let r = ratio(c.wavefronts, c.ideal_wavefronts);
        if c.wavefronts > 0 && r >= cx.options.bank_conflict_ratio {
            add(BankConflict, format!("{r:.1} times the wavefronts its data needs"), c.shared_requests);
        }
        let r = ratio(c.sectors, c.ideal_sectors);
        if c.sectors > 0 && r >= cx.options.uncoalesced_ratio {
            add(Uncoalesced, format!("{r:.1} times the sectors its data needs"), c.global_requests);
        }
    }
    out
}

fn counters(cx: &LaunchCx, tally: &Tally) -> Counters {
    let mut c = Counters { barriers: tally.barriers, mbarrier_phases: tally.phases, ..Counters::default() };
    c.cluster_barriers = tally.cluster_barriers;
    c.classes = Class::ALL
        .iter()
        .map(|class| ClassCounters { class: *class, warp_instructions: 0, lane_instructions: 0 })
        .collect();
    for (pc, i) in tally.insts.iter().enumerate().filter(|(_, i)| i.executed > 0) {
        c.total.add(i);
        let class = &mut c.classes[cx.prog.code[pc].op.class() as usize];
        class.warp_instructions += i.executed;
        class.lane_instructions += i.lanes;
        let place = cx.prog.places[pc];
        c.lines.push(LineCounters {
            ptx_line: place.line,
            source_line: source_line(place.source_line),
            opcode: cx.prog.opcodes.get(place.opcode as usize).cloned().unwrap_or_default(),
            counters: *i,
        });
    }
    let InstCounters { executed, lanes, divergent, bytes_loaded, bytes_stored, .. } = c.total;
    c.warp_instructions = executed;
    c.lane_instructions = lanes;
    c.divergent_instructions = divergent;
    c.requested_bytes = bytes_loaded + bytes_stored;
    for (k, (read, written, either)) in tally.unique().into_iter().enumerate() {
        c.unique_bytes += either;
        if either > 0 {
            c.buffers.push(BufferTraffic {
                buffer: cx.buffer_at(k).name.clone(),
                unique_read_bytes: read,
                unique_written_bytes: written,
            });
        }
    }
    c
}
