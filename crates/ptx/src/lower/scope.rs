//! Names: what they stand for, scopes, registers, labels and jump tables.

use super::builder::{Builder, Result};
use crate::error::{Diagnostic, Pos};
use crate::exec::inst::{Inst, tag};
use crate::exec::regs::Bank;
use crate::syntax::ast::Type;
use std::collections::HashMap;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Sym {
    /// A register, tagged with its bank, and its declared type.
    Reg(u32, Type),
    /// A 128-bit register: two tagged 64-bit ones, the lower half first.
    Quad(u32, u32),
    /// Offset in shared memory.
    Shared(u64),
    /// Offset in the lane's local frame: local variables and parameters of calls.
    Local(u64),
    /// Offset in the kernel's parameter block.
    Param(u64),
    /// Generic address of a module variable.
    Global(u64),
}

#[derive(Default)]
pub(super) struct Scope {
    pub(super) syms: HashMap<String, Sym>,
    /// Registers declared as `prefix<count>`, by prefix: first tagged id, count, type.
    ranges: Vec<(String, u32, u32, Type)>,
    pub(super) labels: HashMap<String, usize>,
    pub(super) tables: HashMap<String, Vec<String>>,
}

impl Scope {
    pub(super) fn define(&mut self, name: &str, sym: Sym) {
        self.syms.insert(name.into(), sym);
    }

    /// Whether a declaration in this scope has already made a register that one of this name, or range, would make.
    fn has_register(&self, name: &str, count: Option<u32>) -> bool {
        let inside = |prefix: &str, count: u32, name: &str| {
            let number = name.strip_prefix(prefix).filter(|n| *n == "0" || !n.starts_with('0'));
            number.and_then(|n| n.parse::<u32>().ok()).is_some_and(|k| k < count)
        };
        match count {
            None => self.syms.contains_key(name) || self.ranges.iter().any(|r| inside(&r.0, r.2, name)),
            Some(c) => self.ranges.iter().any(|r| r.0 == name) || self.syms.keys().any(|s| inside(name, c, s)),
        }
    }
}

impl Builder<'_> {
    pub(super) fn registers(&mut self, ty: Type, vector: Option<u8>, names: &[(String, Option<u32>)]) -> Result<()> {
        if vector.is_some() {
            return Err(Diagnostic::unsupported(self.pos, "vector registers are not supported"));
        }
        for (name, count) in names {
            let bank = bank_of(ty);
            let first = self.prog.banks[bank as usize] as u32;
            let halves = if ty == Type::B128 { 2 } else { 1 };
            let n = count.unwrap_or(1).saturating_mul(halves);
            if u64::from(first) + u64::from(n) >= 1 << 24 {
                return Err(Diagnostic::unsupported(self.pos, "more than 2^24 registers"));
            }
            self.prog.banks[bank as usize] += n as usize;
            if let Some(scope) = self.scopes.last_mut() {
                if scope.has_register(name, *count) {
                    return Err(Diagnostic::resolve(self.pos, format!("register `{name}` is declared twice")));
                }
                match count {
                    None => scope.define(name, register(tag(bank, first), 0, ty)),
                    Some(c) => scope.ranges.push((name.clone(), tag(bank, first), *c, ty)),
                }
            }
        }
        Ok(())
    }

    pub(super) fn new_label(&mut self) -> usize {
        self.labels.push(None);
        self.labels.len() - 1
    }

    pub(super) fn place_label(&mut self, label: usize) {
        self.labels[label] = Some(self.prog.code.len() as u32);
    }

    pub(super) fn emit_branch(&mut self, i: Inst, label: usize) {
        self.branch_fixes.push((self.prog.code.len(), label));
        self.emit(i);
    }

    pub(super) fn find_label(&self, name: &str, pos: Pos) -> Result<usize> {
        let hit = self.scopes.iter().rev().find_map(|s| s.labels.get(name).copied());
        hit.ok_or_else(|| Diagnostic::resolve(pos, format!("label `{name}` is not defined here")))
    }

    /// Adds the jump table `name` and returns its index.
    pub(super) fn jump_table(&mut self, name: &str, pos: Pos) -> Result<u32> {
        let targets = self.scopes.iter().rev().find_map(|s| s.tables.get(name).cloned());
        let targets =
            targets.ok_or_else(|| Diagnostic::resolve(pos, format!("jump table `{name}` is not defined here")))?;
        let labels = targets.iter().map(|t| self.find_label(t, pos)).collect::<Result<Vec<_>>>()?;
        self.table_fixes.push((self.prog.tables.len(), labels));
        self.prog.tables.push(Vec::new());
        Ok(self.prog.tables.len() as u32 - 1)
    }

    pub(super) fn find(&self, name: &str) -> Option<Sym> {
        for s in self.scopes.iter().rev() {
            if let Some(sym) = s.syms.get(name) {
                return Some(sym.clone());
            }
            for (prefix, first, count, ty) in &s.ranges {
                if let Some(n) = name.strip_prefix(prefix.as_str())
                    && let Ok(k) = n.parse::<u32>()
                    && k < *count
                    && (n == "0" || !n.starts_with('0'))
                {
                    return Some(register(*first, k, *ty));
                }
            }
        }
        None
    }
}

/// Bank of registers of a type.
pub(super) fn bank_of(ty: Type) -> Bank {
    match ty {
        Type::Pred => Bank::P,
        t if t.size() >= 8 => Bank::D,
        _ => Bank::R,
    }
}

/// Register `k` of those declared together from `first`.
fn register(first: u32, k: u32, ty: Type) -> Sym {
    if ty == Type::B128 { Sym::Quad(first + 2 * k, first + 2 * k + 1) } else { Sym::Reg(first + k, ty) }
}

/// Value of a symbol's address; registers have none.
pub(super) fn symbol_value(sym: &Sym) -> Option<u64> {
    match sym {
        Sym::Reg(..) | Sym::Quad(..) => None,
        Sym::Shared(v) | Sym::Local(v) | Sym::Param(v) | Sym::Global(v) => Some(*v),
    }
}
