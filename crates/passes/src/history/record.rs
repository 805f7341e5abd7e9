//! What a graph records while rules are applied, if it is asked to.
//!
//! Classes forget which term was there first, so terms are kept beside them. Applying a rule makes an [`Event`]: the left
//! side as it was matched, the right side as it was made, over the same terms for what the rule leaves open. Constructors of
//! views fold what they find in a class; unless the operand is such a view already, that is an event of its own.

use super::store::{Store, TermId};
use crate::term::{Graph, Head, Key, Term};
use egg::Id;
use std::collections::{BTreeMap, BTreeSet};

/// Two terms that a rule made equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The rule's name.
    pub rule: &'static str,
    /// The left side.
    pub before: TermId,
    /// The right side.
    pub after: TermId,
}

/// A record in the making.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// The terms.
    pub store: Store,
    /// What rules did, in order.
    pub events: Vec<Event>,
    seen: BTreeSet<(TermId, TermId)>,
    /// Every term that was added to the graph, with the class it had then.
    added: Vec<(Id, TermId)>,
    class: BTreeMap<TermId, Id>,
    /// The first term of every class.
    first: BTreeMap<Id, TermId>,
    /// The node a rule is applied to.
    root: Option<Term>,
    /// The left side as matched.
    before: Option<TermId>,
    /// Terms of the classes the rule looked into.
    matched: BTreeMap<Id, TermId>,
    /// Terms made since, by class.
    made: BTreeMap<Id, TermId>,
    /// For every class made in this application the left side it was made from, and the right side.
    results: BTreeMap<Id, (Option<TermId>, TermId)>,
}

impl Recorder {
    fn event(&mut self, rule: &'static str, before: TermId, after: TermId) {
        if before != after && self.seen.insert((before, after)) {
            self.events.push(Event { rule, before, after });
        }
    }
}

/// A view that constructors folded: attributes asked for, the operand, and the views found below it, outer ones first.
pub(crate) struct Fold<'a> {
    pub rule: &'static str,
    /// Head and attributes of the view that was asked for, and of the one made; none if there is no view left.
    pub asked: (Head, Key),
    pub left: Option<(Head, Key)>,
    pub operand: Id,
    pub path: &'a [Term],
}

impl Graph {
    /// Records from here on; for an empty graph.
    pub fn record(&mut self) {
        self.history = Some(Box::default());
    }

    /// The term that stands for a class: what the rule made or matched, else the first of the class.
    pub(crate) fn concrete(&self, id: Id) -> Option<TermId> {
        let (h, id) = (self.history.as_ref()?, self.eg.find(id));
        h.made.get(&id).or_else(|| h.matched.get(&id)).or_else(|| h.first.get(&id)).copied()
    }

    fn instance(&mut self, id: Id, node: &Term) -> Option<TermId> {
        let children = node.children.iter().map(|c| self.concrete(*c)).collect::<Option<Vec<_>>>()?;
        let types = self.facts(id).types.clone();
        Some(self.history.as_mut()?.store.add(node.head, node.key.clone(), children, types))
    }

    /// Keeps the term of a node that was added.
    pub(crate) fn keep(&mut self, id: Id, node: &Term) {
        if let Some(term) = self.instance(id, node) {
            self.register(id, term);
        }
    }

    fn register(&mut self, id: Id, term: TermId) {
        let id = self.eg.find(id);
        let Some(h) = self.history.as_mut() else { return };
        h.added.push((id, term));
        h.class.entry(term).or_insert(id);
        h.first.entry(id).or_insert(term);
        h.made.insert(id, term);
        h.results.insert(id, (h.before, term));
    }

    /// A rule is about to be applied to a node.
    pub(crate) fn begin(&mut self, id: Id, node: &Term) {
        let Some(h) = self.history.as_mut() else { return };
        h.results.clear();
        h.root = Some(node.clone());
        h.matched.clear();
        h.made.clear();
        let before = self.instance(id, node);
        if let Some(h) = self.history.as_mut() {
            h.before = before;
        }
    }

