//! What a file declares must be used, and a name must mean one thing.

use super::ast::*;
use super::expr::{Expr, ExprKind, Ident, IndexKind, TypeExpr, TypeKind};
use super::lower::Files;
use crate::diag::{Diagnostic, Diagnostics, codes};
use std::collections::{BTreeMap, BTreeSet};

/// Checks one graph file.
pub(crate) fn file(files: &Files, index: usize, diags: &mut Diagnostics) {
    let f = &files.list[index];
    let mut outer: BTreeMap<&str, &Ident> = BTreeMap::new();
    let all = f
        .dims
        .iter()
        .map(|d| &d.name)
        .chain(f.lists.iter().map(|l| &l.name))
        .chain(f.params.iter().map(|p| &p.name))
        .chain(f.states.iter().map(|s| &s.name))
        .chain(f.weights.iter().map(|w| &w.name))
        .chain(f.derived.iter().map(|n| &n.name))
        .chain(f.symbols.iter().map(|s| &s.name));
    for name in all {
        declare(&mut outer, name, diags);
    }
    let mut used = Uses::default();
    for l in &f.lists {
        l.length.iter().for_each(|e| used.expr(e));
    }
    for s in &f.states {
        s.per.iter().for_each(|e| used.expr(e));
        match &s.shape {
            StateShape::KvPool { heads, width } => [heads, width].into_iter().for_each(|e| used.expr(e)),
            StateShape::Recurrent { shape } => shape.iter().for_each(|e| used.expr(e)),
            StateShape::Window { channels, taps } => [channels, taps].into_iter().for_each(|e| used.expr(e)),
        }
    }
    f.weights.iter().for_each(|w| used.ty(&w.ty));
    for u in &f.uses {
        u.set.iter().for_each(|(_, e)| used.expr(e));
        if let Some(i) = files.imports[index].get(&u.name.name) {
            // An import takes these over by name.
            let g = &files.list[*i];
            let names = g
                .dims
                .iter()
                .map(|d| &d.name)
                .chain(g.lists.iter().map(|l| &l.name))
                .chain(g.params.iter().map(|p| &p.name));
            used.names.extend(names.map(|n| n.name.clone()));
        }
    }
    for n in &f.derived {
        used.node(n);
    }
    f.symbols.iter().for_each(|s| s.min.iter().chain(&s.max).for_each(|e| used.expr(e)));
    for g in f.main.iter().chain(&f.graphs) {
        graph(g, &outer, diags);
        determined(g, &f.symbols, diags);
        used.graph(g);
    }
    for (i, g) in f.graphs.iter().enumerate() {
        let twice =
            f.graphs[..i].iter().map(|o| &o.name).chain(f.uses.iter().map(|u| &u.name)).find(|o| o.name == g.name.name);
        if let Some(other) = twice {
            shadowed(&g.name, other, diags);
        }
        if crate::ops::OPS.iter().any(|d| d.callable && d.name == g.name.name)
            || super::lower::SUGAR.iter().any(|s| s.0 == g.name.name)
        {
            diags.push(Diagnostic::error(
                codes::SHADOWED,
                g.name.span,
                format!("`{}` is a function of the language", g.name.name),
            ));
        }
    }
    let kinds: [(&str, Vec<&Ident>); 6] = [
        ("dim", f.dims.iter().map(|d| &d.name).collect()),
        ("list", f.lists.iter().map(|l| &l.name).collect()),
        ("parameter", f.params.iter().map(|p| &p.name).collect()),
        ("weight", f.weights.iter().map(|w| &w.name).collect()),
        ("derived value", f.derived.iter().map(|n| &n.name).collect()),
        ("symbol", f.symbols.iter().map(|s| &s.name).collect()),
    ];
    // What could not be read may have used anything.
    if used.broken || !files.whole(index) {
        return;
    }
    for (kind, names) in kinds {
        for n in names {
            if !used.names.contains(&n.name) {
                unused(kind, n, diags);
            }
        }
    }
    for s in &f.states {
        if !used.names.contains(&s.name.name) {
            diags.push(
                Diagnostic::error(
                    codes::STATE_UNUSED,
                    s.name.span,
                    format!("state `{}` is never advanced", s.name.name),
                )
                .help("remove it, or write to it"),
            );
        }
    }
    for u in &f.uses {
        if !used.called.contains(&u.name.name) {
            unused("import", &u.name, diags);
        }
    }
}

fn declare<'a>(names: &mut BTreeMap<&'a str, &'a Ident>, name: &'a Ident, diags: &mut Diagnostics) {
    match names.get(name.name.as_str()) {
        Some(other) => shadowed(name, other, diags),
        None => {
            names.insert(&name.name, name);
        }
    }
}

pub(crate) fn shadowed(name: &Ident, other: &Ident, diags: &mut Diagnostics) {
    diags.push(
        Diagnostic::error(codes::SHADOWED, name.span, format!("`{}` already means something here", name.name))
            .related(other.span, "declared here")
            .help("give one of them another name"),
    );
}

