//! Emitting ops and turning type errors into diagnostics.

use super::scope::{ScopeId, Tv};
use super::{Lower, Res};
use crate::diag::{Diagnostic, Span, codes};
use crate::ir::{Attr, Attrs, Loc, RegionId, ValueId};
use crate::ops::{Blame, InferError, Opcode};
use crate::spec::statics::Static;
use crate::ty::{DType, Dim, TensorType, Type};
use std::collections::BTreeMap;

/// An operand with its places: where it is used and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg {
    pub id: ValueId,
    pub used: Span,
    pub defined: Span,
}

impl Arg {
    pub fn of(tv: Tv, used: Span) -> Arg {
        Arg { id: tv.id, used, defined: tv.span }
    }
}

impl<'a> Lower<'a> {
    pub(crate) fn loc(&self, span: Span) -> Loc {
        let path = self.node_stack.last().map(|n| n.path.as_str()).unwrap_or("");
        Loc { path: path.into(), span: Some(span) }
    }

    /// Emits an op and returns its results.
    pub(crate) fn emit(
        &mut self,
        scope: ScopeId,
        code: Opcode,
        args: &[Arg],
        attrs: Attrs,
        attr_spans: &BTreeMap<&'static str, Span>,
        span: Span,
    ) -> Res<Vec<ValueId>> {
        let types: Vec<&Type> = args.iter().map(|a| self.func.ty(a.id)).collect();
        match code.infer(&types, &attrs) {
            Ok(results) => {
                let large = |t: &Type| matches!(t, Type::Tensor(t) if t.dims.iter().any(|d| d.size() > crate::spec::statics::MAX_DIM_SIZE));
                if results.iter().any(large) {
                    let d = Diagnostic::error(codes::UNSUPPORTED, span, "the formula of an extent has too many terms")
                        .help("bind dims to numbers, or use fewer run-time symbols");
                    return Err(self.report(d));
                }
                if let Some((t, extent)) = results.iter().find_map(|t| self.negative(t)) {
                    let d =
                        Diagnostic::error(codes::BOUNDS, span, format!("{t} has an axis of negative extent {extent}"));
                    return Err(self.report(d));
                }
                let region = self.scopes[scope.0].region;
                let operands = args.iter().map(|a| a.id).collect();
                let loc = self.loc(span);
                let op = self.func.add_op(region, code, operands, attrs, Vec::new(), results, loc);
                Ok(self.func.op(op).results.clone())
            }
            Err(e) => {
                let d = self.type_error(code, e, args, attr_spans, span);
                Err(self.report(d))
            }
        }
    }

    /// A type with an extent that is never zero or more, and that extent.
    fn negative(&self, t: &Type) -> Option<(TensorType, Dim)> {
        let t = t.tensor()?;
        let of = |name: &str| self.symbols.get(name).copied().unwrap_or_default();
        let extent = t.dims.iter().find(|d| d.bounds(&of).max.is_some_and(|m| m < 0))?;
        Some((t.clone(), extent.clone()))
    }

    /// Emits an op with one result and no attributes that can be wrong.
    pub(crate) fn emit1(
        &mut self,
        scope: ScopeId,
        code: Opcode,
        args: &[Arg],
        attrs: Attrs,
        span: Span,
    ) -> Res<ValueId> {
        let results = self.emit(scope, code, args, attrs, &BTreeMap::new(), span)?;
        Ok(results[0])
    }

    fn type_error(
        &self,
        op: Opcode,
        e: InferError,
        args: &[Arg],
        attr_spans: &BTreeMap<&'static str, Span>,
        span: Span,
    ) -> Diagnostic {
        let InferError { code, message, blame, help } = e;
        let used = |i: usize| args.get(i).map_or(span, |a| a.used);
        let at = match &blame {
            Blame::Call => span,
            Blame::Operand(i) => used(*i),
            Blame::Pair(_, j) => used(*j),
            Blame::Attr(name) => attr_spans.get(name).copied().unwrap_or(span),
        };
        let mut d = Diagnostic::error(code, at, message);
        let mut shown: Vec<usize> = match blame {
            Blame::Operand(i) => vec![i],
            Blame::Pair(i, j) => vec![i, j],
            Blame::Attr(_) => vec![0],
            Blame::Call => vec![],
        };
        shown.dedup();
        for i in shown {
            if let Some(a) = args.get(i)
                && a.defined != at
            {
                d = d.related(a.defined, format!("this is {}", self.func.ty(a.id)));
            }
        }
        match help {
            Some(h) => d.help(h),
            None => d.help(super::builtin::usage(op.def())),
        }
    }

