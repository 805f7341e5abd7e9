//! One task of a linear map: rows times panels, `k` cut so that weights are reused from the first-level cache.

use super::super::simd::{Kernel, LANES, Real, Simd};
use super::pack::{GROUP, PackedB, Store};
use super::tile::{Bf16, Plain, Product, Weights};
use crate::threads::Shares;
use std::ops::Range;

/// Bytes of weights that a range of `k` may take: they stay in the first-level cache while all rows pass.
const BLOCK_BYTES: usize = 32 << 10;

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
        let steps = inputs.div_ceil(W::STEP);
        let step = width * LANES;
        let fitting = BLOCK_BYTES / (step * size_of::<W::Lane>()) * W::STEP;
        let block = if self.rows.len() == 1 { inputs } else { fitting.min(inputs) };
        let first = panels.start * LANES;
        let mut k = 0;
        loop {
            let last = inputs.min(k + block);
            // SAFETY: rows and outputs lie inside `x` and `y`, as `linear` asserted; this task alone writes these
            // outputs; the group has `inputs.div_ceil(STEP)` steps of `width` lines.
            unsafe {
                let product = Product {
                    x: self.x.as_ptr().add(self.rows.start * self.x_stride),
                    x_stride: self.x_stride,
                    rows: self.rows.len(),
                    line: line.add(k / W::STEP * step),
                    step,
                    panels: panels.len(),
                    y: self.y.ptr(self.rows.start * self.y_stride + first),
                    y_stride: self.y_stride,
                    columns: self.w.outputs() - first,
                    carry: k > 0,
                    // The same place of the next group, which lies behind this one.
                    ahead: steps * step,
                    fetched: 0,
                };
                product.compute::<S, W>(s, k..last);
            }
            k = last;
            if k >= inputs {
                break;
            }
        }
    }
}
