//! Systems that differ from those of `graphs/` in YAML only: each loads without a message and gives modules that keep the
//! rules of the IR, phase by phase, choice by choice and entry by entry.

mod spec_support;

use spec_support::{Repository, check, yaml_files};
use spinec_ir::diag::render;
use spinec_ir::ir::{Func, verify::verify};
use spinec_ir::ops::Opcode;
use spinec_ir::spec::system::{Overrides, System, engine};
use spinec_ir::ty::Numerics;
use std::collections::BTreeMap;

/// A system that must load without a message.
fn system(path: &str, over: &Overrides) -> System {
    let (sources, found, system) = check(path, &Repository, over);
    assert!(found.is_empty(), "{path}\n{}", render(&found, &sources, false, 100));
    system.unwrap_or_else(|| panic!("{path} is no usable system"))
}

fn choices(law: &str, candidates: &str) -> BTreeMap<String, String> {
    [("law", law), ("candidates", candidates)].map(|(k, v)| (k.to_string(), v.to_string())).into()
}

/// Lowers everything as the engine and `eval` do, and verifies it.
fn lowers(path: &str, s: &System) {
    let reads = |phase: &str, output: &str| engine::output(phase, output).is_some();
    for law in ["greedy", "sampled", "mixed"] {
        for candidates in ["coarse", "exact"] {
            let m = s
                .phase_module(&choices(law, candidates), &reads)
                .unwrap_or_else(|d| panic!("{path} {law} {candidates}: {d:?}"));
            let errors = verify(&m.module);
            assert!(errors.is_empty(), "{path} {law} {candidates}: {errors:?}");
            let names: Vec<&str> = m.phases.iter().map(|p| p.name.as_str()).collect();
            let want = if law == "mixed" { 4 } else { 5 };
            assert_eq!(names.len(), want, "{path} {law}: {names:?}");
        }
    }
    for e in s.entries() {
        let m = s.entry_module(e, None, None).unwrap_or_else(|d| panic!("{path} {e}: {d:?}"));
        let errors = verify(&m.module);
        assert!(errors.is_empty(), "{path} {e}: {errors:?}");
    }
}

#[test]
fn every_system_and_variant_loads_and_lowers() {
    let variants = yaml_files("tests/filetests/variants");
    assert!(variants.len() >= 8);
    for path in yaml_files("graphs").into_iter().chain(variants) {
        for numerics in [Numerics::F32, Numerics::BF16] {
            let over = Overrides { numerics: Some(numerics), ..Overrides::default() };
            lowers(&path, &system(&path, &over));
        }
    }
}

/// The function of a phase in its greedy variant with coarse candidates.
fn phase(s: &System, name: &str) -> Func {
    let m = s.phase_module(&choices("greedy", "coarse"), &|_, _| true).expect("lowers");
    let p = m.phases.iter().find(|p| p.name == name).expect("the phase is there");
    m.module.funcs[p.func].clone()
}

/// The type of an output.
fn output(f: &Func, name: &str) -> String {
    let i = f.outputs.iter().position(|o| o == name).unwrap_or_else(|| panic!("no output {name}"));
    f.tensor(f.region(f.body).yields[i]).expect("a tensor").to_string()
}

fn variant(name: &str) -> System {
    system(&format!("tests/filetests/variants/{name}.yaml"), &Overrides::default())
}

#[test]
fn a_system_says_which_rules_may_fire() {
    use spinec_ir::ty::RuleClass::*;
    let s = variant("numerics_rules");
    assert_eq!((s.numerics, s.rules), (Numerics::BF16, [Exact, Reassociating].into()));
    let s = variant("block_8");
    assert_eq!(s.rules, [Exact, Reassociating, RoundingChanging].into());
}

#[test]
fn variants_are_what_they_say() {
    let draft = phase(&variant("block_8"), "draft");
    assert_eq!(output(&draft, "proposal"), "i32[N, 7]");
    let draft = phase(&variant("head_topk_4"), "draft");
    assert_eq!(output(&draft, "candidates"), "i32[N, 7, 4]");
    let verify = phase(&variant("captured_two"), "verify");
    assert_eq!(output(&verify, "features"), "f32[N, W, 128]");
    let draft = phase(&variant("no_bridge"), "draft");
    assert_eq!(output(&draft, "candidates"), "i32[N, 7, 1]");
    assert_eq!(output(&draft, "q"), "dist f64[N, 7, 1]");
    let windows = |s: &System| -> Vec<i64> {
        let f = phase(s, "draft");
        f.ops.iter().filter(|o| o.code.name() == "attention").filter_map(|o| o.int("window")).collect()
    };
    assert_eq!(windows(&variant("window_off")), [0]);
    assert_eq!(windows(&variant("no_bridge")), [40]);
    let count = |s: &System, name: &str| s.states.iter().find(|s| s.name == name).map(|s| s.count);
    let dense = variant("dense_target");
    assert_eq!((count(&dense, "target.kv"), count(&dense, "target.delta").unwrap_or(0)), (Some(8), 0));
    let half = variant("full_every_second");
    assert_eq!((count(&half, "target.kv"), count(&half, "target.delta")), (Some(4), Some(4)));
    let two = variant("bridge_last_two");
    let read = two.weights.iter().find(|w| w.name == "drafter.layers.{l}.wrote.read").expect("the bridge reads");
    assert_eq!(read.present, [false, false, false, true, true]);
}

