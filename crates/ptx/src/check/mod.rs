//! What the interpreter checks while it runs: findings, happens-before clocks and shadow memory.

pub(crate) mod cell;
pub(crate) mod clock;
mod finding;
pub(crate) mod global;
pub(crate) mod lanes;
pub(crate) mod pool;
pub(crate) mod record;

pub use finding::{Finding, FindingKind, Severity};
pub(crate) use finding::{Findings, Raw};
