//! States: rows kept or not, in pieces or at once, padding, windows, poison.

mod interp_support;

use interp_support::*;
use spinec_ir::interp::{Mode, RequestState};
use spinec_ir::ir::{Attr, Attrs};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::{DType, Dim, StateKind};

/// One layer of each kind of state in a loop over two layers: rows x [N, T, 8] at positions `at`; every state feeds the
/// output. `window` and `causal` are those of the attention.
fn layers(dtype: DType, causal: bool, window: i64) -> Graph {
    let mut g = Graph::default();
    let kv = g.state("kv", StateKind::KvPool { heads: dim("2"), width: dim("2") }, dtype, &[0, 1]);
    let delta = g.state("delta", StateKind::Recurrent { shape: dims("2 2 2") }, DType::F32, &[0, 1]);
    let conv = g.state("conv", StateKind::Window { channels: dim("8"), taps: dim("4") }, dtype, &[1, 0]);
    let x = g.input("x", ty(dtype, "N T 8"));
    let (at, rows) = (g.input("at", ty(DType::I32, "N T")), g.input("rows", ty(DType::I32, "N")));
    let taps = g.input("taps", ty(dtype, "8 4"));
    let out = g.repeat("layers", Dim::from(2), &[x], vec![], |g, l, c| {
        let s = g.open(conv, Some(l));
        let mixed = g.ops(Opcode::CausalConv, &[s, c[0], taps, rows], Attrs::new());
        g.close(mixed[1]);
        let part = |g: &mut Graph, start: i64, len: i64, to: &str| {
            let at = attrs([
                ("axis", Attr::Int(2)),
                ("start", Attr::Dim(Dim::from(start))),
                ("len", Attr::Dim(Dim::from(len))),
            ]);
            let p = g.op(Opcode::Slice, &[mixed[0]], at);
            g.op(Opcode::Reshape, &[p], attrs([("dims", Attr::Dims(dims(to)))]))
        };
        let (a, b) = (part(g, 0, 4, "N T 2 2"), part(g, 4, 4, "N T 2 2"));
        let (beta, decay) = (part(g, 2, 2, "N T 2"), part(g, 6, 2, "N T 2"));
        let beta = g.op(Opcode::Sigmoid, &[beta], Attrs::new());
        let decay = g.op(Opcode::Softplus, &[decay], Attrs::new());
        let decay = g.op(Opcode::Neg, &[decay], Attrs::new());
        let s = g.open(delta, Some(l));
        let o = g.ops(Opcode::DeltaRule, &[s, a, b, a, decay, beta, rows], Attrs::new());
        g.close(o[1]);
        let s = g.open(kv, Some(l));
        let s = g.op(Opcode::KvWrite, &[s, a, b, at, rows], Attrs::new());
        let how = attrs([("causal", Attr::Bool(causal)), ("window", Attr::Int(window)), ("scale", Attr::Float(0.7))]);
        let y = g.op(Opcode::Attention, &[b, s, at, rows], how);
        g.close(s);
        let both = g.op(Opcode::Concat, &[o[0], y], axis(2));
        let both = g.op(Opcode::Reshape, &[both], attrs([("dims", Attr::Dims(dims("N T 8")))]));
        let both = g.op(Opcode::Cast, &[both], attrs([("dtype", Attr::DType(dtype))]));
        (vec![both], vec![])
    });
    g.output(out[0]);
    g
}

struct Case {
    graph: Graph,
    taps: Tensor,
}

impl Case {
    fn new(dtype: DType, causal: bool, window: i64) -> Case {
        Case { graph: layers(dtype, causal, window), taps: Numbers(9).tensor(dtype, &[8, 4]) }
    }

    /// Feeds rows of one request that begin at its committed length.
    fn feed(&self, x: &Tensor, state: &mut RequestState, mode: Mode) -> Tensor {
        let start = state.len() as i32;
        let t = x.shape[1];
        let at = i32s(&[1, t], &(start..start + t as i32).collect::<Vec<i32>>());
        let inputs = [x.clone(), at, i32s(&[1], &[t as i32]), self.taps.clone()];
        self.graph.run_with(&inputs, std::slice::from_mut(state), mode).unwrap().remove(0)
    }
}

fn no_nan(t: &Tensor) -> bool {
    t.to_f64().iter().all(|x| !x.is_nan())
}

const DTYPES: [DType; 3] = [DType::F64, DType::F32, DType::BF16];