pub(crate) fn unused(kind: &str, name: &Ident, diags: &mut Diagnostics) {
    diags.push(
        Diagnostic::error(codes::UNUSED, name.span, format!("{kind} `{}` is never used", name.name))
            .help("remove it, or use it"),
    );
}

/// Checks one graph; `outer` are the names its file declares.
pub(crate) fn graph<'a>(g: &'a GraphDecl, outer: &BTreeMap<&'a str, &'a Ident>, diags: &mut Diagnostics) {
    let mut names = outer.clone();
    // Inputs and nodes of a graph may not hide what the file declares, nor each other. A state input may carry the name
    // of the state it is given.
    for s in &g.symbols {
        declare(&mut names, &s.name, diags);
    }
    for i in &g.inputs {
        declare(&mut names, &i.name, diags);
    }
    for (n, _) in &g.state_inputs {
        names.insert(&n.name, n);
    }
    for w in &g.weights {
        declare(&mut names, &w.name, diags);
    }
    for n in &g.nodes {
        declare(&mut names, &n.name, diags);
    }
    for (i, o) in g.outputs.iter().chain(&g.expose).enumerate() {
        if let Some(other) = g.outputs.iter().chain(&g.expose).take(i).find(|p| p.name.name == o.name.name) {
            shadowed(&o.name, &other.name, diags);
        }
    }
    let mut used = Uses::default();
    used.graph(g);
    if used.broken {
        loops(&g.nodes, &names, diags);
        return;
    }
    for i in &g.inputs {
        if !used.names.contains(&i.name.name) {
            unused("input", &i.name, diags);
        }
    }
    for (n, _) in &g.state_inputs {
        if !used.names.contains(&n.name) {
            diags.push(Diagnostic::error(codes::STATE_UNUSED, n.span, format!("state `{}` is never advanced", n.name)));
        }
    }
    for w in &g.weights {
        if !used.names.contains(&w.name.name) {
            unused("weight", &w.name, diags);
        }
    }
    for s in &g.symbols {
        if !used.names.contains(&s.name.name) {
            unused("symbol", &s.name, diags);
        }
    }
    node_list(&g.nodes, &used, &names, diags);
}

/// Every symbol a graph uses is the extent of an axis of one of its inputs: that is what gives it a value in a call.
pub(crate) fn determined(g: &GraphDecl, of_file: &[SymbolDecl], diags: &mut Diagnostics) {
    let mut used = Uses::default();
    used.graph(g);
    if used.broken {
        return;
    }
    for s in of_file.iter().chain(&g.symbols) {
        let alone = |t: &TypeExpr| match &t.kind {
            TypeKind::Tensor { dims, .. } => {
                dims.iter().any(|d| matches!(&d.kind, ExprKind::Name(n) if *n == s.name.name))
            }
            TypeKind::State => false,
        };
        if used.names.contains(&s.name.name) && !g.inputs.iter().filter_map(|i| i.ty.as_ref()).any(alone) {
            diags.push(
                Diagnostic::error(
                    codes::UNBOUND_DIM,
                    s.name.span,
                    format!("nothing gives symbol `{}` a value in `{}`", s.name.name, g.name.name),
                )
                .related(g.name.span, "used here")
                .help(format!("it must be the whole extent of an axis of an input, as in `i32[{}]`", s.name.name)),
            );
        }
    }
}

fn node_list<'a>(nodes: &'a [NodeDecl], used: &Uses, names: &BTreeMap<&'a str, &'a Ident>, diags: &mut Diagnostics) {
    for n in nodes {
        // A node whose only purpose is what it does to a state needs no reader.
        if !used.names.contains(&n.name.name) && !mentions_state(n) {
            unused("node", &n.name, diags);
        }
    }
    loops(nodes, names, diags);
}

fn loops<'a>(nodes: &'a [NodeDecl], names: &BTreeMap<&'a str, &'a Ident>, diags: &mut Diagnostics) {
    for n in nodes {
        if let NodeBody::Loop(l) = &n.body {
            loop_names(l, names, diags);
        }
    }
}

fn loop_names<'a>(l: &'a LoopDecl, outer: &BTreeMap<&'a str, &'a Ident>, diags: &mut Diagnostics) {
    let mut names = outer.clone();
    declare(&mut names, &l.var, diags);
    for (n, _) in &l.carry {
        declare(&mut names, n, diags);
    }
    for w in &l.weights {
        declare(&mut names, &w.name, diags);
    }
    for n in &l.nodes {
        declare(&mut names, &n.name, diags);
    }
    // What a loop keeps is seen from outside under the loop's name, beside what it carries and its nodes.
    for k in &l.keep {
        let inside = l.carry.iter().map(|(n, _)| n).chain(l.nodes.iter().map(|n| &n.name));
        if let Some(other) = inside.into_iter().find(|o| o.name == k.name.name) {
            shadowed(&k.name, other, diags);
        }
    }
    let mut inner = Uses::default();
    l.nodes.iter().for_each(|n| inner.node(n));
    l.yields.iter().for_each(|(_, e)| inner.expr(e));
    l.keep.iter().for_each(|k| inner.expr(&k.value));
    if inner.broken {
        loops(&l.nodes, &names, diags);
        return;
    }
    for w in &l.weights {
        if !inner.names.contains(&w.name.name) {
            unused("weight", &w.name, diags);
        }
    }
    for (n, _) in &l.carry {
        if !inner.names.contains(&n.name) {
            unused("carried value", n, diags);
        }
    }
    node_list(&l.nodes, &inner, &names, diags);
}

