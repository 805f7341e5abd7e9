//! Numerics of passes, checked pass by pass.

mod support;

use spinec_ir::ir::{Attr, Func};
use spinec_ir::ops::Opcode;
use spinec_ir::spec::system::System;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, Env, Numerics, TensorType};
use spinec_passes::pass::check::{Check, check_each, compare};
use spinec_passes::pass::{self, Options};
use support::*;

/// Small dims: the system of the golden data.
fn small(numerics: Numerics) -> System {
    let dir = |part: &str| format!("tests/data/golden/s0/{part}");
    system("graphs/hybrid-dspine.yaml", numerics, &[("target", dir("target")), ("drafter", dir("drafter"))])
}

fn given(_: &Func, name: &str, ty: &TensorType) -> Option<Tensor> {
    let one = |v: f64| Tensor::f64(vec![1], vec![v]).cast(ty.dtype);
    match name {
        "temperature" => one(0.8),
        "top_p" => one(0.9),
        "top_k" => one(5.0),
        "rows" | "width" | "keep" => Some(Tensor::i32(vec![1], vec![3])),
        "position" => Some(Tensor::i32(vec![1], vec![0])),
        _ => None,
    }
}

fn check<'a>() -> Check<'a> {
    let env = Env::from([("N".to_owned(), 1), ("T".to_owned(), 3), ("W".to_owned(), 3)]);
    Check { env, requests: 1, seed: 11, given: &given, tolerance: None }
}

#[test]
fn every_pass_keeps_every_value() {
    for (numerics, law) in [(Numerics::F64, "greedy"), (Numerics::F64, "mixed"), (Numerics::BF16, "greedy")] {
        let module = phases_of(&small(numerics), law);
        let mut options = Options::new(arithmetic(1));
        options.stop_after = None;
        // In 16 bits only what is the same bits is compared: a comparison may turn on a rounding.
        if numerics == Numerics::BF16 {
            options.classes = [spinec_passes::rules::Class::Exact].into();
        }
        let (p, found) = check_each(module, &options, &check()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found, None, "{numerics:?} {law}");
        assert!(!p.derived.is_empty() && !p.regions.is_empty());
    }
}

/// A changed constant is found: the first value it reaches is named, with its place in the YAML.
#[test]
fn a_broken_pass_is_found_and_the_value_named() {
    let module = phases_of(&small(Numerics::F64), "greedy");
    let options = Options { stop_after: Some("clean".to_owned()), ..Options::new(h200()) };
    let before = pass::run(module, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(compare(&before, &before, &check()), Ok(None));
    let draft = before.module.funcs.iter().position(|f| f.name.starts_with("draft")).expect("there is a draft phase");
    let mut after = before.clone();
    let func = &mut after.module.funcs[draft];
    let scale = func.ops.iter().position(|op| {
        op.code == Opcode::Const && op.loc.path.ends_with("wrote.known") && op.attrs["dtype"] == Attr::DType(DType::F64)
    });
    let op = &mut func.ops[scale.expect("the known code is scaled")];
    let value = op.float("value").expect("a constant has a value");
    op.attrs.insert("value", Attr::Float(value * 1.001));
    let found = compare(&before, &after, &check()).unwrap_or_else(|e| panic!("{e}")).expect("a value differs");
    assert_eq!(found.func, after.module.funcs[draft].name);
    assert_eq!(found.value, "d.layers.0.wrote.known");
    assert!(found.span.is_some() && (5e-4..2e-3).contains(&found.error), "{found:?}");
}
