//! Requests beside each other: stops, caps, queues, slots, and failures that stay where they are.

mod support;

use spinec_exec::engine::{Engine, EngineError, EngineOptions, Events, Finish, Finished, Quiet, Request};
use spinec_exec::runtime::Mode;
use std::collections::BTreeMap;
use support::counting::Counting;
use support::demo::tokenizer;
use support::driver::{Driver, part};
use support::pairs::{Pair, Recipe, sets};
use support::runs::*;
use support::*;

/// The pieces of text of each request, as they came.
#[derive(Default)]
struct Pieces {
    text: BTreeMap<usize, String>,
    finished: Vec<usize>,
}

impl Events for Pieces {
    fn text(&mut self, request: usize, text: &str) {
        assert!(!text.is_empty() && !self.finished.contains(&request));
        self.text.entry(request).or_default().push_str(text);
    }

    fn finished(&mut self, request: usize) {
        self.finished.push(request);
    }
}

/// A random pair with the vocabulary of the demo tokenizer.
fn wordy() -> Pair {
    Recipe { vocabulary: 2048, positions: 256, ..Recipe::default() }.build()
}

fn texts(pair: &Pair, requests: &[Request], options: EngineOptions, stops: &[u32]) -> Vec<Finished> {
    let mut pieces = Pieces::default();
    let out = run_with(&pair.system, requests, options, Some(tokenizer()), stops, &mut pieces);
    for (i, d) in out.done.iter().enumerate() {
        assert_eq!(
            d.text.as_deref(),
            Some(pieces.text.get(&i).map_or("", String::as_str)),
            "streamed text is the final text"
        );
    }
    pieces.finished.sort();
    assert_eq!(pieces.finished, (0..requests.len()).collect::<Vec<_>>(), "every request ends once");
    out.done
}

#[test]
fn a_mixed_batch_gives_every_request_what_it_gets_alone() {
    on_each(|| {
        let pair = wordy();
        let mut rng = Rng(12);
        let mut p = |n: usize| rng.ids(n, 2040);
        let free = [
            greedy(&p(5), 40),
            sampled(&p(70), 40, 1.0, 0, 1.0, 1),
            sampled(&p(1), 40, 0.7, 20, 0.9, 2),
            greedy(&p(130), 40),
            sampled(&p(33), 40, 1.2, 0, 0.8, 3),
            greedy(&p(2), 40),
            sampled(&p(64), 40, 0.9, 5, 1.0, 4),
            greedy(&p(3), 40),
        ];
        let alone: Vec<Finished> =
            free.iter().map(|r| texts(&pair, std::slice::from_ref(r), speculative(), &[]).remove(0)).collect();
        let mut requests = free.clone();
        for (i, r) in requests.iter_mut().enumerate() {
            r.id = format!("r{i}");
        }
        // A text that begins in one token and ends in a later one, counted in characters of the unstopped text.
        let chars: Vec<char> = alone[1].text.clone().expect("text").chars().collect();
        let stop: String = chars[chars.len() / 2..chars.len() / 2 + 6].iter().collect();
        requests[1].stop = vec!["never to be seen".into(), stop.clone()];
        requests[2].cancel_after = Some(7);
        requests[3].max_tokens = 1;
        requests[4].stop_ids = vec![alone[4].tokens[11]];
        requests[5].max_tokens = 23;
        requests[6].cancel_after = Some(1);
        requests[7].stop_ids = vec![alone[7].tokens[0]];
        let want: Vec<Finished> =
            requests.iter().map(|r| texts(&pair, std::slice::from_ref(r), speculative(), &[]).remove(0)).collect();
        assert_eq!(texts(&pair, &requests, speculative(), &[]), want);
        for step in STEPS {
            assert_eq!(texts(&pair, &requests, in_steps(step), &[]), want, "steps of {step}");
        }
        let finish: Vec<Finish> = want.iter().map(|d| d.finish).collect();
        use Finish::{Cancelled, Length, Stop};
        assert_eq!(finish, [Length, Stop, Cancelled, Length, Stop, Length, Cancelled, Stop]);
        let counts: Vec<usize> = want.iter().map(|d| d.tokens.len()).collect();
        assert_eq!([counts[0], counts[2], counts[3], counts[5], counts[6], counts[7]], [40, 7, 1, 23, 1, 1]);
        for (w, f) in want.iter().zip(&alone) {
            assert_eq!(w.tokens[..], f.tokens[..w.tokens.len()], "ending early changes nothing before");
        }
        assert!(want[4].tokens.iter().position(|t| *t == alone[4].tokens[11]) == Some(want[4].tokens.len() - 1));
        let text = want[1].text.as_ref().expect("text");
        assert!(!text.contains(&stop) && alone[1].text.as_ref().expect("text").starts_with(&format!("{text}{stop}")));
        assert!(want[3].cycles.is_empty() && want[6].cycles.is_empty() && want[7].cycles.is_empty());
        assert_eq!(want[7].text.as_deref(), Some(""), "a stop token gives no text");
        // Plain decoding ends the same way at the same token.
        for (i, d) in
            texts(&pair, &requests, plain(), &[]).iter().enumerate().filter(|(i, _)| free[*i].sampling.is_greedy())
        {
            assert_eq!((&d.tokens, &d.text, d.finish), (&want[i].tokens, &want[i].text, want[i].finish));
        }
    });
}

