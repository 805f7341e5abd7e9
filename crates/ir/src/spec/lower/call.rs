//! Calls: registry ops, functions of the language, methods of states, graphs of this file, imports, components.

use super::emit::Arg;
use super::scope::{CallId, FileScope, ScopeId, Slot, Tv, Val, join};
use super::{Lower, Reported, Res, effects};
use crate::diag::{Diagnostic, Span, codes, suggest};
use crate::ops::{OPS, Opcode};
use crate::spec::ast::{GraphDecl, InputDecl, SymbolDecl};
use crate::spec::expr::{Expr, ExprKind, Ident, TypeKind};
use crate::spec::statics::Static;
use crate::ty::{Dim, TensorType};
use std::collections::BTreeMap;

/// A call of a graph, its results lowered on demand.
pub(crate) struct CallState<'a> {
    pub graph: &'a GraphDecl,
    pub scope: ScopeId,
    pub done: BTreeMap<String, Val>,
}

/// What a call names.
enum Target<'a> {
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
    fn file_scope_of(&self, mut scope: ScopeId) -> ScopeId {
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

    fn call_graph(
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

    fn component_target(
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

    #[allow(clippy::too_many_arguments)]
    fn bind_inputs(
        &mut self,
        site: ScopeId,
        callee: ScopeId,
        file_scope: ScopeId,
        graph: &'a GraphDecl,
        args: &'a [Expr],
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Res<()> {
        // Call order counts state inputs in the places they were declared.
        let mut order: Vec<(usize, &'a Ident, Option<&'a InputDecl>)> = Vec::new();
        let states: Vec<usize> = graph.state_inputs.iter().map(|(_, p)| *p).collect();
        let mut free = (0..).filter(|p| !states.contains(p));
        for input in &graph.inputs {
            order.push((free.next().unwrap_or(usize::MAX), &input.name, Some(input)));
        }
        order.extend(graph.state_inputs.iter().map(|(n, p)| (*p, n, None)));
        order.sort_by_key(|(p, _, _)| *p);
        let mut given: BTreeMap<&str, &'a Expr> = BTreeMap::new();
        for (i, e) in args.iter().enumerate() {
            match order.get(i) {
                Some((_, name, _)) => {
                    given.insert(&name.name, e);
                }
                None => {
                    let d = Diagnostic::error(
                        codes::BAD_CALL,
                        e.span,
                        format!("`{}` takes {} inputs", graph.name.name, order.len()),
                    )
                    .related(graph.name.span, "declared here")
                    .help(usage(graph, &order));
                    return Err(self.report(d));
                }
            }
        }
        let file = self.scopes[file_scope.0].file;
        for (k, e) in kwargs {
            if order.iter().any(|(_, n, _)| n.name == k.name) {
                if given.insert(&k.name, e).is_some() {
                    let d = Diagnostic::error(codes::BAD_CALL, k.span, format!("input `{}` is given twice", k.name));
                    return Err(self.report(d));
                }
                continue;
            }
            let is_param = file.is_some_and(|f| {
                let f = &self.files.list[f];
                f.params.iter().any(|p| p.name.name == k.name) || f.lists.iter().any(|l| l.name.name == k.name)
            });
            if !is_param {
                let mut d = Diagnostic::error(
                    codes::BAD_CALL,
                    k.span,
                    format!("`{}` has no input `{}`", graph.name.name, k.name),
                )
                .related(graph.name.span, "declared here");
                d = match suggest(&k.name, order.iter().map(|(_, n, _)| n.name.as_str())) {
                    Some(near) => d.help(format!("did you mean `{near}`?")),
                    None => d.help(usage(graph, &order)),
                };
                return Err(self.report(d));
            }
        }
        let mut bound: Vec<(&'a InputDecl, Tv, Span)> = Vec::new();
        let mut failed = false;
        for (_, name, input) in &order {
            let Some(e) = given.get(name.name.as_str()).copied() else {
                let d = Diagnostic::error(
                    codes::BAD_CALL,
                    span,
                    format!("`{}` needs input `{}`", graph.name.name, name.name),
                )
                .related(name.span, "declared here")
                .help(usage(graph, &order));
                self.report(d);
                failed = true;
                continue;
            };
            let Ok(v) = self.expr(site, e) else {
                failed = true;
                continue;
            };
            match input {
                None => match v {
                    Val::State(s) => self.scopes[callee.0].define(&name.name, Val::State(s)),
                    Val::StateArray(id) => match self.open_state(site, id, None, e.span) {
                        Ok(s) => self.scopes[callee.0].define(&name.name, Val::State(s)),
                        Err(_) => failed = true,
                    },
                    other => {
                        let what = self.describe(&other);
                        let d = Diagnostic::error(
                            codes::STATE_MISUSE,
                            e.span,
                            format!("input `{}` is a state, this is {what}", name.name),
                        )
                        .related(name.span, "declared here");
                        self.report(d);
                        failed = true;
                    }
                },
                Some(input) => {
                    let tv = match &v {
                        Val::Static(s) => {
                            let s = s.clone();
                            self.materialize(site, &s, self.declared_dtype(input), e.span)
                        }
                        _ => self.tensor_of(site, v, e.span),
                    };
                    match tv {
                        Ok(tv) => {
                            let tv = self.round(site, tv);
                            bound.push((input, tv, e.span));
                        }
                        Err(_) => failed = true,
                    }
                }
            }
        }
        let of_file: &'a [SymbolDecl] = file.map_or(&[], |f| &self.files.list[f].symbols);
        let symbols: Vec<&'a SymbolDecl> = of_file.iter().chain(&graph.symbols).collect();
        self.unify(callee, &bound, &symbols);
        if self.check_symbols(callee, file_scope, &bound, &symbols).is_err() {
            failed = true;
        }
        for (input, tv, used) in bound {
            if self.check_input(callee, input, tv, used).is_err() {
                failed = true;
            }
            self.scopes[callee.0].define(&input.name.name, Val::Tensor(tv));
        }
        if failed { Err(Reported) } else { Ok(()) }
    }

    fn declared_dtype(&self, input: &InputDecl) -> Option<crate::ty::DType> {
        match &input.ty.as_ref()?.kind {
            TypeKind::Tensor { dtype: Some(d), .. } => {
                crate::ty::DType::from_name(&d.name).map(|d| self.module.numerics.apply(d))
            }
            _ => None,
        }
    }

    /// Gives every symbol the extent at the first place where it stands alone in the type of an input.
    fn unify(&mut self, callee: ScopeId, bound: &[(&'a InputDecl, Tv, Span)], symbols: &[&'a SymbolDecl]) {
        for (input, tv, _) in bound {
            let Some(TypeKind::Tensor { dims, .. }) = input.ty.as_ref().map(|t| &t.kind) else { continue };
            let have = self.tensor_type(tv.id);
            if have.rank() != dims.len() {
                continue;
            }
            for (d, extent) in dims.iter().zip(&have.dims) {
                if let ExprKind::Name(name) = &d.kind
                    && symbols.iter().any(|s| s.name.name == *name)
                    && !self.scopes[callee.0].names.contains_key(name)
                {
                    self.scopes[callee.0].define(name, Val::Static(Static::Int(extent.clone())));
                }
            }
        }
    }

    /// What a symbol stands for must lie within the bounds it is declared with.
    fn check_symbols(
        &mut self,
        callee: ScopeId,
        file_scope: ScopeId,
        bound: &[(&'a InputDecl, Tv, Span)],
        symbols: &[&'a SymbolDecl],
    ) -> Res<()> {
        let mut ok = Ok(());
        for symbol in symbols {
            let Some(Slot::Ready(Val::Static(Static::Int(extent)))) =
                self.scopes[callee.0].names.get(&symbol.name.name)
            else {
                continue;
            };
            let extent = extent.clone();
            let limits = self.symbol_bounds(file_scope, symbol);
            let known = |name: &str| self.symbols.get(name).copied().unwrap_or_default();
            let have = extent.bounds(&known);
            let below = limits.min.zip(have.max).is_some_and(|(least, most)| most < least);
            let above = limits.max.zip(have.min).is_some_and(|(most, least)| least > most);
            // A run-time extent may also leave the bounds for some calls only.
            let sometimes = extent.as_const().is_none()
                && limits
                    .max
                    .is_some_and(|most| !self.symbolic && !self.exhaustive && have.max.is_none_or(|m| m > most));
            if !(below || above || sometimes) {
                continue;
            }
            let at = bound
                .iter()
                .find(|(i, ..)| mentions_symbol(i, &symbol.name.name))
                .map(|(_, tv, used)| (tv.span, *used));
            let (made, used) = at.unwrap_or((symbol.name.span, symbol.name.span));
            let shown = crate::spec::ast::describe_bounds(limits);
            let mut d = Diagnostic::error(
                codes::BOUNDS,
                used,
                format!("`{}` is {shown} in this graph, here it is {extent}", symbol.name.name),
            )
            .related(symbol.name.span, "declared here");
            if made != used {
                d = d.related(made, "the value");
            }
            if sometimes {
                d = d.help(format!("{extent} is {}", crate::spec::ast::describe_bounds(have)));
            }
            ok = Err(self.report(d));
        }
        ok
    }

    fn check_input(&mut self, callee: ScopeId, input: &'a InputDecl, tv: Tv, used: Span) -> Res<()> {
        let Some(ty) = &input.ty else { return Ok(()) };
        let want = self.type_of(callee, ty)?;
        let any = matches!(&ty.kind, TypeKind::Tensor { dtype: None, .. });
        let have = self.tensor_type(tv.id);
        let name = &input.name.name;
        // What another phase makes is at fault where it is made.
        let (used, needed) = match self.wired.get(&tv.id) {
            Some(made) => (*made, Some(used)),
            None => (used, None),
        };
        let explain = |d: Diagnostic| {
            let d = d.related(ty.span, format!("input `{name}` is {want}"));
            let d = match needed {
                Some(at) => d.related(at, "needed here"),
                None => d,
            };
            if tv.span == used { d } else { d.related(tv.span, format!("this is {have}")) }
        };
        if have.dims != want.dims {
            let code = if have.rank() == want.rank() { codes::DIM_MISMATCH } else { codes::RANK_MISMATCH };
            let shown = |t: &TensorType| t.dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
            let d = explain(Diagnostic::error(
                code,
                used,
                format!("input `{name}` needs [{}], this is [{}]", shown(&want), shown(&have)),
            ));
            return Err(self.report(d));
        }
        let fits = if any {
            have.dtype.is_float()
        } else {
            have.dtype == want.dtype || (have.dtype.is_float() && want.dtype.is_float())
        };
        if !fits {
            let d = explain(Diagnostic::error(
                codes::DTYPE_MISMATCH,
                used,
                format!("input `{name}` needs {want}, this is {have}"),
            ));
            return Err(self.report(d));
        }
        if want.dist && !have.dist {
            let d = explain(
                Diagnostic::error(
                    codes::NOT_A_LAW,
                    used,
                    format!("input `{name}` is the law its proposals were drawn from, this is {have}"),
                )
                .help("pass the distribution the tail sampled with: the result of softmax, sampling_law or one_hot"),
            );
            return Err(self.report(d));
        }
        Ok(())
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

    fn call_output(&mut self, call: CallId, o: &'a crate::spec::ast::OutputDecl) -> Res<Val> {
        let scope = self.calls[call.0].scope;
        let v = self.expr(scope, &o.value)?;
        let v = match v {
            Val::Static(s) => Val::Tensor(self.materialize(scope, &s, None, o.value.span)?),
            v => self.finish(scope, v, o.value.span)?,
        };
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

/// True if an input has an axis that is the symbol alone.
fn mentions_symbol(input: &InputDecl, name: &str) -> bool {
    let Some(TypeKind::Tensor { dims, .. }) = input.ty.as_ref().map(|t| &t.kind) else { return false };
    dims.iter().any(|d| matches!(&d.kind, ExprKind::Name(n) if n == name))
}

/// How a graph is called.
fn usage(graph: &GraphDecl, order: &[(usize, &Ident, Option<&InputDecl>)]) -> String {
    let names: Vec<&str> = order.iter().map(|(_, n, _)| n.name.as_str()).collect();
    format!("{}({})", graph.name.name, names.join(", "))
}
