//! States of requests: commits, stale slots, isolation, room.

mod cpu_support;
mod support;

use cpu_support::*;
use spinec_exec::cpu::{Capacity, CpuRuntime};
use spinec_exec::runtime::{Mode, RequestId, RunError, Runtime};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Numerics;
use std::collections::BTreeMap;
use support::{store, tables};

fn tokens(n: usize, seed: usize) -> Vec<i32> {
    (0..n).map(|i| ((i * 7919 + seed * 104_729 + i * i * 31) % 97) as i32).collect()
}

fn exported(t: &Target, r: RequestId) -> BTreeMap<String, Vec<u64>> {
    t.runtime.export(r).unwrap().iter().map(|(n, t)| (n.clone(), bits(t))).collect()
}

#[test]
fn a_committed_prefix_equals_feeding_it() {
    for (set, numerics) in [("s0", Numerics::F32), ("s1", Numerics::F32), ("s1", Numerics::F64), ("s1", Numerics::BF16)]
    {
        let system = golden_system(set, numerics);
        let mut t = Target::new(&system, 2);
        let (prompt, block) = (tokens(21, 1), tokens(16, 2));
        for keep in 0..=16 {
            let (a, b) = (t.open(), t.open());
            t.step(a, &prompt);
            t.step(b, &prompt);
            t.feed(&[a], std::slice::from_ref(&block), &[16], Mode::Tentative);
            t.runtime.commit(a, keep).unwrap();
            if keep > 0 {
                t.step(b, &block[..keep]);
            }
            assert_eq!(t.runtime.len(a), 21 + keep);
            assert!(exported(&t, a) == exported(&t, b), "{set}, {keep} rows kept: states differ");
            assert!(bits(&t.step(a, &[5])) == bits(&t.step(b, &[5])), "{set}, {keep} rows kept: logits differ");
            t.runtime.close(a);
            t.runtime.close(b);
        }
    }
}

#[test]
fn an_uncommitted_block_leaves_no_trace() {
    let system = golden_system("s1", Numerics::F32);
    let mut t = Target::new(&system, 1);
    let (a, b) = (t.open(), t.open());
    t.step(a, &tokens(10, 1));
    t.step(b, &tokens(10, 1));
    t.feed(&[a], &[tokens(16, 2)], &[16], Mode::Tentative);
    t.feed(&[a], &[tokens(16, 3)], &[16], Mode::Tentative);
    assert!(bits(&t.step(a, &tokens(7, 4))) == bits(&t.step(b, &tokens(7, 4))));
    assert!(exported(&t, a) == exported(&t, b));
}

#[test]
fn stale_slots_are_never_read() {
    let system = golden_system("s1", Numerics::F32);
    let mut t = Target::new(&system, 1);
    let (a, b) = (t.open(), t.open());
    for round in 0..4 {
        for r in [a, b] {
            t.feed(&[r], &[tokens(16, round)], &[16], Mode::Tentative);
            t.runtime.commit(r, 3 + round).unwrap();
        }
        t.runtime.poison_stale(b);
        let (x, y) = (t.step(a, &[1, 2]), t.step(b, &[1, 2]));
        assert!(x.to_f64().iter().all(|x| x.is_finite()));
        assert!(bits(&x) == bits(&y));
    }
    assert!(exported(&t, a) == exported(&t, b));
}

#[test]
fn padding_rows_reach_nothing() {
    let system = golden_system("s1", Numerics::F32);
    let mut t = Target::new(&system, 1);
    let (a, b) = (t.open(), t.open());
    let mut padded = tokens(5, 1);
    padded.extend([96; 11]);
    let x = t.feed(&[a], &[padded], &[5], Mode::Immediate);
    t.runtime.commit(a, 5).unwrap();
    let x = t.named(x, "logits");
    let y = t.step(b, &tokens(5, 1));
    assert!(bits(&x)[..5 * y.shape[1]] == bits(&y)[..]);
    assert!(exported(&t, a) == exported(&t, b));
    t.feed(&[a], &[vec![3; 4]], &[0], Mode::Immediate);
    t.runtime.commit(a, 0).unwrap();
    assert!(exported(&t, a) == exported(&t, b), "no real row changes nothing");
}

#[test]
fn requests_do_not_meet() {
    let system = golden_system("s1", Numerics::F32);
    let mut t = Target::new(&system, 2);
    let alone = {
        let r = t.open();
        t.step(r, &tokens(40, 9));
        let out = bits(&t.step(r, &[4, 5, 6]));
        t.runtime.close(r);
        out
    };
    // Pages that other requests filled and gave back are taken, mixed with pages of living ones.
    let others: Vec<RequestId> = (0..4).map(|_| t.open()).collect();
    for (i, r) in others.iter().enumerate() {
        t.step(*r, &tokens(50, i));
    }
    t.runtime.close(others[1]);
    t.runtime.close(others[2]);
    let r = t.open();
    for piece in tokens(40, 9).chunks(9) {
        t.step(r, piece);
        t.step(others[0], &[7]);
    }
    assert!(bits(&t.step(r, &[4, 5, 6])) == alone);
}

