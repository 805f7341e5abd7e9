//! Saturation, extraction and derived weights, region by region.

use super::rebuild::{Chosen, rebuild};
use super::{Derived, Group, Map, Options, PassError, Program, RegionRecord};
use crate::choose::{Solution, Wish, choose};
use crate::dag::append;
use crate::pack;
use crate::region::{cut, structure, terms};
use crate::rules::{Rule, rules};
use crate::saturate::saturate;
use crate::term::Head;
use spinec_ir::ir::{Attr, Attrs, Func, Loc, Module, OpId, Weight, WeightId};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{Env, TensorType, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Derived weights by definition, in the order they are met.
#[derive(Default)]
pub(super) struct Table {
    by_definition: BTreeMap<String, usize>,
    present: BTreeSet<String>,
    bytes: u64,
}

pub(super) fn run(mut program: Program, options: &Options) -> Result<Program, PassError> {
    if !program.derived.is_empty() {
        return Err(PassError::Internal("weights were derived already".to_owned()));
    }
    let env = largest(&program.module);
    let mut table = Table::default();
    let mut fuel = options.limit_rewrites;
    let mut known: BTreeMap<String, (usize, Rc<Solution>)> = BTreeMap::new();
    let funcs = std::mem::take(&mut program.module.funcs);
    let mut out = Vec::new();
    for func in &funcs {
        let cut = cut(func);
        let mut chosen = Vec::new();
        for index in 0..cut.regions.len() {
            let key = structure(func, &cut, index);
            let solution = match known.get(&key) {
                Some((record, solution)) => {
                    program.regions[*record].shared += 1;
                    solution.clone()
                }
                None => {
                    let (record, solution) =
                        region(&program.module, func, &cut, index, options, &env, &table, &mut fuel)?;
                    let solution = Rc::new(solution);
                    known.insert(key, (program.regions.len(), solution.clone()));
                    program.regions.push(record);
                    solution
                }
            };
            let weights = solution.derived.iter().map(|(node, d)| {
                let id = table.derive(&mut program, d)?;
                Ok((*node, id))
            });
            let weights = weights.collect::<Result<BTreeMap<usize, WeightId>, PassError>>()?;
            chosen.push(Chosen { solution, weights });
        }
        out.push(rebuild(&program.module, func, &cut, &chosen).map_err(PassError::Internal)?);
    }
    program.module.funcs = out;
    Ok(program)
}

/// The largest values of the symbols, by which sizes are costed.
fn largest(module: &Module) -> Env {
    module.symbols.iter().filter_map(|s| Some((s.name.clone(), s.bounds.max.or(s.bounds.min)?))).collect()
}

/// The rules that may fire, in order.
fn enabled(options: &Options) -> Vec<&'static Rule> {
    rules().filter(|r| options.classes.contains(&r.class) && !options.without.contains(r.name)).collect()
}

#[allow(clippy::too_many_arguments)]
fn region(
    module: &Module,
    func: &Func,
    cut: &crate::region::Cut,
    index: usize,
    options: &Options,
    env: &Env,
    table: &Table,
    fuel: &mut Option<usize>,
) -> Result<(RegionRecord, Solution), PassError> {
    let internal = |why: String| PassError::Internal(format!("function `{}`: {why}", func.name));
    let mut t = terms(module, func, cut, index).map_err(internal)?;
    let saturation = saturate(&mut t.graph, &enabled(options), options.limits, fuel).map_err(internal)?;
    pack::seed(&mut t.graph);
    let wish = Wish {
        device: &options.device,
        env,
        classes: &options.classes,
        budget: options.budget.map(|b| b.saturating_sub(table.bytes)),
        present: &table.present,
        written: &t.written(),
    };
    let solution = choose(&t.graph, &t.roots, &wish).map_err(internal)?;
    let ops = &cut.regions[index].ops;
    let path = ops.iter().map(|op| &func.op(*op).loc.path).find(|p| !p.is_empty());
    let solution = solution.located(&t);
    let record = RegionRecord {
        at: format!("{}:{}", func.name, path.map_or("", |p| p)),
        ops: ops.len(),
        saturation,
        groups: groups(module, func, ops, &solution),
        refused: solution.refused.clone(),
        time_ps: solution.time_ps,
        variants: solution.variants.clone(),
        shared: 0,
    };
    Ok((record, solution))
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

impl Table {
    /// The weight of a derivation, made if it is new.
    fn derive(&mut self, program: &mut Program, d: &crate::choose::Derivation) -> Result<WeightId, PassError> {
        let text = d.definition.text();
        if let Some(i) = self.by_definition.get(&text) {
            let known = &mut program.derived[*i];
            known.saving_ps = known.saving_ps.max(d.saving_ps);
            return Ok(known.weight);
        }
        let name = format!("derived.{}", program.derived.len());
        let mut func = Func::new(name.clone());
        let body = func.body;
        let mut value = d.definition.emit(&mut func, body).map_err(PassError::Internal)?;
        let ty =
            func.tensor(value).cloned().ok_or_else(|| PassError::Internal("a derived weight is a tensor".into()))?;
        if ty.dtype != d.storage {
            let attrs = Attrs::from([("dtype", Attr::DType(d.storage))]);
            value = append(&mut func, body, Opcode::Cast, vec![value], attrs, &[], Loc::default())
                .map_err(PassError::Internal)?[0];
        }
        func.outputs.push("out".to_owned());
        func.regions[body.index()].yields.push(value);
        program.load.funcs.push(func);
        let of = d
            .definition
            .weights()
            .into_iter()
            .filter_map(|w| program.module.weights.get(w))
            .map(|w| w.name.clone())
            .collect();
        let weight = add_weight(&mut program.module, name, TensorType { dtype: d.storage, ..ty });
        self.by_definition.insert(text.clone(), program.derived.len());
        self.present.insert(text);
        self.bytes += d.bytes;
        program.derived.push(Derived { weight, of, bytes: d.bytes, saving_ps: d.saving_ps });
        Ok(weight)
    }
}

/// Adds a weight that no checkpoint holds.
pub(super) fn add_weight(module: &mut Module, name: String, ty: TensorType) -> WeightId {
    module.weights.push(Weight {
        name,
        loops: Vec::new(),
        present: Vec::new(),
        ty,
        storage: None,
        source: None,
        span: None,
        bound_at: None,
    });
    WeightId(module.weights.len() as u32 - 1)
}

/// An op that reads a weight outside loops.
pub(super) fn read_weight(
    func: &mut Func,
    block: spinec_ir::ir::RegionId,
    id: WeightId,
    ty: &TensorType,
    loc: Loc,
) -> spinec_ir::ir::ValueId {
    let types: Vec<Type> = vec![ty.clone().into()];
    let op = func.add_op(
        block,
        Opcode::Weight,
        vec![],
        Attrs::from([("weight", Attr::Int(id.0.into()))]),
        vec![],
        types,
        loc,
    );
    func.op(op).results[0]
}
