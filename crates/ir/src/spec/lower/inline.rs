//! Calls of graphs: their bodies become part of the caller, in a scope of their own.

use super::call::{CallState, Target};
use super::scope::{CallId, FileScope, ScopeId, Slot, Val, join};
use super::{Lower, Reported, Res};
use crate::diag::{Diagnostic, Span, codes};
use crate::spec::ast::GraphDecl;
use crate::spec::expr::{Expr, Ident};
use crate::spec::statics::Static;
use std::collections::BTreeMap;

impl<'a> Lower<'a> {
    pub(super) fn call_graph(
        &mut self,
        scope: ScopeId,
        target: Target<'a>,
        args: &'a [Expr],
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Res<Val> {
        if self.call_sites.len() >= super::MAX_DEPTH {
            let d = Diagnostic::error(codes::RECURSION, span, "calls nest too deeply; a graph cannot call itself");
            return Err(self.report(d));
        }
        let node = self.node_stack.last().cloned();
        let (path, weights) = match &node {
            Some(n) => (n.path.clone(), n.weights.clone()),
            None => (self.scopes[scope.0].path.clone(), self.scopes[scope.0].weights.clone()),
        };
        let (file_scope, graph, weights) = match target {
            Target::Local(g, file_scope) => (file_scope, g, weights),
            Target::Import(file, name) => {
                let values = self.import_values(scope, file, name)?;
                let Some(g) = &self.files.list[file].main else {
                    let d = Diagnostic::error(
                        codes::UNKNOWN_FUNCTION,
                        span,
                        format!("`{name}` has no nodes of its own to call"),
                    );
                    return Err(self.report(d));
                };
                let s = &self.scopes[scope.0];
                let request = FileScope {
                    file,
                    values: &values,
                    path: path.clone(),
                    weights: weights.clone(),
                    region: s.region,
                    loops: s.loops.clone(),
                };
                let fs = self.file_scope(request);
                self.scopes[fs.0].serial = self.scopes[scope.0].serial;
                (fs, g, weights)
            }
            Target::Component(name, sub) => self.component_target(scope, name, sub, kwargs, span)?,
        };
        if let Some(i) = self.active.iter().position(|g| std::ptr::eq(*g, graph)) {
            let mut d = Diagnostic::error(codes::RECURSION, span, format!("graph `{}` calls itself", graph.name.name));
            d = d.related(graph.name.span, "declared here");
            for g in self.active[i + 1..].iter().take(4) {
                d = d.related(g.name.span, format!("by way of `{}`", g.name.name));
            }
            return Err(self.report(d.help("`repeat` and `scan` do something several times")));
        }
        if self.calls.len() >= super::MAX_CALLS {
            if std::mem::replace(&mut self.full, true) {
                return Err(Reported);
            }
            let d = Diagnostic::error(
                codes::UNSUPPORTED,
                span,
                format!("more than {} calls of graphs in one function", super::MAX_CALLS),
            )
            .help("calls are inlined; a `repeat` loop keeps one body for many layers");
            return Err(self.report(d));
        }
        let has_weights = !graph.weights.is_empty()
            || matches!(self.scopes[file_scope.0].file, Some(f) if !self.files.list[f].weights.is_empty() && self.scopes[file_scope.0].weights == weights);
        if has_weights && !self.is_component_path(&weights) {
            let key = format!("{weights}|{:?}", self.scopes[scope.0].region);
            if let Some(first) = self.weighted_calls.get(&key).copied().filter(|s| *s != span) {
                let d = Diagnostic::error(
                    codes::BAD_CALL,
                    span,
                    format!("two calls would share the weights `{weights}.*`"),
                )
                .related(first, "the other call")
                .help("give each call a node of its own");
                return Err(self.report(d));
            }
            self.weighted_calls.insert(key, span);
        }
        let region = self.scopes[scope.0].region;
        let callee = self.graph_scope(graph, file_scope, region, path, Some(weights));
        self.scopes[callee.0].loops = self.scopes[scope.0].loops.clone();
        self.scopes[callee.0].serial = self.scopes[scope.0].serial;
        self.bind_inputs(scope, callee, file_scope, graph, args, kwargs, span)?;
        self.call_sites.push(span);
        self.active.push(graph);
        let opened = self.open.len();
        self.run_effects(callee);
        if self.exhaustive {
            self.lower_all(callee);
        }
        self.lower_wanted(callee);
        self.close_states(region, opened);
        self.active.pop();
        self.call_sites.pop();
        self.calls.push(CallState { graph, scope: callee, done: BTreeMap::new() });
        let id = CallId(self.calls.len() - 1);
        if self.exhaustive {
            for o in graph.outputs.iter().chain(&graph.expose) {
                let _ = self.call_output(id, o);
            }
        }
        Ok(Val::Call(id))
    }

    fn is_component_path(&self, weights: &str) -> bool {
        let mut parts = weights.split('.');
        let (first, second, rest) = (parts.next(), parts.next(), parts.next());
        rest.is_none()
            && first.is_some_and(|c| {
                self.around.component(c).is_some() && second.is_none_or(|g| self.component_has_graph(c, g))
            })
    }

    fn component_has_graph(&self, component: &str, graph: &str) -> bool {
        self.around
            .component(component)
            .is_some_and(|c| self.files.list[c.file].graphs.iter().any(|g| g.name.name == graph))
    }

    pub(super) fn component_target(
        &mut self,
        scope: ScopeId,
        name: &'a str,
        sub: Option<&'a Ident>,
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Res<(ScopeId, &'a GraphDecl, String)> {
        let Some(c) = self.around.component(name) else { return Err(Reported) };
        let (file, mut values) = (c.file, c.values.clone());
        let f = &self.files.list[file];
        let graph = match sub {
            None => f.main.as_ref(),
            Some(sub) => f.graphs.iter().find(|g| g.name.name == sub.name),
        };
        let Some(graph) = graph else {
            let at = sub.map_or(span, |s| s.span);
            let known: Vec<&str> = f.graphs.iter().map(|g| g.name.name.as_str()).collect();
            let mut d = match sub {
                Some(s) => Diagnostic::error(
                    codes::UNKNOWN_FUNCTION,
                    at,
                    format!("component `{name}` has no graph `{}`", s.name),
                ),
                None => Diagnostic::error(
                    codes::UNKNOWN_FUNCTION,
                    at,
                    format!("component `{name}` has no nodes of its own to call"),
                ),
            };
            if !known.is_empty() {
                d = d.help(format!("its graphs: {}", known.join(", ")));
            }
            return Err(self.report(d));
        };
        let is_param = |k: &str| f.params.iter().any(|p| p.name.name == k) || f.lists.iter().any(|l| l.name.name == k);
        let mut overridden = false;
        for (k, e) in kwargs.iter().filter(|(k, _)| is_param(&k.name)) {
            match self.expr(scope, e)? {
                Val::Static(s) => {
                    values.insert(k.name.clone(), s);
                    overridden = true;
                }
                Val::Unbound => overridden = true,
                other => {
                    let what = self.describe(&other);
                    let d = Diagnostic::error(
                        codes::NOT_STATIC,
                        e.span,
                        format!("parameter `{}` must be known before the run, this is {what}", k.name),
                    );
                    return Err(self.report(d));
                }
            }
        }
        let known = if overridden { None } else { self.components.get(name).copied() };
        let fs = match known {
            Some(s) => s,
            None => {
                let region = crate::ir::RegionId(0);
                let request = FileScope {
                    file,
                    values: &values,
                    path: name.to_string(),
                    weights: name.to_string(),
                    region,
                    loops: Vec::new(),
                };
                let s = self.file_scope(request);
                if !overridden {
                    self.components.insert(name.to_string(), s);
                }
                s
            }
        };
        let weights = match sub {
            Some(sub) => join(name, &sub.name),
            None => name.to_string(),
        };
        Ok((fs, graph, weights))
    }

    /// Values an imported file takes over by name from the file that imports it.
    fn import_values(&mut self, scope: ScopeId, file: usize, name: &str) -> Res<BTreeMap<String, Static>> {
        let caller_file = self.scopes[scope.0].file;
        let decl = caller_file.and_then(|f| self.files.list[f].uses.iter().find(|u| u.name.name == name));
        let fs = self.file_scope_of(scope);
        let f = &self.files.list[file];
        let mut values = BTreeMap::new();
        let wanted = f
            .dims
            .iter()
            .map(|d| &d.name)
            .chain(f.lists.iter().map(|l| &l.name))
            .chain(f.params.iter().map(|p| &p.name));
        for want in wanted {
            let set = decl.and_then(|d| d.set.iter().find(|(k, _)| k.name == want.name));
            if let Some((_, e)) = set {
                let s = self.static_of(fs, e)?;
                values.insert(want.name.clone(), s);
                continue;
            }
            match self.scopes[fs.0].names.get(&want.name) {
                Some(Slot::Ready(Val::Static(s))) => {
                    values.insert(want.name.clone(), s.clone());
                }
                Some(Slot::Ready(Val::Unbound)) => {}
                _ => {
                    let at = decl.map_or(want.span, |d| d.name.span);
                    let d = Diagnostic::error(
                        codes::UNBOUND_DIM,
                        at,
                        format!("`{name}` needs `{}`, which has no value here", want.name),
                    )
                    .related(want.span, "declared here")
                    .help(format!(
                        "declare `{}` in this file too, or set it: {{file: ..., set: {{{}: ...}}}}",
                        want.name, want.name
                    ));
                    return Err(self.report(d));
                }
            }
        }
        Ok(values)
    }
}
