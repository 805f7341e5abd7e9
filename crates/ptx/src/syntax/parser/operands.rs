//! Instructions and their operands.

use super::{Parser, Result};
use crate::syntax::ast::*;
use crate::syntax::lexer::Tok;

impl Parser<'_> {
    pub(super) fn instruction(&mut self, guard: Option<(String, bool)>, opcode: &str) -> Result<StmtKind> {
        let mut operands = Vec::new();
        while !self.eat(b';') {
            operands.push(self.operand()?);
            if !self.eat(b',') && !self.is(b';') {
                return self.unexpected("`,` or `;`");
            }
        }
        Ok(StmtKind::Instruction(Instruction { guard, opcode: opcode.into(), operands }))
    }

    pub(super) fn operands_until(&mut self, close: u8) -> Result<Vec<Operand>> {
        let mut v = Vec::new();
        while !self.eat(close) {
            v.push(self.operand()?);
            if !self.eat(b',') && !self.is(close) {
                return self.unexpected(&format!("`,` or `{}`", close as char));
            }
        }
        Ok(v)
    }

    pub(super) fn operand(&mut self) -> Result<Operand> {
        self.enter()?;
        let at = At(self.pos());
        let kind = if self.eat(b'!') {
            OperandKind::Not(Box::new(self.operand()?))
        } else if self.eat(b'{') {
            OperandKind::Vector(self.operands_until(b'}')?)
        } else if self.eat(b'(') {
            OperandKind::List(self.operands_until(b')')?)
        } else if self.eat(b'[') {
            self.address()?
        } else if let Tok::Ident(name) = self.peek() {
            self.at += 1;
            let offset_follows = self.is(b'+') || self.is(b'-');
            if offset_follows {
                OperandKind::Offset(name.into(), self.signed_offset()?)
            } else {
                OperandKind::Name(name.into())
            }
        } else if self.is(b'-') && matches!(self.toks.get(self.at + 1), Some((Tok::Ident(_), _))) {
            self.at += 1;
            OperandKind::Negate(Box::new(self.operand()?))
        } else {
            OperandKind::Const(self.constant()?)
        };
        let mut out = Operand { kind, at };
        if self.eat(b'|') {
            let second = self.operand()?;
            out = Operand { kind: OperandKind::Pair(Box::new(out), Box::new(second)), at };
        }
        self.depth -= 1;
        Ok(out)
    }

    pub(super) fn address(&mut self) -> Result<OperandKind> {
        let at = At(self.pos());
        let base = if let Tok::Ident(name) = self.peek() {
            self.at += 1;
            OperandKind::Name(name.into())
        } else {
            OperandKind::Const(self.constant()?)
        };
        let offset = self.signed_offset()?;
        let mut extra = Vec::new();
        while self.eat(b',') {
            extra.push(self.operand()?);
        }
        self.want(b']')?;
        Ok(OperandKind::Address { base: Box::new(Operand { kind: base, at }), offset, extra })
    }
}
