//! A graph on its own as a function: dims from the extents of given tensors and from the command line.

use super::ast::{CaseBody, GraphDecl, GraphFile, NodeBody, NodeDecl};
use super::expr::{Expr, ExprKind, TypeExpr, TypeKind};
use super::load::{Host, Loader};
use super::lower::{Alone, Files, FunctionRequest, Lower};
use super::statics::Static;
use super::system::{Overrides, fit};
use crate::diag::{Diagnostic, Diagnostics, SourceMap, codes, suggest};
use crate::ir::Module;
use crate::ty::Numerics;
use std::collections::{BTreeMap, BTreeSet};

/// A graph as a module with one function.
pub struct BareGraph {
    /// The module; weights are named by their paths, with loop variables in braces.
    pub module: Module,
    /// Types of the inputs as the graph file writes them, by name.
    pub input_types: BTreeMap<String, String>,
    /// The files read.
    pub sources: SourceMap,
}

/// Loads a graph file and lowers its own graph, or the graph `name` of it. `shapes` are the extents of the tensors at
/// hand: inputs by name, weights by path with loop indices as numbers. `wanted` asks for nodes by path.
pub fn load_graph(
    path: &str,
    host: &dyn Host,
    over: &Overrides,
    name: Option<&str>,
    shapes: &BTreeMap<String, Vec<usize>>,
    wanted: Option<&dyn Fn(&str) -> bool>,
) -> Result<BareGraph, (SourceMap, Diagnostics)> {
    let refused = |sources: SourceMap, diags: Diagnostics| {
        let mut helped = Diagnostics::default();
        diags.iter().for_each(|d| helped.push(super::system::given_help(d.clone(), &sources)));
        Err((sources, super::once(helped)))
    };
    let mut loader = Loader::new(host);
    let index = loader.tree(path, None).and_then(|root| loader.graph_from(path, &root));
    let Loader { mut sources, mut diags, files, .. } = loader;
    let Some(index) = index.filter(|_| !diags.has_errors()) else { return refused(sources, diags) };
    super::hygiene::file(&files, index, &mut diags);
    let f = &files.list[index];
    let Some(graph) = pick(f, name, &mut diags) else { return refused(sources, diags) };
    let values = values(&files, index, graph, over, shapes, &mut sources, &mut diags);
    if diags.has_errors() {
        return refused(sources, diags);
    }
    let numerics = over.numerics.unwrap_or(Numerics::F32);
    let mut lower = Lower::new(&files, &Alone, &f.name.name, numerics);
    lower.wanted = wanted;
    let prefix =
        if f.main.as_ref().is_some_and(|m| std::ptr::eq(m, graph)) { None } else { Some(graph.name.name.clone()) };
    lower.function(FunctionRequest {
        name: graph.name.name.clone(),
        graph,
        file: Some((index, String::new())),
        values: &values,
        outputs: None,
        weights: prefix,
        available: None,
    });
    lower.check_shared();
    let input_types = graph.input_types();
    diags.extend(lower.diags);
    if diags.has_errors() {
        refused(sources, diags)
    } else {
        Ok(BareGraph { module: lower.module, input_types, sources })
    }
}

fn pick<'f>(f: &'f GraphFile, name: Option<&str>, diags: &mut Diagnostics) -> Option<&'f GraphDecl> {
    let known: Vec<&str> = f.graphs.iter().map(|g| g.name.name.as_str()).collect();
    let found = match name {
        None => f.main.as_ref().or(if f.graphs.len() == 1 { f.graphs.first() } else { None }),
        Some(n) if n == f.name.name && f.main.is_some() => f.main.as_ref(),
        Some(n) => f.graphs.iter().find(|g| g.name.name == n),
    };
    let Some(g) = found else {
        let mut d = match name {
            Some(n) => {
                Diagnostic::error(codes::UNKNOWN_FUNCTION, f.name.span, format!("`{}` has no graph `{n}`", f.name.name))
            }
            None => Diagnostic::error(
                codes::UNKNOWN_FUNCTION,
                f.name.span,
                format!("`{}` holds several graphs; name one with --entry", f.name.name),
            ),
        };
        d = match name.and_then(|n| suggest(n, known.iter().copied())) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None => d.help(format!("its graphs: {}", known.join(", "))),
        };
        diags.push(d);
        return None;
    };
    if let Some((state, _)) = g.state_inputs.first() {
        diags.push(
            Diagnostic::error(
                codes::STATE_MISUSE,
                state.span,
                format!("`{}` takes a state from its caller and cannot be run alone", g.name.name),
            )
            .help("evaluate a graph that declares the state and calls this one"),
        );
        return None;
    }
    Some(g)
}

