//! Every rule alone: random well-typed left sides, both sides through the reference interpreter.

mod left;
mod support;

use left::*;
use spinec_ir::interp::{Mode, NoObserver, WeightStore, run};
use spinec_ir::ir::testing::Rng;
use spinec_ir::ir::{Attrs, Func, Loc, Module, ValueId, WeightId, verify};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{Env, Type};
use spinec_passes::dag::append;
use spinec_passes::pass::check::{Check, check_each};
use spinec_passes::pass::{self, Options, Program};
use spinec_passes::region::{cut, terms};
use spinec_passes::rules::{Class, Rule, rules};
use spinec_passes::term::{Graph, Head};
use std::collections::BTreeMap;

/// Instances of every rule and dtype mix.
const SEEDS: u64 = 250;

/// The function that computes a class that has one node, as all below it.
fn function(g: &Graph, root: egg::Id, leaves: &[Type]) -> Func {
    fn emit(g: &Graph, id: egg::Id, func: &mut Func, known: &mut BTreeMap<egg::Id, ValueId>) -> ValueId {
        if let Some(v) = known.get(&id) {
            return *v;
        }
        let [node] = g.eg[id].nodes.as_slice() else { panic!("nothing was united") };
        let operands: Vec<ValueId> = node.children.iter().map(|c| emit(g, *c, func, known)).collect();
        let (body, types) = (func.body, g.facts(id).types.clone());
        let op = |func: &mut Func, block, code, operands| {
            append(func, block, code, operands, node.key.attrs().clone(), &types, Loc::default())
                .expect("terms are typed")[0]
        };
        let v = match node.head {
            Head::Op(code) => op(func, body, code, operands),
            Head::Guard(code) => {
                let inner = func.add_region();
                let slow = op(func, inner, code, operands[2..].to_vec());
                func.regions[inner.index()].yields.push(slow);
                let choice = operands[..2].to_vec();
                let made = func.add_op(
                    body,
                    Opcode::Guarded,
                    choice,
                    Attrs::new(),
                    vec![inner],
                    types.clone(),
                    Loc::default(),
                );
                func.op(made).results[0]
            }
            _ => panic!("leaves are known and no op has several results"),
        };
        known.insert(id, v);
        v
    }
    let mut func = Func::new("side");
    let mut known = BTreeMap::new();
    for (i, ty) in leaves.iter().enumerate() {
        func.inputs.push(format!("in{i}"));
        let v = func.add_param(func.body, ty.clone());
        known.extend(g.eg.classes().find(|c| c.nodes[0].head == Head::Leaf(i as u32)).map(|c| (c.id, v)));
    }
    let out = emit(g, root, &mut func, &mut known);
    let body = func.body.index();
    func.outputs.push("out".to_owned());
    func.regions[body].yields.push(out);
    func
}

/// Tries a rule on one random left side; gives how often it applied.
fn instance(rule: &Rule, make: Make, mix: Mix, seed: u64) -> usize {
    let mut l = Left { rng: Rng::new(seed), mix, func: Func::new("left"), weights: vec![], pool: vec![] };
    let Some(root) = make(&mut l) else { return 0 };
    let body = l.func.body.index();
    l.func.outputs.push("out".to_owned());
    l.func.regions[body].yields.push(root);
    let mut module = module(&l);
    assert!(verify::verify(&module).is_empty(), "{}: the left side is not valid", rule.name);
    let cut = cut(&module.funcs[0]);
    let [region] = cut.regions.as_slice() else { return 0 };
    let leaves: Vec<Type> = region.leaves.iter().map(|v| module.funcs[0].ty(*v).clone()).collect();
    let mut t = terms(&module, &module.funcs[0], &cut, 0).expect("a verified function has terms");
    let before: Vec<_> = t.graph.eg.classes().flat_map(|c| c.nodes.iter().map(|n| (c.id, n.clone()))).collect();
    let mut pairs = Vec::new();
    for (id, node) in before {
        if node.code().is_some_and(|c| rule.roots.contains(&c)) {
            let new = (rule.apply)(&mut t.graph, id, &node);
            pairs.extend(
                new.into_iter()
                    .filter(|n| *n != id && t.graph.facts(*n).types == t.graph.facts(id).types)
                    .map(|n| (id, n)),
            );
        }
    }
    let weights = Values(l.weights.iter().map(|ty| random(&ty.clone().into(), &mut l.rng)).collect());
    let inputs: Vec<Tensor> = leaves.iter().map(|ty| random(ty, &mut l.rng)).collect();
    for (left, right) in &pairs {
        let sides: Vec<Tensor> = [left, right]
            .into_iter()
            .map(|side| {
                module.funcs = vec![function(&t.graph, *side, &leaves)];
                assert!(verify::verify(&module).is_empty(), "{} seed {seed}: a side is not valid", rule.name);
                let out = run(&module, &module.funcs[0], &inputs, &weights, &mut [], Mode::Immediate, &mut NoObserver);
                out.unwrap_or_else(|e| panic!("{} seed {seed}: {e:?}", rule.name)).remove(0)
            })
            .collect();
        let show = || {
            let mut both = module.clone();
            both.funcs = vec![function(&t.graph, *left, &leaves), function(&t.graph, *right, &leaves)];
            both.funcs[1].name = "right".to_owned();
            spinec_ir::ir::text::print(&both)
        };
        compare(&sides[0], &sides[1], bound(rule.class, mix), bound_16(rule.class), &|| {
            format!("{} seed {seed} {mix:?}\n{}", rule.name, show())
        });
    }
    pairs.len()
}

