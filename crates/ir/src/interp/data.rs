//! Constants and data movement. Indices that come from data are clamped to the axis; an empty axis that something is to
//! be taken from is an error.

use super::call::{Call, Declared};
use super::index::{Lanes, broadcast, count, joined, offsets, pick, strides};
use super::number::{Real, cast, from_reals, ints, reals, tensor};
use crate::tensor::{Data, Tensor};
use crate::ty::DType;

pub(super) fn constant(call: &Call) -> Result<Tensor, String> {
    from_reals(call.dtype("dtype")?, vec![], vec![call.float("value")?])
}

pub(super) fn dim_value(call: &Call) -> Result<Tensor, String> {
    let value = call.dim("value")?;
    let small = i32::try_from(value).map_err(|_| format!("the dim is {value}, which is no i32"))?;
    Ok(Tensor::i32(vec![], vec![small]))
}

pub(super) fn iota(call: &Call) -> Result<Tensor, String> {
    let out = call.out(0)?;
    let n = i32::try_from(count(&out.shape)).map_err(|_| format!("0..{:?} does not fit i32", out.shape))?;
    tensor(DType::I32, out.shape.clone(), Data::I32((0..n).collect()))
}

/// `fill` and `broadcast`.
pub(super) fn repeat(call: &Call) -> Result<Tensor, String> {
    let (x, shape) = (call.tensor(0)?, &call.out(0)?.shape);
    tensor(x.dtype, shape.clone(), pick(&x.data, &broadcast(&x.shape, shape)?))
}

pub(super) fn reshape(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    tensor(x.dtype, call.out(0)?.shape.clone(), x.data.clone())
}

pub(super) fn transpose(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let axes = call.op.ints("axes").ok_or("attribute `axes` is missing")?;
    let axes = axes
        .iter()
        .map(|a| usize::try_from(*a).ok().filter(|a| *a < x.shape.len()).ok_or_else(|| format!("there is no axis {a}")))
        .collect::<Result<Vec<usize>, String>>()?;
    let steps = strides(&x.shape);
    let shape: Vec<usize> = axes.iter().map(|a| x.shape[*a]).collect();
    let steps: Vec<usize> = axes.iter().map(|a| steps[*a]).collect();
    let places = offsets(&shape, &steps);
    tensor(x.dtype, shape, pick(&x.data, &places))
}

pub(super) fn concat(call: &Call) -> Result<Tensor, String> {
    let Declared { dtype, shape } = call.out(0)?;
    let axis = call.axis(shape.len())?;
    let parts = call.tensors()?.into_iter().map(|t| cast(t, *dtype)).collect::<Result<Vec<Tensor>, String>>()?;
    let mut starts = Vec::new();
    let mut start = 0;
    for part in &parts {
        let same = part.shape.len() == shape.len()
            && part.shape.iter().zip(shape).enumerate().all(|(k, (a, b))| k == axis || a == b);
        if !same {
            return Err(format!("a part of extents {:?} does not fit into {shape:?} along axis {axis}", part.shape));
        }
        starts.push(start);
        start += part.len();
    }
    let total: usize = parts.iter().map(|p| p.shape[axis]).sum();
    if total != shape[axis] {
        return Err(format!("the parts have {total} entries along axis {axis}, the result has {}", shape[axis]));
    }
    let all = joined(&parts).ok_or("concat needs at least one part")?;
    let outer = count(&shape[..axis]);
    let mut places = Vec::with_capacity(count(shape));
    for o in 0..outer {
        for (part, start) in parts.iter().zip(&starts) {
            let block = count(&part.shape[axis..]);
            places.extend((0..block).map(|i| start + o * block + i));
        }
    }
    tensor(*dtype, shape.clone(), pick(&all, &places))
}

pub(super) fn slice(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let axis = call.axis(x.shape.len())?;
    let (start, len, extent) = (call.dim("start")?, call.dim("len")?, x.shape[axis]);
    let range = match (usize::try_from(start), usize::try_from(len)) {
        (Ok(s), Ok(l)) if s.checked_add(l).is_some_and(|end| end <= extent) => s..s + l,
        _ => return Err(format!("the range of {len} from {start} does not lie within axis {axis} of extent {extent}")),
    };
    let mut shape = x.shape.clone();
    shape[axis] = range.len();
    let lanes = Lanes::new(&x.shape, axis);
    let mut places = Vec::with_capacity(count(&shape));
    for o in 0..lanes.outer {
        for e in range.clone() {
            places.extend((0..lanes.inner).map(|i| lanes.at(o, e, i)));
        }
    }
    tensor(x.dtype, shape, pick(&x.data, &places))
}

