//! Terms: the op registry as a term language.
//!
//! A node is an op with its attributes (one interned key, ordered by its text) and operands; everything a region takes from
//! outside is an opaque leaf with a type. An op with several results is one node; `Proj` picks a result. Names, spans and
//! ids of the IR are no part of a term, so equal computations are equal terms.

mod facts;
mod graph;

pub use facts::{Analysis, Facts, Sign, WeightFacts};
pub use graph::{Graph, widens};

use egg::Id;
use spinec_ir::ir::{Attr, Attrs};
use spinec_ir::ops::Opcode;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Head {
    /// A value from outside, by number.
    Leaf(u32),
    /// An op of the registry.
    Op(Opcode),
    /// A result of an op with several results.
    Proj(u32),
    /// The operand of several linear maps that are one kernel: its launch and the reading of the operand.
    Pack,
    /// `guarded`: operands are the condition, the fast value and the operands of the op that makes the slow value; attributes
    /// are that op's. The slow value is not computed with the others.
    Guard(Opcode),
    /// One of the maps: the operand is a [`Head::Pack`], attributes and second operand are those of `linear`.
    Packed,
}

/// Attributes with a canonical text, which alone decides equality and order.
#[derive(Clone, Debug)]
pub struct Key {
    text: Arc<str>,
    attrs: Arc<Attrs>,
}

impl Key {
    /// The key of some attributes.
    pub fn new(attrs: Attrs) -> Key {
        let text: Vec<String> = attrs.iter().map(|(n, a)| format!("{n}={}", text(a))).collect();
        Key { text: text.join(",").into(), attrs: Arc::new(attrs) }
    }

    /// The attributes.
    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// The canonical text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Text of an attribute, different for different attributes; floats by their bits.
fn text(a: &Attr) -> String {
    match a {
        Attr::Int(v) => v.to_string(),
        Attr::Float(v) => format!("{v:?}:{:x}", v.to_bits()),
        Attr::Bool(v) => v.to_string(),
        Attr::Str(v) => format!("{v:?}"),
        Attr::Dim(v) => v.to_string(),
        Attr::Dims(v) => format!("[{}]", v.iter().map(ToString::to_string).collect::<Vec<_>>().join(";")),
        Attr::Ints(v) => format!("{v:?}"),
        Attr::DType(v) => v.to_string(),
        Attr::Keeps(v) => format!("{v:?}"),
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
impl Eq for Key {}
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// A node of a term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// What it does.
    pub head: Head,
    /// Attributes of an op; empty otherwise.
    pub key: Key,
    /// Operands.
    pub children: Vec<Id>,
}

impl Term {
    /// The opcode, if the node is an op.
    pub fn code(&self) -> Option<Opcode> {
        match self.head {
            Head::Op(code) => Some(code),
            Head::Leaf(_) | Head::Proj(_) | Head::Pack | Head::Packed | Head::Guard(_) => None,
        }
    }

    /// Integer attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.key.attrs.get(name) {
            Some(Attr::Int(v)) => Some(*v),
            _ => None,
        }
    }
}

impl egg::Language for Term {
    type Discriminant = Head;

    fn discriminant(&self) -> Head {
        self.head
    }

    fn matches(&self, other: &Self) -> bool {
        self.head == other.head && self.key == other.key && self.children.len() == other.children.len()
    }

    fn children(&self) -> &[Id] {
        &self.children
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}
