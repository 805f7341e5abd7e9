//! Choices known before the run: one case for everything, or one per iteration of a loop.

use super::scope::{LoopCtx, ScopeId, Slot, Tv, Val};
use super::{Lower, Reported, Res};
use crate::diag::{Diagnostic, Span, codes, suggest};
use crate::ir::{Attr, Attrs};
use crate::ops::Opcode;
use crate::spec::ast::{CaseBody, ListKind, MatchDecl, ParamKind};
use crate::spec::expr::{Expr, ExprKind};
use crate::spec::statics::Static;
use crate::ty::Type;

impl<'a> Lower<'a> {
    pub(crate) fn match_node(&mut self, scope: ScopeId, m: &'a MatchDecl, span: Span) -> Res<Val> {
        self.check_labels(scope, m)?;
        if let Some(s) = self.quiet_static(scope, &m.on) {
            let case = self.case_of(m, &s)?;
            return self.case_body(scope, &m.cases[case].1);
        }
        let around = &self.scopes[scope.0].loops;
        let mentioned: Vec<LoopCtx> = around.iter().filter(|c| mentions_name(&m.on, &c.var)).cloned().collect();
        if let [first, .., last] = &mentioned[..] {
            let d = Diagnostic::error(
                codes::NOT_STATIC,
                m.on.span,
                format!("a match depends on one loop's index, this on `{}` and `{}`", first.var, last.var),
            )
            .help("put a match on one of them into the cases of a match on the other");
            return Err(self.report(d));
        }
        let Some(ctx) = mentioned.into_iter().next() else {
            return match self.expr(scope, &m.on)? {
                Val::Unbound => self.every_case(scope, m),
                Val::Static(Static::Int(_)) if self.symbolic => self.every_case(scope, m),
                other => {
                    let what = self.describe(&other);
                    let d = Diagnostic::error(
                        codes::NOT_STATIC,
                        m.on.span,
                        format!("a match needs a value known before the run, this is {what}"),
                    )
                    .help("`where(condition, a, b)` chooses during the run");
                    Err(self.report(d))
                }
            };
        };
        if ctx.mask.is_empty() || self.is_unbound(scope, &m.on) {
            return self.every_case(scope, m);
        }
        // Which case each iteration takes; iterations that do not reach this place take none.
        let mut select: Vec<Option<usize>> = Vec::new();
        for (i, reached) in ctx.mask.iter().enumerate() {
            if !reached {
                select.push(None);
                continue;
            }
            let probe = self.child_scope(scope);
            self.scopes[probe.0].define(&ctx.var, Val::Static(Static::from(i as i64)));
            let Some(s) = self.quiet_static(probe, &m.on) else {
                // Evaluating it aloud says what is wrong.
                let v = self.expr(probe, &m.on)?;
                let what = self.describe(&v);
                let d = Diagnostic::error(
                    codes::NOT_STATIC,
                    m.on.span,
                    format!("iteration {i} has no value here, this is {what}"),
                );
                return Err(self.report(d));
            };
            select.push(Some(self.case_of(m, &s)?));
        }
        let mut used: Vec<usize> = select.iter().flatten().copied().collect();
        used.sort_unstable();
        used.dedup();
        match used.as_slice() {
            [] => Ok(Val::Unbound),
            [only] => self.case_body(scope, &m.cases[*only].1),
            _ => self.cases_op(scope, m, &ctx, &select, &used, span),
        }
    }

