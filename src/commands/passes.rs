//! `spinec passes`: the compiler's passes, listed or run one by one.

use crate::args::{NumericsArg, PassesArgs, SpecArgs};
use crate::exit::Exit;
use crate::output;
use crate::planner::{self, Subject};
use serde_json::{Value, json};
use spinec_ir::ir::{Func, Weight, text};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{Env, Numerics, TensorType};
use spinec_passes::pass::check::{Check, check_each};
use spinec_passes::pass::{PASSES, Program, Repeat};
use spinec_passes::rules::{Class, Rule, rules};

/// Lists or runs the passes.
pub fn run(args: &PassesArgs) -> Exit {
    match &args.spec {
        None if args.print_after.is_some()
            || args.dump_dir.is_some()
            || args.stop_after.is_some()
            || args.limit.is_some()
            || args.check_numerics.is_some()
            || !args.without.is_empty() =>
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
    let place = |p: &str| PASSES.iter().position(|k| k.name == p).unwrap_or(PASSES.len());
    if let (Some(stop), Some(print)) = (&args.stop_after, &args.print_after)
        && place(print) > place(stop)
    {
        output::error(&format!("pass `{print}` does not run: `{stop}` is the last one"));
        return Err(Exit::Usage);
    }
    let planned = subject.options.stop_after.is_none();
    let rounding: Vec<&str> = allowed(&subject, Class::RoundingChanging);
    if args.check_numerics.is_some() && subject.numerics() != Numerics::F64 && !rounding.is_empty() {
        output::error(&format!(
            "in {} the system allows rules that move rounding points ({}), so values differ and nothing is wrong; check in f64 (leave out --numerics), where a rule that computes something else still shows, or leave these rules out with --without",
            subject.numerics().name(),
            rounding.join(", ")
        ));
        return Err(Exit::Usage);
    }
    if args.check_numerics.is_some() {
        return check_numerics(&subject, args.json);
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

/// The rules of a class that may fire, by name.
fn allowed(subject: &Subject, class: Class) -> Vec<&'static str> {
    let options = &subject.options;
    let may = |r: &&Rule| r.class == class && options.classes.contains(&class) && !options.without.contains(r.name);
    rules().filter(may).map(|r| r.name).collect()
}

/// Elements of weights up to which phases are evaluated by the interpreter, which is plain: larger systems would take hours.
const MOST_ELEMENTS: i64 = 1 << 24;

/// Evaluates the phases before and after every pass.
fn check_numerics(subject: &Subject, as_json: bool) -> Result<Exit, Exit> {
    let elements = |w: &Weight| {
        let loops = w.loops.iter().map(|l| l.1).fold(1i64, i64::saturating_mul);
        w.ty.dims.iter().filter_map(|d| d.as_const()).fold(loops, i64::saturating_mul)
    };
    let total: i64 = subject.module.weights.iter().map(elements).fold(0, i64::saturating_add);
    if total > MOST_ELEMENTS {
        output::error(&format!(
            "the weights have {total} elements; the interpreter is for at most {MOST_ELEMENTS}: check the same graphs with a small checkpoint (--checkpoint NAME=DIR), for example one of `spinec synth`"
        ));
        return Err(Exit::Usage);
    }
    let mut env = subject.env(1, 3);
    for s in &subject.module.symbols {
        if let Some(n) = env.get_mut(&s.name) {
            *n = (*n).min(s.bounds.min.unwrap_or(1).max(3)).min(s.bounds.max.unwrap_or(i64::MAX));
        }
    }
    let requests = subject.env(1, 3);
    for (name, n) in requests {
        if n == 1 {
            env.insert(name, 1);
        }
    }
    let extents = env.clone();
    let given = move |func: &Func, name: &str, ty: &TensorType| made_for_engine(name, ty, rows(func, &extents));
    let check = Check { env, requests: 1, seed: 1, given: &given, tolerance: None };
    let (_, found) = check_each(subject.module.clone(), &subject.options, &check).map_err(|e| {
        output::error(&e.to_string());
        Exit::Bug
    })?;
    let place = found.as_ref().and_then(|f| f.span).map(|s| subject.sources.place(s));
    if as_json {
        let found = found
            .as_ref()
            .map(|f| json!({"pass": f.pass, "phase": f.func, "value": f.value, "place": place, "error": f.error}));
        output::json(&json!({"schema": "spinec.passes/1", "difference": found}));
    }
    match found {
        None => {
            if !as_json {
                output::line("every value of every phase is the same before and after each pass");
            }
            Ok(Exit::Ok)
        }
        Some(f) => {
            let place = place.map(|p| format!(", written at {p}")).unwrap_or_default();
            output::error(&format!("pass `{}` changes `{}` of {} by {:.1e}{place}", f.pass, f.value, f.func, f.error));
            Ok(Exit::Failed)
        }
    }
}

/// Rows every request has in a call: the second extent of the inputs that have one.
fn rows(func: &Func, env: &Env) -> i64 {
    let inputs = func.region(func.body).params.iter().filter_map(|v| func.tensor(*v));
    inputs.filter_map(|t| t.dims.get(1)?.eval(env)).min().unwrap_or(1)
}

/// What the engine would feed: laws that are laws, rows that exist. Anything else is made up.
fn made_for_engine(name: &str, ty: &TensorType, rows: i64) -> Option<Tensor> {
    let one = |v: f64| Tensor::f64(vec![1], vec![v]).cast(ty.dtype);
    match name {
        "temperature" => one(0.8),
        "top_p" => one(0.9),
        "top_k" => one(5.0),
        "rows" | "width" | "keep" => one(rows as f64),
        "position" | "first" => one(0.0),
        _ => None,
    }
}
