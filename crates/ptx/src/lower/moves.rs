//! Moves: whole registers, and packing and unpacking of their parts.

use super::alu::kind_of;
use super::builder::{Builder, Result};
use super::opcode::Mods;
use super::scope::bank_of;
use crate::error::Diagnostic;
use crate::exec::alu;
use crate::exec::inst::{Inst, Op};
use crate::exec::regs::{Bank, Kind};
use crate::syntax::ast::{Operand, OperandKind, Type};

impl Builder<'_> {
    pub(super) fn mov(&mut self, mods: Mods, ops: &[Operand]) -> Result<()> {
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
