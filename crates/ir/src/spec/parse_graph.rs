//! A YAML tree to a [`GraphFile`].

use super::ast::*;
use super::expr::{Expr, ExprKind, Ident, TypeKind, expr_node, parse_expr_node, parse_type_node, type_node};
use super::fields::{self, Fields, check_name, items, named, text};
use super::parse_nodes::nodes;
use super::yaml::{Entry, Node, Value};
use crate::diag::{Diagnostic, Diagnostics, FileId, codes};

pub(crate) fn ident(entry: &Entry) -> Ident {
    Ident { name: entry.key.clone(), span: entry.key_span }
}

/// Parses a graph file; parts that cannot be read are reported and left out.
pub(crate) fn graph_file(file: FileId, path: &str, root: &Node, diags: &mut Diagnostics) -> Option<GraphFile> {
    let mut f = Fields::open("a graph file", root, diags)?;
    let name = f.require("graph", diags);
    let doc = f.take("doc");
    doc.map(|e| text("doc", &e.value, diags));
    let name = match name.and_then(|e| text("a graph's name", &e.value, diags).map(|t| (t, e.value.span))) {
        Some((t, span)) => Ident { name: t.to_string(), span },
        None => Ident { name: "graph".into(), span: f.span() },
    };
    let mut out = GraphFile {
        file,
        path: path.to_string(),
        name,
        dims: Vec::new(),
        lists: Vec::new(),
        params: Vec::new(),
        symbols: Vec::new(),
        states: Vec::new(),
        weights: Vec::new(),
        derived: Vec::new(),
        uses: Vec::new(),
        main: None,
        graphs: Vec::new(),
        partial: false,
    };
    let before = fields::dropped(diags);
    if let Some(e) = f.take("dims") {
        for e in named("dims", &e.value, diags) {
            if check_name("a dim", e, diags) {
                text("the description of a dim", &e.value, diags);
                out.dims.push(DimDecl { name: ident(e) });
            }
        }
    }
    if let Some(e) = f.take("lists") {
        out.lists = named("lists", &e.value, diags).iter().filter_map(|e| list(e, diags)).collect();
    }
    if let Some(e) = f.take("params") {
        out.params = named("params", &e.value, diags).iter().filter_map(|e| param(e, diags)).collect();
    }
    if let Some(e) = f.take("state") {
        out.states = named("state", &e.value, diags).iter().filter_map(|e| state(e, diags)).collect();
    }
    if let Some(e) = f.take("use") {
        out.uses = named("use", &e.value, diags).iter().filter_map(|e| import(e, diags)).collect();
    }
    if let Some(e) = f.take("derived") {
        out.derived = nodes(&e.value, diags);
    }
    let body_keys = ["inputs", "nodes", "outputs", "expose"];
    let has_main = root.as_map().is_some_and(|m| m.iter().any(|e| body_keys.contains(&e.key.as_str())));
    let mut main = graph_body(out.name.clone(), &mut f, diags);
    out.symbols = std::mem::take(&mut main.symbols);
    out.weights = std::mem::take(&mut main.weights);
    if has_main {
        out.main = Some(main);
    }
    if let Some(e) = f.take("graphs") {
        for e in named("graphs", &e.value, diags) {
            if !check_name("a graph", e, diags) {
                continue;
            }
            if let Some(mut g) = Fields::open("a graph", &e.value, diags) {
                if let Some(d) = g.take("doc") {
                    text("doc", &d.value, diags);
                }
                out.graphs.push(graph_body(ident(e), &mut g, diags));
                g.finish(diags);
            }
        }
    }
    f.finish(diags);
    out.partial = fields::dropped(diags) > before;
    Some(out)
}

