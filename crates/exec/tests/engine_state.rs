//! State is an exact function of the accepted tokens, and nothing stale, foreign or out of the window is read.

mod support;

use spinec_exec::engine::{Engine, EngineOptions, Quiet};
use spinec_exec::eval::{EvalOptions, eval_entry};
use spinec_exec::runtime::{Mode, RequestId};
use spinec_ir::spec::system::System;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::Numerics;
use std::collections::BTreeMap;
use support::driver::{Driver, Values, assert_same_state, part};
use support::pairs::{Recipe, edit};
use support::runs::*;
use support::*;

fn i32s(shape: &[usize], ids: &[u32]) -> Tensor {
    Tensor::i32(shape.to_vec(), ids.iter().map(|i| *i as i32).collect())
}

/// `eval` of entry `target`.
fn target(system: &System, given: Values, chunk: usize) -> Values {
    let options = EvalOptions { chunk: Some(chunk), ..EvalOptions::default() };
    eval_entry(system, runtime(system).as_mut(), "target", &given, &options).unwrap_or_else(|e| panic!("{e:?}")).tensors
}

fn states(all: &Values) -> Values {
    all.iter()
        .filter(|(n, _)| n.starts_with("state.") && !n.starts_with("state.drafter"))
        .map(|(n, t)| (n.clone(), t.clone()))
        .collect()
}

#[test]
fn verify_blocks_of_eval_leave_the_state_of_a_plain_run() {
    on_each(|| {
        const R: usize = 8;
        for recipe in [Recipe::default(), Recipe { kinds: "fddf", captured: &[1], seed: 2, ..Recipe::default() }] {
            let pair = recipe.build();
            let mut rng = Rng(9);
            let prompt = rng.ids(19, recipe.vocabulary);
            for c in 0..=R {
                // A whole block, a block of which c rows stay, and another one on top of it.
                let commits = [R, c, (c * 5 + 3) % (R + 1)];
                let blocks = rng.ids(3 * R, recipe.vocabulary);
                let mut kept = prompt.clone();
                let mut want_rows = Vec::new();
                for (b, n) in commits.iter().enumerate() {
                    let block = &blocks[b * R..(b + 1) * R];
                    let whole = [&kept[..], block].concat();
                    let plain =
                        target(&pair.system, BTreeMap::from([("input_ids".into(), i32s(&[whole.len()], &whole))]), 1);
                    want_rows.push(rows(&plain["logits"], kept.len(), kept.len() + R));
                    kept.extend(&block[..*n]);
                }
                let scratch =
                    target(&pair.system, BTreeMap::from([("input_ids".into(), i32s(&[kept.len()], &kept))]), 1);
                assert!(states(&scratch).len() >= 6, "{:?}", scratch.keys());
                for chunk in [1, 7, 64] {
                    let given = BTreeMap::from([
                        ("input_ids".to_string(), i32s(&[prompt.len()], &prompt)),
                        ("block_ids".to_string(), i32s(&[3, R], &blocks)),
                        ("commits".to_string(), Tensor::i32(vec![3], commits.iter().map(|c| *c as i32).collect())),
                    ]);
                    let out = target(&pair.system, given, chunk);
                    assert_same_state(&states(&out), &states(&scratch), &format!("commits {commits:?}, chunk {chunk}"));
                    let got = &out["block_logits"];
                    assert_eq!(got.shape, [3, R, recipe.vocabulary]);
                    for (b, want) in want_rows.iter().enumerate() {
                        assert!(
                            bits(&part(got, b, 0, R)) == bits(want),
                            "block {b} of commits {commits:?}, chunk {chunk}"
                        );
                    }
                }
            }
        }
    });
}

