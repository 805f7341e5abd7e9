//! Tables found in the shipped systems: from plain graphs, by general rules, priced for a real device.

mod support;

use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Numerics};
use spinec_passes::choose::Reason;
use spinec_passes::cost::Device;
use spinec_passes::pass::{self, Options, Program, RegionRecord};
use spinec_passes::rules::Class;
use spinec_passes::saturate::Stop;
use support::*;

const RELEASE: &str = "graphs/qwen3.8-27b-dspine.yaml";
const SMALL: &str = "graphs/spinal-demo.yaml";
const MIB: u64 = 1 << 20;

fn program(spec: &str, numerics: Numerics, law: &str, change: impl FnOnce(&mut Options)) -> Program {
    let module = draft(&system(spec, numerics, &[]), law);
    let mut options = Options::new(h200());
    change(&mut options);
    pass::run(module, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{spec} {law}: {e}"))
}

/// A device on which nothing but arithmetic takes time: what it prefers does not depend on the size of a model.
fn arithmetic_only() -> Device {
    arithmetic(100_000_000)
}

/// The derived weights by type, in order.
fn types(p: &Program) -> Vec<String> {
    p.derived.iter().map(|d| p.module.weight(d.weight).ty.to_string()).collect()
}

/// The region that has the final scores.
fn largest(p: &Program) -> &RegionRecord {
    p.regions.iter().max_by_key(|r| r.saturation.nodes).expect("there are regions")
}

fn count(p: &Program, code: Opcode) -> usize {
    p.module.funcs.iter().flat_map(|f| &f.ops).filter(|op| op.code == code).count()
}

/// True if something in f64 is made from an inverse root: the normaliser.
fn has_normaliser(p: &Program) -> bool {
    let scores = p.module.funcs.iter().flat_map(|f| f.ops.iter().map(move |op| (f, op)));
    scores.filter(|(_, op)| op.code == Opcode::Rsqrt).count() > 0
}

#[test]
fn the_release_gets_its_two_tables() {
    for law in ["greedy", "sampled"] {
        let p = program(RELEASE, Numerics::BF16, law, |_| ());
        let tables: Vec<String> = types(&p).into_iter().filter(|t| t.starts_with("bf16[248320")).collect();
        assert_eq!(tables, ["bf16[248320, 1024]", "bf16[248320, 512]"], "{law}");
        let bytes: u64 =
            p.derived.iter().filter(|d| p.module.weight(d.weight).ty.dtype == DType::BF16).map(|d| d.bytes).sum();
        assert_eq!(bytes, 727 * MIB + MIB / 2, "{law}");
        // What the spec itself asks to be made from the head is kept as the spec types it.
        assert_eq!(types(&p)[..2], ["f8e4m3[248320, 5120]", "f32[248320]"], "{law}");
        // No copy of the head in a float dtype, though it would save an elementwise op.
        assert!(!types(&p).iter().any(|t| t.starts_with("bf16[248320, 5120]") || t.starts_with("f32[248320, 5120]")));
        let copy = largest(&p).refused.iter().find(|r| r.what.starts_with("f32[248320, 5120]"));
        let copy = copy.expect("the scaled head is considered");
        assert_eq!((copy.reason, copy.bytes), (Reason::Costlier, 248_320 * 5_120 * 2), "{law}");
        // The scale sqrt(1024) is part of the table: it is nowhere in the function any more.
        let scale = |op: &spinec_ir::ir::Op| op.code == Opcode::Const && op.float("value") == Some(32.0);
        let body = p.module.funcs[0].region(p.module.funcs[0].body);
        assert!(!body.ops.iter().any(|op| scale(p.module.funcs[0].op(*op))), "{law}");
        assert!(p.load.funcs[2].ops.iter().any(scale), "{law}");
        assert_eq!(largest(&p).saturation.stop, Stop::Saturated, "{law}");
    }
}

#[test]
fn only_greedy_drops_the_normaliser() {
    let greedy = program(RELEASE, Numerics::BF16, "greedy", |_| ());
    assert!(!has_normaliser(&greedy));
    assert_eq!(
        count(&greedy, Opcode::RmsNorm),
        count(&program(RELEASE, Numerics::BF16, "greedy", |o| o.classes.clear()), Opcode::RmsNorm) - 1
    );
    let sampled = program(RELEASE, Numerics::BF16, "sampled", |_| ());
    assert!(has_normaliser(&sampled));
    // In f64 factors: the square of the written part by a product of the write with itself.
    assert!(types(&sampled).contains(&"f64[512, 512]".to_owned()));
}

/// Without the rule that makes factors, the sampled tail forms the written state and norms it directly.
#[test]
fn factors_of_the_normaliser_are_one_rule() {
    let p = program(RELEASE, Numerics::BF16, "sampled", |o| o.without.extend(["contract-square".to_owned()]));
    assert!(!types(&p).contains(&"f64[512, 512]".to_owned()));
    assert!(types(&p).contains(&"bf16[248320, 1024]".to_owned()));
}

#[test]
fn exact_rules_alone_keep_the_products_in_f32() {
    let p = program(RELEASE, Numerics::BF16, "greedy", |o| o.classes = [Class::Exact].into());
    // The predecessor's table is exact; without leave to round it stays as computed.
    assert!(types(&p).contains(&"f32[248320, 1024]".to_owned()), "{:?}", types(&p));
    assert!(!largest(&p).saturation.fired.keys().any(|r| r.starts_with("contract")));
}

/// The classes come from the system file.
#[test]
fn a_system_decides_which_rules_fire() {
    let system = system("tests/filetests/variants/numerics_rules.yaml", Numerics::BF16, &[]);
    let run = |options: &Options| {
        let module = phases_of(&system, "greedy");
        pass::run(module, options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
    };
    let class = |name: &str| spinec_passes::rules::rules().find(|r| r.name == name).map(|r| r.class);
    let narrow = run(&Options::for_system(h200(), &system)).fired();
    assert!(narrow.keys().all(|r| class(r) <= Some(Class::Reassociating)), "{narrow:?}");
    let wide = run(&Options::new(h200())).fired();
    assert!(wide.keys().any(|r| class(r) == Some(Class::RoundingChanging)), "{wide:?}");
    assert!(narrow["linear-shift"] > 0 && !narrow.contains_key("argmax-scale"));
}

#[test]
fn the_small_system_gets_tables_of_the_same_shape() {
    let s = system(SMALL, Numerics::F64, &[]);
    let v = s.vocabulary().expect("the system has a vocabulary");
    let func_of = |law: &str| {
        let p = program(SMALL, Numerics::F64, law, |o| o.device = arithmetic_only());
        types(&p)
    };
    for law in ["greedy", "sampled"] {
        let found = func_of(law);
        let k = 32;
        assert!(
            found.contains(&format!("f64[{v}, {k}]")) && found.contains(&format!("f64[{v}, {}]", 2 * k)),
            "{law}: {found:?}"
        );
    }
}

/// Taking away any rule leaves another program, but for three that the release has no use for: folding of transposes (the
/// constructors do it), comparing widened values, and factors before a plain product.
#[test]
fn no_other_rule_is_idle_in_the_release() {
    let hash = |law: &str, without: &str| {
        let p = program(RELEASE, Numerics::BF16, law, |o| o.without.extend([without.to_owned()]));
        pass::structural_hash(&p)
    };
    let whole = ["greedy", "sampled"].map(|law| hash(law, ""));
    let idle: Vec<&str> = spinec_passes::rules::rules()
        .map(|r| r.name)
        .filter(|r| ["greedy", "sampled"].map(|law| hash(law, r)) == whole)
        .collect();
    assert_eq!(idle, ["transpose-fold", "argmax-widen", "linear-scale"]);
}
