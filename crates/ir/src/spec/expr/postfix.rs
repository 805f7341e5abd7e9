//! Attributes, indices and calls: what stands behind a primary expression.

use super::lexer::{Token, TokenKind};
use super::parser::{Built, Parser};
use super::place::Error;
use super::{ExprKind, IndexItem, IndexKind};

impl Parser<'_> {
    /// A primary expression with everything that binds to it from the right.
    pub(super) fn postfix(&mut self) -> Result<Built, Error> {
        let from = self.peek().at.start;
        let mut base = self.primary()?;
        loop {
            let height = base.height + 1;
            base = if self.eat(".").is_some() {
                let name = self.ident()?;
                self.built(from, self.last_end(), height, ExprKind::Attr(Box::new(base.expr), name))?
            } else if let Some(open) = self.eat("[") {
                let (items, inner) = self.index_items(&open)?;
                let kind = ExprKind::Index(Box::new(base.expr), items);
                self.built(from, self.last_end(), height.max(inner + 1), kind)?
            } else if self.at_sign("(") {
                self.call(from, base)?
            } else {
                return Ok(base);
            };
        }
    }

    fn call(&mut self, from: usize, callee: Built) -> Result<Built, Error> {
        let open = self.advance();
        if !matches!(callee.expr.kind, ExprKind::Name(_) | ExprKind::Attr(..)) {
            let d = self.place.error(from..open.at.start, "only a name can be called");
            return Err(d.map(|d| d.related(self.place.span(open.at), "called here").help("a product needs `*`")));
        }
        let (mut args, mut kwargs) = (Vec::new(), Vec::<(super::Ident, super::Expr)>::new());
        let mut height = callee.height;
        while !self.at_sign(")") {
            let named =
                matches!(self.peek().kind, TokenKind::Word(_)) && self.peek_second().kind == TokenKind::Sign("=");
            if named {
                let name = self.ident()?;
                self.advance();
                let value = self.expr(0)?;
                height = height.max(value.height);
                if let Some((first, _)) = kwargs.iter().find(|(other, _)| other.name == name.name) {
                    let mut d = self.place.error(0..0, format!("the argument `{}` is given twice", name.name));
                    d.span = Some(name.span);
                    return Err(d.map(|d| d.related(first.span, "first")));
                }
                kwargs.push((name, value.expr));
            } else {
                let value = self.expr(0)?;
                height = height.max(value.height);
                args.push(value.expr);
            }
            if self.eat(",").is_none() {
                break;
            }
        }
        self.close(&open, ")", Some("call"))?;
        let kind = ExprKind::Call { callee: Box::new(callee.expr), args, kwargs };
        self.built(from, self.last_end(), height + 1, kind)
    }

    /// The items up to `]`, and the height of the highest expression among them.
    fn index_items(&mut self, open: &Token) -> Result<(Vec<IndexItem>, usize), Error> {
        if self.at_sign("]") {
            let at = open.at.start..self.peek().at.end;
            return Err(self
                .place
                .error(at, "an index without items")
                .map(|d| d.help("a whole axis is written `[:]`")));
        }
        let (mut items, mut height) = (Vec::new(), 0);
        while !self.at_sign("]") {
            let (item, inner) = self.index_item()?;
            height = height.max(inner);
            items.push(item);
            if self.eat(",").is_none() {
                break;
            }
        }
        self.close(open, "]", Some("index"))?;
        Ok((items, height))
    }

    fn index_item(&mut self) -> Result<(IndexItem, usize), Error> {
        let from = self.peek().at.start;
        let item = |parser: &Self, kind| IndexItem { span: parser.place.span(from..parser.last_end()), kind };
        if self.eat("...").is_some() {
            return Ok((item(self, IndexKind::Ellipsis), 0));
        }
        let none = matches!(&self.peek().kind, TokenKind::Word(w) if matches!(w.as_str(), "none" | "None" | "null"));
        if none && matches!(self.peek_second().kind, TokenKind::Sign("," | "]")) {
            self.advance();
            return Ok((item(self, IndexKind::NewAxis), 0));
        }
        let start = if self.at_sign(":") { None } else { Some(self.expr(0)?) };
        let height = start.as_ref().map_or(0, |s| s.height);
        if self.eat(":").is_none() {
            // Without a colon there is a start.
            let kind = start.map_or(IndexKind::Slice(None, None), |s| IndexKind::At(s.expr));
            return Ok((item(self, kind), height));
        }
        let open_end = matches!(self.peek().kind, TokenKind::Sign("," | "]" | ":") | TokenKind::End);
        let stop = if open_end { None } else { Some(self.expr(0)?) };
        if self.at_sign(":") {
            let d = self.place.error(self.peek().at.clone(), "a slice has no step");
            return Err(d.map(|d| d.help("a slice is `start:stop`")));
        }
        let height = height.max(stop.as_ref().map_or(0, |s| s.height));
        let kind = IndexKind::Slice(start.map(|s| s.expr), stop.map(|s| s.expr));
        Ok((item(self, kind), height))
    }
}
