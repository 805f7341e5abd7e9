//! The gated delta rule: a recurrent state per value head, advanced row by row.
//!
//! One step of a head, `S` being `[value_width, key_width]`: `S <- exp(g) S`; `d = beta (v - S k)`; `S <- S + d kᵀ`;
//! `o = S q`. Both products of `S` with a vector are dot products over 16 lanes of the key width, folded by the fixed
//! tree; the update is one fused multiply-add an element. Rows are sequential, so a state depends on its rows alone:
//! advancing in place, a tentative run and folding a run's records give the same bits.

use super::simd::{Kernel, LANES, Real, Simd, load_lanes, store_lanes};
use crate::threads::{Pool, Shares};
use std::ops::Range;

/// State elements times rows below which a second thread costs more than it saves.
const MIN_WORK: usize = 1 << 14;

/// Sizes of a layer. Value head `h` reads key head `h * key_heads / value_heads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Key heads.
    pub key_heads: usize,
    /// Value heads.
    pub value_heads: usize,
    /// Elements of a key or query head.
    pub key_width: usize,
    /// Elements of a value head.
    pub value_width: usize,
}

impl Shape {
    /// Elements of a request's state, `[value_heads, value_width, key_width]`.
    #[must_use]
    pub fn state(&self) -> usize {
        self.value_heads * self.head()
    }

    fn head(&self) -> usize {
        self.value_width * self.key_width
    }
}

/// Rows of all requests of a call.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, T> {
    /// `[rows, key_heads, key_width]`, normalised and scaled.
    pub q: &'a [T],
    /// `[rows, key_heads, key_width]`, normalised.
    pub k: &'a [T],
    /// `[rows, value_heads, value_width]`
    pub v: &'a [T],
    /// Log decay, `[rows, value_heads]`.
    pub g: &'a [T],
    /// Write strength, `[rows, value_heads]`.
    pub beta: &'a [T],
}

/// Where a tentative run leaves what [`fold`] needs, by rows of the call.
#[derive(Debug)]
pub struct RecordsMut<'a, T> {
    /// `exp(g)`, `[rows, value_heads]`.
    pub decay: &'a mut [T],
    /// `d`, `[rows, value_heads, value_width]`.
    pub delta: &'a mut [T],
    /// `k`, `[rows, key_heads, key_width]`.
    pub key: &'a mut [T],
}

/// Records as [`fold`] reads them; fields as in [`RecordsMut`].
#[derive(Clone, Copy, Debug)]
pub struct Records<'a, T> {
    /// `[rows, value_heads]`
    pub decay: &'a [T],
    /// `[rows, value_heads, value_width]`
    pub delta: &'a [T],
    /// `[rows, key_heads, key_width]`
    pub key: &'a [T],
}

/// Advances each request's state in place through its rows and writes their outputs `[rows, value_heads, value_width]`.
///
/// # Panics
/// If shapes disagree or two requests share rows.
pub fn advance<T: Real>(
    pool: &Pool,
    shape: &Shape,
    rows: &Rows<'_, T>,
    requests: &mut [(&mut [T], Range<usize>)],
    out: &mut [T],
) {
    let ranges: Vec<_> = requests.iter().map(|(_, range)| range.clone()).collect();
    check(shape, rows, &ranges, out.len());
    let states: Vec<_> = requests
        .iter_mut()
        .map(|(state, _)| {
            assert_eq!(state.len(), shape.state(), "state is not [value_heads, value_width, key_width]");
            Shares::new(state)
        })
        .collect();
    let out = Shares::new(out);
    each_head(pool, shape, &ranges, |request, head| {
        // SAFETY: each pair of request and head is handed out once.
        let state = unsafe { states[request].slice(head * shape.head()..(head + 1) * shape.head()) };
        T::dispatch(Head { shape, rows, range: ranges[request].clone(), head, state, out: &out, records: None });
    });
}

/// Runs each request's rows from its state without changing it; writes outputs and records.
///
/// # Panics
/// If shapes disagree or two requests share rows.
pub fn tentative<T: Real>(
    pool: &Pool,
    shape: &Shape,
    rows: &Rows<'_, T>,
    requests: &[(&[T], Range<usize>)],
    out: &mut [T],
    records: &mut RecordsMut<'_, T>,
) {
    let ranges: Vec<_> = requests.iter().map(|(_, range)| range.clone()).collect();
    check(shape, rows, &ranges, out.len());
    let count = rows.g.len();
    assert!(
        records.decay.len() == count
            && records.delta.len() == count * shape.value_width
            && records.key.len() == rows.k.len(),
        "records do not have the call's rows"
    );
    for (state, range) in requests {
        assert_eq!(state.len(), shape.state(), "state is not [value_heads, value_width, key_width]");
        let key = shape.key_heads * shape.key_width;
        let part = range.start * key..range.end * key;
        records.key[part.clone()].copy_from_slice(&rows.k[part]);
    }
    let (out, decay, delta) = (Shares::new(out), Shares::new(records.decay), Shares::new(records.delta));
    each_head(pool, shape, &ranges, |request, head| {
        T::scratch(shape.head(), |state| {
            state.copy_from_slice(&requests[request].0[head * shape.head()..(head + 1) * shape.head()]);
            let records = Some((&decay, &delta));
            T::dispatch(Head { shape, rows, range: ranges[request].clone(), head, state, out: &out, records });
        });
    });
}

