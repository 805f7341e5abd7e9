//! One cycle of everybody who decodes: draft, verify, accept, trim, commit; or one plain row.

use super::batch::{Feed, flags, ints, put_rows, take_rows};
use super::programs::{Law, PhaseFn};
use super::request::{Active, Cycle};
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
        let widths = self.widths(batch);
        let rows = widths.iter().copied().max().unwrap_or(1);
        let narrow = widths.iter().map(|w| *w as i32).collect();
        feed.values.insert("width", Tensor::i32(vec![batch.len()], narrow));
        feed.positions(&positions, usize::try_from(rows).unwrap_or(1));
        let verify = self.phase(law, self.first_choice(), "verify")?;
        self.run_phase("verify", &verify, &mut feed, batch, Mode::Tentative)?;
        self.totals.times.verify += began.elapsed();
        events.span("verify", began, batch.len());

        let began = Instant::now();
        let accepted = ints(&feed, "verify.accepted")?.to_vec();
        let extra = ints(&feed, "verify.token")?.to_vec();
        let proposal = ints(&feed, "draft.proposal")?.to_vec();
        let sound = flags(&feed, "verify.sound", batch.len())?;
        let per = proposal.len() / batch.len();
        let mut keep = vec![0i32; batch.len()];
        for (k, i) in batch.iter().enumerate() {
            let offered = &proposal[k * per..(k + 1) * per];
            let n = usize::try_from(accepted[k]).ok().filter(|n| *n <= per);
            let n = n.ok_or_else(|| {
                EngineError::Run(RunError::Failed(format!("{} of {per} proposals cannot be accepted", accepted[k])))
            })?;
            let mut committed = 0;
            // A row without a usable logit decides nothing; what the rows before it accepted stands.
            for token in offered[..n].iter().chain(sound[k].then_some(&extra[k])) {
                self.emit(*i, *token as u32, events)?;
                committed += 1;
                if self.active[*i].finish.is_some() {
                    break;
                }
            }
            if !sound[k] && self.active[*i].finish.is_none() {
                self.fail(*i, events)?;
            }
            keep[k] = committed as i32;
            self.totals.cycles += 1;
            self.totals.verified += 1;
            self.totals.committed += committed;
            self.totals.accepted += n;
            self.totals.proposed += per;
            self.active[*i].cycles.push(Cycle {
                position: positions[k],
                width: usize::try_from(widths[k]).unwrap_or(0),
                proposal: offered.iter().map(|t| *t as u32).collect(),
                accepted: n,
                committed,
            });
        }
        self.totals.times.accept += began.elapsed();
        events.span("accept", began, batch.len());

        let began = Instant::now();
        feed.values.insert("keep", Tensor::i32(vec![batch.len()], keep.clone()));
        let commit = self.phase(law, self.first_choice(), "commit")?;
        self.run_phase("commit", &commit, &mut feed, batch, Mode::Immediate)?;
        for (i, c) in batch.iter().zip(&keep) {
            self.runtime.commit(self.active[*i].slot, usize::try_from(*c).unwrap_or(0))?;
            if self.options.poison {
                self.runtime.poison_stale(self.active[*i].slot);
            }
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
