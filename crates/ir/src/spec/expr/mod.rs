//! The expression and type syntax inside scalars.
//!
//! Operators from loosest to tightest: `or`, `and`, `not`, comparisons (not chained), `+ -`, `* / // %`, prefix `-`, `**`
//! (from the right), then attributes, indices and calls. A `-` directly before a number belongs to the literal, unless
//! `**` or an index binds the number more tightly. `true`, `false` and `none` may be capitalised; `null` is `none`.

mod ast;
mod lexer;
mod node;
mod parser;
mod place;
mod postfix;
mod print;
mod types;

pub use ast::*;
pub(crate) use node::{expr_node, type_node};
pub use node::{parse_expr_node, parse_type_node};

use crate::diag::{Diagnostics, Span, codes};
use crate::spec::yaml::Text;
use place::Place;

/// Parses the expression in `text`, which stands at `span`.
///
/// Spans are exact where the text stands byte for byte in the file, else they are `span`. Reports at most one error
/// (E0110), with which the result is `None`.
pub fn parse_expr(text: &Text, span: Span, diags: &mut Diagnostics) -> Option<Expr> {
    let place = Place { text, scalar: span, code: codes::EXPR_SYNTAX };
    parser::Parser::new(place).and_then(|p| p.whole()).map_err(|e| diags.push(e.into_inner())).ok()
}

/// Parses the type in `text`, which stands at `span`; see [`parse_expr`]. Errors are E0111.
pub fn parse_type(text: &Text, span: Span, diags: &mut Diagnostics) -> Option<TypeExpr> {
    let place = Place { text, scalar: span, code: codes::TYPE_SYNTAX };
    types::whole(place).map_err(|e| diags.push(e.into_inner())).ok()
}
