//! The rewrite rules by example: for every rule a module in which it fires and matters (`RULE.ir`) and modules in which one of
//! its premises fails (`RULE.no-PREMISE.ir`), with what they are rewritten to beside them. `SPINEC_BLESS=1` writes what is
//! beside them anew.
//!
//! Comments at the top of a module say what should happen. Some are read by the test:
//!
//! * `; device: arithmetic`: the terms are chosen for a device on which only arithmetic takes time, not for the release's.
//! * `; tolerance: 1e-5`: how far values may be off where roundings to less than f64 move; else 1e-9, and nothing where
//!   only exact rules fire.

mod support;

use spinec_ir::ir::text::{parse, print};
use spinec_ir::ir::{Func, Module};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, Env, TensorType};
use spinec_passes::pass::check::{Check, check_each, compare};
use spinec_passes::pass::{self, Options, Program};
use spinec_passes::rules::{Class, Rule, rules};
use spinec_passes::saturate::Stop;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use support::{arithmetic, h200, root};

/// A module of the folder.
struct Example {
    /// Its file name without the extension.
    name: String,
    path: PathBuf,
    text: String,
    rule: &'static Rule,
    /// The premise that fails; `None` if the rule fires.
    premise: Option<String>,
}

fn folder() -> PathBuf {
    root().join("crates/passes/tests/filetests/rules")
}

/// The files of the folder with an extension, by name.
fn files(extension: &str) -> BTreeMap<String, PathBuf> {
    let all = std::fs::read_dir(folder()).expect("the folder is there").map(|e| e.expect("it can be listed").path());
    let stem = |p: &PathBuf| p.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    all.filter(|p| p.extension().is_some_and(|e| e == extension)).map(|p| (stem(&p), p)).collect()
}

fn examples() -> Vec<Example> {
    let example = |(name, path): (String, PathBuf)| {
        let text = std::fs::read_to_string(&path).expect("the file can be read");
        let (of, premise) = match name.split_once(".no-") {
            Some((rule, premise)) => (rule, Some(premise.to_owned())),
            None => (name.as_str(), None),
        };
        let rule = rules().find(|r| r.name == of).unwrap_or_else(|| panic!("{name}: there is no rule `{of}`"));
        Example { rule, premise, name, path, text }
    };
    files("ir").into_iter().map(example).collect()
}

impl Example {
    /// What the comments at the top say of a key.
    fn says(&self, key: &str) -> Option<&str> {
        let top = self.text.lines().take_while(|l| l.starts_with(';'));
        top.filter_map(|l| l.strip_prefix("; ")?.strip_prefix(key)?.strip_prefix(": ")).next()
    }

    fn module(&self) -> Module {
        parse(&self.text).unwrap_or_else(|e| panic!("{}: {}", self.name, e[0]))
    }