    fn cases_op(
        &mut self,
        scope: ScopeId,
        m: &'a MatchDecl,
        by: &LoopCtx,
        select: &[Option<usize>],
        used: &[usize],
        span: Span,
    ) -> Res<Val> {
        let mut regions = Vec::new();
        let mut scopes = Vec::new();
        let mut results: Vec<Vec<(String, Tv)>> = Vec::new();
        let mut failed = false;
        for case in used {
            let region = self.func.add_region();
            let inner = self.child_scope(scope);
            self.scopes[inner.0].region = region;
            if let Some(ctx) = self.scopes[inner.0].loops.iter_mut().find(|c| c.id == by.id) {
                ctx.mask = select.iter().map(|s| s == &Some(*case)).collect();
            }
            let opened = self.open.len();
            let v = self.case_body(inner, &m.cases[*case].1);
            let fields = v.and_then(|v| self.case_fields(inner, v, m.cases[*case].0.span));
            self.close_states(region, opened);
            regions.push(region);
            scopes.push(inner);
            match fields {
                Ok(fields) => results.push(fields),
                Err(_) => failed = true,
            }
        }
        if failed {
            return Err(Reported);
        }
        self.promote_cases(&scopes, &mut results);
        let first = &results[0];
        for (k, other) in results.iter().enumerate().skip(1) {
            let same_names = first.len() == other.len() && first.iter().zip(other).all(|(a, b)| a.0 == b.0);
            let clash = first.iter().zip(other).find(|(a, b)| self.func.ty(a.1.id) != self.func.ty(b.1.id));
            if same_names && clash.is_none() {
                continue;
            }
            let (here, there) = (&m.cases[used[k]].0, &m.cases[used[0]].0);
            let text = match clash {
                Some((a, b)) if same_names => {
                    format!(
                        "case `{}` is {}, case `{}` is {}",
                        there.name,
                        self.func.ty(a.1.id),
                        here.name,
                        self.func.ty(b.1.id)
                    )
                }
                _ => {
                    let names = |f: &[(String, Tv)]| f.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(", ");
                    format!(
                        "case `{}` yields ({}), case `{}` yields ({})",
                        there.name,
                        names(first),
                        here.name,
                        names(other)
                    )
                }
            };
            let same_dims = clash.is_some_and(|(a, b)| self.tensor_type(a.1.id).dims == self.tensor_type(b.1.id).dims);
            let code = if same_dims { codes::DTYPE_MISMATCH } else { codes::DIM_MISMATCH };
            let d = Diagnostic::error(code, here.span, text).related(there.span, "the other case");
            return Err(self.report(d));
        }
        let types: Vec<Type> = first.iter().map(|(_, tv)| self.func.ty(tv.id).clone()).collect();
        let names: Vec<(String, Tv)> = first.clone();
        for (region, fields) in regions.iter().zip(&results) {
            self.func.regions[region.index()].yields = fields.iter().map(|(_, tv)| tv.id).collect();
        }
        let place = |case: usize| used.iter().position(|u| *u == case).unwrap_or(0) as i64;
        let list = select.iter().map(|s| s.map_or(0, place)).collect();
        let attrs = Attrs::from([("select", Attr::Ints(list))]);
        let loc = self.loc(span);
        let region = self.scopes[scope.0].region;
        let op = self.func.add_op(region, Opcode::Cases, vec![by.index], attrs, regions, types, loc);
        let ids = self.func.op(op).results.clone();
        let mut out: Vec<(String, Val)> = names
            .into_iter()
            .zip(ids)
            .map(|((n, tv), id)| (n, Val::Tensor(Tv { id, storage: tv.storage, span })))
            .collect();
        if out.len() == 1 && out[0].0.is_empty() {
            return Ok(out.remove(0).1);
        }
        Ok(Val::Record(out))
    }

    /// Where cases yield floats of different dtypes, all take the widest.
    fn promote_cases(&mut self, scopes: &[ScopeId], results: &mut [Vec<(String, Tv)>]) {
        for field in 0..results[0].len() {
            let dtypes = results.iter().map(|r| r.get(field).map(|(_, tv)| self.tensor_type(tv.id).dtype));
            let Some(dtypes) = dtypes.collect::<Option<Vec<_>>>() else { continue };
            if !dtypes.iter().all(|d| d.is_float()) {
                continue;
            }
            let Some(widest) = dtypes.iter().copied().map(Some).reduce(|a, b| a?.promote(b?)).flatten() else {
                continue;
            };
            for (scope, fields) in scopes.iter().zip(results.iter_mut()) {
                let tv = fields[field].1;
                if self.tensor_type(tv.id).dtype != widest {
                    fields[field].1 = self.round(*scope, Tv { storage: widest, ..tv });
                }
            }
        }
    }

    /// The values a case yields: one without a name, or several with names.
    fn case_fields(&mut self, scope: ScopeId, v: Val, span: Span) -> Res<Vec<(String, Tv)>> {
        match v {
            Val::Record(fields) => {
                let mut out = Vec::new();
                for (name, v) in fields {
                    let v = self.finish(scope, v, span)?;
                    out.push((name, self.tensor_of(scope, v, span)?));
                }
                Ok(out)
            }
            Val::Call(call) => {
                let graph = self.call_graph_of(call);
                if graph.outputs.len() == 1 {
                    let tv = self.tensor_of(scope, Val::Call(call), span)?;
                    return Ok(vec![(String::new(), self.round(scope, tv))]);
                }
                let mut out = Vec::new();
                for o in &graph.outputs {
                    let v = self.call_field(call, &o.name)?;
                    out.push((o.name.name.clone(), self.tensor_of(scope, v, span)?));
                }
                Ok(out)
            }
            v => {
                let tv = self.tensor_of(scope, v, span)?;
                Ok(vec![(String::new(), self.round(scope, tv))])
            }
        }
    }