    /// Says which nodes a rule takes its operands for, the inner ones first: what it makes from here on is made of them.
    pub fn matched(&mut self, id: Id, nodes: &[(Id, &Term)]) {
        let Some(h) = self.history.as_mut() else { return };
        h.matched.clear();
        h.made.clear();
        let Some(root) = h.root.clone() else { return };
        for (class, node) in nodes {
            let (class, term) = (self.eg.find(*class), self.instance(*class, node));
            if let (Some(h), Some(term)) = (self.history.as_mut(), term) {
                h.matched.insert(class, term);
            }
        }
        let before = self.instance(id, &root);
        if let Some(h) = self.history.as_mut() {
            h.before = before;
        }
    }

    /// Left and right side of every result of an application; none if nothing is recorded.
    pub(crate) fn sides(&self, results: &[Id]) -> Vec<Option<(TermId, TermId)>> {
        let Some(h) = self.history.as_ref() else { return Vec::new() };
        let side = |new: &Id| {
            let known = h.results.get(new).or_else(|| h.results.get(&self.eg.find(*new))).copied();
            let (before, after) = known.or_else(|| Some((h.before, self.concrete(*new)?)))?;
            Some((before?, after))
        };
        results.iter().map(side).collect()
    }

    /// A rule's result was united with the node it was applied to.
    pub(crate) fn derived(&mut self, rule: &'static str, sides: Option<&Option<(TermId, TermId)>>) {
        if let (Some(h), Some(Some((before, after)))) = (self.history.as_mut(), sides) {
            h.event(rule, *before, *after);
        }
    }

    /// Every class is represented by its first term again.
    pub(crate) fn settle(&mut self) {
        let Some(h) = self.history.as_mut() else { return };
        h.first.clear();
        h.matched.clear();
        h.made.clear();
        for (id, term) in &h.added {
            let first = h.first.entry(self.eg.find(*id)).or_insert(*term);
            *first = (*first).min(*term);
        }
    }

    /// A constructor gave `out` instead of a view of `fold.operand`.
    pub(crate) fn folded(&mut self, fold: &Fold, out: Id) -> Option<()> {
        let (operand, types) = (self.concrete(fold.operand)?, self.facts(out).types.clone());
        let bottom = fold.path.last()?.children[0];
        let under = self.under(operand, fold.path);
        let at = under.or_else(|| self.concrete(bottom))?;
        let mut nested = at;
        let mut classes = vec![fold.operand];
        classes.extend(fold.path.iter().map(|n| n.children[0]));
        for (node, class) in fold.path.iter().zip(&classes).rev() {
            let types = self.facts(*class).types.clone();
            nested = self.history.as_mut()?.store.add(node.head, node.key.clone(), vec![nested], types);
        }
        let store = &mut self.history.as_mut()?.store;
        let (head, key) = fold.asked.clone();
        let asked = store.add(head, key.clone(), vec![operand], types.clone());
        let after = match &fold.left {
            Some((head, key)) => store.add(*head, key.clone(), vec![at], types.clone()),
            None => at,
        };
        let result = if under.is_some() {
            after
        } else {
            let before = store.add(head, key, vec![nested], types);
            self.history.as_mut()?.event(fold.rule, before, after);
            asked
        };
        self.register(out, result);
        Some(())
    }

    /// What is under the views of `path` in a term that begins with them.
    fn under(&self, term: TermId, path: &[Term]) -> Option<TermId> {
        let h = self.history.as_ref()?;
        path.iter().try_fold(term, |term, view| {
            let node = h.store.node(term);
            let child = *node.children.first()?;
            let same = node.head == view.head && node.key == view.key;
            let class = self.eg.find(*h.class.get(&child)?);
            (same && class == self.eg.find(view.children[0])).then_some(child)
        })
    }
}
