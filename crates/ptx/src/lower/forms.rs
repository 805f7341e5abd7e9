//! What the lowering accepts, by name: the tables that the decoders read and that the list of opcode forms is made of.

use crate::exec::alu;
use crate::exec::regs::Kind;
use crate::syntax::ast::Type;

/// The part of the lowering that decodes a mnemonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Control,
    Call,
    Memory,
    Warp,
    Tensor,
    Asynchronous,
}

/// Every mnemonic that is not arithmetic, with its decoder and the forms it has beside types, spaces, scopes and hints.
pub(super) const MNEMONICS: &[(&str, Family, &[&str])] = &[
    ("bra", Family::Control, &["bra", "bra.uni"]),
    ("brx", Family::Control, &["brx.idx"]),
    ("ret", Family::Control, &["ret"]),
    ("exit", Family::Control, &["exit"]),
    ("trap", Family::Control, &["trap"]),
    ("brkpt", Family::Control, &["brkpt"]),
    (
        "bar",
        Family::Control,
        &["bar.sync", "bar.arrive", "bar.red.popc.u32", "bar.red.and.pred", "bar.red.or.pred", "bar.warp.sync"],
    ),
    (
        "barrier",
        Family::Control,
        &[
            "barrier.sync",
            "barrier.arrive",
            "barrier.red.popc.u32",
            "barrier.red.and.pred",
            "barrier.red.or.pred",
            "barrier.cluster.arrive",
            "barrier.cluster.wait",
        ],
    ),
    (
        "fence",
        Family::Control,
        &["fence", "fence.mbarrier_init", "fence.proxy.async", "fence.proxy.alias", "fence.proxy.tensormap::generic"],
    ),
    ("membar", Family::Control, &["membar"]),
    ("nanosleep", Family::Control, &["nanosleep"]),
    ("griddepcontrol", Family::Control, &["griddepcontrol"]),
    ("setmaxnreg", Family::Control, &["setmaxnreg"]),
    ("pmevent", Family::Control, &["pmevent"]),
    ("call", Family::Call, &["call"]),
    ("ld", Family::Memory, &["ld"]),
    ("ldu", Family::Memory, &["ldu"]),
    ("st", Family::Memory, &["st", "st.async"]),
    ("atom", Family::Memory, &[]),
    ("red", Family::Memory, &[]),
    ("prefetch", Family::Memory, &["prefetch"]),
    ("prefetchu", Family::Memory, &["prefetchu"]),
    ("applypriority", Family::Memory, &["applypriority"]),
    ("discard", Family::Memory, &["discard"]),
    ("createpolicy", Family::Memory, &["createpolicy"]),
    ("cvta", Family::Memory, &["cvta", "cvta.to"]),
    ("isspacep", Family::Memory, &["isspacep"]),
    ("mapa", Family::Memory, &["mapa"]),
    ("getctarank", Family::Memory, &["getctarank"]),
    ("shfl", Family::Warp, &["shfl.sync.up", "shfl.sync.down", "shfl.sync.bfly", "shfl.sync.idx"]),
    ("vote", Family::Warp, &["vote.sync.all", "vote.sync.any", "vote.sync.uni", "vote.sync.ballot"]),
    ("match", Family::Warp, &["match.any.sync", "match.all.sync"]),
    ("activemask", Family::Warp, &["activemask"]),
    (
        "redux",
        Family::Warp,
        &["redux.sync.add", "redux.sync.min", "redux.sync.max", "redux.sync.and", "redux.sync.or", "redux.sync.xor"],
    ),
    ("elect", Family::Warp, &["elect.sync"]),
    ("ldmatrix", Family::Tensor, &["ldmatrix"]),
    ("stmatrix", Family::Tensor, &["stmatrix"]),
    ("movmatrix", Family::Tensor, &["movmatrix"]),
    ("mma", Family::Tensor, &["mma.sync"]),
    ("wmma", Family::Tensor, &["wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.store.d", "wmma.mma"]),
    ("wgmma", Family::Tensor, &["wgmma.mma_async", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group"]),
    (
        "cp",
        Family::Asynchronous,
        &[
            "cp.async",
            "cp.async.commit_group",
            "cp.async.wait_group",
            "cp.async.wait_all",
            "cp.async.mbarrier.arrive",
            "cp.async.bulk.shared::cluster.global",
            "cp.async.bulk.shared::cluster.shared::cta",
            "cp.async.bulk.global.shared::cta",
            "cp.async.bulk.commit_group",
            "cp.async.bulk.wait_group",
            "cp.async.bulk.prefetch",
            "cp.async.bulk.tensor.shared::cluster.global",
            "cp.async.bulk.tensor.global.shared::cta",
            "cp.async.bulk.prefetch.tensor",
        ],
    ),
    (
        "mbarrier",
        Family::Asynchronous,
        &[
            "mbarrier.init",
            "mbarrier.inval",
            "mbarrier.arrive",
            "mbarrier.arrive.expect_tx",
            "mbarrier.arrive.noComplete",
            "mbarrier.arrive_drop",
            "mbarrier.arrive_drop.expect_tx",
            "mbarrier.arrive_drop.noComplete",
            "mbarrier.expect_tx",
            "mbarrier.complete_tx",
            "mbarrier.test_wait",
            "mbarrier.try_wait",
            "mbarrier.pending_count",
        ],
    ),
];

/// Operations of `atom` and `red`, in the order of the decoded selector.
pub(super) const ATOMICS: [&str; 10] = ["add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"];

/// Reductions of bulk copies, in the order of the decoded selector.
pub(super) const REDUCTIONS: [&str; 8] = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];

/// Types of an atomic operation.
pub(super) fn atomic_types(name: &str) -> &'static [Type] {
    use Type::{B16, B32, B64, BF16, BF16x2, F16, F16x2, F32, F64, S32, S64, U32, U64};
    match name {
        "add" => &[U32, S32, U64, F16, F16x2, BF16, BF16x2, F32, F64],
        "min" | "max" => &[U32, S32, U64, S64],
        "inc" | "dec" => &[U32],
        "and" | "or" | "xor" => &[B32, B64],
        _ => &[B16, B32, B64],
    }
}

