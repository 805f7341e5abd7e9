//! Derived tables that are always indexed together become one: a row then holds what one index asks for.

use super::derive::read_weight;
use super::{Derived, Options, PassError, Program};
use crate::dag::append;
use crate::region::blocks;
use spinec_ir::ir::{Attr, Attrs, Func, Loc, OpId, RegionId, ValueId, WeightId};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Dim};
use std::collections::{BTreeMap, BTreeSet};

/// One use of a table: the block, the index and which rows are taken along.
type Place = (usize, RegionId, ValueId);

pub(super) fn run(mut program: Program, _options: &Options) -> Result<Program, PassError> {
    let first = program.module.weights.len() - program.derived.len();
    let places = places(&program, first);
    // Tables with the same uses, in the order of the first of them.
    let mut groups: Vec<Vec<WeightId>> = Vec::new();
    let mut by_use: BTreeMap<(BTreeSet<Place>, DType, Dim), usize> = BTreeMap::new();
    for d in &program.derived {
        let ty = &program.module.weight(d.weight).ty;
        let key = match places.get(&d.weight).cloned().flatten() {
            Some(at) if ty.rank() == 2 && !ty.dist && program.module.weight(d.weight).loops.is_empty() => {
                Some((at, ty.dtype, ty.dims[0].clone()))
            }
            _ => None,
        };
        match key.as_ref().and_then(|k| by_use.get(k)) {
            Some(g) => groups[*g].push(d.weight),
            None => {
                by_use.extend(key.map(|k| (k, groups.len())));
                groups.push(vec![d.weight]);
            }
        }
    }
    if groups.iter().all(|g| g.len() == 1) {
        return Ok(program);
    }
    join(&mut program, first, &groups)?;
    Ok(program)
}

/// Where every derived weight is taken from along axis 0; `None` if it is also used otherwise.
fn places(program: &Program, first: usize) -> BTreeMap<WeightId, Option<BTreeSet<Place>>> {
    let mut out: BTreeMap<WeightId, Option<BTreeSet<Place>>> = BTreeMap::new();
    for (f, func) in program.module.funcs.iter().enumerate() {
        for block in blocks(func) {
            for id in &func.region(block).ops {
                let op = func.op(*id);
                for (i, v) in op.operands.iter().enumerate() {
                    let Some(w) = weight_of(func, *v).filter(|w| w.index() >= first) else { continue };
                    let entry = out.entry(w).or_insert_with(|| Some(BTreeSet::new()));
                    if op.code == Opcode::Take && i == 0 && op.int("axis") == Some(0) {
                        if let Some(at) = entry {
                            at.insert((f, block, op.operands[1]));
                        }
                    } else {
                        *entry = None;
                    }
                }
            }
            for w in func.region(block).yields.iter().filter_map(|v| weight_of(func, *v)) {
                out.insert(w, None);
            }
        }
    }
    out
}

/// The weight a value reads, if it does nothing else.
fn weight_of(func: &Func, v: ValueId) -> Option<WeightId> {
    let op = func.op(crate::region::def(func, v)?);
    match (op.code, op.int("weight")) {
        (Opcode::Weight, Some(w)) => u32::try_from(w).ok().map(WeightId),
        _ => None,
    }
}

/// Where the columns of a table are after joining.
#[derive(Clone)]
struct Part {
    weight: WeightId,
    start: Dim,
    len: Dim,
}

fn join(program: &mut Program, first: usize, groups: &[Vec<WeightId>]) -> Result<(), PassError> {
    let internal = |why: &str| PassError::Internal(why.to_owned());
    let old_weights = program.module.weights.split_off(first);
    let old_derived = std::mem::take(&mut program.derived);
    let old_load = std::mem::take(&mut program.load.funcs);
    let mut parts: BTreeMap<WeightId, Part> = BTreeMap::new();
    for (g, members) in groups.iter().enumerate() {
        let name = format!("derived.{g}");
        let place = |w: &WeightId| w.index() - first;
        let mut joint = old_weights[place(&members[0])].clone();
        let weight = WeightId((first + g) as u32);
        if members.len() > 1 {
            let mut start = Dim::from(0);
            for m in members {
                let len = old_weights[place(m)].ty.dims[1].clone();
                let end = start.add(&len).ok_or_else(|| internal("the columns of a table overflow"))?;
                parts.insert(*m, Part { weight, start, len });
                start = end;
            }
            joint.ty.dims[1] = start;
        } else {
            parts.insert(members[0], Part { weight, start: Dim::from(0), len: Dim::from(0) });
        }
        joint.name = name.clone();
        program.module.weights.push(joint);
        program.load.funcs.push(match members.as_slice() {
            [one] => Func { name, ..old_load[place(one)].clone() },
            _ => joined(name, &members.iter().map(|m| &old_load[place(m)]).collect::<Vec<_>>())?,
        });
        let of: BTreeSet<String> = members.iter().flat_map(|m| old_derived[place(m)].of.iter().cloned()).collect();
        program.derived.push(Derived {
            weight,
            of: of.into_iter().collect(),
            bytes: members.iter().map(|m| old_derived[place(m)].bytes).sum(),
            saving_ps: members.iter().map(|m| old_derived[place(m)].saving_ps).fold(0, u64::saturating_add),
        });
    }
    let held = program.regions.iter_mut().filter_map(|r| r.history.as_mut()).flat_map(|h| &mut h.held);
    for h in held {
        if let Some(part) = parts.get(&h.weight) {
            h.weight = part.weight;
            h.column = part.start.as_const().filter(|_| part.len.as_const() != Some(0));
        }
    }
    let grouped: BTreeSet<WeightId> = groups.iter().filter(|g| g.len() > 1).flatten().copied().collect();
    for f in 0..program.module.funcs.len() {
        redirect(program, f, &parts, &grouped)?;
    }
    Ok(())
}

