//! Loops: carried values, and inner values seen from outside.

use super::scope::{LoopCtx, NodeState, Scope, ScopeId, Slot, Tv, Val, join};
use super::{Lower, Res};
use crate::diag::{Diagnostic, Span, codes};
use crate::ir::{Attr, Attrs, Keep, OpId, ValueDef, ValueId};
use crate::ops::Opcode;
use crate::spec::ast::{KeepDecl, LoopDecl, NodeDecl};
use crate::spec::expr::Ident;
use crate::spec::statics::Static;
use crate::ty::{DType, Dim, TensorType, Type};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LoopId(pub usize);

/// One loop of the function.
pub(crate) struct LoopState<'a> {
    pub decl: &'a LoopDecl,
    /// The scope of its body.
    pub body: ScopeId,
    outer: ScopeId,
    op: Option<OpId>,
    extent: Dim,
    carried: Vec<(String, Tv)>,
    kept: BTreeMap<(ValueId, usize, Option<Vec<i64>>), ValueId>,
}

impl<'a> Lower<'a> {
    pub(crate) fn loop_node(&mut self, scope: ScopeId, node: &'a NodeDecl, l: &'a LoopDecl) -> Res<Val> {
        let extent = self.static_int(scope, &l.extent)?;
        if let Some(n) = extent.as_const()
            && (n < 0 || (n > super::MAX_REPEAT && !l.serial))
        {
            let d =
                Diagnostic::error(codes::BOUNDS, l.extent.span, format!("a loop cannot run {n} times")).help(format!(
                    "a `repeat` runs 0 to {} times; rows and positions are axes of tensors, not iterations",
                    super::MAX_REPEAT
                ));
            return Err(self.report(d));
        }
        let around = self.scopes[scope.0].loops.iter().filter_map(|c| c.extent.as_const());
        let entries = around.chain(extent.as_const()).fold(1i64, |n, e| n.saturating_mul(e.max(1)));
        if !l.serial && entries > super::MAX_ENTRIES {
            let d = Diagnostic::error(
                codes::UNSUPPORTED,
                l.extent.span,
                format!("the loops around this run {entries} iterations in all"),
            )
            .help(format!("nested `repeat` loops run at most {} iterations", super::MAX_ENTRIES));
            return Err(self.report(d));
        }
        if !l.serial && extent.as_const().is_none() && !self.symbolic {
            let d = Diagnostic::error(
                codes::NOT_STATIC,
                l.extent.span,
                format!("`repeat` needs a number known before the run, this is {extent}"),
            )
            .help("`scan` loops over a run-time extent");
            return Err(self.report(d));
        }
        let mut inits: Vec<Tv> = Vec::new();
        for (_, e) in &l.carry {
            let v = self.expr(scope, e)?;
            let v = self.finish(scope, v, e.span)?;
            let tv = self.tensor_of(scope, v, e.span)?;
            inits.push(tv);
        }
        let region = self.func.add_region();
        let index = self.func.add_param(region, TensorType::scalar(DType::I32).into());
        let id = LoopId(self.loops.len());
        let s = &self.scopes[scope.0];
        let mut loops = s.loops.clone();
        if !l.serial {
            let mask = extent.as_const().map_or(Vec::new(), |n| vec![true; usize::try_from(n).unwrap_or(0)]);
            loops.push(LoopCtx { id, var: l.var.name.clone(), extent: extent.clone(), index, mask });
        }
        let path = join(&s.path, &node.name.name);
        let mut weights = join(&s.weights, &node.name.name);
        if !l.serial {
            weights = join(&weights, &format!("{{{}}}", l.var.name));
        }
        let mut names = BTreeMap::new();
        for w in &l.weights {
            names.insert(w.name.name.clone(), Slot::Weight(w));
        }
        for n in &l.nodes {
            names.insert(n.name.name.clone(), Slot::Node(n, NodeState::New));
        }
        let serial = s.serial || l.serial;
        let file = s.file;
        let body = self.add_scope(Scope {
            parent: Some(scope),
            file,
            region,
            path,
            weights,
            loops,
            serial,
            names,
            nodes: l.nodes.iter().collect(),
        });
        let var = Tv { id: index, storage: DType::I32, span: l.var.span };
        self.scopes[body.0].define(&l.var.name, Val::LoopVar(id, var));
        let mut params = Vec::new();
        for ((name, _), init) in l.carry.iter().zip(&inits) {
            let ty = self.func.ty(init.id).clone();
            let p = self.func.add_param(region, ty);
            let tv = Tv { id: p, storage: init.storage, span: name.span };
            self.func.values[p.index()].names.push(join(&self.scopes[body.0].path, &name.name).into());
            self.scopes[body.0].define(&name.name, Val::Tensor(tv));
            params.push(tv);
        }
        self.loops.push(LoopState {
            decl: l,
            body,
            outer: scope,
            op: None,
            extent: extent.clone(),
            carried: Vec::new(),
            kept: BTreeMap::new(),
        });
        let opened = self.open.len();
        self.run_effects(body);
        let mut yields = Vec::new();
        for ((name, _), param) in l.carry.iter().zip(&params) {
            let Some((_, e)) = l.yields.iter().find(|(n, _)| n.name == name.name) else {
                let d = Diagnostic::error(
                    codes::MISSING_KEY,
                    name.span,
                    format!("`{}` is carried, but no iteration yields it", name.name),
                )
                .help(format!("yield: {{{}: ...}}", name.name));
                return Err(self.report(d));
            };
            let v = self.expr(body, e)?;
            let v = self.finish(body, v, e.span)?;
            let tv = self.tensor_of(body, v, e.span)?;
            let tv = self.fit_carried(body, tv, *param, e.span, name)?;
            yields.push(tv.id);
        }
        if let Some((extra, _)) = l.yields.iter().find(|(n, _)| !l.carry.iter().any(|(c, _)| c.name == n.name)) {
            let d = Diagnostic::error(
                codes::UNKNOWN_NAME,
                extra.span,
                format!("`{}` is yielded, but not carried", extra.name),
            )
            .help("carry it with its first value, or keep it");
            return Err(self.report(d));
        }
        if self.exhaustive {
            self.lower_all(body);
        }
        self.lower_wanted(body);
        self.close_states(region, opened);
        self.func.regions[region.index()].yields = yields;
        let attrs = Attrs::from([
            ("extent", Attr::Dim(extent)),
            ("serial", Attr::Bool(l.serial)),
            ("keep", Attr::Keeps(Vec::new())),
        ]);
        let types: Vec<Type> = inits.iter().map(|tv| self.func.ty(tv.id).clone()).collect();
        let loc = self.loc_of(&node.name);
        let outer_region = self.scopes[scope.0].region;
        let operands = inits.iter().map(|tv| tv.id).collect();
        let op = self.func.add_op(outer_region, Opcode::Loop, operands, attrs, vec![region], types, loc);
        let results = self.func.op(op).results.clone();
        let path = self.scopes[body.0].path.clone();
        for ((name, _), id) in l.carry.iter().zip(&results) {
            self.func.values[id.index()].names.push(join(&path, &name.name).into());
        }
        let carried = l
            .carry
            .iter()
            .zip(results)
            .zip(&inits)
            .map(|(((name, _), id), init)| (name.name.clone(), Tv { id, storage: init.storage, span: name.span }))
            .collect();
        let state = &mut self.loops[id.0];
        state.op = Some(op);
        state.carried = carried;
        if self.exhaustive {
            for k in &l.keep {
                let _ = self.kept(id, k);
            }
        }
        Ok(Val::Loop(id))
    }

