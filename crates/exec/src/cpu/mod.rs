//! The CPU backend.
//!
//! A function is turned into a *tape* for the shapes of its inputs: loops unrolled, cases resolved, views free, values
//! that depend on weights alone computed once for the runtime, elementwise chains merged, buffers put into slots of one
//! arena. A run walks the tape.
//!
//! Invariants: no instruction's arithmetic on a row depends on how many rows, requests or threads share the call, and
//! merging keeps every operation of every element. So the bits of a row are the same in any chunk, block and batch.
//! After an error the recurrent states and windows of the call's requests are unspecified.

mod consts;
mod elements;
mod emit;
mod forms;
mod fuse;
mod instr;
mod map;
mod number;
mod plan;
mod run;
mod states;
mod stream;
mod view;
mod walk;

pub use states::Capacity;
pub use stream::{DIRECT_BYTES, OnProgress, Progress, Streaming, TRANSIENT_BYTES};

use crate::runtime::{Bytes, Mode, ProgramId, RequestId, RunError, Runtime, Tables};
use consts::Shared;
use elements::{Arena, Kind};
use instr::Tape;
use run::Machine;
use spinec_ir::interp::{Observer, WeightStore};
use spinec_ir::ir::{Module, verify};
use spinec_ir::plan::Plan;
use spinec_ir::tensor::{Data, Tensor};
use states::{Element, PAGE, Paged, Shape, States};
use std::collections::BTreeMap;
use walk::Source;

/// Tapes kept for one function: one a combination of input shapes that comes up again and again.
const MAX_TAPES: usize = 64;

/// Runs modules with the kernels of this crate.
pub struct CpuRuntime {
    tables: Tables,
    shared: Shared,
    arena: Arena,
    states: States,
    programs: Vec<Program>,
}

struct Program {
    source: Source,
    /// Tapes by function, the last used first.
    tapes: Vec<Vec<Tape>>,
}

impl CpuRuntime {
    /// A runtime whose modules share `tables`, with `threads` threads in all. Weights are taken from `store` when they are
    /// first needed. Pools grow to `capacity` as positions are written.
    ///
    /// # Errors
    /// The extents of a state have no value.
    pub fn new(
        tables: &Tables,
        store: Box<dyn WeightStore + Send + Sync>,
        threads: usize,
        capacity: Capacity,
    ) -> Result<CpuRuntime, RunError> {
        Ok(CpuRuntime {
            tables: tables.clone(),
            shared: Shared::new(&tables.weights, store, threads),
            arena: Arena::default(),
            states: States::new(&tables.states, capacity)?,
            programs: Vec::new(),
        })
    }

    /// How constants are made from now on.
    pub fn set_streaming(&mut self, streaming: Streaming) {
        self.shared.streaming = streaming;
    }

    /// Whom to tell about constants that are streamed. No result depends on it.
    pub fn on_progress(&mut self, tell: OnProgress) {
        self.shared.progress = Some(tell);
    }

    /// Builds the tape of a function for inputs of the shapes of these, weights included, so that the first run does not
    /// have to.
    ///
    /// # Errors
    /// As [`Runtime::run`].
    pub fn prepare(
        &mut self,
        program: ProgramId,
        func: usize,
        inputs: &[&Tensor],
        requests: usize,
    ) -> Result<(), RunError> {
        self.tape(program, func, inputs, requests)
    }

    /// Moves the tape for these inputs to the front, building it if there is none.
    fn tape(&mut self, program: ProgramId, func: usize, inputs: &[&Tensor], requests: usize) -> Result<(), RunError> {
        let p = self.programs.get_mut(program.0).ok_or_else(|| failed("there is no such program"))?;
        let tapes = p.tapes.get_mut(func).ok_or_else(|| failed("there is no such function"))?;
        match tapes.iter().position(|t| t.fits(inputs, requests)) {
            Some(0) => {}
            Some(i) => tapes[..=i].rotate_right(1),
            None => {
                let tape = walk::build(&mut self.shared, &p.source, func, inputs, requests, None).map_err(failed)?;
                tapes.insert(0, tape);
                tapes.truncate(MAX_TAPES);
            }
        }
        Ok(())
    }
}

impl CpuRuntime {
    fn take(&mut self, source: Source) -> Result<ProgramId, RunError> {
        for module in [&source.module, &source.load] {
            let errors = verify::verify(module);
            if let Some(first) = errors.first() {
                return Err(failed(format!("the module breaks {} rules of the IR: {first}", errors.len())));
            }
        }
        if source.module.states != self.tables.states {
            return Err(failed("the module was made for other states"));
        }
        let tapes = source.module.funcs.iter().map(|_| Vec::new()).collect();
        self.programs.push(Program { source, tapes });
        Ok(ProgramId(self.programs.len() - 1))
    }
}

fn failed(m: impl Into<String>) -> RunError {
    RunError::Failed(m.into())
}

