//! Bounds-checked vector access to slices.

use super::{LANES, Real, Simd};

/// The elements `at..at + 16` of `x`; lanes past the end are `fill`.
#[inline(always)]
pub(crate) fn load_lanes<T: Real, S: Simd<T>>(s: S, x: &[T], at: usize, fill: T) -> S::V {
    let part = &x[at..];
    // SAFETY: `part` holds the elements read.
    unsafe { s.load_part(part.as_ptr(), part.len().min(LANES), fill) }
}

/// Stores lanes to the elements `at..at + 16` of `y`, those past its end excepted.
#[inline(always)]
pub(crate) fn store_lanes<T: Real, S: Simd<T>>(s: S, y: &mut [T], at: usize, v: S::V) {
    let part = &mut y[at..];
    // SAFETY: `part` holds the elements written.
    unsafe { s.store_part(part.as_mut_ptr(), v, part.len().min(LANES)) };
}
