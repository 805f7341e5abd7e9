//! Expressions and types: trees, spans, messages.

use spinec_ir::diag::{Diagnostics, FileId, SourceMap, Span};
use spinec_ir::spec::expr::{
    BinaryOp, Expr, ExprKind, IndexKind, TypeKind, UnaryOp, parse_expr, parse_expr_node, parse_type, parse_type_node,
};
use spinec_ir::spec::yaml::{self, Text};

const FILE: FileId = FileId(0);

fn text(source: &str, at: u32) -> (Text, Span) {
    let span = Span { file: FILE, start: at, end: at + source.len() as u32 };
    (Text { value: source.to_owned(), verbatim_at: Some(at) }, span)
}

fn expr(source: &str) -> Expr {
    let (text, span) = text(source, 0);
    let mut diags = Diagnostics::default();
    let parsed = parse_expr(&text, span, &mut diags);
    assert!(diags.is_empty(), "{source}: {diags:?}");
    parsed.expect("parses without diagnostics")
}

/// The bytes, the message and the related bytes of the only error.
fn error(source: &str) -> (String, String, Vec<String>, String) {
    let (text, span) = text(source, 0);
    let mut diags = Diagnostics::default();
    assert_eq!(parse_expr(&text, span, &mut diags), None, "{source}");
    let list = diags.into_sorted();
    assert_eq!(list.len(), 1, "{source}: {list:?}");
    assert_eq!(list[0].code, "E0110");
    let slice = |s: Span| source[s.start as usize..s.end as usize].to_owned();
    let related = list[0].related.iter().map(|r| slice(r.span)).collect();
    let help = list[0].help.clone().unwrap_or_default();
    (list[0].span.map(slice).unwrap_or_default(), list[0].message.clone(), related, help)
}

#[test]
fn canonical_text() {
    for (source, printed) in [
        ("gather(codebook, anchor)[:, None] * sqrt(D)", "gather(codebook, anchor)[:, None] * sqrt(D)"),
        ("x[...,1:,:-1,:,none,i+1,a:b]", "x[..., 1:, :-1, :, None, i + 1, a:b]"),
        (
            "kv[l].write(kr,heads(linear(h,v),KH),at=rows,as=scratch)",
            "kv[l].write(kr, heads(linear(h, v), KH), at=rows, as=scratch)",
        ),
        ("split(x, axis=-1, parts(q=HD))", "split(x, parts(q=HD), axis=-1)"),
        ("a-b-c", "a - b - c"),
        ("a-(b-c)", "a - (b - c)"),
        ("(a*b)+c//d%e/f", "a * b + c // d % e / f"),
        ("2**-x**y", "2 ** -x ** y"),
        ("(2**x)**y", "(2 ** x) ** y"),
        ("(-x)**2", "(-x) ** 2"),
        ("-1**2", "-1 ** 2"),
        ("(-1)**2", "(-1) ** 2"),
        ("-(1)", "-(1)"),
        ("not (a == b) and c or not d", "not a == b and c or not d"),
        ("(not a) == b", "(not a) == b"),
        ("(a < b) == c", "(a < b) == c"),
        ("[a, [1, 2.0,], 'x\"y']", "[a, [1, 2.0], \"x\\\"y\"]"),
        ("True and False or None", "true and false or none"),
        ("f(\n  a,\n  b,\n)", "f(a, b)"),
        ("x[(none)]", "x[(none)]"),
        ("1/sqrt(HD) + 1_000 - 0x10 + .5e1", "1 / sqrt(HD) + 1000 - 16 + 5.0"),
        ("-9223372036854775808", "-9223372036854775808"),
    ] {
        let parsed = expr(source);
        assert_eq!(parsed.to_string(), printed, "{source}");
        assert_eq!(expr(printed).to_string(), printed);
    }
}

#[test]
fn precedence_and_kinds() {
    let ExprKind::Binary(BinaryOp::Add, a, b) = expr("x * 2 + -y ** 2").kind else { panic!("not a sum") };
    assert!(matches!(a.kind, ExprKind::Binary(BinaryOp::Mul, ..)));
    let ExprKind::Unary(UnaryOp::Neg, power) = b.kind else { panic!("not a negation") };
    assert!(matches!(power.kind, ExprKind::Binary(BinaryOp::Pow, ..)));
    assert_eq!(expr("-1").kind, ExprKind::Int(-1));
    assert_eq!(expr("- 1e-6").kind, ExprKind::Float(-1e-6));
    assert!(matches!(expr("-x").kind, ExprKind::Unary(UnaryOp::Neg, _)));
    let ExprKind::Index(_, items) = expr("x[i, 1:, None, ...]").kind else { panic!("not an index") };
    assert!(matches!(items[0].kind, IndexKind::At(_)));
    assert!(matches!(items[1].kind, IndexKind::Slice(Some(_), None)));
    assert!(matches!(items[2].kind, IndexKind::NewAxis));
    assert!(matches!(items[3].kind, IndexKind::Ellipsis));
    let ExprKind::Call { args, kwargs, .. } = expr("f(a, q=none)").kind else { panic!("not a call") };
    assert_eq!((args.len(), kwargs.len()), (1, 1));
    assert_eq!(kwargs[0].1.kind, ExprKind::None);
}

