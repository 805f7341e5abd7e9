//! `spinec plan`, `explain`, `why-not` and `passes` as a user meets them.

mod cli_support;

use cli_support::*;
use serde_json::Value;
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

#[test]
fn explain_says_where_a_value_is_computed_and_where_it_is_written() {
    let d = run(&["explain", RELEASE, "d.layers.3.wrote.code"]);
    assert_eq!(d.code, 0, "{}", d.err);
    for wanted in
        ["bridge.yaml", "kernel draft", "block_shift", "prologue", "reads weight", "rules that fired in the region"]
    {
        assert!(d.out.contains(wanted), "{wanted}: {}", d.out);
    }
    let weight = run(&["explain", RELEASE, "target.embed"]);
    assert!(weight.code == 0 && weight.out.contains("is a weight") && weight.out.contains("reads"), "{}", weight.out);
    expect(2, &["explain", RELEASE, ""]);
    let d = expect(2, &["explain", RELEASE, "d.layers.wrote.cod"]);
    assert!(d.err.contains("d.layers.wrote.code"), "{}", d.err);
    assert!(expect(2, &["explain", RELEASE]).err.contains("VALUE"));
    assert!(run(&["explain", "E0301"]).out.starts_with("E0301"));
    let code = json(&["explain", "E0301", "--json"]);
    assert_eq!(code["codes"][0]["code"], "E0301");
    assert!(json(&["explain", "--json"])["codes"].as_array().is_some_and(|c| c.len() > 20));
}

/// The phase of a report whose name begins like that.
fn of_phase(v: &Value, name: &str) -> Value {
    let phases = v["phases"].as_array().expect("phases");
    phases.iter().find(|p| p["phase"].as_str().is_some_and(|n| n.starts_with(name))).expect("the phase").clone()
}

#[test]
fn explain_finds_inputs_outputs_and_what_loops_carry_and_keep() {
    for (value, phase, fact) in [
        ("accepted", "verify", "output `accepted` of the phase"),
        ("features", "verify", "output `features` of the phase"),
        ("proposal", "draft", "output `proposal` of the phase"),
        ("anchor", "draft", "input `anchor` of the phase: i32[N]"),
        (
            "t.layers.x",
            "verify",
            "carried by the loop `t.layers`: `t.embeddings` in the first iteration, then `t.layers.out`",
        ),
        ("t.layers.x", "verify", "ends with: `t.layers.out` of its last iteration"),
        ("t.layers.features", "verify", "`t.layers.out` of iterations 1, 16, 31, 46, 61"),
        ("d.layers.last", "draft", "costs nothing"),
        ("c.ids", "draft", "costs nothing"),
    ] {
        let p = of_phase(&json(&["explain", RELEASE, value, "--json"]), phase);
        let facts = p["facts"].as_array().expect("facts");
        assert!(facts.iter().any(|f| f.as_str().is_some_and(|f| f.contains(fact))), "{value}: {facts:?}");
        let used = p["kernels"].as_array().is_some_and(|k| !k.is_empty())
            || !p["read_by"].as_array().expect("readers").is_empty();
        assert!(used, "{value} is computed or read by some kernel: {p}");
    }
    for value in ["t.logits", "t.final", "d.hidden", "g.walk.token", "d.layers.z.h", "t.layers.y"] {
        let v = json(&["explain", RELEASE, value, "--json"]);
        let kernels = |p: &Value| p["kernels"].as_array().is_some_and(|k| !k.is_empty());
        assert!(v["phases"].as_array().expect("phases").iter().any(kernels), "{value}: {v}");
    }
    for (value, flags) in [("s.q", "--law sampled"), ("q", "--law sampled"), ("exact.ids", "--candidates exact")] {
        let d = expect(2, &["explain", RELEASE, value]);
        assert!(d.err.contains(flags), "{value}: {}", d.err);
        let flags: Vec<&str> = flags.split(' ').collect();
        assert_eq!(run(&[&["explain", RELEASE, value], &flags[..]].concat()).code, 0, "{value}");
        assert!(expect(2, &["why-not", RELEASE, value, "anchor"]).err.contains(flags[0]));
    }
}

