//! Exit codes, help, checkpoints that do not fit, and what `check` says.

mod cli_support;

use cli_support::*;
use serde_json::{Value, json};
use tempfile::TempDir;

#[test]
fn help_lists_every_flag() {
    for (command, flags) in [
        ("check", &["--checkpoint", "--set", "--numerics", "--json"][..]),
        (
            "eval",
            &[
                "--entry",
                "--inputs",
                "-o",
                "--output",
                "--dump",
                "--chunk",
                "--backend",
                "--checkpoint",
                "--numerics",
                "--set",
                "interp",
                "cpu",
                "f64",
                "f32",
                "bf16",
            ],
        ),
        (
            "run",
            &[
                "--prompt",
                "--prompt-file",
                "--prompt-ids",
                "--requests",
                "--max-tokens",
                "--greedy",
                "--temperature",
                "--top-k",
                "--top-p",
                "--seed",
                "--stop",
                "--stop-ids",
                "--ignore-eos",
                "--width",
                "--target-only",
                "--candidates",
                "coarse",
                "exact",
                "--threads",
                "--trace",
                "--json",
                "cancel_after",
            ],
        ),
        ("synth", &["-o", "--output", "--seed", "--set"]),
        ("explain", &["E0301"]),
    ] {
        let d = expect(0, &[command, "--help"]);
        for f in flags {
            assert!(d.out.contains(f), "`{f}` is missing in the help of {command}");
        }
        assert!(d.err.is_empty());
    }
    let d = expect(0, &["--help"]);
    for word in ["check", "eval", "run", "synth", "explain", "Exit codes", "130", "Examples"] {
        assert!(d.out.contains(word), "{word}");
    }
    let d = expect(0, &["--version"]);
    assert!(d.out.starts_with("spinec ") && d.err.is_empty());
    let d = expect(2, &[]);
    assert!(d.out.is_empty() && d.err.contains("Usage"));
}

#[test]
fn check_says_what_is_wrong_in_both_forms() {
    let v = json(&["check", DEMO, "--json"]);
    assert_eq!(v, json!({"schema": "spinec.check/1", "diagnostics": []}));
    let d = expect(0, &["check", DEMO]);
    assert!(d.out.starts_with("ok: ") && d.err.is_empty());
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("bad.yaml");
    std::fs::write(&file, "graph: g\nsymbols: {N: {min: 1}}\ninputs: {x: \"f32[N, 4]\", y: \"f32[N, 5]\"}\nnodes: {z: x + y}\noutputs: {z: z}\n")
        .expect("a file");
    let d = expect(2, &["check", text(&file), "--json"]);
    let v: Value = serde_json::from_str(&d.out).expect("one object");
    let list = v["diagnostics"].as_array().expect("diagnostics");
    assert_eq!(list.len(), 1, "{v}");
    let g = &list[0];
    has(g, &[("code", 's'), ("severity", 's'), ("message", 's'), ("file", 's'), ("range", 'o'), ("related", 'a')]);
    for end in ["start", "end"] {
        has(&g["range"][end], &[("line", 'n'), ("character", 'n')]);
    }
    assert_eq!((&g["severity"], &g["range"]["start"]["line"]), (&json!("error"), &json!(3)));
    assert!(g.get("help").is_some());
    let d = expect(2, &["check", text(&file)]);
    assert!(d.out.is_empty() && d.err.contains(g["code"].as_str().expect("a code")));
    expect(0, &["explain", g["code"].as_str().expect("a code")]);
    expect(2, &["explain", "E9999"]);
}

fn with_target(dir: &TempDir, more: &[&str]) -> Vec<String> {
    let mut args: Vec<String> =
        ["run", DEMO, "--prompt-ids", "1,2", "--max-tokens", "2", "--checkpoint"].map(str::to_string).to_vec();
    args.push(format!("target={}", text(dir.path())));
    args.extend(more.iter().map(|s| s.to_string()));
    args
}

