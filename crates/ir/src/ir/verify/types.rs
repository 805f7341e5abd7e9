//! Types that cannot exist.

use crate::ty::{Dim, StateKind, TensorType, Type};
use std::collections::BTreeSet;

/// What is wrong with a type, if anything.
pub(super) fn type_fault(ty: &Type, symbols: &BTreeSet<&str>) -> Option<String> {
    match ty {
        Type::Tensor(t) => tensor_fault(t, symbols),
        Type::State { kind, dtype } => {
            if !dtype.is_float() {
                return Some(format!("a state stores floats, not {dtype}"));
            }
            kind_fault(kind, symbols)
        }
    }
}

pub(super) fn tensor_fault(t: &TensorType, symbols: &BTreeSet<&str>) -> Option<String> {
    if let Some(fault) = t.dims.iter().find_map(|d| dim_fault(d, 0, symbols)) {
        return Some(format!("the type {t} cannot exist: {fault}"));
    }
    if t.elements().is_none() {
        return Some(format!("the type {t} cannot exist: its number of elements overflows"));
    }
    if t.dist && (t.rank() == 0 || !t.dtype.is_float()) {
        return Some(format!("the type {t} cannot exist: a distribution is a float tensor with at least one axis"));
    }
    None
}

pub(super) fn kind_fault(kind: &StateKind, symbols: &BTreeSet<&str>) -> Option<String> {
    let dims: Vec<&Dim> = match kind {
        StateKind::KvPool { heads, width } => vec![heads, width],
        StateKind::Recurrent { shape } => shape.iter().collect(),
        StateKind::Window { channels, taps } => vec![channels, taps],
    };
    let fault = dims.into_iter().find_map(|d| dim_fault(d, 1, symbols))?;
    Some(format!("the state {kind} cannot exist: {fault}"))
}

/// A dim that is a constant below `least`, or names a symbol the module does not have.
pub(super) fn dim_fault(dim: &Dim, least: i64, symbols: &BTreeSet<&str>) -> Option<String> {
    if let Some(v) = dim.as_const()
        && v < least
    {
        return Some(format!("the dim {v} is below {least}"));
    }
    unknown_symbol(dim, symbols)
}

pub(super) fn unknown_symbol(dim: &Dim, symbols: &BTreeSet<&str>) -> Option<String> {
    let name = dim.symbols().into_iter().find(|s| !symbols.contains(s.as_str()))?;
    Some(format!("the symbol {name} is not declared"))
}
