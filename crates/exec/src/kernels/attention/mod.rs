//! Attention of query rows over a paged pool of keys and values.
//!
//! The visible positions of a row are an interval that follows from its own position, the window and, where attention
//! is bidirectional, the number of positions. A row walks absolute spans of 512 positions from its first visible
//! one: scores, the span's maximum, exponentials, a sum over lanes (lane = position modulo 16), then the weighted
//! values added in order of position, with the sums so far rescaled to the new maximum. What other rows the call
//! holds, and which of them share a task, changes none of these operations. Positions that a row does not see never
//! enter them, whatever they hold; positions that no row of a task sees are not read.

mod walk;

use super::simd::Real;
use crate::threads::{Pool, Shares};
use std::ops::Range;
use walk::Task;

/// Query vectors of one task, unless one row has more: enough to share a chunk's keys and values.
const TASK_QUERIES: usize = 48;

/// Keys and values of one request in a paged pool. Position `j` lies at slot `pages[j / page_size] * page_size + j %
/// page_size`; a slot is `[heads][width]`.
#[derive(Clone, Copy, Debug)]
pub struct KvView<'a, T> {
    /// Keys of the whole pool, `[slots, heads, width]`.
    pub k: &'a [T],
    /// Values of the whole pool, `[slots, heads, width]`.
    pub v: &'a [T],
    /// Key-value heads.
    pub heads: usize,
    /// Elements of a head.
    pub width: usize,
    /// Positions of a page.
    pub page_size: usize,
    /// Page of each run of `page_size` positions.
    pub pages: &'a [u32],
}

/// Query rows of one request.
#[derive(Clone, Debug)]
pub struct Request<'a, T> {
    /// The request's keys and values, those of the query rows themselves included.
    pub kv: KvView<'a, T>,
    /// Positions that exist: none at or past it is read.
    pub end: usize,
    /// The request's rows of `q`, `positions` and the result.
    pub rows: Range<usize>,
}

/// What all rows of a call share.
#[derive(Clone, Copy, Debug)]
pub struct Rule<T> {
    /// Query heads; a multiple of the key-value heads. Query head `h` reads key-value head `h / (query_heads / heads)`.
    pub query_heads: usize,
    /// A row sees no later position.
    pub causal: bool,
    /// A row sees positions nearer than this, itself included. `None` is unlimited.
    pub window: Option<u32>,
    /// Factor of the scores.
    pub scale: T,
}

impl<T> Rule<T> {
    /// The positions that a row at `position` sees among `end`.
    #[must_use]
    pub fn visible(&self, position: usize, end: usize) -> Range<usize> {
        let reach = self.window.map_or(usize::MAX, |w| w as usize);
        let last = if self.causal { position.saturating_add(reach.min(1)) } else { position.saturating_add(reach) };
        let last = last.min(end);
        (position + 1).saturating_sub(reach).min(last)..last
    }
}

/// Softmax attention of `q` `[rows, query_heads, width]` into `out` of the same shape. Rows that belong to no request
/// are left alone; a row that sees nothing becomes zeros.
///
/// # Panics
/// If shapes disagree, or a request's pages do not cover the positions its rows see.
pub fn attention<T: Real>(
    pool: &Pool,
    rule: &Rule<T>,
    q: &[T],
    positions: &[u32],
    requests: &[Request<'_, T>],
    out: &mut [T],
) {
    let mut tasks = Vec::new();
    let mut work = 0;
    for request in requests {
        let KvView { k, v, heads, width, page_size, .. } = request.kv;
        assert!(
            heads > 0 && width > 0 && page_size > 0 && rule.query_heads.is_multiple_of(heads),
            "heads do not divide"
        );
        assert_eq!(k.len(), v.len(), "keys and values differ in shape");
        let row = rule.query_heads * width;
        assert!(
            request.rows.end <= positions.len() && request.rows.end * row <= q.len().min(out.len()),
            "rows missing"
        );
        let group = rule.query_heads / heads;
        let step = (TASK_QUERIES / group).max(1);
        for first in request.rows.clone().step_by(step) {
            let rows = first..(first + step).min(request.rows.end);
            for at in rows.clone() {
                work += rule.visible(positions[at] as usize, request.end).len() * row;
            }
            tasks.extend((0..heads).map(|head| (request, rows.clone(), head)));
        }
    }
    let out = Shares::new(out);
    let task = |index: usize| {
        let (request, rows, head) = &tasks[index];
        Task { rule, q, positions, request, rows: rows.clone(), head: *head, out: &out }.run();
    };
    if work < MIN_WORK { (0..tasks.len()).for_each(task) } else { pool.run(tasks.len(), task) }
}

/// Scores times width below which a second thread costs more than it saves.
const MIN_WORK: usize = 1 << 15;