#[test]
fn explain_knows_kernels_states_and_tensors() {
    let id = of_phase(&json(&["explain", RELEASE, "d.layers.z.a", "--json"]), "draft")["kernels"][0]["id"].clone();
    let kernel = of_phase(&json(&["explain", RELEASE, id.as_str().expect("an id"), "--json"]), "draft");
    assert_eq!((kernel["kernels"].as_array().map(Vec::len), &kernel["kernels"][0]["id"]), (Some(1), &id), "{kernel}");
    let state = of_phase(&json(&["explain", RELEASE, "drafter.kv", "--json"]), "draft");
    assert!(state["facts"][0].as_str().is_some_and(|f| f.contains("a state of 5 elements")), "{state}");
    assert!(state["kernels"].as_array().is_some_and(|k| k.len() == 2), "{state}");
    for (name, wanted) in [
        ("bridge.codebook.weight", "calls it `drafter.layers.{l}.wrote.codebook`"),
        ("commit", "is a phase"),
        ("commit.99", "no kernel"),
    ] {
        let d = expect(2, &["explain", RELEASE, name]);
        assert!(d.err.contains(wanted), "{name}: {}", d.err);
    }
}

/// Kernels and chains of cases the iteration does not take are not its own.
#[test]
fn an_iteration_shows_the_cases_it_takes_alone() {
    let kernels = |value: &str| -> BTreeSet<String> {
        let p = of_phase(&json(&["explain", RELEASE, value, "--json"]), "verify");
        let regions = p["regions"].as_array().expect("regions").len();
        assert!(regions <= 1 || !value.contains(char::is_numeric), "{value}: {regions} regions");
        p["kernels"].as_array().expect("kernels").iter().map(|k| k["id"].as_str().expect("an id").to_owned()).collect()
    };
    let (second, third) = (kernels("t.layers.2.mixed.out"), kernels("t.layers.3.mixed.out"));
    assert_eq!((second.len(), third.len()), (1, 1));
    assert!(second.is_disjoint(&third));
    let readers = |weight: &str| run(&["explain", RELEASE, weight]).out.matches("kernel verify").count();
    let counts = ["target.layers.{l}.up", "target.layers.2.up", "target.layers.3.up"].map(readers);
    assert_eq!(counts, [2, 1, 1]);
    assert_eq!(kernels("t.layers.mixed.out"), second.union(&third).cloned().collect());
}

/// The steps of a chain, with the fields every step has.
fn steps(chain: &Value) -> Vec<Value> {
    let steps = chain["steps"].as_array().expect("steps").clone();
    for s in &steps {
        has(s, &[("before", 's'), ("after", 's'), ("type", 's')]);
        assert!(s["before"] != s["after"], "{s}");
        match s["rule"].as_str() {
            Some(rule) => {
                let list = run(&["passes"]).out;
                let row = list.lines().find(|l| l.starts_with(&format!("{rule} "))).expect("a rule that there is");
                assert!(row.contains(s["class"].as_str().expect("a class")), "{s}");
            }
            None => assert!(s["again"].is_array(), "{s}"),
        }
    }
    steps
}

