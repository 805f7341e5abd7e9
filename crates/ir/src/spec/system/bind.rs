//! Binding a parsed system: configurations, values, limits, pools, tensor tables.

use super::components::{binding_span, component_values, declared_names, lower_components};
use super::configs::{numerics, read_configs};
use super::decl::*;
use super::serving::{check_pools, serve_values, width_values};
use super::tables;
use super::values::Values;
use super::{LoadedSystem, Overrides, Serve, System, name_of, parse_sets};
use crate::diag::{Diagnostic, Diagnostics, FileId, Severity, codes, suggest};
use crate::spec::ast::ParamKind;
use crate::spec::load::{Host, Loader};
use crate::spec::statics::Static;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn bind(
    loader: Loader,
    decl: SystemDecl,
    component_files: BTreeMap<String, usize>,
    host: &dyn Host,
    over: &Overrides,
) -> LoadedSystem {
    let Loader { mut sources, mut diags, files, .. } = loader;
    let sets = parse_sets(&over.sets, &mut sources, &mut diags);
    let read = std::mem::take(&mut diags);
    // Everything a system file says is about its components.
    let whole = !decl.partial
        && decl.components.iter().all(|c| component_files.get(&c.name.name).is_some_and(|i| files.whole(*i)));
    let partial: Vec<FileId> = files.list.iter().map(|f| f.file).filter(|f| files.partial(*f)).collect();
    let graphs: Vec<FileId> = files.list.iter().map(|f| f.file).collect();
    let (checkpoints, configs) = read_configs(&decl, host, over, &mut diags);
    let (numerics, rules) = numerics(&decl, over, &mut diags);
    let values = Values::new(&decl, &files, &component_files, &configs, &sets, &over.checkpoints);
    check_sets(&values, &mut diags);
    let mut bound = BTreeMap::new();
    for c in &decl.components {
        if let Some(file) = component_files.get(&c.name.name) {
            bound.insert(c.name.name.clone(), component_values(&values, c, &files.list[*file], &mut diags));
        }
    }
    let set_values = system_values(&values);
    let complete = bound.len() == decl.components.len()
        && decl.components.iter().all(|c| {
            let f = component_files.get(&c.name.name).map(|i| &files.list[*i]);
            f.zip(bound.get(&c.name.name)).is_some_and(|(f, values)| {
                let optional =
                    |name: &str| f.params.iter().any(|p| p.name.name == name && matches!(p.kind, ParamKind::OneOf(_)));
                declared_names(f).iter().all(|n| values.contains_key(n) || optional(n))
            })
        })
        && decl.bindings.names().iter().all(|n| set_values.contains_key(n));
    let serve = serve_values(&values, &mut diags);
    let widths = width_values(&values, &serve, &mut diags);
    check_pools(&values, &component_files, &mut diags);
    super::limits::check(&values, !over.no_limits, &mut diags);
    let paths = static_paths(&bound, &serve);
    let patches = values.patches();
    let shares = tables::shares(&values, &mut diags);
    diags.extend(values.diags.take());
    super::hygiene::Check { decl: &decl, files: &files, component_files: &component_files }.run(&mut diags);
    for file in 0..files.list.len() {
        crate::spec::hygiene::file(&files, file, &mut diags);
    }
    let sound = !diags.has_errors() && !read.has_errors();
    let mut system = System {
        name: decl.name.name.clone(),
        decl,
        files,
        component_files,
        values: bound,
        paths,
        shares,
        set_values,
        patches,
        sets: sets.clone(),
        numerics,
        rules,
        checkpoints,
        serve,
        widths,
        weights: Vec::new(),
        states: Vec::new(),
        configs,
    };
    if complete {
        let (weights, states, undeclared, found) = lower_components(&system);
        diags.extend(found);
        system.weights = weights;
        system.states = states;
        tables::bind_sources(&mut system, &undeclared, &mut diags);
        let functions = system.check_functions(sound && !diags.has_errors());
        diags.extend(functions);
    } else {
        // Without values the graphs are still checked, with their dims unbound.
        for file in system.component_files.values().collect::<BTreeSet<_>>() {
            crate::spec::lower::check_file(&system.files, *file, &mut diags);
        }
    }
    let unread = |f| system.decl.partial || if graphs.contains(&f) { partial.contains(&f) } else { !whole };
    let mut all = read;
    let found = without_tables_of_broken(crate::spec::causes(diags, unread), &all, &system);
    all.extend(found);
    let diags = crate::spec::once(super::origins::explain(all, &sources, &system, &sets));
    LoadedSystem { sources, diags, system: (complete && sound).then_some(system) }
}

