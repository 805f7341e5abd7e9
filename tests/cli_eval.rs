//! `spinec eval` as a user meets it.

mod cli_support;

use cli_support::*;
use serde_json::Value;
use spinec_exec::tensorfile::{Tensor, TensorData, read_tensors, write_tensors};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

type Tensors = BTreeMap<String, Tensor>;

fn reals(shape: &[usize], values: Vec<f64>) -> Tensor {
    Tensor::new(shape.to_vec(), TensorData::F64(values)).expect("a tensor")
}

fn ids(shape: &[usize], values: Vec<i32>) -> Tensor {
    Tensor::new(shape.to_vec(), TensorData::I32(values)).expect("a tensor")
}

fn values(t: &Tensor) -> Vec<f64> {
    match t.data() {
        TensorData::F64(v) => v.clone(),
        TensorData::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
        TensorData::I32(v) => v.iter().map(|x| f64::from(*x)).collect(),
        _ => panic!("numbers are expected"),
    }
}

fn write(path: &Path, list: &[(&str, Tensor)]) {
    let all: Tensors = list.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    write_tensors(path, &all).expect("a file");
}

fn read(path: &Path) -> Tensors {
    read_tensors(path).expect("a valid file")
}

/// Numbers that look random and are the same everywhere.
fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect()
}

const SYSTEM: &str = "graphs/hybrid-dspine.yaml";

const PAIR: [&str; 4] =
    ["--checkpoint", "target=tests/data/golden/s1/target", "--checkpoint", "drafter=tests/data/golden/s1/drafter"];

fn eval(spec: &str, input: &Path, output: &Path, more: &[&str]) -> Vec<String> {
    let mut args: Vec<String> =
        ["eval", spec, "--inputs", text(input), "-o", text(output)].map(str::to_string).to_vec();
    args.extend(more.iter().map(|s| s.to_string()));
    args
}

