//! `spinec explain`: what an error code means; where a value of a system is computed and why there.

mod chains;
mod kernels;
mod other;
mod text;

use super::values::facts::{fact, name};
use super::values::flow::Flow;
use super::values::{Found, ValuePath, alias, output_of, unknown, weight_of};
use crate::args::{ExplainArgs, SpecArgs};
use crate::exit::Exit;
use crate::output;
use crate::planner::{self, Subject};
use chains::Teller;
use serde_json::{Value, json};
use spinec_ir::diag::{CODES, code_info, suggest};
use spinec_ir::ir::{Func, OpId};
use spinec_ir::ops::Effect;
use spinec_passes::region::is_source;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Explains a code, all codes, or a value.
pub fn run(args: &ExplainArgs) -> Exit {
    let Some(code) = &args.code else {
        if args.json {
            let all: Vec<Value> =
                CODES.iter().map(|(code, meaning)| json!({"code": code, "meaning": meaning})).collect();
            output::json(&json!({"schema": "spinec.explain/1", "codes": all}));
            return Exit::Ok;
        }
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
        Some(meaning) if args.json => {
            output::json(&json!({"schema": "spinec.explain/1", "codes": [{"code": code, "meaning": meaning}]}));
            Exit::Ok
        }
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
    let mut subject = planner::subject(spec, &args.plan)?;
    subject.options.record = true;
    let compiled = subject.compile(&mut |_, _| {})?;
    let plan = &compiled.plan;
    let wrong = |why: String| {
        output::error(&why);
        Exit::Usage
    };
    // A part of a system may know a weight by another name.
    let shared = alias(&subject.module, value);
    let value = shared.as_deref().unwrap_or(value);
    let path = ValuePath::parse(value).map_err(wrong)?;
    path.check(&subject.module).map_err(wrong)?;
    let teller = Teller { subject: &subject, compiled: &compiled };
    let weight = weight_of(&plan.module, value).map_err(wrong)?;
    let mut phases = Vec::new();
    for (func, phase) in plan.module.funcs.iter().zip(&plan.phases) {
        let lowered = subject.module.func(&func.name);
        // Reading a weight is an op of the weight's name.
        let written = lowered.filter(|_| weight.is_none()).map(|f| path.find(f)).unwrap_or_default();
        let found = path.find(func);
        if found.is_empty() && written.is_empty() {
            continue;
        }
        let flow = Flow::of(func, phase);
        let values = || found.values.iter().map(|v| (*v, flow.at(*v, &path)));
        let mut facts: Vec<String> = values().filter_map(|(v, at)| fact(&flow, plan, v, &at)).collect();
        let output = output_of(func, &path.plain).filter(|_| path.indices.is_empty());
        facts.extend(output.map(|v| format!("{} is output `{}` of the phase", name(&flow, v), path.plain)));
        facts.dedup();
        let regions = teller.values(func, &path);
        let own: BTreeSet<usize> = found.ops.iter().flat_map(|id| flow.computing(*id)).copied().collect();
        let makers = || values().flat_map(|(v, at)| flow.makers(v, &at)).map(|l| l.kernel).collect();
        let kernels: BTreeSet<usize> = if own.is_empty() { makers() } else { own };
        let readers: BTreeSet<usize> = found.values.iter().flat_map(|v| flow.readers(*v, &path)).collect();
        let readers: Vec<String> = readers.iter().map(|k| format!("{}.{k}", func.name)).collect();
        phases.push(json!({
            "phase": func.name, "value": path.plain, "facts": facts,
            "ops": kernels::ops(&subject, plan, &flow, &found.ops),
            "kernels": kernels::kernels(&subject, plan, &flow, &kernels),
            "read_by": readers,
            "regions": regions,
            "note": note(&subject, func, &path, &found, regions.is_empty()),
        }));
    }
    let weight = match weight {
        Some(w) if phases.is_empty() => {
            let name = &plan.module.weights[w.id].name;
            json!({"name": name, "text": kernels::weight(plan, &w), "parts": teller.derived(name)})
        }
        _ => Value::Null,
    };
    if phases.is_empty() && weight.is_null() {
        phases = other::phases(&subject, plan, value);
    }
    if phases.is_empty() && weight.is_null() {
        return Err(wrong(unknown(spec, &args.plan, [&plan.module, &subject.module], value)));
    }
    // A kernel's number is no index.
    let found = phases.iter().any(|p| p["value"] == *path.plain);
    let iterations = if found { path.iterations() } else { Vec::new() };
    let report = json!({
        "schema": "spinec.explain/1", "value": value, "iterations": iterations, "phases": phases,
        "weight": weight,
    });
    if args.json {
        output::json(&report);
    } else {
        text::print(&report);
    }
    Ok(Exit::Ok)
}

/// What to say of a value that is in no region, or of which nothing is left.
fn note(subject: &Subject, func: &Func, path: &ValuePath, found: &Found, nowhere: bool) -> Option<&'static str> {
    if found.is_empty() && nowhere {
        let lowered = subject.module.func(&func.name);
        let codes = lowered.into_iter().flat_map(|f| path.find(f).ops.into_iter().map(|id| f.op(id).code));
        let sources = codes.clone().count() > 0 && codes.clone().all(is_source);
        return Some(if sources {
            "not computed: a constant or weight, made again wherever it is read"
        } else {
            "not computed: nothing that this phase is asked for needs it, or an equal value stands for it; `clean` drops it"
        });
    }
    let kept = |id: &OpId| {
        let op = func.op(*id);
        is_source(op.code) || !op.regions.is_empty() || op.code.def().effect != Effect::Pure
    };
    let computed = nowhere && !found.ops.is_empty() && found.ops.iter().all(kept);
    computed.then_some("computed as written: constants, weights, inputs, control and effects are never rewritten")
}
