//! Stacking what a loop keeps.

use super::call::Declared;
use super::index::{count, joined, pick};
use super::number::tensor;
use crate::tensor::{Data, Tensor};
use std::sync::Arc;

/// The kept iterations along a new axis of the result.
pub(super) fn stack(want: &Declared, axis: usize, kept: &[Arc<Tensor>]) -> Result<Tensor, String> {
    let mut each = want.shape.clone();
    if axis >= each.len() {
        return Err(format!("a result of extents {:?} has no axis {axis}", want.shape));
    }
    let iterations = each.remove(axis);
    if iterations != kept.len() || kept.iter().any(|t| t.shape != each || t.dtype != want.dtype) {
        return Err(format!("{} kept values do not stack to {:?} along axis {axis}", kept.len(), want.shape));
    }
    let data = joined(kept.iter().map(|t| &**t)).unwrap_or(Data::zeros(want.dtype, 0));
    let (outer, inner) = (count(&each[..axis]), count(&each[axis..]));
    let mut places = Vec::with_capacity(data.len());
    for o in 0..outer {
        for i in 0..iterations {
            places.extend((0..inner).map(|e| (i * outer + o) * inner + e));
        }
    }
    tensor(want.dtype, want.shape.clone(), pick(&data, &places))
}
