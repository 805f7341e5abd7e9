//! What a node needs before it can be lowered, found from the syntax and lowered first.
//!
//! A long chain of nodes is thereby walked with a list of its own instead of the call stack, and a cycle is seen as a whole.

use super::Lower;
use super::scope::{NodeState, ScopeId, Slot};
use crate::diag::{Diagnostic, codes};
use crate::spec::ast::{NodeBody, NodeDecl};
use crate::spec::expr::{Expr, ExprKind, IndexKind};

/// A node on the way, with the nodes it still needs.
struct Step<'a> {
    scope: ScopeId,
    decl: &'a NodeDecl,
    needs: Vec<(ScopeId, &'a NodeDecl)>,
}

impl<'a> Lower<'a> {
    /// Lowers every node that `decl` certainly needs; nodes of a cycle are reported and marked as failed.
    pub(crate) fn prepare(&mut self, scope: ScopeId, decl: &'a NodeDecl) {
        let mut way = vec![self.step(scope, decl)];
        while let Some(top) = way.last_mut() {
            if let Some((s, d)) = top.needs.pop() {
                if !self.is_new(s, d) {
                    continue;
                }
                match way.iter().position(|w| w.scope == s && std::ptr::eq(w.decl, d)) {
                    Some(first) => {
                        let cycle: Vec<_> = way[first..].iter().map(|w| (w.scope, w.decl)).collect();
                        self.cycle(&cycle);
                    }
                    None => way.push(self.step(s, d)),
                }
                continue;
            }
            let Some(done) = way.pop() else { break };
            if !way.is_empty() {
                let _ = self.name(done.scope, &done.decl.name.name, done.decl.name.span);
            }
        }
    }

    fn is_new(&self, scope: ScopeId, decl: &NodeDecl) -> bool {
        matches!(self.scopes[scope.0].names.get(&decl.name.name), Some(Slot::Node(_, NodeState::New)))
    }

    fn step(&self, scope: ScopeId, decl: &'a NodeDecl) -> Step<'a> {
        let mut names: Vec<&str> = Vec::new();
        match &decl.body {
            NodeBody::Value(e, _) => needed(e, &mut names),
            NodeBody::Loop(l) => {
                needed(&l.extent, &mut names);
                l.carry.iter().for_each(|(_, e)| needed(e, &mut names));
            }
            // Which case is taken is not known yet.
            NodeBody::Match(m) => needed(&m.on, &mut names),
        }
        let mut needs: Vec<(ScopeId, &'a NodeDecl)> = Vec::new();
        // They are taken from the end: the first one named is lowered first.
        for name in names.into_iter().rev() {
            let Some(at) = self.find(scope, name) else { continue };
            if let Some(Slot::Node(d, NodeState::New)) = self.scopes[at.0].names.get(name) {
                needs.push((at, d));
            }
        }
        Step { scope, decl, needs }
    }

    fn cycle(&mut self, cycle: &[(ScopeId, &'a NodeDecl)]) {
        for (scope, decl) in cycle {
            self.scopes[scope.0].names.insert(decl.name.name.clone(), Slot::Node(decl, NodeState::Failed));
        }
        // The report does not depend on which node of the cycle was asked for.
        let first = (0..cycle.len()).min_by_key(|i| cycle[*i].1.name.span).unwrap_or(0);
        let names: Vec<&str> =
            (0..=cycle.len()).map(|i| cycle[(first + i) % cycle.len()].1.name.name.as_str()).collect();
        let decl = cycle[first].1;
        let text = match cycle.len() {
            1 => format!("node `{}` needs its own value", decl.name.name),
            _ => format!("nodes need each other's values: {}", names.join(" needs ")),
        };
        let mut d = Diagnostic::error(codes::CYCLE, decl.name.span, text);
        for i in 1..cycle.len().min(5) {
            let other = cycle[(first + i) % cycle.len()].1;
            d = d.related(other.name.span, format!("`{}` is part of it", other.name.name));
        }
        self.report(d.help("values that change from one iteration to the next are carried by a loop"));
    }
}

/// The names whose values an expression needs in any case, in the order they stand. Names of functions, and words that are
/// no values where they stand, are left out.
fn needed<'e>(e: &'e Expr, out: &mut Vec<&'e str>) {
    match &e.kind {
        ExprKind::Name(n) => out.push(n),
        ExprKind::Call { callee, args, kwargs } => {
            if !matches!(callee.kind, ExprKind::Name(_)) {
                needed(callee, out);
            }
            args.iter().for_each(|a| needed(a, out));
            let words = ["dtype", "acc", "purpose"];
            kwargs.iter().filter(|(k, _)| !words.contains(&k.name.as_str())).for_each(|(_, a)| needed(a, out));
        }
        ExprKind::Attr(base, _) => needed(base, out),
        ExprKind::Unary(_, x) => needed(x, out),
        ExprKind::Binary(_, a, b) => {
            needed(a, out);
            needed(b, out);
        }
        ExprKind::List(items) => items.iter().for_each(|i| needed(i, out)),
        ExprKind::Index(base, items) => {
            needed(base, out);
            for i in items {
                match &i.kind {
                    IndexKind::At(e) => needed(e, out),
                    IndexKind::Slice(a, b) => a.iter().chain(b).for_each(|e| needed(e, out)),
                    IndexKind::NewAxis | IndexKind::Ellipsis => {}
                }
            }
        }
        _ => {}
    }
}
