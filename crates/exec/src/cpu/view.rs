//! Strided views of buffers.

/// Extents, distances of neighbours in elements, and the first element. A distance of 0 repeats an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
    pub offset: usize,
}

/// Row-major distances of neighbours.
pub(super) fn dense_strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        out[axis - 1] = out[axis] * shape[axis];
    }
    out
}

/// Number of elements.
pub(super) fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Axes of several stride lists with the same extents, merged where all lists allow it, outermost first; axes of one
/// entry are dropped.
pub(super) fn merge_axes<const N: usize>(shape: &[usize], strides: [&[usize]; N]) -> Vec<(usize, [usize; N])> {
    let mut out: Vec<(usize, [usize; N])> = Vec::with_capacity(shape.len());
    for (axis, &extent) in shape.iter().enumerate() {
        if extent == 1 {
            continue;
        }
        let own: [usize; N] = std::array::from_fn(|i| strides[i][axis]);
        match out.last_mut() {
            Some((outer, steps)) if (0..N).all(|i| steps[i] == own[i] * extent) => {
                *outer *= extent;
                *steps = own;
            }
            _ => out.push((extent, own)),
        }
    }
    out
}

impl View {
    /// Row-major from element 0.
    pub fn dense(shape: &[usize]) -> View {
        View { shape: shape.to_vec(), strides: dense_strides(shape), offset: 0 }
    }

    pub fn len(&self) -> usize {
        count(&self.shape)
    }

    /// True if the elements follow each other in row-major order.
    pub fn is_dense(&self) -> bool {
        self.len() == 0 || matches!(self.merged().as_slice(), [] | [(_, 1)])
    }

    /// Elements from the first to the last, both included.
    pub fn span(&self) -> usize {
        if self.len() == 0 {
            return 0;
        }
        1 + self.shape.iter().zip(&self.strides).map(|(e, s)| (e - 1) * s).sum::<usize>()
    }

    /// Axes merged where possible.
    pub fn merged(&self) -> Vec<(usize, usize)> {
        merge_axes(&self.shape, [&self.strides]).into_iter().map(|(e, [s])| (e, s)).collect()
    }

    /// Repeated to `to`; `None` if it does not fit.
    pub fn broadcast(&self, to: &[usize]) -> Option<View> {
        let skip = to.len().checked_sub(self.shape.len())?;
        let mut strides = vec![0; skip];
        for ((have, want), stride) in self.shape.iter().zip(&to[skip..]).zip(&self.strides) {
            if have == want {
                strides.push(*stride);
            } else if *have == 1 {
                strides.push(0);
            } else {
                return None;
            }
        }
        Some(View { shape: to.to_vec(), strides, offset: self.offset })
    }

    /// Axis i of the result is axis `axes[i]`.
    pub fn transpose(&self, axes: &[usize]) -> View {
        View {
            shape: axes.iter().map(|a| self.shape[*a]).collect(),
            strides: axes.iter().map(|a| self.strides[*a]).collect(),
            offset: self.offset,
        }
    }

    /// `axis` moved to the end.
    pub fn axis_last(&self, axis: usize) -> View {
        let mut axes: Vec<usize> = (0..self.shape.len()).filter(|a| *a != axis).collect();
        axes.push(axis);
        self.transpose(&axes)
    }

    /// The last axis moved to `axis`.
    pub fn last_to(&self, axis: usize) -> View {
        let last = self.shape.len() - 1;
        let mut axes: Vec<usize> = (0..last).collect();
        axes.insert(axis, last);
        self.transpose(&axes)
    }

    /// Entries `start..start + len` of an axis.
    pub fn slice(&self, axis: usize, start: usize, len: usize) -> View {
        let mut out = self.clone();
        out.shape[axis] = len;
        if out.len() > 0 {
            out.offset += start * self.strides[axis];
        }
        out
    }

    /// Entry `i` of an axis, which disappears.
    pub fn index(&self, axis: usize, i: usize) -> View {
        let mut out = self.slice(axis, i, 1);
        out.shape.remove(axis);
        out.strides.remove(axis);
        out
    }

