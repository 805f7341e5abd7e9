//! Index brackets: slices, positions, new axes, state elements, list items.

use super::emit::Arg;
use super::scope::{ScopeId, Tv, Val};
use super::{Lower, Res};
use crate::diag::{Diagnostic, Span, codes};
use crate::ir::{Attr, Attrs};
use crate::ops::Opcode;
use crate::spec::expr::{Expr, IndexItem, IndexKind};
use crate::spec::statics::Static;
use crate::ty::Dim;
use std::collections::BTreeMap;

impl<'a> Lower<'a> {
    pub(crate) fn index(&mut self, scope: ScopeId, base: &'a Expr, items: &'a [IndexItem], span: Span) -> Res<Val> {
        match self.expr(scope, base)? {
            Val::StateArray(id) => {
                let [IndexItem { kind: IndexKind::At(e), .. }] = items else {
                    let d = Diagnostic::error(codes::BAD_INDEX, span, "a state is indexed by one loop index").help(
                        "`kv[l]` takes the element of an iteration; positions and rows are chosen by `attention` and `write`",
                    );
                    return Err(self.report(d));
                };
                let index = self.expr(scope, e)?;
                self.open_state(scope, id, Some((index, e.span)), span).map(Val::State)
            }
            Val::Static(Static::List(list)) => {
                let [IndexItem { kind: IndexKind::At(e), .. }] = items else {
                    let d = Diagnostic::error(codes::BAD_INDEX, span, "a list is indexed by one number")
                        .help("entries count from 0: list[0]");
                    return Err(self.report(d));
                };
                let index = self.expr(scope, e)?;
                let n = match &index {
                    Val::Static(Static::Int(d)) => d.as_const(),
                    Val::LoopVar(..) => {
                        let d = Diagnostic::error(
                            codes::NOT_STATIC,
                            e.span,
                            "a list item of a loop index can only be matched",
                        )
                        .help("match: list[l], with one case for every value");
                        return Err(self.report(d));
                    }
                    _ => None,
                };
                let found = n.and_then(|n| usize::try_from(n).ok()).and_then(|n| list.get(n)).cloned();
                match found {
                    Some(v) => Ok(Val::Static(v)),
                    None => {
                        let d = Diagnostic::error(
                            codes::BAD_INDEX,
                            e.span,
                            format!(
                                "the list has {} entries, there is none at {}",
                                list.len(),
                                self.describe_static(&index)
                            ),
                        )
                        .help("entries of a list count from 0");
                        Err(self.report(d))
                    }
                }
            }
            Val::Unbound => Ok(Val::Unbound),
            v => {
                let tv = self.tensor_of(scope, v, base.span)?;
                self.index_tensor(scope, tv, base.span, items, span)
            }
        }
    }

    fn describe_static(&self, v: &Val) -> String {
        match v {
            Val::Static(s) => s.to_string(),
            other => self.describe(other),
        }
    }

