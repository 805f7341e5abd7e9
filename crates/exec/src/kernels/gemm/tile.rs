//! Register tiles: a few rows times a few panels, accumulators held over a block of `k`.
//!
//! A block of `k` continues from the sums of the block before it, stored and loaded without rounding, so blocking
//! changes no bit.

use super::super::simd::{Kernel, LANES, Real, Simd};
use super::pack::{GROUP, PackedB, Store};
use crate::threads::Shares;
use std::ops::Range;

/// Bytes of weights that a block of `k` may take: they stay in the first-level cache while all rows pass.
const BLOCK_BYTES: usize = 32 << 10;
/// Most rows of a tile.
const TILE_ROWS: usize = 6;

/// Rows times panels of one product.
pub(super) struct Block<'a, T> {
    pub(super) x: &'a [T],
    pub(super) x_stride: usize,
    pub(super) y: &'a Shares<'a, T>,
    pub(super) y_stride: usize,
    pub(super) w: &'a PackedB<T>,
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
}

/// How weights lie in memory.
pub(super) trait Weights<T: Real>: Copy {
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
pub(super) struct Plain;
/// bf16 pairs.
#[derive(Clone, Copy)]
pub(super) struct Bf16;

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

impl<T: Real> Kernel<T> for Block<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        match &self.w.store {
            Store::Plain(lines) => self.groups::<S, Plain>(s, lines.as_ptr().cast()),
            Store::Bf16(lines) => self.groups::<S, Bf16>(s, lines.as_ptr().cast()),
        }
    }
}

