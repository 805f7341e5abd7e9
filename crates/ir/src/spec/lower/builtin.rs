//! Calls of registry ops: operands by position or name, then attributes.

use super::emit::Arg;
use super::scope::{ScopeId, Tv, Val};
use super::{Lower, Reported, Res};
use crate::diag::{Diagnostic, Span, codes, suggest};
use crate::ir::{Attr, Attrs};
use crate::ops::{AttrDef, AttrKind, Effect, OpDef, Opcode};
use crate::spec::expr::{Expr, ExprKind, Ident};
use crate::spec::statics::Static;
use crate::ty::{DType, Dim};
use std::collections::BTreeMap;

/// Purposes of random numbers by name, in the order of their numbers.
pub(crate) const PURPOSES: &[&str] = &["first", "draft", "accept", "residual", "bonus"];

impl<'a> Lower<'a> {
    /// A call of the op of one registry row. `state` is the receiver of a method call.
    pub(crate) fn builtin(
        &mut self,
        scope: ScopeId,
        def: &'static OpDef,
        state: Option<Arg>,
        args: &'a [Expr],
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Res<Val> {
        let bound = self.bind_args(def, state.is_some(), args, kwargs, span)?;
        let mut operands: Vec<Arg> = state.into_iter().collect();
        let mut storages: Vec<DType> = Vec::new();
        let first = operands.len();
        let mut failed = false;
        for (i, e) in bound.operands.iter().enumerate().skip(first) {
            let Some(e) = *e else { continue };
            let variadic = def.operands.get(i).is_some_and(|o| o.variadic) && def.code != Opcode::Einsum;
            let exprs: Vec<&'a Expr> = match (&e.kind, variadic) {
                (ExprKind::List(items), true) => items.iter().collect(),
                _ => vec![e],
            };
            for e in exprs {
                match self.operand(scope, def, e, &storages) {
                    Ok((arg, storage)) => {
                        operands.push(arg);
                        storages.push(storage);
                    }
                    // The other operands may be wrong as well.
                    Err(Reported) => failed = true,
                }
            }
        }
        let (mut attrs, attr_spans) = self.attributes(scope, def, &bound, span)?;
        if failed {
            return Err(Reported);
        }
        // The axes of a transpose stand for themselves in the IR; in a spec they may count from the end.
        if let (Opcode::Transpose, Some(x), Some(Attr::Ints(axes))) =
            (def.code, operands.first(), attrs.get_mut("axes"))
        {
            let rank = self.func.tensor(x.id).map_or(0, |t| t.rank() as i64);
            axes.iter_mut().filter(|a| **a < 0).for_each(|a| *a += rank);
        }
        if def.elementwise {
            let tvs: Vec<(Tv, Span)> = operands
                .iter()
                .zip(&storages)
                .map(|(a, s)| (Tv { id: a.id, storage: *s, span: a.defined }, a.used))
                .collect();
            if def.code == Opcode::Cast {
                let id = self.emit(scope, def.code, &operands, attrs, &attr_spans, span)?[0];
                let storage = self.tensor_type(id).dtype;
                return Ok(Val::Tensor(Tv { id, storage, span }));
            }
            return self.elementwise(scope, def.code, &tvs, span);
        }
        let ids = self.emit(scope, def.code, &operands, attrs, &attr_spans, span)?;
        let values: Vec<(String, Val)> = def
            .results
            .iter()
            .zip(&ids)
            .map(|(name, id)| {
                let storage = self.func.tensor(*id).map_or(DType::F32, |t| t.dtype);
                (name.to_string(), Val::Tensor(Tv { id: *id, storage, span }))
            })
            .collect();
        match values.len() {
            1 => Ok(values.into_iter().next().map_or(Val::Unbound, |(_, v)| v)),
            _ => Ok(Val::Record(values)),
        }
    }

