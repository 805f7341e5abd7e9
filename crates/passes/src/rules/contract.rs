//! Products of two tensors: factors, sums and matrix products leave or change sides.

use super::axes::Product;
use super::{Class, Rule};
use crate::term::{Graph, Term};
use egg::Id;
use spinec_ir::ir::Attrs;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::DType;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "contract-scale",
        form: "einsum(a, u * s) -> einsum(a, u) * s', and the same for u / s and for the other operand",
        premises: "s has extent one (or no axis) along every summed axis; s' is s with its axes in the order of the result",
        class: Class::Reassociating,
        roots: &[Opcode::Einsum],
        apply: scale,
    },
    Rule {
        name: "contract-diagonal",
        form: "einsum(a, u * g) -> einsum(a * g', u), and the same for the other operand",
        premises: "g is weight-only and has a summed axis; a has every axis of g; g' is g with its axes in the order of a",
        class: Class::Reassociating,
        roots: &[Opcode::Einsum],
        apply: diagonal,
    },
    Rule {
        name: "contract-sum",
        form: "einsum(a, u + v) -> einsum(a, u) + einsum(a, v), and the same for u - v and for the other operand",
        premises: "the operands differ",
        class: Class::Reassociating,
        roots: &[Opcode::Einsum],
        apply: sum,
    },
    Rule {
        name: "contract-square",
        form: "einsum(u + v, u + v) -> guarded(ok, q) { einsum(u + v, u + v) } with q = einsum(u, u) + 2 einsum(u, v) + einsum(v, v)",
        premises: "both operands have the same axes in the same order; the result is f64; ok is q finite and positive and at \
                   least 1e-8 of the sum of the terms' magnitudes",
        class: Class::RoundingChanging,
        roots: &[Opcode::Einsum],
        apply: square,
    },
    Rule {
        name: "contract-linear",
        form: "einsum(a, linear(m, w)) -> einsum(linear(a, transpose(w)), m), and the same for the other operand",
        premises: "w is weight-only; the output axis of linear is summed and is the last axis of both operands; linear's \
                   result is f32 or f64",
        class: Class::Reassociating,
        roots: &[Opcode::Einsum],
        apply: linear,
    },
];

fn scale(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    let Some(p) = Product::of(g, id, node) else { return out };
    for k in 0..2 {
        for code in [Opcode::Mul, Opcode::Div] {
            for def in g.defs(p.operands[k], code) {
                for (u, s) in [(0, 1), (1, 0)] {
                    if code == Opcode::Mul || s == 1 {
                        g.matched(id, &[(p.operands[k], &def)]);
                        out.extend(scale_by(g, &p, k, code, def.children[u], def.children[s]));
                    }
                }
            }
        }
    }
    out
}

fn scale_by(g: &mut Graph, p: &Product, k: usize, code: Opcode, u: Id, s: Id) -> Option<Id> {
    if !g.ty(u)?.dtype.is_float() {
        return None;
    }
    // Nothing with a summed axis aligns to the result.
    let s = p.align(g, k, s, &p.out)?;
    let e = p.with(g, k, u)?;
    g.binary(code, e, s)
}

fn diagonal(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    let Some(p) = Product::of(g, id, node) else { return out };
    for k in 0..2 {
        for def in g.defs(p.operands[k], Opcode::Mul) {
            for (u, s) in [(0, 1), (1, 0)] {
                g.matched(id, &[(p.operands[k], &def)]);
                out.extend(diagonal_by(g, &p, k, def.children[u], def.children[s]));
            }
        }
    }
    out
}

fn diagonal_by(g: &mut Graph, p: &Product, k: usize, u: Id, s: Id) -> Option<Id> {
    let other = 1 - k;
    let axes = p.real_axes(g, k, s)?;
    if !g.facts(s).weight_only() || !g.ty(u)?.dtype.is_float() || !axes.iter().any(|l| p.summed(*l)) {
        return None;
    }
    if axes.iter().any(|l| !p.labels[other].contains(l)) {
        return None;
    }
    let s = p.align(g, k, s, &p.labels[other])?;
    let mut p = p.clone();
    p.operands[other] = g.binary(Opcode::Mul, p.operands[other], s)?;
    p.operands[k] = u;
    p.build(g)
}

