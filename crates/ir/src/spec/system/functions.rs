//! Phases and entries of a system as modules.

use super::System;
use super::decl::{EntryDecl, PhaseDecl};
use crate::diag::{Diagnostic, Diagnostics, Span, codes};
use crate::ir::Module;
use crate::spec::lower::{FunctionRequest, Lower};
use crate::spec::statics::Static;
use crate::ty::TensorType;
use std::collections::{BTreeMap, BTreeSet};

/// Where an input of a phase comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wire {
    /// Phase that makes it.
    pub phase: String,
    /// Its output.
    pub output: String,
}

/// One phase in one variant: a function of its module.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Phase name.
    pub name: String,
    /// The choices made, by name.
    pub variant: BTreeMap<String, String>,
    /// Index of the function in the module.
    pub func: usize,
    /// Wired inputs that are used.
    pub wires: BTreeMap<String, Wire>,
}

/// All phases of a system for one setting of the choices.
#[derive(Clone, Debug)]
pub struct PhaseModule {
    /// The module; its weights are all weights of the system.
    pub module: Module,
    /// The phases in an order in which wires lead forward.
    pub phases: Vec<Phase>,
}

/// How an entry is fed with rows.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Input that holds the whole prompt: `i32[T]`.
    pub tokens: String,
    /// Input with verify blocks: `i32[k, R]`.
    pub blocks: Option<String>,
    /// Input with the number of rows kept of each block: `i32[k]`.
    pub keep: Option<String>,
    /// Outputs that are also given for blocks, as `block_NAME`.
    pub block_outputs: Vec<String>,
}

/// An entry.
#[derive(Clone, Debug)]
pub struct EntryModule {
    /// The module with one function.
    pub module: Module,
    /// How rows are fed, if the entry works on a stream.
    pub stream: Option<Stream>,
    /// Outputs left out, each with the input that is missing.
    pub left_out: Vec<(String, String)>,
}

impl System {
    /// Names of the entries.
    pub fn entries(&self) -> Vec<&str> {
        self.decl.entries.iter().map(|e| e.name.name.as_str()).collect()
    }

    /// Names of the phases.
    pub fn phases(&self) -> Vec<&str> {
        self.decl.phases.iter().map(|p| p.name.name.as_str()).collect()
    }

    /// Number of token ids, where the system binds a dim `V`.
    pub fn vocabulary(&self) -> Option<i64> {
        self.set_values.get("V").and_then(Static::as_i64)
    }

    /// The words a phase can be varied by, by choice.
    pub fn variants(&self, phase: &str) -> BTreeMap<String, Vec<String>> {
        let found = self.decl.phases.iter().find(|p| p.name.name == phase);
        found.map(|p| p.variants.iter().map(|(n, w)| (n.name.clone(), w.clone())).collect()).unwrap_or_default()
    }

    /// The stream of an entry.
    pub fn stream(&self, entry: &str) -> Option<Stream> {
        let e = self.decl.entries.iter().find(|e| e.name.name == entry)?;
        stream_of(e)
    }

    /// Inputs of an entry by name, the stream's own included.
    pub fn entry_inputs(&self, entry: &str) -> Option<Vec<String>> {
        let e = self.decl.entries.iter().find(|e| e.name.name == entry)?;
        Some(e.graph.inputs.iter().map(|i| i.name.name.clone()).collect())
    }

    /// Types of the inputs of an entry as the system file writes them, by name.
    pub fn entry_input_types(&self, entry: &str) -> BTreeMap<String, String> {
        let e = self.decl.entries.iter().find(|e| e.name.name == entry);
        e.map(|e| e.graph.input_types()).unwrap_or_default()
    }

