//! The text form of plans: canonical, printed and parsed without loss of anything but spans.
//!
//! `print(parse(t)) == t` for canonical text, and `parse(print(p))` is `p` without spans for every verified plan. It holds the
//! text of both modules, see [`crate::ir::text`]; `docs/plan.md` describes the form.

mod parse;
mod phase;
mod print;

pub use crate::ir::text::ParseError;
pub use parse::parse;
pub use print::print;

/// Version in the first line of the text. It changes whenever an older reader would misread the text.
pub const FORMAT_VERSION: u32 = 1;