/// The parts graphs, phases and entries have in common.
pub(crate) fn graph_body(name: Ident, f: &mut Fields, diags: &mut Diagnostics) -> GraphDecl {
    let mut g = GraphDecl {
        name,
        symbols: Vec::new(),
        inputs: Vec::new(),
        state_inputs: Vec::new(),
        weights: Vec::new(),
        nodes: Vec::new(),
        outputs: Vec::new(),
        expose: Vec::new(),
    };
    if let Some(e) = f.take("symbols") {
        g.symbols = named("symbols", &e.value, diags).iter().filter_map(|e| symbol(e, diags)).collect();
    }
    if let Some(e) = f.take("inputs") {
        for (i, e) in named("inputs", &e.value, diags).iter().enumerate() {
            input(e, i, &mut g, diags);
        }
    }
    if let Some(e) = f.take("weights") {
        g.weights = weights(&e.value, diags);
    }
    if let Some(e) = f.take("nodes") {
        g.nodes = nodes(&e.value, diags);
    }
    if let Some(e) = f.take("outputs") {
        g.outputs = named("outputs", &e.value, diags).iter().filter_map(|e| output(e, diags)).collect();
    }
    if let Some(e) = f.take("expose") {
        g.expose = named("expose", &e.value, diags).iter().filter_map(|e| output(e, diags)).collect();
    }
    g
}

fn list(e: &Entry, diags: &mut Diagnostics) -> Option<ListDecl> {
    check_name("a list", e, diags).then_some(())?;
    let mut f = Fields::open("a list", &e.value, diags)?;
    let length = f.take("length").map(|e| expr_node(&e.value, diags));
    let of = f.require("of", diags)?;
    let kind = words_or_type(of, diags);
    if let Some(d) = f.take("doc") {
        text("doc", &d.value, diags);
    }
    f.finish(diags);
    Some(ListDecl { name: ident(e), length, kind: kind? })
}

fn words_or_type(of: &Entry, diags: &mut Diagnostics) -> Option<ListKind> {
    match &of.value.value {
        Value::Seq(items) => {
            Some(ListKind::OneOf(items.iter().filter_map(|n| text("a word", n, diags).map(str::to_string)).collect()))
        }
        Value::Str(t) if t.value == "i32" => Some(ListKind::Int),
        _ => {
            diags.push(
                Diagnostic::error(codes::YAML_SHAPE, of.value.span, "`of` is `i32` or a sequence of words")
                    .help("of: [linear_attention, full_attention]"),
            );
            None
        }
    }
}

fn param(e: &Entry, diags: &mut Diagnostics) -> Option<ParamDecl> {
    check_name("a parameter", e, diags).then_some(())?;
    let name = ident(e);
    let ty = match &e.value.value {
        Value::Str(_) => Some((text("a parameter's type", &e.value, diags)?.to_string(), e.value.span)),
        _ => {
            let mut f = Fields::open("a parameter", &e.value, diags)?;
            if let Some(d) = f.take("doc") {
                text("doc", &d.value, diags);
            }
            let one_of = f.take("one_of");
            let ty = f.take("type");
            f.finish(diags);
            match (one_of, ty) {
                (Some(words), None) => {
                    let words = items("one_of", &words.value, diags);
                    let words = words.iter().filter_map(|n| text("a word", n, diags).map(str::to_string)).collect();
                    return Some(ParamDecl { name, kind: ParamKind::OneOf(words), optional: false });
                }
                (None, Some(ty)) => Some((text("a parameter's type", &ty.value, diags)?.to_string(), ty.value.span)),
                _ => None,
            }
        }
    };
    let Some((ty, span)) = ty else {
        diags.push(Diagnostic::error(codes::MISSING_KEY, e.value.span, "a parameter needs `type` or `one_of`"));
        return None;
    };
    let (base, optional) = match ty.strip_suffix('?') {
        Some(base) => (base, true),
        None => (ty.as_str(), false),
    };
    let kind = match base {
        "i32" => ParamKind::Int,
        "f64" | "f32" => ParamKind::Float,
        "bool" => ParamKind::Bool,
        _ => {
            diags.push(
                Diagnostic::error(codes::TYPE_SYNTAX, span, format!("`{ty}` is not the type of a parameter"))
                    .help("i32, f64 or bool, with `?` if it may be none; or one_of: [a, b]"),
            );
            return None;
        }
    };
    Some(ParamDecl { name, kind, optional })
}

