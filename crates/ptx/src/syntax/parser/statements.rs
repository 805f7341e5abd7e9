//! Statements of bodies: scopes, labels, declarations and source positions.

use super::{MAX_REGISTER_RANGE, Parser, Result, space};
use crate::error::Diagnostic;
use crate::syntax::ast::*;
use crate::syntax::lexer::Tok;

impl Parser<'_> {
    pub(super) fn block(&mut self) -> Result<Vec<Stmt>> {
        self.enter()?;
        let mut out = Vec::new();
        while !self.eat(b'}') {
            if self.eat(b';') {
                continue;
            }
            let at = At(self.pos());
            let kind = if self.eat(b'{') { StmtKind::Block(self.block()?) } else { self.statement()? };
            out.push(Stmt { kind, at });
        }
        self.depth -= 1;
        Ok(out)
    }

    pub(super) fn statement(&mut self) -> Result<StmtKind> {
        let guard = if self.eat(b'@') {
            let negated = self.eat(b'!');
            Some((self.ident("a guard predicate")?.to_string(), negated))
        } else {
            None
        };
        let pos = self.pos();
        let word = self.ident("a statement")?;
        if guard.is_some() {
            return self.instruction(guard, word);
        }
        if self.eat(b':') {
            return self.labelled(word);
        }
        match word {
            ".reg" => self.registers(),
            ".loc" => self.loc(),
            ".pragma" => {
                let s = self.string()?;
                self.want(b';')?;
                Ok(StmtKind::Pragma(s))
            }
            ".local" | ".shared" | ".param" | ".global" | ".const" => {
                let v = self.variable(space(word).unwrap_or(Space::Local), Linkage::Internal)?;
                self.want(b';')?;
                Ok(StmtKind::Variable(v))
            }
            _ if word.starts_with('.') => {
                Err(Diagnostic::syntax(pos, format!("directive `{word}` is not known inside a body")))
            }
            _ => self.instruction(None, word),
        }
    }

    pub(super) fn labelled(&mut self, name: &str) -> Result<StmtKind> {
        if self.word(".branchtargets") {
            let mut targets = vec![self.ident("a label")?.to_string()];
            while self.eat(b',') {
                targets.push(self.ident("a label")?.into());
            }
            self.want(b';')?;
            return Ok(StmtKind::BranchTargets { name: name.into(), targets });
        }
        if self.word(".callprototype") {
            let mut words = Vec::new();
            while !self.eat(b';') {
                words.push(match self.next() {
                    Tok::Ident(s) => s.to_string(),
                    Tok::Int(v) => v.to_string(),
                    Tok::Punct(c) => (c as char).to_string(),
                    _ => return self.unexpected("`;`"),
                });
            }
            return Ok(StmtKind::CallPrototype { name: name.into(), words });
        }
        Ok(StmtKind::Label(name.into()))
    }

    pub(super) fn registers(&mut self) -> Result<StmtKind> {
        let mut vector = None;
        let ty = loop {
            let pos = self.pos();
            match self.ident("a type")? {
                ".v2" => vector = Some(2),
                ".v4" => vector = Some(4),
                w => match w.strip_prefix('.').and_then(Type::from_name) {
                    Some(t) => break t,
                    None => return Err(Diagnostic::syntax(pos, format!("`{w}` is not a register type"))),
                },
            }
        };
        let mut names = Vec::new();
        loop {
            let name = self.ident("a register name")?.to_string();
            let mut count = None;
            if self.eat(b'<') {
                let pos = self.pos();
                let n = self.int()?;
                if n > MAX_REGISTER_RANGE {
                    return Err(Diagnostic::syntax(pos, format!("more than {MAX_REGISTER_RANGE} registers")));
                }
                count = Some(n as u32);
                self.want(b'>')?;
            }
            names.push((name, count));
            if !self.eat(b',') {
                break;
            }
        }
        self.want(b';')?;
        Ok(StmtKind::Registers { ty, vector, names })
    }

    pub(super) fn loc(&mut self) -> Result<StmtKind> {
        let (file, line, column) = (self.int32()?, self.int32()?, self.int32()?);
        let mut inlined = None;
        if self.eat(b',') {
            if !self.word("function_name") {
                return self.unexpected("`function_name`");
            }
            let label = self.ident("a label")?.to_string();
            let offset = if self.eat(b'+') { self.int()? } else { 0 };
            self.want(b',')?;
            if !self.word("inlined_at") {
                return self.unexpected("`inlined_at`");
            }
            inlined = Some(Inlined { label, offset, at: (self.int32()?, self.int32()?, self.int32()?) });
        }
        Ok(StmtKind::Loc(Loc { file, line, column, inlined }))
    }
}
