//! What a run did and how long it took.

use std::time::Duration;

/// Wall-clock time by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Prefill.
    pub prefill: Duration,
    /// Draft network, candidates and tail.
    pub draft: Duration,
    /// The serial walk over candidates, where a backend reports it apart from the draft.
    pub tail: Duration,
    /// Target rows and acceptance of proposals.
    pub verify: Duration,
    /// Emitting tokens: stops, caps, text.
    pub accept: Duration,
    /// Moving state and writing the draft context.
    pub commit: Duration,
}

/// Counts of a run; every request's cycles are in them once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tokens emitted.
    pub tokens: usize,
    /// Cycles, plain ones included.
    pub cycles: usize,
    /// Cycles in which a block was verified.
    pub verified: usize,
    /// Cycles decoded plainly because the drafter's positions ended.
    pub plain: usize,
    /// Tokens emitted by verified cycles.
    pub committed: usize,
    /// Proposals accepted.
    pub accepted: usize,
    /// Proposals made.
    pub proposed: usize,
    /// Times.
    pub times: Times,
}

impl Totals {
    /// Tokens a verified cycle emitted on average, the extra token included; 0 without cycles.
    pub fn accept_length(&self) -> f64 {
        if self.verified == 0 { 0.0 } else { self.committed as f64 / self.verified as f64 }
    }

    /// Accepted proposals over proposals; 0 without proposals.
    pub fn accept_rate(&self) -> f64 {
        if self.proposed == 0 { 0.0 } else { self.accepted as f64 / self.proposed as f64 }
    }
}
