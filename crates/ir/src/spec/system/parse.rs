//! A (merged) YAML tree to a [`SystemDecl`].

use super::decl::*;
use crate::diag::{Diagnostic, Diagnostics, SourceMap, Span, codes};
use crate::spec::expr::{Expr, ExprKind, Ident, parse_expr_node};
use crate::spec::fields::{self, Fields, check_name, is_ident, items, named, text};
use crate::spec::parse_graph::{bindings, graph_body, ident};
use crate::spec::yaml::{Entry, Node, Value};

/// A path relative to the file that holds `span`.
pub(crate) fn relative(sources: &SourceMap, span: Span, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_string();
    }
    match sources.file(span.file).name.rsplit_once('/') {
        Some((dir, _)) => format!("{dir}/{path}"),
        None => path.to_string(),
    }
}

/// Parses a system file; parts that cannot be read are reported and left out.
pub(crate) fn system(root: &Node, sources: &SourceMap, diags: &mut Diagnostics) -> Option<SystemDecl> {
    let mut lost = Lost { before: fields::dropped(diags), partial: false };
    let mut f = Fields::open("a system file", root, diags)?;
    let name = f.require("system", diags).and_then(|e| {
        text("a system's name", &e.value, diags).map(|t| Ident { name: t.to_string(), span: e.value.span })
    });
    if let Some(d) = f.take("doc") {
        text("doc", &d.value, diags);
    }
    f.take("extends");
    let numerics = f.take("numerics").and_then(|e| numerics(&e.value, diags));
    lost.matters_not(diags);
    let mut checkpoints = Vec::new();
    if let Some(e) = f.take("checkpoints") {
        checkpoints =
            named("checkpoints", &e.value, diags).iter().filter_map(|e| checkpoint(e, sources, diags)).collect();
    }
    let system_bindings = bindings_of(&mut f, diags);
    let mut components = Vec::new();
    if let Some(e) = f.require("components", diags) {
        components = named("components", &e.value, diags).iter().filter_map(|e| component(e, sources, diags)).collect();
    }
    let mut pools = Vec::new();
    if let Some(e) = f.take("pools") {
        let entries = named("pools", &e.value, diags);
        lost.matters(diags);
        pools = entries.iter().filter_map(|e| pool(e, diags)).collect();
        lost.matters_not(diags);
    }
    let serve = f.take("serve").map(|e| bindings("serve", &e.value, diags)).unwrap_or_default();
    lost.matters(diags);
    let mut limits = Vec::new();
    if let Some(e) = f.take("limits") {
        limits = items("limits", &e.value, diags).iter().filter_map(|n| limit(n, diags)).collect();
    }
    lost.matters_not(diags);
    let mut phases = Vec::new();
    if let Some(e) = f.take("phases") {
        phases = named("phases", &e.value, diags).iter().filter_map(|e| phase(e, diags)).collect();
    }
    lost.matters(diags);
    let mut widths = Vec::new();
    if let Some(e) = f.take("widths") {
        for e in named("widths", &e.value, diags) {
            let rules = items("width rules", &e.value, diags).iter().filter_map(|n| width(n, diags)).collect();
            widths.push((ident(e), rules));
        }
    }
    let mut entries = Vec::new();
    lost.matters_not(diags);
    if let Some(e) = f.take("entries") {
        let named = named("entries", &e.value, diags);
        lost.matters(diags);
        entries = named.iter().filter_map(|e| entry(e, diags)).collect();
        lost.matters_not(diags);
    }
    f.finish(diags);
    lost.matters(diags);
    Some(SystemDecl {
        name: name?,
        numerics,
        checkpoints,
        bindings: system_bindings,
        components,
        pools,
        serve,
        limits,
        phases,
        widths,
        entries,
        partial: lost.partial,
    })
}

/// Whether something was left out that other parts of a system file refer to.
struct Lost {
    before: usize,
    partial: bool,
}

impl Lost {
    /// What was left out since the last call is missed elsewhere.
    fn matters(&mut self, diags: &Diagnostics) {
        self.partial |= fields::dropped(diags) > self.before;
        self.matters_not(diags);
    }

    /// What was left out since the last call is referred to by nothing.
    fn matters_not(&mut self, diags: &Diagnostics) {
        self.before = fields::dropped(diags);
    }
}

