//! Norms and softmax over rows.

use super::super::simd::{Kernel, LANES, Real, Simd, load_lanes, store_lanes};
use super::reduce;

/// `y = x * (1 / sqrt(mean(x^2) + eps)) * w` for each row of `w.len()` elements.
///
/// # Panics
/// If `w` is empty, the lengths of `x` and `y` differ, or `w`'s does not divide them.
pub fn rms_norm<T: Real>(x: &[T], w: &[T], eps: T, y: &mut [T]) {
    rows(x, w.len(), y, Norm::Rms { w, eps });
}

/// `y = x / sqrt(sum(x^2) + eps) * scale` for each row of `width` elements.
///
/// # Panics
/// If `width` is 0, the lengths of `x` and `y` differ, or `width` does not divide them.
pub fn l2_normalise<T: Real>(x: &[T], width: usize, eps: T, scale: T, y: &mut [T]) {
    rows(x, width, y, Norm::L2 { eps, scale });
}

/// `y = exp(x - max(x)) / sum(exp(x - max(x)))` for each row of `width` elements.
///
/// # Panics
/// If `width` is 0, the lengths of `x` and `y` differ, or `width` does not divide them.
pub fn softmax<T: Real>(x: &[T], width: usize, y: &mut [T]) {
    rows(x, width, y, Norm::Softmax);
}

fn rows<T: Real>(x: &[T], width: usize, y: &mut [T], norm: Norm<'_, T>) {
    assert!(width > 0 && x.len() == y.len() && x.len().is_multiple_of(width), "operand is not [rows, width]");
    T::dispatch(Rows { x, width, y, norm });
}

#[derive(Clone, Copy)]
enum Norm<'a, T> {
    Rms { w: &'a [T], eps: T },
    L2 { eps: T, scale: T },
    Softmax,
}

struct Rows<'a, T> {
    x: &'a [T],
    width: usize,
    y: &'a mut [T],
    norm: Norm<'a, T>,
}

impl<T: Real> Kernel<T> for Rows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        for (x, y) in self.x.chunks_exact(self.width).zip(self.y.chunks_exact_mut(self.width)) {
            match self.norm {
                Norm::Rms { w, eps } => {
                    let factor = s.splat(T::ONE / (reduce::mean_square(s, x) + eps).root());
                    for at in (0..x.len()).step_by(LANES) {
                        let v = s.mul(load_lanes(s, x, at, T::ZERO), factor);
                        store_lanes(s, y, at, s.mul(v, load_lanes(s, w, at, T::ZERO)));
                    }
                }
                Norm::L2 { eps, scale } => {
                    let (norm, scale) = (s.splat((reduce::sum_squares(s, x) + eps).root()), s.splat(scale));
                    for at in (0..x.len()).step_by(LANES) {
                        let v = s.div(load_lanes(s, x, at, T::ZERO), norm);
                        store_lanes(s, y, at, s.mul(v, scale));
                    }
                }
                Norm::Softmax => {
                    let peak = s.splat(reduce::max(s, x));
                    let mut total = s.splat(T::ZERO);
                    for at in (0..x.len()).step_by(LANES) {
                        // Lanes past the end are exp(-inf - peak) = 0.
                        let v = s.exp(s.sub(load_lanes(s, x, at, T::NEG_INFINITY), peak));
                        store_lanes(s, y, at, v);
                        total = s.add(total, v);
                    }
                    let total = s.splat(s.tree_add(total));
                    for at in (0..x.len()).step_by(LANES) {
                        let v = s.div(load_lanes(s, y, at, T::ZERO), total);
                        store_lanes(s, y, at, v);
                    }
                }
            }
        }
    }
}
