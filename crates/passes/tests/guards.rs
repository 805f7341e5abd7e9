//! The norm of a sum from factors, with the direct form where the factors cancel.

mod support;

use spinec_ir::interp::{Mode, Observer, WeightStore, run};
use spinec_ir::ir::{Attr, Attrs, Module, WeightId, text, verify};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Numerics;
use spinec_passes::pass::{self, Options, Program};
use support::*;

const H: usize = 64;
const K: usize = 3;
const P: usize = 8;

/// |x + r W m|^2 for every m of a row.
const NORM: &str = r#"spinec-ir 1
module "norm" numerics=f64

weight 0 "w" : f64[64, 3]

func "norm"
  input "x" = %0 : f64[1, 64]
  input "r" = %1 : f64[1, 1, 1]
  input "m" = %2 : f64[1, 8, 3]
  %3 = weight() {weight=0} : f64[64, 3]
  %4 = linear(%2, %3) {acc=f64} : f64[1, 8, 64]
  %5 = mul(%4, %1) : f64[1, 8, 64]
  %6 = reshape(%0) {dims=[1, 1, 64]} : f64[1, 1, 64]
  %7 = add(%6, %5) : f64[1, 8, 64]
  %8 = einsum(%7, %7) {acc=f64, spec="t p h, t p h -> t p"} : f64[1, 8]
  return "q" = %8
"#;

struct Weight<'a>(&'a Tensor, Option<&'a Program>);

impl WeightStore for Weight<'_> {
    fn weight(&self, id: WeightId, _: &[i64]) -> Result<Tensor, String> {
        match self.1.and_then(|p| Some((p, p.derived.iter().position(|d| d.weight == id)?))) {
            Some((p, i)) => loaded(p, i, &Weight(self.0, None)),
            None => Ok(self.0.clone()),
        }
    }
}

/// Whether the region of the guard ran.
#[derive(Default)]
struct Ran(bool);

impl Observer for Ran {
    fn wants(&self, path: &str) -> bool {
        path == "slow"
    }

    fn value(&mut self, _: &str, _: &Tensor) {
        self.0 = true;
    }
}

fn program() -> (Module, Program) {
    let module = text::parse(NORM).expect("the text is well-formed");
    let device = arithmetic(1);
    let mut p = pass::run(module.clone(), &Options::new(device), &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    let func = &mut p.module.funcs[0];
    let guard = func.ops.iter().find(|op| op.code == Opcode::Guarded).expect("factors pay").clone();
    let slow = func.region(guard.regions[0]).yields[0];
    func.values[slow.index()].names.push("slow".into());
    (module, p)
}

/// The program with the factors alone.
fn unguarded(p: &Program) -> Program {
    let mut p = p.clone();
    let func = &mut p.module.funcs[0];
    let at = func.ops.iter().position(|op| op.code == Opcode::Guarded).expect("there is a guard");
    let dims = func.tensor(func.ops[at].results[0]).expect("a choice is a tensor").dims.clone();
    let op = &mut func.ops[at];
    (op.code, op.attrs) = (Opcode::Reshape, Attrs::from([("dims", Attr::Dims(dims))]));
    op.operands.remove(0);
    op.regions.clear();
    assert!(verify::verify(&p.module).is_empty());
    p
}

/// Some numbers in [-1, 1].
fn numbers(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Inputs whose first sum is `share` of its parts: x is minus r W m, but for that.
fn inputs(w: &Tensor, share: f64) -> Vec<Tensor> {
    let (m, w) = (numbers(P * K, 5), w.to_f64());
    let r = 0.75;
    let other = numbers(H, 9);
    let x = (0..H).map(|h| -r * (0..K).map(|k| w[h * K + k] * m[k]).sum::<f64>() + share * other[h]).collect();
    vec![Tensor::f64(vec![1, H], x), Tensor::f64(vec![1, 1, 1], vec![r]), Tensor::f64(vec![1, P, K], m)]
}

#[test]
fn the_direct_form_is_computed_where_the_factors_cancel_and_only_there() {
    let (module, p) = program();
    let loose = unguarded(&p);
    let w = Tensor::f64(vec![H, K], numbers(H * K, 3));
    // kappa is about the square of the share.
    for (share, cancels) in [(1.0, false), (1e-2, false), (1e-3, false), (1e-5, true), (1e-7, true), (0.0, true)] {
        let inputs = inputs(&w, share);
        let mut ran = Ran::default();
        let value = |p: &Module, of: Option<&Program>, ran: &mut Ran| {
            let out = run(p, &p.funcs[0], &inputs, &Weight(&w, of), &mut [], Mode::Immediate, ran);
            out.unwrap_or_else(|e| panic!("{e}"))[0].to_f64()
        };
        let want = value(&module, None, &mut Ran::default());
        let got = value(&p.module, Some(&p), &mut ran);
        let fast = value(&loose.module, Some(&loose), &mut Ran::default());
        let near = |got: &[f64]| got.iter().zip(&want).all(|(g, w)| (g - w).abs() <= 1e-9 * w.abs());
        assert_eq!(ran.0, cancels, "share {share}: {want:?}");
        assert!(near(&got), "share {share}: {got:?} for {want:?}");
        assert_eq!(near(&fast), !cancels, "share {share}: {fast:?} for {want:?}");
    }
}

/// Where nothing is left of the sum the factors may even give a negative square.
#[test]
fn squares_stay_positive() {
    let (_, p) = program();
    let w = Tensor::f64(vec![H, K], numbers(H * K, 3));
    for share in [0.0, 1e-9, 1e-8] {
        let m = &p.module;
        let out = run(
            m,
            &m.funcs[0],
            &inputs(&w, share),
            &Weight(&w, Some(&p)),
            &mut [],
            Mode::Immediate,
            &mut Ran::default(),
        );
        assert!(out.unwrap_or_else(|e| panic!("{e}"))[0].to_f64().iter().all(|q| *q >= 0.0));
    }
}

/// The release's sampled tail: the direct form stands in the region, its wide value nowhere else, and it is in no greedy tail.
#[test]
fn the_sampled_tail_is_guarded() {
    let system = system("graphs/qwen3.8-27b-dspine.yaml", Numerics::BF16, &[]);
    let run = |law: &str| {
        let options = Options::new(h200());
        pass::run(draft(&system, law), &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
    };
    let p = run("sampled");
    let f = &p.module.funcs[0];
    let guards: Vec<_> = f.ops.iter().filter(|op| op.code == Opcode::Guarded).collect();
    assert_eq!(guards.len(), 1);
    let slow = f.region(guards[0].regions[0]);
    let wide = |v: &spinec_ir::ir::ValueId| {
        let dims: Option<Vec<String>> = f.tensor(*v).map(|t| t.dims.iter().map(ToString::to_string).collect());
        dims.is_some_and(|d| d == ["N", "15", "16", "5120"])
    };
    assert!(slow.ops.iter().any(|op| f.op(*op).results.iter().any(wide)));
    // Rows of the head for 16 candidates are as wide, and are taken, not computed.
    let body = &f.region(f.body).ops;
    let computed = body.iter().map(|op| f.op(*op)).filter(|op| !matches!(op.code, Opcode::Take | Opcode::Cast));
    assert!(computed.flat_map(|op| &op.results).all(|v| !wide(v)));
    assert!(run("greedy").module.funcs[0].ops.iter().all(|op| op.code != Opcode::Guarded));
}
