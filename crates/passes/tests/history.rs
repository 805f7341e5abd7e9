//! Recorded chains: they connect, every step is what its rule does, and both sides of a step compute the same.

mod left;
mod support;

use left::*;
use spinec_ir::interp::{Mode, NoObserver, run};
use spinec_ir::ir::testing::Rng;
use spinec_ir::ir::{Attr, Attrs, Func, Loc, Module, ValueId, verify};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, TensorType, Type};
use spinec_passes::dag::append;
use spinec_passes::history::{Chain, Fate, History, Store, TermId, Why};
use spinec_passes::pass::{self, Options};
use spinec_passes::rules::{Class, Rule, rules};
use spinec_passes::saturate::{Limits, saturate};
use spinec_passes::term::{Graph, Head, WeightFacts};
use std::collections::{BTreeMap, BTreeSet};

fn rule(name: &str) -> &'static Rule {
    rules().find(|r| r.name == name).unwrap_or_else(|| panic!("there is no rule `{name}`"))
}

fn chains(h: &History) -> impl Iterator<Item = &Chain> {
    h.roots.iter().chain(h.values.iter().flatten().flatten())
}

/// What a chain must be whatever the rules are: it leads from its first to its last term, the term after a step is the one
/// before the next, and a step changes one term and what is around it. Says what is wrong.
fn broken(store: &Store, chain: &Chain) -> Option<String> {
    let mut now = chain.from;
    for (i, step) in chain.steps.iter().enumerate() {
        if step.whole_before() != now {
            return Some(format!("step {i} does not begin where the one before ends"));
        }
        now = step.whole_after();
        if step.around.first() != Some(&(step.before, step.after)) {
            return Some(format!("step {i} replaces something else"));
        }
        for pair in step.around.windows(2) {
            let (inner, (old, new)) = (pair[0], pair[1]);
            let (old, new) = (store.node(old), store.node(new));
            let changed = old.children.iter().zip(&new.children).filter(|(a, b)| a != b);
            let right = changed.clone().count() > 0 && changed.clone().all(|(a, b)| (*a, *b) == inner);
            if !right || (old.head, &old.key, &old.types) != (new.head, &new.key, &new.types) {
                return Some(format!("step {i} changes more than one term"));
            }
        }
        if let Why::Again { first, last } = step.why {
            let again = &chain.steps[first..=last];
            let same = again.first().zip(again.last()).is_some_and(|(a, b)| {
                // The steps referred to lead from one term to the other, alone or as a part of what is around them.
                a.around.iter().any(|x| x.0 == step.before) && b.around.iter().any(|x| x.1 == step.after)
            });
            if !same || last >= i {
                return Some(format!("step {i} refers to other steps"));
            }
        }
    }
    (now != chain.to).then(|| "it does not end where it should".to_owned())
}

/// A graph of nothing but a term.
struct Alone<'a> {
    store: &'a Store,
    g: Graph,
    known: BTreeMap<TermId, egg::Id>,
}

