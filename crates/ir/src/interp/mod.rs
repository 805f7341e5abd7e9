//! The reference interpreter: the meaning of the language.
//!
//! Every op is evaluated as its registry entry says, element by element, in one fixed order. Nothing is fused, reordered
//! or skipped.
//!
//! * An op computes in f64 if one of its operands, its state or its result is f64, else in f32; a result is rounded once,
//!   to nearest even, to the dtype its type declares. Sums run in ascending order. `linear` and `einsum` accumulate in
//!   `acc` if that is wider.
//! * Integers wrap around; dividing one by zero is defined (see `elementwise`). Indices that come from data are clamped.
//! * NaN propagates through arithmetic, `minimum`, `maximum`, `max` and `min`; it never wins an `argmax` or `topk` and sorts
//!   last.
//! * A row of a batch, and a row of a request, is computed without looking at the others unless the op says so.

mod attention;
mod bind;
mod call;
mod contract;
mod data;
mod dispatch;
mod elementwise;
mod error;
pub mod f8;
mod index;
mod keep;
mod machine;
mod norm;
mod number;
mod observe;
mod quantize;
mod random;
mod recurrent;
mod reduce;
mod sampling;
mod state;

pub use bind::bind_symbols;
pub use error::InterpError;
pub use norm::rope_frequencies;
pub use number::{cast, round_to};
pub use observe::{NoObserver, Observer};
pub use random::{coin, philox4x32_10};
pub use sampling::sampling_law_row;
pub use state::RequestState;

use crate::ir::{Func, Module, WeightId};
use crate::tensor::Tensor;
use call::Slot;
use machine::Machine;
use std::ops::Range;

/// Gives weights to a run.
pub trait WeightStore {
    /// The weight, or its element at the indices of the loops it is declared in, in the dtype and extents of
    /// [`crate::ir::Weight::ty`].
    ///
    /// # Errors
    /// A message that says why there is none.
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String>;

    /// Entries `rows` of the first axis of what [`WeightStore::weight`] gives, bit for bit. A store that need not look at the
    /// other entries should not.
    ///
    /// # Errors
    /// As [`WeightStore::weight`], or there are no such entries.
    fn rows(&self, id: WeightId, index: &[i64], rows: Range<usize>) -> Result<Tensor, String> {
        let whole = self.weight(id, index)?;
        let shape = whole.shape.clone();
        whole.rows(rows.clone()).ok_or_else(|| format!("extents {shape:?} have no entries {rows:?}"))
    }
}

/// What an advancing op leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The state after the last real row.
    Immediate,
    /// The state before the run, and pending the states after every real row; [`RequestState::commit`] chooses one.
    Tentative,
}

/// Evaluates a function of a verified module.
///
/// Run-time symbols take their values from the extents of `inputs` ([`bind_symbols`]). `states` are the requests of the
/// call: axis 0 of every batch tensor that meets a state is the request, and request n reads and advances `states[n]`.
/// A function without states takes any number of them. Outputs come in the order of `func.outputs`.
///
/// # Errors
/// Inputs that do not fit, a weight that cannot be had, an extent or index no type could rule out, IR that breaks its own
/// rules. `states` are as before then.
pub fn run(
    module: &Module,
    func: &Func,
    inputs: &[Tensor],
    weights: &dyn WeightStore,
    states: &mut [RequestState],
    mode: Mode,
    observer: &mut dyn Observer,
) -> Result<Vec<Tensor>, InterpError> {
    let env = bind_symbols(func, &module.symbols, inputs)?;
    for state in states.iter() {
        state.check(module)?;
    }
    let mut machine = Machine {
        module,
        func,
        weights,
        states,
        mode,
        observer,
        env,
        slots: vec![None; func.values.len()],
        loops: Vec::new(),
        opened: Default::default(),
        closed: Vec::new(),
    };
    let in_func = |m: String| InterpError::named(&func.name, m);
    let body = func.region(func.body);
    for (id, input) in body.params.iter().zip(inputs) {
        let input = number::tensor(input.dtype, input.shape.clone(), input.data.clone()).map_err(in_func)?;
        machine.set(*id, Slot::from(input)).map_err(in_func)?;
    }
    for op in &body.ops {
        machine.op(*op)?;
    }
    let outputs = machine.outputs().map_err(in_func)?;
    let closed = machine.closed;
    states.iter_mut().for_each(RequestState::forget);
    for last in closed {
        for (state, element) in states.iter_mut().zip(last.requests) {
            state.set_element(last.id, last.element, element);
        }
    }
    Ok(outputs)
}
