//! Functions of the language that stand for several ops.

use super::emit::Arg;
use super::scope::{ScopeId, Tv, Val};
use super::{Lower, Res};
use crate::diag::{Diagnostic, Span, codes};
use crate::ir::{Attr, Attrs};
use crate::ops::Opcode;
use crate::spec::expr::{Expr, ExprKind, Ident, UnaryOp};
use crate::spec::statics::Static;
use crate::ty::Dim;
use std::collections::BTreeMap;

/// Name, signature and meaning of every such function.
pub const SUGAR: &[(&str, &str, &str)] = &[
    ("gather", "gather(table, index)", "Rows of a table by index: take(table, index, axis=0)."),
    ("heads", "heads(x, n)", "The last axis split into n heads: [..., n * w] becomes [..., n, w]."),
    ("flatten", "flatten(x)", "The last two axes merged: [..., n, w] becomes [..., n * w]."),
    (
        "split",
        "split(x, axis=-1, a=2, b=3)",
        "Consecutive parts of an axis by name: s.a, s.b. The widths add up to the extent.",
    ),
];

impl<'a> Lower<'a> {
    /// A call of a function in [`SUGAR`], or of `max`/`min` on two values.
    pub(crate) fn sugar(
        &mut self,
        scope: ScopeId,
        name: &str,
        args: &'a [Expr],
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Option<Res<Val>> {
        match name {
            "gather" => Some(self.gather(scope, args, kwargs, span)),
            "heads" => Some(self.heads(scope, args, kwargs, span)),
            "flatten" => Some(self.flatten(scope, args, kwargs, span)),
            "split" => Some(self.split(scope, args, kwargs, span)),
            "max" | "min" if args.len() == 2 => Some(self.extremum(scope, name, args, kwargs, span)),
            _ => None,
        }
    }

    fn plain<const N: usize>(
        &mut self,
        name: &str,
        args: &'a [Expr],
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Res<&'a [Expr; N]> {
        match (<&[Expr; N]>::try_from(args), kwargs.is_empty()) {
            (Ok(args), true) => Ok(args),
            _ => {
                let help = SUGAR.iter().find(|s| s.0 == name).map_or("", |s| s.1);
                let d = Diagnostic::error(codes::BAD_CALL, span, format!("`{name}` takes {N} arguments")).help(help);
                Err(self.report(d))
            }
        }
    }

    /// An argument as a rounded tensor.
    fn rounded(&mut self, scope: ScopeId, e: &'a Expr) -> Res<Tv> {
        let v = self.expr(scope, e)?;
        let tv = self.tensor_of(scope, v, e.span)?;
        Ok(self.round(scope, tv))
    }

    fn gather(&mut self, scope: ScopeId, args: &'a [Expr], kwargs: &'a [(Ident, Expr)], span: Span) -> Res<Val> {
        let [table, index] = self.plain::<2>("gather", args, kwargs, span)?;
        let (t, i) = (self.rounded(scope, table)?, self.rounded(scope, index)?);
        let attrs = Attrs::from([("axis", Attr::Int(0))]);
        let id = self.emit1(scope, Opcode::Take, &[Arg::of(t, table.span), Arg::of(i, index.span)], attrs, span)?;
        Ok(Val::Tensor(Tv { id, storage: t.storage, span }))
    }

    fn heads(&mut self, scope: ScopeId, args: &'a [Expr], kwargs: &'a [(Ident, Expr)], span: Span) -> Res<Val> {
        let [x, n] = self.plain::<2>("heads", args, kwargs, span)?;
        let tv = self.rounded(scope, x)?;
        let n_heads = self.static_int(scope, n)?;
        let t = self.tensor_type(tv.id);
        let width = t.dims.last().and_then(|d| d.exact_div(&n_heads));
        let Some(width) = width else {
            let d = Diagnostic::error(
                codes::DIM_MISMATCH,
                n.span,
                format!("the last axis of {t} does not divide into {n_heads} heads"),
            )
            .related(tv.span, "the value");
            return Err(self.report(d));
        };
        let mut dims = t.dims[..t.dims.len() - 1].to_vec();
        dims.extend([n_heads, width]);
        let out = self.reshaped(scope, tv, dims, x.span, span)?;
        Ok(Val::Tensor(Tv { span, ..out }))
    }

    fn flatten(&mut self, scope: ScopeId, args: &'a [Expr], kwargs: &'a [(Ident, Expr)], span: Span) -> Res<Val> {
        let [x] = self.plain::<1>("flatten", args, kwargs, span)?;
        let tv = self.rounded(scope, x)?;
        let t = self.tensor_type(tv.id);
        let [lead @ .., a, b] = t.dims.as_slice() else {
            let d = Diagnostic::error(codes::RANK_MISMATCH, x.span, format!("flatten needs two axes, this is {t}"))
                .related(tv.span, "the value");
            return Err(self.report(d));
        };
        let Some(merged) = a.mul(b) else {
            let d = Diagnostic::error(codes::BOUNDS, x.span, "the extent overflows");
            return Err(self.report(d));
        };
        let mut dims = lead.to_vec();
        dims.push(merged);
        let out = self.reshaped(scope, tv, dims, x.span, span)?;
        Ok(Val::Tensor(Tv { span, ..out }))
    }

    fn split(&mut self, scope: ScopeId, args: &'a [Expr], kwargs: &'a [(Ident, Expr)], span: Span) -> Res<Val> {
        let [x] = args else {
            let d = Diagnostic::error(codes::BAD_CALL, span, "`split` takes one value and its parts").help(SUGAR[3].1);
            return Err(self.report(d));
        };
        let v = self.expr(scope, x)?;
        let tv = self.tensor_of(scope, v, x.span)?;
        let t = self.tensor_type(tv.id);
        let mut axis = t.rank().checked_sub(1);
        let mut parts = Vec::new();
        for (name, e) in kwargs {
            if name.name != "axis" {
                parts.push((name, e, self.static_int(scope, e)?));
                continue;
            }
            let a = self.static_int(scope, e)?.as_const();
            axis = a
                .map(|a| if a < 0 { a + t.rank() as i64 } else { a })
                .filter(|a| (0..t.rank() as i64).contains(a))
                .map(|a| a as usize);
            if axis.is_none() {
                let d = Diagnostic::error(codes::BAD_ATTRIBUTE, e.span, format!("{t} has no such axis"));
                return Err(self.report(d));
            }
        }
        let Some(axis) = axis else {
            let d = Diagnostic::error(codes::RANK_MISMATCH, x.span, "a scalar cannot be split");
            return Err(self.report(d));
        };
        let total = parts.iter().try_fold(Dim::from(0), |acc, (_, _, w)| acc.add(w));
        if total.as_ref() != Some(&t.dims[axis]) {
            let sum = total.map_or("an overflow".to_string(), |d| d.to_string());
            let d = Diagnostic::error(
                codes::DIM_MISMATCH,
                span,
                format!("the parts add up to {sum}, axis {axis} of {t} has {}", t.dims[axis]),
            )
            .related(tv.span, "the value");
            return Err(self.report(d));
        }
        let mut start = Dim::from(0);
        let mut out = Vec::new();
        for (name, e, width) in parts {
            let attrs = Attrs::from([
                ("axis", Attr::Int(axis as i64)),
                ("start", Attr::Dim(start.clone())),
                ("len", Attr::Dim(width.clone())),
            ]);
            let ids = self.emit(
                scope,
                Opcode::Slice,
                &[Arg::of(tv, x.span)],
                attrs,
                &BTreeMap::from([("len", e.span)]),
                span,
            )?;
            out.push((name.name.clone(), Val::Tensor(Tv { id: ids[0], ..tv })));
            start = start.add(&width).unwrap_or(start);
        }
        Ok(Val::Record(out))
    }

    fn extremum(
        &mut self,
        scope: ScopeId,
        name: &str,
        args: &'a [Expr],
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Res<Val> {
        if let Some((k, _)) = kwargs.first() {
            let d = Diagnostic::error(
                codes::BAD_CALL,
                k.span,
                format!("`{name}` of two values has no argument `{}`", k.name),
            )
            .help(format!("{name}(x, axis=-1) reduces one value"));
            return Err(self.report(d));
        }
        let (a, b) = (self.expr(scope, &args[0])?, self.expr(scope, &args[1])?);
        if let (Val::Static(x), Val::Static(y)) = (&a, &b) {
            let r = crate::spec::statics::call(name, &[x.clone(), y.clone()]);
            return match r {
                Some(Ok(v)) => Ok(Val::Static(v)),
                Some(Err(e)) => Err(self.static_error(e, span)),
                None => {
                    let d = Diagnostic::error(codes::BAD_CALL, span, format!("`{name}` takes numbers"));
                    Err(self.report(d))
                }
            };
        }
        let (x, y) = self.operand_pair(scope, a, args[0].span, b, args[1].span)?;
        let code = if name == "max" { Opcode::Maximum } else { Opcode::Minimum };
        self.elementwise(scope, code, &[(x, args[0].span), (y, args[1].span)], span)
    }

    /// A registry op on values that are all known before the run, where that has a static meaning.
    pub(crate) fn static_call(&mut self, scope: ScopeId, name: &str, args: &'a [Expr], span: Span) -> Option<Res<Val>> {
        if !crate::spec::statics::FUNCTIONS.contains(&name) {
            return None;
        }
        let mut values = Vec::new();
        for e in args {
            match self.quiet_static(scope, e) {
                Some(s) => values.push(s),
                None => return None,
            }
        }
        match crate::spec::statics::call(name, &values)? {
            Ok(v) => Some(Ok(Val::Static(v))),
            // sqrt of a symbol is computed at run time.
            Err(crate::spec::statics::StaticError::Symbolic) => None,
            Err(e) => Some(Err(self.static_error(e, span))),
        }
    }

    /// The static value of an expression made of literals, names and operators only; nothing is reported or emitted.
    pub(crate) fn quiet_static(&self, scope: ScopeId, e: &'a Expr) -> Option<Static> {
        match &e.kind {
            ExprKind::Int(v) => Some(Static::from(*v)),
            ExprKind::Float(v) => Some(Static::Float(*v)),
            ExprKind::Bool(v) => Some(Static::Bool(*v)),
            ExprKind::None => Some(Static::None),
            ExprKind::Str(s) => Some(Static::Str(s.clone())),
            ExprKind::Name(n) => {
                let at = self.find(scope, n)?;
                match self.scopes[at.0].names.get(n)? {
                    super::scope::Slot::Ready(Val::Static(s)) => Some(s.clone()),
                    super::scope::Slot::Node(_, super::scope::NodeState::Done(Val::Static(s))) => Some(s.clone()),
                    _ => None,
                }
            }
            ExprKind::Attr(..) => {
                let path = super::expr::dotted(e)?;
                if self.find(scope, path[0]).is_some() { None } else { self.around.path(&path) }
            }
            ExprKind::Unary(op, x) => {
                let x = self.quiet_static(scope, x)?;
                crate::spec::statics::unary(*op, &x)
                    .ok()
                    .filter(|_| *op == UnaryOp::Neg || matches!(x, Static::Bool(_)))
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.quiet_static(scope, a)?, self.quiet_static(scope, b)?);
                crate::spec::statics::binary(*op, &a, &b).ok()
            }
            ExprKind::Call { callee, args, kwargs } if kwargs.is_empty() => {
                let ExprKind::Name(name) = &callee.kind else { return None };
                let args: Option<Vec<Static>> = args.iter().map(|a| self.quiet_static(scope, a)).collect();
                crate::spec::statics::call(name, &args?)?.ok()
            }
            ExprKind::List(items) => {
                items.iter().map(|i| self.quiet_static(scope, i)).collect::<Option<Vec<_>>>().map(Static::List)
            }
            ExprKind::Index(base, items) => {
                let Static::List(list) = self.quiet_static(scope, base)? else { return None };
                let [item] = items.as_slice() else { return None };
                let crate::spec::expr::IndexKind::At(at) = &item.kind else { return None };
                let n = self.quiet_static(scope, at)?.as_i64()?;
                list.get(usize::try_from(n).ok()?).cloned()
            }
            _ => None,
        }
    }
}
