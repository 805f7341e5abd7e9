//! Attention of query rows over a paged pool of keys and values.
//!
//! The visible positions of a row are an interval that follows from its own position, the window and, where attention
//! is bidirectional, the number of positions. A row walks absolute spans of [`SPAN`] positions from its first visible
//! one: scores, the span's maximum, exponentials, a sum over lanes (lane = position modulo 16), then the weighted
//! values added in order of position, with the sums so far rescaled to the new maximum. What other rows the call
//! holds, and which of them share a task, changes none of these operations. Positions that a row does not see never
//! enter them, whatever they hold; positions that no row of a task sees are not read.

use super::gemm::tile::{Plain, Product};
use super::simd::{Kernel, LANES, Real, Simd, lane_range, load_lanes, store_lanes};
use crate::threads::{Pool, Shares};
use std::ops::Range;

/// Positions between two rescalings.
const SPAN: usize = 512;
/// Positions whose keys are transposed and whose values are gathered at a time.
const CHUNK: usize = 64;
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
        let task = Task { rule, q, positions, request, rows: rows.clone(), head: *head, out: &out };
        T::scratch(task.sizes().iter().sum(), |memory| T::dispatch(Walk { task: &task, memory: task.split(memory) }));
    };
    if work < MIN_WORK { (0..tasks.len()).for_each(task) } else { pool.run(tasks.len(), task) }
}

/// Scores times width below which a second thread costs more than it saves.
const MIN_WORK: usize = 1 << 15;

struct Task<'a, T> {
    rule: &'a Rule<T>,
    q: &'a [T],
    positions: &'a [u32],
    request: &'a Request<'a, T>,
    rows: Range<usize>,
    head: usize,
    out: &'a Shares<'a, T>,
}

/// A task's memory.
struct Memory<'a, T> {
    /// `[queries, width]`: the task's query vectors, adjacent.
    queries: &'a mut [T],
    /// `[queries, SPAN]`: scores, then their exponentials.
    scores: &'a mut [T],
    /// `[width, CHUNK]` transposed keys, or `[CHUNK, padded width]` values.
    lines: &'a mut [T],
    /// `[queries, padded width]`: weighted values so far.
    sums: &'a mut [T],
    /// Greatest score so far of each query.
    peaks: &'a mut [T],
    /// Sum of exponentials so far of each query.
    norms: &'a mut [T],
}

/// A task with its memory.
struct Walk<'a, T> {
    task: &'a Task<'a, T>,
    memory: Memory<'a, T>,
}

impl<T: Real> Kernel<T> for Walk<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        self.task.walk(s, self.memory);
    }
}

