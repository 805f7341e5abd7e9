//! Tensor bytes to numbers and back. All reads are little-endian and need no alignment.

use std::fmt;
use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use safetensors::Dtype;

/// A tensor with its bytes: row-major, little-endian, possibly unaligned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TensorView<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    bytes: &'a [u8],
}

/// Why elements cannot be read or written as floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// Only F64, F32, F16 and BF16 convert.
    #[error("{0} is no floating-point type that converts; F64, F32, F16 and BF16 do")]
    NotFloat(Dtype),
    /// The elements asked for are not all in the tensor.
    #[error("elements {start}..{end} of a tensor of {len}")]
    OutOfRange {
        /// First element.
        start: usize,
        /// One past the last element.
        end: usize,
        /// Elements of the tensor.
        len: usize,
    },
    /// The destination has not as many elements as the range.
    #[error("{range} elements do not go into a slice of {out}")]
    Length {
        /// Elements of the range.
        range: usize,
        /// Elements of the destination.
        out: usize,
    },
}

impl<'a> TensorView<'a> {
    /// For a tensor whose byte count was checked against dtype and shape.
    pub(crate) fn in_checked_file(dtype: Dtype, shape: &'a [usize], bytes: &'a [u8]) -> Self {
        Self { dtype, shape, bytes }
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Dimensions; empty for a scalar.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The bytes; no alignment is promised.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if a dimension is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads elements `range` (row-major) as f32 into `out`. F64 is rounded to nearest; the other types are exact.
    ///
    /// # Errors
    /// The dtype does not convert, the range leaves the tensor, or `out` has another length.
    pub fn read_f32(&self, range: Range<usize>, out: &mut [f32]) -> Result<(), ConvertError> {
        let bytes = self.select(&range, out.len())?;
        match self.dtype {
            Dtype::F32 => decode(bytes, out, f32::from_le_bytes),
            Dtype::F64 => decode(bytes, out, |b| f64::from_le_bytes(b) as f32),
            Dtype::BF16 => decode(bytes, out, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
            Dtype::F16 => by_halves(bytes, out, |h, out| h.convert_to_f32_slice(out)),
            other => return Err(ConvertError::NotFloat(other)),
        }
        Ok(())
    }

    /// Reads elements `range` (row-major) as f64 into `out`; exact for every type that converts.
    ///
    /// # Errors
    /// As [`TensorView::read_f32`].
    pub fn read_f64(&self, range: Range<usize>, out: &mut [f64]) -> Result<(), ConvertError> {
        let bytes = self.select(&range, out.len())?;
        match self.dtype {
            Dtype::F32 => decode(bytes, out, |b| f64::from(f32::from_le_bytes(b))),
            Dtype::F64 => decode(bytes, out, f64::from_le_bytes),
            Dtype::BF16 => decode(bytes, out, |b| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))),
            Dtype::F16 => by_halves(bytes, out, |h, out| h.convert_to_f64_slice(out)),
            other => return Err(ConvertError::NotFloat(other)),
        }
        Ok(())
    }

    /// The whole tensor as f32.
    ///
    /// # Errors
    /// The dtype does not convert.
    pub fn to_f32(&self) -> Result<Vec<f32>, ConvertError> {
        let mut out = vec![0.0; self.len()];
        self.read_f32(0..self.len(), &mut out)?;
        Ok(out)
    }

    /// The whole tensor as f64.
    ///
    /// # Errors
    /// The dtype does not convert.
    pub fn to_f64(&self) -> Result<Vec<f64>, ConvertError> {
        let mut out = vec![0.0; self.len()];
        self.read_f64(0..self.len(), &mut out)?;
        Ok(out)
    }

    fn select(&self, range: &Range<usize>, out: usize) -> Result<&'a [u8], ConvertError> {
        if !is_float(self.dtype) {
            return Err(ConvertError::NotFloat(self.dtype));
        }
        let (start, end, len) = (range.start, range.end, self.len());
        if start > end || end > len {
            return Err(ConvertError::OutOfRange { start, end, len });
        }
        if end - start != out {
            return Err(ConvertError::Length { range: end - start, out });
        }
        let size = self.dtype.bitsize() / 8;
        Ok(&self.bytes[start * size..end * size])
    }
}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// True for the types that convert to and from f32 and f64.
pub(crate) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

