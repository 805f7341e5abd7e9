//! Which entries of a tensor a view shows as its axis is walked.

use super::super::view::{View, dense_strides};
use std::ops::Range;

/// Most entries of a view that share an entry of what it shows, where ranges are rounded outwards.
const MAX_SHARED: usize = 64;

/// A view of a dense tensor that is walked along an axis: ranges of entries of that axis need ranges of entries of one
/// axis of the tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Along {
    view: View,
    axis: usize,
    base: Vec<usize>,
    /// The axis of the tensor.
    pub of: usize,
    how: How,
}

#[derive(Clone, Debug, PartialEq)]
enum How {
    /// Entry i needs entries `first + step * i` and the `more` that follow.
    Exact { first: usize, step: usize, more: usize },
    /// The elements of a range of entries lie within `spread` of each other and of the range's own.
    Contiguous { spread: usize },
}

impl Along {
    /// `None` if some ranges need about everything.
    pub fn new(view: &View, axis: usize, base: &[usize]) -> Option<Along> {
        let (extent, stride) = (*view.shape.get(axis)?, *view.strides.get(axis)?);
        if extent < 2 || stride == 0 || view.len() == 0 || base.contains(&0) {
            return None;
        }
        let (of, how) = exact(view, axis, base).or_else(|| contiguous(view, axis, base))?;
        Some(Along { view: view.clone(), axis, base: base.to_vec(), of, how })
    }

    /// Entries of the tensor that entries `range` of the view need, and the view of those that shows them.
    pub fn part(&self, range: &Range<usize>) -> (Range<usize>, View) {
        let mut view = self.view.clone();
        view.shape[self.axis] = range.len();
        let unit = dense_strides(&self.base)[self.of];
        let last = range.end.saturating_sub(1);
        match self.how {
            How::Exact { first, step, more } => {
                let needs = first + step * range.start..first + step * last + more + 1;
                let (before, now) = (unit * self.base[self.of], unit * needs.len());
                let outer = view.offset / before;
                for stride in view.strides.iter_mut().filter(|s| **s >= before) {
                    *stride = *stride / before * now;
                }
                view.offset = outer * now + view.offset % unit;
                (needs, view)
            }
            How::Contiguous { spread } => {
                let stride = view.strides[self.axis];
                let from = view.offset + stride * range.start;
                let needs = from / unit..(view.offset + stride * last + spread) / unit + 1;
                view.offset = from - needs.start * unit;
                (needs, view)
            }
        }
    }

    /// The axis of the view.
    pub fn axis(&self) -> usize {
        self.axis
    }

    /// Entries of the tensor that an entry of the view needs, rounded up.
    pub fn ratio(&self) -> usize {
        let unit = dense_strides(&self.base)[self.of];
        match self.how {
            How::Exact { step, more, .. } => step.max(more + 1),
            How::Contiguous { .. } => self.view.strides[self.axis].div_ceil(unit),
        }
    }
}

/// Distances and extents of the other axes that have any.
fn others(view: &View, axis: usize) -> impl Iterator<Item = (usize, usize)> {
    let all = view.shape.iter().copied().zip(view.strides.iter().copied()).enumerate();
    all.filter(move |(a, (e, s))| *a != axis && *e > 1 && *s > 0).map(|(_, x)| x)
}

fn exact(view: &View, axis: usize, base: &[usize]) -> Option<(usize, How)> {
    let (extent, stride) = (view.shape[axis], view.strides[axis]);
    let units = dense_strides(base);
    let of = (0..base.len()).find(|a| base[*a] > 1 && units[*a] <= stride && stride % units[*a] == 0)?;
    let (unit, size) = (units[of], base[of]);
    let (mut inner, mut more) = (view.offset % unit, 0);
    for (e, s) in others(view, axis) {
        if s % (unit * size) == 0 {
            continue;
        }
        if s >= unit * size || (s > unit && s % unit != 0) {
            return None;
        }
        if s % unit == 0 { more += s / unit * (e - 1) } else { inner += s * (e - 1) }
    }
    let (first, step) = (view.offset / unit % size, stride / unit);
    let within = inner < unit && first + step * (extent - 1) + more < size;
    (within && more < step).then_some((of, How::Exact { first, step, more }))
}

