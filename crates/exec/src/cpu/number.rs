//! The types elementwise programs compute in.

use super::elements::Elem;
use spinec_ir::interp::round_to;
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::round_bf16;
use spinec_ir::ty::DType;

/// f32, f64 or i32. The scalar functions are those of the reference: libm, wrapping integers.
pub(super) trait Number: Elem {
    fn from_f64(x: f64) -> Self;
    fn from_i32(x: i32) -> Self;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    /// Cut off towards zero and limited to the range; NaN becomes 0.
    fn to_i32(self) -> i32;
    /// As [`Number::to_i32`] for floats; modulo 256 for integers.
    fn to_u8(self) -> u8;
    /// A function of one element that has no vector form.
    fn scalar_unary(code: Opcode, x: Self) -> Self;
    /// A function of two elements that has no vector form.
    fn scalar_binary(code: Opcode, a: Self, b: Self) -> Self;
    /// To nearest even in a narrower float.
    fn round(self, to: DType) -> Self;
    fn nan(self) -> bool;
    fn finite(self) -> bool;
}

macro_rules! float {
    ($t:ty, $from:expr, $log:ident $sin:ident $cos:ident $tanh:ident $erf:ident $pow:ident) => {
        impl Number for $t {
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn from_i32(x: i32) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn to_i32(self) -> i32 {
                self as i32
            }
            #[inline(always)]
            fn to_u8(self) -> u8 {
                self as u8
            }
            fn scalar_unary(code: Opcode, x: Self) -> Self {
                match code {
                    Opcode::Log => libm::$log(x),
                    Opcode::Sin => libm::$sin(x),
                    Opcode::Cos => libm::$cos(x),
                    Opcode::Tanh => libm::$tanh(x),
                    Opcode::Erf => libm::$erf(x),
                    Opcode::Floor => x.floor(),
                    _ => <$t>::NAN,
                }
            }
            fn scalar_binary(code: Opcode, a: Self, b: Self) -> Self {
                match code {
                    Opcode::Pow => libm::$pow(a, b),
                    Opcode::FloorDiv => (a / b).floor(),
                    Opcode::Mod => {
                        let r = a % b;
                        if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
                    }
                    _ => <$t>::NAN,
                }
            }
            #[inline(always)]
            fn round(self, to: DType) -> Self {
                $from(self, to)
            }
            #[inline(always)]
            fn nan(self) -> bool {
                self.is_nan()
            }
            #[inline(always)]
            fn finite(self) -> bool {
                self.is_finite()
            }
        }
    };
}

#[inline(always)]
fn round_f32(x: f32, to: DType) -> f32 {
    match to {
        DType::BF16 => round_bf16(x),
        _ => round_to(to, f64::from(x)) as f32,
    }
}

float!(f32, round_f32, logf sinf cosf tanhf erff powf);
float!(f64, |x, to| round_to(to, x), log sin cos tanh erf pow);

impl Number for i32 {
    fn from_f64(x: f64) -> Self {
        x as i32
    }
    fn from_i32(x: i32) -> Self {
        x
    }
    fn to_f32(self) -> f32 {
        self as f32
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    fn to_i32(self) -> i32 {
        self
    }
    fn to_u8(self) -> u8 {
        self as u8
    }
    fn scalar_unary(code: Opcode, x: Self) -> Self {
        match code {
            Opcode::Neg => x.wrapping_neg(),
            Opcode::Abs => x.wrapping_abs(),
            Opcode::Not => i32::from(x == 0),
            Opcode::IsFinite => 1,
            _ => x,
        }
    }
    fn scalar_binary(code: Opcode, a: Self, b: Self) -> Self {
        match code {
            Opcode::Add => a.wrapping_add(b),
            Opcode::Sub => a.wrapping_sub(b),
            Opcode::Mul => a.wrapping_mul(b),
            Opcode::FloorDiv => floor_div(a, b),
            Opcode::Mod => a.wrapping_sub(floor_div(a, b).wrapping_mul(b)),
            Opcode::Pow => power(a, b),
            Opcode::Minimum => a.min(b),
            Opcode::Maximum => a.max(b),
            Opcode::Eq => i32::from(a == b),
            Opcode::Ne => i32::from(a != b),
            Opcode::Lt => i32::from(a < b),
            Opcode::Le => i32::from(a <= b),
            Opcode::Gt => i32::from(a > b),
            Opcode::Ge => i32::from(a >= b),
            Opcode::And => i32::from(a != 0 && b != 0),
            Opcode::Or => i32::from(a != 0 || b != 0),
            _ => a,
        }
    }
    fn round(self, _: DType) -> Self {
        self
    }
    fn nan(self) -> bool {
        false
    }
    fn finite(self) -> bool {
        true
    }
}

/// Rounded towards minus infinity; 0 for a divisor of 0.
fn floor_div(a: i32, b: i32) -> i32 {
    if b == 0 {
        return 0;
    }
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// For a negative exponent the exact power cut off to an integer.
fn power(a: i32, b: i32) -> i32 {
    match (a, u32::try_from(b)) {
        (_, Ok(e)) => a.wrapping_pow(e),
        (1, _) => 1,
        (-1, _) => 1 - 2 * (b & 1),
        _ => 0,
    }
}
