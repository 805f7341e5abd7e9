//! Weights: canonical names, shared weights, and the ops that read them.

use super::scope::{ScopeId, Tv, join};
use super::{Lower, Res, SharedIndex};
use crate::diag::{Diagnostic, Span, codes};
use crate::ir::{Attr, Attrs, ValueId, Weight, WeightId};
use crate::ops::Opcode;
use crate::spec::ast::WeightDecl;
use crate::spec::expr::{TypeExpr, TypeKind};
use crate::ty::{DType, TensorType};
use std::collections::{BTreeMap, BTreeSet};

/// Weights by path with every index as `{}`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    by_key: BTreeMap<String, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    id: WeightId,
    /// Declared by a graph, not only shared by another weight.
    declared: Option<Span>,
    /// Where another weight shares it, and at which fixed indices.
    shared: Vec<(Span, Vec<Option<i64>>)>,
}

/// A weight path with its indices as `{}`, and the names of the indices.
pub(crate) fn key_of(path: &str) -> (String, Vec<String>) {
    let mut key = String::new();
    let mut vars = Vec::new();
    let mut rest = path;
    while let Some(start) = rest.find('{') {
        let Some(len) = rest[start..].find('}') else { break };
        key.push_str(&rest[..start]);
        key.push_str("{}");
        vars.push(rest[start + 1..start + len].to_string());
        rest = &rest[start + len + 1..];
    }
    key.push_str(rest);
    (key, vars)
}

impl<'a> Lower<'a> {
    /// Starts with the weights and states of a system that was lowered before.
    pub(crate) fn adopt(&mut self, weights: &[Weight], states: &[crate::ir::StateDecl]) {
        self.module.weights = weights.to_vec();
        self.module.states = states.to_vec();
        for (i, w) in weights.iter().enumerate() {
            let known = Known { id: WeightId(i as u32), declared: w.span, shared: Vec::new() };
            self.weights.by_key.insert(key_of(&w.name).0, known);
        }
        for (i, s) in states.iter().enumerate() {
            self.states.insert(s.name.clone(), crate::ir::StateId(i as u32));
        }
    }

    /// Reads a weight declared in scope `at` for use in scope `user`.
    pub(crate) fn weight(&mut self, at: ScopeId, user: ScopeId, decl: &'a WeightDecl) -> Res<Tv> {
        let own = join(&self.scopes[at.0].weights, &decl.name.name);
        let path = match &decl.from {
            Some((from, _)) => {
                let component = own.split('.').next().filter(|c| self.around.component(c).is_some()).unwrap_or("");
                join(component, from)
            }
            None => own.clone(),
        };
        let span = decl.from.as_ref().map_or(decl.name.span, |(_, s)| *s);
        let declared = decl.from.is_none();
        let ty = match self.weight_type(at, &decl.ty) {
            Ok(ty) => ty,
            Err(reported) => {
                self.failed_weights.insert(key_of(&own).0);
                return Err(reported);
            }
        };
        let storage = match &decl.ty.kind {
            TypeKind::Tensor { dtype: Some(d), .. } => Some(self.dtype_named(d)?),
            _ => None,
        };
        let (path, indices, at_share) = match self.around.share(&path) {
            Some(shared) => {
                let indices = shared.indices.clone();
                (shared.path, indices, Some(shared.span))
            }
            None => {
                let (key, vars) = key_of(&path);
                (key, vars.into_iter().map(SharedIndex::Var).collect(), None)
            }
        };
        let declared = declared && at_share.is_none();
        let span = at_share.unwrap_or(span);
        let mut operands: Vec<ValueId> = Vec::new();
        let mut loops: Vec<(String, i64)> = Vec::new();
        let mut fixed: Vec<Option<i64>> = Vec::new();
        let region = self.scopes[at.0].region;
        for index in &indices {
            match index {
                SharedIndex::At(i) => {
                    operands.push(self.constant(region, *i as f64, DType::I32, span));
                    loops.push(("i".into(), -1));
                    fixed.push(Some(*i));
                }
                SharedIndex::Var(name) => {
                    let ctx = self.scopes[at.0].loops.iter().rev().find(|c| c.var == *name).cloned();
                    let Some(ctx) = ctx else {
                        let d = Diagnostic::error(
                            codes::WEIGHT_BINDING,
                            span,
                            format!("no loop around weight `{}` has the index `{name}`", decl.name.name),
                        );
                        return Err(self.report(d));
                    };
                    operands.push(ctx.index);
                    loops.push((ctx.var.clone(), ctx.extent.as_const().unwrap_or(-1)));
                    fixed.push(None);
                }
            }
        }
        let present = if declared { self.presence(at, loops.len()) } else { Vec::new() };
        let id = self.intern_weight(&path, loops, present, &ty, storage, declared, decl, span, fixed)?;
        let _ = user;
        let attrs = Attrs::from([("weight", Attr::Int(i64::from(id.0)))]);
        let loc = crate::ir::Loc { path: own.into(), span: Some(decl.name.span) };
        let op = self.func.add_op(region, Opcode::Weight, operands, attrs, Vec::new(), vec![ty.clone().into()], loc);
        Ok(Tv { id: self.func.op(op).results[0], storage: ty.dtype, span: decl.name.span })
    }

