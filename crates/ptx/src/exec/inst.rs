//! The decoded form of an instruction.

use super::regs::{AluFn, Bank, Regs};

/// No register.
pub(crate) const NONE: u32 = u32::MAX;

/// State space of an access after decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Const,
    /// Shared memory of the own CTA or, with rank bits, of another CTA of the cluster.
    Shared,
    Local,
    Param,
}

/// What an instruction does, apart from lane functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Calls `alu`.
    Alu,
    /// A `cvt` from the program's table.
    Convert,
    Nop,
    Bra,
    Brx,
    Exit,
    Trap,
    Ld,
    St,
    LdParam,
    Atom,
    /// `bar.sync`, `barrier.sync`.
    Bar,
    BarArrive,
    BarRed,
    BarWarp,
    ClusterArrive,
    ClusterWait,
    Fence,
    ProxyFence,
    Shfl,
    Vote,
    ActiveMask,
    Match,
    Redux,
    Elect,
    LdMatrix,
    StMatrix,
    MoveMatrix,
    Mma,
    WmmaLoad,
    WmmaStore,
    WmmaMma,
    WgmmaFence,
    WgmmaMma,
    WgmmaCommit,
    WgmmaWait,
    CpAsync,
    CpCommit,
    CpWait,
    CpMbarArrive,
    BulkLoad,
    BulkStore,
    BulkReduce,
    BulkShared,
    TmaLoad,
    TmaStore,
    BulkPrefetch,
    BulkCommit,
    BulkWait,
    MbarInit,
    MbarInval,
    MbarArrive,
    MbarExpect,
    MbarComplete,
    MbarWait,
    MbarPending,
    StAsync,
    RedAsync,
    Nanosleep,
    Clock,
    Printf,
    AssertFail,
    GridDep,
    SetMaxNReg,
    IsSpace,
}

impl Op {
    /// Class used by the instruction counters.
    pub(crate) fn class(self) -> Class {
        use Op::*;
        match self {
            Alu | Convert | Nop | Clock | LdParam | IsSpace | SetMaxNReg => Class::Arithmetic,
            Bra | Brx | Exit | Trap | Printf | AssertFail | Nanosleep | GridDep => Class::Control,
            Ld | St | StAsync => Class::Memory,
            Atom | RedAsync => Class::Atomic,
            Bar | BarArrive | BarRed | BarWarp | ClusterArrive | ClusterWait | Fence | ProxyFence => Class::Sync,
            MbarInit | MbarInval | MbarArrive | MbarExpect | MbarComplete | MbarWait | MbarPending => Class::Sync,
            Shfl | Vote | ActiveMask | Match | Redux | Elect | MoveMatrix => Class::Warp,
            LdMatrix | StMatrix | WmmaLoad | WmmaStore => Class::Memory,
            Mma | WmmaMma | WgmmaFence | WgmmaMma | WgmmaCommit | WgmmaWait => Class::Tensor,
            CpAsync | CpCommit | CpWait | CpMbarArrive | BulkLoad | BulkStore | BulkReduce | BulkShared => Class::Async,
            TmaLoad | TmaStore | BulkPrefetch | BulkCommit | BulkWait => Class::Async,
        }
    }
}

/// Instruction classes of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Integer, floating-point, conversion and moves.
    Arithmetic,
    /// Branches, exits, traps.
    Control,
    /// Loads, stores, matrix loads and stores.
    Memory,
    /// Atomics and reductions.
    Atomic,
    /// Barriers, mbarriers, fences.
    Sync,
    /// Shuffles, votes, warp reductions.
    Warp,
    /// Tensor-core operations.
    Tensor,
    /// Asynchronous copies.
    Async,
}

impl Class {
    /// All classes, in order.
    pub const ALL: [Class; 8] = [
        Class::Arithmetic,
        Class::Control,
        Class::Memory,
        Class::Atomic,
        Class::Sync,
        Class::Warp,
        Class::Tensor,
        Class::Async,
    ];

    /// Name as in JSON.
    pub fn name(self) -> &'static str {
        ["arithmetic", "control", "memory", "atomic", "sync", "warp", "tensor", "async"][self as usize]
    }
}