pub(crate) fn symbol(e: &Entry, diags: &mut Diagnostics) -> Option<SymbolDecl> {
    check_name("a symbol", e, diags).then_some(())?;
    let mut f = Fields::open("a symbol", &e.value, diags)?;
    let min = f.take("min").map(|e| expr_node(&e.value, diags));
    let max = f.take("max").map(|e| expr_node(&e.value, diags));
    if let Some(d) = f.take("doc") {
        text("doc", &d.value, diags);
    }
    f.finish(diags);
    Some(SymbolDecl { name: ident(e), min, max })
}

fn input(e: &Entry, place: usize, g: &mut GraphDecl, diags: &mut Diagnostics) {
    if !check_name("an input", e, diags) {
        return;
    }
    let node = match &e.value.value {
        Value::Map(_) => {
            let Some(mut f) = Fields::open("an input", &e.value, diags) else { return };
            let ty = f.take("type");
            let from = f.take("from");
            if let Some(d) = f.take("doc") {
                text("doc", &d.value, diags);
            }
            f.finish(diags);
            if let Some(from) = from {
                let ty = ty.map(|t| type_node(&t.value, diags));
                let wire = wire(&from.value, diags);
                g.inputs.push(InputDecl { name: ident(e), ty, from: wire });
                return;
            }
            match ty {
                Some(ty) => &ty.value,
                None => {
                    diags.push(Diagnostic::error(codes::MISSING_KEY, e.value.span, "an input needs `type` or `from`"));
                    return;
                }
            }
        }
        _ => &e.value,
    };
    let ty = type_node(node, diags);
    if ty.kind == TypeKind::State {
        g.state_inputs.push((ident(e), place));
    } else {
        g.inputs.push(InputDecl { name: ident(e), ty: Some(ty), from: None });
    }
}

/// `phase.output`
fn wire(node: &Node, diags: &mut Diagnostics) -> Option<(Ident, Ident)> {
    match parse_expr_node(node, diags)?.kind {
        ExprKind::Attr(base, out) if matches!(base.kind, ExprKind::Name(_)) => {
            let ExprKind::Name(phase) = base.kind else { return None };
            Some((Ident { name: phase, span: base.span }, out))
        }
        _ => {
            diags.push(
                Diagnostic::error(codes::EXPR_SYNTAX, node.span, "a wire names a phase and one of its outputs")
                    .help("from: draft.proposal"),
            );
            None
        }
    }
}

pub(super) fn weights(node: &Node, diags: &mut Diagnostics) -> Vec<WeightDecl> {
    let mut out = Vec::new();
    for e in named("weights", node, diags) {
        if !check_name("a weight", e, diags) {
            continue;
        }
        let (ty, from) = match &e.value.value {
            Value::Map(_) => {
                let Some(mut f) = Fields::open("a weight", &e.value, diags) else { continue };
                let ty = f.require("type", diags);
                let from = f.take("from");
                if let Some(d) = f.take("doc") {
                    text("doc", &d.value, diags);
                }
                f.finish(diags);
                if ty.is_none() {
                    continue;
                }
                let from = from.and_then(|e| text("`from`", &e.value, diags).map(|t| (t.to_string(), e.value.span)));
                (ty.map(|t| &t.value), from)
            }
            _ => (Some(&e.value), None),
        };
        let ty = type_node(ty.unwrap_or(&e.value), diags);
        out.push(WeightDecl { name: ident(e), ty, from });
    }
    out
}