fn sum(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    let Some(p) = Product::of(g, id, node) else { return out };
    if g.eg.find(p.operands[0]) == g.eg.find(p.operands[1]) {
        return out;
    }
    for k in 0..2 {
        for code in [Opcode::Add, Opcode::Sub] {
            for def in g.defs(p.operands[k], code) {
                g.matched(id, &[(p.operands[k], &def)]);
                let (Some(u), Some(v)) = (p.with(g, k, def.children[0]), p.with(g, k, def.children[1])) else {
                    continue;
                };
                out.extend(g.binary(code, u, v));
            }
        }
    }
    out
}

fn square(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    let Some(p) = Product::of(g, id, node) else { return out };
    if g.eg.find(p.operands[0]) != g.eg.find(p.operands[1]) || p.labels[0] != p.labels[1] || p.dtype != DType::F64 {
        return out;
    }
    for def in g.defs(p.operands[0], Opcode::Add) {
        g.matched(id, &[(p.operands[0], &def)]);
        out.extend(square_of(g, node, &p, def.children[0], def.children[1]));
    }
    out
}

/// Below this share of the terms' magnitudes their sum has lost more than f32 resolves: the relative error of the sum is a few
/// 1e-16 over the share.
const LEAST_SHARE: f64 = 1e-8;

fn square_of(g: &mut Graph, node: &Term, p: &Product, u: Id, v: Id) -> Option<Id> {
    let mut of = |a: Id, b: Id| {
        let mut p = p.clone();
        p.operands = [a, b];
        p.build(g)
    };
    let (uu, uv, vv) = (of(u, u)?, of(u, v)?, of(v, v)?);
    let two = g.scalar(2.0, p.dtype)?;
    let uv = g.binary(Opcode::Mul, uv, two)?;
    let front = g.binary(Opcode::Add, uu, uv)?;
    let sum = g.binary(Opcode::Add, front, vv)?;
    // The squares are not negative.
    let cross = g.op(Opcode::Abs, &[uv], Attrs::new())?;
    let front = g.binary(Opcode::Add, uu, cross)?;
    let magnitude = g.binary(Opcode::Add, front, vv)?;
    let (zero, share) = (g.scalar(0.0, p.dtype)?, g.scalar(LEAST_SHARE, p.dtype)?);
    let least = g.binary(Opcode::Mul, magnitude, share)?;
    let finite = g.op(Opcode::IsFinite, &[sum], Attrs::new())?;
    let positive = g.binary(Opcode::Gt, sum, zero)?;
    let enough = g.binary(Opcode::Ge, sum, least)?;
    let ok = g.binary(Opcode::And, finite, positive)?;
    let ok = g.binary(Opcode::And, ok, enough)?;
    g.guard(ok, sum, node)
}

fn linear(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    let Some(p) = Product::of(g, id, node) else { return out };
    for k in 0..2 {
        for def in g.defs(p.operands[k], Opcode::Linear) {
            g.matched(id, &[(p.operands[k], &def)]);
            out.extend(linear_by(g, &p, k, &def));
        }
    }
    out
}

fn linear_by(g: &mut Graph, p: &Product, k: usize, def: &Term) -> Option<Id> {
    let other = 1 - k;
    let (m, w) = (def.children[0], def.children[1]);
    let axis = *p.labels[k].last()?;
    let (result, w_ty, m_ty) = (g.ty(p.operands[k])?.dtype, g.ty(w)?.clone(), g.ty(m)?.clone());
    let rounded = !matches!(result, DType::F32 | DType::F64);
    if rounded
        || !g.facts(w).weight_only()
        || !w_ty.dtype.is_float()
        || !p.summed(axis)
        || p.labels[other].last() != Some(&axis)
    {
        return None;
    }
    let turned = g.transpose(w, &[1, 0])?;
    let wide = g.cast(p.operands[other], p.dtype)?;
    let mapped = g.linear(wide, turned, p.acc)?;
    let fresh = p.fresh();
    let mut q = p.clone();
    q.extents.remove(&axis);
    q.extents.insert(fresh, m_ty.dims.last()?.clone());
    for labels in &mut q.labels {
        *labels.last_mut()? = fresh;
    }
    q.operands[k] = m;
    q.operands[other] = mapped;
    q.build(g)
}
