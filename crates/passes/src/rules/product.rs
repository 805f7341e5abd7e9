//! Products with weights.

use super::{Class, Rule};
use crate::term::{Graph, Term};
use egg::Id;
use spinec_ir::ir::Attr;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Dim};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "linear-chain",
        form: "linear(linear(x, a), b) -> linear(x, linear(b, transpose(a)))",
        premises: "a and b are weight-only; the inner result is f32 or f64, so nothing is rounded between; b is widened first",
        class: Class::Reassociating,
        roots: &[Opcode::Linear],
        apply: chain,
    },
    Rule {
        name: "linear-scale",
        form: "linear(x * s, w) -> linear(x, w) * s, and the same for x / s",
        premises: "s has extent one along the last axis; x is f32 or f64, so nothing is rounded between",
        class: Class::Reassociating,
        roots: &[Opcode::Linear],
        apply: scale,
    },
];

/// The accumulate dtype of a product node.
pub(super) fn acc(node: &Term) -> Option<DType> {
    match node.key.attrs().get("acc") {
        Some(Attr::DType(d)) => Some(*d),
        _ => None,
    }
}

fn unrounded(d: DType) -> bool {
    matches!(d, DType::F32 | DType::F64)
}

fn chain(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    g.defs(node.children[0], Opcode::Linear).iter().filter_map(|inner| chain_of(g, id, node, inner)).collect()
}

fn chain_of(g: &mut Graph, id: Id, node: &Term, inner: &Term) -> Option<Id> {
    let (x, a, b) = (inner.children[0], inner.children[1], node.children[1]);
    let (between, result) = (g.ty(node.children[0])?.dtype, g.ty(id)?.dtype);
    let float = |g: &Graph, w: Id| g.facts(w).weight_only() && g.ty(w).is_some_and(|t| t.dtype.is_float());
    if !unrounded(between) || !float(g, a) || !float(g, b) {
        return None;
    }
    let turned = g.transpose(a, &[1, 0])?;
    let wide = g.cast(b, between)?;
    let merged = g.linear(wide, turned, acc(node)?)?;
    let out = g.linear(x, merged, acc(node)?)?;
    (g.ty(out)?.dtype == result).then_some(out)
}

fn scale(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    for code in [Opcode::Mul, Opcode::Div] {
        for def in g.defs(node.children[0], code) {
            for (x, s) in [(0, 1), (1, 0)] {
                if code == Opcode::Mul || s == 1 {
                    out.extend(scale_by(g, id, node, code, def.children[x], def.children[s]));
                }
            }
        }
    }
    out
}

fn scale_by(g: &mut Graph, id: Id, node: &Term, code: Opcode, x: Id, s: Id) -> Option<Id> {
    let whole = g.ty(node.children[0])?.clone();
    let (x_ty, s_ty) = (g.ty(x)?.clone(), g.ty(s)?.clone());
    let unit = s_ty.dims.last().is_none_or(|d| *d == Dim::from(1));
    let full = x_ty.dims.last() == whole.dims.last();
    if !unit || !full || !unrounded(x_ty.dtype) || x_ty.dims.is_empty() || g.ty(id)?.dtype != whole.dtype {
        return None;
    }
    let y = g.linear(x, node.children[1], acc(node)?)?;
    g.binary(code, y, s)
}
