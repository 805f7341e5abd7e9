//! From ops to instructions: shapes are concrete, views cost nothing, what depends on constants alone becomes one.

mod contract;
mod data;
mod elementwise;
mod model;
mod reduce;
mod reference;
mod state;

pub(super) use state::StateOperand;

use super::consts::{Shared, Src, Val};
use super::elements::{Arena, Elements, Kind, Out, Place, Ref};
use super::instr::{Code, Instr, Output, Tape};
use super::plan::plan;
use super::run::Machine;
use super::states::States;
use super::view::{View, count};
use crate::runtime::Mode;
use spinec_ir::ir::{Attr, Attrs};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::DType;
use std::sync::Arc;

pub(super) type Step<T> = Result<T, String>;

/// Most instructions of a tape: a loop over a mistyped extent is an error and not all memory.
const MAX_INSTRS: usize = 1 << 21;

/// An op with operands and concrete results; its attributes hold no symbols.
pub(super) struct Call<'a> {
    pub code: Opcode,
    pub attrs: &'a Attrs,
    pub operands: &'a [Val],
    pub results: &'a [(DType, Vec<usize>)],
}

impl Call<'_> {
    pub fn operand(&self, i: usize) -> Step<&Val> {
        self.operands.get(i).ok_or_else(|| format!("operand {} is missing", i + 1))
    }

    pub fn result(&self, i: usize) -> Step<(DType, &[usize])> {
        let r = self.results.get(i).ok_or_else(|| format!("result {} is missing", i + 1))?;
        Ok((r.0, &r.1))
    }

    /// True if the op computes in f64.
    pub fn wide(&self) -> bool {
        self.operands.iter().any(|v| v.dtype == DType::F64) || self.results.iter().any(|r| r.0 == DType::F64)
    }

    pub fn attr(&self, name: &str) -> Step<&Attr> {
        self.attrs.get(name).ok_or_else(|| format!("attribute `{name}` is missing"))
    }

    pub fn int(&self, name: &str) -> Step<i64> {
        match self.attr(name)? {
            Attr::Int(v) => Ok(*v),
            Attr::Dim(d) => d.as_const().ok_or_else(|| format!("attribute `{name}` has no value")),
            _ => Err(format!("attribute `{name}` is no integer")),
        }
    }

    pub fn index(&self, name: &str) -> Step<usize> {
        let value = self.int(name)?;
        usize::try_from(value).map_err(|_| format!("attribute `{name}` is {value}"))
    }

    pub fn float(&self, name: &str) -> Step<f64> {
        match self.attr(name)? {
            Attr::Float(v) => Ok(*v),
            _ => Err(format!("attribute `{name}` is no number")),
        }
    }

    pub fn bool(&self, name: &str) -> Step<bool> {
        match self.attr(name)? {
            Attr::Bool(v) => Ok(*v),
            _ => Err(format!("attribute `{name}` is no truth value")),
        }
    }

    pub fn text(&self, name: &str) -> Step<&str> {
        match self.attr(name)? {
            Attr::Str(v) => Ok(v),
            _ => Err(format!("attribute `{name}` is no text")),
        }
    }

    pub fn dtype(&self, name: &str) -> Step<DType> {
        match self.attr(name)? {
            Attr::DType(v) => Ok(*v),
            _ => Err(format!("attribute `{name}` is no dtype")),
        }
    }

    /// Attribute `axis` as an axis of a tensor of `rank`.
    pub fn axis(&self, rank: usize) -> Step<usize> {
        let axis = self.int("axis")?;
        let positive = if axis < 0 { axis + rank as i64 } else { axis };
        usize::try_from(positive).ok().filter(|a| *a < rank).ok_or_else(|| format!("axis {axis} of {rank} axes"))
    }
}

/// The dtype an op computes in.
pub(super) fn compute(wide: bool) -> DType {
    if wide { DType::F64 } else { DType::F32 }
}

/// A tape under construction. Buffers are numbered as they are made; [`plan`] puts them into slots.
pub(super) struct Emitter<'a> {
    pub shared: &'a mut Shared,
    pub instrs: Vec<Instr>,
    /// Kind and elements of every buffer.
    pub buffers: Vec<(Kind, usize)>,
    /// Cosines and sines by positions and frequencies.
    angles: Vec<(String, Val, Val)>,
    nothing: Arc<Elements>,
    /// The launch instructions are made for.
    pub launch: Option<u32>,
}