/// Values of the dims, lists and parameters of a file.
fn values(
    files: &Files,
    index: usize,
    graph: &GraphDecl,
    over: &Overrides,
    shapes: &BTreeMap<String, Vec<usize>>,
    sources: &mut SourceMap,
    diags: &mut Diagnostics,
) -> BTreeMap<String, Static> {
    let f = &files.list[index];
    let mut out: BTreeMap<String, Static> = BTreeMap::new();
    let mut refused: BTreeSet<String> = BTreeSet::new();
    for (name, (e, span)) in super::system::parse_sets(&over.sets, sources, diags) {
        let declared = f
            .dims
            .iter()
            .map(|d| &d.name.name)
            .chain(f.lists.iter().map(|l| &l.name.name))
            .chain(f.params.iter().map(|p| &p.name.name));
        let known: Vec<&str> = declared.map(String::as_str).collect();
        if !known.contains(&name.as_str()) {
            let mut d = Diagnostic::error(
                codes::UNKNOWN_NAME,
                super::system::name_of(&name, span),
                format!("graph `{}` declares no `{name}`", f.name.name),
            );
            if let Some(near) = suggest(&name, known.iter().copied()) {
                d = d.help(format!("did you mean `{near}`?"));
            }
            diags.push(d);
            continue;
        }
        match literal(&e) {
            Some(v) => match fit(f, &name, v, span) {
                Ok(v) => {
                    out.insert(name, v);
                }
                Err(d) => {
                    refused.insert(name);
                    diags.push(*d);
                }
            },
            None => {
                refused.insert(name);
                let text = "a value of --set is a number, word, truth value or list of them";
                diags.push(Diagnostic::error(codes::NOT_STATIC, span, text));
            }
        }
    }
    let mut walk = Extents { shapes, dims: f.dims.iter().map(|d| d.name.name.clone()).collect(), out: &mut out };
    for i in &graph.inputs {
        if let Some(t) = &i.ty {
            walk.bind(&i.name.name, t);
        }
    }
    for w in f.weights.iter().chain(&graph.weights) {
        walk.bind(&w.name.name, &w.ty);
    }
    walk.nodes(files, index, &graph.nodes, "", 0);
    let missing = |name: &str| !out.contains_key(name) && !refused.contains(name);
    for d in f.dims.iter().filter(|d| missing(&d.name.name)) {
        diags.push(
            Diagnostic::error(
                codes::UNBOUND_DIM,
                d.name.span,
                if shapes.is_empty() {
                    format!("dim `{}` has no value", d.name.name)
                } else {
                    format!("no given tensor has an axis that is dim `{}`", d.name.name)
                },
            )
            .help(format!("bind it with --set {}=VALUE", d.name.name)),
        );
    }
    for p in f.params.iter().filter(|p| missing(&p.name.name)) {
        diags.push(
            Diagnostic::error(codes::UNBOUND_DIM, p.name.span, format!("parameter `{}` has no value", p.name.name))
                .help(format!("bind it with --set {}=VALUE", p.name.name)),
        );
    }
    for l in f.lists.iter().filter(|l| missing(&l.name.name)) {
        diags.push(
            Diagnostic::error(codes::UNBOUND_DIM, l.name.span, format!("list `{}` has no value", l.name.name))
                .help(format!("bind it with --set {}=[...]", l.name.name)),
        );
    }
    out
}

fn literal(e: &Expr) -> Option<Static> {
    match &e.kind {
        ExprKind::Int(v) => Some(Static::from(*v)),
        ExprKind::Float(v) => Some(Static::Float(*v)),
        ExprKind::Bool(v) => Some(Static::Bool(*v)),
        ExprKind::None => Some(Static::None),
        ExprKind::Str(s) => Some(Static::Str(s.clone())),
        // A bare word is a word.
        ExprKind::Name(s) => Some(Static::Str(s.clone())),
        ExprKind::List(items) => items.iter().map(literal).collect::<Option<Vec<_>>>().map(Static::List),
        ExprKind::Unary(op, x) => super::statics::unary(*op, &literal(x)?).ok(),
        ExprKind::Binary(op, a, b) => super::statics::binary(*op, &literal(a)?, &literal(b)?).ok(),
        _ => None,
    }
}