    /// The same elements in row-major order under another shape; `None` if that takes a copy.
    pub fn reshape(&self, shape: &[usize]) -> Option<View> {
        if self.is_dense() {
            return Some(View { offset: self.offset, ..View::dense(shape) });
        }
        let old = self.merged();
        let mut strides = vec![0; shape.len()];
        let mut axis = 0;
        for (extent, stride) in old {
            let (first, mut product) = (axis, 1);
            while product < extent || (axis < shape.len() && shape[axis] == 1 && product == extent) {
                product *= *shape.get(axis)?;
                axis += 1;
            }
            if product != extent {
                return None;
            }
            let mut step = stride;
            for a in (first..axis).rev() {
                strides[a] = step;
                step *= shape[a];
            }
        }
        Some(View { shape: shape.to_vec(), strides, offset: self.offset })
    }

    /// The elements of `all` it shows, in row-major order; `None` if it leaves them.
    pub fn gather<E: Copy>(&self, all: &[E]) -> Option<Vec<E>> {
        fn walk<E: Copy>(axes: &[(usize, usize)], all: &[E], out: &mut Vec<E>) {
            match axes {
                [] => out.extend(all.first()),
                [(n, 1)] => out.extend_from_slice(&all[..*n]),
                [(n, step)] => out.extend((0..*n).map(|i| all[i * step])),
                [(n, step), inner @ ..] => (0..*n).for_each(|i| walk(inner, &all[i * step..], out)),
            }
        }
        let shown = all.get(self.offset..self.offset.checked_add(self.span())?)?;
        let mut out = Vec::with_capacity(self.len());
        if self.len() > 0 {
            walk(&self.merged(), shown, &mut out);
        }
        Some(out)
    }

    /// Every element's place in row-major order, the offset included.
    pub fn places(&self) -> Vec<usize> {
        let mut out = vec![self.offset];
        for (extent, stride) in self.shape.iter().zip(&self.strides) {
            out = out.iter().flat_map(|base| (0..*extent).map(move |i| base + i * stride)).collect();
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshaping_keeps_the_order_of_elements() {
        let base = View::dense(&[4, 6, 8]);
        for view in
            [base.clone(), base.slice(2, 1, 4), base.slice(1, 2, 3), base.transpose(&[1, 0, 2]), base.index(1, 3)]
        {
            let n = view.len();
            for shape in [vec![n], vec![2, n / 2], vec![view.shape[0], n / view.shape[0]], vec![1, n / 4, 1, 4, 1]] {
                if let Some(other) = view.reshape(&shape) {
                    assert_eq!(other.places(), view.places(), "{view:?} as {shape:?}");
                }
            }
        }
        assert!(base.slice(2, 1, 4).reshape(&[4, 6, 2, 2]).is_some());
        assert!(base.slice(2, 1, 4).reshape(&[24, 4]).is_some());
        assert!(base.slice(2, 1, 4).reshape(&[96]).is_none());
        assert!(View::dense(&[3]).broadcast(&[2, 3]).and_then(|v| v.reshape(&[6])).is_none());
    }

    #[test]
    fn gathering_follows_places() {
        let all: Vec<usize> = (0..192).collect();
        let base = View::dense(&[4, 6, 8]);
        let repeated = View::dense(&[6]).broadcast(&[2, 6]).unwrap_or(base.clone());
        for view in [
            base.clone(),
            base.transpose(&[2, 0, 1]),
            base.slice(1, 2, 3),
            base.index(2, 5),
            base.slice(0, 4, 0),
            repeated,
        ] {
            assert_eq!(view.gather(&all), Some(view.places()), "{view:?}");
        }
        assert_eq!(base.gather(&all[..191]), None);
        assert_eq!(View { shape: vec![], strides: vec![], offset: 7 }.gather(&all), Some(vec![7]));
    }

    #[test]
    fn merging_finds_dense_views() {
        assert!(View::dense(&[2, 1, 3]).is_dense());
        assert!(View::dense(&[2, 4]).slice(0, 1, 1).is_dense());
        assert!(!View::dense(&[2, 4]).slice(1, 1, 2).is_dense());
        assert!(!View::dense(&[1]).broadcast(&[4]).is_some_and(|v| v.is_dense()));
        assert!(View::dense(&[0, 4]).is_dense());
        assert_eq!(View::dense(&[2, 4]).slice(1, 1, 2).span(), 6);
    }
}
