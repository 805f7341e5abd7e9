//! References to weights and states by loop index.

use super::control::{Around, Index, not_an_index};
use super::ops::results;
use super::{Cx, Site};
use crate::ir::{Op, ValueId, Weight};

/// The declaration an integer attribute names.
fn declared<'a, T>(cx: &mut Cx, site: Site, op: &Op, attr: &str, table: &'a [T]) -> Option<(usize, &'a T)> {
    let id = op.int(attr)?;
    let found = usize::try_from(id).ok().and_then(|i| table.get(i).map(|t| (i, t)));
    if found.is_none() {
        cx.error(site, format!("there is no {attr} {id}, the module has {}", table.len()));
    }
    found
}

fn index<'a>(cx: &mut Cx, site: Site, v: ValueId, around: &'a Around) -> Option<&'a Index> {
    match around.indices.get(&v) {
        Some(index) if !index.serial => Some(index),
        _ => {
            let message = not_an_index(cx, v);
            cx.error(site, message);
            None
        }
    }
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
        let Some(index) = index(cx, site, v, around) else { continue };
        if index.exceeds(*extent) {
            cx.error(site, format!("the weight has {extent} elements along {var}, the loop {}", extent_of(index)));
        } else if masked {
            reach.push(index.iterations(*extent));
        }
    }
    if masked
        && reach.len() == w.loops.len()
        && let Some(at) = missing(w, &reach)
    {
        cx.error(site, format!("the weight does not exist at {at:?}, which reaches this place"));
    }
}

fn extent_of(index: &Index) -> String {
    index.extent.map_or_else(|| "an extent that is not constant".to_owned(), |n| format!("{n} iterations"))
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
    let elements = match (op.operands.first(), around.nest.as_slice()) {
        (None, []) => {
            if s.count != 1 {
                cx.error(site, format!("the state has {} elements, opening one needs a loop index", s.count));
                return;
            }
            vec![0]
        }
        (None, _) => {
            cx.error(site, "a state is opened inside a loop by the loop's own index, else once an iteration");
            return;
        }
        (Some(&v), nest) => {
            let Some(index) = index(cx, site, v, around) else { return };
            if nest != [Some(v)] {
                cx.error(site, "a state is opened in the loop whose index selects it and in no other, else repeatedly");
            }
            let known = s.element.len() as i64;
            let iterations = index.iterations(known);
            if index.exceeds(known) {
                let message =
                    format!("the state has elements for {} indices, the loop {}", s.element.len(), extent_of(index));
                cx.error(site, message);
            }
            let absent: Vec<i64> = iterations.iter().copied().filter(|&i| s.element[i as usize] < 0).collect();
            if !absent.is_empty() {
                cx.error(site, format!("the state has no element for the indices {absent:?}, which reach this place"));
            }
            iterations.iter().map(|&i| s.element[i as usize]).filter(|e| *e >= 0).collect()
        }
    };
    let twice: Vec<i64> = elements.into_iter().filter(|&e| !around.opened.insert((id, e))).collect();
    if !twice.is_empty() {
        cx.error(site, format!("the function opens elements {twice:?} of the state a second time"));
    }
}
