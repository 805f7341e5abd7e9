//! `spinec check`: every error of a spec.

use crate::args::CheckArgs;
use crate::exit::Exit;
use crate::files::{Spec, load_spec};
use crate::output;
use serde_json::json;
use spinec_ir::diag::to_json;

/// Checks a system or graph.
pub fn run(args: &CheckArgs) -> Exit {
    let Spec { sources, diags, system } = match load_spec(&args.spec, false) {
        Ok(s) => s,
        Err(exit) => return exit,
    };
    let exit = Exit::of(&diags);
    if args.json {
        let list = diags.into_sorted();
        output::json(&json!({"schema": "spinec.check/1", "diagnostics": to_json(&list, &sources)}));
        return exit;
    }
    output::diagnostics(diags, &sources);
    if exit == Exit::Ok {
        match system {
            Some(s) => output::line(&format!(
                "ok: system {} with {} weights, {} states, {}, {}",
                s.name,
                s.weights.len(),
                s.states.len(),
                named("phases", &s.phases()),
                named("entries", &s.entries())
            )),
            None => output::line(&format!("ok: {}", args.spec.spec.display())),
        }
    }
    exit
}

fn named(what: &str, names: &[&str]) -> String {
    if names.is_empty() { format!("no {what}") } else { format!("{what} {}", names.join(" ")) }
}
