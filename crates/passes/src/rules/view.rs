//! Views of views.

use super::{Class, Rule};
use crate::term::{Graph, Term};
use egg::Id;
use spinec_ir::ir::Attr;
use spinec_ir::ops::Opcode;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "cast-fold",
        form: "cast(x) -> x; cast(cast(x)) -> cast(x)",
        premises: "x has the dtype already; the inner cast holds every value of x",
        class: Class::Exact,
        roots: &[Opcode::Cast],
        apply: cast,
    },
    Rule {
        name: "reshape-fold",
        form: "reshape(x) -> x; reshape(reshape(x)) -> reshape(x)",
        premises: "x has the dims already, for the first",
        class: Class::Exact,
        roots: &[Opcode::Reshape],
        apply: reshape,
    },
    Rule {
        name: "transpose-fold",
        form: "transpose(x) -> x; transpose(transpose(x)) -> transpose(x)",
        premises: "the permutation is the identity, for the first",
        class: Class::Exact,
        roots: &[Opcode::Transpose],
        apply: transpose,
    },
];

fn cast(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let Some(dtype) = g.ty(id).map(|t| t.dtype) else { return vec![] };
    g.cast(node.children[0], dtype).into_iter().collect()
}

fn reshape(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    let Some(dims) = g.ty(id).map(|t| t.dims.clone()) else { return vec![] };
    g.reshape(node.children[0], dims).into_iter().collect()
}

fn transpose(g: &mut Graph, _id: Id, node: &Term) -> Vec<Id> {
    let Some(Attr::Ints(axes)) = node.key.attrs().get("axes") else { return vec![] };
    let axes: Option<Vec<usize>> = axes.iter().map(|a| usize::try_from(*a).ok()).collect();
    axes.and_then(|axes| g.transpose(node.children[0], &axes)).into_iter().collect()
}