    /// One operand: arguments of ops that are not elementwise are rounding points.
    fn operand(&mut self, scope: ScopeId, def: &OpDef, e: &'a Expr, before: &[DType]) -> Res<(Arg, DType)> {
        let v = self.expr(scope, e)?;
        if def.effect == Effect::ReadsState
            && let Val::State(s) = &v
        {
            return Ok((Arg { id: s.id, used: e.span, defined: s.span }, DType::F32));
        }
        let tv = match &v {
            Val::Static(s) => {
                let s = s.clone();
                let like = before.iter().rev().copied().find(|d| *d != DType::Bool);
                self.materialize(scope, &s, like, e.span)?
            }
            _ => self.tensor_of(scope, v, e.span)?,
        };
        let tv = if def.elementwise { tv } else { self.round(scope, tv) };
        let tv = if takes_floats(def.code) { self.real_operand(scope, tv, e.span)? } else { tv };
        Ok((Arg::of(tv, e.span), tv.storage))
    }

    /// An integer where a function of real numbers is asked for becomes one.
    pub(super) fn real_operand(&mut self, scope: ScopeId, tv: Tv, span: Span) -> Res<Tv> {
        if self.tensor_type(tv.id).dtype != DType::I32 {
            return Ok(tv);
        }
        let dtype = self.module.numerics.apply(DType::F32);
        let attrs = Attrs::from([("dtype", Attr::DType(dtype))]);
        let id = self.emit1(scope, Opcode::Cast, &[Arg::of(tv, span)], attrs, span)?;
        Ok(Tv { id, storage: dtype, span: tv.span })
    }

    fn bind_args(
        &mut self,
        def: &'static OpDef,
        has_state: bool,
        args: &'a [Expr],
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Res<Bound<'a>> {
        let mut bound = Bound { operands: vec![None; def.operands.len()], attrs: BTreeMap::new() };
        let skip = usize::from(has_state);
        let mut slots: Vec<Slot> = (skip..def.operands.len()).map(Slot::Operand).collect();
        let attr_slots = def.attrs.iter().map(|a| Slot::Attr(a.name));
        if def.code == Opcode::Einsum {
            // einsum("spec", a, b): the specification comes first and the operands are not a list.
            return self.bind_einsum(def, args.iter().skip(1).collect(), args, kwargs, span);
        }
        slots.extend(attr_slots);
        for (i, e) in args.iter().enumerate() {
            match slots.get(i) {
                Some(Slot::Operand(k)) => bound.operands[*k] = Some(e),
                Some(Slot::Attr(name)) => {
                    bound.attrs.insert(name, e);
                }
                None => {
                    let d = Diagnostic::error(
                        codes::BAD_CALL,
                        e.span,
                        format!("`{}` takes at most {} arguments", def.name, slots.len()),
                    )
                    .help(signature(def));
                    return Err(self.report(d));
                }
            }
        }
        for (name, e) in kwargs {
            let operand = def.operands.iter().skip(skip).position(|o| o.name == name.name).map(|p| p + skip);
            let attr = def.attrs.iter().find(|a| a.name == name.name);
            let twice = match (operand, attr) {
                (Some(k), _) => bound.operands[k].replace(e).is_some(),
                (None, Some(a)) => bound.attrs.insert(a.name, e).is_some(),
                (None, None) => {
                    let known = def.operands.iter().skip(skip).map(|o| o.name).chain(def.attrs.iter().map(|a| a.name));
                    let mut d = Diagnostic::error(
                        codes::BAD_CALL,
                        name.span,
                        format!("`{}` has no argument `{}`", def.name, name.name),
                    );
                    d = match suggest(&name.name, known) {
                        Some(near) => d.help(format!("did you mean `{near}`?")),
                        None => d.help(signature(def)),
                    };
                    return Err(self.report(d));
                }
            };
            if twice {
                let d =
                    Diagnostic::error(codes::BAD_CALL, name.span, format!("argument `{}` is given twice", name.name));
                return Err(self.report(d));
            }
        }
        for (i, operand) in def.operands.iter().enumerate().skip(skip) {
            let later = bound.operands[i..].iter().any(Option::is_some);
            if bound.operands[i].is_none() && (!operand.optional || later) {
                let d = Diagnostic::error(codes::BAD_CALL, span, format!("`{}` needs `{}`", def.name, operand.name))
                    .help(signature(def));
                return Err(self.report(d));
            }
        }
        Ok(bound)
    }

