//! `spinec explain`: what an error code means; where a value of a system is computed and why there.

use super::plan::{bytes, describe, spans};
use super::values::{ops_of, unknown};
use crate::args::{ExplainArgs, SpecArgs};
use crate::exit::Exit;
use crate::output;
use crate::planner::{self, Subject};
use spinec_ir::diag::{CODES, code_info, suggest};
use spinec_ir::ir::{Func, OpId};
use spinec_ir::plan::role::{Role, Roles};
use spinec_ir::plan::{Phase, Place, Plan};
use spinec_passes::compile::Compiled;
use std::path::PathBuf;

/// Explains a code, all codes, or a value.
pub fn run(args: &ExplainArgs) -> Exit {
    let Some(code) = &args.code else {
        for (code, meaning) in CODES {
            output::line(&format!("{code}  {meaning}"));
        }
        return Exit::Ok;
    };
    if let Some(value) = &args.value {
        let spec = SpecArgs { spec: PathBuf::from(code), with: args.with.clone() };
        return match explain(args, &spec, value) {
            Ok(exit) | Err(exit) => exit,
        };
    }
    match code_info(code) {
        Some(meaning) => {
            output::line(&format!("{code}: {meaning}"));
            Exit::Ok
        }
        None if code.ends_with(".yaml") => {
            output::error("say which value of the system: spinec explain SYSTEM.yaml VALUE");
            Exit::Usage
        }
        None => {
            let near = suggest(code, CODES.iter().map(|(c, _)| *c));
            let help = near.map(|n| format!("; did you mean {n}?")).unwrap_or_default();
            output::error(&format!("there is no error code `{code}`{help}"));
            Exit::Usage
        }
    }
}

fn explain(args: &ExplainArgs, spec: &SpecArgs, value: &str) -> Result<Exit, Exit> {
    let subject = planner::subject(spec, &args.plan)?;
    let compiled = subject.compile(&mut |_, _| {})?;
    let plan = &compiled.plan;
    let mut found = false;
    for (func, phase) in plan.module.funcs.iter().zip(&plan.phases) {
        let ops = ops_of(func, value);
        if !ops.is_empty() {
            found = true;
            output::line(&format!("{}:", func.name));
            one(&subject, &compiled, func, phase, &ops);
        }
    }
    if !found && weight(plan, value) {
        return Ok(Exit::Ok);
    }
    if !found {
        // A value that rewriting replaced is known to the module as it was lowered.
        if subject.module.funcs.iter().any(|f| !ops_of(f, value).is_empty()) {
            output::line(&format!("`{value}` is not computed: rewriting found terms that do without it"));
            return Ok(Exit::Ok);
        }
        output::error(&unknown(plan, value));
        return Err(Exit::Usage);
    }
    Ok(Exit::Ok)
}

/// Says which kernels read a weight; false if there is none of that name.
fn weight(plan: &Plan, name: &str) -> bool {
    let Some(id) = plan.module.weights.iter().position(|w| w.name == name) else { return false };
    let w = &plan.module.weights[id];
    let source = w.source.as_ref().map(|s| format!(", tensor {} of {}", s.tensor, s.checkpoint)).unwrap_or_default();
    output::line(&format!("{name} is a weight, {}{source}", w.ty));
    let mut read = false;
    for (func, phase) in plan.module.funcs.iter().zip(&plan.phases) {
        for (k, kernel) in phase.kernels.iter().enumerate() {
            let of = |a: &&spinec_ir::plan::Access| matches!(a.place, Place::Weight(w, _) if w.index() == id);
            for access in kernel.reads.iter().filter(of) {
                read = true;
                let (family, bytes) = (kernel.family.name(), &access.bytes);
                output::line(&format!("  kernel {}.{k} ({family}) reads {bytes} bytes of it", func.name));
            }
        }
    }
    for d in plan.derived.iter().filter(|d| d.of.iter().any(|of| of == name)) {
        read = true;
        output::line(&format!("  {} is derived from it", plan.module.weight(d.weight).name));
    }
    if !read {
        output::line("  no kernel of these phases reads it");
    }
    true
}

fn one(subject: &Subject, compiled: &Compiled, func: &Func, phase: &Phase, ops: &[OpId]) {
    let plan = &compiled.plan;
    let env = subject.env(1, subject.system.serve.context);
    let roles = Roles::of(func, &env, plan.reassociate);
    for id in ops {
        let types: Vec<String> = func.op(*id).results.iter().map(|v| func.ty(*v).to_string()).collect();
        output::line(&format!("  {} : {}", describe(func, *id), types.join(", ")));
        for span in spans(func, &[*id]) {
            output::line(&format!(
                "    written at {}: {}",
                subject.sources.place(span),
                subject.sources.text(span).trim()
            ));
        }
        match roles.role[id.index()] {
            Role::Free => output::line("    costs nothing: its readers look at the elements where they are"),
            Role::Repeated => output::line("    is computed by every kernel that reads it"),
            Role::Control => output::line("    is control: its blocks hold kernels"),
            Role::Work => {}
        }
    }
    for (k, kernel) in phase.kernels.iter().enumerate().filter(|(_, k)| ops.iter().any(|id| k.ops.contains(id))) {
        output::line(&format!("  kernel {}.{k}: {}, {} blocks", func.name, kernel.family.name(), kernel.grid));
        for m in &kernel.mechanisms {
            output::line(&format!("    {}: {}", m.name(), m.doc()));
        }
        let all: Vec<String> = kernel.ops.iter().map(|id| describe(func, *id)).collect();
        output::line(&format!("    ops: {}", all.join("; ")));
        for (word, list) in [("reads", &kernel.reads), ("writes", &kernel.writes)] {
            for access in list {
                let n = access.bytes.eval(&env).and_then(|n| u64::try_from(n).ok());
                let size = n.map(bytes).unwrap_or_default();
                output::line(&format!(
                    "    {word} {}: {} bytes ({size} for one request)",
                    place(plan, func, phase, access.place),
                    access.bytes
                ));
            }
        }
        for d in phase.decisions.iter().filter(|d| kernel.ops.contains(&d.producer) || kernel.ops.contains(&d.consumer))
        {
            let detail = if d.detail.is_empty() { String::new() } else { format!(": {}", d.detail) };
            output::line(&format!(
                "    {} -> {}: {} ({}){detail}",
                describe(func, d.producer),
                describe(func, d.consumer),
                d.reason.name(),
                d.reason.doc()
            ));
        }
    }
    let paths: Vec<&str> = ops.iter().map(|id| &*func.op(*id).loc.path).collect();
    let near = compiled
        .regions
        .iter()
        .filter(|r| r.at.starts_with(&format!("{}:", func.name)) && !r.saturation.fired.is_empty());
    for r in near.filter(|r| paths.iter().any(|p| shares_scope(r.at.split_once(':').map_or("", |x| x.1), p))) {
        let fired: Vec<String> = r.saturation.fired.iter().map(|(n, k)| format!("{n} x{k}")).collect();
        output::line(&format!("  rules that fired in the region that begins at {}: {}", r.at, fired.join(", ")));
    }
}

/// Whether two node paths stand in the same graph.
fn shares_scope(a: &str, b: &str) -> bool {
    a.split('.').next() == b.split('.').next()
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
