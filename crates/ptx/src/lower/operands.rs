//! Operands of instructions: registers, literals, special registers, predicates and symbol addresses.

use super::Special;
use super::builder::{Builder, Result};
use super::scope::{Sym, symbol_value};
use crate::error::{Diagnostic, Pos};
use crate::exec::inst::{Inst, NONE, tag, untag};
use crate::exec::regs::{Bank, Kind};
use crate::syntax::ast::{Constant, Operand, OperandKind, Type};

impl Builder<'_> {
    /// A fresh register.
    pub(super) fn temp(&mut self, bank: Bank) -> u32 {
        self.prog.banks[bank as usize] += 1;
        tag(bank, self.prog.banks[bank as usize] as u32 - 1)
    }

    pub(super) fn word(&mut self, v: u32) -> u32 {
        if let Some(&r) = self.words.get(&v) {
            return r;
        }
        let r = self.temp(Bank::R);
        self.prog.init_words.push((r, v));
        self.words.insert(v, r);
        r
    }

    pub(super) fn double(&mut self, v: u64) -> u32 {
        if let Some(&r) = self.doubles.get(&v) {
            return r;
        }
        let r = self.temp(Bank::D);
        self.prog.init_doubles.push((r, v));
        self.doubles.insert(v, r);
        r
    }

    /// The register of a special register, zero-extended when a 64-bit operand is wanted.
    pub(super) fn special(&mut self, s: Special, wide: bool) -> u32 {
        if let Some(&r) = self.specials.get(&s) {
            return r;
        }
        let r = self.temp(if wide { Bank::D } else { Bank::R });
        self.prog.specials.push((s, r));
        self.specials.insert(s, r);
        r
    }

    /// Register of a literal read as `kind`.
    pub(super) fn constant(&mut self, c: Constant, kind: Kind, pos: Pos) -> Result<u32> {
        let bad = || Diagnostic::resolve(pos, "literal does not fit the operand's type");
        Ok(match (kind, c) {
            (Kind::B16, Constant::Int(v)) => self.word(v as u32 & 0xffff),
            (Kind::B32 | Kind::F32, Constant::Int(v)) => self.word(v as u32),
            (Kind::B64 | Kind::F64, Constant::Int(v)) => self.double(v as u64),
            (Kind::B32 | Kind::F32, Constant::F32(b)) => self.word(b),
            (Kind::F32, Constant::F64(b)) => self.word((f64::from_bits(b) as f32).to_bits()),
            (Kind::B64 | Kind::F64, Constant::F64(b)) => self.double(b),
            (Kind::F64, Constant::F32(b)) => self.double(f64::from(f32::from_bits(b)).to_bits()),
            _ => return Err(bad()),
        })
    }

    /// A source operand of this kind.
    pub(super) fn src(&mut self, o: &Operand, kind: Kind) -> Result<u32> {
        let pos = o.at.0;
        match &o.kind {
            OperandKind::Const(c) => self.constant(*c, kind, pos),
            OperandKind::Offset(name, off) => {
                let Some(sym) = self.find(name) else { return Err(self.unknown(name, pos)) };
                let base = symbol_value(&sym).ok_or_else(|| {
                    Diagnostic::resolve(pos, format!("`{name}` is a register and takes no offset here"))
                })?;
                self.address_constant(base.wrapping_add(*off as u64), kind)
            }
            OperandKind::Name(n) if n == "WARP_SZ" => self.constant(Constant::Int(32), kind, pos),
            OperandKind::Name(n) => {
                if let Some((s, wide)) = Special::parse(n) {
                    if kind.bank() == Bank::D && !wide {
                        return Err(Diagnostic::resolve(pos, format!("`{n}` has 32 bits, 64 expected")));
                    }
                    let r = self.special(s, wide);
                    if kind.bank() != Bank::D && wide {
                        return Err(Diagnostic::resolve(pos, format!("`{n}` has 64 bits, 32 expected")));
                    }
                    return Ok(r);
                }
                match self.find(n) {
                    Some(Sym::Reg(id, ty)) => self.check_bank(id, ty, kind, n, pos),
                    Some(sym) => match symbol_value(&sym) {
                        Some(v) => self.address_constant(v, kind),
                        None => Err(Diagnostic::resolve(pos, format!("`{n}` has 128 bits and does not fit here"))),
                    },
                    None => Err(self.unknown(n, pos)),
                }
            }
            _ => Err(Diagnostic::resolve(pos, "expected a register or a literal")),
        }
    }

    fn address_constant(&mut self, v: u64, kind: Kind) -> Result<u32> {
        Ok(match kind.bank() {
            Bank::D => self.double(v),
            _ => self.word(v as u32),
        })
    }

    pub(super) fn unknown(&self, name: &str, pos: Pos) -> Diagnostic {
        if name.starts_with('%') && !name.starts_with("%r") && self.find(name).is_none() {
            return Diagnostic::resolve(pos, format!("`{name}` is neither declared nor a supported special register"));
        }
        Diagnostic::resolve(pos, format!("`{name}` is not declared"))
    }

    fn check_bank(&self, id: u32, ty: Type, kind: Kind, name: &str, pos: Pos) -> Result<u32> {
        if untag(id).0 == kind.bank() {
            Ok(id)
        } else {
            let want = if kind.bank() == Bank::D { "a 64-bit register" } else { "a register of at most 32 bits" };
            Err(Diagnostic::resolve(pos, format!("`{name}` is declared .{}, expected {want}", ty.name())))
        }
    }

    /// A destination of this kind; `_` gives a register nobody reads.
    pub(super) fn dst(&mut self, o: &Operand, kind: Kind) -> Result<u32> {
        match &o.kind {
            OperandKind::Name(n) if n == "_" => Ok(self.temp(kind.bank())),
            OperandKind::Name(n) => match self.find(n) {
                Some(Sym::Reg(id, ty)) => self.check_bank(id, ty, kind, n, o.at.0),
                Some(_) => Err(Diagnostic::resolve(o.at.0, format!("`{n}` is not a register"))),
                None => Err(self.unknown(n, o.at.0)),
            },
            _ => Err(Diagnostic::resolve(o.at.0, "expected a destination register")),
        }
    }

    /// A register of whatever bank; `None` for `_`.
    pub(super) fn any_register(&self, o: &Operand) -> Result<Option<(u32, Type)>> {
        match &o.kind {
            OperandKind::Name(n) if n == "_" => Ok(None),
            OperandKind::Name(n) => match self.find(n) {
                Some(Sym::Reg(id, ty)) if untag(id).0 != Bank::P => Ok(Some((id, ty))),
                Some(_) => Err(Diagnostic::resolve(o.at.0, format!("`{n}` is not a data register"))),
                None => Err(self.unknown(n, o.at.0)),
            },
            _ => Err(Diagnostic::resolve(o.at.0, "expected a register")),
        }
    }

    /// Both halves of a 128-bit register, the lower first.
    pub(super) fn quad(&self, o: &Operand) -> Result<(u32, u32)> {
        match &o.kind {
            OperandKind::Name(n) => match self.find(n) {
                Some(Sym::Quad(low, high)) => Ok((low, high)),
                Some(_) => Err(Diagnostic::resolve(o.at.0, format!("`{n}` is not a 128-bit register"))),
                None => Err(self.unknown(n, o.at.0)),
            },
            _ => Err(Diagnostic::resolve(o.at.0, "expected a 128-bit register")),
        }
    }

    pub(super) fn predicate_name(&mut self, name: &str, pos: Pos) -> Result<u32> {
        match self.find(name) {
            Some(Sym::Reg(id, _)) if untag(id).0 == Bank::P => Ok(id),
            Some(_) => Err(Diagnostic::resolve(pos, format!("`{name}` is not a predicate"))),
            None => Err(self.unknown(name, pos)),
        }
    }

    /// A predicate source with its negation; literals become constant predicates.
    pub(super) fn predicate(&mut self, o: &Operand) -> Result<(u32, bool)> {
        match &o.kind {
            OperandKind::Not(inner) => {
                let (id, n) = self.predicate(inner)?;
                Ok((id, !n))
            }
            OperandKind::Name(n) => Ok((self.predicate_name(n, o.at.0)?, false)),
            OperandKind::Const(Constant::Int(v)) => {
                // An unwritten predicate reads as false in all lanes.
                let id = self.temp(Bank::P);
                Ok((id, *v != 0))
            }
            _ => Err(Diagnostic::resolve(o.at.0, "expected a predicate")),
        }
    }

    /// A predicate destination; [`NONE`] for `_`.
    pub(super) fn predicate_dst(&mut self, o: &Operand) -> Result<u32> {
        match &o.kind {
            OperandKind::Name(n) if n == "_" => Ok(NONE),
            OperandKind::Name(n) => self.predicate_name(n, o.at.0),
            _ => Err(Diagnostic::resolve(o.at.0, "expected a predicate register")),
        }
    }

    /// A literal integer operand.
    pub(super) fn literal(&self, o: &Operand) -> Result<i64> {
        match &o.kind {
            OperandKind::Const(Constant::Int(v)) => Ok(*v),
            _ => Err(Diagnostic::resolve(o.at.0, "expected an integer literal")),
        }
    }

    /// Fails unless the instruction has between `low` and `high` operands.
    pub(super) fn arity(&self, ops: &[Operand], low: usize, high: usize) -> Result<()> {
        if (low..=high).contains(&ops.len()) {
            return Ok(());
        }
        let want = if low == high { low.to_string() } else { format!("{low} to {high}") };
        Err(Diagnostic::resolve(self.pos, format!("{} operands given, {want} expected", ops.len())))
    }

    /// Appends operands to the pool and names them in the instruction.
    pub(super) fn extend(&mut self, i: &mut Inst, defs: &[u32], uses: &[u32]) {
        i.ext = self.prog.pool.len() as u32;
        i.defs = defs.len() as u16;
        i.ext_len = (defs.len() + uses.len()) as u16;
        self.prog.pool.extend_from_slice(defs);
        self.prog.pool.extend_from_slice(uses);
    }
}
