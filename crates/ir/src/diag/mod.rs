//! Diagnostics: source files, spans, messages with stable codes, and their two renderings (terminal text, JSON with LSP
//! ranges).

pub mod codes;
mod json;
mod render;
mod source;
mod suggest;

pub use codes::{CODES, Code, code_info};
pub use json::range as json_range;
pub use json::{JsonDiagnostic, JsonPosition, JsonRange, JsonRelated, to_json};
pub use render::{printable, render};
pub use source::{FileId, SourceFile, SourceMap, Span};
pub use suggest::suggest;

/// How bad a diagnostic is. Only [`Severity::Error`] makes a command fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The input cannot be used.
    Error,
    /// The input can be used, but probably does not say what its author meant.
    Warning,
    /// Additional information.
    Note,
}

/// A second place that explains a diagnostic: where the other side of a conflict came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Related {
    /// Where.
    pub span: Span,
    /// What is there.
    pub message: String,
}

/// One message to the user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Diagnostic {
    /// Where the cause stands. `None` only for messages about the command line or a whole directory.
    pub span: Option<Span>,
    /// Stable code, for example `E0301`.
    pub code: Code,
    /// Severity.
    pub severity: Severity,
    /// What is wrong, one sentence without a full stop.
    pub message: String,
    /// Short text beside the caret; may be empty.
    pub label: String,
    /// Other places involved.
    pub related: Vec<Related>,
    /// What to do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self {
            span: Some(span),
            code,
            severity: Severity::Error,
            message: message.into(),
            label: String::new(),
            related: Vec::new(),
            help: None,
        }
    }

    /// An error that has no place in a file.
    pub fn error_nowhere(code: Code, message: impl Into<String>) -> Self {
        Self {
            span: None,
            code,
            severity: Severity::Error,
            message: message.into(),
            label: String::new(),
            related: Vec::new(),
            help: None,
        }
    }

    /// The same diagnostic as a warning.
    pub fn as_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// Sets the text beside the caret.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds a related place.
    pub fn related(mut self, span: Span, message: impl Into<String>) -> Self {
        self.related.push(Related { span, message: message.into() });
        self
    }

    /// Sets the help line.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Collects diagnostics; a pass reports into it and goes on.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, d: Diagnostic) {
        self.list.push(d);
    }

    /// True if any error was reported.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity == Severity::Error)
    }

    /// True if nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes over everything `other` holds.
    pub fn extend(&mut self, other: Diagnostics) {
        self.list.extend(other.list);
    }

    /// All diagnostics in file order, each once.
    pub fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.list.sort();
        self.list.dedup();
        self.list
    }

    /// All diagnostics in the order they were reported.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }
}
