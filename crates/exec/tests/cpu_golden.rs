//! The graphs on the CPU backend: against data of other implementations, and against the reference interpreter.

mod cpu_support;
mod support;

use cpu_support::*;
use spinec_exec::eval::{EvalOptions, Evaluated, eval_entry};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Numerics;
use std::collections::BTreeMap;
use support::{interp, planned, rel, tensors};

const SETS: [&str; 4] = ["s0", "s1", "s3", "s4"];

fn pick(all: &BTreeMap<String, Tensor>, names: &[&str]) -> BTreeMap<String, Tensor> {
    names.iter().map(|n| (n.to_string(), all[*n].clone())).collect()
}

/// An entry on the CPU backend, as it is written and planned, and on the interpreter; tensors must agree within `near`,
/// integers exactly.
fn both(set: &str, numerics: Numerics, entry: &str, given: &BTreeMap<String, Tensor>, near: f64) -> Evaluated {
    let system = golden_system(set, numerics);
    let options = EvalOptions { dump: vec!["*".into()], ..EvalOptions::default() };
    let ours = eval_entry(&system, &mut cpu(&system, 2), entry, given, &options).unwrap();
    let want = eval_entry(&system, &mut interp(&system), entry, given, &options).unwrap();
    assert_eq!(ours.tensors.keys().collect::<Vec<_>>(), want.tensors.keys().collect::<Vec<_>>());
    assert!(ours.tensors.len() > 3);
    let mut plans = planned(Box::new(cpu(&system, 2)));
    let fused = eval_entry(&system, plans.as_mut(), entry, given, &EvalOptions::default()).unwrap();
    assert!(!fused.tensors.is_empty());
    let all = want.tensors.iter().map(|(name, t)| (name, t, &ours.tensors[name]));
    let fused = fused.tensors.iter().map(|(name, got)| (name, &want.tensors[name], got));
    for (name, t, got) in all.chain(fused) {
        assert_eq!(got.dtype, t.dtype, "{set} {name}");
        if name.starts_with("state.drafter") {
            // Nothing wrote the draft pool.
            assert!(got.to_f64().iter().chain(&t.to_f64()).all(|x| x.is_nan()), "{set} {name}");
        } else if t.dtype.is_float() {
            let r = rel(got, t);
            assert!(r <= near, "{set} {entry} {name}: {r:e}");
        } else {
            assert_eq!(got.data, t.data, "{set} {entry} {name}");
        }
    }
    ours
}

fn near(numerics: Numerics) -> f64 {
    if numerics == Numerics::F64 { 1e-10 } else { 1e-4 }
}

#[test]
fn target() {
    for set in SETS {
        let gold = tensors(&format!("tests/data/golden/{set}/target/golden.safetensors"));
        let given = pick(&gold, &["input_ids"]);
        both(set, Numerics::F64, "target", &given, 1e-10);
        let system = golden_system(set, Numerics::F32);
        for chunk in [1, 7, 64] {
            let options = EvalOptions { chunk: Some(chunk), ..EvalOptions::default() };
            let written = eval_entry(&system, &mut cpu(&system, 2), "target", &given, &options).unwrap();
            let mut plans = planned(Box::new(cpu(&system, 2)));
            let fused = eval_entry(&system, plans.as_mut(), "target", &given, &options).unwrap();
            let mut seen = 0;
            for (name, want) in gold.iter().filter(|(name, _)| written.tensors.contains_key(*name)) {
                for out in [&written, &fused] {
                    let r = rel(&out.tensors[name], want);
                    assert!(r < 1e-4, "{set} {name}, chunk {chunk}: {r:e}");
                }
                seen += 1;
            }
            assert!(seen > 5, "{set}: only {seen} tensors were compared");
        }
    }
}

#[test]
fn drafter() {
    for set in SETS {
        let gold = tensors(&format!("tests/data/golden/{set}/drafter/golden.safetensors"));
        let given = pick(&gold, &["features", "anchor", "anchor_pos"]);
        for (numerics, within) in [(Numerics::F64, 1e-9), (Numerics::F32, 1e-4)] {
            let out = both(set, numerics, "draft", &given, near(numerics));
            let mut seen = 0;
            for (name, want) in gold.iter().filter(|(n, _)| out.tensors.contains_key(*n)) {
                let r = rel(&out.tensors[name], want);
                assert!(r < within, "{set} {name}: {r:e}");
                seen += 1;
            }
            assert!(seen > 10, "{set}: only {seen} tensors were compared");
        }
    }
}