#[test]
fn golden_states_do_not_depend_on_how_the_prompt_was_fed() {
    on_each(|| {
        for s in ["s0", "s1", "s3", "s4"] {
            let pair = [
                ("target", format!("tests/data/golden/{s}/target")),
                ("drafter", format!("tests/data/golden/{s}/drafter")),
            ];
            let system = system("graphs/hybrid-dspine.yaml", Numerics::F32, &pair);
            let gold = tensors(&format!("tests/data/golden/{s}/target/golden.safetensors"));
            let ids: Vec<u32> = ints(&gold["input_ids"]).iter().map(|i| *i as u32).collect();
            let whole = target(&system, BTreeMap::from([("input_ids".into(), i32s(&[ids.len()], &ids))]), 64);
            // 40 of the prompt, then blocks of 16 of which 11, 16 and 8 rows stay; the rest of each is noise.
            let commits = [11, 16, 8];
            let mut blocks = Vec::new();
            let mut at = 40;
            for c in commits {
                blocks.extend(&ids[at..at + c]);
                blocks.extend((c..16).map(|i| (i * 7 % 300) as u32));
                at += c;
            }
            assert_eq!(at, ids.len());
            for chunk in [1, 7, 64] {
                let given = BTreeMap::from([
                    ("input_ids".to_string(), i32s(&[40], &ids[..40])),
                    ("block_ids".to_string(), i32s(&[3, 16], &blocks)),
                    ("commits".to_string(), Tensor::i32(vec![3], commits.iter().map(|c| *c as i32).collect())),
                ]);
                let out = target(&system, given, chunk);
                assert_same_state(&states(&out), &states(&whole), &format!("{s}, chunk {chunk}"));
                let mut at = 40;
                for (b, c) in commits.into_iter().enumerate() {
                    let r = rel(&part(&out["block_logits"], b, 0, c), &rows(&gold["logits"], at, at + c));
                    assert!(r < golden_noise(), "{s}: block {b} is {r:e} off");
                    at += c;
                }
            }
        }
    });
}

#[test]
fn state_after_a_commit_of_any_length_is_that_of_the_accepted_tokens() {
    on_each(|| {
        let recipe = Recipe { block: 16, ..Recipe::default() };
        let pair = recipe.build();
        let mut d = Driver::probing(&pair.system);
        let mut rng = Rng(4);
        let ids = rng.ids(21 + 16 + 16, recipe.vocabulary);
        for c in 1..=16 {
            let r = d.open();
            d.feed(&[&ids[..21]], &[r], &[21], Mode::Immediate);
            for (at, n) in [(21, c), (21 + c, 17 - c)] {
                // A draft pass leaves scratch in the pool; the tail of the verify block is wrong.
                draft(&mut d, ids[at], &[r]);
                let mut block = ids[at..at + n].to_vec();
                block.extend(rng.ids(16 - n, recipe.vocabulary));
                d.feed(&[&block], &[r], &[n], Mode::Tentative);
                let got = d.runtime.export(r).expect("state");
                let (want, _) = d.computed_plainly(&ids[..at + n]);
                assert!(
                    want.keys().any(|k| k.contains("conv")) && want.keys().any(|k| k.contains("drafter")),
                    "{:?}",
                    want.keys()
                );
                assert_same_state(&got, &want, &format!("{n} rows of a block at {at}"));
            }
            d.runtime.close(r);
        }
    });
}

/// A block of every request with this anchor.
fn draft(d: &mut Driver, anchor: u32, requests: &[RequestId]) -> Values {
    let at: Vec<u32> = requests.iter().map(|r| d.runtime.len(*r) as u32).collect();
    let given = BTreeMap::from([
        ("anchor".to_string(), i32s(&[requests.len()], &vec![anchor; requests.len()])),
        ("position".to_string(), i32s(&[requests.len()], &at)),
    ]);
    d.run("block", &given, requests, Mode::Tentative)
}

#[test]
fn every_cycle_of_the_engine_leaves_the_state_of_the_accepted_tokens() {
    on_each(|| {
        let recipe = Recipe { vocabulary: 5, kept: 3, seed: 12, ..Recipe::default() };
        let pair = recipe.build();
        let mut rng = Rng(8);
        let requests = [
            greedy(&rng.ids(11, 5), 40),
            sampled(&rng.ids(70, 5), 33, 0.9, 0, 1.0, 5),
            sampled(&rng.ids(2, 5), 25, 1.5, 3, 0.9, 6),
        ];
        let mut seen: Vec<(usize, Values)> = Vec::new();
        let mut done = Vec::new();
        for options in [speculative()].into_iter().chain(STEPS.map(in_steps)) {
            let mut engine =
                Engine::new(&pair.system, runtime(&pair.system), None, vec![], options).expect("an engine");
            for r in &requests {
                engine.submit(r.clone()).expect("a request");
            }
            while engine.step(&mut Quiet).expect("a round") {
                for i in 0..requests.len() {
                    seen.extend(engine.state(i).expect("state").map(|s| (i, s)));
                }
            }
            let (these, ..) = engine.results();
            assert!(done.is_empty() || done == these, "steps change no request");
            done = these;
        }
        let mut d = Driver::probing(&pair.system);
        let mut known: BTreeMap<(usize, usize), Values> = BTreeMap::new();
        let mut commits = std::collections::BTreeSet::new();
        for (i, got) in &seen {
            let n = got.iter().find(|(name, _)| name.ends_with(".k")).expect("a pool").1.shape[0];
            let ids = [&requests[*i].prompt[..], &done[*i].tokens].concat();
            let want = known.entry((*i, n)).or_insert_with(|| d.computed_plainly(&ids[..n]).0);
            assert_same_state(got, want, &format!("request {i} with {n} positions"));
        }
        for r in &done {
            commits.extend(r.cycles.iter().map(|c| c.committed));
        }
        assert!(seen.len() > 20 && commits.len() > 2, "{} states, commits {commits:?}", seen.len());
    });
}

