//! The stop matcher against its definition.

use proptest::prelude::*;
use spinec_exec::text::{EmptyStop, StopMatcher};

/// All text emitted for these pieces, and which string stopped it.
fn run(stops: &[String], pieces: &[&str]) -> (String, Option<usize>) {
    let mut matcher = StopMatcher::new(stops, []).unwrap();
    let mut out = String::new();
    for piece in pieces {
        let step = matcher.push(piece);
        out += &step.emit;
        if step.stopped.is_some() {
            assert_eq!(matcher.push("more").emit, "");
            assert_eq!(matcher.finish(), "");
            return (out, step.stopped);
        }
        // What is held back begins a stop string.
        let mut rest = matcher.clone();
        let held = rest.finish();
        assert!(held.is_empty() || stops.iter().any(|s| s.len() > held.len() && s.starts_with(&held)), "{held:?}");
    }
    out += &matcher.finish();
    (out, None)
}

/// The definition: the smallest end of an occurrence; there the longest string, of equals the first.
fn by_definition(stops: &[String], text: &str) -> (String, Option<usize>) {
    for end in 1..=text.len() {
        let ending = |s: &String| text.as_bytes()[..end].ends_with(s.as_bytes());
        let longest = stops.iter().filter(|s| ending(s)).map(String::len).max();
        if let Some(len) = longest {
            let index = stops.iter().position(|s| s.len() == len && ending(s));
            return (text[..end - len].to_owned(), index);
        }
    }
    (text.to_owned(), None)
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

#[test]
fn text_is_held_back_only_while_it_may_be_a_stop() {
    let mut m = StopMatcher::new(&["END"], [7, 9]).unwrap();
    assert_eq!(m.push("abE").emit, "ab");
    assert_eq!(m.push("N").emit, "");
    assert_eq!(m.push("E").emit, "EN");
    assert_eq!(m.push("ND").stopped, Some(0));
    assert!(m.is_stop_id(9) && !m.is_stop_id(8));
}

#[test]
fn overlapping_and_nested_stops() {
    assert_eq!(run(&strings(&["abc", "b"]), &["xabc"]), ("xa".into(), Some(1)));
    assert_eq!(run(&strings(&["c", "abc"]), &["xab", "c"]), ("x".into(), Some(1)));
    assert_eq!(run(&strings(&["aab"]), &["aa", "ab"]), ("a".into(), Some(0)));
    assert_eq!(run(&strings(&["漢字"]), &["漢漢", "字x"]), ("漢".into(), Some(0)));
    assert_eq!(run(&[], &["any", "thing"]), ("anything".into(), None));
    assert_eq!(run(&strings(&["\n\n"]), &["a\n"]), ("a\n".into(), None));
}

#[test]
fn an_empty_stop_is_refused() {
    assert_eq!(StopMatcher::new(&["a", ""], []), Err(EmptyStop { index: 1 }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The result is the definition's, however the text is cut.
    #[test]
    fn agrees_with_the_definition(
        stops in prop::collection::vec("[ab漢]{1,5}", 0..4),
        pieces in prop::collection::vec("[ab漢c]{0,5}", 0..8),
    ) {
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(run(&stops, &pieces), by_definition(&stops, &pieces.concat()));
    }
}
