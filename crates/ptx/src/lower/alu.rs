//! Arithmetic, comparison and selection.

use super::builder::{Builder, Result};
use super::opcode::Mods;
use crate::error::Diagnostic;
use crate::exec::alu::{self, CmpOp};
use crate::exec::inst::{Inst, NONE, Op, flag};
use crate::exec::regs::{Alu, Bank, Kind, pick};
use crate::syntax::ast::{Operand, OperandKind, Type};

/// The reading of a literal for a type.
pub(super) fn kind_of(ty: Type) -> Kind {
    match ty {
        Type::F32 => Kind::F32,
        Type::F64 => Kind::F64,
        t => match t.size() {
            8 => Kind::B64,
            4 => Kind::B32,
            _ => Kind::B16,
        },
    }
}

impl Builder<'_> {
    pub(super) fn arithmetic(&mut self, mnemonic: &str, mods: Mods, ops: &[Operand]) -> Result<()> {
        let predicate = mods.parts.last() == Some(&"pred");
        match mnemonic {
            "and" | "or" | "xor" | "not" | "mov" if predicate => self.predicate_logic(mnemonic, mods, ops),
            "mov" => self.mov(mods, ops),
            "setp" => self.setp(mods, ops),
            "set" => self.set(mods, ops),
            "selp" => self.selp(mods, ops),
            "testp" => {
                self.arity(ops, 2, 2)?;
                let (pair, kind) = alu::test_property(mods.text).ok_or_else(|| mods.unsupported())?;
                let mut i = Inst::new(Op::Alu);
                i.alu = pick(pair);
                i.d = self.predicate_dst(&ops[0])?;
                i.a = self.src(&ops[1], kind)?;
                self.emit(i);
                Ok(())
            }
            "cvt" => self.cvt(mods, ops),
            "lop3" => {
                self.arity(ops, 5, 5)?;
                let mut i = Inst::new(Op::Alu);
                i.alu = alu::lookup_special(mods.text).ok_or_else(|| mods.unsupported())?;
                i.d = self.dst(&ops[0], Kind::B32)?;
                (i.a, i.b) = (self.src(&ops[1], Kind::B32)?, self.src(&ops[2], Kind::B32)?);
                i.c = self.src(&ops[3], Kind::B32)?;
                i.imm = self.literal(&ops[4])?;
                self.emit(i);
                Ok(())
            }
            "bfi" => {
                self.arity(ops, 5, 5)?;
                let mut i = Inst::new(Op::Alu);
                i.alu = alu::lookup_special(mods.text).ok_or_else(|| mods.unsupported())?;
                let kind = if mods.text.ends_with("64") { Kind::B64 } else { Kind::B32 };
                i.d = self.dst(&ops[0], kind)?;
                (i.a, i.b) = (self.src(&ops[1], kind)?, self.src(&ops[2], kind)?);
                (i.c, i.e) = (self.src(&ops[3], Kind::B32)?, self.src(&ops[4], Kind::B32)?);
                self.emit(i);
                Ok(())
            }
            "addc" | "subc" | "madc" => self.carry(mnemonic, mods, ops),
            "add" | "sub" | "mad" if mods.parts.contains(&"cc") => self.carry(mnemonic, mods, ops),
            _ => {
                let f = alu::lookup(mods.text).ok_or_else(|| mods.unsupported())?;
                self.lane_function(f, ops)
            }
        }
    }

    /// Emits a table function on its operands.
    pub(super) fn lane_function(&mut self, f: &Alu, ops: &[Operand]) -> Result<()> {
        self.arity(ops, f.src.len() + 1, f.src.len() + 1)?;
        let mut i = Inst::new(Op::Alu);
        i.alu = f.pick();
        for (k, kind) in f.src.iter().enumerate() {
            let r = self.src(&ops[k + 1], *kind)?;
            *[&mut i.a, &mut i.b, &mut i.c][k] = r;
        }
        i.d = self.dst(&ops[0], f.dst)?;
        self.emit(i);
        Ok(())
    }

    fn predicate_logic(&mut self, mnemonic: &str, mods: Mods, ops: &[Operand]) -> Result<()> {
        if mods.parts.len() != 1 {
            return Err(mods.unsupported());
        }
        let mut i = Inst::new(Op::Alu);
        i.alu = alu::logic_predicate();
        i.sel = match mnemonic {
            "and" => 0,
            "or" => 1,
            "xor" => 2,
            "not" => 3,
            _ => 4,
        };
        let sources = if i.sel < 3 { 2 } else { 1 };
        self.arity(ops, sources + 1, sources + 1)?;
        let (a, negated) = self.predicate(&ops[1])?;
        i.a = a;
        i.flags |= if negated { flag::NEG } else { 0 };
        if sources == 2 {
            let (b, negated) = self.predicate(&ops[2])?;
            i.b = b;
            i.flags |= if negated { flag::TRANS } else { 0 };
        }
        i.d = self.predicate_dst(&ops[0])?;
        if i.d != NONE {
            self.emit(i);
        }
        Ok(())
    }

    fn setp(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 3, 4)?;
        let (Some(&first), Some(&last)) = (mods.parts.first(), mods.parts.last()) else {
            return Err(mods.unsupported());
        };
        let cmp = CmpOp::parse(first, last).ok_or_else(|| mods.unsupported())?;
        mods.take(first);
        let mut i = Inst::new(Op::Alu);
        i.sel = match mods.take_any(&["and", "or", "xor"]) {
            None => 0,
            Some("and") => 1,
            Some("or") => 2,
            Some(_) => 3,
        };
        if (i.sel != 0) != (ops.len() == 4) {
            return Err(Diagnostic::resolve(self.pos, "a combining operand needs a combining modifier"));
        }
        let flush = mods.take("ftz");
        let ty = mods.take_type()?;
        mods.finish()?;
        let (pair, kind) = alu::set_predicate(cmp, ty.name(), flush).ok_or_else(|| mods.unsupported())?;
        i.alu = pick(pair);
        match &ops[0].kind {
            OperandKind::Pair(p, q) => {
                i.d = self.predicate_dst(p)?;
                i.d2 = self.predicate_dst(q)?;
            }
            _ => i.d = self.predicate_dst(&ops[0])?,
        }
        i.a = self.src(&ops[1], kind)?;
        i.b = self.src(&ops[2], kind)?;
        if let Some(c) = ops.get(3) {
            let (id, negated) = self.predicate(c)?;
            i.c = id;
            i.flags |= if negated { flag::NEG } else { 0 };
        }
        self.emit(i);
        Ok(())
    }

    /// `set`: a comparison into a predicate, then a choice between two constants.
    fn set(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 3, 4)?;
        let unsupported = mods.unsupported();
        let Some(&[dst, src]) = mods.parts.last_chunk::<2>() else { return Err(unsupported) };
        let (Some(dst), Some(src)) = (Type::from_name(dst), Type::from_name(src)) else { return Err(unsupported) };
        let first = mods.parts[0];
        let cmp = CmpOp::parse(first, src.name()).ok_or_else(|| mods.unsupported())?;
        mods.take(first);
        mods.take(dst.name());
        mods.take(src.name());
        let mut i = Inst::new(Op::Alu);
        i.sel = match mods.take_any(&["and", "or", "xor"]) {
            None => 0,
            Some("and") => 1,
            Some("or") => 2,
            Some(_) => 3,
        };
        let flush = mods.take("ftz");
        mods.finish()?;
        let one = match dst {
            Type::F32 => 0x3f80_0000,
            Type::U32 | Type::S32 => !0,
            _ => return Err(unsupported),
        };
        let (pair, kind) = alu::set_predicate(cmp, src.name(), flush).ok_or(unsupported)?;
        i.alu = pick(pair);
        i.d = self.temp(Bank::P);
        i.a = self.src(&ops[1], kind)?;
        i.b = self.src(&ops[2], kind)?;
        if let Some(c) = ops.get(3) {
            let (id, negated) = self.predicate(c)?;
            i.c = id;
            i.flags |= if negated { flag::NEG } else { 0 };
        }
        let p = i.d;
        self.emit(i);
        let mut s = Inst::new(Op::Alu);
        s.alu = pick(alu::select(false));
        s.d = self.dst(&ops[0], Kind::B32)?;
        (s.a, s.b, s.c) = (self.word(one), self.word(0), p);
        self.emit(s);
        Ok(())
    }

    fn selp(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 4, 4)?;
        let ty = mods.take_type()?;
        mods.finish()?;
        if !matches!(ty.size(), 2 | 4 | 8) {
            return Err(mods.unsupported());
        }
        let kind = kind_of(ty);
        let mut i = Inst::new(Op::Alu);
        i.alu = pick(alu::select(kind.bank() == Bank::D));
        i.a = self.src(&ops[1], kind)?;
        i.b = self.src(&ops[2], kind)?;
        let (c, negated) = self.predicate(&ops[3])?;
        i.c = c;
        i.flags |= if negated { flag::NEG } else { 0 };
        i.d = self.dst(&ops[0], kind)?;
        self.emit(i);
        Ok(())
    }

    fn carry(&mut self, mnemonic: &str, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        let mut i = Inst::new(Op::Alu);
        i.imm = match mnemonic {
            "add" | "addc" => 0,
            "sub" | "subc" => 1,
            _ if mods.take("lo") => 2,
            _ if mods.take("hi") => 3,
            _ => return Err(mods.unsupported()),
        };
        let writes = mods.take("cc");
        i.sel = u8::from(mnemonic.ends_with('c')) | u8::from(writes) << 1;
        let ty = mods.take_type()?;
        mods.finish()?;
        // A signed high product differs from the unsigned one.
        if !matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64) || (i.imm == 3 && ty.is_signed()) {
            return Err(mods.unsupported());
        }
        let kind = kind_of(ty);
        let sources = if i.imm < 2 { 2 } else { 3 };
        self.arity(ops, sources + 1, sources + 1)?;
        i.alu = alu::carry(kind.bank() == Bank::D);
        i.a = self.src(&ops[1], kind)?;
        i.b = self.src(&ops[2], kind)?;
        if sources == 3 {
            i.c = self.src(&ops[3], kind)?;
        }
        i.e = match self.carry {
            Some(id) => id,
            None => {
                let id = self.temp(Bank::P);
                self.carry = Some(id);
                id
            }
        };
        i.d = self.dst(&ops[0], kind)?;
        self.emit(i);
        Ok(())
    }
}