impl Runtime for CpuRuntime {
    fn add(&mut self, module: Module) -> Result<ProgramId, RunError> {
        if module.weights.len() != self.tables.weights.len() {
            return Err(failed("the module was made for other weights"));
        }
        let load = Module { weights: Vec::new(), states: Vec::new(), funcs: Vec::new(), ..module.clone() };
        self.take(Source { module, load, kernels: Vec::new() })
    }

    fn add_plan(&mut self, plan: Plan) -> Result<ProgramId, RunError> {
        let own = self.tables.weights.len();
        if plan.module.weights.len() != own + plan.load.funcs.len() || plan.derived.len() != plan.load.funcs.len() {
            return Err(failed("the plan was made for other weights"));
        }
        let mut kernels = Vec::new();
        for (func, phase) in plan.module.funcs.iter().zip(&plan.phases) {
            let mut of = vec![None; func.ops.len()];
            for (k, kernel) in phase.kernels.iter().enumerate() {
                for id in &kernel.ops {
                    let slot: &mut Option<u32> = of.get_mut(id.index()).ok_or_else(|| failed("a plan of other ops"))?;
                    // What several kernels repeat is computed once here.
                    *slot = if slot.is_none() && !phase.repeats(k, *id) { Some(k as u32) } else { None };
                }
            }
            kernels.push(of);
        }
        self.take(Source { module: plan.module, load: plan.load, kernels })
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
        let numbers: Vec<usize> = requests.iter().map(|r| r.0).collect();
        for (i, r) in numbers.iter().enumerate() {
            self.states.request(*r)?;
            if numbers[..i].contains(r) {
                return Err(failed("a request stands twice in a call"));
            }
        }
        let observed;
        let tape = match &observer {
            Some(o) => {
                let p = self.programs.get(program.0).ok_or_else(|| failed("there is no such program"))?;
                let n = numbers.len();
                observed = walk::build(&mut self.shared, &p.source, func, inputs, n, Some(&**o)).map_err(failed)?;
                &observed
            }
            None => {
                self.tape(program, func, inputs, numbers.len())?;
                &self.programs[program.0].tapes[func][0]
            }
        };
        numbers.iter().for_each(|r| self.states.forget(*r));
        let mut machine = Machine {
            arena: &mut self.arena,
            pool: &self.shared.pool,
            states: &mut self.states,
            requests: &numbers,
            mode,
            watch: match observer {
                Some(o) => Some(o),
                None => None,
            },
        };
        machine.run(tape, inputs)
    }

    /// Weights are packed and tapes built when a function first runs.
    fn warms_up(&self) -> bool {
        true
    }

    fn open(&mut self, positions: usize) -> Result<RequestId, RunError> {
        self.states.open(positions).map(RequestId)
    }

    fn close(&mut self, request: RequestId) {
        self.states.close(request.0);
    }

    fn commit(&mut self, request: RequestId, rows: usize) -> Result<(), RunError> {
        self.states.commit(&self.shared.pool, request.0, rows)
    }

    fn len(&self, request: RequestId) -> usize {
        self.states.request(request.0).map_or(0, |r| r.len)
    }

    fn poison_stale(&mut self, request: RequestId) {
        self.states.poison_stale(request.0);
    }

    fn export(&self, request: RequestId) -> Result<BTreeMap<String, Tensor>, RunError> {
        let request = self.states.request(request.0)?;
        let mut out = BTreeMap::new();
        for (i, decl) in self.states.decls.iter().enumerate() {
            for e in 0..decl.elements {
                let name = format!("{}.{e}", decl.name);
                let mut put = |name: String, shape: Vec<usize>, values: Vec<f64>| {
                    let data = match Kind::of(decl.dtype) {
                        Kind::F64 => Data::F64(values),
                        _ => Data::F32(values.into_iter().map(|x| x as f32).collect()),
                    };
                    let t = Tensor::new(decl.dtype, shape, data);
                    out.insert(name, t.ok_or_else(|| failed("a state does not fill its shape"))?);
                    Ok::<(), RunError>(())
                };
                let element = &request.elements[i][e];
                match &decl.shape {
                    Shape::Pool { heads, width } => {
                        let [k, v] = exported_rows(&self.states.pools[i][e], &request.pages, request.len, decl.size());
                        put(format!("{name}.k"), vec![request.len, *heads, *width], k)?;
                        put(format!("{name}.v"), vec![request.len, *heads, *width], v)?;
                    }
                    Shape::Recurrent(shape) => {
                        let last = shape.last().copied().unwrap_or(1);
                        let outer = shape.first().copied().unwrap_or(1);
                        put(name, shape.clone(), turned(&content(element), outer, last))?;
                    }
                    Shape::Window { channels, kept } => {
                        put(name, vec![*channels, *kept], turned(&content(element), 1, *kept))?;
                    }
                }
            }
        }
        Ok(out)
    }

