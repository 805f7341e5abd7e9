//! The op registry: one row an op with its operands, attributes, effect, numerics class, documentation and shape
//! function. Parser, verifier, interpreter, documentation and coverage reports are made from it.

mod infer;
mod rules;
mod table;

pub use infer::{Blame, InferError};
pub use table::{AttrDef, AttrKind, Effect, NumericsClass, OPS, OpDef, Opcode, OperandDef};

use crate::ir::Attrs;
use crate::ty::Type;

impl Opcode {
    /// The registry row.
    pub fn def(self) -> &'static OpDef {
        &OPS[self as usize]
    }

    /// The name in text form.
    pub fn name(self) -> &'static str {
        self.def().name
    }

    /// The op with that name.
    pub fn from_name(name: &str) -> Option<Opcode> {
        OPS.iter().find(|d| d.name == name).map(|d| d.code)
    }

    /// Result types of the op on operands of the given types. Not for `loop`, `cases`, `weight` and `state_open`, whose
    /// types come from regions and declarations.
    pub fn infer(self, operands: &[&Type], attrs: &Attrs) -> Result<Vec<Type>, InferError> {
        rules::infer(self, operands, attrs)
    }
}
