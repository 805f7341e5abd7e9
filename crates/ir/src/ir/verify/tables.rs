//! Symbols, weights, states and function names.

use super::types::{kind_fault, tensor_fault};
use super::{FuncId, Module, Site};
use crate::ir::text::is_word;
use crate::ir::{StateDecl, StateId, Weight, WeightId};
use crate::ty::Type;
use std::collections::BTreeSet;

type Faults = Vec<(Site, String)>;

pub(super) fn check(module: &Module, symbols: &BTreeSet<&str>) -> Faults {
    let mut out = Vec::new();
    if module.name.is_empty() {
        out.push((Site::Module, "a module needs a name".to_owned()));
    }
    for (i, s) in module.symbols.iter().enumerate() {
        let site = Site::Symbol(i);
        if !is_word(&s.name) {
            out.push((site, format!("\"{}\" cannot name a symbol", s.name)));
        }
        if i > 0 && module.symbols[i - 1].name >= s.name {
            out.push((site, format!("{} is not in name order, or stands twice", s.name)));
        }
        if s.bounds.min.is_some_and(|m| m < 0) {
            out.push((site, format!("{} may be negative", s.name)));
        }
        if let (Some(min), Some(max)) = (s.bounds.min, s.bounds.max)
            && min > max
        {
            out.push((site, format!("no value lies within {min}..{max}")));
        }
    }
    let mut names = BTreeSet::new();
    for (i, w) in module.weights.iter().enumerate() {
        let site = Site::Weight(WeightId(i as u32));
        let mut faults = weight(w, symbols);
        if w.name.is_empty() || !names.insert(&w.name) {
            faults.push(format!("a weight needs a name of its own, this is \"{}\"", w.name));
        }
        out.extend(faults.into_iter().map(|m| (site, m)));
    }
    let mut names = BTreeSet::new();
    for (i, s) in module.states.iter().enumerate() {
        let site = Site::State(StateId(i as u32));
        let mut faults = state(s, symbols);
        if s.name.is_empty() || !names.insert(&s.name) {
            faults.push(format!("a state needs a name of its own, this is \"{}\"", s.name));
        }
        out.extend(faults.into_iter().map(|m| (site, m)));
    }
    let mut names = BTreeSet::new();
    for (i, f) in module.funcs.iter().enumerate() {
        if !names.insert(&f.name) {
            out.push((Site::Func(FuncId(i as u32)), format!("a second function is named \"{}\"", f.name)));
        }
    }
    out
}

fn weight(w: &Weight, symbols: &BTreeSet<&str>) -> Vec<String> {
    let mut out: Vec<String> = tensor_fault(&w.ty, symbols).into_iter().collect();
    let mut vars = BTreeSet::new();
    for (var, extent) in &w.loops {
        if !is_word(var) || !vars.insert(var.as_str()) {
            out.push(format!("a loop variable needs a name of its own, this is \"{var}\""));
        }
        if *extent < 0 {
            out.push(format!("the loop {var} has an extent of {extent}"));
        }
    }
    match w.elements() {
        Some(n) if w.present.is_empty() || w.present.len() as i64 == n => {}
        Some(n) => out.push(format!("the weight has {n} elements, its present mask has {}", w.present.len())),
        None => out.push("the number of elements overflows".to_owned()),
    }
    let patterns = [Some(&w.name), w.source.as_ref().map(|s| &s.tensor)];
    for pattern in patterns.into_iter().flatten() {
        for var in placeholders(pattern).filter(|v| !vars.contains(v)) {
            out.push(format!("{{{var}}} in \"{pattern}\" is not a loop variable of the weight"));
        }
    }
    if let Some(s) = w.storage
        && w.ty.dtype.is_float() != s.is_float()
    {
        out.push(format!("{} cannot be computed with from a storage of {s}", w.ty));
    }
    out
}

/// What stands between braces.
fn placeholders(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(var, _)| var))
}

fn state(s: &StateDecl, symbols: &BTreeSet<&str>) -> Vec<String> {
    let mut out: Vec<String> = kind_fault(&s.kind, symbols).into_iter().collect();
    if !s.dtype.is_float() {
        out.push(format!("a state stores floats, not {}", s.dtype));
    }
    if s.count < 0 {
        out.push(format!("a state has {} elements", s.count));
    }
    let mut seen = BTreeSet::new();
    for (index, &e) in s.element.iter().enumerate() {
        if e < -1 || e >= s.count {
            out.push(format!("index {index} selects element {e} of {}", s.count));
        } else if e >= 0 && !seen.insert(e) {
            out.push(format!("index {index} selects element {e}, which an earlier index has"));
        }
    }
    if !s.element.is_empty() && (seen.len() as i64) < s.count {
        out.push(format!("the indices select {} of {} elements", seen.len(), s.count));
    }
    out
}

impl Weight {
    /// Number of tensors: the product of the extents of its loops; `None` on overflow.
    pub fn elements(&self) -> Option<i64> {
        self.loops.iter().try_fold(1i64, |n, (_, extent)| n.checked_mul(*extent))
    }
}

impl StateDecl {
    /// The type of a version of one element.
    pub fn version_type(&self) -> Type {
        Type::State { kind: self.kind.clone(), dtype: self.dtype }
    }
}
