//! Random graphs of wide rows, where products take work before and behind them and rows leave statistics: valid plans of the
//! same values.

mod plan_support;

use plan_support::fused;
use plan_support::values::{compare, results, round_trip};
use spinec_ir::interp::Mode;
use spinec_ir::ir::testing::{Range, Rng, Sample, sample};
use spinec_ir::ir::{Attr, Attrs, Func, Loc, Module, ValueId, Weight, canonical, text, verify::verify};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::Mechanism;
use spinec_ir::ty::{DType, Dim, TensorType};
use spinec_passes::dag::append;
use spinec_passes::fuse::Options;
use std::collections::BTreeSet;

const WIDTH: i64 = 256;

fn dims() -> Vec<Dim> {
    vec![Dim::symbol("N"), Dim::from(4), Dim::from(WIDTH)]
}

/// A function of a few dozen ops over rows of 256, from what the seed says.
fn graph(seed: u64) -> Sample {
    let mut rng = Rng::new(seed);
    let mut module: Module = sample(0, &Default::default()).module;
    module.states.clear();
    let ty = |d: Vec<Dim>| TensorType::new(DType::F64, d);
    let weight = |name: &str, d: Vec<Dim>| Weight {
        name: name.to_owned(),
        loops: Vec::new(),
        present: Vec::new(),
        ty: ty(d),
        storage: None,
        source: None,
        span: None,
        bound_at: None,
    };
    module.weights = vec![weight("w", vec![Dim::from(WIDTH); 2]), weight("n", vec![Dim::from(WIDTH)])];
    let mut f = Func::new("f");
    let body = f.body;
    let mut values: Vec<ValueId> = (0..2).map(|_| f.add_param(body, ty(dims()).into())).collect();
    f.inputs = vec!["a".to_owned(), "b".to_owned()];
    let last = |f: &mut Func, code: Opcode, operands: Vec<ValueId>, attrs: Attrs, types: &[spinec_ir::ty::Type]| {
        append(f, body, code, operands, attrs, types, Loc::default()).unwrap_or_else(|e| panic!("seed {seed}: {e}"))[0]
    };
    for _ in 0..6 + rng.below(16) {
        let x = values[values.len() - 1 - rng.below(values.len().min(4))];
        let y = values[rng.below(values.len())];
        let axis = |a: i64| ("axis", Attr::Int(a));
        let whole = |f: &mut Func, w: i64, d: &TensorType| {
            let attrs = Attrs::from([("weight", Attr::Int(w))]);
            append(f, body, Opcode::Weight, vec![], attrs, &[d.clone().into()], Loc::default())
                .unwrap_or_else(|e| panic!("{e}"))[0]
        };
        let made = match rng.below(11) {
            0..=2 => {
                let w = whole(&mut f, 0, &ty(vec![Dim::from(WIDTH); 2]));
                last(&mut f, Opcode::Linear, vec![x, w], Attrs::from([("acc", Attr::DType(DType::F64))]), &[])
            }
            3 => last(&mut f, Opcode::Add, vec![x, y], Attrs::new(), &[]),
            4 => last(&mut f, Opcode::Tanh, vec![x], Attrs::new(), &[]),
            5 => {
                let n = whole(&mut f, 1, &ty(vec![Dim::from(WIDTH)]));
                last(&mut f, Opcode::RmsNorm, vec![x, n], Attrs::from([("eps", Attr::Float(0.5))]), &[])
            }
            6 => {
                let attrs = Attrs::from([axis(-1), ("keep", Attr::Bool(true))]);
                let r = last(&mut f, Opcode::Norm2, vec![x], attrs, &[]);
                last(&mut f, Opcode::Add, vec![y, r], Attrs::new(), &[])
            }
            7 => {
                let attrs = Attrs::from([axis(1), ("by", Attr::Int(1)), ("fill", Attr::Float(0.25))]);
                last(&mut f, Opcode::Shift, vec![x], attrs, &[])
            }
            8 => {
                let both = last(&mut f, Opcode::Concat, vec![x, y], Attrs::from([axis(2)]), &[]);
                let cut = [("start", Attr::Dim(Dim::from(128))), ("len", Attr::Dim(Dim::from(WIDTH))), axis(2)];
                last(&mut f, Opcode::Slice, vec![both], Attrs::from(cut), &[])
            }
            9 => last(&mut f, Opcode::Cumsum, vec![x], Attrs::from([axis(-1)]), &[]),
            _ => last(&mut f, Opcode::Sigmoid, vec![x], Attrs::new(), &[]),
        };
        values.push(made);
    }
    let outputs = 1 + rng.below(3);
    let made: Vec<ValueId> = (0..outputs).map(|i| values[values.len() - 1 - i]).collect();
    f.outputs = (0..made.len()).map(|i| format!("y{i}")).collect();
    f.regions[body.index()].yields = made;
    module.funcs = vec![f];
    Sample { module: canonical(&module), inputs: vec![vec![Range { lo: 0.0, hi: 1.0 }; 2]] }
}

#[test]
fn wide_rows_have_right_plans() {
    let mut met: BTreeSet<Mechanism> = BTreeSet::new();
    let mut failed = Vec::new();
    for seed in 0..120 {
        let s = graph(seed);
        let errors = verify(&s.module);
        assert!(errors.is_empty(), "seed {seed}: {}", errors[0]);
        let how = Options { device: plan_support::h200(), reassociate: !seed.is_multiple_of(4), fuse: true };
        let plan = fused(s.module.clone(), &how).map_err(|e| e.to_string());
        let checked = plan.and_then(|plan| {
            round_trip(&plan)?;
            met.extend(plan.phases[0].kernels.iter().flat_map(|k| &k.mechanisms));
            if seed % 8 == 0 {
                let want = results(&s.module, None, &s, seed, Mode::Immediate)?;
                let got = results(&plan.module, None, &s, seed, Mode::Immediate)?;
                compare(&got, &want, 0.0)?;
            }
            Ok(())
        });
        if let Err(why) = checked {
            failed.push(format!("seed {seed}: {why}\n{}", text::print(&s.module)));
        }
    }
    assert!(failed.is_empty(), "{} fail\n{}", failed.len(), failed[..failed.len().min(3)].join("\n"));
    use Mechanism::*;
    for m in [Packed, PartialSums, BlockShift, FirstTile, SplitK] {
        assert!(met.contains(&m), "no plan has {}", m.name());
    }
}
