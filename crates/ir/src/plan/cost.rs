//! Work and traffic of kernels and phases, as formulas of the symbols.

use super::must::{Weights, border};
use super::traffic::elements;
use super::{CONTEXT, Kernel, Phase, Place, Plan, Step};
use crate::ir::{Attr, Func, Nest, OpId, RegionId, StateId, ValueDef, ValueId};
use crate::ops::Opcode;
use crate::ty::{Dim, StateKind, Type};
use std::collections::BTreeMap;

/// Arithmetic operations of an op; a multiply-add counts two. `None` if the count overflows.
pub fn flops(func: &Func, id: OpId) -> Option<Dim> {
    use Opcode::*;
    let op = func.op(id);
    let size = |v: &ValueId| func.tensor(*v).map_or(Some(Dim::from(0)), elements);
    let made = op.results.iter().find(|v| func.tensor(**v).is_some()).map_or(Some(Dim::from(0)), size)?;
    let extent = |i: usize, k: usize| func.tensor(*op.operands.get(i)?)?.dims.get(k).cloned();
    match op.code {
        Const | DimValue | Weight | Iota | Fill | Reshape | Transpose | Broadcast | Concat | Slice | IndexAt
        | Shift | Take | StateOpen | StateClose | KvWrite | Cast => Some(Dim::from(0)),
        Linear => made.mul(&extent(1, 1)?)?.mul(&Dim::from(2)),
        Einsum => made.mul(&summed(func, id)?)?.mul(&Dim::from(2)),
        Attention => {
            // Scores and values: two products of the head width for every position seen.
            let context = Dim::symbol(CONTEXT);
            let window = op.int("window").unwrap_or(0);
            let seen = if window > 0 { context.minimum(&Dim::from(window)) } else { context };
            made.mul(&seen)?.mul(&Dim::from(4))
        }
        DeltaRule => {
            let Type::State { kind: StateKind::Recurrent { shape }, .. } = func.ty(op.operands[0]) else {
                return Some(Dim::from(0));
            };
            // Decay, S k, the outer product and S q: seven operations an element of the state and row.
            made.mul(shape.get(1)?)?.mul(&Dim::from(7))
        }
        CausalConv => made.mul(func.tensor(op.operands[2])?.dims.last()?)?.mul(&Dim::from(2)),
        Loop => {
            let mut n = Dim::from(0);
            for region in &op.regions {
                for inner in &func.region(*region).ops {
                    n = n.add(&flops(func, *inner)?)?;
                }
            }
            n.mul(op.dim("extent")?)
        }
        Cases => Some(Dim::from(0)),
        Guarded => Some(made),
        RmsNorm | L2Norm | Softmax | SamplingLaw => made.mul(&Dim::from(4)),
        code if code.def().elementwise => Some(made),
        // Reductions, selections and draws look at every element of their operand.
        _ => op.operands.first().map_or(Some(made.clone()), size)?.add(&made),
    }
}

/// Product of the extents an einsum sums over.
fn summed(func: &Func, id: OpId) -> Option<Dim> {
    let op = func.op(id);
    let Some(Attr::Str(spec)) = op.attrs.get("spec") else { return Some(Dim::from(1)) };
    let (left, right) = spec.split_once("->")?;
    let mut seen: Vec<&str> = right.split_whitespace().collect();
    let mut n = Dim::from(1);
    for (i, part) in left.split(',').enumerate() {
        for (k, name) in part.split_whitespace().enumerate() {
            if !seen.contains(&name) {
                seen.push(name);
                n = n.mul(func.tensor(*op.operands.get(i)?)?.dims.get(k)?)?;
            }
        }
    }
    Some(n)
}

/// Launches and traffic of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Kernels launched.
    pub launches: Dim,
    /// Bytes kernels read.
    pub read: Dim,
    /// Bytes kernels write.
    pub written: Dim,
    /// Of both, bytes of values that are neither weights, tables, pools nor states.
    pub activation: Dim,
    /// Bytes no plan can avoid: every weight element that is read once, states, what is touched of inputs and
    /// outputs of the phase.
    pub must_move: Dim,
    /// Arithmetic operations.
    pub flops: Dim,
}

impl Default for Totals {
    fn default() -> Totals {
        let zero = || Dim::from(0);
        Totals { launches: zero(), read: zero(), written: zero(), activation: zero(), must_move: zero(), flops: zero() }
    }
}

/// A kernel with how often it runs in a phase.
pub fn launches<'a>(func: &Func, phase: &'a Phase) -> Option<Vec<(usize, &'a Kernel, Dim)>> {
    let mut out = Vec::new();
    walk(&Nest::of(func), phase, &phase.steps, &mut out)?;
    Some(out)
}

