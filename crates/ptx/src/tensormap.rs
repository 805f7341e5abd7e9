//! Tensor maps: what TMA needs to know of a tensor in global memory.
//!
//! The driver's 128-byte encoding is not public, so kernels executed here get one of our own with the same parameters.

use crate::syntax::ast::Type;

/// Element types of tensor maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum TensorType {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F64,
    BF16,
    TF32,
}

impl TensorType {
    const ALL: [Self; 11] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::S32,
        Self::U64,
        Self::S64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::BF16,
        Self::TF32,
    ];

    /// Bytes of an element.
    pub fn size(self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::S32 | Self::F32 | Self::TF32 => 4,
            Self::U64 | Self::S64 | Self::F64 => 8,
        }
    }

    pub(crate) fn scalar(self) -> Type {
        match self {
            Self::U8 => Type::U8,
            Self::U16 => Type::U16,
            Self::U32 => Type::U32,
            Self::S32 => Type::S32,
            Self::U64 => Type::U64,
            Self::S64 => Type::S64,
            Self::F16 => Type::F16,
            Self::F32 | Self::TF32 => Type::F32,
            Self::F64 => Type::F64,
            Self::BF16 => Type::BF16,
        }
    }
}

/// Parameters of a tiled tensor map, as `cuTensorMapEncodeTiled` takes them. Dimension 0 is the contiguous one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Element type.
    pub ty: TensorType,
    /// Generic address of the tensor; see [`crate::Memory::address`].
    pub base: u64,
    /// Elements of each of 1 to 5 dimensions.
    pub dims: Vec<u64>,
    /// Byte strides of the dimensions from the second on.
    pub strides: Vec<u64>,
    /// Elements of the box copied at once.
    pub box_dims: Vec<u32>,
    /// Steps between copied elements; empty means 1 everywhere. The first is ignored, as by the driver: the contiguous
    /// dimension has no step without interleaving.
    pub element_strides: Vec<u32>,
    /// Swizzle over rows of 32, 64 or 128 bytes; 0 for none.
    pub swizzle: u32,
    /// Fill elements outside the tensor with NaN instead of zero.
    pub nan_fill: bool,
}

const MAGIC: u32 = 0x5041_4d54;