    fn bind_einsum(
        &mut self,
        def: &'static OpDef,
        list: Vec<&'a Expr>,
        args: &'a [Expr],
        kwargs: &'a [(Ident, Expr)],
        span: Span,
    ) -> Res<Bound<'a>> {
        let Some(spec) = args.first() else {
            let d =
                Diagnostic::error(codes::BAD_CALL, span, "einsum needs its specification first").help(signature(def));
            return Err(self.report(d));
        };
        let mut bound =
            Bound { operands: list.into_iter().map(Some).collect(), attrs: BTreeMap::from([("spec", spec)]) };
        for (name, e) in kwargs {
            if name.name != "acc" {
                let d =
                    Diagnostic::error(codes::BAD_CALL, name.span, format!("`einsum` has no argument `{}`", name.name));
                return Err(self.report(d));
            }
            bound.attrs.insert("acc", e);
        }
        Ok(bound)
    }

    fn attributes(
        &mut self,
        scope: ScopeId,
        def: &'static OpDef,
        bound: &Bound<'a>,
        span: Span,
    ) -> Res<(Attrs, BTreeMap<&'static str, Span>)> {
        let mut attrs = Attrs::new();
        let mut spans = BTreeMap::new();
        for a in def.attrs {
            let value = match bound.attrs.get(a.name) {
                Some(e) => {
                    spans.insert(a.name, e.span);
                    self.attribute_value(scope, a, e)?
                }
                None => match a.default {
                    Some(default) => default_attr(a, default),
                    None => {
                        let d = Diagnostic::error(codes::BAD_CALL, span, format!("`{}` needs `{}`", def.name, a.name))
                            .help(signature(def));
                        return Err(self.report(d));
                    }
                },
            };
            let value = match value {
                Attr::DType(d) => Attr::DType(self.module.numerics.apply(d)),
                v => v,
            };
            attrs.insert(a.name, value);
        }
        Ok((attrs, spans))
    }

    fn attribute_value(&mut self, scope: ScopeId, a: &AttrDef, e: &'a Expr) -> Res<Attr> {
        if a.kind == AttrKind::DType
            && let ExprKind::Name(name) = &e.kind
        {
            let ident = Ident { name: name.clone(), span: e.span };
            return self.dtype_named(&ident).map(Attr::DType);
        }
        if a.name == "purpose"
            && let ExprKind::Name(name) = &e.kind
        {
            return match PURPOSES.iter().position(|p| p == name) {
                Some(i) => Ok(Attr::Int(i as i64)),
                None => {
                    let d = Diagnostic::error(codes::BAD_ATTRIBUTE, e.span, format!("there is no purpose `{name}`"))
                        .help(format!("one of {}", PURPOSES.join(", ")));
                    Err(self.report(d))
                }
            };
        }
        let v = match self.expr(scope, e)? {
            Val::Static(s) => s,
            // In a check without bindings an unknown parameter stands for any value.
            Val::Unbound => return Ok(unbound_attr(a)),
            Val::Tensor(_) if self.symbolic && a.kind == AttrKind::Float => return Ok(unbound_attr(a)),
            other => {
                let what = self.describe(&other);
                let d = Diagnostic::error(
                    codes::NOT_STATIC,
                    e.span,
                    format!("`{}` must be known before the run, this is {what}", a.name),
                );
                return Err(self.report(d));
            }
        };
        let fitting = match (a.kind, &v) {
            (AttrKind::Int, Static::None) => Some(Attr::Int(0)),
            (AttrKind::Int, Static::Int(d)) => match d.as_const() {
                Some(v) => Some(Attr::Int(v)),
                None if self.symbolic => Some(unbound_attr(a)),
                None => None,
            },
            (AttrKind::Float, _) => match v.as_f64() {
                Some(f) => Some(Attr::Float(f)),
                None if self.symbolic && matches!(v, Static::Int(_)) => Some(Attr::Float(1.0)),
                None => None,
            },
            (AttrKind::Bool, Static::Bool(b)) => Some(Attr::Bool(*b)),
            (AttrKind::Str, Static::Str(s)) => Some(Attr::Str(s.clone())),
            (AttrKind::Dim, Static::Int(d)) => Some(Attr::Dim(d.clone())),
            (AttrKind::Dims, Static::List(items)) => items
                .iter()
                .map(|i| if let Static::Int(d) = i { Some(d.clone()) } else { None })
                .collect::<Option<Vec<Dim>>>()
                .map(Attr::Dims),
            (AttrKind::Ints, Static::List(items)) => {
                items.iter().map(Static::as_i64).collect::<Option<Vec<_>>>().map(Attr::Ints)
            }
            _ => None,
        };
        match fitting {
            Some(attr) => Ok(attr),
            None => {
                let want = match a.kind {
                    AttrKind::Int => "an integer",
                    AttrKind::Float => "a number",
                    AttrKind::Bool => "true or false",
                    AttrKind::Str => "a quoted text",
                    AttrKind::Dim => "a dim",
                    AttrKind::Dims => "a list of dims",
                    AttrKind::Ints => "a list of integers",
                    AttrKind::DType => "a dtype",
                    AttrKind::Keeps => "kept values",
                };
                let d = Diagnostic::error(codes::BAD_ATTRIBUTE, e.span, format!("`{}` is {want}, this is {v}", a.name));
                Err(self.report(d))
            }
        }
    }
}

