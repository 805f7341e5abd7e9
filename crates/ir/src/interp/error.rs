//! What can go wrong while a function is evaluated.

use crate::diag::Span;
use crate::ir::Loc;
use std::fmt;
use std::sync::Arc;

/// Why a function could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterpError {
    /// What is wrong, one sentence without a full stop.
    pub message: String,
    /// Node path of the op, the name of the input, or the name of the state; loop indices are not part of it.
    pub path: Arc<str>,
    /// The expression in the spec, if an op is to blame and it has one.
    pub span: Option<Span>,
}

impl InterpError {
    pub(super) fn at(loc: &Loc, message: impl Into<String>) -> Self {
        InterpError { message: message.into(), path: loc.path.clone(), span: loc.span }
    }

    pub(super) fn named(name: &str, message: impl Into<String>) -> Self {
        InterpError { message: message.into(), path: name.into(), span: None }
    }
}

impl fmt::Display for InterpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

impl std::error::Error for InterpError {}