fn ok(args: Vec<String>) -> Done {
    expect(0, &args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn fails(code: i32, args: Vec<String>) -> Done {
    let d = expect(code, &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(d.out.is_empty(), "{}", d.out);
    d
}

/// The definition of the bridge, written down with plain loops.
#[allow(clippy::too_many_arguments)]
fn bridge(
    x: &[f64],
    anchor: &[i32],
    w: &BTreeMap<&str, Vec<f64>>,
    n: usize,
    b: usize,
    h: usize,
    d: usize,
    k: usize,
) -> (Vec<f64>, Vec<f64>) {
    let times = |m: &[f64], v: &[f64], rows: usize| -> Vec<f64> {
        (0..rows).map(|r| (0..v.len()).map(|c| m[r * v.len() + c] * v[c]).sum()).collect()
    };
    let mut out = x.to_vec();
    let mut codes = vec![0.0; n * b * d];
    for i in 0..n {
        let mut r = vec![0.0; b];
        for t in 0..b {
            let row = &x[(i * b + t) * h..(i * b + t + 1) * h];
            r[t] = (row.iter().map(|v| v * v).sum::<f64>() / h as f64).sqrt();
            let scaled: Vec<f64> = row.iter().map(|v| v / (r[t] + 1e-6)).collect();
            let z = times(&w["read"], &scaled, d);
            let norm = z.iter().map(|v| v * v).sum::<f64>().sqrt();
            for c in 0..d {
                codes[(i * b + t) * d + c] = match t {
                    0 => w["codebook"][anchor[i] as usize * d + c] * (d as f64).sqrt(),
                    _ => z[c] / (norm + 1e-6) * (d as f64).sqrt(),
                };
            }
        }
        for t in 1..b {
            let own = &codes[(i * b + t) * d..(i * b + t + 1) * d];
            let prev = &codes[(i * b + t - 1) * d..(i * b + t) * d];
            let (g, p, v) = (times(&w["gate"], own, k), times(&w["prev_gate"], prev, k), times(&w["value"], prev, k));
            let m: Vec<f64> = (0..k).map(|j| v[j] / (1.0 + (-(g[j] + p[j] + w["gate_bias"][j])).exp())).collect();
            for (c, y) in times(&w["write"], &m, h).into_iter().enumerate() {
                out[(i * b + t) * h + c] += r[t] * y;
            }
        }
    }
    (out, codes)
}

#[test]
fn a_graph_on_its_own_computes_its_definition() {
    let dir = TempDir::new().expect("a directory");
    let (input, output) = (dir.path().join("in.safetensors"), dir.path().join("out.safetensors"));
    let (n, b, h, d, k, v) = (3, 5, 24, 12, 7, 11);
    let shapes = [
        ("codebook", vec![v, d]),
        ("read", vec![d, h]),
        ("gate", vec![k, d]),
        ("gate_bias", vec![k]),
        ("prev_gate", vec![k, d]),
        ("value", vec![k, d]),
        ("write", vec![h, k]),
    ];
    let w: BTreeMap<&str, Vec<f64>> =
        shapes.iter().enumerate().map(|(i, (name, s))| (*name, noise(s.iter().product(), i as u64 + 3))).collect();
    let x = noise(n * b * h, 99);
    let anchor = vec![3, 10, 0];
    let mut list: Vec<(&str, Tensor)> = shapes.iter().map(|(name, s)| (*name, reals(s, w[name].clone()))).collect();
    list.push(("x", reals(&[n, b, h], x.clone())));
    list.push(("anchor", ids(&[n], anchor.clone())));
    write(&input, &list);
    let (want, codes) = bridge(&x, &anchor, &w, n, b, h, d, k);
    for backend in ["cpu", "interp"] {
        let d = ok(eval(
            "graphs/parts/bridge.yaml",
            &input,
            &output,
            &["--numerics", "f64", "--backend", backend, "--dump", "gates"],
        ));
        assert!(d.out.contains("code: "), "{}", d.out);
        let got = read(&output);
        for (name, want) in [("x", &want), ("code", &codes)] {
            let far = values(&got[name]).iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < 1e-12, "{backend} {name}: {far:e}");
        }
        assert_eq!(got["gates"].shape(), [n, b, k]);
    }
    // A weight that is missing and one that is misshapen are both named.
    let bad: Vec<(&str, Tensor)> = list.iter().filter(|(name, _)| *name != "write").cloned().collect();
    write(&input, &bad);
    let e = fails_with_any(&eval("graphs/parts/bridge.yaml", &input, &output, &[]));
    assert!(e.err.contains("write"), "{}", e.err);
}

fn fails_with_any(args: &[String]) -> Done {
    let d = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(d.code == 2 || d.code == 3, "{}: {}", d.code, d.err);
    d
}

#[test]
fn an_entry_writes_its_outputs_states_and_dumps_of_loops() {
    let dir = TempDir::new().expect("a directory");
    let (input, output) = (dir.path().join("in.safetensors"), dir.path().join("out.safetensors"));
    write(&input, &[("input_ids", ids(&[9], vec![5, 1, 200, 7, 7, 33, 0, 499, 12]))]);
    let args = eval(
        "graphs/hybrid-dspine.yaml",
        &input,
        &output,
        &[&PAIR[..], &["--entry", "target", "--dump", "layers.1.out", "--dump", "layers.*.h", "--json"]].concat(),
    );
    let d = ok(args);
    let v: Value = serde_json::from_str(&d.out).expect("one object");
    assert_eq!(v["schema"], "spinec.eval/1");
    let got = read(&output);
    let named: Vec<&str> =
        v["tensors"].as_array().expect("tensors").iter().map(|t| t["name"].as_str().expect("a name")).collect();
    assert_eq!(named, got.keys().map(String::as_str).collect::<Vec<_>>());
    for t in v["tensors"].as_array().expect("tensors") {
        has(t, &[("name", 's'), ("dtype", 's'), ("shape", 'a')]);
    }
    let find =
        |end: &str| -> Vec<&String> { got.keys().filter(|k| *k == end || k.ends_with(&format!(".{end}"))).collect() };
    let [out] = find("layers.1.out")[..] else { panic!("{:?}", got.keys()) };
    assert_eq!(values(&got[out]), values(&got["after_layer.1"]), "a dumped value is the value");
    let layers = got.keys().filter(|k| k.starts_with("after_layer.")).count();
    assert_eq!((0..layers).filter(|l| !find(&format!("layers.{l}.h")).is_empty()).count(), layers);
    assert!(
        got.keys().any(|k| k.starts_with("state.")) && got.contains_key("logits") && got.contains_key("embeddings")
    );
    // In chunks, by the other backend: the same numbers.
    let whole = values(&got["logits"]);
    for more in [["--chunk", "1", "--backend", "cpu"], ["--chunk", "4", "--backend", "cpu"]] {
        ok(eval("graphs/hybrid-dspine.yaml", &input, &output, &[&PAIR[..], &["--entry", "target"], &more].concat()));
        assert_eq!(values(&read(&output)["logits"]), whole);
    }
    ok(eval(
        "graphs/hybrid-dspine.yaml",
        &input,
        &output,
        &[&PAIR[..], &["--entry", "target", "--backend", "interp"]].concat(),
    ));
    let other = values(&read(&output)["logits"]);
    let scale = whole.iter().map(|x| x.abs()).fold(0.0, f64::max);
    assert!(other.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-4 * scale));
}

#[test]
fn a_dump_that_names_nothing_is_a_note_on_stderr() {
    let dir = TempDir::new().expect("a directory");
    let (input, output) = (dir.path().join("in.safetensors"), dir.path().join("out.safetensors"));
    write(&input, &[("input_ids", ids(&[3], vec![5, 1, 2]))]);
    let d = ok(eval(
        "graphs/hybrid-dspine.yaml",
        &input,
        &output,
        &[&PAIR[..], &["--entry", "target", "--dump", "no.such.value", "--json"]].concat(),
    ));
    serde_json::from_str::<Value>(&d.out).expect("stdout is one object");
    assert!(d.err.contains("note: ") && d.err.contains("no.such.value"), "{}", d.err);
}

#[test]
fn inputs_that_do_not_fit_are_exit_code_3() {
    let dir = TempDir::new().expect("a directory");
    let (input, output) = (dir.path().join("in.safetensors"), dir.path().join("out.safetensors"));
    let spec = "graphs/hybrid-dspine.yaml";
    let entry = |more: &[&str]| eval(spec, &input, &output, &[&PAIR[..], more].concat());
    write(&input, &[("ids", ids(&[3], vec![5, 1, 2]))]);
    let d = fails(3, entry(&["--entry", "target"]));
    assert!(d.err.contains("input_ids") && d.err.contains("ids"), "{}", d.err);
    write(&input, &[("input_ids", reals(&[3], vec![5.0, 1.0, 2.0]))]);
    fails(3, entry(&["--entry", "target"]));
    write(&input, &[("input_ids", ids(&[1, 3], vec![5, 1, 2]))]);
    fails(3, entry(&["--entry", "target"]));
    write(&input, &[("input_ids", ids(&[0], vec![]))]);
    fails(3, entry(&["--entry", "target"]));
    for commits in [vec![5], vec![-1], vec![1, 1]] {
        write(
            &input,
            &[
                ("input_ids", ids(&[2], vec![5, 1])),
                ("block_ids", ids(&[1, 4], vec![1, 2, 3, 4])),
                ("commits", ids(&[commits.len()], commits)),
            ],
        );
        fails(3, entry(&["--entry", "target"]));
    }
    // Blocks without counts, or counts without blocks, are half an input.
    write(&input, &[("input_ids", ids(&[2], vec![5, 1])), ("block_ids", ids(&[1, 4], vec![1, 2, 3, 4]))]);
    fails(3, entry(&["--entry", "target"]));
    std::fs::write(&input, b"not a tensor file").expect("a file");
    fails(3, entry(&["--entry", "target"]));
    let gone = dir.path().join("gone.safetensors");
    fails(3, eval(spec, &gone, &output, &[&PAIR[..], &["--entry", "target"]].concat()));
    write(&input, &[("input_ids", ids(&[2], vec![5, 1]))]);
    let d = fails(2, entry(&["--entry", "targett"]));
    assert!(d.err.contains("did you mean `target`"), "{}", d.err);
    let d = fails(2, entry(&[]));
    assert!(d.err.contains("--entry") && d.err.contains("candidates"), "{}", d.err);
    fails(3, entry(&["--entry", "target", "--chunk", "0"]));
    assert!(!output.exists(), "nothing was written");
}

/// Under the f64 policy no number is narrower than f64, quotients of integers included.
#[test]
fn quotients_of_integers_follow_the_policy() {
    let dir = TempDir::new().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let spec = "graph: g\nsymbols: {N: {min: 1}}\ninputs: {i: \"i32[N]\"}\n\
                outputs: {third: i / 3, mean: \"sum(i / N, axis=0)\", of: iota(N) / N}\n";
    std::fs::write(path("g.yaml"), spec).expect("a file");
    write(&path("in.st"), &[("i", ids(&[3], vec![1, 2, 7]))]);
    for (numerics, near) in [("f64", 1e-15), ("f32", 1e-6)] {
        for backend in ["cpu", "interp"] {
            let more = ["--numerics", numerics, "--backend", backend];
            ok(eval(text(&path("g.yaml")), &path("in.st"), &path("out.st"), &more));
            let got = read(&path("out.st"));
            let want = [("third", vec![1.0 / 3.0, 2.0 / 3.0, 7.0 / 3.0]), ("mean", vec![10.0 / 3.0])];
            for (name, want) in want.into_iter().chain([("of", vec![0.0, 1.0 / 3.0, 2.0 / 3.0])]) {
                let far = values(&got[name]).iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(far < near, "{numerics} {backend} {name}: {far:e}");
                assert_eq!(matches!(got[name].data(), TensorData::F64(_)), numerics == "f64", "{name}");
            }
        }
    }
}

/// A match inside two loops may ask either index; the cases of one may hold a match on the other.
#[test]
fn a_match_may_ask_any_loop_around_it() {
    let dir = TempDir::new().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let spec = "graph: g\ndims: {G: groups, K: layers}\nsymbols: {N: {min: 1}}\ninputs: {x: \"f64[N]\"}\nnodes:\n  outer:\n    \
                repeat: {a: G}\n    carry: {y: x}\n    nodes:\n      inner:\n        repeat: {b: K}\n        carry: {z: y}\n        \
                nodes:\n          f: {match: a % 2, 0: by.r, 1: sin(z)}\n          by:\n            match: b\n            \
                0: {r: tanh(z)}\n            1: {r: exp(-z)}\n            2: {r: z * 0.5}\n        yield: {z: f}\n    \
                yield: {y: inner.z}\noutputs: {y: outer.y}\n";
    std::fs::write(path("g.yaml"), spec).expect("a file");
    let x = [0.3, 1.2, -0.7];
    write(&path("in.st"), &[("x", reals(&[3], x.to_vec()))]);
    let step = |y: f64, a: usize, b: usize| match (a % 2, b) {
        (1, _) => y.sin(),
        (_, 0) => y.tanh(),
        (_, 1) => (-y).exp(),
        _ => y * 0.5,
    };
    let want = x.map(|x| (0..12).fold(x, |y, i| step(y, i / 3, i % 3)));
    for backend in ["cpu", "interp"] {
        let more = ["--numerics", "f64", "--backend", backend, "--set", "G=4", "--set", "K=3"];
        ok(eval(text(&path("g.yaml")), &path("in.st"), &path("out.st"), &more));
        let far = values(&read(&path("out.st"))["y"]).iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-14, "{backend}: {far:e}");
    }
    std::fs::write(path("g.yaml"), spec.replace("match: a % 2", "match: (a + b) % 2")).expect("a file");
    let d = fails(2, eval(text(&path("g.yaml")), &path("in.st"), &path("out.st"), &["--set", "G=4", "--set", "K=3"]));
    assert!(d.err.contains("a match depends on one loop's index, this on `a` and `b`"), "{}", d.err);
}

