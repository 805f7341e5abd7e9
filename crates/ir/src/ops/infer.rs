//! What a shape function can report.

use crate::diag::{Code, codes};

/// Which part of a call is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The call as a whole.
    Call,
    /// An operand by index.
    Operand(usize),
    /// Two operands that do not fit each other.
    Pair(usize, usize),
    /// An attribute by name.
    Attr(&'static str),
}

/// A type error of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferError {
    /// Stable code.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// Who is to blame.
    pub blame: Blame,
    /// What to do.
    pub help: Option<String>,
}

impl InferError {
    pub(super) fn new(code: Code, blame: Blame, message: impl Into<String>) -> Self {
        InferError { code, message: message.into(), blame, help: None }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(super) fn dtype(operand: usize, message: impl Into<String>) -> Self {
        Self::new(codes::DTYPE_MISMATCH, Blame::Operand(operand), message)
    }

    pub(super) fn rank(operand: usize, message: impl Into<String>) -> Self {
        Self::new(codes::RANK_MISMATCH, Blame::Operand(operand), message)
    }

    pub(super) fn dims(a: usize, b: usize, message: impl Into<String>) -> Self {
        Self::new(codes::DIM_MISMATCH, Blame::Pair(a, b), message)
    }

    pub(super) fn attr(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(codes::BAD_ATTRIBUTE, Blame::Attr(name), message)
    }
}
