//! What every rule is for: without it the release's plan lacks something that can be named.

mod support;

use spinec_ir::ir::Module;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::Numerics;
use spinec_passes::pass::{self, Options, Program};
use spinec_passes::rules::rules;
use std::collections::BTreeSet;
use support::*;

fn run(module: &Module, without: &str) -> Program {
    let mut options = Options::new(h200());
    options.without.extend([without.to_owned()]);
    pass::run(module.clone(), &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// What a plan has.
fn facts(p: &Program) -> BTreeSet<String> {
    let mut out: BTreeSet<String> = p.derived.iter().map(|d| format!("{}", p.module.weight(d.weight).ty)).collect();
    let f = &p.module.funcs[0];
    let has = |code: Opcode| f.ops.iter().any(|op| op.code == code);
    let constant = |v: f64| f.ops.iter().any(|op| op.code == Opcode::Const && op.float("value") == Some(v));
    if has(Opcode::Guarded) {
        out.insert("guarded factors".to_owned());
    } else if !has(Opcode::Rsqrt) && f.ops.iter().filter(|op| op.code == Opcode::RmsNorm).count() == 5 {
        out.insert("no normaliser".to_owned());
    }
    // 32 scales the known code in the loop over layers; what scales the predecessor's is in the table.
    let body = &f.region(f.body).ops;
    if !body.iter().any(|op| f.op(*op).code == Opcode::Const && f.op(*op).float("value") == Some(32.0))
        && constant(32.0)
    {
        out.insert("scale in the table".to_owned());
    }
    for g in p.regions.iter().flat_map(|r| &r.groups) {
        let last = |w: &str| w.rsplit('.').next().unwrap_or_default().to_owned();
        out.insert(g.maps.iter().map(|m| last(&m.weight)).collect::<Vec<_>>().join(" + "));
    }
    // Elementwise arithmetic on rows of the residual's width in the loop over layers: one division less where it is behind the
    // read.
    let wide = |v| f.tensor(v).is_some_and(|t| t.dims.last().and_then(|d| d.as_const()) == Some(5120));
    if !f.ops.iter().any(|op| op.code == Opcode::Div && op.results.iter().any(|v| wide(*v))) {
        out.insert("division behind the read".to_owned());
    }
    // Costs, in steps large enough to be launches or passes over memory, not picoseconds.
    let time: u64 = p.regions.iter().map(|r| r.time_ps * r.runs).sum();
    out.insert(format!("{} ns", time / 1000));
    let ops: usize = f.regions.iter().map(|r| r.ops.len()).sum();
    out.insert(format!("{ops} ops"));
    out
}

/// What the plan loses without each rule, under both laws, as far as the rule fires at all.
#[test]
fn every_rule_used_by_the_release_is_missed() {
    let system = system("graphs/qwen3.8-27b-dspine.yaml", Numerics::BF16, &[]);
    let mut found = String::new();
    for law in ["greedy", "mixed"] {
        let module = draft(&system, law);
        let whole = run(&module, "");
        let (has, fired) = (facts(&whole), whole.fired());
        for rule in rules().filter(|r| fired.contains_key(r.name)) {
            let lost: Vec<String> = has.difference(&facts(&run(&module, rule.name))).cloned().collect();
            found.push_str(&format!("{law} | {} | {}\n", rule.name, lost.join("; ")));
        }
    }
    let path = root().join("crates/passes/tests/mutation.txt");
    if std::env::var_os("SPINEC_BLESS").is_some() {
        std::fs::write(&path, &found).expect("the file can be written");
    }
    let want = std::fs::read_to_string(&path).expect("the file is there");
    assert_eq!(found, want, "SPINEC_BLESS=1 records what is lost now");
    // A rule that fires and whose loss nobody would notice is no rule the release needs: these are known.
    let unmissed: BTreeSet<&str> = rules()
        .map(|r| r.name)
        .filter(|r| {
            let lines: Vec<&str> = found.lines().filter(|l| l.split(" | ").nth(1) == Some(r)).collect();
            !lines.is_empty() && lines.iter().all(|l| l.ends_with("| "))
        })
        .collect();
    assert_eq!(unmissed, UNMISSED.into(), "{found}");
}

/// A rule that fires and of which the plan keeps nothing.
const UNMISSED: [&str; 1] = ["linear-scale"];
