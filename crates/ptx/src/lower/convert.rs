//! Conversions.

use super::builder::{Builder, Result};
use super::opcode::Mods;
use crate::error::Diagnostic;
use crate::exec::alu::{self, Num};
use crate::exec::inst::{Inst, Op, untag};
use crate::exec::regs::{Bank, Kind};
use crate::syntax::ast::{Operand, OperandKind};

impl Builder<'_> {
    pub(super) fn cvt(&mut self, mods: Mods, ops: &[Operand]) -> Result<()> {
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
}