    /// A yielded value must have the type of the carried one; a float is cast to its dtype.
    fn fit_carried(&mut self, body: ScopeId, tv: Tv, param: Tv, span: Span, name: &Ident) -> Res<Tv> {
        let (have, want) = (self.tensor_type(tv.id), self.tensor_type(param.id));
        if have.dims != want.dims || (have.dtype != want.dtype && !(have.dtype.is_float() && want.dtype.is_float())) {
            let code = if have.dims != want.dims { codes::DIM_MISMATCH } else { codes::DTYPE_MISMATCH };
            let d = Diagnostic::error(
                code,
                span,
                format!("`{}` begins as {want}, but an iteration yields {have}", name.name),
            )
            .related(param.span, "carried from here")
            .related(tv.span, "the yielded value");
            return Err(self.report(d));
        }
        if have.dtype == want.dtype {
            return Ok(tv);
        }
        let rounded = Tv { storage: want.dtype, ..tv };
        Ok(self.round(body, rounded))
    }

    /// A carried, kept or inner value of a loop by name.
    pub(crate) fn loop_field(&mut self, id: LoopId, field: &'a Ident) -> Res<Val> {
        let state = &self.loops[id.0];
        let decl = state.decl;
        if let Some((_, tv)) = state.carried.iter().find(|(n, _)| *n == field.name) {
            return Ok(Val::Tensor(*tv));
        }
        if let Some(k) = decl.keep.iter().find(|k| k.name.name == field.name) {
            return self.kept(id, k).map(Val::Tensor);
        }
        if decl.nodes.iter().any(|n| n.name.name == field.name) {
            let body = state.body;
            let v = self.name(body, &field.name, field.span)?;
            return Ok(Val::Inside(id, Box::new(v)));
        }
        let known = decl
            .carry
            .iter()
            .map(|(n, _)| n.name.as_str())
            .chain(decl.keep.iter().map(|k| k.name.name.as_str()))
            .chain(decl.nodes.iter().map(|n| n.name.name.as_str()))
            .collect();
        Err(self.no_field(field, known))
    }

