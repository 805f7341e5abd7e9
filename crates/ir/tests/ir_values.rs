//! Random modules run, and their values are as tame as `ir::testing` says.

use proptest::prelude::*;
use spinec_ir::interp::{Mode, Observer, RequestState, WeightStore, run};
use spinec_ir::ir::WeightId;
use spinec_ir::ir::testing::{Config, LIMIT, Sample, sample};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, Env, Numerics};

struct Weights<'a>(&'a Sample, Vec<Vec<Option<Tensor>>>);

impl WeightStore for Weights<'_> {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        let loops = &self.0.module.weight(id).loops;
        let flat = index.iter().zip(loops).fold(0, |flat, (i, (_, extent))| flat * extent + i);
        self.1[id.index()][flat as usize].clone().ok_or_else(|| format!("weight {} is absent at {index:?}", id.0))
    }
}

/// Collects named values that are not tame.
#[derive(Default)]
struct Wild(Vec<String>);

impl Observer for Wild {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn value(&mut self, path: &str, t: &Tensor) {
        let bound = LIMIT * 1.05;
        let tame = t.dtype == DType::F8E4M3 || t.to_f64().iter().all(|x| x.abs() <= bound);
        if !tame {
            self.0.push(format!("{path}: {:?}", t.to_f64()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn random_modules_run_and_stay_tame(seed: u64, n in 1i64..=4, t in 1i64..=4, discrete: bool) {
        let numerics = [Numerics::BF16, Numerics::F32, Numerics::F64][(seed % 3) as usize];
        let s = sample(seed, &Config { numerics, discrete, ..Config::default() });
        let env = Env::from([("N".to_owned(), n), ("T".to_owned(), t)]);
        let weights = Weights(&s, s.weight_values(seed).expect("the number of elements is small"));
        let one = RequestState::new(&s.module).expect("states have constant extents");
        let mut states = vec![one; n as usize];
        for (i, f) in s.module.funcs.iter().enumerate() {
            let inputs = s.input_values(i, &env, seed).expect("both symbols have values");
            let mut wild = Wild::default();
            let outputs = run(&s.module, f, &inputs, &weights, &mut states, Mode::Immediate, &mut wild)
                .map_err(|e| TestCaseError::fail(format!("{e}\n{}", spinec_ir::ir::text::print(&s.module))))?;
            for (name, out) in f.outputs.iter().zip(&outputs) {
                wild.value(name, out);
            }
            prop_assert!(wild.0.is_empty(), "{:?}\n{}", wild.0, spinec_ir::ir::text::print(&s.module));
        }
    }
}
