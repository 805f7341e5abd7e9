//! Arithmetic, comparison, selection, conversion and moves.

use super::builder::{Builder, Result};
use super::opcode::Mods;
use super::scope::bank_of;
use crate::error::Diagnostic;
use crate::exec::alu::{self, CmpOp, Num};
use crate::exec::inst::{Inst, NONE, Op, flag, untag};
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

    fn cvt(&mut self, mods: Mods, ops: &[Operand]) -> Result<()> {
        if mods.parts.first() == Some(&"pack") {
            let f = alu::lookup(mods.text).ok_or_else(|| mods.unsupported())?;
            return self.lane_function(f, ops);
        }
        let conv = alu::parse_convert(&mods.parts);
        if conv.is_none() && alu::lookup(mods.text).is_none() {
            return Err(mods.unsupported());
        }
        self.arity(ops, 2, 3)?;
        if let Some(f) = alu::lookup(mods.text) {
            let fits = |o: &Operand, kind: Kind, b: &Self| match &o.kind {
                OperandKind::Name(n) if n.starts_with('%') || b.find(n).is_some() => {
                    b.any_register(o).is_ok_and(|r| r.is_none_or(|(id, _)| untag(id).0 == kind.bank()))
                }
                _ => true,
            };
            let all = f.src.len() + 1 == ops.len()
                && fits(&ops[0], f.dst, self)
                && f.src.iter().zip(&ops[1..]).all(|(k, o)| fits(o, *k, self));
            if all {
                return self.lane_function(f, ops);
            }
        }
        let conv = conv.ok_or_else(|| mods.unsupported())?;
        self.arity(ops, if conv.two { 3 } else { 2 }, if conv.two { 3 } else { 2 })?;
        let mut i = Inst::new(Op::Convert);
        let source = |b: &mut Self, o: &Operand| -> Result<(u32, bool)> {
            match b.any_register(o) {
                Ok(Some((id, _))) => Ok((id, untag(id).0 == Bank::D)),
                _ => {
                    let wide = conv.src.wide();
                    let kind = match (conv.src, wide) {
                        (Num::F32, _) => Kind::F32,
                        (Num::F64, _) => Kind::F64,
                        (_, true) => Kind::B64,
                        _ => Kind::B32,
                    };
                    Ok((b.src(o, kind)?, wide))
                }
            }
        };
        (i.a, i.wide.a) = source(self, &ops[1])?;
        if conv.src.wide() && !i.wide.a {
            return Err(Diagnostic::resolve(ops[1].at.0, "the source register is narrower than the type"));
        }
        if conv.two {
            let wide;
            (i.b, wide) = source(self, &ops[2])?;
            if wide != i.wide.a {
                return Err(Diagnostic::resolve(ops[2].at.0, "source registers differ in width"));
            }
        }
        match self.any_register(&ops[0])? {
            Some((id, _)) => (i.d, i.wide.d) = (id, untag(id).0 == Bank::D),
            None => return Ok(()),
        }
        if conv.dst.wide() && !i.wide.d {
            return Err(Diagnostic::resolve(ops[0].at.0, "the destination register is narrower than the type"));
        }
        if let (Num::Int { bits: db, signed }, Num::Int { bits: sb, signed: from_signed }) = (conv.dst, conv.src)
            && !mods.parts.contains(&"sat")
        {
            // Extension of the source, then of the destination when that is narrower, is one cut to the fewer bits.
            i.op = Op::Alu;
            i.alu = alu::extend(i.wide.a, i.wide.d);
            let (bits, sign) = if db <= sb { (db, signed) } else { (sb, from_signed) };
            i.imm = 64 - i64::from(bits);
            i.sel = u8::from(sign);
            // An unsigned destination between source and register width keeps its own width only.
            if from_signed && !signed && db > sb && (db < 32 || (i.wide.d && db < 64)) {
                i.op = Op::Convert;
            }
        }
        i.imm = if i.op == Op::Convert { self.prog.converts.len() as i64 } else { i.imm };
        self.prog.converts.push(conv);
        self.emit(i);
        Ok(())
    }

    fn mov(&mut self, mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 2, 2)?;
        let ty = match mods.parts.as_slice() {
            [t] => Type::from_name(t).ok_or_else(|| mods.unsupported())?,
            _ => return Err(mods.unsupported()),
        };
        if ty == Type::B128 {
            return self.mov_quad(mods, ops);
        }
        match (&ops[0].kind, &ops[1].kind) {
            (OperandKind::Vector(d), _) => self.unpack(mods, d, &ops[1], ty),
            (_, OperandKind::Vector(s)) => self.pack(mods, &ops[0], s, ty),
            (_, OperandKind::Name(n)) if matches!(n.as_str(), "%clock" | "%clock64" | "%clock_hi" | "%globaltimer") => {
                let mut i = Inst::new(Op::Clock);
                i.wide.d = ty.size() == 8;
                i.d = self.dst(&ops[0], kind_of(ty))?;
                self.emit(i);
                Ok(())
            }
            _ => {
                let f = alu::lookup(mods.text).or_else(|| {
                    alu::lookup(match bank_of(ty) {
                        Bank::D => "mov.b64",
                        _ if ty.size() == 4 => "mov.b32",
                        _ if ty.size() == 2 => "mov.b16",
                        _ => "",
                    })
                });
                self.lane_function(f.ok_or_else(|| mods.unsupported())?, ops)
            }
        }
    }

    /// Moves of 128 bits: whole, into two halves, or from them.
    fn mov_quad(&mut self, mods: Mods, ops: &[Operand]) -> Result<()> {
        let sources = match &ops[1].kind {
            OperandKind::Vector(v) if v.len() == 2 => [self.src(&v[0], Kind::B64)?, self.src(&v[1], Kind::B64)?],
            _ => self.quad(&ops[1])?.into(),
        };
        let destinations = match &ops[0].kind {
            OperandKind::Vector(v) if v.len() == 2 => [self.dst(&v[0], Kind::B64)?, self.dst(&v[1], Kind::B64)?],
            _ => self.quad(&ops[0])?.into(),
        };
        // The halves may be exchanged: all are read before one is written.
        let copies = [self.temp(Bank::D), self.temp(Bank::D)];
        for (d, a) in copies.into_iter().zip(sources).chain(destinations.into_iter().zip(copies)) {
            let mut i = Inst::new(Op::Alu);
            i.alu = alu::lookup("mov.b64").ok_or_else(|| mods.unsupported())?.pick();
            (i.d, i.a) = (d, a);
            self.emit(i);
        }
        Ok(())
    }

    fn simple(&mut self, name: &str, d: u32, a: u32, b: u32) -> Result<()> {
        let mut i = Inst::new(Op::Alu);
        i.alu = alu::move_pack(name).ok_or_else(|| Diagnostic::unsupported(self.pos, "move is not supported"))?;
        (i.d, i.a, i.b) = (d, a, b);
        self.emit(i);
        Ok(())
    }

    fn unpack(&mut self, mods: Mods, d: &[Operand], s: &Operand, ty: Type) -> Result<()> {
        let wide = ty.size() == 8;
        let a = self.src(s, if wide { Kind::B64 } else { Kind::B32 })?;
        // The source may be overwritten by the first part: read it once into a temporary.
        let bank = if wide { Bank::D } else { Bank::R };
        let copy = self.temp(bank);
        let mut i = Inst::new(Op::Alu);
        i.alu = alu::lookup(if wide { "mov.b64" } else { "mov.b32" }).ok_or_else(|| mods.unsupported())?.pick();
        (i.d, i.a) = (copy, a);
        self.emit(i);
        let names: &[&str] = match (ty.size(), d.len()) {
            (8, 2) => &["low", "high"],
            (4, 2) => &["low16", "high16"],
            (8, 4) => &["extract16"; 4],
            _ => return Err(mods.unsupported()),
        };
        for (k, (o, name)) in d.iter().zip(names).enumerate() {
            if matches!(&o.kind, OperandKind::Name(n) if n == "_") {
                continue;
            }
            let r = self.dst(o, Kind::B32)?;
            let mut i = Inst::new(Op::Alu);
            i.alu = alu::move_pack(name).ok_or_else(|| mods.unsupported())?;
            (i.d, i.a, i.imm) = (r, copy, 16 * k as i64);
            self.emit(i);
        }
        Ok(())
    }

    fn pack(&mut self, mods: Mods, d: &Operand, s: &[Operand], ty: Type) -> Result<()> {
        match (ty.size(), s.len()) {
            (8, 2) => {
                let (a, b) = (self.src(&s[0], Kind::B32)?, self.src(&s[1], Kind::B32)?);
                let d = self.dst(d, Kind::B64)?;
                self.simple("pack64", d, a, b)
            }
            (4, 2) => {
                let (a, b) = (self.src(&s[0], Kind::B16)?, self.src(&s[1], Kind::B16)?);
                let d = self.dst(d, Kind::B32)?;
                self.simple("pack32", d, a, b)
            }
            (8, 4) => {
                let mut i = Inst::new(Op::Alu);
                i.alu = alu::move_pack("pack16x4").ok_or_else(|| mods.unsupported())?;
                (i.a, i.b) = (self.src(&s[0], Kind::B16)?, self.src(&s[1], Kind::B16)?);
                (i.c, i.e) = (self.src(&s[2], Kind::B16)?, self.src(&s[3], Kind::B16)?);
                i.d = self.dst(d, Kind::B64)?;
                self.emit(i);
                Ok(())
            }
            _ => Err(mods.unsupported()),
        }
    }
}