impl<'a> Emitter<'a> {
    pub fn new(shared: &'a mut Shared) -> Self {
        let nothing = Arc::new(Elements::U8(Vec::new()));
        Emitter { shared, instrs: Vec::new(), buffers: Vec::new(), angles: Vec::new(), nothing, launch: None }
    }

    /// Another tape with the same constants.
    pub fn nested(&mut self) -> Emitter<'_> {
        Emitter::new(self.shared)
    }

    /// A new tensor for an instruction to fill.
    pub fn fresh(&mut self, dtype: DType, shape: &[usize]) -> Val {
        self.buffers.push((Kind::of(dtype), count(shape)));
        Val { src: Src::Buf(self.buffers.len() as u32 - 1), dtype, view: View::dense(shape) }
    }

    /// Where an instruction that makes this tensor writes.
    pub fn out(&self, v: &Val) -> Out {
        match v.src {
            Src::Buf(b) => Out { slot: b, kind: v.kind(), len: self.buffers[b as usize].1 },
            Src::Const(_) => Out { slot: u32::MAX, kind: v.kind(), len: 0 },
        }
    }

    /// All elements a view touches, from its first on.
    pub fn read(&mut self, v: &Val) -> Step<Ref> {
        let place = match v.src {
            Src::Buf(b) => Place::Slot(b),
            Src::Const(id) => Place::Held(self.shared.plain(id)?),
        };
        Ok(Ref { place, kind: v.kind(), offset: v.view.offset, len: v.view.span() })
    }

    /// A reference to no elements.
    fn nothing(&self) -> Ref {
        Ref { place: Place::Held(self.nothing.clone()), kind: Kind::U8, offset: 0, len: 0 }
    }

    pub fn push(&mut self, code: Code, ins: Vec<Ref>, outs: &[&Val]) -> Step<()> {
        if self.instrs.len() >= MAX_INSTRS {
            return Err(format!("more than {MAX_INSTRS} instructions: a loop runs too often"));
        }
        let outs = outs.iter().map(|v| self.out(v)).collect();
        self.instrs.push(Instr { code, ins, outs, launch: self.launch });
        Ok(())
    }

    /// The same elements one after the other.
    pub fn dense(&mut self, v: &Val) -> Step<Val> {
        if v.view.is_dense() {
            return Ok(v.clone());
        }
        let out = self.fresh(v.dtype, &v.view.shape);
        self.copy(v, &out)?;
        Ok(out)
    }

    /// A dense tensor as an operand.
    pub fn dense_ref(&mut self, v: &Val) -> Step<Ref> {
        let v = self.dense(v)?;
        self.read(&v)
    }

    /// Copies a tensor to a view of a buffer, of the same kind and shape.
    pub fn copy(&mut self, from: &Val, to: &Val) -> Step<()> {
        if from.view.len() == 0 {
            return Ok(());
        }
        let axes = super::view::merge_axes(&from.view.shape, [&from.view.strides, &to.view.strides]);
        let from = self.read(from)?;
        self.push(Code::Copy { axes, to: to.view.offset }, vec![from], &[to])
    }

    /// The results of an op without effects.
    pub fn op(&mut self, call: &Call) -> Step<Vec<Val>> {
        if let Some(view) = self.view_op(call)? {
            return Ok(vec![view]);
        }
        if call.operands.iter().all(Val::is_const)
            && !matches!(call.code, Opcode::Const | Opcode::DimValue | Opcode::Iota)
        {
            return Ok(self.shared.derived(call));
        }
        if call.results.iter().all(|r| count(&r.1) == 0) {
            return Ok(call.results.iter().map(|(dtype, shape)| self.fresh(*dtype, shape)).collect());
        }
        self.lower(call)
    }

    /// One result.
    fn one(&mut self, call: &Call) -> Step<Val> {
        self.op(call)?.pop().ok_or_else(|| "an op without results".into())
    }

    fn lower(&mut self, call: &Call) -> Step<Vec<Val>> {
        use Opcode::*;
        // Reductions of nothing and products over nothing follow the reference.
        if call.operands.iter().any(|v| v.view.len() == 0) {
            return self.reference(call);
        }
        let one = |v: Step<Val>| v.map(|v| vec![v]);
        match call.code {
            Const | DimValue | Iota => one(self.known(call)),
            Neg | Abs | Exp | Log | Sqrt | Rsqrt | Sin | Cos | Tanh | Erf | Sigmoid | Silu | Softplus | Relu
            | Floor | IsFinite | Not | Cast | Add | Sub | Mul | Div | FloorDiv | Mod | Pow | Minimum | Maximum | Eq
            | Ne | Lt | Le | Gt | Ge | And | Or | Where => self.elementwise(call),
            Fill | Reshape | Transpose | Broadcast | Slice => Err("a view was not made".into()),
            Concat => one(self.concat(call)),
            IndexAt => one(self.index_at(call)),
            Shift => one(self.shift(call)),
            Take => one(self.take(call)),
            OneHot => one(self.one_hot(call)),
            ScatterAdd => one(self.scatter_add(call)),
            Sort => one(self.sort(call)),
            Sum | Mean | ReduceMax | ReduceMin | Rms | Norm2 => one(self.reduce(call)),
            Cumsum | Cumprod => one(self.running(call)),
            Argmax => one(self.argmax(call)),
            TopK => self.top_k(call),
            Softmax => one(self.softmax(call)),
            Linear => self.linear(call),
            Einsum => self.einsum(call),
            RmsNorm | L2Norm => one(self.norm(call)),
            Rope => one(self.rope(call)),
            Coin => one(self.coin(call)),
            SamplingLaw => one(self.sampling_law(call)),
            Draw => one(self.draw(call)),
            QuantizeRows => self.quantize_rows(call),
            Weight | StateOpen | StateClose | Loop | Cases | Guarded | Attention | KvWrite | CausalConv | DeltaRule => {
                Err(format!("`{}` is no function of its operands", call.code.name()))
            }
        }
    }

    /// The tape of what was emitted, with elements in the place of the first buffers.
    fn finish_on(mut self, given: &[Given], outputs: &[Val]) -> Step<Tape> {
        let mut out = Vec::new();
        for v in outputs {
            out.push(Output { dtype: v.dtype, view: v.view.clone(), elements: self.read(v)? });
        }
        let ins = self.instrs.iter_mut().flat_map(|i| &mut i.ins);
        for r in ins.chain(out.iter_mut().map(|o| &mut o.elements)) {
            if let Place::Slot(b) = r.place
                && let Some((.., elements)) = given.get(b as usize)
            {
                r.place = Place::Held(elements.clone());
            }
        }
        let tape = Tape { inputs: vec![], requests: 0, instrs: self.instrs, outputs: out, sizes: Default::default() };
        Ok(plan(tape, &self.buffers))
    }

    /// The tape of what was emitted.
    pub fn finish(mut self, inputs: Vec<(DType, Vec<usize>, Val)>, outputs: &[Val], requests: usize) -> Step<Tape> {
        let mut out = Vec::new();
        for v in outputs {
            out.push(Output { dtype: v.dtype, view: v.view.clone(), elements: self.read(v)? });
        }
        let inputs = inputs.into_iter().map(|(dtype, shape, v)| (dtype, shape, self.out(&v))).collect();
        let tape = Tape { inputs, requests, instrs: self.instrs, outputs: out, sizes: Default::default() };
        Ok(plan(tape, &self.buffers))
    }
}

