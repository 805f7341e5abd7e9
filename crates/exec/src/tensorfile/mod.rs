//! Files of tensors that a user hands in or takes away: safetensors with owned values.
//!
//! Half-precision values are held as f32 and remember the type they are stored in.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use safetensors::Dtype;

use crate::checkpoint::header::{Header, HeaderEntry, HeaderError};
use crate::checkpoint::{
    CheckpointError, CheckpointErrorKind as Kind, MAX_RANK, TensorSpec, WriteError, decode, encode, encode_f32,
    open_regular, write_safetensors,
};

/// Values of a tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// Stored as F64.
    F64(Vec<f64>),
    /// Stored as F32, F16 or BF16.
    F32(Vec<f32>),
    /// Stored as I64.
    I64(Vec<i64>),
    /// Stored as I32.
    I32(Vec<i32>),
    /// Stored as U8.
    U8(Vec<u8>),
    /// Stored as BOOL, one byte an element.
    Bool(Vec<bool>),
}

/// An owned tensor. Its values are as many as its shape says, and of the kind its dtype stores.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    data: TensorData,
}

/// Why values do not make a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// Another number of values than the shape says.
    #[error("{len} values do not fill the shape {shape:?}")]
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// Number of values.
        len: usize,
    },
    /// Values of another kind than the dtype stores.
    #[error("these values are not stored as {0}")]
    Kind(Dtype),
    /// More than [`MAX_RANK`] dimensions.
    #[error("{0} dimensions; at most {MAX_RANK} can be stored")]
    TooManyDims(usize),
}

impl TensorData {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::F64(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::U8(v) => v.len(),
            Self::Bool(v) => v.len(),
        }
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dtype that stores these values unchanged.
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::F64(_) => Dtype::F64,
            Self::F32(_) => Dtype::F32,
            Self::I64(_) => Dtype::I64,
            Self::I32(_) => Dtype::I32,
            Self::U8(_) => Dtype::U8,
            Self::Bool(_) => Dtype::BOOL,
        }
    }
}

impl Tensor {
    /// A tensor stored in the type of its values.
    ///
    /// # Errors
    /// The number of values does not fit the shape, or the shape is too long.
    pub fn new(shape: Vec<usize>, data: TensorData) -> Result<Self, TensorError> {
        Self::stored_as(data.dtype(), shape, data)
    }

    /// A tensor stored as `dtype`; f32 values may be stored as F32, F16 or BF16.
    ///
    /// # Errors
    /// As [`Tensor::new`], and if `dtype` does not store such values.
    pub fn stored_as(dtype: Dtype, shape: Vec<usize>, data: TensorData) -> Result<Self, TensorError> {
        let half = matches!((&data, dtype), (TensorData::F32(_), Dtype::F16 | Dtype::BF16));
        if !half && dtype != data.dtype() {
            return Err(TensorError::Kind(dtype));
        }
        if shape.len() > MAX_RANK {
            return Err(TensorError::TooManyDims(shape.len()));
        }
        let nonzero = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
        let elements = if shape.contains(&0) { Some(0) } else { nonzero };
        if elements != Some(data.len()) || nonzero.is_none() {
            return Err(TensorError::Length { shape, len: data.len() });
        }
        Ok(Self { dtype, shape, data })
    }

    /// The type it is stored in.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Dimensions; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values, row-major.
    pub fn data(&self) -> &TensorData {
        &self.data
    }

    /// Stored type, shape and values.
    pub fn into_parts(self) -> (Dtype, Vec<usize>, TensorData) {
        (self.dtype, self.shape, self.data)
    }
}

