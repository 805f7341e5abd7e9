//! Syntax errors of the parser below as diagnostics that say what to do.

use std::ops::Range;

use granit_parser::{ErrorKind, ScanError};
use serde_yaml::granit_parser;

use super::MAX_DEPTH;
use crate::diag::{Diagnostic, FileId, Span, codes};

/// What is known about the place of an error.
pub(super) struct Place<'a> {
    pub file: FileId,
    pub text: &'a str,
    /// The last scalar before the error.
    pub last_scalar: Option<Range<usize>>,
    /// Where the innermost `[` or `{` that is still open stands.
    pub flow: Option<u32>,
}

impl Place<'_> {
    fn span(&self, start: usize, end: usize) -> Span {
        let clamp = |at: usize| self.text.floor_char_boundary(at.min(self.text.len()));
        let start = clamp(start);
        Span { file: self.file, start: start as u32, end: clamp(end).max(start) as u32 }
    }

    fn error(&self, start: usize, end: usize, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(codes::YAML_SYNTAX, self.span(start, end), message)
    }

    /// An error at the character at `at`.
    fn error_at(&self, at: usize, message: impl Into<String>) -> Diagnostic {
        let width = self.text.get(at..).and_then(|rest| rest.chars().next()).filter(|c| !is_break(*c));
        self.error(at, at + width.map_or(0, char::len_utf8), message)
    }

    /// The line `at` stands on, without its break.
    fn line(&self, at: usize) -> Range<usize> {
        let start = self.text[..at].rfind(is_break).map_or(0, |i| i + 1);
        let end = self.text[at..].find(is_break).map_or(self.text.len(), |i| at + i);
        start..end
    }

    /// Where the first character of the line of `at` that is not blank stands.
    fn line_content(&self, at: usize) -> Range<usize> {
        let line = self.line(at);
        let content = &self.text[line.clone()];
        line.start + (content.len() - content.trim_start().len())..line.start + content.trim_end().len()
    }
}

fn is_break(c: char) -> bool {
    c == '\n' || c == '\r'
}

/// The diagnostic of a parser error.
pub(super) fn diagnose(error: &ScanError, place: &Place) -> Diagnostic {
    let text = place.text;
    let at = text.floor_char_boundary(error.marker().byte_offset().unwrap_or(0).min(text.len()));
    match error.kind() {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar => tab(place, at),
        ErrorKind::UnclosedQuotedScalar | ErrorKind::DocumentIndicatorInQuotedScalar => unclosed_quote(place, at),
        ErrorKind::UnknownQuotedScalarEscape
        | ErrorKind::InvalidQuotedScalarHexEscape
        | ErrorKind::InvalidUnicodeEscape => bad_escape(place, at),
        ErrorKind::InvalidTrailingSingleQuotedScalar | ErrorKind::InvalidTrailingDoubleQuotedScalar => {
            after_quote(place, at)
        }
        ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
            let code = *character as u32;
            let at = at + text[at..].find(*character).unwrap_or(0);
            place.error_at(at, format!("the control character U+{code:04X} cannot stand in YAML")).help("remove it")
        }
        ErrorKind::UnexpectedCharacter { character } => place
            .error_at(at, format!("a value without quotes cannot start with `{character}`"))
            .help(quote_help(text, at)),
        ErrorKind::BlockSequenceEntryNotAllowed | ErrorKind::BlockEntryInFlowCollection => place
            .error_at(at, "a list with `- ` cannot start behind a key or inside brackets")
            .help("start the list on the next line; a minus sign has no space behind it; text that starts with `- ` needs quotes"),
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidMappingValueWhitespace => colon(place, at),
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => missing_colon(place, at),
        ErrorKind::ExpectedBlockMappingKey | ErrorKind::InvalidIndentation => indentation(place, at),
        ErrorKind::ExpectedBlockSequenceEntry => not_an_item(place, at),
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => place
            .error_at(at, format!("`{open}` is closed by `{close}`"))
            .help("close every bracket with its own kind, and quote expressions that hold brackets"),
        ErrorKind::MisplacedFlowCollectionEnd => {
            let found = text[at..].chars().next().unwrap_or(']');
            place.error_at(at, format!("`{found}` closes nothing")).help("remove it, or quote the value")
        }
        ErrorKind::UnclosedFlowCollection { open } => unclosed_bracket(place, at, *open),
        ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::ExpectedFlowSequenceSeparator
        | ErrorKind::InvalidColonPlacement
        | ErrorKind::InvalidFlowScalarIndent
        | ErrorKind::FlowMappingValueAdjacentCollection
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping => in_flow(place, at),
        ErrorKind::RecursionLimitExceeded => {
            let message = format!("mappings and sequences are nested more than {MAX_DEPTH} deep");
            Diagnostic::error(codes::YAML_BUDGET, place.span(at, at + 1), message)
        }
        ErrorKind::DirectiveDisallowed | ErrorKind::MissingDocumentEndBeforeDirective => {
            let d = place.error_at(at, "directives (`%...` at the start of a line) are not part of the spec language");
            d.help("remove the line; a value that starts with `%` needs quotes")
        }
        ErrorKind::InvalidDocumentEnd => place.error_at(at, "nothing may follow `...` on its line"),
        ErrorKind::BomInsideDocument => place.error_at(at, "a byte-order mark inside the text").help("remove it"),
        _ => unexpected(place, at, error),
    }
}