/// Appends `values` to `out` as little-endian `dtype`, rounding to nearest, ties to even.
///
/// # Errors
/// The dtype does not convert.
pub fn encode_f32(dtype: Dtype, values: &[f32], out: &mut Vec<u8>) -> Result<(), ConvertError> {
    match dtype {
        Dtype::F64 => encode(values, out, |v| f64::from(v).to_le_bytes()),
        Dtype::F32 => encode(values, out, f32::to_le_bytes),
        Dtype::F16 => encode(values, out, |v| f16::from_f32(v).to_le_bytes()),
        Dtype::BF16 => encode(values, out, |v| bf16::from_f32(v).to_le_bytes()),
        other => return Err(ConvertError::NotFloat(other)),
    }
    Ok(())
}

/// Appends `values` to `out` as little-endian `dtype`, rounding to nearest, ties to even.
///
/// # Errors
/// The dtype does not convert.
pub fn encode_f64(dtype: Dtype, values: &[f64], out: &mut Vec<u8>) -> Result<(), ConvertError> {
    match dtype {
        Dtype::F64 => encode(values, out, f64::to_le_bytes),
        Dtype::F32 => encode(values, out, |v| (v as f32).to_le_bytes()),
        Dtype::F16 => encode(values, out, |v| f16::from_f32(to_odd(v)).to_le_bytes()),
        Dtype::BF16 => encode(values, out, |v| bf16::from_f32(to_odd(v)).to_le_bytes()),
        other => return Err(ConvertError::NotFloat(other)),
    }
    Ok(())
}

/// `v` as f32, rounded to odd, so that rounding the result again to 16 bits is as good as rounding `v` once. (The direct
/// conversions from f64 of the `half` crate drop the lower half of the mantissa.)
fn to_odd(v: f64) -> f32 {
    let nearest = v as f32;
    if v.is_nan() || f64::from(nearest) == v {
        return nearest;
    }
    let away = f64::from(nearest).abs() > v.abs();
    f32::from_bits((nearest.to_bits() - u32::from(away)) | 1)
}

pub(crate) fn encode<T: Copy, const N: usize>(values: &[T], out: &mut Vec<u8>, f: impl Fn(T) -> [u8; N]) {
    out.reserve(values.len() * N);
    for &v in values {
        out.extend_from_slice(&f(v));
    }
}

pub(crate) fn decode<T, const N: usize>(bytes: &[u8], out: &mut [T], f: impl Fn([u8; N]) -> T) {
    let (elements, _) = bytes.as_chunks::<N>();
    for (o, &b) in out.iter_mut().zip(elements) {
        *o = f(b);
    }
}

