//! The text form: one op a line, canonical, printed and parsed without loss of anything but spans.
//!
//! `print(parse(t)) == t` for canonical text, and `parse(print(m))` is [`super::canonical`]`(m)` without spans for every
//! verified module. `docs/ir.md` describes the form.

mod body;
mod canon;
pub(crate) mod cursor;
pub(crate) mod lex;
mod parse;
mod print;
mod tables;

pub use canon::{canonical, without_spans};
pub use lex::is_word;
pub use parse::{Lines, ParseError, parse, parse_mapped};
pub(crate) use parse::{Numbers, parse_numbered};
pub use print::{annotate, print};

/// Version in the first line of the text. It changes whenever an older reader would misread the text.
pub const FORMAT_VERSION: u32 = 1;