/// Types of `red.async`.
pub(super) fn reduce_async_types(name: &str) -> &'static [Type] {
    use Type::{B32, S32, U32, U64};
    match name {
        "add" => &[U32, S32, U64],
        "min" | "max" => &[U32, S32],
        "inc" | "dec" => &[U32],
        "and" | "or" | "xor" => &[B32],
        _ => &[],
    }
}

/// Types of a reduction by `cp.reduce.async.bulk`.
pub(super) fn reduction_types(name: &str) -> &'static [Type] {
    use Type::{B32, B64, BF16, F16, F32, F64, S32, S64, U32, U64};
    match name {
        "add" => &[U32, S32, U64, F16, BF16, F32, F64],
        "min" | "max" => &[U32, S32, U64, S64, F16, BF16],
        "inc" | "dec" => &[U32],
        _ => &[B32, B64],
    }
}

/// One form of an opcode that kernels may use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpcodeForm {
    /// The opcode; of memory and synchronisation operations without state space, scope, ordering, vector and hints.
    pub text: String,
    /// Register classes of destination and sources when the form is a function of each lane alone: `h` 16 bits, `r` 32
    /// bits, `d` 64 bits, `p` predicate. Empty for everything else.
    pub operands: String,
}

/// Every opcode form that [`crate::Program::load`] accepts, sorted.
pub fn opcode_forms() -> Vec<OpcodeForm> {
    let mut out = Vec::new();
    let mut add = |text: String, operands: String| out.push(OpcodeForm { text, operands });
    let class = |k: Kind| match k {
        Kind::B16 => 'h',
        Kind::B32 | Kind::F32 => 'r',
        Kind::B64 | Kind::F64 => 'd',
    };
    for op in alu::opcodes() {
        if let Some(f) = alu::lookup(op)
            && (!op.starts_with("cvt") || op.starts_with("cvt.pack"))
        {
            add(op.into(), std::iter::once(f.dst).chain(f.src.iter().copied()).map(class).collect());
        }
    }
    for (op, operands) in [("lop3.b32", "rrrr"), ("bfi.b32", "rrrrr"), ("bfi.b64", "dddrr")] {
        add(op.into(), operands.into());
    }
    for (op, kind) in alu::test_properties() {
        add(op, ['p', class(kind)].iter().collect());
    }
    for (cmp, ty, kind) in alu::comparisons() {
        add(format!("setp.{cmp}.{ty}"), ['p', class(kind), class(kind)].iter().collect());
        for dst in ["u32", "s32", "f32"] {
            add(format!("set.{cmp}.{dst}.{ty}"), ['r', class(kind), class(kind)].iter().collect());
        }
    }
    for (op, classes) in alu::conversions() {
        add(op, classes);
    }
    for ty in ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"] {
        let c = match &ty[1..] {
            "16" => 'h',
            "32" => 'r',
            _ => 'd',
        };
        add(format!("selp.{ty}"), [c, c, c, 'p'].iter().collect());
    }
    for op in ["mov.b128", "ld.b128", "st.b128"] {
        add(op.into(), String::new());
    }
    for op in ["and.pred", "or.pred", "xor.pred"] {
        add(op.into(), "ppp".into());
    }
    for op in ["not.pred", "mov.pred"] {
        add(op.into(), "pp".into());
    }
    for ty in ["u32", "s32", "u64", "s64"] {
        for op in ["add.cc", "addc", "addc.cc", "sub.cc", "subc", "subc.cc", "mad.lo.cc", "madc.lo", "madc.lo.cc"] {
            add(format!("{op}.{ty}"), String::new());
        }
        if ty.starts_with('u') {
            for op in ["mad.hi.cc", "madc.hi", "madc.hi.cc"] {
                add(format!("{op}.{ty}"), String::new());
            }
        }
    }
    for name in ATOMICS {
        for ty in atomic_types(name) {
            add(format!("atom.{name}.{}", ty.name()), String::new());
            if !matches!(name, "exch" | "cas") {
                add(format!("red.{name}.{}", ty.name()), String::new());
            }
        }
    }
    for name in ATOMICS {
        for ty in reduce_async_types(name) {
            add(format!("red.async.{name}.{}", ty.name()), String::new());
        }
    }
    for name in REDUCTIONS {
        for ty in reduction_types(name) {
            add(format!("cp.reduce.async.bulk.{name}.{}", ty.name()), String::new());
        }
        add(format!("cp.reduce.async.bulk.tensor.{name}"), String::new());
    }
    for (_, _, forms) in MNEMONICS {
        forms.iter().for_each(|f| add((*f).into(), String::new()));
    }
    out.sort();
    out.dedup();
    out
}