    fn weight_type(&mut self, at: ScopeId, ty: &'a TypeExpr) -> Res<TensorType> {
        if let TypeKind::Tensor { dtype: Some(d), .. } = &ty.kind {
            let dtype = self.dtype_named(d)?;
            if !dtype.is_float() {
                let d = Diagnostic::error(
                    codes::UNSUPPORTED,
                    d.span,
                    format!("weights of dtype {dtype} are not supported"),
                )
                .help("weights are bf16, f16, f32 or f64; quantize_rows makes an f8e4m3 copy of one");
                return Err(self.report(d));
            }
        }
        self.type_of(at, ty)
    }

    /// For which indices a weight declared here exists; empty for all.
    fn presence(&self, at: ScopeId, rank: usize) -> Vec<bool> {
        let loops = &self.scopes[at.0].loops;
        let masks: Vec<&[bool]> = loops.iter().rev().take(rank).rev().map(|c| c.mask.as_slice()).collect();
        if masks.iter().all(|m| m.iter().all(|b| *b)) {
            return Vec::new();
        }
        let mut present = vec![true];
        for m in masks {
            present = present.iter().flat_map(|p| m.iter().map(move |b| *p && *b)).collect();
        }
        present
    }

    #[allow(clippy::too_many_arguments)]
    fn intern_weight(
        &mut self,
        path: &str,
        loops: Vec<(String, i64)>,
        present: Vec<bool>,
        ty: &TensorType,
        storage: Option<DType>,
        declared: bool,
        decl: &'a WeightDecl,
        span: Span,
        fixed: Vec<Option<i64>>,
    ) -> Res<WeightId> {
        let (key, _) = key_of(path);
        if let Some(known) = self.weights.by_key.get(&key).cloned() {
            let w = &mut self.module.weights[known.id.index()];
            if w.ty.dims != ty.dims || (w.storage != storage && w.storage.is_some() && storage.is_some()) {
                let show = |t: &TensorType, s: Option<DType>| {
                    let dims: Vec<String> = t.dims.iter().map(|d| d.to_string()).collect();
                    format!("{}[{}]", s.map_or("", |s| s.name()), dims.join(", "))
                };
                let code = if w.ty.dims == ty.dims { codes::DTYPE_MISMATCH } else { codes::DIM_MISMATCH };
                let d = Diagnostic::error(
                    code,
                    decl.ty.span,
                    format!(
                        "weight `{}` is {} here, and {} elsewhere",
                        w.name,
                        show(ty, storage),
                        show(&w.ty, w.storage)
                    ),
                );
                let d = match w.span {
                    Some(s) => d.related(s, "declared here"),
                    None => d,
                };
                return Err(self.report(d.help(
                    "a weight has one type, wherever it is shared; the cases of a match share the path of their node, so \
                     different weights in them need different names",
                )));
            }
            if w.loops.len() != loops.len() {
                let d = Diagnostic::error(
                    codes::WEIGHT_BINDING,
                    span,
                    format!("weight `{}` has {} indices, {} are given", w.name, w.loops.len(), loops.len()),
                );
                return Err(self.report(d));
            }
            if declared {
                let first_declaration = known.declared.is_none();
                for ((name, extent), (var, n)) in w.loops.iter_mut().zip(&loops) {
                    if *extent < 0 {
                        (*name, *extent) = (var.clone(), *n);
                    }
                }
                if first_declaration {
                    w.present = present;
                    w.span = Some(decl.name.span);
                    w.name = named(&key, &loops);
                    w.storage = storage.or(w.storage);
                } else if !w.present.is_empty() {
                    if present.is_empty() {
                        w.present.clear();
                    } else {
                        w.present.iter_mut().zip(&present).for_each(|(a, b)| *a |= *b);
                    }
                }
            }
            if let Some(k) = self.weights.by_key.get_mut(&key) {
                if declared {
                    k.declared.get_or_insert(decl.name.span);
                } else if !k.shared.iter().any(|(s, f)| *s == span && *f == fixed) {
                    k.shared.push((span, fixed));
                }
            }
            return Ok(known.id);
        }
        let id = WeightId(self.module.weights.len() as u32);
        self.module.weights.push(Weight {
            name: named(&key, &loops),
            loops,
            present,
            ty: ty.clone(),
            storage,
            source: None,
            span: Some(decl.name.span),
            bound_at: None,
        });
        let shared = if declared { Vec::new() } else { vec![(span, fixed)] };
        self.weights.by_key.insert(key, Known { id, declared: declared.then_some(decl.name.span), shared });
        Ok(id)
    }

