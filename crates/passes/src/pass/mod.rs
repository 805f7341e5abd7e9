//! The pass manager: one static table, run in order, every result verified.

mod budget;
pub mod check;
pub(crate) mod clean;
mod derive;
mod group;
mod rebuild;
mod rewrite;

use crate::choose::{Refusal, Variant};
use crate::cost::Device;
use crate::history::History;
use crate::rules::{Class, Rule, rules};
use crate::saturate::{self, Limits};
use spinec_ir::ir::{Module, WeightId, canonical, text, verify};
use spinec_ir::plan::derived_element;
use spinec_ir::spec::system::System;
use std::collections::{BTreeMap, BTreeSet};

/// A module with what has to be computed before it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The module. Its last weights are the derived ones.
    pub module: Module,
    /// One function a derived weight, by the weight's name, without inputs and with one output: the value of the weight, in
    /// the weight's type. A weight of a loop has all its elements stacked along a new first axis, those only that exist, in
    /// the order of the index. Its weights are those of `module` before any was derived.
    pub load: Module,
    /// The derived weights in the order of their ids.
    pub derived: Vec<Derived>,
    /// What happened in every distinct region.
    pub regions: Vec<RegionRecord>,
}

impl Program {
    /// How often each rule united two classes, over all distinct regions.
    pub fn fired(&self) -> BTreeMap<&'static str, usize> {
        let mut out = BTreeMap::new();
        for (rule, n) in self.regions.iter().flat_map(|r| &r.saturation.fired) {
            *out.entry(*rule).or_default() += n;
        }
        out
    }

    /// Where the element of a derived weight for some loop indices stands in the value its function computes; `None` if the
    /// weight has no loops or no such element.
    pub fn element(&self, derived: usize, index: &[i64]) -> Option<usize> {
        derived_element(self.module.weight(self.derived.get(derived)?.weight), index)
    }
}

/// A derived weight of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// Its id in the module.
    pub weight: WeightId,
    /// Names of the weights it is computed from.
    pub of: Vec<String>,
    /// Resident bytes.
    pub bytes: u64,
    /// Picoseconds all functions together, each run once, would take longer without it.
    pub saving_ps: u64,
}

/// What saturation and extraction did to a region, recorded once for all regions of the same structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRecord {
    /// The function, and the node path of the first op.
    pub at: String,
    /// Ops before.
    pub ops: usize,
    /// Saturation.
    pub saturation: saturate::Report,
    /// Linear maps of one operand, which are costed as one kernel.
    pub groups: Vec<Group>,
    /// Refused derived weights.
    pub refused: Vec<Refusal>,
    /// Time of a run as chosen, picoseconds.
    pub time_ps: u64,
    /// How often all regions of this structure run when every function runs once.
    pub runs: u64,
    /// Trades of time for memory.
    pub variants: Vec<Variant>,
    /// How many other regions have this structure.
    pub shared: usize,
    /// Function and region, by number, of all regions of this structure, in the module that the pass was given
    /// ([`crate::region::cut`]).
    pub regions: Vec<(usize, usize)>,
    /// The weakest class of what was done: of the rules that fired, and of narrower storage.
    pub class: Class,
    /// Derived weights that are stored narrower than they are computed ([`crate::choose::NARROW_STORAGE`]).
    pub narrowed: usize,
    /// How its terms came about; none unless [`Options::record`] asks for it.
    pub history: Option<History>,
}

/// Linear maps of one operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Node path of the operand; empty if the spec has no such value.
    pub operand: String,
    /// The maps in the order of the term.
    pub maps: Vec<Map>,
    /// Why they are one kernel.
    pub reason: &'static str,
}

/// A map of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Node path of the value; empty if the spec has no such value.
    pub value: String,
    /// The weight, by name if it is one of the module, else by its type.
    pub weight: String,
}

/// What passes are asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What times are costed against.
    pub device: Device,
    /// Classes of rules that may fire.
    pub classes: BTreeSet<Class>,
    /// Functions, by name, whose values keep their bits: only exact rules fire in them. Phases that decide tokens are of
    /// this kind, so that a token does not depend on which of them decided it.
    pub exact: BTreeSet<String>,
    /// The rules there are, in the order they are tried.
    pub rules: Vec<&'static Rule>,
    /// Rules left out by name; [`crate::choose::NARROW_STORAGE`] goes by its name too.
    pub without: BTreeSet<String>,
    /// Resident bytes of all derived weights; `None` is no limit. Within it those are kept that save most together, over all
    /// regions and functions; one that several use is counted once.
    pub budget: Option<u64>,
    /// Bounds of saturation.
    pub limits: Limits,
    /// Rewrites to make at most, over all regions: for finding the one that breaks something.
    pub limit_rewrites: Option<usize>,
    /// The last pass to run; all if `None`.
    pub stop_after: Option<String>,
    /// Whether regions keep their [`History`]. It takes time and memory and changes nothing else.
    pub record: bool,
}

impl Options {
    /// Everything but approximate rules, without limits on memory.
    pub fn new(device: Device) -> Options {
        Options {
            device,
            exact: BTreeSet::new(),
            classes: Class::DEFAULT.into(),
            rules: rules().collect(),
            without: BTreeSet::new(),
            budget: None,
            limits: Limits::default(),
            limit_rewrites: None,
            stop_after: None,
            record: false,
        }
    }
}

