//! Loads, stores, atomics and address arithmetic.

use super::alu::kind_of;
use super::builder::{Builder, Result};
use super::forms::{ATOMICS, atomic_types, reduce_async_types};
use super::opcode::Mods;
use super::scope::Sym;
use super::special::Special;
use crate::error::Diagnostic;
use crate::exec::alu;
use crate::exec::inst::{Inst, NONE, Op, Space, flag, untag};
use crate::exec::regs::{Bank, Kind};
use crate::memory::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, window_base};
use crate::syntax::ast::{Operand, OperandKind, Type};

/// A resolved `[address]`.
pub(super) struct Address {
    pub(super) reg: u32,
    pub(super) wide: bool,
    pub(super) offset: i64,
    /// Space of the symbol, when the base is one.
    symbol: Option<Space>,
}

impl Builder<'_> {
    pub(super) fn memory(&mut self, mnemonic: &str, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        match mnemonic {
            "ld" | "ldu" => self.load(mods, ops),
            "st" => self.store(mods, ops),
            "atom" | "red" => self.atomic(mnemonic == "red", mods, ops),
            "cvta" => self.cvta(mods, ops),
            "isspacep" => {
                self.arity(ops, 2, 2)?;
                let window =
                    match mods.take_any(&["global", "shared", "shared::cta", "shared::cluster", "local", "param"]) {
                        Some("global") => 0,
                        Some("local") => LOCAL_WINDOW,
                        Some("param") => PARAM_WINDOW,
                        Some(_) => SHARED_WINDOW,
                        None => return Err(mods.unsupported()),
                    };
                mods.finish()?;
                let mut i = Inst::new(Op::IsSpace);
                i.imm = window as i64;
                i.d = self.predicate_dst(&ops[0])?;
                i.a = self.src(&ops[1], Kind::B64)?;
                self.emit(i);
                Ok(())
            }
            "mapa" => {
                self.arity(ops, 3, 3)?;
                let shared = mods.take("shared::cluster");
                let ty = mods.take_type()?;
                mods.finish()?;
                let name = match (ty, shared) {
                    (Type::U32, true) => "mapa32",
                    (Type::U64, false) => "mapa64",
                    _ => return Err(mods.unsupported()),
                };
                let mut i = Inst::new(Op::Alu);
                i.alu = alu::move_pack(name).ok_or_else(|| mods.unsupported())?;
                i.a = self.src(&ops[1], kind_of(ty))?;
                i.b = self.src(&ops[2], Kind::B32)?;
                i.d = self.dst(&ops[0], kind_of(ty))?;
                self.emit(i);
                Ok(())
            }
            "getctarank" => {
                self.arity(ops, 2, 2)?;
                let shared = mods.take("shared::cluster");
                let ty = mods.take_type()?;
                mods.finish()?;
                let name = match (ty, shared) {
                    (Type::U32, true) => "rank32",
                    (Type::U64, false) => "rank64",
                    _ => return Err(mods.unsupported()),
                };
                let mut i = Inst::new(Op::Alu);
                i.alu = alu::move_pack(name).ok_or_else(|| mods.unsupported())?;
                i.a = self.src(&ops[1], kind_of(ty))?;
                i.b = self.special(Special::ClusterCtaRank, false);
                i.d = self.dst(&ops[0], Kind::B32)?;
                self.emit(i);
                Ok(())
            }
            "createpolicy" => {
                // A cache policy is advice: its value is never looked at.
                if mods.parts.first().is_none_or(|p| !matches!(*p, "fractional" | "range" | "cvt")) {
                    return Err(mods.unsupported());
                }
                self.arity(ops, 1, 5)?;
                let mut i = Inst::new(Op::Alu);
                i.alu = alu::lookup("mov.b64").ok_or_else(|| mods.unsupported())?.pick();
                i.d = self.dst(&ops[0], Kind::B64)?;
                i.a = self.double(0);
                self.emit(i);
                Ok(())
            }
            "prefetch" | "prefetchu" | "applypriority" | "discard" => {
                self.arity(ops, 1, 2)?;
                mods.take_any(&["global", "local"]);
                if mods.take("tensormap") {
                    mods.take_any(&["const", "param"]);
                }
                for _ in 0..2 {
                    mods.take_any(&["L1", "L2"]);
                }
                mods.take_hints();
                mods.finish()?;
                self.address(&ops[0])?;
                self.emit(Inst::new(Op::Nop));
                Ok(())
            }
            _ => Err(mods.unsupported()),
        }
    }

    /// Resolves `[base+offset]`.
    pub(super) fn address(&mut self, o: &Operand) -> Result<Address> {
        let OperandKind::Address { base, offset, .. } = &o.kind else {
            return Err(Diagnostic::resolve(o.at.0, "expected an address in brackets"));
        };
        let pos = base.at.0;
        match &base.kind {
            OperandKind::Name(n) => match self.find(n) {
                Some(Sym::Reg(id, _)) => match untag(id).0 {
                    Bank::P => Err(Diagnostic::resolve(pos, "a predicate is not an address")),
                    bank => Ok(Address { reg: id, wide: bank == Bank::D, offset: *offset, symbol: None }),
                },
                Some(sym) => {
                    let (value, space) = match sym {
                        Sym::Shared(v) => (v, Space::Shared),
                        Sym::Local(v) => (v, Space::Local),
                        Sym::Param(v) => (v, Space::Param),
                        Sym::Global(v) => (v, Space::Global),
                        Sym::Reg(..) | Sym::Quad(..) => {
                            return Err(Diagnostic::resolve(pos, format!("`{n}` is not an address")));
                        }
                    };
                    let (reg, extra) =
                        if space == Space::Global { (self.double(value), 0) } else { (self.double(0), value as i64) };
                    Ok(Address { reg, wide: true, offset: offset.wrapping_add(extra), symbol: Some(space) })
                }
                None => Err(self.unknown(n, pos)),
            },
            OperandKind::Const(_) => {
                let reg = self.src(base, Kind::B64)?;
                Ok(Address { reg, wide: true, offset: *offset, symbol: None })
            }
            _ => Err(Diagnostic::resolve(pos, "expected a register, a variable or a literal as address")),
        }
    }

    /// Takes the state space; generic when none is named.
    fn space(&mut self, mods: &mut Mods) -> Space {
        match mods.take_any(&[
            "global",
            "const",
            "shared",
            "shared::cta",
            "shared::cluster",
            "local",
            "param",
            "param::entry",
            "param::func",
        ]) {
            Some("global") => Space::Global,
            Some("const") => Space::Const,
            Some("local") => Space::Local,
            Some("param" | "param::entry" | "param::func") => Space::Param,
            Some(_) => Space::Shared,
            None => Space::Generic,
        }
    }

    /// Takes ordering and scope of a memory operation.
    fn ordering(&mut self, mods: &mut Mods, i: &mut Inst) {
        i.flags |= match mods.take_any(&["weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"]) {
            None | Some("weak") => 0,
            Some("acquire") => flag::ACQUIRE | flag::STRONG,
            Some("release") => flag::RELEASE | flag::STRONG,
            Some("acq_rel") => flag::ACQUIRE | flag::RELEASE | flag::STRONG,
            Some(_) => flag::STRONG,
        };
        if mods.take("relaxed") {
            i.flags |= flag::STRONG;
        }
        if mods.take_any(&["cta", "cluster", "gpu", "sys"]) == Some("cta") {
            i.flags |= flag::CTA_SCOPE;
        }
    }

    fn vector(&mut self, mods: &mut Mods) -> u8 {
        match mods.take_any(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        }
    }

    /// The data registers of an access of `ty`, all in one bank; [`NONE`] for `_`.
    fn data(&mut self, o: &Operand, count: u8, ty: Type, load: bool) -> Result<(Vec<u32>, bool)> {
        let list: Vec<&Operand> = match &o.kind {
            OperandKind::Vector(v) => v.iter().collect(),
            _ => vec![o],
        };
        if list.len() != usize::from(count) {
            return Err(Diagnostic::resolve(o.at.0, format!("{} registers given, {count} expected", list.len())));
        }
        let mut wide = None;
        let mut out = Vec::new();
        for x in list {
            let register = matches!(&x.kind, OperandKind::Name(n)
                if n == "_" || matches!(self.find(n), Some(Sym::Reg(..))));
            let id = if register {
                self.any_register(x)?.map(|(id, _)| id)
            } else if load {
                return Err(Diagnostic::resolve(x.at.0, "expected a destination register"));
            } else {
                Some(self.src(x, kind_of(ty))?)
            };
            if let Some(id) = id {
                let w = untag(id).0 == Bank::D;
                if *wide.get_or_insert(w) != w || (ty.size() == 8 && !w) {
                    return Err(Diagnostic::resolve(x.at.0, "register width does not fit the access"));
                }
            }
            out.push(id.unwrap_or(NONE));
        }
        Ok((out, wide.unwrap_or(ty.size() == 8)))
    }

    /// A 128-bit access is one of two 64-bit elements.
    fn halves(&self, i: &mut Inst, ty: Type) -> Type {
        if ty == Type::B128 && i.count == 1 {
            i.count = 2;
            return Type::B64;
        }
        ty
    }

    fn quad_data(&mut self, o: &Operand) -> Result<(Vec<u32>, bool)> {
        let (low, high) = self.quad(o)?;
        Ok((vec![low, high], true))
    }

    fn cache_policy(&mut self, mods: &mut Mods, ops: &[Operand], plain: usize) -> Result<()> {
        let hint = mods.take("L2::cache_hint");
        self.arity(ops, plain + usize::from(hint), plain + usize::from(hint))?;
        if hint {
            self.src(&ops[plain], Kind::B64)?;
        }
        Ok(())
    }

    fn load(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        let mut i = Inst::new(Op::Ld);
        self.ordering(&mut mods, &mut i);
        i.space = self.space(&mut mods);
        let nc = mods.take("nc");
        mods.take_hints();
        i.count = self.vector(&mut mods);
        let ty = mods.take_type()?;
        let quad = ty == Type::B128;
        self.cache_policy(&mut mods, ops, 2)?;
        mods.finish()?;
        let ty = self.halves(&mut i, ty);
        if matches!(ty, Type::Pred | Type::B128) || (nc && !matches!(i.space, Space::Global | Space::Generic)) {
            return Err(mods.unsupported());
        }
        i.size = ty.size() as u8;
        i.flags |= if ty.is_signed() { flag::SIGNED } else { 0 };
        let a = self.address(&ops[1])?;
        let (regs, wide) = if quad { self.quad_data(&ops[0])? } else { self.data(&ops[0], i.count, ty, true)? };
        i.wide.ext = wide;
        self.extend(&mut i, &regs, &[]);
        match (i.space, a.symbol) {
            (Space::Param, Some(Space::Param)) => {
                i.op = Op::LdParam;
                i.imm = a.offset;
            }
            // A parameter of a called function lives in the caller's frame.
            (Space::Param, Some(Space::Local)) => {
                i.space = Space::Local;
                (i.a, i.wide.a, i.imm) = (a.reg, a.wide, a.offset);
            }
            _ => (i.a, i.wide.a, i.imm) = (a.reg, a.wide, a.offset),
        }
        if i.has(flag::STRONG) && matches!(i.space, Space::Generic | Space::Global) {
            self.prog.ordered_blocks = true;
        }
        self.emit(i);
        Ok(())
    }

    fn store(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        if mods.take("async") {
            return self.store_async(mods, ops);
        }
        let mut i = Inst::new(Op::St);
        self.ordering(&mut mods, &mut i);
        i.space = self.space(&mut mods);
        mods.take_hints();
        i.count = self.vector(&mut mods);
        let ty = mods.take_type()?;
        self.cache_policy(&mut mods, ops, 2)?;
        mods.finish()?;
        let quad = ty == Type::B128;
        let ty = self.halves(&mut i, ty);
        if matches!(ty, Type::Pred | Type::B128) || i.space == Space::Const {
            return Err(mods.unsupported());
        }
        i.size = ty.size() as u8;
        let a = self.address(&ops[0])?;
        let (regs, wide) = if quad { self.quad_data(&ops[1])? } else { self.data(&ops[1], i.count, ty, false)? };
        i.wide.ext = wide;
        self.extend(&mut i, &[], &regs);
        (i.a, i.wide.a, i.imm) = (a.reg, a.wide, a.offset);
        if i.space == Space::Param {
            if a.symbol != Some(Space::Local) {
                return Err(Diagnostic::resolve(ops[0].at.0, "`st.param` takes a parameter of a call"));
            }
            i.space = Space::Local;
        }
        if i.has(flag::STRONG) && matches!(i.space, Space::Generic | Space::Global) {
            self.prog.ordered_blocks = true;
        }
        self.emit(i);
        Ok(())
    }

    /// `st.async`: a store into a CTA of the cluster that completes bytes on an mbarrier.
    fn store_async(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 3, 3)?;
        let mut i = Inst::new(Op::StAsync);
        mods.take("weak");
        let ok = mods.take("shared::cluster") && mods.take("mbarrier::complete_tx::bytes");
        i.count = self.vector(&mut mods);
        let ty = mods.take_type()?;
        mods.finish()?;
        if !ok || !matches!(ty.size(), 4 | 8) || i.count > 4 {
            return Err(mods.unsupported());
        }
        i.size = ty.size() as u8;
        i.space = Space::Shared;
        let a = self.address(&ops[0])?;
        let (regs, wide) = self.data(&ops[1], i.count, ty, false)?;
        i.wide.ext = wide;
        self.extend(&mut i, &[], &regs);
        (i.a, i.wide.a, i.imm) = (a.reg, a.wide, a.offset);
        let bar = self.address(&ops[2])?;
        (i.c, i.wide.c, i.imm2) = (bar.reg, bar.wide, bar.offset);
        self.emit(i);
        Ok(())
    }

    /// `red.async`: a reduction in a CTA of the cluster that completes bytes on an mbarrier.
    fn reduce_async(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 3, 3)?;
        let mut i = Inst::new(Op::RedAsync);
        let ok = mods.take("relaxed")
            && mods.take("cluster")
            && mods.take("shared::cluster")
            && mods.take("mbarrier::complete_tx::bytes");
        let name = mods.take_any(&ATOMICS).ok_or_else(|| mods.unsupported())?;
        let ty = mods.take_type()?;
        mods.finish()?;
        if !ok || !reduce_async_types(name).contains(&ty) {
            return Err(mods.unsupported());
        }
        i.sel = ATOMICS.iter().position(|n| *n == name).unwrap_or(0) as u8;
        (i.size, i.target, i.space) = (ty.size() as u8, ty as u32, Space::Shared);
        i.wide.ext = ty.size() == 8;
        let a = self.address(&ops[0])?;
        (i.a, i.wide.a, i.imm) = (a.reg, a.wide, a.offset);
        let v = self.src(&ops[1], kind_of(ty))?;
        self.extend(&mut i, &[], &[v]);
        let bar = self.address(&ops[2])?;
        (i.c, i.wide.c, i.imm2) = (bar.reg, bar.wide, bar.offset);
        self.emit(i);
        Ok(())
    }

    fn atomic(&mut self, reduce: bool, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        if mods.take("async") {
            return if reduce { self.reduce_async(mods, ops) } else { Err(mods.unsupported()) };
        }
        let mut i = Inst::new(Op::Atom);
        self.ordering(&mut mods, &mut i);
        i.flags |= flag::STRONG;
        i.space = self.space(&mut mods);
        let name = mods.take_any(&ATOMICS).ok_or_else(|| mods.unsupported())?;
        mods.take("noftz");
        i.count = self.vector(&mut mods);
        let ty = mods.take_type()?;
        let kind = kind_of(ty);
        let sources = if name == "cas" { 2 } else { 1 };
        let k = usize::from(!reduce);
        self.cache_policy(&mut mods, ops, k + 1 + sources)?;
        mods.finish()?;
        i.sel = ATOMICS.iter().position(|n| *n == name).unwrap_or(0) as u8;
        let legal = atomic_types(name).contains(&ty) && !(reduce && matches!(name, "exch" | "cas"));
        if !legal || i.count != 1 || matches!(i.space, Space::Local | Space::Param | Space::Const) {
            return Err(mods.unsupported());
        }
        i.size = ty.size() as u8;
        i.imm2 = ty as i64;
        i.wide.d = kind.bank() == Bank::D;
        if reduce {
            i.flags |= flag::NORESULT;
        } else {
            i.d = self.dst(&ops[0], kind)?;
        }
        let a = self.address(&ops[k])?;
        (i.a, i.wide.a, i.imm) = (a.reg, a.wide, a.offset);
        i.b = self.src(&ops[k + 1], kind)?;
        if sources == 2 {
            i.c = self.src(&ops[k + 2], kind)?;
        }
        if matches!(i.space, Space::Generic | Space::Global) {
            self.prog.ordered_blocks = true;
        }
        self.emit(i);
        Ok(())
    }

    fn cvta(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        self.arity(ops, 2, 2)?;
        let to = mods.take("to");
        let base = match self.space(&mut mods) {
            Space::Global | Space::Const => 0,
            Space::Shared => window_base(SHARED_WINDOW),
            Space::Local => window_base(LOCAL_WINDOW),
            Space::Param => window_base(PARAM_WINDOW),
            Space::Generic => return Err(mods.unsupported()),
        };
        if mods.take_type()? != Type::U64 {
            return Err(mods.unsupported());
        }
        mods.finish()?;
        let mut i = Inst::new(Op::Alu);
        let name = if to { "sub.u64" } else { "add.u64" };
        i.alu = alu::lookup(name).ok_or_else(|| mods.unsupported())?.pick();
        i.a = self.src(&ops[1], Kind::B64)?;
        i.b = self.double(base);
        i.d = self.dst(&ops[0], Kind::B64)?;
        self.emit(i);
        Ok(())
    }
}
