//! Reductions of rows to one number, and running sums.

use super::super::simd::{Kernel, LANES, Real, Simd, load_lanes};

/// A reduction of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Sum of the elements.
    Sum,
    /// Sum of the squares, each added by a fused multiply-add.
    SumSquares,
    /// Sum of the squares divided by the width.
    MeanSquare,
    /// Greatest element; NaN where there is one.
    Max,
}

/// `y[r]` is the reduction of row `r` of `x`, rows of `width` elements.
///
/// # Panics
/// If `width` is 0 or `x` is not `[y.len(), width]`.
pub fn reduce<T: Real>(op: Reduction, x: &[T], width: usize, y: &mut [T]) {
    assert!(width > 0 && x.len() == y.len() * width, "operand is not [rows, width]");
    T::dispatch(Reduce { op, x, width, y });
}

struct Reduce<'a, T> {
    op: Reduction,
    x: &'a [T],
    width: usize,
    y: &'a mut [T],
}

impl<T: Real> Kernel<T> for Reduce<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        for (x, y) in self.x.chunks_exact(self.width).zip(self.y) {
            *y = match self.op {
                Reduction::Sum => sum(s, x),
                Reduction::SumSquares => sum_squares(s, x),
                Reduction::MeanSquare => mean_square(s, x),
                Reduction::Max => max(s, x),
            };
        }
    }
}

#[inline(always)]
pub(super) fn sum<T: Real, S: Simd<T>>(s: S, x: &[T]) -> T {
    let mut lanes = s.splat(T::ZERO);
    for at in (0..x.len()).step_by(LANES) {
        lanes = s.add(lanes, load_lanes(s, x, at, T::ZERO));
    }
    s.tree_add(lanes)
}

#[inline(always)]
pub(super) fn sum_squares<T: Real, S: Simd<T>>(s: S, x: &[T]) -> T {
    let mut lanes = s.splat(T::ZERO);
    for at in (0..x.len()).step_by(LANES) {
        let v = load_lanes(s, x, at, T::ZERO);
        lanes = s.fma(v, v, lanes);
    }
    s.tree_add(lanes)
}

#[inline(always)]
pub(super) fn mean_square<T: Real, S: Simd<T>>(s: S, x: &[T]) -> T {
    sum_squares(s, x) / T::from_f64(x.len() as f64)
}

/// The greatest element; NaN where there is one. A NaN shows in a sum of `x - x`, which is 0 or, at infinities, NaN
/// too, so infinities are looked at again.
#[inline(always)]
pub(super) fn max<T: Real, S: Simd<T>>(s: S, x: &[T]) -> T {
    let mut lanes = s.splat(T::NEG_INFINITY);
    let mut doubt = s.splat(T::ZERO);
    for at in (0..x.len()).step_by(LANES) {
        let v = load_lanes(s, x, at, T::NEG_INFINITY);
        lanes = s.max(v, lanes);
        let own = load_lanes(s, x, at, T::ZERO);
        doubt = s.add(doubt, s.sub(own, own));
    }
    let doubtful = s.tree_add(doubt);
    if doubtful.to_f64().is_nan()
        && let Some(nan) = x.iter().find(|x| x.to_f64().is_nan())
    {
        return *nan;
    }
    s.tree_max(lanes)
}

/// Running sums of each row, added in order: `y[r, c] = x[r, 0] + ... + x[r, c]`.
///
/// # Panics
/// If `width` is 0, the lengths differ or `width` does not divide them.
pub fn cumsum<T: Real>(x: &[T], width: usize, y: &mut [T]) {
    assert!(width > 0 && x.len() == y.len() && x.len().is_multiple_of(width), "operand is not [rows, width]");
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        let mut total = T::ZERO;
        for (x, y) in x.iter().zip(y) {
            total += *x;
            *y = total;
        }
    }
}