    fn bytes(&self) -> Bytes {
        let [weights, derived, head_fp8] = self.shared.bytes();
        let mut out = Bytes::from([
            ("weights", weights),
            ("derived", derived),
            ("head_fp8", head_fp8),
            ("target_kv", 0),
            ("draft_kv", 0),
            ("recurrent", 0),
            ("replay", 0),
            ("conv", 0),
            ("arena", self.arena.bytes()),
        ]);
        let mut add = |owner: &'static str, n: usize| *out.entry(owner).or_default() += n as u64;
        let first_pool = self.states.decls.iter().position(|d| matches!(d.shape, Shape::Pool { .. }));
        for (i, (decl, pools)) in self.states.decls.iter().zip(&self.states.pools).enumerate() {
            let owner = match decl.shape {
                Shape::Pool { .. } if Some(i) == first_pool => "target_kv",
                Shape::Pool { .. } => "draft_kv",
                Shape::Recurrent(_) => "recurrent",
                Shape::Window { .. } => "conv",
            };
            pools.iter().for_each(|p| add(owner, p.bytes()));
            for element in self.states.requests.iter().flatten().flat_map(|r| &r.elements[i]) {
                let [state, waiting] = element.bytes();
                add(owner, state);
                add(if owner == "recurrent" { "replay" } else { owner }, waiting);
            }
        }
        out
    }
}

/// A recurrent state or window as numbers, in the order it is held in.
fn content(e: &Element) -> Vec<f64> {
    match e {
        Element::Pool => Vec::new(),
        Element::F32(f) => f.value.iter().map(|x| f64::from(*x)).collect(),
        Element::F64(f) => f.value.clone(),
    }
}

/// Each of `outer` matrices [rows, columns] as [columns, rows].
fn turned(x: &[f64], outer: usize, rows: usize) -> Vec<f64> {
    let columns = (x.len() / outer.max(1)).checked_div(rows).unwrap_or(0);
    let mut out = Vec::with_capacity(x.len());
    for m in x.chunks_exact((rows * columns).max(1)) {
        for c in 0..columns {
            out.extend((0..rows).map(|r| m[r * columns + c]));
        }
    }
    out
}

/// Keys and values of the first `len` positions.
fn exported_rows(paged: &Paged, pages: &[u32], len: usize, row: usize) -> [Vec<f64>; 2] {
    fn pick<T: Copy>(x: &[T], pages: &[u32], len: usize, row: usize, wide: fn(T) -> f64) -> Vec<f64> {
        let mut out = Vec::with_capacity(len * row);
        for p in 0..len {
            let page = pages.get(p / PAGE).copied().unwrap_or(0) as usize;
            out.extend(x[(page * PAGE + p % PAGE) * row..][..row].iter().map(|x| wide(*x)));
        }
        out
    }
    match paged {
        Paged::F32(p) => [pick(&p.k, pages, len, row, f64::from), pick(&p.v, pages, len, row, f64::from)],
        Paged::F64(p) => [pick(&p.k, pages, len, row, |x| x), pick(&p.v, pages, len, row, |x| x)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spinec_ir::ir::{WeightId, text};
    use spinec_ir::spec::device::Device;
    use spinec_passes::{fuse, pass};

    struct None;

    impl WeightStore for None {
        fn weight(&self, _: WeightId, _: &[i64]) -> Result<Tensor, String> {
            Err("there is no weight".into())
        }
    }

    const MODULE: &str = "spinec-ir 1
module \"m\" numerics=f32

func \"f\"
  input \"x\" = %0 : f32[4, 32768]
  %1 = exp(%0) : f32[4, 32768]
  %2 = add(%1, %0) : f32[4, 32768]
  return \"y\" = %2
";

    /// Instructions of the function, planned with a kernel an op or fused.
    fn instructions(fused: bool) -> usize {
        let record = include_str!("../../../../devices/h200.yaml");
        let device = Device::from_yaml("h200.yaml", record).unwrap_or_else(|_| panic!("the record is sound"));
        let options = pass::Options::new(device);
        let module = text::parse(MODULE).unwrap_or_else(|e| panic!("{:?}", e.first()));
        let program = pass::run(module, &options, &mut |_, _| ()).unwrap_or_else(|e| panic!("{e}"));
        let how = fuse::Options { fuse: fused, ..fuse::Options::of(&options) };
        let plan = fuse::plan(program, &how).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(plan.phases[0].kernels.len(), if fused { 1 } else { 2 });
        let tables = Tables { weights: Vec::new(), states: Vec::new() };
        let mut runtime =
            CpuRuntime::new(&tables, Box::new(None), 1, Capacity::of(1, 1)).unwrap_or_else(|e| panic!("{e}"));
        let id = runtime.add_plan(plan).unwrap_or_else(|e| panic!("{e}"));
        let x = Tensor::new(spinec_ir::ty::DType::F32, vec![4, 32768], Data::F32(vec![0.5; 131_072]))
            .expect("as many elements as it says");
        runtime.prepare(id, 0, &[&x], 0).unwrap_or_else(|e| panic!("{e}"));
        runtime.programs[id.0].tapes[0][0].instrs.len()
    }

    #[test]
    fn only_what_a_launch_holds_becomes_one_instruction() {
        assert_eq!(instructions(true), 1);
        assert_eq!(instructions(false), 2);
    }
}
