//! The greatest elements of a row: argmax and top-k.
//!
//! The order is total: greater values first, equal values (both zeros are equal) by lower index, NaN after everything.

use super::simd::{Kernel, LANES, Real, Simd, load_lanes};
use std::cmp::Reverse;

/// Elements that are reduced to one maximum before they are compared with those before.
const PIECE: usize = 1024;

/// The first greatest element of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argmax {
    /// Its index; 0 where no element is a number.
    pub index: usize,
    /// Whether every element is NaN, or there is none.
    pub all_nan: bool,
}

/// The first greatest element of `x`; a NaN never wins.
#[must_use]
pub fn argmax<T: Real>(x: &[T]) -> Argmax {
    T::dispatch(First { x })
}

struct First<'a, T> {
    x: &'a [T],
}

impl<T: Real> Kernel<T> for First<'_, T> {
    type Out = Argmax;
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) -> Argmax {
        // The first piece that holds a greater element than all before it is searched at the end.
        let (mut peak, mut piece) = (T::NEG_INFINITY, 0);
        for first in (0..self.x.len()).step_by(PIECE) {
            let part = &self.x[first..(first + PIECE).min(self.x.len())];
            let mut lanes = s.splat(T::NEG_INFINITY);
            for at in (0..part.len()).step_by(LANES) {
                lanes = s.max(load_lanes(s, part, at, T::NEG_INFINITY), lanes);
            }
            let here = s.tree_max(lanes);
            if here > peak {
                (peak, piece) = (here, first);
            }
        }
        match self.x[piece..].iter().position(|x| *x == peak) {
            Some(index) => Argmax { index: piece + index, all_nan: false },
            None => Argmax { index: 0, all_nan: true },
        }
    }
}

/// Indices of the `k` first elements of `x` in the order of values, best first; all of them where `x` is shorter.
///
/// # Panics
/// If `x` has more than `u32::MAX` elements.
#[must_use]
pub fn top_k<T: Real>(x: &[T], k: usize) -> Vec<u32> {
    let mut best = best(x, k);
    best.sort_unstable();
    best.into_iter().map(|(_, index)| index).collect()
}

/// The indices that [`top_k`] gives for `k` = `out.len()`, in ascending order.
///
/// # Panics
/// If `x` is shorter than `out`, or has more than `i32::MAX` elements.
pub fn top_set<T: Real>(x: &[T], out: &mut [i32]) {
    assert!(out.len() <= x.len(), "more indices are asked for than there are");
    let mut chosen = vec![0u64; x.len().div_ceil(64)];
    for (_, index) in best(x, out.len()) {
        chosen[index as usize / 64] |= 1 << (index % 64);
    }
    let mut places = out.iter_mut();
    for (word, mut bits) in chosen.into_iter().enumerate() {
        while bits != 0 {
            if let Some(place) = places.next() {
                *place = i32::try_from(word * 64).expect("a row's indices fit i32: no vocabulary is longer")
                    + bits.trailing_zeros() as i32;
            }
            bits &= bits - 1;
        }
    }
}

/// The `k` best in any order.
fn best<T: Real>(x: &[T], k: usize) -> Vec<Rank> {
    let len = u32::try_from(x.len()).expect("a row's indices fit u32: no vocabulary is longer");
    let k = k.min(x.len());
    if k == 0 {
        return Vec::new();
    }
    let long = 4 * k < x.len();
    let above = if long { T::dispatch(Above { x, k }) } else { None };
    let scanned = above.or_else(|| if long { T::dispatch(Scan { x, k }) } else { None });
    let mut best = scanned.unwrap_or_else(|| (0..len).map(|i| rank(x, i)).collect());
    if best.len() > k {
        best.select_nth_unstable(k - 1);
        best.truncate(k);
    }
    best
}

/// Sorts as the order of values does.
type Rank = (Reverse<u64>, u32);

#[inline(always)]
fn rank<T: Real>(x: &[T], index: u32) -> Rank {
    (Reverse(x[index as usize].order_key()), index)
}

/// A superset of the `k` best of a long row: what exceeds a bound, which is sought by counting. `None` where no bound is
/// found soon: values are infinite, many are equal, or fewer than `k` are numbers.
struct Above<'a, T> {
    x: &'a [T],
    k: usize,
}

impl<T: Real> Kernel<T> for Above<'_, T> {
    type Out = Option<Vec<Rank>>;
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) -> Option<Vec<Rank>> {
        let Self { x, k } = self;
        let (mut most, mut least) = (s.splat(T::NEG_INFINITY), s.splat(x[0]));
        for at in (0..x.len()).step_by(LANES) {
            most = s.max(load_lanes(s, x, at, T::NEG_INFINITY), most);
            least = s.min(load_lanes(s, x, at, x[0]), least);
        }
        let mut high = s.tree_max(most);
        let mut low = s.to_array(least).into_iter().fold(high, |a, b| if b < a { b } else { a });
        let enough = k + k / 2 + LANES;
        for _ in 0..BISECTIONS {
            let bound = low + (high - low) * T::from_f64(0.5);
            if !(bound > low && bound < high) {
                return None;
            }
            let mut count = 0;
            for at in (0..x.len()).step_by(LANES) {
                count += s.gt(load_lanes(s, x, at, T::NEG_INFINITY), s.splat(bound)).count_ones() as usize;
            }
            if count < k {
                high = bound;
            } else if count > enough {
                low = bound;
            } else {
                let mut kept = Vec::with_capacity(count);
                for at in (0..x.len()).step_by(LANES) {
                    let mut better = s.gt(load_lanes(s, x, at, T::NEG_INFINITY), s.splat(bound));
                    while better != 0 {
                        kept.push(rank(x, (at + better.trailing_zeros() as usize) as u32));
                        better &= better - 1;
                    }
                }
                return Some(kept);
            }
        }
        None
    }
}

/// Bounds that are tried before a row is scanned otherwise.
const BISECTIONS: usize = 16;

/// A superset of the `k` best of a long row: one pass that keeps what beats the `k`-th best so far. `None` where a NaN
/// is among the `k` best of some part: such a row is sorted out by all its ranks.
struct Scan<'a, T> {
    x: &'a [T],
    k: usize,
}

impl<T: Real> Kernel<T> for Scan<'_, T> {
    type Out = Option<Vec<Rank>>;
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) -> Option<Vec<Rank>> {
        let Self { x, k } = self;
        let room = (2 * k + 4 * LANES).min(x.len());
        let mut kept: Vec<Rank> = Vec::with_capacity(room + LANES);
        kept.extend((0..room as u32).map(|i| rank(x, i)));
        let mut bound = shrink(x, &mut kept, k)?;
        for at in (room..x.len()).step_by(LANES) {
            // Later elements that equal the k-th best come after it.
            let mut better = s.gt(load_lanes(s, x, at, T::NEG_INFINITY), s.splat(bound));
            while better != 0 {
                kept.push(rank(x, (at + better.trailing_zeros() as usize) as u32));
                better &= better - 1;
            }
            if kept.len() >= room {
                bound = shrink(x, &mut kept, k)?;
            }
        }
        Some(kept)
    }
}

/// Keeps the `k` best and returns the worst of them, unless it is NaN.
#[inline(always)]
fn shrink<T: Real>(x: &[T], kept: &mut Vec<Rank>, k: usize) -> Option<T> {
    kept.select_nth_unstable(k - 1);
    kept.truncate(k);
    let (Reverse(key), index) = kept[k - 1];
    (key != 0).then(|| x[index as usize])
}