/// The chain of a table begins at a line of the YAML and names every rule that led to it.
#[test]
fn explain_shows_the_chain_that_led_to_a_table() {
    let v = json(&["explain", RELEASE, "derived.9", "--json"]);
    assert_eq!(v["schema"], "spinec.explain/1");
    let parts = v["weight"]["parts"].as_array().expect("parts");
    let [part] = parts.as_slice() else { panic!("{} parts", parts.len()) };
    let rules: Vec<String> = steps(part).iter().filter_map(|s| s["rule"].as_str().map(str::to_owned)).collect();
    for wanted in ["norm-definition", "contract-diagonal", "contract-sum", "contract-linear", "linear-over-take"] {
        assert!(rules.iter().any(|r| r == wanted), "{wanted}: {rules:?}");
    }
    // The last rule makes the table.
    assert_eq!(rules.last().map(String::as_str), Some("linear-over-take"));
    let at = &part["written"]["at"];
    let text = std::fs::read_to_string(at["file"].as_str().expect("a file")).expect("the file is there");
    let line = text.lines().nth(at["range"]["start"]["line"].as_u64().expect("a line") as usize).expect("a line");
    assert!(line.contains(at["text"].as_str().expect("text")) && line.contains("einsum"), "{line}");
    assert!(part["chosen"]["type"].as_str().is_some_and(|t| t == "f32[248320, 512]"), "{}", part["chosen"]);
    assert_eq!(part["stored"], "bf16");
    let shown = run(&["explain", RELEASE, "derived.9"]);
    for wanted in ["chain of derived.9", "tail.yaml:31", "linear-over-take (exact)", "stored as bf16", "drafter.norm"] {
        assert!(shown.out.contains(wanted), "{wanted}: {}", shown.out);
    }
    let plain = json(&["explain", RELEASE, "derived.0", "--json"]);
    assert_eq!(plain["weight"]["parts"][0]["status"], "as_written", "{plain}");
    // Joined tables have a chain for each part.
    let joined = json(&["explain", RELEASE, "derived.8", "--json"]);
    let columns: Vec<i64> =
        joined["weight"]["parts"].as_array().expect("parts").iter().filter_map(|p| p["column"].as_i64()).collect();
    assert_eq!(columns, [0, 512]);
}

/// What became of a value that is not computed any more, and which rule did it.
#[test]
fn explain_says_which_rule_did_away_with_a_value() {
    let value = |name: &str| {
        let v = json(&["explain", RELEASE, name, "--json"]);
        let phases = v["phases"].as_array().expect("phases").clone();
        let draft = phases.iter().find(|p| p["phase"].as_str().is_some_and(|n| n.starts_with("draft")));
        draft.expect("the draft phase")["regions"][0]["values"][0].clone()
    };
    // The most likely candidate does not depend on the normaliser.
    let scores = value("g.scores.out");
    assert_eq!((&scores["status"], &scores["removed_by"]), (&"removed".into(), &"argmax-scale".into()), "{scores}");
    let last = steps(&scores).pop().expect("a step");
    assert!(last["before"].as_str().is_some_and(|t| t.contains("rsqrt")), "{last}");
    assert!(last["after"].as_str().is_some_and(|t| !t.contains("rsqrt")), "{last}");
    assert_eq!(scores["part_of"], "g.best");
    // A row of the codebook is never read: what is done to it is done to the table.
    let row = value("g.scores.e");
    assert_eq!((&row["status"], &row["held_by"]), (&"removed".into(), &serde_json::json!(["derived.8"])), "{row}");
    let best = value("g.best");
    assert_eq!(best["status"], "rewritten");
    assert!(steps(&best).len() > 10, "{best}");
    let written = value("d.final");
    assert_eq!((&written["status"], steps(&written).len()), (&"as_written".into(), 0), "{written}");
    let shown = run(&["explain", RELEASE, "g.scores.out"]);
    assert!(shown.out.contains("argmax-scale makes g.best without it"), "{}", shown.out);
    let kept = run(&["explain", RELEASE, "d.final"]);
    assert!(kept.out.contains("no rule rewrote it"), "{}", kept.out);
}

/// Only regions that have the value are listed, by their records.
#[test]
fn explain_lists_the_regions_of_the_value_alone() {
    let v = json(&["explain", RELEASE, "d.layers.wrote.code", "--json"]);
    let regions = v["phases"][0]["regions"].as_array().expect("regions");
    assert_eq!(regions.len(), 1, "{regions:?}");
    assert!(regions[0]["region"].as_str().is_some_and(|r| r.contains("d.layers")), "{}", regions[0]["region"]);
    assert!(regions[0]["fired"].as_object().is_some_and(|f| f.contains_key("linear-scale-rounded")));
    let out = run(&["explain", RELEASE, "d.layers.wrote.code"]).out;
    assert_eq!(out.matches("rules that fired").count(), 1, "{out}");
}