fn numerics(node: &Node, diags: &mut Diagnostics) -> Option<NumericsDecl> {
    let word = |what: &str, n: &Node, diags: &mut Diagnostics| {
        text(what, n, diags).map(|t| Ident { name: t.to_string(), span: n.span })
    };
    if !matches!(node.value, Value::Map(_)) {
        return Some(NumericsDecl { policy: Some(word("numerics", node, diags)?), rules: None });
    }
    let mut f = Fields::open("numerics", node, diags)?;
    let policy = f.require("policy", diags).and_then(|e| word("a policy", &e.value, diags));
    let rules = f.take("rules").map(|e| {
        let classes = items("classes of rules", &e.value, diags);
        classes.iter().filter_map(|n| word("a class of rules", n, diags)).collect()
    });
    f.finish(diags);
    Some(NumericsDecl { policy, rules })
}

fn bindings_of(f: &mut Fields, diags: &mut Diagnostics) -> Bindings {
    let dims = f.take("dims").map(|e| bindings("dims", &e.value, diags)).unwrap_or_default();
    let params = f.take("params").map(|e| bindings("params", &e.value, diags)).unwrap_or_default();
    let mut lists = Vec::new();
    if let Some(e) = f.take("lists") {
        lists = named("lists", &e.value, diags).iter().filter_map(|e| list(e, diags)).collect();
    }
    Bindings { dims, lists, params }
}

fn list(e: &Entry, diags: &mut Diagnostics) -> Option<(Ident, ListBinding)> {
    check_name("a list", e, diags).then_some(())?;
    if let Value::Seq(nodes) = &e.value.value {
        // A YAML sequence is a literal list; words need no quotes there.
        let mut out = Vec::new();
        for n in nodes {
            match n.as_str() {
                Some(word) if is_ident(word) => out.push(Expr { span: n.span, kind: ExprKind::Str(word.to_string()) }),
                _ => out.push(parse_expr_node(n, diags)?),
            }
        }
        return Some((ident(e), ListBinding::Whole(Expr { span: e.value.span, kind: ExprKind::List(out) })));
    }
    if !matches!(e.value.value, Value::Map(_)) {
        return parse_expr_node(&e.value, diags).map(|v| (ident(e), ListBinding::Whole(v)));
    }
    let mut f = Fields::open("a list", &e.value, diags)?;
    let each = f.require("each", diags);
    let value = f.require("value", diags);
    f.finish(diags);
    let pairs = bindings("`each`", &each?.value, diags);
    let [(var, extent)] = pairs.as_slice() else {
        diags.push(
            Diagnostic::error(codes::YAML_SHAPE, e.value.span, "`each` has one index and its extent")
                .help("each: {l: L}"),
        );
        return None;
    };
    let value = parse_expr_node(&value?.value, diags)?;
    Some((ident(e), ListBinding::Each { var: var.clone(), extent: extent.clone(), value }))
}

fn checkpoint(e: &Entry, sources: &SourceMap, diags: &mut Diagnostics) -> Option<CheckpointDecl> {
    check_name("a checkpoint", e, diags).then_some(())?;
    let mut f = Fields::open("a checkpoint", &e.value, diags)?;
    let path = f.take("path").filter(|p| p.value.value != Value::Null).and_then(|p| {
        text("a checkpoint's path", &p.value, diags).map(|t| (relative(sources, p.value.span, t), p.value.span))
    });
    let config = f
        .take("config")
        .and_then(|p| text("a place in config.json", &p.value, diags).map(|t| (t.to_string(), p.value.span)));
    let mut ignore = Vec::new();
    if let Some(list) = f.take("ignore") {
        for n in items("ignore", &list.value, diags) {
            let Some(mut g) = Fields::open("an ignored pattern", n, diags) else { continue };
            let pattern = g.require("pattern", diags).and_then(|p| text("a pattern", &p.value, diags));
            let reason = g.require("reason", diags).and_then(|p| text("a reason", &p.value, diags));
            g.finish(diags);
            if let (Some(pattern), Some(reason)) = (pattern, reason) {
                ignore.push(IgnoreDecl { pattern: pattern.to_string(), reason: reason.to_string() });
            }
        }
    }
    f.finish(diags);
    Some(CheckpointDecl { name: ident(e), path, config, ignore })
}

fn component(e: &Entry, sources: &SourceMap, diags: &mut Diagnostics) -> Option<ComponentDecl> {
    check_name("a component", e, diags).then_some(())?;
    let mut f = Fields::open("a component", &e.value, diags)?;
    let graph = f.require("graph", diags).and_then(|p| {
        text("a graph file", &p.value, diags).map(|t| (relative(sources, p.value.span, t), p.value.span))
    });
    let checkpoint = f
        .take("checkpoint")
        .and_then(|p| text("a checkpoint", &p.value, diags).map(|t| Ident { name: t.to_string(), span: p.value.span }));
    let component_bindings = bindings_of(&mut f, diags);
    let mut strings = Vec::new();
    if let Some(e) = f.take("strings") {
        for s in named("strings", &e.value, diags) {
            if let Some(t) = text("a string", &s.value, diags) {
                strings.push((ident(s), t.to_string()));
            }
        }
    }
    let mut tensors = Vec::new();
    if let Some(e) = f.take("tensors") {
        tensors = named("tensors", &e.value, diags).iter().filter_map(|e| tensor(e, diags)).collect();
    }
    f.finish(diags);
    Some(ComponentDecl { name: ident(e), graph, checkpoint, bindings: component_bindings, strings, tensors })
}