fn contiguous(view: &View, axis: usize, base: &[usize]) -> Option<(usize, How)> {
    let of = base.iter().position(|e| *e > 1)?;
    let (unit, stride) = (dense_strides(base)[of], view.strides[axis]);
    let spread: usize = others(view, axis).map(|(e, s)| s * (e - 1)).sum();
    let near = spread < stride.max(unit) && unit / stride <= MAX_SHARED;
    near.then_some((of, How::Contiguous { spread }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every range of a view, taken from the entries it asks for, is that range of the view.
    fn check(view: &View, axis: usize, base: &[usize]) -> Option<usize> {
        let along = Along::new(view, axis, base)?;
        let all: Vec<usize> = (0..base.iter().product()).collect();
        let whole = View::dense(base);
        for start in 0..view.shape[axis] {
            for end in start + 1..=view.shape[axis] {
                let (needs, part) = along.part(&(start..end));
                let entries = whole.slice(along.of, needs.start, needs.len());
                let have = entries.gather(&all).expect("the entries exist");
                assert!(needs.len() <= along.ratio() * (end - start) + 2, "{view:?} {start}..{end} needs {needs:?}");
                let want = view.slice(axis, start, end - start).gather(&all);
                assert_eq!(part.gather(&have), want, "{view:?} along {axis}, {start}..{end}");
            }
        }
        Some(along.of)
    }

    #[test]
    fn ranges_of_views_need_ranges_of_tensors() {
        let base = [6, 4, 10];
        let b = View::dense(&base);
        assert_eq!(check(&b, 0, &base), Some(0));
        assert_eq!(check(&b, 1, &base), Some(1));
        assert_eq!(check(&b, 2, &base), Some(2));
        assert_eq!(check(&b.transpose(&[2, 0, 1]), 0, &base), Some(2));
        assert_eq!(check(&b.transpose(&[1, 2, 0]), 2, &base), Some(0));
        assert_eq!(check(&b.slice(0, 2, 3), 0, &base), Some(0));
        assert_eq!(check(&b.slice(1, 1, 2).slice(2, 3, 4), 1, &base), Some(1));
        assert_eq!(check(&b.index(0, 3), 0, &base), Some(1));
        assert_eq!(check(&b.index(1, 2), 1, &base), Some(2));
        let split = |shape: &[usize]| b.reshape(shape).expect("dense tensors take any shape");
        assert_eq!(check(&split(&[3, 2, 40]), 0, &base), Some(0));
        assert_eq!(check(&split(&[6, 4, 5, 2]), 2, &base), Some(2));
        assert_eq!(check(&split(&[24, 10]), 0, &base), Some(0));
        assert_eq!(check(&split(&[240]), 0, &base), Some(0));
        assert_eq!(check(&split(&[48, 5]), 0, &base), Some(0));
        let one = [1, 6, 4];
        assert_eq!(check(&View::dense(&one).reshape(&[6, 4]).expect("dense"), 0, &one), Some(1));
        let wide = b.slice(2, 0, 1).broadcast(&[6, 4, 7]).expect("it repeats");
        assert_eq!(check(&wide, 0, &base), Some(0));
    }

    #[test]
    fn what_needs_everything_is_not_walked() {
        let base = [2, 300];
        let b = View::dense(&base);
        assert_eq!(Along::new(&b.broadcast(&[5, 2, 300]).expect("it repeats"), 0, &base), None);
        // The second axis of [2, 100, 3] in [2, 100, 3] is walked, that of [100, 2, 3] laid over it is not.
        let halves = b.reshape(&[2, 100, 3]).expect("dense");
        assert_eq!(Along::new(&halves, 1, &base).map(|a| a.of), Some(1));
        let long = [600];
        let over = View::dense(&long).reshape(&[2, 300]).expect("dense");
        assert_eq!(Along::new(&over, 1, &long), None);
        assert_eq!(Along::new(&over.slice(0, 0, 1), 0, &long), None);
    }
}