fn expect_all(code: i32, args: &[String]) -> Done {
    expect(code, &args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn checkpoints_that_are_not_there_are_exit_code_3() {
    let d = expect(3, &["run", DEMO, "--prompt-ids", "1", "--checkpoint", "target=no/such/dir"]);
    assert!(d.err.contains("no/such/dir") && d.out.is_empty(), "{}", d.err);
    let empty = TempDir::new().expect("a directory");
    expect_all(3, &with_target(&empty, &[]));
    // config.json alone serves check, and nothing that computes.
    let dir = TempDir::new().expect("a directory");
    std::fs::copy(root("models/spinal-demo/target/config.json"), dir.path().join("config.json")).expect("a copy");
    let checkpoint = format!("target={}", text(dir.path()));
    expect(0, &["check", DEMO, "--checkpoint", &checkpoint]);
    let d = expect_all(3, &with_target(&dir, &[]));
    assert!(d.err.contains("no weights"), "{}", d.err);
}

#[test]
fn every_tensor_that_does_not_fit_is_in_one_report() {
    let dir = copy_checkpoint("models/spinal-demo/target");
    edit_weights(dir.path(), |header, _| {
        // Two with other extents, one missing, one that nobody asked for, one of a type nobody computes with.
        for name in ["model.layers.3.self_attn.o_proj.weight", "model.layers.1.mlp.up_proj.weight"] {
            let n = header[name]["shape"]
                .as_array()
                .expect("a shape")
                .iter()
                .map(|d| d.as_u64().expect("a dim"))
                .product::<u64>();
            header[name]["shape"] = json!([2, n / 2]);
        }
        let all = header.as_object_mut().expect("a header");
        let moved = all.remove("model.layers.5.input_layernorm.weight").expect("it is there");
        all.insert("model.layers.5.input_norm.weight".into(), moved);
        all["model.layers.6.input_layernorm.weight"]["dtype"] = json!("I16");
    });
    let d = expect_all(3, &with_target(&dir, &[]));
    for word in [
        "model.layers.3.self_attn.o_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
        "no tensor `model.layers.5.input_layernorm.weight`",
        "`model.layers.5.input_norm.weight` of checkpoint `target` is used by no graph",
        "model.layers.6.input_layernorm.weight",
        "hybrid_target.yaml",
        "o: \"bf16[H, QH*HD]\"",
        "up: \"bf16[I, H]\"",
    ] {
        assert!(d.err.contains(word), "{word} is missing in\n{}", d.err);
    }
    assert_eq!(d.err.matches("error[").count(), 5, "{}", d.err);
    assert!(d.out.is_empty());
}

#[test]
fn other_float_types_are_converted_with_a_note_unless_that_is_refused() {
    let dir = copy_checkpoint("models/spinal-demo/target");
    edit_weights(dir.path(), |header, data| {
        // BF16 to F16, number for number.
        let t = &mut header["model.norm.weight"];
        t["dtype"] = json!("F16");
        let at = |i: usize| t["data_offsets"][i].as_u64().expect("an offset") as usize;
        for pair in data[at(0)..at(1)].chunks_mut(2) {
            let x = f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16);
            pair.copy_from_slice(&half::f16::from_f32(x).to_le_bytes());
        }
    });
    let d = expect_all(0, &with_target(&dir, &["--json"]));
    assert!(d.err.contains("note") && d.err.contains("F16"), "{}", d.err);
    serde_json::from_str::<Value>(&d.out).expect("the note is not on stdout");
    let d = expect_all(3, &with_target(&dir, &["--strict"]));
    assert!(d.err.contains("model.norm.weight") && d.err.contains("without --strict"), "{}", d.err);
}

#[test]
fn truncated_weights_are_refused() {
    let dir = copy_checkpoint("models/spinal-demo/target");
    let path = dir.path().join("model.safetensors");
    let bytes = std::fs::read(&path).expect("weights");
    for n in [bytes.len() - 2, 5000, 7, 0] {
        std::fs::write(&path, &bytes[..n]).expect("a file");
        let d = expect_all(3, &with_target(&dir, &[]));
        assert!(d.err.contains("model.safetensors") && d.out.is_empty(), "{n}: {}", d.err);
    }
}

#[test]
fn a_drafter_of_another_target_is_a_spec_error_and_wins_over_checkpoint_errors() {
    let dir = copy_checkpoint("models/spinal-demo/drafter");
    let config = dir.path().join("config.json");
    let mut v: Value = serde_json::from_slice(&std::fs::read(&config).expect("a file")).expect("JSON");
    v["num_target_layers"] = json!(9);
    std::fs::write(&config, v.to_string()).expect("a file");
    let checkpoint = format!("drafter={}", text(dir.path()));
    let d = expect(2, &["run", DEMO, "--prompt-ids", "1", "--checkpoint", &checkpoint]);
    assert!(d.err.contains("another target"), "{}", d.err);
}

#[test]
fn synth_writes_the_same_bytes_for_a_seed_and_a_pair_that_runs() {
    let dir = TempDir::new().expect("a directory");
    let read = |name: &str| std::fs::read(dir.path().join(name).join("drafter/model.safetensors")).expect("weights");
    for (name, seed) in [("a", "7"), ("b", "7"), ("c", "8")] {
        let at = dir.path().join(name);
        expect(0, &["synth", "graphs/hybrid-dspine.yaml", "-o", text(&at), "--seed", seed]);
    }
    assert!(read("a") == read("b") && read("a") != read("c"));
    let checkpoint = |name: &str| format!("{name}={}", text(&dir.path().join("a").join(name)));
    let (t, d) = (checkpoint("target"), checkpoint("drafter"));
    let args = [
        "run",
        "graphs/hybrid-dspine.yaml",
        "--checkpoint",
        &t,
        "--checkpoint",
        &d,
        "--prompt-ids",
        "1,2,3",
        "--max-tokens",
        "12",
        "--json",
    ];
    let spec = json(&args);
    let plain = json(&[&args[..], &["--target-only"]].concat());
    assert_eq!(spec["requests"][0]["tokens"], plain["requests"][0]["tokens"]);
    assert_eq!(spec["requests"][0]["text"], Value::Null, "there is no tokenizer");
    expect(2, &["run", "graphs/hybrid-dspine.yaml", "--checkpoint", &t, "--checkpoint", &d, "--prompt", "text"]);
}

/// Names in a folder and the folders in it.
fn names(dir: &std::path::Path) -> Vec<String> {
    let mut out = Vec::new();
    for e in std::fs::read_dir(dir).into_iter().flatten() {
        let e = e.expect("an entry");
        out.push(e.file_name().into_string().expect("text"));
        if e.path().is_dir() {
            out.extend(names(&e.path()));
        }
    }
    out
}

#[cfg(unix)]
#[test]
fn a_synth_that_is_stopped_leaves_nothing_half_written() {
    let dir = TempDir::new().expect("a directory");
    let at = text(dir.path());
    let temporary = || names(dir.path()).into_iter().filter(|n| n.ends_with(".tmp")).collect::<Vec<_>>();
    for (signal, code, left) in [("-KILL", -1, 1), ("-INT", 130, 0)] {
        let size = || std::fs::metadata(dir.path().join("target/.spinec-model.safetensors.tmp")).map_or(0, |m| m.len());
        let before = size();
        // Large enough not to be done before it is stopped.
        let child = spinec(&["synth", "graphs/qwen3.8-27b-dspine.yaml", "-o", at])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        let started = std::time::Instant::now();
        while size() == before {
            assert!(started.elapsed().as_secs() < 60, "nothing is written");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let id = child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().expect("kill is there").success());
        let d = done(child.wait_with_output().expect("it ends"));
        assert_eq!(d.code, code, "{}", d.err);
        // What a killed one left has the name the next one writes under.
        assert_eq!(temporary().len(), left, "{signal}: {:?}", temporary());
    }
    assert!(!names(dir.path()).contains(&"model.safetensors".to_string()));
    expect(0, &["synth", "graphs/hybrid-dspine.yaml", "-o", at]);
    assert!(temporary().is_empty());
}

#[test]
fn nothing_a_user_wrote_acts_on_the_terminal() {
    let dir = TempDir::new().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let odd = "\u{1b}[31m\u{7}\u{9b}\u{202e}x";
    std::fs::write(
        path("a.yaml"),
        format!("graph: g # \u{202e}\ninputs: {{x: \"f32[2]\"}}\nnodes: {{y: x + z}} # {odd}\n"),
    )
    .expect("a file");
    std::fs::write(
        path("b.yaml"),
        "system: s\ncomponents: {a: {graph: \"\\u001b[31m\\u202e.yaml\"}}\nextends: \"\\e[31m\"\n",
    )
    .expect("a file");
    std::fs::write(path("r.jsonl"), "{\"\\u001b[31m\": 1}\n").expect("a file");
    let (a, b, r) = (path("a.yaml"), path("b.yaml"), path("r.jsonl"));
    let set = format!("B={odd}");
    let checkpoint = format!("target={odd}");
    let named = format!("{odd}=3");
    let commands: &[&[&str]] = &[
        &["check", text(&a)],
        &["check", text(&b)],
        &["check", odd],
        &["check", DEMO, "--set", &set],
        &["check", DEMO, "--set", &named],
        &["check", DEMO, "--set", odd],
        &["check", DEMO, "--checkpoint", &checkpoint],
        &["check", DEMO, "--checkpoint", odd],
        &["run", DEMO, "--prompt-ids", "1", "--checkpoint", &checkpoint],
        &["run", DEMO, "--requests", text(&r)],
        &["run", DEMO, "--requests", odd],
        &["run", DEMO, "--prompt-ids", odd],
        &["eval", DEMO, "--entry", odd, "--inputs", odd, "-o", odd],
        &["explain", odd],
        &["explain", DEMO, odd],
        &["why-not", DEMO, odd, odd],
        &["plan", DEMO, "--device", odd],
        &["synth", odd, "-o", odd],
        &["passes", DEMO, "--without", odd],
        &["ptx", "check", odd],
        &[odd],
        &["check", DEMO, odd],
        &["run", DEMO, "--seed", odd],
    ];
    for args in commands {
        let d = run(args);
        assert_ne!(d.code, 0, "{args:?}");
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!d.err.contains(acts) && !d.out.contains(acts), "{args:?}: {:?}", d.err);
        assert!(!d.err.is_empty());
    }
}