#[test]
fn commits_beyond_the_rows_are_refused() {
    let system = golden_system("s1", Numerics::F32);
    let mut t = Target::new(&system, 1);
    let r = t.open();
    t.feed(&[r], &[tokens(4, 1)], &[4], Mode::Tentative);
    let before = exported(&t, r);
    assert!(matches!(t.runtime.commit(r, 5), Err(RunError::Failed(_))));
    assert!(exported(&t, r) == before);
    t.runtime.commit(r, 4).unwrap();
    assert_eq!(t.runtime.len(r), 4);
}

#[test]
fn room_is_bounded() {
    let system = golden_system("s1", Numerics::F32);
    let room = Capacity { positions: 64, requests: 2 };
    let mut runtime = CpuRuntime::new(&tables(&system), Box::new(store(&system)), 1, room).unwrap();
    assert!(matches!(runtime.open(65), Err(RunError::Full(_))));
    let (a, b) = (runtime.open(64).unwrap(), runtime.open(64).unwrap());
    assert!(matches!(runtime.open(1), Err(RunError::Full(_))));
    let program = runtime.add(target_module(&system)).unwrap();
    let feed = |runtime: &mut CpuRuntime, r: RequestId, t: usize, at: usize| {
        let inputs = [
            ints(&[1, t], &tokens(t, 1)),
            ints(&[1, t], &(at as i32..(at + t) as i32).collect::<Vec<_>>()),
            ints(&[1], &[t as i32]),
        ];
        let refs: Vec<&Tensor> = inputs.iter().collect();
        runtime.run(program, 0, &refs, &[r], Mode::Immediate, None).map(|_| runtime.commit(r, t).unwrap())
    };
    feed(&mut runtime, a, 48, 0).unwrap();
    feed(&mut runtime, b, 16, 0).unwrap();
    assert!(matches!(feed(&mut runtime, b, 1, 16), Err(RunError::Full(_))), "all pages are taken");
    runtime.close(a);
    let c = runtime.open(40).unwrap();
    feed(&mut runtime, c, 48, 0).unwrap();
    assert!(matches!(feed(&mut runtime, c, 17, 48), Err(RunError::Full(_))));
    let bytes = runtime.bytes();
    for owner in ["weights", "derived", "target_kv", "draft_kv", "recurrent", "conv", "arena"] {
        assert!(bytes[owner] > 0, "{owner}: {bytes:?}");
    }
}

#[test]
fn misuse_is_an_error() {
    let system = golden_system("s1", Numerics::F32);
    let mut t = Target::new(&system, 1);
    let r = t.open();
    let run = |t: &mut Target, inputs: &[Tensor], requests: &[RequestId]| {
        let refs: Vec<&Tensor> = inputs.iter().collect();
        t.runtime.run(t.program, 0, &refs, requests, Mode::Immediate, None)
    };
    let good = [ints(&[1, 2], &[1, 2]), ints(&[1, 2], &[0, 1]), ints(&[1], &[2])];
    assert!(run(&mut t, &good[..2], &[r]).is_err(), "an input is missing");
    assert!(run(&mut t, &good, &[]).is_err(), "no request");
    assert!(run(&mut t, &good, &[RequestId(99)]).is_err(), "no such request");
    assert!(run(&mut t, &good, &[r, r]).is_err(), "a request twice");
    let bad = |i: usize, x: Tensor| {
        let mut list = good.to_vec();
        list[i] = x;
        list
    };
    assert!(run(&mut t, &bad(2, ints(&[1], &[3])), &[r]).is_err(), "more rows than there are");
    assert!(run(&mut t, &bad(2, ints(&[1], &[-1])), &[r]).is_err(), "fewer rows than none");
    assert!(run(&mut t, &bad(1, ints(&[1, 2], &[0, -1])), &[r]).is_err(), "a position before the first");
    assert!(run(&mut t, &bad(1, ints(&[1, 2], &[0, i32::MAX])), &[r]).is_err(), "a position beyond the pool");
    assert!(run(&mut t, &bad(0, ints(&[1, 3], &[0, 1, 2])), &[r]).is_err(), "extents that do not agree");
    let mut short = good.to_vec();
    short[0].shape = vec![1, 2];
    short[0].data = spinec_ir::tensor::Data::I32(vec![1]);
    assert!(run(&mut t, &short, &[r]).is_err(), "data that does not fill its shape");
    // Tokens that are no rows of the embedding are clamped.
    assert!(run(&mut t, &bad(0, ints(&[1, 2], &[-5, 1_000_000])), &[r]).is_ok());
}
