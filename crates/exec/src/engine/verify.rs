//! Verifying blocks: whole, or in steps where the system's phase can start at any row of a block.
//!
//! A row's bits do not depend on which rows share its call, so a block verified in steps accepts what the whole block would
//! have. Steps end at the first proposal that is not accepted, and save the rows behind it.

use super::batch::{Feed, flags, ints, join_rows, take_rows};
use super::programs::PhaseFn;
use super::{Engine, EngineError};
use crate::runtime::{Mode, RunError};
use spinec_ir::tensor::Tensor;
use std::collections::BTreeMap;

/// Rows of the first step where much is not expected to be accepted. A 16-row call costs about four times one of 4 rows on
/// two cores with wide vectors; most blocks end within the first 4 rows.
const FIRST_STEP: usize = 4;
/// A request whose last block accepted that many proposals is verified whole: each step reads all weights again.
const MANY: usize = 8;

/// What verification decided for one request of a batch.
pub(super) struct Verdict {
    /// Accepted proposals of the whole block.
    pub accepted: usize,
    /// The token behind them.
    pub token: i32,
    /// The token can be trusted.
    pub sound: bool,
    /// Rows whose state is committed already; a later step followed them.
    pub committed: usize,
    /// Rows that were run.
    pub rows: usize,
}

/// Outputs of a phase by name.
type Outputs = BTreeMap<String, Tensor>;

/// The blocks of a batch.
pub(super) struct Blocks<'a> {
    /// Requests by their place among the active ones.
    pub batch: &'a [usize],
    /// Position of each anchor.
    pub positions: &'a [usize],
    /// Rows to verify of each.
    pub widths: &'a [usize],
    /// Proposals of a block.
    pub proposals: usize,
}

/// What a batch's verification leaves.
pub(super) struct Verified {
    pub verdicts: Vec<Verdict>,
    /// Steps in order.
    pub steps: Vec<Step>,
}

/// One call of the phase.
pub(super) struct Step {
    /// Members by their place in the batch.
    members: Vec<usize>,
    /// Outputs that later phases are wired to.
    outputs: Outputs,
}

impl Verified {
    /// Groups of members that ran the same number of rows, and for each the outputs of all their rows.
    pub fn groups(mut self) -> Result<Vec<(Vec<usize>, Outputs)>, EngineError> {
        if self.steps.len() == 1 {
            return Ok(self.steps.pop().map(|s| (s.members, s.outputs)).into_iter().collect());
        }
        let mut out = Vec::new();
        for last in 0..self.steps.len() {
            let here = &self.steps[last].members;
            let ended = |k: &usize| !self.steps.get(last + 1).is_some_and(|next| next.members.contains(k));
            let members: Vec<usize> = here.iter().copied().filter(ended).collect();
            if members.is_empty() {
                continue;
            }
            let mut outputs = Outputs::new();
            for name in self.steps[last].outputs.keys() {
                let mut parts = Vec::new();
                for step in &self.steps[..=last] {
                    let places = members.iter().filter_map(|m| step.members.iter().position(|k| k == m));
                    parts.extend(step.outputs.get(name).map(|t| take_rows(t, &places.collect::<Vec<_>>())));
                }
                let whole = join_rows(parts).ok_or_else(|| {
                    EngineError::Run(RunError::Failed(format!("`verify.{name}` has no row axis to be joined along")))
                })?;
                outputs.insert(name.clone(), whole);
            }
            out.push((members, outputs));
        }
        Ok(out)
    }
}

impl Engine<'_> {
    /// Rows of a step for these requests, `first` rows of their blocks done.
    fn step_rows(&self, batch: &[usize], first: usize) -> usize {
        match self.options.step {
            Some(rows) => rows.max(1),
            None => {
                let last = |i: &usize| self.active[*i].cycles.last().map_or(0, |c| c.accepted);
                let much = batch.iter().any(|i| last(i) >= MANY);
                if much { usize::MAX } else { first.max(FIRST_STEP) }
            }
        }
    }

    /// Numbers of rows that one request's steps usually have, the greatest last.
    pub(super) fn usual_steps(&self, phase: &PhaseFn, width: usize) -> Vec<usize> {
        let mut out = Vec::new();
        let mut first = 0;
        while self.options.step.is_none() && takes_steps(phase) && first < width {
            let rows = first.max(FIRST_STEP).min(width - first);
            out.push(rows);
            first += rows;
        }
        out.push(width);
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Verifies blocks. `feed` holds what the phase is wired to; of its outputs those that `kept` names are handed on.
    pub(super) fn verify(
        &mut self,
        phase: &PhaseFn,
        kept: &[String],
        feed: &Feed,
        blocks: &Blocks<'_>,
    ) -> Result<Verified, EngineError> {
        let Blocks { batch, positions, widths, proposals } = *blocks;
        let in_steps = takes_steps(phase);
        let none = || Verdict { accepted: 0, token: 0, sound: false, committed: 0, rows: 0 };
        let mut out = Verified { verdicts: batch.iter().map(|_| none()).collect(), steps: Vec::new() };
        let mut live: Vec<usize> = (0..batch.len()).collect();
        let mut first = 0;
        while !live.is_empty() {
            let members: Vec<usize> = live.iter().map(|k| batch[*k]).collect();
            let left = live.iter().map(|k| widths[*k] - first).max().unwrap_or(0);
            let rows = if in_steps { self.step_rows(&members, first).min(left) } else { left };
            let mut part = feed.part(&live, batch.len(), |wire| {
                phase
                    .wires
                    .values()
                    .any(|w| wire.strip_prefix(&w.phase).and_then(|r| r.strip_prefix('.')) == Some(&w.output))
            });
            let i32s =
                |f: &dyn Fn(usize) -> usize| Tensor::i32(vec![live.len()], live.iter().map(|k| f(*k) as i32).collect());
            part.values.insert("width", i32s(&|k| widths[k]));
            part.values.insert("first", i32s(&|_| first));
            part.positions(&live.iter().map(|k| positions[*k] + first).collect::<Vec<_>>(), rows);
            self.run_phase("verify", phase, &mut part, &members, Mode::Tentative)?;
            let accepted = ints(&part, "verify.accepted")?;
            let token = ints(&part, "verify.token")?;
            let sound = flags(&part, "verify.sound", live.len())?;
            let mut next = Vec::new();
            for (place, k) in live.iter().enumerate() {
                let n = accepted[place];
                let n = usize::try_from(n).ok().filter(|n| *n <= proposals).ok_or_else(|| {
                    EngineError::Run(RunError::Failed(format!("{n} of {proposals} proposals cannot be accepted")))
                })?;
                let v = &mut out.verdicts[*k];
                v.rows = first + rows;
                if n == v.rows && v.rows < widths[*k] {
                    // Every row accepted its proposal and the width goes on: the next rows decide.
                    v.committed = v.rows;
                    self.runtime.commit(self.active[batch[*k]].slot, rows)?;
                    next.push(*k);
                } else {
                    (v.accepted, v.token, v.sound) = (n, token[place], sound[place]);
                }
            }
            let outputs = kept.iter().filter_map(|o| part.wires.remove(&format!("verify.{o}")).map(|t| (o.clone(), t)));
            out.steps.push(Step { members: live, outputs: outputs.collect() });
            live = next;
            first += rows;
        }
        Ok(out)
    }
}

/// True if the phase can begin at any row of a block.
fn takes_steps(phase: &PhaseFn) -> bool {
    phase.inputs.iter().any(|i| i == "first")
}
