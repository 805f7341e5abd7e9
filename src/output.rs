//! Messages on stderr, data on stdout.

use spinec_ir::diag::{Diagnostics, SourceMap, render};
use std::io::{IsTerminal, Write};

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

/// Prints a line on stdout. A reader that went away is no error.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Prints one JSON object on stdout. A reader that went away is no error.
pub fn json(value: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{value:#}");
    let _ = out.flush();
}
