//! Operations between the lanes of a warp against statements of their own: shuffles, votes and atomics lane by lane, and
//! locks between diverged lanes.

// Layout formulas stay as close to the ISA's text as they can.
#![allow(clippy::precedence, clippy::needless_range_loop, clippy::manual_is_multiple_of)]
#![allow(clippy::format_in_format_args, clippy::type_complexity)]

mod common;
mod warps;

use common::Rng;
use warps::{clean, run};

#[test]
fn shuffles() {
    let mut r = Rng(17);
    for mode in ["up", "down", "bfly", "idx"] {
        for (distance, width) in [(1u32, 32u32), (3, 8), (16, 32), (5, 16), (31, 32)] {
            // As the CUDA headers set it: segment mask above, clamp below (zero when shifting up).
            let clamp = (32 - width) << 8 | if mode == "up" { 0 } else { 31 };
            let input: Vec<Vec<u64>> = (0..32).map(|_| vec![r.next() & 0xffff_ffff]).collect();
            let body = format!(
                "ld.global.b32 %r1, [%d1]; shfl.sync.{mode}.b32 %r2|%p1, %r1, {distance}, {clamp}, -1;\n\
                 cvt.u64.u32 %d3, %r2; st.global.b64 [%d2], %d3; selp.b64 %d3, 1, 0, %p1; st.global.b64 [%d2+8], %d3;"
            );
            let (out, report) = run("", &body, 1, &input, 2);
            clean(&report);
            for l in 0..32i64 {
                let (d, w) = (i64::from(distance), i64::from(width));
                let first = l / w * w;
                let from = match mode {
                    "up" => l - d,
                    "down" => l + d,
                    "bfly" => l ^ d,
                    _ => first + d % w,
                };
                let inside = from >= first && from < first + w;
                // A butterfly may leave its segment downwards; only the upper bound is checked.
                let ok = if mode == "bfly" { from < first + w } else { inside };
                let source = if ok { from } else { l } as usize;
                assert_eq!(out[l as usize], [input[source][0], u64::from(ok)], "{mode} {distance} {width} lane {l}");
            }
        }
    }
}

#[test]
fn votes_and_reductions() {
    let mut r = Rng(29);
    let values: Vec<u32> = (0..32).map(|_| r.next() as u32 >> 3).collect();
    let input: Vec<Vec<u64>> = values.iter().map(|v| vec![u64::from(*v % 5), u64::from(*v)]).collect();
    let mask = 0x00ff_0ff3u32;
    let body = format!(
        "ld.global.b32 %r1, [%d1]; ld.global.b32 %r2, [%d1+8]; mov.b32 %r3, {mask}; mov.b32 %r4, 1; shl.b32 %r4, %r4, %r0;\n\
         mov.b64 %d3, 0;\n and.b32 %r5, %r4, %r3; setp.eq.b32 %p1, %r5, 0; @%p1 bra OUT;\n\
         setp.lt.u32 %p2, %r1, 2;\n\
         vote.sync.ballot.b32 %r10, %p2, %r3; vote.sync.any.pred %p3, %p2, %r3; vote.sync.all.pred %p4, !%p2, %r3;\n\
         match.any.sync.b32 %r11, %r1, %r3; match.all.sync.b32 %r12|%p5, %r3, %r3;\n\
         redux.sync.add.u32 %r13, %r2, %r3; redux.sync.min.s32 %r14, %r2, %r3; redux.sync.xor.b32 %r15, %r2, %r3;\n\
         elect.sync %r16|%p6, %r3; activemask.b32 %r17;\n\
         selp.b32 %r18, 1, 0, %p3; selp.b32 %r19, 2, 0, %p4; or.b32 %r18, %r18, %r19; selp.b32 %r19, 4, 0, %p6; or.b32 %r18, %r18, %r19;\n{}\
         OUT:\n",
        (10..19)
            .map(|k| format!("cvt.u64.u32 %d3, %r{k}; st.global.b64 [%d2+{}], %d3;\n", 8 * (k - 10)))
            .collect::<String>()
    );
    let (out, report) = run("", &body, 1, &input, 9);
    clean(&report);
    let active: Vec<usize> = (0..32).filter(|l| mask >> l & 1 == 1).collect();
    let bits = |f: &dyn Fn(usize) -> bool| active.iter().filter(|l| f(**l)).fold(0u32, |m, l| m | 1 << l);
    let low = bits(&|l| values[l] % 5 < 2);
    let sum = active.iter().fold(0u32, |a, l| a.wrapping_add(values[*l]));
    let min = active.iter().map(|l| values[*l] as i32).min().expect("not empty") as u32;
    let xor = active.iter().fold(0, |a, l| a ^ values[*l]);
    for &l in &active {
        let same = bits(&|j| values[j] % 5 == values[l] % 5);
        let flags = u32::from(low != 0) | u32::from(low == 0) << 1 | u32::from(l == active[0]) << 2;
        let want = [low, same, mask, sum, min, xor, active[0] as u32, mask, flags];
        assert_eq!(out[l], want.map(u64::from), "lane {l}");
    }
}