#[test]
fn axes_of_a_transpose_may_count_from_the_end() {
    let dir = TempDir::new().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let spec = "graph: g\ninputs: {x: \"f64[2, 3, 1]\"}\noutputs: {y: \"transpose(x, [-1, 0, -2])\"}\n";
    std::fs::write(path("g.yaml"), spec).expect("a file");
    write(&path("in.st"), &[("x", reals(&[2, 3, 1], (0..6).map(f64::from).collect()))]);
    ok(eval(text(&path("g.yaml")), &path("in.st"), &path("out.st"), &["--numerics", "f64"]));
    let y = &read(&path("out.st"))["y"];
    assert_eq!((y.shape(), values(y)), (&[1, 2, 3][..], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
}

#[test]
fn the_input_is_not_written_over() {
    let dir = TempDir::new().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("g.yaml"), "graph: g\ninputs: {x: \"f64[2]\"}\noutputs: {y: x * 2}\n").expect("a file");
    write(&path("in.st"), &[("x", reals(&[2], vec![1.0, 2.0]))]);
    let same = path(".").join("in.st");
    let d = fails(2, eval(text(&path("g.yaml")), &path("in.st"), &same, &[]));
    assert!(d.err.contains("is the input file"), "{}", d.err);
    assert_eq!(values(&read(&path("in.st"))["x"]), [1.0, 2.0]);
}

const SUM: &str = "graph: g\ndims: {H: width}\nsymbols: {N: {min: 1}}\nweights: {w: \"bf16[H, H]\"}\n\
                   inputs: {x: \"f32[N, H]\", y: \"f32[N, 2*H]\"}\nnodes: {z: \"linear(x, w) + y[:, :H]\"}\noutputs: {z: z}\n";

#[test]
fn a_wrong_extent_is_told_with_the_type_that_is_written() {
    let dir = TempDir::new().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("g.yaml"), SUM).expect("a file");
    let x = reals(&[2, 3], noise(6, 1));
    let w = reals(&[3, 3], noise(9, 2));
    let failed = |y: Tensor| {
        write(&path("in.st"), &[("x", x.clone()), ("w", w.clone()), ("y", y)]);
        fails(3, eval(text(&path("g.yaml")), &path("in.st"), &path("out.st"), &[])).err
    };
    let err = failed(reals(&[2, 5], noise(10, 3)));
    assert!(err.contains("axis 1 of input `y` (f32[N, 6]) has extent 5, it must have 6"), "{err}");
    assert!(err.contains("declared as f32[N, 2 * H]"), "{err}");
    let err = failed(reals(&[4, 6], noise(24, 3)));
    assert!(err.contains("axis 0 of input `y`") && err.contains("N is 2 by input `x`"), "{err}");
    let spec = "graphs/hybrid-dspine.yaml";
    let features = reals(&[2, 5], noise(10, 4));
    write(
        &path("in.st"),
        &[("features", features), ("anchor", ids(&[1], vec![1])), ("anchor_pos", ids(&[1], vec![2]))],
    );
    let err = fails(3, eval(spec, &path("in.st"), &path("out.st"), &[&PAIR[..], &["--entry", "draft"]].concat())).err;
    assert!(err.contains("axis 1 of input `features`") && err.contains("declared as bf16[T, F * H]"), "{err}");
}