    pub(super) fn start<'a>(&'a self) -> Lower<'a> {
        let mut lower = Lower::new(&self.files, self, &self.name, self.numerics);
        lower.adopt(&self.weights, &self.states);
        lower
    }

    /// Lowers all phases with the given choices (a phase without one of them ignores it; a phase that does not offer a
    /// word is left out). Outputs of a phase that no other phase reads and that are not in `engine_outputs` are not made.
    pub fn phase_module(
        &self,
        choices: &BTreeMap<String, String>,
        engine_outputs: &dyn Fn(&str, &str) -> bool,
    ) -> Result<PhaseModule, Diagnostics> {
        let chosen: Vec<(&PhaseDecl, BTreeMap<String, String>)> = self
            .decl
            .phases
            .iter()
            .filter_map(|p| {
                let mut variant = BTreeMap::new();
                for (n, words) in &p.variants {
                    let word = choices.get(&n.name)?;
                    if !words.contains(word) {
                        return None;
                    }
                    variant.insert(n.name.clone(), word.clone());
                }
                Some((p, variant))
            })
            .collect();
        let chosen = in_wire_order(chosen)?;
        // First all outputs, for their types; then only those that are read.
        let mut wires: BTreeMap<(String, String), Option<(TensorType, Span)>> = BTreeMap::new();
        let mut read: BTreeSet<(String, String)> = BTreeSet::new();
        for (p, variant) in &chosen {
            let mut lower = self.start();
            lower.wires = wires.clone();
            self.phase_function(&mut lower, p, variant, None);
            if lower.diags.has_errors() {
                return Err(lower.diags);
            }
            let func = &lower.module.funcs[0];
            for (name, v) in func.outputs.iter().zip(&func.region(func.body).yields) {
                if let Some(t) = func.tensor(*v) {
                    wires.insert((p.name.name.clone(), name.clone()), Some((t.clone(), output_span(p, name))));
                }
            }
            for i in &p.graph.inputs {
                if let Some((phase, output)) = &i.from
                    && func.inputs.contains(&i.name.name)
                {
                    read.insert((phase.name.clone(), output.name.clone()));
                }
            }
        }
        let mut lower = self.start();
        lower.wires = wires;
        let mut phases = Vec::new();
        for (p, variant) in &chosen {
            let wanted: BTreeSet<String> = p
                .graph
                .outputs
                .iter()
                .map(|o| o.name.name.clone())
                .filter(|o| engine_outputs(&p.name.name, o) || read.contains(&(p.name.name.clone(), o.clone())))
                .collect();
            self.phase_function(&mut lower, p, variant, Some(&wanted));
            let func = lower.module.funcs.len() - 1;
            let inputs = &lower.module.funcs[func].inputs;
            let wires = p
                .graph
                .inputs
                .iter()
                .filter(|i| inputs.contains(&i.name.name))
                .filter_map(|i| {
                    let (phase, output) = i.from.as_ref()?;
                    Some((i.name.name.clone(), Wire { phase: phase.name.clone(), output: output.name.clone() }))
                })
                .collect();
            phases.push(Phase { name: p.name.name.clone(), variant: variant.clone(), func, wires });
        }
        if lower.diags.has_errors() { Err(lower.diags) } else { Ok(PhaseModule { module: lower.module, phases }) }
    }

    pub(super) fn phase_function<'a>(
        &'a self,
        lower: &mut Lower<'a>,
        p: &'a PhaseDecl,
        variant: &BTreeMap<String, String>,
        outputs: Option<&BTreeSet<String>>,
    ) {
        let mut values = self.set_values.clone();
        for (k, v) in variant {
            values.insert(k.clone(), Static::Str(v.clone()));
        }
        let name = variant.iter().fold(p.name.name.clone(), |acc, (_, v)| format!("{acc}.{v}"));
        lower.function(FunctionRequest {
            name,
            graph: &p.graph,
            file: None,
            values: &values,
            outputs,
            weights: None,
            available: None,
        });
    }

    /// Lowers one entry. `available` says which inputs are given; outputs that need another are left out. `wanted` asks
    /// for nodes by path.
    pub fn entry_module(
        &self,
        entry: &str,
        available: Option<&dyn Fn(&str) -> bool>,
        wanted: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<EntryModule, Diagnostics> {
        let Some(e) = self.decl.entries.iter().find(|e| e.name.name == entry) else {
            let mut diags = Diagnostics::default();
            let known = self.entries();
            let mut d = Diagnostic::error_nowhere(
                codes::UNKNOWN_NAME,
                format!("system `{}` has no entry `{entry}`", self.name),
            );
            d = match crate::diag::suggest(entry, known.iter().copied()) {
                Some(near) => d.help(format!("did you mean `{near}`?")),
                None => d.help(format!("its entries: {}", known.join(", "))),
            };
            diags.push(d);
            return Err(diags);
        };
        let mut lower: Lower<'_> = self.start();
        lower.wanted = wanted;
        let out = lower.function(FunctionRequest {
            name: entry.to_string(),
            graph: &e.graph,
            file: None,
            values: &self.set_values,
            outputs: None,
            weights: None,
            available,
        });
        if lower.diags.has_errors() {
            return Err(lower.diags);
        }
        Ok(EntryModule { module: lower.module, stream: stream_of(e), left_out: out.left_out })
    }
}

