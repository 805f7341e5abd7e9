//! Errors of parsing, resolving and launching.

use std::fmt;

/// A place in PTX text; both numbers count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos {
    /// Line number.
    pub line: u32,
    /// Column in bytes.
    pub column: u32,
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// What stage rejected the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagnosticKind {
    /// The text is not PTX.
    Syntax,
    /// A name, operand or type does not fit the instruction.
    Resolve,
    /// Valid PTX that this interpreter does not execute.
    Unsupported,
}

impl DiagnosticKind {
    /// Stable name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Resolve => "resolve",
            Self::Unsupported => "unsupported",
        }
    }
}

/// One error in PTX text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stage that found it.
    pub kind: DiagnosticKind,
    /// Where.
    pub pos: Pos,
    /// What is wrong, without position.
    pub message: String,
}

impl Diagnostic {
    pub(crate) fn syntax(pos: Pos, message: impl Into<String>) -> Self {
        Self { kind: DiagnosticKind::Syntax, pos, message: message.into() }
    }
    pub(crate) fn resolve(pos: Pos, message: impl Into<String>) -> Self {
        Self { kind: DiagnosticKind::Resolve, pos, message: message.into() }
    }
    pub(crate) fn unsupported(pos: Pos, message: impl Into<String>) -> Self {
        Self { kind: DiagnosticKind::Unsupported, pos, message: message.into() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pos, self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// Why a launch did not start. Problems found while running are findings, not errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Grid, block, cluster or shared memory outside the architecture's limits.
    #[error("launch configuration: {0}")]
    Config(String),
    /// Arguments do not match the kernel's parameters.
    #[error("kernel argument {index}: {message}")]
    Argument {
        /// Position from 0.
        index: usize,
        /// What does not fit.
        message: String,
    },
    /// Number of arguments differs from the number of parameters.
    #[error("kernel takes {expected} arguments, {given} given")]
    ArgumentCount {
        /// Parameters of the kernel.
        expected: usize,
        /// Arguments of the launch.
        given: usize,
    },
}
