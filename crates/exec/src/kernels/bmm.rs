//! Batches of small products of row vectors, such as scores of gathered head rows.
//!
//! An element is a dot product over [`LANES`] lanes: lane `i` takes `fma(x[k], w[k], lane)` for `k = i, i + 16, ...`,
//! then the lanes are folded by the fixed tree. Elements past the end of a row count as zeros.

use super::simd::{Kernel, LANES, Real, Simd};
use crate::threads::{Pool, Shares};

/// Multiply-adds below which a second thread costs more than it saves.
const MIN_WORK: usize = 1 << 16;
/// Rows of `x`, and of `w`, of a tile.
const TILE: usize = 4;

/// A batch of matrices whose rows are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Matrices<'a, T> {
    /// All elements.
    pub data: &'a [T],
    /// Rows of one matrix.
    pub rows: usize,
    /// Elements between rows.
    pub row_stride: usize,
    /// Elements between matrices; 0 gives every batch entry the same matrix.
    pub batch_stride: usize,
}

impl<'a, T> Matrices<'a, T> {
    /// Dense `[batch, rows, width]`.
    #[must_use]
    pub fn dense(data: &'a [T], rows: usize, width: usize) -> Self {
        Self { data, rows, row_stride: width, batch_stride: rows * width }
    }

    fn holds(&self, batch: usize, width: usize) -> bool {
        let last = (batch - 1) * self.batch_stride + self.rows.saturating_sub(1) * self.row_stride;
        self.rows == 0 || last + width <= self.data.len()
    }
}

/// `y[b, m, n] = dot(x[b, m], w[b, n])` over `width` elements; `y` is dense `[batch, x.rows, w.rows]`.
///
/// # Panics
/// If `y` has another size, or `x` or `w` end before their last row.
pub fn bmm_nt<T: Real>(pool: &Pool, batch: usize, width: usize, x: Matrices<'_, T>, w: Matrices<'_, T>, y: &mut [T]) {
    assert_eq!(y.len(), batch * x.rows * w.rows, "result is not [batch, x rows, w rows]");
    if y.is_empty() {
        return;
    }
    assert!(x.holds(batch, width) && w.holds(batch, width), "operand ends before its last row");
    let y = Shares::new(y);
    let row_tiles = x.rows.div_ceil(TILE);
    let task = |first, last| T::dispatch(Task { first, last, width, x, w, y: &y });
    if batch * x.rows * w.rows * width.max(1) < 2 * MIN_WORK {
        task(0, batch * row_tiles);
    } else {
        pool.par_ranges(batch * row_tiles, 1, |range| task(range.start, range.end));
    }
}

/// Tile rows `first..last` of all matrices.
struct Task<'a, T> {
    first: usize,
    last: usize,
    width: usize,
    x: Matrices<'a, T>,
    w: Matrices<'a, T>,
    y: &'a Shares<'a, T>,
}

impl<T: Real> Kernel<T> for Task<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        let row_tiles = self.x.rows.div_ceil(TILE);
        for index in self.first..self.last {
            let (b, row) = (index / row_tiles, index % row_tiles * TILE);
            let rows = (self.x.rows - row).min(TILE);
            let mut column = 0;
            while column < self.w.rows {
                let columns = (self.w.rows - column).min(TILE);
                match (rows, columns) {
                    (4, 4) => self.tile::<S, 4, 4>(s, b, row, column),
                    (3, 4) => self.tile::<S, 3, 4>(s, b, row, column),
                    (2, 4) => self.tile::<S, 2, 4>(s, b, row, column),
                    (1, 4) => self.tile::<S, 1, 4>(s, b, row, column),
                    _ => {
                        for r in row..row + rows {
                            for c in column..column + columns {
                                self.tile::<S, 1, 1>(s, b, r, c);
                            }
                        }
                    }
                }
                column += columns;
            }
        }
    }
}

impl<T: Real> Task<'_, T> {
    #[inline(always)]
    fn tile<S: Simd<T>, const R: usize, const C: usize>(&self, s: S, b: usize, row: usize, column: usize) {
        let mut acc = [[s.splat(T::ZERO); C]; R];
        // SAFETY: rows `row..row + R` of `x` and `column..column + C` of `w` exist in batch entry `b`, each of `width`
        // elements, as `bmm_nt` asserted.
        unsafe {
            let x = self.x.data.as_ptr().add(b * self.x.batch_stride + row * self.x.row_stride);
            let w = self.w.data.as_ptr().add(b * self.w.batch_stride + column * self.w.row_stride);
            let mut k = 0;
            while k + LANES <= self.width {
                let mut wv = [s.splat(T::ZERO); C];
                for c in 0..C {
                    wv[c] = s.load(w.add(c * self.w.row_stride + k));
                }
                for r in 0..R {
                    let xv = s.load(x.add(r * self.x.row_stride + k));
                    for c in 0..C {
                        acc[r][c] = s.fma(xv, wv[c], acc[r][c]);
                    }
                }
                k += LANES;
            }
            if k < self.width {
                let count = self.width - k;
                let mut wv = [s.splat(T::ZERO); C];
                for c in 0..C {
                    wv[c] = s.load_part(w.add(c * self.w.row_stride + k), count, T::ZERO);
                }
                for r in 0..R {
                    let xv = s.load_part(x.add(r * self.x.row_stride + k), count, T::ZERO);
                    for c in 0..C {
                        acc[r][c] = s.fma(xv, wv[c], acc[r][c]);
                    }
                }
            }
            for r in 0..R {
                let at = (b * self.x.rows + row + r) * self.w.rows + column;
                for c in 0..C {
                    *self.y.ptr(at + c) = s.tree_add(acc[r][c]);
                }
            }
        }
    }
}
