//! Seeded bugs: every one is reported with the right kind at the right source line.
//!
//! `mutants.json` says what is replaced in which kernel, the kind of the finding, a text of its source line (`at`) and,
//! where the finding has two sides, one of the other's (`other`); of a race either access may come first. The PTX of each
//! mutant is stored; a test of the NVRTC driver keeps it current.

mod common;
use common::*;
use spinec_ptx::{Options, Program, Report, parse};
use std::collections::BTreeSet;

#[derive(serde::Deserialize)]
struct Mutant {
    name: String,
    kernel: String,
    find: String,
    replace: String,
    kind: String,
    at: String,
    other: Option<String>,
}

fn mutants() -> Vec<Mutant> {
    let text = std::fs::read_to_string(data("../mutants.json")).expect("mutants.json is in the repository");
    serde_json::from_str(&text).expect("mutants.json has the fields above")
}

fn run(m: &Mutant) -> Report {
    let c = match m.kernel.as_str() {
        "rmsnorm" => rmsnorm(3, 1024),
        "gemm_mma" => gemm_mma(200, 136, 136),
        "gemm_wgmma" => gemm_wgmma(200, 136, 584),
        "topk" => topk(6, 200, 4),
        "attn" => attention(&[37, 125]).split,
        "gdn" => gdn(2),
        "sample" => sample(2, 5000),
        "fp8quant" => fp8quant(7),
        "misc" => misc(100),
        "lastblock" => lastblock(3000, 5),
        "transpose" => transpose(70, 100),
        "tmastore" => tmastore(64, 128),
        "cluster" => cluster(2, 300),
        other => panic!("no launch for {other}"),
    };
    let text = std::fs::read_to_string(data(&format!("mutants/{}.ptx", m.name))).expect("mutant PTX is stored");
    let p = Program::load(&parse(&text).expect("parses"), c.entry).expect("loads");
    c.run(&p, Options { idle_rounds: 100, ..Options::default() })
}

/// The one source line of the mutant that contains a text.
fn line(m: &Mutant, text: &str) -> u32 {
    let source = std::fs::read_to_string(data(&format!("../kernels/{}.cu", m.kernel))).expect("kernel exists");
    let source = source.replace(&m.find, &m.replace);
    let hits: Vec<u32> = (1..).zip(source.lines()).filter(|(_, l)| l.contains(text)).map(|(n, _)| n).collect();
    assert_eq!(hits.len(), 1, "{}: lines {hits:?} have {text}", m.name);
    hits[0]
}

#[test]
fn every_mutant_is_reported() {
    let list = mutants();
    let mut missed = Vec::new();
    for m in &list {
        let r = run(m);
        let at = Some(line(m, &m.at));
        let other = m.other.as_ref().map(|o| line(m, o));
        let race = m.kind.ends_with("_race");
        assert!(!race || other.is_some(), "{}: a race has two sides", m.name);
        let right = |f: &spinec_ptx::Finding| {
            let sides = (f.source_line, f.other_source_line);
            f.kind.name() == m.kind && (sides == (at, other) || (race && sides == (other, at)))
        };
        if !r.findings.iter().any(right) {
            let found: String = r.findings.iter().map(|f| format!("\n    {f}")).collect();
            missed.push(format!("\n{}: wanted {} at lines {at:?}, {other:?}, found:{found}", m.name, m.kind));
        }
    }
    assert!(missed.is_empty(), "{} of {} mutants missed:{}", missed.len(), list.len(), missed.concat());
}

#[test]
fn mutants_cover_kernels_and_kinds() {
    let list = mutants();
    let kernels: BTreeSet<_> = list.iter().map(|m| m.kernel.as_str()).collect();
    assert!(list.len() >= 30 && kernels.len() >= 10, "{} mutants of {} kernels", list.len(), kernels.len());
}