fn tensor(e: &Entry, diags: &mut Diagnostics) -> Option<TensorLine> {
    let source = match &e.value.value {
        Value::Map(_) => {
            let mut f = Fields::open("a tensor line", &e.value, diags)?;
            let share = f.take("share");
            let tensor = f.take("tensor");
            let from = f.take("checkpoint");
            f.finish(diags);
            match (share, tensor) {
                (Some(s), None) => TensorSource::Share(text("a weight", &s.value, diags)?.to_string()),
                (None, Some(t)) => TensorSource::Tensor {
                    name: text("a tensor's name", &t.value, diags)?.to_string(),
                    checkpoint: from.and_then(|c| {
                        text("a checkpoint", &c.value, diags).map(|t| Ident { name: t.to_string(), span: c.value.span })
                    }),
                },
                _ => {
                    diags.push(Diagnostic::error(
                        codes::MISSING_KEY,
                        e.value.span,
                        "a tensor line needs `share` or `tensor`",
                    ));
                    return None;
                }
            }
        }
        _ => TensorSource::Tensor { name: text("a tensor's name", &e.value, diags)?.to_string(), checkpoint: None },
    };
    Some(TensorLine { path: e.key.clone(), path_span: e.key_span, source, span: e.value.span })
}

fn pool(e: &Entry, diags: &mut Diagnostics) -> Option<PoolDecl> {
    check_name("a pool", e, diags).then_some(())?;
    let mut f = Fields::open("a pool", &e.value, diags)?;
    let of = f.require("of", diags).and_then(|p| {
        let e = parse_expr_node(&p.value, diags)?;
        match e.kind {
            ExprKind::Attr(base, state) => match base.kind {
                ExprKind::Name(c) => Some((Ident { name: c, span: base.span }, state)),
                _ => None,
            },
            _ => {
                diags.push(
                    Diagnostic::error(codes::YAML_SHAPE, p.value.span, "a pool is of a component's state")
                        .help("of: target.kv"),
                );
                None
            }
        }
    });
    let word = |f: &mut Fields, key: &'static str, diags: &mut Diagnostics| {
        f.take(key).and_then(|p| text(key, &p.value, diags).map(|t| Ident { name: t.to_string(), span: p.value.span }))
    };
    let kind = word(&mut f, "kind", diags);
    let dtype = word(&mut f, "dtype", diags);
    let slots = word(&mut f, "slots", diags);
    let ring = f.take("ring").and_then(|p| parse_expr_node(&p.value, diags));
    let span = f.span();
    f.finish(diags);
    let Some(kind) = kind else {
        diags.push(Diagnostic::error(codes::MISSING_KEY, span, "a pool needs `kind`").help("dense, replay or window"));
        return None;
    };
    Some(PoolDecl { name: ident(e), of, kind, dtype, slots, ring })
}

fn limit(n: &Node, diags: &mut Diagnostics) -> Option<LimitDecl> {
    let mut f = Fields::open("a limit", n, diags)?;
    let require = f.require("require", diags).and_then(|p| parse_expr_node(&p.value, diags).map(|e| (e, p.value.span)));
    let reason = f.require("reason", diags).and_then(|p| text("a reason", &p.value, diags)).map(str::to_string);
    let always = f.take("always").is_some_and(|p| match p.value.value {
        Value::Bool(b) => b,
        ref other => {
            diags.push(
                Diagnostic::error(
                    codes::YAML_SHAPE,
                    p.value.span,
                    format!("`always` is true or false, this is {}", other.describe()),
                )
                .help("a limit with `always: true` holds for `eval` and `synth` too"),
            );
            false
        }
    });
    f.finish(diags);
    let (require, span) = require?;
    Some(LimitDecl { require, reason: reason?, always, span })
}

fn phase(e: &Entry, diags: &mut Diagnostics) -> Option<PhaseDecl> {
    check_name("a phase", e, diags).then_some(())?;
    let mut f = Fields::open("a phase", &e.value, diags)?;
    if let Some(d) = f.take("doc") {
        text("doc", &d.value, diags);
    }
    let mut variants = Vec::new();
    if let Some(v) = f.take("variants") {
        for v in named("variants", &v.value, diags) {
            let words = items("the words of a variant", &v.value, diags);
            variants
                .push((ident(v), words.iter().filter_map(|n| text("a word", n, diags).map(str::to_string)).collect()));
        }
    }
    let graph = graph_body(ident(e), &mut f, diags);
    f.finish(diags);
    Some(PhaseDecl { name: ident(e), variants, graph })
}