/// True if a node calls something that may advance a state: a method, or a graph.
fn mentions_state(n: &NodeDecl) -> bool {
    fn expr(e: &Expr) -> bool {
        match &e.kind {
            ExprKind::Call { callee, args, kwargs } => {
                let graph_or_method = match &callee.kind {
                    ExprKind::Attr(..) => true,
                    ExprKind::Name(n) => {
                        !crate::ops::OPS.iter().any(|d| d.name == n) && !super::lower::SUGAR.iter().any(|s| s.0 == n)
                    }
                    _ => false,
                };
                graph_or_method || args.iter().any(expr) || kwargs.iter().any(|(_, e)| expr(e))
            }
            ExprKind::Attr(b, _) | ExprKind::Unary(_, b) | ExprKind::Index(b, _) => expr(b),
            ExprKind::Binary(_, a, b) => expr(a) || expr(b),
            _ => false,
        }
    }
    match &n.body {
        NodeBody::Value(e, _) => expr(e),
        NodeBody::Loop(l) => l.nodes.iter().any(mentions_state),
        NodeBody::Match(m) => m.cases.iter().any(|(_, b)| match b {
            CaseBody::Value(e) => expr(e),
            CaseBody::Record(f) => f.iter().any(|(_, e)| expr(e)),
        }),
    }
}

/// Names that are read.
#[derive(Default)]
pub(crate) struct Uses {
    pub names: BTreeSet<String>,
    pub called: BTreeSet<String>,
    /// Graphs of components that are called, `COMPONENT.GRAPH`.
    pub graphs: BTreeSet<(String, String)>,
    /// Something could not be read; what it uses is not known.
    pub broken: bool,
}

impl Uses {
    pub fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Broken => self.broken = true,
            ExprKind::Name(n) => {
                self.names.insert(n.clone());
            }
            ExprKind::Call { callee, args, kwargs } => {
                match &callee.kind {
                    ExprKind::Name(n) => {
                        self.called.insert(n.clone());
                    }
                    kind => {
                        if let ExprKind::Attr(of, graph) = kind
                            && let ExprKind::Name(component) = &of.kind
                        {
                            self.graphs.insert((component.clone(), graph.name.clone()));
                        }
                        self.expr(callee);
                    }
                }
                args.iter().chain(kwargs.iter().map(|(_, e)| e)).for_each(|e| self.expr(e));
            }
            ExprKind::Attr(b, _) | ExprKind::Unary(_, b) => self.expr(b),
            ExprKind::Binary(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::List(items) => items.iter().for_each(|e| self.expr(e)),
            ExprKind::Index(b, items) => {
                self.expr(b);
                for i in items {
                    match &i.kind {
                        IndexKind::At(e) => self.expr(e),
                        IndexKind::Slice(a, b) => a.iter().chain(b).for_each(|e| self.expr(e)),
                        IndexKind::NewAxis | IndexKind::Ellipsis => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn ty(&mut self, t: &TypeExpr) {
        if let TypeKind::Tensor { dims, .. } = &t.kind {
            dims.iter().for_each(|d| self.expr(d));
        }
    }

    fn node(&mut self, n: &NodeDecl) {
        match &n.body {
            NodeBody::Value(e, t) => {
                self.expr(e);
                t.iter().for_each(|t| self.ty(t));
            }
            NodeBody::Loop(l) => {
                self.expr(&l.extent);
                l.carry.iter().chain(&l.yields).for_each(|(_, e)| self.expr(e));
                l.weights.iter().for_each(|w| self.ty(&w.ty));
                l.nodes.iter().for_each(|n| self.node(n));
                for k in &l.keep {
                    self.expr(&k.value);
                    k.at.iter().chain(&k.axis).for_each(|e| self.expr(e));
                }
            }
            NodeBody::Match(m) => {
                self.expr(&m.on);
                for (_, b) in &m.cases {
                    match b {
                        CaseBody::Value(e) => self.expr(e),
                        CaseBody::Record(f) => f.iter().for_each(|(_, e)| self.expr(e)),
                    }
                }
            }
        }
    }

    pub fn graph(&mut self, g: &GraphDecl) {
        g.inputs.iter().filter_map(|i| i.ty.as_ref()).for_each(|t| self.ty(t));
        g.weights.iter().for_each(|w| self.ty(&w.ty));
        g.nodes.iter().for_each(|n| self.node(n));
        g.outputs.iter().chain(&g.expose).for_each(|o| {
            self.expr(&o.value);
            o.each.iter().for_each(|(_, e)| self.expr(e));
        });
        g.symbols.iter().for_each(|s| s.min.iter().chain(&s.max).for_each(|e| self.expr(e)));
    }
}
