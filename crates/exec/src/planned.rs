//! A runtime that runs plans of the modules it is given.

use crate::runtime::{Bytes, Mode, ProgramId, RequestId, RunError, Runtime};
use spinec_ir::interp::Observer;
use spinec_ir::ir::Module;
use spinec_ir::plan::Plan;
use spinec_ir::tensor::Tensor;
use std::collections::BTreeMap;

/// Makes a plan of a module.
pub type Planner<'p> = dyn Fn(Module) -> Result<Plan, String> + 'p;

/// Another runtime, with every module planned before it is taken in.
pub struct Planned<'p> {
    inner: Box<dyn Runtime + 'p>,
    planner: Box<Planner<'p>>,
}

impl<'p> Planned<'p> {
    /// Runs plans on `inner`.
    pub fn new(inner: Box<dyn Runtime + 'p>, planner: Box<Planner<'p>>) -> Planned<'p> {
        Planned { inner, planner }
    }
}

impl Runtime for Planned<'_> {
    fn add(&mut self, module: Module) -> Result<ProgramId, RunError> {
        let plan = (self.planner)(module).map_err(RunError::Compiler)?;
        self.inner.add_plan(plan)
    }

    fn add_plan(&mut self, plan: Plan) -> Result<ProgramId, RunError> {
        self.inner.add_plan(plan)
    }

    fn run(
        &mut self,
        program: ProgramId,
        func: usize,
        inputs: &[&Tensor],
        requests: &[RequestId],
        mode: Mode,
        observer: Option<&mut dyn Observer>,
    ) -> Result<Vec<Tensor>, RunError> {
        self.inner.run(program, func, inputs, requests, mode, observer)
    }

    fn open(&mut self, positions: usize) -> Result<RequestId, RunError> {
        self.inner.open(positions)
    }

    fn close(&mut self, request: RequestId) {
        self.inner.close(request);
    }

    fn commit(&mut self, request: RequestId, rows: usize) -> Result<(), RunError> {
        self.inner.commit(request, rows)
    }

    fn len(&self, request: RequestId) -> usize {
        self.inner.len(request)
    }

    fn poison_stale(&mut self, request: RequestId) {
        self.inner.poison_stale(request);
    }

    fn export(&self, request: RequestId) -> Result<BTreeMap<String, Tensor>, RunError> {
        self.inner.export(request)
    }

    fn bytes(&self) -> Bytes {
        self.inner.bytes()
    }

    fn warms_up(&self) -> bool {
        self.inner.warms_up()
    }
}
