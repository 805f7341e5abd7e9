//! Random modules on the CPU backend and on the reference interpreter: outputs, named values and states agree.

use proptest::prelude::*;
use spinec_exec::cpu::{Capacity, CpuRuntime};
use spinec_exec::runtime::{Mode, Runtime, Tables};
use spinec_ir::interp::{Observer, RequestState, WeightStore, run};
use spinec_ir::ir::WeightId;
use spinec_ir::ir::testing::{Config, Sample, sample};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{Env, Numerics};

#[derive(Clone)]
struct Weights(Sample, Vec<Vec<Option<Tensor>>>);

impl WeightStore for Weights {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        let loops = &self.0.module.weight(id).loops;
        let flat = index.iter().zip(loops).fold(0, |flat, (i, (_, extent))| flat * extent + i);
        self.1[id.index()][flat as usize].clone().ok_or_else(|| format!("weight {} is absent at {index:?}", id.0))
    }
}

#[derive(Default)]
struct Recorder(Vec<(String, Tensor)>);

impl Observer for Recorder {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn value(&mut self, path: &str, t: &Tensor) {
        self.0.push((path.into(), t.clone()));
    }
}

/// Differences beyond what the order of sums and roundings to 16 bits explain.
fn check(near: f64, what: &str, got: &Tensor, want: &Tensor) -> Result<(), TestCaseError> {
    prop_assert_eq!(got.dtype, want.dtype, "{}", what);
    prop_assert_eq!(&got.shape, &want.shape, "{}", what);
    if !want.dtype.is_float() {
        prop_assert_eq!(&got.data, &want.data, "{}", what);
        return Ok(());
    }
    let (a, b) = (got.to_f64(), want.to_f64());
    let scale = b.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    for (x, y) in a.iter().zip(&b) {
        prop_assert!((x - y).abs() <= near * scale || (x.is_nan() && y.is_nan()), "{}: {} against {}", what, x, y);
    }
    Ok(())
}

fn compare(seed: u64, n: i64, t: i64, numerics: Numerics, discrete: bool, mode: Mode) -> Result<(), TestCaseError> {
    let s = sample(seed, &Config { numerics, discrete, ..Config::default() });
    let near = match numerics {
        // Scales of 8-bit copies are f32 in every policy.
        Numerics::F64 if discrete => 1e-6,
        Numerics::F64 => 1e-10,
        Numerics::F32 => 1e-5,
        Numerics::BF16 => 2e-2,
    };
    let env = Env::from([("N".to_owned(), n), ("T".to_owned(), t)]);
    let weights = Weights(s.clone(), s.weight_values(seed).expect("the number of elements is small"));
    let tables = Tables { weights: s.module.weights.clone(), states: s.module.states.clone() };
    let room = Capacity { positions: 256, requests: 4 };
    let mut cpu = CpuRuntime::new(&tables, Box::new(weights.clone()), 2, room).expect("extents are constant");
    let fail = |e: String| TestCaseError::fail(format!("{e}\n{}", spinec_ir::ir::text::print(&s.module)));
    let program = cpu.add(s.module.clone()).map_err(|e| fail(e.to_string()))?;
    let mut requests = Vec::new();
    for _ in 0..n {
        requests.push(cpu.open(16).map_err(|e| fail(e.to_string()))?);
    }
    let mut states = vec![RequestState::new(&s.module).expect("extents are constant"); n as usize];
    for (i, f) in s.module.funcs.iter().enumerate() {
        let inputs = s.input_values(i, &env, seed).expect("both symbols have values");
        let refs: Vec<&Tensor> = inputs.iter().collect();
        let (mut mine, mut theirs) = (Recorder::default(), Recorder::default());
        let want = run(&s.module, f, &inputs, &weights, &mut states, mode, &mut theirs);
        let want = want.map_err(|e| fail(e.to_string()))?;
        // Observed and unobserved runs give the same bits; the first one only looks, so states are not moved twice.
        let got = cpu.run(program, i, &refs, &requests, mode, Some(&mut mine)).map_err(|e| fail(e.to_string()))?;
        let text = || spinec_ir::ir::text::print(&s.module);
        for ((name, got), want) in f.outputs.iter().zip(&got).zip(&want) {
            check(near, name, got, want).map_err(|e| fail(format!("{e}")))?;
        }
        let paths = |r: &Recorder| r.0.iter().map(|(p, _)| p.clone()).collect::<Vec<_>>();
        prop_assert_eq!(paths(&mine), paths(&theirs), "{}", text());
        for ((path, got), (_, want)) in mine.0.iter().zip(&theirs.0) {
            check(near, path, got, want).map_err(|e| fail(format!("{e}")))?;
        }
        for (r, s) in requests.iter().zip(&mut states) {
            // Modules advance states by different numbers of rows; committing none or what all can is legal.
            let rows = if mode == Mode::Immediate { 3 } else { 0 };
            prop_assert_eq!(cpu.commit(*r, rows).is_ok(), s.commit(rows).is_ok());
            let exported = cpu.export(*r).map_err(|e| fail(e.to_string()))?;
            for (name, want) in s.export() {
                check(near, &name, &exported[&name], &want).map_err(|e| fail(format!("{e}")))?;
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn floats_agree(seed: u64, n in 1i64..=4, t in 1i64..=4, tentative: bool) {
        let numerics = [Numerics::BF16, Numerics::F32, Numerics::F64][(seed % 3) as usize];
        compare(seed, n, t, numerics, false, if tentative { Mode::Tentative } else { Mode::Immediate })?;
    }

    #[test]
    fn choices_agree(seed: u64, n in 1i64..=4, t in 1i64..=4) {
        compare(seed, n, t, Numerics::F64, true, Mode::Immediate)?;
    }
}

/// Reusing a tape gives what its first run gave.
#[test]
fn runs_repeat() {
    for seed in 0..40 {
        let s = sample(seed, &Config { numerics: Numerics::F32, states: false, ..Config::default() });
        let env = Env::from([("N".to_owned(), 2), ("T".to_owned(), 3)]);
        let weights = Weights(s.clone(), s.weight_values(seed).expect("the number of elements is small"));
        let tables = Tables { weights: s.module.weights.clone(), states: s.module.states.clone() };
        let room = Capacity { positions: 16, requests: 4 };
        let mut cpu = CpuRuntime::new(&tables, Box::new(weights), 1, room).unwrap();
        let program = cpu.add(s.module.clone()).unwrap();
        let requests = [cpu.open(0).unwrap(), cpu.open(0).unwrap()];
        let mut first = Vec::new();
        for round in 0..3 {
            for i in 0..s.module.funcs.len() {
                let inputs = s.input_values(i, &env, seed).unwrap();
                let refs: Vec<&Tensor> = inputs.iter().collect();
                let out = cpu.run(program, i, &refs, &requests, Mode::Immediate, None).unwrap();
                // Text, as NaN does not equal itself.
                let text = format!("{out:?}");
                if round == 0 { first.push(text) } else { assert_eq!(first[i], text, "seed {seed}") }
            }
        }
    }
}