    /// A scalar constant.
    pub(crate) fn constant(&mut self, region: RegionId, value: f64, dtype: DType, span: Span) -> ValueId {
        let attrs = Attrs::from([("value", Attr::Float(value)), ("dtype", Attr::DType(dtype))]);
        let loc = self.loc(span);
        let ty = TensorType::scalar(dtype).into();
        let op = self.func.add_op(region, Opcode::Const, Vec::new(), attrs, Vec::new(), vec![ty], loc);
        self.func.op(op).results[0]
    }

    /// A static value as a scalar tensor. `like` is the dtype of what it meets: numbers take it if it is a float.
    pub(crate) fn materialize(&mut self, scope: ScopeId, s: &Static, like: Option<DType>, span: Span) -> Res<Tv> {
        let region = self.scopes[scope.0].region;
        let numerics = self.module.numerics;
        let float = || match like {
            Some(d) if d.is_float() => d.compute(),
            _ => numerics.apply(DType::F32),
        };
        let (id, dtype) = match s {
            Static::Int(d) => match (d.as_const(), like) {
                (Some(v), Some(l)) if l.is_float() => (self.constant(region, v as f64, l.compute(), span), l),
                (Some(v), _) => {
                    if i32::try_from(v).is_err() {
                        let d = Diagnostic::error(codes::BAD_ATTRIBUTE, span, format!("{v} does not fit an i32"));
                        return Err(self.report(d));
                    }
                    (self.constant(region, v as f64, DType::I32, span), DType::I32)
                }
                (None, _) => (self.dim_value(region, d, span), DType::I32),
            },
            Static::Float(v) => {
                let dtype = float();
                (self.constant(region, *v, dtype, span), like.filter(|d| d.is_float()).unwrap_or(dtype))
            }
            Static::Bool(v) => (self.constant(region, f64::from(u8::from(*v)), DType::Bool, span), DType::Bool),
            other => {
                let d = Diagnostic::error(
                    codes::DTYPE_MISMATCH,
                    span,
                    format!("a tensor is expected here, this is {}", other.describe()),
                );
                return Err(self.report(d));
            }
        };
        Ok(Tv { id, storage: dtype, span })
    }

    fn dim_value(&mut self, region: RegionId, d: &Dim, span: Span) -> ValueId {
        let attrs = Attrs::from([("value", Attr::Dim(d.clone()))]);
        let loc = self.loc(span);
        let ty = TensorType::scalar(DType::I32).into();
        let op = self.func.add_op(region, Opcode::DimValue, Vec::new(), attrs, Vec::new(), vec![ty], loc);
        self.func.op(op).results[0]
    }

    /// Rounds a value to its storage dtype, if it is still in the compute dtype.
    pub(crate) fn round(&mut self, scope: ScopeId, tv: Tv) -> Tv {
        let have = self.func.tensor(tv.id).map(|t| t.dtype);
        if have.is_none_or(|d| d == tv.storage || !d.is_float() || !tv.storage.is_float()) {
            return tv;
        }
        let attrs = Attrs::from([("dtype", Attr::DType(tv.storage))]);
        match self.emit1(scope, Opcode::Cast, &[Arg::of(tv, tv.span)], attrs, tv.span) {
            Ok(id) => Tv { id, ..tv },
            Err(_) => tv,
        }
    }

    /// The tensor type of a value that is one.
    pub(crate) fn tensor_type(&self, id: ValueId) -> TensorType {
        self.func.tensor(id).cloned().unwrap_or_else(|| TensorType::scalar(DType::F32))
    }
}
