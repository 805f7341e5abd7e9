//! Saturation, extraction and derived weights, region by region; the budget over all of them.

use super::budget::{Client, Clients};
use super::derive::Table;
use super::rebuild::{Chosen, rebuild};
use super::{Group, Map, Options, PassError, Program, RegionRecord};
use crate::choose::{Chooser, NARROW_STORAGE, Reason, Solution, Wish};
use crate::history::{Place, PlaceOp, history};
use crate::pack;
use crate::region::{Cut, Terms, cut, def, loop_of, recorded_terms, runs, structure, terms};
use crate::rules::{Class, Rule};
use crate::saturate::{Report, saturate};
use crate::term::Head;
use egg::Id;
use spinec_ir::ir::{Attr, Func, Module, Nest, OpId, ValueDef, ValueId};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// All regions of one structure.
struct Distinct {
    /// The first of them: the function and the region.
    func: usize,
    region: usize,
    terms: Terms,
    written: BTreeSet<Id>,
    /// Classes of rules that fired.
    classes: BTreeSet<Class>,
    saturation: Report,
    /// Function and region of all of them.
    regions: Vec<(usize, usize)>,
    /// How often all of them run when every function runs once.
    runs: u64,
}

pub(super) fn run(mut program: Program, options: &Options) -> Result<Program, PassError> {
    if !program.derived.is_empty() {
        return Err(PassError::Internal("weights were derived already".to_owned()));
    }
    let env = largest(&program.module);
    let cuts: Vec<Cut> = program.module.funcs.iter().map(cut).collect();
    let (distinct, places) = saturated(&program.module, &cuts, options, &env)?;
    let solutions = solutions(&program.module, &distinct, options, &env)?;
    let mut located = Vec::new();
    for (d, solution) in distinct.iter().zip(solutions) {
        let func = &program.module.funcs[d.func];
        let solution = solution.located(&d.terms);
        program.regions.push(record(&program.module, func, &cuts[d.func], d, &solution, options));
        located.push(Rc::new(solution));
    }
    let mut table = Table::default();
    let mut weights = Vec::new();
    for (d, solution) in distinct.iter().zip(&located) {
        let mut of = BTreeMap::new();
        for (node, derivation) in &solution.derived {
            of.insert(*node, table.derive(&mut program, derivation, d.runs)?);
        }
        weights.push(of);
    }
    for (i, d) in distinct.iter().enumerate().filter(|_| options.record) {
        let all = places_of(&program.module, &cuts, &places, i);
        let made = history(&d.terms, &located[i], &weights[i], all).map_err(PassError::Internal)?;
        program.regions[i].history = made;
    }
    let mut out = Vec::new();
    for (f, func) in program.module.funcs.iter().enumerate() {
        let chosen: Vec<Chosen> =
            places[f].iter().map(|d| Chosen { solution: located[*d].clone(), weights: weights[*d].clone() }).collect();
        out.push(rebuild(&program.module, func, &cuts[f], &chosen).map_err(PassError::Internal)?);
    }
    program.module.funcs = out;
    Ok(program)
}

/// The largest values of the symbols, by which sizes are costed.
fn largest(module: &Module) -> Env {
    module.symbols.iter().filter_map(|s| Some((s.name.clone(), s.bounds.max.or(s.bounds.min)?))).collect()
}

/// Classes of rules that may fire in a function.
fn classes(options: &Options, func: &Func) -> BTreeSet<Class> {
    let exact = options.exact.contains(&func.name);
    options.classes.iter().copied().filter(|c| !exact || *c == Class::Exact).collect()
}

/// The rules that may fire, in order.
fn enabled(options: &Options, classes: &BTreeSet<Class>) -> Vec<&'static Rule> {
    let all = options.rules.iter().copied();
    all.filter(|r| classes.contains(&r.class) && !options.without.contains(r.name)).collect()
}