#[test]
fn every_committed_prefix_equals_recomputation() {
    for dtype in DTYPES {
        let case = Case::new(dtype, true, 5);
        let mut numbers = Numbers(3);
        let (prompt, block, more) =
            (numbers.tensor(dtype, &[1, 7, 8]), numbers.tensor(dtype, &[1, 6, 8]), numbers.tensor(dtype, &[1, 3, 8]));
        for keep in 0..=6 {
            let mut spec = case.graph.request();
            case.feed(&prompt, &mut spec, Mode::Immediate);
            spec.commit(7).unwrap();
            let before = spec.export();
            let verified = case.feed(&block, &mut spec, Mode::Tentative);
            assert_eq!(spec.export(), before, "nothing moves before the commit");
            spec.commit(keep).unwrap();
            spec.poison_stale();

            let mut plain = case.graph.request();
            case.feed(&prompt, &mut plain, Mode::Immediate);
            plain.commit(7).unwrap();
            if keep > 0 {
                let kept = rows(&block, 0, keep);
                assert_eq!(case.feed(&kept, &mut plain, Mode::Immediate), rows(&verified, 0, keep));
                plain.commit(keep).unwrap();
            }
            assert_eq!(spec.export(), plain.export(), "{dtype}, {keep} rows");
            assert_eq!(spec.len(), 7 + keep);
            let next = case.feed(&more, &mut spec, Mode::Immediate);
            assert!(no_nan(&next));
            assert_eq!(next, case.feed(&more, &mut plain, Mode::Immediate));
        }
    }
}

#[test]
fn pieces_give_the_bits_of_the_whole() {
    for dtype in DTYPES {
        for window in [0, 4] {
            let case = Case::new(dtype, true, window);
            let x = Numbers(5).tensor(dtype, &[1, 11, 8]);
            let mut whole = case.graph.request();
            let want = case.feed(&x, &mut whole, Mode::Immediate);
            whole.commit(11).unwrap();
            assert!(no_nan(&want));
            for chunk in [1, 2, 3, 5, 8] {
                let mut state = case.graph.request();
                for start in (0..11).step_by(chunk) {
                    let end = (start + chunk).min(11);
                    let mode = if start % 2 == 0 { Mode::Immediate } else { Mode::Tentative };
                    let out = case.feed(&rows(&x, start, end), &mut state, mode);
                    assert_eq!(out, rows(&want, start, end), "{dtype}, {chunk} rows a piece");
                    state.commit(end - start).unwrap();
                }
                assert_eq!(state.export(), whole.export());
            }
        }
    }
}

#[test]
fn padding_rows_and_batch_mates_change_nothing() {
    let case = Case::new(DType::F32, true, 0);
    let x = Numbers(8).tensor(DType::F32, &[3, 5, 8]);
    let counts = [5usize, 2, 0];
    let run = |poison: f32, padded_at: i32, mode| {
        let mut x = x.clone();
        let Data::F32(values) = &mut x.data else { unreachable!("x is f32") };
        for (request, real) in counts.iter().enumerate() {
            values[(request * 5 + real) * 8..(request + 1) * 40].fill(poison);
        }
        let at: Vec<i32> =
            counts.iter().flat_map(|real| (0..5).map(|t| if t < *real as i32 { t } else { padded_at })).collect();
        let mut states = [case.graph.request(), case.graph.request(), case.graph.request()];
        let inputs = [x, i32s(&[3, 5], &at), i32s(&[3], &[5, 2, 0]), case.taps.clone()];
        let out = case.graph.run_with(&inputs, &mut states, mode).unwrap().remove(0);
        for (state, real) in states.iter_mut().zip(counts) {
            state.commit(real).unwrap();
        }
        (out, states)
    };
    let (want, states) = run(0.0, 0, Mode::Immediate);
    for (poison, padded_at, mode) in [
        (f32::NAN, 1, Mode::Immediate),
        (f32::INFINITY, -7, Mode::Tentative),
        (7.0, i32::MAX, Mode::Immediate),
        (f32::NAN, i32::MIN, Mode::Tentative),
    ] {
        let (out, others) = run(poison, padded_at, mode);
        for (request, real) in counts.iter().enumerate() {
            let own = |t| rows(&requests(t, request, request + 1), 0, *real);
            assert_eq!(own(&out), own(&want));
            assert_eq!(others[request].export(), states[request].export());
            assert!(others[request].export().iter().all(|(_, t)| no_nan(t)));
        }
    }
    // Each request alone.
    for (request, real) in counts.iter().enumerate() {
        let mut alone = case.graph.request();
        let own = rows(&requests(&x, request, request + 1), 0, *real);
        let out = case.feed(&own, &mut alone, Mode::Immediate);
        alone.commit(*real).unwrap();
        assert_eq!(out, rows(&requests(&want, request, request + 1), 0, *real));
        assert_eq!(alone.export(), states[request].export());
    }
}

