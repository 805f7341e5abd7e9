//! Row-major indexing.

use crate::tensor::{Data, Tensor};

/// Number of elements of a shape whose extents are known to be within the limit.
pub(super) fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Distance of neighbours along every axis.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        out[axis - 1] = out[axis] * shape[axis];
    }
    out
}

/// For every element of `shape` in row-major order the sum of index times stride over its axes.
pub(super) fn offsets(shape: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut out = vec![0];
    for (extent, stride) in shape.iter().zip(strides) {
        out = out.iter().flat_map(|base| (0..*extent).map(move |i| base + i * stride)).collect();
    }
    out
}

/// For every element of `to` the element of `from` that broadcasting (from the right, equal extents or one) puts there.
pub(super) fn broadcast(from: &[usize], to: &[usize]) -> Result<Vec<usize>, String> {
    let fits = from.len() <= to.len() && from.iter().rev().zip(to.iter().rev()).all(|(a, b)| a == b || *a == 1);
    if !fits {
        return Err(format!("{from:?} does not broadcast to {to:?}"));
    }
    let mut steps = vec![0; to.len() - from.len()];
    steps.extend(strides(from).iter().zip(from).map(|(s, extent)| if *extent == 1 { 0 } else { *s }));
    Ok(offsets(to, &steps))
}

/// The shape both broadcast to.
pub(super) fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let get = |t: &[usize], axis: usize| (axis + t.len()).checked_sub(rank).map_or(1, |k| t[k]);
    (0..rank)
        .map(|axis| match (get(a, axis), get(b, axis)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(format!("{a:?} and {b:?} do not broadcast")),
        })
        .collect()
}

/// A shape seen from one axis: what stands before it, its extent, what stands after it.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    pub outer: usize,
    pub extent: usize,
    pub inner: usize,
}

impl Lanes {
    pub fn new(shape: &[usize], axis: usize) -> Lanes {
        Lanes { outer: count(&shape[..axis]), extent: shape[axis], inner: count(&shape[axis + 1..]) }
    }

    /// Element `e` of lane `(o, i)`.
    pub fn at(&self, o: usize, e: usize, i: usize) -> usize {
        (o * self.extent + e) * self.inner + i
    }

    /// Every lane.
    pub fn lanes(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.outer).flat_map(move |o| (0..self.inner).map(move |i| (o, i)))
    }
}

/// The elements at the given places.
pub(super) fn pick(data: &Data, places: &[usize]) -> Data {
    fn at<T: Copy>(v: &[T], places: &[usize]) -> Vec<T> {
        places.iter().map(|p| v[*p]).collect()
    }
    match data {
        Data::F64(v) => Data::F64(at(v, places)),
        Data::F32(v) => Data::F32(at(v, places)),
        Data::I32(v) => Data::I32(at(v, places)),
        Data::U8(v) => Data::U8(at(v, places)),
        Data::Bool(v) => Data::Bool(at(v, places)),
    }
}

/// All elements of tensors of one dtype, one tensor after the other. `None` if there is no tensor or they differ in dtype.
pub(super) fn joined<'a>(parts: impl IntoIterator<Item = &'a Tensor>) -> Option<Data> {
    let mut parts = parts.into_iter();
    let mut out = parts.next()?.data.clone();
    for part in parts {
        match (&mut out, &part.data) {
            (Data::F64(a), Data::F64(b)) => a.extend(b),
            (Data::F32(a), Data::F32(b)) => a.extend(b),
            (Data::I32(a), Data::I32(b)) => a.extend(b),
            (Data::U8(a), Data::U8(b)) => a.extend(b),
            (Data::Bool(a), Data::Bool(b)) => a.extend(b),
            _ => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_repeats_axes_of_one() {
        assert_eq!(broadcast(&[2, 1], &[2, 3]).unwrap(), [0, 0, 0, 1, 1, 1]);
        assert_eq!(broadcast(&[3], &[2, 3]).unwrap(), [0, 1, 2, 0, 1, 2]);
        assert_eq!(broadcast(&[], &[2, 2]).unwrap(), [0; 4]);
        assert!(broadcast(&[2], &[3]).is_err());
        assert_eq!(broadcast_shape(&[4, 1], &[5]).unwrap(), [4, 5]);
        assert_eq!(broadcast_shape(&[0], &[1]).unwrap(), [0]);
        assert!(broadcast_shape(&[4], &[5]).is_err());
    }
}
