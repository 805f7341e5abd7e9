//! Which crate may see which: what makes an artifact deployable is that the executor does without the compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// For every package, those it needs to be built, tests aside.
fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--all-features"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).expect("metadata is JSON");
    let text = |v: &serde_json::Value| v.as_str().expect("a text").to_owned();
    let names: BTreeMap<String, String> =
        v["packages"].as_array().expect("packages").iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();
    let mut out: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in v["resolve"]["nodes"].as_array().expect("nodes") {
        let needed = node["deps"].as_array().expect("deps").iter().filter(|d| {
            let kinds = d["dep_kinds"].as_array().expect("kinds");
            kinds.iter().any(|k| k["kind"].is_null())
        });
        let needed = needed.map(|d| names[&text(&d["pkg"])].clone());
        out.entry(names[&text(&node["id"])].clone()).or_default().extend(needed);
    }
    out
}

fn reach(graph: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let mut stack = vec![from.to_owned()];
    while let Some(p) = stack.pop() {
        for next in graph.get(&p).into_iter().flatten() {
            if out.insert(next.clone()) {
                stack.push(next.clone());
            }
        }
    }
    out
}

#[test]
fn the_executor_does_without_the_compiler_and_nobody_below_sees_those_above() {
    let graph = graph();
    let refused: &[(&str, &[&str])] = &[
        ("spinec-exec", &["spinec-passes", "spinec-codegen-cuda", "spinec-ptx", "egg"]),
        ("spinec-ir", &["spinec-passes", "spinec-exec", "spinec-codegen-cuda", "spinec-ptx", "egg", "cudarc"]),
        ("spinec-passes", &["spinec-exec", "spinec-codegen-cuda", "spinec-ptx", "cudarc", "libloading"]),
        ("spinec-ptx", &["spinec-passes", "spinec-exec", "spinec-codegen-cuda", "egg"]),
        ("spinec-codegen-cuda", &["spinec-exec"]),
    ];
    for (from, not) in refused {
        assert!(graph.contains_key(*from), "{from} is a package");
        let seen = reach(&graph, from);
        for p in *not {
            assert!(!seen.contains(*p), "{from} must not depend on {p}");
        }
    }
}
