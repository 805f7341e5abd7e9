//! What no plan of these ops can avoid to move: every element of a weight that is read, and the inputs and outputs of a phase.

use super::role::{Role, Roles};
use super::traffic::{constant, stored_base, tensor_bytes};
use super::{Kernel, Phase, Place, Plan, range};
use crate::ir::{Around, Func, Nest, OpId, ValueDef, ValueId, WeightId};
use crate::ops::Opcode;
use crate::ty::Dim;
use std::collections::{BTreeMap, BTreeSet};

/// The indices a weight is read at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Indices {
    /// For every loop of the weight which of `sets` it goes through.
    axes: Vec<usize>,
    /// The iterations of each loop around the kernel, and constants.
    sets: Vec<BTreeSet<i64>>,
}

impl Indices {
    fn count(&self) -> i64 {
        self.sets.iter().fold(1i64, |n, s| n.saturating_mul(i64::try_from(s.len()).unwrap_or(i64::MAX)))
    }

    fn elements(&self) -> Vec<Vec<i64>> {
        let mut all = vec![Vec::new()];
        for set in &self.sets {
            all = all.iter().flat_map(|at: &Vec<i64>| set.iter().map(|i| [&at[..], &[*i]].concat())).collect();
        }
        all.iter().map(|at| self.axes.iter().map(|a| at[*a]).collect()).collect()
    }
}

/// The weights a phase reads: at which indices so many bytes of an element are read.
pub(super) struct Weights<'a> {
    plan: &'a Plan,
    func: &'a Func,
    computed: BTreeSet<OpId>,
    read: BTreeMap<WeightId, BTreeSet<(Indices, Dim)>>,
}

impl<'a> Weights<'a> {
    pub fn of(plan: &'a Plan, func: &'a Func, phase: &Phase) -> Weights<'a> {
        let computed = phase.kernels.iter().flat_map(|k| &k.ops).copied().collect();
        Weights { plan, func, computed, read: BTreeMap::new() }
    }

    /// Adds what a kernel reads.
    pub fn add(&mut self, kernel: &Kernel, nest: &Nest) {
        let weights = kernel.reads.iter().filter_map(|a| match a.place {
            Place::Weight(w, at) => Some((w, at, &a.bytes)),
            _ => None,
        });
        let weights: Vec<_> = weights.collect();
        if weights.is_empty() {
            return;
        }
        let around = nest.around(kernel.block);
        let sources = self.sources(kernel);
        for (w, at, bytes) in weights {
            for id in &sources {
                let op = self.func.op(*id);
                let first = op.operands.first().and_then(|v| constant(self.func, *v));
                if op.int("weight") == Some(i64::from(w.0)) && first == at {
                    let indices = self.indices(&op.operands, &around);
                    self.read.entry(w).or_default().insert((indices, bytes.clone()));
                }
            }
        }
    }

    /// Ops that name the weights a kernel reads.
    fn sources(&self, kernel: &Kernel) -> BTreeSet<OpId> {
        let mut seen: BTreeSet<OpId> = BTreeSet::new();
        let mut stack: Vec<ValueId> =
            kernel.ops.iter().flat_map(|id| super::role::inner_operands(self.func, *id)).collect();
        while let Some(v) = stack.pop() {
            let ValueDef::Result(id, _) = self.func.value(v).def else { continue };
            let op = self.func.op(id);
            if !self.computed.contains(&id) && op.regions.is_empty() && seen.insert(id) {
                stack.extend(&op.operands);
            }
        }
        seen.retain(|id| self.func.op(*id).code == Opcode::Weight);
        seen
    }

    fn indices(&self, operands: &[ValueId], around: &[Around]) -> Indices {
        let mut out = Indices { axes: Vec::new(), sets: Vec::new() };
        let mut known: BTreeMap<ValueId, usize> = BTreeMap::new();
        for v in operands {
            let axis = *known.entry(*v).or_insert_with(|| {
                out.sets.push(self.iterations(*v, around));
                out.sets.len() - 1
            });
            out.axes.push(axis);
        }
        out
    }

    /// What the index of a weight takes on.
    fn iterations(&self, v: ValueId, around: &[Around]) -> BTreeSet<i64> {
        if let ValueDef::Param(body, 0) = self.func.value(v).def
            && let Some(a) = around.iter().find(|a| self.func.op(a.op).regions.contains(&body))
        {
            let extent = self.func.op(a.op).dim("extent").and_then(Dim::as_const).unwrap_or(1);
            return a.taken.clone().unwrap_or_else(|| (0..extent).collect());
        }
        BTreeSet::from([constant(self.func, v).unwrap_or(0)])
    }

    /// Bytes of the elements that are read, each once, whoever reads it how often; `None` if the count overflows.
    pub fn bytes(&self) -> Option<Dim> {
        let mut total = Dim::from(0);
        for (w, read) in &self.read {
            let whole = tensor_bytes(&self.plan.module.weight(*w).ty)?;
            for (parts, n) in by_parts(read) {
                let bytes = match parts.len() {
                    _ if parts.contains(&whole) => whole.clone(),
                    1 => parts.first()?.clone(),
                    _ => parts.iter().try_fold(Dim::from(0), |n, b| n.add(b))?.minimum(&whole),
                };
                total = total.add(&bytes.mul(&Dim::from(n))?)?;
            }
        }
        Some(total)
    }
}

