//! Normalisation and rotary positions.

use super::call::Call;
use super::index::count;
use super::number::{Real, from_reals, ints, reals, round_to};
use crate::ops::Opcode;
use crate::tensor::Tensor;
use crate::ty::DType;

/// RmsNorm and L2Norm: x / sqrt(s + eps) times the weight, s the mean or the sum of squares.
pub(super) fn norm(call: &Call) -> Result<Tensor, String> {
    if call.wide() { norm_in::<f64>(call) } else { norm_in::<f32>(call) }
}

fn norm_in<R: Real>(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let n = *x.shape.last().ok_or("a norm needs at least one axis")?;
    let weight = call.optional(1)?.map(reals::<R>);
    if weight.as_ref().is_some_and(|w| w.len() != n) {
        return Err(format!("the weight must have {n} entries"));
    }
    let eps = R::from_f64(call.float("eps")?);
    let mut values = reals::<R>(x);
    for row in values.chunks_mut(n.max(1)) {
        let sum = row.iter().fold(R::ZERO, |acc, v| acc + *v * *v);
        let s = if call.op.code == Opcode::RmsNorm { sum / R::from_f64(n as f64) } else { sum };
        let root = (s + eps).sqrt();
        for (i, v) in row.iter_mut().enumerate() {
            *v = *v / root;
            if let Some(w) = &weight {
                *v = *v * w[i];
            }
        }
    }
    from_reals(x.dtype, x.shape.clone(), values)
}

/// The turns per position of the pairs of a rotary embedding of `width` entries, `base^(-2i/width)` for `i` in
/// `0..width / 2`, each rounded once to `held`.
#[must_use]
pub fn rope_frequencies(base: f64, width: usize, held: DType) -> Vec<f64> {
    (0..width / 2).map(|i| round_to(held, libm::pow(base, -2.0 * i as f64 / width as f64))).collect()
}

/// Angles, sines and cosines are formed in f64 and rounded to the compute dtype: at position 100,000 an f32 angle would be
/// off by thousandths.
pub(super) fn rope(call: &Call) -> Result<Tensor, String> {
    if call.wide() { rope_in::<f64>(call) } else { rope_in::<f32>(call) }
}

fn rope_in<R: Real>(call: &Call) -> Result<Tensor, String> {
    let (x, positions) = (call.tensor(0)?, ints(call.tensor(1)?)?);
    let [lead @ .., heads, head_width] = x.shape.as_slice() else {
        return Err("rope needs two axes".into());
    };
    if positions.len() != count(lead) {
        return Err(format!("{} positions for {:?} rows", positions.len(), lead));
    }
    let width = match usize::try_from(call.int("width")?) {
        Ok(0) => *head_width,
        Ok(w) if w <= *head_width => w,
        _ => return Err(format!("the rotary width does not fit heads of width {head_width}")),
    };
    let half = width / 2;
    let held = call.text("frequencies")?;
    let held = DType::from_name(held).ok_or_else(|| format!("frequencies cannot be held in '{held}'"))?;
    let frequencies = rope_frequencies(call.float("base")?, width, held);
    let mut values = reals::<R>(x);
    for (row, position) in positions.iter().enumerate() {
        for (i, frequency) in frequencies.iter().enumerate() {
            let angle = f64::from(*position) * frequency;
            let (cos, sin) = (R::from_f64(libm::cos(angle)), R::from_f64(libm::sin(angle)));
            for h in 0..*heads {
                let first = (row * heads + h) * head_width + i;
                let (a, b) = (values[first], values[first + half]);
                values[first] = a * cos - b * sin;
                values[first + half] = b * cos + a * sin;
            }
        }
    }
    from_reals(x.dtype, x.shape.clone(), values)
}
