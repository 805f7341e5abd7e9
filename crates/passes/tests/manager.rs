//! The pass manager: order, repetition, limits, determinism.

mod support;

use spinec_ir::ir::testing::{Config, sample};
use spinec_ir::ir::{Module, text};
use spinec_ir::ty::Numerics;
use spinec_passes::pass::{self, Options, PASSES, PassError, Program, Repeat, structural_hash};
use spinec_passes::saturate::{Limits, Stop};
use support::*;

const SYSTEMS: [&str; 4] = [
    "graphs/spinal-demo.yaml",
    "graphs/hybrid-dspine.yaml",
    "graphs/hybrid-dflash.yaml",
    "graphs/qwen3.8-27b-dspine.yaml",
];

fn run(module: Module, change: impl FnOnce(&mut Options)) -> Program {
    let mut options = Options::new(h200());
    change(&mut options);
    pass::run(module, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

fn dump(p: &Program) -> String {
    format!("{}{}{:?}{:?}", text::print(&p.module), text::print(&p.load), p.derived, p.regions)
}

#[test]
fn every_system_is_rewritten_without_hitting_a_limit() {
    for spec in SYSTEMS {
        for law in ["greedy", "mixed"] {
            let p = run(phases(spec, law), |_| ());
            for r in &p.regions {
                assert_eq!(r.saturation.stop, Stop::Saturated, "{spec} {}", r.at);
            }
        }
    }
}

#[test]
fn the_result_does_not_depend_on_run_or_thread() {
    let once = dump(&run(phases(SYSTEMS[3], "mixed"), |_| ()));
    let threads: Vec<_> =
        (0..3).map(|_| std::thread::spawn(|| dump(&run(phases(SYSTEMS[3], "mixed"), |_| ())))).collect();
    for t in threads {
        assert!(t.join().expect("the thread ends") == once);
    }
}

#[test]
fn passes_run_in_order_and_report() {
    let mut seen = Vec::new();
    let options = Options::new(h200());
    let p = pass::run(phases(SYSTEMS[0], "greedy"), &options, &mut |ran, program| {
        assert_eq!(ran.after, structural_hash(program));
        seen.push(ran.clone());
    });
    let p = p.unwrap_or_else(|e| panic!("{e}"));
    assert!(seen.iter().map(|r| r.pass).eq(PASSES.iter().map(|p| p.name)));
    assert!(seen.windows(2).all(|w| w[0].after == w[1].before && w[0].ops.1 == w[1].ops.0));
    assert_eq!(seen.last().map(|r| r.after), Some(structural_hash(&p)));
    let mut names: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
    names.dedup();
    assert!(names.len() == PASSES.len() && PASSES.iter().all(|p| !p.doc.is_empty()));
}

#[test]
fn a_pass_twice_is_a_pass_once() {
    for pass in PASSES.iter().filter(|p| p.repeat == Repeat::Nothing) {
        let mut options = Options::new(h200());
        options.stop_after = Some(pass.name.to_owned());
        let once = pass::run(phases(SYSTEMS[3], "mixed"), &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
        let twice = pass::run_one(pass.name, once.clone(), &options).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(structural_hash(&once), structural_hash(&twice), "{}", pass.name);
    }
}

/// Plans are the same on every machine: hashes of all systems, `SPINEC_BLESS=1` writes them anew.
#[test]
fn results_are_the_recorded_ones() {
    let mut found = String::new();
    for spec in SYSTEMS {
        for law in ["greedy", "sampled", "mixed"] {
            let p = run(phases(spec, law), |_| ());
            found.push_str(&format!("{spec} {law} {:016x}\n", structural_hash(&p)));
        }
    }
    let path = root().join("crates/passes/tests/hashes.txt");
    if std::env::var_os("SPINEC_BLESS").is_some() {
        std::fs::write(&path, &found).expect("the file can be written");
    }
    let want = std::fs::read_to_string(&path).expect("the file is there");
    assert_eq!(found, want, "SPINEC_BLESS=1 records the new hashes");
}

/// Weights derived from derived weights could not be computed from a checkpoint.
#[test]
fn rewriting_again_is_refused() {
    let options = Options::new(h200());
    let p = run(draft(&system(SYSTEMS[3], Numerics::BF16, &[]), "greedy"), |_| ());
    assert!(matches!(pass::run_one("rewrite", p, &options), Err(PassError::Internal(_))));
}

#[test]
fn rewrites_can_be_limited_one_by_one() {
    let total = |p: &Program| p.regions.iter().flat_map(|r| r.saturation.fired.values()).sum::<usize>();
    let none = run(phases(SYSTEMS[0], "greedy"), |o| o.limit_rewrites = Some(0));
    assert_eq!(total(&none), 0);
    for n in [1, 7, 40] {
        let p = run(phases(SYSTEMS[0], "greedy"), |o| o.limit_rewrites = Some(n));
        assert_eq!(total(&p), n);
        assert!(p.regions.iter().any(|r| r.saturation.stop == Stop::Fuel));
    }
}

#[test]
fn hitting_a_limit_is_recorded_and_harmless() {
    for (limits, stop) in [
        (Limits { iterations: 1, nodes: 20_000 }, Stop::Iterations),
        (Limits { iterations: 40, nodes: 60 }, Stop::Nodes),
    ] {
        let p = run(phases(SYSTEMS[0], "greedy"), |o| o.limits = limits);
        assert!(p.regions.iter().any(|r| r.saturation.stop == stop), "{stop:?}");
    }
}

#[test]
fn unknown_passes_and_invalid_modules_are_refused() {
    let mut options = Options::new(h200());
    options.stop_after = Some("polish".to_owned());
    let module = phases(SYSTEMS[0], "greedy");
    let run = |m: Module, o: &Options| pass::run(m, o, &mut |_, _| {}).err();
    assert_eq!(run(module.clone(), &options), Some(PassError::Unknown("polish".to_owned())));
    options.stop_after = None;
    let mut broken = module;
    broken.funcs[0].outputs.pop();
    assert!(matches!(run(broken, &options), Some(PassError::Invalid { pass: "", errors }) if !errors.is_empty()));
}

/// A function that is there twice is saturated once and shares its derived weights.
#[test]
fn equal_regions_are_done_once() {
    let module = draft(&system(SYSTEMS[3], Numerics::BF16, &[]), "greedy");
    let once = run(module.clone(), |_| ());
    let mut twice = module;
    let mut copy = twice.funcs[0].clone();
    copy.name.push_str(".again");
    twice.funcs.push(copy);
    let twice = run(twice, |_| ());
    assert_eq!(twice.regions.len(), once.regions.len());
    assert!(twice.regions.iter().all(|r| r.shared == 1));
    // What is saved is saved twice.
    for (a, b) in twice.derived.iter().zip(&once.derived) {
        assert_eq!((a.weight, &a.of, a.bytes, a.saving_ps), (b.weight, &b.of, b.bytes, 2 * b.saving_ps));
    }
    assert_eq!(twice.derived.len(), once.derived.len());
}

/// Modules with everything the language has, states included, in narrow dtypes: every pass gives a valid module and
/// saturation ends.
#[test]
fn random_modules_stay_valid() {
    for seed in 0..150 {
        let p = run(sample(seed, &Config::default()).module, |o| o.device.resident_ps_per_mib = 1);
        assert!(p.regions.iter().all(|r| r.saturation.stop == Stop::Saturated), "seed {seed}");
    }
}

/// A long chain is no deep recursion.
#[test]
fn long_chains_are_handled() {
    use spinec_ir::ir::{Attrs, Func, Loc};
    use spinec_ir::ops::Opcode;
    use spinec_ir::ty::{DType, Dim, TensorType};
    let mut module = sample(0, &Config::default()).module;
    let mut f = Func::new("chain");
    let mut v = f.add_param(f.body, TensorType::new(DType::F32, vec![Dim::from(3)]).into());
    f.inputs.push("x".to_owned());
    for _ in 0..3_000 {
        let (body, ty) = (f.body, f.ty(v).clone());
        let op = f.add_op(body, Opcode::Tanh, vec![v], Attrs::new(), vec![], vec![ty], Loc::default());
        v = f.op(op).results[0];
    }
    f.outputs.push("y".to_owned());
    let body = f.body.index();
    f.regions[body].yields.push(v);
    module.funcs = vec![f];
    let p = run(module, |_| ());
    assert_eq!(p.module.funcs[0].ops.len(), 3_000);
}
