//! Row-scaled 8-bit copies.

use super::call::Call;
use super::f8;
use super::number::{reals, tensor};
use crate::tensor::{Data, Tensor};
use crate::ty::DType;

/// Codes and scales of rows of `h` entries: scale = max(|row|, 1e-12) / 448, code = round(w / scale), all in f32. A NaN
/// makes its row's scale and codes NaN.
pub(super) fn rows(w: &[f32], h: usize) -> (Vec<u8>, Vec<f32>) {
    let (mut codes, mut scales) = (Vec::with_capacity(w.len()), Vec::new());
    for row in w.chunks(h.max(1)) {
        let largest = row.iter().fold(1e-12f32, |acc, x| if acc.is_nan() || acc >= x.abs() { acc } else { x.abs() });
        let scale = largest / 448.0;
        codes.extend(row.iter().map(|x| f8::encode(f64::from(x / scale))));
        scales.push(scale);
    }
    (codes, scales)
}

pub(super) fn quantize_rows(call: &Call) -> Result<Vec<Tensor>, String> {
    let w = call.tensor(0)?;
    let [v, h] = *w.shape.as_slice() else {
        return Err("quantize_rows takes a matrix".into());
    };
    let (codes, mut scales) = rows(&reals::<f32>(w), h);
    // A row without entries still has a scale.
    scales.resize(v, 1e-12f32 / 448.0);
    Ok(vec![tensor(DType::F8E4M3, w.shape.clone(), Data::U8(codes))?, tensor(DType::F32, vec![v], Data::F32(scales))?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_entry_becomes_448() {
        let (codes, scales) = rows(&[1.0, -4.48, 0.0, 0.0, 2.0, 448.0], 2);
        assert_eq!(scales, [0.01, 1e-12f32 / 448.0, 1.0]);
        assert_eq!(codes, [f8::encode(f64::from(1.0f32 / 0.01)), 0xfe, 0, 0, 0x40, 0x7e]);
        let (codes, scales) = rows(&[1.0, f32::NAN], 2);
        assert!(scales[0].is_nan() && codes.iter().all(|c| c & 0x7f == 0x7f));
    }
}