/// Applies the records of rows `rows` to a request's state: the bits that [`advance`] through those rows gives.
///
/// # Panics
/// If shapes disagree.
pub fn fold<T: Real>(pool: &Pool, shape: &Shape, records: &Records<'_, T>, rows: Range<usize>, state: &mut [T]) {
    assert_eq!(state.len(), shape.state(), "state is not [value_heads, value_width, key_width]");
    assert!(
        rows.end * shape.value_heads <= records.decay.len()
            && rows.end * shape.value_heads * shape.value_width <= records.delta.len()
            && rows.end * shape.key_heads * shape.key_width <= records.key.len(),
        "records do not have these rows"
    );
    let state = Shares::new(state);
    each_head(pool, shape, std::slice::from_ref(&rows), |_, head| {
        // SAFETY: each head is handed out once.
        let state = unsafe { state.slice(head * shape.head()..(head + 1) * shape.head()) };
        T::dispatch(Fold { shape, records, rows: rows.clone(), head, state });
    });
}

fn check<T>(shape: &Shape, rows: &Rows<'_, T>, ranges: &[Range<usize>], out: usize) {
    let count = rows.g.len() / shape.value_heads.max(1);
    let (keys, values) = (count * shape.key_heads * shape.key_width, count * shape.value_heads * shape.value_width);
    assert!(shape.key_heads > 0 && shape.key_heads <= shape.value_heads, "key heads do not serve the value heads");
    assert!(rows.g.len() == count * shape.value_heads && rows.beta.len() == rows.g.len(), "g or beta misshapen");
    assert!(rows.q.len() == keys && rows.k.len() == keys, "q or k misshapen");
    assert!(rows.v.len() == values && out == values, "v or the result misshapen");
    let mut sorted: Vec<_> = ranges.iter().collect();
    sorted.sort_by_key(|range| range.start);
    assert!(sorted.windows(2).all(|pair| pair[0].end <= pair[1].start), "requests share rows");
    assert!(sorted.last().is_none_or(|range| range.end <= count), "rows missing");
}

/// Calls `body(request, head)` for every pair.
fn each_head(pool: &Pool, shape: &Shape, ranges: &[Range<usize>], body: impl Fn(usize, usize) + Sync) {
    let work: usize = ranges.iter().map(|range| range.len() * shape.state()).sum();
    let tasks = ranges.len() * shape.value_heads;
    let task = |index: usize| body(index / shape.value_heads, index % shape.value_heads);
    if work < MIN_WORK { (0..tasks).for_each(task) } else { pool.run(tasks, task) }
}

/// All rows of one request and head.
struct Head<'a, T> {
    shape: &'a Shape,
    rows: &'a Rows<'a, T>,
    range: Range<usize>,
    head: usize,
    state: &'a mut [T],
    out: &'a Shares<'a, T>,
    records: Option<(&'a Shares<'a, T>, &'a Shares<'a, T>)>,
}

impl<T: Real> Kernel<T> for Head<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        let Shape { key_heads, value_heads, key_width, value_width } = *self.shape;
        let key_head = self.head * key_heads / value_heads;
        for row in self.range {
            let gate = row * value_heads + self.head;
            let key = (row * key_heads + key_head) * key_width;
            let value = gate * value_width;
            let (q, k) = (&self.rows.q[key..key + key_width], &self.rows.k[key..key + key_width]);
            let decay = s.exp(s.splat(self.rows.g[gate]));
            let beta = s.splat(self.rows.beta[gate]);
            if let Some((decays, _)) = self.records {
                // SAFETY: a row and head belong to one task.
                unsafe { decays.slice(gate..gate + 1)[0] = s.to_array(decay)[0] };
            }
            for first in (0..value_width).step_by(LANES) {
                let count = (value_width - first).min(LANES);
                let state = &mut self.state[first * key_width..(first + count) * key_width];
                let known = decayed_product(s, state, decay, k, key_width);
                // SAFETY: the row's values and outputs are `value_width` long from `value`, and `first + count` is
                // within; a row and head belong to one task.
                unsafe {
                    let v = s.load_part(self.rows.v.as_ptr().add(value + first), count, T::ZERO);
                    let delta = s.mul(beta, s.sub(v, known));
                    if let Some((_, deltas)) = self.records {
                        s.store_part(deltas.slice(value..value + value_width)[first..].as_mut_ptr(), delta, count);
                    }
                    let o = written_product(s, state, s.to_array(delta), k, q, key_width);
                    s.store_part(self.out.slice(value..value + value_width)[first..].as_mut_ptr(), o, count);
                }
            }
        }
    }
}

