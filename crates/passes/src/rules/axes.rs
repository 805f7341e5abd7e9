//! Products of two tensors by labelled axes, and moving broadcast factors between labelled operands.

use crate::term::{Graph, Term};
use egg::Id;
use spinec_ir::ir::{Attr, Attrs};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Dim};
use std::collections::BTreeMap;

/// An axis of a product. Labels are numbers in the order of first occurrence.
pub(super) type Label = usize;

/// A two-operand einsum.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub operands: [Id; 2],
    pub labels: [Vec<Label>; 2],
    pub out: Vec<Label>,
    pub extents: BTreeMap<Label, Dim>,
    pub acc: DType,
    pub dtype: DType,
}

fn is_one(d: &Dim) -> bool {
    d.as_const() == Some(1)
}

impl Product {
    /// The product a node is, if it is one.
    pub fn of(g: &Graph, id: Id, node: &Term) -> Option<Product> {
        let (&[a, b], Some(Attr::Str(spec)), Some(Attr::DType(acc))) =
            (node.children.as_slice(), node.key.attrs().get("spec"), node.key.attrs().get("acc"))
        else {
            return None;
        };
        let (left, right) = spec.split_once("->")?;
        let (la, lb) = left.split_once(',')?;
        let mut names: Vec<&str> = Vec::new();
        let labels = [labels(la, &mut names), labels(lb, &mut names)];
        let out = self::labels(right, &mut names);
        let mut extents = BTreeMap::new();
        for (operand, axes) in [a, b].iter().zip(&labels) {
            for (l, d) in axes.iter().zip(&g.ty(*operand)?.dims) {
                extents.insert(*l, d.clone());
            }
        }
        Some(Product { operands: [a, b], labels, out, extents, acc: *acc, dtype: g.ty(id)?.dtype })
    }

    /// True if the axis is summed.
    pub fn summed(&self, l: Label) -> bool {
        !self.out.contains(&l)
    }

    /// A label no axis has.
    pub fn fresh(&self) -> Label {
        self.extents.keys().max().map_or(0, |m| m + 1)
    }

    /// The labels of the axes of `x` that are not broadcast, if `x` stands for (or broadcasts to) operand `k`.
    pub fn real_axes(&self, g: &Graph, k: usize, x: Id) -> Option<Vec<Label>> {
        let dims = &g.ty(x)?.dims;
        let labels = self.labels[k].get(self.labels[k].len().checked_sub(dims.len())?..)?;
        Some(labels.iter().zip(dims).filter(|(l, d)| !self.broadcast(**l, d)).map(|(l, _)| *l).collect())
    }

    fn broadcast(&self, l: Label, d: &Dim) -> bool {
        is_one(d) && self.extents.get(&l).is_some_and(|full| !is_one(full))
    }

    /// `x` without its broadcast axes, with the labels of the rest. `x` broadcasts to operand `k`.
    fn squeeze(&self, g: &mut Graph, k: usize, x: Id) -> Option<(Id, Vec<Label>)> {
        let dims = g.ty(x)?.dims.clone();
        let labels = self.labels[k].get(self.labels[k].len().checked_sub(dims.len())?..)?.to_vec();
        let kept: Vec<(Label, Dim)> = labels.into_iter().zip(dims).filter(|(l, d)| !self.broadcast(*l, d)).collect();
        let x = g.reshape(x, kept.iter().map(|(_, d)| d.clone()).collect())?;
        Some((x, kept.into_iter().map(|(l, _)| l).collect()))
    }

