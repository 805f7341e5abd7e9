//! The law: a row's bits depend on that row's inputs alone. Single rows, chunks, verify blocks, batches and thread counts
//! give the same bits for the same tokens.

mod cpu_support;
mod support;

use cpu_support::*;
use spinec_exec::cpu::CpuRuntime;
use spinec_exec::runtime::{Mode, ProgramId, RequestId, Runtime};
use spinec_ir::interp::Observer;
use spinec_ir::spec::system::System;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Numerics;

const SETS: [&str; 4] = ["s0", "s1", "s3", "s4"];

fn tokens(n: usize, vocabulary: usize, seed: usize) -> Vec<i32> {
    (0..n).map(|i| ((i * 7919 + seed * 104_729 + i * i * 31) % vocabulary) as i32).collect()
}

/// Bits of every output, row by row: outputs are [T, ...].
fn rows(out: &[Tensor], t: usize) -> Vec<Vec<u64>> {
    (0..t)
        .map(|row| {
            let of = |x: &Tensor| {
                let all = bits(x);
                let size = all.len() / t;
                all[row * size..(row + 1) * size].to_vec()
            };
            out.iter().flat_map(of).collect()
        })
        .collect()
}

/// Feeds a prompt in pieces of `chunk` rows.
fn fed(system: &System, ids: &[i32], chunk: usize, threads: usize) -> Vec<Vec<u64>> {
    let mut target = Target::new(system, threads);
    let r = target.open();
    let mut out = Vec::new();
    for piece in ids.chunks(chunk) {
        let made = target.feed(&[r], &[piece.to_vec()], &[piece.len()], Mode::Immediate);
        target.runtime.commit(r, piece.len()).unwrap();
        out.extend(rows(&made, piece.len()));
    }
    out
}

/// Feeds a prompt in verify blocks of 16 rows, of which `kept` by turns are right and the others wrong.
fn verified(system: &System, ids: &[i32], kept: &[usize], vocabulary: usize) -> Vec<Vec<u64>> {
    let mut target = Target::new(system, 2);
    let r = target.open();
    let mut out = Vec::new();
    let mut turns = kept.iter().cycle();
    while out.len() < ids.len() {
        let at = out.len();
        let keep = (*turns.next().unwrap()).min(ids.len() - at);
        let mut block = ids[at..at + keep].to_vec();
        block.extend(tokens(16 - keep, vocabulary, at + 1));
        let made = target.feed(&[r], &[block], &[16], Mode::Tentative);
        target.runtime.commit(r, keep).unwrap();
        target.runtime.poison_stale(r);
        out.extend(rows(&made, 16).into_iter().take(keep));
    }
    out
}

fn same_bits(system: &System, ids: &[i32], vocabulary: usize) {
    let single = fed(system, ids, 1, 1);
    for (chunk, threads) in [(1, 2), (7, 1), (7, 2), (64, 1), (64, 2)] {
        assert!(fed(system, ids, chunk, threads) == single, "chunks of {chunk} on {threads} threads differ");
    }
    assert!(verified(system, ids, &[1, 16, 3, 9, 5], vocabulary) == single, "verify blocks differ");
}

#[test]
fn golden_targets() {
    for set in SETS {
        let system = golden_system(set, Numerics::F32);
        same_bits(&system, &tokens(70, 97, 1), 97);
    }
}

#[test]
fn other_numerics() {
    for numerics in [Numerics::F64, Numerics::BF16] {
        let system = golden_system("s1", numerics);
        same_bits(&system, &tokens(40, 97, 2), 97);
    }
}

#[test]
fn the_demo_target() {
    same_bits(&demo_system(Numerics::F32), &tokens(150, 2000, 3), 2000);
}

/// Phases by name, with the named values of a run.
struct Phases {
    runtime: CpuRuntime,
    program: ProgramId,
    module: spinec_ir::spec::system::PhaseModule,
}

