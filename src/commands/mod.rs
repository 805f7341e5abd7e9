//! One file a subcommand.

pub mod check;
pub mod eval;
pub mod explain;
pub mod ptx;
pub mod run;
pub mod synth;
