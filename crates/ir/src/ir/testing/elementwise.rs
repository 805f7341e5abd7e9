//! Elementwise ops.

use super::build::{Builder, UNIT};
use super::{LIMIT, Range};
use crate::ir::{Attr, ValueId};
use crate::ops::Opcode;
use crate::ty::DType;

impl Builder {
    pub(super) fn unary(&mut self, code: Opcode) -> Option<()> {
        match code {
            Opcode::Not => {
                let x = self.boolean()?;
                self.emit(code, &[x], vec![], Range::new(0.0, 1.0))?;
            }
            Opcode::Cast => self.cast()?,
            Opcode::Floor if !self.config.discrete => return None,
            _ => {
                let x = self.float(0)?;
                self.float_unary(code, x)?;
            }
        }
        Some(())
    }

    fn float_unary(&mut self, code: Opcode, x: ValueId) -> Option<ValueId> {
        use Opcode::*;
        let x = match code {
            Log | Sqrt | Rsqrt => self.positive(x)?,
            Exp => self.tame(x, |r| Range::new(0.0, r.hi.exp()))?,
            _ => x,
        };
        let Range { lo, hi } = self.range(x);
        let range = match code {
            Neg => Range::new(-hi, -lo),
            Abs => Range::new(0.0, lo.abs().max(hi.abs())),
            Exp => Range::new(lo.exp(), hi.exp()),
            Log => Range::new(lo.ln(), hi.ln()),
            Sqrt => Range::new(lo.sqrt(), hi.sqrt()),
            Rsqrt => Range::new(1.0 / hi.sqrt(), 1.0 / lo.sqrt()),
            Sin | Cos | Tanh | Erf => UNIT,
            Sigmoid | IsFinite => Range::new(0.0, 1.0),
            Silu => Range::new(-0.5, hi.max(0.0)),
            Softplus => Range::new(0.0, hi.max(0.0) + 0.75),
            Relu => Range::new(lo.max(0.0), hi.max(0.0)),
            Floor => Range::new(lo.floor(), hi.floor()),
            _ => return None,
        };
        self.emit(code, &[x], vec![], range)
    }

    fn cast(&mut self) -> Option<()> {
        let x = self.pick(|t, _| t.dtype != DType::F8E4M3)?;
        let (from, range) = (self.ty(x).dtype, self.range(x));
        let to = match self.rng.below(6) {
            0 => DType::I32,
            1 => DType::U8,
            2 => DType::Bool,
            _ => self.float_dtype(),
        };
        let decides = from.is_float() && !to.is_float();
        if (decides && !self.config.discrete) || (to == DType::U8 && range.lo < 0.0) {
            return None;
        }
        let range = match to {
            DType::Bool => Range::new(0.0, 1.0),
            DType::I32 | DType::U8 => Range::new(range.lo.trunc(), range.hi.trunc()),
            _ => range,
        };
        self.emit(Opcode::Cast, &[x], vec![("dtype", Attr::DType(to))], range).map(|_| ())
    }

    /// A tensor of truth values.
    fn boolean(&mut self) -> Option<ValueId> {
        if self.rng.chance(80)
            && let Some(v) = self.pick(|t, _| t.dtype == DType::Bool)
        {
            return Some(v);
        }
        let dims = self.dims(2);
        self.fresh(DType::Bool, dims, Range::new(0.0, 1.0))
    }

    /// Two tensors that broadcast, of dtypes that mix.
    fn pair(&mut self, floats: bool) -> Option<(ValueId, ValueId)> {
        let number = |d: DType| d.is_float() || (!floats && d.is_int());
        let a = self.pick(|t, _| number(t.dtype))?;
        for _ in 0..4 {
            let b = self.pick(|t, _| number(t.dtype))?;
            let types = [self.func.ty(a), self.func.ty(b)];
            if Opcode::Add.infer(&types, &Default::default()).is_ok() {
                return Some(if self.rng.chance(50) { (a, b) } else { (b, a) });
            }
        }
        Some((a, a))
    }

    pub(super) fn binary(&mut self, code: Opcode) -> Option<()> {
        use Opcode::*;
        let truth = Range::new(0.0, 1.0);
        match code {
            And | Or => {
                let a = self.boolean()?;
                let dims = self.ty(a).dims;
                let b = self.pick(|t, _| t.dtype == DType::Bool && (t.dims == dims || t.rank() == 0))?;
                self.emit(code, &[a, b], vec![], truth)
            }
            Where => {
                let cond = self.boolean()?;
                let (a, b) = self.pair(false)?;
                let range = self.range(a).hull(self.range(b));
                self.emit(code, &[cond, a, b], vec![], range)
            }
            Eq | Ne | Lt | Le | Gt | Ge => {
                let (a, b) = self.pair(false)?;
                let decides = self.ty(a).dtype.is_float() || self.ty(b).dtype.is_float();
                if decides && !self.config.discrete {
                    return None;
                }
                self.emit(code, &[a, b], vec![], truth)
            }
            Div => {
                let (a, b) = self.pair(true)?;
                let b = self.positive(b)?;
                let a = self.tame(a, |r| Range::symmetric(r.magnitude() * 10.0))?;
                let range = Range::symmetric(self.range(a).magnitude() / self.range(b).lo);
                self.emit(code, &[a, b], vec![], range)
            }
            Pow => {
                let a = self.float(0)?;
                let a = self.positive(a)?;
                let dtype = self.ty(a).dtype;
                let power = if self.range(a).hi <= 8.0 && self.rng.chance(50) { 2.0 } else { 0.5 };
                let (b, r) = (self.scalar(power, dtype)?, self.range(a));
                self.emit(code, &[a, b], vec![], Range::new(r.lo.powf(power), r.hi.powf(power)))
            }
            FloorDiv | Mod => {
                let discrete = self.config.discrete;
                let a = self.pick(|t, _| t.dtype.is_int() || (discrete && t.dtype.is_float()))?;
                let (dtype, r) = (self.ty(a).dtype, self.range(a));
                let b = self.scalar(3.0, dtype)?;
                let range = if code == Mod {
                    Range::new(0.0, 3.0)
                } else {
                    Range::new((r.lo / 3.0).floor(), (r.hi / 3.0).floor())
                };
                self.emit(code, &[a, b], vec![], range)
            }
            _ => self.arithmetic(code),
        }
        .map(|_| ())
    }

    fn arithmetic(&mut self, code: Opcode) -> Option<ValueId> {
        let (mut a, mut b) = self.pair(false)?;
        let result = |a: Range, b: Range| match code {
            Opcode::Add => Range::new(a.lo + b.lo, a.hi + b.hi),
            Opcode::Sub => Range::new(a.lo - b.hi, a.hi - b.lo),
            Opcode::Mul => Range::symmetric(a.magnitude() * b.magnitude()),
            _ => a.hull(b),
        };
        if result(self.range(a), self.range(b)).magnitude() > LIMIT || self.bytes_leave(code, a, b) {
            if !self.ty(a).dtype.is_float() || !self.ty(b).dtype.is_float() {
                return None;
            }
            (a, b) = (self.squash(a)?, self.squash(b)?);
        }
        let range = result(self.range(a), self.range(b));
        self.emit(code, &[a, b], vec![], range)
    }

    /// True if a difference of bytes may be negative.
    fn bytes_leave(&self, code: Opcode, a: ValueId, b: ValueId) -> bool {
        let byte = |v| self.func.tensor(v).is_some_and(|t| t.dtype == DType::U8);
        code == Opcode::Sub && byte(a) && byte(b)
    }
}
