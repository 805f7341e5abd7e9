//! Precedence-climbing parser of expressions.

use super::lexer::{Token, TokenKind, WIDE};
use super::place::{Error, Place};
use super::{BinaryOp, Expr, ExprKind, Ident, UnaryOp};

/// Deepest nesting of brackets, calls and prefix operators.
pub(super) const MAX_NESTING: usize = 100;
/// Greatest height of a tree; bounds the recursion of every later pass, also for long chains such as `a + b + c + ...`.
pub(super) const MAX_HEIGHT: usize = 256;

/// Tightness of `not`.
pub(super) const NOT: u8 = 30;
/// Tightness of comparisons.
pub(super) const COMPARE: u8 = 40;
/// Tightness of prefix `-`.
pub(super) const PREFIX: u8 = 70;
/// Tightness of `**`.
const POWER: u8 = 80;
/// Tightness of names, literals, calls, indices and attributes.
pub(super) const POSTFIX: u8 = 90;

/// How tightly an infix operator binds: itself, and the least tightness of its right operand.
pub(super) fn binding(op: BinaryOp) -> (u8, u8) {
    match op {
        BinaryOp::Or => (10, 11),
        BinaryOp::And => (20, 21),
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
            (COMPARE, COMPARE + 1)
        }
        BinaryOp::Add | BinaryOp::Sub => (50, 51),
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Mod => (60, 61),
        BinaryOp::Pow => (POWER, PREFIX),
    }
}

fn infix(kind: &TokenKind) -> Option<BinaryOp> {
    Some(match kind {
        TokenKind::Word(w) if w == "or" => BinaryOp::Or,
        TokenKind::Word(w) if w == "and" => BinaryOp::And,
        TokenKind::Sign(sign) => match *sign {
            "==" => BinaryOp::Eq,
            "!=" => BinaryOp::Ne,
            "<" => BinaryOp::Lt,
            "<=" => BinaryOp::Le,
            ">" => BinaryOp::Gt,
            ">=" => BinaryOp::Ge,
            "+" => BinaryOp::Add,
            "-" => BinaryOp::Sub,
            "*" => BinaryOp::Mul,
            "/" => BinaryOp::Div,
            "//" => BinaryOp::FloorDiv,
            "%" => BinaryOp::Mod,
            "**" => BinaryOp::Pow,
            _ => return None,
        },
        _ => return None,
    })
}

/// An expression and the height of its tree.
pub(super) struct Built {
    pub expr: Expr,
    pub height: usize,
}

pub(super) struct Parser<'a> {
    pub place: Place<'a>,
    tokens: Vec<Token>,
    pos: usize,
    nesting: usize,
}

impl<'a> Parser<'a> {
    pub fn new(place: Place<'a>) -> Result<Self, Error> {
        let tokens = place.lex()?;
        Ok(Self { place, tokens, pos: 0, nesting: 0 })
    }

    /// The current token; the last one is [`TokenKind::End`] and is never passed.
    pub fn peek(&self) -> &Token {
        &self.tokens[self.pos.min(self.tokens.len() - 1)]
    }

    pub fn peek_second(&self) -> &Token {
        &self.tokens[(self.pos + 1).min(self.tokens.len() - 1)]
    }

