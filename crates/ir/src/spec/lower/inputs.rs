//! Arguments of a call of a graph: bound by place and name, symbols found from shapes, types checked.

use super::scope::{ScopeId, Slot, Tv, Val};
use super::{Lower, Reported, Res};
use crate::diag::{Diagnostic, Span, codes, suggest};
use crate::spec::ast::{GraphDecl, InputDecl, SymbolDecl};
use crate::spec::expr::{Expr, ExprKind, Ident, TypeKind};
use crate::spec::statics::Static;
use crate::ty::{Dim, TensorType};
use std::collections::BTreeMap;

impl<'a> Lower<'a> {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn bind_inputs(
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
