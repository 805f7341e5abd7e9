//! How far two tensors are apart, and where the value is written.

use super::picks;
use super::report::Change;
use super::run::Log;
use spinec_ir::diag::Span;
use spinec_ir::ir::{Func, ValueDef, ValueId};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::Tensor;

/// The largest magnitude of what a sum or a difference is made of: what its rounding is relative to.
pub(super) fn summands(func: &Func, mark: usize, log: &Log, now: usize) -> f64 {
    let Some(ValueDef::Result(op, _)) = func.values.get(mark).map(|v| v.def) else { return 0.0 };
    let op = func.op(op);
    if !matches!(op.code, Opcode::Add | Opcode::Sub | Opcode::Sum | Opcode::Mean | Opcode::Cumsum | Opcode::Einsum) {
        return 0.0;
    }
    let operands = picks::operands(op, log, now, None).unwrap_or_default();
    let sizes = operands.iter().map(|t| largest(&t.to_f64()));
    if op.code == Opcode::Einsum { sizes.product() } else { sizes.fold(0.0, f64::max) }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()))
}

/// How a value is another, if it is. Zeros of both signs are the same, and so is all that is not a number.
pub(super) fn differ(got: &Tensor, want: &Tensor, summands: &dyn Fn() -> f64) -> Option<Change> {
    if got.shape != want.shape || got.dtype != want.dtype {
        let show = |t: &Tensor| format!("{}{:?}", t.dtype, t.shape);
        return Some(Change::Type { got: show(got), want: show(want) });
    }
    if got.data == want.data {
        return None;
    }
    let (a, b) = (got.to_f64(), want.to_f64());
    let mut off = 0.0f64;
    for (x, y) in a.iter().zip(&b) {
        if x == y || (x.is_nan() && y.is_nan()) {
            continue;
        }
        if !want.dtype.is_float() || !x.is_finite() || !y.is_finite() {
            return Some(Change::Other { got: *x, want: *y });
        }
        off = off.max((x - y).abs());
    }
    let scale = largest(&b).max(summands()).max(f64::MIN_POSITIVE);
    (off > 0.0).then_some(Change::Off(off / scale))
}

/// Where a value stands in the YAML: that of the op that makes it, by its name without loop indices.
pub(super) fn span(func: &Func, path: &str) -> Option<Span> {
    let of = |v: &ValueId| match func.value(*v).def {
        ValueDef::Result(op, _) => func.op(op).loc.span,
        ValueDef::Param(..) => None,
    };
    if let Some(output) = path.strip_prefix("-> ") {
        let at = func.outputs.iter().position(|o| o == output)?;
        return of(func.region(func.body).yields.get(at)?);
    }
    let number = |part: &&str| part.is_empty() || !part.chars().all(|c| c.is_ascii_digit());
    let plain = path.split('.').filter(number).collect::<Vec<_>>().join(".");
    let named = |v: &&ValueId| func.value(**v).names.iter().any(|n| **n == *plain || **n == *path);
    func.ops.iter().flat_map(|op| &op.results).find(named).and_then(of)
}
