//! Cutting a function into regions for saturation.
//!
//! A region holds pure ops of one block (the body of a function, a loop or a case) between which no loop, case or state op
//! stands: ops of one block are in the same region if the longest chain of such ops in front of them has the same length.
//! Values from elsewhere are leaves. Constants, weights and ranges belong to every region that uses them.

use crate::history::TermId;
use crate::rules::axes::canonical;
use crate::term::{Graph, Key, WeightFacts};
use egg::Id;
use spinec_ir::ir::{Around, Attr, Func, Module, Nest, OpId, RegionId, ValueDef, ValueId, Weight};
use spinec_ir::ops::{Effect, Opcode};
use spinec_ir::ty::{Env, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A region of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The block its ops stand in.
    pub block: RegionId,
    /// Its ops in textual order, sources not included.
    pub ops: Vec<OpId>,
    /// Values from outside, in the order of their first use.
    pub leaves: Vec<ValueId>,
    /// Results that something outside uses, in textual order.
    pub roots: Vec<ValueId>,
}

/// All regions of a function, and which one an op belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Regions by block, then by how many loops and effects stand in front of them.
    pub regions: Vec<Region>,
    /// The region of every op; none for sources, control and effects.
    pub owner: Vec<Option<usize>>,
}

/// True for ops that are made again wherever they are used.
pub fn is_source(code: Opcode) -> bool {
    matches!(code, Opcode::Const | Opcode::DimValue | Opcode::Weight | Opcode::Iota)
}

/// True for ops that regions are cut at.
pub fn is_skeleton(code: Opcode) -> bool {
    code.def().effect != Effect::Pure || matches!(code, Opcode::Loop | Opcode::Cases | Opcode::Guarded)
}

/// The op that defines a value.
pub fn def(func: &Func, v: ValueId) -> Option<OpId> {
    match func.value(v).def {
        ValueDef::Result(op, _) => Some(op),
        ValueDef::Param(..) => None,
    }
}

/// The loop whose index a value is, if that may select weights.
pub fn loop_of(func: &Func, v: ValueId) -> Option<OpId> {
    let ValueDef::Param(block, 0) = func.value(v).def else { return None };
    let owner =
        blocks(func).into_iter().flat_map(|b| &func.region(b).ops).find(|op| func.op(**op).regions.contains(&block))?;
    let op = func.op(*owner);
    let serial = matches!(op.attrs.get("serial"), Some(Attr::Bool(true)));
    (op.code == Opcode::Loop && !serial).then_some(*owner)
}

/// The extent of the loop whose index a value is, if that may select weights.
fn index_extent(func: &Func, v: ValueId) -> Option<i64> {
    match func.op(loop_of(func, v)?).attrs.get("extent") {
        Some(Attr::Dim(extent)) => extent.as_const(),
        _ => None,
    }
}

/// How often a block runs in one run of the function, at the given values of symbols; what has no value counts as one, and a
/// block that no iteration reaches as if one did.
pub fn runs(func: &Func, block: RegionId, env: &Env) -> u64 {
    let count = |a: &Around| a.count(func)?.eval(env).and_then(|n| u64::try_from(n).ok());
    let around = Nest::of(func).around(block);
    around.iter().map(|a| count(a).unwrap_or(1)).fold(1, u64::saturating_mul).max(1)
}

/// Values that the regions of an op use and do not define, with the op's operands.
pub fn needs(func: &Func, op: OpId) -> Vec<ValueId> {
    let mut inner: Vec<RegionId> = func.op(op).regions.clone();
    let (mut used, mut made) = (func.op(op).operands.clone(), BTreeSet::new());
    while let Some(block) = inner.pop() {
        let block = func.region(block);
        made.extend(block.params.iter().copied());
        used.extend(&block.yields);
        for op in &block.ops {
            let op = func.op(*op);
            used.extend(&op.operands);
            made.extend(op.results.iter().copied());
            inner.extend(&op.regions);
        }
    }
    let mut seen = BTreeSet::new();
    used.retain(|v| !made.contains(v) && seen.insert(*v));
    used
}

