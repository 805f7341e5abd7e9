//! The e-graph with typed construction. Constructors of views fold at once, so that a rule and its inverse meet in the same
//! term and saturation ends.

use super::{Analysis, Facts, Head, Key, Term, WeightFacts};
use crate::history::record::{Fold, Recorder};
use egg::{EGraph, Id};
use spinec_ir::ir::{Attr, Attrs};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Dim, TensorType, Type};
use std::collections::{BTreeMap, BTreeSet};

/// An e-graph over terms.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The classes.
    pub eg: EGraph<Term, Analysis>,
    /// What is recorded of how terms came about; none unless asked for.
    pub(crate) history: Option<Box<Recorder>>,
}

impl Graph {
    /// An empty graph over leaves of the given types and weights; `indices` are the leaves that are indices of loops which
    /// may select weights, with the loops' extents.
    pub fn new(leaves: Vec<Type>, indices: BTreeMap<u32, i64>, weights: Vec<WeightFacts>) -> Graph {
        Graph { eg: EGraph::new(Analysis { leaves, indices, weights, contradiction: None }), history: None }
    }

    /// Facts of a class.
    pub fn facts(&self, id: Id) -> &Facts {
        &self.eg[id].data
    }

    /// Type of a class that is one tensor.
    pub fn ty(&self, id: Id) -> Option<&TensorType> {
        self.facts(id).tensor()
    }

    /// The nodes of a class with an opcode, in order.
    pub fn defs(&self, id: Id, code: Opcode) -> Vec<Term> {
        let mut out: Vec<Term> = self.eg[id].nodes.iter().filter(|n| n.head == Head::Op(code)).cloned().collect();
        out.sort();
        out
    }

    fn add(&mut self, node: Term) -> Id {
        if self.history.is_none() {
            return self.eg.add(node);
        }
        let id = self.eg.add(node.clone());
        self.keep(id, &node);
        id
    }

    /// A leaf.
    pub fn leaf(&mut self, n: u32) -> Id {
        self.add(Term { head: Head::Leaf(n), key: Key::new(Attrs::new()), children: vec![] })
    }

    /// One result of an op with several.
    pub fn proj(&mut self, tuple: Id, i: u32) -> Id {
        self.add(Term { head: Head::Proj(i), key: Key::new(Attrs::new()), children: vec![tuple] })
    }

    /// The operand of maps that are one kernel.
    pub fn pack(&mut self, x: Id) -> Id {
        self.add(Term { head: Head::Pack, key: Key::new(Attrs::new()), children: vec![x] })
    }

    /// A map of a packed operand; `linear` is the map of the operand itself.
    pub fn packed(&mut self, pack: Id, linear: &Term) -> Id {
        self.add(Term { head: Head::Packed, key: linear.key.clone(), children: vec![pack, linear.children[1]] })
    }

    /// `fast` where `ok` is true, else `slow`, a node. `None` if their types do not fit.
    pub fn guard(&mut self, ok: Id, fast: Id, slow: &Term) -> Option<Id> {
        let code = slow.code()?;
        let operands: Vec<&Type> = slow.children.iter().map(|c| self.facts(*c).types.first()).collect::<Option<_>>()?;
        let types = code.infer(&operands, slow.key.attrs()).ok()?;
        let fits = types == self.facts(fast).types && self.ty(ok)?.dims == self.ty(fast)?.dims;
        let mut children = vec![ok, fast];
        children.extend(&slow.children);
        (fits && self.ty(ok)?.dtype == DType::Bool)
            .then(|| self.add(Term { head: Head::Guard(code), key: slow.key.clone(), children }))
    }

    /// An op; `None` if it does not take these operands.
    pub fn op(&mut self, code: Opcode, children: &[Id], attrs: Attrs) -> Option<Id> {
        if code != Opcode::Weight {
            let types: Vec<&Type> = children
                .iter()
                .map(|c| match self.facts(*c).types.as_slice() {
                    [t] => Some(t),
                    _ => None,
                })
                .collect::<Option<_>>()?;
            code.infer(&types, &attrs).ok()?;
        }
        Some(self.add(Term { head: Head::Op(code), key: Key::new(attrs), children: children.to_vec() }))
    }

    /// A binary elementwise op.
    pub fn binary(&mut self, code: Opcode, a: Id, b: Id) -> Option<Id> {
        self.op(code, &[a, b], Attrs::new())
    }

    /// A scalar.
    pub fn scalar(&mut self, value: f64, dtype: DType) -> Option<Id> {
        self.op(Opcode::Const, &[], Attrs::from([("value", Attr::Float(value)), ("dtype", Attr::DType(dtype))]))
    }