    /// Reports weights that are shared but declared nowhere, and fixed indices outside their loops.
    /// Returns the names of the former.
    pub(crate) fn check_shared(&mut self) -> BTreeSet<String> {
        let mut undeclared = BTreeSet::new();
        let mut found = Vec::new();
        for known in self.weights.by_key.values() {
            let w = &self.module.weights[known.id.index()];
            for (span, fixed) in &known.shared {
                if known.declared.is_none() && self.failed_weights.contains(&key_of(&w.name).0) {
                    continue;
                }
                if known.declared.is_none() {
                    undeclared.insert(w.name.clone());
                    found.push(Diagnostic::error(
                        codes::WEIGHT_BINDING,
                        *span,
                        format!("no graph declares the weight `{}`", w.name),
                    ));
                    continue;
                }
                for (i, (_, extent)) in fixed.iter().zip(&w.loops) {
                    if let Some(i) = i
                        && *extent >= 0
                        && !(0..*extent).contains(i)
                    {
                        let text = format!("weight `{}` has indices 0..{}, not {i}", w.name, extent - 1);
                        found.push(
                            Diagnostic::error(codes::BAD_INDEX, *span, text)
                                .help("share a weight of a loop that is there"),
                        );
                    }
                }
            }
        }
        for d in found {
            self.report(d);
        }
        undeclared
    }
}

/// A canonical path with loop variables for its indices.
fn named(key: &str, loops: &[(String, i64)]) -> String {
    let mut out = String::new();
    let mut vars = loops.iter();
    let mut parts = key.split("{}");
    out.push_str(parts.next().unwrap_or(""));
    for part in parts {
        match vars.next() {
            Some((v, _)) => out.push_str(&format!("{{{v}}}")),
            None => out.push_str("{}"),
        }
        out.push_str(part);
    }
    out
}
