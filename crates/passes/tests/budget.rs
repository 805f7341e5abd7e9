//! Derived weights within a budget, over all regions, functions and loops.

mod support;

use spinec_ir::ir::Module;
use spinec_ir::ty::{Env, Numerics};
use spinec_passes::choose::{Chooser, Reason, Wish};
use spinec_passes::pack;
use spinec_passes::pass::{self, Options, Program};
use spinec_passes::region::{cut, terms};
use spinec_passes::rules::{Class, Rule, rules};
use spinec_passes::saturate::{Limits, saturate};
use std::collections::{BTreeMap, BTreeSet};
use support::*;

const RELEASE: &str = "graphs/qwen3.8-27b-dspine.yaml";
const MIB: u64 = 1 << 20;

fn run(module: Module, change: impl FnOnce(&mut Options)) -> Program {
    let mut options = Options::new(h200());
    change(&mut options);
    pass::run(module, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

fn release(law: &str) -> Module {
    draft(&system(RELEASE, Numerics::BF16, &[]), law)
}

fn bytes(p: &Program) -> u64 {
    p.derived.iter().map(|d| d.bytes).sum()
}

fn time(p: &Program) -> u64 {
    p.regions.iter().map(|r| r.time_ps * r.runs).sum()
}

fn tables(p: &Program) -> Vec<String> {
    let types = p.derived.iter().map(|d| p.module.weight(d.weight).ty.to_string());
    types.filter(|t| t.starts_with("bf16[248320")).collect()
}

/// The capacity refusals of all regions.
fn refused(p: &Program) -> Vec<(u64, u64)> {
    let all = p.regions.iter().flat_map(|r| &r.refused);
    all.filter(|r| matches!(r.reason, Reason::Capacity { .. })).map(|r| (r.bytes, r.saving_ps)).collect()
}

#[test]
fn budgets_keep_what_saves_most() {
    let all = run(release("greedy"), |_| ());
    let needed = bytes(&all);
    assert!(refused(&all).is_empty());
    let receiver = "bf16[248320, 512]".to_owned();
    let mut slower = time(&all);
    for (short, want) in [(100, vec![receiver.clone(); 2]), (300, vec![receiver]), (600, vec![])] {
        let budget = needed - short * MIB;
        let p = run(release("greedy"), |o| o.budget = Some(budget));
        assert_eq!(tables(&p), want, "{short} MiB short");
        assert!(bytes(&p) <= budget);
        assert!(time(&p) > slower, "{short} MiB short");
        slower = time(&p);
        assert_eq!(refused(&p).len(), 3 - want.len());
        for r in p.regions.iter().flat_map(|r| &r.refused).filter(|r| r.reason != Reason::Costlier) {
            assert_eq!(r.reason, Reason::Capacity { wanted: needed, budget });
            assert!(r.bytes > budget - bytes(&p) && r.saving_ps > 0 && r.what.starts_with("f32[248320"), "{r:?}");
        }
        // The table of the receiver saves most and stays longest.
        if want.len() == 1 {
            assert_eq!(p.derived.iter().filter(|d| d.of.len() == 3).count(), 1);
            assert!(p.derived.iter().any(|d| d.of.iter().any(|w| w == "target.head") && d.bytes == 248_320 * 1024));
        }
    }
    let none = run(release("greedy"), |o| o.budget = Some(0));
    assert!(none.derived.is_empty() && !refused(&none).is_empty());
}

/// Against all subsets of everything that any of them would derive.
#[test]
fn no_other_set_within_the_budget_saves_more() {
    let module = release("greedy");
    let func = &module.funcs[0];
    let cut = cut(func);
    let (device, env) = (h200(), Env::from([("N".to_owned(), 8)]));
    let classes: BTreeSet<Class> = Options::new(h200()).classes;
    let enabled: Vec<&Rule> = rules().filter(|r| classes.contains(&r.class)).collect();
    let region = (0..cut.regions.len()).max_by_key(|i| cut.regions[*i].ops.len()).expect("there are regions");
    let mut t = terms(&module, func, &cut, region).expect("a lowered function has terms");
    saturate(&mut t.graph, &enabled, Limits::default(), &mut None).expect("the rules are sound");
    let written = t.written();
    pack::seed(&mut t.graph);
    let wish = Wish { device: &device, env: &env, narrow: true, weights: &module.weights, runs: 1, written: &written };
    let chooser = Chooser::new(&t.graph, &t.roots, &wish);
    let choose = |banned: &BTreeSet<String>| chooser.choose(banned, &BTreeSet::new()).expect("there is a term");
    let sum = |c: &spinec_passes::choose::Choosing| c.derived.values().map(|d| d.1).sum::<u64>();
    let (mut seen, mut found): (BTreeSet<BTreeSet<String>>, Vec<(u64, u64)>) = Default::default();
    let mut open = vec![BTreeSet::new()];
    while let Some(banned) = open.pop() {
        if !seen.insert(banned.clone()) {
            continue;
        }
        let chosen = choose(&banned);
        found.push((sum(&chosen), chosen.time_ps));
        for text in chosen.derived.keys() {
            let mut more = banned.clone();
            more.insert(text.clone());
            open.push(more);
        }
    }
    assert!(found.len() >= 8, "{found:?}");
    let whole = run(module.clone(), |_| ());
    let others = bytes(&whole) - sum(&choose(&BTreeSet::new()));
    let time_of = |p: &Program| p.regions.iter().max_by_key(|r| r.ops).expect("there are regions").time_ps;
    for short in [1, 243, 300, 500, 700] {
        let budget = bytes(&whole) - short * MIB;
        let p = run(module.clone(), |o| o.budget = Some(budget));
        let best = found.iter().filter(|(b, _)| b + others <= budget).map(|(_, t)| *t).min();
        assert_eq!(Some(time_of(&p)), best, "{short} MiB short of {found:?}");
    }
}

/// What several phases use is there once and counted once.
#[test]
fn shared_weights_count_once() {
    let all = run(phases(RELEASE, "mixed"), |_| ());
    let of: Vec<&Vec<String>> = all.derived.iter().map(|d| &d.of).collect();
    assert_eq!(of.iter().filter(|w| ***w == ["target.final_norm"]).count(), 1);
    let load = |f: &spinec_ir::ir::Func| {
        let ops: Vec<_> = f.ops.iter().map(|o| (o.code, &o.attrs, &o.operands)).collect();
        format!("{ops:?} {:?}", f.regions)
    };
    let loads: BTreeSet<String> = all.load.funcs.iter().map(load).collect();
    assert_eq!(loads.len(), all.load.funcs.len());
    let enough = run(phases(RELEASE, "mixed"), |o| o.budget = Some(bytes(&all)));
    assert_eq!(pass::structural_hash(&enough), pass::structural_hash(&all));
    assert!(refused(&enough).is_empty());
    let short = run(phases(RELEASE, "mixed"), |o| o.budget = Some(bytes(&all) - 1));
    assert!(bytes(&short) < bytes(&all) && time(&short) >= time(&all) && !refused(&short).is_empty());
    // A byte short costs vectors of a layer, not tables.
    assert_eq!(tables(&short), tables(&all));
}

/// `1 + w` of every layer is computed once, for the layers that have it; memory that costs more is not spent on it.
#[test]
fn vectors_of_layers_are_derived_with_their_loops() {
    let p = run(phases(RELEASE, "greedy"), |_| ());
    let mut seen = BTreeMap::new();
    for (i, d) in p.derived.iter().enumerate() {
        let w = p.module.weight(d.weight);
        if w.loops.is_empty() {
            continue;
        }
        let f = &p.load.funcs[i];
        let out = f.tensor(f.region(f.body).yields[0]).expect("a load function gives a tensor");
        let count = if w.present.is_empty() { w.loops[0].1 } else { w.present.iter().filter(|x| **x).count() as i64 };
        assert_eq!(out.dims[0].as_const(), Some(count));
        assert_eq!((out.dtype, &out.dims[1..]), (w.ty.dtype, &w.ty.dims[..]));
        let elements: i64 = out.dims.iter().filter_map(|d| d.as_const()).product();
        assert_eq!(d.bytes, (elements * w.ty.dtype.bytes()) as u64);
        assert_eq!(p.element(i, &[3]), w.present.get(3).map_or(Some(3), |x| x.then_some(0)));
        seen.insert(d.of.join(" "), (w.ty.to_string(), w.loops[0].1, count));
    }
    let of = |part: &str| seen.iter().find(|(name, _)| name.ends_with(part)).map(|(_, s)| s.clone());
    assert_eq!(of("norm_in"), Some(("bf16[5120]".to_owned(), 64, 64)));
    assert_eq!(of("a_log"), Some(("f32[48]".to_owned(), 64, 48)));
    assert_eq!(of("q_norm"), Some(("bf16[256]".to_owned(), 64, 16)));
    let dear = run(phases(RELEASE, "greedy"), |o| o.device.resident_ps_per_mib = 100_000_000);
    assert!(dear.derived.iter().all(|d| dear.module.weight(d.weight).loops.is_empty()));
}

#[test]
fn the_trade_of_time_for_memory_is_listed() {
    for law in ["greedy", "sampled"] {
        let p = run(release(law), |_| ());
        let r = p.regions.iter().max_by_key(|r| r.saturation.nodes).expect("there are regions");
        let v = &r.variants;
        assert!((2..=4).contains(&v.len()), "{v:?}");
        assert!(v.windows(2).all(|w| w[0].time_ps < w[1].time_ps && w[0].resident > w[1].resident), "{v:?}");
        assert_eq!(v.last().map(|v| v.resident), Some(0));
        // What is chosen is among them, and each is what a budget of its bytes gives, or slower.
        assert!(v.iter().any(|v| v.time_ps == r.time_ps));
        let chosen = v.iter().find(|v| v.time_ps == r.time_ps).map_or(0, |v| v.resident);
        for variant in v.iter().filter(|v| v.resident < chosen) {
            let others = bytes(&p) - chosen;
            let q = run(release(law), |o| o.budget = Some(others + variant.resident));
            let there = q.regions.iter().find(|x| x.at == r.at).expect("the region is there");
            assert!(there.time_ps <= variant.time_ps, "{law} {variant:?}: {}", there.time_ps);
        }
    }
}
