//! The registry's rows.

/// When an op may be moved, repeated or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A function of its operands.
    Pure,
    /// Reads a version of a state.
    ReadsState,
    /// Consumes a version of a state and produces the next.
    AdvancesState,
}

/// How results may differ between correct implementations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumericsClass {
    /// Bit-exact: integers, data movement, comparisons.
    Exact,
    /// Correctly rounded or a fixed sequence of such operations per element.
    Elementwise,
    /// A sum or product over many elements: the order is the implementation's, but fixed per element.
    Reducing,
}

/// Kind of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AttrKind {
    Int,
    Float,
    Bool,
    Str,
    Dim,
    Dims,
    Ints,
    DType,
    Keeps,
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub struct OperandDef {
    /// Name, also the keyword in specs.
    pub name: &'static str,
    /// May be missing (only trailing operands may).
    pub optional: bool,
    /// Stands for any number of operands (only the last may).
    pub variadic: bool,
}

/// An attribute.
#[derive(Clone, Copy, Debug)]
pub struct AttrDef {
    /// Name, also the keyword in specs.
    pub name: &'static str,
    /// Kind.
    pub kind: AttrKind,
    /// Value used when a spec leaves it out, in spec syntax; `None` means it must be given.
    pub default: Option<&'static str>,
}

/// A row of the registry.
#[derive(Clone, Copy, Debug)]
pub struct OpDef {
    /// The opcode.
    pub code: Opcode,
    /// Name in specs and in text form.
    pub name: &'static str,
    /// Operands.
    pub operands: &'static [OperandDef],
    /// Attributes.
    pub attrs: &'static [AttrDef],
    /// Result names; one result is written without its name.
    pub results: &'static [&'static str],
    /// Effect.
    pub effect: Effect,
    /// Numerics class.
    pub numerics: NumericsClass,
    /// True if it maps elements one to one: its result inside an expression is not rounded to the storage dtype.
    pub elementwise: bool,
    /// False for ops that only lowering makes.
    pub callable: bool,
    /// One paragraph for the language reference.
    pub doc: &'static str,
}

const fn operand(name: &'static str) -> OperandDef {
    OperandDef { name, optional: false, variadic: false }
}

const fn optional(name: &'static str) -> OperandDef {
    OperandDef { name, optional: true, variadic: false }
}

const fn variadic(name: &'static str) -> OperandDef {
    OperandDef { name, optional: false, variadic: true }
}

const fn attr(name: &'static str, kind: AttrKind) -> AttrDef {
    AttrDef { name, kind, default: None }
}

const fn attr_or(name: &'static str, kind: AttrKind, default: &'static str) -> AttrDef {
    AttrDef { name, kind, default: Some(default) }
}

macro_rules! ops {
    ($($code:ident $name:literal ($($operand:expr),*) {$($attr:expr),*} -> [$($result:literal),*]
       $effect:ident $numerics:ident $elementwise:literal $callable:literal $doc:literal;)*) => {
        /// Every operation of the IR.
        // Brackets in the texts are shapes, not links.
        #[allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Opcode {
            $(#[doc = $doc] $code),*
        }

        /// The registry, indexed by opcode.
        pub const OPS: &[OpDef] = &[$(OpDef {
            code: Opcode::$code,
            name: $name,
            operands: &[$($operand),*],
            attrs: &[$($attr),*],
            results: &[$($result),*],
            effect: Effect::$effect,
            numerics: NumericsClass::$numerics,
            elementwise: $elementwise,
            callable: $callable,
            doc: $doc,
        }),*];
    };
}

use AttrKind::*;

