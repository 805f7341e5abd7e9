//! Tensor and state types.

use super::{DType, Dim};
use std::fmt;

/// Type of a tensor value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first; empty for a scalar.
    pub dims: Vec<Dim>,
    /// True if the last axis is known to hold probabilities that sum to one (`dist` in specs).
    pub dist: bool,
}

impl TensorType {
    /// A plain tensor.
    pub fn new(dtype: DType, dims: Vec<Dim>) -> Self {
        Self { dtype, dims, dist: false }
    }

    /// A scalar.
    pub fn scalar(dtype: DType) -> Self {
        Self::new(dtype, Vec::new())
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The same shape with another dtype, not a distribution.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Self::new(dtype, self.dims.clone())
    }

    /// Number of elements; `None` on overflow.
    pub fn elements(&self) -> Option<Dim> {
        self.dims.iter().try_fold(Dim::from(1), |acc, d| acc.mul(d))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dist {
            f.write_str("dist ")?;
        }
        let dims: Vec<String> = self.dims.iter().map(Dim::to_string).collect();
        write!(f, "{}[{}]", self.dtype, dims.join(", "))
    }
}

/// Kind of a per-request state object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// Keys and values by absolute position. Per position and element: two rows of `heads * width`.
    KvPool {
        /// Key/value heads.
        heads: Dim,
        /// Width of one head.
        width: Dim,
    },
    /// A recurrent state of fixed shape that advances row by row and can be committed to a prefix of the rows.
    Recurrent {
        /// Shape of the state.
        shape: Vec<Dim>,
    },
    /// The last `taps - 1` inputs of a causal convolution.
    Window {
        /// Channels.
        channels: Dim,
        /// Filter taps.
        taps: Dim,
    },
}

/// Type of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Type {
    /// A tensor.
    Tensor(TensorType),
    /// One element of a state object, in one version. Linear: consumed exactly once.
    State {
        /// Kind.
        kind: StateKind,
        /// Storage dtype.
        dtype: DType,
    },
}

impl Type {
    /// The tensor type, if it is one.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(t) => Some(t),
            Type::State { .. } => None,
        }
    }

    /// True for a state.
    pub fn is_state(&self) -> bool {
        matches!(self, Type::State { .. })
    }
}

impl From<TensorType> for Type {
    fn from(t: TensorType) -> Self {
        Type::Tensor(t)
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateKind::KvPool { heads, width } => write!(f, "kv_pool[{heads}, {width}]"),
            StateKind::Recurrent { shape } => {
                let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
                write!(f, "recurrent[{}]", dims.join(", "))
            }
            StateKind::Window { channels, taps } => write!(f, "window[{channels}, {taps}]"),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(t) => t.fmt(f),
            Type::State { kind, dtype } => write!(f, "state {dtype} {kind}"),
        }
    }
}