    /// `x` in another dtype, itself if it has it. A widening below is skipped.
    pub fn cast(&mut self, x: Id, dtype: DType) -> Option<Id> {
        let (mut at, mut path) = (x, Vec::new());
        while self.ty(at)?.dtype != dtype {
            let via = self.ty(at)?.dtype;
            let from = |inner: &Term| self.ty(inner.children[0]).map(|t| t.dtype);
            let widening = |inner: &Term| from(inner).is_some_and(|from| from != via && widens(from, via));
            let Some(inner) = self.defs(at, Opcode::Cast).into_iter().find(widening) else { break };
            at = inner.children[0];
            path.push(inner);
        }
        let attrs = Attrs::from([("dtype", Attr::DType(dtype))]);
        let whole = self.ty(at)?.dtype == dtype;
        let out = if whole { at } else { self.op(Opcode::Cast, &[at], attrs.clone())? };
        if self.history.is_some() && !path.is_empty() {
            let asked = (Head::Op(Opcode::Cast), Key::new(attrs));
            let left = (!whole).then(|| asked.clone());
            self.folded(&Fold { rule: "cast-fold", asked, left, operand: x, path: &path }, out);
        }
        Some(out)
    }

    /// `x` under other dims: of what `x` is a reshape of, at any depth, the first that has them, else a reshape of the first.
    pub fn reshape(&mut self, x: Id, dims: Vec<Dim>) -> Option<Id> {
        let mut below = BTreeSet::from([self.eg.find(x)]);
        let mut stack = vec![x];
        let mut above: Above<Id> = BTreeMap::new();
        while let Some(x) = stack.pop() {
            for inner in self.defs(x, Opcode::Reshape) {
                let child = self.eg.find(inner.children[0]);
                if below.insert(child) {
                    stack.push(child);
                    if self.history.is_some() {
                        above.insert(child, (self.eg.find(x), inner));
                    }
                }
            }
        }
        let fits = |id: &Id| self.ty(*id).is_some_and(|t| t.dims == dims);
        let found = below.iter().find(|id| fits(id)).copied();
        let at = found.or_else(|| below.first().copied())?;
        let attrs = Attrs::from([("dims", Attr::Dims(dims))]);
        let out = match found {
            Some(id) => id,
            None => self.op(Opcode::Reshape, &[at], attrs.clone())?,
        };
        let path = path(&above, at);
        if !path.is_empty() {
            let asked = (Head::Op(Opcode::Reshape), Key::new(attrs));
            let left = found.is_none().then(|| asked.clone());
            self.folded(&Fold { rule: "reshape-fold", asked, left, operand: x, path: &path }, out);
        }
        Some(out)
    }

    /// `x` with axes permuted: of what `x` is a transpose of, at any depth, the first that is in this order, else a transpose
    /// of the first.
    pub fn transpose(&mut self, x: Id, axes: &[usize]) -> Option<Id> {
        let start = (self.eg.find(x), axes.to_vec());
        let mut below = BTreeSet::from([start.clone()]);
        let mut stack = vec![start];
        let mut above: Above<(Id, Vec<usize>)> = BTreeMap::new();
        while let Some((x, axes)) = stack.pop() {
            for inner in self.defs(x, Opcode::Transpose) {
                let Some(Attr::Ints(own)) = inner.key.attrs().get("axes") else { continue };
                let own: Option<Vec<usize>> = axes.iter().map(|a| usize::try_from(*own.get(*a)?).ok()).collect();
                let next = (self.eg.find(inner.children[0]), own?);
                if below.insert(next.clone()) {
                    stack.push(next.clone());
                    if self.history.is_some() {
                        above.insert(next, ((x, axes.clone()), inner));
                    }
                }
            }
        }
        let in_order = |axes: &[usize]| axes.iter().enumerate().all(|(i, a)| i == *a);
        let found = below.iter().find(|(_, axes)| in_order(axes));
        let whole = found.is_some();
        let at = found.or_else(|| below.first())?.clone();
        let attrs = |axes: &[usize]| Attrs::from([("axes", Attr::Ints(axes.iter().map(|a| *a as i64).collect()))]);
        let out = if whole { at.0 } else { self.op(Opcode::Transpose, &[at.0], attrs(&at.1))? };
        let path = path(&above, at.clone());
        if !path.is_empty() {
            let view = |axes: &[usize]| (Head::Op(Opcode::Transpose), Key::new(attrs(axes)));
            let left = (!whole).then(|| view(&at.1));
            self.folded(&Fold { rule: "transpose-fold", asked: view(axes), left, operand: x, path: &path }, out);
        }
        Some(out)
    }

    /// `x` times the transpose of `w`, in the promoted dtype.
    pub fn linear(&mut self, x: Id, w: Id, acc: DType) -> Option<Id> {
        self.op(Opcode::Linear, &[x, w], Attrs::from([("acc", Attr::DType(acc))]))
    }
}

/// For what a search found, from where and by which node.
type Above<K> = BTreeMap<K, (K, Term)>;

/// The nodes between where a search began and `at`, outer ones first.
fn path<K: Ord + Clone>(above: &Above<K>, at: K) -> Vec<Term> {
    let (mut out, mut at) = (Vec::new(), at);
    while let Some((outer, node)) = above.get(&at) {
        out.push(node.clone());
        at = outer.clone();
    }
    out.reverse();
    out
}

/// True if every value of `from` is one of `to`.
pub fn widens(from: DType, to: DType) -> bool {
    use DType::*;
    from == to || matches!((from, to), (BF16 | F16, F32 | F64) | (F32, F64) | (I32 | U8, F64) | (U8, F32 | I32))
}
