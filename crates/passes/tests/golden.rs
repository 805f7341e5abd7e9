//! Rewritten modules against the originals and against golden data, on the reference interpreter.

mod support;

use spinec_ir::interp::{Mode, NoObserver, RequestState, WeightStore, run};
use spinec_ir::ir::testing::{Config, sample};
use spinec_ir::ir::{Module, WeightId};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, Env, Numerics, TensorType};
use spinec_passes::cost::Device;
use spinec_passes::pass::{self, Options, Program};
use spinec_passes::rules::Class;
use std::collections::BTreeMap;
use support::*;

const SETS: [&str; 4] = ["s0", "s1", "s3", "s4"];

/// A device on which only arithmetic takes time, so that models of any size are rewritten the same way.
fn arithmetic_only(resident_ps_per_mib: u64) -> Device {
    arithmetic(resident_ps_per_mib)
}

fn rewritten(module: &Module, device: Device) -> Program {
    let mut options = Options::new(device);
    options.classes = Class::ALL.into();
    pass::run(module.clone(), &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// The outputs of a function for some new requests, and what it leaves of their states.
fn outputs(
    module: &Module,
    func: usize,
    inputs: &[Tensor],
    store: &dyn WeightStore,
    requests: usize,
) -> BTreeMap<String, Tensor> {
    let f = &module.funcs[func];
    let new = || RequestState::new(module).unwrap_or_else(|e| panic!("{e:?}"));
    let mut states: Vec<RequestState> = (0..requests).map(|_| new()).collect();
    let out = run(module, f, inputs, store, &mut states, Mode::Immediate, &mut NoObserver);
    let out = out.unwrap_or_else(|e| panic!("{e:?}"));
    let mut all: BTreeMap<String, Tensor> = f.outputs.iter().cloned().zip(out).collect();
    for (i, state) in states.iter().enumerate() {
        all.extend(state.export().into_iter().map(|(name, t)| (format!("state {i} {name}"), t)));
    }
    all
}

/// A golden tail: the module, its inputs and the checkpoint's tensors.
struct Tail {
    module: Module,
    inputs: Vec<Tensor>,
    files: BTreeMap<String, BTreeMap<String, Tensor>>,
    gold: BTreeMap<String, Tensor>,
}

fn tail(s: &str, numerics: Numerics) -> Tail {
    let dirs =
        [("target", format!("tests/data/golden/{s}/target")), ("drafter", format!("tests/data/golden/{s}/drafter"))];
    let system = system("graphs/hybrid-dspine.yaml", numerics, &dirs);
    let files = dirs.iter().map(|(n, d)| ((*n).to_owned(), tensors(&format!("{d}/model.safetensors")))).collect();
    let gold = tensors(&format!("tests/data/golden/{s}/drafter/golden.safetensors"));
    let module = system.entry_module("tail", None, None).unwrap_or_else(|_| panic!("the entry is lowered")).module;
    let last = gold.keys().filter(|k| k.starts_with("post_mlp.")).count() - 1;
    let given = |name: &str| match name {
        "last" => gold[&format!("post_mlp.{last}")].clone(),
        "codes" => gold[&format!("codes.{last}")].clone(),
        "candidates" => gold["cand_exact"].clone(),
        "temperature" => gold["sample_temperature"].clone(),
        "coins" => gold["sample_coins"].clone(),
        other => gold[other].clone(),
    };
    let func = &module.funcs[0];
    let typed = func.inputs.iter().zip(&func.region(func.body).params).map(|(name, v)| {
        let dtype = func.tensor(*v).expect("inputs are tensors").dtype;
        given(name).cast(dtype).expect("golden values convert")
    });
    Tail { inputs: typed.collect(), module, files, gold }
}

/// A MiB must save what makes tables worth it and a scaled copy of the head not.
const TABLES_ONLY: u64 = 100_000_000;

#[test]
fn the_tail_gives_golden_values_through_its_tables() {
    for s in SETS {
        let Tail { module, inputs, files, gold } = tail(s, Numerics::F64);
        let p = rewritten(&module, arithmetic_only(TABLES_ONLY));
        let store = Store::new(&module, files, Some(&p));
        let before = outputs(&module, 0, &inputs, &store, 0);
        let after = outputs(&p.module, 0, &inputs, &store, 0);
        for (name, want) in &before {
            let got = &after[name];
            if name.ends_with("_chain") {
                assert_eq!((got, got), (want, &gold[name]), "{s} {name}");
            } else {
                let r = rel(got, want).max(rel(got, &gold[name]));
                assert!(r < 1e-9, "{s} {name}: {r:e}");
            }
        }
        assert_eq!(before.len(), 4, "{s}");
        for table in ["table_receiver", "table_predecessor"] {
            let near = p.derived.iter().filter_map(|d| {
                let t = store.weight(d.weight, &[]).unwrap_or_else(|e| panic!("{e}"));
                (t.shape == gold[table].shape).then(|| rel(&t, &gold[table]))
            });
            let best = near.fold(f64::INFINITY, f64::min);
            assert!(best < 1e-9, "{s} {table}: {best:e} of {:?}", p.derived);
        }
    }
}

/// In the release's dtypes the tables are rounded once, to bf16: what comes out differs by what that rounding is.
#[test]
fn rounded_tables_stay_near_the_direct_form() {
    for s in SETS {
        let Tail { module, inputs, files, .. } = tail(s, Numerics::BF16);
        let p = rewritten(&module, arithmetic_only(TABLES_ONLY));
        let rounded = p.derived.iter().filter(|d| p.module.weight(d.weight).ty.dtype == DType::BF16).count();
        assert_eq!(rounded, 2, "{s}: {:?}", p.derived);
        let store = Store::new(&module, files, Some(&p));
        let before = outputs(&module, 0, &inputs, &store, 0);
        let after = outputs(&p.module, 0, &inputs, &store, 0);
        let r = rel(&after["tail_scores"], &before["tail_scores"]);
        assert!(r > 0.0 && r < 1e-2, "{s}: {r:e}");
    }
}

struct Values<'a> {
    own: Vec<Vec<Option<Tensor>>>,
    module: &'a Module,
    program: Option<&'a Program>,
}

impl WeightStore for Values<'_> {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        if let Some(p) = self.program
            && let Some(i) = p.derived.iter().position(|d| d.weight == id)
        {
            return element(p, i, index, loaded(p, i, self)?);
        }
        let w = self.module.weights.get(id.index()).ok_or("no such weight")?;
        let flat = index.iter().zip(&w.loops).fold(0, |flat, (i, (_, n))| flat * n + i);
        self.own[id.index()][flat as usize].clone().ok_or_else(|| "the weight is absent".to_owned())
    }
}

