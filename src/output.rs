//! Messages on stderr, data on stdout.

use spinec_ir::diag::{Diagnostics, SourceMap, render};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// True if messages may be coloured.
pub fn color() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Columns messages are fitted to.
pub fn width() -> usize {
    std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).filter(|c| *c >= 40).unwrap_or(120)
}

/// Prints diagnostics.
pub fn diagnostics(diags: Diagnostics, sources: &SourceMap) {
    let list = diags.into_sorted();
    if !list.is_empty() {
        let text = render(&list, sources, color(), width());
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

/// Prints an error that has no place in a file.
pub fn error(text: &str) {
    eprintln!("error: {text}");
}

/// Prints a remark.
pub fn note(text: &str) {
    eprintln!("note: {text}");
}

/// Set once data could not be written.
static LOST: AtomicBool = AtomicBool::new(false);

/// Whether data was lost on the way to stdout.
pub fn lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Prints a line on stdout. A reader that went away is no error; anything else is said once and noted.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    written(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// Prints one JSON object on stdout, as [`line()`].
pub fn json(value: &serde_json::Value) {
    line(&format!("{value:#}"));
}

/// Notes what became of data.
pub fn written(outcome: std::io::Result<()>) {
    if let Err(e) = outcome
        && e.kind() != std::io::ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        error(&format!("stdout: {e}"));
    }
}
