//! YAML text to a spanned tree of our own.
//!
//! The dialect is YAML 1.2 with the core schema, one document a file, without anchors, aliases, merge keys, tags and
//! directives. Everything a file can do wrong is reported with its bytes; a tree comes back whenever its structure is what
//! the author wrote, so that the later passes can go on and report more.

mod build;
mod scalar;
mod syntax;

use crate::diag::{Diagnostic, Diagnostics, FileId, SourceMap, Span, codes};

/// Largest file, in bytes.
pub const MAX_FILE: usize = 4 << 20;
/// Largest scalar, in bytes.
pub const MAX_SCALAR: usize = 1 << 20;
/// Deepest nesting of mappings and sequences.
pub const MAX_DEPTH: usize = 64;
/// Most keys and values of a file.
pub const MAX_NODES: usize = 200_000;

/// Parses the YAML text of `file`.
///
/// Reports every duplicate key, anchor, alias, merge key, tag and complex key of the file and the first syntax error.
/// Returns `None` where the tree would not be what the author wrote (syntax error, limit, alias, merge key, complex key,
/// second document); with `Some`, there may still be errors (duplicate keys, of which the first is kept; anchors and tags,
/// which are ignored). A file without content is [`Value::Null`].
pub fn parse(file: FileId, sources: &SourceMap, diags: &mut Diagnostics) -> Option<Node> {
    let text = sources.file(file).text.as_str();
    if text.len() > MAX_FILE {
        diags.push(too_large(file, text.len()));
        return None;
    }
    build::build(file, text, diags)
}

/// Adds a file of unchecked bytes to `sources` and parses it, see [`parse`].
///
/// Bytes that are not UTF-8 are E0104 at the first offending one; the source map then holds the text with replacement
/// characters. A file above [`MAX_FILE`] is registered without its contents.
pub fn parse_bytes(
    name: &str,
    bytes: &[u8],
    sources: &mut SourceMap,
    diags: &mut Diagnostics,
) -> (FileId, Option<Node>) {
    if bytes.len() > MAX_FILE {
        let file = sources.add(name, "");
        diags.push(too_large(file, bytes.len()));
        return (file, None);
    }
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => {
            let file = sources.add(name, text);
            return (file, parse(file, sources, diags));
        }
        Err(error) => error,
    };
    let at = error.valid_up_to();
    let file = sources.add(name, String::from_utf8_lossy(bytes));
    let start = at as u32;
    let span = Span { file, start, end: start + char::REPLACEMENT_CHARACTER.len_utf8() as u32 };
    let (line, column) = sources.file(file).line_col(start);
    let wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    let what = if wide {
        "the file is UTF-16, not UTF-8".to_owned()
    } else {
        let byte = bytes[at];
        format!("byte 0x{byte:02x} at line {}, byte column {} is not UTF-8", line + 1, column + 1)
    };
    diags.push(Diagnostic::error(codes::YAML_ENCODING, span, what).help("save the file as UTF-8"));
    (file, None)
}

fn too_large(file: FileId, len: usize) -> Diagnostic {
    let message = format!("the file has {len} bytes; the limit is {MAX_FILE}");
    Diagnostic::error(codes::YAML_BUDGET, Span { file, start: 0, end: 0 }, message)
        .help("a spec holds text only; tensors belong into safetensors files")
}

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

impl Value {
    /// What kind of value this is, for messages: "a mapping", "an integer".
    pub fn describe(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Bool(_) => "a truth value",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Str(_) => "text",
            Value::Seq(_) => "a sequence",
            Value::Map(_) => "a mapping",
        }
    }
}

impl Node {
    /// The text, if this is a text scalar.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::Str(text) = &self.value { Some(&text.value) } else { None }
    }

    /// The items, if this is a sequence.
    pub fn as_seq(&self) -> Option<&[Node]> {
        if let Value::Seq(items) = &self.value { Some(items) } else { None }
    }

    /// The entries, if this is a mapping.
    pub fn as_map(&self) -> Option<&[Entry]> {
        if let Value::Map(entries) = &self.value { Some(entries) } else { None }
    }

    /// The entry of `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.as_map()?.iter().find(|entry| entry.key == key)
    }
}
