//! Trees, spans and limits of the YAML front end.

use proptest::prelude::*;
use spinec_ir::diag::{Diagnostics, FileId, SourceMap};
use spinec_ir::spec::yaml::{self, Node, Value};

fn parse(source: &str) -> (Option<Node>, SourceMap, Diagnostics) {
    let mut sources = SourceMap::default();
    let file = sources.add("t.yaml", source);
    let mut diags = Diagnostics::default();
    let root = yaml::parse(file, &sources, &mut diags);
    (root, sources, diags)
}

fn clean(source: &str) -> Node {
    let (root, _, diags) = parse(source);
    assert!(diags.is_empty(), "{source:?}: {diags:?}");
    root.expect("parses without diagnostics")
}

/// What the spans of a node and its parts cover, and values; the shape that the tests compare.
fn outline(source: &str, node: &Node) -> String {
    let slice = |start: u32, end: u32| source[start as usize..end as usize].to_owned();
    let own = slice(node.span.start, node.span.end);
    match &node.value {
        Value::Seq(items) => {
            let items: Vec<_> = items.iter().map(|i| outline(source, i)).collect();
            format!("seq<{own}>({})", items.join(" "))
        }
        Value::Map(entries) => {
            let entries = entries.iter().map(|e| {
                format!("{}<{}>={}", e.key, slice(e.key_span.start, e.key_span.end), outline(source, &e.value))
            });
            format!("map<{own}>({})", entries.collect::<Vec<_>>().join(" "))
        }
        Value::Str(text) => {
            if let Some(at) = text.verbatim_at {
                assert!(source[at as usize..].starts_with(&text.value), "{text:?} does not stand at {at}");
            }
            let verbatim = if text.verbatim_at.is_some() { "=" } else { "~" };
            format!("{verbatim}{:?}<{own}>", text.value)
        }
        other => format!("{other:?}<{own}>"),
    }
}

#[test]
fn spans_cover_whole_nodes() {
    for (source, expected) in [
        ("é: ü", "map<é: ü>(é<é>=='ü'<ü>)"),
        ("ä: [ö, 'ß' ]   # ü\n", "map<ä: [ö, 'ß' ]>(ä<ä>=seq<[ö, 'ß' ]>(='ö'<ö> ='ß'<'ß'>))"),
        (
            "a:\n  - x\n  - {b: 1 }\n\nc: d\n",
            "map<a:|  - x|  - {b: 1 }||c: d>(a<a>=seq<- x|  - {b: 1 }>(='x'<x> map<{b: 1 }>(b<b>=Int(1)<1>)) c<c>=='d'<d>)",
        ),
        (
            "a:\n- - x\n  - y\n- z\n",
            "map<a:|- - x|  - y|- z>(a<a>=seq<- - x|  - y|- z>(seq<- x|  - y>(='x'<x> ='y'<y>) ='z'<z>))",
        ),
        ("a: # -\n\n-\n  x\n- y\n", "map<a: # -||-|  x|- y>(a<a>=seq<-|  x|- y>(='x'<x> ='y'<y>))"),
        ("? a\n: - x\n  - y\n", "map<? a|: - x|  - y>(a<a>=seq<- x|  - y>(='x'<x> ='y'<y>))"),
        ("a: {}\nb: []\n", "map<a: {}|b: []>(a<a>=map<{}>() b<b>=seq<[]>())"),
        ("a:\nb: ~\n", "map<a:|b: ~>(a<a>=Null<> b<b>=Null<~>)"),
        ("a: {b, c: }\n", "map<a: {b, c: }>(a<a>=map<{b, c: }>(b<b>=Null<> c<c>=Null<>))"),
        ("[a: b, c]", "seq<[a: b, c]>(map<a: b>(a<a>=='b'<b>) ='c'<c>)"),
        (
            "16: a\n1.0: b\ntrue: c\n~: d\n'': e\n",
            "map<16: a|1.0: b|true: c|~: d|'': e>(16<16>=='a'<a> 1.0<1.0>=='b'<b> true<true>=='c'<c> ~<~>=='d'<d> <''>=='e'<e>)",
        ),
        ("? a\n: b\n", "map<? a|: b>(a<a>=='b'<b>)"),
        ("a: x\r\nb: y\r\n", "map<a: x\r|b: y>(a<a>=='x'<x> b<b>=='y'<y>)"),
        ("\u{feff}a: é\n", "map<a: é>(a<a>=='é'<é>)"),
        ("--- \na: 0x10\n...\n", "map<a: 0x10>(a<a>=Int(16)<0x10>)"),
    ] {
        let node = clean(source);
        let found = outline(source, &node).replace('"', "'").replace('\n', "|");
        assert_eq!(found, expected, "{source:?}");
    }
}

