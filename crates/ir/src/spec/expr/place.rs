//! Where an expression stands in its file, and errors about it.

use std::ops::{Deref, DerefMut, Range};

use super::lexer::{self, Token, TokenKind};
use super::parser::{Parser, describe};
use crate::diag::{Code, Diagnostic, Span};
use crate::spec::yaml::Text;

/// The text of an expression and its place.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub text: &'a Text,
    /// The whole scalar.
    pub scalar: Span,
    pub code: Code,
}

/// The first error of an expression. Boxed because it is much larger than what parsing yields otherwise.
pub(super) struct Error(Box<Diagnostic>);

impl Error {
    pub fn map(self, f: impl FnOnce(Diagnostic) -> Diagnostic) -> Self {
        Self(Box::new(f(*self.0)))
    }

    pub fn into_inner(self) -> Diagnostic {
        *self.0
    }
}

impl Deref for Error {
    type Target = Diagnostic;
    fn deref(&self) -> &Diagnostic {
        &self.0
    }
}

impl DerefMut for Error {
    fn deref_mut(&mut self) -> &mut Diagnostic {
        &mut self.0
    }
}

impl Place<'_> {
    /// The place in the file of a byte range of the text: exact if the text stands byte for byte in the file.
    pub fn span(&self, at: Range<usize>) -> Span {
        match self.text.verbatim_at {
            Some(base) => Span { file: self.scalar.file, start: base + at.start as u32, end: base + at.end as u32 },
            None => self.scalar,
        }
    }

    pub fn error(&self, at: Range<usize>, message: impl Into<String>) -> Error {
        let d = Diagnostic::error(self.code, self.span(at.clone()), message);
        if self.text.verbatim_at.is_some() {
            return Error(Box::new(d));
        }
        // The caret can only show the whole scalar, so the label names the spot.
        let text = &self.text.value;
        let from = text.floor_char_boundary(at.start.saturating_sub(12));
        let to = text.ceil_char_boundary((at.end + 12).min(text.len()));
        Error(Box::new(d.label(format!("near `{}`", text[from..to].replace('\n', " ").trim()))))
    }

    pub fn lex(&self) -> Result<Vec<Token>, Error> {
        lexer::lex(&self.text.value).map_err(|e| {
            let error = self.error(e.at, e.message);
            match e.help {
                Some(help) => error.map(|d| d.help(help)),
                None => error,
            }
        })
    }
}

const COMPARE_HELP: &str = "compare with `==`; `name=value` stands only between the parentheses of a call";
const SLICE_HELP: &str = "`start:stop` stands only inside index brackets `x[...]`";

/// Whether an operand can start with this token.
fn starts_operand(kind: &TokenKind) -> bool {
    match kind {
        TokenKind::Word(word) => !matches!(word.as_str(), "and" | "or"),
        TokenKind::Int(_) | TokenKind::Float(_) | TokenKind::Str(_) => true,
        TokenKind::Sign(sign) => matches!(*sign, "(" | "["),
        TokenKind::End => false,
    }
}

/// Help for words of other languages.
fn word_help(kind: &TokenKind) -> Option<&'static str> {
    let TokenKind::Word(word) = kind else { return None };
    Some(match word.as_str() {
        "if" | "else" => "a choice is written `where(condition, a, b)`",
        "is" => "compare with `==`",
        "in" | "for" => "repetition is written as a `repeat` or `scan` node, not inside an expression",
        _ => return None,
    })
}

impl Parser<'_> {
    /// Takes the closing bracket of `open`. `list` names what the bracket holds if commas separate its parts.
    pub(super) fn close(&mut self, open: &Token, closer: &'static str, list: Option<&str>) -> Result<Token, Error> {
        if let Some(token) = self.eat(closer) {
            return Ok(token);
        }
        let found = self.peek().clone();
        let opener = describe(&open.kind);
        if found.kind == TokenKind::End {
            let d = self.place.error(found.at, format!("{opener} is never closed"));
            let d = d.map(|d| d.related(self.place.span(open.at.clone()), "opened here"));
            return Err(d.map(|d| d.help(format!("add `{closer}`"))));
        }
        let wanted = if list.is_some() { format!("`,` or `{closer}`") } else { format!("`{closer}`") };
        let message = format!("expected {wanted}, found {}", describe(&found.kind));
        let error = self.place.error(found.at, message);
        let help = match (&found.kind, list) {
            (TokenKind::Sign("="), _) => COMPARE_HELP.to_owned(),
            (TokenKind::Sign(":"), _) => SLICE_HELP.to_owned(),
            (kind, _) if word_help(kind).is_some() => word_help(kind).unwrap_or_default().to_owned(),
            (kind, Some(list)) if starts_operand(kind) => {
                format!("put a comma between the parts of the {list}, or an operator")
            }
            _ => {
                let related = self.place.span(open.at.clone());
                return Err(error.map(|d| d.related(related, format!("to close this {opener}"))));
            }
        };
        Err(error.map(|d| d.help(help)))
    }

    pub(super) fn operand_expected(&self) -> Error {
        let found = self.peek();
        if self.place.text.value.trim().is_empty() {
            return self.place.error(0..0, "an empty text where an expression is expected");
        }
        let message = format!("expected a value, found {}", describe(&found.kind));
        let error = self.place.error(found.at.clone(), message);
        match &found.kind {
            TokenKind::Sign("=") => error.map(|d| d.help(COMPARE_HELP)),
            TokenKind::Sign(":" | "...") => error.map(|d| d.help(SLICE_HELP)),
            TokenKind::Sign(",") => error.map(|d| d.help("remove the comma, or write what is missing before it")),
            _ => {
                error.map(|d| d.help("a value is a name, a number, a string, a call, or an expression in parentheses"))
            }
        }
    }

    /// The error about what stands behind a complete expression.
    pub(super) fn trailing(&self) -> Error {
        let found = self.peek();
        let at = found.at.clone();
        match &found.kind {
            TokenKind::Sign(sign @ (")" | "]")) => {
                self.place.error(at, format!("`{sign}` closes nothing")).map(|d| d.help("remove it, or open it before"))
            }
            TokenKind::Sign("=") => self.place.error(at, "`=` is not an operator").map(|d| d.help(COMPARE_HELP)),
            TokenKind::Sign(":" | "...") => {
                let message = format!("{} cannot stand here", describe(&found.kind));
                self.place.error(at, message).map(|d| d.help(SLICE_HELP))
            }
            TokenKind::Sign(",") => {
                let d = self.place.error(at, "a second value behind a complete expression");
                d.map(|d| d.help("a list is written `[a, b]`"))
            }
            kind => {
                let message = format!("expected an operator, found {}", describe(kind));
                let help =
                    word_help(kind).unwrap_or("a value holds one expression: write an operator, or remove the rest");
                self.place.error(at, message).map(|d| d.help(help))
            }
        }
    }
}
