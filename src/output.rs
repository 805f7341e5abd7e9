//! Messages on stderr, data on stdout.

use spinec_ir::diag::{Diagnostics, SourceMap, printable, render};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU8, Ordering};

/// True if messages may be coloured.
pub fn color() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Columns messages are fitted to.
pub fn width() -> usize {
    std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).filter(|c| *c >= 40).unwrap_or(120)
}

/// Writes text to stderr. Where stderr cannot be written nobody is left to be told, and the exit code says what happened.
pub fn message(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints diagnostics.
pub fn diagnostics(diags: Diagnostics, sources: &SourceMap) {
    let list = diags.into_sorted();
    if !list.is_empty() {
        message(&render(&list, sources, color(), width()));
    }
}

/// Prints an error that has no place in a file.
pub fn error(text: &str) {
    message(&format!("error: {}\n", printable(text)));
}

/// Prints a remark.
pub fn note(text: &str) {
    message(&format!("note: {}\n", printable(text)));
}

/// What became of data on the way to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All of it was written.
    Whole,
    /// Its reader went away before it had everything.
    ReaderGone,
    /// It could not be written, as was said.
    Lost,
}

static DELIVERY: AtomicU8 = AtomicU8::new(0);

/// What became of data so far.
pub fn delivery() -> Delivery {
    match DELIVERY.load(Ordering::Relaxed) {
        0 => Delivery::Whole,
        1 => Delivery::ReaderGone,
        _ => Delivery::Lost,
    }
}

/// Prints a line on stdout. A reader that went away is noted without a word, anything else is said once.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    written(writeln!(out, "{}", printable(text)).and_then(|()| out.flush()));
}

/// Prints one JSON object on stdout, as [`line()`].
pub fn json(value: &serde_json::Value) {
    line(&format!("{value:#}"));
}

/// Notes what became of data.
pub fn written(outcome: std::io::Result<()>) {
    let Err(e) = outcome else { return };
    let gone = e.kind() == std::io::ErrorKind::BrokenPipe;
    let before = DELIVERY.fetch_max(if gone { 1 } else { 2 }, Ordering::Relaxed);
    if !gone && before < 2 {
        error(&format!("stdout: {e}"));
    }
}