fn walk<'a>(nest: &Nest, phase: &'a Phase, steps: &[Step], out: &mut Vec<(usize, &'a Kernel, Dim)>) -> Option<()> {
    for step in steps {
        match step {
            Step::Launch(k) => {
                let kernel = phase.kernels.get(k.index())?;
                out.push((k.index(), kernel, nest.times(kernel.block)?));
            }
            Step::Loop { body, .. } => walk(nest, phase, body, out)?,
            Step::Cases { arms, .. } => arms.iter().try_for_each(|arm| walk(nest, phase, arm, out))?,
        }
    }
    Some(())
}

/// Totals of a phase; `None` if a count overflows.
pub fn totals(plan: &Plan, index: usize) -> Option<Totals> {
    let (func, phase) = (plan.module.funcs.get(index)?, plan.phases.get(index)?);
    let mut t = Totals::default();
    let nest = Nest::of(func);
    let mut weights = Weights::of(plan, func, phase);
    let mut states: BTreeMap<(StateId, bool), Dim> = BTreeMap::new();
    let mut touched = vec![[Dim::from(0), Dim::from(0)]; phase.buffers.len()];
    for (_, kernel, times) in launches(func, phase)? {
        t.launches = t.launches.add(&times)?;
        t.flops = t.flops.add(&kernel.flops.mul(&times)?)?;
        weights.add(kernel, &nest);
        for (list, written) in [(&kernel.reads, false), (&kernel.writes, true)] {
            for access in list {
                let bytes = access.bytes.mul(&times)?;
                let total = if written { &mut t.written } else { &mut t.read };
                *total = total.add(&bytes)?;
                match access.place {
                    Place::Buffer(b) => {
                        t.activation = t.activation.add(&bytes)?;
                        let of = &mut touched.get_mut(b.index())?[usize::from(written)];
                        *of = of.add(&bytes)?;
                    }
                    Place::Weight(..) => {}
                    Place::State(s) => {
                        let old = states.entry((s, written)).or_insert_with(|| Dim::from(0));
                        *old = old.add(&bytes)?;
                    }
                }
            }
        }
    }
    t.must_move = weights.bytes()?.add(&border(plan, func, phase, &touched)?)?;
    for bytes in states.values() {
        t.must_move = t.must_move.add(bytes)?;
    }
    // An output that a loop hands on as it is, no kernel moves.
    t.must_move = t.must_move.minimum(&t.read.add(&t.written)?);
    Some(t)
}

/// What the graph would take with a kernel an op and nothing kept in registers; accesses that only rename elements are
/// free.
pub fn unfused(func: &Func) -> Option<Totals> {
    let mut t = Totals::default();
    naive(func, &Nest::of(func), func.body, &mut t)?;
    Some(t)
}

fn naive(func: &Func, nest: &Nest, block: RegionId, t: &mut Totals) -> Option<()> {
    use Opcode::*;
    let times = &nest.times(block)?;
    for id in &func.region(block).ops {
        let op = func.op(*id);
        match op.code {
            Const | DimValue | Weight | Iota | Fill | Reshape | Broadcast | Slice | Transpose | StateOpen
            | StateClose => {}
            Loop | Cases => op.regions.iter().try_for_each(|r| naive(func, nest, *r, t))?,
            _ => {
                t.launches = t.launches.add(times)?;
                t.flops = t.flops.add(&flops(func, *id)?.mul(times)?)?;
                for (i, v) in op.operands.iter().enumerate() {
                    let Some(ty) = func.tensor(*v) else { continue };
                    let rows = op.code == Take && i == 0;
                    let n = if rows { elements(func.tensor(op.results[0])?)? } else { elements(ty)? };
                    let bytes = n.mul(&Dim::from(ty.dtype.bytes()))?.mul(times)?;
                    t.read = t.read.add(&bytes)?;
                    if !is_weight(func, *v) {
                        t.activation = t.activation.add(&bytes)?;
                    }
                }
                for v in &op.results {
                    let Some(ty) = func.tensor(*v) else { continue };
                    let bytes = super::traffic::tensor_bytes(ty)?.mul(times)?;
                    t.written = t.written.add(&bytes)?;
                    t.activation = t.activation.add(&bytes)?;
                }
            }
        }
    }
    Some(())
}

/// Whether a value is a weight, seen through names of elements.
fn is_weight(func: &Func, v: ValueId) -> bool {
    match func.value(v).def {
        ValueDef::Param(..) => false,
        ValueDef::Result(id, _) => {
            let op = func.op(id);
            match op.code {
                Opcode::Weight | Opcode::Const | Opcode::Iota | Opcode::DimValue | Opcode::Fill => true,
                Opcode::Reshape | Opcode::Broadcast | Opcode::Slice | Opcode::Transpose => {
                    op.operands.iter().all(|v| is_weight(func, *v))
                }
                _ => false,
            }
        }
    }
}
