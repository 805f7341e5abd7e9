//! Barriers, mbarriers, asynchronous copies, fences, control flow and addresses, each against a statement of its own.

#![allow(clippy::precedence, clippy::needless_range_loop)]

mod common;
mod warps;

use common::{Bytes, u32s};
use spinec_ptx::{Access, FindingKind, Launch, Memory, Options, Program, Report, parse};
use warps::{clean, run};

fn load(params: &str, declare: &str, body: &str) -> Program {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k({params}) {{\n\
         .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<60>; .reg .b64 %d<60>; .reg .f32 %f<9>;\n{declare}\n{body}\nret;\n}}"
    );
    let m = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Program::load(&m, "k").unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

/// Runs a kernel whose only parameter is an output buffer of 32-bit words.
fn words(declare: &str, body: &str, grid: u32, block: u32, cluster: u32, count: usize) -> (Vec<u32>, Report) {
    let p = load(".param .u64 out", declare, &format!("mov.u32 %r0, %tid.x; ld.param.u64 %d0, [out];\n{body}"));
    let mut m = Memory::new();
    let out = m.add_output("out", 4 * count);
    let options = Options { idle_rounds: 100, ..Options::default() };
    let launch = Launch::new([grid, 1, 1], [block, 1, 1]).cluster([cluster, 1, 1]).arg(out).options(options);
    let report = p.run(&m, &launch).expect("launches");
    (u32s(&m.bytes(out)), report)
}

fn kinds(r: &Report) -> Vec<FindingKind> {
    r.errors().map(|f| f.kind).collect()
}

#[test]
fn barrier_reductions_over_the_block() {
    // Thread t's predicate is bit t of a pattern; 70 threads, so that the last warp is short.
    for pattern in [0u128, !0, 0x5555_0000_ffff_1234_0f0f, 1 << 69, !0 ^ 1 << 33] {
        for (name, negate) in [("bar", ""), ("barrier", ""), ("bar", "!")] {
            let body = format!(
                "setp.ge.u32 %p1, %r0, 64; selp.b64 %d1, {}, {}, %p1; and.b32 %r1, %r0, 63; shr.u64 %d1, %d1, %r1; and.b64 %d1, %d1, 1;
                 setp.ne.u64 %p2, %d1, 0;
                 {name}.red.popc.u32 %r2, 1, {negate}%p2; {name}.red.and.pred %p3, 1, {negate}%p2; {name}.red.or.pred %p4, 1, {negate}%p2;
                 selp.b32 %r3, 256, 0, %p3; selp.b32 %r4, 512, 0, %p4; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;
                 mad.wide.u32 %d2, %r0, 4, %d0; st.global.b32 [%d2], %r2;",
                (pattern >> 64) as u64 as i64,
                pattern as u64 as i64
            );
            let (out, r) = words("", &body, 1, 70, 1, 70);
            clean(&r);
            let on = (0..70).filter(|t| (pattern >> t & 1 == 1) != (negate == "!")).count() as u32;
            let want = on + if on == 70 { 256 } else { 0 } + if on > 0 { 512 } else { 0 };
            assert!(out.iter().all(|v| *v == want), "{name} {negate} {pattern:#x}: {out:?}, {want}");
        }
    }
}

#[test]
fn named_barriers_join_producers_and_consumers() {
    // Warp 0 waits at barrier 3 for warp 1, which only arrives; warp 2 takes no part.
    let body = |arrive: &str| {
        format!(
            "mov.u32 %r1, cell; shr.u32 %r2, %r0, 5; setp.eq.u32 %p1, %r2, 1; setp.eq.u32 %p2, %r2, 0; and.b32 %r3, %r0, 31;
             mad.lo.u32 %r4, %r3, 4, %r1; add.u32 %r5, %r3, 40; mad.wide.u32 %d2, %r3, 4, %d0;
             @%p1 st.shared.b32 [%r4], %r5; @%p1 {arrive}
             @!%p2 exit; barrier.sync 3, 64; ld.shared.b32 %r6, [%r4]; st.global.b32 [%d2], %r6;"
        )
    };
    for arrive in ["bar.arrive 3, 64;", "barrier.arrive 3, 64;", "barrier.cta.arrive.aligned 3, 64;"] {
        let (out, r) = words(".shared .align 4 .b8 cell[128];", &body(arrive), 1, 96, 1, 32);
        clean(&r);
        assert!(out.iter().enumerate().all(|(k, v)| *v == k as u32 + 40), "{arrive}");
    }
    let (_, r) = words(".shared .align 4 .b8 cell[128];", &body("mov.u32 %r9, 0;"), 1, 96, 1, 32);
    assert!(kinds(&r).contains(&FindingKind::Deadlock), "{:?}", r.findings);
}

