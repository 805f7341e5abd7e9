//! One cycle of everybody who decodes: draft, verify, accept, trim, commit; or one plain row.

use super::batch::{Feed, first_rows, flags, ints, put_rows, take_rows};
use super::programs::{Law, PhaseFn};
use super::request::{Active, Cycle};
use super::verify::Blocks;
use super::{Candidates, Engine, EngineError, Events};
use crate::runtime::{Mode, RunError};
use spinec_ir::tensor::Tensor;
use std::time::Instant;

impl Engine<'_> {
    pub(super) fn cycle(&mut self, events: &mut dyn Events) -> Result<(), EngineError> {
        let decoding: Vec<usize> = (0..self.active.len()).filter(|i| self.active[*i].decodes()).collect();
        let block = self.system.serve.block;
        let (plain, block_wise): (Vec<usize>, Vec<usize>) = decoding.into_iter().partition(|i| {
            let position = self.runtime.len(self.active[*i].slot) as i64;
            self.options.target_only || position + block > self.system.serve.draft_context
        });
        if !plain.is_empty() {
            self.plain_cycle(&plain, events)?;
        }
        if !block_wise.is_empty() {
            self.block_cycle(&block_wise, events)?;
        }
        Ok(())
    }

    fn law(&self, batch: &[usize]) -> Law {
        Law::of(batch.iter().map(|i| self.active[*i].request.sampling.is_greedy()))
    }

    fn phase(&mut self, law: Law, candidates: Candidates, name: &str) -> Result<PhaseFn, EngineError> {
        let phases = self.programs.get(self.system, self.runtime.as_mut(), law, candidates)?;
        phases.get(name).cloned().ok_or_else(|| {
            EngineError::Run(RunError::Failed(format!("the system has no phase `{name}` for these requests")))
        })
    }

    fn feed(&self, batch: &[usize]) -> Feed {
        let members: Vec<&Active> = batch.iter().map(|i| &self.active[*i]).collect();
        Feed::of(&members, self.runtime.as_ref())
    }

    /// One row a request, without drafting.
    fn plain_cycle(&mut self, batch: &[usize], events: &mut dyn Events) -> Result<(), EngineError> {
        let began = Instant::now();
        let phase = self.phase(self.law(batch), self.first_choice(), "decode")?;
        let mut feed = self.feed(batch);
        let positions: Vec<usize> = batch.iter().map(|i| self.runtime.len(self.active[*i].slot)).collect();
        self.run_phase("decode", &phase, &mut feed, batch, Mode::Immediate)?;
        let tokens = ints(&feed, "decode.token")?.to_vec();
        let sound = flags(&feed, "decode.sound", batch.len())?;
        self.totals.times.verify += began.elapsed();
        events.span("decode", began, batch.len());
        for (k, i) in batch.iter().enumerate() {
            self.runtime.commit(self.active[*i].slot, 1)?;
            if !sound[k] {
                self.fail(*i, events)?;
                continue;
            }
            self.totals.cycles += 1;
            self.totals.plain += usize::from(!self.options.target_only);
            self.active[*i].cycles.push(Cycle {
                position: positions[k],
                width: 1,
                proposal: Vec::new(),
                accepted: 0,
                committed: 1,
            });
            self.emit(*i, tokens[k] as u32, events)?;
        }
        Ok(())
    }

    /// Rows to verify of each request: chosen by how many requests decode, and by their law.
    fn widths(&self, batch: &[usize]) -> Vec<i64> {
        let n = batch.len() as i64;
        let of = |i: &usize| {
            if let Some(w) = self.options.width {
                return w;
            }
            let law = if self.active[*i].request.sampling.is_greedy() { "greedy" } else { "sampled" };
            let rules = self.system.widths.get(law).map(Vec::as_slice).unwrap_or_default();
            rules.iter().find(|r| (r.from..=r.to).contains(&n)).map_or(self.system.serve.block, |r| r.width)
        };
        batch.iter().map(of).collect()
    }

    fn block_cycle(&mut self, batch: &[usize], events: &mut dyn Events) -> Result<(), EngineError> {
        let law = self.law(batch);
        let mut feed = self.feed(batch);
        let positions: Vec<usize> = batch.iter().map(|i| self.runtime.len(self.active[*i].slot)).collect();

        let began = Instant::now();
        self.draft(law, &mut feed, batch)?;
        self.totals.times.draft += began.elapsed();
        events.span("draft", began, batch.len());

        let began = Instant::now();
        let widths: Vec<usize> = self.widths(batch).into_iter().map(|w| usize::try_from(w).unwrap_or(1)).collect();
        let verify = self.phase(law, self.first_choice(), "verify")?;
        let commit = self.phase(law, self.first_choice(), "commit")?;
        let proposal = ints(&feed, "draft.proposal")?.to_vec();
        let per = proposal.len() / batch.len();
        let kept: Vec<String> =
            commit.wires.values().filter(|w| w.phase == "verify").map(|w| w.output.clone()).collect();
        let blocks = Blocks { batch, positions: &positions, widths: &widths, proposals: per };
        let verified = self.verify(&verify, &kept, &feed, &blocks)?;
        self.totals.times.verify += began.elapsed();
        events.span("verify", began, batch.len());

        let began = Instant::now();
        let mut keep = vec![0; batch.len()];
        for (k, i) in batch.iter().enumerate() {
            let offered = &proposal[k * per..(k + 1) * per];
            let v = &verified.verdicts[k];
            // A row without a usable logit decides nothing; what the rows before it accepted stands.
            for token in offered[..v.accepted].iter().chain(v.sound.then_some(&v.token)) {
                self.emit(*i, *token as u32, events)?;
                keep[k] += 1;
                if self.active[*i].finish.is_some() {
                    break;
                }
            }
            if !v.sound && self.active[*i].finish.is_none() {
                self.fail(*i, events)?;
            }
            self.totals.cycles += 1;
            self.totals.verified += 1;
            self.totals.committed += keep[k];
            self.totals.accepted += v.accepted;
            self.totals.proposed += per;
            self.active[*i].cycles.push(Cycle {
                position: positions[k],
                width: widths[k],
                proposal: offered.iter().map(|t| *t as u32).collect(),
                accepted: v.accepted,
                committed: keep[k],
            });
        }
        self.totals.times.accept += began.elapsed();
        events.span("accept", began, batch.len());

        let began = Instant::now();
        // Before the commit phase: a run forgets rows that were not committed. Rows of steps that others followed are; a request
        // that a stop or cap cut shorter than those has ended.
        for ((i, v), keep) in batch.iter().zip(&verified.verdicts).zip(&keep) {
            self.runtime.commit(self.active[*i].slot, keep.saturating_sub(v.committed))?;
        }
        for (members, outputs) in verified.groups()? {
            let rows = members.iter().map(|k| keep[*k]).max().unwrap_or(1).max(1);
            let requests: Vec<usize> = members.iter().map(|k| batch[*k]).collect();
            let mut part = feed.part(&members, batch.len(), |_| false);
            for (output, t) in outputs {
                part.wires.insert(format!("verify.{output}"), first_rows(t, rows));
            }
            part.positions(&members.iter().map(|k| positions[*k]).collect::<Vec<_>>(), rows);
            let counts = members.iter().map(|k| keep[*k] as i32).collect();
            part.values.insert("keep", Tensor::i32(vec![members.len()], counts));
            self.run_phase("commit", &commit, &mut part, &requests, Mode::Immediate)?;
        }
        if self.options.poison {
            batch.iter().for_each(|i| self.runtime.poison_stale(self.active[*i].slot));
        }
        self.totals.times.commit += began.elapsed();
        events.span("commit", began, batch.len());
        Ok(())
    }

    /// Proposals; requests whose coarse scores are not finite are drafted again from the whole head.
    fn draft(&mut self, law: Law, feed: &mut Feed, batch: &[usize]) -> Result<(), EngineError> {
        let choice = self.first_choice();
        let phase = self.phase(law, choice, "draft")?;
        self.run_phase("draft", &phase, feed, batch, Mode::Tentative)?;
        if choice == Candidates::Exact || !self.programs.has_fallback {
            return Ok(());
        }
        let finite = flags(feed, "draft.finite", batch.len())?;
        let again: Vec<usize> = (0..batch.len()).filter(|k| !finite[*k]).collect();
        if again.is_empty() {
            return Ok(());
        }
        let members: Vec<usize> = again.iter().map(|k| batch[*k]).collect();
        let mut part = self.feed(&members);
        let exact = self.phase(law, Candidates::Exact, "draft")?;
        self.run_phase("draft", &exact, &mut part, &members, Mode::Tentative)?;
        for (wire, t) in part.wires {
            match feed.wires.get_mut(&wire) {
                Some(whole) if again.len() < batch.len() => put_rows(whole, &t, &again),
                _ => {
                    feed.wires.insert(wire, take_rows(&t, &(0..again.len()).collect::<Vec<_>>()));
                }
            }
        }
        Ok(())
    }
}
