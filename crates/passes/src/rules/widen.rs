//! A widening moves to the operands: what was rounded to the narrower dtype no longer is.

use super::product::acc;
use super::{Class, Rule};
use crate::term::{Graph, Term};
use egg::Id;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::DType;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "widen-arithmetic",
        form: "cast(f(a, b)) -> f(cast(a), cast(b)) for + - * /",
        premises: "the cast is from f32 to f64; a and b are floats",
        class: Class::RoundingChanging,
        roots: &[Opcode::Cast],
        apply: arithmetic,
    },
    Rule {
        name: "widen-linear",
        form: "cast(linear(x, w)) -> linear(cast(x), w)",
        premises: "the cast is from f32 to f64; the sum runs in f64",
        class: Class::RoundingChanging,
        roots: &[Opcode::Cast],
        apply: linear,
    },
];

fn widening(g: &Graph, id: Id, node: &Term) -> bool {
    let dtype = |id: Id| g.ty(id).map(|t| t.dtype);
    dtype(id) == Some(DType::F64) && dtype(node.children[0]) == Some(DType::F32)
}

fn arithmetic(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    if !widening(g, id, node) {
        return out;
    }
    for code in [Opcode::Add, Opcode::Sub, Opcode::Mul, Opcode::Div] {
        for def in g.defs(node.children[0], code) {
            let float = |x: Id| g.ty(x).is_some_and(|t| t.dtype.is_float());
            if !def.children.iter().all(|c| float(*c)) {
                continue;
            }
            g.matched(id, &[(node.children[0], &def)]);
            let (a, b) = (g.cast(def.children[0], DType::F64), g.cast(def.children[1], DType::F64));
            if let (Some(a), Some(b)) = (a, b) {
                out.extend(g.binary(code, a, b));
            }
        }
    }
    out
}

fn linear(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    if !widening(g, id, node) {
        return out;
    }
    for def in g.defs(node.children[0], Opcode::Linear) {
        g.matched(id, &[(node.children[0], &def)]);
        if acc(&def).is_some()
            && let Some(x) = g.cast(def.children[0], DType::F64)
        {
            out.extend(g.linear(x, def.children[1], DType::F64));
        }
    }
    out
}