/// Thread 0 initialises the mbarrier, `body` follows a barrier of the block.
fn with_mbarrier(count: u32, body: &str) -> String {
    format!(
        "mov.u32 %r1, bar; setp.ne.u32 %p1, %r0, 0; @!%p1 mbarrier.init.shared::cta.b64 [%r1], {count}; bar.sync 0;
         mad.wide.u32 %d2, %r0, 4, %d0;\n{body}"
    )
}

const BAR: &str = ".shared .align 8 .b8 bar[8]; .shared .align 16 .b8 tile[256];";

#[test]
fn mbarrier_phases_by_arrivals() {
    // 32 arrivals complete a phase: before, test_wait on the state is false; after, true, by state and by parity.
    let body = "mbarrier.arrive.shared::cta.b64 %d3, [%r1]; mbarrier.pending_count.b64 %r2, %d3;
        bar.warp.sync -1; mbarrier.test_wait.shared::cta.b64 %p2, [%r1], %d3;
        mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r1], 0; mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r1], 1;
        mbarrier.try_wait.shared::cta.b64 %p5, [%r1], %d3; mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r1], 0;
        selp.b32 %r3, 64, 0, %p2; selp.b32 %r4, 128, 0, %p3; add.u32 %r3, %r3, %r4; selp.b32 %r4, 256, 0, %p4; add.u32 %r3, %r3, %r4;
        selp.b32 %r4, 512, 0, %p5; add.u32 %r3, %r3, %r4; selp.b32 %r4, 1024, 0, %p6; add.u32 %r3, %r3, %r4;
        add.u32 %r3, %r3, %r2; st.global.b32 [%d2], %r3;";
    let (out, r) = words(BAR, &with_mbarrier(32, body), 1, 32, 1, 32);
    clean(&r);
    // Lanes arrive in order: lane l sees 32 - l pending arrivals in its state.
    assert!(out.iter().enumerate().all(|(l, v)| *v == 32 - l as u32 + 64 + 128 + 512 + 1024), "{out:?}");
    let (out, r) = words(BAR, &with_mbarrier(33, body), 1, 32, 1, 32);
    clean(&r);
    // One arrival is missing: phase 0 is not complete; the phase before it counts as complete.
    assert!(out.iter().enumerate().all(|(l, v)| *v == 33 - l as u32 + 256), "{out:?}");
}

#[test]
fn mbarrier_counts_and_drops() {
    // (instructions of lane 0, initial count, phases completed afterwards)
    for (text, count, phases) in [
        ("mbarrier.arrive.shared.b64 %d3, [%r1], 3;", 3, 1),
        ("mbarrier.arrive.shared.b64 %d3, [%r1], 2;", 3, 0),
        ("mbarrier.arrive.noComplete.shared.b64 %d3, [%r1], 2; mbarrier.arrive.shared.b64 %d3, [%r1];", 3, 1),
        // A dropped arrival lowers the count of the next phase.
        (
            "mbarrier.arrive_drop.shared.b64 %d3, [%r1], 2; mbarrier.arrive.shared.b64 %d3, [%r1]; mbarrier.arrive.shared.b64 %d3, [%r1];",
            3,
            2,
        ),
        (
            "mbarrier.arrive_drop.noComplete.shared.b64 %d3, [%r1], 2; mbarrier.arrive.shared.b64 %d3, [%r1]; mbarrier.arrive.shared.b64 %d3, [%r1];",
            3,
            2,
        ),
        // Transactions hold the phase open until their bytes are complete.
        (
            "mbarrier.arrive.expect_tx.shared.b64 %d3, [%r1], 48; mbarrier.complete_tx.relaxed.cta.shared.b64 [%r1], 32;",
            1,
            0,
        ),
        (
            "mbarrier.arrive.expect_tx.shared.b64 %d3, [%r1], 48; mbarrier.complete_tx.relaxed.cta.shared.b64 [%r1], 48;",
            1,
            1,
        ),
        ("mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 16; mbarrier.arrive.shared.b64 %d3, [%r1];", 1, 0),
        (
            "mbarrier.arrive_drop.expect_tx.shared.b64 %d3, [%r1], 16; mbarrier.complete_tx.relaxed.cta.shared.b64 [%r1], 16; mbarrier.arrive.shared.b64 %d3, [%r1];",
            2,
            1,
        ),
    ] {
        let body = format!(
            "@%p1 exit; {text} mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 0; mbarrier.test_wait.parity.shared.b64 %p3, [%r1], 1;
             selp.b32 %r3, 1, 0, %p2; selp.b32 %r4, 2, 0, %p3; add.u32 %r3, %r3, %r4; st.global.b32 [%d2], %r3;"
        );
        let (out, r) = words(BAR, &with_mbarrier(count, &body), 1, 32, 1, 1);
        clean(&r);
        // Parity 0 waits are satisfied while an odd phase is open, parity 1 waits while an even one is.
        assert_eq!(out[0], if phases % 2 == 1 { 1 } else { 2 }, "{text}");
    }
    for text in [
        "mbarrier.arrive.noComplete.shared.b64 %d3, [%r1], 3;",
        "mbarrier.arrive_drop.noComplete.shared.b64 %d3, [%r1], 3;",
        "mbarrier.arrive.shared.b64 %d3, [%r1], 4;",
        "mbarrier.inval.shared.b64 [%r1]; mbarrier.arrive.shared.b64 %d3, [%r1];",
    ] {
        let (_, r) = words(BAR, &with_mbarrier(3, &format!("@%p1 exit; {text}")), 1, 32, 1, 1);
        assert_eq!(kinds(&r), [FindingKind::MbarrierMisuse], "{text}");
    }
}

