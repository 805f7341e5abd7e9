//! Constants and data movement.

use super::Range;
use super::build::Builder;
use crate::ir::{Attr, ValueId};
use crate::ops::Opcode;
use crate::ty::{DType, Dim};

impl Builder {
    pub(super) fn data(&mut self, code: Opcode) -> Option<()> {
        use Opcode::*;
        match code {
            Const => {
                let dtype = if self.rng.chance(70) { self.float_dtype() } else { DType::I32 };
                let value = if dtype == DType::I32 { self.rng.int(0, 3) as f64 } else { self.rng.real(-1.0, 1.0) };
                self.scalar(value, dtype)
            }
            DimValue => {
                let value = self.dim().add(&Dim::from(self.rng.int(0, 2)))?;
                let most = self.most(&value);
                self.emit(code, &[], vec![("value", Attr::Dim(value))], Range::new(1.0, most))
            }
            Iota => {
                let n = self.dim();
                let most = self.most(&n) - 1.0;
                self.emit(code, &[], vec![("n", Attr::Dim(n))], Range::new(0.0, most))
            }
            Fill => {
                let v = self.pick(|t, _| t.rank() == 0)?;
                let (dims, range) = (self.dims(3), self.range(v));
                self.emit(code, &[v], vec![("dims", Attr::Dims(dims))], range)
            }
            OneHot => {
                let dims = self.dims(2);
                let n = self.rng.int(2, 4);
                let index = self.ints(&dims, Range::new(0.0, n as f64 - 1.0))?;
                self.emit(code, &[index], vec![("n", Attr::Dim(n.into()))], Range::new(0.0, 1.0))
            }
            ScatterAdd => self.scatter(),
            _ => self.movement(code),
        }
        .map(|_| ())
    }

    fn scatter(&mut self) -> Option<ValueId> {
        let x = self.float(1)?;
        let x = self.tame(x, |r| Range::symmetric(r.magnitude() + 16.0))?;
        let mut dims = self.ty(x).dims;
        let last = dims.pop()?;
        dims.push(Dim::from(self.rng.int(1, 3)));
        let index =
            self.ints(&dims, Range::new(0.0, if last.as_const().is_some_and(|n| n > 2) { 2.0 } else { 0.0 }))?;
        let updates = self.float_of(&dims)?;
        let range = Range::symmetric(self.range(x).magnitude() + 3.0 * self.range(updates).magnitude());
        self.emit(Opcode::ScatterAdd, &[x, index, updates], vec![], range)
    }

    fn movement(&mut self, code: Opcode) -> Option<ValueId> {
        use Opcode::*;
        let rank = usize::from(!matches!(code, Broadcast | Reshape));
        let x = self.pick(|t, _| t.dtype != DType::F8E4M3 && t.rank() >= rank && t.rank() <= 4)?;
        let (t, range) = (self.ty(x), self.range(x));
        let axis = self.rng.below(t.rank());
        let written = if self.rng.chance(50) { axis as i64 } else { axis as i64 - t.rank() as i64 };
        let at = ("axis", Attr::Int(written));
        match code {
            Reshape => {
                let mut dims = t.dims.clone();
                match (self.rng.below(3), dims.len()) {
                    (0, _) | (_, 0) => dims = vec![Dim::from(-1)],
                    (1, n) if n >= 2 => {
                        dims.truncate(n - 2);
                        dims.push(Dim::from(-1));
                    }
                    (_, n) => dims.insert(self.rng.below(n + 1), Dim::from(1)),
                }
                self.emit(code, &[x], vec![("dims", Attr::Dims(dims))], range)
            }
            Transpose => {
                let mut axes: Vec<i64> = (0..t.rank() as i64).collect();
                for i in (1..axes.len()).rev() {
                    axes.swap(i, self.rng.below(i + 1));
                }
                self.emit(code, &[x], vec![("axes", Attr::Ints(axes))], range)
            }
            Broadcast => {
                let mut dims = t.dims.clone();
                for d in &mut dims {
                    if *d == Dim::from(1) && self.rng.chance(50) {
                        *d = self.dim();
                    }
                }
                if dims.len() < 3 {
                    dims.insert(0, self.dim());
                }
                self.emit(code, &[x], vec![("dims", Attr::Dims(dims))], range)
            }
            Concat => {
                let mut parts = vec![x];
                for _ in 0..self.rng.below(3) {
                    let dims = &t.dims;
                    parts.extend(self.pick(|o, _| o.dims == *dims && o.dtype == t.dtype));
                }
                let range = parts.iter().fold(range, |r, v| r.hull(self.range(*v)));
                self.emit(code, &parts, vec![at], range)
            }
            Slice => {
                let extent = &t.dims[axis];
                let (start, len) = match extent.as_const() {
                    Some(n) => {
                        let start = self.rng.int(0, n - 1);
                        (Dim::from(start), Dim::from(self.rng.int(1, n - start)))
                    }
                    None if self.rng.chance(50) => (extent.sub(&Dim::from(1))?, Dim::from(1)),
                    None => (Dim::from(0), extent.clone()),
                };
                self.emit(code, &[x], vec![at, ("start", Attr::Dim(start)), ("len", Attr::Dim(len))], range)
            }
            IndexAt => {
                let i = self.ints(&[], Range::new(-1.0, 4.0))?;
                self.emit(code, &[x, i], vec![at], range)
            }
            Shift => {
                let fill = if t.dtype.is_float() { 0.5 } else { 0.0 };
                let by = self.rng.int(-2, 2);
                let range = range.hull(Range::new(fill, fill));
                self.emit(code, &[x], vec![at, ("by", Attr::Int(by)), ("fill", Attr::Float(fill))], range)
            }
            Take => {
                let mut dims = t.dims[..axis].to_vec();
                dims.extend(self.dims(2));
                let index = self.ints(&dims, Range::new(-1.0, 4.0))?;
                self.emit(code, &[x, index], vec![at], range)
            }
            Sort => self.emit(code, &[x], vec![], range),
            _ => None,
        }
    }
}
