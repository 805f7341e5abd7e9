//! Loops and cases, and what their indices may select.

use super::ops::results;
use super::tree::{OpNode, RegionNode};
use super::{Cx, Site, fits, refs};
use crate::ir::{Attr, Keep, Op, ValueId};
use crate::ops::{Effect, Opcode};
use crate::ty::{DType, Dim, TensorType, Type};
use std::collections::{BTreeMap, BTreeSet};

/// The index of an enclosing loop.
pub(super) struct Index {
    /// `None` if it is not a constant.
    pub extent: Option<i64>,
    pub serial: bool,
    /// The iterations that reach this place, if cases cut some off.
    reach: Option<BTreeSet<i64>>,
}

impl Index {
    /// True if an iteration at or above `limit` reaches this place.
    pub fn exceeds(&self, limit: i64) -> bool {
        match &self.reach {
            Some(set) => set.last().is_some_and(|i| *i >= limit),
            None => self.extent.is_none_or(|n| n > limit),
        }
    }

    /// The iterations below `limit` that reach this place; as many as `limit` says.
    pub fn iterations(&self, limit: i64) -> Vec<i64> {
        match &self.reach {
            Some(set) => set.iter().copied().filter(|i| *i < limit).collect(),
            None => (0..self.extent.unwrap_or(limit).min(limit)).collect(),
        }
    }
}

/// The loops around a place.
#[derive(Default)]
pub(super) struct Around {
    pub indices: BTreeMap<ValueId, Index>,
    /// Elements of each state that are open.
    pub opened: BTreeSet<(usize, i64)>,
    /// For the version an element had when it was opened: the elements that were opened there.
    pub opened_at: BTreeMap<ValueId, Vec<(usize, i64)>>,
}

pub(super) fn check(cx: &mut Cx, body: &RegionNode) {
    region(cx, body, &mut Around::default());
}

fn region(cx: &mut Cx, node: &RegionNode, around: &mut Around) {
    for op_node in &node.ops {
        let (op, site) = (cx.func.op(op_node.id), Site::Op(cx.id, op_node.id));
        match op.code {
            Opcode::Loop => loop_op(cx, site, op, op_node, around),
            Opcode::Cases => cases(cx, site, op, op_node, around),
            Opcode::Guarded => guarded(cx, site, op, op_node, around),
            _ => {
                match op.code {
                    Opcode::Weight => refs::weight(cx, site, op, around),
                    Opcode::StateOpen => refs::state_open(cx, site, op, around),
                    Opcode::StateClose => refs::state_close(cx, op, around),
                    _ => {}
                }
                for inner in op_node.regions.iter().flatten() {
                    region(cx, inner, around);
                }
            }
        }
    }
}

/// Result types of a loop that carries `carried` and keeps values of types `kept`: the carried types, then each kept
/// type with a new axis of extent `extent`, or of the number of kept iterations. `None` if an axis lies outside its
/// value. A stacked distribution stays one unless the new axis is the last.
pub fn loop_types(carried: &[Type], kept: &[TensorType], extent: &Dim, keeps: &[Keep]) -> Option<Vec<Type>> {
    let mut out = carried.to_vec();
    for (t, keep) in kept.iter().zip(keeps) {
        let mut dims = t.dims.clone();
        if keep.axis > dims.len() {
            return None;
        }
        let n = keep.at.as_ref().map_or_else(|| extent.clone(), |at| Dim::from(at.len() as i64));
        dims.insert(keep.axis, n);
        out.push(Type::Tensor(TensorType { dtype: t.dtype, dims, dist: t.dist && keep.axis < t.rank() }));
    }
    Some(out)
}

