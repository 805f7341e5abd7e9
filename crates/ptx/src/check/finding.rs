//! Findings: what a run did wrong, where, and how often.

use serde::Serialize;
use std::collections::BTreeMap;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The kernel is wrong.
    Error,
    /// The kernel is slow.
    Performance,
}

/// What kind of mistake a finding is. Names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Access outside a buffer, shared memory, local frame or parameters, or through an address of nothing.
    OutOfBounds,
    /// Address not a multiple of the access size.
    Misaligned,
    /// Write to a buffer given as input, to constants or parameters.
    ReadOnly,
    /// Read of bytes that nothing wrote.
    Uninitialised,
    /// Access to bytes of an asynchronous copy that is not known to have completed.
    InFlight,
    /// Two unordered accesses to shared memory, one a write.
    SharedRace,
    /// Two unordered accesses to global memory, one a write.
    GlobalRace,
    /// Lanes of one store write different values to one place.
    LaneConflict,
    /// Lanes of a warp at different barriers, or only some of them at one.
    DivergentBarrier,
    /// Wrong thread count or participants of a barrier.
    BarrierMisuse,
    /// Nothing can proceed.
    Deadlock,
    /// Everything spins and nothing changes.
    Livelock,
    /// Generic writes read through the asynchronous proxy without a proxy fence.
    MissingProxyFence,
    /// Operation on something that is not an initialised mbarrier, or a count out of range.
    MbarrierMisuse,
    /// Bytes of asynchronous copies do not match the expected count.
    TxCount,
    /// Member mask of a `.sync` operation does not match the lanes that execute it.
    MemberMask,
    /// A shuffle reads a lane that does not take part.
    InactiveLane,
    /// Tensor-core operands: descriptor, alignment or ordering.
    TensorOperand,
    /// `trap` or a failed assertion.
    Trap,
    /// The instruction budget ran out.
    Budget,
    /// More shared-memory wavefronts than the data needs.
    BankConflict,
    /// More global sectors than the data needs.
    Uncoalesced,
}

impl FindingKind {
    /// Stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfBounds => "out_of_bounds",
            Self::Misaligned => "misaligned",
            Self::ReadOnly => "read_only",
            Self::Uninitialised => "uninitialised",
            Self::InFlight => "in_flight",
            Self::SharedRace => "shared_race",
            Self::GlobalRace => "global_race",
            Self::LaneConflict => "lane_conflict",
            Self::DivergentBarrier => "divergent_barrier",
            Self::BarrierMisuse => "barrier_misuse",
            Self::Deadlock => "deadlock",
            Self::Livelock => "livelock",
            Self::MissingProxyFence => "missing_proxy_fence",
            Self::MbarrierMisuse => "mbarrier_misuse",
            Self::TxCount => "tx_count",
            Self::MemberMask => "member_mask",
            Self::InactiveLane => "inactive_lane",
            Self::TensorOperand => "tensor_operand",
            Self::Trap => "trap",
            Self::Budget => "budget",
            Self::BankConflict => "bank_conflict",
            Self::Uncoalesced => "uncoalesced",
        }
    }

    /// Whether the kernel is wrong or only slow.
    pub fn severity(self) -> Severity {
        match self {
            Self::BankConflict | Self::Uncoalesced => Severity::Performance,
            _ => Severity::Error,
        }
    }
}

/// One kind of mistake at one instruction, with its first occurrence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// Error or performance.
    pub severity: Severity,
    /// Line of the instruction in the PTX text, from 1.
    pub ptx_line: u32,
    /// Line of the source, when the PTX has `.loc`.
    pub source_line: Option<u32>,
    /// File of the source line.
    pub source_file: Option<String>,
    /// Line of the other access of a race.
    pub other_ptx_line: Option<u32>,
    /// Source line of the other access of a race.
    pub other_source_line: Option<u32>,
    /// What happened, in words.
    pub message: String,
    /// Block of the first occurrence.
    pub cta: [u32; 3],
    /// Warp of the first occurrence within its block.
    pub warp: u32,
    /// Lane of the first occurrence.
    pub lane: u32,
    /// Occurrences.
    pub count: u64,
}

/// An occurrence before its lines are known.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) message: String,
    pub(crate) cta: u64,
    pub(crate) warp: u32,
    pub(crate) lane: u32,
    pub(crate) other: Option<u32>,
    pub(crate) count: u64,
}

/// Findings by kind and instruction. Merging is independent of order: the lowest block's occurrence is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(pub(crate) BTreeMap<(u32, FindingKind), Raw>);

impl Findings {
    /// Records an occurrence; the message is only built for the first in its block order.
    pub(crate) fn add(&mut self, pc: u32, kind: FindingKind, raw: impl FnOnce() -> Raw, cta: u64) {
        match self.0.entry((pc, kind)) {
            std::collections::btree_map::Entry::Vacant(v) => {
                v.insert(raw());
            }
            std::collections::btree_map::Entry::Occupied(mut o) => {
                let count = o.get().count + 1;
                if cta < o.get().cta {
                    o.insert(raw());
                }
                o.get_mut().count = count;
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (k, raw) in other.0 {
            match self.0.entry(k) {
                std::collections::btree_map::Entry::Vacant(v) => {
                    v.insert(raw);
                }
                std::collections::btree_map::Entry::Occupied(mut o) => {
                    let count = o.get().count + raw.count;
                    if raw.cta < o.get().cta {
                        o.insert(raw);
                    }
                    o.get_mut().count = count;
                }
            }
        }
    }
}
