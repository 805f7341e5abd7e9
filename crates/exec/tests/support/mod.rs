//! Loading systems, checkpoints and golden tensors for tests.
#![allow(dead_code)]

use spinec_exec::checkpoint::Checkpoint;
use spinec_exec::cpu::{Capacity, CpuRuntime};
use spinec_exec::eval::from_file;
use spinec_exec::host::FsHost;
use spinec_exec::interp_runtime::InterpRuntime;
use spinec_exec::planned::Planned;
use spinec_exec::runtime::{Runtime, Tables};
use spinec_exec::tensorfile::read_tensors;
use spinec_exec::weights::{CheckpointWeights, DtypeRule};
use spinec_ir::diag::render;
use spinec_ir::spec::device::Device;
use spinec_ir::spec::system::{Overrides, System};
use spinec_ir::spec::{Loaded, load};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Numerics;
use spinec_passes::compile::compile;
use spinec_passes::pass::Options;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository root exists")
}

/// Tensors of a file below the root.
pub fn tensors(path: &str) -> BTreeMap<String, Tensor> {
    let file = read_tensors(&root().join(path)).expect("the file is valid");
    file.into_iter().map(|(n, t)| (n.clone(), from_file(&n, t).expect("the tensor converts"))).collect()
}

/// A system with its checkpoints.
pub fn system(spec: &str, numerics: Numerics, checkpoints: &[(&str, String)]) -> System {
    let over = Overrides {
        numerics: Some(numerics),
        no_limits: true,
        checkpoints: checkpoints.iter().map(|(n, d)| (n.to_string(), root().join(d).display().to_string())).collect(),
        ..Overrides::default()
    };
    load_system(&root().join(spec), &over)
}

pub fn load_system(path: &Path, over: &Overrides) -> System {
    match load(&path.display().to_string(), &FsHost, over) {
        Loaded::System(l) => {
            assert!(!l.diags.has_errors(), "{}", render(&l.diags.into_sorted(), &l.sources, false, 120));
            l.system.expect("a system without errors is there")
        }
        Loaded::Graph { sources, diags } => panic!("{}", render(&diags.into_sorted(), &sources, false, 120)),
    }
}

/// The checked weights of a system.
pub fn store(system: &System) -> CheckpointWeights {
    let checkpoints: BTreeMap<String, Checkpoint> = system
        .checkpoints
        .iter()
        .map(|c| (c.name.clone(), Checkpoint::open(&c.dir).expect("the checkpoint opens")))
        .collect();
    let (store, diags) = CheckpointWeights::bind(&system.weights, checkpoints, &system.checkpoints, DtypeRule::Convert);
    let messages: Vec<String> = diags.iter().map(|d| d.message.clone()).collect();
    store.unwrap_or_else(|| panic!("{}", messages.join("\n")))
}

pub fn tables(system: &System) -> Tables {
    Tables { weights: system.weights.clone(), states: system.states.clone() }
}

pub fn interp(system: &System) -> InterpRuntime {
    InterpRuntime::new(&tables(system), system.numerics, Box::new(store(system)))
}

pub fn boxed_interp(system: &System) -> Box<dyn Runtime> {
    Box::new(interp(system))
}

/// max |a - b| / max |b|; NaN anywhere is infinite.
pub fn rel(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape, b.shape, "shapes differ");
    let (a, b) = (a.to_f64(), b.to_f64());
    if a.iter().chain(&b).any(|x| x.is_nan()) {
        return f64::INFINITY;
    }
    let diff = a.iter().zip(&b).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    let scale = b.iter().map(|x| x.abs()).fold(0.0, f64::max);
    if diff == 0.0 { 0.0 } else { diff / scale }
}

pub mod cells;
pub mod coins;
pub mod counting;
pub mod demo;
pub mod driver;
pub mod pairs;
pub mod runs;

/// Backends a suite can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Plans of the phases on the CPU backend.
    Plan,
    /// The phases as they are written on the CPU backend.
    Cpu,
    Interp,
}

