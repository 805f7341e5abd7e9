//! Numbers: the two types arithmetic is done in, rounding to the storage formats, and conversion of whole tensors.

use super::f8;
use crate::tensor::{Data, Tensor};
use crate::ty::DType;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A type arithmetic is done in: f32 or f64. Transcendental functions come from `libm`, so that results do not depend on
/// the platform.
pub(super) trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;
    /// Rounded to nearest even.
    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
    fn abs(self) -> Self;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn ln_1p(self) -> Self;
    fn sqrt(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
    fn floor(self) -> Self;
    fn pow(self, e: Self) -> Self;
    /// Remainder of the division truncated towards zero; exact.
    fn rem(self, b: Self) -> Self;

    fn is_nan(self) -> bool {
        self.to_f64().is_nan()
    }

    /// The larger; NaN if either is.
    fn larger(self, b: Self) -> Self {
        if self.is_nan() || self >= b { self } else { b }
    }

    /// The smaller; NaN if either is.
    fn smaller(self, b: Self) -> Self {
        if self.is_nan() || self <= b { self } else { b }
    }
}

macro_rules! real {
    ($t:ty, $exp:ident $log:ident $log1p:ident $sin:ident $cos:ident $tanh:ident $erf:ident $pow:ident) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn abs(self) -> Self {
                <$t>::abs(self)
            }
            fn exp(self) -> Self {
                libm::$exp(self)
            }
            fn ln(self) -> Self {
                libm::$log(self)
            }
            fn ln_1p(self) -> Self {
                libm::$log1p(self)
            }
            fn sqrt(self) -> Self {
                <$t>::sqrt(self)
            }
            fn sin(self) -> Self {
                libm::$sin(self)
            }
            fn cos(self) -> Self {
                libm::$cos(self)
            }
            fn tanh(self) -> Self {
                libm::$tanh(self)
            }
            fn erf(self) -> Self {
                libm::$erf(self)
            }
            fn floor(self) -> Self {
                <$t>::floor(self)
            }
            fn pow(self, e: Self) -> Self {
                libm::$pow(self, e)
            }
            fn rem(self, b: Self) -> Self {
                self % b
            }
        }
    };
}

real!(f32, expf logf log1pf sinf cosf tanhf erff powf);
real!(f64, exp log log1p sin cos tanh erf pow);

/// The nearest number with `precision` significant bits and no exponent below `min_exponent` (subnormals below it), ties
/// to the even one. The upper end of the range is not looked at.
pub(super) fn round_significand(x: f64, precision: i32, min_exponent: i32) -> f64 {
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(min_exponent);
    let quantum = power_of_two(exponent - (precision - 1));
    (x / quantum).round_ties_even() * quantum
}

