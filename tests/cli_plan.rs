//! `spinec plan` and `passes` as a user meets them.

mod cli_support;

use cli_support::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const RELEASE: &str = "graphs/qwen3.8-27b-dspine.yaml";

fn plan(more: &[&str]) -> Value {
    json(&[&["plan", RELEASE, "--context", "8192", "--json"], more].concat())
}

fn phase<'v>(v: &'v Value, name: &str) -> &'v Value {
    let phases = v["phases"].as_array().expect("phases");
    phases.iter().find(|p| p["name"].as_str().is_some_and(|n| n.starts_with(name))).expect("the phase is planned")
}

fn number(v: &Value, key: &str) -> f64 {
    v[key].as_f64().unwrap_or_else(|| panic!("{key} is a number: {v}"))
}

#[test]
fn the_json_of_a_plan_has_the_fields_of_the_contract() {
    let v = plan(&[]);
    assert_eq!(v["schema"], "spinec.plan/1");
    has(
        &v,
        &[
            ("max_context", 'n'),
            ("max_requests", 'n'),
            ("memory", 'a'),
            ("arena", 'o'),
            ("derived_weights", 'a'),
            ("phases", 'a'),
            ("kernels", 'a'),
            ("fusion", 'a'),
            ("limits_hit", 'a'),
        ],
    );
    assert_eq!(v["fits"], true);
    let wanted = json!({
        "system": "qwen3.8-27b-dspine", "device": "h200", "numerics": "bf16", "law": "greedy", "candidates": "coarse",
        "requests": 8, "context": 8192,
    });
    assert_eq!(v["planned_for"], wanted);
    for m in v["memory"].as_array().expect("memory") {
        has(m, &[("owner", 's'), ("bytes", 'n'), ("per", 's'), ("count", 'n')]);
    }
    has(&v["arena"], &[("peak_bytes", 'n'), ("lower_bound_bytes", 'n'), ("no_reuse_bytes", 'n')]);
    let [peak, low, all] = ["peak_bytes", "lower_bound_bytes", "no_reuse_bytes"].map(|k| number(&v["arena"], k));
    assert!(low <= peak && peak <= all, "{low} {peak} {all}");
    for p in v["phases"].as_array().expect("phases") {
        let counts = ["launches", "bytes_read", "bytes_written", "must_move_bytes", "activation_bytes", "flops"];
        has(p, &counts.map(|n| (n, 'n')));
        assert!(["bandwidth", "compute", "launch"].contains(&p["bound"].as_str().expect("a bound")));
    }
    let ids: BTreeSet<&str> =
        v["kernels"].as_array().expect("kernels").iter().filter_map(|k| k["id"].as_str()).collect();
    assert_eq!(ids.len(), v["kernels"].as_array().map_or(0, Vec::len), "ids are unique");
    for k in v["kernels"].as_array().expect("kernels") {
        has(k, &[("phase", 's'), ("family", 's'), ("ops", 'a'), ("spans", 'a')]);
        assert!(!k["ops"].as_array().expect("ops").is_empty());
    }
    for f in v["fusion"].as_array().expect("fusion") {
        has(f, &[("ops", 'a'), ("reason", 's')]);
        assert!(f["accepted"].is_boolean() && f["reason"] != "unknown" && f["reason"] != "other");
        assert!(f["accepted"] == true || f["detail"].as_str().is_some_and(|d| !d.is_empty()), "{f}");
    }
    assert_eq!(v["limits_hit"].as_array().map(Vec::len), Some(0));
}

/// Every kernel's place in the YAML is a file that is there and a line in it.
#[test]
fn kernels_point_at_the_lines_they_implement() {
    let v = plan(&[]);
    let mut files = BTreeSet::new();
    for k in v["kernels"].as_array().expect("kernels") {
        for s in k["spans"].as_array().expect("spans") {
            let file = s["file"].as_str().expect("a file");
            let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{file}: {e}"));
            let line = s["range"]["start"]["line"].as_u64().expect("a line") as usize;
            assert!(line < text.lines().count(), "{file}:{line}");
            files.insert(file.to_owned());
        }
    }
    assert!(
        files.iter().any(|f| f.ends_with("bridge.yaml")) && files.iter().any(|f| f.ends_with("tail.yaml")),
        "{files:?}"
    );
}

