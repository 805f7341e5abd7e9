//! Golden data of other implementations, restated through single ops.

mod interp_support;

use interp_support::*;
use spinec_ir::ir::{Attr, Attrs};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::DType;
use std::collections::BTreeMap;

const SETS: [&str; 4] = ["s0", "s1", "s3", "s4"];

/// The tensors of a safetensors file, read by its published layout: a length, a JSON header, the data.
fn golden(path: &str) -> BTreeMap<String, Tensor> {
    let path = format!("{}/../../tests/data/golden/{path}", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let json: serde_json::Value = serde_json::from_slice(&file[8..header]).unwrap();
    let mut out = BTreeMap::new();
    for (name, entry) in json.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__") {
        let numbers = |key: &str| -> Vec<usize> {
            entry[key].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
        };
        let (shape, range) = (numbers("shape"), numbers("data_offsets"));
        let bytes = &file[header + range[0]..header + range[1]];
        let (dtype, data) = match entry["dtype"].as_str().unwrap() {
            "F64" => (DType::F64, Data::F64(words(bytes, f64::from_le_bytes))),
            "F32" => (DType::F32, Data::F32(words(bytes, f32::from_le_bytes))),
            "BF16" => (DType::BF16, Data::F32(words(bytes, |b| half::bf16::from_le_bytes(b).to_f32()))),
            "I32" => (DType::I32, Data::I32(words(bytes, i32::from_le_bytes))),
            "U8" => (DType::U8, Data::U8(bytes.to_vec())),
            _ => continue,
        };
        out.insert(name.clone(), Tensor::new(dtype, shape, data).expect("the file is consistent"));
    }
    out
}

fn words<const N: usize, T>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(|c| f(c.try_into().unwrap())).collect()
}

fn ints(t: &Tensor) -> Vec<i32> {
    match &t.data {
        Data::I32(v) => v.clone(),
        _ => panic!("integers are expected"),
    }
}

/// Entry `i` of axis 0.
fn entry(t: &Tensor, i: usize) -> Tensor {
    let mut out = requests(t, i, i + 1);
    out.shape.remove(0);
    out
}

fn draw(law: Vec<f64>, coin: f64) -> i32 {
    ints(&eval(Opcode::Draw, &[f64s(&[law.len()], &law), f64s(&[], &[coin])], Attrs::new())[0])[0]
}

/// Acceptance of one sampled case in the free-test form, p and draws from the ops.
fn verify_sampled(g: &BTreeMap<String, Tensor>, case: usize) -> (i32, i32) {
    let at = |name: &str| entry(&g[name], case);
    let params = at("temperature_topk_topp").to_f64();
    let logits = requests(&g["logits"], case, case + 1);
    let law = eval(
        Opcode::SamplingLaw,
        &[logits, f64s(&[1], &params[..1]), i32s(&[1], &[params[1] as i32]), f64s(&[1], &params[2..])],
        Attrs::new(),
    );
    let v = law[0].shape[2];
    let p: Vec<Vec<f64>> = law[0].to_f64().chunks(v).map(<[f64]>::to_vec).collect();
    let (proposal, cand, q) = (ints(&at("proposal")), ints(&at("candidates")), at("q").to_f64());
    let (coins, last) = (at("accept_coins").to_f64(), at("final_coin").to_f64()[0]);
    let (width, k) = (ints(&at("width"))[0] as usize, cand.len() / proposal.len());
    for (n, token) in proposal.iter().enumerate().take(width) {
        let own = n * k..(n + 1) * k;
        let pairs = || cand[own.clone()].iter().zip(&q[own.clone()]);
        let qv: f64 = pairs().filter(|(c, _)| *c == token).map(|(_, q)| q).sum();
        if 0.0 < qv && qv <= 1.0 && coins[n] * qv < p[n][*token as usize] {
            if n == width - 1 {
                return (n as i32, *token);
            }
            continue;
        }
        let mut residual = p[n].clone();
        pairs().for_each(|(c, q)| residual[*c as usize] -= q);
        residual.iter_mut().for_each(|r| *r = r.max(0.0));
        let law = if residual.iter().sum::<f64>() > 0.0 { residual } else { p[n].clone() };
        return (n as i32, draw(law, last));
    }
    (proposal.len() as i32, draw(p[proposal.len()].clone(), last))
}