#[test]
fn asynchronous_stores_reach_another_block() {
    // Block 1 of a cluster stores into block 0, which waits for the bytes on its own mbarrier.
    // (vector, type, data, words stored by each of 8 lanes)
    let cases: [(&str, &str, &str, &[u32]); 5] = [
        ("", "b32", "%r10", &[10]),
        ("", "b64", "%d10", &[10, 11]),
        (".v2", "b32", "{%r10, %r11}", &[10, 11]),
        (".v4", "b32", "{%r10, %r11, %r12, %r13}", &[10, 11, 12, 13]),
        (".v2", "b64", "{%d10, %d11}", &[10, 11, 12, 13]),
    ];
    for (vector, ty, data, stored) in cases {
        let bytes = 4 * stored.len();
        let body = |wait: &str| {
            with_mbarrier(
                1,
                &format!(
                    "fence.mbarrier_init.release.cluster; mov.u32 %r20, %cluster_ctarank; setp.ne.u32 %p2, %r20, 0;
                     or.pred %p3, %p1, %p2; @!%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {};
                     barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
                     add.u32 %r10, %r0, 10; add.u32 %r11, %r0, 11; add.u32 %r12, %r0, 12; add.u32 %r13, %r0, 13;
                     mov.b64 %d10, {{%r10, %r11}}; mov.b64 %d11, {{%r12, %r13}};
                     mov.u32 %r21, tile; mad.lo.u32 %r21, %r0, {bytes}, %r21;
                     mapa.shared::cluster.u32 %r22, %r21, 0; mapa.shared::cluster.u32 %r23, %r1, 0;
                     setp.lt.u32 %p4, %r0, 8; and.pred %p4, %p4, %p2;
                     @%p4 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{vector}.{ty} [%r22], {data}, [%r23];
                     @%p2 bra END;
                     {wait}
                     setp.ge.u32 %p6, %r0, {}; @%p6 bra END; mov.u32 %r24, tile; mad.lo.u32 %r24, %r0, 4, %r24;
                     ld.shared.b32 %r25, [%r24]; st.global.b32 [%d2], %r25;
                     END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
                    8 * bytes,
                    2 * bytes
                ),
            )
        };
        let wait = "TRY: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r1], 0; @!%p5 bra TRY;";
        let (out, r) = words(BAR, &body(wait), 2, 32, 2, 2 * bytes);
        clean(&r);
        for (k, v) in out.iter().enumerate() {
            assert_eq!(*v, (k / stored.len()) as u32 + stored[k % stored.len()], "st.async{vector}.{ty} word {k}");
        }
    }
}

#[test]
fn asynchronous_reductions_reach_another_block() {
    type Case = (&'static str, fn(u32, u32) -> u32);
    let cases: [Case; 10] = [
        ("add.u32", u32::wrapping_add),
        ("add.s32", u32::wrapping_add),
        ("min.u32", u32::min),
        ("max.u32", u32::max),
        ("min.s32", |a, b| (a as i32).min(b as i32) as u32),
        ("max.s32", |a, b| (a as i32).max(b as i32) as u32),
        ("inc.u32", |a, b| if a >= b { 0 } else { a + 1 }),
        ("dec.u32", |a, b| if a == 0 || a > b { b } else { a - 1 }),
        ("and.b32", |a, b| a & b),
        ("xor.b32", |a, b| a ^ b),
    ];
    let wide: Case = ("add.u64", u32::wrapping_add);
    let or: Case = ("or.b32", |a, b| a | b);
    for (op, f) in cases.into_iter().chain([wide, or]) {
        let (reg, size) = if op.ends_with("64") { ("%d10", 8) } else { ("%r10", 4) };
        let body = with_mbarrier(
            1,
            &format!(
                "fence.mbarrier_init.release.cluster; mov.u32 %r20, %cluster_ctarank; setp.ne.u32 %p2, %r20, 0;
                 mov.u32 %r21, tile; mad.lo.u32 %r21, %r0, 8, %r21; mul.lo.u32 %r9, %r0, 77777777; cvt.u64.u32 %d9, %r9; st.shared.b64 [%r21], %d9;
                 or.pred %p3, %p1, %p2; @!%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {};
                 barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
                 mul.lo.u32 %r10, %r0, 1234567; sub.u32 %r10, 9999999, %r10; cvt.u64.u32 %d10, %r10;
                 mapa.shared::cluster.u32 %r22, %r21, 0; mapa.shared::cluster.u32 %r23, %r1, 0;
                 @%p2 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op} [%r22], {reg}, [%r23];
                 @%p2 bra END;
                 TRY: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r1], 0; @!%p5 bra TRY;
                 ld.shared.b32 %r25, [%r21]; st.global.b32 [%d2], %r25;
                 END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
                32 * size
            ),
        );
        let (out, r) = words(BAR, &body, 2, 32, 2, 32);
        clean(&r);
        for (l, v) in out.iter().enumerate() {
            let l = l as u32;
            let want = f(l.wrapping_mul(77_777_777), 9_999_999u32.wrapping_sub(l.wrapping_mul(1_234_567)));
            assert_eq!(*v, want, "red.async.{op} lane {l}");
        }
    }
}

