//! `spinec why-not`: what was decided about two values sharing a kernel.

use super::plan::describe;
use super::values::{ValuePath, ops_of, unknown};
use crate::args::WhyNotArgs;
use crate::exit::Exit;
use crate::output;
use crate::planner;
use serde_json::json;
use spinec_ir::ir::OpId;
use spinec_ir::plan::Phase;
use std::collections::BTreeSet;

/// Prints the decisions between two values.
pub fn run(args: &WhyNotArgs) -> Exit {
    match show(args) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn show(args: &WhyNotArgs) -> Result<Exit, Exit> {
    let subject = planner::subject(&args.spec, &args.plan)?;
    let plan = subject.compile(&mut |_, _| {})?.plan;
    let paths = [ValuePath::parse(&args.a), ValuePath::parse(&args.b)];
    for (path, given) in paths.iter().zip([&args.a, &args.b]) {
        path.check(&subject.module).map_err(|why| {
            output::error(&why);
            Exit::Usage
        })?;
        if plan.module.funcs.iter().all(|f| ops_of(f, &path.plain).is_empty()) {
            output::error(&unknown(&plan, given));
            return Err(Exit::Usage);
        }
    }
    let mut found = Vec::new();
    let mut together = 0;
    for (func, phase) in plan.module.funcs.iter().zip(&plan.phases) {
        let (a, b) = (ops_of(func, &paths[0].plain), ops_of(func, &paths[1].plain));
        if a.is_empty() || b.is_empty() {
            continue;
        }
        together += 1;
        let (ka, kb) = (kernels(phase, &a), kernels(phase, &b));
        let shared: Vec<usize> = ka.intersection(&kb).copied().collect();
        for k in &shared {
            let text = format!("both are computed by kernel {}.{k} ({})", func.name, phase.kernels[*k].family.name());
            found.push(json!({"phase": func.name, "shared": true, "text": text}));
        }
        if !shared.is_empty() {
            continue;
        }
        let between = phase.decisions.iter().filter(|d| {
            let (p, c) = (d.producer, d.consumer);
            // Decisions are about kernels: any op of theirs stands for the value.
            let of = |ks: &BTreeSet<usize>, id: OpId| ks.iter().any(|k| phase.kernels[*k].ops.contains(&id));
            !d.accepted && (of(&ka, p) && of(&kb, c) || of(&kb, p) && of(&ka, c))
        });
        let mut any = false;
        for d in between {
            any = true;
            let text = format!(
                "{} -> {}: {} ({}): {}",
                describe(func, d.producer),
                describe(func, d.consumer),
                d.reason.name(),
                d.reason.doc(),
                d.detail
            );
            found.push(json!({"phase": func.name, "shared": false, "reason": d.reason.name(), "text": text}));
        }
        if !any {
            let text = "no value goes from a kernel of one to a kernel of the other, and they read nothing in common";
            found.push(json!({"phase": func.name, "shared": false, "reason": null, "text": text}));
        }
    }
    if together == 0 {
        let text = format!("`{}` and `{}` are values of different phases, which never share a kernel", args.a, args.b);
        found.push(json!({"phase": null, "shared": false, "reason": null, "text": text}));
    }
    let iterations: Vec<String> = paths.iter().map(ValuePath::iterations).filter(|i| !i.is_empty()).collect();
    if args.json {
        output::json(&json!({
            "schema": "spinec.why-not/1", "a": args.a, "b": args.b, "iterations": iterations, "answers": found,
        }));
    } else {
        for i in &iterations {
            output::line(&format!("iteration {i}: the body of the loop is the same for all"));
        }
        for f in &found {
            let phase = f["phase"].as_str().map(|p| format!("{p}: ")).unwrap_or_default();
            output::line(&format!("{phase}{}", f["text"].as_str().unwrap_or_default()));
        }
    }
    Ok(Exit::Ok)
}

fn kernels(phase: &Phase, ops: &[OpId]) -> BTreeSet<usize> {
    let holds = |k: &spinec_ir::plan::Kernel| ops.iter().any(|id| k.ops.contains(id));
    (0..phase.kernels.len()).filter(|k| holds(&phase.kernels[*k])).collect()
}
