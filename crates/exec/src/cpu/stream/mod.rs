//! Constants that are made range of rows by range of rows.
//!
//! A constant too large to be made by one op after the other is computed a few rows at a time, from its weights on: what
//! lies between is never held whole. A row's bits do not depend on the rows beside it, so they are those of the direct
//! way.

mod along;
mod graph;
mod rule;
mod run;
#[cfg(test)]
mod tests;

pub(super) use run::Making;

use std::num::NonZeroUsize;

/// Bytes of a constant and of what lies between it and its weights up to which it is made whole, op by op.
pub const DIRECT_BYTES: u64 = 8 << 20;

/// Bytes that what lies between weights and the rows being made takes, about; rows are made by as many as fit. Constants
/// that every row needs whole come on top.
pub const TRANSIENT_BYTES: u64 = 48 << 20;

/// Ranges of at least as many rows begin at multiples of this, which suits kernels that work on blocks of rows.
const ROW_BLOCK: usize = 64;

/// How constants are streamed. It changes time and memory and no bit of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streaming {
    /// Bytes up to which a constant is made whole, see [`DIRECT_BYTES`].
    pub direct: u64,
    /// Bytes of intermediates of the rows being made, see [`TRANSIENT_BYTES`].
    pub transient: u64,
    /// Rows made at a time, whatever bytes they take.
    pub rows: Option<NonZeroUsize>,
}

impl Default for Streaming {
    fn default() -> Self {
        Streaming { direct: DIRECT_BYTES, transient: TRANSIENT_BYTES, rows: None }
    }
}

impl Streaming {
    /// Nothing is streamed.
    #[must_use]
    pub fn off() -> Self {
        Streaming { direct: u64::MAX, ..Streaming::default() }
    }

    /// Everything that can be is streamed, `rows` rows at a time.
    #[must_use]
    pub fn by_rows(rows: NonZeroUsize) -> Self {
        Streaming { direct: 0, rows: Some(rows), ..Streaming::default() }
    }

    /// Rows to make at a time; `None` if all are made at once.
    fn step(&self, rows: usize, row_bytes: u64) -> Option<usize> {
        if row_bytes.saturating_mul(rows as u64) <= self.direct {
            return None;
        }
        let step = match self.rows {
            Some(n) => n.get(),
            None => match usize::try_from(self.transient / row_bytes.max(1)).unwrap_or(usize::MAX) {
                n if n > ROW_BLOCK => n / ROW_BLOCK * ROW_BLOCK,
                n => n.max(1),
            },
        };
        (step < rows).then_some(step)
    }
}

/// How far the making of a constant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The weight, derived or not; the op if it has no name.
    pub name: &'a str,
    /// Rows that are made.
    pub done: usize,
    /// Rows there are.
    pub rows: usize,
}

/// Is told about progress.
pub type OnProgress = Box<dyn FnMut(&Progress<'_>) + Send>;
