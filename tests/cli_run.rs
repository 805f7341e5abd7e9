//! `spinec run` as a user meets it.

mod cli_support;

use cli_support::*;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::Stdio;
use tempfile::TempDir;

const PROMPT: &str = "def main():\n    ";

fn demo(more: &[&str]) -> Vec<String> {
    ["run", DEMO].iter().chain(more).map(|s| s.to_string()).collect()
}

fn demo_json(more: &[&str]) -> Value {
    let args = demo(&[more, &["--json"]].concat());
    json(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn demo_expect(code: i32, more: &[&str]) -> Done {
    let args = demo(more);
    expect(code, &args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn the_json_of_a_run_has_the_fields_of_the_contract() {
    let v = demo_json(&["--prompt", PROMPT, "--max-tokens", "24"]);
    assert_eq!(v["schema"], "spinec.run/1");
    has(&v, &[("requests", 'a'), ("totals", 'o')]);
    let r = &v["requests"][0];
    has(r, &[("id", 's'), ("prompt_tokens", 'n'), ("tokens", 'a'), ("text", 's'), ("finish", 's'), ("cycles", 'a')]);
    let mut committed = 0;
    for c in r["cycles"].as_array().expect("cycles") {
        has(c, &[("position", 'n'), ("width", 'n'), ("proposal", 'a'), ("accepted", 'n'), ("committed", 'n')]);
        assert_eq!((c["proposal"].as_array().map(Vec::len), &c["width"]), (Some(15), &json!(16)));
        committed += c["committed"].as_u64().expect("a count");
    }
    assert_eq!(r["tokens"].as_array().map(|t| t.len() as u64), Some(1 + committed));
    assert_eq!(r["finish"], "length");
    let t = &v["totals"];
    has(
        t,
        &[
            ("tokens", 'n'),
            ("cycles", 'n'),
            ("accept_length", 'n'),
            ("accept_rate", 'n'),
            ("tokens_per_s", 'n'),
            ("time_s", 'o'),
            ("peak_bytes", 'o'),
        ],
    );
    let times = ["load", "prefill", "draft", "tail", "verify", "accept", "commit", "wall"];
    has(&t["time_s"], &times.map(|n| (n, 'n')));
    let owners = [
        "weights",
        "derived",
        "head_fp8",
        "target_kv",
        "draft_kv",
        "recurrent",
        "replay",
        "conv",
        "arena",
        "graph_pools",
        "staging",
    ];
    for (owner, bytes) in t["peak_bytes"].as_object().expect("owners") {
        assert!(owners.contains(&owner.as_str()) && bytes.is_u64(), "{owner}: {bytes}");
    }
    assert!(t["peak_bytes"]["weights"].as_u64().is_some_and(|b| b > 1 << 20));
}

#[test]
fn streamed_text_is_the_final_text_and_messages_stay_on_stderr() {
    for more in [
        &["--max-tokens", "40"][..],
        &["--max-tokens", "40", "--temperature", "0.8", "--seed", "5"],
        &["--max-tokens", "40", "--target-only"],
    ] {
        let args = [&["--prompt", PROMPT], more].concat();
        let d = demo_expect(0, &args);
        let v = demo_json(&args);
        assert_eq!(d.out, format!("{}\n", v["requests"][0]["text"].as_str().expect("text")));
        assert!(d.err.starts_with("note: ") && d.err.contains("tokens/s"), "{}", d.err);
    }
    let greedy = demo_json(&["--prompt", PROMPT, "--max-tokens", "40"]);
    let plain = demo_json(&["--prompt", PROMPT, "--max-tokens", "40", "--target-only", "--greedy"]);
    assert_eq!(greedy["requests"][0]["tokens"], plain["requests"][0]["tokens"]);
    assert!(plain["requests"][0]["cycles"][0]["proposal"].as_array().is_some_and(Vec::is_empty));
}

#[test]
fn prompts_come_as_text_file_or_ids() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("prompt.txt");
    std::fs::write(&file, PROMPT).expect("a file");
    let a = demo_json(&["--prompt", PROMPT, "--max-tokens", "8"]);
    let b = demo_json(&["--prompt-file", text(&file), "--max-tokens", "8"]);
    assert_eq!(a["requests"], b["requests"]);
    let c = demo_json(&[
        "--prompt-ids",
        "5, 6,7",
        "--max-tokens",
        "8",
        "--width",
        "3",
        "--candidates",
        "exact",
        "--threads",
        "1",
    ]);
    assert_eq!((&c["requests"][0]["prompt_tokens"], &c["requests"][0]["cycles"][0]["width"]), (&json!(3), &json!(3)));
    // A special token in the text is one token.
    let special = demo_json(&["--prompt", "<|im_start|>", "--max-tokens", "1"]);
    assert_eq!(special["requests"][0]["prompt_tokens"], 1);
    assert_eq!(special["requests"][0]["cycles"], json!([]));
}

#[test]
fn stops_end_the_text() {
    let free = demo_json(&["--prompt", PROMPT, "--max-tokens", "40", "--ignore-eos"]);
    let whole = free["requests"][0]["text"].as_str().expect("text").to_string();
    let tokens = free["requests"][0]["tokens"].as_array().expect("tokens").clone();
    let stop: String = whole.chars().skip(10).take(4).collect();
    let d =
        demo_json(&["--prompt", PROMPT, "--max-tokens", "40", "--ignore-eos", "--stop", "\u{1}never", "--stop", &stop]);
    let r = &d["requests"][0];
    assert_eq!(
        (r["finish"].as_str(), r["text"].as_str()),
        (Some("stop"), Some(&whole[..whole.find(&stop).expect("it is there")]))
    );
    let id = tokens[6].to_string();
    let first = tokens.iter().position(|t| *t == tokens[6]).expect("it is there");
    let d = demo_json(&["--prompt", PROMPT, "--max-tokens", "40", "--ignore-eos", "--stop-ids", &format!("7, {id}")]);
    assert_eq!(d["requests"][0]["tokens"].as_array().map(Vec::len).map(|n| n <= first + 1), Some(true));
    assert_eq!(d["requests"][0]["finish"], "stop");
}

#[test]
fn requests_of_a_file_keep_their_order_and_their_own_settings() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("requests.jsonl");
    let lines = [
        json!({"id": "long", "prompt": PROMPT, "max_tokens": 40}),
        json!({"id": "ids", "prompt_ids": [1, 2, 3], "max_tokens": 3, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "seed": 9}),
        json!({"id": "gone", "prompt": "import os", "max_tokens": 30, "cancel_after": 2}),
        json!({"prompt": "class A:", "stop": ["\n"], "stop_ids": [3]}),
        json!({"id": "cold", "prompt": PROMPT, "max_tokens": 5, "temperature": 0.0}),
    ];
    let more: Vec<Value> =
        (0..7).map(|i| json!({"id": format!("more{i}"), "prompt_ids": [i + 1], "max_tokens": 1 + i})).collect();
    let all: Vec<String> = lines.iter().chain(&more).map(Value::to_string).collect();
    std::fs::write(&file, all.join("\n") + "\n\n").expect("a file");
    let v = demo_json(&["--requests", text(&file), "--max-tokens", "10"]);
    let ids: Vec<&str> =
        v["requests"].as_array().expect("requests").iter().map(|r| r["id"].as_str().expect("an id")).collect();
    let mut want = vec!["long", "ids", "gone", "3", "cold"];
    let rest: Vec<String> = (0..7).map(|i| format!("more{i}")).collect();
    want.extend(rest.iter().map(String::as_str));
    assert_eq!(ids, want);
    let r = |i: usize| &v["requests"][i];
    assert_eq!(r(0)["tokens"].as_array().map(Vec::len), Some(40));
    assert_eq!((r(2)["finish"].as_str(), r(2)["tokens"].as_array().map(Vec::len)), (Some("cancelled"), Some(2)));
    assert!(!r(3)["text"].as_str().expect("text").contains('\n'));
    assert_eq!(r(4)["tokens"].as_array().expect("tokens")[..], r(0)["tokens"].as_array().expect("tokens")[..5]);
    let alone = demo_json(&[
        "--prompt-ids",
        "1,2,3",
        "--max-tokens",
        "3",
        "--temperature",
        "0.7",
        "--top-k",
        "20",
        "--top-p",
        "0.9",
        "--seed",
        "9",
    ]);
    assert_eq!(alone["requests"][0]["tokens"], r(1)["tokens"]);
    // Without --json: one object a line, in the same order.
    let d = demo_expect(0, &["--requests", text(&file), "--max-tokens", "10"]);
    let lines: Vec<Value> = d.out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(lines.len(), 12);
    for (l, r) in lines.iter().zip(v["requests"].as_array().expect("requests")) {
        assert_eq!((&l["id"], &l["tokens"], &l["text"]), (&r["id"], &r["tokens"], &r["text"]));
    }
    // From standard input.
    let mut child = spinec(&["run", DEMO, "--requests", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("stdin").write_all(all[1].as_bytes()).expect("it reads");
    let d = done(child.wait_with_output().expect("it ends"));
    let piped: Value = serde_json::from_str(&d.out).expect("JSON");
    assert_eq!(piped["requests"][0]["tokens"], r(1)["tokens"]);
}

#[test]
fn lines_that_ask_for_what_is_not_there_are_refused() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("requests.jsonl");
    for (line, word) in [
        (r#"{"prompt": "a", "presence_penalty": 1}"#, "presence_penalty"),
        (r#"{"prompt": "a", "logprobs": true}"#, "logprobs"),
        (r#"{"prompt": "a", "prompt_ids": [1]}"#, "prompt"),
        (r#"{"max_tokens": 3}"#, "prompt"),
        (r#"{"prompt": "a", "max_tokens": -1}"#, "-1"),
        (r#"{"prompt": "a" "#, "line 2"),
        (r#"{"prompt_ids": [4096]}"#, "4096"),
        (r#"{"prompt_ids": []}"#, "empty"),
        (r#"{"prompt": "a", "top_p": 0}"#, "top_p"),
        (r#"{"prompt": "a", "stop": ["", "b"]}"#, "empty"),
    ] {
        std::fs::write(&file, format!("{}\n{line}\n", r#"{"prompt": "good", "max_tokens": 1}"#)).expect("a file");
        let d = demo_expect(2, &["--requests", text(&file)]);
        assert!(d.err.contains(word) && d.out.is_empty(), "{line}: {}", d.err);
    }
    std::fs::write(&file, "\n\n").expect("a file");
    demo_expect(2, &["--requests", text(&file)]);
    demo_expect(2, &["--requests", "no/such/file.jsonl"]);
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    for more in [
        &["--prompt", "a", "--prompt-ids", "1"][..],
        &[],
        &["--prompt", ""],
        &["--prompt", "a", "--greedy", "--temperature", "1"],
        &["--prompt", "a", "--temperature", "-1"],
        &["--prompt", "a", "--temperature", "nan"],
        &["--prompt", "a", "--top-p", "0"],
        &["--prompt", "a", "--width", "0"],
        &["--prompt", "a", "--width", "17"],
        &["--prompt", "a", "--max-tokens", "0"],
        &["--prompt", "a", "--stop", ""],
        &["--prompt-ids", "1,x"],
        &["--prompt-ids", "99999"],
        &["--prompt", "a", "--no-such-flag"],
        &["--prompt", "a", "--set", "nonsense"],
        &["--prompt", "a", "--set", "no_such_dim=4"],
        &["--prompt", "a", "--checkpoint", "nobody=models"],
        &["--prompt", "a", "--candidates", "some"],
    ] {
        let d = demo_expect(2, more);
        assert!(d.out.is_empty() && d.err.contains("error"), "{more:?}: {}", d.err);
    }
    expect(2, &["run", "graphs/parts/tail.yaml", "--prompt", "a"]);
    expect(2, &["run", "graphs/no-such-file.yaml", "--prompt", "a"]);
    expect(2, &["run"]);
    expect(2, &["walk"]);
}

#[test]
fn what_does_not_fit_is_said_before_anything_runs() {
    let d = demo_expect(4, &["--prompt-ids", "1,2,3,4,5,6,7,8,9", "--set", "serve.context=8"]);
    assert!(d.err.contains("context of 8") && d.out.is_empty(), "{}", d.err);
    let v =
        demo_json(&["--prompt-ids", "1,2,3,4,5", "--set", "serve.context=17", "--max-tokens", "100", "--ignore-eos"]);
    assert_eq!(
        (v["requests"][0]["finish"].as_str(), v["requests"][0]["tokens"].as_array().map(Vec::len)),
        (Some("length"), Some(12))
    );
}

/// Eight requests that reach the end of the context in the same round, each with pages it does not fill: the scratch rows
/// of the last block reach one position into the tenth page.
#[test]
fn as_many_requests_as_promised_fit_to_the_end_of_the_context() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("requests.jsonl");
    let prompt = |n: usize| (0..n).map(|i| i * 7 % 500).collect::<Vec<_>>();
    let lines: Vec<String> =
        (0..8).map(|i| json!({"prompt_ids": prompt(50 + i), "max_tokens": 500}).to_string()).collect();
    std::fs::write(&file, lines.join("\n")).expect("a file");
    let v = demo_json(&["--requests", text(&file), "--ignore-eos", "--width", "1", "--set", "serve.context=131"]);
    for (i, r) in v["requests"].as_array().expect("requests").iter().enumerate() {
        assert_eq!((r["finish"].as_str(), r["tokens"].as_array().map(Vec::len)), (Some("length"), Some(131 - 50 - i)));
    }
}

#[test]
fn logits_that_are_no_numbers_end_with_exit_code_1() {
    let target = copy_checkpoint("models/spinal-demo/target");
    edit_weights(target.path(), |header, data| {
        let t = &header["model.embed_tokens.weight"];
        let at = t["data_offsets"][0].as_u64().expect("an offset") as usize + 9 * 192 * 2;
        for pair in data[at..at + 192 * 2].chunks_mut(2) {
            pair.copy_from_slice(&0x7fc0u16.to_le_bytes());
        }
    });
    let checkpoint = format!("target={}", text(target.path()));
    let d = demo_expect(1, &["--prompt-ids", "3,9,4", "--checkpoint", &checkpoint, "--json"]);
    let v: Value = serde_json::from_str(&d.out).expect("JSON");
    assert_eq!((&v["requests"][0]["finish"], &v["requests"][0]["tokens"]), (&json!("error"), &json!([])));
    assert!(d.err.contains("not numbers"), "{}", d.err);
    demo_expect(0, &["--prompt-ids", "3,8,4", "--checkpoint", &checkpoint, "--max-tokens", "3"]);
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    for args in [
        &["run", DEMO, "--prompt", PROMPT, "--max-tokens", "60"][..],
        &["run", DEMO, "--prompt", PROMPT, "--max-tokens", "60", "--json"],
        &["check", DEMO],
        &["check", DEMO, "--json"],
        &["check", "graphs/parts/tail.yaml"],
        &["explain"],
        &["passes"],
        &["plan", DEMO, "--device", "h200"],
        &["--help"],
        &["run", "--help"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let o = spinec(args).stdout(writer).output().expect("it starts");
        let (code, err) = (o.status.code(), String::from_utf8(o.stderr).expect("text"));
        assert_eq!(code, Some(141), "{args:?}: {err}");
        assert!(!err.contains("bug") && !err.contains("pipe") && !err.contains("panicked"), "{args:?}: {err}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_a_run_with_130() {
    let mut child = spinec(&["run", DEMO, "--prompt", PROMPT, "--max-tokens", "4000", "--ignore-eos", "--target-only"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut some = [0u8; 1];
    child.stdout.as_mut().expect("stdout").read_exact(&mut some).expect("it streams");
    let id = child.id().to_string();
    let sent = std::process::Command::new("kill").args(["-INT", &id]).status().expect("kill is there");
    assert!(sent.success());
    let d = done(child.wait_with_output().expect("it ends"));
    assert_eq!(d.code, 130, "{}", d.err);
    assert!(!d.err.contains("bug"), "{}", d.err);
}

#[test]
fn a_trace_names_every_phase() {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("trace.json");
    demo_expect(0, &["--prompt", PROMPT, "--max-tokens", "6", "--trace", text(&file)]);
    let v: Value = serde_json::from_slice(&std::fs::read(&file).expect("a trace")).expect("JSON");
    let spans: Vec<&str> = v["traceEvents"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|e| e["ph"] == "X")
        .map(|e| e["name"].as_str().expect("a name"))
        .collect();
    for phase in ["prefill", "draft", "verify", "accept", "commit"] {
        assert!(spans.contains(&phase), "{phase} is missing in {spans:?}");
    }
}

/// A target without a drafter decodes a row at a time; without a tokenizer ids are what is printed.
#[test]
fn a_system_without_a_drafter_decodes_plainly() {
    let dir = TempDir::new().expect("a directory");
    let at = dir.path().display().to_string();
    let spec = "tests/filetests/plain/system.yaml";
    expect(0, &["synth", spec, "-o", &at, "--seed", "3"]);
    let target = format!("target={at}/target");
    let args = ["run", spec, "--checkpoint", &target, "--prompt-ids", "1,2,3", "--max-tokens", "9", "--ignore-eos"];
    let d = expect(0, &args);
    let printed: Vec<u64> = d.out.trim().split(',').map(|t| t.parse().expect("an id")).collect();
    let v = json(&[&args[..], &["--json"]].concat());
    let tokens: Vec<u64> =
        v["requests"][0]["tokens"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    assert_eq!((printed.len(), &printed), (9, &tokens));
    assert!(v["requests"][0]["cycles"].as_array().is_some_and(|c| c.iter().all(|c| c["width"] == 1)));
    assert!(!d.err.contains("a cycle"), "{}", d.err);
}

#[test]
fn a_system_for_eval_alone_says_so_however_it_is_run() {
    let dir = TempDir::new().expect("a directory");
    let spec = "tests/filetests/example/system.yaml";
    expect(0, &["synth", spec, "-o", text(dir.path())]);
    let checkpoint = format!("model={}/model", text(dir.path()));
    let args = ["run", spec, "--prompt-ids", "1", "--checkpoint", &checkpoint];
    let said = |more: &[&str]| expect(2, &[&args[..], more].concat()).err;
    assert_eq!(said(&[]), said(&["--target-only"]));
    let err = said(&[]);
    assert!(err.contains("has no phases") && err.contains("`eval`: decoder"), "{err}");
    let d = expect(0, &["check", spec]);
    assert!(d.out.contains("no phases, entries decoder"), "{}", d.out);
}

#[test]
fn weights_that_do_not_fit_a_value_of_the_command_line_name_it() {
    let d = demo_expect(3, &["--prompt-ids", "1", "--set", "drafter.I=64"]);
    assert!(d.err.contains("--set drafter.I=64") && d.err.contains("`I` is 64"), "{}", d.err);
    let d = expect(2, &["run", DEMO, "--prompt-ids", "1", "--checkpoint", "model=x"]);
    assert!(d.err.contains("no checkpoint `model`") && d.err.contains("target, drafter"), "{}", d.err);
}
