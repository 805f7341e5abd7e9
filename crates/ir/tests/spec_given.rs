//! Values of the command line: an error they cause stands there, names them among its places and says what to do there.

mod spec_support;

use spec_support::{Repository, check};
use spinec_ir::diag::{Diagnostic, SourceMap};
use spinec_ir::spec::system::Overrides;

fn found(sets: &[(&str, &str)], checkpoints: &[(&str, &str)]) -> (SourceMap, Vec<Diagnostic>) {
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect()
    };
    let over =
        Overrides { sets: pairs(sets), checkpoints: pairs(checkpoints).into_iter().collect(), ..Overrides::default() };
    let (sources, found, _) = check("graphs/hybrid-dspine.yaml", &Repository, &over);
    (sources, found)
}

/// Texts of the lines of a diagnostic's related places.
fn related(d: &Diagnostic, sources: &SourceMap) -> Vec<String> {
    let line = |s: spinec_ir::diag::Span| {
        let f = sources.file(s.file);
        f.text.lines().nth(f.line_col(s.start).0 as usize).unwrap_or("").trim().to_string()
    };
    d.related.iter().map(|r| line(r.span)).collect()
}

#[test]
fn the_remedy_is_an_option() {
    for (name, value) in [("drafter.causal", "5"), ("B", "0"), ("captured", "3"), ("serve.chunk", "none")] {
        let (sources, found) = found(&[(name, value)], &[]);
        let at = found.iter().find(|d| d.span.is_some_and(|s| sources.file(s.file).name == "command line"));
        let d = at.unwrap_or_else(|| panic!("{name}: {found:?}"));
        let span = d.span.expect("it was looked for by its place");
        assert_eq!(sources.text(span), value);
        assert_eq!(sources.file(span.file).text, format!("--set {name}={value}"));
        assert_eq!(d.help, Some(format!("give it another value: --set {name}=VALUE")));
    }
}

#[test]
fn what_is_written_elsewhere_and_replaced_is_not_blamed() {
    // A graph's error, a limit on a system's dim by way of a component, the length of a list, a width.
    let cases: [(&str, &str, &str); 5] = [
        ("target.HD", "7", "HD: target.head_dim"),
        ("KC", "99999", "KC: drafter.dspine_config.head_topk"),
        ("F", "9", "F: len(captured)"),
        ("drafter.QH", "3", "QH: drafter.num_attention_heads"),
        ("H", "3", "H: target.hidden_size"),
    ];
    for (name, value, replaced) in cases {
        let (sources, found) = found(&[(name, value)], &[]);
        let given = format!("--set {name}={value}");
        assert!(!found.is_empty(), "{given}");
        for d in &found {
            let mut places = related(d, &sources);
            places.extend(d.span.map(|s| sources.file(s.file).text.clone()));
            assert!(places.contains(&given), "{given}: {d:?}");
            assert!(!places.iter().any(|p| p == replaced), "{given}: {d:?}");
        }
    }
}

#[test]
fn a_checkpoint_of_the_command_line_is_not_blamed_on_the_file() {
    let folder = "tests/filetests/configs/no-mask-token";
    let (sources, found) = found(&[], &[("drafter", folder)]);
    assert!(!found.is_empty());
    for d in &found {
        assert!(!related(d, &sources).iter().any(|l| l.contains("path:")), "{d:?}");
    }
}
