//! Latency of the phases of the small pair that ships with the project.

#[path = "../tests/cpu_support/mod.rs"]
mod cpu_support;
#[path = "../tests/support/mod.rs"]
mod support;

use cpu_support::{cpu, demo_system, ints};
use criterion::{Criterion, criterion_group, criterion_main};
use spinec_exec::cpu::CpuRuntime;
use spinec_exec::runtime::{Mode, ProgramId, RequestId, Runtime};
use spinec_ir::spec::system::PhaseModule;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::{DType, Numerics};
use std::hint::black_box;

/// One request after a prompt, and all phases of one law.
struct Demo {
    runtime: CpuRuntime,
    program: ProgramId,
    phases: PhaseModule,
    request: RequestId,
    position: i32,
}

fn scalar(x: f64) -> Tensor {
    Tensor::f64(vec![1], vec![x])
}

impl Demo {
    fn new(law: &str, context: usize, threads: usize) -> Demo {
        let system = demo_system(Numerics::F32);
        let choices = [("law".into(), law.into()), ("candidates".into(), "coarse".into())].into();
        let wanted = |_: &str, output: &str| output != "features" || law == "greedy";
        let phases = system.phase_module(&choices, &wanted).unwrap_or_else(|_| panic!("the phases lower"));
        let mut runtime = cpu(&system, threads);
        let program = runtime.add(phases.module.clone()).expect("the module is valid");
        let request = runtime.open(context + 64).expect("there is room");
        let mut demo = Demo { runtime, program, phases, request, position: 0 };
        while (demo.position as usize) < context {
            demo.prefill(64);
            demo.runtime.commit(request, 64).expect("64 rows were fed");
            demo.position += 64;
        }
        demo
    }

    fn common(&self) -> Vec<(&'static str, Tensor)> {
        let yes = Tensor::new(DType::Bool, vec![1], Data::Bool(vec![true])).expect("one truth value");
        vec![
            ("anchor", ints(&[1], &[77])),
            ("position", ints(&[1], &[self.position])),
            ("greedy", yes),
            ("temperature", scalar(1.0)),
            ("top_k", ints(&[1], &[0])),
            ("top_p", scalar(1.0)),
            ("seed", ints(&[1, 2], &[1, 2])),
        ]
    }

    fn run(&mut self, phase: &str, given: &[(&str, Tensor)], mode: Mode) -> Vec<(String, Tensor)> {
        let p = self.phases.phases.iter().find(|p| p.name == phase).expect("the phase is there");
        let f = &self.phases.module.funcs[p.func];
        let find = |name: &String| &given.iter().find(|(n, _)| n == name).expect("the input is given").1;
        let inputs: Vec<&Tensor> = f.inputs.iter().map(find).collect();
        let out = self.runtime.run(self.program, p.func, &inputs, &[self.request], mode, None).expect("the phase runs");
        f.outputs.iter().cloned().zip(out).collect()
    }

    fn prefill(&mut self, t: usize) -> Vec<(String, Tensor)> {
        let ids: Vec<i32> = (0..t as i32).map(|i| (i * 37 + self.position) % 2000).collect();
        let at: Vec<i32> = (self.position..self.position + t as i32).collect();
        let mut given = self.common();
        given.extend([("tokens", ints(&[1, t], &ids)), ("positions", ints(&[1, t], &at)), ("rows", ints(&[1], &[t as i32]))]);
        self.run("prefill", &given, Mode::Immediate)
    }

    fn verify_inputs(&mut self) -> Vec<(&'static str, Tensor)> {
        let mut given = self.common();
        let draft = self.run("draft", &given, Mode::Immediate);
        let named = |name: &str| draft.iter().find(|(n, _)| n == name).expect("the output is there").1.clone();
        let block: Vec<i32> = (self.position..self.position + 16).collect();
        given.extend([("proposal", named("proposal")), ("candidates", named("candidates")), ("q", named("q"))]);
        given.extend([("positions", ints(&[1, 16], &block)), ("width", ints(&[1], &[16]))]);
        given
    }
}

fn phases(c: &mut Criterion) {
    for (law, context, threads) in [("greedy", 128, 1), ("greedy", 128, 2), ("greedy", 1024, 2), ("sampled", 128, 2)] {
        let mut g = c.benchmark_group(format!("{law} {context} positions {threads} threads"));
        g.sample_size(30);
        let mut demo = Demo::new(law, context, threads);
        let given = demo.common();
        g.bench_function("decode 1 row", |b| b.iter(|| black_box(demo.run("decode", &given, Mode::Tentative))));
        g.bench_function("draft", |b| b.iter(|| black_box(demo.run("draft", &given, Mode::Immediate))));
        let given = demo.verify_inputs();
        g.bench_function("verify 16 rows", |b| b.iter(|| black_box(demo.run("verify", &given, Mode::Tentative))));
        let verified = demo.run("verify", &given, Mode::Tentative);
        if let Some((_, features)) = verified.into_iter().find(|(n, _)| n == "features") {
            let mut given = given.clone();
            given.extend([("features", features), ("keep", ints(&[1], &[4]))]);
            g.bench_function("commit 4 rows", |b| {
                b.iter(|| black_box(demo.run("commit", &given, Mode::Immediate)));
            });
            g.bench_function("commit of states, 0 rows", |b| {
                b.iter(|| demo.runtime.commit(demo.request, 0).expect("no rows are always there"));
            });
        }
        g.bench_function("prefill 64 rows", |b| b.iter(|| black_box(demo.prefill(64))));
        g.finish();
    }
}

criterion_group!(benches, phases);
criterion_main!(benches);
