//! A runtime that notes what is opened and closed, and refuses more than it is told to hold.

use spinec_exec::runtime::{Bytes, Mode, ProgramId, RequestId, RunError, Runtime};
use spinec_ir::interp::Observer;
use spinec_ir::ir::Module;
use spinec_ir::plan::Plan;
use spinec_ir::tensor::Tensor;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(Default)]
pub struct Log {
    pub open: BTreeSet<RequestId>,
    pub opened: usize,
    pub closed: usize,
    pub most: usize,
    pub refused: usize,
    /// Requests of the widest call.
    pub widest: usize,
    /// Positions asked for at each opening.
    pub positions: Vec<usize>,
}

pub struct Counting {
    pub inner: Box<dyn Runtime>,
    pub room: usize,
    pub log: Rc<RefCell<Log>>,
}

impl Counting {
    pub fn over(inner: Box<dyn Runtime>, room: usize) -> (Box<dyn Runtime>, Rc<RefCell<Log>>) {
        let log = Rc::new(RefCell::new(Log::default()));
        (Box::new(Counting { inner, room, log: log.clone() }), log)
    }
}

impl Runtime for Counting {
    fn add(&mut self, module: Module) -> Result<ProgramId, RunError> {
        self.inner.add(module)
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
        let mut log = self.log.borrow_mut();
        log.widest = log.widest.max(requests.len());
        assert!(requests.iter().all(|r| log.open.contains(r)), "a run of a request that is not open");
        self.inner.run(program, func, inputs, requests, mode, observer)
    }

    fn open(&mut self, positions: usize) -> Result<RequestId, RunError> {
        let mut log = self.log.borrow_mut();
        if log.open.len() >= self.room {
            log.refused += 1;
            return Err(RunError::Full(format!("all {} places are taken", self.room)));
        }
        let id = self.inner.open(positions)?;
        assert!(log.open.insert(id), "a request is open already");
        log.opened += 1;
        log.positions.push(positions);
        log.most = log.most.max(log.open.len());
        Ok(id)
    }

    fn close(&mut self, request: RequestId) {
        let mut log = self.log.borrow_mut();
        assert!(log.open.remove(&request), "a request is closed twice");
        log.closed += 1;
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
}