    fn call_graph_of(&self, call: super::scope::CallId) -> &'a crate::spec::ast::GraphDecl {
        self.calls[call.0].graph
    }

    fn case_body(&mut self, scope: ScopeId, body: &'a CaseBody) -> Res<Val> {
        match body {
            CaseBody::Value(e) => {
                let v = self.expr(scope, e)?;
                self.finish(scope, v, e.span)
            }
            CaseBody::Record(fields) => {
                let mut out = Vec::new();
                for (name, e) in fields {
                    let v = self.expr(scope, e)?;
                    let v = self.finish(scope, v, e.span)?;
                    out.push((name.name.clone(), v));
                }
                Ok(Val::Record(out))
            }
        }
    }

    /// In a check without bindings every case is looked at, and the first stands for the result.
    fn every_case(&mut self, scope: ScopeId, m: &'a MatchDecl) -> Res<Val> {
        let mut first = None;
        for (_, body) in &m.cases {
            let inner = self.child_scope(scope);
            self.scopes[inner.0].region = self.func.add_region();
            let opened = self.open.len();
            let v = self.case_body(inner, body);
            self.close_states(self.scopes[inner.0].region, opened);
            first.get_or_insert(v?);
        }
        first.ok_or(Reported)
    }

    fn case_of(&mut self, m: &'a MatchDecl, s: &Static) -> Res<usize> {
        let label = match s {
            Static::Str(s) => s.clone(),
            other => other.to_string(),
        };
        match m.cases.iter().position(|(l, _)| l.name == label) {
            Some(i) => Ok(i),
            None => {
                let d = Diagnostic::error(
                    codes::UNKNOWN_NAME,
                    m.on.span,
                    format!("this can be {label}, and there is no case for it"),
                )
                .help(format!("add a case `{label}:`"));
                Err(self.report(d))
            }
        }
    }

    /// Labels that the matched list or parameter can never have are mistakes.
    fn check_labels(&mut self, scope: ScopeId, m: &'a MatchDecl) -> Res<()> {
        for (i, (label, _)) in m.cases.iter().enumerate() {
            if let Some((first, _)) = m.cases[..i].iter().find(|(l, _)| l.name == label.name) {
                let d = Diagnostic::error(
                    codes::YAML_DUPLICATE_KEY,
                    label.span,
                    format!("case `{}` stands twice", label.name),
                )
                .related(first.span, "first here");
                return Err(self.report(d));
            }
        }
        let name = match &m.on.kind {
            ExprKind::Name(n) => n,
            ExprKind::Index(base, _) => match &base.kind {
                ExprKind::Name(n) => n,
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        let Some(file) = self.scopes[scope.0].file else { return Ok(()) };
        let f = &self.files.list[file];
        let words = f
            .lists
            .iter()
            .filter(|l| l.name.name == *name)
            .find_map(|l| if let ListKind::OneOf(w) = &l.kind { Some(w) } else { None })
            .or_else(|| {
                f.params
                    .iter()
                    .filter(|p| p.name.name == *name)
                    .find_map(|p| if let ParamKind::OneOf(w) = &p.kind { Some(w) } else { None })
            });
        let Some(words) = words else { return Ok(()) };
        for (label, _) in &m.cases {
            if !words.contains(&label.name) {
                let mut d =
                    Diagnostic::error(codes::UNKNOWN_NAME, label.span, format!("`{name}` is never `{}`", label.name));
                d = match suggest(&label.name, words.iter().map(String::as_str)) {
                    Some(near) => d.help(format!("did you mean `{near}`?")),
                    None => d.help(format!("it is one of {}", words.join(", "))),
                };
                return Err(self.report(d));
            }
        }
        Ok(())
    }

    fn is_unbound(&self, scope: ScopeId, e: &Expr) -> bool {
        let mut names = std::collections::BTreeSet::new();
        super::effects::mentions(e, &mut names);
        names.iter().any(|n| {
            self.find(scope, n)
                .is_some_and(|s| matches!(self.scopes[s.0].names.get(n), Some(Slot::Ready(Val::Unbound))))
        })
    }
}

fn mentions_name(e: &Expr, name: &str) -> bool {
    let mut names = std::collections::BTreeSet::new();
    super::effects::mentions(e, &mut names);
    names.contains(name)
}
