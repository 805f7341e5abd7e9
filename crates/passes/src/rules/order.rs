//! What does not change which entry is the largest.

use super::{Class, Rule};
use crate::term::{Graph, Sign, Term, widens};
use egg::Id;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::Dim;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "argmax-scale",
        form: "argmax(x * s) -> argmax(x), and the same for x / s",
        premises: "every element of s is positive; s has extent one along the compared axis, x its full extent",
        class: Class::RoundingChanging,
        roots: &[Opcode::Argmax],
        apply: scale,
    },
    Rule {
        name: "argmax-widen",
        form: "argmax(cast(x)) -> argmax(x)",
        premises: "every value of x's dtype is one of the cast's",
        class: Class::Exact,
        roots: &[Opcode::Argmax],
        apply: widen,
    },
];

fn scale(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    for code in [Opcode::Mul, Opcode::Div] {
        for def in g.defs(node.children[0], code) {
            for (x, s) in [(0, 1), (1, 0)] {
                if code == Opcode::Mul || s == 1 {
                    g.matched(id, &[(node.children[0], &def)]);
                    out.extend(scale_by(g, node, def.children[x], def.children[s]));
                }
            }
        }
    }
    out
}

fn scale_by(g: &mut Graph, node: &Term, x: Id, s: Id) -> Option<Id> {
    let whole = g.ty(node.children[0])?.dims.clone();
    let rank = whole.len();
    let axis = node.int("axis")?;
    let axis = usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok()?;
    let (x_dims, s_dims) = (g.ty(x)?.dims.clone(), &g.ty(s)?.dims);
    // The axis counted from the back is the same in both, which align from the right.
    let back = rank - axis;
    let unit = s_dims.len() < back || s_dims[s_dims.len() - back] == Dim::from(1);
    if !unit || x_dims != whole || g.facts(s).sign != Sign::Positive {
        return None;
    }
    g.op(Opcode::Argmax, &[x], node.key.attrs().clone())
}

fn widen(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let mut out = Vec::new();
    for def in g.defs(node.children[0], Opcode::Cast) {
        let (Some(from), Some(to)) = (g.ty(def.children[0]), g.ty(node.children[0])) else { continue };
        if widens(from.dtype, to.dtype) {
            g.matched(id, &[(node.children[0], &def)]);
            out.extend(g.op(Opcode::Argmax, &[def.children[0]], node.key.attrs().clone()));
        }
    }
    out
}
