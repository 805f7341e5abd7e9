//! What a component is given: dims, lists, parameters; lowering its weights and states.

use super::System;
use super::decl::*;
use super::fit;
use super::given::place_of;
use super::values::Values;
use crate::diag::{Diagnostic, Diagnostics, Span, codes, suggest};
use crate::spec::ast::{GraphFile, ParamKind};
use crate::spec::hygiene::Uses;
use crate::spec::lower::{FunctionRequest, Lower};
use crate::spec::statics::Static;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn declared_names(f: &GraphFile) -> Vec<String> {
    let dims = f.dims.iter().map(|d| d.name.name.clone());
    dims.chain(f.lists.iter().map(|l| l.name.name.clone()))
        .chain(f.params.iter().map(|p| p.name.name.clone()))
        .collect()
}

pub(super) fn component_values(
    values: &Values,
    c: &ComponentDecl,
    f: &GraphFile,
    diags: &mut Diagnostics,
) -> BTreeMap<String, Static> {
    let component = c.name.name.as_str();
    let mut out = BTreeMap::new();
    let bound_somewhere = |name: &str| {
        c.bindings.names().iter().any(|n| n == name)
            || values.decl.bindings.names().iter().any(|n| n == name)
            || values.sets.contains_key(name)
            || values.sets.contains_key(&format!("{component}.{name}"))
    };
    let place = |name: &str| place_of(values.sets, values.decl, c, name);
    let get = |name: &str, span: Span| values.binding(Some(component), name, place(name).unwrap_or(span)).ok();
    for d in &f.dims {
        let name = &d.name.name;
        if !bound_somewhere(name) {
            diags.push(unbound("dim", name, component, d.name.span, c.name.span));
            continue;
        }
        if let Some(v) = get(name, d.name.span) {
            out.insert(name.clone(), v);
        }
    }
    for p in &f.params {
        let name = &p.name.name;
        if !bound_somewhere(name) {
            if !matches!(p.kind, ParamKind::OneOf(_)) {
                diags.push(unbound("parameter", name, component, p.name.span, c.name.span));
            }
            continue;
        }
        // What does not fit was reported where it was bound.
        if let Some(v) = get(name, p.name.span).and_then(|v| fit(f, name, v, p.name.span).ok()) {
            out.insert(name.clone(), v);
        }
    }
    for l in &f.lists {
        let name = &l.name.name;
        if !bound_somewhere(name) {
            diags.push(unbound("list", name, component, l.name.span, c.name.span));
            continue;
        }
        let Some(v) = get(name, l.name.span) else { continue };
        let at = place(name).unwrap_or(l.name.span);
        let Static::List(items) = &v else { continue };
        let mut fits = true;
        if let Some(length) = &l.length
            && let Some(n) = values.eval(length, Some(component), &BTreeMap::new()).and_then(|n| n.as_i64())
            && n != items.len() as i64
        {
            let text = format!("`{name}` has {} entries, it needs {length} = {n}", items.len());
            let d = Diagnostic::error(codes::BOUNDS, at, text).related(l.name.span, "declared here");
            diags.push(values.with_given(d, length, Some(component)));
            fits = false;
        }
        if fits {
            out.insert(name.clone(), v);
        }
    }
    let declared = declared_names(f);
    for (n, _) in c.bindings.dims.iter().chain(&c.bindings.params) {
        check_declared(n, &declared, f, diags);
    }
    for (n, _) in &c.bindings.lists {
        check_declared(n, &declared, f, diags);
    }
    out
}

fn check_declared(n: &crate::spec::expr::Ident, declared: &[String], f: &GraphFile, diags: &mut Diagnostics) {
    if !declared.contains(&n.name) {
        let mut d =
            Diagnostic::error(codes::UNKNOWN_NAME, n.span, format!("graph `{}` declares no `{}`", f.name.name, n.name));
        if let Some(near) = suggest(&n.name, declared.iter().map(String::as_str)) {
            d = d.help(format!("did you mean `{near}`?"));
        }
        diags.push(d);
    }
}

fn unbound(what: &str, name: &str, component: &str, declared: Span, at: Span) -> Diagnostic {
    Diagnostic::error(codes::UNBOUND_DIM, at, format!("component `{component}` gives no value to {what} `{name}`"))
        .related(declared, "declared here")
        .help(format!("bind it in the system file, or with --set {component}.{name}=VALUE"))
}

pub(super) fn binding_span(b: &Bindings, name: &str) -> Option<Span> {
    let simple = b.dims.iter().chain(&b.params).find(|(n, _)| n.name == name).map(|(_, e)| e.span);
    simple.or_else(|| {
        b.lists.iter().find(|(n, _)| n.name == name).map(|(n, l)| match l {
            ListBinding::Whole(e) => e.span,
            ListBinding::Each { .. } => n.span,
        })
    })
}

/// Lowers every graph of every component once, to find all weights and states and every error. Also the names of weights
/// that are shared and that no graph declares.
pub(super) fn lower_components(
    system: &System,
) -> (Vec<crate::ir::Weight>, Vec<crate::ir::StateDecl>, BTreeSet<String>, Diagnostics) {
    let mut lower = Lower::new(&system.files, system, &system.name, system.numerics);
    lower.exhaustive = true;
    let none = BTreeMap::new();
    let mut called = Uses::default();
    system.decl.phases.iter().for_each(|p| called.graph(&p.graph));
    system.decl.entries.iter().for_each(|e| called.graph(&e.graph));
    for c in &system.decl.components {
        let Some(file) = system.component_files.get(&c.name.name).copied() else { continue };
        let values = system.values.get(&c.name.name).unwrap_or(&none);
        let f = &system.files.list[file];
        let inside = |name: &str| {
            f.main.iter().chain(&f.graphs).filter(|g| g.name.name != name).any(|g| {
                let mut uses = Uses::default();
                uses.graph(g);
                uses.called.contains(name)
            })
        };
        for g in f.main.iter().chain(&f.graphs) {
            // A graph that takes states is lowered through its callers, and so is one that only graphs of its file call: its
            // weights are under the nodes that call it.
            let outside = called.graphs.contains(&(c.name.name.clone(), g.name.name.clone()));
            if !g.state_inputs.is_empty() || (!outside && inside(&g.name.name)) {
                continue;
            }
            let main = f.main.as_ref().is_some_and(|m| std::ptr::eq(m, g));
            let prefix = if main || g.weights.is_empty() {
                c.name.name.clone()
            } else {
                format!("{}.{}", c.name.name, g.name.name)
            };
            lower.function(FunctionRequest {
                name: format!("{}.{}", c.name.name, g.name.name),
                graph: g,
                file: Some((file, c.name.name.clone())),
                values,
                outputs: None,
                available: None,
                weights: Some(prefix),
            });
        }
    }
    let undeclared = lower.check_shared();
    (lower.module.weights, lower.module.states, undeclared, lower.diags)
}
