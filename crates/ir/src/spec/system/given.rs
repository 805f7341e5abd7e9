//! Values of the command line: `--set NAME=VALUE`.

use super::components::binding_span;
use super::decl::{ComponentDecl, SystemDecl};
use super::values::Values;
use crate::diag::{Diagnostic, Diagnostics, SourceMap, Span, codes};
use crate::spec::expr::{Expr, ExprKind, parse_expr};
use crate::spec::yaml::Text;
use std::collections::BTreeMap;

/// Values given by dotted name, with their places.
pub(crate) type Sets = BTreeMap<String, (Expr, Span)>;

/// Name of the sources that hold what was given.
const COMMAND_LINE: &str = "command line";
const OPTION: &str = "--set ";

/// Parses `NAME=VALUE` pairs; each becomes a one-line source of its own, so that messages can point into it.
pub(crate) fn parse_sets(sets: &[(String, String)], sources: &mut SourceMap, diags: &mut Diagnostics) -> Sets {
    let mut out: Sets = BTreeMap::new();
    for (name, value) in sets {
        let text = format!("{OPTION}{name}={value}");
        let at = (text.len() - value.len()) as u32;
        let file = sources.add(COMMAND_LINE, text);
        let span = Span { file, start: at, end: at + value.len() as u32 };
        if let Some((_, first)) = out.get(name) {
            diags.push(
                Diagnostic::error(codes::SHADOWED, name_of(name, span), format!("`{name}` is set twice"))
                    .related(*first, "set here before")
                    .help("give it one value"),
            );
            continue;
        }
        let text = Text { value: value.clone(), verbatim_at: Some(at) };
        if let Some(e) = parse_expr(&text, span, diags) {
            out.insert(name.clone(), (e, span));
        }
    }
    out
}

/// The diagnostic with a remedy for the command line, if its place is there and it has none.
pub(crate) fn given_help(d: Diagnostic, sources: &SourceMap) -> Diagnostic {
    let file = d.span.map(|s| sources.file(s.file)).filter(|f| f.name == COMMAND_LINE);
    match (file.and_then(|f| f.text.strip_prefix(OPTION)?.split_once('=')), &d.help) {
        (Some((name, _)), None) if d.span.is_some_and(|s| s.start as usize > OPTION.len() + name.len()) => {
            d.help(remedy(name))
        }
        _ => d,
    }
}

/// Where the name stands whose value stands at a place.
pub(crate) fn name_of(name: &str, value: Span) -> Span {
    let start = OPTION.len() as u32;
    Span { file: value.file, start, end: start + name.len() as u32 }
}

/// What to do about a value of the command line.
pub(super) fn remedy(name: &str) -> String {
    format!("give it another value: --set {name}=VALUE")
}

/// The option that gives a component the value it has under a name.
pub(super) fn set_of<'s>(sets: &'s Sets, c: &ComponentDecl, name: &str) -> Option<(&'s str, Span)> {
    let own = sets.get_key_value(&format!("{}.{name}", c.name.name));
    let (name, (_, span)) =
        own.or_else(|| sets.get_key_value(name).filter(|_| binding_span(&c.bindings, name).is_none()))?;
    Some((name, *span))
}

/// Where the value a component has under a name comes from: the command line, the component, or the system.
pub(super) fn place_of(sets: &Sets, decl: &SystemDecl, c: &ComponentDecl, name: &str) -> Option<Span> {
    set_of(sets, c, name)
        .map(|(_, s)| s)
        .or_else(|| binding_span(&c.bindings, name))
        .or_else(|| binding_span(&decl.bindings, name))
}

impl Values<'_> {
    /// The diagnostic with the places of the values of the command line that an expression is made of.
    pub(super) fn with_given(&self, mut d: Diagnostic, e: &Expr, component: Option<&str>) -> Diagnostic {
        let mut names = Vec::new();
        read(e, &mut names);
        for path in names {
            let found = match path.as_slice() {
                [name] => match component.and_then(|c| self.component(c)) {
                    Some(c) => set_of(self.sets, c, name).map(|(_, s)| s),
                    None => self.sets.get(*name).map(|(_, s)| *s),
                },
                [first, name] => match self.component(first) {
                    Some(c) => set_of(self.sets, c, name).map(|(_, s)| s),
                    None => self.sets.get(&path.join(".")).map(|(_, s)| *s),
                },
                _ => None,
            };
            if let Some(span) = found
                && d.span != Some(span)
                && !d.related.iter().any(|r| r.span == span)
            {
                d = d.related(span, format!("`{}` is set here", path.join(".")));
            }
        }
        d
    }
}

/// The dotted names an expression reads.
pub(super) fn read<'e>(e: &'e Expr, out: &mut Vec<Vec<&'e str>>) {
    if let Some(path) = super::values::path_of(e) {
        out.push(path);
        return;
    }
    match &e.kind {
        ExprKind::Attr(x, _) | ExprKind::Unary(_, x) => read(x, out),
        ExprKind::Index(x, items) => {
            read(x, out);
            for item in items {
                if let crate::spec::expr::IndexKind::At(at) = &item.kind {
                    read(at, out);
                }
            }
        }
        ExprKind::Binary(_, a, b) => {
            read(a, out);
            read(b, out);
        }
        ExprKind::Call { args, .. } => args.iter().for_each(|a| read(a, out)),
        ExprKind::List(items) => items.iter().for_each(|i| read(i, out)),
        _ => {}
    }
}