/// The functions one after the other, their outputs joined along axis 1.
fn joined(name: String, funcs: &[&Func]) -> Result<Func, PassError> {
    let mut out = Func::new(name);
    out.outputs.push("out".to_owned());
    let body = out.body;
    let mut columns = Vec::new();
    for func in funcs {
        let mut map: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        let block = func.region(func.body);
        for id in &block.ops {
            let op = func.op(*id).clone();
            let operands = op.operands.iter().map(|v| map[v]).collect();
            let types = op.results.iter().map(|v| func.ty(*v).clone()).collect();
            let made = out.add_op(body, op.code, operands, op.attrs, vec![], types, op.loc);
            map.extend(op.results.iter().copied().zip(out.op(made).results.clone()));
        }
        columns.extend(block.yields.iter().map(|v| map[v]));
    }
    let attrs = Attrs::from([("axis", Attr::Int(1))]);
    let value = append(&mut out, body, Opcode::Concat, columns, attrs, &[], Loc::default());
    let value = value.map_err(PassError::Internal)?[0];
    out.regions[body.index()].yields.push(value);
    Ok(out)
}

/// Lets a function read the joined tables.
fn redirect(
    program: &mut Program,
    f: usize,
    parts: &BTreeMap<WeightId, Part>,
    grouped: &BTreeSet<WeightId>,
) -> Result<(), PassError> {
    let module = &mut program.module;
    let func = &mut module.funcs[f];
    let mut fresh: BTreeSet<OpId> = BTreeSet::new();
    for block in blocks(func) {
        let ops = std::mem::take(&mut func.regions[block.index()].ops);
        for id in ops {
            let op = func.op(id).clone();
            let table = op.operands.first().and_then(|v| weight_of(func, *v)).filter(|_| op.code == Opcode::Take);
            match table.filter(|w| grouped.contains(w)).and_then(|w| parts.get(&w)) {
                Some(part) => fresh.extend(slice_of(func, block, id, part, &module.weights[part.weight.index()].ty)?),
                None => func.regions[block.index()].ops.push(id),
            }
        }
    }
    // Reads of joined tables are left without a use; the others get their new number.
    let used = super::rebuild::used(func);
    for block in blocks(func) {
        let keep = |func: &Func, id: &OpId| {
            let op = func.op(*id);
            let gone = op.code == Opcode::Weight
                && op.results.iter().all(|r| !used.contains(r))
                && weight_of(func, op.results[0]).is_some_and(|w| grouped.contains(&w));
            !gone
        };
        let ops: Vec<OpId> = func.region(block).ops.iter().filter(|id| keep(func, id)).copied().collect();
        func.regions[block.index()].ops = ops.clone();
        for id in ops {
            let op = &mut func.ops[id.index()];
            if op.code == Opcode::Weight
                && !fresh.contains(&id)
                && let Some(Attr::Int(w)) = op.attrs.get_mut("weight")
                && let Some(part) = u32::try_from(*w).ok().and_then(|w| parts.get(&WeightId(w)))
            {
                *w = part.weight.0.into();
            }
        }
    }
    Ok(())
}

/// Replaces a take of a table by a slice of the same take of the joined table; gives the op that reads the joined table.
fn slice_of(
    func: &mut Func,
    block: RegionId,
    id: OpId,
    part: &Part,
    ty: &spinec_ir::ty::TensorType,
) -> Result<Option<OpId>, PassError> {
    let op = func.op(id).clone();
    let table = read_weight(func, block, part.weight, vec![], ty, op.loc.clone());
    let rows = append(func, block, Opcode::Take, vec![table, op.operands[1]], op.attrs, &[], op.loc.clone());
    let rows = rows.map_err(PassError::Internal)?[0];
    let axis = func.tensor(rows).map_or(0, |t| t.rank() as i64 - 1);
    let attrs = Attrs::from([
        ("axis", Attr::Int(axis)),
        ("start", Attr::Dim(part.start.clone())),
        ("len", Attr::Dim(part.len.clone())),
    ]);
    // The op keeps its id and result and becomes the slice.
    let slice = &mut func.ops[id.index()];
    slice.code = Opcode::Slice;
    slice.operands = vec![rows];
    slice.attrs = attrs;
    func.regions[block.index()].ops.push(id);
    Ok(crate::region::def(func, table))
}
