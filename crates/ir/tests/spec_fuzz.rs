//! No text is too strange: loading ends soon, never panics, and a system without errors lowers and verifies.
//!
//! `SPINEC_FUZZ_CASES=N` runs N cases of each property.

mod spec_support;

use proptest::prelude::*;
use spec_support::{Repository, check, yaml_files};
use spinec_ir::diag::{Severity, render, to_json};
use spinec_ir::ir::verify::verify;
use spinec_ir::spec::Host;
use spinec_ir::spec::system::Overrides;
use std::time::{Duration, Instant};

/// The repository with other contents for one file.
struct With<'a> {
    path: &'a str,
    bytes: &'a [u8],
}

impl Host for With<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == self.path { Ok(self.bytes.to_vec()) } else { Repository.read(path) }
    }
}

/// Loads `root`, which may refer to the changed file, and does with the result what every command does.
fn survives(root: &str, path: &str, bytes: &[u8]) {
    let start = Instant::now();
    let (sources, found, system) = check(root, &With { path, bytes }, &Overrides::default());
    let shown = render(&found, &sources, true, 80);
    let json = to_json(&found, &sources);
    assert_eq!(json.len(), found.len());
    for d in &found {
        assert_ne!(d.code, "E0901", "{shown}");
        assert!(d.help.is_some() || d.severity != Severity::Error, "no help: {} {}", d.code, d.message);
    }
    if found.is_empty()
        && let Some(s) = system
    {
        let choices = [("law", "mixed"), ("candidates", "coarse")].map(|(k, v)| (k.to_string(), v.to_string())).into();
        let m = s.phase_module(&choices, &|_, _| true).unwrap_or_else(|d| panic!("{d:?}"));
        assert!(verify(&m.module).is_empty());
    }
    // A release build takes a tenth of this.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("SPINEC_FUZZ_CASES").ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    ProptestConfig { cases, ..ProptestConfig::default() }
}

/// Words, numbers, runs of spaces and single signs.
fn tokens(text: &str) -> Vec<&str> {
    let kind = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => 0,
        ' ' => 1,
        _ => 2,
    };
    let mut out = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (i, c) in text.char_indices() {
        if last.is_some_and(|l| l != kind(c) || l == 2) {
            out.push(&text[start..i]);
            start = i;
        }
        last = Some(kind(c));
    }
    out.push(&text[start..]);
    out
}

/// One change of a token list; places are taken modulo its length.
#[derive(Clone, Debug)]
enum Change {
    Delete(usize),
    Double(usize),
    Swap(usize, usize),
    Replace(usize, usize),
    Insert(usize, &'static str),
}

fn change() -> impl Strategy<Value = Change> {
    const WORDS: &[&str] = &[
        "0",
        "-1",
        "1000000000",
        "9223372036854775807",
        "none",
        "true",
        "1e400",
        "kv",
        "x",
        "N",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        ":",
        ",",
        "\n",
        "  ",
        "'",
        "\"",
        "#",
        "&a ",
        "*a",
        "repeat",
        "scan",
        "match",
        "state",
        "dist ",
        "f64",
        "i32",
        "**",
        "//",
        "share",
        "extends",
        "from",
        "null",
        "é",
        "\t",
    ];
    prop_oneof![
        any::<usize>().prop_map(Change::Delete),
        any::<usize>().prop_map(Change::Double),
        any::<(usize, usize)>().prop_map(|(a, b)| Change::Swap(a, b)),
        any::<(usize, usize)>().prop_map(|(a, b)| Change::Replace(a, b)),
        (any::<usize>(), prop::sample::select(WORDS)).prop_map(|(a, w)| Change::Insert(a, w)),
    ]
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut list = tokens(text);
    for c in changes {
        let n = list.len().max(1);
        match *c {
            Change::Delete(a) if !list.is_empty() => {
                list.remove(a % n);
            }
            Change::Double(a) => list.insert(a % n, list[a % n]),
            Change::Swap(a, b) => list.swap(a % n, b % n),
            Change::Replace(a, b) => list[a % n] = list[b % n],
            Change::Insert(a, w) => list.insert(a % n, w),
            Change::Delete(_) => {}
        }
    }
    list.concat()
}

/// Files of the two hybrid systems, with a system that loads each.
fn parts() -> Vec<(String, &'static str)> {
    let mut out: Vec<(String, &'static str)> = Vec::new();
    for part in yaml_files("graphs/parts") {
        out.push((part, "graphs/hybrid-dspine.yaml"));
    }
    out.push(("graphs/parts/system_dflash.yaml".into(), "graphs/hybrid-dflash.yaml"));
    out.push(("graphs/parts/plain_drafter.yaml".into(), "graphs/hybrid-dflash.yaml"));
    out.push(("graphs/parts/greedy_head.yaml".into(), "graphs/hybrid-dflash.yaml"));
    out.push(("graphs/hybrid-dspine.yaml".into(), "graphs/hybrid-dspine.yaml"));
    out
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn mutated_systems(which in any::<usize>(), changes in prop::collection::vec(change(), 1..5)) {
        let all = parts();
        let (path, root) = &all[which % all.len()];
        let text = String::from_utf8(Repository.read(path).expect("is there")).expect("UTF-8");
        survives(root, path, changed(&text, &changes).as_bytes());
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn mutated_graphs(which in any::<usize>(), changes in prop::collection::vec(change(), 1..8)) {
        let all = yaml_files("graphs/parts");
        let path = &all[which % all.len()];
        let text = String::from_utf8(Repository.read(path).expect("is there")).expect("UTF-8");
        survives(path, path, changed(&text, &changes).as_bytes());
    }

    #[test]
    fn mutated_broken_specs(which in any::<usize>(), changes in prop::collection::vec(change(), 1..4)) {
        let all = yaml_files("tests/filetests/diagnostics");
        let path = &all[which % all.len()];
        let bytes = Repository.read(path).expect("is there");
        survives(path, path, changed(&String::from_utf8_lossy(&bytes), &changes).as_bytes());
    }

    #[test]
    fn any_bytes(kind in 0usize..3, bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let heads: [&[u8]; 3] = [b"", b"graph: g\nnodes: ", b"system: s\ncomponents: "];
        let mut all: Vec<u8> = heads[kind].to_vec();
        all.extend(&bytes);
        survives("x.yaml", "x.yaml", &all);
    }

    #[test]
    fn any_lines(lines in prop::collection::vec("[ ]{0,6}[a-z]{1,3}(: ?[-a-z0-9 \\[\\]{}(),.:*&\"'+<=]{0,20})?", 0..20)) {
        let mut text = "graph: g\n".to_string();
        lines.iter().for_each(|l| text.push_str(&format!("{l}\n")));
        survives("x.yaml", "x.yaml", text.as_bytes());
    }
}
