//! Rules of single ops: what the registry row says, and the types its shape function gives.

use super::tree::RegionNode;
use super::types::{type_fault, unknown_symbol};
use super::{Cx, Site};
use crate::ir::{Attr, Op};
use crate::ops::{AttrKind, Opcode};
use crate::ty::{DType, Type};

pub(super) fn check(cx: &mut Cx, node: &RegionNode) {
    for (i, &v) in node.params.iter().enumerate() {
        if let Some(fault) = cx.ty(v).and_then(|ty| type_fault(ty, cx.symbols)) {
            cx.error(Site::Param(cx.id, node.id, i as u32), fault);
        }
    }
    for op in &node.ops {
        one(cx, Site::Op(cx.id, op.id), cx.func.op(op.id));
        for inner in op.regions.iter().flatten() {
            check(cx, inner);
        }
    }
}

fn one(cx: &mut Cx, site: Site, op: &Op) {
    let arity = arity(cx, site, op);
    let attrs = attrs(cx, site, op);
    let regions_fit = match op.code {
        Opcode::Loop | Opcode::Guarded => op.regions.len() == 1,
        Opcode::Cases => !op.regions.is_empty(),
        _ => op.regions.is_empty(),
    };
    if !regions_fit {
        cx.error(site, format!("`{}` cannot have {} regions", op.code.name(), op.regions.len()));
    }
    let mut sane = true;
    for &v in &op.results {
        if let Some(fault) = cx.ty(v).and_then(|ty| type_fault(ty, cx.symbols)) {
            cx.error(site, fault);
        }
    }
    let operands: Vec<&Type> = op.operands.iter().filter_map(|v| cx.ty(*v)).collect();
    sane &= operands.len() == op.operands.len() && operands.iter().all(|t| type_fault(t, cx.symbols).is_none());
    let declared = matches!(op.code, Opcode::Weight | Opcode::StateOpen | Opcode::Loop | Opcode::Cases);
    if declared || !arity || !attrs || !sane {
        return;
    }
    match op.code.infer(&operands, &op.attrs) {
        Ok(types) => results(cx, site, op, &types),
        Err(e) => cx.error(site, e.message),
    }
}

/// Compares result types with those that follow from the op.
pub(super) fn results(cx: &mut Cx, site: Site, op: &Op, types: &[Type]) {
    if op.results.len() != types.len() {
        let message = format!("`{}` has {} results here, not {}", op.code.name(), types.len(), op.results.len());
        cx.error(site, message);
    }
    cx.expect_types(site, "result", &op.results, types, Type::eq);
}

fn arity(cx: &mut Cx, site: Site, op: &Op) -> bool {
    let def = op.code.def();
    let required = def.operands.iter().filter(|o| !o.optional && !o.variadic).count();
    let open = def.operands.iter().any(|o| o.variadic);
    let n = op.operands.len();
    if n >= required && (open || n <= def.operands.len()) {
        return true;
    }
    let names: Vec<&str> = def.operands.iter().map(|o| o.name).collect();
    cx.error(site, format!("`{}` takes ({}), not {n} operands", def.name, names.join(", ")));
    false
}

fn attrs(cx: &mut Cx, site: Site, op: &Op) -> bool {
    let (def, before) = (op.code.def(), cx.errors.len());
    for attr in def.attrs {
        match op.attrs.get(attr.name) {
            None => cx.error(site, format!("`{}` needs the attribute `{}`", def.name, attr.name)),
            Some(value) if kind(value) != attr.kind => {
                let message =
                    format!("attribute `{}` must be of kind {:?}, not {:?}", attr.name, attr.kind, kind(value));
                cx.error(site, message);
            }
            Some(Attr::Dim(d)) => {
                if let Some(fault) = unknown_symbol(d, cx.symbols) {
                    cx.error(site, fault);
                }
            }
            Some(Attr::Dims(dims)) => {
                if let Some(fault) = dims.iter().find_map(|d| unknown_symbol(d, cx.symbols)) {
                    cx.error(site, fault);
                }
            }
            Some(_) => {}
        }
    }
    for name in op.attrs.keys().filter(|name| def.attrs.iter().all(|a| a.name != **name)) {
        cx.error(site, format!("`{}` has no attribute `{name}`", def.name));
    }
    if op.code == Opcode::Const
        && let (Some(value), Some(dtype)) = (op.float("value"), op.dtype("dtype"))
        && !holds(dtype, value)
    {
        cx.error(site, format!("{dtype} has no constant {value:?}"));
    }
    cx.errors.len() == before
}

/// True if `dtype` can hold a constant; floats round.
fn holds(dtype: DType, value: f64) -> bool {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => true,
        DType::F8E4M3 => false,
        DType::I32 => value == f64::from(value as i32),
        DType::U8 => value == f64::from(value as u8),
        DType::Bool => value == 0.0 || value == 1.0,
    }
}

fn kind(attr: &Attr) -> AttrKind {
    match attr {
        Attr::Int(_) => AttrKind::Int,
        Attr::Float(_) => AttrKind::Float,
        Attr::Bool(_) => AttrKind::Bool,
        Attr::Str(_) => AttrKind::Str,
        Attr::Dim(_) => AttrKind::Dim,
        Attr::Dims(_) => AttrKind::Dims,
        Attr::Ints(_) => AttrKind::Ints,
        Attr::DType(_) => AttrKind::DType,
        Attr::Keeps(_) => AttrKind::Keeps,
    }
}