#[test]
fn sampled_verification_is_exact() {
    for set in SETS {
        let g = golden(&format!("{set}/verify.safetensors"));
        let (accepted, token) = (ints(&g["accepted"]), ints(&g["token"]));
        assert!(accepted.len() >= 96);
        for case in 0..accepted.len() {
            assert_eq!(verify_sampled(&g, case), (accepted[case], token[case]), "{set}, case {case}");
        }
    }
}

#[test]
fn greedy_verification_is_exact() {
    for set in SETS {
        let g = golden(&format!("{set}/verify.safetensors"));
        let best = eval(Opcode::Argmax, &[g["greedy_logits"].clone()], axis(-1)).remove(0);
        for case in 0..best.shape[0] {
            let (best, proposal) = (ints(&entry(&best, case)), ints(&entry(&g["greedy_proposal"], case)));
            let width = ints(&g["greedy_width"])[case] as usize;
            let n = (0..width - 1).take_while(|i| proposal[*i] == best[*i]).count();
            let want = (ints(&g["greedy_accepted"])[case], ints(&g["greedy_token"])[case]);
            assert_eq!((n as i32, best[n]), want, "{set}, case {case}");
        }
    }
}

#[test]
fn the_quantised_head_and_the_candidates_are_exact() {
    for set in SETS {
        let weights = golden(&format!("{set}/target/model.safetensors"));
        let g = golden(&format!("{set}/drafter/golden.safetensors"));
        let head = &weights["lm_head.weight"];
        let copy = eval(Opcode::QuantizeRows, std::slice::from_ref(head), Attrs::new());
        assert_eq!(copy[0].data, g["head_fp8_bits"].data, "{set}");
        assert_eq!(copy[1], g["head_fp8_scale"], "{set}");

        let acc = || attrs([("acc", Attr::DType(DType::F64))]);
        let hidden = &g["final_hidden"];
        let all = Tensor { dtype: hidden.dtype, shape: [&[1], &hidden.shape[..]].concat(), data: hidden.data.clone() };
        let mut hidden = rows(&all, 1, all.shape[1]);
        hidden.shape.remove(0);
        let scores = eval(Opcode::Linear, &[hidden.clone(), head.clone()], acc()).remove(0);
        let k = g["cand_exact"].shape[1] as i64;
        let top = |t: &Tensor, k: i64| eval(Opcode::TopK, std::slice::from_ref(t), attrs([("k", Attr::Dim(k.into()))]));
        let best = top(&scores, k);
        assert_eq!(best[1], g["cand_exact"], "{set}");
        let worst = best[0]
            .to_f64()
            .iter()
            .zip(g["cand_exact_scores"].to_f64())
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(worst < 1e-12, "{set}: {worst}");

        let config = format!("{}/../../tests/data/golden/{set}/drafter/config.json", env!("CARGO_MANIFEST_DIR"));
        let config: serde_json::Value = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
        let coarse_k = config["dspine_config"]["coarse_topk"].as_i64().unwrap();
        let coarse = eval(Opcode::Linear, &[hidden, copy[0].clone()], acc()).remove(0);
        let coarse = eval(Opcode::Mul, &[coarse, copy[1].clone()], Attrs::new()).remove(0);
        let kept = eval(Opcode::Sort, &[top(&coarse, coarse_k).remove(1)], Attrs::new()).remove(0);
        let exact = eval(Opcode::Take, &[scores, kept.clone()], axis(1)).remove(0);
        let order = top(&exact, k).remove(1);
        assert_eq!(eval(Opcode::Take, &[kept, order], axis(1)).remove(0), g["cand_coarse"], "{set}");
    }
}

#[test]
fn the_sampled_chain_of_the_tail_is_exact() {
    for set in SETS {
        let g = golden(&format!("{set}/drafter/golden.safetensors"));
        let (q, coins, cand) = (&g["sampled_q"], &g["sample_coins"], &g["cand_exact"]);
        let drawn = eval(Opcode::Draw, &[q.clone(), coins.clone()], Attrs::new()).remove(0);
        let index = Tensor { dtype: DType::I32, shape: vec![drawn.shape[0], 1], data: drawn.data.clone() };
        let tokens = eval(Opcode::Take, &[cand.clone(), index], axis(1)).remove(0);
        assert_eq!(tokens.data, g["sampled_chain"].data, "{set}");
    }
}