/// Blocks of a function, outer ones first.
pub fn blocks(func: &Func) -> Vec<RegionId> {
    let mut out = vec![func.body];
    let mut next = 0;
    while let Some(block) = out.get(next).copied() {
        next += 1;
        out.extend(func.region(block).ops.iter().flat_map(|op| &func.op(*op).regions));
    }
    out
}

/// Cuts a verified function.
pub fn cut(func: &Func) -> Cut {
    let mut out = Cut { regions: Vec::new(), owner: vec![None; func.ops.len()] };
    for block in blocks(func) {
        let mut level: BTreeMap<OpId, usize> = BTreeMap::new();
        let mut by_level: BTreeMap<usize, Vec<OpId>> = BTreeMap::new();
        for op in &func.region(block).ops {
            let code = func.op(*op).code;
            let in_front = needs(func, *op)
                .into_iter()
                .filter_map(|v| def(func, v))
                .filter_map(|d| level.get(&d).map(|l| l + usize::from(is_skeleton(func.op(d).code))));
            let own = in_front.max().unwrap_or(0);
            level.insert(*op, own);
            if !is_skeleton(code) && !is_source(code) {
                by_level.entry(own).or_default().push(*op);
            }
        }
        for ops in by_level.into_values() {
            for op in &ops {
                out.owner[op.index()] = Some(out.regions.len());
            }
            out.regions.push(Region { block, ops, leaves: Vec::new(), roots: Vec::new() });
        }
    }
    borders(func, &mut out);
    out
}

/// Finds leaves and roots.
fn borders(func: &Func, cut: &mut Cut) {
    let mut used_outside: BTreeSet<ValueId> = BTreeSet::new();
    for block in blocks(func) {
        let block = func.region(block);
        used_outside.extend(&block.yields);
        for op in &block.ops {
            let own = cut.owner[op.index()];
            let operands = func.op(*op).operands.iter().copied();
            used_outside.extend(
                operands.filter(|v| def(func, *v).is_none_or(|d| cut.owner[d.index()] != own || own.is_none())),
            );
        }
    }
    for (i, region) in cut.regions.iter_mut().enumerate() {
        let mut leaves = Vec::new();
        for op in &region.ops {
            let mut stack: Vec<ValueId> = func.op(*op).operands.iter().rev().copied().collect();
            while let Some(v) = stack.pop() {
                match def(func, v) {
                    Some(d) if cut.owner[d.index()] == Some(i) => {}
                    Some(d) if is_source(func.op(d).code) => stack.extend(func.op(d).operands.iter().rev()),
                    _ if leaves.contains(&v) => {}
                    _ => leaves.push(v),
                }
            }
            region.roots.extend(func.op(*op).results.iter().filter(|r| used_outside.contains(r)));
        }
        region.leaves = leaves;
    }
}

/// A region as terms.
pub struct Terms {
    /// The graph.
    pub graph: Graph,
    /// The classes of the roots.
    pub roots: Vec<Id>,
    /// For every op of the region the class of the op (of the tuple, if it has several results).
    pub ops: Vec<Id>,
    /// For every op the classes of its results.
    pub results: Vec<Vec<Id>>,
    /// For every op the terms of its results, if the graph is recorded.
    pub as_written: Vec<Vec<TermId>>,
}

impl Terms {
    /// The classes of all values the region computed as it was given.
    pub fn written(&self) -> BTreeSet<Id> {
        self.ops.iter().chain(self.results.iter().flatten()).map(|id| self.graph.eg.find(*id)).collect()
    }
}

/// Attributes in the form terms have them.
fn attrs(func: &Func, op: OpId) -> spinec_ir::ir::Attrs {
    let mut attrs = func.op(op).attrs.clone();
    if let Some(Attr::Str(spec)) = attrs.get_mut("spec")
        && func.op(op).code == Opcode::Einsum
        && let Some(named) = canonical(spec)
    {
        *spec = named;
    }
    attrs
}

/// Translates a region of a verified module.
///
/// # Errors
/// The op whose operands do not fit: the module was not verified.
pub fn terms(module: &Module, func: &Func, cut: &Cut, index: usize) -> Result<Terms, String> {
    translate(module, func, cut, index, false)
}