impl TensorMap {
    /// Checks the driver's rules and encodes the map as the 128 bytes that a kernel is given.
    ///
    /// # Errors
    /// Which rule is broken.
    pub fn encode(&self) -> Result<[u8; 128], String> {
        let rank = self.dims.len();
        if !(1..=5).contains(&rank) {
            return Err(format!("rank {rank} is not 1 to 5"));
        }
        if self.strides.len() != rank - 1 || self.box_dims.len() != rank {
            return Err(format!("rank {rank} needs {} strides and {rank} box dimensions", rank - 1));
        }
        let mut steps = if self.element_strides.is_empty() { vec![1; rank] } else { self.element_strides.clone() };
        if steps.len() != rank || steps.iter().any(|s| !(1..=8).contains(s)) {
            return Err("element strides are 1 to 8, one a dimension".into());
        }
        steps[0] = 1;
        if !self.base.is_multiple_of(16) {
            return Err("the tensor's address is not a multiple of 16".into());
        }
        if let Some(d) = self.dims.iter().find(|d| **d == 0 || **d > 1 << 32) {
            return Err(format!("dimension {d} is not in 1..=2^32"));
        }
        if let Some(s) = self.strides.iter().find(|s| !s.is_multiple_of(16) || **s >= 1 << 40) {
            return Err(format!("stride {s} is not a multiple of 16 below 2^40"));
        }
        if let Some(b) = self.box_dims.iter().find(|b| !(1..=256).contains(*b)) {
            return Err(format!("box dimension {b} is not in 1..=256"));
        }
        let row = u64::from(self.box_dims[0]) * self.ty.size();
        if !row.is_multiple_of(16) {
            return Err(format!("inner box of {row} bytes is not a multiple of 16"));
        }
        if !matches!(self.swizzle, 0 | 32 | 64 | 128) {
            return Err(format!("swizzle {} is not 0, 32, 64 or 128", self.swizzle));
        }
        if self.swizzle != 0 && row > u64::from(self.swizzle) {
            return Err(format!("inner box of {row} bytes exceeds the {}-byte swizzle", self.swizzle));
        }
        let mut out = [0u8; 128];
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4] = rank as u8;
        out[5] = TensorType::ALL.iter().position(|t| *t == self.ty).unwrap_or(0) as u8;
        out[6] = self.swizzle as u8;
        out[7] = u8::from(self.nan_fill);
        out[8..16].copy_from_slice(&self.base.to_le_bytes());
        for k in 0..rank {
            out[16 + 8 * k..24 + 8 * k].copy_from_slice(&self.dims[k].to_le_bytes());
            out[88 + 2 * k..90 + 2 * k].copy_from_slice(&(self.box_dims[k] as u16).to_le_bytes());
            out[98 + k] = steps[k] as u8;
        }
        for (k, s) in self.strides.iter().enumerate() {
            // Multiples of 16 below 2^40 fit five bytes in units of 16.
            out[104 + 5 * k..109 + 5 * k].copy_from_slice(&(s / 16).to_le_bytes()[..5]);
        }
        Ok(out)
    }

    /// Reads back [`Self::encode`]; `None` when the bytes are no tensor map.
    pub fn decode(raw: &[u8; 128]) -> Option<Self> {
        let u64_at = |o: usize| u64::from_le_bytes(std::array::from_fn(|k| raw[o + k]));
        if raw[..4] != MAGIC.to_le_bytes() || !(1..=5).contains(&raw[4]) {
            return None;
        }
        let rank = usize::from(raw[4]);
        Some(Self {
            ty: *TensorType::ALL.get(usize::from(raw[5]))?,
            base: u64_at(8),
            dims: (0..rank).map(|k| u64_at(16 + 8 * k)).collect(),
            strides: (0..rank - 1)
                .map(|k| {
                    let mut b = [0; 8];
                    b[..5].copy_from_slice(&raw[104 + 5 * k..109 + 5 * k]);
                    u64::from_le_bytes(b) * 16
                })
                .collect(),
            box_dims: (0..rank).map(|k| u32::from(u16::from_le_bytes([raw[88 + 2 * k], raw[89 + 2 * k]]))).collect(),
            element_strides: (0..rank).map(|k| u32::from(raw[98 + k])).collect(),
            swizzle: u32::from(raw[6]),
            nan_fill: raw[7] != 0,
        })
    }

    /// Elements of the box in each dimension, and the bytes of a whole box.
    pub fn box_shape(&self) -> (Vec<u64>, u64) {
        let step = |k: usize| if k == 0 { 1 } else { self.element_strides.get(k).map_or(1, |s| (*s).max(1)) };
        let shape: Vec<u64> = self.box_dims.iter().enumerate().map(|(k, b)| u64::from(b.div_ceil(step(k)))).collect();
        let bytes = shape.iter().product::<u64>() * self.ty.size();
        (shape, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_and_decodes() {
        let m = TensorMap {
            ty: TensorType::BF16,
            base: 0x1_0000,
            dims: vec![200, 136, 3, 5, 7],
            strides: vec![400, 54400, 163_200, 816_000],
            box_dims: vec![64, 32, 1, 2, 1],
            element_strides: vec![1, 1, 1, 2, 1],
            swizzle: 128,
            nan_fill: true,
        };
        assert_eq!(m.encode().ok().and_then(|r| TensorMap::decode(&r)), Some(m.clone()));
        let bad = TensorMap { box_dims: vec![128, 32, 1, 2, 1], ..m };
        assert!(bad.encode().is_err_and(|e| e.contains("swizzle")));
    }
}
