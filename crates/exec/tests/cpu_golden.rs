//! The graphs on the CPU backend: against data of other implementations, and against the reference interpreter.

mod cpu_support;
mod support;

use cpu_support::*;
use spinec_exec::eval::{EvalOptions, Evaluated, eval_entry};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Numerics;
use std::collections::BTreeMap;
use support::{interp, rel, tensors};

const SETS: [&str; 4] = ["s0", "s1", "s3", "s4"];

fn pick(all: &BTreeMap<String, Tensor>, names: &[&str]) -> BTreeMap<String, Tensor> {
    names.iter().map(|n| (n.to_string(), all[*n].clone())).collect()
}

/// An entry on the CPU backend and on the interpreter; tensors must agree within `near`, integers exactly.
fn both(set: &str, numerics: Numerics, entry: &str, given: &BTreeMap<String, Tensor>, near: f64) -> Evaluated {
    let system = golden_system(set, numerics);
    let options = EvalOptions { dump: vec!["*".into()], ..EvalOptions::default() };
    let ours = eval_entry(&system, &mut cpu(&system, 2), entry, given, &options).unwrap();
    let want = eval_entry(&system, &mut interp(&system), entry, given, &options).unwrap();
    assert_eq!(ours.tensors.keys().collect::<Vec<_>>(), want.tensors.keys().collect::<Vec<_>>());
    assert!(ours.tensors.len() > 3);
    for (name, t) in &want.tensors {
        let got = &ours.tensors[name];
        assert_eq!(got.dtype, t.dtype, "{set} {name}");
        if t.dtype.is_float() {
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
        for numerics in [Numerics::F64, Numerics::F32] {
            let out = both(set, numerics, "target", &pick(&gold, &["input_ids"]), near(numerics));
            for (name, want) in &gold {
                if name.starts_with("after_layer") || name == "logits" || name == "embeddings" {
                    let r = rel(&out.tensors[name], want);
                    assert!(r < 1e-4, "{set} {name}: {r:e}");
                }
            }
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
            let out = both(set, numerics, "candidates", &BTreeMap::from([("hidden".into(), rows.clone())]), near(numerics));
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

/// 16-bit storage: every value within two units of the last place of what the interpreter rounds to, relative to the
/// largest.
#[test]
fn rounding_points_are_those_of_the_spec() {
    let gold = tensors("tests/data/golden/s1/target/golden.safetensors");
    let system = golden_system("s1", Numerics::BF16);
    let given = pick(&gold, &["input_ids"]);
    let options = EvalOptions { chunk: Some(16), ..EvalOptions::default() };
    let ours = eval_entry(&system, &mut cpu(&system, 1), "target", &given, &options).unwrap();
    let want = eval_entry(&system, &mut interp(&system), "target", &given, &options).unwrap();
    for (name, t) in want.tensors.iter().filter(|(_, t)| t.dtype.is_float()) {
        let got = &ours.tensors[name];
        assert_eq!(got.dtype, t.dtype);
        if t.dtype == spinec_ir::ty::DType::BF16 {
            assert!(bits(got).iter().all(|b| b & 0xffff == 0), "{name} holds numbers that are not bf16");
        }
        let r = rel(got, t);
        assert!(r < 2e-2, "{name}: {r:e}");
    }
}
