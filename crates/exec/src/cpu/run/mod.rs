//! Running a tape.

mod data;
mod guarded;
mod model;
mod reduce;
mod state;

use super::elements::{Arena, Elem, Kind, Out, Ref, tensor_of};
use super::instr::{Code, Instr, Packed, Reference, Tape, Watch};
use super::map::{MAX_LOADS, Program, Source, Target};
use super::states::States;
use crate::kernels::bmm::{self, Matrices};
use crate::kernels::gemm;
use crate::kernels::simd::Real;
use crate::runtime::{Mode, RunError};
use crate::threads::Pool;
use spinec_ir::interp::{self, NoObserver, WeightStore};
use spinec_ir::ir::{Module, WeightId};
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::{DType, Numerics};

pub(super) type Step<T> = Result<T, RunError>;

fn failed(m: impl Into<String>) -> RunError {
    RunError::Failed(m.into())
}

/// What a run works on.
pub(super) struct Machine<'a> {
    pub arena: &'a mut Arena,
    pub pool: &'a Pool,
    pub states: &'a mut States,
    /// Requests of the call by number.
    pub requests: &'a [usize],
    pub mode: Mode,
    pub watch: Watch<'a>,
}

/// Calls a function for f64 if `wide`, else for f32.
macro_rules! real {
    ($wide:expr, $self:ident . $f:ident ( $($arg:expr),* )) => {
        if $wide { $self.$f::<f64>($($arg),*) } else { $self.$f::<f32>($($arg),*) }
    };
}