#[test]
fn lane_copies_of_every_size_fill_with_zeros() {
    let rows: Vec<Vec<u64>> = (0..32u64).map(|l| vec![0x0102_0304_0506_0708 + l, 0x1112_1314_1516_1718 + l]).collect();
    // (copy, bytes taken, bytes written)
    let cases = [
        ("cp.async.ca.shared.global [%d9], [%d1], 4;", 4, 4),
        ("cp.async.ca.shared.global [%d9], [%d1], 8;", 8, 8),
        ("cp.async.ca.shared.global [%d9], [%d1], 16;", 16, 16),
        ("cp.async.cg.shared.global [%d9], [%d1], 16;", 16, 16),
        ("cp.async.cg.shared.global.L2::128B [%d9], [%d1], 16;", 16, 16),
        ("cp.async.ca.shared.global [%d9], [%d1], 16, 5;", 5, 16),
        ("cp.async.ca.shared.global [%d9], [%d1], 8, 0;", 0, 8),
        ("mov.u32 %r3, 12; cp.async.cg.shared.global [%d9], [%d1], 16, %r3;", 12, 16),
        ("setp.eq.u32 %p1, %r0, %r0; cp.async.ca.shared.global [%d9], [%d1], 8, %p1;", 0, 8),
        ("setp.eq.u32 %p1, %r0, %r0; cp.async.ca.shared.global [%d9], [%d1], 8, !%p1;", 8, 8),
    ];
    for (copy, taken, written) in cases {
        for wait in ["cp.async.commit_group; cp.async.wait_group 0;", "cp.async.wait_all;"] {
            let body = format!(
                "mov.u64 %d9, cells; mad.wide.u32 %d9, %r0, 16, %d9; st.shared.v2.b64 [%d9], {{-1, -1}};\n{copy} {wait}\n\
                 ld.shared.v2.b64 {{%d4, %d5}}, [%d9]; st.global.v2.b64 [%d2], {{%d4, %d5}};"
            );
            let (out, r) = run(".shared .align 16 .b8 cells[512];", &body, 1, &rows, 2);
            clean(&r);
            for (row, got) in rows.iter().zip(&out) {
                let mut want = [0xffu8; 16];
                want[..written].fill(0);
                want[..taken].copy_from_slice(&row.bytes()[..taken]);
                assert_eq!(got.bytes(), want, "{copy}");
            }
        }
    }
}

#[test]
fn groups_of_copies_land_in_order() {
    let rows: Vec<Vec<u64>> = (0..32u64).map(|l| vec![l + 1, l + 1000]).collect();
    let body = |pending: u32| {
        format!(
            "mov.u64 %d9, cells; mad.wide.u32 %d9, %r0, 16, %d9; st.shared.v2.b64 [%d9], {{7, 7}};
             cp.async.ca.shared.global [%d9], [%d1], 8; cp.async.commit_group;
             cp.async.ca.shared.global [%d9+8], [%d1+8], 8; cp.async.commit_group; cp.async.wait_group {pending};
             ld.shared.b64 %d4, [%d9]; st.global.b64 [%d2], %d4; ld.shared.b64 %d5, [%d9+8]; st.global.b64 [%d2+8], %d5;"
        )
    };
    for (pending, first, second) in [(0, true, true), (1, true, false), (2, false, false)] {
        let (out, r) = run(".shared .align 16 .b8 cells[512];", &body(pending), 1, &rows, 2);
        let flying = kinds(&r).into_iter().filter(|k| *k == FindingKind::InFlight).count();
        assert_eq!(flying, usize::from(!first) + usize::from(!second), "{:?}", r.findings);
        for (row, got) in rows.iter().zip(&out) {
            let want = [if first { row[0] } else { 7 }, if second { row[1] } else { 7 }];
            assert_eq!(got[..], want, "{pending} pending");
        }
    }
}

