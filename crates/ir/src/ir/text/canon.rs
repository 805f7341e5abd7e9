//! The canonical form: ids in textual order, nothing unreachable.

use crate::ir::verify::tree::{OpNode, RegionNode, Tree};
use crate::ir::{Func, FuncId, Module, Op, OpId, Region, RegionId, Value, ValueDef, ValueId};

/// The same module with values, ops and regions of every function renumbered in the order the text shows them, and
/// entries that nothing reaches dropped. The tables are untouched. Idempotent. Of a malformed module only what the text
/// can show survives; a use of an undefined value becomes a use of a value that does not exist.
pub fn canonical(module: &Module) -> Module {
    let Module { name, numerics, symbols, weights, states, funcs } = module;
    Module {
        name: name.clone(),
        numerics: *numerics,
        symbols: symbols.clone(),
        weights: weights.clone(),
        states: states.clone(),
        funcs: funcs.iter().enumerate().map(|(i, f)| func(FuncId(i as u32), f)).collect(),
    }
}

/// The same module without its spans, which the text form does not have.
pub fn without_spans(module: &Module) -> Module {
    let mut out = module.clone();
    out.symbols.iter_mut().for_each(|s| s.span = None);
    out.states.iter_mut().for_each(|s| s.span = None);
    for w in &mut out.weights {
        w.span = None;
        w.bound_at = None;
    }
    out.funcs.iter_mut().flat_map(|f| &mut f.ops).for_each(|op| op.loc.span = None);
    out
}

fn func(id: FuncId, old: &Func) -> Func {
    let tree = Tree::new(id, old);
    let mut new = Func {
        name: old.name.clone(),
        inputs: old.inputs.clone(),
        outputs: old.outputs.clone(),
        body: RegionId(0),
        ops: Vec::new(),
        values: Vec::new(),
        regions: Vec::new(),
    };
    match &tree.body {
        Some(body) => {
            region(&tree, old, body, &mut new);
        }
        None => new.regions.push(Region::default()),
    }
    new
}

fn used(tree: &Tree, values: &[ValueId]) -> Vec<ValueId> {
    values.iter().map(|v| ValueId(tree.number(*v).unwrap_or(u32::MAX))).collect()
}

/// Copies values at their definition. The tree numbers a value at its first definition, so the next id is its number.
fn defined(tree: &Tree, old: &Func, values: &[ValueId], new: &mut Func, def: impl Fn(u32) -> ValueDef) -> Vec<ValueId> {
    let mut out = Vec::new();
    for &v in values {
        let Some(Value { ty, def: _, names }) = old.values.get(v.index()) else { continue };
        if tree.number(v) == Some(new.values.len() as u32) {
            new.values.push(Value { ty: ty.clone(), def: def(out.len() as u32), names: names.clone() });
        }
        out.extend(tree.number(v).map(ValueId));
    }
    out
}

fn region(tree: &Tree, old: &Func, node: &RegionNode, new: &mut Func) -> RegionId {
    let id = RegionId(new.regions.len() as u32);
    new.regions.push(Region::default());
    let params = defined(tree, old, &node.params, new, |i| ValueDef::Param(id, i));
    let ops = node.ops.iter().map(|n| op(tree, old, n, new)).collect();
    let yields = used(tree, &old.region(node.id).yields);
    new.regions[id.index()] = Region { params, ops, yields };
    id
}

fn op(tree: &Tree, old: &Func, node: &OpNode, new: &mut Func) -> OpId {
    let id = OpId(new.ops.len() as u32);
    let Op { code, attrs, operands, results, regions: _, loc } = old.op(node.id);
    new.ops.push(Op {
        code: *code,
        attrs: attrs.clone(),
        operands: used(tree, operands),
        results: Vec::new(),
        regions: Vec::new(),
        loc: loc.clone(),
    });
    new.ops[id.index()].results = defined(tree, old, results, new, |i| ValueDef::Result(id, i));
    let regions = node.regions.iter().flatten().map(|n| region(tree, old, n, new)).collect();
    new.ops[id.index()].regions = regions;
    id
}