#[test]
fn memory_is_the_issue_s_arithmetic() {
    let v = plan(&["--requests", "8"]);
    let owner = |name: &str| {
        let all = v["memory"].as_array().expect("memory");
        all.iter().find(|m| m["owner"] == name).unwrap_or_else(|| panic!("{name} is listed")).clone()
    };
    // Five layers of eight heads of 128, keys and values, two bytes each.
    assert_eq!(number(&owner("draft_kv"), "bytes"), 20480.0);
    assert_eq!(owner("draft_kv")["per"], "position");
    assert_eq!(number(&owner("draft_kv"), "count"), 8.0 * 8192.0);
    // 48 layers of 48 matrices of 128 x 128 in f32.
    assert_eq!(number(&owner("recurrent"), "bytes"), 48.0 * 48.0 * 128.0 * 128.0 * 4.0);
    assert_eq!(number(&owner("head_fp8"), "bytes"), 248320.0 * (5120.0 + 4.0));
    let kept: Vec<(String, f64)> = v["derived_weights"]
        .as_array()
        .expect("derived weights")
        .iter()
        .filter(|d| d["kept"] == true && d["dtype"] == "bf16" && number(d, "bytes") > 1e8)
        .map(|d| (d["shape"].to_string(), number(d, "bytes")))
        .collect();
    assert_eq!(kept.iter().map(|k| k.0.as_str()).collect::<Vec<_>>(), ["[248320,1024]", "[248320,512]"]);
    assert_eq!(kept.iter().map(|k| k.1).sum::<f64>(), 727.5 * 1024.0 * 1024.0);
}

#[test]
fn a_smaller_budget_keeps_the_direct_form_and_says_why() {
    let full = 729u64 << 20;
    let v = plan(&["--budget", &(full - (600 << 20)).to_string()]);
    let tables = |v: &Value, kept: bool| {
        let all = v["derived_weights"].as_array().expect("derived weights").clone();
        all.into_iter().filter(|d| d["kept"] == kept && number(d, "bytes") > 1e8).collect::<Vec<_>>()
    };
    assert!(tables(&v, true).iter().all(|d| d["dtype"] == "f8e4m3"), "no table fits");
    let refused = tables(&v, false);
    assert!(
        !refused.is_empty() && refused.iter().any(|d| d["reason"].as_str().is_some_and(|r| r.contains("capacity")))
    );
}

#[test]
fn what_does_not_fit_ends_with_4_and_still_shows_the_plan() {
    let with = |n: u64| run(&["plan", DEMO, "--context", "4096", "--requests", &n.to_string()]);
    let d = with(1 << 24);
    assert_eq!(d.code, 4, "{}", d.err);
    assert!(d.out.contains("launches") && d.err.contains("the device has"), "{}", d.err);
    let v = json(&["plan", DEMO, "--context", "4096", "--json"]);
    let most = number(&v, "max_requests") as u64;
    // The figure is this plan's; for other counts other kernels may be chosen, which moves it a little.
    assert_eq!(with(most - most / 100).code, 0, "fewer than max_requests fit: {}", with(most - most / 100).err);
    assert_eq!(with(most + most / 100).code, 4);
    assert_eq!(with(1 << 60).code, 4);
}

#[test]
fn requests_and_positions_obey_the_limits_of_the_system() {
    let d = expect(2, &["plan", RELEASE, "--context", "8192", "--requests", "9"]);
    assert!(d.err.contains("serve.requests"), "{}", d.err);
    for zero in ["--requests", "--context"] {
        expect(2, &["plan", DEMO, zero, "0"]);
    }
}

/// Slow and odd devices change what is fused, never whether a plan is sound.
#[test]
fn devices_of_any_rates_have_plans() {
    let dir = tempfile::tempdir().expect("a directory");
    let record = std::fs::read_to_string("devices/h200.yaml").expect("the record");
    let odd = [
        ("4.8e12", "4.5e11"),
        ("4.8e12", "1e11"),
        ("4.8e12", "2e11"),
        ("4.8e12", "1"),
        ("value: 132", "value: 2147483648"),
        ("6.7e13", "827094"),
        ("9.9e14", "4.7e6"),
        ("3.4e13", "1"),
    ];
    for (k, (from, to)) in odd.iter().enumerate() {
        assert!(record.contains(from), "{from}");
        let path = dir.path().join(format!("{k}.yaml"));
        std::fs::write(&path, record.replace(from, to)).expect("written");
        for law in ["greedy", "mixed"] {
            let device = path.to_string_lossy().into_owned();
            let d = run(&["plan", DEMO, "--context", "1024", "--law", law, "--device", &device]);
            assert_eq!(d.code, 0, "{from} -> {to} {law}: {}", d.err);
        }
    }
    let half = dir.path().join("half.yaml");
    std::fs::write(&half, record.replace("value: 132", "value: 0.5")).expect("written");
    expect(2, &["plan", DEMO, "--device", &half.to_string_lossy()]);
}

