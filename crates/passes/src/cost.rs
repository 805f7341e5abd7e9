//! What a node costs on a device, in integers: picoseconds of time, bytes of memory.
//!
//! Elementwise ops and views run inside a neighbour's kernel and cost arithmetic only; everything else is a kernel of its
//! own: a launch, and the longer of arithmetic and memory traffic. Every node costs at least one picosecond, so a larger term
//! is never free.

pub use spinec_ir::spec::device::Device;

use crate::term::{Head, Term};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Env, TensorType, Type};

/// The price of resident bytes in picoseconds, at least one; `weight` multiplies it.
pub fn resident_ps(device: &Device, bytes: u64, weight: u64) -> u64 {
    let ps = (u128::from(bytes) * u128::from(device.resident_ps_per_mib) * u128::from(weight)) >> 20;
    u64::try_from(ps).unwrap_or(u64::MAX).max(1)
}

/// A sum that stays at its largest value.
fn total(counts: impl Iterator<Item = u128>) -> u128 {
    counts.fold(0, u128::saturating_add)
}

/// `n * 10^12 / rate`, rounded up, saturating.
fn ps(n: u128, rate: u64) -> u64 {
    u64::try_from(n.saturating_mul(1_000_000_000_000).div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX)
}

/// Elements of a tensor at the given values of symbols; what has no value counts as one.
pub fn elements(t: &TensorType, env: &Env) -> u128 {
    t.dims.iter().map(|d| d.eval(env).and_then(|v| u128::try_from(v).ok()).unwrap_or(1)).product()
}

/// An operand or result: its type and the width in bytes it is read with.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Type.
    pub ty: &'a Type,
    /// Bytes of an element in memory, which a widening in front of the read does not change.
    pub width: u64,
    /// Bytes of the narrowest dtype that holds the values.
    pub value: u64,
}

/// True for ops that only rename or copy elements.
pub fn is_view(code: Opcode) -> bool {
    use Opcode::*;
    matches!(code, Reshape | Transpose | Broadcast | Slice | Cast | Take | IndexAt | Shift | Concat | Fill | Iota)
}

/// True for ops that cost nothing by themselves.
fn is_source(code: Opcode) -> bool {
    matches!(code, Opcode::Const | Opcode::DimValue | Opcode::Weight)
}

/// Time of one node in a run, picoseconds.
pub fn time(device: &Device, node: &Term, operands: &[Operand], results: &[Operand], env: &Env) -> u64 {
    let code = match node.head {
        Head::Op(code) => code,
        Head::Leaf(_) | Head::Proj(_) => return 1,
        // A kernel that looks at the condition; the slow value is hardly ever computed.
        Head::Guard(_) => {
            let moved: Vec<Operand> = operands[..2].iter().chain(results).copied().collect();
            return device.launch_ps.saturating_add(traffic(device, &moved, env)).max(1);
        }
        Head::Pack => return device.launch_ps.max(1),
        Head::Packed => {
            let own: Vec<Operand> = operands[1..].iter().chain(results).copied().collect();
            return arithmetic(device, node, operands, results, env).max(traffic(device, &own, env)).max(1);
        }
    };
    if is_source(code) || is_view(code) {
        return 1;
    }
    let work = arithmetic(device, node, operands, results, env);
    if code.def().elementwise {
        return work.max(1);
    }
    let moved: Vec<Operand> = match code {
        // What follows the row statistic is elementwise: it runs where the result is read.
        Opcode::RmsNorm | Opcode::L2Norm => operands[..1].to_vec(),
        _ => operands.iter().chain(results).copied().collect(),
    };
    device.launch_ps.saturating_add(work.max(traffic(device, &moved, env))).max(1)
}

/// What reading the operand adds to a packed map, picoseconds: nothing where arithmetic hides it.
pub fn exposed(device: &Device, node: &Term, operands: &[Operand], results: &[Operand], env: &Env) -> u64 {
    let all: Vec<Operand> = operands.iter().chain(results).copied().collect();
    let alone = arithmetic(device, node, operands, results, env).max(traffic(device, &all, env)).max(1);
    alone.saturating_sub(time(device, node, operands, results, env))
}

fn count(o: &Operand, env: &Env) -> u128 {
    o.ty.tensor().map_or(0, |t| elements(t, env))
}

/// Time to move some operands.
fn traffic(device: &Device, operands: &[Operand], env: &Env) -> u64 {
    ps(total(operands.iter().map(|o| count(o, env).saturating_mul(u128::from(o.width)))), device.bandwidth)
}

/// Time of the arithmetic of a node.
fn arithmetic(device: &Device, node: &Term, operands: &[Operand], results: &[Operand], env: &Env) -> u64 {
    let made = total(results.iter().map(|o| count(o, env)));
    let wide = |o: &Operand| o.ty.tensor().is_some_and(|t| t.dtype == DType::F64);
    let rate = if operands.iter().chain(results).any(wide) { device.flops_64 } else { device.flops_32 };
    match node.code() {
        Some(code) if code.def().elementwise => ps(made, rate),
        Some(Opcode::Linear | Opcode::Einsum) | None => {
            let narrow = operands.iter().all(|o| o.value <= 2);
            ps(2 * products(node, operands, made, env), if narrow { device.flops_16 } else { rate })
        }
        Some(_) => ps(total(operands.iter().map(|o| count(o, env))).saturating_add(made), rate),
    }
}

/// Multiplications of a product: results times summed extents.
fn products(node: &Term, operands: &[Operand], made: u128, env: &Env) -> u128 {
    let extent = |i: usize, k: usize| {
        let d = operands.get(i).and_then(|o| o.ty.tensor()).and_then(|t| t.dims.get(k));
        d.and_then(|d| d.eval(env)).and_then(|v| u128::try_from(v).ok()).unwrap_or(1)
    };
    if matches!(node.head, Head::Packed | Head::Op(Opcode::Linear)) {
        return made * extent(1, 1);
    }
    let Some(spinec_ir::ir::Attr::Str(spec)) = node.key.attrs().get("spec") else { return made };
    let Some((left, right)) = spec.split_once("->") else { return made };
    let kept: Vec<&str> = right.split_whitespace().collect();
    let mut seen: Vec<&str> = Vec::new();
    let mut total = made;
    for (i, side) in left.split(',').enumerate() {
        for (k, name) in side.split_whitespace().enumerate() {
            if !kept.contains(&name) && !seen.contains(&name) {
                seen.push(name);
                total = total.saturating_mul(extent(i, k));
            }
        }
    }
    total
}
