//! Binding a parsed system: configurations, values, limits, pools, tensor tables.

use super::decl::*;
use super::engine;
use super::tables;
use super::values::{Config, Values};
use super::{CheckpointRef, LoadedSystem, Overrides, Serve, System, Width, parse_sets};
use crate::diag::{Diagnostic, Diagnostics, Span, codes, suggest};
use crate::spec::ast::{GraphFile, ListKind, ParamKind};
use crate::spec::load::{Host, Loader};
use crate::spec::lower::{FunctionRequest, Lower};
use crate::spec::statics::{self, Static};
use crate::ty::{Numerics, RuleClass};
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
    let (checkpoints, configs) = read_configs(&decl, host, over, &mut diags);
    let (numerics, rules) = numerics(&decl, over, &mut diags);
    let values = Values::new(&decl, &files, &component_files, &configs, &sets);
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
    if !over.no_limits {
        super::limits::check(&values, &mut diags);
    }
    let paths = static_paths(&values, &bound, &serve);
    let patches = values.patches();
    let shares = tables::shares(&values, &mut diags);
    diags.extend(values.diags.take());
    super::hygiene::Check { decl: &decl, files: &files, component_files: &component_files }.run(&mut diags);
    for file in 0..files.list.len() {
        crate::spec::hygiene::file(&files, file, &mut diags);
    }
    let sound = !diags.has_errors();
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
        let functions = system.check_functions(!diags.has_errors());
        diags.extend(functions);
    } else {
        // Without values the graphs are still checked, with their dims unbound.
        for file in system.component_files.values().collect::<BTreeSet<_>>() {
            crate::spec::lower::check_file(&system.files, *file, &mut diags);
        }
    }
    let diags = super::origins::explain(crate::spec::once(diags), &sources, &system);
    LoadedSystem { sources, diags, system: (complete && sound).then_some(system) }
}

fn read_configs(
    decl: &SystemDecl,
    host: &dyn Host,
    over: &Overrides,
    diags: &mut Diagnostics,
) -> (Vec<CheckpointRef>, BTreeMap<String, Config>) {
    let mut refs = Vec::new();
    let mut configs = BTreeMap::new();
    for name in over.checkpoints.keys() {
        if !decl.checkpoints.iter().any(|c| c.name.name == *name) {
            let known: Vec<&str> = decl.checkpoints.iter().map(|c| c.name.name.as_str()).collect();
            diags.push(
                Diagnostic::error_nowhere(codes::SYSTEM, format!("the system has no checkpoint `{name}`"))
                    .help(format!("its checkpoints: {}", known.join(", "))),
            );
        }
    }
    for c in &decl.checkpoints {
        let (dir, span) = match (over.checkpoints.get(&c.name.name), &c.path) {
            (Some(dir), _) => (dir.clone(), None),
            (None, Some((dir, span))) => (dir.clone(), Some(*span)),
            (None, None) => {
                diags.push(
                    Diagnostic::error(
                        codes::CHECKPOINT,
                        c.name.span,
                        format!("checkpoint `{}` has no directory", c.name.name),
                    )
                    .help(format!("give one with --checkpoint {}=DIR, or write `path:`", c.name.name)),
                );
                continue;
            }
        };
        let dir = crate::spec::load::normal(&dir);
        refs.push(CheckpointRef {
            name: c.name.name.clone(),
            dir: dir.clone(),
            ignore: c.ignore.iter().map(|i| (i.pattern.clone(), i.reason.clone())).collect(),
        });
        let error = |text: String| match span {
            Some(span) => Diagnostic::error(codes::CHECKPOINT, span, text),
            None => Diagnostic::error_nowhere(codes::CHECKPOINT, text),
        };
        let path = format!("{dir}/config.json");
        let json = match host.read(&path) {
            Err(why) => {
                diags.push(
                    error(format!("{path} cannot be read: {why}")).help("a checkpoint is a directory with config.json"),
                );
                continue;
            }
            Ok(bytes) => match serde_json::from_slice::<serde_json::Value>(&bytes) {
                Ok(json) => json,
                Err(e) => {
                    diags.push(error(format!("{path} is not JSON: {e}")));
                    continue;
                }
            },
        };
        let mut at = &json;
        let mut found = true;
        let place = c.config.as_ref();
        for part in place.iter().flat_map(|(p, _)| p.split('.')) {
            match at.get(part) {
                Some(next) => at = next,
                None => {
                    let error = |text: String| match place {
                        Some((_, span)) => Diagnostic::error(codes::CHECKPOINT, *span, text),
                        None => error(text),
                    };
                    diags.push(error(format!(
                        "{path} has no `{part}`, which the system file names as the place of its keys"
                    )));
                    found = false;
                    break;
                }
            }
        }
        if !found {
            continue;
        }
        // Keys beside the named place stay visible: the place's own win.
        let mut merged = at.clone();
        if let (Some(inner), Some(outer)) = (merged.as_object_mut(), json.as_object()) {
            for (k, v) in outer {
                inner.entry(k.clone()).or_insert_with(|| v.clone());
            }
        }
        configs.insert(c.name.name.clone(), Config { dir, json: merged });
    }
    (refs, configs)
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
        if !known.contains(name) {
            let mut d =
                Diagnostic::error(codes::UNKNOWN_NAME, *span, format!("there is nothing named `{name}` to set"));
            if let Some(near) = suggest(name, known.iter().map(String::as_str)) {
                d = d.help(format!("did you mean `{near}`?"));
            }
            diags.push(d);
        }
    }
}