#[test]
fn atomics_in_lane_order() {
    // Each operation from 7 with operand lane + 3: the last lane's old value and the result in memory.
    type Case = (&'static str, fn(u64, u64) -> u64);
    let cases: [Case; 9] = [
        ("add.u32", |a, b| (a + b) & 0xffff_ffff),
        ("min.u32", u64::min),
        ("max.u32", u64::max),
        ("and.b32", |a, b| a & b),
        ("or.b32", |a, b| a | b),
        ("xor.b32", |a, b| a ^ b),
        ("exch.b32", |_, b| b),
        ("inc.u32", |a, b| if a >= b { 0 } else { a + 1 }),
        ("dec.u32", |a, b| if a == 0 || a > b { b } else { a - 1 }),
    ];
    for (op, f) in cases {
        let body = format!(
            "mov.u32 %r1, word; mov.b32 %r2, 7; setp.ne.u32 %p1, %r0, 0; @!%p1 st.shared.b32 [%r1], %r2; bar.sync 0;\n\
             add.u32 %r3, %r0, 3; atom.shared.{op} %r4, [%r1], %r3; bar.sync 0; ld.shared.b32 %r5, [%r1];\n\
             cvt.u64.u32 %d3, %r4; st.global.b64 [%d2], %d3; cvt.u64.u32 %d3, %r5; st.global.b64 [%d2+8], %d3;"
        );
        let (out, report) = run(".shared .align 4 .b8 word[4];", &body, 1, &vec![vec![0]; 32], 2);
        clean(&report);
        let mut v = 7;
        let mut olds = Vec::new();
        for l in 0..32u64 {
            olds.push(v);
            v = f(v, l + 3);
        }
        assert!((0..32).all(|l| out[l] == [olds[l], v]), "{op}: {out:?}");
    }
    let body = "mov.u32 %r1, word; setp.ne.u32 %p1, %r0, 0; @!%p1 st.shared.b64 [%r1], 0; bar.sync 0;\n\
        cvt.rn.f32.u32 %f1, %r0; red.shared.add.f32 [%r1], %f1; mov.b32 %r2, 0x3f803f80; red.shared.add.noftz.bf16x2 [%r1+4], %r2;\n\
        bar.sync 0; ld.shared.b64 %d3, [%r1]; st.global.b64 [%d2], %d3;";
    let (out, report) = run(".shared .align 8 .b8 word[8];", body, 1, &vec![vec![0]; 32], 1);
    clean(&report);
    assert_eq!(out[9][0], u64::from(496f32.to_bits()) | 0x4200_4200 << 32);
}

#[test]
fn diverged_lanes_take_turns_and_meet_again() {
    // A lock within one warp: every lane adds to a counter under it.
    let body = "mov.u32 %r1, word; setp.ne.u32 %p1, %r0, 0; @!%p1 st.shared.b64 [%r1], 0; bar.warp.sync -1;\n\
        AGAIN: atom.shared.cas.b32 %r2, [%r1], 0, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra AGAIN;\n\
        ld.volatile.shared.b32 %r3, [%r1+4]; add.u32 %r3, %r3, 1; st.volatile.shared.b32 [%r1+4], %r3;\n\
        membar.cta; atom.shared.exch.b32 %r4, [%r1], 0;\n\
        bar.warp.sync -1; ld.shared.b32 %r5, [%r1+4]; cvt.u64.u32 %d3, %r5; st.global.b64 [%d2], %d3;";
    let (out, report) = run(".shared .align 8 .b8 word[8];", body, 1, &vec![vec![0]; 32], 1);
    clean(&report);
    assert!(out.iter().all(|w| w[0] == 32), "{out:?}");
}