/// [`terms`] with a graph that records how terms come about.
///
/// # Errors
/// As [`terms`].
pub fn recorded_terms(module: &Module, func: &Func, cut: &Cut, index: usize) -> Result<Terms, String> {
    translate(module, func, cut, index, true)
}

fn translate(module: &Module, func: &Func, cut: &Cut, index: usize, record: bool) -> Result<Terms, String> {
    let region = &cut.regions[index];
    let leaves: Vec<Type> = region.leaves.iter().map(|v| func.ty(*v).clone()).collect();
    let indices = region.leaves.iter().enumerate().filter_map(|(i, v)| Some((i as u32, index_extent(func, *v)?)));
    let weight = |w: &Weight| WeightFacts { ty: w.ty.clone(), loops: w.loops.iter().map(|(_, n)| *n).collect() };
    let mut graph = Graph::new(leaves, indices.collect(), module.weights.iter().map(weight).collect());
    if record {
        graph.record();
    }
    let mut ids: BTreeMap<ValueId, Id> = BTreeMap::new();
    for (i, v) in region.leaves.iter().enumerate() {
        ids.insert(*v, graph.leaf(i as u32));
    }
    let mut ops = Vec::new();
    for op in &region.ops {
        ops.push(add(&mut graph, func, *op, &mut ids)?);
    }
    let roots = region.roots.iter().map(|v| ids[v]).collect();
    let results = region.ops.iter().map(|op| func.op(*op).results.iter().map(|v| ids[v]).collect()).collect();
    let of_op = |op: &OpId| func.op(*op).results.iter().filter_map(|v| graph.concrete(ids[v])).collect();
    let as_written = region.ops.iter().map(of_op).collect();
    Ok(Terms { graph, roots, ops, results, as_written })
}

fn add(graph: &mut Graph, func: &Func, id: OpId, ids: &mut BTreeMap<ValueId, Id>) -> Result<Id, String> {
    let op = func.op(id);
    let mut children = Vec::new();
    for v in &op.operands {
        if !ids.contains_key(v)
            && let Some(d) = def(func, *v)
        {
            add(graph, func, d, ids)?;
        }
        children.push(*ids.get(v).ok_or_else(|| format!("`{}` uses a value that is not in scope", op.code.name()))?);
    }
    let class = graph
        .op(op.code, &children, attrs(func, id))
        .ok_or_else(|| format!("`{}` at {} does not take its operands", op.code.name(), op.loc.path))?;
    match op.results.as_slice() {
        [one] => {
            ids.insert(*one, class);
        }
        many => {
            for (i, v) in many.iter().enumerate() {
                ids.insert(*v, graph.proj(class, i as u32));
            }
        }
    }
    Ok(class)
}

/// The structure of a region as text: equal for regions that are the same computation on leaves of the same types.
pub fn structure(func: &Func, cut: &Cut, index: usize) -> String {
    let region = &cut.regions[index];
    let mut out = String::new();
    for v in &region.leaves {
        let _ = writeln!(out, "leaf {} {:?}", func.ty(*v), index_extent(func, *v));
    }
    for op in &region.ops {
        let operands: Vec<String> = func.op(*op).operands.iter().map(|v| reference(func, cut, index, *v)).collect();
        let op_ref = func.op(*op);
        let _ =
            writeln!(out, "{}({}) {{{}}}", op_ref.code.name(), operands.join(", "), Key::new(attrs(func, *op)).text());
    }
    let roots: Vec<String> = region.roots.iter().map(|v| reference(func, cut, index, *v)).collect();
    let _ = writeln!(out, "roots {}", roots.join(", "));
    out
}

fn reference(func: &Func, cut: &Cut, index: usize, v: ValueId) -> String {
    let region = &cut.regions[index];
    if let Some(i) = region.leaves.iter().position(|l| *l == v) {
        return format!("%{i}");
    }
    let ValueDef::Result(op, result) = func.value(v).def else { return "?".to_owned() };
    match region.ops.iter().position(|o| *o == op) {
        Some(i) => format!("#{i}.{result}"),
        None => {
            let operands: Vec<String> = func.op(op).operands.iter().map(|v| reference(func, cut, index, *v)).collect();
            format!("{}({}){{{}}}", func.op(op).code.name(), operands.join(", "), Key::new(attrs(func, op)).text())
        }
    }
}