pub(super) fn index_at(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let axis = call.axis(x.shape.len())?;
    let index = *ints(call.tensor(1)?)?.first().ok_or("the index must be a scalar")?;
    let lanes = Lanes::new(&x.shape, axis);
    let mut shape = x.shape.clone();
    shape.remove(axis);
    let mut places = Vec::with_capacity(count(&shape));
    for (o, i) in lanes.lanes() {
        places.push(lanes.at(o, clamp(index, lanes.extent)?, i));
    }
    tensor(x.dtype, shape, pick(&x.data, &places))
}

/// A data-dependent index limited to an axis.
pub(super) fn clamp(index: i32, extent: usize) -> Result<usize, String> {
    let last = extent.checked_sub(1).ok_or("an entry of an empty axis is asked for")?;
    Ok(usize::try_from(index).unwrap_or(0).min(last))
}

pub(super) fn shift(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let lanes = Lanes::new(&x.shape, call.axis(x.shape.len())?);
    let by = call.int("by")?;
    let fill = from_reals(x.dtype, vec![], vec![call.float("fill")?])?;
    let both = joined([x, &fill]).ok_or("the fill has the dtype of x")?;
    let mut places = Vec::with_capacity(x.len());
    for o in 0..lanes.outer {
        for e in 0..lanes.extent {
            let from = (e as i64).checked_sub(by).and_then(|f| usize::try_from(f).ok()).filter(|f| *f < lanes.extent);
            places.extend((0..lanes.inner).map(|i| from.map_or(x.len(), |f| lanes.at(o, f, i))));
        }
    }
    tensor(x.dtype, x.shape.clone(), pick(&both, &places))
}

pub(super) fn take(call: &Call) -> Result<Tensor, String> {
    let (x, index) = (call.tensor(0)?, call.tensor(1)?);
    let axis = call.axis(x.shape.len())?;
    if index.shape.len() < axis || index.shape[..axis] != x.shape[..axis] {
        return Err(format!("the index {:?} must begin with the axes {:?}", index.shape, &x.shape[..axis]));
    }
    let lanes = Lanes::new(&x.shape, axis);
    let further = count(&index.shape[axis..]);
    let index_values = ints(index)?;
    let mut shape = index.shape.clone();
    shape.extend_from_slice(&x.shape[axis + 1..]);
    let mut places = Vec::new();
    for o in 0..lanes.outer {
        for wanted in &index_values[o * further..(o + 1) * further] {
            for i in 0..lanes.inner {
                places.push(lanes.at(o, clamp(*wanted, lanes.extent)?, i));
            }
        }
    }
    tensor(x.dtype, shape, pick(&x.data, &places))
}

pub(super) fn one_hot(call: &Call) -> Result<Tensor, String> {
    let index = ints(call.tensor(0)?)?;
    let shape = call.out(0)?.shape.clone();
    let n = *shape.last().ok_or("one_hot makes at least one axis")?;
    let mut values = vec![0.0; index.len() * n];
    if n > 0 {
        for (row, wanted) in index.iter().enumerate() {
            values[row * n + clamp(*wanted, n)?] = 1.0;
        }
    }
    tensor(DType::F64, shape, Data::F64(values))
}

pub(super) fn scatter_add(call: &Call) -> Result<Tensor, String> {
    if call.wide() { scatter_add_in::<f64>(call) } else { scatter_add_in::<f32>(call) }
}

fn scatter_add_in<R: Real>(call: &Call) -> Result<Tensor, String> {
    let (x, index, updates) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let rows = index.shape.split_last().map(|(m, lead)| (*m, count(lead)));
    let (Some((m, rows)), Some(extent)) = (rows, x.shape.last()) else {
        return Err("scatter_add needs at least one axis".into());
    };
    let (index, updates) = (ints(index)?, reals::<R>(updates));
    let mut out = reals::<R>(x);
    if updates.len() != index.len() || out.len() != rows * extent {
        return Err(format!("{} indices, {} updates and {:?} do not fit", index.len(), updates.len(), x.shape));
    }
    for row in 0..rows {
        for j in row * m..(row + 1) * m {
            let place = row * extent + clamp(index[j], *extent)?;
            out[place] = out[place] + updates[j];
        }
    }
    from_reals(call.out(0)?.dtype, x.shape.clone(), out)
}

/// Ascending; NaN after everything, equal entries in their order.
pub(super) fn sort(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let extent = *x.shape.last().ok_or("sort needs at least one axis")?;
    let values = reals::<f64>(x);
    let mut places: Vec<usize> = (0..x.len()).collect();
    for row in places.chunks_mut(extent.max(1)) {
        row.sort_by(|a, b| {
            let (a, b) = (values[*a], values[*b]);
            a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal))
        });
    }
    tensor(x.dtype, x.shape.clone(), pick(&x.data, &places))
}
