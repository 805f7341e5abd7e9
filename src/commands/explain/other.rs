//! Kernels by their ids and states by their names.

use super::super::values::flow::Flow;
use super::kernels;
use crate::planner::Subject;
use serde_json::{Value, json};
use spinec_ir::plan::{Place, Plan};
use std::collections::BTreeSet;

/// The phases in which something other than a value has that name: a kernel by the id that `plan` shows, or a state.
pub fn phases(subject: &Subject, plan: &Plan, name: &str) -> Vec<Value> {
    let state = plan.module.states.iter().position(|s| s.name == name);
    let fact = state.map(|s| {
        let s = &plan.module.states[s];
        let word = if s.count == 1 { "element" } else { "elements" };
        format!("`{name}` is a state of {} {word}, each {} {}", s.count, s.dtype.name(), s.kind)
    });
    let mut out = Vec::new();
    for (func, phase) in plan.module.funcs.iter().zip(&plan.phases) {
        let uses = |k: &usize| match state {
            Some(s) => {
                let kernel = &phase.kernels[*k];
                let of = |p: Place| matches!(p, Place::State(id) if id.index() == s);
                kernel.reads.iter().chain(&kernel.writes).any(|a| of(a.place))
            }
            None => format!("{}.{k}", func.name) == name,
        };
        let which: BTreeSet<usize> = (0..phase.kernels.len()).filter(uses).collect();
        if which.is_empty() {
            continue;
        }
        let ops: Vec<_> =
            which.iter().filter(|_| state.is_none()).flat_map(|k| phase.kernels[*k].ops.clone()).collect();
        let flow = Flow::of(func, phase);
        out.push(json!({
            "phase": func.name, "value": name, "facts": fact.iter().collect::<Vec<_>>(),
            "ops": kernels::ops(subject, plan, &flow, &ops),
            "kernels": kernels::kernels(subject, plan, &flow, &which),
            "read_by": [], "regions": [], "note": null,
        }));
    }
    out
}
