//! Streamed constants against the same constants made whole.

use super::super::consts::{Origin, Shared, Src, Val};
use super::super::elements::Elements;
use super::super::emit::{Call, Emitter};
use super::super::instr::Packed;
use super::Streaming;
use super::graph::{Feed, Graph, How};
use crate::kernels::gemm::linear;
use proptest::prelude::*;
use spinec_ir::interp::WeightStore;
use spinec_ir::ir::{Attr, Attrs, Module, Weight, WeightId, text};
use spinec_ir::ops::Opcode::{self, *};
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::{DType, Dim};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const F32: DType = DType::F32;

/// A generator of test data: xorshift64*.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }
}

/// Weights [19, 12], [12], [5, 6, 4] and [19, 1] that count how they are read.
struct Store {
    weights: Vec<Weight>,
    /// Entries read from first axes.
    entries: Arc<AtomicUsize>,
    /// From this entry on a range cannot be read.
    broken_at: Arc<AtomicUsize>,
}

const WEIGHTS: &str = r#"spinec-ir 1
module "m" numerics=f32

weight 0 "table" : f32[19, 12]
weight 1 "scale" : f32[12]
weight 2 "cube" : f32[5, 6, 4]
weight 3 "column" : bf16[19, 1]
"#;

impl WeightStore for Store {
    fn weight(&self, id: WeightId, _: &[i64]) -> Result<Tensor, String> {
        let w = &self.weights[id.index()];
        let shape = crate::weights::shape(w).ok_or("a shape")?;
        let mut rng = Rng(7 + id.index() as u64);
        let n: usize = shape.iter().product();
        let x = (0..n).map(|_| (rng.below(513) as f32 - 256.0) / 128.0).collect();
        let t = Tensor::new(F32, shape, Data::F32(x)).ok_or("it fills its shape")?;
        t.cast(w.ty.dtype).ok_or_else(|| "it casts".into())
    }

    fn rows(&self, id: WeightId, index: &[i64], rows: Range<usize>) -> Result<Tensor, String> {
        self.entries.fetch_add(rows.len(), Ordering::Relaxed);
        if rows.end > self.broken_at.load(Ordering::Relaxed) {
            return Err("the disk is gone".into());
        }
        self.weight(id, index)?.rows(rows).ok_or_else(|| "no such rows".into())
    }
}

struct Bench {
    shared: Shared,
    entries: Arc<AtomicUsize>,
    broken_at: Arc<AtomicUsize>,
}

fn bench(streaming: Streaming) -> Bench {
    let module: Module = text::parse(WEIGHTS).unwrap_or_else(|e| panic!("{:?}", e.first()));
    let entries = Arc::new(AtomicUsize::new(0));
    let broken_at = Arc::new(AtomicUsize::new(usize::MAX));
    let store = Store { weights: module.weights.clone(), entries: entries.clone(), broken_at: broken_at.clone() };
    let mut shared = Shared::new(&module.weights, Box::new(store), 2);
    shared.streaming = streaming;
    Bench { shared, entries, broken_at }
}

fn by(rows: usize) -> Streaming {
    Streaming::by_rows(NonZeroUsize::new(rows).expect("some rows"))
}

