//! The f32 exponential, stated once over virtual vectors.

use super::Simd;

/// Adding it rounds a small f32 to an integer, to even, and leaves that integer in the low bits.
pub(super) const ROUND: f32 = 12_582_912.0;

/// Vectors of f32 that can build powers of two.
pub(super) trait Exponent: Simd<f32> {
    /// `2^n` for integral `n` in -126..=127.
    fn exponent(self, n: Self::V) -> Self::V;
}

/// `exp(x)` by `x = n ln 2 + r`, a polynomial in `r` and two exact scalings, so that subnormal results round once.
#[inline(always)]
pub(super) fn exp<S: Exponent>(s: S, x: S::V) -> S::V {
    // `max` and `min` keep a NaN that is their second operand. The bounds are past where results become 0 and infinite.
    let x = s.max(s.splat(-105.0), x);
    let x = s.min(s.splat(90.0), x);
    let n = s.sub(s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND)), s.splat(ROUND));
    // ln 2 in two parts, the first short enough that its product with n is exact.
    let r = s.fma(n, s.splat(-0.693_359_4), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    // Minimax over |r| <= ln 2 / 2 of (exp(r) - 1 - r) / r^2.
    let mut p = s.splat(1.987_569_1e-4);
    p = s.fma(p, r, s.splat(1.398_199_9e-3));
    p = s.fma(p, r, s.splat(8.333_452e-3));
    p = s.fma(p, r, s.splat(4.166_579_6e-2));
    p = s.fma(p, r, s.splat(1.666_666_5e-1));
    p = s.fma(p, r, s.splat(0.5));
    let p = s.add(s.fma(p, s.mul(r, r), r), s.splat(1.0));
    let half = s.sub(s.fma(n, s.splat(0.5), s.splat(ROUND)), s.splat(ROUND));
    s.mul(s.mul(p, s.exponent(half)), s.exponent(s.sub(n, half)))
}
