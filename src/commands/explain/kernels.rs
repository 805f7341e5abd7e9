//! Where a value is computed: its ops, their kernels and what those move, as JSON.

use super::super::plan::{bytes, describe, spans};
use super::super::values::Named;
use super::super::values::flow::Flow;
use crate::planner::Subject;
use serde_json::{Value, json};
use spinec_ir::diag::json_range;
use spinec_ir::ir::{Func, Nest, OpId};
use spinec_ir::plan::role::{Role, Roles};
use spinec_ir::plan::{Access, Phase, Place, Plan};
use std::collections::BTreeSet;

/// The ops of a value.
pub fn ops(subject: &Subject, plan: &Plan, flow: &Flow, ops: &[OpId]) -> Vec<Value> {
    let func = flow.func;
    let env = subject.env(1, subject.system.serve.context);
    let roles = Roles::of(func, &env, plan.reassociate);
    let sources = &subject.sources;
    ops.iter()
        .map(|id| {
            let types: Vec<String> = func.op(*id).results.iter().map(|v| func.ty(*v).to_string()).collect();
            let written: Vec<Value> = spans(func, &[*id])
                .into_iter()
                .map(|s| {
                    json!({
                        "file": sources.file(s.file).name, "range": json_range(s, sources),
                        "place": sources.place(s), "text": sources.text(s).trim(),
                    })
                })
                .collect();
            let role = match roles.role[id.index()] {
                Role::Free => Some("costs nothing: its readers look at the elements where they are"),
                Role::Repeated => Some("is computed by every kernel that reads it"),
                Role::Control => Some("is control: its blocks hold kernels"),
                Role::Work => None,
            };
            json!({"op": describe(func, *id), "types": types, "written": written, "role": role})
        })
        .collect()
}

/// Some kernels of a phase.
pub fn kernels(subject: &Subject, plan: &Plan, flow: &Flow, which: &BTreeSet<usize>) -> Vec<Value> {
    let (func, phase) = (flow.func, flow.phase);
    let env = subject.env(1, subject.system.serve.context);
    let mut out = Vec::new();
    for (k, kernel) in which.iter().map(|k| (*k, &phase.kernels[*k])) {
        let mechanisms: Vec<Value> =
            kernel.mechanisms.iter().map(|m| json!({"name": m.name(), "doc": m.doc()})).collect();
        let all: Vec<String> = kernel.ops.iter().map(|id| describe(func, *id)).collect();
        let mut accesses = Vec::new();
        for (word, list) in [("reads", &kernel.reads), ("writes", &kernel.writes)] {
            for access in list {
                let n = access.bytes.eval(&env).and_then(|n| u64::try_from(n).ok());
                accesses.push(json!({
                    "access": word, "place": place(plan, func, phase, access.place),
                    "bytes": access.bytes.to_string(), "size": n.map(bytes).unwrap_or_default(),
                }));
            }
        }
        let of = |d: &&spinec_ir::plan::Decision| kernel.ops.contains(&d.producer) || kernel.ops.contains(&d.consumer);
        let decision = |d: &spinec_ir::plan::Decision| {
            json!({
                "producer": describe(func, d.producer), "consumer": describe(func, d.consumer),
                "accepted": d.accepted, "reason": d.reason.name(), "doc": d.reason.doc(), "detail": d.detail,
            })
        };
        let decisions: Vec<Value> = phase.decisions.iter().filter(of).map(decision).collect();
        out.push(json!({
            "id": format!("{}.{k}", func.name), "family": kernel.family.name(), "grid": kernel.grid.to_string(),
            "mechanisms": mechanisms, "ops": all, "accesses": accesses, "decisions": decisions,
        }));
    }
    out
}

/// What there is to say about a weight, a line each.
pub fn weight(plan: &Plan, named: &Named) -> Vec<String> {
    let w = &plan.module.weights[named.id];
    let name = &w.name;
    let source = w.source.as_ref().map(|s| format!(", tensor {} of {}", s.tensor, s.checkpoint)).unwrap_or_default();
    let mut out = vec![format!("{name} is a weight, {}{source}", w.ty)];
    for d in plan.derived.iter().filter(|d| plan.module.weight(d.weight).name == *name) {
        out.push(format!("  computed before the first run from {}: {}, {}", d.of.join(", "), bytes(d.bytes), d.reason));
    }
    let mut read = false;
    for (func, phase) in plan.module.funcs.iter().zip(&plan.phases) {
        let nest = Nest::of(func);
        for (k, kernel) in phase.kernels.iter().enumerate() {
            let of = |a: &&Access| match a.place {
                Place::Weight(w, at) => w.index() == named.id && named.read_by(func, &nest, kernel, at),
                _ => false,
            };
            for access in kernel.reads.iter().filter(of) {
                read = true;
                let (family, bytes) = (kernel.family.name(), &access.bytes);
                out.push(format!("  kernel {}.{k} ({family}) reads {bytes} bytes of it", func.name));
            }
        }
    }
    for d in plan.derived.iter().filter(|d| d.of.iter().any(|of| of == name)) {
        read = true;
        out.push(format!("  {} is derived from it", plan.module.weight(d.weight).name));
    }
    if !read {
        out.push("  no kernel of these phases reads it".to_owned());
    }
    out
}

fn place(plan: &Plan, func: &Func, phase: &Phase, place: Place) -> String {
    match place {
        Place::Weight(w, at) => {
            let w = plan.module.weight(w);
            let made = plan.derived.iter().find(|d| plan.module.weight(d.weight).name == w.name);
            let of = made.map(|d| format!(" (derived of {})", d.of.join(", "))).unwrap_or_default();
            let at = at.map(|i| format!("[{i}]")).unwrap_or_default();
            format!("weight {}{at}{of}", w.name)
        }
        Place::State(s) => format!("state {}", plan.module.state(s).name),
        Place::Buffer(b) => {
            let buffer = &phase.buffers[b.index()];
            let name = func.value(buffer.value).names.first().map_or(format!("%{}", buffer.value.0), |n| n.to_string());
            if buffer.partial { format!("row statistics of {name}") } else { format!("buffer {name}") }
        }
    }
}
