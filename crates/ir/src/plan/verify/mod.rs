//! The verifier: every rule of plans, checked on any [`Plan`], however malformed.
//!
//! It never panics, reports every violation and reports nothing on a plan that keeps the rules. What depends on a function
//! that is not valid itself is not looked at, as roles and formulas have no meaning there. A violation is a bug of the
//! compiler, never of the user. `docs/plan.md` lists the rules.

mod canon;
mod cover;
mod decisions;
mod derived;
mod formulas;
mod legal;
mod steps;

use super::role::{Role, Roles};
use super::{KernelId, Phase, Plan, range};
use crate::ir::{Func, Module, OpId, verify as module};
use crate::ty::Env;
use std::collections::BTreeSet;
use std::fmt;

macro_rules! checks {
    ($($case:ident $text:literal $line:literal,)*) => {
        /// What the verifier checks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check {
            $(#[doc = $line] $case),*
        }

        impl Check {
            /// All of them, in order.
            pub const ALL: &[Check] = &[$(Check::$case),*];

            /// The name, as errors show it.
            pub fn name(self) -> &'static str {
                match self { $(Check::$case => $text),* }
            }

            /// The rule, in a line.
            pub fn doc(self) -> &'static str {
                match self { $(Check::$case => $line),* }
            }
        }
    };
}

checks! {
    Module "module" "The module and the load module keep the rules of the IR.",
    Canonical "canonical" "Ops, values and regions of a function are numbered in the order of the text.",
    Phases "phases" "There is one phase a function.",
    Ids "ids" "Ids name something that exists.",
    Cover "cover" "Every op that works stands in exactly one kernel.",
    Ops "ops" "A kernel has ops that work; they stand in order and once, and are work or repeated work, nothing else.",
    Block "block" "The ops a kernel works on stand in its block.",
    Contiguous "contiguous" "No other kernel's work and no control stands between the ops of a kernel.",
    Family "family" "The family is the one its anchors name.",
    Mechanisms "mechanisms" "Mechanisms are sorted, in the family's row of the table, and those its ops need.",
    Legality "legality" "What stands before and behind an anchor is what the family's row of the table allows.",
    Limits "limits" "A kernel has no more ops and operands than the table allows.",
    Rows "rows" "Ops of a row-wise kernel keep a leading axis apart, or one block can do all of it.",
    Steps "steps" "Steps mirror the loops and cases of the function, in the order of the text.",
    Launches "launches" "Every kernel is launched exactly once, among the steps of its block, and numbered by its launch.",
    Repeated "repeated" "The repeated ops of a kernel are those its work needs.",
    Reads "reads" "Reads are what the kernel's ops come to.",
    Writes "writes" "Writes are what others need of the kernel's results.",
    Leaves "leaves" "A kernel leaves the row statistics its readers finish, and no others.",
    Grid "grid" "The grid is that of the family's schedule.",
    Flops "flops" "The arithmetic is that of the kernel's ops.",
    After "after" "A kernel waits for the kernels of its block whose results and states it needs.",
    Order "order" "What a kernel waits for is launched before it.",
    Buffers "buffers" "Buffers are the inputs of the phase and what crosses kernels.",
    Decisions "decisions" "A decision has two ops that work, stands once, has a reason that goes with its outcome, and a refusal its particulars.",
    Outcome "outcome" "A fusion is recorded as taken if and only if both ops share a kernel.",
    Derived "derived" "Derived weights are the last weights, each with its function in the load module.",
}

/// A violated rule of a plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanError {
    /// The rule.
    pub check: Check,
    /// The function of the phase, if the error lies in one.
    pub phase: Option<String>,
    /// The kernel, if the error lies in one.
    pub kernel: Option<KernelId>,
    /// The op as people know it: its node path in the spec, else its opcode and number; may be empty.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(phase) = &self.phase {
            write!(f, "phase {phase}: ")?;
        }
        if let Some(kernel) = self.kernel {
            write!(f, "kernel {}: ", kernel.0)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{} [{}]", self.message, self.check.name())
    }
}

impl std::error::Error for PlanError {}