fn tab(place: &Place, at: usize) -> Diagnostic {
    let line = place.line(at);
    let ahead = place.text[at..].find('\t').map(|i| at + i);
    let here = place.text[line.start..at].rfind('\t').map(|i| line.start + i);
    // The mark lies behind the tab, or on a scalar whose next line starts with the tab.
    let at = here.or(ahead).unwrap_or(at);
    place.error(at, at + 1, "a tab where YAML wants spaces").label("tab").help("indent with spaces only")
}

fn unclosed_quote(place: &Place, at: usize) -> Diagnostic {
    let quote = place.text[at..].chars().next().filter(|c| matches!(c, '\'' | '"'));
    let end = place.line_content(at).end;
    let help = match quote {
        Some(q) => format!("close it with `{q}`; inside single quotes `'` is written `''`"),
        None => "close the quote".to_owned(),
    };
    place.error(at, end, "this quote is never closed").help(help)
}

fn bad_escape(place: &Place, at: usize) -> Diagnostic {
    let mut chars = place.text[at..].char_indices().skip(1).peekable();
    while let Some((i, c)) = chars.next() {
        if c != '\\' {
            continue;
        }
        let Some((_, escape)) = chars.next() else { break };
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let start = at + i;
        let after = place.text.get(start + 2..).unwrap_or("");
        if after.chars().take_while(|c| c.is_ascii_hexdigit()).take(digits).count() < digits {
            let message = format!("`\\{escape}` needs {digits} hexadecimal digits");
            return place.error(start, start + 2, message).help("single quotes have no escapes");
        }
        if digits == 0 && !"0abtnvfre \"/\\N_LP\t\n\r".contains(escape) {
            let message = format!("`\\{}` is not an escape of double-quoted text", escape.escape_debug());
            return place
                .error(start, start + 1 + escape.len_utf8(), message)
                .help("write `\\\\` for a backslash, or use single quotes, which have no escapes");
        }
    }
    place.error_at(at, "a wrong escape in this double-quoted text").help("single quotes have no escapes")
}

fn after_quote(place: &Place, at: usize) -> Diagnostic {
    let end = place.line_content(at).end;
    let d = place.error(at, end, "text behind the closing quote");
    d.help("quote the whole value: wrap it in the other kind of quotes, `'\"a\" + b'`")
}