/// Every op of the registry, loops, cases, weights and states, in f64: what is rewritten computes the same.
#[test]
fn random_modules_compute_the_same() {
    let config = Config { numerics: Numerics::F64, discrete: false, ..Config::default() };
    let (mut changed, mut derived) = (0, 0);
    for seed in 0..120 {
        let sample = sample(seed, &config);
        let module = &sample.module;
        // Memory costs nothing, so whatever may be derived is.
        let p = rewritten(module, arithmetic_only(1));
        changed += usize::from(p.regions.iter().any(|r| !r.saturation.fired.is_empty()));
        derived += p.derived.len();
        let env = Env::from([("N".to_owned(), 2), ("T".to_owned(), 3)]);
        let own = sample.weight_values(seed).expect("weights have values");
        let store = Values { own, module, program: Some(&p) };
        for f in 0..module.funcs.len() {
            let inputs = sample.input_values(f, &env, seed).expect("inputs have values");
            let (before, after) = (outputs(module, f, &inputs, &store, 2), outputs(&p.module, f, &inputs, &store, 2));
            for (name, want) in &before {
                let r = rel(&after[name], want);
                assert!(r < 1e-10, "seed {seed}, f{f} {name}: {r:e}");
            }
        }
    }
    assert!(changed > 10 && derived > 20, "{changed} changed, {derived} derived");
}

/// An input of a phase for one request that has `past` tokens.
fn input(name: &str, ty: &TensorType, env: &Env, past: usize) -> Tensor {
    let shape: Vec<usize> = ty.dims.iter().map(|d| d.eval(env).expect("symbols have values") as usize).collect();
    let n: usize = shape.iter().product();
    let value = |i: usize| match name {
        "tokens" | "anchor" | "proposal" => (7 * i % 40) as f64,
        "positions" if shape[1] == 5 => i as f64,
        "positions" => (past + i) as f64,
        "position" => past as f64,
        "rows" => env["T"] as f64,
        "width" | "keep" => env["W"] as f64,
        "greedy" => 0.0,
        "temperature" => 0.8,
        "top_k" => 9.0,
        "top_p" => 0.9,
        _ => ((i * 37 + 11) % 64) as f64 / 64.0,
    };
    Tensor::f64(shape.clone(), (0..n).map(value).collect()).cast(ty.dtype).expect("inputs convert")
}

/// Whole systems through their phases, in f64: prefill, a decode step, draft, verify and commit, on the golden checkpoints.
/// Outputs and states are the same with everything packed, moved and derived, vectors of layers among them.
#[test]
fn phases_compute_the_same() {
    let dirs =
        [("target", "tests/data/golden/s0/target".to_owned()), ("drafter", "tests/data/golden/s0/drafter".to_owned())];
    let files: BTreeMap<String, BTreeMap<String, Tensor>> =
        dirs.iter().map(|(n, d)| ((*n).to_owned(), tensors(&format!("{d}/model.safetensors")))).collect();
    let env = Env::from([("N".to_owned(), 1), ("T".to_owned(), 5), ("W".to_owned(), 4)]);
    for law in ["greedy", "mixed"] {
        let module = phases_of(&system("graphs/hybrid-dspine.yaml", Numerics::F64, &dirs), law);
        let p = rewritten(&module, arithmetic_only(1));
        assert!(p.derived.iter().any(|d| !p.module.weight(d.weight).present.is_empty()), "{law}");
        let store = Store::new(&module, files.clone(), Some(&p));
        let past = if module.funcs[0].name.starts_with("prefill") { 5 } else { 0 };
        let run_all = |module: &Module| {
            let mut states = vec![RequestState::new(module).unwrap_or_else(|e| panic!("{e:?}"))];
            let mut all = BTreeMap::new();
            for f in &module.funcs {
                let params = f.inputs.iter().zip(&f.region(f.body).params);
                let inputs: Vec<Tensor> =
                    params.map(|(n, v)| input(n, f.tensor(*v).expect("inputs are tensors"), &env, past)).collect();
                let out = run(module, f, &inputs, &store, &mut states, Mode::Immediate, &mut NoObserver);
                let out = out.unwrap_or_else(|e| panic!("{law} {}: {e:?}", f.name));
                all.extend(f.outputs.iter().map(|o| format!("{} {o}", f.name)).zip(out));
            }
            all.extend(states[0].export());
            all
        };
        let (before, after) = (run_all(&module), run_all(&p.module));
        assert!(before.len() > 10, "{law}: {:?}", before.keys());
        for (name, want) in &before {
            let r = rel(&after[name], want);
            assert!(r < 1e-9, "{law} {name}: {r:e}");
        }
    }
}
