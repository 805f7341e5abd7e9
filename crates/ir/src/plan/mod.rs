//! The plan level: which ops run together in one kernel, in which order kernels are launched, and what they move.
//!
//! A plan holds a module whose ops stand in launch order, and for every function a [`Phase`]: kernels, the buffers between
//! them, the steps that launch them, and a record of every fusion taken or refused. Sizes and counts are formulas over the
//! symbols of the module and [`CONTEXT`].
//!
//! Invariants, checked by [`verify`]: every op that computes stands in exactly one kernel, except cheap ones that each reader
//! repeats; a kernel's ops stand in one block; what crosses kernels is a buffer that an earlier step writes; launches are in an
//! order that respects data and state versions.

pub mod build;
pub mod cost;
pub mod families;
pub mod lead;
pub mod memory;
mod must;
pub mod role;
pub mod text;
pub mod traffic;
pub mod verify;

use crate::ir::{Module, OpId, RegionId, StateId, ValueId, Weight, WeightId};
use crate::ty::{DType, Dim, Env};
pub use families::{Family, Mechanism, Reason};
use std::collections::BTreeMap;

/// The symbol that stands for the positions a request holds when a phase runs.
pub const CONTEXT: &str = "context";

/// A planned module.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The module; its last weights are the derived ones, and ops of a block stand in launch order.
    pub module: Module,
    /// One function a derived weight, by the weight's name: its value from the weights before it.
    pub load: Module,
    /// Derived weights in the order of their ids.
    pub derived: Vec<DerivedWeight>,
    /// One phase a function, in the order of the functions.
    pub phases: Vec<Phase>,
    /// Whether row statistics and sums may be added up in another order than the graph's.
    pub reassociate: bool,
    /// How often each rewrite rule united two terms.
    pub rules: BTreeMap<String, usize>,
    /// Limits the compiler hit, each in a line; empty for a plan that is what it should be.
    pub limits_hit: Vec<String>,
}

/// A weight that is computed once, when weights are loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedWeight {
    /// Its id in the module.
    pub weight: WeightId,
    /// Names of the weights it is computed from.
    pub of: Vec<String>,
    /// Resident bytes.
    pub bytes: u64,
    /// Why it is kept.
    pub reason: String,
}

/// Where the element of a derived weight for some loop indices stands along the first axis of what its function computes;
/// `None` if the weight has no loops or no such element.
pub fn derived_element(weight: &Weight, index: &[i64]) -> Option<usize> {
    let [(_, extent)] = weight.loops[..] else { return None };
    let at = usize::try_from(*index.first()?).ok().filter(|i| (*i as i64) < extent)?;
    if weight.present.is_empty() {
        return Some(at);
    }
    weight.present.get(at).filter(|p| **p).map(|_| weight.present[..at].iter().filter(|p| **p).count())
}

id!(
    /// A kernel of a phase.
    KernelId
);
id!(
    /// A buffer of a phase.
    BufferId
);

/// The plan of a function.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Phase {
    /// Kernels by id, in the order of their first launch.
    pub kernels: Vec<Kernel>,
    /// Buffers by id.
    pub buffers: Vec<Buffer>,
    /// What is launched, in order.
    pub steps: Vec<Step>,
    /// Fusions taken and refused.
    pub decisions: Vec<Decision>,
}

/// A step of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Launches a kernel.
    Launch(KernelId),
    /// Repeats steps as often as a loop runs.
    Loop {
        /// The loop.
        op: OpId,
        /// Steps of an iteration.
        body: Vec<Step>,
    },
    /// Runs the steps of the case the enclosing loop's index selects.
    Cases {
        /// The op.
        op: OpId,
        /// Steps of each case.
        arms: Vec<Vec<Step>>,
    },
}

/// A kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The family that generates it.
    pub family: Family,
    /// The block its ops stand in.
    pub block: RegionId,
    /// The ops it computes, in their order. Ops every reader repeats stand in several kernels.
    pub ops: Vec<OpId>,
    /// Values whose row statistics it leaves behind for readers to finish.
    pub leaves: Vec<ValueId>,
    /// How it does what a block of threads cannot do alone; sorted.
    pub mechanisms: Vec<Mechanism>,
    /// Thread blocks.
    pub grid: Dim,
    /// What it reads, each thing once.
    pub reads: Vec<Access>,
    /// What it writes, each thing once.
    pub writes: Vec<Access>,
    /// Arithmetic operations; a multiply-add counts two.
    pub flops: Dim,
    /// Kernels of the same block that have to end before it begins.
    pub after: Vec<KernelId>,
}

/// Memory a kernel touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// What.
    pub place: Place,
    /// Bytes.
    pub bytes: Dim,
}

/// What memory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A weight, at the indices of the loops around the kernel or at a constant index.
    Weight(WeightId, Option<i64>),
    /// A buffer.
    Buffer(BufferId),
    /// A state.
    State(StateId),
}

/// A value in memory between kernels, or at the border of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The value it holds.
    pub value: ValueId,
    /// True if it holds partial row statistics of the value instead of the value.
    pub partial: bool,
    /// True if it is an input of the phase.
    pub input: bool,
    /// Element type.
    pub dtype: DType,
    /// Bytes.
    pub bytes: Dim,
}

/// A fusion that was taken or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The op whose result would stay inside the kernel.
    pub producer: OpId,
    /// The op that uses it.
    pub consumer: OpId,
    /// Whether they share a kernel.
    pub accepted: bool,
    /// Why.
    pub reason: Reason,
    /// The reason with its numbers.
    pub detail: String,
}

/// Smallest and largest values of a module's symbols; a symbol without an upper bound counts with its lower one.
pub fn range(module: &Module) -> [Env; 2] {
    let of = |f: &dyn Fn(&crate::ir::Symbol) -> Option<i64>| {
        let mut env: Env = module.symbols.iter().filter_map(|s| Some((s.name.clone(), f(s)?))).collect();
        env.entry(CONTEXT.to_owned()).or_insert(8192);
        env
    };
    [of(&|s| s.bounds.min.map(|m| m.max(1)).or(Some(1))), of(&|s| s.bounds.max.or(s.bounds.min))]
}

impl Phase {
    /// Whether a kernel computes an op that others compute too.
    pub fn repeats(&self, kernel: usize, id: OpId) -> bool {
        self.kernels.iter().enumerate().any(|(k, other)| k != kernel && other.ops.binary_search(&id).is_ok())
    }
}

impl Plan {
    /// The phase and its function by name.
    pub fn phase(&self, name: &str) -> Option<(usize, &Phase)> {
        let i = self.module.funcs.iter().position(|f| f.name == name)?;
        Some((i, self.phases.get(i)?))
    }
}
