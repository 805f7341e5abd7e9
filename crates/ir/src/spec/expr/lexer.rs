//! Text to tokens.

use std::ops::Range;

/// A token with its bytes in the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub at: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// At most 2^63, which only a minus sign makes representable.
    Int(u64),
    Float(f64),
    Str(String),
    /// A name or a keyword.
    Word(String),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// Why a text has no tokens.
#[derive(Debug, PartialEq)]
pub(super) struct LexError {
    pub at: Range<usize>,
    pub message: String,
    pub help: Option<String>,
}

/// Longest first, so that `**` is not two `*`.
const SIGNS: &[&str] = &[
    "...", "**", "//", "==", "!=", "<=", ">=", "(", ")", "[", "]", ",", ":", ".", "=", "+", "-", "*", "/", "%", "<",
    ">",
];

/// What people write instead, and what to write here.
const FOREIGN: &[(&str, &str)] = &[
    ("===", "compare with `==`"),
    ("<>", "write `!=`"),
    ("->", "an expression has no `->`; einsum takes it inside its quoted pattern"),
    ("=>", "write `>=` for \"at least\""),
    ("&&", "write `and`"),
    ("||", "write `or`"),
    ("!", "write `not`, or `!=` for \"differs\""),
    ("^", "a power is written `**`"),
    ("&", "write `and`"),
    ("|", "write `or`"),
    ("~", "write `not`"),
    ("@", "a matrix product is written `linear(...)` or `einsum(...)`"),
    (";", "one value holds one expression"),
    ("?", "a choice is written `where(condition, a, b)`"),
    ("..", "a range inside an index is written `start:stop`"),
    ("{", "braces stand only in weight patterns, not in expressions"),
    ("}", "braces stand only in weight patterns, not in expressions"),
    ("#", "a comment needs a space before its `#`"),
    ("−", "write an ASCII minus `-`"),
    ("–", "write an ASCII minus `-`"),
    ("×", "write `*`"),
    ("·", "write `*`"),
    ("÷", "write `/`"),
    ("≤", "write `<=`"),
    ("≥", "write `>=`"),
    ("≠", "write `!=`"),
    ("“", "write plain quotes `\"` or `'`"),
    ("”", "write plain quotes `\"` or `'`"),
    ("‘", "write plain quotes `\"` or `'`"),
    ("’", "write plain quotes `\"` or `'`"),
    ("…", "write three dots `...`"),
    ("\u{a0}", "replace this no-break space with a plain one"),
];

/// Message for integers out of range.
pub(super) const WIDE: &str = "the integer does not fit 64 bits";

/// The tokens of `text`, the last one [`TokenKind::End`].
pub(super) fn lex(text: &str) -> Result<Vec<Token>, LexError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        let rest = &text[at..];
        let Some(first) = rest.chars().next() else {
            // Behind the last character rather than behind trailing blanks: that is where something is missing.
            let end = text.trim_end().len();
            tokens.push(Token { kind: TokenKind::End, at: end..end });
            return Ok(tokens);
        };
        // The dot of `x.1` follows a value, that of `.5` does not.
        let attribute = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ')' | ']'));
        let (kind, len) = if first.is_ascii_digit() || (!attribute && starts_fraction(rest)) {
            number(rest).map_err(|e| e.moved(at))?
        } else if first == '"' || first == '\'' {
            string(rest, first).map_err(|e| e.moved(at))?
        } else if first == '_' || first.is_ascii_alphabetic() {
            let len = word_len(rest);
            (TokenKind::Word(rest[..len].to_owned()), len)
        } else {
            sign(rest).map_err(|e| e.moved(at))?
        };
        tokens.push(Token { kind, at: at..at + len });
        at += len;
    }
}

impl LexError {
    fn new(at: Range<usize>, message: impl Into<String>, help: Option<&str>) -> Self {
        Self { at, message: message.into(), help: help.map(str::to_owned) }
    }

    fn moved(mut self, by: usize) -> Self {
        self.at = self.at.start + by..self.at.end + by;
        self
    }
}

fn word_len(text: &str) -> usize {
    text.find(|c: char| !(c == '_' || c.is_ascii_alphanumeric())).unwrap_or(text.len())
}

/// `.5`, `.inf`, `.nan`
fn starts_fraction(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('.') else { return false };
    rest.starts_with(|c: char| c.is_ascii_digit()) || matches!(&rest[..word_len(rest)], "inf" | "nan")
}

fn number(text: &str) -> Result<(TokenKind, usize), LexError> {
    match text.get(..4) {
        Some(".inf") => return Ok((TokenKind::Float(f64::INFINITY), 4)),
        Some(".nan") => return Ok((TokenKind::Float(f64::NAN), 4)),
        _ => {}
    }
    let digits = |from: usize| {
        from + text[from..].find(|c: char| !(c == '_' || c.is_ascii_digit())).unwrap_or(text.len() - from)
    };
    let mut end = digits(0);
    let mut float = false;
    if text[end..].starts_with('.') && !text[end..].starts_with("..") {
        float = true;
        end = digits(end + 1);
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['-', '+']));
        let exponent = end + 1 + sign;
        if text[exponent..].starts_with(|c: char| c.is_ascii_digit()) {
            float = true;
            end = digits(exponent);
        }
    }
    let tail = word_len(&text[end..]);
    let whole = &text[..end + tail];
    if tail > 0 {
        return radix(whole);
    }
    let plain = whole.replace('_', "");
    if whole.ends_with('_') || whole.contains("__") {
        return Err(LexError::new(
            0..end,
            format!("`{whole}` is not a number"),
            Some("`_` stands only between digits"),
        ));
    }
    if float {
        return match plain.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok((TokenKind::Float(value), end)),
            _ => Err(LexError::new(0..end, format!("`{whole}` does not fit a 64-bit floating-point number"), None)),
        };
    }
    int(&plain, 10, whole)
}

