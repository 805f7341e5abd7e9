//! What the engine needs of a backend: programs, requests with state, runs.

use spinec_ir::interp::Observer;
use spinec_ir::ir::{Module, StateDecl, Weight};
use spinec_ir::plan::Plan;
use spinec_ir::tensor::Tensor;
use std::collections::BTreeMap;

pub use spinec_ir::interp::Mode;

/// A module a runtime has taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(pub usize);

/// A request a runtime holds state for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub usize);

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Inputs do not fit the function, or an op met values it cannot work on.
    #[error("{0}")]
    Failed(String),
    /// The compiler made something that is not a plan: a bug.
    #[error("{0}")]
    Compiler(String),
    /// There is no room for another request or position.
    #[error("{0}")]
    Full(String),
}

/// Bytes by owner, as reported in `peak_bytes`.
pub type Bytes = BTreeMap<&'static str, u64>;

/// A backend. All modules of one runtime share the weights and states it was made with: their tables are equal.
pub trait Runtime {
    /// Takes in a module.
    fn add(&mut self, module: Module) -> Result<ProgramId, RunError>;

    /// Takes in a plan: its module, run in the order and with the kernels of the plan. Its derived weights are computed
    /// from the runtime's weights when they are first needed.
    fn add_plan(&mut self, plan: Plan) -> Result<ProgramId, RunError>;

    /// Runs a function. Axis 0 of batch tensors counts `requests`. Inputs are in the order of the function's inputs.
    ///
    /// [`Mode::Immediate`] leaves states after the last real row; [`Mode::Tentative`] keeps what [`Runtime::commit`] needs
    /// to choose any prefix of the rows. Neither changes the number of committed positions.
    fn run(
        &mut self,
        program: ProgramId,
        func: usize,
        inputs: &[&Tensor],
        requests: &[RequestId],
        mode: Mode,
        observer: Option<&mut dyn Observer>,
    ) -> Result<Vec<Tensor>, RunError>;

    /// A request with empty state that may grow to `positions` positions.
    fn open(&mut self, positions: usize) -> Result<RequestId, RunError>;

    /// Gives back everything a request holds.
    fn close(&mut self, request: RequestId);

    /// Keeps the first `rows` rows of the last run: recurrent states and windows that it advanced move there, and the number of
    /// committed positions grows by `rows`. A run forgets rows of earlier tentative ones that were not committed, of states
    /// it does not use too. After an immediate run `rows` must be all its real rows.
    fn commit(&mut self, request: RequestId, rows: usize) -> Result<(), RunError>;

    /// Committed positions.
    fn len(&self, request: RequestId) -> usize;

    /// Overwrites key/value rows of positions that are not committed with NaN.
    fn poison_stale(&mut self, request: RequestId);

    /// All state of a request by name: `{state}.{element}.k` and `.v` [positions, heads, width] for pools,
    /// `{state}.{element}` for recurrent states and windows.
    fn export(&self, request: RequestId) -> Result<BTreeMap<String, Tensor>, RunError>;

    /// Bytes held, by owner.
    fn bytes(&self) -> Bytes;

    /// True if the first run of a function costs much more than later ones, so that it is worth running it once on a
    /// request of its own before requests are served. No result depends on whether that was done.
    fn warms_up(&self) -> bool {
        false
    }
}

/// The tables all modules of a runtime share.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Weights by id.
    pub weights: Vec<Weight>,
    /// States by id.
    pub states: Vec<StateDecl>,
}