/// Multiplies up to 16 rows of the state by `decay`; lane `i` of the result is row `i` times `k`.
#[inline(always)]
fn decayed_product<T: Real, S: Simd<T>>(s: S, state: &mut [T], decay: S::V, k: &[T], width: usize) -> S::V {
    if state.len() == LANES * width && width.is_multiple_of(LANES) {
        return decayed_product_full(s, state, decay, k, width);
    }
    let mut sums = [s.splat(T::ZERO); LANES];
    for (row, sum) in state.chunks_exact_mut(width).zip(&mut sums) {
        for c in (0..width).step_by(LANES) {
            let v = s.mul(load_lanes(s, row, c, T::ZERO), decay);
            store_lanes(s, row, c, v);
            *sum = s.fma(v, load_lanes(s, k, c, T::ZERO), *sum);
        }
    }
    s.tree_add_rows(sums)
}

/// [`decayed_product`] of 16 rows of whole vectors: all sums advance together, in registers.
#[inline(always)]
fn decayed_product_full<T: Real, S: Simd<T>>(s: S, state: &mut [T], decay: S::V, k: &[T], width: usize) -> S::V {
    let mut sums = [s.splat(T::ZERO); LANES];
    assert!(state.len() == LANES * width && k.len() >= width);
    for c in (0..width).step_by(LANES) {
        // SAFETY: row `i` is `width` elements from `i * width`, `k` holds `width`, a multiple of 16.
        unsafe {
            let key = s.load(k.as_ptr().add(c));
            for i in 0..LANES {
                let at = state.as_mut_ptr().add(i * width + c);
                let v = s.mul(s.load(at), decay);
                s.store(at, v);
                sums[i] = s.fma(v, key, sums[i]);
            }
        }
    }
    s.tree_add_rows(sums)
}

/// Adds `delta[i] k` to row `i` of up to 16 rows of the state; lane `i` of the result is the new row `i` times `q`.
#[inline(always)]
fn written_product<T: Real, S: Simd<T>>(
    s: S,
    state: &mut [T],
    delta: [T; LANES],
    k: &[T],
    q: &[T],
    width: usize,
) -> S::V {
    if state.len() == LANES * width && width.is_multiple_of(LANES) {
        return written_product_full(s, state, &delta, k, q, width);
    }
    let mut sums = [s.splat(T::ZERO); LANES];
    for ((row, sum), delta) in state.chunks_exact_mut(width).zip(&mut sums).zip(delta) {
        let delta = s.splat(delta);
        for c in (0..width).step_by(LANES) {
            let v = s.fma(delta, load_lanes(s, k, c, T::ZERO), load_lanes(s, row, c, T::ZERO));
            store_lanes(s, row, c, v);
            *sum = s.fma(v, load_lanes(s, q, c, T::ZERO), *sum);
        }
    }
    s.tree_add_rows(sums)
}

/// [`written_product`] of 16 rows of whole vectors: all sums advance together, in registers.
#[inline(always)]
fn written_product_full<T: Real, S: Simd<T>>(
    s: S,
    state: &mut [T],
    delta: &[T; LANES],
    k: &[T],
    q: &[T],
    width: usize,
) -> S::V {
    let mut sums = [s.splat(T::ZERO); LANES];
    assert!(state.len() == LANES * width && k.len() >= width && q.len() >= width);
    for c in (0..width).step_by(LANES) {
        // SAFETY: row `i` is `width` elements from `i * width`, `k` and `q` hold `width`, a multiple of 16.
        unsafe {
            let (key, query) = (s.load(k.as_ptr().add(c)), s.load(q.as_ptr().add(c)));
            for i in 0..LANES {
                let at = state.as_mut_ptr().add(i * width + c);
                let v = s.fma(s.splat(delta[i]), key, s.load(at));
                s.store(at, v);
                sums[i] = s.fma(v, query, sums[i]);
            }
        }
    }
    s.tree_add_rows(sums)
}

/// Records of one head.
struct Fold<'a, T> {
    shape: &'a Shape,
    records: &'a Records<'a, T>,
    rows: Range<usize>,
    head: usize,
    state: &'a mut [T],
}

impl<T: Real> Kernel<T> for Fold<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        let Shape { key_heads, value_heads, key_width, value_width } = *self.shape;
        let key_head = self.head * key_heads / value_heads;
        for (i, state) in self.state.chunks_exact_mut(key_width).enumerate() {
            for row in self.rows.clone() {
                let gate = row * value_heads + self.head;
                let decay = s.splat(self.records.decay[gate]);
                let delta = s.splat(self.records.delta[gate * value_width + i]);
                let k = &self.records.key[(row * key_heads + key_head) * key_width..][..key_width];
                for c in (0..key_width).step_by(LANES) {
                    let old = s.mul(load_lanes(s, state, c, T::ZERO), decay);
                    let v = s.fma(delta, load_lanes(s, k, c, T::ZERO), old);
                    store_lanes(s, state, c, v);
                }
            }
        }
    }
}
