//! Terminal rendering of diagnostics.

use proptest::prelude::*;
use spinec_ir::diag::{Diagnostic, FileId, SourceMap, Span, render};

fn span(file: FileId, start: usize, end: usize) -> Span {
    Span { file, start: start as u32, end: end as u32 }
}

fn sources(text: &str) -> (SourceMap, FileId) {
    let mut sources = SourceMap::default();
    let file = sources.add("graphs/a.yaml", text);
    (sources, file)
}

#[test]
fn message_snippet_related_and_help() {
    let (sources, file) = sources("dims:\n  rows: 16\n  rows: 32\n");
    let d = Diagnostic::error("E0102", span(file, 19, 23), "the key `rows` stands twice")
        .label("again")
        .related(span(file, 8, 12), "first")
        .help("remove one of them");
    let w = Diagnostic::error("E0103", span(file, 0, 27), "many lines").as_warning();
    let n = Diagnostic::error_nowhere("E0001", "no file").help("name one");
    let expected = "\
error[E0102]: the key `rows` stands twice
 --> graphs/a.yaml:3:3
  |
3 |   rows: 32
  |   ^^^^ again
  |
note: first
 --> graphs/a.yaml:2:3
  |
2 |   rows: 16
  |   ^^^^
help: remove one of them

warning[E0103]: many lines
 --> graphs/a.yaml:1:1
  |
1 | dims:
  | ^^^^^

error[E0001]: no file
 |
help: name one
";
    assert_eq!(render(&[d, w, n], &sources, false, 80), expected);
}

#[test]
fn carets_stand_below_their_characters() {
    let text = "a: 'ünï' + 漢字 + x\n\tb: y\n";
    let (sources, file) = sources(text);
    let at = |needle: &str| {
        let start = text.find(needle).expect("stands in the text");
        Diagnostic::error("E0101", span(file, start, start + needle.len()), "m")
    };
    let expected = "\
error[E0101]: m
 --> graphs/a.yaml:1:17
  |
1 | a: 'ünï' + 漢字 + x
  |                   ^

error[E0101]: m
 --> graphs/a.yaml:2:5
  |
2 |     b: y
  |        ^
";
    assert_eq!(render(&[at("x"), at("y")], &sources, false, 80), expected);
}

#[test]
fn the_end_of_a_file_can_be_marked() {
    for text in ["", "a", "a\n", "a: é", "\n\n", "a\r\n"] {
        let (sources, file) = sources(text);
        for (start, end) in [(text.len(), text.len()), (0, 99), (99, 99), (99, 0)] {
            let d = Diagnostic::error("E0101", span(file, start, end), "m").related(span(file, end, start), "r");
            let shown = render(&[d], &sources, false, 80);
            assert!(shown.contains("graphs/a.yaml:") && shown.contains('^'), "{text:?}: {shown}");
        }
    }
}

#[test]
fn long_lines_are_cut_around_the_mark() {
    for repeat in [40, 3_000, 400_000] {
        let text = format!("{}MARK é{}\n", "abc é ".repeat(repeat), " xyz".repeat(repeat));
        let (sources, file) = sources(&text);
        let start = "abc é ".len() * repeat;
        let column = "abc é ".chars().count() * repeat + 1;
        for end in [start + 4, start + 4 * repeat] {
            let d = Diagnostic::error("E0101", span(file, start, end), "m").label("here");
            let shown = render(&[d], &sources, false, 80);
            assert!(shown.contains(&format!("graphs/a.yaml:1:{column}\n")), "{shown}");
            assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
            let lines: Vec<_> = shown.lines().collect();
            let source = lines.iter().find(|l| l.contains("MARK")).expect("the mark is visible");
            let caret = lines.iter().find(|l| l.contains('^')).expect("there is a caret");
            let before = |line: &str, what: &str| line.split(what).next().map(|s| s.chars().count());
            assert_eq!(before(source, "MARK"), before(caret, "^"), "{shown}");
        }
    }
}

#[test]
fn colour_only_adds_escapes() {
    let (sources, file) = sources("a: b\n");
    let d = Diagnostic::error("E0101", span(file, 3, 4), "m").label("l").help("h");
    let plain = render(std::slice::from_ref(&d), &sources, false, 80);
    let coloured = render(&[d], &sources, true, 80);
    assert!(!plain.contains('\u{1b}'));
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        stripped.push_str(before);
        rest = after.split_once('m').map_or("", |(_, tail)| tail);
    }
    stripped.push_str(rest);
    assert_eq!(stripped, plain);
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let (sources, file) = sources("a: \u{1b}[31m\u{7}\u{202e}x\n");
    let d = Diagnostic::error("E0101", span(file, 3, 4), "message \u{1b}[2J\nline").help("h\u{7}");
    let shown = render(&[d], &sources, false, 80);
    assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{shown:?}");
}

proptest! {
    #[test]
    fn any_span_of_any_text_renders(text in any::<String>(), a in 0usize..80, b in 0usize..80, width in 0usize..200) {
        let (sources, file) = sources(&text);
        let d = Diagnostic::error("E0101", span(file, a, b), "m").label("l").related(span(file, b, a), "r");
        for color in [false, true] {
            prop_assert!(render(std::slice::from_ref(&d), &sources, color, width).contains("E0101"));
        }
    }
}
