//! References to weights and states by loop index.

use super::control::{Around, Index};
use super::ops::results;
use super::{Cx, Site};
use crate::ir::{Op, ValueDef, ValueId, Weight};
use crate::ops::Opcode;
use crate::ty::DType;

/// The declaration an integer attribute names.
fn declared<'a, T>(cx: &mut Cx, site: Site, op: &Op, attr: &str, table: &'a [T]) -> Option<(usize, &'a T)> {
    let id = op.int(attr)?;
    let found = usize::try_from(id).ok().and_then(|i| table.get(i).map(|t| (i, t)));
    if found.is_none() {
        cx.error(site, format!("there is no {attr} {id}, the module has {}", table.len()));
    }
    found
}

/// What an index operand stands for.
enum Selected<'a> {
    /// The iterations of a loop that is not serial.
    Loop(&'a Index),
    /// One index, given by a constant.
    Fixed(i64),
}

impl Selected<'_> {
    /// The indices below `limit`.
    fn within(&self, limit: i64) -> Vec<i64> {
        match self {
            Selected::Loop(index) => index.iterations(limit),
            Selected::Fixed(i) => (0..limit).contains(i).then_some(*i).into_iter().collect(),
        }
    }

    /// True if there are indices outside `0..limit`.
    fn exceeds(&self, limit: i64) -> bool {
        match self {
            Selected::Loop(index) => index.exceeds(limit),
            Selected::Fixed(i) => !(0..limit).contains(i),
        }
    }

    fn describe(&self) -> String {
        match self {
            Selected::Loop(Index { extent: Some(n), .. }) => format!("the loop runs {n} times"),
            Selected::Loop(_) => "the extent of the loop is not constant".to_owned(),
            Selected::Fixed(i) => format!("the index is {i}"),
        }
    }
}

fn selected<'a>(cx: &mut Cx, site: Site, v: ValueId, around: &'a Around) -> Option<Selected<'a>> {
    match around.indices.get(&v) {
        Some(index) if !index.serial => return Some(Selected::Loop(index)),
        None if let Some(i) = constant(cx, v) => return Some(Selected::Fixed(i)),
        _ => {}
    }
    let shown = cx.show(v);
    cx.error(site, format!("{shown} must be the index of an enclosing loop that is not serial, or an i32 constant"));
    None
}

/// The value of an i32 constant.
fn constant(cx: &Cx, v: ValueId) -> Option<i64> {
    let ValueDef::Result(op, 0) = cx.func.values.get(v.index())?.def else { return None };
    let op = cx.func.ops.get(op.index())?;
    let whole = op.code == Opcode::Const && op.dtype("dtype") == Some(DType::I32);
    op.float("value").filter(|x| whole && x.fract() == 0.0).map(|x| x as i64)
}

pub(super) fn weight(cx: &mut Cx, site: Site, op: &Op, around: &Around) {
    let module = cx.module;
    let Some((_, w)) = declared(cx, site, op, "weight", &module.weights) else { return };
    results(cx, site, op, &[w.ty.clone().into()]);
    if op.operands.len() != w.loops.len() {
        let message = format!("the weight has {} loop indices, not {}", w.loops.len(), op.operands.len());
        cx.error(site, message);
    }
    // A mask bounds the extents, so only then may iterations be listed.
    let masked = !w.present.is_empty() && w.elements() == Some(w.present.len() as i64);
    let mut reach = Vec::new();
    for (&v, (var, extent)) in op.operands.iter().zip(&w.loops) {
        let Some(selected) = selected(cx, site, v, around) else { continue };
        if selected.exceeds(*extent) {
            cx.error(site, format!("the weight has {extent} elements along {var}, {}", selected.describe()));
        } else if masked {
            reach.push(selected.within(*extent));
        }
    }
    if masked
        && reach.len() == w.loops.len()
        && let Some(at) = missing(w, &reach)
    {
        cx.error(site, format!("the weight does not exist at {at:?}, which reaches this place"));
    }
}

/// The first index combination at which the weight does not exist.
fn missing(w: &Weight, reach: &[Vec<i64>]) -> Option<Vec<i64>> {
    if reach.iter().any(Vec::is_empty) {
        return None;
    }
    let mut odometer = vec![0; reach.len()];
    loop {
        let at: Vec<i64> = odometer.iter().zip(reach).map(|(&k, values)| values[k]).collect();
        let flat = at
            .iter()
            .zip(&w.loops)
            .try_fold(0i64, |flat, (i, (_, extent))| flat.checked_mul(*extent)?.checked_add(*i))
            .and_then(|flat| usize::try_from(flat).ok());
        match flat.and_then(|flat| w.present.get(flat)) {
            Some(true) => {}
            Some(false) => return Some(at),
            // The mask has the wrong length, which is reported at the declaration.
            None => return None,
        }
        let step = (0..reach.len()).rev().find(|&k| odometer[k] + 1 < reach[k].len())?;
        odometer[step] += 1;
        odometer[step + 1..].fill(0);
    }
}

pub(super) fn state_open(cx: &mut Cx, site: Site, op: &Op, around: &mut Around) {
    let module = cx.module;
    let Some((id, s)) = declared(cx, site, op, "state", &module.states) else { return };
    results(cx, site, op, &[s.version_type()]);
    let elements = match op.operands.first() {
        None => {
            if s.count != 1 {
                cx.error(site, format!("the state has {} elements, opening one needs a loop index", s.count));
                return;
            }
            vec![0]
        }
        Some(&v) => {
            let Some(selected) = selected(cx, site, v, around) else { return };
            let known = s.element.len() as i64;
            let iterations = selected.within(known);
            if selected.exceeds(known) {
                cx.error(site, format!("the state has elements for {known} indices, {}", selected.describe()));
            }
            let absent: Vec<i64> = iterations.iter().copied().filter(|&i| s.element[i as usize] < 0).collect();
            if !absent.is_empty() {
                cx.error(site, format!("the state has no element for the indices {absent:?}, which reach this place"));
            }
            iterations.iter().map(|&i| s.element[i as usize]).filter(|e| *e >= 0).collect()
        }
    };
    if let Some(v) = op.results.first() {
        around.opened_at.insert(*v, elements.iter().map(|e| (id, *e)).collect());
    }
    let twice: Vec<i64> = elements.into_iter().filter(|&e| !around.opened.insert((id, e))).collect();
    if !twice.is_empty() {
        cx.error(site, format!("elements {twice:?} of the state are opened while they are open"));
    }
}

/// A closed element may be opened again.
pub(super) fn state_close(cx: &Cx, op: &Op, around: &mut Around) {
    let Some(mut v) = op.operands.first().copied() else { return };
    // Versions form a chain; its length is bounded by the number of ops.
    for _ in 0..=cx.func.ops.len() {
        if let Some(elements) = around.opened_at.remove(&v) {
            for e in elements {
                around.opened.remove(&e);
            }
            return;
        }
        let Some(ValueDef::Result(def, result)) = cx.func.values.get(v.index()).map(|x| x.def) else { return };
        let Some(def) = cx.func.ops.get(def.index()) else { return };
        let before = match def.code {
            Opcode::Loop => def.operands.get(result as usize),
            Opcode::Cases => {
                let first = def.regions.first().and_then(|r| cx.func.regions.get(r.index()));
                first.and_then(|r| r.yields.get(result as usize))
            }
            _ => def.operands.iter().find(|x| cx.func.values.get(x.index()).is_some_and(|x| x.ty.is_state())),
        };
        match before {
            Some(x) => v = *x,
            None => return,
        }
    }
}
