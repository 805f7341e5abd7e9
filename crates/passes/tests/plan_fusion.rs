//! Fusion by example: a module of every kind of fusion and of every reason to refuse one, with the kernels and decisions it
//! leads to beside it. `SPINEC_BLESS=1` writes what is beside them anew.

mod plan_support;
mod support;

use plan_support::values::{compare, results, round_trip};
use plan_support::*;
use spinec_ir::interp::Mode;
use spinec_ir::ir::testing::{Range, Sample};
use spinec_ir::ir::text::parse;
use spinec_ir::ir::verify::verify;
use spinec_ir::plan::text::print;
use spinec_ir::plan::{Mechanism, Plan, Reason};
use spinec_passes::fuse::Options;
use std::collections::BTreeSet;
use std::path::PathBuf;
use support::root;

/// The examples by name, with their text.
fn examples() -> Vec<(String, PathBuf, String)> {
    let dir = root().join("crates/passes/tests/filetests/fusion");
    let files = std::fs::read_dir(dir).expect("the folder is there").map(|e| e.expect("it can be listed").path());
    let mut out: Vec<(String, PathBuf, String)> = files
        .filter(|p| p.extension().is_some_and(|e| e == "ir"))
        .map(|p| {
            let name = p.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
            let text = std::fs::read_to_string(&p).expect("the file can be read");
            (name, p, text)
        })
        .collect();
    out.sort();
    out
}

fn says(text: &str, line: &str) -> bool {
    text.lines().take_while(|l| l.starts_with(';')).any(|l| l == line)
}

fn plan(name: &str, text: &str) -> Plan {
    let module = parse(text).unwrap_or_else(|e| panic!("{name}: {}", e[0]));
    let errors = verify(&module);
    assert!(errors.is_empty(), "{name}: {}", errors[0]);
    let how = Options { device: plan_support::h200(), reassociate: !says(text, "; reassociate: no"), fuse: true };
    fused(module, &how).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn examples_lead_to_the_recorded_kernels() {
    let mut wrong = Vec::new();
    for (name, path, text) in examples() {
        let plan = plan(&name, &text);
        round_trip(&plan).unwrap_or_else(|e| panic!("{name}: {e}"));
        let found = print(&plan);
        let found = &found[found.find("\nsection phase").map_or(0, |i| i + 1)..];
        let beside = path.with_extension("plan");
        if std::env::var_os("SPINEC_BLESS").is_some() {
            std::fs::write(&beside, found).expect("the file can be written");
        }
        if std::fs::read_to_string(&beside).ok().as_deref() != Some(found) {
            wrong.push(format!("{name}:\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "SPINEC_BLESS=1 records what is new\n{}", wrong.join("\n"));
}

/// An example that is named after a reason or a mechanism shows it, and there is one for each.
#[test]
fn every_reason_and_mechanism_has_an_example() {
    let mut reasons = BTreeSet::new();
    let mut mechanisms = BTreeSet::new();
    let mut wrong = Vec::new();
    for (name, _, text) in examples() {
        let plan = plan(&name, &text);
        let phases = || plan.phases.iter();
        let decided: BTreeSet<Reason> = phases().flat_map(|p| &p.decisions).map(|d| d.reason).collect();
        let named: BTreeSet<Mechanism> =
            phases().flat_map(|p| &p.kernels).flat_map(|k| &k.mechanisms).copied().collect();
        match (Reason::from_name(&name), Mechanism::from_name(&name)) {
            (None, None) => {}
            (reason, mechanism) => {
                if !(reason.is_none_or(|r| decided.contains(&r)) && mechanism.is_none_or(|m| named.contains(&m))) {
                    wrong.push(format!("{name} is not shown: {decided:?} {named:?}"));
                }
                reasons.extend(reason);
            }
        }
        mechanisms.extend(named);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let missing: Vec<&str> = Reason::ALL.iter().filter(|r| !reasons.contains(r)).map(|r| r.name()).collect();
    assert!(missing.is_empty(), "no example is named {missing:?}");
    let missing: Vec<&str> = Mechanism::ALL.iter().filter(|m| !mechanisms.contains(m)).map(|m| m.name()).collect();
    assert!(missing.is_empty(), "no example has {missing:?}");
}

/// Fusion changes the order of ops and nothing else: the same bits.
#[test]
fn examples_keep_their_values() {
    for (name, _, text) in examples() {
        if says(&text, "; values: no") {
            continue;
        }
        let plan = plan(&name, &text);
        let module = parse(&text).unwrap_or_else(|e| panic!("{name}: {}", e[0]));
        let params = |f: &spinec_ir::ir::Func| f.region(f.body).params.len();
        let inputs = module.funcs.iter().map(|f| vec![Range { lo: 0.0, hi: 1.0 }; params(f)]).collect();
        let s = Sample { module, inputs };
        let want = results(&s.module, None, &s, 1, Mode::Immediate).unwrap_or_else(|e| panic!("{name}: {e}"));
        let got = results(&plan.module, None, &s, 1, Mode::Immediate).unwrap_or_else(|e| panic!("{name}: {e}"));
        compare(&got, &want, 0.0).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