#[test]
fn copies_arrive_at_mbarriers() {
    // Without .noinc the arrival does not count against the 32 of the barrier, with it it does.
    for (suffix, count) in [("", 32), (".noinc", 64)] {
        let body = with_mbarrier(
            count,
            &format!(
                "mov.u64 %d9, tile; mad.wide.u32 %d9, %r0, 8, %d9; mov.u64 %d8, source; mad.wide.u32 %d8, %r0, 8, %d8;
                 cp.async.ca.shared.global [%d9], [%d8], 8; cp.async.mbarrier.arrive{suffix}.shared::cta.b64 [%r1];
                 mbarrier.arrive.shared::cta.b64 %d3, [%r1];
                 TRY: mbarrier.try_wait.shared::cta.b64 %p5, [%r1], %d3; @!%p5 bra TRY;
                 ld.shared.b32 %r5, [%d9]; st.global.b32 [%d2], %r5;"
            ),
        );
        let text = format!(
            ".version 9.0\n.target sm_90a\n.global .align 8 .u64 source[32] = {{{}}};\n.visible .entry k(.param .u64 out) {{\n\
             .reg .pred %p<9>; .reg .b32 %r<60>; .reg .b64 %d<60>;\n{BAR}\nmov.u32 %r0, %tid.x; ld.param.u64 %d0, [out];\n{body}\nret;\n}}",
            (0..32).map(|k| (3 * k + 1).to_string()).collect::<Vec<_>>().join(", ")
        );
        let p = Program::load(&parse(&text).expect("parses"), "k").unwrap_or_else(|e| panic!("{}", e[0]));
        let mut m = Memory::new();
        let out = m.add_output("out", 128);
        let r = p.run(&m, &Launch::new([1; 3], [32, 1, 1]).arg(out)).expect("launches");
        clean(&r);
        assert!(u32s(&m.bytes(out)).iter().enumerate().all(|(k, v)| *v == 3 * k as u32 + 1));
    }
}

#[test]
fn bulk_copies_between_blocks_and_to_many() {
    // Block 1 copies its tile into block 0; with a mask, from global memory into all blocks that it names.
    let body = with_mbarrier(
        1,
        "fence.mbarrier_init.release.cluster; mov.u32 %r20, %cluster_ctarank; setp.ne.u32 %p2, %r20, 0; mov.u32 %r21, tile;
         mad.lo.u32 %r22, %r0, 4, %r21; mad.lo.u32 %r23, %r20, 1000, %r0; st.shared.b32 [%r22], %r23; fence.proxy.async;
         @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;
         barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
         mapa.shared::cluster.u32 %r24, %r21, 0; add.u32 %r24, %r24, 128; mapa.shared::cluster.u32 %r25, %r1, 0;
         not.pred %p3, %p1; and.pred %p3, %p3, %p2;
         @%p3 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r24], [%r21], 128, [%r25];
         @%p2 bra END;
         TRY: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r1], 0; @!%p5 bra TRY;
         ld.shared.b32 %r26, [%r22+128]; st.global.b32 [%d2], %r26;
         END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    );
    let (out, r) = words(BAR, &body, 2, 32, 2, 32);
    clean(&r);
    assert!(out.iter().enumerate().all(|(k, v)| *v == 1000 + k as u32), "{out:?}");
}

#[test]
fn bulk_stores_take_what_shared_memory_holds() {
    let body = "mov.u32 %r21, tile; mad.lo.u32 %r22, %r0, 4, %r21; mul.lo.u32 %r23, %r0, 7; st.shared.b32 [%r22], %r23; fence.proxy.async.shared::cta;
         bar.sync 0; setp.ne.u32 %p1, %r0, 0; @%p1 exit; createpolicy.fractional.L2::evict_first.b64 %d9, 1.0;
         cp.async.bulk.prefetch.L2.global [%d0], 64;
         cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%d0], [%r21], 64, %d9;
         cp.async.bulk.global.shared::cta.bulk_group [%d0+64], [%r21+64], 64; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    let (out, r) = words(BAR, body, 1, 32, 1, 32);
    clean(&r);
    assert!(out.iter().enumerate().all(|(k, v)| *v == 7 * k as u32), "{out:?}");
}

/// Block 0 publishes a word and then a flag; block 1 waits for the flag and reads the word.
fn message(publish: &str, wait: &str) -> Report {
    let p = load(
        ".param .u64 cells",
        "",
        &format!(
            "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; ld.param.u64 %d0, [cells]; setp.ne.u32 %p1, %r0, 0; @%p1 exit;
             setp.ne.u32 %p2, %r1, 0; @%p2 bra READ; st.global.b32 [%d0], 42; {publish} exit;
             READ: {wait} ld.global.b32 %r3, [%d0]; st.global.b32 [%d0+8], %r3;"
        ),
    );
    let mut m = Memory::new();
    let cells = m.add("cells", &[0; 12], Access::InOut);
    p.run(&m, &Launch::new([2, 1, 1], [32, 1, 1]).arg(cells)).expect("launches")
}

