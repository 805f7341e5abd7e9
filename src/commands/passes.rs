//! `spinec passes`: the compiler's passes, listed or run one by one.

use crate::args::{NumericsArg, PassesArgs, SpecArgs};
use crate::exit::Exit;
use crate::output;
use crate::planner::{self, Subject};
use serde_json::{Value, json};
use spinec_ir::ir::{Func, Weight, text};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{Env, TensorType};
use spinec_passes::choose::NARROW_STORAGE;
use spinec_passes::pass::check::{Advice, Bound, Change, Check, Knob, Place, Report, Turned, advise, check_each};
use spinec_passes::pass::{PASSES, PassError, Program, Repeat};
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
        return check_numerics(&subject, args.json);
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

/// Elements of weights up to which phases are evaluated by the interpreter, which is plain: larger systems would take hours.
const MOST_ELEMENTS: i64 = 1 << 24;

/// Requests and rows of every call, and the seeds it is made with.
const REQUESTS: i64 = 2;
const ROWS: i64 = 3;
const SEEDS: [u64; 3] = [1, 2, 3];

/// Evaluates the phases before and after every pass.
fn check_numerics(subject: &Subject, as_json: bool) -> Result<Exit, Exit> {
    let elements = |w: &Weight| {
        let loops = w.loops.iter().map(|l| l.1).fold(1i64, i64::saturating_mul);
        w.ty.dims.iter().filter_map(|d| d.as_const()).fold(loops, i64::saturating_mul)
    };
    let total: i64 = subject.module.weights.iter().map(elements).fold(0, i64::saturating_add);
    if total > MOST_ELEMENTS {
        output::error(&format!(
            "the weights have {total} elements; the interpreter is for at most {MOST_ELEMENTS}: check the same graphs with a small checkpoint (--checkpoint NAME=DIR), for example one of `spinec synth`; a system that limits its dims is checked as one without `limits`"
        ));
        return Err(Exit::Usage);
    }
    // Few requests and rows, within the bounds of each symbol.
    let (one, two) = (subject.env(1, ROWS), subject.env(2, ROWS));
    let mut env = two.clone();
    for s in &subject.module.symbols {
        let counts_requests = one.get(&s.name) != two.get(&s.name);
        if let Some(n) = env.get_mut(&s.name) {
            let few = if counts_requests { REQUESTS } else { ROWS };
            *n = few.clamp(s.bounds.min.unwrap_or(1), s.bounds.max.unwrap_or(i64::MAX).max(s.bounds.min.unwrap_or(1)));
        }
    }
    let extents = env.clone();
    let given =
        move |func: &Func, name: &str, ty: &TensorType| made_for_engine(name, ty, &extents, rows(func, &extents));
    let check = Check { env, seeds: SEEDS.into(), given: &given, tolerance: None };
    let bug = |e: PassError| {
        output::error(&e.to_string());
        Exit::Bug
    };
    let (program, report) = check_each(subject.module.clone(), &subject.options, &check).map_err(bug)?;
    let advice = match &report.difference {
        None => None,
        Some(d) => Some(advise(&subject.module, &subject.options, &check, d, &program).map_err(bug)?),
    };
    if as_json {
        output::json(&as_value(subject, &report, advice.as_ref()));
    } else {
        show(subject, &report);
    }
    let Some(d) = &report.difference else { return Ok(Exit::Ok) };
    output::error(&format!(
        "pass `{}` changes {}: it {}, allowed is {}",
        d.place.pass,
        at(subject, &d.place),
        d.change,
        allowed(&d.bound)
    ));
    if !d.fired.is_empty() {
        output::note(&format!("where it is computed: {}", d.fired.join(", ")));
    }
    if let Some(advice) = &advice {
        output::note(&advised(advice));
    }
    Ok(Exit::Failed)
}

/// What applied, and near ties.
fn show(subject: &Subject, report: &Report) {
    for a in &report.applied {
        let worst = if a.bound.tolerance > 0.0 { format!(", at most {:.1e} off", a.worst) } else { String::new() };
        output::line(&format!("{:<8} {:>7} values: {}{worst}", a.pass, a.values, allowed(&a.bound)));
    }
    for t in &report.ties {
        output::line(&format!("near tie: after `{}` {} {}", t.place.pass, at(subject, &t.place), t.turned));
    }
    if report.difference.is_none() {
        output::line("every value of every phase is the same before and after each pass, within these bounds");
    }
}

/// A bound, for people.
fn allowed(bound: &Bound) -> String {
    match bound.class {
        _ if bound.tolerance == 0.0 => format!("the same bits ({})", bound.class.name()),
        class => format!("{:.0e} ({} in {})", bound.tolerance, class.name(), bound.dtype),
    }
}

