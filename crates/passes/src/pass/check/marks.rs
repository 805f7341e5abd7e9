//! Marks: names by which the values of a program are known again after a pass, whatever became of the spec's names.

use super::super::Program;
use spinec_ir::ir::{Attr, Attrs, Func, Loc, OpId, RegionId, ValueDef, ValueId, Weight};
use spinec_ir::ops::Opcode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What no name of a spec has in it.
const MARK: char = '%';

/// Whether a name is a mark.
pub(crate) fn is_mark(name: &str) -> bool {
    name.contains(MARK)
}

/// A full path as observers are told it, without its mark, and the number of the mark.
pub(super) fn split(path: &str) -> (&str, Option<usize>) {
    match path.rsplit_once(MARK) {
        Some((name, number)) => (name, number.parse().ok()),
        None => (path, None),
    }
}

/// The tensor values of a function, those that only read a weight aside.
fn marked(func: &Func) -> impl Iterator<Item = ValueId> {
    (0..func.values.len() as u32).map(ValueId).filter(|v| {
        let read = match func.value(*v).def {
            ValueDef::Result(op, _) => func.op(op).code == Opcode::Weight,
            ValueDef::Param(..) => false,
        };
        func.tensor(*v).is_some() && !read
    })
}

/// Marks every tensor value with its number. Marks begin with the path of the value, so that loops tell their indices.
pub(super) fn mark(program: &mut Program) {
    for func in &mut program.module.funcs {
        for v in marked(func).collect::<Vec<_>>() {
            let mark = format!("{}{MARK}{}", path(func, v), v.0);
            func.values[v.index()].names.push(Arc::from(mark));
        }
    }
}

/// Takes all marks off.
pub(super) fn strip(program: &mut Program) {
    for value in program.module.funcs.iter_mut().flat_map(|f| &mut f.values) {
        value.names.retain(|n| !is_mark(n));
    }
}

/// A name for people: the value's own, or that of what it is a part of.
fn path(func: &Func, v: ValueId) -> String {
    let value = func.value(v);
    match (value.names.iter().find(|n| !is_mark(n)), value.def) {
        (Some(name), _) => name.to_string(),
        (None, ValueDef::Result(op, _)) => func.op(op).loc.path.to_string(),
        (None, ValueDef::Param(block, i)) if block == func.body => {
            func.inputs.get(i as usize).cloned().unwrap_or_default()
        }
        (None, ValueDef::Param(block, _)) => {
            func.ops.iter().find(|op| op.regions.contains(&block)).map(|op| op.loc.path.to_string()).unwrap_or_default()
        }
    }
}

/// A function in which everything that uses a marked value uses in its place a weight, read right behind the value; the
/// weights have the numbers from `first` on. With it the weights and the marks of the value each stands for.
pub(super) fn cut_open(func: &Func, first: usize) -> (Func, Vec<Weight>, Vec<Vec<usize>>) {
    let mut out = func.clone();
    let mut weights = Weights { first, made: Vec::new(), marks: Vec::new() };
    let mut map: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    block(&mut out, func.body, &mut weights, &mut map);
    (out, weights.made, weights.marks)
}

struct Weights {
    first: usize,
    made: Vec<Weight>,
    marks: Vec<Vec<usize>>,
}

fn block(func: &mut Func, id: RegionId, weights: &mut Weights, map: &mut BTreeMap<ValueId, ValueId>) {
    let old = std::mem::take(&mut func.regions[id.index()].ops);
    for v in func.region(id).params.clone() {
        read(func, id, v, weights, map);
    }
    for op in old {
        let with = |v: &mut ValueId, map: &BTreeMap<ValueId, ValueId>| *v = map.get(v).copied().unwrap_or(*v);
        func.ops[op.index()].operands.iter_mut().for_each(|v| with(v, map));
        for inner in func.op(op).regions.clone() {
            block(func, inner, weights, map);
        }
        func.regions[id.index()].ops.push(op);
        for v in func.op(op).results.clone() {
            read(func, id, v, weights, map);
        }
    }
    for v in &mut func.regions[id.index()].yields {
        *v = map.get(v).copied().unwrap_or(*v);
    }
}

/// Reads the weight that stands for a value, if it is marked.
fn read(func: &mut Func, id: RegionId, v: ValueId, weights: &mut Weights, map: &mut BTreeMap<ValueId, ValueId>) {
    let marks: Vec<usize> = func.value(v).names.iter().filter_map(|n| split(n).1).collect();
    let Some(ty) = func.tensor(v).cloned().filter(|_| !marks.is_empty()) else { return };
    let number = weights.first + weights.made.len();
    let attrs = Attrs::from([("weight", Attr::Int(number as i64))]);
    let op: OpId = func.add_op(id, Opcode::Weight, vec![], attrs, vec![], vec![ty.clone().into()], Loc::default());
    map.insert(v, func.op(op).results[0]);
    let name = func.value(v).names.iter().find(|n| is_mark(n)).map(ToString::to_string).unwrap_or_default();
    weights.made.push(Weight {
        name,
        loops: vec![],
        present: vec![],
        ty,
        storage: None,
        source: None,
        span: None,
        bound_at: None,
    });
    weights.marks.push(marks);
}