/// How many elements are read in the same parts.
fn by_parts(read: &BTreeSet<(Indices, Dim)>) -> BTreeMap<BTreeSet<Dim>, i64> {
    let places: BTreeSet<&Indices> = read.iter().map(|(i, _)| i).collect();
    if let [indices] = places.iter().collect::<Vec<_>>()[..] {
        return BTreeMap::from([(read.iter().map(|(_, b)| b.clone()).collect(), indices.count())]);
    }
    let mut elements: BTreeMap<Vec<i64>, BTreeSet<Dim>> = BTreeMap::new();
    for (indices, bytes) in read {
        for at in indices.elements() {
            elements.entry(at).or_default().insert(bytes.clone());
        }
    }
    let mut out: BTreeMap<BTreeSet<Dim>, i64> = BTreeMap::new();
    for parts in elements.into_values() {
        *out.entry(parts).or_default() += 1;
    }
    out
}

/// Bytes of inputs and outputs that are touched at least: of an input no more than kernels read of it, of an output no more
/// than they write. `touched` gives the bytes moved of every buffer, read and written.
pub(super) fn border(plan: &Plan, func: &Func, phase: &Phase, touched: &[[Dim; 2]]) -> Option<Dim> {
    let [_, largest] = range(&plan.module);
    let roles = Roles::of(func, &largest, plan.reassociate);
    let control = |id: &OpId| roles.role[id.index()] == Role::Control;
    let moved = |v: ValueId, written: usize| {
        let of = phase.buffers.iter().zip(touched).filter(|(b, _)| b.value == v && !b.partial);
        of.map(|(_, t)| &t[written]).try_fold(Dim::from(0), |n, b| n.add(b))
    };
    // What loops and cases take in is read under another name.
    let handed: BTreeSet<ValueId> = (0..func.ops.len() as u32)
        .map(OpId)
        .filter(control)
        .flat_map(|id| func.op(id).operands.iter().copied())
        .filter_map(|v| stored_base(func, &roles, v))
        .collect();
    let body = func.region(func.body);
    let mut total = Dim::from(0);
    for v in &body.params {
        let Some(ty) = func.tensor(*v) else { continue };
        let whole = tensor_bytes(ty)?;
        let bytes = if handed.contains(v) { whole } else { whole.minimum(&moved(*v, 0)?) };
        total = total.add(&bytes)?;
    }
    let mut outputs: BTreeMap<ValueId, Dim> = BTreeMap::new();
    for v in body.yields.iter().collect::<BTreeSet<_>>() {
        let Some(ty) = func.tensor(*v) else { continue };
        // What is made of constants alone has no place that is written.
        let Some(base) = stored_base(func, &roles, *v) else { continue };
        let sum = outputs.entry(base).or_insert_with(|| Dim::from(0));
        *sum = sum.add(&tensor_bytes(ty)?)?;
    }
    for (v, bytes) in outputs {
        let named = matches!(func.value(v).def, ValueDef::Result(id, _) if control(&id));
        total = total.add(&if named { bytes } else { bytes.minimum(&moved(v, 1)?) })?;
    }
    Some(total)
}