fn state(e: &Entry, diags: &mut Diagnostics) -> Option<StateDef> {
    check_name("a state", e, diags).then_some(())?;
    let mut f = Fields::open("a state", &e.value, diags)?;
    let kind = f.require("kind", diags);
    let per = f.take("per").map(|e| expr_node(&e.value, diags));
    let dtype = f.require("dtype", diags);
    if let Some(d) = f.take("doc") {
        text("doc", &d.value, diags);
    }
    let kind = kind.and_then(|k| text("a state's kind", &k.value, diags).map(|t| (t, k.value.span)));
    let dim = |f: &mut Fields, key, diags: &mut Diagnostics| f.require(key, diags).map(|e| expr_node(&e.value, diags));
    let shape = match kind {
        Some(("kv_pool", _)) => {
            let heads = dim(&mut f, "heads", diags);
            let width = dim(&mut f, "width", diags);
            heads.zip(width).map(|(heads, width)| StateShape::KvPool { heads, width })
        }
        Some(("recurrent", _)) => {
            f.require("shape", diags).and_then(|e| parse_type_node(&e.value, diags)).map(|t| StateShape::Recurrent {
                shape: match t.kind {
                    TypeKind::Tensor { dims, .. } => dims,
                    TypeKind::State => Vec::new(),
                },
            })
        }
        Some(("window", _)) => {
            let channels = dim(&mut f, "channels", diags);
            let taps = dim(&mut f, "taps", diags);
            channels.zip(taps).map(|(channels, taps)| StateShape::Window { channels, taps })
        }
        Some((other, span)) => {
            diags.push(
                Diagnostic::error(codes::UNSUPPORTED, span, format!("there is no state of kind `{other}`"))
                    .help("kv_pool, recurrent or window; what a pool keeps never follows from the window that is read"),
            );
            return None;
        }
        None => None,
    };
    f.finish(diags);
    let dtype = dtype.and_then(|d| {
        text("a state's dtype", &d.value, diags).map(|t| Ident { name: t.to_string(), span: d.value.span })
    })?;
    Some(StateDef { name: ident(e), shape: shape?, per, dtype })
}

fn import(e: &Entry, diags: &mut Diagnostics) -> Option<UseDecl> {
    check_name("an imported graph", e, diags).then_some(())?;
    let (path, set) = match &e.value.value {
        Value::Map(_) => {
            let mut f = Fields::open("an import", &e.value, diags)?;
            let path = f.require("file", diags);
            let set = f.take("set").map(|s| bindings("set", &s.value, diags)).unwrap_or_default();
            f.finish(diags);
            (&path?.value, set)
        }
        _ => (&e.value, Vec::new()),
    };
    let file = text("a file name", path, diags)?.to_string();
    Some(UseDecl { name: ident(e), path: file, path_span: path.span, set })
}

/// `name: expression` pairs.
pub(crate) fn bindings(what: &'static str, node: &Node, diags: &mut Diagnostics) -> Vec<(Ident, Expr)> {
    let mut out = Vec::new();
    for e in named(what, node, diags) {
        if check_name("a value", e, diags) {
            out.push((ident(e), expr_node(&e.value, diags)));
        }
    }
    out
}

fn output(e: &Entry, diags: &mut Diagnostics) -> Option<OutputDecl> {
    let name = ident(e);
    if !matches!(e.value.value, Value::Map(_)) {
        check_name("an output", e, diags).then_some(())?;
        return Some(OutputDecl { name, value: expr_node(&e.value, diags), each: None });
    }
    let mut f = Fields::open("an output", &e.value, diags)?;
    let value = f.require("value", diags);
    let each = f.take("each");
    if let Some(d) = f.take("doc") {
        text("doc", &d.value, diags);
    }
    f.finish(diags);
    let value = expr_node(&value?.value, diags);
    let each = match each {
        None => {
            check_name("an output", e, diags).then_some(())?;
            None
        }
        Some(each) => {
            let pairs = bindings("`each`", &each.value, diags);
            let [(var, extent)] = pairs.as_slice() else {
                diags.push(
                    Diagnostic::error(codes::YAML_SHAPE, each.value.span, "`each` has one index and its extent")
                        .help("each: {i: L}"),
                );
                return None;
            };
            if !e.key.contains(&format!("{{{}}}", var.name)) {
                diags.push(Diagnostic::error(
                    codes::BAD_NAME,
                    e.key_span,
                    format!("the name of an output for each `{0}` must hold {{{0}}}", var.name),
                ));
                return None;
            }
            Some((var.clone(), extent.clone()))
        }
    };
    Some(OutputDecl { name, value, each })
}
