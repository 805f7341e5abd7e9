//! `spinec passes`: the compiler's passes, listed or run one by one.

mod numerics;

use crate::args::{NumericsArg, PassesArgs, SpecArgs};
use crate::exit::Exit;
use crate::output;
use crate::planner;
use serde_json::{Value, json};
use spinec_ir::ir::text;
use spinec_passes::choose::NARROW_STORAGE;
use spinec_passes::pass::{PASSES, Program, Repeat};
use spinec_passes::rules::{Class, rules};

/// Lists or runs the passes.
pub fn run(args: &PassesArgs) -> Exit {
    match &args.spec {
        None if args.print_after.is_some()
            || args.dump_dir.is_some()
            || args.stop_after.is_some()
            || args.limit.is_some()
            || args.check_numerics.is_some()
            || !args.without.is_empty()
            || args.plan.budget.is_some()
            || args.plan.device.is_some()
            || !args.with.sets.is_empty()
            || !args.with.checkpoints.is_empty() =>
        {
            output::error("name the system to run the passes on: spinec passes SYSTEM.yaml ...");
            Exit::Usage
        }
        None => list(args.json),
        Some(spec) => {
            let mut with = args.with.clone();
            // Rounding points hide what a pass does to a number.
            with.numerics = with.numerics.or(args.check_numerics.map(|_| NumericsArg::F64));
            let spec = SpecArgs { spec: spec.clone(), with };
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
        let choices = [json!({"name": NARROW_STORAGE, "class": NARROW.0.name(), "doc": NARROW.1})];
        output::json(&json!({"schema": "spinec.passes/1", "passes": passes, "rules": rules, "choices": choices}));
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
    output::line("");
    output::line(&format!("{:<20} {:<18} {}", NARROW_STORAGE, NARROW.0.name(), NARROW.1));
    Exit::Ok
}

/// Class and meaning of [`NARROW_STORAGE`], which is left out like a rule.
const NARROW: (Class, &str) =
    (Class::RoundingChanging, "a weight derived by rewriting is stored in the dtype of the weights it is made of");

fn execute(args: &PassesArgs, spec: &SpecArgs) -> Result<Exit, Exit> {
    let mut subject = planner::subject(spec, &args.plan)?;
    subject.options.stop_after = args.stop_after.clone();
    subject.options.limit_rewrites = args.limit;
    for name in &args.without {
        if !rules().any(|r| r.name == name.as_str()) && name != NARROW_STORAGE {
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
    let place = |p: &str| PASSES.iter().position(|k| k.name == p).unwrap_or(PASSES.len());
    if let (Some(stop), Some(print)) = (&args.stop_after, &args.print_after)
        && place(print) > place(stop)
    {
        output::error(&format!("pass `{print}` does not run: `{stop}` is the last one"));
        return Err(Exit::Usage);
    }
    let planned = subject.options.stop_after.is_none();
    if args.check_numerics.is_some() {
        if args.print_after.is_some() || args.dump_dir.is_some() {
            output::error(
                "--check-numerics shows no modules; leave out --print-after and --dump-dir, or run them by themselves",
            );
            return Err(Exit::Usage);
        }
        return numerics::check_numerics(&subject, args.json);
    }
    if let Some(dir) = &args.dump_dir {
        std::fs::create_dir_all(dir).map_err(|e| {
            output::error(&format!("{} cannot be made a directory to dump into: {e}", dir.display()));
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
    if let Some(dir) = args.dump_dir.as_ref().filter(|_| planned) {
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
                    "class": r.class.name(), "narrowed": r.narrowed,
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
            let narrowed = (r.narrowed > 0).then_some((NARROW_STORAGE, r.narrowed));
            let all = r.saturation.fired.iter().map(|(n, k)| (*n, *k)).chain(narrowed);
            let fired: Vec<String> = all.map(|(n, k)| format!("{n} {k}")).collect();
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
