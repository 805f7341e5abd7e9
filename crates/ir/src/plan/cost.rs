//! Work and traffic of kernels and phases, as formulas of the symbols.

use super::traffic::elements;
use super::{CONTEXT, Kernel, Phase, Place, Plan, Step};
use crate::ir::{Attr, Func, OpId, RegionId, StateId, ValueDef, ValueId, WeightId};
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
    /// Bytes no plan can avoid: every weight element and state once, inputs and outputs of the phase.
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
    walk(func, phase, &phase.steps, &Dim::from(1), &mut out)?;
    Some(out)
}

fn walk<'a>(
    func: &Func,
    phase: &'a Phase,
    steps: &[Step],
    times: &Dim,
    out: &mut Vec<(usize, &'a Kernel, Dim)>,
) -> Option<()> {
    for step in steps {
        match step {
            Step::Launch(k) => out.push((k.index(), phase.kernels.get(k.index())?, times.clone())),
            Step::Loop { op, body } => {
                let mut rest = Vec::new();
                for step in body {
                    match step {
                        // How often each case runs of one turn of the loop.
                        Step::Cases { op, arms } => {
                            let select = func.op(*op).ints("select").unwrap_or_default();
                            for (k, arm) in arms.iter().enumerate() {
                                let n = select.iter().filter(|s| **s == k as i64).count() as i64;
                                walk(func, phase, arm, &times.mul(&Dim::from(n))?, out)?;
                            }
                        }
                        other => rest.push(other.clone()),
                    }
                }
                walk(func, phase, &rest, &times.mul(func.op(*op).dim("extent")?)?, out)?;
            }
            // A case whose loop is further out: counted as the share of its loop.
            Step::Cases { op, arms } => {
                let select = func.op(*op).ints("select").unwrap_or_default();
                for (k, arm) in arms.iter().enumerate() {
                    let n = select.iter().filter(|s| **s == k as i64).count() as i64;
                    let times = times.mul(&Dim::from(n))?.floor_div(&Dim::from((select.len() as i64).max(1)))?;
                    walk(func, phase, arm, &times, out)?;
                }
            }
        }
    }
    Some(())
}

/// Totals of a phase; `None` if a count overflows.
pub fn totals(plan: &Plan, index: usize) -> Option<Totals> {
    let (func, phase) = (plan.module.funcs.get(index)?, plan.phases.get(index)?);
    let mut t = Totals::default();
    let mut weights: BTreeMap<(WeightId, Option<i64>, RegionId, Dim), Dim> = BTreeMap::new();
    let mut states: BTreeMap<(StateId, bool), Dim> = BTreeMap::new();
    for (_, kernel, times) in launches(func, phase)? {
        t.launches = t.launches.add(&times)?;
        t.flops = t.flops.add(&kernel.flops.mul(&times)?)?;
        for (list, written) in [(&kernel.reads, false), (&kernel.writes, true)] {
            for access in list {
                let bytes = access.bytes.mul(&times)?;
                let total = if written { &mut t.written } else { &mut t.read };
                *total = total.add(&bytes)?;
                match access.place {
                    Place::Buffer(_) => t.activation = t.activation.add(&bytes)?,
                    Place::Weight(w, at) => {
                        // The same part of a weight has to be moved once, whoever in the block reads it.
                        let n = if at.is_some() { Dim::from(1) } else { times.clone() };
                        weights.insert((w, at, kernel.block, access.bytes.clone()), access.bytes.mul(&n)?);
                    }
                    Place::State(s) => {
                        let old = states.entry((s, written)).or_insert_with(|| Dim::from(0));
                        *old = old.add(&bytes)?;
                    }
                }
            }
        }
    }
    for bytes in weights.values().chain(states.values()) {
        t.must_move = t.must_move.add(bytes)?;
    }
    for v in func.region(func.body).params.iter().chain(&func.region(func.body).yields) {
        if let Some(ty) = func.tensor(*v) {
            t.must_move = t.must_move.add(&super::traffic::tensor_bytes(ty)?)?;
        }
    }
    Some(t)
}

/// What the graph would take with a kernel an op and nothing kept in registers; accesses that only rename elements are
/// free.
pub fn unfused(func: &Func) -> Option<Totals> {
    let mut t = Totals::default();
    naive(func, func.body, &Dim::from(1), &mut t)?;
    Some(t)
}

fn naive(func: &Func, block: RegionId, times: &Dim, t: &mut Totals) -> Option<()> {
    use Opcode::*;
    for id in &func.region(block).ops {
        let op = func.op(*id);
        match op.code {
            Const | DimValue | Weight | Iota | Fill | Reshape | Broadcast | Slice | Transpose | StateOpen
            | StateClose => {}
            Loop => {
                let times = times.mul(op.dim("extent")?)?;
                op.regions.iter().try_for_each(|r| naive(func, *r, &times, t))?;
            }
            Cases => {
                let select = op.ints("select").unwrap_or_default();
                for (k, r) in op.regions.iter().enumerate() {
                    let n = select.iter().filter(|s| **s == k as i64).count() as i64;
                    let times = times.mul(&Dim::from(n))?.floor_div(&Dim::from((select.len() as i64).max(1)))?;
                    naive(func, *r, &times, t)?;
                }
            }
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
