//! Asynchronous copies and mbarriers.

use super::builder::{Builder, Result};
use super::forms::{REDUCTIONS, reduction_types};
use super::opcode::Mods;
use crate::error::Diagnostic;
use crate::exec::inst::{Inst, NONE, Op, Space, flag};
use crate::exec::regs::Kind;
use crate::syntax::ast::{Operand, OperandKind};

impl Builder<'_> {
    pub(super) fn asynchronous(&mut self, mnemonic: &str, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        if mnemonic == "mbarrier" {
            return self.mbarrier(mods, ops);
        }
        let reduce = mods.take("reduce");
        if !mods.take("async") {
            return Err(mods.unsupported());
        }
        if mods.take("bulk") {
            self.prog.uses_async_proxy = true;
            return self.bulk(reduce, mods, ops);
        }
        if reduce {
            return Err(mods.unsupported());
        }
        if mods.take("commit_group") {
            mods.finish()?;
            self.arity(ops, 0, 0)?;
            self.emit(Inst::new(Op::CpCommit));
            return Ok(());
        }
        if mods.take("wait_group") || mods.parts.contains(&"wait_all") {
            let mut i = Inst::new(Op::CpWait);
            if mods.take("wait_all") {
                self.arity(ops, 0, 0)?;
                i.imm = -1;
            } else {
                self.arity(ops, 1, 1)?;
                i.imm = self.literal(&ops[0])?.clamp(0, 1 << 30);
            }
            mods.finish()?;
            self.emit(i);
            return Ok(());
        }
        if mods.take("mbarrier") {
            self.arity(ops, 1, 1)?;
            let ok = mods.take("arrive");
            let mut i = Inst::new(Op::CpMbarArrive);
            i.flags |= if mods.take("noinc") { flag::NOINC } else { 0 };
            let shared = mods.take_any(&["shared", "shared::cta"]).is_some();
            i.space = if shared { Space::Shared } else { Space::Generic };
            if !ok || !mods.take("b64") {
                return Err(mods.unsupported());
            }
            mods.finish()?;
            self.barrier_address(&mut i, &ops[0])?;
            self.emit(i);
            return Ok(());
        }
        self.cp_async(mods, ops)
    }

    fn cp_async(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        let mut i = Inst::new(Op::CpAsync);
        let cg = mods.parts.contains(&"cg");
        if mods.take_any(&["ca", "cg"]).is_none() {
            return Err(mods.unsupported());
        }
        let shared = mods.take_any(&["shared", "shared::cta"]).is_some();
        let global = mods.take("global");
        let hint = mods.take("L2::cache_hint");
        mods.take_hints();
        mods.finish()?;
        if !shared || !global {
            return Err(mods.unsupported());
        }
        let n = ops.len() - usize::from(hint && !ops.is_empty());
        self.arity(&ops[..n.min(ops.len())], 3, 4)?;
        let size = self.literal(&ops[2])?;
        if !(matches!(size, 4 | 8 | 16) && (!cg || size == 16)) {
            return Err(Diagnostic::resolve(ops[2].at.0, "copy size is 4, 8 or 16 bytes, 16 for `.cg`"));
        }
        i.size = size as u8;
        let d = self.address(&ops[0])?;
        (i.a, i.wide.a, i.imm) = (d.reg, d.wide, d.offset);
        let s = self.address(&ops[1])?;
        (i.b, i.wide.b, i.imm2) = (s.reg, s.wide, s.offset);
        if n == 4 {
            // The fourth operand is a source size or a predicate that ignores the source.
            let p = match &ops[3].kind {
                OperandKind::Name(_) => self.predicate(&ops[3]).ok(),
                OperandKind::Not(_) => Some(self.predicate(&ops[3])?),
                _ => None,
            };
            match p {
                Some((id, negated)) => {
                    i.e = id;
                    i.flags |= if negated { flag::NEG } else { 0 };
                }
                None => i.c = self.src(&ops[3], Kind::B32)?,
            }
        }
        self.emit(i);
        Ok(())
    }

    fn barrier_address(&mut self, i: &mut Inst, o: &Operand) -> Result<()> {
        let a = self.address(o)?;
        (i.a, i.wide.a, i.imm) = (a.reg, a.wide, a.offset);
        Ok(())
    }

    fn bulk(&mut self, reduce: bool, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        if mods.take("commit_group") {
            mods.finish()?;
            self.emit(Inst::new(Op::BulkCommit));
            return Ok(());
        }
        if mods.take("wait_group") {
            self.arity(ops, 1, 1)?;
            let mut i = Inst::new(Op::BulkWait);
            i.flags |= if mods.take("read") { flag::READ } else { 0 };
            mods.finish()?;
            i.imm = self.literal(&ops[0])?.clamp(0, 1 << 30);
            self.emit(i);
            return Ok(());
        }
        if mods.take("prefetch") {
            return self.bulk_prefetch(mods, ops);
        }
        if mods.take("tensor") {
            return self.tensor_copy(reduce, mods, ops);
        }
        let mut i = Inst::new(Op::BulkLoad);
        let names = ["shared::cluster", "shared::cta", "global"];
        let first = mods.parts.iter().position(|p| names.contains(p)).map(|k| mods.parts[k]);
        let to_global = first == Some("global");
        let from_global = !to_global && mods.parts.contains(&"global");
        for n in names {
            mods.take(n);
        }
        let hint = mods.take("L2::cache_hint");
        if to_global {
            i.op = if reduce { Op::BulkReduce } else { Op::BulkStore };
            let group = mods.take("bulk_group");
            if reduce {
                self.reduction(&mut mods, &mut i)?;
            }
            mods.finish()?;
            if !group {
                return Err(mods.unsupported());
            }
            self.arity(ops, 3 + usize::from(hint), 3 + usize::from(hint))?;
            let d = self.address(&ops[0])?;
            (i.a, i.wide.a, i.imm) = (d.reg, d.wide, d.offset);
            let s = self.address(&ops[1])?;
            (i.b, i.wide.b, i.imm2) = (s.reg, s.wide, s.offset);
            i.c = self.src(&ops[2], Kind::B32)?;
            self.emit(i);
            return Ok(());
        }
        if reduce {
            return Err(mods.unsupported());
        }
        i.op = if from_global { Op::BulkLoad } else { Op::BulkShared };
        let complete = mods.take("mbarrier::complete_tx::bytes");
        let multicast = mods.take("multicast::cluster");
        mods.finish()?;
        if !complete {
            return Err(mods.unsupported());
        }
        let n = 4 + usize::from(hint) + usize::from(multicast);
        self.arity(ops, n, n)?;
        let d = self.address(&ops[0])?;
        (i.a, i.wide.a, i.imm) = (d.reg, d.wide, d.offset);
        let s = self.address(&ops[1])?;
        (i.b, i.wide.b, i.imm2) = (s.reg, s.wide, s.offset);
        i.c = self.src(&ops[2], Kind::B32)?;
        let bar = self.address(&ops[3])?;
        (i.e, i.wide.e, i.target) = (bar.reg, bar.wide, bar.offset as u32);
        if multicast {
            let mask = self.src(&ops[4], Kind::B16)?;
            i.flags |= flag::MULTICAST;
            self.extend(&mut i, &[], &[mask]);
        }
        self.emit(i);
        Ok(())
    }

    /// Prefetches move nothing here, but name real operands.
    fn bulk_prefetch(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        let tensor = mods.take("tensor");
        if tensor && mods.take_any(&["1d", "2d", "3d", "4d", "5d"]).is_none() {
            return Err(mods.unsupported());
        }
        let ok = mods.take("L2") && mods.take("global");
        mods.take("tile");
        let hint = usize::from(mods.take("L2::cache_hint"));
        mods.finish()?;
        if !ok {
            return Err(mods.unsupported());
        }
        let n = if tensor { 1 } else { 2 } + hint;
        self.arity(ops, n, n)?;
        self.address(&ops[0])?;
        if !tensor {
            self.src(&ops[1], Kind::B32)?;
        }
        self.emit(Inst::new(Op::BulkPrefetch));
        Ok(())
    }

    fn reduction(&mut self, mods: &mut Mods, i: &mut Inst) -> Result<()> {
        mods.take("noftz");
        let name = mods.take_any(&REDUCTIONS).ok_or_else(|| mods.unsupported())?;
        i.sel = REDUCTIONS.iter().position(|n| *n == name).unwrap_or(0) as u8;
        let ty = mods.take_type()?;
        if !reduction_types(name).contains(&ty) {
            return Err(mods.unsupported());
        }
        i.size = ty.size() as u8;
        i.target = ty as u32;
        Ok(())
    }

    fn tensor_copy(&mut self, reduce: bool, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        let rank = match mods.take_any(&["1d", "2d", "3d", "4d", "5d"]) {
            Some(r) => usize::from(r.as_bytes()[0] - b'0'),
            None => return Err(mods.unsupported()),
        };
        let names = ["shared::cluster", "shared::cta", "global"];
        let to_global = mods.parts.iter().find(|p| names.contains(*p)) == Some(&"global");
        for n in names {
            mods.take(n);
        }
        mods.take("tile");
        let hint = mods.take("L2::cache_hint");
        let multicast = mods.take("multicast::cluster");
        let mut i = Inst::new(if to_global { Op::TmaStore } else { Op::TmaLoad });
        i.count = rank as u8;
        i.sel = u8::MAX;
        let completes = if to_global { mods.take("bulk_group") } else { mods.take("mbarrier::complete_tx::bytes") };
        if reduce {
            let name = mods.take_any(&REDUCTIONS).ok_or_else(|| mods.unsupported())?;
            i.sel = REDUCTIONS.iter().position(|n| *n == name).unwrap_or(0) as u8;
        }
        mods.finish()?;
        if !completes || (reduce && !to_global) || (multicast && to_global) {
            return Err(mods.unsupported());
        }
        let (map, shared) = if to_global { (0, 1) } else { (1, 0) };
        let n = if to_global { 2 } else { 3 } + usize::from(hint) + usize::from(multicast);
        self.arity(ops, n, n)?;
        let s = self.address(&ops[shared])?;
        (i.a, i.wide.a, i.imm) = (s.reg, s.wide, s.offset);
        let m = self.address(&ops[map])?;
        (i.b, i.wide.b, i.imm2) = (m.reg, m.wide, m.offset);
        let OperandKind::Address { extra, .. } = &ops[map].kind else { return Err(mods.unsupported()) };
        let coords: Vec<&Operand> = match extra.as_slice() {
            [Operand { kind: OperandKind::Vector(v), .. }] => v.iter().collect(),
            [one] => vec![one],
            _ => return Err(Diagnostic::resolve(ops[map].at.0, "expected tensor coordinates")),
        };
        if coords.len() != rank {
            return Err(Diagnostic::resolve(ops[map].at.0, format!("{rank} coordinates expected")));
        }
        let mut uses = Vec::new();
        for c in coords {
            uses.push(self.src(c, Kind::B32)?);
        }
        if !to_global {
            let bar = self.address(&ops[2])?;
            (i.e, i.wide.e, i.target) = (bar.reg, bar.wide, bar.offset as u32);
            if multicast {
                i.flags |= flag::MULTICAST;
                uses.push(self.src(&ops[3], Kind::B16)?);
            }
        }
        self.extend(&mut i, &[], &uses);
        self.emit(i);
        Ok(())
    }

    fn mbarrier(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        let names = [
            "init",
            "inval",
            "arrive_drop",
            "arrive",
            "expect_tx",
            "complete_tx",
            "test_wait",
            "try_wait",
            "pending_count",
        ];
        let name = mods.take_any(&names).ok_or_else(|| mods.unsupported())?;
        let arrives = matches!(name, "arrive" | "arrive_drop");
        let expect = arrives && mods.take("expect_tx");
        let partial = arrives && !expect && mods.take("noComplete");
        let parity = mods.take("parity");
        let order = mods.take_any(&["release", "acquire", "relaxed"]);
        mods.take_any(&["cta", "cluster"]);
        let space = mods.take_any(&["shared", "shared::cta", "shared::cluster"]);
        if !mods.take("b64") {
            return Err(mods.unsupported());
        }
        mods.finish()?;
        let mut i = Inst::new(match name {
            "init" => Op::MbarInit,
            "inval" => Op::MbarInval,
            "arrive" | "arrive_drop" => Op::MbarArrive,
            "expect_tx" => Op::MbarExpect,
            "complete_tx" => Op::MbarComplete,
            "pending_count" => Op::MbarPending,
            _ => Op::MbarWait,
        });
        i.space = if space.is_some() { Space::Shared } else { Space::Generic };
        i.size = 8;
        i.flags |= if order == Some("relaxed") { flag::STRONG } else { 0 };
        match i.op {
            Op::MbarInit | Op::MbarExpect | Op::MbarComplete => {
                self.arity(ops, 2, 2)?;
                self.barrier_address(&mut i, &ops[0])?;
                i.b = self.src(&ops[1], Kind::B32)?;
            }
            Op::MbarInval => {
                self.arity(ops, 1, 1)?;
                self.barrier_address(&mut i, &ops[0])?;
            }
            Op::MbarPending => {
                self.arity(ops, 2, 2)?;
                i.d = self.dst(&ops[0], Kind::B32)?;
                i.a = self.src(&ops[1], Kind::B64)?;
            }
            Op::MbarArrive => {
                // The state may be left out only for barriers of other CTAs, where it is `_` in current syntax.
                let has_state = !matches!(ops.first().map(|o| &o.kind), Some(OperandKind::Address { .. }));
                let rest = if has_state { ops.get(1..).unwrap_or_default() } else { ops };
                self.arity(rest, if expect { 2 } else { 1 }, 2)?;
                if has_state {
                    i.d = match &ops[0].kind {
                        OperandKind::Name(n) if n == "_" => NONE,
                        _ => self.dst(&ops[0], Kind::B64)?,
                    };
                }
                i.sel = u8::from(expect);
                i.flags |= if partial { flag::NOCOMPLETE } else { 0 };
                i.flags |= if name == "arrive_drop" { flag::DROP } else { 0 };
                self.barrier_address(&mut i, &rest[0])?;
                if let Some(v) = rest.get(1) {
                    i.b = self.src(v, Kind::B32)?;
                }
            }
            _ => {
                self.arity(ops, 3, 4)?;
                i.d = self.predicate_dst(&ops[0])?;
                self.barrier_address(&mut i, &ops[1])?;
                i.flags |= if parity { flag::PARITY } else { 0 };
                i.flags |= if name == "test_wait" { flag::READ } else { 0 };
                i.b = self.src(&ops[2], if parity { Kind::B32 } else { Kind::B64 })?;
                i.wide.b = !parity;
            }
        }
        self.emit(i);
        Ok(())
    }
}
