//! `spinec passes`: the compiler's passes, listed or run one by one.

use crate::args::{PassesArgs, SpecArgs};
use crate::exit::Exit;
use crate::output;
use crate::planner;
use serde_json::{Value, json};
use spinec_ir::ir::text;
use spinec_passes::pass::{PASSES, Program, Repeat};
use spinec_passes::rules::rules;

/// Lists or runs the passes.
pub fn run(args: &PassesArgs) -> Exit {
    match &args.spec {
        None => list(args.json),
        Some(spec) => {
            let spec = SpecArgs {
                spec: spec.clone(),
                checkpoints: args.checkpoints.clone(),
                sets: args.sets.clone(),
                numerics: args.numerics,
            };
            match execute(args, &spec) {
                Ok(exit) | Err(exit) => exit,
            }
        }
    }
}

fn list(as_json: bool) -> Exit {
    if as_json {
        let passes: Vec<Value> = PASSES.iter().map(|p| json!({"name": p.name, "doc": p.doc})).collect();
        let rules: Vec<Value> = rules()
            .map(|r| json!({"name": r.name, "class": r.class.name(), "form": r.form, "premises": r.premises}))
            .collect();
        output::json(&json!({"schema": "spinec.passes/1", "passes": passes, "rules": rules}));
        return Exit::Ok;
    }
    for p in PASSES {
        let again = match p.repeat {
            Repeat::Nothing => String::new(),
            Repeat::Other(why) => format!(" ({why})"),
        };
        output::line(&format!("{:<10} {}{again}", p.name, p.doc));
    }
    output::line("plan       specialises loops, groups ops into kernels, brings them into launch order");
    output::line("");
    for r in rules() {
        output::line(&format!("{:<20} {:<18} {}", r.name, r.class.name(), r.form));
    }
    Exit::Ok
}

fn execute(args: &PassesArgs, spec: &SpecArgs) -> Result<Exit, Exit> {
    let mut subject = planner::subject(spec, &args.plan)?;
    subject.options.stop_after = args.stop_after.clone();
    subject.options.limit_rewrites = args.limit;
    for name in &args.without {
        if !rules().any(|r| r.name == name.as_str()) {
            output::error(&format!("there is no rule `{name}`; `spinec passes` lists them"));
            return Err(Exit::Usage);
        }
        subject.options.without.insert(name.clone());
    }
    let known = |p: &String| PASSES.iter().any(|k| k.name == p.as_str()) || p == "plan";
    if let Some(p) = args.print_after.iter().chain(&args.stop_after).find(|p| !known(p)) {
        output::error(&format!("there is no pass `{p}`; `spinec passes` lists them"));
        return Err(Exit::Usage);
    }
    if args.stop_after.as_deref() == Some("plan") {
        subject.options.stop_after = None;
    }
    if let Some(dir) = &args.dump_dir {
        std::fs::create_dir_all(dir).map_err(|e| {
            output::error(&format!("{}: {e}", dir.display()));
            Exit::Failed
        })?;
    }
    let mut ran: Vec<Value> = Vec::new();
    let mut failed = None;
    let compiled = subject.compile(&mut |r, program: &Program| {
        let place = ran.len();
        ran.push(json!({
            "pass": r.pass, "ops_before": r.ops.0, "ops_after": r.ops.1,
            "hash": format!("{:016x}", r.after), "changed": r.before != r.after,
        }));
        let module = text::print(&program.module);
        if args.print_after.as_deref() == Some(r.pass) {
            output::line(module.trim_end());
        }
        if let Some(dir) = &args.dump_dir {
            let path = dir.join(format!("{place}-{}.ir", r.pass));
            if let Err(e) = std::fs::write(&path, module) {
                failed.get_or_insert(format!("{}: {e}", path.display()));
            }
        }
    })?;
    let plan = spinec_ir::plan::text::print(&compiled.plan);
    if args.print_after.as_deref() == Some("plan") {
        output::line(plan.trim_end());
    }
    if let Some(dir) = &args.dump_dir {
        let path = dir.join("plan.txt");
        if let Err(e) = std::fs::write(&path, plan) {
            failed.get_or_insert(format!("{}: {e}", path.display()));
        }
    }
    if let Some(why) = failed {
        output::error(&why);
        return Err(Exit::Failed);
    }
    if args.json {
        let regions: Vec<Value> = compiled
            .regions
            .iter()
            .map(|r| {
                json!({
                    "at": r.at, "ops": r.ops, "shared": r.shared, "iterations": r.saturation.iterations,
                    "nodes": r.saturation.nodes, "fired": r.saturation.fired, "time_ps": r.time_ps,
                })
            })
            .collect();
        output::json(
            &json!({"schema": "spinec.passes/1", "ran": ran, "regions": regions, "limits_hit": compiled.plan.limits_hit}),
        );
    } else if args.print_after.is_none() {
        for r in &ran {
            output::line(&format!(
                "{:<10} {:>6} -> {:>6} ops  {}{}",
                r["pass"].as_str().unwrap_or_default(),
                r["ops_before"],
                r["ops_after"],
                r["hash"].as_str().unwrap_or_default(),
                if r["changed"] == json!(false) { "  unchanged" } else { "" }
            ));
        }
        for r in &compiled.regions {
            let fired: Vec<String> = r.saturation.fired.iter().map(|(n, k)| format!("{n} {k}")).collect();
            if !fired.is_empty() {
                output::line(&format!(
                    "{}: {} ops, {} rounds, {} nodes: {}",
                    r.at,
                    r.ops,
                    r.saturation.iterations,
                    r.saturation.nodes,
                    fired.join(", ")
                ));
            }
        }
    }
    Ok(Exit::Ok)
}
