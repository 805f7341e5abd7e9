//! Dense host tensors: what graphs take and give on every backend.

use crate::ty::DType;
use std::ops::Range;

/// Elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// dtype f64.
    F64(Vec<f64>),
    /// dtypes f32, bf16 and f16; the 16-bit ones hold values already rounded to their dtype.
    F32(Vec<f32>),
    /// dtype i32.
    I32(Vec<i32>),
    /// dtypes u8 and f8e4m3 (bits).
    U8(Vec<u8>),
    /// dtype bool.
    Bool(Vec<bool>),
}

impl Data {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Data::F64(v) => v.len(),
            Data::F32(v) => v.len(),
            Data::I32(v) => v.len(),
            Data::U8(v) => v.len(),
            Data::Bool(v) => v.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `len` zeros (or `false`) as `dtype` stores them.
    pub fn zeros(dtype: DType, len: usize) -> Data {
        match dtype {
            DType::F64 => Data::F64(vec![0.0; len]),
            DType::F32 | DType::BF16 | DType::F16 => Data::F32(vec![0.0; len]),
            DType::I32 => Data::I32(vec![0; len]),
            DType::U8 | DType::F8E4M3 => Data::U8(vec![0; len]),
            DType::Bool => Data::Bool(vec![false; len]),
        }
    }
}

/// A tensor. Invariant: `data` is the variant of `dtype` and has as many elements as `shape` says.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: Data,
}

impl Tensor {
    /// A tensor of `dtype`; `None` if the data is not of that dtype's variant or has another number of elements.
    pub fn new(dtype: DType, shape: Vec<usize>, data: Data) -> Option<Tensor> {
        let same = std::mem::discriminant(&Data::zeros(dtype, 0)) == std::mem::discriminant(&data);
        let len = shape.iter().try_fold(1usize, |acc, d| acc.checked_mul(*d));
        (same && len == Some(data.len())).then_some(Tensor { dtype, shape, data })
    }

    /// A tensor of zeros.
    pub fn zeros(dtype: DType, shape: Vec<usize>) -> Tensor {
        let len = shape.iter().product();
        Tensor { dtype, shape, data: Data::zeros(dtype, len) }
    }

    /// An i32 tensor; the caller guarantees that `data` fills `shape`.
    pub fn i32(shape: Vec<usize>, data: Vec<i32>) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "an i32 tensor's data fills its shape");
        Tensor { dtype: DType::I32, shape, data: Data::I32(data) }
    }

    /// An f64 tensor; the caller guarantees that `data` fills `shape`.
    pub fn f64(shape: Vec<usize>, data: Vec<f64>) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "an f64 tensor's data fills its shape");
        Tensor { dtype: DType::F64, shape, data: Data::F64(data) }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Entries `rows` of the first axis; `None` if there are not as many, or no axis.
    pub fn rows(&self, rows: Range<usize>) -> Option<Tensor> {
        let (n, inner) = self.shape.split_first()?;
        if rows.start > rows.end || rows.end > *n {
            return None;
        }
        let size: usize = inner.iter().product();
        let range = rows.start * size..rows.end * size;
        let data = match &self.data {
            Data::F64(x) => Data::F64(x.get(range)?.to_vec()),
            Data::F32(x) => Data::F32(x.get(range)?.to_vec()),
            Data::I32(x) => Data::I32(x.get(range)?.to_vec()),
            Data::U8(x) => Data::U8(x.get(range)?.to_vec()),
            Data::Bool(x) => Data::Bool(x.get(range)?.to_vec()),
        };
        let shape = std::iter::once(rows.len()).chain(inner.iter().copied()).collect();
        Tensor::new(self.dtype, shape, data)
    }

    /// All elements as f64; bits of f8e4m3 are not decoded.
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.data {
            Data::F64(v) => v.clone(),
            Data::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Data::I32(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Data::U8(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Data::Bool(v) => v.iter().map(|x| f64::from(u8::from(*x))).collect(),
        }
    }

    /// The same values in another dtype: rounded to nearest even between floats, towards zero from float to integer,
    /// true where nonzero to bool. `None` from or to f8e4m3.
    pub fn cast(&self, to: DType) -> Option<Tensor> {
        if self.dtype == to {
            return Some(self.clone());
        }
        if self.dtype == DType::F8E4M3 || to == DType::F8E4M3 {
            return None;
        }
        let wide = self.to_f64();
        let data = match to {
            DType::F64 => Data::F64(wide),
            DType::F32 => Data::F32(wide.iter().map(|x| *x as f32).collect()),
            DType::BF16 => Data::F32(wide.iter().map(|x| round_once(DType::BF16, *x)).collect()),
            DType::F16 => Data::F32(wide.iter().map(|x| round_once(DType::F16, *x)).collect()),
            DType::I32 => Data::I32(wide.iter().map(|x| *x as i32).collect()),
            DType::U8 => Data::U8(wide.iter().map(|x| *x as u8).collect()),
            DType::Bool => Data::Bool(wide.iter().map(|x| *x != 0.0).collect()),
            DType::F8E4M3 => return None,
        };
        Some(Tensor { dtype: to, shape: self.shape.clone(), data })
    }
}

/// Rounds to bfloat16, nearest even; the result is exactly representable in bf16. NaN stays NaN.
pub fn round_bf16(x: f32) -> f32 {
    if x.is_nan() {
        return x;
    }
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    f32::from_bits(rounded)
}

/// Rounds a double to a 16-bit dtype with one rounding.
fn round_once(dtype: DType, x: f64) -> f32 {
    crate::interp::round_to(dtype, x) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounding_agrees_with_half() {
        for i in 0..=u16::MAX {
            let base = u32::from(i) << 16;
            for low in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits(base | low);
                let (a, b) = (round_bf16(x), half::bf16::from_f32(x).to_f32());
                assert!(a == b || (a.is_nan() && b.is_nan()), "{x:e}: {a:e} against {b:e}");
            }
        }
    }

    #[test]
    fn rows_are_entries_of_the_first_axis() {
        let t = Tensor::i32(vec![3, 2], vec![0, 1, 2, 3, 4, 5]);
        assert_eq!(t.rows(1..3), Some(Tensor::i32(vec![2, 2], vec![2, 3, 4, 5])));
        assert_eq!(t.rows(2..2), Some(Tensor::i32(vec![0, 2], vec![])));
        assert_eq!(t.rows(2..4), None);
        assert_eq!(Tensor::i32(vec![], vec![7]).rows(0..1), None);
    }

    #[test]
    fn data_must_fit_dtype_and_shape() {
        assert!(Tensor::new(DType::F32, vec![2], Data::F32(vec![0.0; 2])).is_some());
        assert!(Tensor::new(DType::F32, vec![3], Data::F32(vec![0.0; 2])).is_none());
        assert!(Tensor::new(DType::F64, vec![2], Data::F32(vec![0.0; 2])).is_none());
        assert!(Tensor::new(DType::I32, vec![usize::MAX, 2], Data::I32(vec![])).is_none());
    }
}