#[test]
fn fences_and_orders_publish() {
    let loop_of = |load: &str| format!("SPIN: {load} %r4, [%d0+4]; setp.eq.u32 %p3, %r4, 0; @%p3 bra SPIN;");
    let acquire = loop_of("ld.acquire.gpu.global.b32");
    let relaxed = loop_of("ld.relaxed.gpu.global.b32");
    let volatile = loop_of("ld.volatile.global.b32");
    let fenced = |f: &str| format!("{relaxed} {f}");
    for (publish, wait) in [
        ("st.release.gpu.global.b32 [%d0+4], 1;", acquire.clone()),
        ("st.release.sys.global.b32 [%d0+4], 1;", fenced("fence.acq_rel.gpu;")),
        ("membar.gl; st.relaxed.gpu.global.b32 [%d0+4], 1;", fenced("membar.gl;")),
        ("fence.sc.gpu; st.volatile.global.b32 [%d0+4], 1;", format!("{volatile} fence.sc.gpu;")),
        ("fence.release.gpu; red.relaxed.gpu.global.add.u32 [%d0+4], 1;", fenced("fence.acquire.gpu;")),
        ("membar.sys; atom.global.exch.b32 %r9, [%d0+4], 1;", fenced("fence.acq_rel.sys;")),
        ("red.release.gpu.global.or.b32 [%d0+4], 1;", acquire.clone()),
    ] {
        let r = message(publish, &wait);
        assert!(kinds(&r).is_empty(), "{publish} {wait}: {:?}", r.findings);
    }
    for (publish, wait) in [
        ("st.relaxed.gpu.global.b32 [%d0+4], 1;", acquire.clone()),
        ("st.release.gpu.global.b32 [%d0+4], 1;", relaxed.clone()),
        ("membar.gl; st.relaxed.gpu.global.b32 [%d0+4], 1;", relaxed.clone()),
        ("st.relaxed.gpu.global.b32 [%d0+4], 1; membar.gl;", fenced("membar.gl;")),
    ] {
        let r = message(publish, &wait);
        assert_eq!(kinds(&r), [FindingKind::GlobalRace], "{publish} {wait}");
    }
}

#[test]
fn control_flow() {
    let rows: Vec<Vec<u64>> = (0..32u64).map(|l| vec![l]).collect();
    // A jump table by lane, a branch that all take, a loop of as many turns as the lane, an early exit.
    let body = "and.b32 %r1, %r0, 3; mov.u64 %d5, 0; TABLE: .branchtargets A, B, C, D; brx.idx %r1, TABLE;
        A: mov.u64 %d5, 100; bra JOIN; B: mov.u64 %d5, 200; bra JOIN; C: mov.u64 %d5, 300; bra.uni JOIN; D: mov.u64 %d5, 400;
        JOIN: bra.uni OVER; mov.u64 %d5, 1; OVER: mov.u32 %r2, 0;
        LOOP: setp.ge.u32 %p1, %r2, %r0; @%p1 bra DONE; add.u64 %d5, %d5, 1; add.u32 %r2, %r2, 1; bra LOOP;
        DONE: st.global.b64 [%d2], %d5; setp.lt.u32 %p2, %r0, 16; @%p2 exit; nanosleep.u32 20; setmaxnreg.dec.sync.aligned.u32 24;
        griddepcontrol.wait; griddepcontrol.launch_dependents; pmevent 3; st.global.b64 [%d2+8], %r2x;"
        .replace("%r2x", "%d5");
    let body = format!("st.global.b64 [%d2+8], 9; {body}");
    let (out, r) = run("", &body, 1, &rows, 2);
    clean(&r);
    for (l, got) in out.iter().enumerate() {
        let v = 100 * (l as u64 % 4 + 1) + l as u64;
        assert_eq!(got[..], [v, if l < 16 { 9 } else { v }], "lane {l}");
    }
    let (_, r) = run("", "brx.idx %r0, T; T: .branchtargets A; A:", 1, &rows, 1);
    assert_eq!(kinds(&r), [FindingKind::OutOfBounds]);
    for stop in ["trap", "brkpt"] {
        let (_, r) = run("", &format!("setp.eq.u32 %p1, %r0, 7; @%p1 {stop};"), 1, &rows, 1);
        assert_eq!((kinds(&r), r.findings[0].lane), (vec![FindingKind::Trap], 7), "{stop}");
    }
}