#[test]
fn committing_more_rows_than_there_are_changes_nothing() {
    let case = Case::new(DType::F32, true, 0);
    let mut state = case.graph.request();
    case.feed(&Numbers(1).tensor(DType::F32, &[1, 3, 8]), &mut state, Mode::Tentative);
    let before = state.clone();
    assert!(state.commit(4).unwrap_err().to_string().contains("only 3"));
    assert_eq!(state, before);
    state.commit(3).unwrap();
    assert!(state.commit(usize::MAX).is_err());
}

#[test]
fn a_failed_run_leaves_the_states_alone() {
    let case = Case::new(DType::F32, true, 0);
    let mut state = [case.graph.request()];
    let before = state[0].clone();
    let x = Numbers(1).tensor(DType::F32, &[1, 3, 8]);
    for (at, rows, words) in
        [([0, 1, -2], 3, "position -2"), ([0, 1, 2], 4, "rows[0] is 4"), ([0, 1, 2], -1, "rows[0] is -1")]
    {
        let inputs = [x.clone(), i32s(&[1, 3], &at), i32s(&[1], &[rows]), case.taps.clone()];
        let e = case.graph.run_with(&inputs, &mut state, Mode::Immediate).unwrap_err();
        assert!(e.message.contains(words), "{e}");
        assert_eq!(state[0], before);
    }
    let inputs = [x, i32s(&[1, 3], &[0, 1, 2]), i32s(&[1], &[3]), case.taps.clone()];
    assert!(case.graph.run_with(&inputs, &mut [], Mode::Immediate).is_err());
    let mut two = [case.graph.request(), case.graph.request()];
    assert!(case.graph.run_with(&inputs, &mut two, Mode::Immediate).unwrap_err().message.contains("requests"));
    let mut foreign = [Graph::default().request()];
    assert!(
        case.graph.run_with(&inputs, &mut foreign, Mode::Immediate).unwrap_err().message.contains("another module")
    );
}

/// A pool that is only read: one head of width 1, written by the first function, read by the second.
fn reader(causal: bool, window: i64, ragged: bool) -> Graph {
    let mut g = Graph::default();
    let kv = g.state("kv", StateKind::KvPool { heads: dim("1"), width: dim("1") }, DType::F64, &[]);
    let (x, at) = (g.input("x", ty(DType::F64, "N T 1 1")), g.input("at", ty(DType::I32, "N T")));
    let rows = g.input("rows", ty(DType::I32, "N"));
    let s = g.open(kv, None);
    let s = g.op(Opcode::KvWrite, &[s, x, x, at, rows], Attrs::new());
    let how = attrs([("causal", Attr::Bool(causal)), ("window", Attr::Int(window)), ("scale", Attr::Float(0.0))]);
    let operands = if ragged { vec![x, s, at, rows] } else { vec![x, s, at] };
    let y = g.op(Opcode::Attention, &operands, how);
    g.close(s);
    g.output(y);
    g
}

/// With scale 0 the result of a row is the mean of the values it sees; the value at position j is 2^j.
fn seen(g: &Graph, context: i32, block: i32, real: i32) -> Vec<f64> {
    let mut state = [g.request()];
    let values = |from: i32, to: i32| -> Vec<f64> { (from..to).map(|j| 2f64.powi(j)).collect() };
    let feed = |state: &mut [RequestState; 1], from: i32, to: i32, real: i32| {
        let t = (to - from) as usize;
        let at: Vec<i32> = (from..to).collect();
        let inputs = [f64s(&[1, t, 1, 1], &values(from, to)), i32s(&[1, t], &at), i32s(&[1], &[real])];
        g.run_with(&inputs, state, Mode::Immediate).unwrap().remove(0).to_f64()
    };
    if context > 0 {
        feed(&mut state, 0, context, context);
    }
    feed(&mut state, context, context + block, real)
}

/// Equal up to the rounding of the weights.
fn assert_close(have: &[f64], want: &[f64]) {
    let near = have.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-14 * b.abs());
    assert!(have.len() == want.len() && near, "{have:?} against {want:?}");
}

