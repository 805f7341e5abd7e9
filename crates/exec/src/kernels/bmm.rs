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

/// Rows of a bf16 table `[extent, width]` named by indices, `rows` for each entry of a batch. Indices are clamped.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// The table's bits.
    pub table: &'a [u16],
    /// Rows of the table.
    pub extent: usize,
    /// `[batch, rows]`
    pub index: &'a [i32],
    /// Rows of one matrix.
    pub rows: usize,
}

/// [`bmm_nt`] with the widened rows `taken` as `x` if `taken_first`, else as `w`; `other` is the other operand.
///
/// # Panics
/// As [`bmm_nt`], or if the table or the indices are too short.
pub fn bmm_taken(
    pool: &Pool,
    batch: usize,
    width: usize,
    taken: &Taken<'_>,
    other: Matrices<'_, f32>,
    taken_first: bool,
    y: &mut [f32],
) {
    assert_eq!(y.len(), batch * taken.rows * other.rows, "result is not [batch, x rows, w rows]");
    if y.is_empty() {
        return;
    }
    assert!(other.holds(batch, width), "operand ends before its last row");
    assert!(taken.index.len() >= batch * taken.rows, "indices are missing");
    assert!(taken.extent > 0 && taken.table.len() >= taken.extent * width, "the table ends before its last row");
    let work = batch * taken.rows * other.rows * width.max(1);
    let size = taken.rows * other.rows;
    // Against a single row, a few rows at a time: they are multiplied while they are in the first-level cache.
    let step = if other.rows == 1 { LANES } else { taken.rows };
    let task = |b: usize, y: &mut [f32]| {
        let other = Matrices { data: &other.data[b * other.batch_stride..], ..other };
        f32::scratch(step * width, |memory| {
            for (part, y) in y.chunks_mut(step * other.rows).enumerate() {
                let n = y.len() / other.rows;
                let rows = &mut memory[..n * width];
                f32::dispatch(Widen { taken, first: b * taken.rows + part * step, width, rows });
                let rows = Matrices::dense(rows, n, width);
                let (x, w) = if taken_first { (rows, other) } else { (other, rows) };
                let y = Shares::new(y);
                f32::dispatch(Task { first: 0, last: x.rows.div_ceil(TILE), width, x, w, y: &y });
            }
        });
    };
    if work < 2 * MIN_WORK {
        y.chunks_exact_mut(size).enumerate().for_each(|(b, y)| task(b, y));
    } else {
        pool.par_chunks_mut(y, size, task);
    }
}

/// Widens rows of a table.
struct Widen<'a> {
    taken: &'a Taken<'a>,
    first: usize,
    width: usize,
    rows: &'a mut [f32],
}

impl Kernel<f32> for Widen<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<f32>>(self, _: S) {
        if self.width == 0 {
            return;
        }
        let index = &self.taken.index[self.first..];
        for (i, row) in index.iter().zip(self.rows.chunks_exact_mut(self.width)) {
            let at = usize::try_from(*i).unwrap_or(0).min(self.taken.extent - 1) * self.width;
            for (x, bits) in row.iter_mut().zip(&self.taken.table[at..at + self.width]) {
                *x = f32::from_bits(u32::from(*bits) << 16);
            }
        }
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
        if self.w.rows == 1 || self.x.rows == 1 {
            return self.vectors(s);
        }
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
    /// One row on a side: sixteen sums at a time, their lanes folded together.
    #[inline(always)]
    fn vectors<S: Simd<T>>(&self, s: S) {
        let row_tiles = self.x.rows.div_ceil(TILE);
        let one_column = self.w.rows == 1;
        for b in self.first / row_tiles..self.last.div_ceil(row_tiles) {
            let (many, one) = if one_column { (self.x, self.w) } else { (self.w, self.x) };
            let (mut at, mut end) = (0, many.rows);
            if one_column {
                at = self.first.saturating_sub(b * row_tiles) * TILE;
                end = end.min((self.last - b * row_tiles).min(row_tiles) * TILE);
            }
            while at < end {
                let rows = (end - at).min(LANES);
                let mut acc = [s.splat(T::ZERO); LANES];
                // SAFETY: rows `at..at + rows` of one operand and the only row of the other exist in batch entry `b`,
                // each of `width` elements, as `bmm_nt` asserted; results of `b` from `at` on belong to this task.
                unsafe {
                    let m = many.data.as_ptr().add(b * many.batch_stride + at * many.row_stride);
                    let o = one.data.as_ptr().add(b * one.batch_stride);
                    let mut k = 0;
                    while k < self.width {
                        let count = (self.width - k).min(LANES);
                        if count == LANES && rows == LANES {
                            let ov = s.load(o.add(k));
                            for i in 0..LANES {
                                acc[i] = s.fma(s.load(m.add(i * many.row_stride + k)), ov, acc[i]);
                            }
                        } else {
                            let ov = s.load_part(o.add(k), count, T::ZERO);
                            for i in 0..LANES {
                                if i < rows {
                                    acc[i] =
                                        s.fma(s.load_part(m.add(i * many.row_stride + k), count, T::ZERO), ov, acc[i]);
                                }
                            }
                        }
                        k += LANES;
                    }
                    let sums = s.to_array(s.tree_add_rows(acc));
                    for (i, sum) in sums[..rows].iter().enumerate() {
                        *self.y.ptr(b * many.rows + at + i) = *sum;
                    }
                }
                at += rows;
            }
        }
    }

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
