//! Instructions of a tape.

use super::elements::{Out, Ref};
use super::map::Program;
use super::view::View;
use crate::kernels::conv::Taps;
use crate::kernels::delta;
use crate::kernels::gemm::PackedB;
use spinec_ir::interp::Observer;
use spinec_ir::ir::Func;
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::DType;
use std::sync::Arc;

/// One instruction. Operands are dense unless its code says otherwise.
#[derive(Debug)]
pub(super) struct Instr {
    pub code: Code,
    pub ins: Vec<Ref>,
    pub outs: Vec<Out>,
    /// The launch of a plan it belongs to; only instructions of one launch become one. `None` belongs to any.
    pub launch: Option<u32>,
}

/// Whether instructions of these launches may become one.
pub(super) fn together(a: Option<u32>, b: Option<u32>) -> bool {
    a.is_none() || b.is_none() || a == b
}

/// One element of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateRef {
    pub state: usize,
    pub element: usize,
}

/// A packed matrix in the type it is multiplied in.
#[derive(Clone, Debug)]
pub(super) enum Packed {
    F32(Arc<PackedB<f32>>),
    F64(Arc<PackedB<f64>>),
}

/// A batch of products of row vectors: `y[b, m, n] = sum_k x[b, m, k] w[b, n, k]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batched {
    pub batch: usize,
    pub rows: usize,
    pub columns: usize,
    pub width: usize,
}

/// Any number of times `extent` times `inner` elements, an axis in the middle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    pub extent: usize,
    pub inner: usize,
}

/// Rows of a call: requests, rows of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub n: usize,
    pub t: usize,
}

/// What an instruction does. `wide` is true where it computes in f64.
#[derive(Debug)]
pub(super) enum Code {
    Map(Program),
    /// Copies a view to a view of the result: extents, distances in the operand, distances in the result.
    Copy {
        axes: Vec<(usize, [usize; 2])>,
        to: usize,
    },
    /// Rows `index` of a table [extent, inner] for every `outer`; indices are clamped.
    Take {
        lanes: Lanes,
        per_outer: usize,
    },
    /// Rows of a bf16 table.
    TakeBf16 {
        table: Arc<Vec<u16>>,
        lanes: Lanes,
    },
    /// Row i of the result is row i - by of the operand.
    Shift {
        lanes: Lanes,
        by: i64,
        fill: f64,
    },
    OneHot {
        n: usize,
    },
    ScatterAdd {
        wide: bool,
        extent: usize,
        updates: usize,
    },
    Sort {
        width: usize,
    },
    /// A reduction of rows of `width` elements.
    Reduce {
        wide: bool,
        code: Opcode,
        width: usize,
    },
    /// The same on integers.
    ReduceInts {
        code: Opcode,
        width: usize,
    },
    /// 1 for each row whose elements all are finite, else 0.
    AllFinite {
        width: usize,
    },
    /// Running sums or products of rows.
    Running {
        product: bool,
        width: usize,
    },
    Argmax {
        width: usize,
    },
    /// Values and indices.
    TopK {
        k: usize,
        width: usize,
    },
    /// Indices of the `k` best in ascending order.
    TopSet {
        k: usize,
        width: usize,
    },
    Softmax {
        wide: bool,
        width: usize,
    },
    /// One result a weight; rows of the operand begin `stride` apart.
    Linear {
        weights: Vec<Packed>,
        rows: usize,
        stride: usize,
    },
    Batched {
        wide: bool,
        sizes: Batched,
    },
    /// The same where rows of a bf16 table, named by indices, are the operand `side`: 0 for x, 1 for w.
    BatchedTake {
        sizes: Batched,
        table: Arc<Vec<u16>>,
        lanes: Lanes,
        side: usize,
    },
    /// Sum of products by any axes: extents and distances in the operands of kept, then of summed axes.
    Einsum {
        wide: bool,
        kept: Vec<(usize, [usize; 2])>,
        summed: Vec<(usize, [usize; 2])>,
    },
    RmsNorm {
        wide: bool,
        width: usize,
        eps: f64,
    },
    L2Norm {
        wide: bool,
        width: usize,
        eps: f64,
    },
    /// Cosines and sines of positions times frequencies.
    Angles {
        wide: bool,
        frequencies: Vec<f64>,
    },
    Rope {
        wide: bool,
        heads: usize,
        width: usize,
        half: usize,
    },
    Coin {
        purpose: u32,
        each: usize,
    },
    SamplingLaw {
        wide: bool,
        width: usize,
        rows: usize,
    },
    Draw {
        wide: bool,
        width: usize,
    },
    QuantizeRows {
        width: usize,
    },
    /// Makes a state element ready for this run.
    Open {
        at: StateRef,
    },
    Attention(Attention),
    KvWrite {
        at: StateRef,
        block: Block,
        wide: bool,
        ragged: bool,
    },
    Conv {
        at: StateRef,
        block: Block,
        wide: bool,
        ragged: bool,
        channels: usize,
        taps: Option<Arc<TapsOf>>,
        exact: bool,
    },
    Delta {
        at: StateRef,
        block: Block,
        wide: bool,
        ragged: bool,
        shape: delta::Shape,
    },
    /// The second operand where the first is true, elsewhere what a tape makes from the others. The tape runs only if some
    /// element of the first operand is false.
    Guarded(Box<Guarded>),
    /// Tells the observer.
    Report {
        path: String,
        dtype: DType,
        view: View,
    },
    /// Any op, as the reference evaluates it.
    Reference(Box<Reference>),
    /// Nothing; another instruction does it.
    Gone,
}

/// Filter taps in the type they are applied in.
#[derive(Debug)]
pub(super) enum TapsOf {
    F32(Taps<f32>),
    F64(Taps<f64>),
}

/// Attention over a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention {
    pub at: StateRef,
    pub block: Block,
    pub wide: bool,
    pub ragged: bool,
    pub query_heads: usize,
    pub heads: usize,
    pub width: usize,
    pub causal: bool,
    pub window: u32,
    pub scale: f64,
}

/// A choice between two values of one dtype.
#[derive(Debug)]
pub(super) struct Guarded {
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// Makes the second value, which is its only output.
    pub slow: Tape,
}

/// A function of one op.
#[derive(Debug)]
pub(super) struct Reference {
    pub func: Func,
    pub operands: Vec<(DType, Vec<usize>)>,
    pub results: Vec<DType>,
}

/// A tensor a tape hands out.
#[derive(Debug)]
pub(super) struct Output {
    pub dtype: DType,
    pub view: View,
    pub elements: Ref,
}

/// A function for one set of input shapes.
#[derive(Debug)]
pub(super) struct Tape {
    /// Dtype, shape and buffer of each input.
    pub inputs: Vec<(DType, Vec<usize>, Out)>,
    pub requests: usize,
    pub instrs: Vec<Instr>,
    pub outputs: Vec<Output>,
    pub sizes: super::elements::SlotSizes,
}

impl Tape {
    /// True if the tape is for these inputs.
    pub fn fits(&self, inputs: &[&Tensor], requests: usize) -> bool {
        self.requests == requests
            && self.inputs.len() == inputs.len()
            && self.inputs.iter().zip(inputs).all(|((dtype, shape, _), t)| *dtype == t.dtype && *shape == t.shape)
    }
}

/// An observer, if there is one.
pub(super) type Watch<'a> = Option<&'a mut dyn Observer>;
