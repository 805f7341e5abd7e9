//! Parser events to the tree.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use granit_parser::{Event, Parser, ScalarStyle, StructureStyle, options};
use serde_yaml::granit_parser;

use super::{Entry, MAX_DEPTH, MAX_NODES, MAX_SCALAR, Node, Value, scalar, syntax};
use crate::diag::{Code, Diagnostic, Diagnostics, FileId, Span, codes};

/// Diagnostics of one file before the rest is only counted; a file of a million duplicate keys is one mistake.
const MAX_REPORTS: usize = 200;

/// Builds the tree of `text`, which are the contents of `file`.
pub(super) fn build(file: FileId, text: &str, diags: &mut Diagnostics) -> Option<Node> {
    let mut builder =
        Builder { file, text, diags, reports: 0, omitted: None, stack: Vec::new(), root: None, nodes: 0, usable: true };
    let finished = builder.run();
    if let Some((code, count)) = builder.omitted {
        let end = text.len() as u32;
        let message = format!("{count} more errors of this file are not listed");
        builder.diags.push(Diagnostic::error(code, Span { file, start: end, end }, message));
    }
    let empty = Node { span: Span { file, start: 0, end: 0 }, value: Value::Null };
    (finished.is_some() && builder.usable).then(|| builder.root.take().unwrap_or(empty))
}

struct Builder<'a> {
    file: FileId,
    text: &'a str,
    diags: &'a mut Diagnostics,
    reports: usize,
    omitted: Option<(Code, usize)>,
    stack: Vec<Frame>,
    root: Option<Node>,
    nodes: usize,
    /// False once the tree is no longer what the author wrote.
    usable: bool,
}

/// A collection whose end has not come yet.
struct Frame {
    start: u32,
    /// One past the last token so far.
    end: u32,
    flow: bool,
    kind: FrameKind,
}

enum FrameKind {
    Seq(Vec<Node>),
    Map { entries: Vec<Entry>, seen: HashMap<String, Span>, key: Option<Key> },
}

/// A key that waits for its value; `keep` is false if the entry is dropped.
struct Key {
    text: String,
    span: Span,
    keep: bool,
}