/// A `: ` where a value is already there.
fn colon(place: &Place, at: usize) -> Diagnostic {
    let text = place.text;
    let line = place.line_content(at);
    let Some(scalar) = place.last_scalar.clone().filter(|s| s.end <= at) else {
        return place.error_at(at, "a `:` that has no key").help(quote_help(text, line.start));
    };
    let before = text.get(line.start..scalar.start).unwrap_or("");
    if scalar.start >= line.start && before.contains(": ") {
        let d = place.error_at(at, "a second `: ` on one line: the value has ended here");
        return d.help(quote_help(text, scalar.start));
    }
    let first_line = text[scalar.clone()].split(is_break).next().unwrap_or("").trim_end();
    let several_lines = scalar.start + first_line.len() < scalar.end;
    if !several_lines {
        return place.error_at(at, "a `:` where no key can stand").help(quote_help(text, scalar.start));
    }
    if let Some(d) = glued_colon(place, scalar.start, first_line) {
        return d;
    }
    let above = place.span(scalar.start, scalar.start + first_line.len());
    let start_of_above = place.line_content(scalar.start).start;
    if start_of_above == scalar.start {
        return Diagnostic::error(codes::YAML_SYNTAX, above, "a line of a mapping without a colon")
            .label("expected `key: value`")
            .help(format!("write `{first_line}:` or remove the line"));
    }
    place
        .error(line.start, at, "this key is indented deeper than its neighbours")
        .related(above, "the entry above already has this value")
        .help("align the key with the one above, or remove the value above to nest it")
}

/// `name:value` without the space, if `line`, which starts at `start`, has that form.
fn glued_colon(place: &Place, start: usize, line: &str) -> Option<Diagnostic> {
    let name = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).next()?;
    let rest = line[name.len()..].strip_prefix(':')?;
    if name.is_empty() || rest.is_empty() || rest.starts_with(' ') {
        return None;
    }
    let colon = start + name.len();
    let d = place.error(colon, colon + 1, format!("no space behind the colon of `{name}:`"));
    Some(d.help(format!("write `{name}: {}`", rest.trim())))
}

fn missing_colon(place: &Place, at: usize) -> Diagnostic {
    // The error may be noticed on a later line than the one that lacks the colon.
    let line = match &place.last_scalar {
        Some(s) if place.line_content(at).is_empty() => place.line_content(s.start),
        _ => place.line_content(at),
    };
    let shown = &place.text[line.clone()];
    if let Some(d) = glued_colon(place, line.start, shown) {
        return d;
    }
    place.error(line.start, line.end, "a line of a mapping without a colon").label("expected `key: value`")
}

fn indentation(place: &Place, at: usize) -> Diagnostic {
    let line = place.line_content(at);
    let shown = &place.text[line.clone()];
    if let Some(tab) = place.text[place.line(at).start..line.start].find('\t') {
        return self::tab(place, place.line(at).start + tab + 1);
    }
    if at > line.start + 2 {
        return behind_value(place, at);
    }
    if shown.starts_with("- ") || shown == "-" {
        let d = place.error(line.start, line.start + 1, "a list item where a key of a mapping is expected");
        return d.help("indent the list as its neighbours, below its key; quote text that starts with `- `");
    }
    let d = place.error(line.start, line.end, "this line is indented like no line above it");
    d.help("align it with the line above that it belongs beside")
}

fn not_an_item(place: &Place, at: usize) -> Diagnostic {
    let line = place.line_content(at);
    if at > line.start {
        return behind_value(place, at);
    }
    place
        .error(line.start, line.end, "a line that is no list item among list items")
        .help("start it with `- `, or indent it further than the `-` above")
}

/// Something behind a complete value such as `[a] * 2`.
fn behind_value(place: &Place, at: usize) -> Diagnostic {
    let line = place.line_content(at);
    let shown = &place.text[line.start..at.max(line.start)];
    let value = line.start + shown.find(": ").map_or_else(|| if shown.starts_with("- ") { 2 } else { 0 }, |i| i + 2);
    let value = value + (place.text[value..].len() - place.text[value..].trim_start_matches(' ').len());
    place
        .error(at, line.end.max(at), "text behind a value that is already complete")
        .help(quote_help(place.text, value.min(at)))
}

fn unclosed_bracket(place: &Place, at: usize, open: char) -> Diagnostic {
    let opener = if place.text[at..].starts_with(open) { at } else { place.flow.map_or(at, |f| f as usize) };
    place.error_at(opener, format!("`{open}` is never closed")).help(format!("add `{}`", closing(open)))
}

fn closing(open: char) -> char {
    if open == '{' { '}' } else { ']' }
}

