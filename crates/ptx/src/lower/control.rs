//! Branches, barriers and fences.

use super::builder::{Builder, Result};
use super::opcode::Mods;
use crate::error::Diagnostic;
use crate::exec::inst::{Inst, NONE, Op, flag};
use crate::exec::regs::Kind;
use crate::syntax::ast::{Operand, OperandKind};

impl Builder<'_> {
    pub(super) fn control(&mut self, mnemonic: &str, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        match mnemonic {
            "bra" => {
                self.arity(ops, 1, 1)?;
                mods.take("uni");
                mods.finish()?;
                let label = self.label_operand(&ops[0])?;
                self.emit_branch(Inst::new(Op::Bra), label);
                Ok(())
            }
            "brx" => {
                self.arity(ops, 2, 2)?;
                if !mods.take("idx") {
                    return Err(mods.unsupported());
                }
                mods.take("uni");
                mods.finish()?;
                let mut i = Inst::new(Op::Brx);
                i.a = self.src(&ops[0], Kind::B32)?;
                let OperandKind::Name(table) = &ops[1].kind else {
                    return Err(Diagnostic::resolve(ops[1].at.0, "expected a jump table"));
                };
                i.target = self.jump_table(table, ops[1].at.0)?;
                self.emit(i);
                Ok(())
            }
            "ret" => {
                mods.take("uni");
                mods.finish()?;
                match self.ret {
                    Some(label) => self.emit_branch(Inst::new(Op::Bra), label),
                    None => self.emit(Inst::new(Op::Exit)),
                }
                Ok(())
            }
            "exit" => self.plain(mods, Op::Exit),
            "trap" | "brkpt" => self.plain(mods, Op::Trap),
            "nanosleep" => {
                mods.take("u32");
                self.plain(mods, Op::Nanosleep)
            }
            "pmevent" => {
                mods.take("mask");
                self.plain(mods, Op::Nop)
            }
            "griddepcontrol" => {
                mods.take_any(&["wait", "launch_dependents"]);
                self.plain(mods, Op::GridDep)
            }
            "setmaxnreg" => {
                let ok = mods.take_any(&["inc", "dec"]).is_some() && mods.take("sync") && mods.take("aligned");
                if !ok || !mods.take("u32") {
                    return Err(mods.unsupported());
                }
                self.arity(ops, 1, 1)?;
                let n = self.literal(&ops[0])?;
                if !(24..=256).contains(&n) || n % 8 != 0 {
                    return Err(Diagnostic::resolve(ops[0].at.0, "register count is not a multiple of 8 in 24..=256"));
                }
                self.plain(mods, Op::SetMaxNReg)
            }
            "fence" | "membar" => self.fence(mnemonic, mods, ops),
            _ => self.barrier(mods, ops),
        }
    }

    fn label_operand(&mut self, o: &Operand) -> Result<usize> {
        match &o.kind {
            OperandKind::Name(n) => self.find_label(n, o.at.0),
            _ => Err(Diagnostic::resolve(o.at.0, "expected a label")),
        }
    }

    fn plain(&mut self, mods: Mods, op: Op) -> Result<()> {
        mods.finish()?;
        self.emit(Inst::new(op));
        Ok(())
    }

    fn fence(&mut self, mnemonic: &str, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        let acquires_map = mods.parts.contains(&"tensormap::generic") && mods.parts.contains(&"acquire");
        if acquires_map {
            // The map's address and its size.
            self.arity(ops, 2, 2)?;
            self.address(&ops[0])?;
            self.literal(&ops[1])?;
        } else {
            self.arity(ops, 0, 0)?;
        }
        let mut i = Inst::new(Op::Fence);
        if mnemonic == "membar" {
            match mods.take_any(&["cta", "gl", "sys"]) {
                Some("cta") => i.flags |= flag::CTA_SCOPE,
                Some(_) => {}
                None => return Err(mods.unsupported()),
            }
            mods.finish()?;
            self.emit(i);
            return Ok(());
        }
        if mods.take("proxy") {
            let which = ["async", "async.global", "alias", "tensormap::generic", "async::generic"];
            i.op = match mods.take_any(&which) {
                Some("async") => {
                    mods.take_any(&["global", "shared", "shared::cta", "shared::cluster"]);
                    Op::ProxyFence
                }
                Some("alias") => Op::Fence,
                // Tensor maps are never rewritten here, and the async-to-generic direction is ordered by completion.
                Some(_) => {
                    for _ in 0..3 {
                        mods.take_any(&[
                            "release",
                            "acquire",
                            "cta",
                            "cluster",
                            "gpu",
                            "sys",
                            "sync_restrict::shared::cta",
                            "sync_restrict::shared::cluster",
                        ]);
                    }
                    Op::Fence
                }
                None => return Err(mods.unsupported()),
            };
        } else {
            mods.take("mbarrier_init");
            mods.take_any(&["sc", "acq_rel", "acquire", "release"]);
            mods.take_any(&["sync_restrict::shared::cta", "sync_restrict::shared::cluster"]);
            match mods.take_any(&["cta", "cluster", "gpu", "sys"]) {
                Some("cta") => i.flags |= flag::CTA_SCOPE,
                Some(_) => {}
                None => return Err(mods.unsupported()),
            }
        }
        mods.finish()?;
        self.emit(i);
        Ok(())
    }

    fn barrier(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        if mods.take("warp") {
            if !mods.take("sync") {
                return Err(mods.unsupported());
            }
            mods.finish()?;
            self.arity(ops, 1, 1)?;
            let mut i = Inst::new(Op::BarWarp);
            i.e = self.src(&ops[0], Kind::B32)?;
            self.emit(i);
            return Ok(());
        }
        if mods.take("cluster") {
            let mut i = Inst::new(match mods.take_any(&["arrive", "wait"]) {
                Some("arrive") => Op::ClusterArrive,
                Some(_) => Op::ClusterWait,
                None => return Err(mods.unsupported()),
            });
            i.flags |= match mods.take_any(&["acquire", "release", "relaxed"]) {
                Some("relaxed") => flag::STRONG,
                _ => 0,
            };
            mods.take("aligned");
            mods.finish()?;
            self.emit(i);
            return Ok(());
        }
        mods.take("cta");
        mods.take("aligned");
        let kind = mods.take_any(&["sync", "arrive", "red"]).ok_or_else(|| mods.unsupported())?;
        mods.take("aligned");
        let mut i = Inst::new(match kind {
            "sync" => Op::Bar,
            "arrive" => Op::BarArrive,
            _ => Op::BarRed,
        });
        let mut rest = ops;
        if kind == "red" {
            i.sel = match mods.take_any(&["popc", "and", "or"]) {
                Some("popc") => 0,
                Some("and") => 1,
                Some(_) => 2,
                None => return Err(mods.unsupported()),
            };
            let ty = if i.sel == 0 { "u32" } else { "pred" };
            if !mods.take(ty) {
                return Err(mods.unsupported());
            }
            self.arity(ops, 3, 4)?;
            i.d = if i.sel == 0 { self.dst(&ops[0], Kind::B32)? } else { self.predicate_dst(&ops[0])? };
            let (Some(last), true) = (ops.last(), true) else { return Err(mods.unsupported()) };
            let (c, negated) = self.predicate(last)?;
            i.c = c;
            i.flags |= if negated { flag::NEG } else { 0 };
            rest = &ops[1..ops.len() - 1];
        } else {
            self.arity(ops, if kind == "arrive" { 2 } else { 1 }, 2)?;
        }
        mods.finish()?;
        i.a = self.src(&rest[0], Kind::B32)?;
        i.b = match rest.get(1) {
            Some(o) => self.src(o, Kind::B32)?,
            None => NONE,
        };
        self.emit(i);
        Ok(())
    }
}
