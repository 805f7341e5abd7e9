//! State of resolving one kernel: scopes, registers, constants, labels and the code so far.

use super::forms::{Family, MNEMONICS};
use super::opcode::Mods;
use super::{GlobalVar, Param, Place, Program, Special};
use crate::error::{Diagnostic, Pos};
use crate::exec::inst::{Inst, NONE, Op, tag};
use crate::exec::regs::Bank;
use crate::memory::window_base;
use crate::syntax::ast::{
    Constant, Function, Init, Instruction, Item, Module, Operand, Space, Stmt, StmtKind, Type, Variable,
};
use std::collections::HashMap;

pub(super) type Result<T> = std::result::Result<T, Diagnostic>;

/// First window of module variables.
pub(crate) const GLOBAL_VAR_WINDOW: u64 = 0x80000;

/// Decoded instructions beyond which inlining is refused.
const MAX_CODE: usize = 1 << 20;

/// Bytes of one module variable beyond which it is refused; tables of real kernels are far smaller.
const MAX_VARIABLE: u64 = 64 << 20;

/// Errors reported for one kernel before giving up.
const MAX_ERRORS: usize = 100;

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
    syms: HashMap<String, Sym>,
    /// Registers declared as `prefix<count>`, by prefix: first tagged id, count, type.
    ranges: Vec<(String, u32, u32, Type)>,
    labels: HashMap<String, usize>,
    tables: HashMap<String, Vec<String>>,
}

impl Scope {
    pub(super) fn define(&mut self, name: &str, sym: Sym) {
        self.syms.insert(name.into(), sym);
    }
}

pub(super) struct Builder<'m> {
    pub(super) module: &'m Module,
    pub(super) prog: Program,
    pub(super) scopes: Vec<Scope>,
    /// Code position of each label, once known.
    labels: Vec<Option<u32>>,
    branch_fixes: Vec<(usize, usize)>,
    table_fixes: Vec<(usize, Vec<usize>)>,
    pub(super) words: HashMap<u32, u32>,
    pub(super) doubles: HashMap<u64, u32>,
    pub(super) specials: HashMap<Special, u32>,
    opcodes: HashMap<String, u32>,
    pub(super) carry: Option<u32>,
    /// Position of the statement being resolved.
    pub(super) pos: Pos,
    place: Place,
    guard: (u32, u32),
    /// Where `ret` goes inside an inlined function, and the names being inlined.
    pub(super) ret: Option<usize>,
    pub(super) inlining: Vec<String>,
    errors: Vec<Diagnostic>,
}

pub(super) fn build(module: &Module, entry: &str) -> std::result::Result<Program, Vec<Diagnostic>> {
    let Some(f) = module.functions().find(|f| f.entry && f.name == entry) else {
        let known: Vec<_> = module.entries().collect();
        let message = format!("no kernel `{entry}`; the module has: {}", known.join(", "));
        return Err(vec![Diagnostic::resolve(Pos::default(), message)]);
    };
    let mut b = Builder::new(module, f);
    if let Err(e) = b.globals(f) {
        b.errors.push(e);
    }
    b.kernel(f);
    if b.errors.is_empty() { Ok(b.finish()) } else { Err(b.errors) }
}

