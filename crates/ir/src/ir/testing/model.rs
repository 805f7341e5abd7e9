//! Normalisation, positions, random numbers and sampling.

use super::Range;
use super::build::{Builder, UNIT};
use crate::ir::{Attr, ValueId};
use crate::ops::Opcode;
use crate::ty::{DType, Dim};

/// Positions lie below this.
pub(super) const POSITIONS: i64 = 8;

impl Builder {
    pub(super) fn model(&mut self, code: Opcode) -> Option<()> {
        match code {
            Opcode::RmsNorm | Opcode::L2Norm => self.norm(code),
            Opcode::Rope => {
                let (n, t) = (self.dim(), self.dim());
                let (heads, width) = (self.rng.int(1, 2), self.rng.int(1, 2) * 2);
                let x = self.float_of(&[n.clone(), t.clone(), heads.into(), width.into()])?;
                let at = self.positions(n, t)?;
                let rotary = if self.rng.chance(50) { 0 } else { 2 };
                let range = Range::symmetric(2.0 * self.range(x).magnitude());
                let held = if self.rng.chance(50) { "f64" } else { "bf16" };
                let attrs = vec![
                    ("base", Attr::Float(10000.0)),
                    ("width", Attr::Int(rotary)),
                    ("frequencies", Attr::Str(held.into())),
                ];
                self.emit(code, &[x, at], attrs, range)
            }
            Opcode::Coin => {
                let n = self.dim();
                self.coins(n.clone(), &[n])
            }
            Opcode::SamplingLaw => self.law(),
            _ => self.draw(),
        }
        .map(|_| ())
    }

    fn norm(&mut self, code: Opcode) -> Option<ValueId> {
        let x = self.float(1)?;
        let last = self.ty(x).dims.last()?.clone();
        let attrs = vec![("eps", Attr::Float(0.125))];
        if code == Opcode::L2Norm {
            return self.emit(code, &[x], attrs, UNIT);
        }
        let root = self.most(&last).sqrt();
        if root > 8.0 {
            return None;
        }
        if self.rng.chance(30) {
            return self.emit(code, &[x], attrs, Range::symmetric(root));
        }
        let w = self.float_of(&[last])?;
        let range = Range::symmetric(root * self.range(w).magnitude());
        self.emit(code, &[x, w], attrs, range)
    }

    /// Positions i32[n, t], different within a row.
    pub(super) fn positions(&mut self, n: Dim, t: Dim) -> Option<ValueId> {
        let most = self.most(&t) - 1.0;
        let row = self.emit(Opcode::Iota, &[], vec![("n", Attr::Dim(t.clone()))], Range::new(0.0, most))?;
        let rows =
            self.emit(Opcode::Broadcast, &[row], vec![("dims", Attr::Dims(vec![n, t]))], Range::new(0.0, most))?;
        let start = self.rng.int(0, POSITIONS - 1 - most as i64) as f64;
        let start = self.scalar(start, DType::I32)?;
        let range = Range::new(self.range(start).lo, self.range(start).hi + most);
        self.emit(Opcode::Add, &[rows, start], vec![], range)
    }

    /// Uniform numbers of shape `dims`, which begin with `n`.
    fn coins(&mut self, n: Dim, dims: &[Dim]) -> Option<ValueId> {
        let seed = self.ints(&[n.clone(), Dim::from(2)], Range::new(0.0, 60.0))?;
        let at = self.ints(dims, Range::new(0.0, 40.0))?;
        let anchor = self.ints(&[n], Range::new(0.0, 40.0))?;
        let purpose = self.rng.int(0, 4);
        let attrs = vec![("purpose", Attr::Int(purpose))];
        self.emit(Opcode::Coin, &[seed, at, anchor], attrs, Range::new(0.0, 1.0))
    }

    fn law(&mut self) -> Option<ValueId> {
        let logits = match self.pick(|t, _| t.dtype.is_float() && t.rank() >= 2) {
            Some(v) => self.tame(v, |r| Range::symmetric(r.magnitude() * 8.0))?,
            None => {
                let dims = [self.dim(), self.dim()];
                self.float_of(&dims)?
            }
        };
        let n = self.ty(logits).dims.first()?.clone();
        let temperature = self.fresh(DType::F64, vec![n.clone()], Range::new(0.5, 2.0))?;
        // Without discrete choices nothing is cut off.
        let cut = self.config.discrete;
        let top_k = self.fresh(DType::I32, vec![n.clone()], Range::new(0.0, if cut { 3.0 } else { 0.0 }))?;
        let top_p = self.fresh(DType::F64, vec![n], Range::new(if cut { 0.5 } else { 1.0 }, 1.0))?;
        self.emit(Opcode::SamplingLaw, &[logits, temperature, top_k, top_p], vec![], Range::new(0.0, 1.0))
    }

    fn draw(&mut self) -> Option<ValueId> {
        if !self.config.discrete {
            return None;
        }
        let law = match self.pick(|t, _| t.dist && t.rank() >= 2) {
            Some(v) => v,
            None => self.law()?,
        };
        let mut dims = self.ty(law).dims;
        let most = self.most(&dims.pop()?) - 1.0;
        let coin = self.coins(dims.first()?.clone(), &dims)?;
        self.emit(Opcode::Draw, &[law, coin], vec![], Range::new(0.0, most))
    }
}
