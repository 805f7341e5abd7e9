//! Tokens of one line.

/// A token with its column, counted in characters from one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub kind: Kind,
    pub col: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// `name`, `a.b`
    Word(String),
    /// `12`, `0.5`, `1e-6`; the text as it stands
    Number(String),
    /// `"text"` without quotes and escapes
    Str(String),
    /// `%12`
    Value(u32),
    /// One of `( ) [ ] { } , : = + - *` or `..`
    Punct(&'static str),
}

impl Kind {
    /// The token as an error message shows it.
    pub fn show(&self) -> String {
        match self {
            Kind::Word(s) | Kind::Number(s) => format!("`{s}`"),
            Kind::Str(s) => format!("\"{}\"", s.escape_default()),
            Kind::Value(n) => format!("`%{n}`"),
            Kind::Punct(p) => format!("`{p}`"),
        }
    }
}

const PUNCT: [&str; 13] = ["..", "(", ")", "[", "]", "{", "}", ",", ":", "=", "+", "-", "*"];

/// True for what the text form takes as a name without quotes: words of letters, digits and `_`, joined by dots.
pub fn is_word(s: &str) -> bool {
    word_len(s) == s.len() && !s.is_empty()
}

fn word_len(s: &str) -> usize {
    let bytes = s.as_bytes();
    let part = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let mut n = 0;
    if !bytes.first().is_some_and(|b| part(*b) && !b.is_ascii_digit()) {
        return 0;
    }
    while n < bytes.len() && (part(bytes[n]) || (bytes[n] == b'.' && bytes.get(n + 1).is_some_and(|b| part(*b)))) {
        n += 1;
    }
    n
}

fn number_len(s: &str) -> usize {
    let bytes = s.as_bytes();
    let digits = |mut n: usize| {
        while bytes.get(n).is_some_and(u8::is_ascii_digit) {
            n += 1;
        }
        n
    };
    let mut n = digits(0);
    if bytes.get(n) == Some(&b'.') && bytes.get(n + 1).is_some_and(u8::is_ascii_digit) {
        n = digits(n + 1);
    }
    if bytes.get(n) == Some(&b'e') {
        let sign = usize::from(matches!(bytes.get(n + 1), Some(b'+' | b'-')));
        if bytes.get(n + 1 + sign).is_some_and(u8::is_ascii_digit) {
            n = digits(n + 1 + sign);
        }
    }
    n
}

/// The tokens of a line without its comment; on failure the column and what is wrong there.
pub(crate) fn tokens(line: &str) -> Result<Vec<Token>, (u32, String)> {
    let (mut out, mut at) = (Vec::new(), 0);
    let col = |at: usize| line[..at].chars().count() as u32 + 1;
    while let Some(c) = line[at..].chars().next() {
        let rest = &line[at..];
        let (kind, len) = match c {
            ' ' | '\t' | '\r' => {
                at += 1;
                continue;
            }
            ';' => break,
            '"' => {
                let (text, len) = string(rest).map_err(|(off, m)| (col(at + off), m))?;
                (Kind::Str(text), len)
            }
            '%' => {
                let len = rest[1..].bytes().take_while(u8::is_ascii_digit).count() + 1;
                let n = rest[1..len].parse().map_err(|_| (col(at), "a value is written % and a number".to_owned()))?;
                (Kind::Value(n), len)
            }
            '0'..='9' => {
                let len = number_len(rest);
                (Kind::Number(rest[..len].to_owned()), len)
            }
            _ if word_len(rest) > 0 => (Kind::Word(rest[..word_len(rest)].to_owned()), word_len(rest)),
            _ => match PUNCT.iter().find(|p| rest.starts_with(**p)) {
                Some(p) => (Kind::Punct(p), p.len()),
                None => return Err((col(at), format!("`{}` has no place in the text form", c.escape_default()))),
            },
        };
        out.push(Token { kind, col: col(at) });
        at += len;
    }
    Ok(out)
}

/// Reads a quoted string; returns the text and the bytes it takes.
fn string(s: &str) -> Result<(String, usize), (usize, String)> {
    let mut out = String::new();
    let mut chars = s.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Ok((out, i + 1)),
            '\\' => {
                let bad = || (i, "an escape is \\\\, \\\", \\n, \\r, \\t or \\u{...}".to_owned());
                out.push(match chars.next().map(|(_, c)| c) {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    Some(c @ ('"' | '\\')) => c,
                    Some('u') => {
                        let hex = s[i + 2..].strip_prefix('{').and_then(|h| h.split_once('}')).ok_or_else(bad)?.0;
                        let c = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32).ok_or_else(bad)?;
                        for _ in 0..hex.chars().count() + 2 {
                            chars.next();
                        }
                        c
                    }
                    _ => return Err(bad()),
                });
            }
            c => out.push(c),
        }
    }
    Err((0, "the string has no end on this line".to_owned()))
}

/// A string in quotes.
pub(crate) fn quote(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Line separators would split the line in editors and in `str::lines` of other tools.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                out.push_str(&format!("\\u{{{:x}}}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(line: &str) -> Vec<Kind> {
        tokens(line).unwrap().into_iter().map(|t| t.kind).collect()
    }

    #[test]
    fn ranges_and_numbers_do_not_mix() {
        assert_eq!(
            kinds("1..8 1.5e-3"),
            [Kind::Number("1".into()), Kind::Punct(".."), Kind::Number("8".into()), Kind::Number("1.5e-3".into())]
        );
    }

    #[test]
    fn strings_survive_quoting() {
        for s in ["", "a.b", "\"\\\n\t\r\u{1}é\u{2028};"] {
            assert_eq!(kinds(&quote(s)), [Kind::Str(s.into())]);
        }
    }

    #[test]
    fn a_comment_ends_the_line_but_not_a_string() {
        assert_eq!(kinds("\";\" ; x"), [Kind::Str(";".into())]);
        assert_eq!(tokens("é \"x"), Err((1, "`\\u{e9}` has no place in the text form".into())));
        assert_eq!(tokens("a \"x"), Err((3, "the string has no end on this line".into())));
    }
}
