//! One task of attention: some rows of one request against one key-value head.

use super::super::gemm::tile::{Plain, Product};
use super::super::simd::{Kernel, LANES, Real, Simd, lane_range, load_lanes, store_lanes};
use super::{KvView, Request, Rule};
use crate::threads::Shares;
use std::ops::Range;

/// Positions between two rescalings.
const SPAN: usize = 512;
/// Positions whose keys are transposed at a time.
const CHUNK: usize = 64;
/// Runs of adjacent slots in a chunk above which its values are first copied together.
const MAX_RUNS: usize = 8;

pub(super) struct Task<'a, T> {
    pub(super) rule: &'a Rule<T>,
    pub(super) q: &'a [T],
    pub(super) positions: &'a [u32],
    pub(super) request: &'a Request<'a, T>,
    pub(super) rows: Range<usize>,
    pub(super) head: usize,
    pub(super) out: &'a Shares<'a, T>,
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
    /// Where the head's elements of each position of the span begin in the pool.
    starts: [usize; SPAN],
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
    pub(super) fn run(&self) {
        T::scratch(self.sizes().iter().sum(), |memory| T::dispatch(Walk { task: self, memory: self.split(memory) }));
    }

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
        Memory { queries, scores, lines, sums, peaks, norms, starts: [0; SPAN] }
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
            let sight = self.seen(&span);
            if !sight.is_empty() {
                self.request.kv.starts(self.head, &sight, start, &mut m.starts);
            }
            for first in (sight.start / CHUNK * CHUNK..sight.end).step_by(CHUNK) {
                let seen = self.seen(&clip(&(first..first + CHUNK), &span));
                if !seen.is_empty() {
                    self.score(s, &seen, start, &mut m);
                }
            }
            self.weigh(s, start, &mut m);
            for first in (sight.start / CHUNK * CHUNK..sight.end).step_by(CHUNK) {
                let seen = self.seen(&clip(&(first..first + CHUNK), &span));
                if !seen.is_empty() {
                    self.add_values(s, first, &seen, start, &mut m);
                }
            }
            start += SPAN;
        }
        self.finish(s, &m);
    }

    /// Scores of every query against the positions `seen` of one chunk; others of their vectors of 16 score 0.
    #[inline(always)]
    fn score<S: Simd<T>>(&self, s: S, seen: &Range<usize>, span: usize, m: &mut Memory<'_, T>) {
        let KvView { k, width, .. } = self.request.kv;
        let first = seen.start / LANES * LANES;
        let panels = (seen.end - first).div_ceil(LANES);
        let starts = &m.starts[first - span..];
        for panel in 0..panels {
            let base = first + panel * LANES;
            let (low, high) = (seen.start.max(base) - base, (seen.end - base).min(LANES));
            let starts = &starts[panel * LANES..][..LANES];
            for start in &starts[low..high] {
                assert!(start + width <= k.len(), "a slot lies outside the pool");
            }
            for w in (0..width).step_by(LANES) {
                let count = (width - w).min(LANES);
                let lines = &mut m.lines[(w * panels + panel) * LANES..];
                assert!(lines.len() >= (count - 1) * panels * LANES + LANES);
                if low == 0 && high == LANES && count == LANES {
                    let mut block = [s.splat(T::ZERO); LANES];
                    // SAFETY: `start + width` is within the pool, `w + 16` within the width, and the last line within
                    // the lines by the assertion.
                    unsafe {
                        for i in 0..LANES {
                            block[i] = s.load(k.as_ptr().add(starts[i] + w));
                        }
                        let block = s.transpose(block);
                        for i in 0..LANES {
                            s.store(lines.as_mut_ptr().add(i * panels * LANES), block[i]);
                        }
                    }
                } else {
                    for i in 0..count {
                        let line = &mut lines[i * panels * LANES..][..LANES];
                        line.fill(T::ZERO);
                        for (lane, start) in line[low..high].iter_mut().zip(&starts[low..high]) {
                            *lane = k[start + w + i];
                        }
                    }
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
            ahead: 0,
            fetched: 0,
        };
        // SAFETY: there are as many query vectors as peaks; `y` and the lines are long enough by the assertion.
        unsafe { product.compute::<S, Plain>(s, 0..width) };
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
                // Hidden lanes are negative infinity: they become 0.
                let v = s.exp(s.sub(load_lanes(s, scores, at, T::ZERO), s.splat(peak)));
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
        let KvView { v, width, heads, .. } = self.request.kv;
        let padded = width.next_multiple_of(LANES);
        let starts = &m.starts[first - span..][..CHUNK];
        let mut runs = Runs { ends: [0; CHUNK], count: 0 };
        for i in seen.start - first..seen.end - first {
            assert!(starts[i] + width <= v.len(), "a slot lies outside the pool");
            if i + first == seen.start || starts[i] != starts[i - 1] + heads * width {
                runs.count += 1;
            }
            runs.ends[runs.count - 1] = i + 1;
        }
        if width == padded && runs.count <= MAX_RUNS {
            let mut from = seen.start - first;
            for end in &runs.ends[..runs.count] {
                // SAFETY: the slots of a run are adjacent and within the pool.
                let lines = unsafe { v.as_ptr().add(starts[from]) };
                let run = Run { first, range: from..*end, lines, step: heads * width };
                self.add_run(s, &run, span, m.scores, m.sums);
                from = run.range.end;
            }
            return;
        }
        for i in seen.start - first..seen.end - first {
            let from = &v[starts[i]..][..width];
            let to = &mut m.lines[i * padded..][..padded];
            for w in (0..width).step_by(LANES) {
                store_lanes(s, to, w, load_lanes(s, from, w, T::ZERO));
            }
        }
        let range = seen.start - first..seen.end - first;
        let lines = m.lines[range.start * padded..range.end * padded].as_ptr();
        self.add_run(s, &Run { first, range, lines, step: padded }, span, m.scores, m.sums);
    }

    /// Adds the values of one run.
    #[inline(always)]
    fn add_run<S: Simd<T>>(&self, s: S, run: &Run<T>, span: usize, scores: &[T], sums: &mut [T]) {
        let group = self.rule.query_heads / self.request.kv.heads;
        let padded = self.request.kv.width.next_multiple_of(LANES);
        let first = run.first;
        let positions = first + run.range.start..first + run.range.end;
        let mut row = self.rows.start;
        while row < self.rows.end {
            let sight = clip(&self.sight(row), &positions);
            let query = (row - self.rows.start) * group;
            let begin = row;
            while row < self.rows.end && clip(&self.sight(row), &positions) == sight {
                row += 1;
            }
            if sight.is_empty() {
                continue;
            }
            let queries = (row - begin) * group;
            let range = sight.start - first..sight.end - first;
            let x = &scores[query * SPAN + first - span..];
            let y = &mut sums[query * padded..];
            assert!(x.len() >= (queries - 1) * SPAN + range.end && y.len() >= queries * padded);
            let product = Product {
                x: x.as_ptr(),
                x_stride: SPAN,
                rows: queries,
                line: run.lines.wrapping_add((range.start - run.range.start) * run.step),
                step: run.step,
                panels: padded / LANES,
                y: y.as_mut_ptr(),
                y_stride: padded,
                columns: padded,
                carry: true,
                ahead: 0,
                fetched: 0,
            };
            // SAFETY: `x` and `y` are long enough by the assertion, the run's lines exist.
            unsafe { product.compute::<S, Plain>(s, range) };
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
    /// Where the head's elements of the positions `seen` begin; `to` is indexed by position from `first` on.
    fn starts(&self, head: usize, seen: &Range<usize>, first: usize, to: &mut [usize; SPAN]) {
        let (mut page, mut offset) = (seen.start / self.page_size, seen.start % self.page_size);
        for start in &mut to[seen.start - first..seen.end - first] {
            let slot = self.pages[page] as usize * self.page_size + offset;
            *start = (slot * self.heads + head) * self.width;
            offset += 1;
            if offset == self.page_size {
                (page, offset) = (page + 1, 0);
            }
        }
    }
}

/// Where the runs of adjacent slots of a chunk end, counted from its first position.
struct Runs {
    ends: [usize; CHUNK],
    count: usize,
}

/// Positions of a chunk whose values lie at equal distances.
struct Run<T> {
    /// The chunk's first position.
    first: usize,
    /// The positions, counted from there.
    range: Range<usize>,
    /// Values of the range's first position.
    lines: *const T,
    /// Elements between values.
    step: usize,
}

/// The intersection; where there is none, an empty range.
fn clip(range: &Range<usize>, to: &Range<usize>) -> Range<usize> {
    let start = range.start.max(to.start);
    start..range.end.min(to.end).max(start)
}
