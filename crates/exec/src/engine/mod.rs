//! The speculative loop: requests in, tokens out.
//!
//! Phases come from the system as functions; the engine feeds them, wires them, and owns what lies between: admission,
//! chunked prefill, the cycle draft, verify, accept, commit, stops and caps. One function commits tokens, one commits rows;
//! nothing else moves per-request state.

mod batch;
mod cycle;
mod metrics;
mod prefill;
mod programs;
mod request;
mod verify;
mod warm;

pub use metrics::{Times, Totals};
pub use request::{Cycle, Finish, Finished, Request, Sampling};

use crate::runtime::{Bytes, RunError, Runtime};
use crate::text::{TextError, Tokenizer};
use programs::Programs;
use request::Active;
use spinec_ir::diag::Diagnostics;
use spinec_ir::spec::system::System;
use spinec_ir::tensor::Tensor;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How candidates are retrieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Candidates {
    /// From a coarse copy of the head; rows whose coarse scores are not finite fall back to the whole head.
    Coarse,
    /// From the whole head.
    Exact,
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Decode plainly, one row a request.
    pub target_only: bool,
    /// Rows verified per request instead of the system's width rules.
    pub width: Option<i64>,
    /// Candidate retrieval.
    pub candidates: Candidates,
    /// Rows verified at a time; by default chosen from what a request's last block accepted. Results do not depend on it.
    pub step: Option<usize>,
    /// Overwrite stale key/value rows with NaN after every commit (a debugging aid: results must not change).
    pub poison: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions { target_only: false, width: None, candidates: Candidates::Coarse, step: None, poison: false }
    }
}

/// Why a request cannot be taken or a run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The request itself is wrong.
    #[error("{0}")]
    Request(String),
    /// The request does not fit the serving bounds.
    #[error("{0}")]
    DoesNotFit(String),
    /// A phase cannot be lowered.
    #[error("the phases of the system cannot be used")]
    Spec(Diagnostics),
    /// The backend failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Text cannot be encoded or decoded.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Told what happens while it happens.
pub trait Events {
    /// More text of a request, by its index in input order.
    fn text(&mut self, _request: usize, _text: &str) {}
    /// A request ended.
    fn finished(&mut self, _request: usize) {}
    /// A phase that began then has just ended, for so many requests.
    fn span(&mut self, _phase: &'static str, _began: Instant, _requests: usize) {}
}

/// Tells nobody.
pub struct Quiet;

impl Events for Quiet {}

/// The engine.
pub struct Engine<'s> {
    system: &'s System,
    runtime: Box<dyn Runtime>,
    programs: Programs,
    tokenizer: Option<Tokenizer>,
    stop_ids: Vec<u32>,
    options: EngineOptions,
    waiting: VecDeque<(usize, Request)>,
    active: Vec<Active>,
    done: Vec<Option<Finished>>,
    totals: Totals,
    peak: Bytes,
    stop: Option<&'s AtomicBool>,
}

impl<'s> Engine<'s> {
    /// An engine over a runtime. `stop_ids` end every request that does not ignore them.
    pub fn new(
        system: &'s System,
        runtime: Box<dyn Runtime>,
        tokenizer: Option<Tokenizer>,
        stop_ids: Vec<u32>,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        if let Some(w) = options.width
            && !(1..=system.serve.block).contains(&w)
        {
            return Err(EngineError::Request(format!(
                "a width of {w} is not within 1..{}, the rows of a block",
                system.serve.block
            )));
        }
        let programs = Programs::new(system, &options)?;
        Ok(Engine {
            system,
            runtime,
            programs,
            tokenizer,
            stop_ids,
            options,
            waiting: VecDeque::new(),
            active: Vec::new(),
            done: Vec::new(),
            totals: Totals::default(),
            peak: Bytes::new(),
            stop: None,
        })
    }

    /// Ends the run when the flag is set.
    pub fn interrupt_on(&mut self, flag: &'s AtomicBool) {
        self.stop = Some(flag);
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref()
    }

    /// Takes a request; results come in this order.
    pub fn submit(&mut self, request: Request) -> Result<usize, EngineError> {
        request.check(self.system, self.tokenizer.is_some())?;
        let index = self.done.len();
        self.done.push(None);
        self.waiting.push_back((index, request));
        Ok(index)
    }

    /// Runs until every request has ended.
    pub fn run(&mut self, events: &mut dyn Events) -> Result<(), EngineError> {
        while self.step(events)? {}
        Ok(())
    }

    /// One round: admission, one chunk of prefill, one cycle of everybody who decodes. False when nothing is left.
    pub fn step(&mut self, events: &mut dyn Events) -> Result<bool, EngineError> {
        if self.stop.is_some_and(|f| f.load(Ordering::Relaxed)) {
            return Err(EngineError::Interrupted);
        }
        self.admit()?;
        if self.active.is_empty() {
            return Ok(false);
        }
        self.prefill_chunk(events)?;
        self.cycle(events)?;
        for (owner, bytes) in self.runtime.bytes() {
            let peak = self.peak.entry(owner).or_insert(0);
            *peak = (*peak).max(bytes);
        }
        self.retire(events);
        Ok(true)
    }

    /// All state of a request that is being served, by name as in [`Runtime::export`]; `None` before its admission and
    /// after its end. It is that of the prompt and the emitted tokens, the last one excepted.
    pub fn state(&self, request: usize) -> Result<Option<BTreeMap<String, Tensor>>, EngineError> {
        match self.active.iter().find(|a| a.index == request) {
            Some(a) => Ok(Some(self.runtime.export(a.slot)?)),
            None => Ok(None),
        }
    }

    fn admit(&mut self) -> Result<(), EngineError> {
        while self.active.len() < usize::try_from(self.system.serve.requests).unwrap_or(1) {
            let Some((index, request)) = self.waiting.pop_front() else { break };
            let positions = request.positions(self.system);
            match self.runtime.open(positions) {
                Ok(slot) => {
                    self.active.push(Active::new(index, slot, request, self.tokenizer.as_ref(), &self.stop_ids)?)
                }
                Err(RunError::Full(why)) if !self.active.is_empty() => {
                    // Room comes back when somebody ends.
                    let _ = why;
                    self.waiting.push_front((index, request));
                    break;
                }
                Err(RunError::Full(why)) => return Err(EngineError::DoesNotFit(why)),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn retire(&mut self, events: &mut dyn Events) {
        let mut i = 0;
        while i < self.active.len() {
            if self.active[i].finish.is_none() {
                i += 1;
                continue;
            }
            let ended = self.active.remove(i);
            self.runtime.close(ended.slot);
            events.finished(ended.index);
            let index = ended.index;
            self.done[index] = Some(ended.into_finished());
        }
    }

    /// What every request became, in input order, and the totals of the run.
    pub fn results(self) -> (Vec<Finished>, Totals, Bytes) {
        (self.done.into_iter().flatten().collect(), self.totals, self.peak)
    }
}
