//! Properties of verifier and text form on random modules, and on corrupted modules and texts.

use proptest::prelude::*;
use spinec_ir::ir::testing::{Config, Rng, Sample, sample};
use spinec_ir::ir::text::{annotate, parse, parse_mapped, print};
use spinec_ir::ir::verify::verify;
use spinec_ir::ir::*;
use spinec_ir::ops::{OPS, Opcode};
use spinec_ir::ty::{DType, Dim, Env, Numerics, TensorType, Type};
use std::collections::BTreeSet;

fn configs(seed: u64) -> Config {
    let numerics = [Numerics::BF16, Numerics::F32, Numerics::F64][(seed % 3) as usize];
    Config { numerics, discrete: !seed.is_multiple_of(4), ..Config::default() }
}

fn make(seed: u64) -> Sample {
    sample(seed, &configs(seed))
}

#[test]
fn random_modules_have_every_op() {
    let mut met = BTreeSet::new();
    for seed in 0..150 {
        met.extend(make(seed).module.funcs.iter().flat_map(|f| &f.ops).map(|op| op.code));
    }
    let missing: Vec<&str> = OPS.iter().filter(|d| !met.contains(&d.code)).map(|d| d.name).collect();
    assert!(missing.is_empty(), "never generated: {missing:?}");
}

#[test]
fn without_discrete_choices_no_float_decides_an_integer() {
    let forbidden = [Opcode::Argmax, Opcode::TopK, Opcode::Draw, Opcode::Floor, Opcode::QuantizeRows];
    for seed in 0..60 {
        let module = sample(seed, &Config { discrete: false, ..Config::default() }).module;
        for f in &module.funcs {
            for op in &f.ops {
                assert!(!forbidden.contains(&op.code), "{} in seed {seed}", op.code.name());
                let floats = op.operands.iter().filter_map(|v| f.tensor(*v)).any(|t| t.dtype.is_float());
                let decides = op.code != Opcode::IsFinite
                    && op.results.iter().filter_map(|v| f.tensor(*v)).any(|t| !t.dtype.is_float());
                assert!(!(floats && decides && op.regions.is_empty()), "{} in seed {seed}", op.code.name());
            }
        }
    }
}

