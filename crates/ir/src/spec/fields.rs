//! Reading mappings with a closed set of keys.

use super::yaml::{Entry, Node, Value};
use crate::diag::{Diagnostic, Diagnostics, Severity, Span, codes, suggest};

/// The entries of a mapping of which every key must be asked for: what is left over is an unknown key.
pub(crate) struct Fields<'a> {
    what: &'static str,
    span: Span,
    entries: &'a [Entry],
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The mapping in `node`; anything else is reported as not being a `what`.
    pub fn open(what: &'static str, node: &'a Node, diags: &mut Diagnostics) -> Option<Self> {
        match &node.value {
            Value::Map(entries) => Some(Fields { what, span: node.span, entries, asked: Vec::new() }),
            Value::Null => Some(Fields { what, span: node.span, entries: &[], asked: Vec::new() }),
            other => {
                diags.push(Diagnostic::error(
                    codes::YAML_SHAPE,
                    node.span,
                    format!("{what} is a mapping, this is {}", other.describe()),
                ));
                None
            }
        }
    }

    /// Where the mapping stands.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The entry of an optional key.
    pub fn take(&mut self, key: &'static str) -> Option<&'a Entry> {
        self.asked.push(key);
        self.entries.iter().find(|e| e.key == key)
    }

    /// The entry of a key that must be there.
    pub fn require(&mut self, key: &'static str, diags: &mut Diagnostics) -> Option<&'a Entry> {
        let entry = self.take(key);
        if entry.is_none() {
            diags.push(
                Diagnostic::error(codes::MISSING_KEY, self.span, format!("{} needs `{key}`", self.what))
                    .label(format!("`{key}` is missing")),
            );
        }
        entry
    }

    /// Reports every key nobody asked for.
    pub fn finish(self, diags: &mut Diagnostics) {
        for entry in self.entries {
            if self.asked.contains(&entry.key.as_str()) {
                continue;
            }
            let mut d = Diagnostic::error(
                codes::UNKNOWN_KEY,
                entry.key_span,
                format!("`{}` is not a key of {}", entry.key, self.what),
            )
            .label("unknown key");
            d = match suggest(&entry.key, self.asked.iter().copied()) {
                Some(near) => d.help(format!("did you mean `{near}`?")),
                None => d.help(format!("possible keys: {}", self.asked.join(", "))),
            };
            diags.push(d);
        }
    }
}

/// The entries of a mapping whose keys are names the user chooses.
pub(crate) fn named<'a>(what: &str, node: &'a Node, diags: &mut Diagnostics) -> &'a [Entry] {
    match &node.value {
        Value::Map(entries) => entries,
        Value::Null => &[],
        other => {
            diags.push(Diagnostic::error(
                codes::YAML_SHAPE,
                node.span,
                format!("{what} is a mapping from names, this is {}", other.describe()),
            ));
            &[]
        }
    }
}

/// The items of a sequence.
pub(crate) fn items<'a>(what: &str, node: &'a Node, diags: &mut Diagnostics) -> &'a [Node] {
    match &node.value {
        Value::Seq(items) => items,
        Value::Null => &[],
        other => {
            diags.push(Diagnostic::error(
                codes::YAML_SHAPE,
                node.span,
                format!("{what} is a sequence, this is {}", other.describe()),
            ));
            &[]
        }
    }
}

/// How many errors so far left something out of the tree that is made: a declaration, a node, everything under a key. An
/// expression or type that cannot be parsed leaves a mark in its place and nothing out.
pub(crate) fn dropped(diags: &Diagnostics) -> usize {
    let left_in = |code| code == codes::EXPR_SYNTAX || code == codes::TYPE_SYNTAX;
    diags.iter().filter(|d| d.severity == Severity::Error && !left_in(d.code)).count()
}

/// A text scalar.
pub(crate) fn text<'a>(what: &str, node: &'a Node, diags: &mut Diagnostics) -> Option<&'a str> {
    let found = node.as_str();
    if found.is_none() {
        diags.push(Diagnostic::error(
            codes::YAML_SHAPE,
            node.span,
            format!("{what} is text, this is {}", node.value.describe()),
        ));
    }
    found
}

/// True for an identifier: a letter or underscore, then letters, digits, underscores.
pub(crate) fn is_ident(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Words of the expression syntax that cannot be names.
const RESERVED: &[&str] = &["and", "or", "not", "true", "false", "none", "None", "True", "False"];

/// Checks that a key is usable as a name.
pub(crate) fn check_name(what: &str, entry: &Entry, diags: &mut Diagnostics) -> bool {
    let name = entry.key.as_str();
    let ok = is_ident(name) && !RESERVED.contains(&name);
    if !ok {
        diags.push(
            Diagnostic::error(codes::BAD_NAME, entry.key_span, format!("`{name}` cannot be the name of {what}")).help(
                "a name is letters, digits and underscores, does not begin with a digit and is no word of the syntax",
            ),
        );
    }
    ok
}