fn width(n: &Node, diags: &mut Diagnostics) -> Option<WidthRule> {
    let mut f = Fields::open("a width rule", n, diags)?;
    let requests = f.require("requests", diags);
    let width = f.require("width", diags).and_then(|p| parse_expr_node(&p.value, diags));
    f.finish(diags);
    let requests = requests?;
    let range = match &requests.value.value {
        Value::Int(v) => Some((*v, *v)),
        Value::Str(t) => {
            t.value.split_once("..").and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)))
        }
        _ => None,
    };
    let Some(range) = range.filter(|(a, b)| 1 <= *a && a <= b) else {
        diags.push(
            Diagnostic::error(
                codes::YAML_SHAPE,
                requests.value.span,
                "a width rule is for a number of requests or a range of them",
            )
            .help("requests: 1..8"),
        );
        return None;
    };
    Some(WidthRule { requests: range, width: width? })
}

fn entry(e: &Entry, diags: &mut Diagnostics) -> Option<EntryDecl> {
    check_name("an entry", e, diags).then_some(())?;
    let mut f = Fields::open("an entry", &e.value, diags)?;
    if let Some(d) = f.take("doc") {
        text("doc", &d.value, diags);
    }
    let mut stream = None;
    if let Some(s) = f.take("stream")
        && let Some(mut g) = Fields::open("a stream", &s.value, diags)
    {
        let tokens =
            g.require("tokens", diags).and_then(|p| text("an input name", &p.value, diags)).map(str::to_string);
        let blocks = g.take("blocks").and_then(|p| text("an input name", &p.value, diags)).map(str::to_string);
        let keep = g.take("keep").and_then(|p| text("an input name", &p.value, diags)).map(str::to_string);
        let mut block_outputs = Vec::new();
        if let Some(p) = g.take("block_outputs") {
            let list = items("block_outputs", &p.value, diags);
            let ident = |n: &Node, t: &str| Ident { name: t.to_string(), span: n.span };
            block_outputs = list.iter().filter_map(|n| text("an output", n, diags).map(|t| ident(n, t))).collect();
        }
        if blocks.is_some() != keep.is_some() {
            diags.push(Diagnostic::error(codes::MISSING_KEY, s.value.span, "`blocks` and `keep` go together"));
        }
        g.finish(diags);
        stream = tokens.map(|tokens| StreamDecl { tokens, blocks, keep, block_outputs, span: s.key_span });
    }
    let graph = graph_body(ident(e), &mut f, diags);
    f.finish(diags);
    Some(EntryDecl { name: ident(e), stream, graph })
}

/// `over` laid over `base`: collections of named things merge name by name, `limits` add up, a value replaces the other, and
/// nothing (`name: null`) removes what the base has.
pub(crate) fn merge(base: Node, over: Node) -> Node {
    merge_at(base, over, &mut Vec::new())
}

fn merge_at(base: Node, over: Node, path: &mut Vec<String>) -> Node {
    let (Value::Map(mut out), Value::Map(entries)) = (base.value, over.value.clone()) else { return over };
    for e in entries {
        let Some(at) = out.iter().position(|o| o.key == e.key) else {
            out.push(e);
            continue;
        };
        if matches!(e.value.value, Value::Null) {
            out.remove(at);
            continue;
        }
        path.push(e.key.clone());
        let slot = &mut out[at];
        let old = std::mem::replace(&mut slot.value, Node { span: e.value.span, value: Value::Null });
        slot.key_span = e.key_span;
        slot.value = match (path.as_slice(), old.value, e.value.value) {
            ([limits], Value::Seq(a), Value::Seq(b)) if limits == "limits" => {
                Node { span: e.value.span, value: Value::Seq(a.into_iter().chain(b).collect()) }
            }
            (p, old_value @ Value::Map(_), value @ Value::Map(_)) if !is_value(p) => {
                merge_at(Node { span: old.span, value: old_value }, Node { span: e.value.span, value }, path)
            }
            (_, _, value) => Node { span: e.value.span, value },
        };
        path.pop();
    }
    Node { span: over.span, value: Value::Map(out) }
}

/// True for the place of one value, which may be written as a mapping; other mappings are collections.
fn is_value(path: &[String]) -> bool {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    matches!(
        parts.as_slice(),
        ["lists", _]
            | ["components", _, "lists" | "tensors", _]
            | ["phases" | "entries", _, "nodes" | "inputs" | "outputs", _]
    )
}
