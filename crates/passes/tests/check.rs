//! Numerics of passes, checked pass by pass.

mod support;

use spinec_ir::ir::text::parse;
use spinec_ir::ir::{Attr, Func, Module};
use spinec_ir::ops::Opcode;
use spinec_ir::spec::system::System;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, Env, Numerics, TensorType};
use spinec_passes::choose::NARROW_STORAGE;
use spinec_passes::compile::{compile_recorded, options_for};
use spinec_passes::pass::check::{Advice, Bound, Change, Check, Knob, Pick, Report, advise, check_each, compare};
use spinec_passes::pass::{self, Options};
use spinec_passes::rules::{Class, Rule};
use spinec_passes::term::{Graph, Term};
use support::*;

const ALL: [Numerics; 3] = [Numerics::F64, Numerics::F32, Numerics::BF16];

/// Small dims: the system of the golden data.
fn small(numerics: Numerics) -> System {
    small_of("graphs/hybrid-dspine.yaml", numerics)
}

fn small_of(spec: &str, numerics: Numerics) -> System {
    let dir = |part: &str| format!("tests/data/golden/s0/{part}");
    system(spec, numerics, &[("target", dir("target")), ("drafter", dir("drafter"))])
}

/// Its draft phase alone.
fn drafting(numerics: Numerics) -> Module {
    let mut module = phases_of(&small(numerics), "greedy");
    module.funcs.retain(|f| f.name.starts_with("draft"));
    module
}

fn given(_: &Func, name: &str, ty: &TensorType) -> Option<Tensor> {
    let n = ty.dims.first().map_or(Some(1), |d| d.eval(&env())).and_then(|n| usize::try_from(n).ok())?;
    let all = |v: f64| Tensor::f64(vec![n], vec![v; n]).cast(ty.dtype);
    match name {
        "temperature" => all(0.8),
        "top_p" => all(0.9),
        "top_k" => all(5.0),
        "rows" | "width" | "keep" => all(3.0),
        "position" => all(0.0),
        _ => None,
    }
}

fn env() -> Env {
    Env::from([("N".to_owned(), 2), ("T".to_owned(), 3), ("W".to_owned(), 3)])
}

fn check<'a>() -> Check<'a> {
    Check { env: env(), seeds: vec![11], given: &given, tolerance: None }
}

fn report(module: &Module, options: &Options, check: &Check) -> Report {
    check_each(module.clone(), options, check).unwrap_or_else(|e| panic!("{e}")).1
}

