//! The limits of a system: truths about its values, each with the reason why it must hold.

use super::components::binding_span;
use super::decl::*;
use super::given::{place_of, remedy};
use super::values::Values;
use crate::diag::{Diagnostic, Diagnostics, Span, codes};
use crate::spec::expr::{BinaryOp, Expr, ExprKind};
use crate::spec::statics::Static;
use std::collections::BTreeMap;

/// Reports every limit that does not hold; where nothing is `served`, only of those about what is computed.
pub(super) fn check(values: &Values, served: bool, diags: &mut Diagnostics) {
    for l in values.decl.limits.iter().filter(|l| served || l.always) {
        match values.eval(&l.require, None, &BTreeMap::new()) {
            Some(Static::Bool(true)) | None => {}
            Some(Static::Bool(false)) => diags.push(violated(values, l)),
            Some(other) => diags.push(
                Diagnostic::error(codes::BAD_ATTRIBUTE, l.span, format!("a limit is true or false, this is {other}"))
                    .help("a limit compares: `B == 16 and serve.requests <= 8`"),
            ),
        }
    }
}

/// The error stands where the value that breaks the limit was written, if that is in the file that is checked or on the
/// command line; otherwise at the limit.
fn violated(values: &Values, l: &LimitDecl) -> Diagnostic {
    let mut broken = Vec::new();
    failing(values, &l.require, &mut broken);
    let mut facts: Vec<Fact> = Vec::new();
    for f in broken.into_iter().flat_map(|e| facts_of(values, e)) {
        if !facts.iter().any(|have| have.text == f.text) {
            facts.push(f);
        }
    }
    let here =
        |s: &Span| s.file == values.decl.name.span.file || values.sets.values().any(|(_, set)| set.file == s.file);
    let written = facts.iter().filter_map(|f| f.span);
    let blamed = written.clone().find(here).or_else(|| facts.iter().filter(|f| f.declared).find_map(|f| f.span));
    let at = blamed.unwrap_or(l.span);
    let mut d = Diagnostic::error(codes::LIMIT, at, format!("limit violated: {} ({})", l.require, l.reason));
    if at != l.span {
        d = d.related(l.span, "the limit");
    }
    let mut rest = Vec::new();
    for f in &facts {
        match f.span {
            Some(span) if span == at => d = d.label(format!("{} is {}", f.text, f.value)),
            Some(span) => d = d.related(span, format!("{} is {}", f.text, f.value)),
            None => rest.push(format!("{} is {}", f.text, f.value)),
        }
    }
    if let Some((name, _)) = values.sets.iter().find(|(_, (_, set))| *set == at) {
        rest =
            if rest.is_empty() { vec![remedy(name)] } else { vec![format!("{}; {}", rest.join(", "), remedy(name))] };
    }
    if rest.is_empty() { d } else { d.help(rest.join(", ")) }
}

/// The parts of a conjunction that are false.
fn failing<'e>(values: &Values, e: &'e Expr, out: &mut Vec<&'e Expr>) {
    match &e.kind {
        ExprKind::Binary(BinaryOp::And, a, b) => {
            failing(values, a, out);
            failing(values, b, out);
        }
        _ if values.eval(e, None, &BTreeMap::new()) == Some(Static::Bool(false)) => out.push(e),
        _ => {}
    }
}

/// Most characters of a mapping of config.json in a message.
const MOST_SHOWN: usize = 80;

impl Values<'_> {
    /// " in FILE", for a path into a checkpoint's config.json.
    fn file_of(&self, path: &[&str]) -> String {
        let there = self.config_json(path).and_then(|_| self.configs.get(path[0]));
        there.map_or_else(String::new, |c| format!(" in {}/config.json", c.dir))
    }
}

/// A name in a limit: what it stands for, and where it got that.
struct Fact {
    text: String,
    value: String,
    span: Option<Span>,
    /// The place is a declaration that nothing else decides, such as the dtype of a weight.
    declared: bool,
}

fn facts_of(values: &Values, e: &Expr) -> Vec<Fact> {
    let mut out = Vec::new();
    match &e.kind {
        ExprKind::Name(n) => {
            if let Ok(value) = values.binding(None, n, e.span) {
                let set = values.sets.get(n).map(|(_, s)| *s);
                let span = set.or_else(|| binding_span(&values.decl.bindings, n));
                out.push(Fact { text: n.clone(), value: value.to_string(), span, declared: false });
            }
        }
        ExprKind::Attr(..) => {
            let text = e.to_string();
            let path: Vec<&str> = text.split('.').collect();
            if let Some(object) = values.config_object(e) {
                let shown: String = object.to_string().chars().take(MOST_SHOWN).collect();
                let value = format!("{shown}{}", values.file_of(&path));
                out.push(Fact { text, value, span: None, declared: false });
            } else if let Ok(value) = values.path(&path, e.span) {
                let (span, declared) = match values.weight_dtype_span(&path) {
                    Some(span) => (Some(span), true),
                    None => (fact_span(values, &path), false),
                };
                let value = format!("{value}{}", if span.is_none() { values.file_of(&path) } else { String::new() });
                out.push(Fact { text, value, span, declared });
            }
        }
        ExprKind::Unary(_, x) => out.extend(facts_of(values, x)),
        ExprKind::Binary(_, a, b) => {
            out.extend(facts_of(values, a));
            out.extend(facts_of(values, b));
        }
        ExprKind::Call { args, .. } => args.iter().for_each(|a| out.extend(facts_of(values, a))),
        _ => {}
    }
    out
}

fn fact_span(values: &Values, path: &[&str]) -> Option<Span> {
    let [first, key, ..] = path else { return None };
    if let Some((_, s)) = values.sets.get(&path.join(".")) {
        return Some(*s);
    }
    if *first == "serve" {
        return values.decl.serve.iter().find(|(k, _)| k.name == *key).map(|(_, e)| e.span);
    }
    if let Some(c) = values.decl.components.iter().find(|c| c.name.name == *first) {
        return place_of(values.sets, values.decl, c, key);
    }
    let p = values.decl.pools.iter().find(|p| p.name.name == *first)?;
    match *key {
        "kind" => Some(p.kind.span),
        "dtype" => p.dtype.as_ref().map(|d| d.span),
        _ => None,
    }
}
