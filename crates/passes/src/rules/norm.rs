//! Norms by their definition.

use super::axes::spec;
use super::{Class, Rule};
use crate::term::{Graph, Term};
use egg::Id;
use spinec_ir::ir::{Attr, Attrs};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Dim};

pub(super) const RULES: &[Rule] = &[Rule {
    name: "norm-definition",
    form: "rms_norm(x, w) -> cast(x * rsqrt(einsum(x, x) / extent + eps) * w)",
    premises: "the extent is constant; the statistic is formed in f64 and rounded to the compute dtype once",
    class: Class::Reassociating,
    roots: &[Opcode::RmsNorm],
    apply,
}];

fn apply(g: &mut Graph, id: Id, node: &Term) -> Vec<Id> {
    definition(g, id, node).into_iter().collect()
}

fn definition(g: &mut Graph, id: Id, node: &Term) -> Option<Id> {
    let x = node.children[0];
    let ty = g.ty(x)?.clone();
    let result = g.ty(id)?.dtype;
    let extent = ty.dims.last()?.as_const().filter(|n| *n > 0)?;
    let Some(Attr::Float(eps)) = node.key.attrs().get("eps") else { return None };
    let wide = g.cast(x, DType::F64)?;
    let axes: Vec<usize> = (0..ty.rank()).collect();
    let attrs = Attrs::from([
        ("spec", Attr::Str(spec(&axes, &axes, &axes[..ty.rank() - 1]))),
        ("acc", Attr::DType(DType::F64)),
    ]);
    let sum = g.op(Opcode::Einsum, &[wide, wide], attrs)?;
    let mut dims = ty.dims.clone();
    *dims.last_mut()? = Dim::from(1);
    let sum = g.reshape(sum, dims)?;
    let (n, eps) = (g.scalar(extent as f64, DType::F64)?, g.scalar(*eps, DType::F64)?);
    let mean = g.binary(Opcode::Div, sum, n)?;
    let floored = g.binary(Opcode::Add, mean, eps)?;
    let inverse = g.op(Opcode::Rsqrt, &[floored], Attrs::new())?;
    let inverse = g.cast(inverse, ty.dtype.compute())?;
    let mut out = g.binary(Opcode::Mul, x, inverse)?;
    if let Some(w) = node.children.get(1) {
        out = g.binary(Opcode::Mul, out, *w)?;
    }
    // A wider weight makes a wider product; the result is rounded once either way.
    g.cast(out, result)
}