#[test]
fn tensors_that_nothing_reads_are_noted() {
    let dir = TempDir::new().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("g.yaml"), SUM).expect("a file");
    let all = [
        ("x", reals(&[2, 3], noise(6, 1))),
        ("w", reals(&[3, 3], noise(9, 2))),
        ("y", reals(&[2, 6], noise(12, 3))),
        ("stray", ids(&[1], vec![0])),
    ];
    write(&path("in.st"), &all);
    let d = ok(eval(text(&path("g.yaml")), &path("in.st"), &path("out.st"), &[]));
    assert!(d.err.contains("tensor `stray` of the input file is read by nothing in graph `g`"), "{}", d.err);
    let input = |more: (&'static str, Tensor)| write(&path("in.st"), &[("input_ids", ids(&[2], vec![1, 2])), more]);
    let entry = ["--entry", "target", "--json"];
    let spec = "graphs/hybrid-dspine.yaml";
    let run = || ok(eval(spec, &path("in.st"), &path("out.st"), &[&PAIR[..], &entry].concat()));
    input(("block_idz", ids(&[1, 2], vec![1, 2])));
    let d = run();
    let out: Value = serde_json::from_str(&d.out).expect("JSON");
    let note = "tensor `block_idz` of the input file is read by nothing in entry `target`; did you mean `block_ids`?";
    assert!(d.err.contains(note), "{}", d.err);
    assert!(out["notes"].as_array().is_some_and(|n| n.iter().any(|n| n == note)), "{out}");
}