    fn kept(&mut self, id: LoopId, k: &'a KeepDecl) -> Res<Tv> {
        let (body, outer) = (self.loops[id.0].body, self.loops[id.0].outer);
        let v = self.expr(body, &k.value)?;
        let v = self.finish(body, v, k.value.span)?;
        let tv = self.tensor_of(body, v, k.value.span)?;
        let rank = self.tensor_type(tv.id).rank();
        let axis = match &k.axis {
            None => 0,
            Some(e) => {
                let a = self.static_int(outer, e)?.as_const().unwrap_or(0);
                let n = if a < 0 { a + rank as i64 + 1 } else { a };
                if !(0..=rank as i64).contains(&n) {
                    let d = Diagnostic::error(
                        codes::BAD_ATTRIBUTE,
                        e.span,
                        format!("the kept value has {rank} axes, so axis {a} cannot be added"),
                    );
                    return Err(self.report(d));
                }
                n as usize
            }
        };
        let (at, single) = match &k.at {
            None => (None, false),
            Some(e) => match self.expr(outer, e)? {
                Val::Static(Static::List(items)) => {
                    let list: Option<Vec<i64>> = items.iter().map(Static::as_i64).collect();
                    match list {
                        Some(list) => (Some(list), false),
                        // In a check without values any iterations stand for those of an unknown dim.
                        None if self.symbolic && items.iter().all(|i| matches!(i, Static::Int(_))) => {
                            (Some((0..items.len() as i64).collect()), false)
                        }
                        None => {
                            let d = Diagnostic::error(codes::NOT_STATIC, e.span, "iterations are integers");
                            return Err(self.report(d));
                        }
                    }
                }
                Val::Static(Static::Int(d)) => match d.as_const() {
                    Some(v) => (Some(vec![v]), true),
                    None => (Some(vec![0]), true),
                },
                Val::Unbound => (None, false),
                other => {
                    let what = self.describe(&other);
                    let d = Diagnostic::error(
                        codes::NOT_STATIC,
                        e.span,
                        format!("`at` is an iteration or a list of iterations, this is {what}"),
                    );
                    return Err(self.report(d));
                }
            },
        };
        if let (Some(list), Some(n)) = (&at, self.loops[id.0].extent.as_const()) {
            let ordered = list.windows(2).all(|w| w[0] < w[1]);
            if !ordered || list.iter().any(|i| !(0..n).contains(i)) {
                let span = k.at.as_ref().map_or(k.name.span, |e| e.span);
                let d = Diagnostic::error(
                    codes::BAD_INDEX,
                    span,
                    format!("iterations {list:?} must increase and lie within 0..{}", n - 1),
                )
                .help("`at` is one iteration or an increasing list of them");
                return Err(self.report(d));
            }
        }
        let kept = self.keep_value(id, tv, axis, at)?;
        let out = if single {
            let mut dims = self.tensor_type(kept.id).dims;
            dims.remove(axis);
            self.reshaped(outer, kept, dims, k.name.span, k.name.span)?
        } else {
            kept
        };
        let path = join(&self.scopes[body.0].path, &k.name.name);
        self.name_value(&Val::Tensor(out), &path);
        Ok(Tv { span: k.name.span, ..out })
    }