fn mean(from: i32, to: i32) -> f64 {
    (from..=to).map(|j| 2f64.powi(j)).sum::<f64>() / f64::from(to - from + 1)
}

#[test]
fn a_causal_window_of_w_ends_at_w_minus_one_positions_back() {
    let out = seen(&reader(true, 4, true), 6, 3, 3);
    assert_close(&out, &[mean(3, 6), mean(4, 7), mean(5, 8)]);
    assert_close(&seen(&reader(true, 1, true), 6, 2, 2), &[mean(6, 6), mean(7, 7)]);
    assert_close(&seen(&reader(true, 0, true), 6, 2, 2), &[mean(0, 6), mean(0, 7)]);
    assert_close(&seen(&reader(true, 100, true), 6, 2, 2), &[mean(0, 6), mean(0, 7)]);
}

#[test]
fn bidirectional_rows_see_up_to_the_last_real_row() {
    assert_close(&seen(&reader(false, 0, true), 3, 4, 4), &[mean(0, 6); 4]);
    assert_close(&seen(&reader(false, 0, true), 3, 4, 2)[..2], &[mean(0, 4); 2]);
    let out = seen(&reader(false, 3, true), 3, 4, 4);
    assert_close(&out, &[mean(1, 5), mean(2, 6), mean(3, 6), mean(4, 6)]);
    let out = seen(&reader(false, 3, true), 3, 4, 3);
    assert_close(&out[..3], &[mean(1, 5), mean(2, 5), mean(3, 5)]);
}

#[test]
fn without_rows_every_row_is_real() {
    // The padding row was not written, so whoever sees it sees NaN.
    let out = seen(&reader(false, 0, false), 3, 2, 1);
    assert!(out.iter().all(|x| x.is_nan()));
    assert_close(&seen(&reader(false, 0, false), 3, 2, 2), &[mean(0, 4); 2]);
}

#[test]
fn stale_and_unwritten_positions_are_nan() {
    let g = reader(true, 3, true);
    let mut state = [g.request()];
    let feed = |state: &mut [RequestState; 1], at: [i32; 2]| {
        let inputs = [f64s(&[1, 2, 1, 1], &[1.0, 3.0]), i32s(&[1, 2], &at), i32s(&[1], &[2])];
        g.run_with(&inputs, state, Mode::Immediate).unwrap().remove(0).to_f64()
    };
    feed(&mut state, [0, 1]);
    state[0].commit(1).unwrap();
    // Position 1 is stale: still there until it is poisoned.
    let mut kept = state.clone();
    assert_close(&feed(&mut kept, [2, 3]), &[(1.0 + 3.0 + 1.0) / 3.0, (3.0 + 1.0 + 3.0) / 3.0]);
    state[0].poison_stale();
    let mut poisoned = state.clone();
    assert!(feed(&mut poisoned, [2, 3]).iter().all(|x| x.is_nan()));
    // Overwriting heals.
    assert_close(&feed(&mut state, [1, 2]), &[(1.0 + 1.0) / 2.0, (1.0 + 1.0 + 3.0) / 3.0]);
    // Far away, with positions in between that nobody wrote, and no attempt to allocate them.
    let far = feed(&mut state, [i32::MAX - 1, i32::MAX]);
    assert!(far.iter().all(|x| x.is_nan()));
    let export = state[0].export();
    assert_eq!(export[0].1, f64s(&[1, 1, 1], &[1.0]));
}

#[test]
fn unwritten_committed_positions_export_as_nan() {
    let g = reader(true, 3, true);
    let mut state = [g.request()];
    let inputs = [f64s(&[1, 1, 1, 1], &[5.0]), i32s(&[1, 1], &[1]), i32s(&[1], &[1])];
    g.run_with(&inputs, &mut state, Mode::Immediate).unwrap();
    state[0].commit(3).unwrap();
    let k = state[0].export().remove(0).1.to_f64();
    assert!(k[0].is_nan() && k[1] == 5.0 && k[2].is_nan());
}

#[test]
fn an_older_version_of_a_state_can_still_be_read() {
    let mut g = Graph::default();
    let kv = g.state("kv", StateKind::KvPool { heads: dim("1"), width: dim("1") }, DType::F64, &[]);
    let (x, at) = (g.input("x", ty(DType::F64, "N T 1 1")), g.input("at", ty(DType::I32, "N T")));
    let first = g.open(kv, None);
    let second = g.op(Opcode::KvWrite, &[first, x, x, at], Attrs::new());
    let how = attrs([("causal", Attr::Bool(true)), ("window", Attr::Int(1)), ("scale", Attr::Float(1.0))]);
    for s in [first, second] {
        let y = g.op(Opcode::Attention, &[x, s, at], how.clone());
        g.output(y);
    }
    g.close(second);
    let out =
        g.run_with(&[f64s(&[1, 1, 1, 1], &[2.0]), i32s(&[1, 1], &[0])], &mut [g.request()], Mode::Immediate).unwrap();
    assert!(out[0].to_f64()[0].is_nan());
    assert_eq!(out[1], f64s(&[1, 1, 1, 1], &[2.0]));
}

