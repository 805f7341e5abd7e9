//! Tensor tables: weight paths to checkpoint tensors and to other weights.

use super::System;
use super::decl::*;
use super::values::Values;
use crate::diag::{Diagnostic, Diagnostics, Span, codes, suggest};
use crate::ir::WeightSource;
use crate::spec::ast::{CaseBody, GraphDecl, GraphFile, NodeBody, NodeDecl};
use crate::spec::expr::{Expr, ExprKind};
use crate::spec::fields::is_ident;
use crate::spec::lower::{Files, Shared, SharedIndex, weight_key, weight_vars};
use crate::spec::statics::Static;
use crate::spec::yaml::Text;
use std::collections::{BTreeMap, BTreeSet};

/// Splits a template into text and the parts in braces.
pub(super) fn template(text: &str) -> Vec<(String, Option<String>)> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        let Some(len) = rest[start..].find('}') else { break };
        out.push((rest[..start].to_string(), Some(rest[start + 1..start + len].to_string())));
        rest = &rest[start + len + 1..];
    }
    out.push((rest.to_string(), None));
    out
}

/// Lines that share another weight, by weight key.
pub(super) fn shares(values: &Values, diags: &mut Diagnostics) -> BTreeMap<String, Shared> {
    let mut out = BTreeMap::new();
    for c in &values.decl.components {
        for line in &c.tensors {
            let TensorSource::Share(target) = &line.source else { continue };
            let own = weight_vars(&line.path);
            let mut path = String::new();
            let mut indices = Vec::new();
            let mut ok = true;
            for (text, hole) in template(target) {
                path.push_str(&text);
                let Some(hole) = hole else { continue };
                path.push_str("{}");
                if let Some(place) = own.iter().position(|v| *v == hole) {
                    indices.push(SharedIndex::Var(format!("#{place}")));
                    continue;
                }
                let c_names = c.bindings.names().into_iter().chain(values.decl.bindings.names());
                if is_ident(&hole) && !c_names.into_iter().any(|n| n == hole) {
                    diags.push(no_index(&hole, line.span));
                    ok = false;
                    continue;
                }
                // What has no value was reported.
                let value = constant(values, &c.name.name, &hole, line.span, diags);
                match value.as_ref().and_then(|v| v.as_i64()) {
                    Some(i) => indices.push(SharedIndex::At(i)),
                    None if value.is_none() => ok = false,
                    None => {
                        diags.push(no_index(&hole, line.span));
                        ok = false;
                    }
                }
            }
            if ok {
                let key = format!("{}.{}", c.name.name, weight_key(&line.path));
                out.insert(key, Shared { path, indices, span: line.span });
            }
        }
    }
    out
}

fn no_index(hole: &str, line: Span) -> Diagnostic {
    let text = format!("`{{{hole}}}` is no index of the weight and no integer");
    Diagnostic::error(codes::WEIGHT_BINDING, line, text)
}

fn constant(values: &Values, component: &str, text: &str, span: Span, diags: &mut Diagnostics) -> Option<Static> {
    let text = Text { value: text.to_string(), verbatim_at: None };
    let e = crate::spec::expr::parse_expr(&text, span, diags)?;
    values.eval(&e, Some(component), &BTreeMap::new())
}

/// Gives every weight its tensor, and reports weights without a line and lines without a weight.
pub(super) fn bind_sources(system: &mut System, undeclared: &BTreeSet<String>, diags: &mut Diagnostics) {
    let mut used: BTreeSet<(String, String)> = BTreeSet::new();
    let mut weights = std::mem::take(&mut system.weights);
    for w in weights.iter_mut().filter(|w| !undeclared.contains(&w.name)) {
        let (component, local) = w.name.split_once('.').unwrap_or(("", &w.name));
        let key = weight_key(local);
        let Some(c) = system.decl.components.iter().find(|c| c.name.name == component) else { continue };
        let Some(line) = c.tensors.iter().find(|l| weight_key(&l.path) == key) else {
            let lines: Vec<&str> = c.tensors.iter().map(|l| l.path.as_str()).collect();
            let mut d = match w.span {
                Some(span) => Diagnostic::error(
                    codes::WEIGHT_BINDING,
                    span,
                    format!("weight `{local}` of component `{component}` has no tensor"),
                ),
                None => Diagnostic::error_nowhere(codes::WEIGHT_BINDING, format!("weight `{}` has no tensor", w.name)),
            };
            d = d.related(c.name.span, "the component's tensor table has no line for it");
            d = match suggest(local, lines) {
                Some(near) => d.help(format!("there is a line for `{near}`")),
                None => d.help(format!("add `{local}: TENSOR NAME` under `tensors:`")),
            };
            diags.push(d);
            continue;
        };
        used.insert((component.to_string(), key));
        let TensorSource::Tensor { name, checkpoint } = &line.source else { continue };
        let Some(checkpoint) = checkpoint.as_ref().or(c.checkpoint.as_ref()) else {
            diags.push(
                Diagnostic::error(
                    codes::WEIGHT_BINDING,
                    line.span,
                    format!("component `{component}` names no checkpoint for this tensor"),
                )
                .help("add `checkpoint:` to the component or to the line"),
            );
            continue;
        };
        if !system.decl.checkpoints.iter().any(|k| k.name.name == checkpoint.name) {
            diags.push(Diagnostic::error(
                codes::UNKNOWN_NAME,
                checkpoint.span,
                format!("there is no checkpoint `{}`", checkpoint.name),
            ));
            continue;
        }
        let own = weight_vars(&line.path);
        let mut tensor = String::new();
        for (text, hole) in template(name) {
            tensor.push_str(&text);
            let Some(hole) = hole else { continue };
            if let Some(place) = own.iter().position(|v| *v == hole) {
                let var = w.loops.get(place).map_or(hole.as_str(), |(v, _)| v.as_str());
                tensor.push_str(&format!("{{{var}}}"));
            } else if let Some((_, s)) = c.strings.iter().find(|(k, _)| k.name == hole) {
                tensor.push_str(s);
            } else {
                let known = own.iter().map(String::as_str).chain(c.strings.iter().map(|(k, _)| k.name.as_str()));
                let mut d = Diagnostic::error(
                    codes::WEIGHT_BINDING,
                    line.span,
                    format!("`{{{hole}}}` is neither an index of the weight nor one of the component's strings"),
                );
                if let Some(near) = suggest(&hole, known) {
                    d = d.help(format!("did you mean `{{{near}}}`?"));
                }
                diags.push(d);
            }
        }
        w.source = Some(WeightSource { checkpoint: checkpoint.name.clone(), tensor });
        w.bound_at = Some(line.span);
    }
    system.weights = weights;
    for c in &system.decl.components {
        let Some(file) = system.component_files.get(&c.name.name) else { continue };
        let possible = possible_weights(&system.files, *file);
        for line in &c.tensors {
            let key = weight_key(&line.path);
            if used.contains(&(c.name.name.clone(), key.clone())) || possible.contains(&key) {
                continue;
            }
            let mut d = Diagnostic::error(
                codes::WEIGHT_BINDING,
                line.path_span,
                format!("component `{}` has no weight `{}`", c.name.name, line.path),
            );
            if let Some(near) = suggest(&key, possible.iter().map(String::as_str)) {
                d = d.help(format!("did you mean `{near}`?"));
            }
            diags.push(d);
        }
    }
}

