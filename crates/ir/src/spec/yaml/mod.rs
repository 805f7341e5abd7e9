//! YAML text to a spanned tree of our own.

use crate::diag::{Diagnostics, FileId, SourceMap, Span};

/// A YAML value with the bytes it stands at.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The whole value: for a mapping or sequence from its first to its last token.
    pub span: Span,
    /// The value.
    pub value: Value,
}

/// A YAML value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`, `~` or nothing.
    Null,
    /// `true` / `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
    /// Text, plain or quoted.
    Str(Text),
    /// A sequence.
    Seq(Vec<Node>),
    /// A mapping in file order; duplicate keys were reported and dropped.
    Map(Vec<Entry>),
}

/// One entry of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key's text. A non-string scalar key (`16:`) keeps its spelling.
    pub key: String,
    /// Where the key stands.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

/// A text scalar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The value after YAML's unescaping and folding.
    pub value: String,
    /// File offset of the value's first byte if the value stands byte for byte in the file (plain or simply quoted on one
    /// line); `None` if escapes or folding make offsets meaningless.
    pub verbatim_at: Option<u32>,
}
