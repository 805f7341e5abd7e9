//! Elementwise ops as programs.

use super::super::consts::Val;
use super::super::elements::{Kind, Ref};
use super::super::instr::Code;
use super::super::map::{Pattern, Program, Step as Do};
use super::super::view::count;
use super::{Call, Emitter, Step};
use spinec_ir::ir::{Attr, Attrs};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::DType;

impl Emitter<'_> {
    /// The tensor in another dtype.
    pub fn cast(&mut self, v: &Val, to: DType) -> Step<Val> {
        if v.dtype == to {
            return Ok(v.clone());
        }
        let attrs = Attrs::from([("dtype", Attr::DType(to))]);
        let results = [(to, v.view.shape.clone())];
        self.one(&Call { code: Opcode::Cast, attrs: &attrs, operands: std::slice::from_ref(v), results: &results })
    }

    /// An operand in the type that is computed in.
    pub fn real(&mut self, v: &Val, wide: bool) -> Step<Val> {
        self.cast(v, super::compute(wide))
    }

    /// An i32 operand.
    pub fn int(&mut self, v: &Val) -> Step<Val> {
        if v.dtype.is_float() {
            return Err(format!("integers are needed here, these are {}", v.dtype));
        }
        self.cast(v, DType::I32)
    }

    pub(super) fn elementwise(&mut self, call: &Call) -> Step<Vec<Val>> {
        use Opcode::*;
        let (dtype, shape) = call.result(0)?;
        if call.operands.iter().any(|v| v.dtype == DType::F8E4M3) || dtype == DType::F8E4M3 {
            return self.reference(call);
        }
        let float = if call.wide() { Kind::F64 } else { Kind::F32 };
        let whole = |v: &Val| !v.dtype.is_float();
        let operands: Vec<&Val> = call.operands.iter().collect();
        let v = match call.code {
            Cast => self.convert(call.operand(0)?, dtype)?,
            Where => {
                let (a, b) = (self.cast(call.operand(1)?, dtype)?, self.cast(call.operand(2)?, dtype)?);
                let kind = if dtype.is_float() { float_kind(dtype) } else { Kind::I32 };
                self.map(kind, shape, &[call.operand(0)?, &a, &b], vec![Do::Select(0, 1, 2)], dtype)?
            }
            Eq | Ne | Lt | Le | Gt | Ge => {
                let kind = if call.operands.iter().all(whole) { Kind::I32 } else { float };
                self.map(kind, shape, &operands, vec![Do::Binary(call.code, 0, 1)], dtype)?
            }
            And | Or => self.map(Kind::I32, shape, &operands, vec![Do::Binary(call.code, 0, 1)], dtype)?,
            Not => self.map(Kind::I32, shape, &operands, vec![Do::Unary(call.code, 0)], dtype)?,
            IsFinite => {
                let kind = if call.operands.iter().all(whole) { Kind::I32 } else { float };
                self.map(kind, shape, &operands, vec![Do::Unary(call.code, 0)], dtype)?
            }
            Add | Sub | Mul | Div | FloorDiv | Mod | Pow | Minimum | Maximum => {
                let kind = if dtype.is_int() { Kind::I32 } else { float };
                self.map(kind, shape, &operands, vec![Do::Binary(call.code, 0, 1)], dtype)?
            }
            _ => {
                let kind = if dtype.is_int() { Kind::I32 } else { float };
                self.map(kind, shape, &operands, vec![Do::Unary(call.code, 0)], dtype)?
            }
        };
        Ok(vec![v])
    }

    /// A cast that changes bits. From an integer it is rounded once, from f64.
    fn convert(&mut self, v: &Val, to: DType) -> Step<Val> {
        let from = if v.dtype.is_float() { float_kind(v.dtype) } else { Kind::I32 };
        let shape = v.view.shape.clone();
        match (from, to) {
            // Made exactly 0 or 1 for programs this one is merged into.
            (_, DType::Bool) => self.map_with(from, &shape, &[v], &[0.0], vec![Do::Binary(Opcode::Ne, 0, 1)], to),
            (Kind::I32, to) if to.is_float() => self.map(Kind::F64, &shape, &[v], vec![], to),
            _ => self.map(from, &shape, &[v], vec![], to),
        }
    }

    pub(super) fn map(&mut self, kind: Kind, shape: &[usize], ins: &[&Val], steps: Vec<Do>, to: DType) -> Step<Val> {
        self.map_with(kind, shape, ins, &[], steps, to)
    }

    /// A program on operands, which are broadcast to `shape`, and numbers, which follow them.
    pub(super) fn map_with(
        &mut self,
        compute: Kind,
        shape: &[usize],
        operands: &[&Val],
        numbers: &[f64],
        mut steps: Vec<Do>,
        to: DType,
    ) -> Step<Val> {
        let (mut loads, mut ins): (Vec<Pattern>, Vec<Ref>) = (Vec::new(), Vec::new());
        for v in operands {
            let (pattern, source) = self.operand(v, shape)?;
            loads.push(pattern);
            ins.push(source);
        }
        for x in numbers {
            loads.push(Pattern::Number(*x));
            ins.push(self.nothing());
        }
        if matches!(to, DType::BF16 | DType::F16) {
            steps.push(Do::Round(to, loads.len() + steps.len() - 1));
        }
        let out = self.fresh(to, shape);
        let len = count(shape);
        if len > 0 {
            self.push(Code::Map(Program { compute, loads, steps, len, truth: to == DType::Bool }), ins, &[&out])?;
        }
        Ok(out)
    }

    fn operand(&mut self, v: &Val, shape: &[usize]) -> Step<(Pattern, Ref)> {
        let view =
            v.view.broadcast(shape).ok_or_else(|| format!("{:?} does not broadcast to {shape:?}", v.view.shape))?;
        let len = count(shape);
        let axes = view.merged();
        if v.is_const() && axes.iter().all(|(_, stride)| *stride == 0) && len > 0 {
            return Ok((Pattern::Number(self.shared.number(v)?), self.nothing()));
        }
        let pattern = match axes.as_slice() {
            [] | [(_, 0)] => Pattern::Each(len.max(1)),
            [(_, 1)] => Pattern::Dense,
            [(_, 0), (period, 1)] => Pattern::Repeat(*period),
            [(_, 1), (times, 0)] => Pattern::Each(*times),
            _ => Pattern::Strided(axes),
        };
        Ok((pattern, self.read(&Val { view, ..(*v).clone() })?))
    }
}

fn float_kind(dtype: DType) -> Kind {
    if dtype == DType::F64 { Kind::F64 } else { Kind::F32 }
}