impl Builder<'_> {
    /// Feeds all events; `None` if it had to stop early.
    fn run(&mut self) -> Option<()> {
        let options = options! {
            emit_anchor_events: true,
            emit_unresolved_aliases: true,
            emit_comments: false,
            disallow_directives: true,
            flow_nesting_limit: MAX_DEPTH + 1,
            block_nesting_limit: MAX_DEPTH + 1,
        };
        let mut last_scalar = None;
        let mut last_refused = 0;
        let mut document: Option<Span> = None;
        for event in Parser::new_from_str_with_options(self.text, options) {
            let (event, at) = match event {
                Ok(ok) => ok,
                Err(error) => {
                    let flow = self.stack.iter().rev().find(|f| f.flow).map(|f| f.start);
                    let place = syntax::Place { file: self.file, text: self.text, last_scalar, flow };
                    let at = error.marker().byte_offset().unwrap_or(0);
                    // On the line of a refused `*name`, the error is most likely its consequence.
                    let between = self.text.get(last_refused..at).unwrap_or("\n");
                    if last_refused == 0 || between.contains('\n') {
                        self.report(syntax::diagnose(&error, &place));
                    }
                    return None;
                }
            };
            let range = at.byte_range().unwrap_or(0..0);
            let span = self.span(range.start as u32, range.end as u32);
            if let Some(tag) = at.tag_span().and_then(|t| t.byte_range()) {
                let tag = self.span(tag.start as u32, tag.end as u32);
                let d = Diagnostic::error(codes::YAML_ALIAS, tag, "tags are not part of the spec language");
                self.report(d.help("remove the tag; text that starts with `!` needs quotes"));
                last_refused = tag.end as usize;
            }
            match event {
                Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
                Event::DocumentStart(..) => {
                    if let Some(first) = document {
                        let d = Diagnostic::error(codes::YAML_SYNTAX, span, "a second YAML document starts here");
                        self.report(d.related(first, "the first document").help("one file holds one document"));
                        return None;
                    }
                    document = Some(self.span(span.start, span.start));
                }
                Event::Anchor(_, name) => {
                    let message = format!("the anchor `&{name}`: anchors are not part of the spec language");
                    let d = Diagnostic::error(codes::YAML_ALIAS, span, message);
                    self.report(d.help(format!("remove it; {}", syntax::quote_help(self.text, span.start as usize))));
                    last_refused = span.end as usize;
                }
                Event::Alias(_) | Event::UnresolvedAlias(_) => {
                    let name = self.text.get(range).unwrap_or("*");
                    let message = format!("the alias `{name}`: aliases are not part of the spec language");
                    let d = Diagnostic::error(codes::YAML_ALIAS, span, message);
                    self.report(
                        d.help(format!("write the value out; {}", syntax::quote_help(self.text, span.start as usize))),
                    );
                    last_refused = span.end as usize;
                    self.usable = false;
                    self.collection_or_alias(Node { span, value: Value::Null })?;
                }
                Event::Scalar(value, style, _, tag) => {
                    last_scalar = Some(range);
                    let is_text = style != ScalarStyle::Plain || tag.is_some_and(|t| t.is_yaml_core_schema_tag("str"));
                    self.scalar(value.into_owned(), style, is_text, span)?;
                }
                Event::SequenceStart(style, ..) => {
                    let span = if style == StructureStyle::Block { self.with_first_dash(span) } else { span };
                    self.open(span, style, FrameKind::Seq(Vec::new()))?;
                }
                Event::MappingStart(style, ..) => {
                    self.open(span, style, FrameKind::Map { entries: Vec::new(), seen: HashMap::new(), key: None })?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.close(span)?,
                _ => {}
            }
        }
        Some(())
    }

    fn span(&self, start: u32, end: u32) -> Span {
        Span { file: self.file, start, end: end.max(start) }
    }

    fn report(&mut self, d: Diagnostic) {
        if self.reports < MAX_REPORTS {
            self.reports += 1;
            self.diags.push(d);
        } else {
            let count = self.omitted.map_or(0, |(_, count)| count);
            self.omitted = Some((d.code, count + 1));
        }
    }

    fn over_limit(&mut self, span: Span, message: String) -> Option<()> {
        self.report(Diagnostic::error(codes::YAML_BUDGET, span, message));
        None
    }

    fn count(&mut self, span: Span) -> Option<()> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return self.over_limit(span, format!("the file has more than {MAX_NODES} keys and values"));
        }
        Some(())
    }

    fn open(&mut self, span: Span, style: StructureStyle, kind: FrameKind) -> Option<()> {
        if self.stack.len() >= MAX_DEPTH {
            return self.over_limit(span, format!("mappings and sequences are nested more than {MAX_DEPTH} deep"));
        }
        let flow = style == StructureStyle::Flow;
        self.stack.push(Frame { start: span.start, end: span.end, flow, kind });
        Some(())
    }

    /// The parser reports a sequence whose `-` stands below its key, not further in, behind that first `-`.
    fn with_first_dash(&self, span: Span) -> Span {
        let Some(Frame { kind: FrameKind::Map { key: Some(key), .. }, .. }) = self.stack.last() else { return span };
        let gap = self.text.get(key.span.end as usize..span.start as usize).unwrap_or("");
        let mut at = key.span.end as usize;
        for line in gap.split_inclusive('\n') {
            let content = line.trim_start_matches([' ', '\t']);
            if content.starts_with('-') && at > key.span.end as usize {
                return self.span((at + line.len() - content.len()) as u32, span.end);
            }
            at += line.len();
        }
        span
    }

    fn close(&mut self, span: Span) -> Option<()> {
        // The parser emits balanced events; an end without a start is ignored.
        let Some(frame) = self.stack.pop() else { return Some(()) };
        // The end of a block collection is an empty event at the next token, that of a flow collection its bracket.
        let end = if span.end > span.start { span.end } else { frame.end };
        let value = match frame.kind {
            FrameKind::Seq(items) => Value::Seq(items),
            FrameKind::Map { entries, .. } => Value::Map(entries),
        };
        let span = self.span(frame.start, end);
        self.collection_or_alias(Node { span, value })
    }

    /// Takes a node that cannot be a key.
    fn collection_or_alias(&mut self, node: Node) -> Option<()> {
        if !self.wants_key() {
            return self.value(node);
        }
        self.count(node.span)?;
        if !matches!(node.value, Value::Null) {
            let message = format!("a mapping key must be plain text, not {}", node.value.describe());
            let d = Diagnostic::error(codes::YAML_KEY, node.span, message);
            self.report(d.help("quote the key; an expression stands after the colon, not before it"));
            self.usable = false;
        }
        self.key(Key { text: String::new(), span: node.span, keep: false });
        Some(())
    }

    fn wants_key(&self) -> bool {
        matches!(self.stack.last(), Some(Frame { kind: FrameKind::Map { key: None, .. }, .. }))
    }

    fn key(&mut self, new: Key) {
        if let Some(frame) = self.stack.last_mut() {
            frame.end = frame.end.max(new.span.end);
            if let FrameKind::Map { key, .. } = &mut frame.kind {
                *key = Some(new);
            }
        }
    }

    fn scalar(&mut self, value: String, style: ScalarStyle, is_text: bool, span: Span) -> Option<()> {
        let raw = self.text.get(span.start as usize..span.end as usize).unwrap_or("");
        let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        let kept = if block { raw.trim_end().len() } else { raw.len() };
        let span = self.span(span.start, span.start + kept as u32);
        if value.len() > MAX_SCALAR {
            let message = format!("a value of {} bytes; the limit is {MAX_SCALAR}", value.len());
            let first_line = raw.split(['\n', '\r']).next().unwrap_or("");
            let shown = self.span(span.start, span.start + first_line.len() as u32);
            return self.over_limit(shown, message);
        }
        self.check_cut(raw, style, span);
        if self.wants_key() {
            return self.scalar_key(value, style, span);
        }
        let resolved = if raw.is_empty() && style == ScalarStyle::Plain {
            Ok(Some(Value::Null))
        } else if is_text {
            Ok(None)
        } else {
            scalar::resolve(&value)
        };
        let value = match resolved {
            Ok(Some(value)) => value,
            Ok(None) => Value::Str(scalar::text(value, style, raw, span.start)),
            Err(why) => {
                self.report(Diagnostic::error(codes::YAML_BUDGET, span, format!("the number `{value}` {why}")));
                self.usable = false;
                Value::Null
            }
        };
        let span = if raw.is_empty() { self.after_colon(span) } else { span };
        self.value(Node { span, value })
    }

    /// A missing value stands behind its colon, where it would be written.
    fn after_colon(&self, span: Span) -> Span {
        let rest = self.text.get(span.start as usize..).unwrap_or("");
        let spaces = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let at = if rest[spaces..].starts_with(':') { span.start + spaces as u32 + 1 } else { span.start };
        self.span(at, at)
    }

    fn scalar_key(&mut self, text: String, style: ScalarStyle, span: Span) -> Option<()> {
        self.count(span)?;
        let plain = style == ScalarStyle::Plain;
        let mut keep = true;
        if plain && span.start == span.end {
            let at = self.after_colon(span);
            let shown = self.span(span.start, at.end);
            let d = Diagnostic::error(codes::YAML_KEY, shown, "a mapping entry without a key");
            self.report(d.help("write a name before the colon, or quote an expression such as `\"x[:, None]\"`"));
            (keep, self.usable) = (false, false);
        } else if plain && text == "<<" {
            let d = Diagnostic::error(codes::YAML_ALIAS, span, "merge keys are not part of the spec language");
            self.report(d.help("write the entries out"));
            (keep, self.usable) = (false, false);
        }
        if keep {
            keep = self.first_of_its_name(&text, span);
        }
        self.key(Key { text, span, keep });
        Some(())
    }

    fn first_of_its_name(&mut self, text: &str, span: Span) -> bool {
        let Some(Frame { kind: FrameKind::Map { seen, .. }, .. }) = self.stack.last_mut() else { return true };
        match seen.entry(text.to_owned()) {
            Slot::Vacant(slot) => {
                slot.insert(span);
                true
            }
            Slot::Occupied(slot) => {
                let first = *slot.get();
                let message = format!("the key `{}` stands twice in one mapping", shorten(text));
                let d = Diagnostic::error(codes::YAML_DUPLICATE_KEY, span, message);
                let d = d.label("again").related(first, "first").help("remove or rename one of them");
                self.report(d);
                false
            }
        }
    }

    fn value(&mut self, node: Node) -> Option<()> {
        self.count(node.span)?;
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return Some(());
        };
        frame.end = frame.end.max(node.span.end);
        match &mut frame.kind {
            FrameKind::Seq(items) => items.push(node),
            FrameKind::Map { entries, key, .. } => match key.take() {
                Some(key) if key.keep => entries.push(Entry { key: key.text, key_span: key.span, value: node }),
                _ => {}
            },
        }
        Some(())
    }

    /// Reports a plain value inside `{ }` or `[ ]` that a comma between parentheses cut in two.
    fn check_cut(&mut self, raw: &str, style: ScalarStyle, span: Span) {
        let in_flow = self.stack.last().is_some_and(|f| f.flow);
        if style != ScalarStyle::Plain || !in_flow || !raw.contains('(') {
            return;
        }
        let depth = raw.bytes().fold(0i64, |d, b| d + i64::from(b == b'(') - i64::from(b == b')'));
        let rest = self.text.get(span.end as usize..).unwrap_or("").trim_start_matches([' ', '\t']);
        if depth <= 0 || !rest.starts_with(',') {
            return;
        }
        let comma = (self.text.len() - rest.len()) as u32;
        let message =
            format!("the comma ends the value `{}`: inside `{{ }}` and `[ ]` it separates entries", shorten(raw));
        let d = Diagnostic::error(codes::YAML_SYNTAX, span, message);
        let d = d.related(self.span(comma, comma + 1), "this comma");
        self.report(d.help(syntax::quote_help(self.text, span.start as usize)));
        self.usable = false;
    }
}

/// At most 60 characters of the first line of `text`.
fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or("");
    if line.chars().count() <= 60 && line.len() == text.len() {
        return line.to_owned();
    }
    line.chars().take(57).chain("...".chars()).collect()
}