#[test]
fn indices_of_loops_are_looked_at() {
    let third = json(&["explain", RELEASE, "d.layers.3.wrote.code", "--json"]);
    let any = json(&["explain", RELEASE, "d.layers.wrote.code", "--json"]);
    assert_eq!((&third["phases"], &third["iterations"]), (&any["phases"], &serde_json::json!(["d.layers = 3"])));
    for (value, wanted) in [
        ("d.layers.5.wrote.code", "`d.layers` has the indices 0 to 4, 5 is none of them"),
        ("t.layers.2.mixed.qr", "another case"),
        ("g.3.best", "`g` is no loop"),
        ("target.layers.64.mixed.q", "indices 0 to 63"),
        ("target.layers.2.mixed.q", "does not exist for every index"),
        ("d.layers.3.wrote.cod", "did you mean `d.layers.wrote.code`"),
        ("derived.99", "no phase has a value"),
        ("d.layers.4.codes", "it has no index"),
        ("d.layers.99999999999999999999.x", "larger than any index"),
    ] {
        let d = expect(2, &["explain", RELEASE, value]);
        assert!(d.err.contains(wanted), "{value}: {}", d.err);
    }
    let weight = run(&["explain", RELEASE, "target.layers.3.mixed.q"]);
    assert!(weight.code == 0 && weight.out.contains("is a weight"), "{}", weight.err);
    let pair = run(&["why-not", RELEASE, "d.layers.2.z.seen", "d.layers.2.z.a"]);
    assert!(pair.out.contains("effect_between"), "{}", pair.out);
    let d = expect(2, &["why-not", RELEASE, "d.layers.z.seen", "d.layers.9.z.a"]);
    assert!(d.err.contains("0 to 4"), "{}", d.err);
    let output = run(&["explain", RELEASE, "sound"]);
    assert!(output.code == 0 && output.out.contains("chain of"), "{}{}", output.out, output.err);
}

#[test]
fn why_not_gives_the_recorded_reason() {
    let d = run(&["why-not", RELEASE, "d.layers.z.seen", "d.layers.z.a"]);
    assert!(d.code == 0 && d.out.contains("effect_between"), "{}{}", d.out, d.err);
    let same = run(&["why-not", RELEASE, "d.layers.z.qr", "d.layers.z.kr"]);
    assert!(same.out.contains("both are computed by kernel"), "{}", same.out);
    let far = json(&["why-not", RELEASE, "t.layers.m", "d.layers.z.qr", "--json"]);
    assert!(far["answers"][0]["text"].as_str().is_some_and(|t| t.contains("different phases")), "{far}");
    expect(2, &["why-not", RELEASE, "d.layers.z.qr", "nothing.like.this"]);
}

#[test]
fn why_not_knows_loops_cases_weights_and_what_no_kernel_computes() {
    let answers = |a: &str, b: &str| -> Vec<Value> {
        let v = json(&["why-not", RELEASE, a, b, "--json"]);
        v["answers"].as_array().expect("answers").clone()
    };
    let all = |a: &str, b: &str, reason: Value, wanted: &[&str]| {
        let found = answers(a, b);
        assert!(!found.is_empty());
        for answer in found {
            let text = answer["text"].as_str().expect("text");
            assert!(wanted.iter().all(|w| text.contains(w)) && answer["reason"] == reason, "{a} {b}: {answer}");
            assert_eq!(answer["shared"], false);
        }
    };
    let carried = ["carries `t.layers.out` into its next iteration", "leaves row statistics"];
    all("t.layers.out", "t.layers.h", "control".into(), &carried);
    all("t.layers.3.out", "t.layers.4.h", "control".into(), &carried);
    all("t.layers.3.out", "t.layers.3.h", "cycle".into(), &["`t.layers.3.h` goes to `t.layers.3.out`"]);
    all("t.layers.3.h", "t.layers.4.h", "cycle".into(), &["stand between the two"]);
    all("t.layers.63.out", "t.final", "control".into(), &["the loop `t.layers` ends with `t.layers.out`"]);
    all("t.layers.5.out", "t.final", "cycle".into(), &["more launches, which stand between the two"]);
    all("t.layers.h", "t.layers.mixed.out", "cycle".into(), &["stands between the two"]);
    all(
        "target.embed",
        "t.embeddings",
        Value::Null,
        &["weight `target.embed` is read and not computed", "with `t.embeddings`"],
    );
    all("target.embed", "target.head", Value::Null, &["shares no kernel"]);
    let of =
        |found: &[Value], wanted: &str| found.iter().any(|a| a["text"].as_str().is_some_and(|t| t.contains(wanted)));
    let table = answers("derived.8", "g.best");
    assert!(of(&table, "weight `derived.8` is computed before the first run; it is read by kernel draft"), "{table:?}");
    let free = answers("c.ids", "proposal");
    assert!(of(&free, "costs nothing") && of(&free, "`g.best`"), "{free:?}");
    let input = answers("anchor", "proposal");
    assert!(of(&input, "input `anchor` of the phase") && of(&input, "`proposal` is computed by kernel"), "{input:?}");
    let gone = answers("g.scores.out", "g.best");
    assert!(of(&gone, "`g.scores.out` is not computed"), "{gone:?}");
}