/// Keys of all weights a file's graphs declare, whether or not this system's choices reach them.
fn possible_weights(files: &Files, file: usize) -> BTreeSet<String> {
    let f = &files.list[file];
    let mut out = BTreeSet::new();
    out.extend(f.weights.iter().map(|w| w.name.name.clone()));
    let mut walk = Walk { files, out: &mut out, depth: 0, left: MAX_VISITS };
    if let Some(g) = &f.main {
        walk.graph(f, file, g, "");
    }
    for g in &f.graphs {
        walk.graph(f, file, g, &g.name.name);
        walk.graph(f, file, g, "");
    }
    out
}

struct Walk<'w> {
    files: &'w Files,
    out: &'w mut BTreeSet<String>,
    depth: usize,
    left: usize,
}

/// Graphs looked at for the weights of one file; calls are followed as often as they are made.
const MAX_VISITS: usize = 10_000;

impl Walk<'_> {
    fn graph(&mut self, f: &GraphFile, file: usize, g: &GraphDecl, prefix: &str) {
        if self.depth > 32 || self.left == 0 {
            return;
        }
        self.left -= 1;
        self.depth += 1;
        for w in g.weights.iter().filter(|w| w.from.is_none()) {
            self.out.insert(at(prefix, &w.name.name));
        }
        for n in &g.nodes {
            self.node(f, file, n, prefix);
        }
        self.depth -= 1;
    }

    fn node(&mut self, f: &GraphFile, file: usize, n: &NodeDecl, prefix: &str) {
        let here = at(prefix, &n.name.name);
        match &n.body {
            NodeBody::Value(e, _) => self.expr(f, file, e, &here),
            NodeBody::Loop(l) => {
                let inner = if l.serial { here } else { at(&here, "{}") };
                for w in l.weights.iter().filter(|w| w.from.is_none()) {
                    self.out.insert(at(&inner, &w.name.name));
                }
                for n in &l.nodes {
                    self.node(f, file, n, &inner);
                }
            }
            NodeBody::Match(m) => {
                for (_, body) in &m.cases {
                    match body {
                        CaseBody::Value(e) => self.expr(f, file, e, &here),
                        CaseBody::Record(fields) => fields.iter().for_each(|(_, e)| self.expr(f, file, e, &here)),
                    }
                }
            }
        }
    }

    fn expr(&mut self, f: &GraphFile, file: usize, e: &Expr, here: &str) {
        match &e.kind {
            ExprKind::Call { callee, args, kwargs } => {
                if let ExprKind::Name(name) = &callee.kind {
                    if let Some(g) = f.graphs.iter().find(|g| g.name.name == *name) {
                        self.graph(f, file, g, here);
                    } else if let Some(i) = self.files.imports[file].get(name).copied() {
                        let import = &self.files.list[i];
                        self.out.extend(import.weights.iter().map(|w| at(here, &w.name.name)));
                        if let Some(g) = &import.main {
                            self.graph(import, i, g, here);
                        }
                    }
                }
                self.expr_inner(f, file, callee, here);
                args.iter().chain(kwargs.iter().map(|(_, a)| a)).for_each(|a| self.expr(f, file, a, here));
            }
            _ => self.expr_inner(f, file, e, here),
        }
    }

    fn expr_inner(&mut self, f: &GraphFile, file: usize, e: &Expr, here: &str) {
        match &e.kind {
            ExprKind::Attr(base, _) | ExprKind::Index(base, _) | ExprKind::Unary(_, base) => {
                self.expr(f, file, base, here)
            }
            ExprKind::Binary(_, a, b) => {
                self.expr(f, file, a, here);
                self.expr(f, file, b, here);
            }
            ExprKind::List(items) => items.iter().for_each(|i| self.expr(f, file, i, here)),
            _ => {}
        }
    }
}

fn at(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}
