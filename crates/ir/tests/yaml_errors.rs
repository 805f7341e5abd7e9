//! Where syntax errors are shown, and what the user is told to do.

use spinec_ir::diag::{Diagnostics, SourceMap};
use spinec_ir::spec::yaml;

/// Code, `line:column` counted from one in bytes, message and help of every error of `source`.
fn errors(source: &str) -> Vec<(&'static str, String, String, String)> {
    let mut sources = SourceMap::default();
    let file = sources.add("t.yaml", source);
    let mut diags = Diagnostics::default();
    yaml::parse(file, &sources, &mut diags);
    let list = diags.into_sorted();
    list.iter()
        .map(|d| {
            let (line, column) = sources.file(file).line_col(d.span.expect("has a place").start);
            (d.code, format!("{}:{}", line + 1, column + 1), d.message.clone(), d.help.clone().unwrap_or_default())
        })
        .collect()
}

#[test]
fn syntax_errors_stand_on_the_line_that_causes_them() {
    for (source, at, message, help) in [
        // Brackets and commas in values without quotes.
        ("s: {x: gather(embed, tokens)}\n", "1:8", "the comma ends the value", "`\"gather(embed, tokens)\"`"),
        ("s: {type: bf16[V, H]}\n", "1:15", "`[` cannot follow a value", "`\"bf16[V, H]\"`"),
        ("s: [a[:, 1], b]\n", "1:6", "`[` cannot follow a value", "`\"a[:, 1]\"`"),
        ("a: [b, c] * 2\n", "1:11", "text behind a value", "`\"[b, c] * 2\"`"),
        ("a: {b} + 1\n", "1:8", "text behind a value", "`\"{b} + 1\"`"),
        ("a: {b: c d: e}\n", "1:11", "a second `:` in one entry", "`\"c d: e\"`"),
        ("{a: b,, c: d}\n", "1:7", "`,` cannot stand here", "one comma"),
        ("a: ,x\n", "1:4", "cannot start with `,`", "`\",x\"`"),
        // Brackets that are not closed or not opened.
        ("a: [x, y\nb: z\n", "1:4", "`[` is never closed", "add `]`"),
        ("a: {x: 1\nb: 2\n", "1:4", "`{` is never closed", "add `}`"),
        ("a: [x, y", "1:4", "`[` is never closed", "add `]`"),
        ("a: {b: [c, d}\n", "1:8", "`[` is closed by `}`", ""),
        ("a: {b: c}}\n", "1:10", "`}` closes nothing", ""),
        ("é: ]\n", "1:5", "`]` closes nothing", ""),
        // Quotes.
        ("a: 'foo\nb: c\n", "1:4", "this quote is never closed", "close it with `'`"),
        ("a: \"foo\nb: c\n", "1:4", "this quote is never closed", "close it with `\"`"),
        ("a: \"x\" + 1\n", "1:8", "text behind the closing quote", "quote the whole value"),
        ("a: \"x\\q\"\n", "1:6", "`\\q` is not an escape", "single quotes"),
        ("a: \"é\\x4\"\n", "1:7", "`\\x` needs 2 hexadecimal digits", ""),
        // Colons.
        ("a: foo: bar\n", "1:7", "a second `: `", "`\"foo: bar\"`"),
        ("x: f(a)[:, None]: y\n", "1:17", "a second `: `", "`\"f(a)[:, None]: y\"`"),
        ("nodes:\n  x:foo(a)\n  y: b\n", "2:4", "no space behind the colon of `x:`", "`x: foo(a)`"),
        ("nodes:\n  y: b\n  x:foo(a)\n", "3:4", "no space behind the colon of `x:`", "`x: foo(a)`"),
        ("a: b\nfoo\nc: d\n", "2:1", "without a colon", ""),
        ("a:\n b\n c: d\n", "2:2", "without a colon", "`b:`"),
        // Indentation.
        ("n:\n  x: foo\n y: b\n", "3:2", "indented like no line above", "align"),
        ("n:\n  x: foo\n   y: b\n", "3:4", "deeper than its neighbours", "align"),
        ("a:\n  b:\n    c: 1\n   d: 2\n", "4:4", "indented like no line above", ""),
        ("a:\n\tb: c\n", "2:1", "a tab", "spaces"),
        ("a:\n  b: c\n\td: e\n", "3:1", "a tab", "spaces"),
        // Lists.
        ("a: - x\n", "1:4", "a list with `- ` cannot start", "next line"),
        ("a:\n  - x\n - y\n", "3:2", "a list item where a key", ""),
        ("a: b\n- c\n", "2:1", "a list item where a key", ""),
        ("- a\nb: c\n", "2:1", "no list item", "`- `"),
        // Characters that a plain value cannot start with.
        ("a: %x * 3  # c\n", "1:4", "cannot start with `%`", "`\"%x * 3\"`"),
        ("a: @x\n", "1:4", "cannot start with `@`", "`\"@x\"`"),
        ("a: `x`\n", "1:4", "cannot start with ```", ""),
        ("a: |foo\n  x\n", "1:4", "text on the line of `|`", "`\"|foo\"`"),
        ("a: é\u{7}\n", "1:6", "control character U+0007", "remove"),
        // Documents.
        ("a: x\n---\nb: y\n", "2:1", "a second YAML document", "one document"),
        ("%YAML 1.1\n---\na: b\n", "1:1", "directives", ""),
    ] {
        let found = errors(source);
        assert_eq!(found.len(), 1, "{source:?}: {found:?}");
        let (code, found_at, found_message, found_help) = &found[0];
        assert_eq!((*code, found_at.as_str()), ("E0101", at), "{source:?}: {found_message}");
        assert!(found_message.contains(message), "{source:?}: {found_message}");
        assert!(found_help.contains(help), "{source:?}: {found_help}");
    }
}

#[test]
fn refused_features_are_reported_at_every_site() {
    let source = "a: &x 1\nb: *x\nc: {<<: *x, d: *y}\ne: !!str f\n? [g]\n: h\n: i\n";
    let found: Vec<_> = errors(source).into_iter().map(|(code, at, ..)| (code, at)).collect();
    let expected = [
        ("E0106", "1:4"),
        ("E0106", "2:4"),
        ("E0106", "3:5"),
        ("E0106", "3:9"),
        ("E0106", "3:16"),
        ("E0106", "4:4"),
        ("E0105", "5:3"),
        ("E0105", "7:1"),
    ];
    assert_eq!(found, expected.map(|(code, at)| (code, at.to_owned())));
}

#[test]
fn an_expression_that_starts_with_an_asterisk_is_one_error() {
    let found = errors("a: *b + c\n");
    assert_eq!(found.len(), 1);
    assert!(found[0].3.contains("`\"*b + c\"`"), "{}", found[0].3);
}

#[test]
fn alias_bombs_are_cheap() {
    let mut source = String::from("a0: &a0 [x, x]\n");
    for i in 1..1000 {
        source += &format!("a{i}: &a{i} [{}]\n", format!("*a{}, ", i - 1).repeat(9));
    }
    let found = errors(&source);
    assert!(found.iter().all(|e| e.0 == "E0106") && found.len() == 201);
}
