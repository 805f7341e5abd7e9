//! Greedy speculative output is the target's own greedy output, and the logits behind it are the same bits.

mod support;

use spinec_exec::engine::{Engine, Finish, Quiet};
use spinec_exec::runtime::Mode;
use spinec_ir::ty::Numerics;
use support::demo::{demo, expected};
use support::driver::{Driver, part};
use support::pairs::{Recipe, sets};
use support::runs::*;
use support::*;

#[test]
fn the_demo_pair_gives_the_expected_tokens_and_counts() {
    let system = demo();
    let all = expected();
    assert_eq!(all.len(), 8);
    let requests: Vec<_> = all.iter().map(|e| greedy(&e.prompt, 64)).collect();
    let out = run_all(&system, &requests, speculative());
    for (e, d) in all.iter().zip(&out.done) {
        assert_eq!(d.tokens, e.greedy);
        assert_eq!(d.cycles.iter().map(|c| c.accepted).collect::<Vec<_>>(), e.accepted);
        assert_eq!(d.finish, Finish::Length);
    }
    assert!(out.totals.accept_length() > 2.5, "{}", out.totals.accept_length());
    for step in STEPS {
        assert_eq!(run_all(&system, &requests, in_steps(step)).done, out.done, "steps of {step}");
    }
}

#[test]
fn the_demo_target_alone_gives_the_expected_tokens() {
    let system = demo();
    let all = expected();
    let requests: Vec<_> = all.iter().map(|e| greedy(&e.prompt, 64)).collect();
    for (e, d) in all.iter().zip(run_all(&system, &requests, plain()).done) {
        assert_eq!(d.tokens, e.greedy);
    }
}

#[test]
fn a_demo_prompt_alone_and_with_exact_candidates_is_as_in_the_batch() {
    let system = demo();
    let e = &expected()[5];
    for options in [speculative(), exact()] {
        let d = solo(&system, &greedy(&e.prompt, 64), options);
        assert_eq!(d.tokens, e.greedy);
        assert_eq!(d.cycles.iter().map(|c| c.accepted).collect::<Vec<_>>(), e.accepted);
    }
}

#[test]
fn golden_targets_continue_as_another_implementation_does() {
    on_each(|| {
        for s in ["s0", "s1", "s3", "s4"] {
            let pair = [
                ("target", format!("tests/data/golden/{s}/target")),
                ("drafter", format!("tests/data/golden/{s}/drafter")),
            ];
            let system = system("graphs/hybrid-dspine.yaml", Numerics::F32, &pair);
            let gold = tensors(&format!("tests/data/golden/{s}/target/golden.safetensors"));
            let prompt: Vec<u32> = ints(&gold["input_ids"])[..20].iter().map(|i| *i as u32).collect();
            let want: Vec<u32> = ints(&gold["greedy_from_20"]).iter().map(|i| *i as u32).collect();
            for options in [plain(), speculative(), with_width(3)] {
                assert_eq!(solo(&system, &greedy(&prompt, 24), options).tokens, want, "{s}");
            }
        }
    });
}

/// Changes of the pair that leave it a valid system.
fn variations() -> Vec<(&'static str, Recipe)> {
    let base = Recipe::default();
    vec![
        ("block of 8", base.clone()),
        ("block of 16, two candidates", Recipe { block: 16, kept: 2, seed: 2, ..base.clone() }),
        ("block of 2", Recipe { block: 2, vocabulary: 5, seed: 3, ..base.clone() }),
        ("no window", Recipe { window: None, seed: 4, ..base.clone() }),
        (
            "window off by setting",
            Recipe { sets: sets(&[("drafter.window", "none")]), vocabulary: 7, seed: 5, ..base.clone() },
        ),
        ("bidirectional block", Recipe { causal: false, vocabulary: 7, seed: 6, ..base.clone() }),
        ("block set to 4", Recipe { sets: sets(&[("B", "4")]), vocabulary: 6, seed: 7, ..base.clone() }),
        ("three candidates by setting", Recipe { sets: sets(&[("KC", "3")]), vocabulary: 6, seed: 8, ..base.clone() }),
        (
            "every second layer full",
            Recipe { kinds: "dfdfdf", captured: &[1, 3, 4], vocabulary: 6, seed: 9, ..base.clone() },
        ),
        ("no delta layer", Recipe { kinds: "fff", captured: &[0, 1], vocabulary: 6, seed: 10, ..base.clone() }),
        ("no full layer", Recipe { kinds: "ddd", captured: &[1], vocabulary: 6, seed: 11, ..base.clone() }),
        ("tiny vocabulary", Recipe { vocabulary: 4, kept: 3, seed: 12, ..base }),
    ]
}