#[test]
fn functions_are_called_with_their_arguments() {
    let text = ".version 9.0\n.target sm_90a\n.func (.param .b64 r) add3(.param .b64 a, .param .b32 b) {\n\
        .reg .b64 %d<4>; .reg .b32 %r<2>; .reg .pred %p<2>; ld.param.b64 %d1, [a]; ld.param.b32 %r1, [b]; cvt.u64.u32 %d2, %r1;\n\
        add.u64 %d3, %d1, %d2; st.param.b64 [r], %d3; setp.lt.u64 %p1, %d3, 50; @%p1 ret; add.u64 %d3, %d3, 1000; st.param.b64 [r], %d3; ret; }\n\
        .visible .entry k(.param .u64 out) { .reg .b64 %d<9>; .reg .b32 %r<3>; .reg .pred %p<2>;\n\
        mov.u32 %r0, %tid.x; ld.param.u64 %d0, [out]; mad.wide.u32 %d1, %r0, 8, %d0; mov.u64 %d4, 7; setp.ne.u32 %p1, %r0, 3;\n\
        { .param .b64 x; .param .b32 y; .param .b64 z; cvt.u64.u32 %d2, %r0; st.param.b64 [x], %d2; st.param.b32 [y], 40;\n\
        st.param.b64 [z], 7; @%p1 call.uni (z), add3, (x, y); ld.param.b64 %d4, [z]; }\n\
        st.global.b64 [%d1], %d4; ret; }";
    let p = Program::load(&parse(text).expect("parses"), "k").unwrap_or_else(|e| panic!("{}", e[0]));
    let mut m = Memory::new();
    let out = m.add_output("out", 256);
    let r = p.run(&m, &Launch::new([1; 3], [32, 1, 1]).arg(out)).expect("launches");
    clean(&r);
    for (l, v) in u32s(&m.bytes(out)).iter().step_by(2).enumerate() {
        let sum = l as u32 + 40;
        assert_eq!(
            *v,
            if l == 3 {
                7
            } else if sum < 50 {
                sum
            } else {
                sum + 1000
            },
            "lane {l}"
        );
    }
}

#[test]
fn addresses_know_their_space() {
    let rows: Vec<Vec<u64>> = vec![vec![0]; 32];
    // Which of global, shared, local, param each kind of generic address belongs to, as bits.
    let test = |d: &str, shift: u32| {
        ["global", "shared", "local", "param"]
            .iter()
            .enumerate()
            .map(|(k, s)| {
                format!(
                    "isspacep.{s} %p1, {d}; selp.b64 %d20, {}, 0, %p1; or.b64 %d21, %d21, %d20;\n",
                    1 << (shift + k as u32)
                )
            })
            .collect::<String>()
    };
    let body = format!(
        "mov.u64 %d21, 0; mov.u64 %d10, cells; cvta.shared.u64 %d10, %d10; mov.u64 %d11, own; cvta.local.u64 %d11, %d11;
         mov.u64 %d12, in; cvta.param.u64 %d12, %d12; cvta.global.u64 %d13, %d1; mov.u64 %d14, 64;\n{}{}{}{}{}
         st.global.b64 [%d2], %d21; cvta.to.shared.u64 %d15, %d10; mov.u64 %d16, cells; sub.u64 %d15, %d15, %d16; st.global.b64 [%d2+8], %d15;
         cvta.to.local.u64 %d15, %d11; mov.u64 %d16, own; sub.u64 %d15, %d15, %d16; st.global.b64 [%d2+16], %d15;
         cvta.to.global.u64 %d15, %d13; sub.u64 %d15, %d15, %d1; st.global.b64 [%d2+24], %d15;
         prefetch.global.L2 [%d1]; prefetchu.L1 [%d1]; applypriority.global.L2::evict_normal [%d1], 128; discard.global.L2 [%d2], 128;",
        test("%d13", 0),
        test("%d10", 4),
        test("%d11", 8),
        test("%d12", 12),
        test("%d14", 16),
    );
    let (out, r) = run(".shared .align 8 .b8 cells[8]; .local .align 8 .b8 own[8];", &body, 1, &rows, 4);
    clean(&r);
    assert!(out.iter().all(|o| o[..] == [0x8421, 0, 0, 0]), "{:x?}", out[0]);
}

#[test]
fn addresses_of_other_blocks_carry_their_rank() {
    let body = "mov.u32 %r20, %cluster_ctarank; mov.u32 %r21, tile; mul.lo.u32 %r22, %r20, 11; st.shared.b32 [%r21], %r22;
        barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
        xor.b32 %r23, %r20, 1; mapa.shared::cluster.u32 %r24, %r21, %r23; ld.shared::cluster.b32 %r25, [%r24];
        cvt.u64.u32 %d10, %r21; cvta.shared.u64 %d10, %d10; mapa.u64 %d11, %d10, %r23; ld.b32 %r26, [%d11];
        getctarank.shared::cluster.u32 %r27, %r24; getctarank.u64 %r28, %d11; getctarank.shared::cluster.u32 %r29, %r21;
        mov.u32 %r30, %ctaid.x; mad.lo.u32 %r30, %r30, 32, %r0; mad.wide.u32 %d2, %r30, 4, %d0;
        shl.b32 %r26, %r26, 8; shl.b32 %r27, %r27, 16; shl.b32 %r28, %r28, 18; shl.b32 %r29, %r29, 20;
        add.u32 %r25, %r25, %r26; add.u32 %r25, %r25, %r27; add.u32 %r25, %r25, %r28; add.u32 %r25, %r25, %r29; st.global.b32 [%d2], %r25;
        barrier.cluster.arrive; barrier.cluster.wait;";
    let (out, r) = words(
        BAR,
        &format!(
            "setp.ne.u32 %p1, %r0, 0; @%p1 bra ALL; ALL: {}",
            body.replace("st.shared.b32 [%r21], %r22;", "setp.eq.u32 %p2, %r0, 0; @%p2 st.shared.b32 [%r21], %r22;")
        ),
        4,
        32,
        2,
        128,
    );
    clean(&r);
    for (k, v) in out.iter().enumerate() {
        let rank = k as u32 / 32 % 2;
        let other = 1 - rank;
        let want = 11 * other + (11 * other << 8) + (other << 16) + (other << 18) + (rank << 20);
        assert_eq!(*v, want, "thread {k}");
    }
}