struct Named(Vec<(String, Tensor)>, Vec<&'static str>);

impl Observer for Named {
    fn wants(&self, path: &str) -> bool {
        self.1.iter().any(|w| path.ends_with(w))
    }

    fn value(&mut self, path: &str, t: &Tensor) {
        self.0.push((path.into(), t.clone()));
    }
}

impl Phases {
    fn new(system: &System) -> Phases {
        let choices = [("law".into(), "greedy".into()), ("candidates".into(), "coarse".into())].into();
        let module = system.phase_module(&choices, &|_, _| true).unwrap_or_else(|_| panic!("the phases lower"));
        let mut runtime = cpu(system, 2);
        let program = runtime.add(module.module.clone()).unwrap();
        Phases { runtime, program, module }
    }

    /// Outputs by name, and the logits.
    fn run(
        &mut self,
        phase: &str,
        given: &[(&str, Tensor)],
        requests: &[RequestId],
        mode: Mode,
    ) -> Vec<(String, Tensor)> {
        let func = self.module.phases.iter().find(|p| p.name == phase).unwrap().func;
        let f = &self.module.module.funcs[func];
        let find =
            |name: &String| given.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{phase} needs {name}"));
        let inputs: Vec<&Tensor> = f.inputs.iter().map(|n| &find(n).1).collect();
        let mut named = Named(vec![], vec!["logits", "final"]);
        let out = self.runtime.run(self.program, func, &inputs, requests, mode, Some(&mut named)).unwrap();
        f.outputs.iter().cloned().zip(out).chain(named.0).collect()
    }
}

/// Rows of request `n` of a batch.
fn of_request(out: &[(String, Tensor)], n: usize) -> Vec<(String, Vec<u64>)> {
    let part = |t: &Tensor| {
        let all = bits(t);
        let size = all.len() / t.shape[0];
        all[n * size..(n + 1) * size].to_vec()
    };
    out.iter().map(|(name, t)| (name.clone(), part(t))).collect()
}

/// Prompt, draft, verify and commit of several requests, alone and together.
#[test]
fn batches() {
    for (system, vocabulary) in [(golden_system("s1", Numerics::F32), 97), (demo_system(Numerics::F32), 2000)] {
        let prompts: Vec<Vec<i32>> = [5, 33, 17].iter().enumerate().map(|(i, n)| tokens(*n, vocabulary, i)).collect();
        let alone: Vec<Vec<_>> = (0..3).map(|i| cycle(&system, &prompts[i..=i], vocabulary)).collect();
        let together = cycle(&system, &prompts, vocabulary);
        for (i, alone) in alone.iter().enumerate() {
            for (step, (a, b)) in alone.iter().zip(&together).enumerate() {
                let (a, b) = (of_request(a, 0), of_request(b, i));
                assert!(a.len() > 1);
                for ((name, a), (_, b)) in a.iter().zip(&b) {
                    assert!(a == b, "request {i}, step {step}: {name} depends on the batch");
                }
            }
        }
    }
}

/// What draft and verify give in two cycles with forced acceptance, and the state after it.
fn cycle(system: &System, prompts: &[Vec<i32>], vocabulary: usize) -> Vec<Vec<(String, Tensor)>> {
    let mut p = Phases::new(system);
    let n = prompts.len();
    let requests: Vec<RequestId> = prompts.iter().map(|_| p.runtime.open(200).unwrap()).collect();
    let floats = |x: f64| Tensor::f64(vec![n], vec![x; n]);
    for (r, ids) in requests.iter().zip(prompts) {
        let t = ids.len();
        let at: Vec<i32> = (0..t as i32).collect();
        let yes = Tensor::new(spinec_ir::ty::DType::Bool, vec![1], spinec_ir::tensor::Data::Bool(vec![true])).unwrap();
        let one = |x: f64| Tensor::f64(vec![1], vec![x]);
        let given = [
            ("tokens", ints(&[1, t], ids)),
            ("positions", ints(&[1, t], &at)),
            ("rows", ints(&[1], &[t as i32])),
            ("greedy", yes),
            ("temperature", one(1.0)),
            ("top_k", ints(&[1], &[0])),
            ("top_p", one(1.0)),
            ("seed", ints(&[1, 2], &[1, 2])),
        ];
        p.run("prefill", &given, &[*r], Mode::Immediate);
        p.runtime.commit(*r, t).unwrap();
    }
    let mut out = Vec::new();
    let mut anchors: Vec<i32> = prompts.iter().map(|ids| ids[0]).collect();
    for round in 0..2 {
        let starts: Vec<i32> = requests.iter().map(|r| p.runtime.len(*r) as i32).collect();
        let yes = vec![true; n];
        let yes = Tensor::new(spinec_ir::ty::DType::Bool, vec![n], spinec_ir::tensor::Data::Bool(yes)).unwrap();
        let common = [
            ("anchor", ints(&[n], &anchors)),
            ("position", ints(&[n], &starts)),
            ("greedy", yes),
            ("temperature", floats(1.0)),
            ("top_k", ints(&[n], &vec![0; n])),
            ("top_p", floats(1.0)),
            ("seed", ints(&[n, 2], &prompts.iter().flat_map(|ids| [ids.len() as i32, 7]).collect::<Vec<_>>())),
        ];
        let draft = p.run("draft", &common, &requests, Mode::Immediate);
        let named = |out: &[(String, Tensor)], name: &str| out.iter().find(|(n, _)| n == name).unwrap().1.clone();
        let block: Vec<i32> = starts.iter().flat_map(|s| *s..*s + 16).collect();
        let mut given = common.to_vec();
        given.extend([
            ("positions", ints(&[n, 16], &block)),
            ("width", ints(&[n], &vec![16; n])),
            ("first", ints(&[n], &vec![0; n])),
            ("proposal", named(&draft, "proposal")),
            ("candidates", named(&draft, "candidates")),
            ("q", named(&draft, "q")),
        ]);
        let verify = p.run("verify", &given, &requests, Mode::Tentative);
        // Every request keeps another number of rows, each the same alone and together.
        let keep: Vec<usize> = prompts.iter().map(|ids| 1 + (ids.len() + 5 * round) % 16).collect();
        let kept: Vec<i32> = keep.iter().map(|k| *k as i32).collect();
        let given = [
            ("positions", ints(&[n, 16], &block)),
            ("keep", ints(&[n], &kept)),
            ("features", named(&verify, "features")),
        ];
        p.run("commit", &given, &requests, Mode::Immediate);
        for (r, k) in requests.iter().zip(&keep) {
            p.runtime.commit(*r, *k).unwrap();
        }
        anchors = prompts.iter().map(|ids| tokens(4, vocabulary, ids.len() + round)[3]).collect();
        out.push(draft);
        out.push(verify);
    }
    // The state of every request, stacked so that axis 0 is the request.
    let exports: Vec<_> = requests.iter().map(|r| p.runtime.export(*r).unwrap()).collect();
    for name in exports[0].keys() {
        if !name.ends_with(".k") && !name.ends_with(".v") {
            let all: Vec<f64> = exports.iter().flat_map(|e| e[name].to_f64()).collect();
            let size = all.len() / n;
            out.push(vec![(name.clone(), Tensor::f64(vec![n, size], all)), (String::new(), ints(&[n], &vec![0; n]))]);
        }
    }
    out
}