thread_local! {
    static BACKEND: Cell<Backend> = const { Cell::new(Backend::Plan) };
}

/// Runs a test on every backend.
pub fn on_each(test: impl Fn()) {
    for backend in [Backend::Plan, Backend::Cpu, Backend::Interp] {
        BACKEND.set(backend);
        eprintln!("on {backend:?}");
        test();
    }
    BACKEND.set(Backend::Plan);
}

/// How far logits of the runtime under test may be from golden ones, which were computed in f32 by another
/// implementation: random networks amplify roundings, and the interpreter's running sums round more often.
pub fn golden_noise() -> f64 {
    match BACKEND.get() {
        Backend::Plan | Backend::Cpu => 1e-4,
        Backend::Interp => 2e-4,
    }
}

/// The runtime under test: fast kernels, or what [`on_each`] is at.
pub fn runtime(system: &System) -> Box<dyn Runtime> {
    match BACKEND.get() {
        Backend::Interp => Box::new(interp(system)),
        Backend::Cpu => Box::new(cpu(system, 2)),
        Backend::Plan => planned(Box::new(cpu(system, 2))),
    }
}

/// A runtime that runs what the compiler makes of modules.
pub fn planned(runtime: Box<dyn Runtime>) -> Box<dyn Runtime> {
    let record = include_str!("../../../../devices/h200.yaml");
    let device = Device::from_yaml("h200.yaml", record).unwrap_or_else(|_| panic!("the record is sound"));
    let options = Options::new(device);
    Box::new(Planned::new(runtime, Box::new(move |m| compile(m, &options).map_err(|e| e.to_string()))))
}

pub fn cpu(system: &System, threads: usize) -> CpuRuntime {
    let capacity = Capacity { requests: 64, positions: 1 << 32 };
    CpuRuntime::new(&tables(system), Box::new(store(system)), threads, capacity).expect("a runtime")
}

/// An i32 tensor's values.
pub fn ints(t: &Tensor) -> Vec<i32> {
    match &t.data {
        spinec_ir::tensor::Data::I32(v) => v.clone(),
        other => panic!("an i32 tensor is expected, there are {} values of another type", other.len()),
    }
}

/// The bits of every element: equal bits, not equal numbers.
pub fn bits(t: &Tensor) -> Vec<u64> {
    use spinec_ir::tensor::Data;
    match &t.data {
        Data::F64(v) => v.iter().map(|x| x.to_bits()).collect(),
        Data::F32(v) => v.iter().map(|x| u64::from(x.to_bits())).collect(),
        Data::I32(v) => v.iter().map(|x| *x as u32 as u64).collect(),
        Data::U8(v) => v.iter().map(|x| u64::from(*x)).collect(),
        Data::Bool(v) => v.iter().map(|x| u64::from(*x)).collect(),
    }
}

/// Rows of the first axis.
pub fn rows(t: &Tensor, from: usize, to: usize) -> Tensor {
    let per: usize = t.shape[1..].iter().product();
    let mut shape = t.shape.clone();
    shape[0] = to - from;
    let cut = |n: usize| n * per;
    use spinec_ir::tensor::Data;
    let data = match &t.data {
        Data::F64(v) => Data::F64(v[cut(from)..cut(to)].to_vec()),
        Data::F32(v) => Data::F32(v[cut(from)..cut(to)].to_vec()),
        Data::I32(v) => Data::I32(v[cut(from)..cut(to)].to_vec()),
        Data::U8(v) => Data::U8(v[cut(from)..cut(to)].to_vec()),
        Data::Bool(v) => Data::Bool(v[cut(from)..cut(to)].to_vec()),
    };
    Tensor::new(t.dtype, shape, data).expect("rows fill their shape")
}

/// A small generator for test data: xorshift64*.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    /// In (-1, 1).
    pub fn real(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn ids(&mut self, n: usize, vocabulary: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(vocabulary) as u32).collect()
    }
}