#[test]
fn strict_is_about_weights_also_of_a_graph_alone() {
    let dir = TempDir::new().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("g.yaml"), SUM).expect("a file");
    let bf16 = Tensor::stored_as(spinec_exec::checkpoint::Dtype::BF16, vec![3, 3], TensorData::F32(vec![1.0; 9]));
    for (w, code) in [(reals(&[3, 3], noise(9, 2)), 3), (bf16.expect("a tensor"), 0)] {
        let all = [("x", reals(&[2, 3], noise(6, 1))), ("w", w), ("y", reals(&[2, 6], noise(12, 3)))];
        write(&path("in.st"), &all);
        let args = eval(text(&path("g.yaml")), &path("in.st"), &path("out.st"), &["--strict"]);
        let d = expect(code, &args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(d.err.contains("weight `w` is f64, the graph declares bf16"), code == 3, "{}", d.err);
    }
}

#[test]
fn the_bounds_of_symbols_hold_for_what_is_given() {
    let dir = TempDir::new().expect("a directory");
    let path = |n: &str| dir.path().join(n);
    std::fs::write(
        path("g.yaml"),
        "graph: g\nsymbols: {N: {min: 2, max: 3}}\ninputs: {x: \"f32[N]\"}\noutputs: {y: x + 1}\n",
    )
    .expect("a file");
    let spec = path("g.yaml");
    for backend in ["cpu", "interp"] {
        for (n, bound) in
            [(0, Some("at least 2")), (1, Some("at least 2")), (2, None), (3, None), (4, Some("at most 3"))]
        {
            write(&path("i"), &[("x", reals(&[n], vec![1.0; n]))]);
            let args = eval(text(&spec), &path("i"), &path("o"), &["--backend", backend]);
            let Some(bound) = bound else {
                ok(args);
                continue;
            };
            let d = fails(3, args);
            for part in ["axis 0 of input `x`", &format!("has extent {n}"), &format!("N must be {bound}")] {
                assert!(d.err.contains(part), "{part}: {}", d.err);
            }
        }
    }
}