#[test]
fn random_pairs_are_lossless_alone_and_in_a_batch() {
    on_each(|| {
        let mut accepted = 0;
        let mut full = 0;
        for (what, recipe) in variations() {
            let pair = recipe.build();
            let system = &pair.system;
            let mut rng = Rng(recipe.seed + 77);
            let prompts =
                [rng.ids(1, recipe.vocabulary), rng.ids(9, recipe.vocabulary), rng.ids(70, recipe.vocabulary)];
            let requests: Vec<_> = prompts.iter().zip([30, 41, 17]).map(|(p, n)| greedy(p, n)).collect();
            let want = run_all(system, &requests, plain());
            let batch = run_all(system, &requests, speculative());
            let narrow = run_all(system, &requests, with_width(2));
            for step in STEPS {
                let stepped = run_all(system, &requests, in_steps(step));
                assert_eq!(stepped.done, batch.done, "{what}: a batch in steps of {step}");
            }
            for (i, r) in requests.iter().enumerate() {
                let alone = solo(system, r, speculative());
                assert_eq!(want.done[i].tokens.len(), r.max_tokens, "{what}");
                assert_eq!(alone, batch.done[i], "{what}: alone and in a batch");
                assert_eq!(alone.tokens, want.done[i].tokens, "{what}: request {i}");
                assert_eq!(solo(system, r, in_steps(3)), alone, "{what}: request {i} in steps");
                assert_eq!(narrow.done[i].tokens, want.done[i].tokens, "{what}: request {i}, width 2");
                assert_eq!(solo(system, r, plain()).tokens, want.done[i].tokens, "{what}: plain alone");
                full += alone.cycles.iter().filter(|c| c.accepted == c.proposal.len()).count();
            }
            accepted += batch.totals.accepted;
        }
        // Without accepted proposals nothing of the above would be seen.
        assert!(accepted > 100 && full > 0, "{accepted} accepted, {full} whole blocks");
    });
}

/// The logits of `ids`, one row at a time, alone: what every other way must give.
#[test]
fn logits_of_a_row_are_the_same_bits_in_any_call() {
    on_each(|| {
        for recipe in [Recipe::default(), Recipe { kinds: "ffdd", captured: &[0], seed: 5, ..Recipe::default() }] {
            let pair = recipe.build();
            let mut d = Driver::probing(&pair.system);
            let mut rng = Rng(3);
            let ids = rng.ids(70, recipe.vocabulary);
            let (state, rows) = d.computed_plainly(&ids);
            let want: Vec<Vec<u64>> = rows.iter().map(bits).collect();
            let same = |got: &spinec_ir::tensor::Tensor, at: usize, n: usize, what: &str| {
                for t in 0..n {
                    assert!(bits(&support::rows(got, t, t + 1)) == want[at + t], "{what}: row {}", at + t);
                }
            };
            for chunk in [1, 7, 64] {
                let r = d.open();
                for (at, piece) in ids.chunks(chunk).enumerate() {
                    let out = d.feed(&[piece], &[r], &[piece.len()], Mode::Immediate);
                    same(
                        &part(&out["logits"], 0, 0, piece.len()),
                        at * chunk,
                        piece.len(),
                        &format!("chunks of {chunk}"),
                    );
                }
                driver_state(&mut d, r, &state, &format!("chunks of {chunk}"));
            }
            // Verify blocks of every width up to 16 whose tails are wrong, in a batch of mates with other rows and lengths.
            let mates = [rng.ids(33, recipe.vocabulary), rng.ids(2, recipe.vocabulary)];
            let all = [d.open(), d.open(), d.open()];
            for (r, m) in all.iter().zip([&mates[0][..], &ids[..3], &mates[1][..]]) {
                d.feed(&[m], &[*r], &[m.len()], Mode::Immediate);
            }
            let mut at = 3;
            let mut width = 1;
            while at < ids.len() {
                let right = (1 + rng.below(width)).min(ids.len() - at);
                let mut block = ids[at..at + right].to_vec();
                block.extend(rng.ids(width - right, recipe.vocabulary));
                let (short, long) = (1 + rng.below(16), 1 + rng.below(16));
                let (left, other) = (rng.ids(short, recipe.vocabulary), rng.ids(long, recipe.vocabulary));
                let out = d.feed(&[&left, &block, &other], &all, &[1, right, 1], Mode::Tentative);
                same(&part(&out["logits"], 1, 0, right), at, right, &format!("block of {width} in a batch"));
                at += right;
                width = width % 16 + 1;
            }
            driver_state(&mut d, all[1], &state, "blocks in a batch");
        }
    });
}

