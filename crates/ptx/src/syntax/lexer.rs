//! Tokens of PTX text.
//!
//! Identifiers include dots, `%`, `$` and `::`, so an opcode with its modifiers is one token. A `.section` directive
//! with its braces is one raw token: debug sections have a grammar of their own.

use crate::error::{Diagnostic, Pos};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tok<'a> {
    Ident(&'a str),
    Int(u64),
    F32(u32),
    F64(u64),
    Str(&'a str),
    /// Name and raw body of a `.section`.
    Section(&'a str, &'a str),
    Punct(u8),
    End,
}

fn ident_byte(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'.' | b'%')
}

pub(super) struct Lexer<'a> {
    src: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(src: &'a str) -> Self {
        Self { src, bytes: src.as_bytes(), at: 0, line: 1, line_start: 0 }
    }

    /// All tokens, ending with one `End`.
    pub(super) fn run(mut self) -> Result<Vec<(Tok<'a>, Pos)>, Diagnostic> {
        let mut out = Vec::with_capacity(self.src.len() / 4);
        loop {
            self.skip_blank()?;
            let pos = self.pos();
            let tok = self.token(pos)?;
            out.push((tok, pos));
            if tok == Tok::End {
                return Ok(out);
            }
        }
    }

    fn pos(&self) -> Pos {
        Pos { line: self.line, column: (self.at - self.line_start) as u32 + 1 }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn bump(&mut self) {
        if self.peek(0) == b'\n' {
            self.line += 1;
            self.line_start = self.at + 1;
        }
        self.at += 1;
    }

    fn skip_blank(&mut self) -> Result<(), Diagnostic> {
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'/') => {
                    while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                (b'/', b'*') => {
                    let open = self.pos();
                    self.at += 2;
                    while !(self.peek(0) == b'*' && self.peek(1) == b'/') {
                        if self.at >= self.bytes.len() {
                            return Err(Diagnostic::syntax(open, "comment is not closed"));
                        }
                        self.bump();
                    }
                    self.at += 2;
                }
                (c, _) if c.is_ascii_whitespace() => self.bump(),
                // NVRTC ends its PTX with a zero byte.
                (0, _) if self.bytes[self.at..].iter().all(|&b| b == 0) => self.at = self.bytes.len(),
                _ => break,
            }
        }
        Ok(())
    }

    fn token(&mut self, pos: Pos) -> Result<Tok<'a>, Diagnostic> {
        if self.at >= self.bytes.len() {
            return Ok(Tok::End);
        }
        let start = self.at;
        let c = self.peek(0);
        if c == b'"' {
            self.at += 1;
            while self.peek(0) != b'"' {
                if self.at >= self.bytes.len() || self.peek(0) == b'\n' {
                    return Err(Diagnostic::syntax(pos, "string is not closed"));
                }
                self.at += if self.peek(0) == b'\\' && self.at + 1 < self.bytes.len() { 2 } else { 1 };
            }
            self.at += 1;
            return Ok(Tok::Str(self.slice(pos, start + 1, self.at - 1)?));
        }
        if c.is_ascii_digit() {
            return self.number(pos);
        }
        if ident_byte(c) {
            loop {
                if ident_byte(self.peek(0)) {
                    self.at += 1;
                } else if self.peek(0) == b':' && self.peek(1) == b':' && ident_byte(self.peek(2)) {
                    self.at += 2;
                } else {
                    break;
                }
            }
            let word = &self.src[start..self.at];
            return if word == ".section" { self.section(pos) } else { Ok(Tok::Ident(word)) };
        }
        if !c.is_ascii_graphic() {
            return Err(Diagnostic::syntax(pos, format!("unexpected byte 0x{c:02x}")));
        }
        self.at += 1;
        Ok(Tok::Punct(c))
    }

    /// A slice whose ends were found by scanning bytes; both may fall inside a character in damaged text.
    fn slice(&self, pos: Pos, from: usize, to: usize) -> Result<&'a str, Diagnostic> {
        self.src.get(from..to).ok_or_else(|| Diagnostic::syntax(pos, "text is not ASCII"))
    }

    fn section(&mut self, pos: Pos) -> Result<Tok<'a>, Diagnostic> {
        self.skip_blank()?;
        let start = self.at;
        while ident_byte(self.peek(0)) {
            self.at += 1;
        }
        let name = &self.src[start..self.at];
        self.skip_blank()?;
        if self.peek(0) != b'{' {
            return Err(Diagnostic::syntax(self.pos(), "expected `{` after the section's name"));
        }
        let body = self.at + 1;
        let mut depth = 0;
        loop {
            if self.at >= self.bytes.len() {
                return Err(Diagnostic::syntax(pos, "section is not closed"));
            }
            match self.peek(0) {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let raw = self.slice(pos, body, self.at)?;
                self.at += 1;
                return Ok(Tok::Section(name, raw));
            }
            self.bump();
        }
    }

    fn number(&mut self, pos: Pos) -> Result<Tok<'a>, Diagnostic> {
        let start = self.at;
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'.' {
            let exponent = matches!(self.peek(0), b'e' | b'E') && self.bytes[start..self.at].contains(&b'.');
            self.at += 1;
            if exponent && matches!(self.peek(0), b'+' | b'-') {
                self.at += 1;
            }
        }
        let word = &self.src[start..self.at];
        let bad = || Diagnostic::syntax(pos, format!("`{word}` is not a number"));
        let hex = |digits: &str, width: usize| {
            if digits.len() == width { u64::from_str_radix(digits, 16).map_err(|_| bad()) } else { Err(bad()) }
        };
        if let Some(d) = word.strip_prefix("0f").or(word.strip_prefix("0F")) {
            return Ok(Tok::F32(hex(d, 8)? as u32));
        }
        if let Some(d) = word.strip_prefix("0d").or(word.strip_prefix("0D")) {
            return Ok(Tok::F64(hex(d, 16)?));
        }
        if word.contains('.') {
            return Ok(Tok::F64(word.parse::<f64>().map_err(|_| bad())?.to_bits()));
        }
        let word = word.strip_suffix('U').unwrap_or(word);
        let (digits, radix) = if let Some(d) = word.strip_prefix("0x").or(word.strip_prefix("0X")) {
            (d, 16)
        } else if let Some(d) = word.strip_prefix("0b").or(word.strip_prefix("0B")) {
            (d, 2)
        } else if word.len() > 1 && word.starts_with('0') {
            (&word[1..], 8)
        } else {
            (word, 10)
        };
        u64::from_str_radix(digits, radix).map(Tok::Int).map_err(|_| bad())
    }
}
