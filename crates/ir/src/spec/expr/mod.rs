//! The expression and type syntax inside scalars.

mod ast;

pub use ast::*;