fn attrs(list: &[(&'static str, Attr)]) -> Attrs {
    let mut out = Attrs::default();
    for (name, attr) in list {
        out.insert(name, attr.clone());
    }
    out
}

type Results = Vec<(DType, Vec<usize>)>;

fn op(shared: &mut Shared, code: Opcode, a: &[(&'static str, Attr)], operands: &[&Val], results: Results) -> Vec<Val> {
    let operands: Vec<Val> = operands.iter().map(|v| (*v).clone()).collect();
    let attrs = attrs(a);
    let call = Call { code, attrs: &attrs, operands: &operands, results: &results };
    Emitter::new(shared).op(&call).unwrap_or_else(|e| panic!("{}: {e}", code.name()))
}

/// Bits, every NaN as one.
fn bits(e: &Elements) -> Vec<u64> {
    match e {
        Elements::F32(v) => v.iter().map(|x| if x.is_nan() { u64::MAX } else { u64::from(x.to_bits()) }).collect(),
        Elements::F64(v) => v.iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect(),
        Elements::I32(v) => v.iter().map(|x| *x as u64).collect(),
        Elements::U8(v) => v.iter().map(|x| u64::from(*x)).collect(),
    }
}

/// Products of fixed rows with the packed form, which are bits of its elements.
fn through_packed(shared: &mut Shared, v: &Val) -> Vec<u32> {
    let [outputs, inputs] = *v.view.shape else { return Vec::new() };
    match shared.packed(v, false).unwrap_or_else(|e| panic!("{e}")) {
        Packed::F64(_) => panic!("an f32 form was asked for"),
        Packed::F32(p) => {
            let x: Vec<f32> = (0..3 * inputs).map(|i| (i % 11) as f32 - 4.5).collect();
            let mut y = vec![0.0; 3 * outputs];
            linear(&shared.pool, &x, inputs, 3, &p, &mut y, outputs);
            y.iter().map(|y| if y.is_nan() { u32::MAX } else { y.to_bits() }).collect()
        }
    }
}

/// Ops at random on weights and on what they gave; the same for the same seed.
fn grow(shared: &mut Shared, seed: u64, steps: usize) -> Vec<Val> {
    let rng = &mut Rng(seed | 1);
    let mut vals: Vec<Val> =
        (0..4).map(|i| shared.weight(WeightId(i), &[]).unwrap_or_else(|e| panic!("{e}"))).collect();
    let index = shared.value(&Tensor::i32(vec![4], vec![3, 0, 9, 1]));
    for _ in 0..steps {
        let recent = vals.len() - rng.below(vals.len().min(6)) - 1;
        let x = vals[recent].clone();
        let made = random_op(shared, rng, &x, &vals, &index);
        let small = |v: &Val| v.view.len() <= 4096 && v.view.len() > 0 && v.view.shape.len() <= 4;
        vals.extend(made.into_iter().filter(small));
    }
    vals
}

fn random_op(shared: &mut Shared, rng: &mut Rng, x: &Val, vals: &[Val], index: &Val) -> Vec<Val> {
    let shape = x.view.shape.clone();
    let (rank, dtype) = (shape.len(), x.dtype);
    if rank == 0 || !dtype.is_float() || dtype == DType::F8E4M3 {
        return op(shared, Cast, &[("dtype", Attr::DType(F32))], &[x], vec![(F32, shape)]);
    }
    let axis = rng.below(rank);
    let at = ("axis", Attr::Int(axis as i64));
    let last = shape[rank - 1];
    let with = |axis: usize, n: usize| {
        let mut s = shape.clone();
        s[axis] = n;
        s
    };
    let without = |axis: usize| {
        let mut s = shape.clone();
        s.remove(axis);
        s
    };
    match rng.below(25) {
        0 => op(shared, [Exp, Neg, Sigmoid, Abs][rng.below(4)], &[], &[x], vec![(dtype, shape)]),
        1 | 2 => {
            let y = vals.iter().rev().find(|y| {
                y.dtype.is_float()
                    && y.dtype != DType::F8E4M3
                    && !std::ptr::eq(*y, x)
                    && y.view.broadcast(&shape).is_some()
                    && (rng.below(2) == 0 || y.view.shape != shape)
            });
            let y = y.unwrap_or(x).clone();
            op(shared, [Add, Mul, Div, Maximum][rng.below(4)], &[], &[x, &y], vec![(F32, shape)])
        }
        3 => {
            let to = [F32, DType::BF16, DType::F64][rng.below(3)];
            op(shared, Cast, &[("dtype", Attr::DType(to))], &[x], vec![(to, shape)])
        }
        4 | 5 => {
            let mut axes: Vec<i64> = (0..rank as i64).collect();
            axes.rotate_left(1 + rng.below(rank));
            let to = axes.iter().map(|a| shape[*a as usize]).collect();
            op(shared, Transpose, &[("axes", Attr::Ints(axes))], &[x], vec![(dtype, to)])
        }
        6 => {
            let start = rng.below(shape[axis]);
            let len = 1 + rng.below(shape[axis] - start);
            let dim = |n: usize| Attr::Dim(Dim::from(n as i64));
            let a = [at, ("start", dim(start)), ("len", dim(len))];
            op(shared, Slice, &a, &[x], vec![(dtype, with(axis, len))])
        }
        7 | 8 => {
            let n = shape[axis];
            let divisor = (2..=n).find(|d| n.is_multiple_of(*d)).unwrap_or(1);
            let mut to = shape.clone();
            if rng.below(2) == 0 && rank > 1 {
                let at = axis.min(rank - 2);
                to[at] *= to.remove(at + 1);
            } else {
                to[axis] = n / divisor;
                to.insert(axis + 1, divisor);
            }
            let dims = to.iter().map(|n| Dim::from(*n as i64)).collect();
            op(shared, Reshape, &[("dims", Attr::Dims(dims))], &[x], vec![(dtype, to)])
        }
        9 | 10 => {
            let code = [Sum, Mean, ReduceMax, ReduceMin, Rms, Norm2][rng.below(6)];
            let keep = rng.below(2) == 0;
            let to = if keep { with(axis, 1) } else { without(axis) };
            op(shared, code, &[at, ("keep", Attr::Bool(keep))], &[x], vec![(dtype, to)])
        }
        11 | 12 => {
            let fits = |y: &&Val| {
                y.dtype.is_float()
                    && y.view.shape.len() == rank
                    && (0..rank).all(|a| a == axis || y.view.shape[a] == shape[a])
            };
            let fits = |y: &&Val| fits(y) && y.dtype != DType::F8E4M3;
            let y = vals.iter().rev().find(fits).unwrap_or(x).clone();
            let to = with(axis, shape[axis] + y.view.shape[axis]);
            op(shared, Concat, &[at], &[x, &y], vec![(F32, to)])
        }
        13 => op(shared, [Softmax, Cumsum, Cumprod][rng.below(3)], &[at], &[x], vec![(dtype, shape)]),
        14 | 15 => {
            let fits = |w: &&Val| w.dtype.is_float() && w.view.shape.len() == 2 && w.view.shape[1] == last;
            let w = vals.iter().rev().find(|w| fits(w) && rng.below(2) == 0).cloned();
            let w = w.or_else(|| vals.iter().find(fits).cloned()).filter(|w| w.dtype != DType::F8E4M3);
            let Some(w) = w else { return Vec::new() };
            let to = with(rank - 1, w.view.shape[0]);
            op(shared, Linear, &[("acc", Attr::DType(F32))], &[x, &w], vec![(F32, to)])
        }
        16 if rank == 2 => {
            let (spec, to) = [
                ("a b, c b -> a c", vec![shape[0], shape[0]]),
                ("a b, a b -> b a", vec![shape[1], shape[0]]),
                ("a b, a c -> b c", vec![shape[1], shape[1]]),
                ("a b, a b -> a", vec![shape[0]]),
            ][rng.below(4)]
            .clone();
            let a = [("spec", Attr::Str(spec.into())), ("acc", Attr::DType(F32))];
            op(shared, Einsum, &a, &[x, x], vec![(F32, to)])
        }
        17 => {
            let eps = ("eps", Attr::Float(1e-6));
            let weight = vals.iter().find(|w| w.view.shape == [last] && w.dtype == F32).cloned();
            match weight {
                Some(w) => op(shared, RmsNorm, &[eps], &[x, &w], vec![(dtype, shape)]),
                None => op(shared, L2Norm, &[eps], &[x], vec![(dtype, shape)]),
            }
        }
        18 => {
            let a = [("by", Attr::Int(rng.below(5) as i64 - 2)), at, ("fill", Attr::Float(0.5))];
            op(shared, Shift, &a, &[x], vec![(dtype, shape)])
        }
        19 => {
            let index = match axis {
                0 => index.clone(),
                _ => return Vec::new(),
            };
            let to = [&[4], &shape[1..]].concat();
            op(shared, Take, &[at], &[x, &index], vec![(dtype, to)])
        }
        20 if rank == 2 => {
            let to = vec![(DType::F8E4M3, shape.clone()), (F32, vec![shape[0]])];
            op(shared, QuantizeRows, &[], &[x], to)
        }
        21 if rank > 2 => {
            let at = numbers(shared, rng, &shape[..rank - 2], 50);
            let held = Attr::Str("bf16".into());
            let attrs = [("base", Attr::Float(100.0)), ("width", Attr::Int(0)), ("frequencies", held)];
            op(shared, Rope, &attrs, &[x, &at], vec![(F32, shape)])
        }
        22 => {
            let lead = &shape[..rank - 1];
            let index = numbers(shared, rng, &[lead, &[3]].concat(), last);
            let updates =
                op(shared, Cast, &[("dtype", Attr::DType(F32))], &[&index], vec![(F32, index.view.shape.clone())]);
            op(shared, ScatterAdd, &[], &[x, &index, &updates[0]], vec![(dtype, shape)])
        }
        23 => {
            let index = op(shared, Argmax, &[at], &[x], vec![(DType::I32, without(axis))]).remove(0);
            let to = [index.view.shape.as_slice(), &[5]].concat();
            op(shared, OneHot, &[("n", Attr::Dim(Dim::from(5)))], &[&index], vec![(DType::F64, to)])
        }
        _ => {
            let k = 1 + rng.below(last);
            let to = with(rank - 1, k);
            let a = [("k", Attr::Dim(Dim::from(k as i64)))];
            let best = op(shared, TopK, &a, &[x], vec![(dtype, to.clone()), (DType::I32, to)]);
            let arg = op(shared, Argmax, &[("axis", Attr::Int(axis as i64))], &[x], vec![(DType::I32, without(axis))]);
            [best, arg, op(shared, Sort, &[], &[x], vec![(dtype, shape)])].concat()
        }
    }
}

/// A constant of integers below `n`.
fn numbers(shared: &mut Shared, rng: &mut Rng, shape: &[usize], n: usize) -> Val {
    let len = shape.iter().product();
    shared.value(&Tensor::i32(shape.to_vec(), (0..len).map(|_| rng.below(n) as i32).collect()))
}

/// The test of random derivations meets every op that streams but one, which a test of its own is for.
#[test]
fn random_derivations_stream_every_kind_of_op() {
    let mut met = std::collections::BTreeSet::new();
    let mut joined = false;
    for seed in 0..200 {
        let mut b = bench(by(3));
        for v in grow(&mut b.shared, 2 * seed + 1, 16) {
            for node in Graph::of(&b.shared.consts, &v).iter().flat_map(|g| &g.nodes) {
                joined |= matches!(node.how, How::Join(..));
                if let (How::Op(_), Origin::Derived { code, .. }) =
                    (&node.how, &b.shared.consts[node.id as usize].origin)
                {
                    met.insert(*code);
                }
            }
        }
    }
    let all = [
        Exp,
        Cast,
        Add,
        Mul,
        Concat,
        Shift,
        Take,
        OneHot,
        ScatterAdd,
        Sort,
        Sum,
        Mean,
        ReduceMax,
        ReduceMin,
        Rms,
        Norm2,
        Cumsum,
        Cumprod,
        Argmax,
        TopK,
        Softmax,
        Linear,
        Einsum,
        RmsNorm,
        L2Norm,
        Rope,
        QuantizeRows,
    ];
    let missing: Vec<_> = all.into_iter().filter(|code| !met.contains(code)).collect();
    assert!(missing.is_empty() && joined, "{missing:?} {joined}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_derivation_has_the_bits_of_the_whole_form(seed: u64, steps in 4usize..24) {
        let mut whole = bench(Streaming::off());
        let want = grow(&mut whole.shared, seed, steps);
        for rows in [1, 3, 7] {
            let mut streamed = bench(by(rows));
            let vals = grow(&mut streamed.shared, seed, steps);
            prop_assert_eq!(&vals, &want);
            for v in &vals {
                let got = streamed.shared.viewed(v).map_err(TestCaseError::fail)?;
                let want = whole.shared.viewed(v).map_err(TestCaseError::fail)?;
                prop_assert_eq!(bits(&got), bits(&want), "{} rows of {}", rows, v.key());
                if v.view.shape.len() == 2 && v.dtype != DType::I32 {
                    let got = through_packed(&mut streamed.shared, v);
                    prop_assert_eq!(got, through_packed(&mut whole.shared, v), "packed {}", v.key());
                }
            }
        }
    }
}

/// A chain as heads are derived by: table [19, 12] times scale [12], times the transpose of itself, rounded.
fn chain(shared: &mut Shared) -> Val {
    let table = shared.weight(WeightId(0), &[]).expect("it exists");
    let scale = shared.weight(WeightId(1), &[]).expect("it exists");
    let scaled = op(shared, Mul, &[], &[&table, &scale], vec![(F32, vec![19, 12])]).remove(0);
    let square = op(shared, Linear, &[("acc", Attr::DType(F32))], &[&scaled, &table], vec![(F32, vec![19, 19])]);
    op(shared, Cast, &[("dtype", Attr::DType(DType::BF16))], &[&square[0]], vec![(DType::BF16, vec![19, 19])]).remove(0)
}

#[test]
fn a_chain_streams_from_its_weights_on() {
    let mut b = bench(by(4));
    let v = chain(&mut b.shared);
    let graph = Graph::of(&b.shared.consts, &v).expect("it streams");
    assert!(matches!(graph.nodes[0].how, How::Read));
    // Table, product, linear map with the table whole, rounding.
    assert_eq!(graph.nodes.len(), 4);
    let whole = graph.nodes.iter().filter_map(|n| match &n.how {
        How::Op(feeds) => Some(feeds.iter().filter(|f| matches!(f, Feed::All(_))).count()),
        _ => None,
    });
    assert_eq!(whole.sum::<usize>(), 2, "the scale and the table as a factor");
    b.shared.packed(&v, false).expect("it is made");
    assert_eq!(b.entries.load(Ordering::Relaxed), 19, "rows are read once each");
    let kept = b.shared.consts.iter().filter(|c| c.plain.is_some()).count();
    assert_eq!(kept, 0, "only the form is kept");
}

#[test]
fn an_error_of_the_store_names_the_weight_and_leaves_nothing() {
    let mut want = bench(Streaming::off());
    let v = chain(&mut want.shared);
    let want = bits(&want.shared.viewed(&v).expect("it is made"));
    let mut b = bench(by(4));
    let v = chain(&mut b.shared);
    b.broken_at.store(10, Ordering::Relaxed);
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hear = heard.clone();
    b.shared.name(&v, "made");
    b.shared.progress =
        Some(Box::new(move |p| hear.lock().expect("unpoisoned").push((p.name.to_owned(), p.done, p.rows))));
    for error in [b.shared.packed(&v, false).err(), b.shared.bf16_table(&v).err(), b.shared.viewed(&v).err()] {
        assert_eq!(error.as_deref(), Some("weight `table` at []: the disk is gone"));
    }
    let Src::Const(id) = v.src else { panic!("a constant") };
    assert!(b.shared.plain(id).is_err());
    assert!(b.shared.packed.is_empty() && b.shared.tables.is_empty());
    assert!(b.shared.consts.iter().all(|c| c.plain.is_none()));
    assert_eq!(heard.lock().expect("unpoisoned")[..3], [0, 4, 8].map(|done| ("made".to_owned(), done, 19)));
    b.broken_at.store(usize::MAX, Ordering::Relaxed);
    assert_eq!(bits(&b.shared.viewed(&v).expect("the disk is back")), want);
    assert_eq!(heard.lock().expect("unpoisoned").last(), Some(&("made".to_owned(), 19, 19)));
}

#[test]
fn what_cannot_be_streamed_is_made_whole() {
    for rows in [1, 3, 7] {
        let (mut a, mut b) = (bench(Streaming::off()), bench(by(rows)));
        let make = |shared: &mut Shared| {
            let table = shared.weight(WeightId(0), &[]).expect("it exists");
            let axis = ("axis", Attr::Int(0));
            let sums = op(shared, Cumsum, &[axis], &[&table], vec![(F32, vec![19, 12])]).remove(0);
            let both = op(shared, Add, &[], &[&sums, &table], vec![(F32, vec![19, 12])]).remove(0);
            (sums, both)
        };
        let (sums, both) = make(&mut a.shared);
        let want = [bits(&a.shared.viewed(&sums).expect("sums")), bits(&a.shared.viewed(&both).expect("both"))];
        let (sums, both) = make(&mut b.shared);
        assert!(Graph::of(&b.shared.consts, &sums).is_none());
        let graph = Graph::of(&b.shared.consts, &both).expect("its own op streams");
        let How::Op(feeds) = &graph.nodes[graph.nodes.len() - 1].how else { panic!("an op") };
        assert!(matches!(feeds.as_slice(), [Feed::Cut(..), Feed::Part { .. }]), "{feeds:?}");
        assert_eq!([bits(&b.shared.viewed(&sums).expect("sums")), bits(&b.shared.viewed(&both).expect("both"))], want);
    }
}

#[test]
fn a_reshape_that_copies_streams_where_rows_survive() {
    let make = |shared: &mut Shared| {
        let cube = shared.weight(WeightId(2), &[]).expect("it exists");
        let axes = Attr::Ints(vec![1, 2, 0]);
        let turned = op(shared, Transpose, &[("axes", axes)], &[&cube], vec![(F32, vec![6, 4, 5])]).remove(0);
        let dims = Attr::Dims(vec![Dim::from(6), Dim::from(20)]);
        op(shared, Reshape, &[("dims", dims)], &[&turned], vec![(F32, vec![6, 20])]).remove(0)
    };
    let (mut a, mut b) = (bench(Streaming::off()), bench(by(4)));
    let v = make(&mut b.shared);
    let graph = Graph::of(&b.shared.consts, &v).expect("rows survive");
    assert!(matches!(graph.nodes[0].how, How::Op(_)));
    let want = make(&mut a.shared);
    let want = bits(&a.shared.viewed(&want).expect("it is made"));
    assert_eq!(bits(&b.shared.viewed(&v).expect("it is made")), want);
}

#[test]
fn small_results_of_the_same_op_are_made_along() {
    let mut b = bench(Streaming { direct: 19 * 4, ..by(4) });
    let table = b.shared.weight(WeightId(0), &[]).expect("it exists");
    let results = vec![(DType::F8E4M3, vec![19, 12]), (F32, vec![19])];
    let [codes, scales] = op(&mut b.shared, QuantizeRows, &[], &[&table], results).try_into().expect("two results");
    b.shared.packed(&codes, false).expect("it is made");
    let read = b.entries.load(Ordering::Relaxed);
    let got = bits(&b.shared.viewed(&scales).expect("it is there"));
    assert_eq!(b.entries.load(Ordering::Relaxed), read, "the table is not read again");
    let mut whole = bench(Streaming::off());
    let table = whole.shared.weight(WeightId(0), &[]).expect("it exists");
    let results = vec![(DType::F8E4M3, vec![19, 12]), (F32, vec![19])];
    let want = op(&mut whole.shared, QuantizeRows, &[], &[&table], results).remove(1);
    assert_eq!(got, bits(&whole.shared.viewed(&want).expect("it is made")));
}

#[test]
fn small_constants_take_the_direct_way() {
    let mut b = bench(Streaming::default());
    let v = chain(&mut b.shared);
    b.shared.packed(&v, false).expect("it is made");
    assert_eq!(b.entries.load(Ordering::Relaxed), 0);
    let s = Streaming::default();
    assert_eq!(s.step(1000, s.direct / 1000), None);
    assert_eq!(s.step(1 << 20, 1 << 10), Some((s.transient >> 10) as usize / 64 * 64));
    assert_eq!(s.step(1 << 20, s.transient * 2), Some(1));
}
