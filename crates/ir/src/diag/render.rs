//! Diagnostics as terminal text: message, snippet with caret, related places, help.

use std::borrow::Cow;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::{Diagnostic, Severity, SourceFile, SourceMap, Span};

/// Lines with more bytes are cut before they reach the renderer, whose work grows with them.
const LONG_LINE: usize = 2000;
/// Bytes that are left of such a line.
const WINDOW: usize = 400;
/// Narrowest width that is rendered for.
const MIN_WIDTH: usize = 40;

/// Renders diagnostics in the order given, separated by empty lines, for a terminal of `width` columns.
///
/// Every place is shown as one line of source, a place of several lines as its first one. Columns in `file:line:column`
/// count characters from one. With `color` the text holds ANSI escapes.
pub fn render(diags: &[Diagnostic], sources: &SourceMap, color: bool, width: usize) -> String {
    let width = width.max(MIN_WIDTH);
    let renderer = if color { Renderer::styled() } else { Renderer::plain() }.term_width(width);
    let mut out = String::new();
    for d in diags {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&renderer.render(&report(d, sources, width)));
        out.push('\n');
    }
    out
}

fn report<'a>(d: &'a Diagnostic, sources: &'a SourceMap, width: usize) -> Vec<Group<'a>> {
    let level = match d.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let mut group = level.primary_title(clean(&d.message)).id(d.code).elements(Vec::<Origin<'a>>::new());
    if let Some(span) = d.span {
        group = place(group, sources.file(span.file), span, &d.label, width);
    }
    let mut groups = vec![group];
    for related in &d.related {
        let title = Level::NOTE.secondary_title(clean(&related.message));
        let file = sources.file(related.span.file);
        let group = title.elements(Vec::<Origin<'a>>::new());
        groups.push(place(group, file, related.span, "", width));
    }
    if let Some(help) = &d.help {
        let title = Level::HELP.secondary_title(clean(help));
        groups.push(title.elements(Vec::<Origin<'a>>::new()));
    }
    groups
}

/// Adds `file:line:column` and the line that `span` starts on.
fn place<'a>(group: Group<'a>, file: &'a SourceFile, span: Span, label: &'a str, width: usize) -> Group<'a> {
    let shown = Shown::new(file, span, width);
    let annotation = AnnotationKind::Primary.span(shown.start..shown.end);
    let annotation = if label.is_empty() { annotation } else { annotation.label(clean(label)) };
    let snippet = Snippet::source(shown.text).line_start(shown.line).annotation(annotation);
    match shown.column {
        None => group.element(snippet.path(clean(&file.name))),
        // The renderer would count the columns of the cut line.
        Some(column) => {
            group.element(Origin::path(clean(&file.name)).line(shown.line).char_column(column)).element(snippet)
        }
    }
}

/// The part of a line that is shown.
struct Shown<'a> {
    text: Cow<'a, str>,
    /// One-based line.
    line: usize,
    /// One-based column in characters of the whole line, if `text` is only a part of it.
    column: Option<usize>,
    /// The marked bytes of `text`.
    start: usize,
    end: usize,
}

impl<'a> Shown<'a> {
    fn new(file: &'a SourceFile, span: Span, width: usize) -> Self {
        let text = file.text.as_str();
        let boundary = |at: u32| text.floor_char_boundary(at as usize);
        let (start, end) = (boundary(span.start), boundary(span.end));
        let (line, _) = file.line_col(start as u32);
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let line_end = line_start + text[line_start..line_end].trim_end_matches('\r').len();
        let start = start.min(line_end);
        // The renderer cuts lines, but never inside a mark.
        let longest = text.floor_char_boundary(start + (width / 2).max(1));
        let end = if line_end - line_start > width { end.min(longest) } else { end }.clamp(start, line_end);
        let whole = &text[line_start..line_end];
        let line = line as usize + 1;
        let (start, end) = (start - line_start, end - line_start);
        let whole = shown(whole);
        if whole.len() <= LONG_LINE {
            return Self { text: whole, line, column: None, start, end };
        }
        let column = Some(whole[..start].chars().count() + 1);
        let (text, start, end) = cut(&whole, start, end);
        Self { text: Cow::Owned(text), line, column, start, end }
    }
}

/// A line without what would act on a terminal and the renderer leaves in it. A stand-in has as many bytes as what it stands
/// for, so that places in the line stay what they are.
fn shown(line: &str) -> Cow<'_, str> {
    let left = |c: char| matches!(c, '\u{80}'..='\u{9f}' | '\u{200e}' | '\u{200f}');
    if !line.contains(left) {
        return Cow::Borrowed(line);
    }
    Cow::Owned(
        line.chars()
            .map(|c| {
                if !left(c) {
                    c
                } else if c.len_utf8() == 2 {
                    '\u{a4}'
                } else {
                    '\u{fffd}'
                }
            })
            .collect(),
    )
}

/// Cuts a long line to a window around `start..end` and moves the range with it.
fn cut(line: &str, start: usize, end: usize) -> (String, usize, usize) {
    const DOTS: &str = "...";
    let from = line.floor_char_boundary(start.saturating_sub(WINDOW / 2));
    let to = line.floor_char_boundary((from + WINDOW).max(end).min(line.len()));
    let (head, tail) = (if from > 0 { DOTS } else { "" }, if to < line.len() { DOTS } else { "" });
    let moved = |at: usize| at - from + head.len();
    (format!("{head}{}{tail}", &line[from..to]), moved(start), moved(end))
}

/// Text of a message on one line and without control characters.
fn clean(text: &str) -> Cow<'_, str> {
    escaped(text, acts)
}

/// Text for a terminal: characters that would act on it instead of being shown are written as escapes. Lines stay lines.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| acts(c) && c != '\n' && c != '\t')
}

/// Control characters, and those that turn the direction of the text around them.
fn acts(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, acts: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&acts) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| match c {
        c if !acts(c) => c.to_string(),
        c if c.is_control() => c.escape_debug().to_string(),
        c => c.escape_unicode().to_string(),
    });
    Cow::Owned(shown.collect())
}
