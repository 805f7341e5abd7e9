//! The forms instructions want constants in. Large ones are made from rows as these come, without the whole plain form.

use super::consts::{Form, Shared, Val};
use super::elements::Elements;
use super::instr::{Packed, TapsOf};
use crate::kernels::conv::Taps;
use crate::kernels::gemm::PackedB;
use spinec_ir::interp::f8;
use spinec_ir::ty::DType;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

type Step<T> = Result<T, String>;

impl Shared {
    /// A constant matrix packed for products in f64 (`wide`) or f32. Weights whose every element is a bf16 number are
    /// packed as such, at half the size and with the same results.
    pub fn packed(&mut self, v: &Val, wide: bool) -> Step<Packed> {
        let key = (v.key(), wide);
        if let Some(form) = self.packed.get(&key) {
            return Ok(form.what.clone());
        }
        let [outputs, inputs] = *v.view.shape.as_slice() else { return Err("a matrix is needed".into()) };
        let (what, bytes) = if wide {
            let mut p = PackedB::<f64>::zeros(outputs, inputs);
            self.rows(v, &mut |pool, rows, e| {
                p.put(pool, rows.start, &f64s(e, v.dtype));
                ControlFlow::Continue(())
            })?;
            let bytes = p.bytes();
            (Packed::F64(Arc::new(p)), bytes)
        } else {
            let p = match self.packed_bf16(v, outputs, inputs)? {
                Some(p) => p,
                None => {
                    let mut p = PackedB::<f32>::zeros(outputs, inputs);
                    self.rows(v, &mut |pool, rows, e| {
                        p.put(pool, rows.start, &f32s(e, v.dtype));
                        ControlFlow::Continue(())
                    })?;
                    p
                }
            };
            let bytes = p.bytes();
            (Packed::F32(Arc::new(p)), bytes)
        };
        let owner = self.owner_of(v);
        self.packed.insert(key, Form { owner, bytes: bytes as u64, what: what.clone() });
        Ok(what)
    }

    /// A matrix packed as bf16 bits; as f32 if it came at once and not every element is a bf16 number, `None` if it did
    /// not come at once then.
    fn packed_bf16(&mut self, v: &Val, outputs: usize, inputs: usize) -> Step<Option<PackedB<f32>>> {
        let mut made = Some(PackedB::<f32>::zeros_bf16(outputs, inputs));
        self.rows(v, &mut |pool, rows, e| {
            let x = f32s(e, v.dtype);
            match (bf16_bits(&x), &mut made) {
                (Some(bits), Some(p)) => {
                    p.put_bf16(pool, rows.start, &bits);
                    return ControlFlow::Continue(());
                }
                _ if rows.len() == outputs => made = Some(PackedB::new(pool, &x, outputs, inputs)),
                _ => made = None,
            }
            ControlFlow::Break(())
        })?;
        Ok(made)
    }

    /// A weight of f32 kind as a table of bf16 bits, if it is one.
    pub fn bf16_table(&mut self, v: &Val) -> Step<Option<Arc<Vec<u16>>>> {
        let key = v.key();
        if let Some(known) = self.tables.get(&key) {
            return Ok(known.as_ref().map(|f| f.what.clone()));
        }
        let mut table = Some(Vec::new());
        let room = v.view.len();
        self.rows(v, &mut |_, _, e| match (e, &mut table) {
            (Elements::F32(x), Some(all)) if is_bf16(x) => {
                all.reserve_exact(room - all.len());
                all.extend(x.iter().map(|x| (x.to_bits() >> 16) as u16));
                ControlFlow::Continue(())
            }
            _ => {
                table = None;
                ControlFlow::Break(())
            }
        })?;
        let form = table.map(|bits| {
            let bytes = 2 * bits.len() as u64;
            Form { owner: self.owner_of(v), bytes, what: Arc::new(bits) }
        });
        let what = form.as_ref().map(|f| f.what.clone());
        self.tables.insert(key, form);
        Ok(what)
    }

    /// Constant filter taps of `channels` channels.
    pub fn taps(&mut self, v: &Val, channels: usize, wide: bool) -> Step<Arc<TapsOf>> {
        let key = (v.key(), wide);
        if let Some(form) = self.taps.get(&key) {
            return Ok(form.what.clone());
        }
        let elements = self.viewed(v)?;
        let bytes = elements.bytes();
        let what = Arc::new(if wide {
            TapsOf::F64(Taps::new(&f64s(&elements, v.dtype), channels))
        } else {
            TapsOf::F32(Taps::new(&f32s(&elements, v.dtype), channels))
        });
        let owner = self.owner_of(v);
        self.taps.insert(key, Form { owner, bytes, what: what.clone() });
        Ok(what)
    }
}

fn is_bf16(x: &[f32]) -> bool {
    x.iter().all(|x| x.to_bits() & 0xffff == 0)
}

/// The upper halves of numbers that all are bf16 numbers.
fn bf16_bits(x: &[f32]) -> Option<Vec<u16>> {
    is_bf16(x).then(|| x.iter().map(|x| (x.to_bits() >> 16) as u16).collect())
}

fn f64s(e: &Elements, dtype: DType) -> Cow<'_, [f64]> {
    Cow::Owned(match e {
        Elements::F64(v) => return Cow::Borrowed(v),
        Elements::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
        Elements::I32(v) => v.iter().map(|x| f64::from(*x)).collect(),
        Elements::U8(v) if dtype == DType::F8E4M3 => v.iter().map(|x| f64::from(f8::decode(*x))).collect(),
        Elements::U8(v) => v.iter().map(|x| f64::from(*x)).collect(),
    })
}

fn f32s(e: &Elements, dtype: DType) -> Cow<'_, [f32]> {
    Cow::Owned(match e {
        Elements::F32(v) => return Cow::Borrowed(v),
        Elements::F64(v) => v.iter().map(|x| *x as f32).collect(),
        Elements::I32(v) => v.iter().map(|x| *x as f32).collect(),
        Elements::U8(v) if dtype == DType::F8E4M3 => v.iter().map(|x| f8::decode(*x)).collect(),
        Elements::U8(v) => v.iter().map(|x| f32::from(*x)).collect(),
    })
}