    /// The module through all passes, `without` some rules.
    fn rewritten(&self, without: &[&str]) -> Program {
        let options = self.options(without);
        pass::run(self.module(), &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    fn options(&self, without: &[&str]) -> Options {
        let device = match self.says("device") {
            None => h200(),
            Some("arithmetic") => arithmetic(1),
            Some(other) => panic!("{}: no device `{other}`", self.name),
        };
        let mut options = Options::new(device);
        options.classes = Class::ALL.into();
        options.without = without.iter().map(|r| (*r).to_owned()).collect();
        options
    }

    /// The module as it is written.
    fn unchanged(&self) -> Program {
        let module = self.module();
        let load = Module { funcs: Vec::new(), states: Vec::new(), ..module.clone() };
        Program { module, load, derived: Vec::new(), regions: Vec::new() }
    }
}

/// Which rules fired, the module, and what computes its derived weights.
fn shown(p: &Program) -> String {
    let fired: Vec<String> = p.fired().iter().map(|(rule, n)| format!("{rule} {n}")).collect();
    let mut out = format!("; fired: {}\n", if fired.is_empty() { "nothing".to_owned() } else { fired.join(", ") });
    for d in &p.derived {
        let w = p.module.weight(d.weight);
        writeln!(out, "; {} : {} from {}, {} bytes", w.name, w.ty, d.of.join(", "), d.bytes).expect("text grows");
    }
    out.push_str(&print(&p.module));
    if !p.derived.is_empty() {
        write!(out, "\n; what is computed before the first run\n{}", print(&p.load)).expect("text grows");
    }
    out
}

/// Modules are rewritten to what stands beside them, and nothing else stands there.
#[test]
fn examples_are_rewritten_as_recorded() {
    let mut wrong = Vec::new();
    let all = examples();
    for e in &all {
        let found = shown(&e.rewritten(&[]));
        let beside = e.path.with_extension("out");
        if std::env::var_os("SPINEC_BLESS").is_some() {
            std::fs::write(&beside, &found).expect("the file can be written");
        }
        if std::fs::read_to_string(&beside).ok().as_deref() != Some(found.as_str()) {
            wrong.push(format!("{}:\n{found}", e.name));
        }
    }
    assert!(wrong.is_empty(), "SPINEC_BLESS=1 records what is new\n{}", wrong.join("\n"));
    let (named, recorded) = (files("ir").into_keys(), files("out").into_keys());
    assert!(named.eq(recorded), "a record without a module");
}

/// Every rule has both kinds of module.
#[test]
fn every_rule_has_examples_for_and_against_it() {
    let all = examples();
    let fires: BTreeSet<&str> = all.iter().filter(|e| e.premise.is_none()).map(|e| e.rule.name).collect();
    let refuses: BTreeSet<&str> = all.iter().filter(|e| e.premise.is_some()).map(|e| e.rule.name).collect();
    let missing: Vec<String> = rules()
        .flat_map(|r| [(fires.contains(r.name), r.name, ""), (refuses.contains(r.name), r.name, ".no-PREMISE")])
        .filter(|(there, ..)| !there)
        .map(|(_, rule, what)| format!("{rule}{what}.ir"))
        .collect();
    assert!(missing.is_empty(), "not in {}: {missing:?}", folder().display());
    for e in &all {
        assert!(e.text.starts_with("; "), "{} does not say what should happen", e.name);
    }
}

/// A rule fires in its module and what becomes of the module needs it; where a premise fails it does not fire.
#[test]
fn rules_fire_where_they_should_and_nowhere_else() {
    let mut wrong = Vec::new();
    for e in examples() {
        let (p, name) = (e.rewritten(&[]), e.rule.name);
        assert!(p.regions.iter().all(|r| r.saturation.stop == Stop::Saturated), "{} does not saturate", e.name);
        let times = p.fired().get(name).copied().unwrap_or_default();
        if let Some(premise) = &e.premise {
            if times > 0 {
                wrong.push(format!("{name} fires {times} times though `{premise}` fails"));
            }
            continue;
        }
        let without = e.rewritten(&[name]);
        let missed = (print(&p.module), print(&p.load)) != (print(&without.module), print(&without.load));
        if times == 0 {
            wrong.push(format!("{name} does not fire"));
        } else if !missed {
            wrong.push(format!("{name} fires, but nothing comes of it"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Both sides on the interpreter, with made-up weights and inputs.
#[test]
fn examples_keep_their_values() {
    let env = Env::from([("N".to_owned(), 2), ("T".to_owned(), 3)]);
    // Indices are out of order, some repeat, and one is beyond the end.
    let given = |_: &Func, _: &str, ty: &TensorType| {
        let shape: Option<Vec<usize>> = ty.dims.iter().map(|d| usize::try_from(d.eval(&env)?).ok()).collect();
        let index = |shape: Vec<usize>| {
            let n = shape.iter().product::<usize>() as i32;
            Tensor::i32(shape, (0..n).map(|i| (16 + 5 * i) % 17).collect())
        };
        (ty.dtype == DType::I32).then(|| shape.map(index)).flatten()
    };
    let mut compared = 0;
    for e in examples() {
        let (before, after) = (e.unchanged(), e.rewritten(&[]));
        let fired = after.fired();
        let exact = rules().filter(|r| fired.contains_key(r.name)).all(|r| r.class == Class::Exact);
        let tolerance = match e.says("tolerance") {
            Some(t) => t.parse().unwrap_or_else(|_| panic!("{}: `{t}` is no number", e.name)),
            None if exact => 0.0,
            None => 1e-9,
        };
        let check = Check { env: env.clone(), seeds: vec![1, 2, 3], given: &given, tolerance: Some(tolerance) };
        let found = compare(&before, &after, &check).unwrap_or_else(|why| panic!("{}: {why}", e.name));
        assert_eq!(found, None, "{}", e.name);
        // And with no tolerance of its own, every value by itself.
        let by_class = Check { tolerance: None, ..check };
        let (_, found) =
            check_each(e.module(), &e.options(&[]), &by_class).unwrap_or_else(|why| panic!("{}: {why}", e.name));
        assert_eq!(found.difference, None, "{}", e.name);
        compared += by_class.seeds.len();
    }
    assert!(compared >= 2 * 3 * rules().count(), "{compared} comparisons");
}
