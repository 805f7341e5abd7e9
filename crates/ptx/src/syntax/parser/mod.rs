//! Recursive-descent parser: the tokens and what all parts of the grammar use.

mod items;
mod operands;
mod statements;

use super::ast::{Module, Space};
use super::lexer::{Lexer, Tok};
use crate::error::{Diagnostic, Pos};

/// Nesting of scopes and operands beyond which text is refused, so that hostile input cannot exhaust the stack.
const MAX_DEPTH: u32 = 100;

/// Registers one declaration may make; real modules stay below a few thousand.
const MAX_REGISTER_RANGE: u64 = 1 << 20;

type Result<T> = std::result::Result<T, Diagnostic>;

/// Parses a PTX module.
///
/// # Errors
/// The first syntax error, with line and column.
pub fn parse(src: &str) -> Result<Module> {
    let toks = Lexer::new(src).run()?;
    Parser { toks, at: 0, depth: 0 }.module()
}

struct Parser<'a> {
    toks: Vec<(Tok<'a>, Pos)>,
    at: usize,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Tok<'a> {
        self.toks[self.at].0
    }

    fn pos(&self) -> Pos {
        self.toks[self.at].1
    }

    /// The next token; the final `End` is never passed.
    fn next(&mut self) -> Tok<'a> {
        let t = self.peek();
        if t != Tok::End {
            self.at += 1;
        }
        t
    }

    fn is(&self, c: u8) -> bool {
        self.peek() == Tok::Punct(c)
    }

    fn eat(&mut self, c: u8) -> bool {
        let hit = self.is(c);
        if hit {
            self.at += 1;
        }
        hit
    }

    fn word(&mut self, w: &str) -> bool {
        let hit = self.peek() == Tok::Ident(w);
        if hit {
            self.at += 1;
        }
        hit
    }

    fn unexpected<T>(&self, wanted: &str) -> Result<T> {
        let got = match self.peek() {
            Tok::Ident(s) => format!("`{s}`"),
            Tok::Int(v) => format!("`{v}`"),
            Tok::F32(_) | Tok::F64(_) => "a floating-point literal".into(),
            Tok::Str(s) => format!("\"{s}\""),
            Tok::Section(n, _) => format!("section `{n}`"),
            Tok::Punct(c) => format!("`{}`", c as char),
            Tok::End => "the end of the text".into(),
        };
        Err(Diagnostic::syntax(self.pos(), format!("expected {wanted}, found {got}")))
    }

    fn want(&mut self, c: u8) -> Result<()> {
        if self.eat(c) { Ok(()) } else { self.unexpected(&format!("`{}`", c as char)) }
    }

    fn ident(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Tok::Ident(s) => {
                self.at += 1;
                Ok(s)
            }
            _ => self.unexpected(what),
        }
    }

    fn int(&mut self) -> Result<u64> {
        match self.peek() {
            Tok::Int(v) => {
                self.at += 1;
                Ok(v)
            }
            _ => self.unexpected("an integer"),
        }
    }

    fn int32(&mut self) -> Result<u32> {
        let pos = self.pos();
        u32::try_from(self.int()?).map_err(|_| Diagnostic::syntax(pos, "integer does not fit 32 bits"))
    }

    fn string(&mut self) -> Result<String> {
        match self.peek() {
            Tok::Str(s) => {
                self.at += 1;
                Ok(s.into())
            }
            _ => self.unexpected("a string"),
        }
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Diagnostic::syntax(self.pos(), format!("nesting deeper than {MAX_DEPTH}")));
        }
        Ok(())
    }
}

fn space(word: &str) -> Option<Space> {
    [Space::Global, Space::Const, Space::Shared, Space::Local, Space::Param, Space::Reg]
        .into_iter()
        .find(|s| s.text() == word)
}