fn power_of_two(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// `x` rounded once, to nearest even, to what a float of this dtype can hold; beyond the largest finite number infinite,
/// in f8e4m3 the largest finite number. Numbers of the other dtypes are left alone.
pub fn round_to(dtype: DType, x: f64) -> f64 {
    let limited = |r: f64, max: f64| if r.abs() > max { f64::INFINITY.copysign(r) } else { r };
    match dtype {
        DType::F32 => f64::from(x as f32),
        DType::BF16 => limited(round_significand(x, 8, -126), f64::from(half::bf16::MAX)),
        DType::F16 => limited(round_significand(x, 11, -14), f64::from(half::f16::MAX)),
        DType::F8E4M3 => f64::from(f8::decode(f8::encode(x))),
        DType::F64 | DType::I32 | DType::U8 | DType::Bool => x,
    }
}

/// All elements as `R`; codes of f8e4m3 are decoded.
pub(super) fn reals<R: Real>(t: &Tensor) -> Vec<R> {
    match &t.data {
        Data::F64(v) => v.iter().map(|x| R::from_f64(*x)).collect(),
        Data::F32(v) => v.iter().map(|x| R::from_f64(f64::from(*x))).collect(),
        Data::I32(v) => v.iter().map(|x| R::from_f64(f64::from(*x))).collect(),
        Data::U8(v) if t.dtype == DType::F8E4M3 => v.iter().map(|x| R::from_f64(f64::from(f8::decode(*x)))).collect(),
        Data::U8(v) => v.iter().map(|x| R::from_f64(f64::from(*x))).collect(),
        Data::Bool(v) => v.iter().map(|x| if *x { R::ONE } else { R::ZERO }).collect(),
    }
}

/// All elements of an integer or truth-value tensor as i32.
pub(super) fn ints(t: &Tensor) -> Result<Vec<i32>, String> {
    match &t.data {
        Data::I32(v) => Ok(v.clone()),
        Data::U8(v) => Ok(v.iter().map(|x| i32::from(*x)).collect()),
        Data::Bool(v) => Ok(v.iter().map(|x| i32::from(*x)).collect()),
        Data::F32(_) | Data::F64(_) => Err(format!("integers are needed here, these are {}", t.dtype)),
    }
}

/// All elements of a truth-value tensor.
pub(super) fn bools(t: &Tensor) -> Result<&[bool], String> {
    match &t.data {
        Data::Bool(v) => Ok(v),
        _ => Err(format!("truth values are needed here, these are {}", t.dtype)),
    }
}

/// A tensor of `dtype` from results of computing: one rounding. To integers the value is cut off towards zero and
/// limited to their range, NaN becomes 0.
pub(super) fn from_reals<R: Real>(dtype: DType, shape: Vec<usize>, values: Vec<R>) -> Result<Tensor, String> {
    let wide = values.into_iter().map(R::to_f64);
    let data = match dtype {
        DType::F64 => Data::F64(wide.collect()),
        DType::F32 => Data::F32(wide.map(|x| x as f32).collect()),
        DType::BF16 | DType::F16 => Data::F32(wide.map(|x| round_to(dtype, x) as f32).collect()),
        DType::F8E4M3 => Data::U8(wide.map(f8::encode).collect()),
        DType::I32 => Data::I32(wide.map(|x| x as i32).collect()),
        DType::U8 => Data::U8(wide.map(|x| x as u8).collect()),
        DType::Bool => Data::Bool(wide.map(|x| x != 0.0).collect()),
    };
    tensor(dtype, shape, data)
}

/// A tensor of `dtype` from results of integer computing, reduced modulo 256 for u8.
pub(super) fn from_ints(dtype: DType, shape: Vec<usize>, values: Vec<i32>) -> Result<Tensor, String> {
    let data = match dtype {
        DType::I32 => Data::I32(values),
        DType::U8 => Data::U8(values.into_iter().map(|x| x as u8).collect()),
        DType::Bool => Data::Bool(values.into_iter().map(|x| x != 0).collect()),
        _ => return from_reals(dtype, shape, values.into_iter().map(f64::from).collect()),
    };
    tensor(dtype, shape, data)
}

/// [`Tensor::new`] with a message.
pub(super) fn tensor(dtype: DType, shape: Vec<usize>, data: Data) -> Result<Tensor, String> {
    let have = data.len();
    Tensor::new(dtype, shape.clone(), data).ok_or_else(|| format!("{have} elements do not fill {dtype}{shape:?}"))
}

/// The same values in another dtype, rounded once: to nearest even between floats, towards zero and limited to the range
/// from float to integer (NaN becomes 0), modulo 256 from i32 to u8, true where nonzero to bool.
pub fn cast(t: &Tensor, to: DType) -> Result<Tensor, String> {
    if t.dtype == to {
        return Ok(t.clone());
    }
    match t.dtype {
        DType::I32 | DType::U8 | DType::Bool => from_ints(to, t.shape.clone(), ints(t)?),
        _ => from_reals(to, t.shape.clone(), reals::<f64>(t)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_agrees_with_half_where_half_rounds_once() {
        for i in 0..=u16::MAX {
            let base = u32::from(i) << 16;
            for low in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits(base | low);
                let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                let (a, b) = (round_to(DType::BF16, f64::from(x)), half::bf16::from_f32(x).to_f64());
                assert!(same(a, b), "{x:e}: {a:e} against {b:e}");
                let (a, b) = (round_to(DType::F16, f64::from(x)), half::f16::from_f32(x).to_f64());
                assert!(same(a, b), "{x:e}: {a:e} against {b:e}");
            }
        }
    }

    #[test]
    fn a_double_is_rounded_once() {
        // Just above the middle of two neighbours: through f32 it would become a tie and go down to the even one.
        let above = 1.0 + 2f64.powi(-8) + 2f64.powi(-50);
        assert_eq!(round_to(DType::BF16, above), 1.0 + 2f64.powi(-7));
        let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-50);
        assert_eq!(round_to(DType::F16, above), 1.0 + 2f64.powi(-10));
    }

    #[test]
    fn casts_follow_the_registry() {
        let x = Tensor::f64(vec![5], vec![2.9, -2.9, f64::NAN, 1e20, -1e20]);
        assert_eq!(cast(&x, DType::I32).unwrap().data, Data::I32(vec![2, -2, 0, i32::MAX, i32::MIN]));
        assert_eq!(cast(&x, DType::U8).unwrap().data, Data::U8(vec![2, 0, 0, 255, 0]));
        assert_eq!(cast(&x, DType::Bool).unwrap().data, Data::Bool(vec![true; 5]));
        let x = Tensor::i32(vec![3], vec![-1, 257, 16777217]);
        assert_eq!(cast(&x, DType::U8).unwrap().data, Data::U8(vec![255, 1, 1]));
        assert_eq!(cast(&x, DType::F32).unwrap().data, Data::F32(vec![-1.0, 257.0, 16777216.0]));
    }
}
