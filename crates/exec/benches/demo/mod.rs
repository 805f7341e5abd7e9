//! The small pair that ships with the project, ready to run phases.

use crate::cpu_support::{cpu, demo_system, ints};
use spinec_exec::cpu::CpuRuntime;
use spinec_exec::runtime::{Mode, ProgramId, RequestId, Runtime};
use spinec_ir::spec::system::PhaseModule;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::{DType, Numerics};

/// One request after a prompt, and all phases of one law.
pub struct Demo {
    pub runtime: CpuRuntime,
    program: ProgramId,
    phases: PhaseModule,
    pub request: RequestId,
    pub position: i32,
}

fn scalar(x: f64) -> Tensor {
    Tensor::f64(vec![1], vec![x])
}

impl Demo {
    pub fn new(law: &str, context: usize, threads: usize) -> Demo {
        let system = demo_system(Numerics::F32);
        let choices = [("law".into(), law.into()), ("candidates".into(), "coarse".into())].into();
        let wanted = |_: &str, output: &str| output != "q" || law != "greedy";
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

    pub fn common(&self) -> Vec<(&'static str, Tensor)> {
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

    pub fn run(&mut self, phase: &str, given: &[(&str, Tensor)], mode: Mode) -> Vec<(String, Tensor)> {
        let p = self.phases.phases.iter().find(|p| p.name == phase).expect("the phase is there");
        let f = &self.phases.module.funcs[p.func];
        let find = |name: &String| &given.iter().find(|(n, _)| n == name).expect("the input is given").1;
        let inputs: Vec<&Tensor> = f.inputs.iter().map(find).collect();
        let out = self.runtime.run(self.program, p.func, &inputs, &[self.request], mode, None).expect("the phase runs");
        f.outputs.iter().cloned().zip(out).collect()
    }

    pub fn prefill(&mut self, t: usize) -> Vec<(String, Tensor)> {
        let ids: Vec<i32> = (0..t as i32).map(|i| (i * 37 + self.position) % 2000).collect();
        let at: Vec<i32> = (self.position..self.position + t as i32).collect();
        let mut given = self.common();
        given.extend([
            ("tokens", ints(&[1, t], &ids)),
            ("positions", ints(&[1, t], &at)),
            ("rows", ints(&[1], &[t as i32])),
        ]);
        self.run("prefill", &given, Mode::Immediate)
    }

    pub fn verify_inputs(&mut self) -> Vec<(&'static str, Tensor)> {
        let mut given = self.common();
        let draft = self.run("draft", &given, Mode::Immediate);
        let block: Vec<i32> = (self.position..self.position + 16).collect();
        for name in ["proposal", "candidates", "q"] {
            given.extend(draft.iter().find(|(n, _)| n == name).map(|(_, t)| (name, t.clone())));
        }
        given.extend([
            ("positions", ints(&[1, 16], &block)),
            ("width", ints(&[1], &[16])),
            ("first", ints(&[1], &[0])),
        ]);
        given
    }
}