    pub fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.pos += 1;
        token
    }

    pub fn at_sign(&self, sign: &str) -> bool {
        matches!(self.peek().kind, TokenKind::Sign(s) if s == sign)
    }

    pub fn at_end(&self) -> bool {
        self.peek().kind == TokenKind::End
    }

    /// Takes `sign` if it is next.
    pub fn eat(&mut self, sign: &str) -> Option<Token> {
        self.at_sign(sign).then(|| self.advance())
    }

    pub fn built(&self, from: usize, to: usize, height: usize, kind: ExprKind) -> Result<Built, Error> {
        if height > MAX_HEIGHT {
            let message = format!("the expression chains more than {MAX_HEIGHT} operators");
            return Err(self.place.error(from..to, message).map(|d| d.help("name a part of it as a node of its own")));
        }
        Ok(Built { expr: Expr { span: self.place.span(from..to), kind }, height })
    }

    /// The whole text as one expression.
    pub fn whole(mut self) -> Result<Expr, Error> {
        let built = self.expr(0)?;
        if !self.at_end() {
            return Err(self.trailing());
        }
        Ok(built.expr)
    }

    /// An expression of operators that bind at least as tightly as `least`.
    pub fn expr(&mut self, least: u8) -> Result<Built, Error> {
        if self.nesting >= MAX_NESTING {
            let message = format!("the expression is nested more than {MAX_NESTING} deep");
            return Err(self.place.error(self.peek().at.clone(), message));
        }
        self.nesting += 1;
        let built = self.expr_inner(least);
        self.nesting -= 1;
        built
    }

    fn expr_inner(&mut self, least: u8) -> Result<Built, Error> {
        let from = self.peek().at.start;
        let mut left = self.prefix(least)?;
        let mut compared = false;
        while let Some(op) = infix(&self.peek().kind) {
            let (tightness, right) = binding(op);
            if tightness < least {
                break;
            }
            if tightness == COMPARE && compared {
                let d = self.place.error(self.peek().at.clone(), "comparisons cannot be chained");
                return Err(d.map(|d| d.help("write `a < b and b < c`")));
            }
            compared = tightness == COMPARE;
            self.advance();
            let operand = self.expr(right)?;
            let height = 1 + left.height.max(operand.height);
            let to = self.last_end();
            let kind = ExprKind::Binary(op, Box::new(left.expr), Box::new(operand.expr));
            left = self.built(from, to, height, kind)?;
        }
        Ok(left)
    }

    /// Where the last taken token ends.
    pub fn last_end(&self) -> usize {
        self.tokens[self.pos.saturating_sub(1).min(self.tokens.len() - 1)].at.end
    }

    fn prefix(&mut self, least: u8) -> Result<Built, Error> {
        let token = self.peek().clone();
        let from = token.at.start;
        match &token.kind {
            TokenKind::Sign("-") => {
                self.advance();
                if let Some(literal) = self.negative_literal(from)? {
                    return Ok(literal);
                }
                let operand = self.expr(PREFIX)?;
                let kind = ExprKind::Unary(UnaryOp::Neg, Box::new(operand.expr));
                self.built(from, self.last_end(), operand.height + 1, kind)
            }
            TokenKind::Sign("+") => {
                Err(self.place.error(token.at, "there is no prefix `+`").map(|d| d.help("leave it out")))
            }
            TokenKind::Word(word) if word == "not" => {
                if least > NOT {
                    let d = self.place.error(token.at, "`not` binds more loosely than the operator before it");
                    return Err(d.map(|d| d.help("put the negation in parentheses: `(not x)`")));
                }
                self.advance();
                let operand = self.expr(NOT)?;
                let kind = ExprKind::Unary(UnaryOp::Not, Box::new(operand.expr));
                self.built(from, self.last_end(), operand.height + 1, kind)
            }
            _ => self.postfix(),
        }
    }

    /// `-` and a number right behind it, unless an operator binds the number more tightly.
    fn negative_literal(&mut self, from: usize) -> Result<Option<Built>, Error> {
        if matches!(self.peek_second().kind, TokenKind::Sign("**" | "[" | "(" | ".")) {
            return Ok(None);
        }
        let kind = match self.peek().kind {
            // 2^63 wraps to the one integer that has no positive counterpart.
            TokenKind::Int(i) => ExprKind::Int((i as i64).wrapping_neg()),
            TokenKind::Float(x) => ExprKind::Float(-x),
            _ => return Ok(None),
        };
        let to = self.advance().at.end;
        self.built(from, to, 1, kind).map(Some)
    }

    /// A literal, a name or something in brackets.
    pub fn primary(&mut self) -> Result<Built, Error> {
        let token = self.peek().clone();
        let (from, to) = (token.at.start, token.at.end);
        let kind = match token.kind {
            TokenKind::Int(i) => match i64::try_from(i) {
                Ok(i) => ExprKind::Int(i),
                Err(_) => return Err(self.place.error(token.at, WIDE)),
            },
            TokenKind::Float(x) => ExprKind::Float(x),
            TokenKind::Str(s) => ExprKind::Str(s),
            TokenKind::Word(word) => match word.as_str() {
                "true" | "True" => ExprKind::Bool(true),
                "false" | "False" => ExprKind::Bool(false),
                "none" | "None" | "null" => ExprKind::None,
                "and" | "or" => return Err(self.operand_expected()),
                "not" => {
                    let d = self.place.error(from..to, "`not` cannot stand here");
                    return Err(d.map(|d| d.help("put the negation in parentheses: `(not x)`")));
                }
                _ => ExprKind::Name(word),
            },
            TokenKind::Sign("(") => return self.parenthesised(),
            TokenKind::Sign("[") => {
                let open = self.advance();
                let (items, height) = self.list(&open, "]", "list")?;
                return self.built(from, self.last_end(), height + 1, ExprKind::List(items));
            }
            _ => return Err(self.operand_expected()),
        };
        self.advance();
        self.built(from, to, 1, kind)
    }

    fn parenthesised(&mut self) -> Result<Built, Error> {
        let open = self.advance();
        let mut built = self.expr(0)?;
        if self.at_sign(",") {
            let d = self.place.error(self.peek().at.clone(), "parentheses hold one expression");
            return Err(d.map(|d| d.help("a list is written `[a, b]`")));
        }
        let close = self.close(&open, ")", None)?;
        built.expr.span = self.place.span(open.at.start..close.at.end);
        Ok(built)
    }

    /// Expressions separated by commas up to `closer`, and the height of the highest.
    pub fn list(&mut self, open: &Token, closer: &'static str, what: &str) -> Result<(Vec<Expr>, usize), Error> {
        let (mut items, mut height) = (Vec::new(), 0);
        while !self.at_sign(closer) {
            let item = self.expr(0)?;
            height = height.max(item.height);
            items.push(item.expr);
            if self.eat(",").is_none() {
                break;
            }
        }
        self.close(open, closer, Some(what))?;
        Ok((items, height))
    }

    /// A name behind a dot or before `=`.
    pub fn ident(&mut self) -> Result<Ident, Error> {
        let token = self.peek().clone();
        let TokenKind::Word(name) = token.kind else {
            let message = format!("expected a name behind the dot, found {}", describe(&token.kind));
            return Err(self.place.error(token.at, message));
        };
        self.advance();
        Ok(Ident { name, span: self.place.span(token.at) })
    }
}

/// A token in the words of a message.
pub(super) fn describe(kind: &TokenKind) -> String {
    match kind {
        TokenKind::Int(i) => format!("the number `{i}`"),
        TokenKind::Float(x) => format!("the number `{x:?}`"),
        TokenKind::Str(_) => "a string".to_owned(),
        TokenKind::Word(word) if matches!(word.as_str(), "and" | "or" | "not") => format!("`{word}`"),
        TokenKind::Word(word) => format!("the name `{word}`"),
        TokenKind::Sign(sign) => format!("`{sign}`"),
        TokenKind::End => "the end of the text".to_owned(),
    }
}