/// A way is one of values, not of kernels: what another op of the same kernel needs is not what the value needs.
#[test]
fn why_not_follows_values() {
    let texts = |more: &[&str]| -> Vec<String> {
        let v = json(&[&["why-not", RELEASE], more, &["--json"]].concat());
        let answers = v["answers"].as_array().expect("answers").iter();
        let told =
            answers.filter(|a| a["fact"] == false && a["phase"].as_str().is_none_or(|p| !p.starts_with("prefill")));
        told.map(|a| a["text"].as_str().expect("text").to_owned()).collect()
    };
    let all = |more: &[&str], wanted: &str| {
        let found = texts(more);
        assert!(!found.is_empty() && found.iter().all(|t| t.contains(wanted)), "{more:?}: {found:?}");
    };
    let mixed = ["--law", "mixed"];
    all(&[&["accepted", "t.layers.mixed.qg.gate"], &mixed[..]].concat(), "`t.layers.mixed.qg.gate` goes to `accepted`");
    all(&[&["t.features", "tests"], &mixed[..]].concat(), "neither needs the other");
    // A serial loop inside a kernel is one launch, one of kernels is many.
    all(&["g.walk.0.j", "g.walk.3.j"], "both are computed by kernel draft.coarse.greedy");
    let apart = texts(&["d.layers.1.z.a", "d.layers.2.z.a"]);
    assert!(apart[0].contains("in a launch of its own for each iteration of `d.layers`"), "{apart:?}");
    assert!(apart.iter().all(|t| !t.contains("both are")), "{apart:?}");
    // Iterations take their own cases: 4 and 5 are recurrent, 3 and 7 attend.
    let families = |a: &str, b: &str| texts(&[a, b]).last().expect("an answer").clone();
    let through = families("t.layers.4.h", "t.layers.5.h");
    assert!(through.contains("delta_rule") && !through.contains("attention"), "{through}");
    let through = families("t.layers.3.h", "t.layers.4.h");
    assert!(through.contains("attention") && !through.contains("delta_rule"), "{through}");
    // The first iteration begins with what stands before the loop.
    let kernels = |value: &str| -> Vec<Value> {
        of_phase(&json(&["explain", RELEASE, value, "--json"]), "verify")["kernels"]
            .as_array()
            .expect("kernels")
            .clone()
    };
    let (first, later) = (kernels("t.layers.0.x"), kernels("t.layers.4.x"));
    assert_eq!((first.len(), later.len()), (1, 1));
    let embeds = |k: &Value| k["ops"].as_array().expect("ops").iter().any(|op| op == "take t.embeddings");
    assert!(embeds(&first[0]) && !embeds(&later[0]));
    // 1, 16, 31, 46 and 61 are kept, of which 31 attends.
    assert_eq!(kernels("t.layers.features").len(), 2);
    for (name, wanted) in [("draft.proposal", "write `proposal`"), ("coarse", "stands for several values")] {
        assert!(expect(2, &["explain", RELEASE, name]).err.contains(wanted));
    }
    let shared = run(&["explain", RELEASE, "drafter.context_kv.fill.2.k"]);
    assert!(shared.out.starts_with("drafter.layers.{l}.z.k is a weight"), "{}{}", shared.out, shared.err);
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
    assert!(
        !cycles.is_empty() && cycles.iter().all(|d| d.starts_with('`') || d.contains(" in `") || d.contains('`')),
        "{cycles:?}"
    );
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
