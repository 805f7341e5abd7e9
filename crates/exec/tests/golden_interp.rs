//! The graphs against data of other implementations, on the reference interpreter in f64.

mod support;

use spinec_exec::eval::{EvalOptions, eval_entry};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Numerics;
use std::collections::BTreeMap;
use support::*;

/// The target data were computed in f32, and random networks amplify roundings: exact values are off by at most 1e-4 in three
/// sets, by 3.3e-4 in s3.
const NOISE: f64 = 4e-4;

const SETS: [&str; 4] = ["s0", "s1", "s3", "s4"];

fn spec_pair(s: &str) -> [(&'static str, String); 2] {
    [("target", format!("tests/data/golden/{s}/target")), ("drafter", format!("tests/data/golden/{s}/drafter"))]
}

fn pick(all: &BTreeMap<String, Tensor>, names: &[&str]) -> BTreeMap<String, Tensor> {
    names.iter().map(|n| (n.to_string(), all[*n].clone())).collect()
}

#[test]
fn target_agrees_with_another_implementation() {
    for s in SETS {
        let system = system("graphs/hybrid-dspine.yaml", Numerics::F64, &spec_pair(s));
        let gold = tensors(&format!("tests/data/golden/{s}/target/golden.safetensors"));
        let given = pick(&gold, &["input_ids"]);
        let out = eval_entry(&system, &mut interp(&system), "target", &given, &EvalOptions::default()).unwrap();
        for (name, want) in &gold {
            if name.starts_with("after_layer") || name == "logits" || name == "embeddings" {
                let r = rel(&out.tensors[name], want);
                assert!(r < NOISE, "{s} {name}: {r:e}");
            }
        }
    }
}

#[test]
fn drafter_agrees_with_the_definition() {
    for s in SETS {
        let system = system("graphs/hybrid-dspine.yaml", Numerics::F64, &spec_pair(s));
        let gold = tensors(&format!("tests/data/golden/{s}/drafter/golden.safetensors"));
        let given = pick(&gold, &["features", "anchor", "anchor_pos"]);
        let out = eval_entry(&system, &mut interp(&system), "draft", &given, &EvalOptions::default()).unwrap();
        let mut seen = 0;
        for (name, got) in &out.tensors {
            let r = rel(got, &gold[name]);
            assert!(r < 1e-9, "{s} {name}: {r:e}");
            seen += 1;
        }
        assert!(seen > 10, "{s}: only {seen} tensors were compared");
    }
}

#[test]
fn candidates_and_tail_agree_with_the_definition() {
    for s in SETS {
        let system = system("graphs/hybrid-dspine.yaml", Numerics::F64, &spec_pair(s));
        let gold = tensors(&format!("tests/data/golden/{s}/drafter/golden.safetensors"));
        let hidden = &gold["final_hidden"];
        let width = hidden.shape[1];
        let rows = Tensor::f64(vec![hidden.shape[0] - 1, width], hidden.to_f64()[width..].to_vec());
        let given = BTreeMap::from([("hidden".to_string(), rows)]);
        let out = eval_entry(&system, &mut interp(&system), "candidates", &given, &EvalOptions::default()).unwrap();
        for name in ["cand_exact", "cand_coarse", "head_fp8_bits", "head_fp8_scale"] {
            assert_eq!(out.tensors[name].to_f64(), gold[name].to_f64(), "{s} {name}");
        }
        for name in ["cand_exact_scores", "cand_coarse_scores"] {
            assert!(rel(&out.tensors[name], &gold[name]) < 1e-9, "{s} {name}");
        }
        let last = gold.keys().filter(|k| k.starts_with("post_mlp.")).count() - 1;
        let given = BTreeMap::from([
            ("last".to_string(), gold[&format!("post_mlp.{last}")].clone()),
            ("codes".to_string(), gold[&format!("codes.{last}")].clone()),
            ("anchor".to_string(), gold["anchor"].clone()),
            ("candidates".to_string(), gold["cand_exact"].clone()),
            ("temperature".to_string(), gold["sample_temperature"].clone()),
            ("coins".to_string(), gold["sample_coins"].clone()),
        ]);
        let out = eval_entry(&system, &mut interp(&system), "tail", &given, &EvalOptions::default()).unwrap();
        for name in ["tail_scores", "sampled_q"] {
            let r = rel(&out.tensors[name], &gold[name]);
            assert!(r < 1e-9, "{s} {name}: {r:e}");
        }
        for name in ["greedy_chain", "sampled_chain"] {
            assert_eq!(out.tensors[name].to_f64(), gold[name].to_f64(), "{s} {name}");
        }
    }
}

#[test]
fn verification_agrees_with_the_definition() {
    for s in SETS {
        let system = system("graphs/hybrid-dspine.yaml", Numerics::F64, &spec_pair(s));
        let gold = tensors(&format!("tests/data/golden/{s}/verify.safetensors"));
        let out = eval_entry(&system, &mut interp(&system), "verify", &gold, &EvalOptions::default()).unwrap();
        for name in ["accepted", "token", "greedy_accepted", "greedy_token"] {
            assert_eq!(out.tensors[name].to_f64(), gold[name].to_f64(), "{s} {name}");
        }
    }
}

#[test]
fn bidirectional_drafter_agrees_with_another_implementation() {
    for s in SETS {
        let pair =
            [("target", format!("tests/data/golden/{s}/target")), ("drafter", format!("tests/data/golden/{s}/dflash"))];
        let system = system("graphs/hybrid-dflash.yaml", Numerics::F64, &pair);
        let gold = tensors(&format!("tests/data/golden/{s}/dflash/golden.safetensors"));
        let given = pick(&gold, &["features", "anchor", "anchor_pos"]);
        let out = eval_entry(&system, &mut interp(&system), "propose", &given, &EvalOptions::default()).unwrap();
        let r = rel(&out.tensors["final_hidden"], &gold["final_hidden"]);
        assert!(r < 1e-4, "{s}: {r:e}");
        assert_eq!(out.tensors["greedy_proposal"].to_f64(), gold["greedy_proposal"].to_f64(), "{s}");
    }
}
