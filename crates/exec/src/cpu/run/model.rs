//! Norms, rotary positions, random numbers, sampling, 8-bit copies.

use super::super::elements::{Elem, Out, Ref};
use super::super::number::Number;
use super::Machine;
use crate::kernels::rowwise;
use crate::kernels::sampling;
use crate::kernels::simd::Real;
use spinec_ir::interp::{coin, f8};

/// Elements to norm below which a second thread costs more than it saves.
const MIN_NORM: usize = 1 << 14;
/// Rows of one task.
const ROWS: usize = 16;

impl Machine<'_> {
    pub(super) fn rms_norm<T: Real + Number>(&mut self, width: usize, eps: f64, ins: &[Ref], out: &Out) {
        self.write::<T, _>(out, |y, m| {
            let w = &ins[1].get::<T>(m.arena)[..width];
            let (x, eps) = (ins[0].get::<T>(m.arena), <T as Number>::from_f64(eps));
            if y.len() < MIN_NORM {
                rowwise::rms_norm(x, w, eps, y);
            } else {
                let part = ROWS * width;
                m.pool.par_chunks_mut(y, part, |i, y| rowwise::rms_norm(&x[i * part..][..y.len()], w, eps, y));
            }
        });
    }

    pub(super) fn l2_norm<T: Real + Number>(&mut self, width: usize, eps: f64, x: &Ref, out: &Out) {
        self.write::<T, _>(out, |y, m| {
            rowwise::l2_normalise(x.get(m.arena), width, <T as Number>::from_f64(eps), T::ONE, y);
        });
    }

    pub(super) fn angles<T: Real + Number>(&mut self, frequencies: &[f64], at: &Ref, outs: &[Out]) {
        let half = frequencies.len();
        let mut sin = self.arena.take::<T>(&outs[1]);
        self.write::<T, _>(&outs[0], |cos, m| {
            let rows = cos.chunks_exact_mut(half).zip(sin.chunks_exact_mut(half));
            for (position, (cos, sin)) in at.get::<i32>(m.arena).iter().zip(rows) {
                for (i, frequency) in frequencies.iter().enumerate() {
                    let (s, c) = (f64::from(*position) * frequency).sin_cos();
                    (cos[i], sin[i]) = (<T as Number>::from_f64(c), <T as Number>::from_f64(s));
                }
            }
        });
        self.arena.give(&outs[1], sin);
    }

    pub(super) fn rope<T: Real + Elem>(&mut self, heads: usize, width: usize, half: usize, ins: &[Ref], out: &Out) {
        self.write::<T, _>(out, |y, m| {
            let (cos, sin) = (ins[1].get::<T>(m.arena), ins[2].get::<T>(m.arena));
            rowwise::rotate(ins[0].get(m.arena), cos, sin, heads, width, half, y);
        });
    }

    pub(super) fn coin(&mut self, purpose: u32, each: usize, ins: &[Ref], out: &Out) {
        self.write::<f64, _>(out, |y, m| {
            let get = |i: usize| ins[i].get::<i32>(m.arena);
            let (seed, at, anchor) = (get(0), get(1), get(2));
            for (i, (y, at)) in y.iter_mut().zip(at).enumerate() {
                let n = i / each;
                *y = coin([seed[2 * n] as u32, seed[2 * n + 1] as u32], *at as u32, purpose, anchor[n] as u32);
            }
        });
    }

    pub(super) fn sampling_law<T: Real + Elem>(&mut self, width: usize, rows: usize, ins: &[Ref], out: &Out) {
        self.write::<f64, _>(out, |y, m| {
            let logits = ins[0].get::<T>(m.arena);
            let (temperature, top_p) = (ins[1].get::<f64>(m.arena), ins[3].get::<f64>(m.arena));
            let top_k = ins[2].get::<i32>(m.arena);
            m.pool.par_chunks_mut(y, width, |row, law| {
                let n = row / rows;
                let t = if temperature[n] > 1e-5 { temperature[n] } else { 1e-5 };
                let x = &logits[row * width..(row + 1) * width];
                if sampling::deployed(x, t, top_k[n], top_p[n], law).is_err() {
                    law.fill(f64::NAN);
                }
            });
        });
    }

    pub(super) fn draw<T: Real + Elem>(&mut self, width: usize, ins: &[Ref], out: &Out) {
        self.write::<i32, _>(out, |y, m| {
            let (laws, coins) = (ins[0].get::<T>(m.arena), ins[1].get::<T>(m.arena));
            for ((law, coin), y) in laws.chunks_exact(width).zip(coins).zip(y) {
                let total = law.iter().fold(T::ZERO, |sum, p| sum + *p);
                let (mark, mut sum) = (*coin * total, T::ZERO);
                let below = law.iter().filter(|p| {
                    sum += **p;
                    sum <= mark
                });
                *y = below.count().min(width - 1) as i32;
            }
        });
    }

    pub(super) fn quantize_rows(&mut self, width: usize, x: &Ref, outs: &[Out]) {
        let mut bits = self.arena.take::<u8>(&outs[0]);
        self.write::<f32, _>(&outs[1], |scales, m| {
            let x = x.get::<f32>(m.arena);
            for (x, scale) in x.chunks_exact(width).zip(&mut *scales) {
                let larger = |a: f32, b: &f32| if a.is_nan() || a >= b.abs() { a } else { b.abs() };
                *scale = x.iter().fold(1e-12, larger) / 448.0;
            }
            m.pool.par_chunks_mut(&mut bits[..outs[0].len], width, |row, bits| {
                let scale = scales[row];
                for (bits, x) in bits.iter_mut().zip(&x[row * width..]) {
                    *bits = f8::encode(f64::from(x / scale));
                }
            });
        });
        self.arena.give(&outs[0], bits);
    }
}
