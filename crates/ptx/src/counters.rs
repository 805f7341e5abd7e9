//! Traffic and instruction counters of a launch.

use crate::exec::inst::Class;
use serde::Serialize;

/// Bytes of one global memory sector.
pub const SECTOR: u64 = 32;

/// Counters of one instruction over a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InstCounters {
    /// Times a warp executed it with at least one lane.
    pub executed: u64,
    /// Lanes that executed it, summed.
    pub lanes: u64,
    /// Executions with fewer lanes than the warp has alive.
    pub divergent: u64,
    /// Global memory requests.
    pub global_requests: u64,
    /// 32-byte sectors those requests touch.
    pub sectors: u64,
    /// Sectors that the same bytes would fill if packed.
    pub ideal_sectors: u64,
    /// Bytes read from global memory.
    pub bytes_loaded: u64,
    /// Bytes written to global memory.
    pub bytes_stored: u64,
    /// Shared memory requests.
    pub shared_requests: u64,
    /// Wavefronts those requests take.
    pub wavefronts: u64,
    /// Wavefronts the same words would take without conflicts.
    pub ideal_wavefronts: u64,
    /// Floating-point (or integer) operations on tensor cores.
    pub tensor_ops: u64,
}

impl InstCounters {
    pub(crate) fn add(&mut self, o: &Self) {
        let Self {
            executed,
            lanes,
            divergent,
            global_requests,
            sectors,
            ideal_sectors,
            bytes_loaded,
            bytes_stored,
            shared_requests,
            wavefronts,
            ideal_wavefronts,
            tensor_ops,
        } = o;
        self.executed += executed;
        self.lanes += lanes;
        self.divergent += divergent;
        self.global_requests += global_requests;
        self.sectors += sectors;
        self.ideal_sectors += ideal_sectors;
        self.bytes_loaded += bytes_loaded;
        self.bytes_stored += bytes_stored;
        self.shared_requests += shared_requests;
        self.wavefronts += wavefronts;
        self.ideal_wavefronts += ideal_wavefronts;
        self.tensor_ops += tensor_ops;
    }
}

/// Counters of one place in the text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineCounters {
    /// PTX line.
    pub ptx_line: u32,
    /// Source line, when known.
    pub source_line: Option<u32>,
    /// Opcode with modifiers.
    pub opcode: String,
    /// Its counters.
    #[serde(flatten)]
    pub counters: InstCounters,
}

/// Instructions of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassCounters {
    /// The class.
    pub class: Class,
    /// Warp-level executions.
    pub warp_instructions: u64,
    /// Lane-level executions.
    pub lane_instructions: u64,
}

/// Bytes of one buffer touched by a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BufferTraffic {
    /// Name.
    pub buffer: String,
    /// Distinct bytes read, in whole sectors.
    pub unique_read_bytes: u64,
    /// Distinct bytes written, in whole sectors.
    pub unique_written_bytes: u64,
}

/// Counters of a launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counters {
    /// Warp-level instructions.
    pub warp_instructions: u64,
    /// Lane-level instructions.
    pub lane_instructions: u64,
    /// Executions with fewer lanes than the warp has alive.
    pub divergent_instructions: u64,
    /// Sums over all instructions.
    pub total: InstCounters,
    /// Global bytes requested: loaded plus stored.
    pub requested_bytes: u64,
    /// Distinct global bytes, in whole sectors: what an ideal second-level cache would move.
    pub unique_bytes: u64,
    /// CTA barriers completed.
    pub barriers: u64,
    /// mbarrier phases completed.
    pub mbarrier_phases: u64,
    /// Cluster barriers completed.
    pub cluster_barriers: u64,
    /// Instructions by class.
    pub classes: Vec<ClassCounters>,
    /// Traffic by buffer.
    pub buffers: Vec<BufferTraffic>,
    /// Every executed instruction, in the order of the text.
    pub lines: Vec<LineCounters>,
}

/// Bits of the sectors of one buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct SectorSet(Vec<u64>);

impl SectorSet {
    #[inline]
    pub(crate) fn insert(&mut self, sector: u64) {
        let k = (sector / 64) as usize;
        if self.0.len() <= k {
            self.0.resize(k + 1, 0);
        }
        self.0[k] |= 1 << (sector % 64);
    }

    fn merge(&mut self, o: &Self) {
        if self.0.len() < o.0.len() {
            self.0.resize(o.0.len(), 0);
        }
        self.0.iter_mut().zip(&o.0).for_each(|(a, b)| *a |= b);
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|w| u64::from(w.count_ones())).sum()
    }

    fn union_count(&self, o: &Self) -> u64 {
        let mut u = self.clone();
        u.merge(o);
        u.count()
    }
}

/// Counters as one worker gathers them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) insts: Vec<InstCounters>,
    pub(crate) read: Vec<SectorSet>,
    pub(crate) written: Vec<SectorSet>,
    pub(crate) barriers: u64,
    pub(crate) phases: u64,
    pub(crate) cluster_barriers: u64,
}

impl Tally {
    pub(crate) fn new(code: usize, buffers: usize) -> Self {
        Self {
            insts: vec![InstCounters::default(); code],
            read: vec![SectorSet::default(); buffers],
            written: vec![SectorSet::default(); buffers],
            ..Self::default()
        }
    }

    pub(crate) fn merge(&mut self, o: &Self) {
        self.insts.iter_mut().zip(&o.insts).for_each(|(a, b)| a.add(b));
        self.read.iter_mut().zip(&o.read).for_each(|(a, b)| a.merge(b));
        self.written.iter_mut().zip(&o.written).for_each(|(a, b)| a.merge(b));
        self.barriers += o.barriers;
        self.phases += o.phases;
        self.cluster_barriers += o.cluster_barriers;
    }

    /// Distinct bytes per buffer: read, written, either.
    pub(crate) fn unique(&self) -> Vec<(u64, u64, u64)> {
        let pairs = self.read.iter().zip(&self.written);
        pairs.map(|(r, w)| (r.count() * SECTOR, w.count() * SECTOR, r.union_count(w) * SECTOR)).collect()
    }
}
