//! Terms as they were written or made, each once and never united with another.

use crate::term::{Head, Key};
use spinec_ir::ty::Type;
use std::collections::{BTreeMap, BTreeSet};

/// A term of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TermId(pub u32);

impl TermId {
    /// As a place in a list.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node with terms as operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it does. The operands of a [`Head::Guard`] are the condition, the fast value and those of the slow op.
    pub head: Head,
    /// Attributes.
    pub key: Key,
    /// Operands, all earlier in the store.
    pub children: Vec<TermId>,
    /// Types of the results.
    pub types: Vec<Type>,
}

/// Terms, equal ones once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    nodes: Vec<Node>,
    index: BTreeMap<(Head, Key, Vec<TermId>), TermId>,
}

impl Store {
    /// The term of a node.
    pub fn add(&mut self, head: Head, key: Key, children: Vec<TermId>, types: Vec<Type>) -> TermId {
        let signature = (head, key, children);
        if let Some(known) = self.index.get(&signature) {
            return *known;
        }
        let id = TermId(self.nodes.len() as u32);
        let (head, key, children) = signature.clone();
        self.nodes.push(Node { head, key, children, types });
        self.index.insert(signature, id);
        id
    }

    /// The node of a term.
    pub fn node(&self, t: TermId) -> &Node {
        &self.nodes[t.index()]
    }

    /// All terms, operands before what uses them.
    pub fn ids(&self) -> impl Iterator<Item = TermId> + use<> {
        (0..self.nodes.len() as u32).map(TermId)
    }

    /// A term with other operands of the same types.
    pub fn with(&mut self, t: TermId, children: Vec<TermId>) -> TermId {
        let Node { head, key, types, .. } = self.node(t).clone();
        self.add(head, key, children, types)
    }

    /// A term and everything in it.
    pub fn below(&self, t: TermId) -> BTreeSet<TermId> {
        let mut out = BTreeSet::new();
        let mut open = vec![t];
        while let Some(t) = open.pop() {
            if out.insert(t) {
                open.extend(&self.node(t).children);
            }
        }
        out
    }

    /// Whether `inner` is `outer` or in it.
    pub fn holds(&self, outer: TermId, inner: TermId) -> bool {
        // What is in a term stands before it.
        inner <= outer && self.below(outer).contains(&inner)
    }
}
