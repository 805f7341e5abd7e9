//! Every phase in every variant and every entry is lowered and verified, so that a check finds what a run would.

use super::System;
use super::decl::PhaseDecl;
use super::engine;
use super::functions::{in_wire_order, output_span};
use crate::diag::{Diagnostic, Diagnostics, Span, codes};
use crate::ir::{Func, Module, ValueDef};
use crate::ty::TensorType;
use std::collections::BTreeMap;

/// Most combinations of variants of one phase.
const MAX_VARIANTS: usize = 64;

type Wires = BTreeMap<(String, String), Option<(TensorType, Span)>>;

impl System {
    /// Every error of the phases and entries that binding and the components did not have. Modules of a system that is not
    /// `sound` so far are not verified: what is wrong with them was said.
    pub(super) fn check_functions(&self, sound: bool) -> Diagnostics {
        let mut found = Diagnostics::default();
        match in_wire_order(self.decl.phases.iter().map(|p| (p, ())).collect()) {
            Ok(order) => self.check_phases(&order, sound, &mut found),
            Err(d) => found.extend(d),
        }
        for e in &self.decl.entries {
            let (module, diags) = self.check_entry(e);
            if sound && !diags.has_errors() {
                verified(&module, e.name.span, &mut found);
            }
            found.extend(diags);
        }
        found
    }

    fn check_phases(&self, order: &[(&PhaseDecl, ())], sound: bool, found: &mut Diagnostics) {
        let mut lower = self.start();
        lower.all_nodes = true;
        let mut wires: Wires = BTreeMap::new();
        for (p, ()) in order {
            for o in &p.graph.outputs {
                wires.insert((p.name.name.clone(), o.name.name.clone()), None);
            }
        }
        for (p, ()) in order {
            for (i, variant) in combinations(p).into_iter().enumerate() {
                lower.wires = wires.clone();
                self.phase_function(&mut lower, p, &variant, None);
                let Some(func) = lower.module.funcs.last() else { continue };
                let types = output_types(func);
                for (name, t) in types {
                    let at = output_span(p, &name);
                    if i == 0 {
                        check_output(p, &name, &t, at, found);
                    }
                    let slot = wires.entry((p.name.name.clone(), name.clone())).or_default();
                    match slot {
                        None => *slot = Some((t, at)),
                        Some((other, _)) if *other != t => found.push(
                            Diagnostic::error(
                                codes::SYSTEM,
                                at,
                                format!(
                                    "output `{name}` of phase `{}` is {t} in one variant and {other} in another",
                                    p.name.name
                                ),
                            )
                            .help("every variant makes the same type"),
                        ),
                        Some(_) => {}
                    }
                }
            }
        }
        unbounded(&lower.module, order, found);
        let whole = sound && !lower.diags.has_errors();
        found.extend(std::mem::take(&mut lower.diags));
        if whole {
            let at = self.decl.phases.first().map_or(self.decl.name.span, |p| p.name.span);
            verified(&lower.module, at, found);
        }
    }
}

/// All choices of words for a phase's variants.
fn combinations(p: &PhaseDecl) -> Vec<BTreeMap<String, String>> {
    let mut out = vec![BTreeMap::new()];
    for (name, words) in &p.variants {
        let more = out.iter().flat_map(|c: &BTreeMap<String, String>| {
            words.iter().map(move |w| {
                let mut c = c.clone();
                c.insert(name.name.clone(), w.clone());
                c
            })
        });
        out = more.take(MAX_VARIANTS).collect();
    }
    out
}

fn output_types(func: &Func) -> Vec<(String, TensorType)> {
    let yields = &func.region(func.body).yields;
    func.outputs.iter().zip(yields).filter_map(|(n, v)| Some((n.clone(), func.tensor(*v)?.clone()))).collect()
}

/// What the engine reads must have the type it reads.
fn check_output(p: &PhaseDecl, name: &str, t: &TensorType, at: Span, found: &mut Diagnostics) {
    let Some(known) = engine::output(&p.name.name, name) else { return };
    if t.dtype != known.dtype || t.rank() != known.axes.len() {
        found.push(
            Diagnostic::error(
                codes::SYSTEM,
                at,
                format!("the engine reads `{}.{name}` as {}, this is {t}", p.name.name, known.written()),
            )
            .help(known.doc),
        );
    }
}

/// Run-time symbols of phases size buffers: each needs an upper bound.
fn unbounded(module: &Module, phases: &[(&PhaseDecl, ())], found: &mut Diagnostics) {
    for s in module.symbols.iter().filter(|s| s.bounds.max.is_none()) {
        let Some((what, t, at)) = module.funcs.iter().find_map(|f| needs(f, &s.name, phases)) else { continue };
        let text = format!("symbol `{}` has no upper bound, and {what} is a buffer of {t}", s.name);
        let mut d = match s.span {
            Some(span) => Diagnostic::error(codes::UNBOUNDED_SYMBOL, span, text),
            None => Diagnostic::error_nowhere(codes::UNBOUNDED_SYMBOL, text),
        };
        if let Some(at) = at {
            d = d.related(at, "the value that needs it");
        }
        found.push(d.help(format!("{}: {{min: 1, max: ...}}, for example serve.requests, serve.chunk or B", s.name)));
    }
}

/// The first value of a function whose type mentions a symbol.
fn needs(func: &Func, symbol: &str, phases: &[(&PhaseDecl, ())]) -> Option<(String, TensorType, Option<Span>)> {
    let phase = phases.iter().find(|(p, ())| func.name.split('.').next() == Some(&p.name.name));
    let input_span =
        |name: &str| phase.and_then(|(p, ())| p.graph.inputs.iter().find(|i| i.name.name == name)).map(|i| i.name.span);
    func.values.iter().find_map(|v| {
        let t = v.ty.tensor()?;
        if !t.dims.iter().any(|d| d.symbols().iter().any(|s| s == symbol)) {
            return None;
        }
        Some(match v.def {
            ValueDef::Param(r, i) if r == func.body => {
                let name = func.inputs.get(i as usize)?;
                (format!("input `{name}`"), t.clone(), input_span(name))
            }
            ValueDef::Param(..) => ("a carried value".to_string(), t.clone(), None),
            ValueDef::Result(op, _) => {
                let loc = &func.op(op).loc;
                let what = if loc.path.is_empty() { "a value".to_string() } else { format!("`{}`", loc.path) };
                (what, t.clone(), loc.span)
            }
        })
    })
}

fn verified(module: &Module, at: Span, found: &mut Diagnostics) {
    for e in crate::ir::verify::verify(module) {
        let mut d = e.to_diagnostic();
        d.span = d.span.or(Some(at));
        found.push(d.help("this is a bug of spinec: please report it with the files"));
    }
}
