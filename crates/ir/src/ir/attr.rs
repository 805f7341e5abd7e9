//! Attributes of ops.

use crate::ty::{DType, Dim};
use std::collections::BTreeMap;

/// A value an enclosing loop keeps besides its carried values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keep {
    /// Axis of the result along which iterations are stacked.
    pub axis: usize,
    /// The iterations that are kept, strictly increasing; `None` keeps all.
    pub at: Option<Vec<i64>>,
}

/// One attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    /// Integer.
    Int(i64),
    /// Real number.
    Float(f64),
    /// Truth value.
    Bool(bool),
    /// Text.
    Str(String),
    /// A dim.
    Dim(Dim),
    /// Several dims.
    Dims(Vec<Dim>),
    /// Several integers.
    Ints(Vec<i64>),
    /// A dtype.
    DType(DType),
    /// Kept values of a loop.
    Keeps(Vec<Keep>),
}

/// The attributes of an op by name.
pub type Attrs = BTreeMap<&'static str, Attr>;