#[test]
fn samples_come_with_values_of_their_types() {
    let env = Env::from([("N".to_owned(), 3), ("T".to_owned(), 2)]);
    for seed in 0..20 {
        let s = make(seed);
        for (i, f) in s.module.funcs.iter().enumerate() {
            let values = s.input_values(i, &env, 7).unwrap();
            assert_eq!(values.len(), f.inputs.len());
            for (v, have) in f.region(f.body).params.iter().zip(&values) {
                let want = f.tensor(*v).unwrap();
                assert_eq!(have.dtype, want.dtype);
                let shape: Vec<usize> = want.dims.iter().map(|d| d.eval(&env).unwrap() as usize).collect();
                assert_eq!(have.shape, shape);
            }
        }
        let weights = s.weight_values(7).unwrap();
        assert_eq!(weights.len(), s.module.weights.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_seed_always_gives_the_same_module(seed: u64) {
        prop_assert_eq!(make(seed).module, make(seed).module);
    }

    #[test]
    fn random_modules_verify(seed: u64) {
        let module = make(seed).module;
        let errors = verify(&module);
        prop_assert!(errors.is_empty(), "{}", annotate(&module, &errors));
    }

    #[test]
    fn text_loses_nothing(seed: u64) {
        let module = make(seed).module;
        let text = print(&module);
        let (again, lines) = parse_mapped(&text).map_err(|e| TestCaseError::fail(format!("{e:?}\n{text}")))?;
        prop_assert_eq!(&again, &module);
        prop_assert_eq!(print(&again), text);
        for (f, func) in module.funcs.iter().enumerate() {
            for op in 0..func.ops.len() {
                prop_assert!(lines.line(verify::Site::Op(FuncId(f as u32), OpId(op as u32))).is_some());
            }
        }
    }

    #[test]
    fn numbering_does_not_matter(seed: u64) {
        let module = make(seed).module;
        let shuffled = shuffle(&module, seed);
        prop_assert!(verify(&shuffled).is_empty());
        prop_assert_eq!(canonical(&shuffled), module.clone());
        prop_assert_eq!(canonical(&module), module.clone());
        prop_assert_eq!(print(&shuffled), print(&module));
    }

    #[test]
    fn a_corrupted_module_never_panics(seed: u64) {
        let mut module = make(seed).module;
        let mut rng = Rng::new(seed);
        for _ in 0..1 + rng.below(3) {
            corrupt(&mut module, &mut rng);
        }
        let errors = verify(&module);
        let text = annotate(&module, &errors);
        prop_assert_eq!(text.matches("\n; error: ").count(), errors.len());
        let once = canonical(&module);
        prop_assert_eq!(print(&canonical(&once)), print(&once));
        if errors.is_empty() {
            let again = parse(&print(&module)).map_err(|e| TestCaseError::fail(format!("{e:?}")))?;
            prop_assert_eq!(print(&again), print(&module));
        }
    }

    #[test]
    fn a_corrupted_text_never_panics(seed: u64) {
        let module = make(seed).module;
        let mut text: Vec<char> = print(&module).chars().collect();
        let mut rng = Rng::new(seed);
        for _ in 0..1 + rng.below(6) {
            corrupt_text(&mut text, &mut rng);
        }
        let text: String = text.into_iter().collect();
        match parse(&text) {
            Ok(module) => {
                let printed = print(&module);
                if verify(&module).is_empty() {
                    let again = parse(&printed).map_err(|e| TestCaseError::fail(format!("{e:?}\n{printed}")))?;
                    prop_assert_eq!(print(&again), printed);
                }
            }
            Err(errors) => {
                let lines = text.lines().count() as u32;
                prop_assert!(!errors.is_empty());
                prop_assert!(errors.iter().all(|e| (1..=lines.max(1)).contains(&e.line) && e.col > 0));
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = parse(&text);
        let _ = parse(&format!("spinec-ir 1\n{text}"));
    }
}

/// The same module under other ids, with dead entries in between.
fn shuffle(module: &Module, seed: u64) -> Module {
    let mut out = module.clone();
    for f in &mut out.funcs {
        let mut rng = Rng::new(seed);
        let mut permutation = |n: usize| {
            let mut to: Vec<u32> = (0..n as u32 + 3).collect();
            for i in (1..to.len()).rev() {
                to.swap(i, rng.below(i + 1));
            }
            to.truncate(n);
            to
        };
        let (values, ops, regions) =
            (permutation(f.values.len()), permutation(f.ops.len()), permutation(f.regions.len()));
        let value = |v: &mut ValueId| v.0 = values[v.index()];
        let dead =
            Value { ty: TensorType::scalar(DType::Bool).into(), def: ValueDef::Param(RegionId(9), 9), names: vec![] };
        let dead_op = Op {
            code: Opcode::Add,
            attrs: Attrs::new(),
            operands: vec![ValueId(77777)],
            results: vec![],
            regions: vec![RegionId(77777)],
            loc: Loc::default(),
        };
        let mut new_values = vec![dead; values.len() + 3];
        let mut new_ops = vec![dead_op; ops.len() + 3];
        let mut new_regions = vec![Region::default(); regions.len() + 3];
        for (i, mut v) in std::mem::take(&mut f.values).into_iter().enumerate() {
            match &mut v.def {
                ValueDef::Result(op, _) => op.0 = ops[op.index()],
                ValueDef::Param(region, _) => region.0 = regions[region.index()],
            }
            new_values[values[i] as usize] = v;
        }
        for (i, mut op) in std::mem::take(&mut f.ops).into_iter().enumerate() {
            op.operands.iter_mut().for_each(value);
            op.results.iter_mut().for_each(value);
            op.regions.iter_mut().for_each(|r| r.0 = regions[r.index()]);
            new_ops[ops[i] as usize] = op;
        }
        for (i, mut region) in std::mem::take(&mut f.regions).into_iter().enumerate() {
            region.params.iter_mut().for_each(value);
            region.yields.iter_mut().for_each(value);
            region.ops.iter_mut().for_each(|op| op.0 = ops[op.index()]);
            new_regions[regions[i] as usize] = region;
        }
        f.body = RegionId(regions[f.body.index()]);
        (f.values, f.ops, f.regions) = (new_values, new_ops, new_regions);
    }
    out
}

fn some_id(rng: &mut Rng, n: usize) -> u32 {
    if rng.chance(10) { u32::MAX } else { rng.below(n + 2) as u32 }
}

/// Changes one thing.
fn corrupt(module: &mut Module, rng: &mut Rng) {
    let wild = [0, -1, 1, i64::MAX, i64::MIN, 1 << 40][rng.below(6)];
    let table = rng.below(12);
    match table {
        0 => module.symbols.truncate(1),
        1 if !module.weights.is_empty() => {
            let w = rng.below(module.weights.len());
            let w = &mut module.weights[w];
            match rng.below(4) {
                0 => w.loops.push(("l0".to_owned(), wild)),
                1 => w.present.push(true),
                2 => w.ty.dims.push(Dim::from(wild)),
                _ => w.loops.iter_mut().for_each(|l| l.1 = wild),
            }
        }
        2 if !module.states.is_empty() => {
            let s = rng.below(module.states.len());
            let s = &mut module.states[s];
            match rng.below(3) {
                0 => s.count = wild,
                1 => s.element.push(wild),
                _ => s.element.clear(),
            }
        }
        _ => {}
    }
    if table < 3 {
        return;
    }
    let f = rng.below(module.funcs.len());
    let f = &mut module.funcs[f];
    let (nv, no, nr) = (f.values.len(), f.ops.len(), f.regions.len());
    let value = ValueId(some_id(rng, nv));
    let region = RegionId(some_id(rng, nr));
    let op_id = OpId(some_id(rng, no));
    match rng.below(12) {
        0 => f.body = region,
        1 => f.inputs.push(String::new()),
        2 => {
            f.outputs.pop();
        }
        3 => {
            let r = rng.below(nr);
            let r = &mut f.regions[r];
            match rng.below(5) {
                0 => r.yields.push(value),
                1 => r.params.push(value),
                2 => r.ops.push(op_id),
                3 => r.ops.reverse(),
                _ => {
                    r.yields.pop();
                }
            }
        }
        4 => {
            let v = rng.below(nv);
            f.values[v].def = if rng.chance(50) { ValueDef::Result(op_id, 1) } else { ValueDef::Param(region, 0) };
        }
        5 => {
            let (v, from) = (rng.below(nv), rng.below(nv));
            f.values[v].ty = f.values[from].ty.clone();
        }
        6 => {
            let v = rng.below(nv);
            if let Type::Tensor(t) = &mut f.values[v].ty {
                t.dims.push(Dim::from(wild));
                t.dist = rng.chance(50);
            }
        }
        _ if no == 0 => {}
        _ => {
            let op = rng.below(no);
            let op = &mut f.ops[op];
            match rng.below(9) {
                0 => op.code = OPS[rng.below(OPS.len())].code,
                1 => op.operands.push(value),
                2 => op.results.push(value),
                3 => op.regions.push(region),
                4 => {
                    op.operands.pop();
                }
                5 => {
                    op.results.pop();
                }
                6 => {
                    op.regions.pop();
                }
                7 => {
                    let n = op.operands.len();
                    if let Some(v) = op.operands.get_mut(rng.below(n)) {
                        *v = value;
                    }
                }
                _ => corrupt_attr(op, rng, wild),
            }
        }
    }
}

fn corrupt_attr(op: &mut Op, rng: &mut Rng, wild: i64) {
    let names: Vec<&'static str> = OPS.iter().flat_map(|d| d.attrs).map(|a| a.name).collect();
    let own: Vec<&'static str> = op.attrs.keys().copied().collect();
    let name = if rng.chance(70) { rng.pick(&own) } else { rng.pick(&names) };
    let value = match rng.below(8) {
        0 => Attr::Int(wild),
        1 => Attr::Float(f64::NAN),
        2 => Attr::Dim(Dim::from(wild)),
        3 => Attr::Dims(vec![Dim::from(wild), Dim::symbol("Q")]),
        4 => Attr::Ints(vec![wild, 0, 0]),
        5 => Attr::Bool(rng.chance(50)),
        6 => Attr::Str("a b, c -> d".to_owned()),
        _ => Attr::Keeps(vec![Keep { axis: wild as usize, at: Some(vec![wild]) }]),
    };
    if let Some(name) = name {
        if rng.chance(20) {
            op.attrs.remove(name);
        } else {
            op.attrs.insert(name, value);
        }
    }
}

fn corrupt_text(text: &mut Vec<char>, rng: &mut Rng) {
    let at = rng.below(text.len());
    let bits: Vec<char> = "%()[]{},:=+-*.;\"\\ \n0189aNé".chars().collect();
    match rng.below(5) {
        0 => {
            text.remove(at);
        }
        1 => text.insert(at, bits[rng.below(bits.len())]),
        2 => text[at] = bits[rng.below(bits.len())],
        3 => {
            let to = (at + rng.below(60)).min(text.len());
            let part: Vec<char> = text[at..to].to_vec();
            let into = rng.below(text.len());
            text.splice(into..into, part);
        }
        _ => {
            let to = (at + rng.below(60)).min(text.len());
            text.drain(at..to);
        }
    }
    if text.is_empty() {
        text.push('x');
    }
}