#[test]
fn results_are_not_written_over_what_is_read() {
    let checkpoint = copy_checkpoint("tests/data/golden/s1/target");
    let dir = TempDir::new().expect("a directory");
    let path = |n: &str| dir.path().join(n);
    std::fs::write(path("g.yaml"), "graph: g\ninputs: {x: \"f32[2]\"}\noutputs: {y: x + 1}\n").expect("a file");
    write(&path("i"), &[("x", reals(&[2], vec![1.0; 2])), ("tokens", ids(&[3], vec![1, 2, 3]))]);
    let kept = |output: &Path, args: Vec<String>| {
        let before = std::fs::read(output).expect("the file is there");
        let d = fails(2, args);
        assert!(d.err.contains("name another file for the results"), "{}", d.err);
        assert_eq!(std::fs::read(output).expect("the file is there"), before, "{}", output.display());
    };
    let spec = path("g.yaml");
    kept(&spec, eval(text(&spec), &path("i"), &spec, &[]));
    let target = format!("target={}", text(checkpoint.path()));
    let more = ["--entry", "target", "--checkpoint", &target, PAIR[2], PAIR[3]];
    for name in ["model.safetensors", "config.json"] {
        let over = checkpoint.path().join(name);
        kept(&over, eval(SYSTEM, &path("i"), &over, &more));
        #[cfg(unix)]
        {
            let link = path(name);
            std::os::unix::fs::symlink(&over, &link).expect("a link");
            kept(&over, eval(SYSTEM, &path("i"), &link, &more));
        }
    }
}
