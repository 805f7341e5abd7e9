//! The e-graph with typed construction. Constructors of views fold at once, so that a rule and its inverse meet in the same
//! term and saturation ends.

use super::{Analysis, Facts, Head, Key, Term, WeightFacts};
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
}

impl Graph {
    /// An empty graph over leaves of the given types and weights; `indices` are the leaves that are indices of loops which
    /// may select weights, with the loops' extents.
    pub fn new(leaves: Vec<Type>, indices: BTreeMap<u32, i64>, weights: Vec<WeightFacts>) -> Graph {
        Graph { eg: EGraph::new(Analysis { leaves, indices, weights, contradiction: None }) }
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

    /// A leaf.
    pub fn leaf(&mut self, n: u32) -> Id {
        self.eg.add(Term { head: Head::Leaf(n), key: Key::new(Attrs::new()), children: vec![] })
    }

    /// One result of an op with several.
    pub fn proj(&mut self, tuple: Id, i: u32) -> Id {
        self.eg.add(Term { head: Head::Proj(i), key: Key::new(Attrs::new()), children: vec![tuple] })
    }

    /// The operand of maps that are one kernel.
    pub fn pack(&mut self, x: Id) -> Id {
        self.eg.add(Term { head: Head::Pack, key: Key::new(Attrs::new()), children: vec![x] })
    }

    /// A map of a packed operand; `linear` is the map of the operand itself.
    pub fn packed(&mut self, pack: Id, linear: &Term) -> Id {
        self.eg.add(Term { head: Head::Packed, key: linear.key.clone(), children: vec![pack, linear.children[1]] })
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
            .then(|| self.eg.add(Term { head: Head::Guard(code), key: slow.key.clone(), children }))
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
        Some(self.eg.add(Term { head: Head::Op(code), key: Key::new(attrs), children: children.to_vec() }))
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
        if self.ty(x)?.dtype == dtype {
            return Some(x);
        }
        for inner in self.defs(x, Opcode::Cast) {
            let (from, via) = (self.ty(inner.children[0])?.dtype, self.ty(x)?.dtype);
            if from != via && widens(from, via) {
                return self.cast(inner.children[0], dtype);
            }
        }
        self.op(Opcode::Cast, &[x], Attrs::from([("dtype", Attr::DType(dtype))]))
    }

    /// `x` under other dims: of what `x` is a reshape of, at any depth, the first that has them, else a reshape of the first.
    pub fn reshape(&mut self, x: Id, dims: Vec<Dim>) -> Option<Id> {
        let mut below = BTreeSet::from([self.eg.find(x)]);
        let mut stack = vec![x];
        while let Some(x) = stack.pop() {
            for inner in self.defs(x, Opcode::Reshape) {
                let child = self.eg.find(inner.children[0]);
                if below.insert(child) {
                    stack.push(child);
                }
            }
        }
        let fits = |id: &Id| self.ty(*id).is_some_and(|t| t.dims == dims);
        match below.iter().find(|id| fits(id)) {
            Some(id) => Some(*id),
            None => self.op(Opcode::Reshape, &[*below.first()?], Attrs::from([("dims", Attr::Dims(dims))])),
        }
    }

    /// `x` with axes permuted: of what `x` is a transpose of, at any depth, the first that is in this order, else a transpose
    /// of the first.
    pub fn transpose(&mut self, x: Id, axes: &[usize]) -> Option<Id> {
        let start = (self.eg.find(x), axes.to_vec());
        let mut below = BTreeSet::from([start.clone()]);
        let mut stack = vec![start];
        while let Some((x, axes)) = stack.pop() {
            for inner in self.defs(x, Opcode::Transpose) {
                let Some(Attr::Ints(own)) = inner.key.attrs().get("axes") else { continue };
                let own: Option<Vec<usize>> = axes.iter().map(|a| usize::try_from(*own.get(*a)?).ok()).collect();
                let next = (self.eg.find(inner.children[0]), own?);
                if below.insert(next.clone()) {
                    stack.push(next);
                }
            }
        }
        let in_order = |axes: &[usize]| axes.iter().enumerate().all(|(i, a)| i == *a);
        if let Some((id, _)) = below.iter().find(|(_, axes)| in_order(axes)) {
            return Some(*id);
        }
        let (x, axes) = below.first()?;
        let axes = axes.iter().map(|a| *a as i64).collect();
        self.op(Opcode::Transpose, &[*x], Attrs::from([("axes", Attr::Ints(axes))]))
    }

    /// `x` times the transpose of `w`, in the promoted dtype.
    pub fn linear(&mut self, x: Id, w: Id, acc: DType) -> Option<Id> {
        self.op(Opcode::Linear, &[x, w], Attrs::from([("acc", Attr::DType(acc))]))
    }
}

/// True if every value of `from` is one of `to`.
pub fn widens(from: DType, to: DType) -> bool {
    use DType::*;
    from == to || matches!((from, to), (BF16 | F16, F32 | F64) | (F32, F64) | (I32 | U8, F64) | (U8, F32 | I32))
}
