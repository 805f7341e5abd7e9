//! Register tiles: a few rows times a few panels, accumulators held over a range of `k`.
//!
//! A range that carries on from stored sums loads them without rounding, so cutting `k` changes no bit.

use super::super::simd::{Kernel, LANES, Real, Simd};
use super::pack::GROUP;
use std::marker::PhantomData;
use std::ops::Range;

/// Most rows of a tile: fewer where 16 registers must also hold both halves of bf16 pairs.
const fn tile_rows(accumulators: usize, step: usize) -> usize {
    if accumulators < 8 && step == 2 { 4 } else { 6 }
}

/// How weights lie in memory.
pub(in super::super) trait Weights<T: Real>: Copy {
    /// A lane in memory.
    type Lane;
    /// Successive `k` in one line.
    const STEP: usize;
    /// The vectors of one line, for `k` and, where `STEP` is 2, `k + 1`.
    ///
    /// # Safety
    /// `line` must be valid for reading 16 lanes.
    unsafe fn vectors<S: Simd<T>>(s: S, line: *const Self::Lane) -> (S::V, S::V);
}

/// Weights in the element type.
#[derive(Clone, Copy)]
pub(in super::super) struct Plain;
/// bf16 pairs.
#[derive(Clone, Copy)]
pub(in super::super) struct Bf16;

impl<T: Real> Weights<T> for Plain {
    type Lane = T;
    const STEP: usize = 1;
    #[inline(always)]
    unsafe fn vectors<S: Simd<T>>(s: S, line: *const T) -> (S::V, S::V) {
        // SAFETY: by the caller's promise.
        let v = unsafe { s.load(line) };
        (v, v)
    }
}

impl<T: Real> Weights<T> for Bf16 {
    type Lane = u32;
    const STEP: usize = 2;
    #[inline(always)]
    unsafe fn vectors<S: Simd<T>>(s: S, line: *const u32) -> (S::V, S::V) {
        // SAFETY: by the caller's promise.
        unsafe { s.load_bf16_pairs(line) }
    }
}

/// Asks for a cache line that will be needed soon. The address may be anything.
#[inline(always)]
pub(super) fn fetch<E>(at: *const E) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing and cannot fault; every x86-64 processor has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Every `tiles`-th panel of a group from `tile` on, by bits.
#[inline(always)]
fn share(tile: usize, tiles: usize) -> u32 {
    let (mut bits, mut panel) = (0, tile);
    while panel < GROUP {
        bits |= 1 << panel;
        panel += tiles;
    }
    bits
}

/// A product `y[r, c] (+)= sum_k x[r, k] w[k, c]`, `k` ascending, by addresses.
pub(in super::super) struct Product<T, L> {
    /// Element `(0, 0)` of `x`; its columns are indexed by `k` from 0.
    pub(in super::super) x: *const T,
    /// Elements between rows of `x`.
    pub(in super::super) x_stride: usize,
    /// Rows of `x` and `y`.
    pub(in super::super) rows: usize,
    /// The line of the first panel at the first `k` of the range.
    pub(in super::super) line: *const L,
    /// Lanes between lines of successive steps.
    pub(in super::super) step: usize,
    /// Panels, their lines adjacent.
    pub(in super::super) panels: usize,
    /// Element `(0, 0)` of `y`.
    pub(in super::super) y: *mut T,
    /// Elements between rows of `y`.
    pub(in super::super) y_stride: usize,
    /// Columns that exist from the first panel on; those past them are neither read nor written.
    pub(in super::super) columns: usize,
    /// Whether the sums in `y` are continued.
    pub(in super::super) carry: bool,
    /// Lanes from a line to the one that is fetched while it is used; 0 fetches nothing.
    pub(in super::super) ahead: usize,
    /// Panels whose lines are fetched, by bits.
    pub(in super::super) fetched: u32,
}

impl<T, L> Clone for Product<T, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, L> Copy for Product<T, L> {}

/// A valid product over a range of `k`.
struct Compute<T, L, W> {
    product: Product<T, L>,
    k: Range<usize>,
    weights: PhantomData<W>,
}

impl<T: Real, L, W: Weights<T, Lane = L>> Kernel<T> for Compute<T, L, W> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        // SAFETY: `Product::compute` alone makes this kernel, of a product that its caller promises to be valid.
        unsafe { self.product.rows::<S, W>(s, &self.k) };
    }
}

impl<T: Real, L> Product<T, L> {
    /// Computes the product over the range `k`, whose start is a multiple of the weights' step.
    ///
    /// # Safety
    /// `x` and `y` must be valid for every row and column, `line` for every step of `k` and every panel, `y` exclusive.
    #[inline(always)]
    pub(in super::super) unsafe fn compute<S: Simd<T>, W: Weights<T, Lane = L>>(&self, s: S, k: Range<usize>) {
        s.outlined(Compute { product: *self, k, weights: PhantomData::<W> });
    }

