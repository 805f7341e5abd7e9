//! Whatever the shape functions let through evaluates or is refused, without a panic.

mod interp_support;

use interp_support::*;
use proptest::prelude::*;
use spinec_ir::interp::Mode;
use spinec_ir::ir::{Attr, Attrs, ValueId};
use spinec_ir::ops::{AttrKind, OPS, OpDef};
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::{DType, Dim, StateKind};

/// Extents are mostly taken from a few, so that operands often fit each other.
fn shape(numbers: &mut Numbers, common: &[usize]) -> Vec<usize> {
    let rank = numbers.below(5) as usize;
    (0..rank).map(|i| if numbers.below(8) == 0 { numbers.below(3) as usize } else { common[i] }).collect()
}

/// Any value of the dtype, the awkward ones included.
fn tensor(numbers: &mut Numbers, dtype: DType, shape: &[usize]) -> Tensor {
    let mut t = numbers.tensor(if dtype == DType::F8E4M3 { DType::U8 } else { dtype }, shape);
    t.dtype = dtype;
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e30, 3.0];
    match &mut t.data {
        Data::F64(v) => v.iter_mut().for_each(|x| {
            if numbers.below(4) == 0 {
                *x = special[numbers.below(7) as usize]
            }
        }),
        Data::F32(v) if dtype == DType::F32 => v.iter_mut().for_each(|x| {
            if numbers.below(4) == 0 {
                *x = special[numbers.below(7) as usize] as f32
            }
        }),
        Data::F32(_) => {}
        Data::I32(v) => v.iter_mut().for_each(|x| {
            *x = [numbers.below(5) as i32 - 1, i32::MIN, i32::MAX, numbers.bits() as i32][numbers.below(4) as usize]
        }),
        Data::U8(v) => v.iter_mut().for_each(|x| *x = numbers.bits() as u8),
        Data::Bool(v) => v.iter_mut().for_each(|x| *x = numbers.below(2) == 0),
    }
    t
}

fn attributes(numbers: &mut Numbers, def: &OpDef, common: &[usize]) -> Attrs {
    let mut small = |n: u64, from: i64| numbers.below(n) as i64 + from;
    let mut out = Attrs::new();
    for a in def.attrs {
        let value = match a.kind {
            AttrKind::Int => Attr::Int(small(7, -3)),
            AttrKind::Float => Attr::Float([0.0, 1.0, 1e-6, -2.5, 1e4][small(5, 0) as usize]),
            AttrKind::Bool => Attr::Bool(small(2, 0) == 0),
            AttrKind::Str if a.name == "frequencies" => {
                Attr::Str(["bf16", "f64", "i32", ""][small(4, 0) as usize].into())
            }
            AttrKind::Str => {
                let specs =
                    ["a b c, a b d -> c d", "a b -> b", "a, a ->", "a b, b -> a", "a b c d, a d -> c", "a, b -> b a"];
                Attr::Str(specs[small(6, 0) as usize].into())
            }
            AttrKind::Dim => Attr::Dim(Dim::from(small(5, -1))),
            AttrKind::Dims => {
                let n = small(4, 0) as usize;
                Attr::Dims((0..n).map(|i| Dim::from(if small(4, 0) == 0 { -1 } else { common[i] as i64 })).collect())
            }
            AttrKind::Ints => {
                let n = small(4, 0);
                let turn = small(4, 0);
                Attr::Ints((0..n).map(|i| (i + turn) % n.max(1)).collect())
            }
            AttrKind::DType => Attr::DType(DType::ALL[small(8, 0) as usize]),
            AttrKind::Keeps => Attr::Keeps(vec![]),
        };
        out.insert(a.name, value);
    }
    out
}

/// One random call; true if the shape function let it through and it was evaluated.
fn attempt(def: &OpDef, seed: u64) -> bool {
    let mut numbers = Numbers(seed);
    let common: Vec<usize> = (0..5).map(|_| numbers.below(4) as usize).collect();
    let mut g = Graph::default();
    let d = |i: usize| Dim::from(common[i] as i64);
    let kinds = [
        StateKind::KvPool { heads: d(2), width: d(3) },
        StateKind::Recurrent { shape: vec![d(2), d(3), d(3)] },
        StateKind::Window { channels: d(2), taps: Dim::from(common[3] as i64 + 1) },
    ];
    let states: Vec<_> = kinds.into_iter().map(|k| g.state("s", k, DType::F32, &[])).collect();
    let variadic = def.operands.iter().any(|o| o.variadic);
    let count = if variadic { numbers.below(3) as usize } else { def.operands.len() };
    let required = def.operands.iter().filter(|o| !o.optional).count();
    let count = if !variadic && numbers.below(2) == 0 { required } else { count };
    let dtypes = [DType::F64, DType::F32, DType::BF16, DType::I32, DType::I32, DType::Bool, DType::U8, DType::F8E4M3];
    let (mut tensors, mut operands): (Vec<Tensor>, Vec<ValueId>) = (vec![], vec![]);
    for i in 0..count {
        let name = def.operands.get(i).map_or("parts", |o| o.name);
        let state = match name {
            "kv" => Some(0),
            "state" => Some(1),
            "window" => Some(2),
            _ => None,
        };
        if let Some(s) = state {
            operands.push(g.open(states[s], None));
            continue;
        }
        let dtype = match name {
            "at" | "rows" | "index" | "i" | "positions" | "seed" | "anchor" | "top_k" => DType::I32,
            "cond" => DType::Bool,
            _ => dtypes[numbers.below(8) as usize],
        };
        let shape = match name {
            "at" | "positions" if numbers.below(2) == 0 => common[..2].to_vec(),
            "rows" | "anchor" | "temperature" | "top_k" | "top_p" => common[..1].to_vec(),
            "seed" => vec![common[0], 2],
            "q" | "k" | "v" => common[..4].to_vec(),
            "decay" | "beta" => common[..3].to_vec(),
            "taps" => vec![common[2], common[3] + 1],
            _ => shape(&mut numbers, &common),
        };
        let t = tensor(&mut numbers, dtype, &shape);
        let dims = shape.iter().map(|e| Dim::from(*e as i64)).collect();
        operands.push(g.input("x", spinec_ir::ty::TensorType::new(dtype, dims)));
        tensors.push(t);
    }
    let at = attributes(&mut numbers, def, &common);
    let Some(results) = g.try_op(def.code, &operands, at) else { return false };
    for r in results {
        if g.func.ty(r).is_state() { g.close(r) } else { g.output(r) }
    }
    let mut requests: Vec<_> = (0..common[0]).map(|_| g.request()).collect();
    let mode = if seed.is_multiple_of(2) { Mode::Immediate } else { Mode::Tentative };
    // Refusing is fine, panicking is not.
    let evaluated = g.run_with(&tensors, &mut requests, mode).is_ok();
    requests.iter_mut().for_each(|r| {
        let _ = r.commit(1);
        r.export();
    });
    evaluated
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_call_panics(seed in any::<u64>()) {
        for def in OPS {
            attempt(def, seed);
        }
    }
}

/// The property above says nothing about an op whose random calls are never evaluated.
#[test]
fn random_calls_reach_every_op() {
    use spinec_ir::ops::Opcode::*;
    for def in OPS.iter().filter(|d| !matches!(d.code, Weight | StateOpen | StateClose | Loop | Cases | Guarded)) {
        assert!((0..3000).any(|seed| attempt(def, seed)), "{}", def.name);
    }
}
