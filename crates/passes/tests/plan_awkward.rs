//! Modules that are awkward to plan: verified, planned with and without the passes, with and without fusion, read back from
//! text, and of the same values.

mod plan_support;
mod support;

use plan_support::values::{compare, results, round_trip};
use plan_support::*;
use spinec_ir::interp::Mode;
use spinec_ir::ir::testing::{Range, Sample};
use spinec_ir::ir::text::parse;
use spinec_ir::ir::verify::verify;
use spinec_passes::fuse;
use spinec_passes::pass::Options;
use spinec_passes::rules::Class;
use support::root;

fn check(text: &str) -> Result<(), String> {
    let module = parse(text).map_err(|e| e[0].to_string())?;
    if let Some(e) = verify(&module).first() {
        return Err(format!("not valid: {e}"));
    }
    let params = |f: &spinec_ir::ir::Func| f.region(f.body).params.len();
    let inputs = module.funcs.iter().map(|f| vec![Range { lo: 0.0, hi: 1.0 }; params(f)]).collect();
    let s = Sample { module, inputs };
    let mut options = Options::new(plan_support::h200());
    options.classes = [Class::Exact, Class::Reassociating].into();
    options.device.resident_ps_per_mib = 1;
    for fuse in [true, false] {
        for reassociate in [true, false] {
            let how = fuse::Options { fuse, reassociate, ..fuse::Options::of(&options) };
            let plain = fused(s.module.clone(), &how).map_err(|e| e.to_string())?;
            let program = spinec_passes::pass::run(s.module.clone(), &options, &mut |_, _| {});
            let passed = fuse::plan(program.map_err(|e| e.to_string())?, &how).map_err(|e| e.to_string())?;
            for (plan, tolerance) in [(plain, 0.0), (passed, 1e-10)] {
                round_trip(&plan)?;
                for seed in [0, 2] {
                    let want = results(&s.module, None, &s, seed, Mode::Immediate)?;
                    let got = results(&plan.module, Some(&plan), &s, seed, Mode::Immediate)?;
                    compare(&got, &want, tolerance)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn awkward_modules_have_right_plans() {
    let dir = root().join("crates/passes/tests/filetests/plans");
    let files = std::fs::read_dir(dir).expect("the folder is there").map(|e| e.expect("it can be listed").path());
    let mut files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "ir")).collect();
    files.sort();
    let mut wrong = Vec::new();
    for path in &files {
        let text = std::fs::read_to_string(path).expect("the file can be read");
        if let Err(why) = check(&text) {
            wrong.push(format!("{}: {}", path.display(), why.chars().take(600).collect::<String>()));
        }
    }
    assert!(!files.is_empty() && wrong.is_empty(), "{}", wrong.join("\n"));
}