fn declared_names(f: &GraphFile) -> Vec<String> {
    let dims = f.dims.iter().map(|d| d.name.name.clone());
    dims.chain(f.lists.iter().map(|l| l.name.name.clone()))
        .chain(f.params.iter().map(|p| p.name.name.clone()))
        .collect()
}

fn component_values(
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
    let place = |name: &str| place_of(values, component, c, name);
    let get = |name: &str, span: Span| values.binding(Some(component), name, place(name).unwrap_or(span)).ok();
    for d in &f.dims {
        let name = &d.name.name;
        if !bound_somewhere(name) {
            diags.push(unbound("dim", name, component, d.name.span, c.name.span));
            continue;
        }
        match get(name, d.name.span) {
            Some(Static::Int(v)) if v.as_const().is_some_and(|v| v > 0) => {
                out.insert(name.clone(), Static::Int(v));
            }
            Some(other) => diags.push(
                Diagnostic::error(
                    codes::BOUNDS,
                    place(name).unwrap_or(d.name.span),
                    format!("dim `{name}` is a positive integer, this is {other}"),
                )
                .related(d.name.span, "declared here"),
            ),
            None => {}
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
        let Some(v) = get(name, p.name.span) else { continue };
        let fitted = match (&p.kind, &v) {
            (_, Static::None) if p.optional => Some(v.clone()),
            (ParamKind::Int, Static::Int(_)) | (ParamKind::Bool, Static::Bool(_)) => Some(v.clone()),
            (ParamKind::Int, Static::Float(f)) if f.fract() == 0.0 => Some(Static::from(*f as i64)),
            (ParamKind::Float, Static::Int(_) | Static::Float(_)) => v.as_f64().map(Static::Float),
            (ParamKind::OneOf(words), Static::Str(w)) if words.contains(w) => Some(v.clone()),
            _ => None,
        };
        match fitted {
            Some(v) => {
                out.insert(name.clone(), v);
            }
            None => {
                let want = match &p.kind {
                    ParamKind::Int => "an integer".to_string(),
                    ParamKind::Float => "a number".to_string(),
                    ParamKind::Bool => "true or false".to_string(),
                    ParamKind::OneOf(words) => format!("one of {}", words.join(", ")),
                };
                diags.push(
                    Diagnostic::error(
                        codes::CONFIG_KEY,
                        place(name).unwrap_or(p.name.span),
                        format!("parameter `{name}` is {want}, this is {v}"),
                    )
                    .related(p.name.span, "declared here"),
                );
            }
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
        let Static::List(items) = &v else {
            diags.push(
                Diagnostic::error(codes::CONFIG_KEY, at, format!("`{name}` is a list, this is {v}"))
                    .related(l.name.span, "declared here"),
            );
            continue;
        };
        let mut fits = true;
        for item in items {
            let ok = match (&l.kind, item) {
                (ListKind::Int, Static::Int(_)) => true,
                (ListKind::OneOf(words), Static::Str(w)) => words.contains(w),
                _ => false,
            };
            if !ok {
                let want = match &l.kind {
                    ListKind::Int => "an integer".to_string(),
                    ListKind::OneOf(words) => format!("one of {}", words.join(", ")),
                };
                diags.push(
                    Diagnostic::error(codes::CONFIG_KEY, at, format!("an entry of `{name}` is {want}, this is {item}"))
                        .related(l.name.span, "declared here"),
                );
                fits = false;
                break;
            }
        }
        if let Some(length) = &l.length
            && let Some(n) = values.eval(length, Some(component), &BTreeMap::new()).and_then(|n| n.as_i64())
            && n != items.len() as i64
        {
            diags.push(
                Diagnostic::error(
                    codes::BOUNDS,
                    at,
                    format!("`{name}` has {} entries, it needs {length} = {n}", items.len()),
                )
                .related(l.name.span, "declared here"),
            );
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

/// The numerics policy of the run and the classes of rules that may fire.
fn numerics(decl: &SystemDecl, over: &Overrides, diags: &mut Diagnostics) -> (Numerics, BTreeSet<RuleClass>) {
    let given = decl.numerics.as_ref();
    let mut policy = Numerics::F32;
    if let Some(name) = given.and_then(|n| n.policy.as_ref()) {
        match Numerics::from_name(&name.name) {
            Some(known) => policy = known,
            None => diags.push(
                Diagnostic::error(
                    codes::BAD_ATTRIBUTE,
                    name.span,
                    format!("there is no numerics policy `{}`", name.name),
                )
                .help("f64, f32 or bf16"),
            ),
        }
    }
    let mut classes: BTreeSet<RuleClass> = RuleClass::DEFAULT.into();
    if let Some(rules) = given.and_then(|n| n.rules.as_ref()) {
        classes.clear();
        for name in rules {
            match RuleClass::from_name(&name.name) {
                Some(class) => {
                    classes.insert(class);
                }
                None => {
                    let known = RuleClass::ALL.map(RuleClass::name);
                    let help = match suggest(&name.name, known) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => known.join(", "),
                    };
                    diags.push(
                        Diagnostic::error(
                            codes::BAD_ATTRIBUTE,
                            name.span,
                            format!("there is no class of rules `{}`", name.name),
                        )
                        .help(help),
                    );
                }
            }
        }
    }
    (over.numerics.unwrap_or(policy), classes)
}

/// Where a component's value comes from: the command line, the component, or the system.
fn place_of(values: &Values, component: &str, c: &ComponentDecl, name: &str) -> Option<Span> {
    let set = values
        .sets
        .get(&format!("{component}.{name}"))
        .or_else(|| values.sets.get(name).filter(|_| binding_span(&c.bindings, name).is_none()));
    set.map(|(_, s)| *s)
        .or_else(|| binding_span(&c.bindings, name))
        .or_else(|| binding_span(&values.decl.bindings, name))
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

fn serve_values(values: &Values, diags: &mut Diagnostics) -> Serve {
    const KNOWN: [&str; 5] = ["requests", "context", "chunk", "draft_context", "tensor_parallel"];
    for (k, _) in &values.decl.serve {
        if !KNOWN.contains(&k.name.as_str()) {
            let mut d = Diagnostic::error(codes::UNKNOWN_KEY, k.span, format!("`{}` is not a key of `serve`", k.name));
            d = match suggest(&k.name, KNOWN) {
                Some(near) => d.help(format!("did you mean `{near}`?")),
                None => d.help(KNOWN.join(", ")),
            };
            diags.push(d);
        }
    }
    let get = |key: &str, default: Option<i64>, diags: &mut Diagnostics| -> i64 {
        let declared = values.decl.serve.iter().find(|(k, _)| k.name == key);
        let span = values.sets.get(&format!("serve.{key}")).map(|(_, s)| *s).or(declared.map(|(_, e)| e.span));
        let Some(span) = span else {
            return match default {
                Some(d) => d,
                None => {
                    diags.push(Diagnostic::error(
                        codes::MISSING_KEY,
                        values.decl.name.span,
                        format!("`serve` needs `{key}`"),
                    ));
                    1
                }
            };
        };
        match values.path(&["serve", key], span) {
            Ok(Static::Int(d)) if d.as_const().is_some_and(|v| v > 0) => d.as_const().unwrap_or(1),
            Ok(other) => {
                diags.push(Diagnostic::error(
                    codes::BOUNDS,
                    span,
                    format!("`{key}` is a positive integer, this is {other}"),
                ));
                1
            }
            Err(super::values::Miss::Absent(d)) => {
                diags.push(*d);
                1
            }
            Err(super::values::Miss::Reported) => 1,
        }
    };
    let requests = get("requests", None, diags);
    let context = get("context", None, diags);
    let chunk = get("chunk", None, diags);
    let draft_context = get("draft_context", Some(i64::MAX), diags);
    let parallel = get("tensor_parallel", Some(1), diags);
    if parallel != 1 && !values.decl.limits.iter().any(|l| l.require.to_string().contains("tensor_parallel")) {
        let span = values.decl.serve.iter().find(|(k, _)| k.name == "tensor_parallel").map(|(_, e)| e.span);
        let text = format!("tensor parallelism over {parallel} devices is not supported");
        diags.push(match span {
            Some(span) => Diagnostic::error(codes::UNSUPPORTED, span, text),
            None => Diagnostic::error_nowhere(codes::UNSUPPORTED, text),
        });
    }
    let block = match values.decl.bindings.dims.iter().any(|(n, _)| n.name == "B") {
        true => values.binding(None, "B", values.decl.name.span).ok().and_then(|v| v.as_i64()).unwrap_or(1),
        false => 1,
    };
    Serve { requests, context, chunk, draft_context, block }
}

fn width_values(values: &Values, serve: &Serve, diags: &mut Diagnostics) -> BTreeMap<String, Vec<Width>> {
    let laws = engine::CHOICES.iter().find(|c| c.name == "law").map_or(&[] as &[&str], |c| c.words);
    let mut out = BTreeMap::new();
    for (law, rules) in &values.decl.widths {
        if !laws.contains(&law.name.as_str()) {
            let mut d = Diagnostic::error(codes::SYSTEM, law.span, format!("there is no law `{}`", law.name));
            d = match suggest(&law.name, laws.iter().copied()) {
                Some(near) => d.help(format!("did you mean `{near}`?")),
                None => d.help(format!("widths are given for {}", laws.join(", "))),
            };
            diags.push(d);
        }
        let mut list: Vec<Width> = Vec::new();
        for (i, r) in rules.iter().enumerate() {
            if let Some(other) =
                rules[..i].iter().find(|o| o.requests.0 <= r.requests.1 && r.requests.0 <= o.requests.1)
            {
                diags.push(
                    Diagnostic::error(
                        codes::SYSTEM,
                        r.width.span,
                        format!("two rules for {} requests", r.requests.0.max(other.requests.0)),
                    )
                    .related(other.width.span, "the other rule")
                    .help("one rule decides each number of requests"),
                );
            }
            let Some(w) = values.eval(&r.width, None, &BTreeMap::new()) else { continue };
            match w.as_i64() {
                Some(width) if (1..=serve.block).contains(&width) => {
                    list.push(Width { from: r.requests.0, to: r.requests.1, width });
                }
                // A block without rows was reported.
                _ if serve.block < 1 => {}
                _ => diags.push(
                    Diagnostic::error(
                        codes::BOUNDS,
                        r.width.span,
                        format!("a width is within 1..{}, this is {w}", serve.block),
                    )
                    .help("it counts the rows of a block that are verified, the anchor included"),
                ),
            }
        }
        out.insert(law.name.clone(), list);
    }
    out
}

/// Pools say how a state is stored. What the run time cannot do is refused here, whatever the limits say.
fn check_pools(values: &Values, component_files: &BTreeMap<String, usize>, diags: &mut Diagnostics) {
    for p in &values.decl.pools {
        let Some((component, state)) = &p.of else { continue };
        let Some(f) = component_files.get(&component.name).map(|f| &values.files.list[*f]) else {
            if !values.decl.components.iter().any(|c| c.name.name == component.name) {
                diags.push(Diagnostic::error(
                    codes::UNKNOWN_NAME,
                    component.span,
                    format!("there is no component `{}`", component.name),
                ));
            }
            continue;
        };
        let Some(s) = f.states.iter().find(|s| s.name.name == state.name) else {
            let mut d = Diagnostic::error(
                codes::UNKNOWN_NAME,
                state.span,
                format!("component `{}` has no state `{}`", component.name, state.name),
            );
            if let Some(near) = suggest(&state.name, f.states.iter().map(|s| s.name.name.as_str())) {
                d = d.help(format!("did you mean `{near}`?"));
            }
            diags.push(d);
            continue;
        };
        use crate::spec::ast::StateShape;
        let (fits, what) = match s.shape {
            StateShape::KvPool { .. } => ("dense", "key/value rows by position"),
            StateShape::Recurrent { .. } => ("replay", "a recurrent state"),
            StateShape::Window { .. } => ("window", "a convolution window"),
        };
        let limited =
            values.decl.limits.iter().any(|l| l.require.to_string().contains(&format!("{}.kind", p.name.name)));
        if p.kind.name != fits && !limited {
            diags.push(
                Diagnostic::error(
                    codes::UNSUPPORTED,
                    p.kind.span,
                    format!("`{}` is no way to store {what}", p.kind.name),
                )
                .help(format!("kind: {fits}; the window a layer reads never shrinks what a pool keeps")),
            );
        }
        if let Some(d) = &p.dtype {
            let limited =
                values.decl.limits.iter().any(|l| l.require.to_string().contains(&format!("{}.dtype", p.name.name)));
            if d.name != s.dtype.name && !limited {
                diags.push(
                    Diagnostic::error(
                        codes::UNSUPPORTED,
                        d.span,
                        format!("the pool is {}, but its state is declared {}", d.name, s.dtype.name),
                    )
                    .related(s.dtype.span, "declared here"),
                );
            }
        }
        if let Some(slots) = &p.slots
            && !values.decl.pools.iter().any(|q| q.name.name == slots.name)
        {
            diags.push(Diagnostic::error(
                codes::UNKNOWN_NAME,
                slots.span,
                format!("there is no pool `{}`", slots.name),
            ));
        }
        if let Some(ring) = &p.ring
            && let Some(v) = values.eval(ring, None, &BTreeMap::new())
            && !v.as_i64().is_some_and(|v| v > 0 && v & (v - 1) == 0)
        {
            diags.push(Diagnostic::error(
                codes::BOUNDS,
                ring.span,
                format!("a replay ring is a power of two, this is {v}"),
            ));
        }
    }
}

/// Dotted values phases and entries may use.
fn static_paths(
    values: &Values,
    bound: &BTreeMap<String, BTreeMap<String, Static>>,
    serve: &Serve,
) -> BTreeMap<String, Static> {
    let mut out = BTreeMap::new();
    for (c, map) in bound {
        for (k, v) in map {
            out.insert(format!("{c}.{k}"), v.clone());
        }
    }
    out.insert("serve.requests".into(), Static::from(serve.requests));
    out.insert("serve.context".into(), Static::from(serve.context));
    out.insert("serve.chunk".into(), Static::from(serve.chunk));
    let _ = (values, statics::FUNCTIONS);
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

/// Lowers every graph of every component once, to find all weights and states and every error. Also the names of weights
/// that are shared and that no graph declares.
fn lower_components(
    system: &System,
) -> (Vec<crate::ir::Weight>, Vec<crate::ir::StateDecl>, BTreeSet<String>, Diagnostics) {
    let mut lower = Lower::new(&system.files, system, &system.name, system.numerics);
    lower.exhaustive = true;
    let none = BTreeMap::new();
    for c in &system.decl.components {
        let Some(file) = system.component_files.get(&c.name.name).copied() else { continue };
        let values = system.values.get(&c.name.name).unwrap_or(&none);
        let f = &system.files.list[file];
        for g in f.main.iter().chain(&f.graphs) {
            // A graph that takes states is lowered through its callers.
            if !g.state_inputs.is_empty() {
                continue;
            }
            let prefix = if f.main.as_ref().is_some_and(|m| std::ptr::eq(m, g)) || is_local(f, g) {
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

/// A graph only other graphs of its file call has its weights under their nodes.
fn is_local(f: &GraphFile, g: &crate::spec::ast::GraphDecl) -> bool {
    let _ = f;
    g.weights.is_empty()
}
