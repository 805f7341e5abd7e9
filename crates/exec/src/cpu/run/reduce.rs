//! Reductions and selections of rows.

use super::super::elements::{Elem, Out, Ref};
use super::super::number::Number;
use super::Machine;
use crate::kernels::rowwise::{self, Reduction};
use crate::kernels::select;
use crate::kernels::simd::Real;
use spinec_ir::ops::Opcode;

impl Machine<'_> {
    pub(super) fn reduce<T: Real + Number>(&mut self, code: Opcode, width: usize, x: &Ref, out: &Out) {
        let op = match code {
            Opcode::Sum | Opcode::Mean => Reduction::Sum,
            Opcode::Rms => Reduction::MeanSquare,
            Opcode::Norm2 => Reduction::SumSquares,
            _ => Reduction::Max,
        };
        self.write::<T, _>(out, |y, m| {
            let x = x.get::<T>(m.arena);
            if code == Opcode::ReduceMin {
                for (x, y) in x.chunks_exact(width).zip(y) {
                    *y = x[1..].iter().fold(x[0], |a, b| if a <= *b || a.nan() { a } else { *b });
                }
                return;
            }
            rowwise::reduce(op, x, width, y);
            match code {
                Opcode::Mean => y.iter_mut().for_each(|y| *y = *y / <T as Number>::from_f64(width as f64)),
                Opcode::Rms | Opcode::Norm2 => y.iter_mut().for_each(|y| *y = y.root()),
                _ => {}
            }
        });
    }

    pub(super) fn reduce_ints(&mut self, code: Opcode, width: usize, x: &Ref, out: &Out) {
        self.write::<i32, _>(out, |y, m| {
            for (x, y) in x.get::<i32>(m.arena).chunks_exact(width).zip(y) {
                let rest = x[1..].iter();
                *y = match code {
                    Opcode::ReduceMax => rest.fold(x[0], |a, b| a.max(*b)),
                    Opcode::ReduceMin => rest.fold(x[0], |a, b| a.min(*b)),
                    _ => rest.fold(x[0], |a, b| a.wrapping_add(*b)),
                };
            }
        });
    }

    pub(super) fn all_finite(&mut self, width: usize, x: &Ref, out: &Out) {
        self.write::<i32, _>(out, |y, m| {
            for (x, y) in x.get::<f32>(m.arena).chunks_exact(width).zip(y) {
                // The exponent of infinities and NaN is the greatest.
                let most = x.iter().fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff));
                *y = i32::from(most < f32::INFINITY.to_bits());
            }
        });
    }

    pub(super) fn argmax<T: Real + Elem>(&mut self, width: usize, x: &Ref, out: &Out) {
        self.write::<i32, _>(out, |y, m| {
            for (x, y) in x.get::<T>(m.arena).chunks_exact(width).zip(y) {
                *y = select::argmax(x).index as i32;
            }
        });
    }

    pub(super) fn top_k<T: Real + Elem>(&mut self, k: usize, width: usize, x: &Ref, outs: &[Out]) {
        let mut values = self.arena.take::<T>(&outs[0]);
        let mut indices = self.arena.take::<i32>(&outs[1]);
        if k > 0 {
            let (values, indices) =
                (values[..outs[0].len].chunks_exact_mut(k), indices[..outs[1].len].chunks_exact_mut(k));
            let (x, pool) = (x.get::<T>(self.arena), self.pool);
            let mut rows: Vec<(&[T], &mut [T], &mut [i32])> =
                x.chunks_exact(width).zip(values).zip(indices).map(|((x, v), i)| (x, v, i)).collect();
            let row = |_: usize, part: &mut [(&[T], &mut [T], &mut [i32])]| {
                for (x, values, indices) in part {
                    for (place, id) in select::top_k(x, k).into_iter().enumerate() {
                        values[place] = x[id as usize];
                        indices[place] = id as i32;
                    }
                }
            };
            if rows.len() * width < MIN_RANKED { row(0, &mut rows) } else { pool.par_chunks_mut(&mut rows, 1, row) }
        }
        self.arena.give(&outs[0], values);
        self.arena.give(&outs[1], indices);
    }

    pub(super) fn top_set<T: Real + Elem>(&mut self, k: usize, width: usize, x: &Ref, out: &Out) {
        self.write::<i32, _>(out, |y, m| {
            let x = x.get::<T>(m.arena);
            let row = |i: usize, y: &mut [i32]| select::top_set(&x[i * width..(i + 1) * width], y);
            if x.len() < MIN_RANKED {
                y.chunks_exact_mut(k).enumerate().for_each(|(i, y)| row(i, y));
            } else {
                m.pool.par_chunks_mut(y, k, row);
            }
        });
    }

    pub(super) fn softmax<T: Real + Elem>(&mut self, width: usize, x: &Ref, out: &Out) {
        self.write::<T, _>(out, |y, m| {
            let x = x.get::<T>(m.arena);
            let part = ROWS * width;
            if y.len() < MIN_RANKED || part == 0 {
                rowwise::softmax(x, width, y);
            } else {
                m.pool.par_chunks_mut(y, part, |i, y| rowwise::softmax(&x[i * part..][..y.len()], width, y));
            }
        });
    }
}

/// Elements to rank, or to take exponentials of, below which a second thread costs more than it saves.
const MIN_RANKED: usize = 1 << 10;
/// Rows of one task.
const ROWS: usize = 16;