impl Machine<'_> {
    pub fn run(&mut self, tape: &Tape, inputs: &[&Tensor]) -> Step<Vec<Tensor>> {
        self.arena.fit(&tape.sizes);
        for ((_, _, out), t) in tape.inputs.iter().zip(inputs) {
            if t.len() != out.len {
                return Err(failed(format!("an input of {} elements does not fill its shape {:?}", t.len(), t.shape)));
            }
            match &t.data {
                Data::F32(v) => self.load(out, v),
                Data::F64(v) => self.load(out, v),
                Data::I32(v) => self.load(out, v),
                Data::U8(v) => self.load(out, v),
                Data::Bool(v) => self.write::<u8, ()>(out, |y, _| {
                    y.iter_mut().zip(v).for_each(|(y, b)| *y = u8::from(*b));
                }),
            }
        }
        for (at, instr) in tape.instrs.iter().enumerate() {
            self.step(instr)?;
            if matches!(instr.code, Code::Linear { .. }) {
                prefetch_next(&tape.instrs[at + 1..]);
            }
        }
        let mut out = Vec::with_capacity(tape.outputs.len());
        for o in &tape.outputs {
            let t = tensor_of(o.dtype, &o.view, &o.elements, self.arena);
            out.push(t.ok_or_else(|| failed("an output does not fill its shape"))?);
        }
        Ok(out)
    }

    fn load<E: Elem>(&mut self, out: &Out, v: &[E]) {
        self.write::<E, ()>(out, |y, _| y.copy_from_slice(v));
    }

    /// Lends a result's memory together with the arena it is missing from.
    fn write<E: Elem, R>(&mut self, out: &Out, f: impl FnOnce(&mut [E], &Self) -> R) -> R {
        let mut memory = self.arena.take::<E>(out);
        let r = f(&mut memory[..out.len], self);
        self.arena.give(out, memory);
        r
    }

    fn step(&mut self, instr: &Instr) -> Step<()> {
        let Instr { code, ins, outs, launch: _ } = instr;
        match code {
            Code::Map(program) => self.map(program, ins, &outs[0]),
            Code::Copy { axes, to } => match outs[0].kind {
                Kind::F32 => self.copy::<f32>(axes, *to, &ins[0], &outs[0]),
                Kind::F64 => self.copy::<f64>(axes, *to, &ins[0], &outs[0]),
                Kind::I32 => self.copy::<i32>(axes, *to, &ins[0], &outs[0]),
                Kind::U8 => self.copy::<u8>(axes, *to, &ins[0], &outs[0]),
            },
            Code::Take { lanes, per_outer } => match outs[0].kind {
                Kind::F32 => self.take::<f32>(lanes, *per_outer, ins, &outs[0]),
                Kind::F64 => self.take::<f64>(lanes, *per_outer, ins, &outs[0]),
                Kind::I32 => self.take::<i32>(lanes, *per_outer, ins, &outs[0]),
                Kind::U8 => self.take::<u8>(lanes, *per_outer, ins, &outs[0]),
            },
            Code::TakeBf16 { table, lanes } => self.take_bf16(table, lanes, &ins[0], &outs[0]),
            Code::Shift { lanes, by, fill } => match outs[0].kind {
                Kind::F32 => self.shift(lanes, *by, *fill as f32, &ins[0], &outs[0]),
                Kind::F64 => self.shift(lanes, *by, *fill, &ins[0], &outs[0]),
                Kind::I32 => self.shift(lanes, *by, *fill as i32, &ins[0], &outs[0]),
                Kind::U8 => self.shift(lanes, *by, *fill as u8, &ins[0], &outs[0]),
            },
            Code::OneHot { n } => self.one_hot(*n, &ins[0], &outs[0]),
            Code::ScatterAdd { wide, extent, updates } => {
                real!(*wide, self.scatter_add(*extent, *updates, ins, &outs[0]))
            }
            Code::Sort { width } => match outs[0].kind {
                Kind::F32 => self.sort(*width, &ins[0], &outs[0], f32::is_nan),
                Kind::F64 => self.sort(*width, &ins[0], &outs[0], f64::is_nan),
                Kind::I32 => self.sort(*width, &ins[0], &outs[0], |_: i32| false),
                Kind::U8 => self.sort(*width, &ins[0], &outs[0], |_: u8| false),
            },
            Code::Reduce { wide, code, width } => real!(*wide, self.reduce(*code, *width, &ins[0], &outs[0])),
            Code::ReduceInts { code, width } => self.reduce_ints(*code, *width, &ins[0], &outs[0]),
            Code::AllFinite { width } => self.all_finite(*width, &ins[0], &outs[0]),
            Code::Running { product, width } => self.running(*product, *width, &ins[0], &outs[0]),
            Code::Argmax { width } => real!(ins[0].kind == Kind::F64, self.argmax(*width, &ins[0], &outs[0])),
            Code::TopK { k, width } => real!(ins[0].kind == Kind::F64, self.top_k(*k, *width, &ins[0], outs)),
            Code::TopSet { k, width } => real!(ins[0].kind == Kind::F64, self.top_set(*k, *width, &ins[0], &outs[0])),
            Code::Softmax { wide, width } => real!(*wide, self.softmax(*width, &ins[0], &outs[0])),
            Code::Linear { weights, rows, stride } => {
                real!(outs[0].kind == Kind::F64, self.linear(weights, *rows, *stride, &ins[0], outs));
            }
            Code::Batched { wide, sizes } => {
                if *wide {
                    self.batched::<f64>(sizes, ins, &outs[0]);
                } else {
                    self.batched::<f32>(sizes, ins, &outs[0]);
                }
            }
            Code::BatchedTake { sizes, table, lanes, side } => {
                self.batched_take(sizes, table, lanes, *side, ins, &outs[0]);
            }
            Code::Einsum { wide, kept, summed } => real!(*wide, self.einsum(kept, summed, ins, &outs[0])),
            Code::RmsNorm { wide, width, eps } => real!(*wide, self.rms_norm(*width, *eps, ins, &outs[0])),
            Code::L2Norm { wide, width, eps } => real!(*wide, self.l2_norm(*width, *eps, &ins[0], &outs[0])),
            Code::Angles { wide, frequencies } => real!(*wide, self.angles(frequencies, &ins[0], outs)),
            Code::Rope { wide, heads, width, half } => {
                real!(*wide, self.rope(*heads, *width, *half, ins, &outs[0]))
            }
            Code::Coin { purpose, each } => self.coin(*purpose, *each, ins, &outs[0]),
            Code::SamplingLaw { wide, width, rows } => real!(*wide, self.sampling_law(*width, *rows, ins, &outs[0])),
            Code::Draw { wide, width } => real!(*wide, self.draw(*width, ins, &outs[0])),
            Code::QuantizeRows { width } => self.quantize_rows(*width, &ins[0], outs),
            Code::Open { at } => {
                for request in self.requests {
                    if let Some(e) = self.states.element(*request, *at) {
                        e.begin(self.mode);
                    }
                }
            }
            Code::Attention(a) => return self.attention(a, ins, &outs[0]),
            Code::KvWrite { at, block, wide, ragged } => {
                return real!(*wide, self.kv_write(*at, *block, *ragged, ins));
            }
            Code::Conv { .. } => return self.conv(code, ins, &outs[0]),
            Code::Delta { .. } => return self.delta(code, ins, &outs[0]),
            Code::Report { path, dtype, view } => {
                if let Some(watch) = &mut self.watch
                    && let Some(t) = tensor_of(*dtype, view, &ins[0], self.arena)
                {
                    watch.value(path, &t);
                }
            }
            Code::Guarded(g) => return self.guarded(g, ins, &outs[0]),
            Code::Reference(r) => return self.reference(r, ins, outs),
            Code::Gone => {}
        }
        Ok(())
    }

    fn map(&mut self, program: &Program, ins: &[Ref], out: &Out) {
        match out.kind {
            Kind::F32 => self.write::<f32, _>(out, |y, m| m.program(program, ins, Target::F32(y))),
            Kind::F64 => self.write::<f64, _>(out, |y, m| m.program(program, ins, Target::F64(y))),
            Kind::I32 => self.write::<i32, _>(out, |y, m| m.program(program, ins, Target::I32(y))),
            Kind::U8 => self.write::<u8, _>(out, |y, m| m.program(program, ins, Target::U8(y))),
        }
    }

    fn program(&self, program: &Program, ins: &[Ref], target: Target<'_>) {
        let mut sources = [Source::U8(&[]); MAX_LOADS];
        for (source, r) in sources.iter_mut().zip(ins) {
            *source = match r.kind {
                Kind::F32 => Source::F32(r.get(self.arena)),
                Kind::F64 => Source::F64(r.get(self.arena)),
                Kind::I32 => Source::I32(r.get(self.arena)),
                Kind::U8 => Source::U8(r.get(self.arena)),
            };
        }
        match program.compute {
            Kind::F64 => program.run::<f64>(self.pool, &sources, target),
            Kind::I32 => program.run::<i32>(self.pool, &sources, target),
            Kind::F32 | Kind::U8 => program.run::<f32>(self.pool, &sources, target),
        }
    }

    fn linear<T: Real + Elem>(&mut self, weights: &[Packed], rows: usize, stride: usize, x: &Ref, outs: &[Out])
    where
        Packed: As<T>,
    {
        let mut memory: Vec<Vec<T>> = outs.iter().map(|o| self.arena.take(o)).collect();
        let mut maps = Vec::with_capacity(weights.len());
        for ((w, y), out) in weights.iter().zip(&mut memory).zip(outs) {
            if let Some(w) = w.matrix() {
                maps.push(gemm::Map { w, y: &mut y[..out.len] });
            }
        }
        gemm::linears(self.pool, x.get(self.arena), stride, rows, &mut maps);
        for (out, memory) in outs.iter().zip(memory) {
            self.arena.give(out, memory);
        }
    }

    fn batched<T: Real + Elem>(&mut self, sizes: &super::instr::Batched, ins: &[Ref], out: &Out) {
        let super::instr::Batched { batch, rows, columns, width } = *sizes;
        self.write::<T, _>(out, |y, m| {
            let x = Matrices::dense(ins[0].get(m.arena), rows, width);
            let w = Matrices::dense(ins[1].get(m.arena), columns, width);
            bmm::bmm_nt(m.pool, batch, width, x, w, y);
        });
    }

    fn batched_take(
        &mut self,
        sizes: &super::instr::Batched,
        table: &[u16],
        lanes: &super::instr::Lanes,
        side: usize,
        ins: &[Ref],
        out: &Out,
    ) {
        let super::instr::Batched { batch, rows, columns, width } = *sizes;
        let (rows, others) = if side == 0 { (rows, columns) } else { (columns, rows) };
        self.write::<f32, _>(out, |y, m| {
            let taken = bmm::Taken { table, extent: lanes.extent, index: ins[side].get(m.arena), rows };
            let other = Matrices::dense(ins[1 - side].get(m.arena), others, width);
            bmm::bmm_taken(m.pool, batch, width, &taken, other, side == 0, y);
        });
    }

    /// The sums one after the other, each in ascending order.
    fn einsum<T: Real + Elem>(
        &mut self,
        kept: &[(usize, [usize; 2])],
        summed: &[(usize, [usize; 2])],
        ins: &[Ref],
        out: &Out,
    ) {
        fn places(axes: &[(usize, [usize; 2])]) -> Vec<[usize; 2]> {
            let mut out = vec![[0, 0]];
            for (extent, step) in axes {
                let next = |base: &[usize; 2]| {
                    let base = *base;
                    (0..*extent).map(move |i| [base[0] + i * step[0], base[1] + i * step[1]])
                };
                out = out.iter().flat_map(next).collect();
            }
            out
        }
        let (kept, summed) = (places(kept), places(summed));
        self.write::<T, _>(out, |y, m| {
            let (a, b) = (ins[0].get::<T>(m.arena), ins[1].get::<T>(m.arena));
            for (y, [i, j]) in y.iter_mut().zip(&kept) {
                *y = summed.iter().fold(T::ZERO, |sum, [k, l]| sum + a[i + k] * b[j + l]);
            }
        });
    }

    fn reference(&mut self, r: &Reference, ins: &[Ref], outs: &[Out]) -> Step<()> {
        let mut inputs = Vec::new();
        for ((dtype, shape), x) in r.operands.iter().zip(ins) {
            let t = tensor_of(*dtype, &super::view::View::dense(shape), x, self.arena);
            inputs.push(t.ok_or_else(|| failed("an operand does not fill its shape"))?);
        }
        let module = Module {
            name: String::new(),
            numerics: Numerics::BF16,
            symbols: vec![],
            weights: vec![],
            states: vec![],
            funcs: vec![],
        };
        let made = interp::run(&module, &r.func, &inputs, &NoWeights, &mut [], Mode::Immediate, &mut NoObserver)
            .map_err(|e| failed(e.to_string()))?;
        for ((t, dtype), out) in made.iter().zip(&r.results).zip(outs) {
            debug_assert_eq!(t.dtype, *dtype);
            match &t.data {
                Data::F32(v) => self.load(out, v),
                Data::F64(v) => self.load(out, v),
                Data::I32(v) => self.load(out, v),
                Data::U8(v) => self.load(out, v),
                Data::Bool(v) => {
                    let v: Vec<u8> = v.iter().map(|b| u8::from(*b)).collect();
                    self.load(out, &v);
                }
            }
        }
        Ok(())
    }
}

