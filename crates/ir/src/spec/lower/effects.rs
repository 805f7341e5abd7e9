//! Which nodes advance a state, from the syntax alone.

use super::{Files, Surroundings};
use crate::spec::ast::{CaseBody, GraphDecl, LoopDecl, NodeBody, NodeDecl};
use crate::spec::expr::{Expr, ExprKind, IndexKind};
use std::collections::{BTreeMap, BTreeSet};

/// Methods that advance a state.
const METHODS: &[&str] = &["write", "causal", "gated_delta_rule"];

/// True if evaluating the node advances a state. `file` is where its names are looked up; `None` is a system file.
pub(crate) fn node_has_effect(files: &Files, around: &dyn Surroundings, file: Option<usize>, node: &NodeDecl) -> bool {
    Search { files, around, known: BTreeMap::new() }.node(file, node)
}

struct Search<'s> {
    files: &'s Files,
    around: &'s dyn Surroundings,
    /// Graphs looked at, by address; a graph that is still being looked at counts as one without effect.
    known: BTreeMap<*const GraphDecl, bool>,
}

impl Search<'_> {
    fn node(&mut self, file: Option<usize>, node: &NodeDecl) -> bool {
        match &node.body {
            NodeBody::Value(e, _) => self.expr(file, e),
            NodeBody::Loop(l) => self.in_loop(file, l),
            NodeBody::Match(m) => m.cases.iter().any(|(_, body)| match body {
                CaseBody::Value(e) => self.expr(file, e),
                CaseBody::Record(fields) => fields.iter().any(|(_, e)| self.expr(file, e)),
            }),
        }
    }

    fn in_loop(&mut self, file: Option<usize>, l: &LoopDecl) -> bool {
        l.nodes.iter().any(|n| self.node(file, n))
            || l.carry.iter().chain(&l.yields).any(|(_, e)| self.expr(file, e))
            || l.keep.iter().any(|k| self.expr(file, &k.value))
    }

    fn graph(&mut self, file: Option<usize>, g: &GraphDecl) -> bool {
        if let Some(known) = self.known.get(&std::ptr::from_ref(g)) {
            return *known;
        }
        self.known.insert(g, false);
        let found = g.nodes.iter().any(|n| self.node(file, n)) || g.outputs.iter().any(|o| self.expr(file, &o.value));
        self.known.insert(g, found);
        found
    }

    fn callee(&mut self, file: Option<usize>, callee: &Expr) -> bool {
        match (&callee.kind, file) {
            (ExprKind::Name(name), Some(f)) => {
                let source = &self.files.list[f];
                if let Some(g) = source.graphs.iter().find(|g| g.name.name == *name) {
                    return self.graph(file, g);
                }
                match self.files.imports[f].get(name) {
                    Some(i) => self.files.list[*i].main.as_ref().is_some_and(|g| self.graph(Some(*i), g)),
                    None => false,
                }
            }
            (ExprKind::Name(name), None) => {
                let Some(c) = self.around.component(name).map(|c| c.file) else { return false };
                self.files.list[c].main.as_ref().is_some_and(|g| self.graph(Some(c), g))
            }
            (ExprKind::Attr(base, method), _) => {
                if METHODS.contains(&method.name.as_str()) {
                    return true;
                }
                let ExprKind::Name(name) = &base.kind else { return false };
                let Some(c) = self.around.component(name).map(|c| c.file) else { return false };
                let found = self.files.list[c].graphs.iter().find(|g| g.name.name == method.name);
                found.is_some_and(|g| self.graph(Some(c), g))
            }
            _ => false,
        }
    }

    fn expr(&mut self, file: Option<usize>, e: &Expr) -> bool {
        match &e.kind {
            ExprKind::Call { callee, args, kwargs } => {
                self.callee(file, callee)
                    || args.iter().any(|a| self.expr(file, a))
                    || kwargs.iter().any(|(_, a)| self.expr(file, a))
                    || matches!(&callee.kind, ExprKind::Attr(base, _) if self.expr(file, base))
            }
            ExprKind::Attr(base, _) => self.expr(file, base),
            ExprKind::Unary(_, x) => self.expr(file, x),
            ExprKind::Binary(_, a, b) => self.expr(file, a) || self.expr(file, b),
            ExprKind::List(items) => items.iter().any(|i| self.expr(file, i)),
            ExprKind::Index(base, items) => {
                self.expr(file, base)
                    || items.iter().any(|i| match &i.kind {
                        IndexKind::At(e) => self.expr(file, e),
                        IndexKind::Slice(a, b) => a.iter().chain(b).any(|e| self.expr(file, e)),
                        IndexKind::NewAxis | IndexKind::Ellipsis => false,
                    })
            }
            _ => false,
        }
    }
}

/// Every name an expression mentions.
pub(crate) fn mentions(e: &Expr, out: &mut BTreeSet<String>) {
    match &e.kind {
        ExprKind::Name(n) => {
            out.insert(n.clone());
        }
        ExprKind::Call { callee, args, kwargs } => {
            mentions(callee, out);
            args.iter().chain(kwargs.iter().map(|(_, e)| e)).for_each(|e| mentions(e, out));
        }
        ExprKind::Attr(base, _) => mentions(base, out),
        ExprKind::Unary(_, x) => mentions(x, out),
        ExprKind::Binary(_, a, b) => {
            mentions(a, out);
            mentions(b, out);
        }
        ExprKind::List(items) => items.iter().for_each(|e| mentions(e, out)),
        ExprKind::Index(base, items) => {
            mentions(base, out);
            for i in items {
                match &i.kind {
                    IndexKind::At(e) => mentions(e, out),
                    IndexKind::Slice(a, b) => a.iter().chain(b).for_each(|e| mentions(e, out)),
                    IndexKind::NewAxis | IndexKind::Ellipsis => {}
                }
            }
        }
        _ => {}
    }
}

/// Every name a node mentions, its own parts included.
pub(crate) fn node_mentions(n: &NodeDecl, out: &mut BTreeSet<String>) {
    match &n.body {
        NodeBody::Value(e, _) => mentions(e, out),
        NodeBody::Loop(l) => {
            mentions(&l.extent, out);
            l.carry.iter().chain(&l.yields).for_each(|(_, e)| mentions(e, out));
            l.nodes.iter().for_each(|n| node_mentions(n, out));
            for k in &l.keep {
                mentions(&k.value, out);
                k.at.iter().chain(&k.axis).for_each(|e| mentions(e, out));
            }
        }
        NodeBody::Match(m) => {
            mentions(&m.on, out);
            for (_, body) in &m.cases {
                match body {
                    CaseBody::Value(e) => mentions(e, out),
                    CaseBody::Record(fields) => fields.iter().for_each(|(_, e)| mentions(e, out)),
                }
            }
        }
    }
}

/// The inputs of a graph that an expression over its nodes depends on.
pub(crate) fn needed_inputs(g: &GraphDecl, e: &Expr) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut todo = BTreeSet::new();
    mentions(e, &mut todo);
    while let Some(name) = todo.pop_first() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if let Some(n) = g.nodes.iter().find(|n| n.name.name == name) {
            node_mentions(n, &mut todo);
        }
    }
    seen.retain(|n| g.inputs.iter().any(|i| i.name.name == *n));
    seen
}