impl<T: Real> Block<'_, T> {
    #[inline(always)]
    fn groups<S: Simd<T>, W: Weights<T>>(&self, s: S, lines: *const W::Lane) {
        let steps = self.w.inputs().div_ceil(W::STEP);
        let all = self.w.outputs().div_ceil(LANES);
        let mut panel = self.panels.start;
        while panel < self.panels.end {
            let group = panel / GROUP * GROUP;
            let both = group + 2 * GROUP;
            let whole = panel == group && both <= self.panels.end && both * LANES <= self.w.outputs();
            if self.rows.len() == 1 && S::ACCUMULATORS >= 2 * GROUP && whole {
                // SAFETY: two full groups of `GROUP * steps` lines each start at `group * steps`.
                self.one_row::<S, W>(s, unsafe { lines.add(group * steps * LANES) }, steps, panel);
                panel = both;
                continue;
            }
            let width = GROUP.min(all - group);
            let last = self.panels.end.min(group + width);
            // SAFETY: the group's lines start `group * steps` lines in, and panel `panel - group` is within its width.
            let first_line = unsafe { lines.add((group * steps + panel - group) * LANES) };
            self.panels_of_group::<S, W>(s, first_line, width, panel..last);
            panel = last;
        }
    }

    /// One row against two full groups: twice the independent sums of a tile, to cover the latency of the additions.
    #[inline(always)]
    fn one_row<S: Simd<T>, W: Weights<T>>(&self, s: S, lines: *const W::Lane, steps: usize, panel: usize) {
        let inputs = self.w.inputs();
        // SAFETY: the row lies inside `x` and `y`, as `linear` asserted; this task alone writes these outputs; each
        // group has `steps` steps of `GROUP` lines.
        unsafe {
            let x = self.x.as_ptr().add(self.rows.start * self.x_stride);
            let mut acc = [[s.splat(T::ZERO); GROUP]; 2];
            for step in 0..steps {
                let k = step * W::STEP;
                let last = W::STEP == 2 && k + 1 == inputs;
                let a = s.splat(*x.add(k));
                let a2 = s.splat(if W::STEP == 2 && !last { *x.add(k + 1) } else { T::ZERO });
                let line = lines.add(step * GROUP * LANES);
                for g in 0..2 {
                    for p in 0..GROUP {
                        let (b, c) = W::vectors(s, line.add((g * steps * GROUP + p) * LANES));
                        acc[g][p] = s.fma(a, b, acc[g][p]);
                        if W::STEP == 2 && !last {
                            acc[g][p] = s.fma(a2, c, acc[g][p]);
                        }
                    }
                }
            }
            let y = self.y.ptr(self.rows.start * self.y_stride + panel * LANES);
            for g in 0..2 {
                for p in 0..GROUP {
                    s.store(y.add((g * GROUP + p) * LANES), acc[g][p]);
                }
            }
        }
    }

    /// All rows against the panels `panels` of one group of `width` panels; `line` is the first panel's first line.
    #[inline(always)]
    fn panels_of_group<S: Simd<T>, W: Weights<T>>(
        &self,
        s: S,
        line: *const W::Lane,
        width: usize,
        panels: Range<usize>,
    ) {
        let inputs = self.w.inputs();
        let one_row = self.rows.len() == 1;
        let step_bytes = width * LANES * size_of::<W::Lane>();
        let block = if one_row { inputs } else { (BLOCK_BYTES / step_bytes * W::STEP).min(inputs) };
        let mut k = 0;
        loop {
            let last = inputs.min(k + block);
            // SAFETY: the group has `inputs.div_ceil(STEP)` steps of `width` lines.
            let block_line = unsafe { line.add(k / W::STEP * width * LANES) };
            let mut row = self.rows.start;
            let tiles = self.rows.len().div_ceil(TILE_ROWS);
            for tile in 1..=tiles {
                let next = self.rows.start + self.rows.len() * tile / tiles;
                let at = Tile { line: block_line, width, row, k: k..last };
                match next - row {
                    1 => self.tiles::<S, W, 1>(s, &at, panels.clone()),
                    2 => self.tiles::<S, W, 2>(s, &at, panels.clone()),
                    3 => self.tiles::<S, W, 3>(s, &at, panels.clone()),
                    4 => self.tiles::<S, W, 4>(s, &at, panels.clone()),
                    5 => self.tiles::<S, W, 5>(s, &at, panels.clone()),
                    _ => self.tiles::<S, W, 6>(s, &at, panels.clone()),
                }
                row = next;
            }
            k = last;
            if k >= inputs {
                break;
            }
        }
    }

    /// `R` rows against the panels, as many at a time as there are accumulators for.
    #[inline(always)]
    fn tiles<S: Simd<T>, W: Weights<T>, const R: usize>(&self, s: S, at: &Tile<W::Lane>, panels: Range<usize>) {
        let mut panel = panels.start;
        while panel < panels.end {
            let left = panels.end - panel;
            // SAFETY: `panel - panels.start` is below the group's width.
            let line = unsafe { at.line.add((panel - panels.start) * LANES) };
            if S::ACCUMULATORS >= 4 * R && left >= 4 {
                self.tile::<S, W, R, 4>(s, at, line, panel);
                panel += 4;
            } else if S::ACCUMULATORS >= 2 * R && left >= 2 {
                self.tile::<S, W, R, 2>(s, at, line, panel);
                panel += 2;
            } else {
                self.tile::<S, W, R, 1>(s, at, line, panel);
                panel += 1;
            }
        }
    }

    #[inline(always)]
    fn tile<S: Simd<T>, W: Weights<T>, const R: usize, const P: usize>(
        &self,
        s: S,
        at: &Tile<W::Lane>,
        mut line: *const W::Lane,
        panel: usize,
    ) {
        let outputs = self.w.outputs();
        let first = panel * LANES;
        let full = first + P * LANES <= outputs;
        // SAFETY: rows and outputs lie inside `x` and `y`, as `linear` asserted; this task alone writes these outputs;
        // lines lie inside the group for `k` below `inputs`.
        unsafe {
            let mut acc = [[s.splat(T::ZERO); P]; R];
            if at.k.start > 0 {
                let mut edge = [[[T::ZERO; LANES]; P]; R];
                let (mut from, mut stride) = (self.y.ptr(at.row * self.y_stride + first), self.y_stride);
                if !full {
                    for (r, row) in edge.as_flattened_mut().as_flattened_mut().chunks_mut(P * LANES).enumerate() {
                        let count = outputs - first;
                        std::ptr::copy_nonoverlapping(from.add(r * stride), row.as_mut_ptr(), count);
                    }
                    (from, stride) = (edge.as_mut_ptr().cast(), P * LANES);
                }
                for r in 0..R {
                    for p in 0..P {
                        acc[r][p] = s.load(from.add(r * stride + p * LANES));
                    }
                }
            }
            let x = self.x.as_ptr().add(at.row * self.x_stride);
            let mut k = at.k.start;
            while k + W::STEP <= at.k.end {
                let mut b = [s.splat(T::ZERO); P];
                let mut c = b;
                for p in 0..P {
                    (b[p], c[p]) = W::vectors(s, line.add(p * LANES));
                }
                for r in 0..R {
                    let a = s.splat(*x.add(r * self.x_stride + k));
                    for p in 0..P {
                        acc[r][p] = s.fma(a, b[p], acc[r][p]);
                    }
                }
                if W::STEP == 2 {
                    for r in 0..R {
                        let a = s.splat(*x.add(r * self.x_stride + k + 1));
                        for p in 0..P {
                            acc[r][p] = s.fma(a, c[p], acc[r][p]);
                        }
                    }
                }
                line = line.add(at.width * LANES);
                k += W::STEP;
            }
            if k < at.k.end {
                for p in 0..P {
                    let (b, _) = W::vectors(s, line.add(p * LANES));
                    for r in 0..R {
                        acc[r][p] = s.fma(s.splat(*x.add(r * self.x_stride + k)), b, acc[r][p]);
                    }
                }
            }
            let mut edge = [[[T::ZERO; LANES]; P]; R];
            let to = self.y.ptr(at.row * self.y_stride + first);
            let (mut out, mut stride) = (to, self.y_stride);
            if !full {
                (out, stride) = (edge.as_mut_ptr().cast(), P * LANES);
            }
            for r in 0..R {
                for p in 0..P {
                    s.store(out.add(r * stride + p * LANES), acc[r][p]);
                }
            }
            if !full {
                for (r, row) in edge.as_flattened().as_flattened().chunks(P * LANES).enumerate() {
                    let count = outputs - first;
                    std::ptr::copy_nonoverlapping(row.as_ptr(), to.add(r * self.y_stride), count);
                }
            }
        }
    }
}

/// Where a tile starts.
struct Tile<L> {
    line: *const L,
    width: usize,
    row: usize,
    k: Range<usize>,
}