/// An operand of [`evaluate`]: its elements in row-major order.
pub(super) type Given = (DType, Vec<usize>, Arc<Elements>);

/// The results of one op on given operands, which are taken for values of a run: the kernels are those of a run too.
pub(super) fn evaluate(
    shared: &mut Shared,
    code: Opcode,
    attrs: &Attrs,
    operands: &[Given],
    results: &[(DType, Vec<usize>)],
) -> Step<Vec<Elements>> {
    let mut emitter = Emitter::new(shared);
    let mut vals = Vec::new();
    for (dtype, shape, elements) in operands {
        if (elements.kind(), elements.len()) != (Kind::of(*dtype), count(shape)) {
            return Err("a constant does not fill its shape".into());
        }
        vals.push(emitter.fresh(*dtype, shape));
    }
    let made = emitter.op(&Call { code, attrs, operands: &vals, results })?;
    let tape = emitter.finish_on(operands, &made)?;
    let (mut arena, mut states) = (Arena::default(), States::default());
    let mut machine = Machine {
        arena: &mut arena,
        pool: &shared.pool,
        states: &mut states,
        requests: &[],
        mode: Mode::Immediate,
        watch: None,
    };
    let out = machine.run(&tape, &[]).map_err(|e| e.to_string())?;
    Ok(out.into_iter().map(Elements::from_tensor).collect())
}
