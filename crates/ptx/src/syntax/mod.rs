//! Text form of PTX: tokens, syntax tree, parser and printer.
//!
//! The tree keeps everything the interpreter and a reader need (scopes, `.loc`, debug sections as raw text) and prints
//! back to text that parses to an equal tree.

pub mod ast;
mod lexer;
mod parser;
mod print;

pub use parser::parse;
