//! Where the numbers in a message came from: dims, lists and parameters of a graph file are bound elsewhere.

use super::System;
use super::decl::ComponentDecl;
use super::given::{Sets, given_help, place_of, set_of};
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
pub(super) fn explain(diags: Diagnostics, sources: &SourceMap, system: &System, sets: &Sets) -> Diagnostics {
    let mut out = Diagnostics::default();
    for d in diags.iter() {
        let d = match CODES.contains(&d.code) {
            true => with_origins(d.clone(), sources, system, sets),
            false => d.clone(),
        };
        out.push(given_help(d, sources));
    }
    out
}

impl System {
    /// Messages about tensors that do not fit the weights bound to them, with the values of the command line that the
    /// declared types are made of, and a remedy.
    pub fn explain_tensors(&self, diags: Diagnostics, sources: &SourceMap) -> Diagnostics {
        let mut out = Diagnostics::default();
        for d in diags.iter() {
            let mut d = d.clone();
            if let Some(place) = d.span {
                for c in self.components_with(place) {
                    for word in words(sources, place) {
                        let value = self.values.get(&c.name.name).and_then(|v| v.get(word));
                        let set = set_of(&self.sets, c, word).map(|(_, at)| at);
                        if let (Some(at), Some(v)) = (set, value)
                            && !d.related.iter().any(|r| r.span == at)
                        {
                            d = d.related(at, format!("`{word}` is {v}"));
                        }
                    }
                }
            }
            out.push(d);
        }
        crate::spec::once(out)
    }

    /// The components whose graphs a place is in, or in files they import.
    fn components_with(&self, place: Span) -> Vec<&ComponentDecl> {
        let holds = |c: &&ComponentDecl| {
            let files = self.component_files.get(&c.name.name).map(|i| self.files.needed(*i)).unwrap_or_default();
            files.iter().any(|i| self.files.list[*i].file == place.file)
        };
        self.decl.components.iter().filter(holds).collect()
    }
}

fn with_origins(mut d: Diagnostic, sources: &SourceMap, system: &System, sets: &Sets) -> Diagnostic {
    let mut found: Vec<(Span, String)> = Vec::new();
    let of_values = d.related.iter().filter(|r| r.message != CALLED);
    let places: Vec<Span> = d.span.into_iter().chain(of_values.map(|r| r.span)).collect();
    for place in &places {
        for g in given(&d, *place, system, sets) {
            if !found.contains(&g) {
                found.push(g);
            }
        }
    }
    for place in places {
        // A file of several components is bound by each; the first one speaks for all.
        let owner = system.decl.components.iter().find(|c| {
            system.component_files.get(&c.name.name).is_some_and(|i| system.files.list[*i].file == place.file)
        });
        let Some(c) = owner else { continue };
        let Some(values) = system.values.get(&c.name.name) else { continue };
        for word in words(sources, place) {
            let Some(v @ (Static::Int(_) | Static::List(_))) = values.get(word) else { continue };
            if let Some(at) = place_of(sets, &system.decl, c, word)
                && !found.iter().any(|(s, _)| *s == at)
            {
                found.push((at, format!("`{word}` is {v}")));
            }
        }
    }
    found.retain(|(at, _)| d.span != Some(*at) && !d.related.iter().any(|r| r.span == *at));
    for (at, text) in found.into_iter().take(MOST) {
        d = d.related(at, text);
    }
    d
}

/// What the command line gives stands on no line of the file, but its value may be among the numbers told.
fn given(d: &Diagnostic, place: Span, system: &System, sets: &Sets) -> Vec<(Span, String)> {
    let told = |value: &str| {
        std::iter::once(&d.message).chain(d.related.iter().map(|r| &r.message)).any(|t| words_of(t).any(|w| w == value))
    };
    let mut out = Vec::new();
    for c in system.components_with(place) {
        for (name, (_, at)) in sets {
            let local = name.strip_prefix(&format!("{}.", c.name.name)).unwrap_or(name);
            let value = system.values.get(&c.name.name).and_then(|v| v.get(local));
            let Some(v @ Static::Int(_)) = value else { continue };
            if set_of(sets, c, local).is_some_and(|(n, _)| n == name) && told(&v.to_string()) {
                out.push((*at, format!("`{local}` is {v}")));
            }
        }
    }
    out
}

/// The words of the line a place begins on.
fn words(sources: &SourceMap, place: Span) -> Vec<&str> {
    let file = sources.file(place.file);
    let line = file.line_col(place.start).0 as usize;
    words_of(file.text.lines().nth(line).unwrap_or("")).collect()
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}
