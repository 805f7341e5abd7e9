//! One file a subcommand.

pub mod check;
pub mod eval;
pub mod explain;
pub mod passes;
pub mod plan;
pub mod ptx;
pub mod run;
pub mod synth;
mod values;
pub mod why_not;