/// Decodes F16 through an aligned buffer, so that whole slices convert at once.
fn by_halves<T>(bytes: &[u8], out: &mut [T], convert: impl Fn(&[f16], &mut [T])) {
    const CHUNK: usize = 512;
    let mut buffer = [f16::ZERO; CHUNK];
    let (elements, _) = bytes.as_chunks::<2>();
    for (from, to) in elements.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
        for (h, &b) in buffer.iter_mut().zip(from) {
            *h = f16::from_le_bytes(b);
        }
        convert(&buffer[..from.len()], to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view that begins at an odd address, whatever the allocation's alignment.
    fn unaligned(bytes: &[u8]) -> (Vec<u8>, usize) {
        let mut v = vec![0; bytes.len() + 1];
        let skip = 1 - v.as_ptr() as usize % 2;
        v[skip..skip + bytes.len()].copy_from_slice(bytes);
        (v, skip)
    }

    #[test]
    fn every_half_pattern_converts_as_its_definition_says() {
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let (held, skip) = unaligned(&all);
        let shape = [65536];
        for dtype in [Dtype::F16, Dtype::BF16] {
            let view = TensorView { dtype, shape: &shape, bytes: &held[skip..skip + all.len()] };
            let (f, d) = (view.to_f32().unwrap(), view.to_f64().unwrap());
            for bits in 0..=u16::MAX {
                let want = match dtype {
                    Dtype::F16 => half_value(bits, 10, 5),
                    _ => half_value(bits, 7, 8),
                };
                let (f, d) = (f64::from(f[bits as usize]), d[bits as usize]);
                assert!(f == want && d == want || want.is_nan() && f.is_nan() && d.is_nan(), "{bits:#06x}");
            }
        }
    }

    /// The value of a 16-bit float by the definition of the format.
    fn half_value(bits: u16, mantissa_bits: i32, exponent_bits: u32) -> f64 {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let mantissa = f64::from(bits & ((1 << mantissa_bits) - 1));
        let exponent = i32::from((bits >> mantissa_bits) & ((1 << exponent_bits) - 1));
        let top = (1 << exponent_bits) - 1;
        let bias = (1 << (exponent_bits - 1)) - 1;
        let one = f64::from(1 << mantissa_bits);
        match exponent {
            0 => sign * mantissa * 2f64.powi(1 - bias - mantissa_bits),
            e if e == top => {
                if mantissa == 0.0 {
                    sign * f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            e => sign * (one + mantissa) * 2f64.powi(e - bias - mantissa_bits),
        }
    }

    #[test]
    fn ranges_read_what_the_whole_reads() {
        let values: Vec<f32> = (0..1500).map(|i| (i as f32 - 700.0) / 8.0).collect();
        for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64] {
            let mut bytes = Vec::new();
            encode_f32(dtype, &values, &mut bytes).unwrap();
            let (held, skip) = unaligned(&bytes);
            let shape = [3, 500];
            let view = TensorView { dtype, shape: &shape, bytes: &held[skip..skip + bytes.len()] };
            let whole = view.to_f32().unwrap();
            let mut part = vec![0.0; 700];
            view.read_f32(601..1301, &mut part).unwrap();
            assert_eq!(part, whole[601..1301]);
            assert!(whole.iter().zip(&values).all(|(a, b)| (a - b).abs() <= b.abs() / 256.0), "{dtype}");
        }
    }

    #[test]
    fn wrong_requests_are_errors() {
        let shape = [2];
        let view = TensorView { dtype: Dtype::F32, shape: &shape, bytes: &[0; 8] };
        let mut out = [0.0; 2];
        assert_eq!(view.read_f32(1..3, &mut out), Err(ConvertError::OutOfRange { start: 1, end: 3, len: 2 }));
        assert_eq!(view.read_f32(0..1, &mut out), Err(ConvertError::Length { range: 1, out: 2 }));
        #[expect(clippy::reversed_empty_ranges, reason = "what is refused here")]
        let reversed = view.read_f32(2..1, &mut out);
        assert_eq!(reversed, Err(ConvertError::OutOfRange { start: 2, end: 1, len: 2 }));
        let ints = TensorView { dtype: Dtype::I32, shape: &shape, bytes: &[0; 8] };
        assert_eq!(ints.to_f64(), Err(ConvertError::NotFloat(Dtype::I32)));
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        let mut out = Vec::new();
        // 1 + 2^-8 lies midway between two BF16 values, 1 + 3 * 2^-8 too.
        encode_f32(Dtype::BF16, &[1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0], &mut out).unwrap();
        assert_eq!(out, [0x80, 0x3f, 0x82, 0x3f]);
        out.clear();
        // A hair above the midpoint must round up even though it vanishes in f32.
        encode_f64(Dtype::BF16, &[1.0 + 1.0 / 256.0 + 2f64.powi(-40)], &mut out).unwrap();
        assert_eq!(out, [0x81, 0x3f]);
        out.clear();
        let hair = 1.0 + 2f64.powi(-11) + 2f64.powi(-50);
        encode_f64(Dtype::F16, &[hair, -hair, 1e300, 1e-300, -0.0, 65_519.999_999], &mut out).unwrap();
        assert_eq!(out, [0x01, 0x3c, 0x01, 0xbc, 0x00, 0x7c, 0x00, 0x00, 0x00, 0x80, 0xff, 0x7b]);
    }
}