#[test]
fn every_rule_is_sound_on_random_instances() {
    for rule in rules() {
        let make = GENERATORS
            .iter()
            .find(|(n, _)| *n == rule.name)
            .unwrap_or_else(|| panic!("no generator for {}", rule.name))
            .1;
        let mut applied = 0;
        for mix in [Mix::F64, Mix::Narrow] {
            // Comparing rounded factors may turn a tie; real arithmetic is what the rule is about.
            if mix == Mix::Narrow && rule.name == "argmax-scale" {
                continue;
            }
            applied += (0..SEEDS).map(|seed| instance(rule, make, mix, seed)).sum::<usize>();
        }
        assert!(applied > 20, "{} applied {applied} times only", rule.name);
    }
}

/// Derived weights of a program over given ones.
struct Loaded<'a>(&'a Values, &'a Program);

impl WeightStore for Loaded<'_> {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        match self.1.derived.iter().position(|d| d.weight == id) {
            Some(i) => support::element(self.1, i, index, support::loaded(self.1, i, self.0)?),
            None => self.0.weight(id, index),
        }
    }
}

/// Functions in which left sides feed each other, through all passes: rules meet, tables are derived and joined.
#[test]
fn composed_terms_compute_the_same() {
    let device = support::arithmetic(1);
    let mut options = Options::new(device);
    options.classes = Class::ALL.into();
    let (mut fired, mut derived, mut compared) = (0, 0, 0);
    for seed in 0..200 {
        let mut l = composed(seed, 24);
        let module = module(&l);
        let p = pass::run(module.clone(), &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let values = Values(l.weights.iter().map(|ty| random(&ty.clone().into(), &mut l.rng)).collect());
        let params = l.func.region(l.func.body).params.clone();
        let inputs: Vec<Tensor> = params.iter().map(|v| random(l.func.ty(*v), &mut l.rng)).collect();
        let outputs = |m: &Module, w: &dyn WeightStore| {
            let out = run(m, &m.funcs[0], &inputs, w, &mut [], Mode::Immediate, &mut NoObserver);
            out.unwrap_or_else(|e| panic!("seed {seed}: {e:?}"))
        };
        let (before, after) = (outputs(&module, &values), outputs(&p.module, &Loaded(&values, &p)));
        for (i, (want, got)) in before.iter().zip(&after).enumerate() {
            // Rules are about finite values; chains of exp and log leave them.
            if want.to_f64().iter().all(|v| v.abs() < 1e6) {
                compared += 1;
                compare(want, got, Some(1e-8), 8e-3, &|| format!("seed {seed} output {i}"));
            }
        }
        fired += p.regions.iter().flat_map(|r| r.saturation.fired.values()).sum::<usize>();
        derived += p.derived.len();
    }
    assert!(
        fired > 2_000 && derived > 300 && compared > 1_000,
        "{fired} fired, {derived} derived, {compared} compared"
    );
}

/// The same functions value by value, inside regions too.
#[test]
fn composed_terms_keep_every_value() {
    let (options, mut compared) = (Options::new(support::arithmetic(1)), 0);
    for seed in 0..60 {
        let module = module(&composed(seed, 24));
        let check = Check { env: Env::new(), seeds: vec![1], given: &|_, _, _| None, tolerance: None };
        let (_, found) = check_each(module, &options, &check).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(found.difference, None, "seed {seed}");
        compared += found.applied.iter().filter(|a| a.bound.class != Class::Exact).map(|a| a.values).sum::<usize>();
    }
    assert!(compared > 1_000, "{compared} values");
    // Single left sides in 16 bits and f32.
    for (name, make) in GENERATORS {
        for seed in 0..60 {
            let mut l =
                Left { rng: Rng::new(seed), mix: Mix::Narrow, func: Func::new("left"), weights: vec![], pool: vec![] };
            let Some(root) = make(&mut l) else { continue };
            let body = l.func.body.index();
            l.func.outputs.push("out".to_owned());
            l.func.regions[body].yields.push(root);
            let check = Check { env: Env::new(), seeds: vec![1, 2], given: &|_, _, _| None, tolerance: None };
            let (_, found) =
                check_each(module(&l), &options, &check).unwrap_or_else(|e| panic!("{name} seed {seed}: {e}"));
            assert_eq!(found.difference, None, "{name} seed {seed}");
        }
    }
}

#[test]
fn rules_are_described() {
    let book = std::fs::read_to_string(support::root().join("docs/rules.md")).expect("the rule book is there");
    let mut seen = std::collections::BTreeSet::new();
    for r in rules() {
        assert!(seen.insert(r.name), "{} twice", r.name);
        let line = book.lines().find(|l| l.starts_with(&format!("| {} |", r.name)));
        let line = line.unwrap_or_else(|| panic!("{} is not in docs/rules.md", r.name));
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert_eq!(cells[2..5], [&format!("`{}`", r.form), r.premises, r.class.name()], "{}", r.name);
    }
    assert_eq!(seen.len(), GENERATORS.len());
}

/// The rule book's table, to be copied when a rule changes.
#[test]
fn the_book_has_no_other_rules() {
    let book = std::fs::read_to_string(support::root().join("docs/rules.md")).expect("the rule book is there");
    let names: Vec<&str> = rules().map(|r| r.name).collect();
    let rows = book.lines().filter_map(|l| l.strip_prefix("| ")?.split(" |").next());
    for name in rows.filter(|n| n.contains('-') && !n.contains("---")) {
        assert!(
            names.contains(&name) || Class::ALL.iter().any(|c| c.name() == name),
            "docs/rules.md describes `{name}`, which is no rule"
        );
    }
}