/// Every violated rule of a plan: first those of its modules and derived weights, then phase by phase.
pub fn verify(plan: &Plan) -> Vec<PlanError> {
    let mut out = Vec::new();
    let broken = modules(plan, &mut out);
    derived::check(plan, &mut out);
    if plan.phases.len() != plan.module.funcs.len() {
        let message = format!("{} phases for {} functions", plan.phases.len(), plan.module.funcs.len());
        out.push(PlanError { check: Check::Phases, phase: None, kernel: None, path: String::new(), message });
    }
    if broken.tables {
        return out;
    }
    let [small, large] = range(&plan.module);
    for (i, (func, phase)) in plan.module.funcs.iter().zip(&plan.phases).enumerate() {
        if !broken.funcs.contains(&i) {
            out.extend(self::phase(plan, func, phase, [&small, &large]));
        }
    }
    out
}

/// What is not valid in the module.
#[derive(Default)]
struct Broken {
    tables: bool,
    funcs: BTreeSet<usize>,
}

fn modules(plan: &Plan, out: &mut Vec<PlanError>) -> Broken {
    let mut broken = Broken::default();
    for (module, which) in [(&plan.module, ""), (&plan.load, "load module: ")] {
        for e in module::verify(module) {
            if which.is_empty() {
                match e.site.func() {
                    Some(f) => broken.funcs.insert(f.index()),
                    None => std::mem::replace(&mut broken.tables, true),
                };
            }
            let (phase, path) = (e.func.clone(), e.path.to_string());
            out.push(PlanError {
                check: Check::Module,
                phase,
                kernel: None,
                path,
                message: format!("{which}{}", e.message),
            });
        }
        for (i, func) in module.funcs.iter().enumerate() {
            if (!which.is_empty() || !broken.funcs.contains(&i)) && !canon::is_canonical(func) {
                broken.funcs.extend(which.is_empty().then_some(i));
                let message = format!("{which}ids do not follow the text");
                let phase = Some(func.name.clone());
                out.push(PlanError { check: Check::Canonical, phase, kernel: None, path: String::new(), message });
            }
        }
    }
    broken
}

/// What the checks of a phase share; function and tables are valid.
struct Cx<'a> {
    module: &'a Module,
    func: &'a Func,
    phase: &'a Phase,
    roles: Roles,
    large: &'a Env,
    /// The kernel an op that works stands in, the first if there are several.
    owner: Vec<Option<usize>>,
    /// By kernel, the ops that work and exist.
    work: Vec<BTreeSet<OpId>>,
    errors: Vec<PlanError>,
}

fn phase(plan: &Plan, func: &Func, phase: &Phase, [_, large]: [&Env; 2]) -> Vec<PlanError> {
    let roles = Roles::of(func, large, plan.reassociate);
    let mut cx = Cx {
        module: &plan.module,
        func,
        phase,
        roles,
        large,
        owner: vec![None; func.ops.len()],
        work: Vec::new(),
        errors: Vec::new(),
    };
    cover::check(&mut cx);
    legal::check(&mut cx);
    steps::check(&mut cx);
    formulas::check(&mut cx);
    decisions::check(&mut cx);
    cx.errors
}

impl Cx<'_> {
    fn error(&mut self, check: Check, kernel: Option<usize>, op: Option<OpId>, message: impl Into<String>) {
        let path = op.map_or_else(String::new, |id| name(self.func, id));
        let kernel = kernel.map(|k| KernelId(k as u32));
        let phase = Some(self.func.name.clone());
        self.errors.push(PlanError { check, phase, kernel, path, message: message.into() });
    }

    /// The role of an op that exists and stands in a block of kernels.
    fn role(&self, id: OpId) -> Option<Role> {
        self.roles.block.get(id.index()).copied().flatten()?;
        self.roles.role.get(id.index()).copied()
    }

    fn works(&self, id: OpId) -> bool {
        self.role(id) == Some(Role::Work)
    }
}

/// An op for people: what the spec calls it, else what it is.
pub(crate) fn name(func: &Func, id: OpId) -> String {
    let Some(op) = func.ops.get(id.index()) else { return format!("op {}", id.0) };
    let named = op.results.iter().filter_map(|v| func.values.get(v.index())).flat_map(|v| &v.names).next();
    match named {
        Some(name) => name.to_string(),
        None if op.loc.path.is_empty() => format!("{} (op {})", op.code.name(), id.0),
        None => format!("{} in {}", op.code.name(), op.loc.path),
    }
}