fn int(digits: &str, base: u32, whole: &str) -> Result<(TokenKind, usize), LexError> {
    match u64::from_str_radix(digits, base) {
        Ok(value) if value <= 1 << 63 => Ok((TokenKind::Int(value), whole.len())),
        _ => Err(LexError::new(0..whole.len(), WIDE, Some("write a real number with `.0` if that is meant"))),
    }
}

/// `0x1f`, `0o17`, `0b11`, or digits with letters behind them.
fn radix(whole: &str) -> Result<(TokenKind, usize), LexError> {
    let base = match whole.get(..2) {
        Some("0x") => 16,
        Some("0o") => 8,
        Some("0b") => 2,
        _ => 0,
    };
    let digits = whole.get(2..).unwrap_or("").replace('_', "");
    if base == 0 || digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        let message = format!("`{whole}` is neither a number nor a name");
        return Err(LexError::new(0..whole.len(), message, Some("names start with a letter; a product needs `*`")));
    }
    int(&digits, base, whole)
}

fn string(text: &str, quote: char) -> Result<(TokenKind, usize), LexError> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        if c == quote {
            return Ok((TokenKind::Str(value), i + 1));
        }
        if c != '\\' {
            value.push(c);
            continue;
        }
        let Some((_, escape)) = chars.next() else { break };
        value.push(match escape {
            'n' => '\n',
            't' => '\t',
            '\\' | '\'' | '"' => escape,
            _ => {
                let message = format!("`\\{}` is not an escape", escape.escape_debug());
                let help = "known are `\\\\`, `\\'`, `\\\"`, `\\n` and `\\t`";
                return Err(LexError::new(i..i + 1 + escape.len_utf8(), message, Some(help)));
            }
        });
    }
    let help = format!("close the string with `{quote}`");
    Err(LexError::new(0..1, "this string is never closed", Some(&help)))
}

fn sign(text: &str) -> Result<(TokenKind, usize), LexError> {
    let known = SIGNS.iter().find(|s| text.starts_with(**s));
    let foreign = FOREIGN.iter().find(|(s, _)| text.starts_with(s));
    // `!` is foreign but `!=` is not, `.` is a sign but `..` is not: the longer one decides.
    match (known, foreign) {
        (Some(sign), foreign) if foreign.is_none_or(|(s, _)| s.len() <= sign.len()) => {
            Ok((TokenKind::Sign(sign), sign.len()))
        }
        (_, Some((sign, help))) => {
            let message = if *sign == "\u{a0}" {
                "a no-break space cannot stand in an expression".to_owned()
            } else {
                format!("`{sign}` is not part of the expression language")
            };
            Err(LexError::new(0..sign.len(), message, Some(help)))
        }
        _ => {
            let c = text.chars().next().unwrap_or(' ');
            let message = format!("the character `{}` is not part of the expression language", c.escape_debug());
            let help = c.is_alphabetic().then_some("names use the letters a-z, A-Z, digits and `_`");
            Err(LexError::new(0..c.len_utf8(), message, help))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        let mut kinds: Vec<_> = lex(text).unwrap().into_iter().map(|t| t.kind).collect();
        assert_eq!(kinds.pop(), Some(TokenKind::End));
        kinds
    }

    #[test]
    fn numbers() {
        use TokenKind::{Float, Int, Sign};
        assert_eq!(kinds("16 1_000 0x1F 0b11 0o17 007"), [16, 1000, 31, 3, 15, 7].map(Int));
        assert_eq!(kinds("1e-6 1. .5 2.5e+3 1E2 .inf"), [1e-6, 1.0, 0.5, 2500.0, 100.0, f64::INFINITY].map(Float));
        assert_eq!(kinds("9223372036854775807"), [Int(i64::MAX as u64)]);
        assert_eq!(kinds("1/2"), [Int(1), Sign("/"), Int(2)]);
        assert_eq!(kinds("[..., 1:]").len(), 6);
        for bad in ["9223372036854775809", "1e999", "1_", "1__0", "12ab", "0x", "0b2", "1..7", "1.foo", "3e"] {
            assert!(lex(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn strings() {
        assert_eq!(kinds(r#"'it"s' "a\"\\\n""#), [TokenKind::Str("it\"s".into()), TokenKind::Str("a\"\\\n".into())]);
        for bad in ["'abc", "\"a\\", r#""\q""#] {
            assert!(lex(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn foreign_signs_have_help() {
        for (sign, _) in FOREIGN {
            let text = format!("a {sign} b");
            let error = lex(&text).unwrap_err();
            assert_eq!(&text[error.at.clone()], *sign);
            assert!(error.help.is_some());
        }
        assert_eq!(lex("ä").unwrap_err().at, 0..2);
    }
}
