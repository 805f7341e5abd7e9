//! The spec language: YAML text to a spanned tree, expressions, names, dims, types, lowering to the graph IR.

pub mod ast;
pub mod expr;
mod fields;
mod lower;
mod parse_graph;
pub mod statics;
pub mod yaml;