impl Options {
    /// The same with the classes of rules a system allows.
    pub fn for_system(device: Device, system: &System) -> Options {
        Options { classes: system.rules.clone(), ..Options::new(device) }
    }
}

/// A pass.
pub struct Pass {
    /// Name.
    pub name: &'static str,
    /// What it does, in a line.
    pub doc: &'static str,
    /// Whether a second run of the pass right after the first changes nothing, or why it may.
    pub repeat: Repeat,
    run: fn(Program, &Options) -> Result<Program, PassError>,
}

/// What a second run of a pass does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Nothing.
    Nothing,
    /// Something else, for the reason given.
    Other(&'static str),
}

/// The passes in the order they run.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "clean",
        doc: "makes equal pure ops of a block one and drops those nobody uses",
        repeat: Repeat::Nothing,
        run: clean::run,
    },
    Pass {
        name: "rewrite",
        doc: "saturates every region with the rules, chooses the cheapest term, derives weights within the budget",
        repeat: Repeat::Other(
            "refused once weights were derived: what is derived from derived weights is not derived from the checkpoint",
        ),
        run: rewrite::run,
    },
    Pass {
        name: "group",
        doc: "joins derived tables whose rows are always taken by the same index into one wider table",
        repeat: Repeat::Nothing,
        run: group::run,
    },
    Pass { name: "tidy", doc: "cleans up what the passes before left", repeat: Repeat::Nothing, run: clean::run },
];

/// Why passes stopped. Every case is a bug of the compiler, except an unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassError {
    /// There is no pass of that name.
    Unknown(String),
    /// The module given to the first pass, or the result of the named pass, breaks rules of the IR.
    Invalid {
        /// The pass; empty for the input.
        pass: &'static str,
        /// The violations.
        errors: Vec<String>,
    },
    /// A pass met something that cannot be.
    Internal(String),
}

impl std::fmt::Display for PassError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PassError::Unknown(name) => write!(f, "there is no pass `{name}`"),
            PassError::Invalid { pass: "", errors } => write!(f, "the module is not valid: {}", errors.join("; ")),
            PassError::Invalid { pass, errors } => {
                write!(f, "pass `{pass}` made an invalid module: {}", errors.join("; "))
            }
            PassError::Internal(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for PassError {}

/// A pass that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its name.
    pub pass: &'static str,
    /// [`structural_hash`] before.
    pub before: u64,
    /// And after.
    pub after: u64,
    /// Ops before and after.
    pub ops: (usize, usize),
}

/// Runs the passes on a module; `observe` sees the program after each.
///
/// # Errors
/// See [`PassError`].
pub fn run(module: Module, options: &Options, observe: &mut dyn FnMut(&Ran, &Program)) -> Result<Program, PassError> {
    if let Some(name) = options.stop_after.as_ref().filter(|n| !PASSES.iter().any(|p| p.name == n.as_str())) {
        return Err(PassError::Unknown(name.clone()));
    }
    let mut program = start(module)?;
    for pass in PASSES {
        let (before, ops) = (structural_hash(&program), count(&program.module));
        program = step(pass, program, options)?;
        let ran = Ran { pass: pass.name, before, after: structural_hash(&program), ops: (ops, count(&program.module)) };
        observe(&ran, &program);
        if options.stop_after.as_deref() == Some(pass.name) {
            break;
        }
    }
    Ok(program)
}

/// Runs one pass by name on a program, without the others.
///
/// # Errors
/// See [`PassError`].
pub fn run_one(name: &str, program: Program, options: &Options) -> Result<Program, PassError> {
    let pass = PASSES.iter().find(|p| p.name == name).ok_or_else(|| PassError::Unknown(name.to_owned()))?;
    verified("", &program)?;
    step(pass, program, options)
}

/// The program no pass has seen yet.
fn start(module: Module) -> Result<Program, PassError> {
    let load = Module { funcs: Vec::new(), states: Vec::new(), ..module.clone() };
    let program = Program { module, load, derived: Vec::new(), regions: Vec::new() };
    verified("", &program)?;
    Ok(program)
}

/// One pass; what it gives is canonical and verified.
fn step(pass: &Pass, program: Program, options: &Options) -> Result<Program, PassError> {
    let mut program = (pass.run)(program, options)?;
    program.module = canonical(&program.module);
    program.load = canonical(&program.load);
    verified(pass.name, &program)?;
    Ok(program)
}

fn verified(pass: &'static str, program: &Program) -> Result<(), PassError> {
    let errors: Vec<String> =
        [&program.module, &program.load].into_iter().flat_map(verify::verify).map(|e| e.to_string()).collect();
    if errors.is_empty() { Ok(()) } else { Err(PassError::Invalid { pass, errors }) }
}

fn count(module: &Module) -> usize {
    module.funcs.iter().map(|f| f.ops.len()).sum()
}

/// FNV-1a over the canonical text of the module and of what is computed before it: the same for the same structure on
/// every machine.
pub fn structural_hash(program: &Program) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for module in [&program.module, &program.load] {
        for byte in text::print(&canonical(module)).bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}
