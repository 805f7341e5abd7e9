//! Finding weights by name.

use spinec_ir::ir::{Module, Weight};

/// The weight of a name, in which loop variables may be indices: `layers.3.norm` for `layers.{l}.norm`.
///
/// # Errors
/// An index the weight does not have, with those it has.
pub fn weight_of<'m>(module: &'m Module, name: &str) -> Result<Option<(usize, &'m Weight)>, String> {
    for (id, w) in module.weights.iter().enumerate() {
        let (own, asked): (Vec<&str>, Vec<&str>) = (w.name.split('.').collect(), name.split('.').collect());
        let index = |part: &str| part.chars().all(|c| c.is_ascii_digit()) && !part.is_empty();
        let fits = |(a, b): (&&str, &&str)| a == b || a.starts_with('{') && index(b);
        if own.len() != asked.len() || !own.iter().zip(&asked).all(fits) {
            continue;
        }
        let (mut flat, mut whole) = (0i64, true);
        for (var, extent) in &w.loops {
            let at = own.iter().position(|p| *p == format!("{{{var}}}")).map(|i| asked[i]);
            match at.filter(|a| index(a)).map(|a| a.parse::<i64>().unwrap_or(i64::MAX)) {
                Some(at) if at >= *extent => {
                    return Err(format!("`{}` has the indices 0 to {}, {at} is none of them", w.name, extent - 1));
                }
                Some(at) => flat = flat * extent + at,
                None => whole = false,
            }
        }
        if whole && usize::try_from(flat).is_ok_and(|i| w.present.get(i) == Some(&false)) {
            return Err(format!("the checkpoint has no `{name}`: `{}` does not exist for every index", w.name));
        }
        return Ok(Some((id, w)));
    }
    Ok(None)
}