/// Reads all tensors of a safetensors file.
///
/// # Errors
/// Everything wrong with the file, or every tensor whose type or values are not accepted.
pub fn read_tensors(path: &Path) -> Result<BTreeMap<String, Tensor>, Vec<CheckpointError>> {
    let io = |e: std::io::Error| vec![CheckpointError::io(path, &e)];
    let (mut file, len) = open_regular(path).map_err(|e| vec![e])?;
    let header = Header::read(&mut file, len).map_err(|e| match e {
        HeaderError::Io(e) => io(e),
        HeaderError::Problems(list) => {
            list.into_iter().map(|p| CheckpointError::new(path, Kind::Safetensors(p))).collect()
        }
    })?;
    let mut tensors = BTreeMap::new();
    let mut errors = Vec::new();
    let mut bytes = Vec::new();
    // The entries follow one another without holes, so the file is read from front to back.
    for HeaderEntry { name, dtype, shape, start, end } in header.entries {
        bytes.resize(end - start, 0);
        file.read_exact(&mut bytes).map_err(io)?;
        match values(&name, dtype, &bytes) {
            Ok(data) => {
                tensors.insert(name, Tensor { dtype, shape, data });
            }
            Err(kind) => errors.push(CheckpointError::new(path, kind)),
        }
    }
    if errors.is_empty() { Ok(tensors) } else { Err(errors) }
}

fn values(name: &str, dtype: Dtype, bytes: &[u8]) -> Result<TensorData, Kind> {
    fn all<T: Clone + Default, const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
        let mut out = vec![T::default(); bytes.len() / N];
        decode(bytes, &mut out, f);
        out
    }
    Ok(match dtype {
        Dtype::F64 => TensorData::F64(all(bytes, f64::from_le_bytes)),
        Dtype::F32 => TensorData::F32(all(bytes, f32::from_le_bytes)),
        Dtype::F16 => TensorData::F32(all(bytes, |b| half::f16::from_le_bytes(b).to_f32())),
        Dtype::BF16 => TensorData::F32(all(bytes, |b| half::bf16::from_le_bytes(b).to_f32())),
        Dtype::I64 => TensorData::I64(all(bytes, i64::from_le_bytes)),
        Dtype::I32 => TensorData::I32(all(bytes, i32::from_le_bytes)),
        Dtype::U8 => TensorData::U8(bytes.to_vec()),
        Dtype::BOOL => {
            if let Some((index, &value)) = bytes.iter().enumerate().find(|(_, b)| **b > 1) {
                return Err(Kind::BadBool { tensor: name.to_owned(), index, value });
            }
            TensorData::Bool(bytes.iter().map(|b| *b == 1).collect())
        }
        dtype => return Err(Kind::UnsupportedDtype { tensor: name.to_owned(), dtype }),
    })
}

/// Writes tensors to a safetensors file, names ascending. The bytes depend on the tensors alone. The file appears under
/// its name only when complete. Values stored as F16 or BF16 are rounded to nearest, ties to even.
///
/// # Errors
/// A name cannot be stored, or the file cannot be written.
pub fn write_tensors(path: &Path, tensors: &BTreeMap<String, Tensor>) -> Result<(), WriteError> {
    let specs: Vec<TensorSpec> = tensors
        .iter()
        .map(|(name, t)| TensorSpec { name: name.clone(), dtype: t.dtype, shape: t.shape.clone() })
        .collect();
    let mut bytes = Vec::new();
    write_safetensors(path, &[], &specs, |spec, out| {
        let tensor = &tensors[&spec.name];
        bytes.clear();
        match &tensor.data {
            TensorData::F64(v) => encode(v, &mut bytes, f64::to_le_bytes),
            TensorData::F32(v) => encode_f32(tensor.dtype, v, &mut bytes).map_err(std::io::Error::other)?,
            TensorData::I64(v) => encode(v, &mut bytes, i64::to_le_bytes),
            TensorData::I32(v) => encode(v, &mut bytes, i32::to_le_bytes),
            TensorData::U8(v) => bytes.extend_from_slice(v),
            TensorData::Bool(v) => encode(v, &mut bytes, |b| [u8::from(b)]),
        }
        out.write_all(&bytes)
    })
}