#[test]
fn data_that_cannot_be_written_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let out = spinec(&["passes"]).stdout(full).output().expect("the binary starts");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("stdout"));
}

#[test]
fn every_system_is_planned_for_every_law() {
    for system in [DEMO, "graphs/hybrid-dspine.yaml", "graphs/hybrid-dflash.yaml", RELEASE] {
        let golden = [
            "--checkpoint",
            "target=tests/data/golden/s0/target",
            "--checkpoint",
            "drafter=tests/data/golden/s0/drafter",
        ];
        let more: &[&str] = if system.contains("hybrid") { &golden } else { &[] };
        for law in ["greedy", "sampled", "mixed"] {
            let args = [&["plan", system, "--law", law, "--context", "1024", "--requests", "2"], more].concat();
            let d = run(&args);
            assert_eq!(d.code, 0, "{system} {law}: {}", d.err);
        }
    }
}

#[test]
fn the_text_of_a_plan_is_the_same_every_time_and_reads_back() {
    let text = run(&["plan", DEMO, "--text"]);
    assert_eq!((text.code, &text.err), (0, &String::new()));
    assert_eq!(text.out, run(&["plan", DEMO, "--text"]).out);
    let plan = spinec_ir::plan::text::parse(&text.out).unwrap_or_else(|e| panic!("{:?}", e.first()));
    assert_eq!(spinec_ir::plan::text::print(&plan).trim_end(), text.out.trim_end());
}

#[test]
fn a_device_record_of_a_file_is_used_and_its_mistakes_are_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let record = std::fs::read_to_string("devices/h200.yaml").expect("the record");
    let slow = dir.path().join("slow.yaml");
    std::fs::write(&slow, record.replace("4.8e12", "4.8e11")).expect("written");
    let with = |device: &str| json(&["plan", RELEASE, "--context", "8192", "--json", "--device", device]);
    let (fast, slow) = (with("h200"), with(&slow.to_string_lossy()));
    let time = |v: &Value| number(phase(v, "verify"), "estimate_s");
    assert!(time(&slow) > 5.0 * time(&fast), "{} {}", time(&slow), time(&fast));
    let broken = dir.path().join("broken.yaml");
    std::fs::write(&broken, record.replace("bandwidth:", "bandwith:")).expect("written");
    let d = expect(2, &["plan", RELEASE, "--device", &broken.to_string_lossy()]);
    assert!(d.err.contains("bandwith") && d.err.contains("bandwidth"), "{}", d.err);
    expect(2, &["plan", RELEASE, "--device", "no-such-device"]);
}

/// What refused a kernel is named, and nothing is said twice.
#[test]
fn refusals_name_what_stands_between() {
    let v = plan(&[]);
    let fusion = v["fusion"].as_array().expect("fusion");
    let refused = |reason: &str| {
        fusion.iter().filter(|d| d["reason"] == reason).map(|d| d["detail"].as_str().expect("text")).collect::<Vec<_>>()
    };
    let cycles = refused("cycle");
    assert!(!cycles.is_empty() && cycles.iter().all(|d| d.contains('`')), "{cycles:?}");
    for d in refused("grid_dependency") {
        assert!(d.contains('`'), "{d}");
    }
}

