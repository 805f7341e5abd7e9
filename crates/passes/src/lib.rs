//! Passes over the graph IR.
//!
//! The crate turns a verified [`spinec_ir::ir::Module`] into an equal one that does less: it finds equal terms by equality
//! saturation ([`saturate`] with the rules of [`rules`]), chooses by an integer cost model ([`choose`], [`extract`],
//! [`cost`]), and makes what depends on weights alone a *derived weight*, computed once ([`pass::Program`]). [`pass`] runs the
//! passes in order.
//!
//! Invariants: no rule or pass knows a name of a graph, node or weight; results depend on nothing but the module and the
//! options (no clock, no thread count, no hash order); effects are never moved; every module a pass gives is verified. The
//! crate must not see devices, files or the executor.

pub mod choose;
pub mod compile;
pub mod cost;
pub mod dag;
pub mod estimate;
pub mod extract;
pub mod fuse;
pub mod history;
pub mod pack;
pub mod pass;
pub mod region;
pub mod rules;
pub mod saturate;
pub mod term;
