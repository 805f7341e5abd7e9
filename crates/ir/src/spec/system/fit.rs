//! Whether a value is one that a graph file declares.

use crate::diag::{Diagnostic, Span, codes, suggest};
use crate::spec::ast::{GraphFile, ListKind, ParamKind};
use crate::spec::expr::Ident;
use crate::spec::statics::Static;

/// A value given at `span` as what a file declares under a name; as it is if the file declares no such name.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn fit(f: &GraphFile, name: &str, v: Static, span: Span) -> Result<Static, Box<Diagnostic>> {
    let wrong = |code, text: String, declared: &Ident, near: Option<String>| {
        let d = Diagnostic::error(code, span, text).related(declared.span, "declared here");
        Err(Box::new(match near {
            Some(near) => d.help(near),
            None => d,
        }))
    };
    if let Some(d) = f.dims.iter().find(|d| d.name.name == name) {
        return match v.as_i64() {
            Some(n) if n > 0 => Ok(Static::from(n)),
            _ => wrong(codes::BOUNDS, format!("dim `{name}` is a positive integer, this is {v}"), &d.name, None),
        };
    }
    if let Some(p) = f.params.iter().find(|p| p.name.name == name) {
        return fit_param(&p.kind, p.optional, &v).or_else(|want| {
            let near = if let ParamKind::OneOf(words) = &p.kind { near_word(words, &v) } else { None };
            wrong(codes::CONFIG_KEY, format!("parameter `{name}` is {want}, this is {v}"), &p.name, near)
        });
    }
    let Some(l) = f.lists.iter().find(|l| l.name.name == name) else { return Ok(v) };
    let Static::List(items) = &v else {
        return wrong(codes::CONFIG_KEY, format!("`{name}` is a list, this is {v}"), &l.name, None);
    };
    match fit_list(&l.kind, items) {
        Ok(()) => Ok(v),
        Err((item, want)) => {
            let near = if let ListKind::OneOf(words) = &l.kind { near_word(words, item) } else { None };
            wrong(codes::CONFIG_KEY, format!("an entry of `{name}` is {want}, this is {item}"), &l.name, near)
        }
    }
}

/// The value as the parameter's kind has it.
///
/// # Errors
/// What the parameter is, as in "`eps` is a number".
fn fit_param(kind: &ParamKind, optional: bool, v: &Static) -> Result<Static, String> {
    let fitted = match (kind, v) {
        (_, Static::None) if optional => Some(v.clone()),
        (ParamKind::Int, Static::Int(_)) | (ParamKind::Bool, Static::Bool(_)) => Some(v.clone()),
        (ParamKind::Int, Static::Float(f)) if f.fract() == 0.0 => Some(Static::from(*f as i64)),
        (ParamKind::Float, Static::Int(_) | Static::Float(_)) => v.as_f64().map(Static::Float),
        (ParamKind::OneOf(words), Static::Str(w)) if words.contains(w) => Some(v.clone()),
        _ => None,
    };
    let or_none = if optional { " or none" } else { "" };
    fitted.ok_or_else(|| match kind {
        ParamKind::Int => format!("an integer{or_none}"),
        ParamKind::Float => format!("a number{or_none}"),
        ParamKind::Bool if optional => "true, false or none".to_string(),
        ParamKind::Bool => "true or false".to_string(),
        ParamKind::OneOf(words) => format!("one of {}", words.join(", ")),
    })
}

/// Whether the entries of a list are of its kind.
///
/// # Errors
/// The first that is not, with what it should be.
fn fit_list<'v>(kind: &ListKind, items: &'v [Static]) -> Result<(), (&'v Static, String)> {
    for item in items {
        match (kind, item) {
            (ListKind::Int, Static::Int(_)) => {}
            (ListKind::Int, _) => return Err((item, "an integer".to_string())),
            (ListKind::OneOf(words), Static::Str(w)) if words.contains(w) => {}
            (ListKind::OneOf(words), _) => return Err((item, format!("one of {}", words.join(", ")))),
        }
    }
    Ok(())
}

/// "Did you mean", for a value that is none of the words.
pub(super) fn near_word(words: &[String], v: &Static) -> Option<String> {
    let Static::Str(w) = v else { return None };
    suggest(w, words.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"))
}
