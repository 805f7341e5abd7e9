//! Whether a value is one that a graph file declares.

use crate::diag::suggest;
use crate::spec::ast::{ListKind, ParamKind};
use crate::spec::statics::Static;

/// The value as the parameter's kind has it.
///
/// # Errors
/// What the parameter is, as in "`eps` is a number".
pub(crate) fn fit_param(kind: &ParamKind, optional: bool, v: &Static) -> Result<Static, String> {
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
pub(crate) fn fit_list<'v>(kind: &ListKind, items: &'v [Static]) -> Result<(), (&'v Static, String)> {
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
pub(crate) fn near_word(words: &[String], v: &Static) -> Option<String> {
    let Static::Str(w) = v else { return None };
    suggest(w, words.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"))
}
