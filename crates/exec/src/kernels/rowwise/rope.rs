//! Rotary position embedding, half-split layout.

use super::super::simd::Real;

/// Cosines and sines of a call's positions, computed in f64 and rounded once; shared by all layers and heads.
#[derive(Clone, Debug)]
pub struct RopeAngles<T> {
    cos: Vec<T>,
    sin: Vec<T>,
    half: usize,
}

impl<T: Real> RopeAngles<T> {
    /// Angles `position * base^(-2 i / rotary)` for `i` in `0..rotary / 2`.
    ///
    /// # Panics
    /// If `rotary` is odd.
    #[must_use]
    pub fn new(positions: &[i32], base: f64, rotary: usize) -> Self {
        assert!(rotary.is_multiple_of(2), "rotated elements come in pairs");
        let half = rotary / 2;
        let frequencies: Vec<f64> = (0..half).map(|i| base.powf(-2.0 * i as f64 / rotary as f64)).collect();
        let angles = positions.iter().flat_map(|p| frequencies.iter().map(move |f| f64::from(*p) * f));
        let (cos, sin) = angles.map(|a| (T::from_f64(a.cos()), T::from_f64(a.sin()))).unzip();
        Self { cos, sin, half }
    }

    /// Rotates in place the first `rotary` elements of every head of `x` `[rows, heads, width]`: the pair `a = x[i]`,
    /// `b = x[i + rotary / 2]` becomes `a cos - b sin`, `b cos + a sin`; products are rounded, then summed.
    ///
    /// # Panics
    /// If `x` is not `[positions, heads, width]` or `width` is below `rotary`.
    pub fn rotate(&self, x: &mut [T], heads: usize, width: usize) {
        if self.half == 0 || x.is_empty() {
            return;
        }
        let rows = self.cos.len() / self.half;
        assert!(x.len() == rows * heads * width && width >= 2 * self.half, "operand is not [positions, heads, width]");
        for (row, x) in x.chunks_exact_mut(heads * width).enumerate() {
            let cos = &self.cos[row * self.half..][..self.half];
            let sin = &self.sin[row * self.half..][..self.half];
            for head in x.chunks_exact_mut(width) {
                let (first, second) = head.split_at_mut(self.half);
                for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                    (*a, *b) = (*a * *cos - *b * *sin, *b * *cos + *a * *sin);
                }
            }
        }
    }
}

/// Rotates the first `2 * half` entries of every head of `x` `[rows, heads, width]` into `y`, as [`RopeAngles::rotate`]
/// does, by cosines and sines `[rows, half]`.
///
/// # Panics
/// If shapes disagree.
pub fn rotate<T: Real>(x: &[T], cos: &[T], sin: &[T], heads: usize, width: usize, half: usize, y: &mut [T]) {
    assert!(half > 0 && 2 * half <= width && x.len() == y.len() && cos.len() == sin.len());
    assert_eq!(x.len(), cos.len() / half * heads * width, "operand is not [rows, heads, width]");
    let rows = x.chunks_exact(heads * width).zip(y.chunks_exact_mut(heads * width));
    for ((x, y), (cos, sin)) in rows.zip(cos.chunks_exact(half).zip(sin.chunks_exact(half))) {
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            for i in 0..half {
                let (a, b) = (x[i], x[i + half]);
                y[i] = a * cos[i] - b * sin[i];
                y[i + half] = b * cos[i] + a * sin[i];
            }
            y[2 * half..].copy_from_slice(&x[2 * half..]);
        }
    }
}
