//! Prefill: one chunk of one request a round. Chunk boundaries depend on the request alone.

use super::batch::{Feed, flags, ints};
use super::programs::Law;
use super::{Candidates, Engine, EngineError, Events};
use crate::runtime::Mode;
use spinec_ir::tensor::Tensor;
use std::time::Instant;

impl Engine<'_> {
    pub(super) fn prefill_chunk(&mut self, events: &mut dyn Events) -> Result<(), EngineError> {
        let next = self.active.iter().position(|a| a.finish.is_none() && a.prefilled < a.request.prompt.len());
        let Some(i) = next else { return Ok(()) };
        let began = Instant::now();
        let chunk = usize::try_from(self.system.serve.chunk).unwrap_or(1);
        let (from, total) = (self.active[i].prefilled, self.active[i].request.prompt.len());
        let n = chunk.min(total - from);
        let law = Law::of([self.active[i].request.sampling.is_greedy()]);
        let candidates = self.first_choice();
        let phase = self.programs.get(self.system, self.runtime.as_mut(), law, candidates)?["prefill"].clone();
        let mut feed = Feed::of(&[&self.active[i]], self.runtime.as_ref());
        let ids = self.active[i].request.prompt[from..from + n].iter().map(|t| *t as i32).collect();
        feed.values.insert("tokens", Tensor::i32(vec![1, n], ids));
        feed.values.insert("rows", Tensor::i32(vec![1], vec![n as i32]));
        feed.positions(&[from], n);
        self.run_phase("prefill", &phase, &mut feed, &[i], Mode::Immediate)?;
        self.runtime.commit(self.active[i].slot, n)?;
        self.active[i].prefilled += n;
        self.totals.times.prefill += began.elapsed();
        events.span("prefill", began, 1);
        if from + n < total {
            return Ok(());
        }
        if !flags(&feed, "prefill.sound", 1)?[0] {
            return self.fail(i, events);
        }
        let token = ints(&feed, "prefill.token")?[0];
        self.emit(i, token as u32, events)
    }

    /// The retrieval the user asked for, if the system offers a choice.
    pub(super) fn first_choice(&self) -> Candidates {
        self.options.candidates
    }

    /// Emits one token of a request.
    pub(super) fn emit(&mut self, i: usize, token: u32, events: &mut dyn Events) -> Result<(), EngineError> {
        let limit = self.active[i].request.limit(self.system);
        let shown = self.active[i].commit_token(token, limit, self.tokenizer.as_ref())?;
        self.totals.tokens += 1;
        if !shown.is_empty() {
            events.text(self.active[i].index, &shown);
        }
        Ok(())
    }

    /// Ends a request whose next token cannot be decided.
    pub(super) fn fail(&mut self, i: usize, events: &mut dyn Events) -> Result<(), EngineError> {
        let shown = self.active[i].fail(self.tokenizer.as_ref())?;
        if !shown.is_empty() {
            events.text(self.active[i].index, &shown);
        }
        Ok(())
    }
}