#[test]
fn text_knows_where_it_stands_verbatim() {
    for (source, expected) in [
        ("é: where(a, b)[:, 1:]", "='where(a, b)[:, 1:]'<where(a, b)[:, 1:]>"),
        ("é: 'é \"q\"'", "='é \"q\"'<'é \"q\"'>"),
        ("é: \"bf16[H]\"", "='bf16[H]'<\"bf16[H]\">"),
        ("é: 'it''s'", "~'it's'<'it''s'>"),
        ("é: \"a\\tb\"", "~'a\\tb'<\"a\\tb\">"),
        ("é: \"16\"", "='16'<\"16\">"),
        ("é: f(a,\n  b)", "~'f(a, b)'<f(a,|  b)>"),
        ("é: 'a\n  b'", "~'a b'<'a|  b'>"),
        ("é: |\n  f(é)\n", "='f(é)\\n'<f(é)>"),
        ("é: >-\n  f(é)\n\n", "='f(é)'<f(é)>"),
        ("é: |\n  a\n  b\n", "~'a\\nb\\n'<a|  b>"),
        ("é: yes", "='yes'<yes>"),
        ("é: ''", "=''<''>"),
    ] {
        let root = clean(source);
        let value = &root.get("é").expect("has the key").value;
        let found = outline(source, value).replace('\n', "|");
        let (head, tail) = found.split_once('<').expect("has a span");
        let head = head.replace("\\\"", "\"").replacen('"', "'", 1);
        let head = format!("{}'", &head[..head.len() - 1]);
        assert_eq!(format!("{head}<{tail}"), expected, "{source:?}");
    }
}