#[test]
fn a_stop_text_across_tokens_ends_at_its_last_token() {
    on_each(|| {
        let pair = wordy();
        let prompt = Rng(5).ids(12, 2040);
        let free = texts(&pair, &[greedy(&prompt, 30)], speculative(), &[]).remove(0);
        let t = tokenizer();
        // Texts after each token; a stop that begins within token 9 and ends within token 11.
        let upto = |n: usize| t.decode(&free.tokens[..n], true).expect("text");
        let (from, to) = (upto(9), upto(12));
        let stop: String = to.chars().skip(from.chars().count() - 1).collect();
        assert!(stop.chars().count() >= 3 && !from.contains(&stop));
        for options in [speculative(), plain(), with_width(3), in_steps(1), in_steps(3)] {
            let d =
                texts(&pair, &[Request { stop: vec![stop.clone()], ..greedy(&prompt, 30) }], options, &[]).remove(0);
            assert_eq!(d.finish, Finish::Stop);
            assert_eq!(d.tokens, free.tokens[..12]);
            assert_eq!(d.text.expect("text"), to[..to.len() - stop.len()]);
        }
    });
}

#[test]
fn end_tokens_end_a_request_unless_they_are_ignored() {
    on_each(|| {
        let pair = wordy();
        let prompt = Rng(6).ids(12, 2040);
        let free = solo(&pair.system, &greedy(&prompt, 20), speculative());
        let heeding = |n: usize| Request { ignore_eos: false, ..greedy(&prompt, n) };
        let first = texts(&pair, &[heeding(20)], speculative(), &[free.tokens[0]]).remove(0);
        assert_eq!((first.tokens, first.finish, first.cycles.len()), (free.tokens[..1].to_vec(), Finish::Stop, 0));
        let at = (1..20).find(|i| !free.tokens[..*i].contains(&free.tokens[*i])).expect("a new token");
        let later = texts(&pair, &[heeding(20)], speculative(), &[2046, free.tokens[at]]).remove(0);
        assert_eq!((&later.tokens[..], later.finish), (&free.tokens[..at + 1], Finish::Stop));
        let ignoring = texts(&pair, &[greedy(&prompt, 20)], speculative(), &[free.tokens[at]]).remove(0);
        assert_eq!((ignoring.tokens, ignoring.finish), (free.tokens.clone(), Finish::Length));
        // A request's own stop ids hold even then.
        let own = Request { stop_ids: vec![free.tokens[at]], ..greedy(&prompt, 20) };
        assert_eq!(solo(&pair.system, &own, speculative()).tokens, free.tokens[..at + 1]);
    });
}

