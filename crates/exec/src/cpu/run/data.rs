//! Data movement.

use super::super::elements::{Elem, Kind, Out, Ref};
use super::super::instr::Lanes;
use super::super::number::Number;
use super::Machine;
use crate::kernels::simd::Real;
use std::cmp::Ordering;

/// A position that comes from data, limited to an axis.
fn clamp(index: i32, extent: usize) -> usize {
    usize::try_from(index).unwrap_or(0).min(extent.saturating_sub(1))
}

/// Copies a view to a view.
fn copy_axes<E: Copy>(axes: &[(usize, [usize; 2])], x: &[E], y: &mut [E]) {
    match axes {
        [] => y[0] = x[0],
        [(n, [1, 1])] => y[..*n].copy_from_slice(&x[..*n]),
        [(n, [0, 1])] => y[..*n].fill(x[0]),
        [(n, [from, to])] => (0..*n).for_each(|i| y[i * to] = x[i * from]),
        [(n, [from, to]), rest @ ..] => (0..*n).for_each(|i| copy_axes(rest, &x[i * from..], &mut y[i * to..])),
    }
}

impl Machine<'_> {
    pub(super) fn copy<E: Elem>(&mut self, axes: &[(usize, [usize; 2])], to: usize, x: &Ref, out: &Out) {
        self.write::<E, _>(out, |y, m| copy_axes(axes, x.get(m.arena), &mut y[to..]));
    }

    pub(super) fn take<E: Elem>(&mut self, lanes: &Lanes, per_outer: usize, ins: &[Ref], out: &Out) {
        let Lanes { extent, inner, .. } = *lanes;
        self.write::<E, _>(out, |y, m| {
            let (x, index) = (ins[0].get::<E>(m.arena), ins[1].get::<i32>(m.arena));
            for (place, (i, y)) in index.iter().zip(y.chunks_exact_mut(inner)).enumerate() {
                let from = (place / per_outer * extent + clamp(*i, extent)) * inner;
                y.copy_from_slice(&x[from..from + inner]);
            }
        });
    }

    pub(super) fn take_bf16(&mut self, table: &[u16], lanes: &Lanes, index: &Ref, out: &Out) {
        let Lanes { extent, inner, .. } = *lanes;
        self.write::<f32, _>(out, |y, m| {
            for (i, y) in index.get::<i32>(m.arena).iter().zip(y.chunks_exact_mut(inner)) {
                let row = &table[clamp(*i, extent) * inner..][..inner];
                for (y, bits) in y.iter_mut().zip(row) {
                    *y = f32::from_bits(u32::from(*bits) << 16);
                }
            }
        });
    }

    pub(super) fn shift<E: Elem>(&mut self, lanes: &Lanes, by: i64, fill: E, x: &Ref, out: &Out) {
        let Lanes { extent, inner, .. } = *lanes;
        let size = extent * inner;
        let moved = usize::try_from(by.unsigned_abs()).unwrap_or(extent).min(extent) * inner;
        self.write::<E, _>(out, |y, m| {
            for (x, y) in x.get::<E>(m.arena).chunks_exact(size).zip(y.chunks_exact_mut(size)) {
                if by >= 0 {
                    y[..moved].fill(fill);
                    y[moved..].copy_from_slice(&x[..size - moved]);
                } else {
                    y[..size - moved].copy_from_slice(&x[moved..]);
                    y[size - moved..].fill(fill);
                }
            }
        });
    }

    pub(super) fn one_hot(&mut self, n: usize, index: &Ref, out: &Out) {
        self.write::<f64, _>(out, |y, m| {
            y.fill(0.0);
            for (i, y) in index.get::<i32>(m.arena).iter().zip(y.chunks_exact_mut(n)) {
                y[clamp(*i, n)] = 1.0;
            }
        });
    }

    pub(super) fn scatter_add<T: Real + Elem>(&mut self, extent: usize, updates: usize, ins: &[Ref], out: &Out) {
        self.write::<T, _>(out, |y, m| {
            y.copy_from_slice(ins[0].get(m.arena));
            let (index, values) = (ins[1].get::<i32>(m.arena), ins[2].get::<T>(m.arena));
            for (row, (index, values)) in index.chunks_exact(updates).zip(values.chunks_exact(updates)).enumerate() {
                for (i, v) in index.iter().zip(values) {
                    y[row * extent + clamp(*i, extent)] += *v;
                }
            }
        });
    }

    /// Ascending; NaN after everything, equal entries in their order.
    pub(super) fn sort<E: Elem + PartialOrd>(&mut self, width: usize, x: &Ref, out: &Out, nan: fn(E) -> bool) {
        self.write::<E, _>(out, |y, m| {
            y.copy_from_slice(x.get(m.arena));
            for row in y.chunks_exact_mut(width) {
                let order = |a: &E, b: &E| nan(*a).cmp(&nan(*b)).then(a.partial_cmp(b).unwrap_or(Ordering::Equal));
                // Equal integers are the same.
                if matches!(E::KIND, Kind::I32 | Kind::U8) { row.sort_unstable_by(order) } else { row.sort_by(order) }
            }
        });
    }

    /// Running sums or products of rows; integers wrap around.
    pub(super) fn running(&mut self, product: bool, width: usize, x: &Ref, out: &Out) {
        match out.kind {
            Kind::F32 => self.running_in(width, x, out, if product { |a: f32, b| a * b } else { |a, b| a + b }),
            Kind::F64 => self.running_in(width, x, out, if product { |a: f64, b| a * b } else { |a, b| a + b }),
            Kind::I32 | Kind::U8 => {
                self.running_in(width, x, out, if product { i32::wrapping_mul } else { i32::wrapping_add });
            }
        }
    }

    fn running_in<T: Number>(&mut self, width: usize, x: &Ref, out: &Out, f: fn(T, T) -> T) {
        self.write::<T, _>(out, |y, m| {
            y.copy_from_slice(x.get(m.arena));
            for row in y.chunks_exact_mut(width) {
                for e in 1..row.len() {
                    row[e] = f(row[e - 1], row[e]);
                }
            }
        });
    }
}
