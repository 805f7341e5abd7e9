//! Lane functions, by opcode text.

mod compare;
mod convert;
mod convert_form;
mod float;
mod half;
mod int;
mod logic;

use super::regs::Alu;

pub(crate) use compare::{CmpOp, comparisons, set_predicate, test_properties, test_property};
pub(crate) use convert::{convert, extend};
pub(crate) use convert_form::{Convert, Num, conversions, parse_convert};
pub(crate) use logic::{carry, logic_predicate, lookup_special, move_pack, select};

/// The lane function of an opcode with all its modifiers, if it is a plain one.
pub(crate) fn lookup(op: &str) -> Option<&'static Alu> {
    int::lookup(op).or_else(|| float::lookup(op)).or_else(|| half::lookup(op)).or_else(|| convert::lookup(op))
}

/// Opcodes of plain lane functions.
pub(crate) fn opcodes() -> impl Iterator<Item = &'static str> {
    [int::OPCODES, float::OPCODES, half::OPCODES, convert::OPCODES].into_iter().flatten().copied()
}
