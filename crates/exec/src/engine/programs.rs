//! The phases of a system for every law, lowered when first needed.

use super::{Candidates, EngineError, EngineOptions};
use crate::runtime::{ProgramId, Runtime};
use spinec_ir::diag::{Diagnostic, Diagnostics, codes};
use spinec_ir::spec::system::engine::PHASES;
use spinec_ir::spec::system::{System, Wire};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What the requests of a call ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Law {
    Greedy,
    Sampled,
    Mixed,
}

impl Law {
    pub fn of(greedy: impl IntoIterator<Item = bool>) -> Law {
        let (mut any, mut all) = (false, true);
        for g in greedy {
            any |= g;
            all &= g;
        }
        match (all, any) {
            (true, _) => Law::Greedy,
            (_, false) => Law::Sampled,
            _ => Law::Mixed,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Law::Greedy => "greedy",
            Law::Sampled => "sampled",
            Law::Mixed => "mixed",
        }
    }
}

/// One phase as a function of a program.
#[derive(Clone, Debug)]
pub(super) struct PhaseFn {
    pub program: ProgramId,
    pub func: usize,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub wires: BTreeMap<String, Wire>,
}

/// Phases by name.
pub(super) type Phases = BTreeMap<String, PhaseFn>;

pub(super) struct Programs {
    known: BTreeMap<(Law, Candidates), Phases>,
    /// The system offers the exact retrieval besides the coarse one.
    pub has_fallback: bool,
}

/// Outputs the engine reads itself.
fn read_by_engine(phase: &str, output: &str) -> bool {
    matches!(
        (phase, output),
        ("prefill" | "decode", "token" | "sound")
            | ("draft", "proposal" | "finite")
            | ("verify", "accepted" | "token" | "sound")
    )
}

impl Programs {
    pub fn new(system: &System, options: &EngineOptions) -> Result<Self, EngineError> {
        let phases = system.phases();
        let mut diags = Diagnostics::default();
        if phases.is_empty() {
            let text = format!("system `{}` has no phases, there is nothing to run", system.name);
            let help = format!("its entries are for `eval`: {}", system.entries().join(", "));
            diags.push(Diagnostic::error_nowhere(codes::SYSTEM, text).help(help));
            return Err(EngineError::Spec(diags));
        }
        for p in PHASES.iter().filter(|p| p.always || !options.target_only) {
            if !phases.contains(&p.name) {
                let text = format!("system `{}` has no phase `{}`", system.name, p.name);
                diags.push(Diagnostic::error_nowhere(codes::SYSTEM, text).help(p.doc));
            }
        }
        if diags.has_errors() {
            return Err(EngineError::Spec(diags));
        }
        let words = system.variants("draft").remove("candidates").unwrap_or_default();
        let has_fallback = words.iter().any(|w| w == "coarse") && words.iter().any(|w| w == "exact");
        Ok(Programs { known: BTreeMap::new(), has_fallback })
    }

    /// The phases for a law.
    pub fn get(
        &mut self,
        system: &System,
        runtime: &mut dyn Runtime,
        law: Law,
        candidates: Candidates,
    ) -> Result<&Phases, EngineError> {
        let key = (law, candidates);
        if let Entry::Vacant(slot) = self.known.entry(key) {
            let word = if candidates == Candidates::Coarse { "coarse" } else { "exact" };
            let choices = BTreeMap::from([
                ("law".to_string(), law.name().to_string()),
                ("candidates".to_string(), word.to_string()),
            ]);
            let lowered = system.phase_module(&choices, &read_by_engine).map_err(EngineError::Spec)?;
            let funcs: Vec<(Vec<String>, Vec<String>)> =
                lowered.module.funcs.iter().map(|f| (f.inputs.clone(), f.outputs.clone())).collect();
            let program = runtime.add(lowered.module)?;
            let mut phases = Phases::new();
            for p in lowered.phases {
                let (inputs, outputs) = funcs[p.func].clone();
                phases.insert(p.name, PhaseFn { program, func: p.func, inputs, outputs, wires: p.wires });
            }
            slot.insert(phases);
        }
        Ok(&self.known[&key])
    }
}