#[test]
fn draft_context_is_a_function_of_the_position_alone() {
    on_each(|| {
        let recipe = Recipe::default();
        let pair = recipe.build();
        let mut d = Driver::probing(&pair.system);
        let mut rng = Rng(21);
        let ids = rng.ids(37, recipe.vocabulary);
        let (want, _) = d.computed_plainly(&ids);
        let pool = |s: &Values| -> Values {
            s.iter().filter(|(n, _)| n.starts_with("drafter")).map(|(n, t)| (n.clone(), t.clone())).collect()
        };
        assert_eq!(pool(&want).len(), 4);
        for chunk in [2, 5, 16, 37] {
            let r = d.open();
            for piece in ids.chunks(chunk) {
                d.feed(&[piece], &[r], &[piece.len()], Mode::Immediate);
            }
            assert_same_state(&pool(&d.runtime.export(r).expect("state")), &pool(&want), &format!("chunks of {chunk}"));
        }
        // At commit of verify blocks with wrong tails, after draft passes, together with a mate.
        let (r, mate) = (d.open(), d.open());
        d.feed(&[&ids[..5], &ids[..9]], &[r, mate], &[5, 9], Mode::Immediate);
        let mut at = 5;
        while at < ids.len() {
            let n = (1 + rng.below(8)).min(ids.len() - at);
            draft(&mut d, ids[at], &[r, mate]);
            let mut block = ids[at..at + n].to_vec();
            block.extend(rng.ids(8 - n, recipe.vocabulary));
            let other = rng.ids(8, recipe.vocabulary);
            d.feed(&[&block, &other], &[r, mate], &[n, 1], Mode::Tentative);
            at += n;
        }
        assert_same_state(&pool(&d.runtime.export(r).expect("state")), &pool(&want), "verify blocks");
    });
}

fn poisoned() -> EngineOptions {
    EngineOptions { poison: true, ..speculative() }
}

#[test]
fn stale_slots_are_never_read() {
    on_each(|| {
        for recipe in [
            Recipe { vocabulary: 6, ..Recipe::default() },
            Recipe { causal: false, window: None, vocabulary: 6, ..Recipe::default() },
        ] {
            let pair = recipe.build();
            let mut rng = Rng(5);
            let requests = [greedy(&rng.ids(9, 6), 40), sampled(&rng.ids(3, 6), 40, 1.0, 0, 1.0, 3)];
            let clean = run_all(&pair.system, &requests, speculative());
            let dirty = run_all(&pair.system, &requests, poisoned());
            assert_eq!(clean.done, dirty.done);
        }
    });
}

/// A block that lands one slot late reads, at its anchor, what an earlier block left there.
#[test]
fn poison_shows_a_read_of_a_stale_slot() {
    on_each(|| {
        let late = edit(
            "parts/draft_layer.yaml",
            "seen: kv.write(kr, heads(linear(h, v), KH), at=rows)",
            "seen: kv.write(kr, heads(linear(h, v), KH), at=rows + 1)",
        );
        let pair = Recipe { edits: vec![late], ..Recipe::default() }.build();
        let mut rng = Rng(5);
        let request = [greedy(&rng.ids(9, 48), 40)];
        let clean = run_all(&pair.system, &request, speculative());
        let dirty = run_all(&pair.system, &request, poisoned());
        assert_eq!(clean.done[0].tokens, dirty.done[0].tokens, "what is emitted is the target's in any case");
        assert_ne!(clean.done[0].cycles, dirty.done[0].cycles, "the proposals show the poison");
    });
}