#[test]
fn short_prompts_start_from_empty_windows() {
    on_each(|| {
        let pair = Recipe::default().build();
        let mut d = Driver::probing(&pair.system);
        for n in 1..=5 {
            let prompt = Rng(50 + n as u64).ids(n, 48);
            let got = solo(&pair.system, &greedy(&prompt, 12), speculative());
            // Every token is the most likely one after all before it, in one call from nothing.
            let ids = [&prompt[..], &got.tokens].concat();
            let r = d.open();
            let logits = d.feed(&[&ids], &[r], &[ids.len()], Mode::Immediate).remove("logits").expect("logits");
            for (i, token) in got.tokens.iter().enumerate() {
                let row = part(&logits, 0, n - 1 + i, n + i).to_f64();
                let best = (0..row.len()).fold(0, |b, v| if row[v] > row[b] { v } else { b });
                assert_eq!(best as u32, *token, "{n} tokens, token {i}");
            }
            d.runtime.close(r);
        }
    });
}

#[test]
fn more_requests_than_places_wait_and_slots_come_back() {
    on_each(|| {
        let pair = Recipe { sets: sets(&[("serve.requests", "3")]), ..Recipe::default() }.build();
        let mut rng = Rng(3);
        let requests: Vec<Request> = (0..24)
            .map(|i| {
                let (length, most) = (1 + rng.below(30), 1 + rng.below(14));
                let prompt = rng.ids(length, 48);
                let mut r = if i % 2 == 0 { greedy(&prompt, most) } else { sampled(&prompt, most, 1.0, 0, 1.0, i) };
                r.id = i.to_string();
                r.cancel_after = (i % 5 == 4).then_some(2);
                r
            })
            .collect();
        let want: Vec<Finished> = requests.iter().map(|r| solo(&pair.system, r, speculative())).collect();
        // Three places by the system's bound, two by the runtime's room.
        for (room, most) in [(usize::MAX, 3), (2, 2), (1, 1)] {
            let (counting, log) = Counting::over(runtime(&pair.system), room);
            let mut engine = Engine::new(&pair.system, counting, None, vec![], speculative()).expect("an engine");
            for round in 0..3 {
                for r in &requests[round * 8..round * 8 + 8] {
                    engine.submit(r.clone()).expect("a request");
                }
                engine.run(&mut Quiet).expect("a run");
                assert!(log.borrow().open.is_empty(), "every slot is back after round {round}");
            }
            assert!(!engine.step(&mut Quiet).expect("nothing to do"));
            let (done, totals, _) = engine.results();
            assert_eq!(done, want, "in the order of submission");
            check_accounts(&pair.system, &requests, &done, &totals, &speculative());
            let log = log.borrow();
            assert_eq!((log.opened, log.closed, log.most), (24, 24, most));
            assert!(log.widest <= most && (room == usize::MAX || log.refused > 0));
            for (r, positions) in requests.iter().zip(&log.positions) {
                assert_eq!(*positions, r.prompt.len() + r.max_tokens + 8, "room for the scratch rows of a block");
            }
        }
        let (counting, log) = Counting::over(runtime(&pair.system), 0);
        let mut engine = Engine::new(&pair.system, counting, None, vec![], speculative()).expect("an engine");
        engine.submit(requests[0].clone()).expect("a request");
        assert!(matches!(engine.run(&mut Quiet), Err(EngineError::DoesNotFit(_))), "a request that never fits");
        assert_eq!(log.borrow().refused, 1);
    });
}