    /// # Safety
    /// As [`Self::compute`].
    #[inline(always)]
    unsafe fn rows<S: Simd<T>, W: Weights<T, Lane = L>>(&self, s: S, k: &Range<usize>) {
        let tiles = self.rows.div_ceil(tile_rows(S::ACCUMULATORS, W::STEP));
        let mut row = 0;
        for tile in 1..=tiles {
            let next = self.rows * tile / tiles;
            // SAFETY: rows `row..next` of a product that is valid by the caller's promise.
            unsafe {
                let part = Self {
                    x: self.x.add(row * self.x_stride),
                    y: self.y.wrapping_add(row * self.y_stride),
                    // The passes over the lines share the fetching, so that memory is busy all the time.
                    fetched: share(tile - 1, tiles),
                    ..*self
                };
                match next - row {
                    1 => part.tiles::<S, W, 1>(s, k),
                    2 => part.tiles::<S, W, 2>(s, k),
                    3 => part.tiles::<S, W, 3>(s, k),
                    4 => part.tiles::<S, W, 4>(s, k),
                    5 => part.tiles::<S, W, 5>(s, k),
                    _ => part.tiles::<S, W, 6>(s, k),
                }
            }
            row = next;
        }
    }

    /// `R` rows against the panels, as many at a time as there are accumulators for.
    ///
    /// # Safety
    /// As [`Self::compute`], for `R` rows.
    #[inline(always)]
    unsafe fn tiles<S: Simd<T>, W: Weights<T, Lane = L>, const R: usize>(&self, s: S, k: &Range<usize>) {
        let mut panel = 0;
        while panel < self.panels {
            let left = self.panels - panel;
            // SAFETY: panels from `panel` on of a product that is valid by the caller's promise.
            unsafe {
                let part = Self {
                    line: self.line.add(panel * LANES),
                    y: self.y.wrapping_add(panel * LANES),
                    columns: self.columns - panel * LANES,
                    ..*self
                };
                if S::ACCUMULATORS >= 4 * R && left >= 4 {
                    part.tile::<S, W, R, 4>(s, k);
                    panel += 4;
                } else if S::ACCUMULATORS >= 2 * R && left >= 2 {
                    part.tile::<S, W, R, 2>(s, k);
                    panel += 2;
                } else {
                    part.tile::<S, W, R, 1>(s, k);
                    panel += 1;
                }
            }
        }
    }

    /// # Safety
    /// As [`Self::compute`], for `R` rows and `P` panels.
    #[inline(always)]
    unsafe fn tile<S: Simd<T>, W: Weights<T, Lane = L>, const R: usize, const P: usize>(
        &self,
        s: S,
        range: &Range<usize>,
    ) {
        let full = P * LANES <= self.columns;
        // SAFETY: by the caller's promise; where columns are missing, `y` is reached through `edge`.
        unsafe {
            let mut acc = [[s.splat(T::ZERO); P]; R];
            if self.carry {
                let mut edge = [[[T::ZERO; LANES]; P]; R];
                let (mut from, mut stride) = (self.y.cast_const(), self.y_stride);
                if !full {
                    for (r, row) in edge.as_flattened_mut().as_flattened_mut().chunks_mut(P * LANES).enumerate() {
                        std::ptr::copy_nonoverlapping(from.add(r * stride), row.as_mut_ptr(), self.columns);
                    }
                    (from, stride) = (edge.as_ptr().cast(), P * LANES);
                }
                for r in 0..R {
                    for p in 0..P {
                        acc[r][p] = s.load(from.add(r * stride + p * LANES));
                    }
                }
            }
            let mut line = self.line;
            let mut k = range.start;
            while k + W::STEP <= range.end {
                if self.ahead > 0 {
                    for p in 0..P {
                        if self.fetched >> p & 1 == 1 {
                            fetch(line.wrapping_add(self.ahead + p * LANES));
                        }
                    }
                }
                let mut b = [s.splat(T::ZERO); P];
                let mut c = b;
                for p in 0..P {
                    (b[p], c[p]) = W::vectors(s, line.add(p * LANES));
                }
                for r in 0..R {
                    let a = s.splat(*self.x.add(r * self.x_stride + k));
                    for p in 0..P {
                        acc[r][p] = s.fma(a, b[p], acc[r][p]);
                    }
                }
                if W::STEP == 2 {
                    for r in 0..R {
                        let a = s.splat(*self.x.add(r * self.x_stride + k + 1));
                        for p in 0..P {
                            acc[r][p] = s.fma(a, c[p], acc[r][p]);
                        }
                    }
                }
                line = line.wrapping_add(self.step);
                k += W::STEP;
            }
            if k < range.end {
                for p in 0..P {
                    let (b, _) = W::vectors(s, line.add(p * LANES));
                    for r in 0..R {
                        acc[r][p] = s.fma(s.splat(*self.x.add(r * self.x_stride + k)), b, acc[r][p]);
                    }
                }
            }
            // Stored by constant indices alone: an accumulator indexed at run time would live on the stack.
            let mut edge = [[[T::ZERO; LANES]; P]; R];
            let (mut to, mut stride) = (self.y, self.y_stride);
            if !full {
                (to, stride) = (edge.as_mut_ptr().cast(), P * LANES);
            }
            for r in 0..R {
                for p in 0..P {
                    s.store(to.add(r * stride + p * LANES), acc[r][p]);
                }
            }
            if !full {
                for (r, row) in edge.as_flattened().as_flattened().chunks(P * LANES).enumerate() {
                    std::ptr::copy_nonoverlapping(row.as_ptr(), self.y.add(r * self.y_stride), self.columns);
                }
            }
        }
    }
}
