//! Running requests through the engine.

use super::runtime;
use spinec_exec::engine::{
    Candidates, Cycle, Engine, EngineOptions, Events, Finish, Finished, Quiet, Request, Sampling, Totals,
};
use spinec_exec::text::Tokenizer;
use spinec_ir::spec::system::System;

/// A greedy request for so many tokens; nothing ends it early.
pub fn greedy(prompt: &[u32], max_tokens: usize) -> Request {
    Request {
        id: String::new(),
        prompt: prompt.to_vec(),
        max_tokens,
        sampling: Sampling::default(),
        stop: Vec::new(),
        stop_ids: Vec::new(),
        ignore_eos: true,
        cancel_after: None,
    }
}

/// A sampled request.
pub fn sampled(prompt: &[u32], max_tokens: usize, temperature: f64, top_k: i32, top_p: f64, seed: u64) -> Request {
    Request { sampling: Sampling { temperature, top_k, top_p, seed }, ..greedy(prompt, max_tokens) }
}

pub fn plain() -> EngineOptions {
    EngineOptions { target_only: true, ..EngineOptions::default() }
}

pub fn speculative() -> EngineOptions {
    EngineOptions::default()
}

pub fn with_width(width: i64) -> EngineOptions {
    EngineOptions { width: Some(width), ..EngineOptions::default() }
}

/// Rows of a verification step: one, a number that divides no block, some, and whole blocks.
pub const STEPS: [usize; 4] = [1, 3, 4, 16];

/// Verification in steps of so many rows.
pub fn in_steps(rows: usize) -> EngineOptions {
    EngineOptions { step: Some(rows), ..EngineOptions::default() }
}

pub fn exact() -> EngineOptions {
    EngineOptions { candidates: Candidates::Exact, ..EngineOptions::default() }
}

/// Everything a run gives.
pub struct Outcome {
    pub done: Vec<Finished>,
    pub totals: Totals,
}

/// Runs requests to their end and checks the accounts of every one.
pub fn run_all(system: &System, requests: &[Request], options: EngineOptions) -> Outcome {
    run_with(system, requests, options, None, &[], &mut Quiet)
}

pub fn run_with(
    system: &System,
    requests: &[Request],
    options: EngineOptions,
    tokenizer: Option<Tokenizer>,
    stops: &[u32],
    events: &mut dyn Events,
) -> Outcome {
    let mut engine =
        Engine::new(system, runtime(system), tokenizer, stops.to_vec(), options.clone()).expect("an engine");
    for r in requests {
        engine.submit(r.clone()).unwrap_or_else(|e| panic!("{e}"));
    }
    engine.run(events).unwrap_or_else(|e| panic!("{e}"));
    let (done, totals, _) = engine.results();
    assert_eq!(done.len(), requests.len(), "every request has a result");
    check_accounts(system, requests, &done, &totals, &options);
    Outcome { done, totals }
}

/// One request alone.
pub fn solo(system: &System, request: &Request, options: EngineOptions) -> Finished {
    run_all(system, std::slice::from_ref(request), options).done.remove(0)
}

/// What must hold of any run: positions follow from what was committed, counts add up, totals are those of the cycles.
pub fn check_accounts(
    system: &System,
    requests: &[Request],
    done: &[Finished],
    totals: &Totals,
    options: &EngineOptions,
) {
    let block = system.serve.block as usize;
    let mut all: Vec<&Cycle> = Vec::new();
    for (r, d) in requests.iter().zip(done) {
        assert_eq!(d.id, r.id);
        assert_eq!(d.prompt_tokens, r.prompt.len());
        let mut position = r.prompt.len();
        for c in &d.cycles {
            // A token stands where the cache begins to lack it: as many tokens are emitted as rows are cached.
            assert_eq!(c.position, position, "an anchor stands at the number of cached rows");
            assert!(c.committed >= usize::from(d.finish != Finish::Error) && c.committed <= c.accepted + 1, "{c:?}");
            assert!(c.width >= 1 && c.width <= block && c.accepted < c.width.max(1), "{c:?}");
            assert!(c.proposal.is_empty() || c.proposal.len() == block - 1, "{c:?}");
            position += c.committed;
        }
        if !d.tokens.is_empty() {
            let committed: usize = d.cycles.iter().map(|c| c.committed).sum();
            assert_eq!(d.tokens.len(), 1 + committed, "the first token and what the cycles committed");
            // Emitted tokens are the accepted proposals, then one of the target's.
            let mut at = 1;
            for c in &d.cycles {
                let n = c.committed.min(c.accepted);
                assert_eq!(d.tokens[at..at + n], c.proposal[..n], "accepted proposals are emitted");
                at += c.committed;
            }
            for c in d.cycles.iter().rev().skip(1) {
                assert_eq!(c.committed, c.accepted + 1, "only the last cycle is trimmed");
            }
            assert!(d.tokens.len() <= r.max_tokens);
        }
        all.extend(&d.cycles);
    }
    let verified: Vec<&&Cycle> = all.iter().filter(|c| !c.proposal.is_empty()).collect();
    assert_eq!(totals.tokens, done.iter().map(|d| d.tokens.len()).sum::<usize>());
    assert_eq!(totals.cycles, all.len());
    assert_eq!(totals.verified, verified.len());
    assert_eq!(totals.plain, if options.target_only { 0 } else { all.len() - verified.len() });
    assert_eq!(totals.committed, verified.iter().map(|c| c.committed).sum::<usize>());
    assert_eq!(totals.accepted, verified.iter().map(|c| c.accepted).sum::<usize>());
    assert_eq!(totals.proposed, verified.iter().map(|c| c.proposal.len()).sum::<usize>());
    if totals.verified > 0 {
        let length = totals.committed as f64 / totals.verified as f64;
        let least = if done.iter().any(|d| d.finish == Finish::Error) { 0.0 } else { 1.0 };
        assert!(totals.accept_length() == length && (least..=block as f64).contains(&length));
        assert_eq!(totals.accept_rate(), totals.accepted as f64 / (totals.verified * (block - 1)) as f64);
    } else {
        assert_eq!((totals.accept_length(), totals.accept_rate()), (0.0, 0.0));
    }
}