#[test]
fn the_context_ends_a_request_and_the_drafter_s_positions_end_drafting() {
    on_each(|| {
        let recipe = Recipe { vocabulary: 6, ..Recipe::default() };
        let pair = recipe.build();
        let prompt = Rng(4).ids(10, 6);
        let free = solo(&pair.system, &greedy(&prompt, 60), plain());
        let short = pair.reload(&[("serve.context", "41")]);
        for options in [plain(), speculative()] {
            let d = solo(&short, &greedy(&prompt, 60), options);
            assert_eq!((d.tokens, d.finish), (free.tokens[..31].to_vec(), Finish::Length));
        }
        let poisoned = EngineOptions { poison: true, ..speculative() };
        assert_eq!(solo(&short, &greedy(&prompt, 60), poisoned).tokens, free.tokens[..31]);
        for draft_context in [1, 17, 18, 30, 69] {
            let near = pair.reload(&[("serve.draft_context", &draft_context.to_string())]);
            let out = run_all(&near, &[greedy(&prompt, 60), sampled(&prompt[..4], 60, 1.0, 0, 1.0, 3)], speculative());
            assert_eq!(out.done[0].tokens, free.tokens, "drafting up to {draft_context}");
            for d in &out.done {
                for c in &d.cycles {
                    // A block of 8 from the anchor on must be within the drafter's positions.
                    assert_eq!(c.proposal.is_empty(), c.position + 8 > draft_context, "{c:?}, {draft_context}");
                }
            }
            assert!(out.totals.plain > 0 && (draft_context < 18 || out.totals.verified > 0));
        }
    });
}

#[test]
fn requests_that_cannot_be_served_are_refused_when_they_come() {
    on_each(|| {
        let pair = Recipe::default().build();
        let mut engine =
            Engine::new(&pair.system, runtime(&pair.system), None, vec![], speculative()).expect("an engine");
        let good = greedy(&[1, 2, 3], 4);
        let mut refuse = |r: Request, word: &str| match engine.submit(r) {
            Err(EngineError::Request(m)) => assert!(m.contains(word), "{m}"),
            other => panic!("{word}: {other:?}"),
        };
        refuse(Request { prompt: vec![], ..good.clone() }, "empty");
        refuse(Request { prompt: vec![48], ..good.clone() }, "48");
        refuse(Request { stop_ids: vec![99], ..good.clone() }, "99");
        refuse(Request { max_tokens: 0, ..good.clone() }, "max_tokens");
        refuse(Request { cancel_after: Some(0), ..good.clone() }, "cancel_after");
        refuse(Request { stop: vec!["a".into()], ..good.clone() }, "tokenizer");
        refuse(sampled(&[1], 4, f64::NAN, 0, 1.0, 0), "temperature");
        refuse(sampled(&[1], 4, -1.0, 0, 1.0, 0), "temperature");
        refuse(sampled(&[1], 4, 1.0, -2, 1.0, 0), "top_k");
        refuse(sampled(&[1], 4, 1.0, 0, 0.0, 0), "top_p");
        refuse(sampled(&[1], 4, 1.0, 0, 1.5, 0), "top_p");
        assert!(matches!(engine.submit(greedy(&vec![1; 512], 4)), Err(EngineError::DoesNotFit(_))));
        engine.submit(good).expect("a good one is still taken");
        engine.run(&mut Quiet).expect("a run");
        assert_eq!(engine.results().0.len(), 1);
        let mut wordy = Engine::new(&pair.system, runtime(&pair.system), Some(tokenizer()), vec![], speculative())
            .expect("an engine");
        let empty = Request { stop: vec!["x".into(), String::new()], ..greedy(&[1], 4) };
        assert!(
            matches!(wordy.submit(empty), Err(EngineError::Request(m)) if m.contains("empty")),
            "before anything runs"
        );
        for width in [0, 9] {
            assert!(matches!(
                Engine::new(&pair.system, runtime(&pair.system), None, vec![], with_width(width)),
                Err(EngineError::Request(_))
            ));
        }
    });
}

const NAN: u16 = 0x7fc0;