#[test]
fn candidates_and_tail() {
    for set in SETS {
        let gold = tensors(&format!("tests/data/golden/{set}/drafter/golden.safetensors"));
        let hidden = &gold["final_hidden"];
        let width = hidden.shape[1];
        let rows = Tensor::f64(vec![hidden.shape[0] - 1, width], hidden.to_f64()[width..].to_vec());
        let last = gold.keys().filter(|k| k.starts_with("post_mlp.")).count() - 1;
        let tail = BTreeMap::from([
            ("last".to_string(), gold[&format!("post_mlp.{last}")].clone()),
            ("codes".to_string(), gold[&format!("codes.{last}")].clone()),
            ("anchor".to_string(), gold["anchor"].clone()),
            ("candidates".to_string(), gold["cand_exact"].clone()),
            ("temperature".to_string(), gold["sample_temperature"].clone()),
            ("coins".to_string(), gold["sample_coins"].clone()),
        ]);
        for (numerics, within) in [(Numerics::F64, 1e-9), (Numerics::F32, 1e-4)] {
            let out =
                both(set, numerics, "candidates", &BTreeMap::from([("hidden".into(), rows.clone())]), near(numerics));
            for name in ["cand_exact", "cand_coarse", "head_fp8_bits", "head_fp8_scale"] {
                assert_eq!(out.tensors[name].to_f64(), gold[name].to_f64(), "{set} {name}");
            }
            for name in ["cand_exact_scores", "cand_coarse_scores"] {
                assert!(rel(&out.tensors[name], &gold[name]) < within, "{set} {name}");
            }
            let out = both(set, numerics, "tail", &tail, near(numerics));
            for name in ["tail_scores", "sampled_q"] {
                let r = rel(&out.tensors[name], &gold[name]);
                assert!(r < within, "{set} {name}: {r:e}");
            }
            for name in ["greedy_chain", "sampled_chain"] {
                assert_eq!(out.tensors[name].to_f64(), gold[name].to_f64(), "{set} {name}");
            }
        }
    }
}

#[test]
fn verification() {
    for set in SETS {
        let gold = tensors(&format!("tests/data/golden/{set}/verify.safetensors"));
        for numerics in [Numerics::F64, Numerics::F32] {
            let system = golden_system(set, numerics);
            let out = eval_entry(&system, &mut cpu(&system, 2), "verify", &gold, &EvalOptions::default()).unwrap();
            for name in ["accepted", "token", "greedy_accepted", "greedy_token"] {
                assert_eq!(out.tensors[name].to_f64(), gold[name].to_f64(), "{set} {name}");
            }
        }
    }
}

/// 16-bit storage: no further from the exact values than what the interpreter rounds to.
#[test]
fn rounding_points_are_those_of_the_spec() {
    let gold = tensors("tests/data/golden/s1/target/golden.safetensors");
    let given = pick(&gold, &["input_ids"]);
    let options = EvalOptions { chunk: Some(16), ..EvalOptions::default() };
    let system = golden_system("s1", Numerics::BF16);
    let ours = eval_entry(&system, &mut cpu(&system, 1), "target", &given, &options).unwrap();
    let theirs = eval_entry(&system, &mut interp(&system), "target", &given, &options).unwrap();
    let exact = golden_system("s1", Numerics::F64);
    let exact = eval_entry(&exact, &mut interp(&exact), "target", &given, &options).unwrap();
    for (name, t) in theirs.tensors.iter().filter(|(n, _)| !n.starts_with("state.drafter")) {
        let (got, want) = (&ours.tensors[name], &exact.tensors[name]);
        assert_eq!(got.dtype, t.dtype);
        if t.dtype == spinec_ir::ty::DType::BF16 {
            assert!(bits(got).iter().all(|b| b & 0xffff == 0), "{name} holds numbers that are not bf16");
        }
        let (a, b) = (rel(got, want), rel(t, want));
        assert!(a < 2.0 * b + 4e-3, "{name}: {a:e}, the interpreter {b:e}");
    }
}
