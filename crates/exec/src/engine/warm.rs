//! Making first calls cheap: every phase that the waiting requests need runs once on a request of its own.

use super::batch::{Feed, first_rows};
use super::programs::Law;
use super::request::{Active, Request, Sampling};
use super::{Engine, EngineError};
use crate::runtime::Mode;
use spinec_ir::tensor::Tensor;
use std::collections::BTreeSet;

impl Engine<'_> {
    /// Lets the runtime prepare what serving the submitted requests needs, such as packed weights, where it has anything to
    /// prepare. Serving works without it, its first cycles take longer. No result depends on it.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn warm_up(&mut self) -> Result<(), EngineError> {
        if !self.runtime.warms_up() || !self.active.is_empty() {
            return Ok(());
        }
        let kinds: BTreeSet<bool> = self.waiting.iter().map(|(_, r)| r.sampling.is_greedy()).collect();
        for greedy in kinds {
            let slot = self.runtime.open(usize::try_from(self.system.serve.block).unwrap_or(1) + 1)?;
            let sampling = Sampling { temperature: if greedy { 0.0 } else { 1.0 }, ..Sampling::default() };
            let request = Request {
                id: String::new(),
                prompt: vec![0],
                max_tokens: 1,
                sampling,
                stop: Vec::new(),
                stop_ids: Vec::new(),
                ignore_eos: true,
                cancel_after: None,
            };
            self.active.push(Active::new(0, slot, request, None, &[])?);
            let done = self.rehearse();
            self.active.clear();
            self.runtime.close(slot);
            done?;
        }
        Ok(())
    }

    /// A cycle of the only active request, of which nothing is kept.
    fn rehearse(&mut self) -> Result<(), EngineError> {
        let (batch, slot) = ([0], self.active[0].slot);
        let law = Law::of([self.active[0].request.sampling.is_greedy()]);
        let choice = self.first_choice();
        let phases = self.programs.get(self.system, self.runtime.as_mut(), law, choice)?.clone();
        let mut feed = Feed::of(&[&self.active[0]], self.runtime.as_ref());
        feed.values.insert("tokens", Tensor::i32(vec![1, 1], vec![0]));
        feed.values.insert("rows", Tensor::i32(vec![1], vec![1]));
        feed.positions(&[0], 1);
        if let Some(prefill) = phases.get("prefill") {
            self.run_phase("prefill", prefill, &mut feed, &batch, Mode::Immediate)?;
            self.runtime.commit(slot, 1)?;
        }
        let mut feed = Feed::of(&[&self.active[0]], self.runtime.as_ref());
        let (Some(draft), Some(verify), Some(commit), false) =
            (phases.get("draft"), phases.get("verify"), phases.get("commit"), self.options.target_only)
        else {
            let Some(decode) = phases.get("decode") else { return Ok(()) };
            return self.run_phase("decode", decode, &mut feed, &batch, Mode::Immediate);
        };
        self.run_phase("draft", draft, &mut feed, &batch, Mode::Tentative)?;
        let width = self.options.width.unwrap_or(self.system.serve.block);
        let width = usize::try_from(width).unwrap_or(1).max(1);
        let first = Tensor::i32(vec![1], vec![0]);
        feed.values.insert("first", first);
        feed.values.insert("width", Tensor::i32(vec![1], vec![width as i32]));
        for rows in self.usual_steps(verify, width) {
            feed.positions(&[1], rows);
            self.run_phase("verify", verify, &mut feed, &batch, Mode::Tentative)?;
        }
        // As many rows are kept as were accepted, and each number of rows is a form of its own.
        for rows in (1..=width).rev() {
            for wire in commit.wires.values().filter(|w| w.phase == "verify") {
                let name = format!("{}.{}", wire.phase, wire.output);
                if let Some(t) = feed.wires.remove(&name) {
                    feed.wires.insert(name, first_rows(t, rows));
                }
            }
            feed.positions(&[1], rows);
            feed.values.insert("keep", Tensor::i32(vec![1], vec![rows as i32]));
            self.run_phase("commit", commit, &mut feed, &batch, Mode::Immediate)?;
        }
        Ok(())
    }
}
