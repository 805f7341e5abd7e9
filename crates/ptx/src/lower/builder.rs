//! Resolving one kernel: its statements and instructions in order, and the code so far.

use super::forms::{Family, MNEMONICS};
use super::opcode::Mods;
use super::scope::{Scope, Sym};
use super::{Place, Program, Special};
use crate::error::{Diagnostic, Pos};
use crate::exec::inst::{Inst, NONE, Op};
use crate::syntax::ast::{Function, Instruction, Item, Module, Operand, Space, Stmt, StmtKind};
use std::collections::HashMap;

pub(super) type Result<T> = std::result::Result<T, Diagnostic>;

/// First window of module variables.
pub(crate) const GLOBAL_VAR_WINDOW: u64 = 0x80000;

/// Decoded instructions beyond which inlining is refused.
const MAX_CODE: usize = 1 << 20;

/// Errors reported for one kernel before giving up.
const MAX_ERRORS: usize = 100;

pub(super) struct Builder<'m> {
    pub(super) module: &'m Module,
    pub(super) prog: Program,
    pub(super) scopes: Vec<Scope>,
    /// Code position of each label, once known.
    pub(super) labels: Vec<Option<u32>>,
    pub(super) branch_fixes: Vec<(usize, usize)>,
    pub(super) table_fixes: Vec<(usize, Vec<usize>)>,
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
    b.unique_functions();
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
            wmmas: Vec::new(),
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

    /// A name has one body, and addresses have 64 bits.
    fn unique_functions(&mut self) {
        if self.module.address_size != 64 {
            let message = format!("addresses of {} bits are not supported", self.module.address_size);
            self.errors.push(Diagnostic::unsupported(Pos { line: 1, column: 1 }, message));
        }
        let mut names = std::collections::HashSet::new();
        for f in self.module.functions() {
            if !names.insert(f.name.as_str()) {
                self.errors.push(Diagnostic::resolve(f.at.0, format!("`{}` is defined twice", f.name)));
            }
        }
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
}
