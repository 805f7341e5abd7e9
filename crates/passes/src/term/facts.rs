//! What is known of the value of a class. Facts are about the value in real arithmetic, so members of a class must agree;
//! a contradiction is kept in the analysis and ends saturation with an error.

use super::{Head, Term};
use egg::{DidMerge, EGraph, Id};
use spinec_ir::ir::Attr;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Dim, TensorType, Type};
use std::collections::{BTreeMap, BTreeSet};

/// Sign of every element, in real arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// Not known.
    Any,
    /// At least zero.
    NonNegative,
    /// Above zero.
    Positive,
}

/// Facts of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Types of the results; one, unless the node is an op with several.
    pub types: Vec<Type>,
    /// The value depends on weights, constants and indices of loops that select weights only, and has constant extents.
    pub held: bool,
    /// The leaves that are such indices, where the value is held.
    pub loops: BTreeSet<u32>,
    /// The widest dtype among the weights it depends on; `None` if there are none.
    pub source: Option<DType>,
    /// Sign of every element.
    pub sign: Sign,
}

impl Facts {
    /// The type of a class with one result that is a tensor.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self.types.as_slice() {
            [Type::Tensor(t)] => Some(t),
            _ => None,
        }
    }

    /// The value depends on weights and constants only and has constant extents.
    pub fn fixed(&self) -> bool {
        self.held && self.loops.is_empty()
    }

    /// True if the value could be computed once, from weights.
    pub fn weight_only(&self) -> bool {
        self.fixed() && self.source.is_some()
    }
}

/// A weight terms may refer to.
#[derive(Clone, Debug)]
pub struct WeightFacts {
    /// Type of an element.
    pub ty: TensorType,
    /// Extents of the loops it belongs to.
    pub loops: Vec<i64>,
}

/// The analysis: types of what terms refer to, and the first contradiction.
#[derive(Clone, Debug, Default)]
pub struct Analysis {
    /// Types of the leaves.
    pub leaves: Vec<Type>,
    /// The leaves that are indices of loops which may select weights, with the loops' extents.
    pub indices: BTreeMap<u32, i64>,
    /// The module's weights.
    pub weights: Vec<WeightFacts>,
    /// Two unequal facts of one class, as found first.
    pub contradiction: Option<String>,
}

impl egg::Analysis<Term> for Analysis {
    type Data = Facts;

    fn make(eg: &mut EGraph<Term, Self>, node: &Term, _id: Id) -> Facts {
        make(eg, node)
    }

    fn merge(&mut self, a: &mut Facts, b: Facts) -> DidMerge {
        let old = a.clone();
        if a.types != b.types && self.contradiction.is_none() {
            self.contradiction =
                Some(format!("a class would have types {:?} and {:?}", show(&a.types), show(&b.types)));
        }
        // The form that depends on less; of forms that depend on as much, the first in order.
        let rank = |held: bool, loops: &BTreeSet<u32>| (!held, loops.len(), loops.clone());
        if rank(b.held, &b.loops) < rank(a.held, &a.loops) {
            (a.held, a.loops) = (b.held, b.loops.clone());
        }
        a.source = match (a.source, b.source) {
            (Some(x), Some(y)) => Some(widest(x, y)),
            // A form that needs no weight at all shows that the value does not depend on one.
            _ => None,
        };
        a.sign = a.sign.max(b.sign);
        DidMerge(*a != old, *a != b)
    }
}

fn show(types: &[Type]) -> Vec<String> {
    types.iter().map(ToString::to_string).collect()
}

/// The wider of two float dtypes; other dtypes lose against floats.
fn widest(a: DType, b: DType) -> DType {
    a.promote(b).unwrap_or(if a.is_float() { a } else { b })
}

fn make(eg: &EGraph<Term, Analysis>, node: &Term) -> Facts {
    let kids: Vec<&Facts> = node.children.iter().map(|c| &eg[*c].data).collect();
    let types = types(eg, node, &kids);
    let constant = types.iter().all(|t| t.tensor().is_some_and(|t| t.dims.iter().all(|d| d.as_const().is_some())));
    let mut source = kids.iter().filter_map(|k| k.source).reduce(widest);
    if node.head == Head::Op(Opcode::Weight) {
        source = types[0].tensor().map(|t| t.dtype);
    }
    let mut loops: BTreeSet<u32> = kids.iter().flat_map(|k| k.loops.iter().copied()).collect();
    let mut held = !matches!(node.head, Head::Leaf(_) | Head::Guard(_)) && constant && !symbolic(node);
    for (i, (child, kid)) in node.children.iter().zip(&kids).enumerate() {
        match index(eg, *child).filter(|_| node.head == Head::Op(Opcode::Weight)) {
            Some((leaf, extent)) => {
                loops.insert(leaf);
                held &= weight(eg, node).loops.get(i) == Some(&extent);
            }
            None => held &= kid.held,
        }
    }
    if !held {
        loops.clear();
    }
    Facts { held, loops, sign: sign(eg, node, &kids), types, source }
}

