//! Why two terms are equal: congruence closure over recorded terms that keeps a proof.
//!
//! Classes are trees of reasons: an edge is an event, or two terms with pairwise equal operands. Between two terms of a class
//! there is one path, and what makes operands equal was known before the edge was made, so explaining ends.

use super::record::Event;
use super::store::{Store, TermId};
use crate::term::{Head, Key};
use std::collections::BTreeMap;

/// Why two terms next to each other on a path are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// A rule; true if it is read from right to left.
    Rule(&'static str, bool),
    /// The same op on pairwise equal operands.
    Operands,
}

/// The closure.
pub(crate) struct Proof<'a> {
    store: &'a Store,
    leader: Vec<TermId>,
    members: Vec<Vec<TermId>>,
    /// Towards the root of the tree of reasons; false if the event runs the other way.
    parent: Vec<Option<(TermId, Link)>>,
    users: Vec<Vec<TermId>>,
    signatures: BTreeMap<(Head, &'a Key, Vec<TermId>), TermId>,
}

impl<'a> Proof<'a> {
    /// Of the terms of a store and what rules did to them, in order.
    pub fn new(store: &'a Store, events: &[Event]) -> Proof<'a> {
        let n = store.ids().count();
        let mut p = Proof {
            store,
            leader: store.ids().collect(),
            members: store.ids().map(|t| vec![t]).collect(),
            parent: vec![None; n],
            users: vec![Vec::new(); n],
            signatures: BTreeMap::new(),
        };
        for t in store.ids() {
            for c in &store.node(t).children {
                p.users[c.index()].push(t);
            }
            let signature = p.signature(t);
            p.signatures.insert(signature, t);
        }
        for e in events {
            p.unite(e.before, e.after, Link::Rule(e.rule, false));
        }
        p
    }

    /// The term that stands for all equal ones.
    pub fn find(&self, t: TermId) -> TermId {
        self.leader[t.index()]
    }

    fn signature(&self, t: TermId) -> (Head, &'a Key, Vec<TermId>) {
        let node = self.store.node(t);
        (node.head, &node.key, node.children.iter().map(|c| self.find(*c)).collect())
    }

    fn unite(&mut self, a: TermId, b: TermId, link: Link) {
        let mut open = vec![(a, b, link)];
        while let Some((a, b, link)) = open.pop() {
            let (x, y) = (self.find(a), self.find(b));
            if x == y {
                continue;
            }
            // The smaller class moves.
            let ((from, of), (to, into), link) = if self.members[x.index()].len() <= self.members[y.index()].len() {
                ((a, x), (b, y), link)
            } else {
                ((b, y), (a, x), reversed(link))
            };
            self.root_at(from);
            self.parent[from.index()] = Some((to, link));
            let moved = std::mem::take(&mut self.members[of.index()]);
            for t in &moved {
                self.leader[t.index()] = into;
            }
            let users: Vec<TermId> = moved.iter().flat_map(|t| self.users[t.index()].clone()).collect();
            self.members[into.index()].extend(moved);
            for user in users {
                let signature = self.signature(user);
                let known = *self.signatures.entry(signature).or_insert(user);
                if self.find(known) != self.find(user) {
                    open.push((user, known, Link::Operands));
                }
            }
        }
    }

    /// Turns the reasons of a tree so that `t` is its root.
    fn root_at(&mut self, t: TermId) {
        let (mut at, mut above) = (t, None);
        while let Some((next, link)) = std::mem::replace(&mut self.parent[at.index()], above) {
            above = Some((at, reversed(link)));
            at = next;
        }
    }

    /// The terms from `a` to `b`, which are equal, each with why it is equal to the one before; without `a`. `None` if they are
    /// not known to be equal.
    pub fn path(&self, a: TermId, b: TermId) -> Option<Vec<(TermId, Link)>> {
        let up = |mut t: TermId| {
            let mut out = vec![(t, Link::Operands)];
            while let Some((next, link)) = self.parent[t.index()] {
                out.push((next, link));
                t = next;
            }
            out
        };
        let (left, right) = (up(a), up(b));
        let meet = left.iter().position(|(t, _)| right.iter().any(|(u, _)| t == u))?;
        let also = right.iter().position(|(u, _)| *u == left[meet].0)?;
        let mut out: Vec<(TermId, Link)> = left[1..=meet].to_vec();
        for i in (0..also).rev() {
            out.push((right[i].0, reversed(right[i + 1].1)));
        }
        Some(out)
    }
}

fn reversed(link: Link) -> Link {
    match link {
        Link::Rule(name, back) => Link::Rule(name, !back),
        Link::Operands => Link::Operands,
    }
}
