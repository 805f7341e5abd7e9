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
    let (outputs, inputs) = (w.outputs(), w.inputs());
    if rows == 0 || outputs == 0 {
        return;
    }
    assert!(x_stride >= inputs && y_stride >= outputs, "rows overlap");
    assert!(x.len() >= (rows - 1) * x_stride + inputs, "x ends before its last row");
    assert!(y.len() >= (rows - 1) * y_stride + outputs, "y ends before its last row");
    let y = Shares::new(y);
    let panels = outputs.div_ceil(LANES);
    let task = |rows: Range<usize>, panels: Range<usize>| {
        T::dispatch(Block { x, x_stride, y: &y, y_stride, w, rows, panels });
    };
    let work = rows * outputs * inputs.max(1);
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