#[test]
fn values_can_be_set_from_outside() {
    let sets = [("B", "4"), ("drafter.window", "none"), ("serve.requests", "2"), ("KC", "3")];
    let over = Overrides { sets: sets.map(|(k, v)| (k.to_string(), v.to_string())).to_vec(), ..Overrides::default() };
    let s = system("graphs/hybrid-dspine.yaml", &over);
    assert_eq!((s.serve.requests, s.serve.block), (2, 4));
    assert_eq!(output(&phase(&s, "draft"), "candidates"), "i32[N, 3, 3]");
}

/// A graph that only graphs of its file call has its weights at the nodes that call it, and nowhere else.
#[test]
fn weights_of_inner_graphs_stand_at_their_calls() {
    let s = system("tests/filetests/blocks/system.yaml", &Overrides::default());
    let mut names: Vec<&str> = s.weights.iter().map(|w| w.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["m.a.fc", "m.a.r.scale", "m.b.fc", "m.b.r.scale", "m.outside.own"]);
}

/// A graph file is checked with the values that are given, all or none.
#[test]
fn graphs_are_checked_with_given_values() {
    let errors = |sets: &[(&str, &str)]| -> Vec<String> {
        let sets = sets.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let path = "graphs/parts/hybrid_target.yaml";
        let (_, found, _) = check(path, &Repository, &Overrides { sets, ..Overrides::default() });
        found.iter().map(|d| d.message.clone()).collect()
    };
    let dims = ["H", "V", "I", "L", "QH", "KH", "HD", "RD", "GK", "GV", "DK", "DV", "C", "F"];
    let sizes = ["8", "16", "8", "2", "2", "1", "4", "2", "1", "2", "4", "4", "4", "1"];
    let mut all: Vec<(&str, &str)> = dims.into_iter().zip(sizes).collect();
    all.extend([("eps", "1e-6"), ("rope_base", "1e4"), ("rope_frequencies", "'f64'"), ("captured", "[0]")]);
    all.push(("kinds", "['linear_attention', 'full_attention']"));
    assert_eq!(errors(&[]), [""; 0]);
    assert_eq!(errors(&all), [""; 0]);
    assert_eq!(errors(&all[1..]), ["dim `H` has no value"]);
    all.push(("NOPE", "3"));
    assert_eq!(errors(&all), ["graph `hybrid_target` declares no `NOPE`"]);
    // An odd rotary width is seen only with values.
    all.pop();
    all[7].1 = "3";
    assert!(errors(&all).iter().any(|e| e.contains("a rotary width of 3")), "{:?}", errors(&all));
}

/// A word of a parameter may stand bare; a binding of that name comes first.
#[test]
fn words_stand_bare_unless_they_are_bound() {
    let held = |sets: &[(&str, &str)]| -> Option<String> {
        let sets = sets.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let (_, found, system) =
            check("graphs/hybrid-dspine.yaml", &Repository, &Overrides { sets, ..Overrides::default() });
        let f = phase(&system.filter(|_| found.is_empty())?, "decode");
        f.ops.iter().find(|o| o.code.name() == "rope").and_then(|o| o.str("frequencies")).map(str::to_string)
    };
    assert_eq!(held(&[]).as_deref(), Some("bf16"));
    for (name, word) in [("target.rope_frequencies", "f32"), ("target.rope_frequencies", "'f32'")] {
        assert_eq!(held(&[(name, word)]).as_deref(), Some("f32"), "{name}={word}");
    }
    for other in ["f16", "'f16'", "B", "1"] {
        assert_eq!(held(&[("target.rope_frequencies", other)]), None, "{other}");
    }
}

#[test]
fn loading_twice_gives_the_same() {
    let show = || {
        let s = system("graphs/hybrid-dspine.yaml", &Overrides::default());
        let m = s.phase_module(&choices("mixed", "coarse"), &|_, _| true).expect("lowers");
        spinec_ir::ir::text::print(&m.module)
    };
    assert_eq!(show(), show());
}

/// What loops carry and keep and what calls give go by their paths from outside.
#[test]
fn results_of_loops_and_calls_have_names() {
    let s = system("graphs/hybrid-dspine.yaml", &Overrides::default());
    let names = |phase_name: &str, code: Opcode| -> Vec<String> {
        let f = phase(&s, phase_name);
        let ops = f.ops.iter().filter(|op| op.code == code);
        ops.flat_map(|op| op.results.iter().flat_map(|v| &f.value(*v).names).map(ToString::to_string)).collect()
    };
    let verify = names("verify", Opcode::Loop);
    assert!(
        verify.contains(&"t.layers.x".to_owned()) && verify.contains(&"t.layers.features".to_owned()),
        "{verify:?}"
    );
    assert!(names("verify", Opcode::Linear).contains(&"t.logits".to_owned()));
    let draft = names("draft", Opcode::Reshape);
    assert!(draft.contains(&"d.layers.last".to_owned()) && draft.contains(&"d.last".to_owned()), "{draft:?}");
    assert!(names("draft", Opcode::RmsNorm).contains(&"d.hidden".to_owned()));
}
