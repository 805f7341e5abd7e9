//! Linear maps of one operand become one group, and what keeps them from reading one operand moves out of the way.

mod support;

use spinec_ir::ir::{Func, Module, Op, OpId, ValueDef, ValueId};
use spinec_ir::ops::Opcode;
use spinec_passes::pass::{self, Options, Program};
use std::collections::BTreeMap;
use support::*;

const RELEASE: &str = "graphs/qwen3.8-27b-dspine.yaml";

fn run(module: Module, change: impl FnOnce(&mut Options)) -> Program {
    let mut options = Options::new(h200());
    change(&mut options);
    pass::run(module, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// The last parts of the weights' names of every group of a function, by the parts in front.
fn groups(p: &Program, func: &str) -> Vec<String> {
    let regions = p.regions.iter().filter(|r| r.at.split(':').next() == Some(func));
    let mut out: Vec<String> = regions
        .flat_map(|r| &r.groups)
        .map(|g| {
            assert_eq!(g.reason, spinec_passes::pack::REASON);
            let name = |w: &str| w.rsplit('.').next().unwrap_or_default().to_owned();
            g.maps.iter().map(|m| name(&m.weight)).collect::<Vec<_>>().join(" ")
        })
        .collect();
    out.sort();
    out
}

fn def(f: &Func, v: ValueId) -> Option<&Op> {
    match f.value(v).def {
        ValueDef::Result(op, _) => Some(f.op(op)),
        ValueDef::Param(..) => None,
    }
}

/// The linear maps of a function by the last part of the name of their weight.
fn maps<'a>(p: &'a Program, f: &'a Func) -> BTreeMap<String, Vec<&'a Op>> {
    let mut out: BTreeMap<String, Vec<&Op>> = BTreeMap::new();
    for op in f.ops.iter().filter(|op| op.code == Opcode::Linear) {
        if let Some(w) = def(f, op.operands[1]).and_then(|w| w.int("weight")) {
            let name = &p.module.weights[w as usize].name;
            out.entry(name.rsplit('.').next().unwrap_or_default().to_owned()).or_default().push(op);
        }
    }
    out
}

fn users(f: &Func, v: ValueId) -> Vec<Opcode> {
    (0..f.ops.len() as u32).map(|i| f.op(OpId(i))).filter(|op| op.operands.contains(&v)).map(|op| op.code).collect()
}

#[test]
fn projections_of_one_operand_are_one_group() {
    let p = run(phases(RELEASE, "greedy"), |_| ());
    for func in ["prefill.greedy", "decode.greedy", "verify.greedy"] {
        let want = ["gate up", "k v q", "qkv a b z"];
        let found = groups(&p, func);
        assert!(want.iter().all(|w| found.contains(&(*w).to_owned())), "{func}: {found:?}");
        assert_eq!(found.len(), 3 + usize::from(func.starts_with("prefill")), "{func}: {found:?}");
    }
    assert_eq!(groups(&p, "commit"), ["k v"]);
    assert_eq!(groups(&p, "draft.coarse.greedy"), ["gate prev_gate value", "gate up", "k v q"]);
}

/// The maps of the code and of the code one row up read one operand once the shift is behind them.
#[test]
fn the_shift_is_behind_the_maps_it_was_in_front_of() {
    let p = run(phases(RELEASE, "greedy"), |_| ());
    let f = p.module.func("draft.coarse.greedy").expect("the phase is there");
    let maps = maps(&p, f);
    let code = maps["prev_gate"][0].operands[0];
    assert_eq!(maps["value"][0].operands[0], code);
    assert!(maps["gate"].iter().any(|op| op.operands[0] == code));
    for name in ["prev_gate", "value"] {
        assert_eq!(users(f, maps[name][0].results[0]), [Opcode::Shift]);
    }
    let p = run(phases(RELEASE, "greedy"), |o| o.without.extend(["linear-shift".to_owned()]));
    assert_eq!(groups(&p, "draft.coarse.greedy"), ["gate up", "k v q", "prev_gate value"]);
}

/// The row scale of the operand is applied to the result, which is a fifth as wide.
#[test]
fn the_division_is_behind_the_read() {
    let p = run(phases(RELEASE, "greedy"), |_| ());
    let f = p.module.func("draft.coarse.greedy").expect("the phase is there");
    let read = maps(&p, f)["read"][0];
    assert!(
        def(f, read.operands[0])
            .is_some_and(|x| x.operands.len() == 1 && def(f, x.operands[0]).is_some_and(|y| y.code == Opcode::Add))
    );
    assert_eq!(users(f, read.results[0]), [Opcode::Div]);
    let p = run(phases(RELEASE, "greedy"), |o| o.without.extend(["linear-scale-rounded".to_owned()]));
    let f = p.module.func("draft.coarse.greedy").expect("the phase is there");
    assert_eq!(users(f, maps(&p, f)["read"][0].results[0]), [Opcode::Norm2, Opcode::Div]);
}

/// Systems without a bridge, and of other sizes, get their groups by the same means.
#[test]
fn other_systems_are_packed_too() {
    let p = run(phases("graphs/hybrid-dflash.yaml", "greedy"), |_| ());
    let draft = p.module.funcs.iter().map(|f| f.name.as_str()).find(|f| f.starts_with("draft"));
    assert_eq!(
        groups(&p, draft.expect("there is a draft phase")).iter().filter(|g| *g == "gate up" || *g == "k v q").count(),
        2
    );
    for spec in ["graphs/spinal-demo.yaml", "graphs/hybrid-dspine.yaml"] {
        let p = run(phases(spec, "mixed"), |_| ());
        let draft =
            p.regions.iter().map(|r| r.at.split(':').next().unwrap_or_default()).find(|f| f.starts_with("draft"));
        let found = groups(&p, draft.expect("there is a draft phase"));
        assert!(found.contains(&"gate prev_gate value".to_owned()), "{spec}: {found:?}");
    }
}
