//! CPU runtimes for tests.
#![allow(dead_code)]

use crate::support::{store, system, tables};
use spinec_exec::cpu::{Capacity, CpuRuntime};
use spinec_exec::runtime::{Mode, ProgramId, RequestId, Runtime};
use spinec_ir::spec::system::System;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::Numerics;

pub const ROOM: Capacity = Capacity { positions: 1 << 20, requests: 16 };

pub fn cpu(system: &System, threads: usize) -> CpuRuntime {
    CpuRuntime::new(&tables(system), Box::new(store(system)), threads, ROOM).expect("states have constant extents")
}

/// A golden pair under the hybrid system.
pub fn golden_system(set: &str, numerics: Numerics) -> System {
    let pair = [
        ("target", format!("tests/data/golden/{set}/target")),
        ("drafter", format!("tests/data/golden/{set}/drafter")),
    ];
    system("graphs/hybrid-dspine.yaml", numerics, &pair)
}

/// The pair that ships with the project.
pub fn demo_system(numerics: Numerics) -> System {
    system("graphs/spinal-demo.yaml", numerics, &[])
}

pub fn ints(shape: &[usize], values: &[i32]) -> Tensor {
    Tensor::i32(shape.to_vec(), values.to_vec())
}

/// The bits of a tensor, whatever its dtype.
pub fn bits(t: &Tensor) -> Vec<u64> {
    match &t.data {
        Data::F64(v) => v.iter().map(|x| x.to_bits()).collect(),
        Data::F32(v) => v.iter().map(|x| u64::from(x.to_bits())).collect(),
        Data::I32(v) => v.iter().map(|x| *x as u64).collect(),
        Data::U8(v) => v.iter().map(|x| u64::from(*x)).collect(),
        Data::Bool(v) => v.iter().map(|x| u64::from(*x)).collect(),
    }
}

/// A target in a runtime: rows in, logits out.
pub struct Target {
    pub runtime: CpuRuntime,
    pub program: ProgramId,
    names: Vec<String>,
}

impl Target {
    pub fn new(system: &System, threads: usize) -> Target {
        let mut runtime = cpu(system, threads);
        let module = target_module(system);
        let names = module.funcs[0].outputs.clone();
        let program = runtime.add(module).expect("the module is valid");
        Target { runtime, program, names }
    }

    pub fn open(&mut self) -> RequestId {
        self.runtime.open(4096).expect("there is room")
    }

    /// Logits [N, T, V] of ids [N, T] at positions that follow each request's committed ones, `rows` of them real.
    pub fn feed(&mut self, requests: &[RequestId], ids: &[Vec<i32>], rows: &[usize], mode: Mode) -> Vec<Tensor> {
        let (n, t) = (requests.len(), ids[0].len());
        let starts: Vec<usize> = requests.iter().map(|r| self.runtime.len(*r)).collect();
        let positions: Vec<i32> = starts.iter().flat_map(|s| (*s..*s + t).map(|p| p as i32)).collect();
        let rows: Vec<i32> = rows.iter().map(|r| *r as i32).collect();
        let inputs = [ints(&[n, t], &ids.concat()), ints(&[n, t], &positions), ints(&[n], &rows)];
        let refs: Vec<&Tensor> = inputs.iter().collect();
        self.runtime.run(self.program, 0, &refs, requests, mode, None).expect("the rows run")
    }

    /// [`Target::feed`] of one request with all rows real, committed at once.
    pub fn step(&mut self, request: RequestId, ids: &[i32]) -> Tensor {
        let out = self.feed(&[request], &[ids.to_vec()], &[ids.len()], Mode::Immediate);
        self.runtime.commit(request, ids.len()).expect("the rows are all there");
        self.named(out, "logits")
    }

    pub fn named(&self, out: Vec<Tensor>, name: &str) -> Tensor {
        let at = self.names.iter().position(|n| n == name).expect("the output is there");
        out.into_iter().nth(at).expect("there are as many tensors as outputs")
    }
}

/// The entry that gives all of the target.
pub fn target_module(system: &System) -> spinec_ir::ir::Module {
    system.entry_module("target", None, None).unwrap_or_else(|_| panic!("the entry lowers")).module
}
