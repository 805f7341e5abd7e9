//! Reductions, running sums, selections and products.

use super::build::{Builder, UNIT};
use super::{LIMIT, Range};
use crate::ir::{Attr, ValueId};
use crate::ops::Opcode;
use crate::ty::{DType, Dim};

impl Builder {
    pub(super) fn reduce(&mut self, code: Opcode) -> Option<()> {
        use Opcode::*;
        if matches!(code, Argmax | TopK) && !self.config.discrete {
            return None;
        }
        let mut x = match code {
            Cumprod if self.rng.chance(30) => self.pick(|t, _| t.dtype == DType::Bool && t.rank() > 0)?,
            Sum | ReduceMax | ReduceMin | Argmax | TopK if self.rng.chance(30) => {
                self.pick(|t, r| t.dtype == DType::I32 && t.rank() > 0 && r.magnitude() < LIMIT / 64.0)?
            }
            _ => self.float(1)?,
        };
        let axis = self.rng.below(self.ty(x).rank());
        let extent = self.ty(x).dims[axis].clone();
        let most = self.most(&extent);
        if most > LIMIT {
            return None;
        }
        x = match code {
            Sum | Cumsum | Norm2 => self.tame(x, |r| Range::symmetric(r.magnitude() * most))?,
            Cumprod if self.ty(x).dtype.is_float() => self.squash(x)?,
            // The root is steep at zero.
            Rms => self.positive(x)?,
            Softmax => self.tame(x, |r| Range::symmetric(r.magnitude() * 8.0))?,
            _ => x,
        };
        if code == Norm2 {
            x = self.positive(x)?;
        }
        let r = self.range(x);
        let range = match code {
            Sum | Cumsum => Range::symmetric(r.magnitude() * most),
            Norm2 => Range::new(r.lo, r.hi * most.sqrt()),
            Argmax => Range::new(0.0, most - 1.0),
            Softmax => Range::new(0.0, 1.0),
            Cumprod if self.ty(x).dtype.is_float() => UNIT,
            _ => r,
        };
        let at = ("axis", Attr::Int(axis as i64));
        let attrs = match code {
            Cumsum | Cumprod | Argmax | Softmax => vec![at],
            TopK => {
                let last = self.ty(x).dims.last()?.clone();
                let k = last.as_const().map_or(1, |n| self.rng.int(1, n));
                let found = self.emit_all(code, &[x], vec![("k", Attr::Dim(k.into()))], range)?;
                self.ranges[found.get(1)?.index()] = Range::new(0.0, self.most(&last) - 1.0);
                return Some(());
            }
            _ => vec![at, ("keep", Attr::Bool(self.rng.chance(60)))],
        };
        self.emit(code, &[x], attrs, range).map(|_| ())
    }

    pub(super) fn contract(&mut self, code: Opcode) -> Option<()> {
        match code {
            Opcode::QuantizeRows => self.quantised(),
            Opcode::Linear => self.linear(),
            _ => self.einsum(),
        }
        .map(|_| ())
    }

    fn acc(&mut self) -> (&'static str, Attr) {
        let wide = self.rng.chance(30);
        ("acc", Attr::DType(if wide { DType::F64 } else { DType::F32 }))
    }

    fn linear(&mut self) -> Option<ValueId> {
        let x = self.float(1)?;
        let k = self.ty(x).dims.last()?.clone();
        let most = self.most(&k);
        let x = self.tame(x, |r| Range::symmetric(4.0 * r.magnitude() * most))?;
        let o = self.dim();
        let w = self.float_of(&[o, k])?;
        let range = Range::symmetric(self.range(x).magnitude() * self.range(w).magnitude() * most);
        let acc = self.acc();
        if range.magnitude() > LIMIT { None } else { self.emit(Opcode::Linear, &[x, w], vec![acc], range) }
    }

    /// A row-scaled copy of a matrix and a product with it.
    fn quantised(&mut self) -> Option<ValueId> {
        if !self.config.discrete {
            return None;
        }
        let (o, k) = (self.dim(), self.dim());
        let w = self.float_of(&[o, k.clone()])?;
        let copy = self.emit_all(Opcode::QuantizeRows, &[w], vec![], Range::new(0.0, 1.0))?;
        let dtype = self.float_dtype();
        // Codes reach 448, so what meets them must be small.
        let x = self.fresh(dtype, vec![k], Range::symmetric(1.0 / 32.0))?;
        let acc = self.acc();
        let y = self.emit(Opcode::Linear, &[x, *copy.first()?], vec![acc], Range::symmetric(LIMIT))?;
        self.emit(Opcode::Tanh, &[y], vec![], UNIT)
    }

    fn einsum(&mut self) -> Option<ValueId> {
        let x = self.float(1)?;
        let t = self.ty(x);
        if t.rank() > 4 {
            return None;
        }
        let names: Vec<String> = (0..t.rank()).map(|i| format!("a{i}")).collect();
        let mut axes: Vec<(String, Dim)> = names.iter().cloned().zip(t.dims.clone()).collect();
        let (mut operands, mut left) = (vec![x], names.join(" "));
        if self.rng.chance(75) {
            let mut shared: Vec<(String, Dim)> = Vec::new();
            for axis in &axes {
                if self.rng.chance(60) {
                    shared.push(axis.clone());
                }
            }
            if self.rng.chance(50) {
                let new = ("z_1".to_owned(), self.dim());
                shared.push(new.clone());
                axes.push(new);
            }
            let dims: Vec<Dim> = shared.iter().map(|(_, d)| d.clone()).collect();
            operands.push(self.float_of(&dims)?);
            let shared: Vec<String> = shared.into_iter().map(|(n, _)| n).collect();
            left = format!("{left}, {}", shared.join(" "));
        }
        let (mut out, mut summed) = (Vec::new(), 1.0);
        for (name, d) in &axes {
            if self.rng.chance(60) {
                out.insert(self.rng.below(out.len() + 1), name.clone());
            } else {
                summed *= self.most(d);
            }
        }
        let factor = operands.get(1).map_or(1.0, |y| self.range(*y).magnitude()) * summed;
        operands[0] = self.tame(x, |r| Range::symmetric(r.magnitude() * factor))?;
        let range = Range::symmetric(self.range(operands[0]).magnitude() * factor);
        if range.magnitude() > LIMIT {
            return None;
        }
        let spec = format!("{left} -> {}", out.join(" "));
        let acc = self.acc();
        self.emit(Opcode::Einsum, &operands, vec![acc, ("spec", Attr::Str(spec))], range)
    }
}
