//! Sampled decoding: which coins decide what, and that nothing else does.

mod support;

use spinec_exec::engine::{Cycle, Engine, EngineOptions, Finished, Quiet, Request};
use spinec_exec::runtime::Mode;
use spinec_ir::spec::system::System;
use spinec_ir::tensor::Tensor;
use std::collections::BTreeMap;
use support::coins::{coin, draw, law};
use support::demo::{demo, expected};
use support::driver::{Driver, part};
use support::pairs::Recipe;
use support::runs::*;
use support::*;

/// Purposes of coins.
const FIRST: u32 = 0;
const DRAFT: u32 = 1;
const ACCEPT: u32 = 2;
const RESIDUAL: u32 = 3;
const BONUS: u32 = 4;

/// Plain decoding written down once more: one row a token, its law, its coin.
fn plain_oracle(system: &System, r: &Request) -> Vec<u32> {
    let mut d = Driver::probing(system);
    let slot = d.open();
    let s = &r.sampling;
    let mut ids = r.prompt.clone();
    let mut logits =
        d.feed(&[&r.prompt], &[slot], &[r.prompt.len()], Mode::Immediate).remove("logits").expect("logits");
    let mut out = Vec::new();
    for _ in 0..r.max_tokens {
        let last = logits.shape[1] - 1;
        let row = part(&logits, 0, last, last + 1).to_f64();
        // The token decided stands at ids.len(), its predecessor at ids.len() - 1.
        let u = coin(s.seed, ids.len(), FIRST, ids.len() - 1);
        let token = draw(&law(&row, s.temperature, s.top_k, s.top_p), u) as u32;
        out.push(token);
        logits = d.feed(&[&[token]], &[slot], &[1], Mode::Immediate).remove("logits").expect("logits");
        ids.push(token);
    }
    out
}

#[test]
fn plain_decoding_draws_from_the_law_with_the_coin_of_the_position() {
    on_each(|| {
        let pair = Recipe { vocabulary: 24, ..Recipe::default() }.build();
        let mut rng = Rng(2);
        for (t, k, p, seed) in
            [(1.0, 0, 1.0, 1), (0.7, 5, 1.0, u64::MAX - 3), (1.4, 0, 0.8, 1 << 40), (0.9, 7, 0.6, 12)]
        {
            let r = sampled(&rng.ids(13, 24), 40, t, k, p, seed);
            let got = solo(&pair.system, &r, plain());
            assert_eq!(got.tokens, plain_oracle(&pair.system, &r), "{t} {k} {p} {seed}");
            let other = solo(
                &pair.system,
                &Request { sampling: spinec_exec::engine::Sampling { seed: seed ^ (1 << 33), ..r.sampling }, ..r },
                plain(),
            );
            assert_ne!(got.tokens, other.tokens, "the high word of the seed counts");
        }
    });
}

/// The speculative cycle written down once more. The drafter's candidates and laws are taken from its phase; draws,
/// acceptance and the extra token are decided here.
fn speculative_oracle(system: &System, r: &Request, width: usize) -> (Vec<u32>, Vec<Cycle>) {
    let mut d = Driver::probing(system);
    d.phases(system, "sampled", "exact");
    let slot = d.open();
    let s = &r.sampling;
    let block = system.serve.block as usize;
    let p = |row: &Tensor| law(&row.to_f64(), s.temperature, s.top_k, s.top_p);
    let logits = d.feed(&[&r.prompt], &[slot], &[r.prompt.len()], Mode::Immediate).remove("logits").expect("logits");
    let mut at = r.prompt.len();
    let first = draw(&p(&part(&logits, 0, at - 1, at)), coin(s.seed, at, FIRST, at - 1)) as u32;
    let mut tokens = vec![first];
    let mut cycles = Vec::new();
    while tokens.len() < r.max_tokens {
        let anchor = *tokens.last().expect("a token");
        let one = |x: i32| Tensor::i32(vec![1], vec![x]);
        let given = BTreeMap::from([
            ("anchor".to_string(), one(anchor as i32)),
            ("position".to_string(), one(at as i32)),
            (
                "greedy".to_string(),
                Tensor::new(spinec_ir::ty::DType::Bool, vec![1], spinec_ir::tensor::Data::Bool(vec![false]))
                    .expect("a flag"),
            ),
            ("temperature".to_string(), Tensor::f64(vec![1], vec![s.temperature])),
            ("top_k".to_string(), one(s.top_k)),
            ("top_p".to_string(), Tensor::f64(vec![1], vec![s.top_p])),
            ("seed".to_string(), Tensor::i32(vec![1, 2], vec![s.seed as u32 as i32, (s.seed >> 32) as u32 as i32])),
        ]);
        let draft = d.run("sampled/draft", &given, &[slot], Mode::Tentative);
        let mut proposal = Vec::new();
        let mut laws = Vec::new();
        for t in 0..block - 1 {
            let q = part(&draft["q"], 0, t, t + 1).to_f64();
            let ids = ints(&part(&draft["candidates"], 0, t, t + 1));
            // The proposal of row t + 1 stands at position at + t + 1.
            let pick = draw(&q, coin(s.seed, at + t + 1, DRAFT, at));
            proposal.push(ids[pick] as u32);
            laws.push((ids, q, pick));
        }
        assert_eq!(proposal, ints(&draft["proposal"]).iter().map(|t| *t as u32).collect::<Vec<_>>());
        let rows: Vec<u32> = [anchor].into_iter().chain(proposal.iter().copied()).take(width).collect();
        let logits = d.rows(&[&rows], &[slot], Mode::Tentative, 0).remove("logits").expect("logits");
        let mut lead = 0;
        let mut extra = None;
        for t in 0..width {
            let target = p(&part(&logits, 0, t, t + 1));
            let decided = at + t + 1;
            if t == block - 1 {
                extra = Some(draw(&target, coin(s.seed, decided, BONUS, at)) as u32);
                break;
            }
            let (ids, q, pick) = &laws[t];
            let v = proposal[t] as usize;
            if coin(s.seed, decided, ACCEPT, at) * q[*pick] < target[v] {
                lead += 1;
                continue;
            }
            let mut rest = target.clone();
            for (v, q) in ids.iter().zip(q) {
                rest[*v as usize] -= q;
            }
            rest.iter_mut().for_each(|x| *x = x.max(0.0));
            extra = Some(draw(&rest, coin(s.seed, decided, RESIDUAL, at)) as u32);
            break;
        }
        // The proposal past the width was tested as well; accepted, it is the extra token.
        let (accepted, token) = match extra {
            Some(token) => (lead, token),
            None => (lead - 1, proposal[lead - 1]),
        };
        let room = r.max_tokens - tokens.len();
        let emitted: Vec<u32> = proposal[..accepted].iter().copied().chain([token]).take(room).collect();
        d.feed(&[&rows], &[slot], &[emitted.len()], Mode::Tentative);
        tokens.extend(&emitted);
        cycles.push(Cycle { position: at, width, proposal, accepted, committed: emitted.len() });
        at += emitted.len();
    }
    (tokens, cycles)
}