/// Takes the extents of dims from the shapes of tensors.
struct Extents<'e> {
    shapes: &'e BTreeMap<String, Vec<usize>>,
    dims: Vec<String>,
    out: &'e mut BTreeMap<String, Static>,
}

impl Extents<'_> {
    fn bind(&mut self, name: &str, ty: &TypeExpr) {
        let Some(shape) = self.shapes.get(name) else { return };
        let TypeKind::Tensor { dims, .. } = &ty.kind else { return };
        if dims.len() != shape.len() {
            return;
        }
        for (d, n) in dims.iter().zip(shape) {
            if let ExprKind::Name(dim) = &d.kind
                && self.dims.contains(dim)
                && let Ok(n) = i64::try_from(*n)
            {
                self.out.entry(dim.clone()).or_insert_with(|| Static::from(n));
            }
        }
    }

    fn nodes(&mut self, files: &Files, file: usize, nodes: &[NodeDecl], prefix: &str, depth: usize) {
        for n in nodes {
            let here = if prefix.is_empty() { n.name.name.clone() } else { format!("{prefix}.{}", n.name.name) };
            match &n.body {
                NodeBody::Value(e, _) => self.calls(files, file, e, &here, depth),
                NodeBody::Loop(l) => {
                    let first = if l.serial { here.clone() } else { format!("{here}.0") };
                    if !l.serial
                        && let ExprKind::Name(dim) = &l.extent.kind
                        && self.dims.contains(dim)
                    {
                        let start = format!("{here}.");
                        let indices = self
                            .shapes
                            .keys()
                            .filter_map(|k| k.strip_prefix(&start)?.split('.').next()?.parse::<i64>().ok());
                        if let Some(last) = indices.max() {
                            self.out.entry(dim.clone()).or_insert_with(|| Static::from(last + 1));
                        }
                    }
                    for w in &l.weights {
                        self.bind(&format!("{first}.{}", w.name.name), &w.ty);
                    }
                    self.nodes(files, file, &l.nodes, &first, depth);
                }
                NodeBody::Match(m) => {
                    for (_, body) in &m.cases {
                        match body {
                            CaseBody::Value(e) => self.calls(files, file, e, &here, depth),
                            CaseBody::Record(fields) => {
                                fields.iter().for_each(|(_, e)| self.calls(files, file, e, &here, depth))
                            }
                        }
                    }
                }
            }
        }
    }

    /// Weights of graphs that are called by an expression of the node at `here`.
    fn calls(&mut self, files: &Files, file: usize, e: &Expr, here: &str, depth: usize) {
        if depth > 16 {
            return;
        }
        match &e.kind {
            ExprKind::Call { callee, args, kwargs } => {
                if let ExprKind::Name(name) = &callee.kind {
                    let f = &files.list[file];
                    let import = files.imports[file].get(name).copied();
                    let local = f.graphs.iter().find(|g| g.name.name == *name);
                    let (target, graph) = match (local, import) {
                        (Some(g), _) => (file, Some(g)),
                        (None, Some(i)) => (i, files.list[i].main.as_ref()),
                        (None, None) => (file, None),
                    };
                    if let Some(g) = graph {
                        let own: &[_] = if target == file { &[] } else { &files.list[target].weights };
                        for w in own.iter().chain(&g.weights) {
                            self.bind(&format!("{here}.{}", w.name.name), &w.ty);
                        }
                        self.nodes(files, target, &g.nodes, here, depth + 1);
                    }
                }
                args.iter().chain(kwargs.iter().map(|(_, a)| a)).for_each(|a| self.calls(files, file, a, here, depth));
            }
            ExprKind::Attr(b, _) | ExprKind::Unary(_, b) | ExprKind::Index(b, _) => {
                self.calls(files, file, b, here, depth)
            }
            ExprKind::Binary(_, a, b) => {
                self.calls(files, file, a, here, depth);
                self.calls(files, file, b, here, depth);
            }
            _ => {}
        }
    }
}