    fn index_tensor(&mut self, scope: ScopeId, tv: Tv, used: Span, items: &'a [IndexItem], span: Span) -> Res<Val> {
        let rank = self.tensor_type(tv.id).rank();
        let consuming = items.iter().filter(|i| matches!(i.kind, IndexKind::At(_) | IndexKind::Slice(..))).count();
        let ellipses = items.iter().filter(|i| matches!(i.kind, IndexKind::Ellipsis)).count();
        if ellipses > 1 {
            let d =
                Diagnostic::error(codes::BAD_INDEX, span, "`...` stands twice: it means all axes that are not written");
            return Err(self.report(d));
        }
        if consuming > rank {
            let d = Diagnostic::error(
                codes::BAD_INDEX,
                span,
                format!("{consuming} axes are indexed, {} has {rank}", self.tensor_type(tv.id)),
            )
            .related(tv.span, "the value");
            return Err(self.report(d));
        }
        let mut cur = tv;
        let mut axis = 0;
        for item in items {
            match &item.kind {
                IndexKind::Ellipsis => axis += rank - consuming,
                IndexKind::NewAxis => {
                    let mut dims = self.tensor_type(cur.id).dims;
                    dims.insert(axis, Dim::from(1));
                    cur = self.reshaped(scope, cur, dims, used, span)?;
                    axis += 1;
                }
                IndexKind::Slice(from, to) => {
                    cur = self.slice(scope, cur, axis, from.as_ref(), to.as_ref(), used, item.span)?;
                    axis += 1;
                }
                IndexKind::At(e) => match self.expr(scope, e)? {
                    Val::Static(Static::Int(at)) => {
                        let extent = self.tensor_type(cur.id).dims[axis].clone();
                        let written = at.clone();
                        let at = self.counted_from_start(at, &extent);
                        if let (Some(p), Some(n)) = (at.as_const(), extent.as_const())
                            && !(0..n).contains(&p)
                        {
                            let t = self.tensor_type(cur.id);
                            let d = Diagnostic::error(
                                codes::BAD_INDEX,
                                item.span,
                                format!("axis {axis} of {t} has no position {written}"),
                            )
                            .related(cur.span, format!("this is {t}"))
                            .help(format!("positions run from 0 to {}, or from the end from -1 to -{n}", n - 1));
                            return Err(self.report(d));
                        }
                        let one = Dim::from(1);
                        cur = self.slice_op(scope, cur, axis, at, one, used, item.span)?;
                        let mut dims = self.tensor_type(cur.id).dims;
                        dims.remove(axis);
                        cur = self.reshaped(scope, cur, dims, used, span)?;
                    }
                    v => {
                        let index = self.tensor_of(scope, v, e.span)?;
                        let attrs = Attrs::from([("axis", Attr::Int(axis as i64))]);
                        let args = [Arg::of(cur, used), Arg::of(index, e.span)];
                        let id = self.emit1(scope, Opcode::IndexAt, &args, attrs, item.span)?;
                        cur = Tv { id, ..cur };
                    }
                },
            }
        }
        Ok(Val::Tensor(cur))
    }

    fn counted_from_start(&self, at: Dim, extent: &Dim) -> Dim {
        match at.as_const() {
            Some(v) if v < 0 => extent.add(&at).unwrap_or(at),
            _ => at,
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn slice(
        &mut self,
        scope: ScopeId,
        tv: Tv,
        axis: usize,
        from: Option<&'a Expr>,
        to: Option<&'a Expr>,
        used: Span,
        span: Span,
    ) -> Res<Tv> {
        let extent = self.tensor_type(tv.id).dims[axis].clone();
        let start = match from {
            Some(e) => {
                let d = self.static_int(scope, e)?;
                self.counted_from_start(d, &extent)
            }
            None => Dim::from(0),
        };
        let end = match to {
            Some(e) => {
                let d = self.static_int(scope, e)?;
                self.counted_from_start(d, &extent)
            }
            None => extent.clone(),
        };
        if start == Dim::from(0) && end == extent {
            return Ok(tv);
        }
        let Some(len) = end.sub(&start) else {
            let d = Diagnostic::error(codes::BAD_INDEX, span, "the range overflows");
            return Err(self.report(d));
        };
        self.slice_op(scope, tv, axis, start, len, used, span)
    }

    #[allow(clippy::too_many_arguments)]
    fn slice_op(
        &mut self,
        scope: ScopeId,
        tv: Tv,
        axis: usize,
        start: Dim,
        len: Dim,
        used: Span,
        span: Span,
    ) -> Res<Tv> {
        let attrs =
            Attrs::from([("axis", Attr::Int(axis as i64)), ("start", Attr::Dim(start)), ("len", Attr::Dim(len))]);
        let spans = BTreeMap::from([("start", span), ("len", span)]);
        let ids = self.emit(scope, Opcode::Slice, &[Arg::of(tv, used)], attrs, &spans, span)?;
        Ok(Tv { id: ids[0], ..tv })
    }

    /// The same elements under other dims.
    pub(crate) fn reshaped(&mut self, scope: ScopeId, tv: Tv, dims: Vec<Dim>, used: Span, span: Span) -> Res<Tv> {
        if self.tensor_type(tv.id).dims == dims {
            return Ok(tv);
        }
        let attrs = Attrs::from([("dims", Attr::Dims(dims))]);
        let id = self.emit1(scope, Opcode::Reshape, &[Arg::of(tv, used)], attrs, span)?;
        Ok(Tv { id, ..tv })
    }
}
