//! Element types and the numerics policies that widen them.

use std::fmt;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// 8-bit float, 4 exponent and 3 mantissa bits, no infinities. A storage format of its own in every numerics policy.
    F8E4M3,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned byte.
    U8,
    /// Truth value.
    Bool,
}

impl DType {
    /// All dtypes.
    pub const ALL: [DType; 8] =
        [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::I32, DType::U8, DType::Bool];

    /// The name used in specs.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F8E4M3 => "f8e4m3",
            DType::I32 => "i32",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }

    /// The dtype with that name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bytes of one element.
    pub fn bytes(self) -> i64 {
        match self {
            DType::F64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::F8E4M3 | DType::U8 | DType::Bool => 1,
        }
    }

    /// True for f64, f32, f16 and bf16: the dtypes arithmetic is done in.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// True for i32 and u8.
    pub fn is_int(self) -> bool {
        matches!(self, DType::I32 | DType::U8)
    }

    /// The dtype an elementwise operation on both has; `None` if they do not mix (integers with truth values).
    pub fn promote(self, other: DType) -> Option<DType> {
        let rank = |d: DType| match d {
            DType::F64 => Some(5),
            DType::F32 => Some(4),
            DType::BF16 => Some(3),
            DType::F16 => Some(2),
            _ => None,
        };
        match (rank(self), rank(other)) {
            _ if self == other => Some(self),
            (Some(3), Some(2)) | (Some(2), Some(3)) => Some(DType::F32),
            (Some(a), Some(b)) => Some(if a >= b { self } else { other }),
            (Some(_), None) if other.is_int() => Some(self),
            (None, Some(_)) if self.is_int() => Some(other),
            (None, None) if self.is_int() && other.is_int() => Some(DType::I32),
            _ => None,
        }
    }

    /// The dtype arithmetic on this dtype is carried out in: f32 for 16-bit floats.
    pub fn compute(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which floating-point dtypes a run really uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Numerics {
    /// Every float is f64, no rounding in between.
    F64,
    /// bf16 and f16 widen to f32, f64 stays; no rounding in between.
    F32,
    /// Dtypes and rounding points as the spec states them.
    BF16,
}

impl Numerics {
    /// The dtype a declared dtype becomes.
    pub fn apply(self, dtype: DType) -> DType {
        match self {
            Numerics::F64 if dtype.is_float() => DType::F64,
            Numerics::F32 => dtype.compute(),
            _ => dtype,
        }
    }

    /// The name used on the command line and in system files.
    pub fn name(self) -> &'static str {
        match self {
            Numerics::F64 => "f64",
            Numerics::F32 => "f32",
            Numerics::BF16 => "bf16",
        }
    }

    /// The policy with that name.
    pub fn from_name(name: &str) -> Option<Numerics> {
        [Numerics::F64, Numerics::F32, Numerics::BF16].into_iter().find(|n| n.name() == name)
    }
}