#[test]
fn numbers_that_are_none_say_what_is_expected() {
    let cases: [(&[&str], &str); 8] = [
        (&["plan", DEMO, "--device", "h200", "--budget", "1x"], "1.5GiB"),
        (&["plan", DEMO, "--device", "h200", "--budget", "-1"], "1.5GiB"),
        (&["plan", DEMO, "--device", "h200", "--context", "-1"], "from 0 on"),
        (&["run", DEMO, "--prompt-ids", "1", "--temperature", "-1"], "temperature of -1 is not a number from 0 on"),
        (&["run", DEMO, "--prompt-ids", "1", "--temperature", "warm"], "a number is expected"),
        (&["run", DEMO, "--prompt-ids", "1", "--width", "-1"], "a width of -1 is not within 1..16"),
        (&["run", DEMO, "--prompt-ids", "1", "--max-tokens", "-1"], "from 0 on"),
        (&["explain", DEMO, "t.layers.99999999999999999999.h"], "99999999999999999999 is larger than any index"),
    ];
    for (args, says) in cases {
        let d = expect(2, args);
        assert!(d.err.contains(says), "{args:?}: {}", d.err);
    }
}

/// A device that refuses every write stands for a full disk behind stderr.
#[cfg(target_os = "linux")]
#[test]
fn a_stderr_that_cannot_be_written_changes_no_exit_code() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("the device is there");
    for (code, args) in [
        (0, &["run", DEMO, "--prompt", "a", "--max-tokens", "3"][..]),
        (2, &["run", DEMO]),
        (2, &["plan", "nowhere.yaml"]),
        (2, &["explain", "E9"]),
        (2, &["why-not", "nowhere.yaml", "a", "b"]),
        (2, &["check", "nowhere.yaml"]),
        (3, &["eval", DEMO, "--entry", "draft", "--inputs", "nowhere.safetensors", "-o", "out.safetensors"]),
        (2, &["run", "--\u{1b}[31m"]),
    ] {
        let o = spinec(args).stderr(full()).output().expect("the binary starts");
        assert_eq!(o.status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn threads_are_bounded() {
    for n in ["257", "5000", "20000", "-1", "99999999999999999999"] {
        for command in [&["run", DEMO, "--prompt", "a"][..], &["eval", DEMO, "--inputs", "i", "-o", "o"]] {
            let d = expect(2, &[command, &["--threads", n]].concat());
            assert!(d.err.contains("from 0 to 256"), "{}", d.err);
        }
    }
    let o = spinec(&["run", DEMO, "--prompt", "a"]).env("SPINEC_THREADS", "20000").output().expect("it starts");
    assert_eq!(o.status.code(), Some(2));
    expect(0, &["run", DEMO, "--prompt", "a", "--max-tokens", "2", "--threads", "256"]);
}
