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
    Rule {
        name: "linear-scale-rounded",
        form: "linear(cast(x * s), w) -> cast(linear(x, w) * s), and the same for x / s",
        premises: "s has extent one along the last axis; x, the cast and the result are bf16: what is summed is x \
                   itself, and the result is rounded once more",
        class: Class::RoundingChanging,
        roots: &[Opcode::Linear],
        apply: scale_rounded,
    },
    Rule {
        name: "linear-shift",
        form: "linear(shift(x), w) -> shift(linear(x, w))",
        premises: "the shifted axis is not the last; rows that do not exist are zero",
        class: Class::Exact,
        roots: &[Opcode::Linear],
        apply: shift,
    },
];

/// The accumulate dtype of a product node.
pub(crate) fn acc(node: &Term) -> Option<DType> {
    match node.key.attrs().get("acc") {
        Some(Attr::DType(d)) => Some(*d),
        _ => None,
    }
}

fn unrounded(d: DType) -> bool {
    matches!(d, DType::F32 | DType::F64)
}

fn chain(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    for inner in g.defs(node.children[0], Opcode::Linear) {
        g.matched(id, &[(node.children[0], &inner)]);
        out.extend(chain_of(g, id, node, &inner));
    }
    out
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
                    g.matched(id, &[(node.children[0], &def)]);
                    out.extend(scale_by(g, id, node, code, def.children[x], def.children[s]));
                }
            }
        }
    }
    out
}

/// True if `s` scales whole rows of `x`, which make rows as wide as those of `whole`.
fn scales_rows(g: &Graph, whole: Id, x: Id, s: Id) -> bool {
    let (Some(whole), Some(x), Some(s)) = (g.ty(whole), g.ty(x), g.ty(s)) else { return false };
    s.dims.last().is_none_or(|d| *d == Dim::from(1)) && x.dims.last() == whole.dims.last() && !x.dims.is_empty()
}

fn scale_by(g: &mut Graph, id: Id, node: &Term, code: Opcode, x: Id, s: Id) -> Option<Id> {
    let whole = node.children[0];
    if !scales_rows(g, whole, x, s) || !unrounded(g.ty(x)?.dtype) || g.ty(id)?.dtype != g.ty(whole)?.dtype {
        return None;
    }
    let y = g.linear(x, node.children[1], acc(node)?)?;
    g.binary(code, y, s)
}

fn scale_rounded(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    for cast in g.defs(node.children[0], Opcode::Cast) {
        for code in [Opcode::Mul, Opcode::Div] {
            for def in g.defs(cast.children[0], code) {
                for (x, s) in [(0, 1), (1, 0)] {
                    if code == Opcode::Mul || s == 1 {
                        g.matched(id, &[(cast.children[0], &def), (node.children[0], &cast)]);
                        out.extend(scale_rounded_by(g, id, node, code, def.children[x], def.children[s]));
                    }
                }
            }
        }
    }
    out
}

fn scale_rounded_by(g: &mut Graph, id: Id, node: &Term, code: Opcode, x: Id, s: Id) -> Option<Id> {
    let whole = node.children[0];
    let bf16 = |v: &Id| g.ty(*v).is_some_and(|t| t.dtype == DType::BF16);
    if !scales_rows(g, whole, x, s) || ![x, whole, id].iter().all(bf16) {
        return None;
    }
    let y = g.linear(x, node.children[1], acc(node)?)?;
    let y = g.binary(code, y, s)?;
    g.cast(y, DType::BF16)
}

fn shift(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    for moved in g.defs(node.children[0], Opcode::Shift) {
        g.matched(id, &[(node.children[0], &moved)]);
        out.extend(shift_of(g, node, &moved));
    }
    out
}

fn shift_of(g: &mut Graph, node: &Term, shift: &Term) -> Option<Id> {
    let (x, rank) = (shift.children[0], g.ty(node.children[0])?.rank() as i64);
    let axis = shift.int("axis").map(|a| if a < 0 { a + rank } else { a })?;
    if axis == rank - 1 || shift.key.attrs().get("fill") != Some(&Attr::Float(0.0)) {
        return None;
    }
    let y = g.linear(x, node.children[1], acc(node)?)?;
    g.op(Opcode::Shift, &[y], shift.key.attrs().clone())
}
