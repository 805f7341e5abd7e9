//! Rotary position embedding, half-split layout.

use super::super::simd::Real;

/// Rotates the first `2 * half` entries of every head of `x` `[rows, heads, width]` into `y` by cosines and
/// sines `[rows, half]`: the pair `a = x[i]`, `b = x[i + half]` becomes `a cos - b sin`, `b cos + a sin`; products are rounded,
/// then summed.
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
