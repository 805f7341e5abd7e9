//! Nodes of a graph from their YAML: expressions, calls, loops, cases.

use super::ast::*;
use super::expr::{Expr, ExprKind, expr_node, parse_expr_node, type_node};
use super::fields::{Fields, check_name, named, text};
use super::parse_graph::{bindings, ident, weights};
use super::yaml::{Entry, Node, Value};
use crate::diag::{Diagnostic, Diagnostics, codes};

pub(super) fn nodes(node: &Node, diags: &mut Diagnostics) -> Vec<NodeDecl> {
    let mut out = Vec::new();
    for e in named("nodes", node, diags) {
        if check_name("a node", e, diags) {
            let broken = || NodeBody::Value(Expr { span: e.value.span, kind: ExprKind::Broken }, None);
            let body = node_body(&e.value, diags).unwrap_or_else(broken);
            out.push(NodeDecl { name: ident(e), body });
        }
    }
    out
}

fn node_body(node: &Node, diags: &mut Diagnostics) -> Option<NodeBody> {
    let Value::Map(_) = &node.value else {
        return Some(NodeBody::Value(expr_node(node, diags), None));
    };
    let has = |key: &str| node.get(key).is_some();
    if has("repeat") || has("scan") {
        return loop_decl(node, diags).map(|l| NodeBody::Loop(Box::new(l)));
    }
    if has("match") {
        return match_decl(node, diags).map(NodeBody::Match);
    }
    if has("call") {
        return call_node(node, diags).map(|e| NodeBody::Value(e, None));
    }
    let mut f = Fields::open("a node", node, diags)?;
    let value = f.require("value", diags);
    let ty = f.take("type");
    if let Some(d) = f.take("doc") {
        text("doc", &d.value, diags);
    }
    f.finish(diags);
    let value = expr_node(&value?.value, diags);
    Some(NodeBody::Value(value, ty.map(|t| type_node(&t.value, diags))))
}

/// `{call: f, args: {a: x}}` is `f(a=x)`.
fn call_node(node: &Node, diags: &mut Diagnostics) -> Option<Expr> {
    let mut f = Fields::open("a call", node, diags)?;
    let callee = f.require("call", diags).and_then(|e| parse_expr_node(&e.value, diags));
    let kwargs = f.take("args").map(|e| bindings("args", &e.value, diags)).unwrap_or_default();
    f.finish(diags);
    Some(Expr { span: node.span, kind: ExprKind::Call { callee: Box::new(callee?), args: Vec::new(), kwargs } })
}

fn loop_decl(node: &Node, diags: &mut Diagnostics) -> Option<LoopDecl> {
    let mut f = Fields::open("a loop", node, diags)?;
    let repeat = f.take("repeat");
    let scan = f.take("scan");
    let serial = scan.is_some();
    if let (Some(_), Some(s)) = (repeat, scan) {
        diags.push(Diagnostic::error(codes::UNKNOWN_KEY, s.key_span, "a loop is a `repeat` or a `scan`, not both"));
    }
    let head = repeat.or(scan)?;
    let heads = bindings("a loop's index", &head.value, diags);
    let carry = f.take("carry").map(|e| bindings("carry", &e.value, diags)).unwrap_or_default();
    let weights = f.take("weights").map(|e| weights(&e.value, diags)).unwrap_or_default();
    let nodes = f.require("nodes", diags).map(|e| nodes(&e.value, diags)).unwrap_or_default();
    let yields = f.take("yield").map(|e| bindings("yield", &e.value, diags)).unwrap_or_default();
    let mut keep = Vec::new();
    if let Some(e) = f.take("keep") {
        keep.extend(named("keep", &e.value, diags).iter().filter_map(|e| keep_decl(e, diags)));
    }
    if let Some(d) = f.take("doc") {
        text("doc", &d.value, diags);
    }
    f.finish(diags);
    let [(var, extent)] = heads.as_slice() else {
        diags.push(
            Diagnostic::error(codes::YAML_SHAPE, head.value.span, "a loop has one index and its extent")
                .help(format!("{}: {{l: L}}", head.key)),
        );
        return None;
    };
    Some(LoopDecl { serial, var: var.clone(), extent: extent.clone(), carry, weights, nodes, yields, keep })
}

fn keep_decl(e: &Entry, diags: &mut Diagnostics) -> Option<KeepDecl> {
    check_name("a kept value", e, diags).then_some(())?;
    if !matches!(e.value.value, Value::Map(_)) {
        let value = expr_node(&e.value, diags);
        return Some(KeepDecl { name: ident(e), value, at: None, axis: None });
    }
    let mut f = Fields::open("a kept value", &e.value, diags)?;
    let value = f.require("value", diags);
    let at = f.take("at").map(|e| expr_node(&e.value, diags));
    let axis = f.take("axis").map(|e| expr_node(&e.value, diags));
    f.finish(diags);
    Some(KeepDecl { name: ident(e), value: expr_node(&value?.value, diags), at, axis })
}

fn match_decl(node: &Node, diags: &mut Diagnostics) -> Option<MatchDecl> {
    let on = node.get("match").map(|e| expr_node(&e.value, diags));
    let mut cases = Vec::new();
    for e in node.as_map()?.iter().filter(|e| e.key != "match" && e.key != "doc") {
        let body = if matches!(e.value.value, Value::Map(_)) {
            if e.value.get("call").is_some() {
                call_node(&e.value, diags).map(CaseBody::Value)
            } else {
                Some(CaseBody::Record(bindings("a case", &e.value, diags)))
            }
        } else {
            Some(CaseBody::Value(expr_node(&e.value, diags)))
        };
        if let Some(body) = body {
            cases.push((ident(e), body));
        }
    }
    if cases.is_empty() {
        diags.push(Diagnostic::error(codes::MISSING_KEY, node.span, "a match needs at least one case"));
        return None;
    }
    Some(MatchDecl { on: on?, cases })
}