fn loop_op(cx: &mut Cx, site: Site, op: &Op, node: &OpNode, around: &mut Around) {
    let extent = op.dim("extent");
    let constant = extent.and_then(Dim::as_const);
    let serial = op.bool("serial").unwrap_or(true);
    if let Some(extent) = extent {
        if constant.is_some_and(|n| n < 0) {
            cx.error(site, format!("a loop cannot run {extent} times"));
        }
        if !serial && constant.is_none() {
            cx.error(site, format!("a loop that is not serial has a constant extent, this is {extent}"));
        }
    }
    for (i, keep) in op.keeps().iter().enumerate() {
        let Some(at) = &keep.at else { continue };
        if at.windows(2).any(|w| w[0] >= w[1]) {
            cx.error(site, format!("kept value {i}: the iterations {at:?} do not strictly increase"));
        }
        match constant {
            None => cx.error(site, format!("kept value {i}: single iterations need a constant extent")),
            Some(n) => {
                if let Some(bad) = at.iter().find(|v| !(0..n).contains(*v)) {
                    cx.error(site, format!("kept value {i}: there is no iteration {bad} of {n}"));
                }
            }
        }
    }
    for inner in node.regions.iter().flatten() {
        let params = &cx.func.region(inner.id).params;
        let here = cx.region_site(inner.id);
        let n = op.operands.len();
        if params.len() != n + 1 {
            let message = format!("the region takes the index and {n} carried values, not {} parameters", params.len());
            cx.error(here, message);
        }
        cx.expect_types(here, "parameter", params, &[TensorType::scalar(DType::I32).into()], Type::eq);
        let carried: Vec<Type> = params.iter().skip(1).filter_map(|v| cx.ty(*v)).cloned().collect();
        cx.expect_types(site, "initial value", &op.operands, &carried, fits);
        loop_results(cx, site, op, inner, &carried);

        let index = params.first().copied();
        if let Some(v) = index {
            around.indices.insert(v, Index { extent: constant, serial, reach: None });
        }
        region(cx, inner, around);
        if let Some(v) = index {
            around.indices.remove(&v);
        }
    }
}

fn loop_results(cx: &mut Cx, site: Site, op: &Op, inner: &RegionNode, carried: &[Type]) {
    let (yields, keeps) = (cx.yields(inner), op.keeps());
    let here = Site::Yield(cx.id, inner.id);
    let n = op.operands.len();
    if yields.len() != n + keeps.len() {
        let message = format!("the region yields {n} carried and {} kept values, not {}", keeps.len(), yields.len());
        cx.error(here, message);
        return;
    }
    cx.expect_types(here, "carried value", &yields[..n], carried, fits);
    let mut kept = Vec::new();
    for &v in &yields[n..] {
        match cx.ty(v) {
            Some(Type::Tensor(t)) => kept.push(t.clone()),
            Some(_) => {
                let shown = cx.show(v);
                cx.error(here, format!("{shown} is a state and cannot be kept"));
            }
            None => {}
        }
    }
    let (Some(extent), true) = (op.dim("extent"), kept.len() == keeps.len()) else { return };
    match loop_types(carried, &kept, extent, keeps) {
        Some(types) if carried.len() == n => results(cx, site, op, &weakened(cx, op, types)),
        Some(_) => {}
        None => cx.error(site, "a kept value is stacked along an axis it cannot have"),
    }
}

/// The same types, not claiming a distribution where the op does not.
fn weakened(cx: &Cx, op: &Op, mut types: Vec<Type>) -> Vec<Type> {
    for (ty, v) in types.iter_mut().zip(&op.results).skip(op.operands.len()) {
        if let (Type::Tensor(t), Some(Type::Tensor(have))) = (ty, cx.ty(*v)) {
            t.dist &= have.dist;
        }
    }
    types
}