#[test]
fn opening_an_open_element_or_none_is_an_error() {
    let mut g = Graph::default();
    let kind = StateKind::Recurrent { shape: dims("1 1 1") };
    let s = g.state("delta", kind, DType::F64, &[0, -1]);
    let i = g.input("i", ty(DType::I32, ""));
    let (v, w) = (g.open(s, Some(i)), g.open(s, Some(i)));
    g.close(v);
    g.close(w);
    let run = |i| g.run_with(&[i32s(&[], &[i])], &mut [g.request()], Mode::Immediate).unwrap_err().message;
    assert!(run(0).contains("is opened while it is open"));
    assert!(run(1).contains("no element"));
    assert!(run(2).contains("no element"));
}

#[test]
fn states_hold_numbers_of_their_own_dtype() {
    let mut g = Graph::default();
    let kv = g.state("kv", StateKind::KvPool { heads: dim("1"), width: dim("1") }, DType::BF16, &[]);
    let conv = g.state("conv", StateKind::Window { channels: dim("1"), taps: dim("2") }, DType::BF16, &[]);
    let delta = g.state("delta", StateKind::Recurrent { shape: dims("1 1 1") }, DType::BF16, &[]);
    let (x, at) = (g.input("x", ty(DType::F32, "N T 1 1")), g.input("at", ty(DType::I32, "N T")));
    let rank3 = g.op(Opcode::Reshape, &[x], attrs([("dims", Attr::Dims(dims("N T 1")))]));
    let taps = g.input("taps", ty(DType::F32, "1 2"));
    let s = g.open(kv, None);
    let s = g.op(Opcode::KvWrite, &[s, x, x, at], Attrs::new());
    let how = attrs([("causal", Attr::Bool(true)), ("window", Attr::Int(1)), ("scale", Attr::Float(1.0))]);
    let read = g.op(Opcode::Attention, &[x, s, at], how);
    g.close(s);
    let s = g.open(conv, None);
    let c = g.ops(Opcode::CausalConv, &[s, rank3, taps], Attrs::new());
    g.close(c[1]);
    let s = g.open(delta, None);
    let one = g.input("one", ty(DType::F32, "N T 1 1"));
    let (zero, full) = (g.input("decay", ty(DType::F32, "N T 1")), g.input("beta", ty(DType::F32, "N T 1")));
    let d = g.ops(Opcode::DeltaRule, &[s, one, one, x, zero, full], Attrs::new());
    g.close(d[1]);
    [read, c[0], d[0]].into_iter().for_each(|v| g.output(v));

    // 1 + 2^-8 + 2^-9 becomes 1 + 2^-7 in bf16.
    let (fine, coarse) = (1.0 + 3.0 / 512.0, 1.0 + 1.0 / 128.0);
    let inputs = [
        f32s(&[1, 2, 1, 1], &[fine, fine]),
        i32s(&[1, 2], &[0, 1]),
        f32s(&[1, 2], &[1.0, 1.0]),
        f32s(&[1, 2, 1, 1], &[1.0, 1.0]),
        f32s(&[1, 2, 1], &[0.0, 0.0]),
        f32s(&[1, 2, 1], &[1.0, 0.0]),
    ];
    let mut state = [g.request()];
    let out = g.run_with(&inputs, &mut state, Mode::Immediate).unwrap();
    assert_eq!(out[0], f32s(&[1, 2, 1, 1], &[coarse, coarse]));
    // The newest row as given, the older one as the window holds it.
    assert_eq!(out[1], f32s(&[1, 2, 1], &[fine, coarse + fine]));
    // A row's output is formed before its state is rounded.
    assert_eq!(out[2], f32s(&[1, 2, 1, 1], &[fine, coarse]));
    state[0].commit(2).unwrap();
    assert!(
        state[0].export().iter().all(|(_, t)| t.data == Data::F32(vec![coarse; t.len()]) && t.dtype == DType::BF16)
    );
}
