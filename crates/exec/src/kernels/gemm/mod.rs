//! Linear maps: `y = x wᵀ` with weights packed once.
//!
//! `y[n, o]` starts from 0 and takes `fma(x[n, k], w[o, k], y)` for `k` ascending, whatever the number of rows.

mod block;
mod pack;
pub(super) mod tile;

pub use pack::PackedB;

use super::simd::{LANES, Real};
use crate::threads::{Pool, Shares};
use block::Block;
use std::ops::Range;

/// Multiply-adds below which a second thread costs more than it saves.
const MIN_WORK: usize = 1 << 16;
/// Rows of one task: enough to amortise a weight block held in the first-level cache.
const TASK_ROWS: usize = 96;

/// One of several linear maps of the same rows: row `n` of the result starts at `n * w.outputs()` of `y`.
#[derive(Debug)]
pub struct Map<'a, T> {
    /// The weight.
    pub w: &'a PackedB<T>,
    /// The result, dense.
    pub y: &'a mut [T],
}

/// `y[n, o] = sum_k x[n, k] w[o, k]` for `rows` rows; row `n` of `x` starts at `n * x_stride`, of `y` at `n * y_stride`.
///
/// # Panics
/// If a stride is below its row's length or a slice ends before its last row does.
pub fn linear<T: Real>(
    pool: &Pool,
    x: &[T],
    x_stride: usize,
    rows: usize,
    w: &PackedB<T>,
    y: &mut [T],
    y_stride: usize,
) {
    let y_len = y.len();
    run(pool, x, x_stride, rows, &[(w, Shares::new(y), y_len, y_stride)]);
}

/// Several maps of the same rows as one job of the pool; results as [`linear`] gives them.
///
/// # Panics
/// As [`linear`].
pub fn linears<T: Real>(pool: &Pool, x: &[T], x_stride: usize, rows: usize, maps: &mut [Map<'_, T>]) {
    let parts: Vec<_> = maps
        .iter_mut()
        .map(|m| {
            let (len, stride) = (m.y.len(), m.w.outputs());
            (m.w, Shares::new(m.y), len, stride)
        })
        .collect();
    run(pool, x, x_stride, rows, &parts);
}

/// Weight, result, elements of the result, elements between its rows.
type Part<'a, T> = (&'a PackedB<T>, Shares<'a, T>, usize, usize);

fn run<T: Real>(pool: &Pool, x: &[T], x_stride: usize, rows: usize, parts: &[Part<'_, T>]) {
    if rows == 0 {
        return;
    }
    let (mut work, mut panels) = (0, 0);
    for (w, _, y_len, y_stride) in parts {
        let (outputs, inputs) = (w.outputs(), w.inputs());
        assert!(x_stride >= inputs && *y_stride >= outputs, "rows overlap");
        assert!(x.len() >= (rows - 1) * x_stride + inputs, "x ends before its last row");
        assert!(outputs == 0 || *y_len >= (rows - 1) * y_stride + outputs, "y ends before its last row");
        work += rows * outputs * inputs.max(1);
        panels += outputs.div_ceil(LANES);
    }
    // Panels are counted through all weights.
    let task = |rows: Range<usize>, panels: Range<usize>| {
        let mut first = 0;
        for (w, y, _, y_stride) in parts {
            let own = w.outputs().div_ceil(LANES);
            let range = panels.start.clamp(first, first + own) - first..panels.end.clamp(first, first + own) - first;
            first += own;
            if !range.is_empty() {
                let rows = rows.clone();
                T::dispatch(Block { x, x_stride, y, y_stride: *y_stride, w, rows, panels: range });
            }
        }
    };
    if pool.threads() == 1 || work < 2 * MIN_WORK {
        for first in (0..rows).step_by(TASK_ROWS) {
            task(first..(first + TASK_ROWS).min(rows), 0..panels);
        }
        return;
    }
    let row_tasks = rows.div_ceil(TASK_ROWS);
    let wanted = (work / MIN_WORK).min(pool.threads() * if work > 64 * MIN_WORK { 4 } else { 1 });
    let panel_tasks = wanted.div_ceil(row_tasks).clamp(1, panels);
    pool.run(row_tasks * panel_tasks, |index| {
        let (r, p) = (index % row_tasks, index / row_tasks);
        task(
            rows * r / row_tasks..rows * (r + 1) / row_tasks,
            panels * p / panel_tasks..panels * (p + 1) / panel_tasks,
        );
    });
}