#[test]
fn a_speculative_cycle_uses_the_coins_of_the_contract() {
    on_each(|| {
        let mut accepted = 0;
        let mut whole = 0;
        for (recipe, widths) in [
            (Recipe { vocabulary: 5, kept: 3, block: 4, ..Recipe::default() }, [1, 2, 3, 4]),
            (Recipe { vocabulary: 12, kept: 6, block: 8, seed: 3, ..Recipe::default() }, [2, 5, 7, 8]),
        ] {
            let pair = recipe.build();
            let mut rng = Rng(40);
            for (i, (t, k, p)) in [(1.0, 0, 1.0), (0.8, 4, 1.0), (1.5, 0, 0.9)].into_iter().enumerate() {
                for w in widths {
                    let r = sampled(&rng.ids(9, recipe.vocabulary), 40, t, k, p, 1000 + i as u64 + ((w as u64) << 50));
                    let options = EngineOptions { candidates: spinec_exec::engine::Candidates::Exact, ..with_width(w) };
                    let got = solo(&pair.system, &r, options);
                    let (tokens, cycles) = speculative_oracle(&pair.system, &r, w as usize);
                    assert_eq!(got.tokens, tokens, "width {w}, law {t} {k} {p}");
                    assert_eq!(got.cycles, cycles, "width {w}, law {t} {k} {p}");
                    accepted += cycles.iter().map(|c| c.accepted).sum::<usize>();
                    whole += cycles.iter().filter(|c| c.accepted == recipe.block - 1).count();
                }
            }
        }
        assert!(accepted > 100 && whole > 3, "{accepted} accepted, {whole} whole blocks");
    });
}

#[test]
fn a_cold_temperature_is_greedy() {
    let system = demo();
    let e = &expected()[0];
    let want = &e.greedy[..24];
    for t in [0.0, 9.9e-6] {
        let r = sampled(&e.prompt, 24, t, 0, 1.0, 5);
        for options in [speculative(), plain()] {
            assert_eq!(solo(&system, &r, options).tokens, want);
        }
    }
    let r = sampled(&e.prompt, 24, 1.0, 1, 1.0, 5);
    assert_eq!(solo(&system, &r, speculative()).tokens, want, "one token kept");
}

fn by_id(done: Vec<Finished>) -> BTreeMap<String, Finished> {
    done.into_iter().map(|d| (d.id.clone(), d)).collect()
}

#[test]
fn sampled_text_depends_on_the_seed_alone_at_fixed_width() {
    let system = demo();
    let all = expected();
    let n = 40;
    let request = |i: usize, seed: u64| Request {
        id: format!("{i}/{seed}"),
        ..sampled(&all[i].prompt[..20 + i], n, 0.8, 50, 0.95, seed)
    };
    let requests: Vec<Request> =
        vec![request(0, 1), request(0, 2), request(1, 1), greedy_named(&all[2].prompt, n), request(3, 9)];
    let once = by_id(run_all(&system, &requests, speculative()).done);
    let reversed: Vec<Request> = requests.iter().rev().cloned().collect();
    let twice = by_id(run_all(&system, &reversed, speculative()).done);
    assert_eq!(once, twice, "order of submission");
    for r in &requests {
        assert_eq!(once[&r.id], solo(&system, r, speculative()), "{} alone", r.id);
        for step in STEPS {
            assert_eq!(once[&r.id], solo(&system, r, in_steps(step)), "{} in steps of {step}", r.id);
        }
    }
    assert_ne!(once["0/1"].tokens, once["0/2"].tokens, "seeds differ");
    // Requests that join while others decode.
    let mut engine = Engine::new(&system, runtime(&system), None, vec![], speculative()).expect("an engine");
    engine.submit(requests[0].clone()).expect("a request");
    for r in &requests[1..] {
        engine.step(&mut Quiet).expect("a round");
        engine.step(&mut Quiet).expect("a round");
        engine.submit(r.clone()).expect("a request");
    }
    engine.run(&mut Quiet).expect("a run");
    assert_eq!(by_id(engine.results().0), once, "joining late");
}

fn greedy_named(prompt: &[u32], n: usize) -> Request {
    Request { id: "greedy".into(), ..greedy(prompt, n) }
}
