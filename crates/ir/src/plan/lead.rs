//! Which leading axes an op keeps apart: what blocks of threads can share out without talking to each other.

use super::role::inner_operands;
use crate::ir::{Attr, Func, OpId, ValueId};
use crate::ops::Opcode;
use crate::ty::Dim;

/// Dims of a value; empty for a state.
pub fn dims(func: &Func, v: ValueId) -> &[Dim] {
    func.tensor(v).map_or(&[], |t| &t.dims)
}

/// The dims an op's rows are counted by: those of its first result, for a write into a pool those of what is written.
pub fn space(func: &Func, id: OpId) -> &[Dim] {
    let op = func.op(id);
    match op.code {
        Opcode::KvWrite => dims(func, op.operands[1]).get(..3).unwrap_or_default(),
        Opcode::Loop => {
            let lead = scan_lead(func, id);
            op.results.first().map_or(&[][..], |v| dims(func, *v)).get(..lead).unwrap_or_default()
        }
        _ => op.results.iter().map(|v| dims(func, *v)).next().unwrap_or_default(),
    }
}

/// How many dims two lists begin with alike.
pub fn common(a: &[Dim], b: &[Dim]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// How many leading axes of [`space`] an op needs of an operand at the same indices only.
pub fn lead(func: &Func, id: OpId, operand: ValueId) -> usize {
    let op = func.op(id);
    let places = op.operands.iter().enumerate().filter(|(_, v)| **v == operand);
    let of = |i: usize| one(func, id, i);
    if op.code == Opcode::Loop {
        return if inner_operands(func, id).contains(&operand) { scan_lead(func, id) } else { usize::MAX };
    }
    // What a guarded op's region uses may be needed whole.
    let other = if op.code == Opcode::Guarded { 0 } else { usize::MAX };
    places.map(|(i, _)| of(i)).min().unwrap_or(other)
}

fn one(func: &Func, id: OpId, i: usize) -> usize {
    use Opcode::*;
    let op = func.op(id);
    let out = space(func, id);
    let x = dims(func, op.operands[i]);
    let alike = common(out, x);
    let rank = x.len();
    let axis = |name| op.int(name).map_or(0, |a| if a < 0 { (rank as i64 + a).max(0) as usize } else { a as usize });
    match op.code {
        code if code == Broadcast || code.def().elementwise => alike * usize::from(x.len() == out.len()),
        Reshape => alike,
        Transpose => op.ints("axes").map_or(0, |a| a.iter().enumerate().take_while(|(i, a)| *i as i64 == **a).count()),
        Concat | Slice | Shift => alike.min(axis("axis")),
        IndexAt if i == 0 => alike.min(axis("axis")),
        Take if i == 0 => alike.min(axis("axis")),
        Take => alike,
        Sum | Mean | ReduceMax | ReduceMin | Rms | Norm2 | Cumsum | Cumprod | Argmax | Softmax => {
            alike.min(axis("axis"))
        }
        TopK | Sort | RmsNorm | L2Norm | Rope | ScatterAdd | SamplingLaw if i == 0 => alike.min(rank.saturating_sub(1)),
        Rope | ScatterAdd | SamplingLaw => alike,
        Linear if i == 0 => alike.min(rank.saturating_sub(1)),
        Einsum => letters(op.attrs.get("spec"), i).min(alike),
        OneHot | Draw | Coin | Guarded => alike,
        KvWrite => alike,
        QuantizeRows => alike.min(1),
        _ => 0,
    }
}

/// Leading names of an einsum's result that an operand begins with too.
fn letters(spec: Option<&Attr>, i: usize) -> usize {
    let Some(Attr::Str(spec)) = spec else { return 0 };
    let Some((left, right)) = spec.split_once("->") else { return 0 };
    let part = left.split(',').nth(i).unwrap_or_default();
    right.split_whitespace().zip(part.split_whitespace()).take_while(|(a, b)| a == b).count()
}

/// One if a serial loop keeps the first axis of what it carries apart, else zero.
pub fn scan_lead(func: &Func, id: OpId) -> usize {
    let op = func.op(id);
    let Some(batch) = op.results.first().and_then(|v| dims(func, *v).first()) else { return 0 };
    let apart = |v: &ValueId| dims(func, *v).first() == Some(batch);
    let carried =
        op.operands.iter().all(apart) && op.keeps().iter().all(|k| k.axis >= 1) && op.results.iter().all(apart);
    let inside = op.regions.iter().all(|r| {
        func.region(*r).ops.iter().all(|inner| {
            let made = func.op(*inner).results.iter().all(apart);
            func.op(*inner).operands.iter().filter(|v| apart(v)).all(|v| made && lead(func, *inner, *v) >= 1)
        })
    });
    usize::from(carried && inside)
}
