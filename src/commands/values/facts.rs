//! What there is to say about values that no kernel computes as such: inputs, carried and kept values, cases, free accesses.

use super::super::plan::describe;
use super::flow::{At, Flow, Way};
use spinec_ir::ir::{ValueDef, ValueId};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::Plan;

/// A value for people: its name, the input it is, what a case without a name ends with, else what makes it.
pub fn name(flow: &Flow, v: ValueId) -> String {
    let value = flow.func.value(v);
    if let Some(name) = value.names.first() {
        return format!("`{name}`");
    }
    match value.def {
        ValueDef::Result(op, i) if flow.func.op(op).code == Opcode::Cases => {
            let regions = flow.func.op(op).regions.iter();
            let mut names: Vec<String> =
                regions.filter_map(|r| flow.func.region(*r).yields.get(i as usize)).map(|v| name(flow, *v)).collect();
            names.dedup();
            names.join(" or ")
        }
        ValueDef::Result(op, _) if flow.func.op(op).code == Opcode::Cast => {
            let dtype = flow.func.tensor(v).map_or("", |t| t.dtype.name());
            format!("{} as {dtype}", name(flow, flow.func.op(op).operands[0]))
        }
        ValueDef::Result(op, _) => format!("the result of {}", describe(flow.func, op)),
        ValueDef::Param(r, i) if r == flow.func.body => {
            format!("input `{}`", flow.func.inputs.get(i as usize).map_or("", String::as_str))
        }
        ValueDef::Param(..) => "the index of a loop".to_owned(),
    }
}

/// What a value of some iterations is if no kernel computes it: one line, or none.
pub fn fact(flow: &Flow, plan: &Plan, v: ValueId, at: &At) -> Option<String> {
    if flow.computed(v) {
        return None;
    }
    let own = name(flow, v);
    let from = flow.from(v, at);
    let sources = |want: fn(&Way) -> bool| {
        let mut names: Vec<String> = Vec::new();
        for s in from.iter().filter(|s| want(&s.way)) {
            let name = name(flow, s.value);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(" or ")
    };
    let path = |op| format!("`{}`", flow.func.op(op).loc.path);
    match flow.func.value(v).def {
        ValueDef::Param(r, _) if r == flow.func.body => Some(format!("{own} of the phase: {}", flow.func.ty(v))),
        ValueDef::Param(..) => {
            let (first, next) = (sources(|w| matches!(w, Way::Begins(_))), sources(|w| matches!(w, Way::Carried(_))));
            let around = from.iter().find_map(|s| match s.way {
                Way::Begins(op) | Way::Carried(op) => Some(path(op)),
                _ => None,
            })?;
            let what = match (first.is_empty(), next.is_empty()) {
                (false, false) => format!("{first} in the first iteration, then {next} of the one before"),
                (false, true) => format!("{first} in the first iteration"),
                _ => format!("{next} of the iteration before"),
            };
            Some(format!("{own} is carried by the loop {around}: {what}"))
        }
        ValueDef::Result(id, i) => {
            let op = flow.func.op(id);
            Some(match op.code {
                Opcode::Loop => {
                    let inner = sources(|w| matches!(w, Way::Ends(_)));
                    match flow.kept(id, i as usize) {
                        None => format!("{own} is what the loop {} ends with: {inner} of its last iteration", path(id)),
                        Some(None) => format!("{own} is kept by the loop {}: {inner} of every iteration", path(id)),
                        Some(Some(at)) => {
                            let at: Vec<String> = at.iter().map(ToString::to_string).collect();
                            let word = if at.len() == 1 { "iteration" } else { "iterations" };
                            format!("{own} is kept by the loop {}: {inner} of {word} {}", path(id), at.join(", "))
                        }
                    }
                }
                Opcode::Cases => {
                    format!("{own} is what the case taken yields: {}", sources(|w| matches!(w, Way::Case(_))))
                }
                Opcode::Weight => {
                    let w = op.int("weight").and_then(|w| plan.module.weights.get(usize::try_from(w).ok()?));
                    format!("{own} is the weight `{}`", w.map_or("", |w| &w.name))
                }
                Opcode::StateOpen | Opcode::StateClose => {
                    format!("{own} is a state: its ops read and write it where it is")
                }
                _ if from.is_empty() => format!("{own} is a constant: it is made wherever it is read"),
                _ => {
                    let names: Vec<String> = from.iter().map(|s| name(flow, s.value)).collect();
                    format!(
                        "{own} costs nothing: its readers look at the elements of {} where they are",
                        names.join(" and ")
                    )
                }
            })
        }
    }
}