impl<T: Real> Task<'_, T> {
    /// Elements of the parts of [`Memory`], in order.
    fn sizes(&self) -> [usize; 6] {
        let KvView { heads, width, .. } = self.request.kv;
        let queries = self.rows.len() * (self.rule.query_heads / heads);
        let padded = width.next_multiple_of(LANES);
        [queries * width, queries * SPAN, padded * CHUNK, queries * padded, queries, queries]
    }

    fn split<'m>(&self, memory: &'m mut [T]) -> Memory<'m, T> {
        let sizes = self.sizes();
        let (queries, rest) = memory.split_at_mut(sizes[0]);
        let (scores, rest) = rest.split_at_mut(sizes[1]);
        let (lines, rest) = rest.split_at_mut(sizes[2]);
        let (sums, rest) = rest.split_at_mut(sizes[3]);
        let (peaks, norms) = rest.split_at_mut(sizes[4]);
        Memory { queries, scores, lines, sums, peaks, norms }
    }

    fn sight(&self, row: usize) -> Range<usize> {
        self.rule.visible(self.positions[row] as usize, self.request.end)
    }

    /// The smallest interval that holds what the task's rows see of `part`; empty where they see nothing of it.
    fn seen(&self, part: &Range<usize>) -> Range<usize> {
        let mut all = part.end..part.start;
        for row in self.rows.clone() {
            let sight = clip(&self.sight(row), part);
            if !sight.is_empty() {
                all = all.start.min(sight.start)..all.end.max(sight.end);
            }
        }
        all
    }

    #[inline(always)]
    fn walk<S: Simd<T>>(&self, s: S, mut m: Memory<'_, T>) {
        m.peaks.fill(T::NEG_INFINITY);
        m.norms.fill(T::ZERO);
        m.sums.fill(T::ZERO);
        let (group, width) = (self.rule.query_heads / self.request.kv.heads, self.request.kv.width);
        for (row, to) in self.rows.clone().zip(m.queries.chunks_exact_mut(group * width)) {
            let from = (row * self.rule.query_heads + self.head * group) * width;
            to.copy_from_slice(&self.q[from..from + group * width]);
        }
        let all = self.seen(&(0..self.request.end));
        let mut start = all.start / SPAN * SPAN;
        while start < all.end {
            let span = start..(start + SPAN).min(all.end);
            for first in span.clone().step_by(CHUNK) {
                let seen = self.seen(&clip(&(first..first + CHUNK), &span));
                if !seen.is_empty() {
                    self.score(s, first, &seen, start, &mut m);
                }
            }
            self.weigh(s, start, &mut m);
            for first in span.clone().step_by(CHUNK) {
                let seen = self.seen(&clip(&(first..first + CHUNK), &span));
                if !seen.is_empty() {
                    self.add_values(s, first, &seen, start, &mut m);
                }
            }
            start += SPAN;
        }
        self.finish(s, &m);
    }

    /// Scores of every query against the chunk at `first`; only positions `seen` are read, the others score 0.
    #[inline(always)]
    fn score<S: Simd<T>>(&self, s: S, first: usize, seen: &Range<usize>, span: usize, m: &mut Memory<'_, T>) {
        let KvView { k, width, .. } = self.request.kv;
        let panels = (seen.end - first).div_ceil(LANES);
        for panel in 0..panels {
            let base = first + panel * LANES;
            let mut rows: [&[T]; LANES] = [&[]; LANES];
            for (i, row) in rows.iter_mut().enumerate() {
                if seen.contains(&(base + i)) {
                    *row = &k[self.request.kv.at(base + i, self.head)..][..width];
                }
            }
            for w in (0..width).step_by(LANES) {
                let mut block = [s.splat(T::ZERO); LANES];
                for i in 0..LANES {
                    if !rows[i].is_empty() {
                        block[i] = load_lanes(s, rows[i], w, T::ZERO);
                    }
                }
                let block = s.transpose(block);
                for (i, line) in block.into_iter().enumerate().take(width - w) {
                    store_lanes(s, m.lines, ((w + i) * panels + panel) * LANES, line);
                }
            }
        }
        let rows = m.peaks.len();
        let y = &mut m.scores[first - span..];
        assert!(y.len() >= (rows - 1) * SPAN + panels * LANES && m.lines.len() >= width * panels * LANES);
        let product = Product {
            x: m.queries.as_ptr(),
            x_stride: width,
            rows,
            line: m.lines.as_ptr(),
            step: panels * LANES,
            panels,
            y: y.as_mut_ptr(),
            y_stride: SPAN,
            columns: panels * LANES,
            carry: false,
        };
        // SAFETY: there are as many query vectors as peaks; `y` and the lines are long enough by the assertion.
        unsafe { product.compute::<S, Plain>(s, &(0..width)) };
    }

    /// Turns the span's scores into exponentials relative to the new maximum and rescales what was summed before.
    #[inline(always)]
    fn weigh<S: Simd<T>>(&self, s: S, span: usize, m: &mut Memory<'_, T>) {
        let group = self.rule.query_heads / self.request.kv.heads;
        let padded = self.request.kv.width.next_multiple_of(LANES);
        let scale = s.splat(self.rule.scale);
        for (query, scores) in m.scores.chunks_exact_mut(SPAN).enumerate() {
            let sight = clip(&self.sight(self.rows.start + query / group), &(span..span + SPAN));
            if sight.is_empty() {
                continue;
            }
            let (first, last) = (sight.start - span, sight.end - span);
            let vectors = (first / LANES * LANES..last).step_by(LANES);
            let hidden = s.splat(T::NEG_INFINITY);
            let mut peak = hidden;
            for at in vectors.clone() {
                let v = s.select(
                    lane_range(first.max(at) - at, (last - at).min(LANES)),
                    s.mul(load_lanes(s, scores, at, T::ZERO), scale),
                    hidden,
                );
                store_lanes(s, scores, at, v);
                peak = s.max(v, peak);
            }
            let (before, here) = (m.peaks[query], s.tree_max(peak));
            let peak = if here > before { here } else { before };
            let mut norm = s.splat(T::ZERO);
            for at in vectors {
                let v = s.exp(s.sub(load_lanes(s, scores, at, T::ZERO), s.splat(peak)));
                let v = s.select(lane_range(first.max(at) - at, (last - at).min(LANES)), v, s.splat(T::ZERO));
                store_lanes(s, scores, at, v);
                norm = s.add(norm, v);
            }
            let rescale = s.exp(s.splat(before - peak));
            let factor = s.to_array(rescale)[0];
            m.norms[query] = m.norms[query].fma(factor, s.tree_add(norm));
            m.peaks[query] = peak;
            let sums = &mut m.sums[query * padded..][..padded];
            for at in (0..padded).step_by(LANES) {
                let v = s.mul(load_lanes(s, sums, at, T::ZERO), rescale);
                store_lanes(s, sums, at, v);
            }
        }
    }

    /// Adds the chunk's values, weighted; each query takes exactly the positions it sees.
    #[inline(always)]
    fn add_values<S: Simd<T>>(&self, s: S, first: usize, seen: &Range<usize>, span: usize, m: &mut Memory<'_, T>) {
        let KvView { v, width, .. } = self.request.kv;
        let group = self.rule.query_heads / self.request.kv.heads;
        let padded = width.next_multiple_of(LANES);
        for position in seen.clone() {
            let from = &v[self.request.kv.at(position, self.head)..][..width];
            let to = &mut m.lines[(position - first) * padded..][..padded];
            for w in (0..width).step_by(LANES) {
                store_lanes(s, to, w, load_lanes(s, from, w, T::ZERO));
            }
        }
        let chunk = first..seen.end;
        let mut row = self.rows.start;
        while row < self.rows.end {
            let sight = clip(&self.sight(row), &chunk);
            let same = |other: &usize| clip(&self.sight(*other), &chunk) == sight;
            let rows = (row..self.rows.end).take_while(same).count();
            let query = (row - self.rows.start) * group;
            row += rows;
            if sight.is_empty() {
                continue;
            }
            let range = sight.start - first..sight.end - first;
            let x = &m.scores[query * SPAN + first - span..];
            let y = &mut m.sums[query * padded..];
            assert!(x.len() >= (rows * group - 1) * SPAN + range.end && y.len() >= rows * group * padded);
            let product = Product {
                x: x.as_ptr(),
                x_stride: SPAN,
                rows: rows * group,
                line: m.lines[range.start * padded..range.end * padded].as_ptr(),
                step: padded,
                panels: padded / LANES,
                y: y.as_mut_ptr(),
                y_stride: padded,
                columns: padded,
                carry: true,
            };
            // SAFETY: `x` and `y` are long enough by the assertion, the lines by the slice.
            unsafe { product.compute::<S, Plain>(s, &range) };
        }
    }

    #[inline(always)]
    fn finish<S: Simd<T>>(&self, s: S, m: &Memory<'_, T>) {
        let width = self.request.kv.width;
        let group = self.rule.query_heads / self.request.kv.heads;
        let padded = width.next_multiple_of(LANES);
        for (query, sums) in m.sums.chunks_exact(padded).enumerate() {
            let row = self.rows.start + query / group;
            let at = (row * self.rule.query_heads + self.head * group + query % group) * width;
            // SAFETY: a row and head belong to one task.
            let out = unsafe { self.out.slice(at..at + width) };
            if self.sight(row).is_empty() {
                out.fill(T::ZERO);
                continue;
            }
            let norm = s.splat(m.norms[query]);
            for w in (0..width).step_by(LANES) {
                store_lanes(s, out, w, s.div(load_lanes(s, sums, w, T::ZERO), norm));
            }
        }
    }
}

impl<T> KvView<'_, T> {
    /// Where the head's elements of a position begin.
    fn at(&self, position: usize, head: usize) -> usize {
        let slot = self.pages[position / self.page_size] as usize * self.page_size + position % self.page_size;
        (slot * self.heads + head) * self.width
    }
}

/// The intersection; where there is none, an empty range.
fn clip(range: &Range<usize>, to: &Range<usize>) -> Range<usize> {
    let start = range.start.max(to.start);
    start..range.end.min(to.end).max(start)
}