impl<'a> Alone<'a> {
    fn new(store: &'a Store, module: &Module) -> Alone<'a> {
        let mut leaves: Vec<Type> = Vec::new();
        let mut indices = BTreeMap::new();
        for t in store.ids() {
            let node = store.node(t);
            if let Head::Leaf(l) = node.head {
                let scalar = || TensorType::new(DType::I32, vec![]).into();
                leaves.resize_with(leaves.len().max(l as usize + 1), scalar);
                leaves[l as usize] = node.types[0].clone();
            }
            if let (Head::Op(Opcode::Weight), Some(Attr::Int(w))) = (node.head, node.key.attrs().get("weight")) {
                for (c, (_, extent)) in node.children.iter().zip(&module.weights[*w as usize].loops) {
                    if let Head::Leaf(l) = store.node(*c).head {
                        indices.insert(l, *extent);
                    }
                }
            }
        }
        let weight =
            |w: &spinec_ir::ir::Weight| WeightFacts { ty: w.ty.clone(), loops: w.loops.iter().map(|l| l.1).collect() };
        let g = Graph::new(leaves, indices, module.weights.iter().map(weight).collect());
        Alone { store, g, known: BTreeMap::new() }
    }

    fn add(&mut self, t: TermId) -> egg::Id {
        if let Some(id) = self.known.get(&t) {
            return *id;
        }
        let node = self.store.node(t);
        let children: Vec<egg::Id> = node.children.iter().map(|c| self.add(*c)).collect();
        let id = match node.head {
            Head::Leaf(l) => self.g.leaf(l),
            Head::Proj(i) => self.g.proj(children[0], i),
            Head::Op(code) => self.g.op(code, &children, node.key.attrs().clone()).expect("terms are typed"),
            Head::Guard(code) => {
                let children2 = children[2..].to_vec();
                let slow =
                    spinec_passes::term::Term { head: Head::Op(code), key: node.key.clone(), children: children2 };
                self.g.guard(children[0], children[1], &slow).expect("guards are typed")
            }
            Head::Pack | Head::Packed => panic!("chains have no packs"),
        };
        self.known.insert(t, id);
        id
    }
}

/// Whether a rule alone makes `after` of `before`. Views of views fold on the way.
fn applies(rule: &Rule, store: &Store, module: &Module, before: TermId, after: TermId) -> bool {
    let mut alone = Alone::new(store, module);
    let id = alone.add(before);
    alone.g.eg.rebuild();
    let id = alone.g.eg.find(id);
    let node = alone.g.eg[id].nodes[0].clone();
    for new in (rule.apply)(&mut alone.g, id, &node) {
        alone.g.eg.union(id, new);
    }
    let views: Vec<&Rule> = ["cast-fold", "reshape-fold", "transpose-fold"].map(self::rule).into();
    let other = alone.add(after);
    alone.g.eg.rebuild();
    saturate(&mut alone.g, &views, Limits::default(), &mut None).expect("rules agree");
    alone.g.eg.find(id) == alone.g.eg.find(other)
}

/// Rules of steps, left and right side, each once.
fn steps(h: &History) -> BTreeSet<(&'static str, TermId, TermId)> {
    let rules = chains(h).flat_map(|c| &c.steps).filter_map(|s| match s.why {
        Why::Rule { name, reversed: false } => Some((name, s.before, s.after)),
        Why::Rule { name, reversed: true } => Some((name, s.after, s.before)),
        Why::Again { .. } => None,
    });
    rules.collect()
}

fn replay(h: &History, module: &Module, what: &str) -> usize {
    for (i, c) in chains(h).enumerate() {
        assert_eq!(broken(&h.store, c), None, "{what} chain {i}");
    }
    let all = steps(h);
    for (name, before, after) in &all {
        assert!(applies(rule(name), &h.store, module, *before, *after), "{what}: {name} does not make this step");
    }
    all.len()
}

#[test]
fn chains_of_the_release_are_what_its_rules_do() {
    for law in ["greedy", "mixed"] {
        let module = support::phases("graphs/qwen3.8-27b-dspine.yaml", law);
        let mut options = spinec_passes::compile::options_for(&module, &Options::new(support::h200()));
        options.record = true;
        let p = pass::run(module, &options, &mut |_, _| {}).expect("it is rewritten");
        let mut n = 0;
        for r in &p.regions {
            let h = r.history.as_ref().expect("it is recorded");
            assert_eq!(h.places.len(), r.shared + 1, "{}", r.at);
            n += replay(h, &p.load, &r.at);
        }
        assert!(n > 20, "{n} steps");
    }
}

/// The function that computes a term.
fn function(store: &Store, t: TermId, leaves: &BTreeMap<u32, Type>) -> Func {
    fn emit(store: &Store, t: TermId, func: &mut Func, known: &mut BTreeMap<TermId, ValueId>) -> ValueId {
        if let Some(v) = known.get(&t) {
            return *v;
        }
        let node = store.node(t);
        let operands: Vec<ValueId> = node.children.iter().map(|c| emit(store, *c, func, known)).collect();
        let op = |func: &mut Func, block, code, operands| {
            append(func, block, code, operands, node.key.attrs().clone(), &node.types, Loc::default())
                .expect("terms are typed")[0]
        };
        let body = func.body;
        let v = match node.head {
            Head::Op(code) => op(func, body, code, operands),
            Head::Guard(code) => {
                let inner = func.add_region();
                let slow = op(func, inner, code, operands[2..].to_vec());
                func.regions[inner.index()].yields.push(slow);
                let (choice, types) = (operands[..2].to_vec(), node.types.clone());
                let attrs = Attrs::new();
                let made = func.add_op(body, Opcode::Guarded, choice, attrs, vec![inner], types, Loc::default());
                func.op(made).results[0]
            }
            _ => panic!("leaves are known and no op has several results"),
        };
        known.insert(t, v);
        v
    }
    let mut func = Func::new("side");
    let (mut known, mut params) = (BTreeMap::new(), BTreeMap::new());
    for (l, ty) in leaves {
        func.inputs.push(format!("in{l}"));
        params.insert(*l, func.add_param(func.body, ty.clone()));
    }
    for t in store.ids() {
        if let Head::Leaf(l) = store.node(t).head {
            known.insert(t, params[&l]);
        }
    }
    let out = emit(store, t, &mut func, &mut known);
    let body = func.body.index();
    func.outputs.push("out".to_owned());
    func.regions[body].yields.push(out);
    func
}

/// Values of terms with random weights and inputs.
struct Evaluate<'a> {
    store: &'a Store,
    module: Module,
    leaves: BTreeMap<u32, Type>,
    inputs: Vec<Tensor>,
    weights: Values,
}