impl<'m> Builder<'m> {
    fn new(module: &'m Module, f: &Function) -> Self {
        let dim = |d: &[u64]| [0, 1, 2].map(|k| d.get(k).copied().unwrap_or(1));
        let cluster = f.directive(".reqnctapercluster").map(|d| dim(d).map(|v| v as u32));
        let prog = Program {
            name: f.name.clone(),
            arch: module.target.first().cloned().unwrap_or_default(),
            code: Vec::new(),
            places: Vec::new(),
            opcodes: Vec::new(),
            files: Vec::new(),
            pool: Vec::new(),
            converts: Vec::new(),
            mmas: Vec::new(),
            wgmmas: Vec::new(),
            tables: Vec::new(),
            banks: [0; 3],
            init_words: Vec::new(),
            init_doubles: Vec::new(),
            specials: Vec::new(),
            frame: 0,
            static_shared: 0,
            dynamic_base: 0,
            shared_vars: Vec::new(),
            params: Vec::new(),
            param_bytes: 0,
            globals: Vec::new(),
            max_threads: f.directive(".maxntid").map(|d| d.iter().fold(1u64, |a, b| a.saturating_mul(*b))),
            required_block: f.directive(".reqntid").map(dim),
            cluster,
            ordered_blocks: false,
            uses_async_proxy: false,
            word_operands: Vec::new(),
        };
        Self {
            module,
            prog,
            scopes: vec![Scope::default()],
            labels: Vec::new(),
            branch_fixes: Vec::new(),
            table_fixes: Vec::new(),
            words: HashMap::new(),
            doubles: HashMap::new(),
            specials: HashMap::new(),
            opcodes: HashMap::new(),
            carry: None,
            pos: f.at.0,
            place: Place::default(),
            guard: (NONE, 0),
            ret: None,
            inlining: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Places module variables and the kernel's parameters.
    fn globals(&mut self, f: &Function) -> Result<()> {
        let module = self.module;
        let variables = module.items.iter().filter_map(|i| if let Item::Variable(v) = i { Some(v) } else { None });
        let mut later = Vec::new();
        for v in variables {
            if v.space == Space::Shared {
                if v.size() > 0 {
                    self.place_shared(v)?;
                }
                continue;
            }
            let n = self.prog.globals.len();
            let address = window_base(GLOBAL_VAR_WINDOW + n as u64);
            if v.size() > MAX_VARIABLE {
                return Err(Diagnostic::unsupported(
                    v.at.0,
                    format!("variable `{}` is larger than {MAX_VARIABLE} bytes", v.name),
                ));
            }
            self.scopes[0].define(&v.name, Sym::Global(address));
            self.prog.globals.push(GlobalVar {
                name: v.name.clone(),
                bytes: vec![0; v.size() as usize],
                constant: v.space == Space::Const,
            });
            later.push((n, v));
        }
        for (n, v) in later {
            if let Some(init) = &v.init {
                let mut bytes = Vec::new();
                self.init_bytes(init, v, &mut bytes)?;
                let var = &mut self.prog.globals[n];
                if bytes.len() > var.bytes.len() {
                    var.bytes.resize(bytes.len(), 0);
                }
                var.bytes[..bytes.len()].copy_from_slice(&bytes);
            }
        }
        let mut offset = 0u64;
        for p in &f.params {
            offset = offset.next_multiple_of(p.alignment());
            self.scopes[0].define(&p.name, Sym::Param(offset));
            self.prog.params.push(Param { name: p.name.clone(), offset, size: p.size() });
            offset = offset.saturating_add(p.size());
            if offset > 32764 {
                return Err(Diagnostic::resolve(p.at.0, "parameters exceed 32764 bytes"));
            }
        }
        self.prog.param_bytes = offset as usize;
        self.prog.files = module
            .items
            .iter()
            .filter_map(|i| if let Item::File { index, path, .. } = i { Some((*index, path.clone())) } else { None })
            .collect();
        Ok(())
    }

    fn init_bytes(&self, init: &Init, v: &Variable, out: &mut Vec<u8>) -> Result<()> {
        let size = v.ty.size() as usize;
        let value = match init {
            Init::List(l) => return l.iter().try_for_each(|x| self.init_bytes(x, v, out)),
            Init::Value(Constant::Int(i)) if v.ty == Type::F32 => u64::from((*i as f32).to_bits()),
            Init::Value(Constant::Int(i)) if v.ty == Type::F64 => (*i as f64).to_bits(),
            Init::Value(Constant::Int(i)) => *i as u64,
            Init::Value(Constant::F32(b)) if v.ty == Type::F64 => f64::from(f32::from_bits(*b)).to_bits(),
            Init::Value(Constant::F32(b)) => u64::from(*b),
            Init::Value(Constant::F64(b)) if size == 4 => u64::from((f64::from_bits(*b) as f32).to_bits()),
            Init::Value(Constant::F64(b)) => *b,
            Init::Symbol { name, offset, .. } => match self.scopes[0].syms.get(name) {
                Some(Sym::Global(a)) => a.wrapping_add(*offset as u64),
                _ => {
                    return Err(Diagnostic::unsupported(
                        v.at.0,
                        format!("initial value of `{}` uses `{name}`, which is not a global variable", v.name),
                    ));
                }
            },
        };
        out.extend_from_slice(&value.to_le_bytes()[..size.min(8)]);
        Ok(())
    }

    fn place_shared(&mut self, v: &Variable) -> Result<u64> {
        let offset = (self.prog.static_shared as u64).next_multiple_of(v.alignment());
        let end = offset.saturating_add(v.size());
        if end > 1 << 20 {
            return Err(Diagnostic::resolve(v.at.0, format!("`{}` does not fit shared memory", v.name)));
        }
        self.prog.static_shared = end as usize;
        self.prog.shared_vars.push((v.name.clone(), offset, v.size()));
        self.scopes[0].define(&v.name, Sym::Shared(offset));
        Ok(offset)
    }

    /// Shared variables of bodies live as long as the block: they are placed before the dynamic part.
    fn scan_shared(&mut self, body: &[Stmt]) -> Result<()> {
        for s in body {
            match &s.kind {
                StmtKind::Block(b) => self.scan_shared(b)?,
                StmtKind::Variable(v) if v.space == Space::Shared && v.size() > 0 => {
                    self.place_shared(v)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn kernel(&mut self, f: &Function) {
        let Some(body) = &f.body else { return };
        for g in self.module.functions().filter(|g| g.entry == (g.name == f.name)) {
            if let Some(b) = &g.body
                && let Err(e) = self.scan_shared(b)
            {
                self.errors.push(e);
            }
        }
        let dynamic: Vec<_> = self
            .module
            .items
            .iter()
            .filter_map(|i| if let Item::Variable(v) = i { Some(v) } else { None })
            .filter(|v| v.space == Space::Shared && v.size() == 0)
            .collect();
        let align = dynamic.iter().map(|v| v.alignment()).max().unwrap_or(16).max(16);
        self.prog.dynamic_base = self.prog.static_shared.next_multiple_of(align as usize);
        for v in dynamic {
            let base = self.prog.dynamic_base as u64;
            self.scopes[0].define(&v.name, Sym::Shared(base));
        }
        self.block(body);
        // Falling off the end is an exit.
        self.guard = (NONE, 0);
        self.emit(Inst::new(Op::Exit));
    }

    fn finish(mut self) -> Program {
        for (at, label) in std::mem::take(&mut self.branch_fixes) {
            self.prog.code[at].target = self.labels[label].unwrap_or(0);
        }
        for (table, labels) in std::mem::take(&mut self.table_fixes) {
            self.prog.tables[table] = labels.iter().map(|&l| self.labels[l].unwrap_or(0)).collect();
        }
        super::regalloc::assign(&mut self.prog);
        self.prog
    }

    /// Resolves the statements of a scope.
    pub(super) fn block(&mut self, body: &[Stmt]) {
        self.scopes.push(Scope::default());
        for s in body {
            if let StmtKind::Label(l) = &s.kind {
                let id = self.new_label();
                if let Some(scope) = self.scopes.last_mut()
                    && scope.labels.insert(l.clone(), id).is_some()
                {
                    self.errors.push(Diagnostic::resolve(s.at.0, format!("label `{l}` is defined twice")));
                }
            }
            if let StmtKind::BranchTargets { name, targets } = &s.kind
                && let Some(scope) = self.scopes.last_mut()
            {
                scope.tables.insert(name.clone(), targets.clone());
            }
        }
        for s in body {
            self.pos = s.at.0;
            if let Err(e) = self.statement(s) {
                self.errors.push(e);
            }
            if self.errors.len() > MAX_ERRORS {
                break;
            }
        }
        self.scopes.pop();
    }

    fn statement(&mut self, s: &Stmt) -> Result<()> {
        match &s.kind {
            StmtKind::Block(b) => self.block(b),
            StmtKind::Label(l) => {
                let here = self.prog.code.len() as u32;
                if let Some(&id) = self.scopes.last().and_then(|sc| sc.labels.get(l)) {
                    self.labels[id] = Some(here);
                }
            }
            StmtKind::Registers { ty, vector, names } => self.registers(*ty, *vector, names)?,
            StmtKind::Variable(v) => self.variable(v)?,
            StmtKind::Loc(l) => {
                self.place.file = l.file;
                self.place.source_line = l.line;
            }
            StmtKind::Instruction(i) => {
                if self.prog.code.len() > MAX_CODE {
                    return Err(Diagnostic::unsupported(self.pos, "code grows beyond 2^20 instructions"));
                }
                self.instruction(i)?;
            }
            StmtKind::BranchTargets { .. } | StmtKind::CallPrototype { .. } | StmtKind::Pragma(_) => {}
        }
        Ok(())
    }

    fn registers(&mut self, ty: Type, vector: Option<u8>, names: &[(String, Option<u32>)]) -> Result<()> {
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
                match count {
                    None => scope.define(name, register(tag(bank, first), 0, ty)),
                    Some(c) => scope.ranges.push((name.clone(), tag(bank, first), *c, ty)),
                }
            }
        }
        Ok(())
    }

    fn variable(&mut self, v: &Variable) -> Result<()> {
        match v.space {
            // Placed before; a scope's own name hides outer ones.
            Space::Shared => {
                if let Some(sym) = self.scopes[0].syms.get(&v.name).cloned()
                    && let Some(scope) = self.scopes.last_mut()
                {
                    scope.define(&v.name, sym);
                }
                Ok(())
            }
            Space::Local | Space::Param => {
                let offset = self.local_slot(v)?;
                if let Some(scope) = self.scopes.last_mut() {
                    scope.define(&v.name, Sym::Local(offset));
                }
                Ok(())
            }
            s => Err(Diagnostic::unsupported(
                v.at.0,
                format!("`{}` variables inside a body are not supported", s.text()),
            )),
        }
    }

    /// Reserves space in the lane's local frame.
    pub(super) fn local_slot(&mut self, v: &Variable) -> Result<u64> {
        let offset = (self.prog.frame as u64).next_multiple_of(v.alignment());
        let end = offset.saturating_add(v.size());
        if end > 512 << 10 {
            return Err(Diagnostic::resolve(v.at.0, "local memory exceeds 512 KiB a thread"));
        }
        self.prog.frame = end as usize;
        Ok(offset)
    }

    fn instruction(&mut self, i: &Instruction) -> Result<()> {
        self.place.line = self.pos.line;
        let next = self.opcodes.len() as u32;
        self.place.opcode = *self.opcodes.entry(i.opcode.clone()).or_insert_with(|| {
            self.prog.opcodes.push(i.opcode.clone());
            next
        });
        self.guard = match &i.guard {
            None => (NONE, 0),
            Some((name, negated)) => {
                let id = self.predicate_name(name, self.pos)?;
                (id, if *negated { !0 } else { 0 })
            }
        };
        let mods = Mods::new(&i.opcode, self.pos);
        let mnemonic = i.opcode.split('.').next().unwrap_or("");
        self.dispatch(mnemonic, mods, &i.operands)
    }

    fn dispatch(&mut self, mnemonic: &str, mods: Mods, ops: &[Operand]) -> Result<()> {
        let family = MNEMONICS.iter().find(|m| m.0 == mnemonic).map(|m| m.1);
        match family {
            Some(Family::Control) => self.control(mnemonic, mods, ops),
            Some(Family::Call) => self.call(mods, ops),
            Some(Family::Memory) => self.memory(mnemonic, mods, ops),
            Some(Family::Warp) => self.warp(mnemonic, mods, ops),
            Some(Family::Tensor) => self.tensor(mnemonic, mods, ops),
            Some(Family::Asynchronous) => self.asynchronous(mnemonic, mods, ops),
            None => self.arithmetic(mnemonic, mods, ops),
        }
    }

    /// Appends an instruction under the current guard.
    pub(super) fn emit(&mut self, mut i: Inst) {
        (i.guard, i.guard_flip) = self.guard;
        self.prog.code.push(i);
        self.prog.places.push(self.place);
    }

    /// The guard of the instruction being resolved.
    pub(super) fn guard(&self) -> (u32, u32) {
        self.guard
    }

    pub(super) fn set_guard(&mut self, guard: (u32, u32)) {
        self.guard = guard;
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
