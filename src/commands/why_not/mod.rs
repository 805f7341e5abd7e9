//! `spinec why-not`: what was decided about two values sharing a kernel.

mod relation;

use super::values::{ValuePath, alias, unknown, weight_of};
use crate::args::WhyNotArgs;
use crate::exit::Exit;
use crate::output;
use crate::planner;
use relation::{Relation, Side};
use serde_json::json;

/// Prints the decisions between two values.
pub fn run(args: &WhyNotArgs) -> Exit {
    match show(args) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn show(args: &WhyNotArgs) -> Result<Exit, Exit> {
    let subject = planner::subject(&args.spec, &args.plan)?;
    let plan = subject.compile(&mut |_, _| {})?.plan;
    let wrong = |why: String| {
        output::error(&why);
        Exit::Usage
    };
    let mut sides = Vec::new();
    for given in [&args.a, &args.b] {
        let shared = alias(&subject.module, given);
        let path = ValuePath::parse(given).map_err(wrong)?;
        path.check(&subject.module).map_err(wrong)?;
        let written = |m: &spinec_ir::ir::Module| m.funcs.iter().any(|f| !path.find(f).is_empty());
        let weight = weight_of(&plan.module, shared.as_deref().unwrap_or(given)).map_err(wrong)?;
        let known = written(&subject.module) || written(&plan.module);
        if !known && weight.is_none() {
            return Err(wrong(unknown(&args.spec, &args.plan, [&plan.module, &subject.module], given)));
        }
        sides.push(Side { given, path, weight });
    }
    let relation = Relation { lowered: &subject.module, plan: &plan, a: &sides[0], b: &sides[1] };
    let answers = relation.answers();
    let iterations: Vec<String> = sides.iter().flat_map(|s| s.path.iterations()).collect();
    if args.json {
        let list: Vec<_> = answers
            .iter()
            .map(|a| {
                json!({
                    "phase": a.phase, "fact": a.fact, "shared": a.shared, "reason": a.reason.map(|r| r.name()), "text": a.text,
                })
            })
            .collect();
        output::json(&json!({
            "schema": "spinec.why-not/1", "a": args.a, "b": args.b, "iterations": iterations, "answers": list,
        }));
    } else {
        for a in &answers {
            let phase = a.phase.as_ref().map(|p| format!("{p}: ")).unwrap_or_default();
            output::line(&format!("{phase}{}", a.text));
        }
    }
    Ok(Exit::Ok)
}