/// A place, for people.
fn at(subject: &Subject, place: &Place) -> String {
    let part = if place.part { "a part of " } else { "" };
    let written = place.span.map(|s| format!(", written at {}", subject.sources.place(s))).unwrap_or_default();
    format!("{part}`{}` of {}{written} (seed {})", place.value, place.func, place.seed)
}

fn advised(advice: &Advice) -> String {
    let flags = |knobs: &[Knob]| knobs.iter().map(|k| k.flag()).collect::<Vec<_>>();
    match advice {
        Advice::OneOf(knobs) if knobs.len() == 1 => format!("with {} nothing differs", flags(knobs)[0]),
        Advice::OneOf(knobs) => format!("with any one of these nothing differs: {}", flags(knobs).join(", ")),
        Advice::All(knobs) => format!("with {} nothing differs; all of them are needed", flags(knobs).join(" ")),
        Advice::Nothing => "a value differs too with all rules left out and no derived weights".to_owned(),
    }
}

fn as_value(subject: &Subject, report: &Report, advice: Option<&Advice>) -> Value {
    let bound = |b: &Bound| json!({"class": b.class.name(), "dtype": b.dtype.name(), "tolerance": b.tolerance});
    let place = |p: &Place| {
        json!({
            "pass": p.pass, "phase": p.func, "value": p.value, "part": p.part, "seed": p.seed,
            "place": p.span.map(|s| subject.sources.place(s)),
        })
    };
    let applied: Vec<Value> = report
        .applied
        .iter()
        .map(|a| json!({"pass": a.pass, "bound": bound(&a.bound), "values": a.values, "worst": a.worst}))
        .collect();
    let turned = |t: &Turned| json!({"want": t.want, "got": t.got, "gap": finite(t.gap)});
    let ties: Vec<Value> = report
        .ties
        .iter()
        .map(|t| json!({"at": place(&t.place), "turned": turned(&t.turned), "bound": bound(&t.bound)}))
        .collect();
    let difference = report.difference.as_ref().map(|d| {
        let (error, turn) = match &d.change {
            Change::Off(error) => (finite(*error), None),
            Change::Turned(t) => (Value::Null, Some(turned(t))),
            Change::Other { .. } | Change::Type { .. } => (Value::Null, None),
        };
        json!({
            "at": place(&d.place), "change": d.change.to_string(), "error": error, "turned": turn,
            "bound": bound(&d.bound), "fired": d.fired,
        })
    });
    let advice = advice.map(|a| {
        let (kind, knobs): (&str, &[Knob]) = match a {
            Advice::OneOf(knobs) => ("one_of", knobs),
            Advice::All(knobs) => ("all", knobs),
            Advice::Nothing => ("nothing", &[]),
        };
        json!({"kind": kind, "flags": knobs.iter().map(|k| k.flag()).collect::<Vec<_>>()})
    });
    json!({
        "schema": "spinec.passes/1", "applied": applied, "ties": ties, "difference": difference, "advice": advice,
    })
}

/// JSON has no infinity.
fn finite(v: f64) -> Value {
    if v.is_finite() { json!(v) } else { Value::Null }
}

/// Rows every request has in a call: the second extent of the inputs that have one.
fn rows(func: &Func, env: &Env) -> i64 {
    let inputs = func.region(func.body).params.iter().filter_map(|v| func.tensor(*v));
    inputs.filter_map(|t| t.dims.get(1)?.eval(env)).min().unwrap_or(1)
}

/// What the engine would feed: laws that are laws, rows that exist. Anything else is made up; so every other request takes
/// the most likely token where a phase has both kinds.
fn made_for_engine(name: &str, ty: &TensorType, env: &Env, rows: i64) -> Option<Tensor> {
    let extent = |d: &spinec_ir::ty::Dim| d.eval(env).and_then(|n| usize::try_from(n).ok());
    let shape = ty.dims.iter().map(extent).collect::<Option<Vec<usize>>>()?;
    let n: usize = shape.iter().product();
    let all = |v: &dyn Fn(usize) -> f64| Tensor::f64(shape.clone(), (0..n).map(v).collect()).cast(ty.dtype);
    match name {
        "temperature" => all(&|_| 0.8),
        "top_p" => all(&|_| 0.9),
        "top_k" => all(&|_| 5.0),
        "rows" | "width" | "keep" => all(&|i| (rows - (i % 2) as i64).max(1) as f64),
        "position" | "first" => all(&|_| 0.0),
        _ => None,
    }
}