#[test]
fn every_warp_vote_match_and_reduction() {
    let values: Vec<u64> = (0..32u64).map(|l| (l * l * 0x9e37_79b9 + 3) & 0xffff_ffff).collect();
    let input: Vec<Vec<u64>> = values.iter().map(|v| vec![*v, v % 3 << 40 | 5]).collect();
    let all = |f: &dyn Fn(u32, u32) -> u32| values.iter().map(|v| *v as u32).reduce(f).expect("not empty");
    type Step<'a> = (&'a str, u32);
    let steps: [Step; 11] = [
        ("redux.sync.add.u32", all(&u32::wrapping_add)),
        ("redux.sync.add.s32", all(&u32::wrapping_add)),
        ("redux.sync.min.u32", all(&u32::min)),
        ("redux.sync.max.u32", all(&u32::max)),
        ("redux.sync.min.s32", all(&|a, b| (a as i32).min(b as i32) as u32)),
        ("redux.sync.max.s32", all(&|a, b| (a as i32).max(b as i32) as u32)),
        ("redux.sync.and.b32", all(&|a, b| a & b)),
        ("redux.sync.or.b32", all(&|a, b| a | b)),
        ("redux.sync.xor.b32", all(&|a, b| a ^ b)),
        ("", 0),
        ("", 0),
    ];
    for (op, want) in steps.iter().filter(|s| !s.0.is_empty()) {
        let body =
            format!("ld.global.b32 %r1, [%d1]; {op} %r2, %r1, -1; cvt.u64.u32 %d3, %r2; st.global.b64 [%d2], %d3;");
        let (out, r) = run("", &body, 1, &input, 1);
        clean(&r);
        assert!(out.iter().all(|o| o[0] == u64::from(*want)), "{op}");
    }
    let body = "ld.global.b64 %d4, [%d1+8]; match.any.sync.b64 %r2, %d4, -1; cvt.u64.u32 %d3, %r2; st.global.b64 [%d2], %d3;
        match.all.sync.b64 %r2|%p1, %d4, -1; selp.b32 %r3, 1, 0, %p1; or.b32 %r2, %r2, %r3; cvt.u64.u32 %d3, %r2; st.global.b64 [%d2+8], %d3;";
    let (out, r) = run("", body, 1, &input, 2);
    clean(&r);
    for l in 0..32 {
        let same = (0..32).filter(|j| input[*j][1] == input[l][1]).fold(0u64, |m, j| m | 1 << j);
        assert_eq!(out[l][..], [same, 0], "lane {l}");
    }
    for (limit, uniform) in [(0u64, true), (1 << 32, true), (values[5] + 1, false)] {
        let body = format!(
            "ld.global.b64 %d4, [%d1]; setp.lt.u64 %p1, %d4, {limit}; vote.sync.uni.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1;
             selp.b64 %d3, 1, 0, %p2; selp.b64 %d5, 2, 0, %p3; or.b64 %d3, %d3, %d5; st.global.b64 [%d2], %d3;"
        );
        let (out, r) = run("", &body, 1, &input, 1);
        clean(&r);
        let want = u64::from(uniform) | if values.iter().all(|v| *v < limit) { 2 } else { 0 };
        assert!(out.iter().all(|o| o[0] == want), "{limit}");
    }
}

#[test]
fn fences_that_order_nothing_here() {
    // They are executed and change nothing; tensor maps are never rewritten, and prefetches move nothing.
    let body = "mov.b64 %d5, 7; mov.u32 %r9, 0; setp.ne.u32 %p1, %r0, %r0; fence.proxy.alias; fence.proxy.tensormap::generic.release.gpu;
        fence.proxy.tensormap::generic.acquire.gpu [%d2], 128; fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;
        @%p1 cp.async.bulk.prefetch.tensor.2d.L2.global [%d5, {%r9, %r9}]; st.global.b64 [%d2], %d5;";
    let (out, r) = run("", body, 1, &vec![vec![0]; 32], 1);
    clean(&r);
    assert!(out.iter().all(|o| o[0] == 7));
}
