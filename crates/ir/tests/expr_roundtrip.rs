//! Printing and parsing are inverse; no text makes the parser panic.

use proptest::prelude::*;
use spinec_ir::diag::{Diagnostics, FileId, Span};
use spinec_ir::spec::expr::{
    BinaryOp, Expr, ExprKind, Ident, IndexItem, IndexKind, TypeExpr, TypeKind, UnaryOp, parse_expr, parse_type,
};
use spinec_ir::spec::yaml::Text;

const NOWHERE: Span = Span { file: FileId(0), start: 0, end: 0 };

fn at_nowhere(source: &str) -> Text {
    // Folded text: every span is the scalar's, which makes trees comparable.
    Text { value: source.to_owned(), verbatim_at: None }
}

fn expr(kind: ExprKind) -> Expr {
    Expr { span: NOWHERE, kind }
}

fn ident() -> impl Strategy<Value = Ident> {
    "[a-z_][a-zA-Z0-9_]{0,6}"
        .prop_filter("keywords are no names", |name| {
            !["and", "or", "not", "true", "false", "none", "null"].contains(&name.as_str())
        })
        .prop_map(|name| Ident { name, span: NOWHERE })
}

const OPS: [BinaryOp; 15] = [
    BinaryOp::Or,
    BinaryOp::And,
    BinaryOp::Eq,
    BinaryOp::Ne,
    BinaryOp::Lt,
    BinaryOp::Le,
    BinaryOp::Gt,
    BinaryOp::Ge,
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::FloorDiv,
    BinaryOp::Mod,
    BinaryOp::Pow,
];

fn leaf() -> impl Strategy<Value = Expr> {
    prop_oneof![
        any::<i64>().prop_map(ExprKind::Int),
        (-20i64..20).prop_map(ExprKind::Int),
        any::<f64>().prop_filter("NaN differs from itself", |x| !x.is_nan()).prop_map(ExprKind::Float),
        any::<bool>().prop_map(ExprKind::Bool),
        Just(ExprKind::None),
        "\\PC{0,8}|[\"'\\\\\n\t]{0,4}".prop_map(ExprKind::Str),
        ident().prop_map(|i| ExprKind::Name(i.name)),
    ]
    .prop_map(expr)
}

fn index_item(inner: impl Strategy<Value = Expr> + Clone + 'static) -> impl Strategy<Value = IndexItem> {
    let optional = proptest::option::of(inner.clone());
    prop_oneof![
        inner.prop_map(IndexKind::At),
        (optional.clone(), optional).prop_map(|(start, stop)| IndexKind::Slice(start, stop)),
        Just(IndexKind::NewAxis),
        Just(IndexKind::Ellipsis),
    ]
    .prop_map(|kind| IndexItem { span: NOWHERE, kind })
}

fn any_expr() -> impl Strategy<Value = Expr> {
    leaf().prop_recursive(6, 60, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let callee = prop_oneof![
            ident().prop_map(|i| ExprKind::Name(i.name)),
            (boxed.clone(), ident()).prop_map(|(base, name)| ExprKind::Attr(base, name)),
        ];
        let args = proptest::collection::vec(inner.clone(), 0..3);
        let kwargs = proptest::collection::vec((ident(), inner.clone()), 0..3).prop_map(|mut kwargs| {
            kwargs.sort_by(|a, b| a.0.name.cmp(&b.0.name));
            kwargs.dedup_by(|a, b| a.0.name == b.0.name);
            kwargs
        });
        prop_oneof![
            (boxed.clone(), ident()).prop_map(|(base, name)| ExprKind::Attr(base, name)),
            (boxed.clone(), proptest::collection::vec(index_item(inner.clone()), 1..4))
                .prop_map(|(base, items)| ExprKind::Index(base, items)),
            (callee, args, kwargs)
                .prop_map(|(callee, args, kwargs)| { ExprKind::Call { callee: Box::new(expr(callee)), args, kwargs } }),
            (prop_oneof![Just(UnaryOp::Neg), Just(UnaryOp::Not)], boxed.clone())
                .prop_map(|(op, x)| ExprKind::Unary(op, x)),
            (proptest::sample::select(&OPS[..]), boxed.clone(), boxed)
                .prop_map(|(op, a, b)| ExprKind::Binary(op, a, b)),
            proptest::collection::vec(inner, 0..4).prop_map(ExprKind::List),
        ]
        .prop_map(expr)
    })
}

fn any_type() -> impl Strategy<Value = TypeExpr> {
    let dtype = proptest::option::of(ident().prop_filter("not a dtype", |i| i.name != "state" && i.name != "dist"));
    let tensor = (any::<bool>(), dtype, proptest::collection::vec(any_expr(), 0..4))
        .prop_map(|(dist, dtype, dims)| TypeKind::Tensor { dist, dtype, dims });
    prop_oneof![4 => tensor, 1 => Just(TypeKind::State)].prop_map(|kind| TypeExpr { span: NOWHERE, kind })
}

/// Texts of the tokens of the language, which reach deeper than arbitrary characters.
fn tokens() -> impl Strategy<Value = String> {
    let token = proptest::sample::select(
        &[
            "a",
            "b.c",
            "(",
            ")",
            "[",
            "]",
            ",",
            ":",
            "=",
            "+",
            "-",
            "*",
            "**",
            "//",
            "==",
            "<",
            "not",
            "and",
            "None",
            "...",
            "1",
            "1e3",
            ".5",
            "'s'",
            "\"",
            "é",
            "!",
            "&&",
            "..",
            "state",
            "dist",
            "bf16",
            "{",
            "9999999999999999999",
        ][..],
    );
    proptest::collection::vec(token, 0..24).prop_map(|t| t.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn printed_expressions_parse_to_themselves(e in any_expr()) {
        let source = e.to_string();
        let mut diags = Diagnostics::default();
        let parsed = parse_expr(&at_nowhere(&source), NOWHERE, &mut diags);
        prop_assert!(parsed.as_ref() == Some(&e), "{source}\n{parsed:?}\n{diags:?}");
    }

    #[test]
    fn printed_types_parse_to_themselves(t in any_type()) {
        let source = t.to_string();
        let mut diags = Diagnostics::default();
        let parsed = parse_type(&at_nowhere(&source), NOWHERE, &mut diags);
        prop_assert!(parsed.as_ref() == Some(&t), "{source}\n{parsed:?}\n{diags:?}");
    }

    #[test]
    fn any_text_gives_a_tree_or_one_error(source in prop_oneof![tokens(), "\\PC{0,40}", any::<String>()], at in 0u32..9) {
        let span = Span { file: FileId(0), start: at, end: at + source.len() as u32 };
        for verbatim_at in [Some(at), None] {
            let text = Text { value: source.clone(), verbatim_at };
            let mut diags = Diagnostics::default();
            let ok = parse_expr(&text, span, &mut diags).is_some();
            let ok_type = parse_type(&text, span, &mut diags).is_some();
            let expected = usize::from(!ok) + usize::from(!ok_type);
            prop_assert_eq!(diags.iter().count(), expected);
            for d in diags.iter() {
                let found = d.span.expect("has a place");
                prop_assert!(span.start <= found.start && found.start <= found.end && found.end <= span.end);
                let (from, to) = (found.start - at, found.end - at);
                prop_assert!(source.is_char_boundary(from as usize) && source.is_char_boundary(to as usize));
            }
        }
    }
}