ops! {
    Const "const" () {attr("value", Float), attr("dtype", DType)} -> ["out"] Pure Exact true false
        "A scalar constant.";
    DimValue "dim" () {attr("value", Dim)} -> ["out"] Pure Exact true false
        "The value of a dim as an i32 scalar.";
    Weight "weight" (variadic("index")) {attr("weight", Int)} -> ["out"] Pure Exact false false
        "A weight of the module; inside loops with the indices of the loops it belongs to.";
    StateOpen "state_open" (optional("index")) {attr("state", Int)} -> ["state"] AdvancesState Exact false false
        "The version of a state element at entry. An element that is open is not opened again.";
    StateClose "state_close" (operand("state")) {} -> [] AdvancesState Exact false false
        "Ends a state element: its last version stays with the request.";
    Loop "loop" (variadic("init")) {attr("extent", Dim), attr("serial", Bool), attr("keep", Keeps)} -> ["out"] Pure Exact false false
        "Runs its region `extent` times. Region parameters: the index (i32 scalar), then the carried values; it yields the carried values, then the kept ones. Results: the last carried values, then the kept values stacked. A loop that is not `serial` has a constant extent and its index may select weights, states and cases.";
    Cases "cases" (operand("index")) {attr("select", Ints)} -> ["out"] Pure Exact false false
        "Runs region `select[index]`; every region yields values of the same types.";
    Guarded "guarded" (operand("ok"), operand("fast")) {} -> ["out"] Pure Exact false false
        "fast where ok is true, elsewhere what its region yields. The region, which takes nothing, has no effects and yields one value of fast's type, runs only if some element of ok is false. ok and fast have the same dims.";

    Neg "neg" (operand("x")) {} -> ["out"] Pure Elementwise true true "-x.";
    Abs "abs" (operand("x")) {} -> ["out"] Pure Elementwise true true "|x|.";
    Exp "exp" (operand("x")) {} -> ["out"] Pure Elementwise true true "e to the x.";
    Log "log" (operand("x")) {} -> ["out"] Pure Elementwise true true "Natural logarithm.";
    Sqrt "sqrt" (operand("x")) {} -> ["out"] Pure Elementwise true true "Square root.";
    Rsqrt "rsqrt" (operand("x")) {} -> ["out"] Pure Elementwise true true "1 / sqrt(x).";
    Sin "sin" (operand("x")) {} -> ["out"] Pure Elementwise true true "Sine, radians.";
    Cos "cos" (operand("x")) {} -> ["out"] Pure Elementwise true true "Cosine, radians.";
    Tanh "tanh" (operand("x")) {} -> ["out"] Pure Elementwise true true "Hyperbolic tangent.";
    Erf "erf" (operand("x")) {} -> ["out"] Pure Elementwise true true "Error function.";
    Sigmoid "sigmoid" (operand("x")) {} -> ["out"] Pure Elementwise true true "1 / (1 + exp(-x)).";
    Silu "silu" (operand("x")) {} -> ["out"] Pure Elementwise true true "x * sigmoid(x).";
    Softplus "softplus" (operand("x")) {} -> ["out"] Pure Elementwise true true "log(1 + exp(x)); x itself above 20.";
    Relu "relu" (operand("x")) {} -> ["out"] Pure Elementwise true true "max(x, 0).";
    Floor "floor" (operand("x")) {} -> ["out"] Pure Elementwise true true "Largest integer not above x.";
    IsFinite "isfinite" (operand("x")) {} -> ["out"] Pure Exact true true "True where x is neither infinite nor NaN.";
    Not "not" (operand("x")) {} -> ["out"] Pure Exact true false "Logical negation; written `not x`.";
    Cast "cast" (operand("x")) {attr("dtype", DType)} -> ["out"] Pure Elementwise true true
        "x in another dtype: rounded to nearest even between floats, towards zero from float to integer, true where nonzero to bool.";

    Add "add" (operand("a"), operand("b")) {} -> ["out"] Pure Elementwise true false "a + b, broadcast.";
    Sub "sub" (operand("a"), operand("b")) {} -> ["out"] Pure Elementwise true false "a - b, broadcast.";
    Mul "mul" (operand("a"), operand("b")) {} -> ["out"] Pure Elementwise true false "a * b, broadcast.";
    Div "div" (operand("a"), operand("b")) {} -> ["out"] Pure Elementwise true false "a / b, broadcast; integers divide as floats.";
    FloorDiv "floordiv" (operand("a"), operand("b")) {} -> ["out"] Pure Elementwise true false "a // b rounded down, broadcast.";
    Mod "mod" (operand("a"), operand("b")) {} -> ["out"] Pure Elementwise true false "a % b with the sign of b, broadcast.";
    Pow "pow" (operand("a"), operand("b")) {} -> ["out"] Pure Elementwise true false "a ** b, broadcast.";
    Minimum "minimum" (operand("a"), operand("b")) {} -> ["out"] Pure Elementwise true true "The smaller, broadcast; NaN if either is.";
    Maximum "maximum" (operand("a"), operand("b")) {} -> ["out"] Pure Elementwise true true "The larger, broadcast; NaN if either is.";
    Eq "eq" (operand("a"), operand("b")) {} -> ["out"] Pure Exact true false "a == b, broadcast.";
    Ne "ne" (operand("a"), operand("b")) {} -> ["out"] Pure Exact true false "a != b, broadcast.";
    Lt "lt" (operand("a"), operand("b")) {} -> ["out"] Pure Exact true false "a < b, broadcast.";
    Le "le" (operand("a"), operand("b")) {} -> ["out"] Pure Exact true false "a <= b, broadcast.";
    Gt "gt" (operand("a"), operand("b")) {} -> ["out"] Pure Exact true false "a > b, broadcast.";
    Ge "ge" (operand("a"), operand("b")) {} -> ["out"] Pure Exact true false "a >= b, broadcast.";
    And "and" (operand("a"), operand("b")) {} -> ["out"] Pure Exact true false "Both, broadcast.";
    Or "or" (operand("a"), operand("b")) {} -> ["out"] Pure Exact true false "Either, broadcast.";
    Where "where" (operand("cond"), operand("a"), operand("b")) {} -> ["out"] Pure Exact true true
        "a where cond is true, b elsewhere, broadcast. The branch not taken has no influence, NaN included.";

    Iota "iota" () {attr("n", Dim)} -> ["out"] Pure Exact false true "0, 1, ..., n-1 as i32[n].";
    Fill "fill" (operand("value")) {attr("dims", Dims)} -> ["out"] Pure Exact false true "A tensor of the given dims holding one scalar everywhere.";
    Reshape "reshape" (operand("x")) {attr("dims", Dims)} -> ["out"] Pure Exact false true "The same elements in row-major order under other dims; one dim may be -1 and is computed.";
    Transpose "transpose" (operand("x")) {attr("axes", Ints)} -> ["out"] Pure Exact false true "Axis i of the result is axis axes[i] of x.";
    Broadcast "broadcast" (operand("x")) {attr("dims", Dims)} -> ["out"] Pure Exact false true "x repeated to the given dims; axes align from the right and must be equal or one.";
    Concat "concat" (variadic("parts")) {attr("axis", Int)} -> ["out"] Pure Exact false true "Parts joined along an axis: concat([a, b], axis=1).";
    Slice "slice" (operand("x")) {attr("axis", Int), attr("start", Dim), attr("len", Dim)} -> ["out"] Pure Exact false false "A range of one axis; written x[:, 1:].";
    IndexAt "index" (operand("x"), operand("i")) {attr("axis", Int)} -> ["out"] Pure Exact false false "One position of an axis, which disappears; written x[:, t]. A position outside is clamped.";
    Shift "shift" (operand("x")) {attr("by", Int), attr("axis", Int), attr_or("fill", Float, "0")} -> ["out"] Pure Exact false true "Row i of the result is row i - by of x along the axis; rows that do not exist hold `fill`.";
    Take "take" (operand("x"), operand("index")) {attr("axis", Int)} -> ["out"] Pure Exact false true
        "Entries of x along an axis. index (i32) has x's axes before `axis` first, then any further axes, which replace `axis` in the result. Indices outside [0, extent) are clamped. gather(table, index) is take with axis 0.";
    OneHot "one_hot" (operand("index")) {attr("n", Dim)} -> ["out"] Pure Exact false true "A new last axis of extent n: one at index, zero elsewhere; f64, a distribution.";
    ScatterAdd "scatter_add" (operand("x"), operand("index"), operand("updates")) {} -> ["out"] Pure Elementwise false true
        "x with updates added at index along the last axis, in order. index and updates have x's axes but the last, then one of their own.";
    Sort "sort" (operand("x")) {} -> ["out"] Pure Exact false true "The last axis in ascending order.";

    Sum "sum" (operand("x")) {attr("axis", Int), attr_or("keep", Bool, "true")} -> ["out"] Pure Reducing false true "Sum over an axis.";
    Mean "mean" (operand("x")) {attr("axis", Int), attr_or("keep", Bool, "true")} -> ["out"] Pure Reducing false true "Mean over an axis.";
    ReduceMax "max" (operand("x")) {attr("axis", Int), attr_or("keep", Bool, "true")} -> ["out"] Pure Exact false true "Maximum over an axis. max(a, b) with two tensors is `maximum`.";
    ReduceMin "min" (operand("x")) {attr("axis", Int), attr_or("keep", Bool, "true")} -> ["out"] Pure Exact false true "Minimum over an axis. min(a, b) with two tensors is `minimum`.";
    Rms "rms" (operand("x")) {attr_or("axis", Int, "-1"), attr_or("keep", Bool, "true")} -> ["out"] Pure Reducing false true "sqrt(mean(x^2)) over an axis, in the compute dtype.";
    Norm2 "norm2" (operand("x")) {attr_or("axis", Int, "-1"), attr_or("keep", Bool, "true")} -> ["out"] Pure Reducing false true "sqrt(sum(x^2)) over an axis, in the compute dtype.";
    Cumsum "cumsum" (operand("x")) {attr("axis", Int)} -> ["out"] Pure Reducing false true "Running sum along an axis.";
    Cumprod "cumprod" (operand("x")) {attr("axis", Int)} -> ["out"] Pure Reducing false true "Running product along an axis; of truth values the running `and`.";
    Argmax "argmax" (operand("x")) {attr_or("axis", Int, "-1")} -> ["out"] Pure Exact false true "Position of the first maximum along an axis, which disappears. NaN never wins; 0 if all are NaN.";
    TopK "topk" (operand("x")) {attr("k", Dim)} -> ["values", "indices"] Pure Exact false true "The k largest of the last axis, by (value descending, position ascending).";
    Softmax "softmax" (operand("x")) {attr_or("axis", Int, "-1")} -> ["out"] Pure Reducing false true "exp(x - max) / sum along an axis; along the last axis a distribution.";

    Linear "linear" (operand("x"), operand("w")) {attr_or("acc", DType, "f32")} -> ["out"] Pure Reducing false true
        "x [..., K] times the transpose of w [O, K]: [..., O]. Accumulates in `acc` or wider, rounds once to the promoted dtype. w may be f8e4m3.";
    Einsum "einsum" (variadic("parts")) {attr("spec", Str), attr_or("acc", DType, "f32")} -> ["out"] Pure Reducing false true
        "Sum of products by named axes: einsum(\"n t c h, n t p h -> n t p c\", a, b), one or two operands.";
    RmsNorm "rms_norm" (operand("x"), optional("weight")) {attr("eps", Float)} -> ["out"] Pure Reducing false true
        "x / sqrt(mean(x^2) + eps) over the last axis, times weight; statistics in the compute dtype, rounded once.";
    L2Norm "l2_norm" (operand("x")) {attr("eps", Float)} -> ["out"] Pure Reducing false true
        "x / sqrt(sum(x^2) + eps) over the last axis.";
    Rope "rope" (operand("x"), operand("positions")) {attr("base", Float), attr_or("width", Int, "0"), attr_or("frequencies", Str, "f64")} -> ["out"] Pure Elementwise false true
        "Rotary position embedding, half-split: pairs (i, i + width/2) of the first `width` entries of the last axis (0: all) turn by position * base^(-2i/width). x [..., heads, head width], positions i32 with x's leading axes. `frequencies`: the float dtype that the powers of base are rounded to, under every numerics policy; 'bf16' for weights that were made with frequencies held so.";

    Attention "attention" (operand("q"), operand("kv"), operand("at"), optional("rows")) {attr("causal", Bool), attr("window", Int), attr("scale", Float)} -> ["out"] ReadsState Reducing false true
        "Softmax attention of q [N, T, query heads, width] over the pool's positions. Row at position i sees position j iff (causal) 0 <= i - j < window, or (not causal) |i - j| < window and j is at most the last real row of its request. window 0 means none. Query head h reads key/value head h * kv heads / query heads. rows i32[N]: real rows of each request.";
    KvWrite "kv_write" (operand("kv"), operand("k"), operand("v"), operand("at"), optional("rows")) {} -> ["kv"] AdvancesState Exact false false
        "Writes rows k and v [N, T, heads, width] at positions at [N, T]; written kv.write(k, v, at=positions). Rows at or beyond rows[n] are not written.";
    CausalConv "causal_conv" (operand("window"), operand("x"), operand("taps"), optional("rows")) {} -> ["out", "window"] AdvancesState Reducing false false
        "Depthwise causal convolution over time of x [N, T, channels] with taps [channels, taps] or [channels, 1, taps], continued from the window; written conv.causal(x, taps). The last tap meets the newest row.";
    DeltaRule "gated_delta_rule" (operand("state"), operand("q"), operand("k"), operand("v"), operand("decay"), operand("beta"), optional("rows")) {} -> ["out", "state"] AdvancesState Reducing false false
        "Gated delta rule, row by row: S = exp(decay) S; d = beta (v - S k); S = S + d k'; out = S q. q, k [N, T, key heads, DK], v [N, T, value heads, DV], decay and beta [N, T, value heads]; value head h uses key head h * key heads / value heads; written delta.gated_delta_rule(...). State [value heads, DK, DV] in the state's dtype.";

    Coin "coin" (operand("seed"), operand("at"), operand("anchor")) {attr("purpose", Int)} -> ["out"] Pure Exact false true
        "A uniform number in [0, 1): Philox4x32-10 with key seed i32[N, 2] (low, high word) and counter (at, purpose, anchor, 0), upper 24 bits of word 0. at i32[N, ...], anchor i32[N]. Purposes: 0 first token and plain decoding, 1 draft, 2 accept, 3 residual, 4 bonus.";
    SamplingLaw "sampling_law" (operand("logits"), operand("temperature"), operand("top_k"), operand("top_p")) {} -> ["out"] Pure Reducing false true
        "The distribution a request samples from, f64 [N, ..., V]: logits / temperature, then the top_k most likely (0: all), then of those renormalised the ones with mass before them <= top_p, renormalised. Ties keep the lower id. temperature, top_p f64[N], top_k i32[N]; temperature below 1e-5 counts as 1e-5.";
    Draw "draw" (operand("law"), operand("coin")) {} -> ["out"] Pure Exact false true
        "Inverse-CDF draw along the last axis: the number of running sums <= coin * total, at most extent - 1. The law need not be normalised.";
    QuantizeRows "quantize_rows" (operand("w")) {} -> ["bits", "scale"] Pure Exact false true
        "Row-scaled f8e4m3 copy of w [V, H]: scale = max(|row|, 1e-12) / 448 in f32, bits = round(w / scale), f32 arithmetic in every numerics policy.";
}