#[test]
fn the_window_ends_where_it_says() {
    on_each(|| {
        const W: usize = 12;
        for (window, causal) in [(Some(W), true), (Some(W), false), (None, true)] {
            let recipe = Recipe { window, causal, ..Recipe::default() };
            let pair = recipe.build();
            let (width, context) = (2 * 32, 30);
            let mut rng = Rng(6);
            let features: Vec<f64> = (0..context * width).map(|_| rng.real()).collect();
            let run = |features: &[f64]| -> Values {
                let given = BTreeMap::from([
                    ("features".to_string(), Tensor::f64(vec![context, width], features.to_vec())),
                    ("anchor".to_string(), Tensor::i32(vec![1], vec![3])),
                    ("anchor_pos".to_string(), Tensor::i32(vec![1], vec![context as i32])),
                ]);
                eval_entry(&pair.system, runtime(&pair.system).as_mut(), "draft", &given, &EvalOptions::default())
                    .expect("it runs")
                    .tensors
            };
            let base = run(&features);
            // In the first layer row t at position context + t reads positions from context + t - (W - 1) on.
            let changed = |distance_from_anchor: usize| -> (Vec<bool>, bool) {
                let position = context - distance_from_anchor;
                let mut other = features.clone();
                for x in &mut other[position * width..(position + 1) * width] {
                    *x = -*x + 0.25;
                }
                let out = run(&other);
                let first = (0..8)
                    .map(|t| bits(&rows(&out["post_mlp.0"], t, t + 1)) != bits(&rows(&base["post_mlp.0"], t, t + 1)))
                    .collect();
                (first, bits(&out["final_hidden"]) != bits(&base["final_hidden"]))
            };
            for back in 0..8 {
                // Distance W - 1 of row `back`, and of none behind it.
                let (rows, any) = changed(W - 1 - back);
                let want: Vec<bool> = (0..8).map(|t| t <= back || window.is_none()).collect();
                assert_eq!(rows, want, "{window:?} {causal}: position {} before the anchor", W - 1 - back);
                assert!(any);
            }
            let (rows, any) = changed(W);
            assert_eq!(
                (rows, any),
                (vec![window.is_none(); 8], window.is_none()),
                "{window:?} {causal}: one before the window"
            );
        }
    });
}

#[test]
fn what_a_mate_holds_changes_no_bit_of_a_request() {
    on_each(|| {
        let recipe = Recipe::default();
        let pair = recipe.build();
        let mut seen: Vec<Vec<Vec<u64>>> = Vec::new();
        let mut first_mate = Vec::new();
        for seed in [1, 2] {
            let mut d = Driver::probing(&pair.system);
            let mut rng = Rng(seed);
            let ids = Rng(99).ids(20, recipe.vocabulary);
            let (before, behind) = (rng.ids(10, recipe.vocabulary), rng.ids(25, recipe.vocabulary));
            let all = [d.open(), d.open(), d.open()];
            let mut parts = Vec::new();
            let out = d.feed(&[&before, &ids, &behind], &all, &[10, 20, 25], Mode::Immediate);
            parts.push(bits(&part(&out["logits"], 1, 0, 20)));
            parts.push(bits(&part(&out["features"], 1, 0, 20)));
            let at: Vec<u32> = all.iter().map(|r| d.runtime.len(*r) as u32).collect();
            let given = BTreeMap::from([
                ("anchor".to_string(), i32s(&[3], &[before[0], 7, behind[0]])),
                ("position".to_string(), i32s(&[3], &at)),
            ]);
            let out = d.run("block", &given, &all, Mode::Tentative);
            for name in ["hidden", "last", "codes"] {
                parts.push(bits(&part(&out[name], 1, 0, 8)));
            }
            first_mate.push(bits(&part(&out["hidden"], 0, 0, 8)));
            let out = d.feed(&[&behind[..8], &ids[..5], &before[..6]], &all, &[2, 3, 1], Mode::Tentative);
            parts.push(bits(&part(&out["logits"], 1, 0, 5)));
            let state = d.runtime.export(all[1]).expect("state");
            parts.extend(state.values().map(bits));
            seen.push(parts);
        }
        assert!(seen[0] == seen[1], "a mate changed the request");
        assert!(first_mate[0] != first_mate[1], "the mates differ");
    });
}

#[test]
fn the_first_row_of_the_tail_scores_as_the_head_does() {
    on_each(|| {
        for s in ["s1", "s4"] {
            let system = golden_f64(s);
            let (scores, out) = tail_after_draft(&system, s);
            let exact = &out["cand_exact_scores"];
            let kept = exact.shape[1];
            let row = part(&scores["tail_scores"], 0, 0, kept);
            let first = rows(exact, 0, 1).to_f64();
            for p in 0..kept {
                for (a, b) in rows(&row, p, p + 1).to_f64().iter().zip(&first) {
                    assert!((a - b).abs() < 1e-10, "{s}: predecessor {p}: {a} against {b}");
                }
            }
            let second = part(&scores["tail_scores"], 1, 0, 1).to_f64();
            let continuous = rows(exact, 1, 2).to_f64();
            assert!(
                second.iter().zip(&continuous).any(|(a, b)| (a - b).abs() > 1e-4),
                "{s}: later rows depend on the predecessor"
            );
        }
    });
}

