//! Plans of random modules: valid, text without loss, and the same values.

mod plan_support;

use plan_support::planned;
use plan_support::values::*;
use spinec_ir::interp::Mode;
use spinec_ir::ir::testing::{Config, sample};
use spinec_ir::ir::text;
use spinec_ir::plan::Plan;
use spinec_ir::ty::Numerics;
use spinec_passes::pass::Options;
use spinec_passes::rules::Class;

fn options() -> Options {
    let mut o = Options::new(plan_support::h200());
    o.classes = [Class::Exact, Class::Reassociating].into();
    // Small modules derive weights only if keeping them costs next to nothing.
    o.device.resident_ps_per_mib = 1;
    o
}

fn check(seed: u64, config: &Config, fuse: bool) -> Result<Plan, String> {
    let s = sample(seed, config);
    let program = spinec_passes::pass::run(s.module.clone(), &options(), &mut |_, _| {}).map_err(|e| e.to_string())?;
    let how = spinec_passes::fuse::Options { fuse, ..spinec_passes::fuse::Options::of(&options()) };
    let plan = spinec_passes::fuse::plan(program, &how).map_err(|e| e.to_string())?;
    round_trip(&plan)?;
    for mode in [Mode::Immediate, Mode::Tentative] {
        let want = results(&s.module, None, &s, seed, mode)?;
        let got = results(&plan.module, Some(&plan), &s, seed, mode)?;
        compare(&got, &want, 1e-10)?;
    }
    Ok(plan)
}

/// Checks a seed and, if it fails, looks for the smallest module of that seed that does.
fn shrunk(seed: u64, config: &Config, fuse: bool) -> Option<String> {
    check(seed, config, fuse).err()?;
    for funcs in 1..=config.funcs {
        for steps in 1..=config.steps {
            let smaller = Config { funcs, steps, ..*config };
            if let Err(why) = check(seed, &smaller, fuse) {
                let module = text::print(&sample(seed, &smaller).module);
                return Some(format!("seed {seed} fuse {fuse} {smaller:?}\n{why}\n{module}"));
            }
        }
    }
    Some(format!("seed {seed} fuse {fuse}: fails, but not alone"))
}

fn all(seeds: std::ops::Range<u64>, fuse: bool) {
    let mut failed = Vec::new();
    for seed in seeds {
        // Where a float decides an integer, the last bit may decide too.
        let config = Config { numerics: Numerics::F64, discrete: false, ..Config::default() };
        failed.extend(shrunk(seed, &config, fuse));
    }
    assert!(
        failed.is_empty(),
        "{} fail\n{}",
        failed.len(),
        failed.iter().take(6).cloned().collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn fused_plans_compute_what_the_module_does() {
    all(0..200, true);
}

#[test]
fn unfused_plans_compute_what_the_module_does() {
    all(200..260, false);
}

/// Narrow dtypes, ops that choose, and rules of every class: values are not compared, plans are.
#[test]
fn every_random_module_has_a_valid_plan() {
    for seed in 0..150 {
        let numerics = [Numerics::BF16, Numerics::F32, Numerics::F64][(seed % 3) as usize];
        let module = sample(seed, &Config { numerics, ..Config::default() }).module;
        let mut options = Options::new(plan_support::h200());
        options.classes = Class::ALL.iter().copied().collect();
        let plan = planned(module.clone(), &options, true);
        round_trip(&plan).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        // Planning the same again gives the same, and strict sums are planned too.
        assert!(planned(module.clone(), &options, true) == plan, "seed {seed}");
        options.classes = [Class::Exact].into();
        planned(module, &options, seed % 2 == 0);
    }
}