#[test]
fn expressions_are_plain_scalars() {
    let source = "\
r: x[:, 1:]
out: where(a, b)
known: gather(codebook, anchor)[:, None] * sqrt(D)     # comment
decay: -exp(a_log) * softplus(cast(linear(h, a), f32) + dt_bias)
e: einsum(\"n t c h, n t p h -> n t p c\", gather(head, candidates), xn)
h: rms_norm(x, 1 + norm_in)
k: {type: \"bf16[H]\", from: \"layers.{l}.k\"}
";
    let root = clean(source);
    for key in ["r", "out", "known", "decay", "e", "h"] {
        let value = &root.get(key).expect("has the key").value;
        let Value::Str(text) = &value.value else { panic!("{key} is not text") };
        assert_eq!(text.verbatim_at, Some(value.span.start));
    }
}

#[test]
fn empty_files_are_null() {
    for source in ["", "\n\n", "# only a comment\n", "---\n", "~"] {
        assert_eq!(clean(source).value, Value::Null, "{source:?}");
    }
}

#[test]
fn bytes_must_be_utf8() {
    let parse = |bytes: &[u8]| {
        let mut sources = SourceMap::default();
        let mut diags = Diagnostics::default();
        let (file, node) = yaml::parse_bytes("t.yaml", bytes, &mut sources, &mut diags);
        assert_eq!((file, sources.file(file).name.as_str()), (FileId(0), "t.yaml"));
        (node, diags.into_sorted(), sources)
    };
    let (node, diags, _) = parse("é: 1".as_bytes());
    assert!(node.is_some() && diags.is_empty());
    let (node, diags, sources) = parse(b"a: b\n\xc3\xa9: \xff\xfe\n");
    assert_eq!(node, None);
    assert_eq!(diags[0].code, "E0104");
    assert_eq!(diags[0].message, "byte 0xff at line 2, byte column 5 is not UTF-8");
    let span = diags[0].span.expect("has a place");
    assert_eq!(sources.file(span.file).line_col(span.start), (1, 4));
    assert_eq!(sources.text(span), "\u{fffd}");
    let (_, diags, _) = parse(b"\xff\xfea\0");
    assert!(diags[0].message.contains("UTF-16"));
    let (node, diags, _) = parse(&vec![0xff; yaml::MAX_FILE + 1]);
    assert_eq!((node, diags[0].code), (None, "E0103"));
}

#[test]
fn limits() {
    let refused = |source: String| {
        let (node, sources, diags) = parse(&source);
        assert_eq!(node, None);
        let diags = diags.into_sorted();
        assert_eq!((diags.len(), diags[0].code), (1, "E0103"), "{diags:?}");
        let span = diags[0].span.expect("has a place");
        (diags[0].message.clone(), sources.file(span.file).line_col(span.start))
    };
    assert!(refused("a".repeat(yaml::MAX_FILE + 1)).0.contains("the limit is 4194304"));
    let big = format!("a: 1\nb: {}\n", "x".repeat(yaml::MAX_SCALAR + 1));
    assert_eq!(refused(big), ("a value of 1048577 bytes; the limit is 1048576".to_owned(), (1, 3)));
    assert_eq!(refused(format!("{}1{}", "[".repeat(65), "]".repeat(65))).1, (0, 64));
    assert!(refused("[".repeat(100_000)).0.contains("64 deep"));
    let block = |n: usize| (0..n).map(|i| format!("{}a:\n", " ".repeat(i))).collect::<String>();
    assert_eq!(refused(block(70)).1, (64, 64));
    assert!(refused(format!("[{}]", "a,".repeat(300_000))).0.contains("200000"));
    assert!(refused("a: 99999999999999999999".to_owned()).0.contains("64-bit"));
    clean(&format!("{}1{}", "[".repeat(64), "]".repeat(64)));
    clean(&block(64));
    clean(&format!("a: {}", "x".repeat(yaml::MAX_SCALAR)));
}

#[test]
fn every_duplicate_key_is_reported() {
    let source = "a: 1\nb: {x: 1, y: 2, x: 3}\na: 2\nc: 3\n\"a\": 4\n";
    let (node, sources, diags) = parse(source);
    let found: Vec<_> = diags
        .into_sorted()
        .iter()
        .map(|d| {
            let (span, first) = (d.span.expect("has a place"), d.related[0].span);
            assert_eq!(d.code, "E0102");
            (sources.text(span).to_owned(), sources.file(span.file).line_col(span.start), first.start)
        })
        .collect();
    let expected = [("x", (1, 16), 9), ("a", (2, 0), 0), ("\"a\"", (4, 0), 0)];
    assert_eq!(found, expected.map(|(text, at, first)| (text.to_owned(), at, first)));
    let node = node.expect("duplicates leave a tree");
    let keys: Vec<_> = node.as_map().expect("is a mapping").iter().map(|e| e.key.as_str()).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    assert_eq!(node.get("a").map(|e| &e.value.value), Some(&Value::Int(1)));
}

#[test]
fn a_flood_of_errors_is_counted() {
    let (_, _, diags) = parse(&"a: *b\n".repeat(10_000));
    let list: Vec<_> = diags.iter().collect();
    assert_eq!(list.len(), 201);
    assert!(list[200].message.starts_with("19799 more errors"), "{}", list[200].message);
}

/// A value, and how to write it inside brackets.
#[derive(Clone, Debug)]
enum Plan {
    Scalar(String, Value),
    Seq(Vec<Plan>),
    Map(Vec<(String, Plan)>),
}

fn plan() -> impl Strategy<Value = Plan> {
    let scalar = prop_oneof![
        any::<i64>().prop_map(|i| Plan::Scalar(i.to_string(), Value::Int(i))),
        any::<bool>().prop_map(|b| Plan::Scalar(b.to_string(), Value::Bool(b))),
        Just(Plan::Scalar("~".to_owned(), Value::Null)),
        "[a-zé]{1,6}( [a-zß]{1,3})?".prop_map(|s| Plan::Scalar(s.clone(), text(&s))),
        "[a-zé\"#:,\\[\\]{}&*!|>%@` -]{0,12}".prop_map(|s| Plan::Scalar(format!("'{s}'"), text(&s))),
    ];
    scalar.prop_recursive(4, 40, 5, |inner| {
        let key = prop_oneof!["[a-z_]{1,4}", "[äöü]{1,3}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Plan::Seq),
            proptest::collection::btree_map(key, inner, 0..5).prop_map(|map| Plan::Map(map.into_iter().collect())),
        ]
    })
}

fn text(value: &str) -> Value {
    Value::Str(yaml::Text { value: value.to_owned(), verbatim_at: Some(0) })
}

/// Writes a plan in block style above `flow` levels, in flow style below.
fn write(plan: &Plan, level: usize, flow: usize, out: &mut String) {
    let pad = "  ".repeat(level);
    match plan {
        Plan::Scalar(source, _) => out.push_str(source),
        Plan::Seq(items) if level >= flow || items.is_empty() => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write(item, flow, flow, out);
            }
            out.push(']');
        }
        Plan::Map(entries) if level >= flow || entries.is_empty() => {
            out.push_str("{ ");
            for (key, value) in entries {
                out.push_str(&format!("{key}: "));
                write(value, flow, flow, out);
                out.push_str(" , ");
            }
            out.push('}');
        }
        Plan::Seq(items) => {
            for item in items {
                out.push_str(&format!("\n{pad}- "));
                write(item, level + 1, flow, out);
            }
        }
        Plan::Map(entries) => {
            for (key, value) in entries {
                out.push_str(&format!("\n{pad}{key}: "));
                write(value, level + 1, flow, out);
                out.push_str("   # é");
            }
        }
    }
}