#[test]
fn logits_that_are_not_numbers_fail_their_request_alone() {
    on_each(|| {
        let recipe = Recipe { vocabulary: 24, ..Recipe::default() };
        let pair = recipe.build();
        let mut rng = Rng(31);
        let healthy =
            [greedy(&rng.ids(9, 20), 30), sampled(&rng.ids(30, 20), 30, 1.0, 0, 1.0, 4), greedy(&rng.ids(4, 20), 30)];
        let before = run_all(&pair.system, &healthy, speculative()).done;
        // A token that none of them holds and none of the cycles touched; 23 is the placeholder.
        let used = |t: u32| {
            healthy.iter().any(|r| r.prompt.contains(&t))
                || before.iter().any(|d| d.tokens.contains(&t) || d.cycles.iter().any(|c| c.proposal.contains(&t)))
        };
        let bad = (0..23).find(|t| !used(*t)).unwrap_or(22);
        pair.poke("target", "model.embed_tokens.weight", bad as usize, NAN);
        let healthy_again = run_all(&pair.system, &healthy, speculative()).done;
        if used(bad) {
            // Proposals hold it: the outputs are the same all the same.
            for (a, b) in healthy_again.iter().zip(&before).filter(|(_, b)| !b.tokens.contains(&bad)) {
                assert_eq!(a.tokens, b.tokens);
            }
        }
        for sick in [greedy(&[1, bad, 3], 20), sampled(&[bad], 20, 1.0, 0, 1.0, 3)] {
            for options in [speculative(), plain()] {
                let want = run_all(&pair.system, &healthy, options.clone()).done;
                let requests = [vec![healthy[0].clone(), sick.clone()], healthy[1..].to_vec()].concat();
                let got = run_all(&pair.system, &requests, options).done;
                assert_eq!((got[1].finish, got[1].tokens.len()), (Finish::Error, 0));
                assert_eq!([&got[0], &got[2], &got[3]], [&want[0], &want[1], &want[2]], "the others are as without it");
            }
        }
    });
}

/// The placeholder row of a wrong proposal is nobody's business: what was rejected cannot fail a request.
#[test]
fn a_rejected_proposal_without_a_number_fails_nobody() {
    on_each(|| {
        let mut seen = 0;
        for seed in 1..6 {
            let pair = Recipe { vocabulary: 10, seed, ..Recipe::default() }.build();
            for r in [greedy(&Rng(seed).ids(5, 4), 24), sampled(&Rng(seed).ids(5, 4), 24, 1.0, 3, 1.0, seed)] {
                let clean = solo(&pair.system, &r, speculative());
                let proposed = |t: u32| clean.cycles.iter().any(|c| c.proposal[..7].contains(&t));
                let Some(bad) = (4..9).find(|t| !clean.tokens.contains(t) && proposed(*t)) else { continue };
                let other = Recipe { vocabulary: 10, seed, ..Recipe::default() }.build();
                other.poke("target", "model.embed_tokens.weight", bad as usize, NAN);
                let got = solo(&other.system, &r, speculative());
                assert_eq!((&got.tokens, got.finish), (&clean.tokens, Finish::Length), "seed {seed}, token {bad}");
                seen += 1;
            }
        }
        assert!(seen >= 3, "only {seen} cases");
    });
}

/// A request that comes to the token itself ends there, and has what it emitted before.
#[test]
fn a_request_ends_at_the_first_row_that_is_no_number() {
    on_each(|| {
        let mut seen = 0;
        for seed in 1..8 {
            let recipe = Recipe { vocabulary: 12, seed, ..Recipe::default() };
            let pair = recipe.build();
            let r = greedy(&Rng(seed).ids(5, 4), 24);
            let clean = solo(&pair.system, &r, plain());
            let Some(at) = (2..20).find(|i| {
                !clean.tokens[..*i].contains(&clean.tokens[*i])
                    && !r.prompt.contains(&clean.tokens[*i])
                    && clean.tokens[*i] != 11
            }) else {
                continue;
            };
            pair.poke("target", "model.embed_tokens.weight", clean.tokens[at] as usize, NAN);
            for options in [plain(), speculative()] {
                let got = solo(&pair.system, &r, options);
                // The row of the token is no number; the token itself was decided by the row before.
                assert_eq!((&got.tokens[..], got.finish), (&clean.tokens[..at + 1], Finish::Error), "seed {seed}");
            }
            seen += 1;
        }
        assert!(seen >= 2, "only {seen} cases");
    });
}