fn cases(cx: &mut Cx, site: Site, op: &Op, node: &OpNode, around: &mut Around) {
    let select: &[i64] = match op.attrs.get("select") {
        Some(Attr::Ints(v)) => v,
        _ => &[],
    };
    let outside: BTreeSet<i64> = select.iter().copied().filter(|s| !(0..op.regions.len() as i64).contains(s)).collect();
    for bad in outside {
        cx.error(site, format!("the selection names region {bad}, there are {}", op.regions.len()));
    }
    let index = op.operands.first().copied();
    if let Some(v) = index {
        match around.indices.get(&v) {
            Some(Index { serial: false, extent, .. }) => {
                if extent.is_some_and(|n| n != select.len() as i64) {
                    let n = extent.unwrap_or_default();
                    cx.error(site, format!("{} regions are selected for {n} iterations", select.len()));
                }
            }
            _ => cx.error(site, not_an_index(cx, v)),
        }
    }
    let mut first: Option<Vec<Type>> = None;
    for (k, inner) in node.regions.iter().enumerate() {
        let Some(inner) = inner else { continue };
        if !cx.func.region(inner.id).params.is_empty() {
            cx.error(cx.region_site(inner.id), "a case has no parameters");
        }
        let (yields, here) = (cx.yields(inner), Site::Yield(cx.id, inner.id));
        let types: Vec<Type> = yields.iter().filter_map(|v| cx.ty(*v)).cloned().collect();
        match &first {
            None if types.len() == yields.len() => {
                results(cx, site, op, &types);
                first = Some(types);
            }
            None => {}
            Some(want) => {
                if want.len() != yields.len() {
                    cx.error(here, format!("case {k} yields {} values, the first case {}", yields.len(), want.len()));
                }
                let want = want.clone();
                cx.expect_types(here, "value", yields, &want, Type::eq);
            }
        }
        let outer = index.and_then(|v| narrow(around, v, select, k as i64).map(|reach| (v, reach)));
        region(cx, inner, around);
        if let Some((v, reach)) = outer
            && let Some(entry) = around.indices.get_mut(&v)
        {
            entry.reach = reach;
        }
    }
}

fn guarded(cx: &mut Cx, site: Site, op: &Op, node: &OpNode, around: &mut Around) {
    for inner in node.regions.iter().flatten() {
        if !cx.func.region(inner.id).params.is_empty() {
            cx.error(cx.region_site(inner.id), "the region of `guarded` has no parameters");
        }
        if let Some(effect) = effect(cx, inner) {
            cx.error(site, format!("the region of `guarded` may not run, so it cannot have `{}`", effect.name()));
        }
        let want: Vec<Type> = op.results.iter().filter_map(|v| cx.ty(*v)).cloned().collect();
        let yields = cx.yields(inner);
        cx.expect_types(Site::Yield(cx.id, inner.id), "value", yields, &want, fits);
        if yields.len() != 1 {
            let message = format!("the region of `guarded` yields one value, not {}", yields.len());
            cx.error(Site::Yield(cx.id, inner.id), message);
        }
        region(cx, inner, around);
    }
}

/// An op with an effect in a region, at any depth.
fn effect(cx: &Cx, node: &RegionNode) -> Option<Opcode> {
    node.ops.iter().find_map(|op| {
        let code = cx.func.op(op.id).code;
        let inner = || op.regions.iter().flatten().find_map(|r| effect(cx, r));
        if code.def().effect == Effect::Pure { inner() } else { Some(code) }
    })
}

/// Cuts the iterations of `v` down to those that select region `k`; returns what held before.
fn narrow(around: &mut Around, v: ValueId, select: &[i64], k: i64) -> Option<Option<BTreeSet<i64>>> {
    let entry = around.indices.get_mut(&v)?;
    let here = select.iter().enumerate().filter(|(_, s)| **s == k).map(|(i, _)| i as i64);
    let reach = match &entry.reach {
        None => here.collect(),
        Some(outer) => here.filter(|i| outer.contains(i)).collect(),
    };
    Some(entry.reach.replace(reach))
}

fn not_an_index(cx: &Cx, v: ValueId) -> String {
    format!("{} must be the index of an enclosing loop that is not serial", cx.show(v))
}