#[test]
fn passes_are_listed_run_dumped_and_cut_short() {
    let list = run(&["passes"]);
    for wanted in ["clean", "rewrite", "group", "linear-over-take", "reassociating"] {
        assert!(list.out.contains(wanted), "{wanted}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("dump");
    let d = run(&["passes", DEMO, "--dump-dir", &path.to_string_lossy()]);
    assert_eq!(d.code, 0, "{}", d.err);
    let rewritten = std::fs::read_to_string(path.join("1-rewrite.ir")).expect("the module after a pass");
    spinec_ir::ir::text::parse(&rewritten).unwrap_or_else(|e| panic!("{:?}", e.first()));
    assert!(std::fs::read_to_string(path.join("plan.txt")).expect("the plan").starts_with("spinec-plan"));
    let after = run(&["passes", DEMO, "--print-after", "clean"]);
    assert!(after.out.starts_with("spinec-ir 1"));
    let cut = json(&["passes", DEMO, "--stop-after", "clean", "--json"]);
    assert_eq!(cut["ran"].as_array().map(Vec::len), Some(1));
    let none = json(&["passes", DEMO, "--limit", "0", "--json"]);
    assert!(
        none["regions"]
            .as_array()
            .expect("regions")
            .iter()
            .all(|r| r["fired"].as_object().is_some_and(|f| f.is_empty()))
    );
    let without = json(&["passes", DEMO, "--without", "linear-over-take", "--json"]);
    assert!(!without["regions"].to_string().contains("linear-over-take"));
    expect(2, &["passes", DEMO, "--stop-after", "clean", "--print-after", "group"]);
    for alone in [["--stop-after", "clean"], ["--budget", "4"], ["--set", "B=4"]] {
        expect(2, &["passes", alone[0], alone[1]]);
    }
    let d = run(&["passes", DEMO, "--without", "narrow-storage", "--json"]);
    let v: Value = serde_json::from_str(&d.out).expect("an object");
    assert!(v["regions"].as_array().expect("regions").iter().all(|r| r["narrowed"] == 0));
    assert!(list.out.contains("narrow-storage"));
    expect(2, &["passes", DEMO, "--stop-after", "claen"]);
    expect(2, &["passes", DEMO, "--without", "no-such-rule"]);
}

#[test]
fn numerics_are_checked_pass_by_pass() {
    let golden =
        ["--checkpoint", "target=tests/data/golden/s0/target", "--checkpoint", "drafter=tests/data/golden/s0/drafter"];
    let args = [&["passes", "graphs/hybrid-dspine.yaml", "--check-numerics", "each"], &golden[..]].concat();
    let d = run(&args);
    assert!(d.code == 0 && d.out.contains("the same before and after"), "{}{}", d.out, d.err);
    let short = run(&[&args[..], &["--set", "serve.chunk=2"]].concat());
    assert_eq!(short.code, 0, "{}", short.err);
    for (system, numerics, law) in [
        ("graphs/hybrid-dspine.yaml", "bf16", "mixed"),
        ("graphs/hybrid-dspine.yaml", "f32", "sampled"),
        ("graphs/hybrid-dflash.yaml", "bf16", "greedy"),
    ] {
        let args = ["passes", system, "--check-numerics", "each", "--numerics", numerics, "--law", law, "--json"];
        let v = json(&[&args[..], &golden[..]].concat());
        assert!(v["difference"].is_null() && v["advice"].is_null(), "{system} {numerics} {law}: {v}");
        for a in v["applied"].as_array().expect("bounds") {
            has(a, &[("pass", 's'), ("bound", 'o'), ("values", 'n'), ("worst", 'n')]);
            has(&a["bound"], &[("class", 's'), ("dtype", 's'), ("tolerance", 'n')]);
            assert!(number(a, "worst") <= number(&a["bound"], "tolerance"), "{a}");
        }
    }
    // The rounding of tables has a name and a bound; without either nothing else of the kind is left.
    let rounded = run(&[&args[..], &["--numerics", "bf16"]].concat());
    for wanted in ["the same bits (exact)", "(reassociating in bf16)", "2e-2 (rounding-changing in bf16)"] {
        assert!(rounded.out.contains(wanted), "{wanted}: {}", rounded.out);
    }
    let out: Vec<&str> = [
        "argmax-scale",
        "contract-square",
        "linear-scale-rounded",
        "widen-arithmetic",
        "widen-linear",
        "narrow-storage",
    ]
    .into_iter()
    .flat_map(|r| ["--without", r])
    .collect();
    let kept = run(&[&args[..], &["--numerics", "bf16"], &out[..]].concat());
    assert!(kept.code == 0 && !kept.out.contains("rounding-changing"), "{}{}", kept.out, kept.err);
    let shown = expect(2, &[&args[..], &["--print-after", "clean"]].concat());
    assert!(shown.err.contains("--print-after"), "{}", shown.err);
    let large = expect(2, &["passes", RELEASE, "--check-numerics", "each"]);
    assert!(large.err.contains("small checkpoint"), "{}", large.err);
}

/// Running with and without plans gives the same tokens.
#[test]
fn a_run_gives_the_same_tokens_with_and_without_plans() {
    let tokens = |more: &[&str]| {
        let args =
            [&["run", DEMO, "--prompt", "import os\n", "--max-tokens", "48", "--ignore-eos", "--json"], more].concat();
        json(&args)["requests"][0]["tokens"].clone()
    };
    assert_eq!(tokens(&[]), tokens(&["--unplanned"]));
    assert_eq!(tokens(&[]), tokens(&["--target-only"]));
}