fn driver_state(d: &mut Driver, r: spinec_exec::runtime::RequestId, want: &support::driver::Values, what: &str) {
    let got = d.runtime.export(r).expect("state");
    support::driver::assert_same_state(&got, want, what);
}

#[test]
fn a_drafter_without_bridge_and_tail_is_lossless_too() {
    for s in ["s0", "s1", "s3", "s4"] {
        let pair =
            [("target", format!("tests/data/golden/{s}/target")), ("drafter", format!("tests/data/golden/{s}/dflash"))];
        let system = system("graphs/hybrid-dflash.yaml", Numerics::F32, &pair);
        let gold = tensors(&format!("tests/data/golden/{s}/target/golden.safetensors"));
        let prompt: Vec<u32> = ints(&gold["input_ids"])[..20].iter().map(|i| *i as u32).collect();
        let want: Vec<u32> = ints(&gold["greedy_from_20"]).iter().map(|i| *i as u32).collect();
        let requests = [greedy(&prompt, 24), sampled(&prompt[3..], 24, 0.8, 0, 0.9, 7), greedy(&prompt[..2], 30)];
        let batch = run_all(&system, &requests, speculative()).done;
        assert_eq!(batch[0].tokens, want, "{s}");
        assert_eq!(batch[2].tokens, solo(&system, &requests[2], plain()).tokens, "{s}");
        for (r, d) in requests.iter().zip(&batch) {
            assert_eq!(*d, solo(&system, r, speculative()), "{s}: alone and in a mixed batch");
        }
    }
}

#[test]
fn neither_threads_nor_the_size_of_a_batch_change_a_token_of_the_demo() {
    let system = demo();
    let all = expected();
    let requests: Vec<_> = (0..8)
        .map(|i| {
            let prompt = &all[i].prompt[..8 * (i + 1)];
            if i % 2 == 0 { greedy(prompt, 40) } else { sampled(prompt, 40, 0.8, 0, 0.95, i as u64) }
        })
        .collect();
    let run = |requests: &[spinec_exec::engine::Request], threads: usize| {
        let mut engine =
            Engine::new(&system, Box::new(cpu(&system, threads)), None, vec![], speculative()).expect("an engine");
        for r in requests {
            engine.submit(r.clone()).expect("a request");
        }
        engine.run(&mut Quiet).expect("a run");
        engine.results().0
    };
    let want = run(&requests, 1);
    for threads in [2, 3, 5] {
        assert_eq!(run(&requests, threads), want, "{threads} threads");
    }
    for (r, d) in requests.iter().zip(&want) {
        assert_eq!(run(std::slice::from_ref(r), 2), std::slice::from_ref(d), "alone");
    }
}
