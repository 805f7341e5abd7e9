//! `spinec explain` and `why-not` as a user meets them.

mod cli_support;

use cli_support::*;
use serde_json::Value;
use std::collections::BTreeSet;

const RELEASE: &str = "graphs/qwen3.8-27b-dspine.yaml";

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
        ("d.layers.3", "`d.layers` is a loop: name a value that it computes"),
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

/// Three layers with a loop each, in which the first layer takes another case than the others.
const NEST: &str = "crates/passes/tests/filetests/figures/nest/sys.yaml";

#[test]
fn iterations_of_a_loop_in_a_loop_are_told_apart() {
    let told = |a: &str, b: &str| -> Vec<Value> {
        let v = json(&["why-not", NEST, a, b, "--json"]);
        v["answers"].as_array().expect("answers").iter().filter(|a| a["fact"] == false).cloned().collect()
    };
    let some =
        |found: &[Value], wanted: &str| found.iter().any(|a| a["text"].as_str().is_some_and(|t| t.contains(wanted)));
    // Turns of the inner loop are launches of their own, in one layer and in any.
    for (a, b) in [
        ("t.layers.1.groups.0.zz", "t.layers.1.groups.1.zz"),
        ("t.layers.groups.0.zz", "t.layers.groups.1.zz"),
        ("t.layers.0.groups.1.zz", "t.layers.2.groups.1.zz"),
    ] {
        let found = told(a, b);
        assert!(found.iter().all(|a| a["shared"] == false), "{a} {b}: {found:?}");
    }
    assert!(told("t.layers.1.groups.0.zz", "t.layers.1.groups.0.zz").iter().all(|a| a["shared"] == true));
    // The first layer multiplies, the others do not.
    let families = |value: &str| -> BTreeSet<String> {
        let p = of_phase(&json(&["explain", NEST, value, "--json"]), "prefill");
        let all = p["kernels"].as_array().expect("kernels").iter();
        all.map(|k| k["family"].as_str().expect("a family").to_owned()).collect()
    };
    assert_eq!(families("t.layers.0.groups.1.kind"), BTreeSet::from(["gemm".to_owned()]));
    assert_eq!(families("t.layers.2.groups.1.kind"), BTreeSet::from(["row".to_owned()]));
    assert_eq!(families("t.layers.groups.kind").len(), 2);
    // What a loop keeps of its first iteration comes from that alone.
    let kept = told("t.layers.first", "t.layers.2.groups.0.zz");
    assert!(some(&kept, "neither needs the other"), "{kept:?}");
    let kept = told("t.layers.first", "t.layers.0.groups.0.zz");
    assert!(some(&kept, "`t.layers.0.groups.0.zz` goes to `t.layers.first`"), "{kept:?}");
}