/// All systems, laws and numerics, with what each class allows; and the passes do the same as without being watched.
#[test]
fn every_pass_keeps_every_value() {
    let (spine, flash) = ("graphs/hybrid-dspine.yaml", "graphs/hybrid-dflash.yaml");
    for (spec, laws) in [(spine, &["greedy", "sampled", "mixed"][..]), (flash, &["mixed"])] {
        for numerics in ALL {
            let system = small_of(spec, numerics);
            for law in laws {
                let module = phases_of(&system, law);
                let options = Options::new(h200());
                let (p, report) = check_each(module.clone(), &options, &check())
                    .unwrap_or_else(|e| panic!("{numerics:?} {law}: {e}"));
                assert_eq!(report.difference, None, "{spec} {numerics:?} {law}");
                let options = options_for(&module, &options);
                let plain = pass::run(module, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(p, plain, "{spec} {numerics:?} {law}");
                assert!(
                    p.module.funcs.iter().all(|f| f.values.iter().all(|v| !v.names.iter().any(|n| n.contains('%'))))
                );
                for pass in ["clean", "group", "tidy"] {
                    let exact = report.applied.iter().filter(|a| a.pass == pass).collect::<Vec<_>>();
                    assert!(matches!(exact.as_slice(), [a] if a.bound == Bound::EXACT && a.values > 500), "{exact:?}");
                }
                let rewritten: Vec<Class> =
                    report.applied.iter().filter(|a| a.pass == "rewrite").map(|a| a.bound.class).collect();
                assert!(rewritten.contains(&Class::Exact) && rewritten.contains(&Class::Reassociating));
            }
        }
    }
}

/// Other seeds, with a device for which everything that can be derived is.
#[test]
fn tables_in_sixteen_bits_are_within_their_bound() {
    let module = drafting(Numerics::BF16);
    let check = Check { seeds: (0..6).collect(), ..check() };
    let (p, report) = check_each(module, &Options::new(arithmetic(1)), &check).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(report.difference, None);
    assert!(p.regions.iter().any(|r| r.narrowed > 0 && r.class == Class::RoundingChanging));
    let worst = report.applied.iter().filter(|a| a.bound.class == Class::RoundingChanging).map(|a| a.worst);
    // A rounding to bf16 shows and is allowed for.
    assert!(worst.fold(0.0, f64::max) > 1e-3);
}

/// Narrower storage goes by a name: what it changes in sixteen bits, it does not change without it.
#[test]
fn narrow_storage_is_left_out_by_its_name() {
    let module = drafting(Numerics::BF16);
    let mut options = Options::new(arithmetic(1));
    // Only exact rules besides, and nothing is allowed: what is left is the rounding of tables.
    options.rules.retain(|r| r.class != Class::RoundingChanging);
    let strict = Check { tolerance: Some(1e-4), ..check() };
    let (program, found) = check_each(module.clone(), &options, &strict).unwrap_or_else(|e| panic!("{e}"));
    let found = found.difference.expect("tables are rounded");
    assert!(found.fired.contains(&NARROW_STORAGE), "{found:?}");
    let advice = advise(&module, &options, &strict, &found, &program).unwrap_or_else(|e| panic!("{e}"));
    let Advice::OneOf(knobs) = &advice else { panic!("{advice:?}") };
    assert!(knobs.contains(&Knob::Without(NARROW_STORAGE)) && knobs.contains(&Knob::Derived), "{knobs:?}");
    // Every one was tried; once more by hand.
    options.without.insert(NARROW_STORAGE.to_owned());
    assert_eq!(report(&module, &options, &strict).difference, None);
    let p = pass::run(module, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    assert!(!p.derived.is_empty() && p.regions.iter().all(|r| r.narrowed == 0));
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
    assert_eq!(found.place.func, after.module.funcs[draft].name);
    assert_eq!(found.place.value, "d.layers.0.wrote.known");
    let Change::Off(error) = found.change else { panic!("{found:?}") };
    assert!(found.place.span.is_some() && (5e-4..2e-3).contains(&error), "{found:?}");
}

/// A rule that is wrong: an addend goes. It claims to change no bit.
static WRONG: Rule = Rule {
    name: "wrong-sum",
    form: "a + b -> a",
    premises: "a has the dims of the sum",
    class: Class::Exact,
    roots: &[Opcode::Add],
    apply: first_addend,
};

fn first_addend(g: &mut Graph, id: egg::Id, node: &Term) -> Vec<egg::Id> {
    let (Some(whole), Some(a)) = (g.ty(id).cloned(), g.ty(node.children[0]).cloned()) else { return Vec::new() };
    let fits = whole.dims == a.dims && a.dtype.is_float() && whole.dims.len() > 2;
    fits.then(|| g.cast(node.children[0], whole.dtype)).flatten().into_iter().collect()
}

/// A rule that computes something else is found in every numerics, with its name, the first value and where that is written.
#[test]
fn a_wrong_rule_is_found_and_named() {
    for numerics in ALL {
        let module = drafting(numerics);
        let mut options = Options::new(h200());
        options.rules.push(&WRONG);
        let (program, found) = check_each(module.clone(), &options, &check()).unwrap_or_else(|e| panic!("{e}"));
        assert!(program.fired().contains_key(WRONG.name));
        let found = found.difference.unwrap_or_else(|| panic!("{numerics:?}: an addend is missed"));
        assert_eq!(found.place.pass, "rewrite");
        assert!(found.fired.contains(&WRONG.name), "{found:?}");
        assert!(matches!(found.change, Change::Off(error) if error > found.bound.tolerance), "{found:?}");
        assert!(!found.place.value.is_empty() && found.place.span.is_some(), "{found:?}");
        // Fewer rules to try to leave out.
        options.rules.retain(|r| r.class == Class::Exact);
        let advice = advise(&module, &options, &check(), &found, &program).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(advice, Advice::OneOf(vec![Knob::Without(WRONG.name)]), "{numerics:?}");
    }
}

/// The same under another name and premise.
static ALSO_WRONG: Rule = Rule { name: "wrong-difference", form: "a - b -> a", roots: &[Opcode::Sub], ..WRONG };

/// What is named is enough and no more, and where nothing is enough it is said.
#[test]
fn advice_is_tried_and_minimal() {
    let module = text(
        "f64",
        "  input \"x\" = %0 : f64[N, 2, 8]\n  input \"y\" = %1 : f64[N, 2, 8]\n  %2 \"s\" = add(%0, %1) : f64[N, 2, 8]\n  \
         %3 \"d\" = sub(%0, %1) : f64[N, 2, 8]\n  %4 \"p\" = mul(%2, %3) : f64[N, 2, 8]\n  return \"p\" = %4\n",
    );
    let advised = |options: &Options, check: &Check| {
        let (program, found) = check_each(module.clone(), options, check).unwrap_or_else(|e| panic!("{e}"));
        let found = found.difference.expect("a value differs");
        advise(&module, options, check, &found, &program).unwrap_or_else(|e| panic!("{e}"))
    };
    let mut options = Options::new(h200());
    options.rules.extend([&WRONG, &ALSO_WRONG]);
    let Advice::All(mut knobs) = advised(&options, &check()) else { panic!("both have to go") };
    knobs.sort_by_key(|k| k.flag());
    assert_eq!(knobs, [Knob::Without(ALSO_WRONG.name), Knob::Without(WRONG.name)]);
    options.without.insert(WRONG.name.to_owned());
    assert_eq!(advised(&options, &check()), Advice::OneOf(vec![Knob::Without(ALSO_WRONG.name)]));
    // Where nothing fired there is nothing to leave out.
    let (program, found) = check_each(module.clone(), &options, &check()).unwrap_or_else(|e| panic!("{e}"));
    let unfired = pass::Program { regions: vec![], ..program };
    let found = found.difference.expect("a value differs");
    let advice = advise(&module, &options, &check(), &found, &unfired).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(advice, Advice::Nothing);
}

/// A module of one function of N rows.
fn text(numerics: &str, body: &str) -> Module {
    let text = format!(
        "spinec-ir 1\nmodule \"m\" numerics={numerics}\nsymbol N 1..8\nweight 0 \"w\" : bf16[16, 64]\nfunc \"f\"\n{body}"
    );
    parse(&text).unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

/// A router: the largest of a map of rows that are scaled and rounded to bf16.
fn router() -> Module {
    text(
        "bf16",
        "  input \"x\" = %0 : bf16[N, 64]\n  input \"s\" = %1 : f32[N, 1]\n  %2 = mul(%0, %1) : f32[N, 64]\n  \
         %3 = cast(%2) {dtype=bf16} : bf16[N, 64]\n  %4 = weight() {weight=0} : bf16[16, 64]\n  \
         %5 \"scores\" = linear(%3, %4) {acc=f32} : bf16[N, 16]\n  \
         %6 \"best\", %7 \"experts\" = topk(%5) {k=4} : bf16[N, 4], i32[N, 4]\n  \
         %8 \"taken\" = take(%0, %7) {axis=1} : bf16[N, 4]\n  return \"taken\" = %8\n",
    )
}

/// A pick at a near tie is named and is no difference, and what follows is compared with the picks of the graph.
#[test]
fn near_ties_are_named_and_carried_no_further() {
    let check = Check { seeds: (0..60).collect(), ..check() };
    let found = report(&router(), &Options::new(arithmetic(1)), &check);
    assert_eq!(found.difference, None);
    let tie = found.ties.first().expect("some seed has a near tie");
    assert_eq!((tie.place.pass, tie.place.value.as_str(), tie.turned.pick), ("rewrite", "experts", Pick::Largest));
    assert!(tie.turned.want != tie.turned.got && tie.turned.gap <= 2.0 * tie.bound.tolerance, "{tie:?}");
    assert_eq!(tie.bound, Bound::new(Class::RoundingChanging, DType::BF16));
    assert!(tie.turned.to_string().starts_with(&format!("picks {} where the graph picked", tie.turned.got)));
    // Without the rule the same bits are the same picks.
    let mut options = Options::new(arithmetic(1));
    options.without.insert("linear-scale-rounded".to_owned());
    let found = report(&router(), &options, &check);
    assert_eq!((found.difference, found.ties), (None, vec![]));
}

/// What is checked is what is compiled: a function that decides tokens keeps its bits, under the eyes of a check too.
#[test]
fn functions_that_decide_tokens_are_checked_with_exact_rules() {
    let mut module = router();
    let options = Options::new(arithmetic(1));
    let classes = |report: &Report| -> Vec<Class> {
        report.applied.iter().filter(|a| a.pass == "rewrite").map(|a| a.bound.class).collect()
    };
    assert!(classes(&report(&module, &options, &check())).contains(&Class::RoundingChanging));
    module.funcs[0].outputs = vec!["token".to_owned()];
    let (program, report) = check_each(module.clone(), &options, &check()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(classes(&report), [Class::Exact]);
    let compiled = compile_recorded(module, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(program.regions, compiled.regions);
}

/// Two entries that a factor rounds to the same number: the graph takes the first, the rewritten one the larger.
#[test]
fn a_pick_that_turns_on_a_rounding_is_a_tie() {
    let module = text(
        "f32",
        "  input \"x\" = %0 : f32[N, 4]\n  %1 = const() {dtype=f32, value=1.5} : f32[]\n  %2 = mul(%0, %1) : f32[N, 4]\n  \
         %3 \"best\" = argmax(%2) {axis=-1} : i32[N]\n  %4 \"value\" = take(%0, %3) {axis=1} : f32[N]\n  return \"value\" = %4\n",
    );
    let ulp = f64::from(f32::EPSILON);
    let close = |_: &Func, _: &str, ty: &TensorType| {
        let row = [0.5, 1.5 + 2.0 * ulp, 1.5 + 3.0 * ulp, -1.0];
        Tensor::f64(vec![2, 4], [row, row].concat()).cast(ty.dtype)
    };
    let check = Check { given: &close, ..check() };
    let found = report(&module, &Options::new(h200()), &check);
    assert_eq!(found.difference, None);
    let [tie] = found.ties.as_slice() else { panic!("{:?}", found.ties) };
    assert_eq!((tie.turned.want, tie.turned.got, tie.place.value.as_str()), (1, 2, "best"));
    assert_eq!(tie.turned.to_string(), "picks 2 where the graph picked 1; their scores differ by 0.0e0");
}

/// A rule that is wrong about what is largest.
static SMALLEST: Rule = Rule {
    name: "wrong-argmax",
    form: "argmax(a + b) -> argmax(a)",
    premises: "none",
    class: Class::RoundingChanging,
    roots: &[Opcode::Argmax],
    apply: of_first,
};

fn of_first(g: &mut Graph, _: egg::Id, node: &Term) -> Vec<egg::Id> {
    let sums = g.defs(node.children[0], Opcode::Add);
    sums.iter().filter_map(|d| g.op(Opcode::Argmax, &[d.children[0]], node.key.attrs().clone())).collect()
}

/// A pick that is no near tie is a difference, with both picks and what lies between them.
#[test]
fn a_wrong_pick_is_a_difference() {
    for (dtype, sum) in [("f64", "f64"), ("f32", "f32"), ("bf16", "f32")] {
        let body = format!(
            "  input \"a\" = %0 : {dtype}[N, 64]\n  input \"b\" = %1 : {dtype}[N, 64]\n  %2 = add(%0, %1) : {sum}[N, 64]\n  \
             %3 \"best\" = argmax(%2) {{axis=-1}} : i32[N]\n  return \"best\" = %3\n"
        );
        let module = text(dtype, &body);
        let mut options = Options::new(h200());
        assert_eq!(report(&module, &options, &check()).difference, None);
        options.rules.push(&SMALLEST);
        let found = report(&module, &options, &check()).difference.expect("the wrong entry is picked");
        let Change::Turned(turned) = &found.change else { panic!("{found:?}") };
        assert!(turned.gap > 2.0 * found.bound.tolerance && turned.want != turned.got, "{dtype} {turned:?}");
        assert!(found.change.to_string().contains("their scores differ by"), "{}", found.change);
    }
}

/// What is allowed grows with the class and with the width of a rounding.
#[test]
fn bounds_follow_class_and_dtype() {
    for dtypes in [[DType::F64, DType::F32], [DType::F32, DType::BF16]] {
        for class in Class::ALL {
            let [wide, narrow] = dtypes.map(|d| Bound::new(class, d).tolerance);
            assert!(wide <= narrow, "{class:?} {dtypes:?}");
        }
    }
    for dtype in [DType::F64, DType::F32, DType::BF16] {
        let all = Class::ALL.map(|c| Bound::new(c, dtype).tolerance);
        assert!(all[0] == 0.0 && all.is_sorted(), "{all:?}");
    }
}
