//! Operations between the lanes of a warp.

use super::builder::{Builder, Result};
use super::opcode::Mods;
use crate::exec::inst::{Inst, NONE, Op, flag};
use crate::exec::regs::{Bank, Kind};
use crate::syntax::ast::{Operand, OperandKind};

impl Builder<'_> {
    pub(super) fn warp(&mut self, mnemonic: &str, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        if mnemonic == "activemask" {
            self.arity(ops, 1, 1)?;
            if !mods.take("b32") {
                return Err(mods.unsupported());
            }
            mods.finish()?;
            let mut i = Inst::new(Op::ActiveMask);
            i.d = self.dst(&ops[0], Kind::B32)?;
            self.emit(i);
            return Ok(());
        }
        if !mods.take("sync") {
            return Err(mods.unsupported());
        }
        match mnemonic {
            "shfl" => self.shuffle(mods, ops),
            "vote" => self.vote(mods, ops),
            "match" => {
                self.arity(ops, 3, 3)?;
                let mut i = Inst::new(Op::Match);
                i.sel = match mods.take_any(&["any", "all"]) {
                    Some("any") => 0,
                    Some(_) => 1,
                    None => return Err(mods.unsupported()),
                };
                let kind = match mods.take_any(&["b32", "b64"]) {
                    Some("b32") => Kind::B32,
                    Some(_) => Kind::B64,
                    None => return Err(mods.unsupported()),
                };
                mods.finish()?;
                self.pair_or_word(&mut i, &ops[0])?;
                i.a = self.src(&ops[1], kind)?;
                i.wide.a = kind.bank() == Bank::D;
                i.e = self.src(&ops[2], Kind::B32)?;
                self.emit(i);
                Ok(())
            }
            "redux" => {
                self.arity(ops, 3, 3)?;
                let mut i = Inst::new(Op::Redux);
                let names = ["add", "min", "max", "and", "or", "xor"];
                let name = mods.take_any(&names).ok_or_else(|| mods.unsupported())?;
                i.sel = names.iter().position(|n| *n == name).unwrap_or(0) as u8;
                let ty = mods.take_any(&["u32", "s32", "b32"]).ok_or_else(|| mods.unsupported())?;
                mods.finish()?;
                if (i.sel >= 3) != (ty == "b32") {
                    return Err(mods.unsupported());
                }
                i.flags |= if ty == "s32" { flag::SIGNED } else { 0 };
                i.d = self.dst(&ops[0], Kind::B32)?;
                i.a = self.src(&ops[1], Kind::B32)?;
                i.e = self.src(&ops[2], Kind::B32)?;
                self.emit(i);
                Ok(())
            }
            _ => {
                mods.finish()?;
                self.arity(ops, 2, 2)?;
                let mut i = Inst::new(Op::Elect);
                self.pair_or_word(&mut i, &ops[0])?;
                if i.d2 == NONE {
                    return Err(mods.unsupported());
                }
                i.e = self.src(&ops[1], Kind::B32)?;
                self.emit(i);
                Ok(())
            }
        }
    }

    /// `d|p` or `d`, with `_` for an unwanted half.
    fn pair_or_word(&mut self, i: &mut Inst, o: &Operand) -> Result<()> {
        match &o.kind {
            OperandKind::Pair(d, p) => {
                i.d = self.dst(d, Kind::B32)?;
                i.d2 = self.predicate_dst(p)?;
            }
            _ => i.d = self.dst(o, Kind::B32)?,
        }
        Ok(())
    }

    fn shuffle(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 5, 5)?;
        let mut i = Inst::new(Op::Shfl);
        i.sel = match mods.take_any(&["up", "down", "bfly", "idx"]) {
            Some("up") => 0,
            Some("down") => 1,
            Some("bfly") => 2,
            Some(_) => 3,
            None => return Err(mods.unsupported()),
        };
        if !mods.take("b32") {
            return Err(mods.unsupported());
        }
        mods.finish()?;
        self.pair_or_word(&mut i, &ops[0])?;
        i.a = self.src(&ops[1], Kind::B32)?;
        i.b = self.src(&ops[2], Kind::B32)?;
        i.c = self.src(&ops[3], Kind::B32)?;
        i.e = self.src(&ops[4], Kind::B32)?;
        self.emit(i);
        Ok(())
    }

    fn vote(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 3, 3)?;
        let mut i = Inst::new(Op::Vote);
        i.sel = match mods.take_any(&["all", "any", "uni", "ballot"]) {
            Some("all") => 0,
            Some("any") => 1,
            Some("uni") => 2,
            Some(_) => 3,
            None => return Err(mods.unsupported()),
        };
        if !mods.take(if i.sel == 3 { "b32" } else { "pred" }) {
            return Err(mods.unsupported());
        }
        mods.finish()?;
        i.d = if i.sel == 3 { self.dst(&ops[0], Kind::B32)? } else { self.predicate_dst(&ops[0])? };
        let (p, negated) = self.predicate(&ops[1])?;
        i.a = p;
        i.flags |= if negated { flag::NEG } else { 0 };
        i.e = self.src(&ops[2], Kind::B32)?;
        self.emit(i);
        Ok(())
    }
}
