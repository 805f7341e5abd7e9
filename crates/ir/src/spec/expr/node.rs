//! Expressions and types from YAML values.

use super::{Expr, ExprKind, TypeExpr, TypeKind, parse_expr, parse_type};
use crate::diag::{Diagnostic, Diagnostics, codes};
use crate::spec::yaml::{Node, Value};

/// The expression a YAML value writes.
///
/// Text is parsed; numbers and truth values are literals, nothing is [`ExprKind::None`], a sequence is a list of
/// expressions. Every faulty item of a sequence is reported; a mapping is E0107.
pub fn parse_expr_node(node: &Node, diags: &mut Diagnostics) -> Option<Expr> {
    let kind = match &node.value {
        Value::Null => ExprKind::None,
        Value::Bool(b) => ExprKind::Bool(*b),
        Value::Int(i) => ExprKind::Int(*i),
        Value::Float(x) => ExprKind::Float(*x),
        Value::Str(text) => return parse_expr(text, node.span, diags),
        Value::Seq(items) => ExprKind::List(all(items, diags)?),
        Value::Map(_) => {
            let d = Diagnostic::error(codes::YAML_SHAPE, node.span, "expected an expression, found a mapping");
            diags.push(d.help("an expression that holds `: ` or starts with `{` needs quotes"));
            return None;
        }
    };
    Some(Expr { span: node.span, kind })
}

/// The type a YAML value writes: text such as `bf16[N, H]`, or a sequence of dims for the type `[N, H]`.
///
/// Anything else is E0107.
pub fn parse_type_node(node: &Node, diags: &mut Diagnostics) -> Option<TypeExpr> {
    match &node.value {
        Value::Str(text) => parse_type(text, node.span, diags),
        Value::Seq(items) => {
            let dims = all(items, diags)?;
            Some(TypeExpr { span: node.span, kind: TypeKind::Tensor { dist: false, dtype: None, dims } })
        }
        other => {
            let message = format!("expected a type, found {}", other.describe());
            let d = Diagnostic::error(codes::YAML_SHAPE, node.span, message);
            diags.push(d.help("a type is written like `\"bf16[N, H]\"`, `i32` or `state`"));
            None
        }
    }
}

/// [`parse_expr_node`], with [`ExprKind::Broken`] for what cannot be read.
pub(crate) fn expr_node(node: &Node, diags: &mut Diagnostics) -> Expr {
    parse_expr_node(node, diags).unwrap_or(Expr { span: node.span, kind: ExprKind::Broken })
}

/// [`parse_type_node`], with a tensor of one unknown dim for what cannot be read.
pub(crate) fn type_node(node: &Node, diags: &mut Diagnostics) -> TypeExpr {
    parse_type_node(node, diags).unwrap_or_else(|| {
        let dims = vec![Expr { span: node.span, kind: ExprKind::Broken }];
        TypeExpr { span: node.span, kind: TypeKind::Tensor { dist: false, dtype: None, dims } }
    })
}

fn all(items: &[Node], diags: &mut Diagnostics) -> Option<Vec<Expr>> {
    let parsed: Vec<_> = items.iter().map(|item| parse_expr_node(item, diags)).collect();
    parsed.into_iter().collect()
}
