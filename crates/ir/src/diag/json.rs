//! Diagnostics as JSON, with ranges as the language server protocol counts them.

use serde::{Deserialize, Serialize};

use super::{Diagnostic, Severity, SourceMap, Span};

/// A position: zero-based line, and UTF-16 code units from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JsonPosition {
    /// Zero-based line.
    pub line: u32,
    /// Zero-based UTF-16 column.
    pub character: u32,
}

/// A half-open range of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JsonRange {
    /// First position.
    pub start: JsonPosition,
    /// One past the last position.
    pub end: JsonPosition,
}

/// A related place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonRelated {
    /// What is there.
    pub message: String,
    /// Name of the file.
    pub file: String,
    /// Where.
    pub range: JsonRange,
}

/// One diagnostic as `check --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonDiagnostic {
    /// Stable code.
    pub code: String,
    /// `error`, `warning` or `note`.
    pub severity: String,
    /// What is wrong.
    pub message: String,
    /// Name of the file; `null` for a message about the command line or a directory.
    pub file: Option<String>,
    /// Where in the file; `null` if there is no file.
    pub range: Option<JsonRange>,
    /// Other places involved.
    pub related: Vec<JsonRelated>,
    /// What to do about it.
    pub help: Option<String>,
}

/// Converts diagnostics in the order given.
pub fn to_json(diags: &[Diagnostic], sources: &SourceMap) -> Vec<JsonDiagnostic> {
    diags.iter().map(|d| one(d, sources)).collect()
}

fn one(d: &Diagnostic, sources: &SourceMap) -> JsonDiagnostic {
    let severity = match d.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let related = d.related.iter().map(|r| JsonRelated {
        message: r.message.clone(),
        file: sources.file(r.span.file).name.clone(),
        range: range(r.span, sources),
    });
    JsonDiagnostic {
        code: d.code.to_owned(),
        severity: severity.to_owned(),
        message: d.message.clone(),
        file: d.span.map(|s| sources.file(s.file).name.clone()),
        range: d.span.map(|s| range(s, sources)),
        related: related.collect(),
        help: d.help.clone(),
    }
}

/// A span as a range of lines and UTF-16 columns.
pub fn range(span: Span, sources: &SourceMap) -> JsonRange {
    let file = sources.file(span.file);
    let position = |offset: u32| {
        let offset = file.text.floor_char_boundary(offset as usize) as u32;
        let (line, character) = file.line_utf16(offset);
        JsonPosition { line, character }
    };
    JsonRange { start: position(span.start), end: position(span.end.max(span.start)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_utf16() {
        let mut sources = SourceMap::default();
        let file = sources.add("a.yaml", "x\n𝄞é: y\n");
        let span = Span { file, start: 6, end: 8 };
        let d =
            Diagnostic::error("E0102", span, "twice").related(Span { file, start: 0, end: 1 }, "first").help("remove");
        let json = serde_json::to_value(to_json(&[d], &sources)).unwrap();
        let expected = serde_json::json!([{
            "code": "E0102", "severity": "error", "message": "twice", "file": "a.yaml",
            "range": {"start": {"line": 1, "character": 2}, "end": {"line": 1, "character": 3}},
            "related": [{"message": "first", "file": "a.yaml",
                "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}}],
            "help": "remove",
        }]);
        assert_eq!(json, expected);
    }

    #[test]
    fn spans_out_of_the_file_are_clamped() {
        let mut sources = SourceMap::default();
        let file = sources.add("a.yaml", "é");
        for (start, end) in [(1, 1), (0, 99), (99, 99), (2, 0)] {
            let d = Diagnostic::error("E0101", Span { file, start, end }, "m").as_warning();
            let json = to_json(&[d], &sources);
            let range = json[0].range.unwrap();
            assert!(range.start <= range.end && range.end.character <= 1);
            assert_eq!(json[0].severity, "warning");
        }
        let nowhere = to_json(&[Diagnostic::error_nowhere("E0001", "m")], &sources);
        assert_eq!((nowhere[0].file.clone(), nowhere[0].range), (None, None));
    }
}