    /// An inner value of a loop seen from outside: all iterations, stacked along a new first axis.
    pub(crate) fn cross_loop(&mut self, id: LoopId, inner: Val, span: Span) -> Res<Tv> {
        let body = self.loops[id.0].body;
        let tv = self.tensor_of(body, inner, span)?;
        let tv = self.round(body, tv);
        self.keep_value(id, tv, 0, None)
    }

    fn keep_value(&mut self, id: LoopId, tv: Tv, axis: usize, at: Option<Vec<i64>>) -> Res<Tv> {
        let key = (tv.id, axis, at.clone());
        if let Some(v) = self.loops[id.0].kept.get(&key) {
            return Ok(Tv { id: *v, ..tv });
        }
        let Some(op) = self.loops[id.0].op else {
            let d = Diagnostic::error(codes::CYCLE, tv.span, "a loop needs what it keeps before it has run");
            return Err(self.report(d));
        };
        let body_region = self.scopes[self.loops[id.0].body.0].region;
        if !self.defined_in(tv.id, body_region) {
            let d = Diagnostic::error(
                codes::BAD_INDEX,
                tv.span,
                "this value exists only in some iterations and cannot be seen from outside",
            );
            return Err(self.report(d));
        }
        let t = self.tensor_type(tv.id);
        let extent = match &at {
            Some(list) => Dim::from(list.len() as i64),
            None => self.loops[id.0].extent.clone(),
        };
        let mut dims = t.dims.clone();
        dims.insert(axis, extent);
        let dist = t.dist && axis < t.rank();
        let result = ValueId(self.func.values.len() as u32);
        let o = &mut self.func.ops[op.index()];
        let place = o.results.len() as u32;
        o.results.push(result);
        let region = o.regions[0];
        if let Some(Attr::Keeps(keeps)) = o.attrs.get_mut("keep") {
            keeps.push(Keep { axis, at });
        }
        self.func.values.push(crate::ir::Value {
            ty: TensorType { dtype: t.dtype, dims, dist }.into(),
            def: ValueDef::Result(op, place),
            names: Vec::new(),
        });
        self.func.regions[region.index()].yields.push(tv.id);
        self.loops[id.0].kept.insert(key, result);
        Ok(Tv { id: result, ..tv })
    }

    /// True if a value is visible in `region` itself: defined there or in a region around it.
    fn defined_in(&self, v: ValueId, region: crate::ir::RegionId) -> bool {
        let mut visible = vec![region];
        let mut at = region;
        // The op that owns a region stands in the region around it.
        loop {
            let owner = self.func.ops.iter().find(|o| o.regions.contains(&at));
            let around = match owner {
                Some(o) => {
                    self.func.regions.iter().position(|r| r.ops.iter().any(|id| std::ptr::eq(self.func.op(*id), o)))
                }
                None => None,
            };
            match around {
                Some(r) => {
                    at = crate::ir::RegionId(r as u32);
                    visible.push(at);
                }
                None => break,
            }
        }
        let home = match self.func.value(v).def {
            ValueDef::Param(r, _) => Some(r),
            ValueDef::Result(op, _) => {
                self.func.regions.iter().position(|r| r.ops.contains(&op)).map(|r| crate::ir::RegionId(r as u32))
            }
        };
        // A value of a region whose op is not built yet is in an enclosing scope.
        home.is_none_or(|h| visible.contains(&h) || !self.func.ops.iter().any(|o| o.regions.contains(&h)))
    }
}