#[test]
fn spans_are_file_offsets() {
    let source = "f(a, [b.c , -1])[1:, x] + (d)";
    let (text, span) = text(source, 100);
    let parsed = parse_expr(&text, span, &mut Diagnostics::default()).expect("parses");
    let slice = |s: Span| &source[s.start as usize - 100..s.end as usize - 100];
    assert_eq!(slice(parsed.span), source);
    let ExprKind::Binary(_, index, d) = &parsed.kind else { panic!("not a sum") };
    assert_eq!((slice(index.span), slice(d.span)), ("f(a, [b.c , -1])[1:, x]", "(d)"));
    let ExprKind::Index(call, items) = &index.kind else { panic!("not an index") };
    assert_eq!(items.iter().map(|i| slice(i.span)).collect::<Vec<_>>(), ["1:", "x"]);
    let ExprKind::Call { args, .. } = &call.kind else { panic!("not a call") };
    let ExprKind::List(items) = &args[1].kind else { panic!("not a list") };
    assert_eq!(items.iter().map(|i| slice(i.span)).collect::<Vec<_>>(), ["b.c", "-1"]);
    let ExprKind::Attr(_, name) = &items[0].kind else { panic!("not an attribute") };
    assert_eq!(slice(name.span), "c");
}

#[test]
fn folded_text_reports_the_whole_scalar() {
    let span = Span { file: FILE, start: 7, end: 30 };
    let text = Text { value: "f(a, b = = c)".to_owned(), verbatim_at: None };
    let mut diags = Diagnostics::default();
    assert!(parse_expr(&text, span, &mut diags).is_none());
    let d = &diags.into_sorted()[0];
    assert_eq!(d.span, Some(span));
    assert!(d.label.contains("= c)"), "{}", d.label);
}

#[test]
fn messages() {
    for (source, at, message, help) in [
        ("a = b", "=", "`=` is not an operator", "=="),
        ("f(a.b=1)", "=", "expected `,` or `)`, found `=`", "=="),
        ("f(a b)", "b", "expected `,` or `)`, found the name `b`", "comma"),
        ("[1 2]", "2", "expected `,` or `]`, found the number `2`", "comma"),
        ("a b", "b", "expected an operator, found the name `b`", "operator"),
        ("a && b", "&&", "`&&` is not", "`and`"),
        ("a || b", "||", "`||` is not", "`or`"),
        ("!a", "!", "`!` is not", "`not`"),
        ("a ^ 2", "^", "`^` is not", "`**`"),
        ("a; b", ";", "`;` is not", "one expression"),
        ("a ≤ b", "≤", "`≤` is not", "`<=`"),
        ("a $ b", "$", "the character `$`", ""),
        ("größe + 1", "ö", "the character `ö`", "letters"),
        ("a < b <= c", "<=", "cannot be chained", "and b < c"),
        ("9223372036854775808", "9223372036854775808", "does not fit 64 bits", ""),
        ("1e999", "1e999", "does not fit", ""),
        ("2x", "2x", "neither a number nor a name", "`*`"),
        ("1..7", "..", "`..` is not", ""),
        ("a)", ")", "`)` closes nothing", ""),
        ("a, b", ",", "a second value", "[a, b]"),
        ("(a, b)", ",", "parentheses hold one", "[a, b]"),
        ("x[]", "[]", "an index without items", "[:]"),
        ("x[1:2:3]", ":", "no step", "start:stop"),
        ("f(1:2)", ":", "expected `,` or `)`", "index"),
        ("f(,)", ",", "expected a value, found `,`", "comma"),
        ("a +", "", "expected a value, found the end", ""),
        ("a.1", "1", "expected a name behind the dot, found the number `1`", ""),
        ("+a", "+", "no prefix `+`", ""),
        ("a + not b", "not", "`not` binds more loosely", "(not x)"),
        ("a if b else c", "if", "expected an operator", "where("),
        ("2(x)", "2", "only a name can be called", "`*`"),
        ("'abc", "'", "never closed", "`'`"),
        ("'a\\qb'", "\\q", "not an escape", ""),
        ("", "", "an empty text", ""),
        ("  ", "", "an empty text", ""),
        ("f(x=1, x=2)", "x", "given twice", ""),
    ] {
        let (found_at, found, _, found_help) = error(source);
        assert_eq!(found_at, at, "{source}");
        assert!(found.contains(message), "{source}: {found}");
        assert!(found_help.contains(help), "{source}: {found_help}");
    }
}

#[test]
fn unbalanced_brackets_name_their_opener() {
    let (at, message, related, help) = error("f(a, [b, c");
    assert_eq!((at.as_str(), message.as_str()), ("", "`[` is never closed"));
    assert_eq!((related, help.as_str()), (vec!["[".to_owned()], "add `]`"));
    let (at, message, related, _) = error("f(a]");
    assert_eq!((at.as_str(), message.as_str()), ("]", "expected `,` or `)`, found `]`"));
    assert_eq!(related, ["("]);
}

