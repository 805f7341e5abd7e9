//! The spec language: YAML text to a spanned tree, expressions, names, dims, types, lowering to the graph IR.

pub mod expr;
pub mod yaml;
