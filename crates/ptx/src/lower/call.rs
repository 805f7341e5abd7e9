//! Calls: functions are inlined, the device library's print and assert are built in.

use super::builder::{Builder, Result};
use super::opcode::Mods;
use super::scope::Sym;
use crate::error::Diagnostic;
use crate::exec::inst::{Inst, NONE, Op, Space};
use crate::exec::regs::Bank;
use crate::syntax::ast::{Operand, OperandKind};

/// Nesting of calls beyond which inlining is refused.
const MAX_CALL_DEPTH: usize = 32;

impl Builder<'_> {
    pub(super) fn call(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        mods.take("uni");
        mods.finish()?;
        let (results, rest): (&[Operand], &[Operand]) = match ops {
            [Operand { kind: OperandKind::List(r), .. }, rest @ ..] => (r, rest),
            rest => (&[], rest),
        };
        let (name, args): (&Operand, &[Operand]) = match rest {
            [f, Operand { kind: OperandKind::List(a), .. }, ..] => (f, a),
            [f] => (f, &[]),
            _ => return Err(Diagnostic::resolve(self.pos, "malformed call")),
        };
        let OperandKind::Name(name) = &name.kind else {
            return Err(Diagnostic::resolve(self.pos, "malformed call"));
        };
        if matches!(self.find(name), Some(Sym::Reg(..))) {
            return Err(Diagnostic::unsupported(self.pos, "indirect calls are not supported"));
        }
        match name.as_str() {
            "vprintf" => self.builtin(Op::Printf, args, results),
            "__assertfail" => self.builtin(Op::AssertFail, args, results),
            _ => self.inline(name, args, results),
        }
    }

    fn slot(&mut self, o: &Operand) -> Result<Sym> {
        match &o.kind {
            OperandKind::Name(n) => match self.find(n) {
                Some(s @ Sym::Local(_)) => Ok(s),
                Some(_) => {
                    Err(Diagnostic::unsupported(o.at.0, format!("call argument `{n}` is not in `.param` space")))
                }
                None => Err(self.unknown(n, o.at.0)),
            },
            _ => Err(Diagnostic::unsupported(o.at.0, "call arguments must be `.param` variables")),
        }
    }

    /// A built-in takes its arguments as 64- or 32-bit values from the caller's slots.
    fn builtin(&mut self, op: Op, args: &[Operand], results: &[Operand]) -> Result<()> {
        self.arity(args, 2, 5)?;
        let mut i = Inst::new(op);
        let mut regs = Vec::new();
        for (k, a) in args.iter().enumerate() {
            let Sym::Local(offset) = self.slot(a)? else { continue };
            // Of an assertion: message, file, line (32 bits), function, character size.
            let wide = !(op == Op::AssertFail && k == 2);
            let mut l = Inst::new(Op::Ld);
            l.space = Space::Local;
            l.size = if wide { 8 } else { 4 };
            l.wide.ext = wide;
            (l.a, l.wide.a, l.imm) = (self.double(0), true, offset as i64);
            let r = self.temp(if wide { Bank::D } else { Bank::R });
            self.extend(&mut l, &[r], &[]);
            self.emit(l);
            regs.push(r);
        }
        (i.a, i.b) = (regs[0], regs[1]);
        i.c = regs.get(2).copied().unwrap_or(NONE);
        self.emit(i);
        if let Some(r) = results.first() {
            let Sym::Local(offset) = self.slot(r)? else { return Ok(()) };
            let mut s = Inst::new(Op::St);
            s.space = Space::Local;
            (s.a, s.wide.a, s.imm) = (self.double(0), true, offset as i64);
            let zero = self.word(0);
            self.extend(&mut s, &[], &[zero]);
            self.emit(s);
        }
        Ok(())
    }

    fn inline(&mut self, name: &str, args: &[Operand], results: &[Operand]) -> Result<()> {
        let module = self.module;
        let Some(f) = module.functions().find(|f| !f.entry && f.name == name) else {
            return Err(Diagnostic::unsupported(self.pos, format!("function `{name}` has no body in this module")));
        };
        if self.inlining.iter().any(|n| n == name) {
            return Err(Diagnostic::unsupported(self.pos, format!("recursion through `{name}` is not supported")));
        }
        if self.inlining.len() >= MAX_CALL_DEPTH {
            return Err(Diagnostic::unsupported(self.pos, format!("calls nest deeper than {MAX_CALL_DEPTH}")));
        }
        self.arity(args, f.params.len(), f.params.len())?;
        self.arity(results, f.results.len(), f.results.len())?;
        let mut formal = Vec::new();
        for (v, o) in f.params.iter().zip(args).chain(f.results.iter().zip(results)) {
            let sym = self.slot(o)?;
            formal.push((v.name.clone(), sym));
        }
        let guard = self.guard();
        let end = self.new_label();
        if guard.0 != NONE {
            // Lanes that do not call jump over the body.
            self.set_guard((guard.0, !guard.1));
            self.emit_branch(Inst::new(Op::Bra), end);
            self.set_guard((NONE, 0));
        }
        let outer: Vec<_> = self.scopes.drain(1..).collect();
        let mut scope = super::scope::Scope::default();
        for (n, sym) in formal {
            scope.define(&n, sym);
        }
        self.scopes.push(scope);
        let (pos, ret) = (self.pos, self.ret.replace(end));
        self.inlining.push(name.into());
        if let Some(body) = &f.body {
            self.block(body);
        }
        self.inlining.pop();
        self.ret = ret;
        self.pos = pos;
        self.scopes.truncate(1);
        self.scopes.extend(outer);
        self.place_label(end);
        Ok(())
    }
}