fn golden_f64(s: &str) -> System {
    let pair =
        [("target", format!("tests/data/golden/{s}/target")), ("drafter", format!("tests/data/golden/{s}/drafter"))];
    system("graphs/hybrid-dspine.yaml", Numerics::F64, &pair)
}

/// Draft of a golden set, exact candidates, and the tail on them.
fn tail_after_draft(system: &System, s: &str) -> (Values, Values) {
    let gold = tensors(&format!("tests/data/golden/{s}/drafter/golden.safetensors"));
    let run = |entry: &str, given: Values| -> Values {
        eval_entry(system, runtime(system).as_mut(), entry, &given, &EvalOptions::default())
            .unwrap_or_else(|e| panic!("{e:?}"))
            .tensors
    };
    let given = ["features", "anchor", "anchor_pos"].iter().map(|n| (n.to_string(), gold[*n].clone())).collect();
    let draft = run("draft", given);
    let hidden = &draft["final_hidden"];
    let block = hidden.shape[0];
    let candidates = run("candidates", BTreeMap::from([("hidden".to_string(), rows(hidden, 1, block))]));
    let last = draft.keys().filter(|k| k.starts_with("post_mlp.")).count() - 1;
    let given = BTreeMap::from([
        ("last".to_string(), draft[&format!("post_mlp.{last}")].clone()),
        ("codes".to_string(), draft[&format!("codes.{last}")].clone()),
        ("anchor".to_string(), gold["anchor"].clone()),
        ("candidates".to_string(), candidates["cand_exact"].clone()),
        ("temperature".to_string(), gold["sample_temperature"].clone()),
        ("coins".to_string(), gold["sample_coins"].clone()),
    ]);
    (run("tail", given), candidates)
}

/// The normaliser of the last norm depends on the predecessor and not on the candidate: a greedy walk does not see it, a
/// sampled one does.
#[test]
fn dropping_the_normaliser_changes_the_proposal_law_and_no_greedy_chain() {
    on_each(|| {
        let drop = edit(
            "parts/tail.yaml",
            "xn: rms_norm(written, norm, eps=eps)",
            "xn: written * cast(norm, f32) * (1 + eps)",
        );
        for seed in 1..4 {
            let recipe = Recipe { numerics: Numerics::F64, seed, ..Recipe::default() };
            let (with, without) = (recipe.build(), Recipe { edits: vec![drop.clone()], ..recipe.clone() }.build());
            let mut rng = Rng(seed * 31);
            let real = |rng: &mut Rng, shape: &[usize]| {
                let n = shape.iter().product();
                Tensor::f64(shape.to_vec(), (0..n).map(|_| 2.0 * rng.real()).collect())
            };
            let candidates: Vec<u32> = (0..7).flat_map(|t| [t * 6, t * 6 + 1, t * 6 + 3, t * 6 + 5]).collect();
            let given = BTreeMap::from([
                ("last".to_string(), real(&mut rng, &[8, 32])),
                ("codes".to_string(), real(&mut rng, &[8, 16])),
                ("anchor".to_string(), i32s(&[1], &[2])),
                ("candidates".to_string(), i32s(&[7, 4], &candidates)),
                ("temperature".to_string(), Tensor::f64(vec![1], vec![0.8])),
                ("coins".to_string(), Tensor::f64(vec![7], (0..7).map(|_| rng.real().abs()).collect())),
            ]);
            let run = |system: &System| {
                eval_entry(system, runtime(system).as_mut(), "tail", &given, &EvalOptions::default())
                    .unwrap_or_else(|e| panic!("{e:?}"))
                    .tensors
            };
            let (a, b) = (run(&with.system), run(&without.system));
            assert_eq!(ints(&a["greedy_chain"]), ints(&b["greedy_chain"]));
            let (Data::F64(qa), Data::F64(qb)) = (&a["sampled_q"].data, &b["sampled_q"].data) else {
                panic!("q is f64")
            };
            // The first row's predecessor is the anchor in both, so its law is over the same conditioning.
            let distance: f64 = qa[..4].iter().zip(&qb[..4]).map(|(x, y)| (x - y).abs()).sum::<f64>() / 2.0;
            assert!(distance > 0.01, "total variation {distance}");
            for q in qa.chunks(4) {
                assert!((q.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            }
        }
    });
}
