//! Plans of the systems of the repository.

mod plan_support;
mod support;

use plan_support::*;
use spinec_ir::plan::text::{parse, print};
use std::collections::BTreeSet;
use support::*;

const LAWS: [&str; 3] = ["greedy", "sampled", "mixed"];

#[test]
fn every_system_has_a_valid_plan() {
    for spec in SYSTEMS {
        for law in LAWS {
            let plan = usual(phases(spec, law));
            assert_eq!(complaints(&plan), "", "{spec} {law}");
            assert!(plan.limits_hit.is_empty(), "{spec} {law}: {:?}", plan.limits_hit);
            for phase in &plan.phases {
                let mut seen = BTreeSet::new();
                for d in &phase.decisions {
                    assert!(seen.insert((d.producer, d.consumer)), "{spec} {law}: {d:?} stands twice");
                    assert!(d.accepted || !d.detail.is_empty(), "{spec} {law}: {d:?} says nothing");
                }
            }
            let unfused = planned(phases(spec, law), &options(), false);
            assert_eq!(complaints(&unfused), "", "{spec} {law}");
            assert!(unfused.phases.iter().all(|p| p.decisions.is_empty()));
        }
    }
}

fn options() -> spinec_passes::pass::Options {
    spinec_passes::pass::Options::new(plan_support::h200())
}

#[test]
fn text_loses_nothing() {
    for spec in SYSTEMS {
        let plan = usual(phases(spec, "mixed"));
        let text = print(&plan);
        let again = parse(&text).unwrap_or_else(|e| panic!("{spec}: {}", e[0]));
        assert!(print(&again) == text, "{spec}");
        assert!(again == unspanned(&plan), "{spec}");
        assert_eq!(complaints(&again), "", "{spec}");
    }
}

#[test]
fn plans_do_not_depend_on_run_or_thread() {
    let text = || print(&usual(phases(SYSTEMS[3], "sampled")));
    let once = text();
    assert!(once == text());
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(text)).collect();
    for t in threads {
        assert!(t.join().expect("the thread ends") == once);
    }
}

/// Plans are the same on every machine: hashes of their text, `SPINEC_BLESS=1` writes them anew.
#[test]
fn plans_are_the_recorded_ones() {
    let mut found = String::new();
    for spec in SYSTEMS {
        for law in LAWS {
            found.push_str(&format!("{spec} {law} {:016x}\n", hash(&print(&usual(phases(spec, law))))));
        }
    }
    let path = root().join("crates/passes/tests/plan_hashes.txt");
    if std::env::var_os("SPINEC_BLESS").is_some() {
        std::fs::write(&path, &found).expect("the file can be written");
    }
    let want = std::fs::read_to_string(&path).expect("the file is there");
    assert_eq!(found, want, "SPINEC_BLESS=1 records the new hashes");
}