/// Whether an op looks at a symbol, whatever extents its result has.
fn symbolic(node: &Term) -> bool {
    let open = |d: &Dim| d.as_const().is_none();
    matches!(node.head, Head::Op(_))
        && node.key.attrs().values().any(|a| match a {
            Attr::Dim(d) => open(d),
            Attr::Dims(list) => list.iter().any(open),
            _ => false,
        })
}

/// The leaf a class is, if that is the index of a loop, and the loop's extent.
fn index(eg: &EGraph<Term, Analysis>, id: Id) -> Option<(u32, i64)> {
    eg[id].nodes.iter().find_map(|n| match n.head {
        Head::Leaf(l) => eg.analysis.indices.get(&l).map(|extent| (l, *extent)),
        _ => None,
    })
}

/// The weight a node reads.
fn weight<'a>(eg: &'a EGraph<Term, Analysis>, node: &Term) -> &'a WeightFacts {
    let n = node.int("weight").and_then(|n| usize::try_from(n).ok()).expect("the IR was verified");
    &eg.analysis.weights[n]
}

/// Nodes are added through [`super::Graph`], which types them first.
fn types(eg: &EGraph<Term, Analysis>, node: &Term, kids: &[&Facts]) -> Vec<Type> {
    match node.head {
        Head::Leaf(n) => vec![eg.analysis.leaves[n as usize].clone()],
        Head::Proj(i) => vec![kids[0].types[i as usize].clone()],
        Head::Guard(code) => {
            let kids: Vec<&Type> = kids[2..].iter().map(|k| &k.types[0]).collect();
            code.infer(&kids, node.key.attrs()).expect("the slow value was a term before")
        }
        Head::Pack => kids[0].types.clone(),
        Head::Packed => {
            let kids: Vec<&Type> = kids.iter().map(|k| &k.types[0]).collect();
            Opcode::Linear.infer(&kids, node.key.attrs()).expect("the map was a term before")
        }
        Head::Op(Opcode::Weight) => vec![weight(eg, node).ty.clone().into()],
        Head::Op(code) => {
            let kids: Vec<&Type> = kids.iter().map(|k| &k.types[0]).collect();
            code.infer(&kids, node.key.attrs()).expect("the graph types a node before it is added")
        }
    }
}

fn sign(eg: &EGraph<Term, Analysis>, node: &Term, kids: &[&Facts]) -> Sign {
    use Opcode::*;
    use Sign::*;
    let s = |i: usize| kids[i].sign;
    let Head::Op(code) = node.head else { return Any };
    match code {
        Const => match node.key.attrs().get("value") {
            Some(Attr::Float(v)) if *v > 0.0 => Positive,
            Some(Attr::Float(v)) if *v == 0.0 => NonNegative,
            _ => Any,
        },
        Exp | Sigmoid => Positive,
        Abs | Relu | Softplus | Rms | Norm2 => NonNegative,
        Sqrt | Cast | Reshape | Transpose | Broadcast | Slice | Fill | Sum | Mean | ReduceMax | ReduceMin => s(0),
        Rsqrt if s(0) == Positive => Positive,
        Add if s(0).min(s(1)) >= NonNegative => s(0).max(s(1)),
        Mul if eg.find(node.children[0]) == eg.find(node.children[1]) => s(0).max(NonNegative),
        Mul | Minimum => s(0).min(s(1)),
        Div if s(1) == Positive => s(0),
        Maximum => s(0).max(s(1)),
        Einsum if node.children.len() == 2 && eg.find(node.children[0]) == eg.find(node.children[1]) => {
            let same = match node.key.attrs().get("spec") {
                Some(Attr::Str(spec)) => spec
                    .split("->")
                    .next()
                    .and_then(|l| l.split_once(','))
                    .is_some_and(|(a, b)| a.split_whitespace().eq(b.split_whitespace())),
                _ => false,
            };
            if same { NonNegative } else { Any }
        }
        _ => Any,
    }
}
