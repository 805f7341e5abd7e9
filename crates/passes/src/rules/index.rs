//! What is done to rows taken from a table is done to the table: the table is weight-only, so this happens once.

use super::product::acc;
use super::{Class, Rule};
use crate::term::{Graph, Term};
use egg::Id;
use spinec_ir::ir::Attrs;
use spinec_ir::ops::Opcode;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "unary-over-take",
        form: "f(take(t, i)) -> take(f(t), i)",
        premises: "t is weight-only; f is elementwise with one operand",
        class: Class::Exact,
        roots: UNARY,
        apply: unary,
    },
    Rule {
        name: "binary-over-take",
        form: "f(take(t, i), g) -> take(f(t, g), i), and with the operands of f exchanged",
        premises: "t is weight-only and g weight-only or constant; f is elementwise with two operands; g has at most the axes of t behind the taken one",
        class: Class::Exact,
        roots: BINARY,
        apply: binary,
    },
    Rule {
        name: "linear-over-take",
        form: "linear(take(t, i), w) -> take(linear(t, w), i)",
        premises: "t and w are weight-only; the taken axis is not the last",
        class: Class::Exact,
        roots: &[Opcode::Linear],
        apply: linear,
    },
];

use Opcode::*;
const UNARY: &[Opcode] =
    &[Neg, Abs, Exp, Log, Sqrt, Rsqrt, Sin, Cos, Tanh, Erf, Sigmoid, Silu, Softplus, Relu, Floor, IsFinite, Not, Cast];
const BINARY: &[Opcode] = &[Add, Sub, Mul, Div, Pow, Minimum, Maximum];

/// Weight-only tables whose rows a class is, with the take and its axis from the front.
fn tables(g: &Graph, id: Id) -> Vec<(Id, Term, usize)> {
    g.defs(id, Take)
        .into_iter()
        .filter_map(|t| {
            let table = t.children[0];
            let rank = g.ty(table)?.rank() as i64;
            let axis = t.int("axis")?;
            let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
            g.facts(table).weight_only().then_some((table, t, axis))
        })
        .collect()
}

fn take(g: &mut Graph, table: Id, of: &Term) -> Option<Id> {
    g.op(Take, &[table, of.children[1]], of.key.attrs().clone())
}

fn unary(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    for (table, t, _) in tables(g, node.children[0]) {
        g.matched(id, &[(node.children[0], &t)]);
        let mapped = match node.code() {
            Some(Cast) => match node.key.attrs().get("dtype") {
                Some(spinec_ir::ir::Attr::DType(d)) => g.cast(table, *d),
                _ => None,
            },
            Some(code) => g.op(code, &[table], Attrs::new()),
            None => None,
        };
        out.extend(mapped.and_then(|m| take(g, m, &t)));
    }
    out
}

fn binary(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    let Some(code) = node.code() else { return out };
    for k in 0..2 {
        let other = node.children[1 - k];
        for (table, t, axis) in tables(g, node.children[k]) {
            let (Some(table_ty), Some(other_ty)) = (g.ty(table), g.ty(other)) else { continue };
            if !g.facts(other).fixed() || other_ty.rank() + axis + 1 > table_ty.rank() {
                continue;
            }
            // A factor that would widen a unit axis of the table changes its shape.
            let table_dims = table_ty.dims.clone();
            g.matched(id, &[(node.children[k], &t)]);
            let operands = if k == 0 { [table, other] } else { [other, table] };
            let mapped = g.op(code, &operands, Attrs::new());
            if let Some(m) = mapped.filter(|m| g.ty(*m).is_some_and(|t| t.dims == table_dims)) {
                out.extend(take(g, m, &t));
            }
        }
    }
    out
}

fn linear(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    let w = node.children[1];
    if !g.facts(w).weight_only() {
        return out;
    }
    for (table, t, axis) in tables(g, node.children[0]) {
        let rank = g.ty(table).map_or(0, |t| t.rank());
        if axis + 1 < rank
            && let Some(acc) = acc(node)
        {
            g.matched(id, &[(node.children[0], &t)]);
            out.extend(g.linear(table, w, acc).and_then(|m| take(g, m, &t)));
        }
    }
    out
}
