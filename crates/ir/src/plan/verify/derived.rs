//! Derived weights and the module that computes them.

use super::{Check, PlanError};
use crate::ir::{Module, Weight};
use crate::plan::Plan;
use crate::plan::traffic::tensor_bytes;
use crate::ty::{Dim, TensorType, Type};

pub(super) fn check(plan: &Plan, out: &mut Vec<PlanError>) {
    let Plan { module, load, derived, phases: _, reassociate: _, rules: _, limits_hit: _ } = plan;
    let mut error = |path: &str, message: String| {
        let (phase, path) = (None, path.to_owned());
        out.push(PlanError { check: Check::Derived, phase, kernel: None, path, message });
    };
    let Some(first) = module.weights.len().checked_sub(derived.len()) else {
        return error("", format!("{} derived weights of {} in all", derived.len(), module.weights.len()));
    };
    if load.weights != module.weights[..first] {
        error("", "the load module has other weights than those before the derived ones".to_owned());
    }
    if !load.states.is_empty() {
        error("", "the load module has states".to_owned());
    }
    if load.symbols != module.symbols || load.numerics != module.numerics {
        error("", "the load module has other symbols or another numerics policy".to_owned());
    }
    if load.funcs.len() != derived.len() {
        error("", format!("{} load functions for {} derived weights", load.funcs.len(), derived.len()));
    }
    for (i, d) in derived.iter().enumerate() {
        let weight = &module.weights[first + i];
        let path = weight.name.as_str();
        if d.weight.index() != first + i {
            error(path, format!("derived weight {i} is weight {}, it must be {}", d.weight.0, first + i));
        }
        if weight.loops.len() > 1 || weight.source.is_some() {
            error(path, "a derived weight belongs to one loop at most and to no checkpoint".to_owned());
        }
        let made = made(weight);
        let bytes = tensor_bytes(&made).and_then(|b| b.as_const()).and_then(|b| u64::try_from(b).ok());
        if bytes != Some(d.bytes) {
            error(path, format!("{} bytes, its type has {bytes:?}", d.bytes));
        }
        for of in d.of.iter().filter(|of| !module.weights[..first].iter().any(|w| w.name == **of)) {
            error(path, format!("computed from `{of}`, which is no weight before the derived ones"));
        }
        if d.reason.is_empty() {
            error(path, "there is no reason why it is kept".to_owned());
        }
        if let Some(why) = load.funcs.get(i).and_then(|_| function(load, i, &weight.name, &made.into())) {
            error(path, why);
        }
    }
}

/// The type of what the function of a derived weight computes: one element, or all that exist along a new first axis.
fn made(weight: &Weight) -> TensorType {
    let mut ty = weight.ty.clone();
    if let Some((_, extent)) = weight.loops.first() {
        let present = weight.present.iter().filter(|p| **p).count() as i64;
        ty.dims.insert(0, Dim::from(if weight.present.is_empty() { *extent } else { present }));
    }
    ty
}

/// What is wrong with the function of a derived weight.
fn function(load: &Module, i: usize, name: &str, ty: &Type) -> Option<String> {
    let func = &load.funcs[i];
    if func.name != name {
        return Some(format!("load function {i} is `{}`", func.name));
    }
    let body = func.regions.get(func.body.index())?;
    let one = match body.yields.as_slice() {
        [v] => func.values.get(v.index()).map(|v| &v.ty),
        _ => None,
    };
    if !body.params.is_empty() || one != Some(ty) {
        return Some(format!("its load function does not give one {ty} of nothing"));
    }
    None
}
