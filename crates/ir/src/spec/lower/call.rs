//! Calls: registry ops, functions of the language, methods of states, graphs of this file, imports, components.

use super::emit::Arg;
use super::scope::{CallId, ScopeId, Val, join};
use super::{Lower, Reported, Res, effects};
use crate::diag::{Diagnostic, Span, codes, suggest};
use crate::ops::{OPS, Opcode};
use crate::spec::ast::GraphDecl;
use crate::spec::expr::{Expr, ExprKind, Ident};
use std::collections::BTreeMap;

/// A call of a graph, its results lowered on demand.
pub(crate) struct CallState<'a> {
    pub graph: &'a GraphDecl,
    pub scope: ScopeId,
    pub done: BTreeMap<String, Val>,
}

/// What a call names.
pub(super) enum Target<'a> {
    /// A graph of this file; `file_scope` is where its weights and dims are.
    Local(&'a GraphDecl, ScopeId),
    /// The graph of an imported file.
    Import(usize, &'a str),
    /// A component of the system, and possibly a graph of it.
    Component(&'a str, Option<&'a Ident>),
}

impl<'a> Lower<'a> {
    pub(crate) fn call(
        &mut self,
        scope: ScopeId,
        callee: &'a Expr,
        args: &'a [Expr],
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Res<Val> {
        match &callee.kind {
            ExprKind::Name(name) => {
                if let Some(target) = self.graph_named(scope, name)? {
                    return self.call_graph(scope, target, args, kwargs, span);
                }
                if let Some(r) = self.static_call(scope, name, args, span) {
                    return r;
                }
                if let Some(r) = self.sugar(scope, name, args, kwargs, span) {
                    return r;
                }
                match OPS.iter().find(|d| d.callable && d.name == name) {
                    Some(def) => self.builtin(scope, def, None, args, kwargs, span),
                    None => Err(self.unknown_function(scope, name, callee.span)),
                }
            }
            ExprKind::Attr(base, method) => {
                if let ExprKind::Name(component) = &base.kind
                    && self.scopes[scope.0].file.is_none()
                    && self.around.component(component).is_some()
                {
                    return self.call_graph(scope, Target::Component(component, Some(method)), args, kwargs, span);
                }
                self.method(scope, base, method, args, kwargs, span)
            }
            _ => {
                let d = Diagnostic::error(codes::UNKNOWN_FUNCTION, callee.span, "this cannot be called");
                Err(self.report(d))
            }
        }
    }

    /// A method of a state.
    fn method(
        &mut self,
        scope: ScopeId,
        base: &'a Expr,
        method: &'a Ident,
        args: &'a [Expr],
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Res<Val> {
        let code = match method.name.as_str() {
            "write" => Opcode::KvWrite,
            "causal" => Opcode::CausalConv,
            "gated_delta_rule" => Opcode::DeltaRule,
            other => {
                let known = ["write", "causal", "gated_delta_rule"];
                let mut d =
                    Diagnostic::error(codes::UNKNOWN_FUNCTION, method.span, format!("a state has no method `{other}`"));
                d = match suggest(other, known) {
                    Some(near) => d.help(format!("did you mean `{near}`?")),
                    None => d.help("kv.write(...), conv.causal(...), delta.gated_delta_rule(...)"),
                };
                return Err(self.report(d));
            }
        };
        let version = match self.expr(scope, base)? {
            Val::State(v) => v,
            Val::StateArray(id) => self.open_state(scope, id, None, base.span)?,
            other => {
                let what = self.describe(&other);
                let d = Diagnostic::error(
                    codes::STATE_MISUSE,
                    base.span,
                    format!("`{}` is a method of a state, this is {what}", method.name),
                );
                return Err(self.report(d));
            }
        };
        self.check_consumable(scope, &version, span)?;
        let receiver = Arg { id: version.id, used: base.span, defined: version.span };
        let v = self.builtin(scope, code.def(), Some(receiver), args, kwargs, span)?;
        let (value, next) = match v {
            Val::Record(fields) => {
                let mut fields = fields.into_iter();
                let value = fields.next().map(|(_, v)| v);
                let next = fields.next().map(|(_, v)| v);
                (value, next)
            }
            other => (None, Some(other)),
        };
        let Some(Val::Tensor(next)) = next else { return Err(Reported) };
        let next = self.advance_state(version, next.id, span);
        Ok(value.unwrap_or(Val::State(next)))
    }

    /// The graph of that name; an import that could not be read was reported.
    fn graph_named(&self, scope: ScopeId, name: &'a str) -> Res<Option<Target<'a>>> {
        let file = self.scopes[scope.0].file;
        if let Some(file) = file {
            let f = &self.files.list[file];
            if let Some(g) = f.graphs.iter().find(|g| g.name.name == name) {
                return Ok(Some(Target::Local(g, self.file_scope_of(scope))));
            }
            if f.uses.iter().any(|u| u.name.name == name) {
                return self.files.imports[file].get(name).map(|i| Some(Target::Import(*i, name))).ok_or(Reported);
            }
        } else if self.around.component(name).is_some() {
            return Ok(Some(Target::Component(name, None)));
        }
        Ok(None)
    }

    /// The outermost scope around `scope`.
    pub(super) fn file_scope_of(&self, mut scope: ScopeId) -> ScopeId {
        while let Some(p) = self.scopes[scope.0].parent {
            scope = p;
        }
        scope
    }

    /// True if the name can be called here.
    pub(crate) fn callable(&self, scope: ScopeId, name: &str) -> bool {
        let file = self.scopes[scope.0].file.map(|f| &self.files.list[f]);
        OPS.iter().any(|d| d.callable && d.name == name)
            || super::sugar::SUGAR.iter().any(|s| s.0 == name)
            || file.is_some_and(|f| {
                f.graphs.iter().any(|g| g.name.name == name) || f.uses.iter().any(|u| u.name.name == name)
            })
    }

    fn unknown_function(&mut self, scope: ScopeId, name: &str, span: Span) -> Reported {
        let mut known: Vec<String> = OPS.iter().filter(|d| d.callable).map(|d| d.name.to_string()).collect();
        known.extend(super::sugar::SUGAR.iter().map(|s| s.0.to_string()));
        match self.scopes[scope.0].file.map(|f| &self.files.list[f]) {
            Some(f) => {
                known.extend(f.graphs.iter().map(|g| g.name.name.clone()));
                known.extend(f.uses.iter().map(|u| u.name.name.clone()));
            }
            None => known.extend(self.around.components().iter().map(|s| s.to_string())),
        }
        let mut d = Diagnostic::error(codes::UNKNOWN_FUNCTION, span, format!("there is no function or graph `{name}`"));
        if let Some(near) = suggest(name, known.iter().map(String::as_str)) {
            d = d.help(format!("did you mean `{near}`?"));
        }
        self.report(d)
    }

    /// A result or exposed value of a call.
    pub(crate) fn call_field(&mut self, call: CallId, field: &'a Ident) -> Res<Val> {
        let graph = self.calls[call.0].graph;
        if let Some(v) = self.calls[call.0].done.get(&field.name) {
            return Ok(v.clone());
        }
        match graph.outputs.iter().chain(&graph.expose).find(|o| o.name.name == field.name) {
            Some(o) => self.call_output(call, o),
            None => {
                let known = graph.outputs.iter().chain(&graph.expose).map(|o| o.name.name.as_str()).collect();
                Err(self.no_field(field, known))
            }
        }
    }

    pub(super) fn call_output(&mut self, call: CallId, o: &'a crate::spec::ast::OutputDecl) -> Res<Val> {
        let scope = self.calls[call.0].scope;
        let v = self.expr(scope, &o.value)?;
        let v = match v {
            Val::Static(s) => Val::Tensor(self.materialize(scope, &s, None, o.value.span)?),
            v => self.finish(scope, v, o.value.span)?,
        };
        // A node of that name is what the path means.
        if self.calls[call.0].graph.nodes.iter().all(|n| n.name.name != o.name.name) {
            let path = join(&self.scopes[scope.0].path, &o.name.name);
            self.name_value(&v, &path);
        }
        self.calls[call.0].done.insert(o.name.name.clone(), v.clone());
        Ok(v)
    }

    /// The result of a call that has exactly one.
    pub(crate) fn only_output(&mut self, call: CallId) -> Res<Option<Val>> {
        let graph = self.calls[call.0].graph;
        match graph.outputs.as_slice() {
            [only] => {
                if let Some(v) = self.calls[call.0].done.get(&only.name.name) {
                    return Ok(Some(v.clone()));
                }
                self.call_output(call, only).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Lowers, in file order, the nodes of a scope that advance a state.
    pub(crate) fn run_effects(&mut self, scope: ScopeId) {
        for decl in self.scopes[scope.0].nodes.clone() {
            if effects::node_has_effect(self.files, self.around, self.scopes[scope.0].file, decl) {
                let _ = self.name(scope, &decl.name.name, decl.name.span);
            }
        }
    }
}