/// The tensor table of a component is judged once its graphs are right, also where they are `read`: which weights they declare is
/// not known before.
fn without_tables_of_broken(diags: Diagnostics, read: &Diagnostics, system: &System) -> Diagnostics {
    let graphs_wrong = |c: &ComponentDecl| {
        let files = system.component_files.get(&c.name.name).map(|i| system.files.needed(*i)).unwrap_or_default();
        let mut errors = diags
            .iter()
            .chain(read.iter())
            .filter(|d| d.severity == Severity::Error && d.code != codes::WEIGHT_BINDING);
        errors.any(|d| d.span.is_some_and(|s| files.iter().any(|i| system.files.list[*i].file == s.file)))
    };
    let broken: Vec<&str> =
        system.decl.components.iter().filter(|c| graphs_wrong(c)).map(|c| c.name.name.as_str()).collect();
    let mut out = Diagnostics::default();
    for d in diags.iter() {
        let of = |c: &&str| d.message.contains(&format!("`{c}`")) || d.message.contains(&format!("`{c}."));
        if d.code != codes::WEIGHT_BINDING || !broken.iter().any(of) {
            out.push(d.clone());
        }
    }
    out
}

/// Every `--set` must name something.
fn check_sets(values: &Values, diags: &mut Diagnostics) {
    let mut known: Vec<String> = values.decl.bindings.names();
    for c in &values.decl.components {
        known.extend(c.bindings.names().iter().map(|n| format!("{}.{n}", c.name.name)));
        if let Some(f) = values.component_files.get(&c.name.name).map(|f| &values.files.list[*f]) {
            known.extend(declared_names(f).iter().map(|n| format!("{}.{n}", c.name.name)));
        }
    }
    known.extend(["requests", "context", "chunk", "draft_context", "tensor_parallel"].map(|k| format!("serve.{k}")));
    for (name, (_, span)) in values.sets {
        let of_unread = name.split_once('.').is_some_and(|(c, _)| values.component(c).is_some() && !values.known(c));
        if !known.contains(name) && !of_unread {
            let mut d = Diagnostic::error(
                codes::UNKNOWN_NAME,
                name_of(name, *span),
                format!("there is nothing named `{name}` to set"),
            );
            if let Some(near) = suggest(name, known.iter().map(String::as_str)) {
                d = d.help(format!("did you mean `{near}`?"));
            }
            diags.push(d);
        }
    }
}

/// Dotted values phases and entries may use.
fn static_paths(bound: &BTreeMap<String, BTreeMap<String, Static>>, serve: &Serve) -> BTreeMap<String, Static> {
    let mut out = BTreeMap::new();
    for (c, map) in bound {
        for (k, v) in map {
            out.insert(format!("{c}.{k}"), v.clone());
        }
    }
    out.insert("serve.requests".into(), Static::from(serve.requests));
    out.insert("serve.context".into(), Static::from(serve.context));
    out.insert("serve.chunk".into(), Static::from(serve.chunk));
    out
}

/// Names every phase and entry sees: the system's dims, lists and parameters.
fn system_values(values: &Values) -> BTreeMap<String, Static> {
    let mut out = BTreeMap::new();
    for name in values.decl.bindings.names() {
        let span = binding_span(&values.decl.bindings, &name).unwrap_or(values.decl.name.span);
        if let Ok(v) = values.binding(None, &name, span) {
            out.insert(name, v);
        }
    }
    out
}
