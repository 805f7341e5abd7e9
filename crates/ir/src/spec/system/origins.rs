//! Where the numbers in a message came from: dims, lists and parameters of a graph file are bound elsewhere.

use super::System;
use super::components::binding_span;
use crate::diag::{Diagnostic, Diagnostics, SourceMap, Span, codes};
use crate::spec::lower::CALLED;
use crate::spec::statics::Static;

/// Codes of errors that a bound value can cause.
const CODES: &[&str] = &[
    codes::DIM_MISMATCH,
    codes::RANK_MISMATCH,
    codes::BAD_ATTRIBUTE,
    codes::BAD_INDEX,
    codes::BOUNDS,
    codes::UNKNOWN_NAME,
];
/// Most places added to one message.
const MOST: usize = 4;

/// Adds, to every error in the graph file of a component, the places that bind the names written on the lines involved.
pub(super) fn explain(diags: Diagnostics, sources: &SourceMap, system: &System) -> Diagnostics {
    let mut out = Diagnostics::default();
    for d in diags.iter() {
        out.push(match CODES.contains(&d.code) {
            true => with_origins(d.clone(), sources, system),
            false => d.clone(),
        });
    }
    out
}

fn with_origins(mut d: Diagnostic, sources: &SourceMap, system: &System) -> Diagnostic {
    let mut found: Vec<(Span, String)> = Vec::new();
    let of_values = d.related.iter().filter(|r| r.message != CALLED);
    let places: Vec<Span> = d.span.into_iter().chain(of_values.map(|r| r.span)).collect();
    for place in places {
        // A file of several components is bound by each; the first one speaks for all.
        let owner = system.decl.components.iter().find(|c| {
            system.component_files.get(&c.name.name).is_some_and(|i| system.files.list[*i].file == place.file)
        });
        let Some(c) = owner else { continue };
        let Some(values) = system.values.get(&c.name.name) else { continue };
        for word in words(sources, place) {
            let Some(v @ (Static::Int(_) | Static::List(_))) = values.get(word) else { continue };
            let at = binding_span(&c.bindings, word).or_else(|| binding_span(&system.decl.bindings, word));
            if let Some(at) = at
                && !found.iter().any(|(s, _)| *s == at)
            {
                found.push((at, format!("`{word}` is {v}")));
            }
        }
    }
    for (at, text) in found.into_iter().take(MOST) {
        d = d.related(at, text);
    }
    d
}

/// The words of the line a place begins on.
fn words(sources: &SourceMap, place: Span) -> Vec<&str> {
    let file = sources.file(place.file);
    let line = file.line_col(place.start).0 as usize;
    let text = file.text.lines().nth(line).unwrap_or("");
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty()).collect()
}