/// Something that cannot stand between brackets.
fn in_flow(place: &Place, at: usize) -> Diagnostic {
    let text = place.text;
    let open = place.flow.and_then(|f| text.get(f as usize..)).and_then(|t| t.chars().next());
    let open = open.filter(|c| matches!(c, '[' | '{'));
    if let (Some(open), Some(flow)) = (open, place.flow) {
        let flow = flow as usize;
        let at_end = text[at..].trim().is_empty();
        if at_end || !place.line(flow).contains(&at) && place.line(flow).end < at {
            let d = place.error_at(flow, format!("`{open}` is never closed"));
            let d = if at_end { d } else { d.related(place.span(at, at + 1), "this cannot stand inside the brackets") };
            return d.help(format!("add `{}`; expressions that hold brackets need quotes here", closing(open)));
        }
    }
    let found = text[at..].trim_start_matches([' ', '\t']);
    let start = text.len() - found.len();
    let value = place.last_scalar.as_ref().filter(|s| s.end <= start && place.line(start).contains(&s.start));
    match (found.chars().next(), value) {
        (Some(c @ ('[' | '{')), Some(value)) => place
            .error_at(start, format!("`{c}` cannot follow a value without quotes inside `{{ }}` or `[ ]`"))
            .help(quote_help(text, value.start)),
        (Some(':'), Some(value)) => place
            .error_at(start, "a second `:` in one entry")
            .help(format!("put a comma between the entries, or quote the value: {}", quoted(text, value.start))),
        (Some(c), _) if !is_break(c) => place.error_at(start, format!("`{c}` cannot stand here")).help(
            "inside brackets, entries are separated by one comma, and expressions with brackets or commas need quotes",
        ),
        _ => place.error_at(start, "the brackets are not closed").help("close every `[` and `{`"),
    }
}

fn unexpected(place: &Place, at: usize, error: &ScanError) -> Diagnostic {
    if place.flow.is_some() {
        return in_flow(place, at);
    }
    let rest = place.text[at..].trim_start();
    let start = place.text.len() - rest.len();
    match rest.chars().next() {
        None => place.error(place.text.len(), place.text.len(), format!("the file ends too early: {}", plain(error))),
        Some('|' | '>') if *error.kind() == ErrorKind::InvalidBlockScalarHeader => {
            let d =
                place.error_at(start, "text on the line of `|` or `>`, which start a block of text on the next line");
            d.help(quote_help(place.text, start))
        }
        Some('[' | ']' | '{' | '}' | '*' | '&') if start > place.line_content(start).start => {
            behind_value(place, start)
        }
        Some(c @ (',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '?' | '|' | '>')) => place
            .error_at(start, format!("a value without quotes cannot start with `{c}`"))
            .help(quote_help(place.text, start)),
        _ => place.error_at(start, format!("not valid YAML: {}", plain(error))),
    }
}

/// The parser's own words without its position.
fn plain(error: &ScanError) -> String {
    error.kind().to_string()
}

/// A help line that shows the value at `start` in quotes.
pub(super) fn quote_help(text: &str, start: usize) -> String {
    format!("quote the whole value: {}", quoted(text, start))
}

/// The value that its author seems to have meant to start at `start`, in quotes and backticks.
fn quoted(text: &str, start: usize) -> String {
    const LONGEST: usize = 400;
    let rest = text.get(start..).unwrap_or("");
    let rest = &rest[..rest.floor_char_boundary(LONGEST)];
    let mut depth = 0usize;
    let mut end = rest.len();
    let mut space = false;
    for (i, c) in rest.char_indices() {
        let stop = match c {
            '\n' | '\r' => true,
            '#' => space,
            '(' | '[' | '{' => {
                depth += 1;
                false
            }
            ')' | ']' | '}' if depth > 0 => {
                depth -= 1;
                false
            }
            ']' | '}' | ',' => depth == 0 && i > 0,
            _ => false,
        };
        if stop {
            end = i;
            break;
        }
        space = c == ' ';
    }
    let value = rest[..end].trim_end();
    let fits = !value.is_empty() && value.chars().count() <= 80;
    match (fits, value.contains('"'), value.contains('\'')) {
        (true, false, _) if !value.contains('\\') => format!("`\"{value}\"`"),
        (true, _, false) => format!("`'{value}'`"),
        _ => "`\"...\"`".to_owned(),
    }
}
