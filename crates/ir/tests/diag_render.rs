//! Terminal rendering of diagnostics.

use spinec_ir::diag::{Diagnostic, FileId, SourceMap, Span, render};

fn span(file: FileId, start: u32, end: u32) -> Span {
    Span { file, start, end }
}

#[test]
fn show() {
    let mut sources = SourceMap::default();
    let file = sources.add("graphs/a.yaml", "dims:\n  rows: 16\n\trows: ü32 # ééé\nlong: x\n");
    let d = Diagnostic::error("E0102", span(file, 18, 22), "the key `rows` stands twice")
        .label("again")
        .related(span(file, 8, 12), "first")
        .help("remove one");
    let e = Diagnostic::error("E0102", span(file, 24, 27), "m").label("again").related(span(file, 0, 100), "first");
    let f = Diagnostic::error("E0102", span(file, 45, 46), "m").label("again");
    let g = Diagnostic::error_nowhere("E0102", "m").help("hh");
    println!("{}", render(&[d, e, f, g], &sources, false, 80));
    let long = format!("a: {} oops {}\nb", "xy ".repeat(200), "zé ".repeat(3000));
    let file = sources.add("l.yaml", long);
    let e = Diagnostic::error("E0102", span(file, 604, 608), "m").label("a label that is somewhat longer than usual");
    let f = Diagnostic::error("E0102", span(file, 604, 1608), "m").label("a label that is somewhat longer than usual");
    println!("{}", render(&[e, f], &sources, true, 60));
    let file = sources.add("l.yaml", "a: \"bf16[V, H]\"   # some comment here that goes on and on and on and on and on and on for quite long and then more yes\nb");
    let e = Diagnostic::error("E0102", span(file, 4, 8), "m").label("a label that is somewhat longer than usual");
    println!("{}", render(&[e], &sources, false, 80));
}