/// One decoded instruction. Register fields index the bank that the operation implies.
#[derive(Clone, Copy)]
pub(crate) struct Inst {
    pub(crate) alu: AluFn,
    pub(crate) op: Op,
    /// Guard predicate or [`NONE`].
    pub(crate) guard: u32,
    /// All ones when the guard is negated.
    pub(crate) guard_flip: u32,
    pub(crate) d: u32,
    pub(crate) d2: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    pub(crate) e: u32,
    pub(crate) imm: i64,
    /// Address or second offset.
    pub(crate) imm2: i64,
    /// Element bytes.
    pub(crate) size: u8,
    /// Elements of a vector access, matrices of ldmatrix, groups of others.
    pub(crate) count: u8,
    pub(crate) space: Space,
    /// Operation-specific selector.
    pub(crate) sel: u8,
    /// Operation-specific flags.
    pub(crate) flags: u16,
    /// Range of the operand pool; the first `defs` entries are written.
    pub(crate) ext: u32,
    pub(crate) ext_len: u16,
    pub(crate) defs: u16,
    /// Branch target.
    pub(crate) target: u32,
    /// Whether the register in the field is 64 bits wide, where the operation allows both.
    pub(crate) wide: Wide,
}

/// Width of the registers in operand fields that may be of either bank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wide {
    pub(crate) d: bool,
    pub(crate) a: bool,
    pub(crate) b: bool,
    pub(crate) c: bool,
    pub(crate) e: bool,
    pub(crate) ext: bool,
}

/// Flag bits of memory operations.
pub(crate) mod flag {
    /// Sign-extend a loaded value.
    pub(crate) const SIGNED: u16 = 1;
    /// Acquire ordering.
    pub(crate) const ACQUIRE: u16 = 2;
    /// Release ordering.
    pub(crate) const RELEASE: u16 = 4;
    /// `.relaxed`, `.volatile`, `.acquire`, `.release`: no data race with other strong accesses.
    pub(crate) const STRONG: u16 = 8;
    /// Scope no wider than the CTA.
    pub(crate) const CTA_SCOPE: u16 = 16;
    /// Transposed matrices.
    pub(crate) const TRANS: u16 = 32;
    /// `.noinc`.
    pub(crate) const NOINC: u16 = 128;
    /// Multicast operand present.
    pub(crate) const MULTICAST: u16 = 256;
    /// `.read` of a bulk wait, `.test` of a wait.
    pub(crate) const READ: u16 = 512;
    /// Predicate operand is negated.
    pub(crate) const NEG: u16 = 1024;
    /// Parity form of an mbarrier wait.
    pub(crate) const PARITY: u16 = 2048;
    /// An arrival that must leave the phase incomplete.
    pub(crate) const NOCOMPLETE: u16 = 64;
    /// An arrival that also lowers the count of later phases.
    pub(crate) const DROP: u16 = 4096;
    /// Reduction without result.
    pub(crate) const NORESULT: u16 = 8192;
}

fn nothing(_: &mut Regs, _: &Inst, _: u32) {}

impl Inst {
    pub(crate) fn new(op: Op) -> Self {
        Self {
            alu: nothing,
            op,
            guard: NONE,
            guard_flip: 0,
            d: NONE,
            d2: NONE,
            a: NONE,
            b: NONE,
            c: NONE,
            e: NONE,
            imm: 0,
            imm2: 0,
            size: 4,
            count: 1,
            space: Space::Generic,
            sel: 0,
            flags: 0,
            ext: 0,
            ext_len: 0,
            defs: 0,
            target: 0,
            wide: Wide::default(),
        }
    }

    pub(crate) fn has(&self, bits: u16) -> bool {
        self.flags & bits != 0
    }
}

/// Bank bits of a register id during decoding; removed when registers get their final place.
const BANK_SHIFT: u32 = 30;

/// A register id that carries its bank.
pub(crate) fn tag(bank: Bank, index: u32) -> u32 {
    index | (bank as u32) << BANK_SHIFT
}

/// Bank and index of a tagged id.
pub(crate) fn untag(id: u32) -> (Bank, u32) {
    let bank = match id >> BANK_SHIFT {
        0 => Bank::R,
        1 => Bank::D,
        _ => Bank::P,
    };
    (bank, id & ((1 << BANK_SHIFT) - 1))
}