/// Every distinct region saturated, and for every region of every function which of them it is.
fn saturated(
    module: &Module,
    cuts: &[Cut],
    options: &Options,
    env: &Env,
) -> Result<(Vec<Distinct>, Vec<Vec<usize>>), PassError> {
    let mut fuel = options.limit_rewrites;
    let mut known: BTreeMap<(BTreeSet<Class>, String), usize> = BTreeMap::new();
    let (mut distinct, mut places): (Vec<Distinct>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
    for (f, (func, cut)) in module.funcs.iter().zip(cuts).enumerate() {
        let mut of_func = Vec::new();
        let classes = classes(options, func);
        let rules = enabled(options, &classes);
        for (region, at) in cut.regions.iter().enumerate() {
            let runs = runs(func, at.block, env);
            let key = (classes.clone(), structure(func, cut, region));
            if let Some(d) = known.get(&key) {
                distinct[*d].regions.push((f, region));
                distinct[*d].runs = distinct[*d].runs.saturating_add(runs);
                of_func.push(*d);
                continue;
            }
            let internal = |why: String| PassError::Internal(format!("function `{}`: {why}", func.name));
            let translate = if options.record { recorded_terms } else { terms };
            let mut terms = translate(module, func, cut, region).map_err(internal)?;
            let saturation = saturate(&mut terms.graph, &rules, options.limits, &mut fuel).map_err(internal)?;
            let written = terms.written();
            pack::seed(&mut terms.graph);
            known.insert(key, distinct.len());
            of_func.push(distinct.len());
            let classes = classes.clone();
            distinct.push(Distinct {
                func: f,
                region,
                terms,
                written,
                saturation,
                regions: vec![(f, region)],
                runs,
                classes,
            });
        }
        places.push(of_func);
    }
    Ok((distinct, places))
}

/// A term for every distinct region, with derived weights within the budget.
fn solutions(module: &Module, distinct: &[Distinct], options: &Options, env: &Env) -> Result<Vec<Solution>, PassError> {
    let wishes: Vec<Wish> = distinct
        .iter()
        .map(|d| Wish {
            device: &options.device,
            env,
            narrow: d.classes.contains(&Class::RoundingChanging) && !options.without.contains(NARROW_STORAGE),
            weights: &module.weights,
            runs: d.runs,
            written: &d.written,
        })
        .collect();
    let mut all = Vec::new();
    for (d, wish) in distinct.iter().zip(&wishes) {
        all.push(Client::new(Chooser::new(&d.terms.graph, &d.terms.roots, wish), d.runs));
    }
    let clients = Clients::new(all);
    let free = clients.serve(&BTreeSet::new())?;
    let wanted = free.bytes();
    let served = match options.budget.filter(|b| wanted > *b) {
        Some(budget) => clients.within(free.clone(), budget)?,
        None => free.clone(),
    };
    let reason = Reason::Capacity { wanted, budget: options.budget.unwrap_or(u64::MAX) };
    let present = served.present();
    let solution = |(i, client): (usize, &Client)| {
        let made = client.chooser.solution(&served.chosen[i], &present, &free.chosen[i].derived, reason);
        made.map_err(PassError::Internal)
    };
    clients.all.iter().enumerate().map(solution).collect()
}

fn record(
    module: &Module,
    func: &Func,
    cut: &Cut,
    d: &Distinct,
    solution: &Solution,
    options: &Options,
) -> RegionRecord {
    let narrowed = solution.derived.values().filter(|d| d.narrowed()).count();
    let fired = options.rules.iter().filter(|r| d.saturation.fired.contains_key(r.name)).map(|r| r.class);
    let class = fired.chain((narrowed > 0).then_some(Class::RoundingChanging)).max().unwrap_or(Class::Exact);
    let ops = &cut.regions[d.region].ops;
    let path = ops.iter().map(|op| &func.op(*op).loc.path).find(|p| !p.is_empty());
    RegionRecord {
        at: format!("{}:{}", func.name, path.map_or("", |p| p)),
        ops: ops.len(),
        saturation: d.saturation.clone(),
        groups: groups(module, func, ops, solution),
        refused: solution.refused.clone(),
        time_ps: solution.time_ps,
        runs: d.runs,
        variants: solution.variants.clone(),
        shared: d.regions.len() - 1,
        regions: d.regions.clone(),
        class,
        narrowed,
        history: None,
    }
}

/// Where the regions of a structure are.
fn places_of(module: &Module, cuts: &[Cut], places: &[Vec<usize>], structure: usize) -> Vec<Place> {
    let mut out = Vec::new();
    for ((func, cut), of) in module.funcs.iter().zip(cuts).zip(places) {
        let nest = Nest::of(func);
        for (region, _) in cut.regions.iter().zip(of).filter(|(_, d)| **d == structure) {
            let op = |id: &OpId| PlaceOp {
                names: func.op(*id).results.iter().map(|v| func.value(*v).names.clone()).collect(),
                path: func.op(*id).loc.path.clone(),
                span: func.op(*id).loc.span,
            };
            let result = |v: &ValueId| {
                let id = def(func, *v)?;
                let at = region.ops.iter().position(|o| *o == id)?;
                Some((at, func.op(id).results.iter().position(|r| r == v)?))
            };
            let block = region.ops.first().and_then(|id| nest.region(*id));
            out.push(Place {
                func: func.name.clone(),
                ops: region.ops.iter().map(op).collect(),
                leaves: region.leaves.iter().map(|v| outside(func, *v)).collect(),
                roots: region.roots.iter().filter_map(result).collect(),
                taken: block.map(|b| nest.taken(b)).unwrap_or_default(),
            });
        }
    }
    out
}

/// A value from outside a region, for people.
fn outside(func: &Func, v: ValueId) -> String {
    let value = func.value(v);
    if let Some(name) = value.names.first() {
        return name.to_string();
    }
    match value.def {
        ValueDef::Result(op, _) => {
            let op = func.op(op);
            format!("<{} in {}>", op.code.name(), op.loc.path)
        }
        ValueDef::Param(block, i) if block == func.body => {
            func.inputs.get(i as usize).cloned().unwrap_or_else(|| format!("%{}", v.0))
        }
        ValueDef::Param(..) => match loop_of(func, v) {
            Some(id) => format!("<index of {}>", func.op(id).loc.path),
            None => format!("%{}", v.0),
        },
    }
}

/// The packed maps of a located solution, for people.
fn groups(module: &Module, func: &Func, ops: &[OpId], solution: &Solution) -> Vec<Group> {
    let path = |n: usize| solution.origin[n].map(|i| func.op(ops[i]).loc.path.to_string()).unwrap_or_default();
    let nodes = &solution.dag.nodes;
    let weight = |n: usize| match nodes[n].key.attrs().get("weight") {
        Some(Attr::Int(w)) if nodes[n].head == Some(Head::Op(Opcode::Weight)) => {
            usize::try_from(*w).ok().and_then(|w| module.weights.get(w)).map(|w| w.name.clone()).unwrap_or_default()
        }
        _ => nodes[n].types.first().map(ToString::to_string).unwrap_or_default(),
    };
    let group = |members: &Vec<usize>| Group {
        operand: members.first().map(|n| path(nodes[*n].children[0])).unwrap_or_default(),
        maps: members.iter().map(|n| Map { value: path(*n), weight: weight(nodes[*n].children[1]) }).collect(),
        reason: pack::REASON,
    };
    solution.groups.iter().map(group).collect()
}
