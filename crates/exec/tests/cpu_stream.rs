//! Derived weights of the shipped systems: the same bits whether they are streamed or made whole.

mod cpu_support;
mod support;

use cpu_support::demo_system;
use spinec_exec::cpu::{Progress, Streaming};
use spinec_exec::runtime::{Mode, Runtime};
use spinec_ir::interp::WeightStore;
use spinec_ir::ir::WeightId;
use spinec_ir::plan::Plan;
use spinec_ir::spec::device::Device;
use spinec_ir::spec::system::System;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Numerics;
use spinec_passes::compile::compile;
use spinec_passes::pass::Options;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use support::{bits, cpu, store, system};

fn plan(system: &System, law: &str) -> Plan {
    let record = include_str!("../../../devices/h200.yaml");
    let device = Device::from_yaml("h200.yaml", record).unwrap_or_else(|_| panic!("the record is sound"));
    let choices = BTreeMap::from([("law".into(), law.into()), ("candidates".into(), "coarse".into())]);
    let module = system.phase_module(&choices, &|_, _| true).unwrap_or_else(|_| panic!("the phases lower")).module;
    compile(module, &Options::new(device)).unwrap_or_else(|e| panic!("{e}"))
}

/// All derived weights of a plan by name, and the names of those that were streamed.
fn derived(system: &System, plan: &Plan, streaming: Streaming) -> (Vec<(String, Tensor)>, BTreeSet<String>) {
    let mut runtime = cpu(system, 2);
    runtime.set_streaming(streaming);
    let told = Arc::new(Mutex::new(BTreeSet::new()));
    let hear = told.clone();
    runtime.on_progress(Box::new(move |p: &Progress<'_>| {
        hear.lock().expect("nobody panicked").insert(p.name.to_owned());
    }));
    let mut load = plan.load.clone();
    load.states = system.states.clone();
    let names: Vec<String> = load.funcs.iter().map(|f| f.name.to_string()).collect();
    let program = runtime.add(load).unwrap_or_else(|e| panic!("{e}"));
    let mut out = Vec::new();
    for (i, name) in names.into_iter().enumerate() {
        let made = runtime.run(program, i, &[], &[], Mode::Immediate, None).unwrap_or_else(|e| panic!("{name}: {e}"));
        out.push((name, made.into_iter().next().expect("a derived weight has a value")));
    }
    let told = told.lock().expect("nobody panicked").clone();
    (out, told)
}

fn systems(numerics: Numerics) -> Vec<(&'static str, System)> {
    let pair = |drafter: &str| {
        [("target", "tests/data/golden/s0/target".to_owned()), ("drafter", format!("tests/data/golden/s0/{drafter}"))]
    };
    vec![
        ("hybrid-dspine", system("graphs/hybrid-dspine.yaml", numerics, &pair("drafter"))),
        ("hybrid-dflash", system("graphs/hybrid-dflash.yaml", numerics, &pair("dflash"))),
        ("spinal-demo", demo_system(numerics)),
    ]
}

#[test]
fn derived_weights_of_all_systems_have_the_bits_of_their_whole_form() {
    for numerics in [Numerics::BF16, Numerics::F32, Numerics::F64] {
        for (name, system) in systems(numerics) {
            for law in ["greedy", "sampled"] {
                let plan = plan(&system, law);
                let (want, none) = derived(&system, &plan, Streaming::off());
                assert!(!want.is_empty() && none.is_empty(), "{name}");
                for rows in [1, 3, 7, 64] {
                    let by = Streaming::by_rows(NonZeroUsize::new(rows).expect("some rows"));
                    let (got, told) = derived(&system, &plan, by);
                    let heads = ["quantize_rows", "concat"].iter().all(|n| told.contains(*n));
                    // A system without derived heads has vectors of 64 entries at most.
                    let streamed = if name == "hybrid-dflash" { told.is_empty() == (rows == 64) } else { heads };
                    assert!(streamed, "{name} by {rows} rows: {told:?}");
                    for ((weight, got), (_, want)) in got.iter().zip(&want) {
                        let same = got.dtype == want.dtype && got.shape == want.shape && bits(got) == bits(want);
                        assert!(same, "{name} {law} {numerics:?}: `{weight}` by {rows} rows");
                    }
                }
            }
        }
    }
}

/// The phases themselves, where derived weights have names, are elements of loops, and are packed.
#[test]
fn cycles_over_streamed_weights_are_those_over_whole_ones() {
    use spinec_exec::engine::{Engine, EngineOptions, Quiet, Request, Sampling};
    let (_, system) = systems(Numerics::BF16).remove(0);
    let run = |streaming: Streaming| {
        let mut runtime = cpu(&system, 2);
        runtime.set_streaming(streaming);
        let told = Arc::new(Mutex::new(BTreeSet::new()));
        let hear = told.clone();
        runtime.on_progress(Box::new(move |p: &Progress<'_>| {
            assert!(p.done <= p.rows);
            hear.lock().expect("nobody panicked").insert(p.name.to_owned());
        }));
        let runtime = support::planned(Box::new(runtime));
        let mut engine = Engine::new(&system, runtime, None, Vec::new(), EngineOptions::default()).expect("an engine");
        for greedy in [true, false] {
            let sampling = Sampling { temperature: if greedy { 0.0 } else { 1.0 }, ..Sampling::default() };
            let request = Request {
                id: format!("{greedy}"),
                prompt: vec![3, 1, 4, 1, 5],
                max_tokens: 12,
                sampling,
                stop: Vec::new(),
                stop_ids: Vec::new(),
                ignore_eos: true,
                cancel_after: None,
            };
            engine.submit(request).expect("it fits");
        }
        engine.run(&mut Quiet).expect("it runs");
        let tokens: Vec<Vec<u32>> = engine.results().0.into_iter().map(|d| d.tokens).collect();
        let told = told.lock().expect("nobody panicked").clone();
        (tokens, told)
    };
    let (want, none) = run(Streaming::off());
    assert!(none.is_empty());
    let (got, told) = run(Streaming::by_rows(NonZeroUsize::new(7).expect("some rows")));
    assert_eq!(got, want);
    // A norm scale, those of a loop, the 8-bit head, and a weight as it is.
    for name in ["derived.0", "derived.1", "derived.6", "target.embed"] {
        assert!(told.contains(name), "{name}: {told:?}");
    }
}

#[test]
fn checkpoints_give_rows_of_weights() {
    for numerics in [Numerics::BF16, Numerics::F32, Numerics::F64] {
        let (_, system) = systems(numerics).remove(0);
        let store = store(&system);
        for (i, w) in system.weights.iter().enumerate() {
            for index in spinec_exec::weights::indices(w).into_iter().take(2) {
                let id = WeightId(i as u32);
                let whole = store.weight(id, &index).unwrap_or_else(|e| panic!("{e}"));
                let Some(n) = whole.shape.first().copied() else { continue };
                for rows in [0..n, 0..1, n / 2..n, n - 1..n, n..n] {
                    let part = store.rows(id, &index, rows.clone()).unwrap_or_else(|e| panic!("{e}"));
                    assert_eq!(Some(part), whole.rows(rows.clone()), "{} {rows:?}", w.name);
                }
                let beyond = store.rows(id, &index, 0..n + 1).expect_err("there are not as many");
                assert!(beyond.contains("has no entries 0.."), "{beyond}");
            }
        }
    }
}