    /// The einsum with operands that may be broadcast where the original ones are not. The result has extent one where
    /// neither operand has the axis, and broadcasts to the original result. `None` if a summed axis is in neither.
    pub fn build(&self, g: &mut Graph) -> Option<Id> {
        let (a, la) = self.squeeze(g, 0, self.operands[0])?;
        let (b, lb) = self.squeeze(g, 1, self.operands[1])?;
        let has = |l: &Label| la.contains(l) || lb.contains(l);
        if self.extents.keys().any(|l| self.summed(*l) && !has(l)) {
            return None;
        }
        // A product of 16-bit operands would round where the original did not.
        let (mut a, mut b) = (a, b);
        for x in [&mut b, &mut a] {
            let own = g.ty(*x)?.dtype;
            if own.is_float() && own != self.dtype && own.bytes() < self.dtype.bytes() && own.bytes() < 4 {
                *x = g.cast(*x, self.dtype)?;
            }
        }
        let out: Vec<Label> = self.out.iter().copied().filter(|l| has(l)).collect();
        let attrs = Attrs::from([("spec", Attr::Str(spec(&la, &lb, &out))), ("acc", Attr::DType(self.acc))]);
        let e = g.op(Opcode::Einsum, &[a, b], attrs)?;
        if g.ty(e)?.dtype != self.dtype {
            return None;
        }
        let one = Dim::from(1);
        let dims = self.out.iter().map(|l| if has(l) { self.extents[l].clone() } else { one.clone() }).collect();
        g.reshape(e, dims)
    }

    /// The same with one operand replaced.
    pub fn with(&self, g: &mut Graph, k: usize, x: Id) -> Option<Id> {
        let mut p = self.clone();
        p.operands[k] = x;
        p.build(g)
    }

    /// `x`, which broadcasts to operand `k`, brought into a form that broadcasts against a tensor with axes `to`. `None` if
    /// it has an axis that is not in `to`.
    pub fn align(&self, g: &mut Graph, k: usize, x: Id, to: &[Label]) -> Option<Id> {
        let (mut x, have) = {
            let real = self.real_axes(g, k, x)?;
            let mut sorted = real.clone();
            sorted.sort_by_key(|l| to.iter().position(|t| t == l));
            if sorted == real { (x, real) } else { self.squeeze(g, k, x)? }
        };
        let mut want: Vec<Label> = have.clone();
        if want.iter().any(|l| !to.contains(l)) {
            return None;
        }
        want.sort_by_key(|l| to.iter().position(|t| t == l));
        let perm: Vec<usize> = want.iter().filter_map(|l| have.iter().position(|h| h == l)).collect();
        if want != have {
            x = g.transpose(x, &perm)?;
        }
        let first = to.iter().position(|l| want.contains(l)).unwrap_or(to.len());
        let dims: Vec<Dim> =
            to[first..].iter().map(|l| if want.contains(l) { self.extents[l].clone() } else { Dim::from(1) }).collect();
        g.reshape(x, dims)
    }
}

/// The canonical specification: letters by first occurrence.
pub(super) fn spec(a: &[Label], b: &[Label], out: &[Label]) -> String {
    let mut seen: Vec<Label> = Vec::new();
    let mut side = |labels: &[Label]| {
        let names: Vec<String> = labels
            .iter()
            .map(|l| {
                let i = seen.iter().position(|s| s == l).unwrap_or_else(|| {
                    seen.push(*l);
                    seen.len() - 1
                });
                format!("a{i}")
            })
            .collect();
        names.join(" ")
    };
    format!("{}, {} -> {}", side(a), side(b), side(out))
}

/// The labels of one side of a specification; `names` holds the names seen so far.
fn labels<'a>(side: &'a str, names: &mut Vec<&'a str>) -> Vec<Label> {
    let mut label = |n: &'a str| {
        names.iter().position(|m| *m == n).unwrap_or_else(|| {
            names.push(n);
            names.len() - 1
        })
    };
    side.split_whitespace().map(&mut label).collect()
}

/// An einsum specification with its axes renamed by first occurrence.
pub(crate) fn canonical(spec: &str) -> Option<String> {
    let (left, right) = spec.split_once("->")?;
    let mut names: Vec<&str> = Vec::new();
    let mut side = |text| labels(text, &mut names).iter().map(|l| format!("a{l}")).collect::<Vec<_>>().join(" ");
    let left: Vec<String> = left.split(',').map(&mut side).collect();
    Some(format!("{} -> {}", left.join(", "), side(right)))
}