impl<'a> Evaluate<'a> {
    fn new(store: &'a Store, module: &Module, rng: &mut Rng) -> Evaluate<'a> {
        let leaf = |t: TermId| match store.node(t).head {
            Head::Leaf(l) => Some((l, store.node(t).types[0].clone())),
            _ => None,
        };
        let leaves: BTreeMap<u32, Type> = store.ids().filter_map(leaf).collect();
        let inputs = leaves.values().map(|ty| random(ty, rng)).collect();
        let weights = Values(module.weights.iter().map(|w| random(&w.ty.clone().into(), rng)).collect());
        Evaluate { store, module: module.clone(), leaves, inputs, weights }
    }

    fn value(&mut self, t: TermId) -> Tensor {
        self.module.funcs = vec![function(self.store, t, &self.leaves)];
        let errors = verify::verify(&self.module);
        assert!(errors.is_empty(), "{errors:?}");
        let func = &self.module.funcs[0];
        let out = run(&self.module, func, &self.inputs, &self.weights, &mut [], Mode::Immediate, &mut NoObserver);
        out.unwrap_or_else(|e| panic!("{e:?}")).remove(0)
    }
}

/// Left sides that feed each other, through all passes: every chain connects, its rules do its steps alone, and the sides of
/// every step and the whole terms around them compute the same.
#[test]
fn steps_of_composed_terms_compute_the_same() {
    let mut options = Options::new(support::arithmetic(1));
    options.classes = Class::ALL.into();
    options.record = true;
    let (mut compared, mut fired) = (0, BTreeSet::new());
    for seed in 0..SEEDS {
        let mut l = composed(seed, 16);
        let module = module(&l);
        let p = pass::run(module.clone(), &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let plain = Options { record: false, ..options.clone() };
        let plain = pass::run(module.clone(), &plain, &mut |_, _| {}).expect("it is rewritten");
        assert_eq!(pass::structural_hash(&p), pass::structural_hash(&plain), "recording changes nothing");
        for h in p.regions.iter().filter_map(|r| r.history.as_ref()) {
            replay(h, &module, &format!("seed {seed}"));
            let mut values = Evaluate::new(&h.store, &module, &mut l.rng);
            let wholes = chains(h).flat_map(|c| &c.steps).map(|s| ("whole", s.whole_before(), s.whole_after()));
            let all: BTreeSet<(&str, TermId, TermId)> = steps(h).into_iter().chain(wholes).collect();
            for (name, before, after) in all {
                let (a, b) = (values.value(before), values.value(after));
                // Rules are about finite values; chains of exp and log leave them.
                if a.to_f64().iter().all(|v| v.abs() < 1e6) {
                    compare(&a, &b, Some(1e-8), 8e-3, &|| format!("seed {seed} {name}"));
                    compared += 1;
                    fired.insert(name);
                }
            }
        }
    }
    assert!(compared > 500 && fired.len() > 10, "{compared} compared, {fired:?}");
}

/// Composed functions that are taken through the passes.
const SEEDS: u64 = 60;

/// A chain that lacks a step does not connect.
#[test]
fn a_chain_without_one_of_its_steps_is_broken() {
    let module = support::phases("graphs/qwen3.8-27b-dspine.yaml", "greedy");
    let mut options = spinec_passes::compile::options_for(&module, &Options::new(support::h200()));
    options.record = true;
    let p = pass::run(module, &options, &mut |_, _| {}).expect("it is rewritten");
    let mut tried = 0;
    for h in p.regions.iter().filter_map(|r| r.history.as_ref()) {
        for chain in chains(h) {
            for i in 0..chain.steps.len() {
                let mut short = chain.clone();
                short.steps.remove(i);
                assert!(broken(&h.store, &short).is_some());
                tried += 1;
            }
        }
    }
    assert!(tried > 20, "{tried}");
}

/// What is not computed any more was removed by a rule; what a derived weight holds was made from something that is written.
#[test]
fn values_that_are_gone_and_tables_that_are_new_are_accounted_for() {
    let (mut gone, mut tables) = (0, 0);
    for law in ["greedy", "mixed"] {
        let module = support::phases("graphs/qwen3.8-27b-dspine.yaml", law);
        let mut options = spinec_passes::compile::options_for(&module, &Options::new(support::h200()));
        options.record = true;
        let p = pass::run(module, &options, &mut |_, _| {}).expect("it is rewritten");
        for h in p.regions.iter().filter_map(|r| r.history.as_ref()) {
            let results = h.written.iter().flat_map(|all| all.iter().map(move |w| (w, all.len() > 1)));
            for ((written, several), chain) in results.zip(h.values.iter().flatten()) {
                let Some(chain) = chain else {
                    let users: Vec<&Chain> = h.roots.iter().filter(|r| h.store.holds(r.from, *written)).collect();
                    // Of several results of an op nobody need use all.
                    assert!(several || !users.is_empty(), "a value that nothing uses is no part of a region");
                    for root in users {
                        let Fate::Removed(steps) = root.fate(&h.store, *written) else { panic!("it is still there") };
                        let last = &root.steps[*steps.last().expect("a step")];
                        assert!(matches!(last.why, Why::Rule { .. }) && !h.store.holds(last.after, *written));
                        gone += 1;
                    }
                    continue;
                };
                assert_eq!(chain.from, *written);
                assert!(matches!(chain.fate(&h.store, *written), Fate::Kept(forms) if forms.contains(&chain.to)));
            }
            for held in &h.held {
                let root = h.roots.iter().find(|r| h.store.holds(r.to, held.term)).expect("something uses a table");
                let (from, steps) = root.made(&h.store, held.term);
                assert!(h.store.holds(root.from, from), "the chain of a table begins with what is written");
                assert!(steps.windows(2).all(|w| w[0].0 < w[1].0));
                assert!(
                    steps
                        .last()
                        .is_none_or(|(i, t)| { h.store.holds(root.steps[*i].whole_after(), *t) && *t == held.term })
                );
                assert_eq!(steps.is_empty(), from == held.term);
                tables += usize::from(steps.len() > 2);
            }
        }
    }
    assert!(gone > 5 && tables > 2, "{gone} gone, {tables} tables");
}