/// Asks for the beginning of the weights that are needed next.
fn prefetch_next(instrs: &[Instr]) {
    let next = instrs.iter().find_map(|i| match &i.code {
        Code::Linear { weights, .. } => weights.first(),
        _ => None,
    });
    match next {
        Some(Packed::F32(w)) => w.prefetch(),
        Some(Packed::F64(w)) => w.prefetch(),
        None => {}
    }
}

/// A packed matrix of a type.
trait As<T> {
    fn matrix(&self) -> Option<&gemm::PackedB<T>>;
}

impl As<f32> for Packed {
    fn matrix(&self) -> Option<&gemm::PackedB<f32>> {
        match self {
            Packed::F32(w) => Some(w),
            Packed::F64(_) => None,
        }
    }
}

impl As<f64> for Packed {
    fn matrix(&self) -> Option<&gemm::PackedB<f64>> {
        match self {
            Packed::F64(w) => Some(w),
            Packed::F32(_) => None,
        }
    }
}

struct NoWeights;

impl WeightStore for NoWeights {
    fn weight(&self, _: WeightId, _: &[i64]) -> Result<Tensor, String> {
        Err("an op alone has no weights".into())
    }
}

/// The dtype of states held as f32 that are not f32 themselves.
fn narrow(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::F16)
}
