//! "Did you mean": the known name closest to an unknown one.

/// Names longer than this are not compared.
const MAX_NAME: usize = 100;

/// The candidate that `name` is probably a misspelling of, if any.
///
/// Compares by edits (insertion, deletion, substitution, transposition), after that by the set of `_`-separated words. At
/// most a third of the name, and at least one edit, may differ. Equal distances go to the alphabetically first candidate,
/// so the order of the candidates has no influence. A candidate equal to `name` is not a suggestion.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let length = name.chars().count();
    if length == 0 || length > MAX_NAME {
        return None;
    }
    let lower = name.to_lowercase();
    let words = sorted_words(&lower);
    let best = candidates.into_iter().filter(|c| *c != name).filter_map(|candidate| {
        let other = candidate.to_lowercase();
        let other_length = other.chars().count();
        let allowed = (length.max(other_length) / 3).max(1);
        if other_length > MAX_NAME || length.abs_diff(other_length) > allowed {
            return None;
        }
        let edits = strsim::damerau_levenshtein(&lower, &other);
        // One edit of a name of one character is another name.
        if edits <= allowed && edits < length.min(other_length) {
            return Some((edits, candidate));
        }
        let reordered = words.len() > 1 && words == sorted_words(&other);
        reordered.then_some((allowed + 1, candidate))
    });
    best.min().map(|(_, candidate)| candidate.to_owned())
}

fn sorted_words(name: &str) -> Vec<&str> {
    let mut words: Vec<_> = name.split('_').collect();
    words.sort_unstable();
    words
}

#[cfg(test)]
mod tests {
    use super::suggest;

    #[test]
    fn finds_misspellings() {
        let ops = ["rms_norm", "softmax", "softplus", "linear", "gather", "einsum"];
        let of = |name| suggest(name, ops);
        assert_eq!(of("rmsnorm").as_deref(), Some("rms_norm"));
        assert_eq!(of("norm_rms").as_deref(), Some("rms_norm"));
        assert_eq!(of("Linear").as_deref(), Some("linear"));
        assert_eq!(of("gahter").as_deref(), Some("gather"));
        assert_eq!(of("softmx").as_deref(), Some("softmax"));
        assert_eq!(of("attention"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn short_names_and_ties() {
        assert_eq!(suggest("x", ["y", "z"]), None);
        assert_eq!(suggest("x", ["X"]).as_deref(), Some("X"));
        assert_eq!(suggest("kx", ["kb", "ka"]).as_deref(), Some("ka"));
        assert_eq!(suggest("kx", ["ka", "kb"]).as_deref(), Some("ka"));
        assert_eq!(suggest("ka", ["ka"]), None);
        assert_eq!(suggest("größe", ["grösse", "große"]).as_deref(), Some("große"));
    }
}