fn same(plan: &Plan, node: &Node, source: &str) {
    let slice = &source[node.span.start as usize..node.span.end as usize];
    match (plan, &node.value) {
        (Plan::Scalar(written, Value::Str(text)), Value::Str(found)) => {
            assert_eq!((slice, &found.value), (written.as_str(), &text.value));
            let at = found.verbatim_at.expect("stands on one line without escapes") as usize;
            assert!(source[at..].starts_with(&text.value));
        }
        (Plan::Scalar(written, value), found) => assert_eq!((slice, found), (written.as_str(), value)),
        (Plan::Seq(items), Value::Seq(found)) => {
            assert_eq!(items.len(), found.len());
            items.iter().zip(found).for_each(|(a, b)| same(a, b, source));
            assert!(slice.starts_with(['[', '-']));
        }
        (Plan::Map(entries), Value::Map(found)) => {
            assert_eq!(entries.len(), found.len());
            for ((key, value), entry) in entries.iter().zip(found) {
                assert_eq!(key, &entry.key);
                assert_eq!(key, &source[entry.key_span.start as usize..entry.key_span.end as usize]);
                same(value, &entry.value, source);
            }
        }
        _ => panic!("{plan:?} became {node:?}"),
    }
}

proptest! {
    #[test]
    fn written_trees_come_back(plan in plan(), flow in 0usize..4) {
        let mut source = String::from("# ä\n");
        write(&plan, 0, flow, &mut source);
        same(&plan, &clean(&source), &source);
    }
}