impl System {
    /// An entry with every node, and what is wrong with it.
    pub(super) fn check_entry(&self, e: &EntryDecl) -> (Module, Diagnostics) {
        let mut lower: Lower<'_> = self.start();
        lower.all_nodes = true;
        lower.function(FunctionRequest {
            name: e.name.name.clone(),
            graph: &e.graph,
            file: None,
            values: &self.set_values,
            outputs: None,
            weights: None,
            available: None,
        });
        (lower.module, lower.diags)
    }
}

/// Phases in an order in which every wire leads forward.
pub(super) fn in_wire_order<T>(phases: Vec<(&PhaseDecl, T)>) -> Result<Vec<(&PhaseDecl, T)>, Diagnostics> {
    let mut left = phases;
    let mut out: Vec<(&PhaseDecl, T)> = Vec::new();
    while !left.is_empty() {
        let ready = left.iter().position(|(p, _)| {
            let mut sources = p.graph.inputs.iter().filter_map(|i| i.from.as_ref());
            // A phase that is not there at all is reported when its output is looked up.
            // One that is wired from itself is reported there.
            sources.all(|(from, _)| from.name == p.name.name || !left.iter().any(|(q, _)| q.name.name == from.name))
        });
        match ready {
            Some(i) => out.push(left.remove(i)),
            None => {
                let mut diags = Diagnostics::default();
                diags.push(backward(&left));
                return Err(diags);
            }
        }
    }
    Ok(out)
}

/// The wire of a cycle of phases that leads from a later to an earlier one.
fn backward<T>(left: &[(&PhaseDecl, T)]) -> Diagnostic {
    let place = |name: &str| super::engine::PHASES.iter().position(|p| p.name == name).unwrap_or(usize::MAX);
    let wires =
        left.iter().flat_map(|(p, _)| p.graph.inputs.iter().filter_map(move |i| Some((*p, i, i.from.as_ref()?))));
    let within = wires
        .filter(|(p, _, (from, _))| from.name != p.name.name && left.iter().any(|(q, _)| q.name.name == from.name));
    let wires: Vec<_> = within.collect();
    let culprit = wires.iter().find(|(p, _, (from, _))| place(&from.name) >= place(&p.name.name)).or(wires.first());
    let Some((p, input, (from, out))) = culprit else {
        return Diagnostic::error_nowhere(codes::CYCLE, "phases need each other");
    };
    let text = format!("phase `{}` needs `{}.{}`, which comes after it", p.name.name, from.name, out.name);
    let mut d = Diagnostic::error(codes::CYCLE, input.name.span, text);
    for (q, i, (source, _)) in &wires {
        if q.name.name == from.name {
            d = d.related(i.name.span, format!("phase `{}` needs phase `{}`", q.name.name, source.name));
        }
    }
    d.help("what a phase needs from an earlier cycle is state")
}

/// Where an output of a phase is declared.
pub(super) fn output_span(p: &PhaseDecl, output: &str) -> Span {
    p.graph.outputs.iter().find(|o| o.name.name == output).map_or(p.name.span, |o| o.value.span)
}

fn stream_of(e: &EntryDecl) -> Option<Stream> {
    e.stream.as_ref().map(|s| Stream {
        tokens: s.tokens.clone(),
        blocks: s.blocks.clone(),
        keep: s.keep.clone(),
        block_outputs: s.block_outputs.iter().map(|o| o.name.clone()).collect(),
    })
}
