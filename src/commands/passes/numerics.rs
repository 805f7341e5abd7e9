//! `spinec passes --check-numerics`: what each pass does to the values of the phases.

use crate::exit::Exit;
use crate::output;
use crate::planner::Subject;
use serde_json::{Value, json};
use spinec_ir::ir::{Func, Weight};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{Env, TensorType};
use spinec_passes::pass::PassError;
use spinec_passes::pass::check::{Advice, Bound, Change, Check, Knob, Place, Report, Turned, advise, check_each};

/// Elements of weights up to which phases are evaluated by the interpreter, which is plain: larger systems would take hours.
const MOST_ELEMENTS: i64 = 1 << 24;

/// Requests and rows of every call, and the seeds it is made with.
const REQUESTS: i64 = 2;
const ROWS: i64 = 3;
const SEEDS: [u64; 3] = [1, 2, 3];

/// Evaluates the phases before and after every pass.
pub(super) fn check_numerics(subject: &Subject, as_json: bool) -> Result<Exit, Exit> {
    let elements = |w: &Weight| {
        let loops = w.loops.iter().map(|l| l.1).fold(1i64, i64::saturating_mul);
        w.ty.dims.iter().filter_map(|d| d.as_const()).fold(loops, i64::saturating_mul)
    };
    let total: i64 = subject.module.weights.iter().map(elements).fold(0, i64::saturating_add);
    if total > MOST_ELEMENTS {
        output::error(&format!(
            "the weights have {total} elements; the interpreter is for at most {MOST_ELEMENTS}: check the same graphs with a small checkpoint (--checkpoint NAME=DIR) within the limits of the system; of a checkpoint only config.json is read"
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
        output::note(&format!("what fired where it is computed: {}", d.fired.join(", ")));
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