#[test]
fn depth_is_limited() {
    let nested = |n: usize| format!("{}x{}", "(".repeat(n), ")".repeat(n));
    expr(&nested(90));
    assert!(error(&nested(200)).1.contains("100 deep"));
    assert!(error(&"(".repeat(100_000)).1.contains("100 deep"));
    assert!(error(&"-".repeat(100_000)).1.contains("100 deep"));
    assert!(error(&format!("x{}", " ** x".repeat(1000))).1.contains("100 deep"));
    assert!(error(&format!("x{}", " + x".repeat(100_000))).1.contains("256 operators"));
    assert!(error(&format!("x{}", ".x".repeat(100_000))).1.contains("256 operators"));
    expr(&format!("x{}", " + x".repeat(200)));
    expr(&format!("[{}]", "x, ".repeat(10_000)));
}

fn type_error(source: &str) -> (String, String) {
    let (text, span) = text(source, 0);
    let mut diags = Diagnostics::default();
    assert_eq!(parse_type(&text, span, &mut diags), None, "{source}");
    let list = diags.into_sorted();
    assert_eq!((list.len(), list[0].code), (1, "E0111"));
    (list[0].message.clone(), list[0].help.clone().unwrap_or_default())
}

#[test]
fn types() {
    for (source, printed) in [
        ("bf16[N, B, H]", "bf16[N, B, H]"),
        ("i32", "i32"),
        ("i32[]", "i32"),
        ("[GV]", "[GV]"),
        ("[]", "[]"),
        ("dist f64[N,KC]", "dist f64[N, KC]"),
        ("dist [N]", "dist [N]"),
        ("bf16[2*GK*DK+GV*DV, 1, C]", "bf16[2 * GK * DK + GV * DV, 1, C]"),
        (" state ", "state"),
    ] {
        let (text, span) = text(source, 0);
        let mut diags = Diagnostics::default();
        let parsed = parse_type(&text, span, &mut diags).unwrap_or_else(|| panic!("{source}: {diags:?}"));
        assert_eq!(parsed.to_string(), printed);
        assert_eq!(&source[parsed.span.start as usize..parsed.span.end as usize], source.trim());
    }
    for (source, message, help) in [
        ("", "expected a type, found the end", "bf16[N, H]"),
        ("dist", "expected a dtype or `[` behind `dist`", "state"),
        ("bf16(N)", "a type ends before `(`", "brackets"),
        ("bf16 N", "a type ends before the name `N`", "dist"),
        ("bf16[N]]", "a type ends before `]`", "remove"),
        ("bf16[N H]", "expected `,` or `]`", "comma"),
        ("bf16[N", "`[` is never closed", "add `]`"),
        ("state[N]", "a type ends before `[`", "state"),
        ("f32[N;H]", "`;` is not", ""),
    ] {
        let (found, found_help) = type_error(source);
        assert!(found.contains(message) && found_help.contains(help), "{source}: {found} / {found_help}");
    }
}

#[test]
fn yaml_values_are_literals() {
    let source = "a: 16\nb: -1.5\nc: true\nd:\ne: [1, x, f(y)]\nf: none\ng: {h: 1}\ni: [a +, ) x, ok]\nt: [N, 2]\n";
    let mut sources = SourceMap::default();
    let file = sources.add("t.yaml", source);
    let mut diags = Diagnostics::default();
    let root = yaml::parse(file, &sources, &mut diags).expect("is YAML");
    let value = |key: &str| &root.get(key).expect("is a key").value;
    let mut parse = |key: &str| parse_expr_node(value(key), &mut diags);
    assert_eq!(parse("a").map(|e| e.kind), Some(ExprKind::Int(16)));
    assert_eq!(parse("b").map(|e| e.kind), Some(ExprKind::Float(-1.5)));
    assert_eq!(parse("c").map(|e| e.kind), Some(ExprKind::Bool(true)));
    assert_eq!(parse("d").map(|e| e.kind), Some(ExprKind::None));
    assert_eq!(parse("e").map(|e| e.to_string()).as_deref(), Some("[1, x, f(y)]"));
    assert_eq!(parse("f").map(|e| e.kind), Some(ExprKind::None));
    assert_eq!(parse("g"), None);
    assert_eq!(parse("i"), None);
    let dims = parse_type_node(value("t"), &mut diags);
    assert!(matches!(dims.map(|t| t.kind), Some(TypeKind::Tensor { dtype: None, dims, .. }) if dims.len() == 2));
    assert_eq!(parse_type_node(value("a"), &mut diags), None);
    let found: Vec<_> =
        diags.into_sorted().iter().map(|d| (d.code, sources.text(d.span.expect("placed")).to_owned())).collect();
    let expected = [("E0107", "16"), ("E0107", "{h: 1}"), ("E0110", ""), ("E0110", ")")];
    assert_eq!(found, expected.map(|(code, text)| (code, text.to_owned())));
}
