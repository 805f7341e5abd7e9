//! Matrix loads and stores, `mma.sync` and `wgmma`.

use super::builder::{Builder, Result};
use super::opcode::Mods;
use crate::error::Diagnostic;
use crate::exec::inst::{Inst, NONE, Op, Space, flag};
use crate::exec::mma::{Acc, Elem, MmaSpec, WgmmaSpec};
use crate::exec::regs::Kind;
use crate::syntax::ast::{Operand, OperandKind};

impl Builder<'_> {
    pub(super) fn tensor(&mut self, mnemonic: &str, mods: Mods, ops: &[Operand]) -> Result<()> {
        match mnemonic {
            "ldmatrix" | "stmatrix" => self.matrix_memory(mnemonic == "stmatrix", mods, ops),
            "movmatrix" => {
                if mods.text != "movmatrix.sync.aligned.m8n8.trans.b16" {
                    return Err(mods.unsupported());
                }
                self.arity(ops, 2, 2)?;
                let mut i = Inst::new(Op::MoveMatrix);
                i.d = self.dst(&ops[0], Kind::B32)?;
                i.a = self.src(&ops[1], Kind::B32)?;
                self.emit(i);
                Ok(())
            }
            "mma" => self.mma(mods, ops),
            "wmma" => self.wmma(mods, ops),
            _ => self.wgmma(mods, ops),
        }
    }

    pub(super) fn word_list(&mut self, o: &Operand, count: usize, kind: Kind, write: bool) -> Result<Vec<u32>> {
        let list: Vec<&Operand> = match &o.kind {
            OperandKind::Vector(v) => v.iter().collect(),
            _ => vec![o],
        };
        if list.len() != count {
            return Err(Diagnostic::resolve(o.at.0, format!("{} registers given, {count} expected", list.len())));
        }
        list.into_iter().map(|x| if write { self.dst(x, kind) } else { self.src(x, kind) }).collect()
    }

    fn matrix_memory(&mut self, store: bool, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 2, 2)?;
        let mut i = Inst::new(if store { Op::StMatrix } else { Op::LdMatrix });
        let shape = mods.take("sync") && mods.take("aligned") && mods.take("m8n8");
        i.count = match mods.take_any(&["x1", "x2", "x4"]) {
            Some("x1") => 1,
            Some("x2") => 2,
            Some(_) => 4,
            None => return Err(mods.unsupported()),
        };
        i.flags |= if mods.take("trans") { flag::TRANS } else { 0 };
        let shared = mods.take_any(&["shared", "shared::cta"]).is_some();
        if !shape || !mods.take("b16") {
            return Err(mods.unsupported());
        }
        mods.finish()?;
        i.space = if shared { Space::Shared } else { Space::Generic };
        i.size = 16;
        let (data, at) = if store { (1, 0) } else { (0, 1) };
        let a = self.address(&ops[at])?;
        (i.a, i.wide.a, i.imm) = (a.reg, a.wide, a.offset);
        let regs = self.word_list(&ops[data], usize::from(i.count), Kind::B32, !store)?;
        if store {
            self.extend(&mut i, &[], &regs);
        } else {
            self.extend(&mut i, &regs, &[]);
        }
        self.emit(i);
        Ok(())
    }

    fn mma(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 4, 4)?;
        let head = mods.take("sync") && mods.take("aligned");
        let shape = mods.take_any(&["m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", "m8n8k4"]);
        let layout = mods.take("row") && mods.take("col");
        let satfinite = mods.take("satfinite");
        let kinded = mods.take("kind::f8f6f4");
        let unsupported = mods.unsupported();
        let tail: Vec<&str> = mods.parts.iter().rev().take(4).rev().copied().collect();
        let [dt, at, bt, ct] = tail.as_slice() else { return Err(unsupported) };
        for t in [dt, at, bt, ct] {
            mods.take(t);
        }
        mods.finish()?;
        let elem = |t: &str| Elem::parse(t).ok_or_else(|| unsupported.clone());
        let (a, b) = (elem(at)?, elem(bt)?);
        let acc = Acc::parse(dt).ok_or_else(|| unsupported.clone())?;
        let k = match shape {
            Some("m16n8k4") => 4,
            Some("m16n8k8") => 8,
            Some("m16n8k16") => 16,
            Some("m16n8k32") => 32,
            Some("m8n8k4") if a == Elem::F64 => 4,
            _ => return Err(unsupported),
        };
        let legal = match (a, b) {
            (Elem::F16, Elem::F16) => matches!(k, 8 | 16) && matches!(acc, Acc::F32 | Acc::F16),
            (Elem::BF16, Elem::BF16) => matches!(k, 8 | 16) && acc == Acc::F32,
            (Elem::TF32, Elem::TF32) => matches!(k, 4 | 8) && acc == Acc::F32,
            (Elem::E4M3 | Elem::E5M2, Elem::E4M3 | Elem::E5M2) => {
                matches!(k, 16 | 32) && matches!(acc, Acc::F32 | Acc::F16)
            }
            (Elem::S8 | Elem::U8, Elem::S8 | Elem::U8) => matches!(k, 16 | 32) && acc == Acc::S32,
            (Elem::F64, Elem::F64) => shape == Some("m8n8k4") && acc == Acc::F64,
            _ => false,
        };
        if !head || !layout || !legal || dt != ct || (satfinite && acc != Acc::S32) || (kinded && !a.is_fp8()) {
            return Err(unsupported);
        }
        let spec = MmaSpec { k, a, b, acc, satfinite };
        let (na, nb, nc) = spec.registers();
        let (operand, result) = match acc {
            Acc::F64 => (Kind::F64, Kind::F64),
            Acc::F32 => (Kind::B32, Kind::F32),
            _ => (Kind::B32, Kind::B32),
        };
        let d = self.word_list(&ops[0], nc, result, true)?;
        let mut uses = self.word_list(&ops[1], na, operand, false)?;
        uses.extend(self.word_list(&ops[2], nb, operand, false)?);
        uses.extend(self.word_list(&ops[3], nc, result, false)?);
        let mut i = Inst::new(Op::Mma);
        self.extend(&mut i, &d, &uses);
        i.imm = self.prog.mmas.len() as i64;
        self.prog.mmas.push(spec);
        self.emit(i);
        Ok(())
    }

    fn wgmma(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.prog.uses_async_proxy = true;
        let kind = mods.take_any(&["mma_async", "fence", "commit_group", "wait_group"]);
        let sync = mods.take("sync") && mods.take("aligned");
        if !sync {
            return Err(mods.unsupported());
        }
        match kind {
            Some("mma_async") => self.wgmma_mma(mods, ops),
            Some("fence") => {
                mods.finish()?;
                self.arity(ops, 0, 0)?;
                self.emit(Inst::new(Op::WgmmaFence));
                Ok(())
            }
            Some("commit_group") => {
                mods.finish()?;
                self.arity(ops, 0, 0)?;
                self.emit(Inst::new(Op::WgmmaCommit));
                Ok(())
            }
            Some(_) => {
                mods.finish()?;
                self.arity(ops, 1, 1)?;
                let mut i = Inst::new(Op::WgmmaWait);
                i.imm = self.literal(&ops[0])?;
                if !(0..=7).contains(&i.imm) {
                    return Err(Diagnostic::resolve(ops[0].at.0, "pending groups are 0 to 7"));
                }
                self.emit(i);
                Ok(())
            }
            None => Err(mods.unsupported()),
        }
    }

    fn wgmma_mma(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        let unsupported = mods.unsupported();
        let tail: Vec<&str> = mods.parts.iter().rev().take(4).rev().copied().collect();
        let [shape, dt, at, bt] = tail.as_slice() else { return Err(unsupported) };
        for t in [shape, dt, at, bt] {
            mods.take(t);
        }
        let satfinite = mods.take("satfinite");
        mods.finish()?;
        let parsed = shape
            .strip_prefix("m64n")
            .and_then(|s| s.split_once('k'))
            .and_then(|(n, k)| Some((n.parse::<usize>().ok()?, k.parse::<usize>().ok()?)));
        let (Some((n, k)), Some(a), Some(b), Some(acc)) = (parsed, Elem::parse(at), Elem::parse(bt), Acc::parse(dt))
        else {
            return Err(unsupported);
        };
        let legal = match (a, b) {
            (Elem::F16, Elem::F16) => k == 16 && matches!(acc, Acc::F32 | Acc::F16),
            (Elem::BF16, Elem::BF16) => k == 16 && acc == Acc::F32,
            (Elem::TF32, Elem::TF32) => k == 8 && acc == Acc::F32,
            (x, y) if x.is_fp8() && y.is_fp8() => k == 32 && matches!(acc, Acc::F32 | Acc::F16),
            (Elem::S8 | Elem::U8, Elem::S8 | Elem::U8) => k == 32 && acc == Acc::S32,
            _ => false,
        };
        if !legal || !(8..=256).contains(&n) || n % 8 != 0 {
            return Err(unsupported);
        }
        let from_registers = matches!(ops.get(1).map(|o| &o.kind), Some(OperandKind::Vector(_)));
        let half = matches!(a, Elem::F16 | Elem::BF16);
        let integer = acc == Acc::S32;
        // Scales of A and B, then transposes: A's only from shared memory, both only for 16-bit types.
        let scales = if integer { 0 } else { 2 };
        let transposes = if half { if from_registers { 1 } else { 2 } } else { 0 };
        self.arity(ops, 4 + scales + transposes, 4 + scales + transposes)?;
        let mut literals = Vec::new();
        for o in &ops[4..] {
            literals.push((self.literal(o)?, o.at.0));
        }
        if let Some((_, pos)) = literals.iter().take(scales).find(|(v, _)| *v != 1 && *v != -1) {
            return Err(Diagnostic::resolve(*pos, "a scale is 1 or -1"));
        }
        if let Some((_, pos)) = literals.iter().skip(scales).find(|(v, _)| *v != 0 && *v != 1) {
            return Err(Diagnostic::resolve(*pos, "a transpose flag is 0 or 1"));
        }
        let get = |k: usize| literals.get(k).map_or(0, |l| l.0);
        let spec = WgmmaSpec {
            n,
            k,
            a,
            b,
            acc,
            satfinite,
            from_registers,
            negate_a: scales > 0 && get(0) == -1,
            negate_b: scales > 0 && get(1) == -1,
            trans_a: transposes == 2 && get(2) == 1,
            trans_b: transposes > 0 && get(scales + transposes - 1) == 1,
        };
        let kind = if acc == Acc::F32 { Kind::F32 } else { Kind::B32 };
        let d = self.word_list(&ops[0], spec.accumulators(), kind, true)?;
        let mut uses = d.clone();
        let mut i = Inst::new(Op::WgmmaMma);
        if from_registers {
            uses.extend(self.word_list(&ops[1], 4, Kind::B32, false)?);
        } else {
            i.a = self.src(&ops[1], Kind::B64)?;
        }
        i.b = self.src(&ops[2], Kind::B64)?;
        let (c, negated) = self.predicate(&ops[3])?;
        i.c = c;
        i.flags |= if negated { flag::NEG } else { 0 };
        self.extend(&mut i, &d, &uses);
        i.imm = self.prog.wgmmas.len() as i64;
        self.prog.wgmmas.push(spec);
        debug_assert!(i.e == NONE);
        self.emit(i);
        Ok(())
    }
}