fn takes_floats(code: Opcode) -> bool {
    use Opcode::*;
    matches!(code, Exp | Log | Sqrt | Rsqrt | Sin | Cos | Tanh | Erf | Sigmoid | Silu | Softplus)
}

enum Slot {
    Operand(usize),
    Attr(&'static str),
}

struct Bound<'a> {
    operands: Vec<Option<&'a Expr>>,
    attrs: BTreeMap<&'static str, &'a Expr>,
}

fn unbound_attr(a: &AttrDef) -> Attr {
    match a.kind {
        AttrKind::Int => Attr::Int(if a.name == "window" { 1 } else { 0 }),
        AttrKind::Float => Attr::Float(1.0),
        AttrKind::Bool => Attr::Bool(true),
        AttrKind::Str => a.default.map_or_else(|| Attr::Str(String::new()), |text| default_attr(a, text)),
        AttrKind::Dim => Attr::Dim(Dim::from(1)),
        AttrKind::Dims => Attr::Dims(Vec::new()),
        AttrKind::Ints => Attr::Ints(Vec::new()),
        AttrKind::DType => Attr::DType(DType::F32),
        AttrKind::Keeps => Attr::Keeps(Vec::new()),
    }
}

/// The value of a default written in the registry.
fn default_attr(a: &AttrDef, text: &str) -> Attr {
    match a.kind {
        AttrKind::Int => Attr::Int(text.parse().unwrap_or(0)),
        AttrKind::Float => Attr::Float(text.parse().unwrap_or(0.0)),
        AttrKind::Bool => Attr::Bool(text == "true"),
        AttrKind::DType => Attr::DType(DType::from_name(text).unwrap_or(DType::F32)),
        _ => Attr::Str(text.to_string()),
    }
}

/// How an op is called and what it does, in short.
pub(crate) fn usage(def: &OpDef) -> String {
    let doc = def.doc.split_once(". ").map_or(def.doc, |(first, _)| first);
    match def.callable || matches!(def.code, Opcode::KvWrite | Opcode::CausalConv | Opcode::DeltaRule) {
        true => format!("{}: {doc}", signature(def)),
        false => doc.to_string(),
    }
}

/// How an op is called, for help lines and the language reference.
pub(crate) fn signature(def: &OpDef) -> String {
    let mut parts: Vec<String> = Vec::new();
    let method = matches!(def.code, Opcode::KvWrite | Opcode::CausalConv | Opcode::DeltaRule);
    if def.code == Opcode::Einsum {
        parts.push("\"spec\"".into());
        parts.push("a".into());
        parts.push("b".into());
        parts.push("acc=f32".into());
        return format!("{}({})", def.name, parts.join(", "));
    }
    for o in def.operands.iter().skip(usize::from(method)) {
        parts.push(match (o.variadic, o.optional) {
            (true, _) => format!("[{}, ...]", o.name),
            (_, true) => format!("{}=...", o.name),
            _ => o.name.to_string(),
        });
    }
    for a in def.attrs {
        parts.push(match a.default {
            Some(d) => format!("{}={d}", a.name),
            None => a.name.to_string(),
        });
    }
    let name = match def.code {
        Opcode::KvWrite => "kv.write",
        Opcode::CausalConv => "conv.causal",
        Opcode::DeltaRule => "delta.gated_delta_rule",
        _ => def.name,
    };
    format!("{name}({})", parts.join(", "))
}
