//! Kernels small enough for miri (`cargo +nightly miri test -p spinec-ptx --test small`): the paths that touch memory
//! shared between threads, lane functions through pointers, divergence, barriers, atomics, asynchronous copies, matrix
//! fragments, and accesses outside buffers.

use spinec_ptx::{Access, FindingKind, Launch, Memory, Options, Program, parse};

const TEXT: &str = ".version 9.0\n.target sm_80\n.address_size 64
.visible .entry small(.param .u64 x, .param .u64 y, .param .u64 z) {
  .reg .pred %p<4>; .reg .b16 %h<3>; .reg .b32 %r<12>; .reg .b64 %d<9>; .reg .f32 %f<4>;
  .shared .align 4 .b8 tile[160];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 40, %r1;
  ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; ld.param.u64 %d3, [z];
  mul.wide.u32 %d4, %r3, 4; add.u64 %d5, %d1, %d4; ld.global.f32 %f1, [%d5];
  fma.rn.f32 %f1, %f1, %f1, 0f3F800000;
  mov.u32 %r4, tile; shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r4; st.shared.f32 [%r5], %f1;
  bar.sync 0;
  sub.u32 %r6, 39, %r1; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r4; ld.shared.f32 %f2, [%r6];
  and.b32 %r7, %r1, 3; mov.u32 %r8, 0;
LOOP:
  setp.ge.u32 %p1, %r8, %r7; @%p1 bra DONE;
  add.f32 %f2, %f2, %f1; add.u32 %r8, %r8, 1; bra LOOP;
DONE:
  add.u64 %d6, %d2, %d4; st.global.f32 [%d6], %f2;
  cvt.u64.u32 %d7, %r3; add.u64 %d8, %d3, %d7; st.global.u8 [%d8], %r1;
  setp.eq.u32 %p2, %r3, 119; @%p2 ld.global.v2.u32 {%r9, %r10}, [%d5+12];
  ret;
}";

#[test]
fn runs_on_two_threads_and_stays_inside_its_buffers() {
    let program = Program::load(&parse(TEXT).expect("parses"), "small").unwrap_or_else(|e| panic!("{}", e[0]));
    let x: Vec<f32> = (0..120).map(|k| k as f32 * 0.25).collect();
    let mut m = Memory::new();
    let ix = m.add("x", &x.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>(), Access::In);
    let (y, z) = (m.add_output("y", 480), m.add_output("z", 120));
    for options in [Options { threads: 2, ..Options::default() }, Options { threads: 2, ..Options::unchecked() }] {
        let launch = Launch::new([3, 1, 1], [40, 1, 1]).arg(ix).arg(y).arg(z).options(options);
        let r = program.run(&m, &launch).expect("launches");
        // The only fault is the last load, past the end.
        assert_eq!(r.findings.len(), 1, "{:?}", r.findings);
        assert_eq!(r.findings[0].kind, FindingKind::OutOfBounds);
        // A fault ends its block at once: the first two blocks are complete.
        let got = m.bytes(y);
        for (k, v) in got.chunks_exact(4).enumerate().take(80) {
            let f = |k: usize| x[k].mul_add(x[k], 1.0);
            let mirror = k / 40 * 40 + 39 - k % 40;
            let want = (0..k % 40 % 4).fold(f(mirror), |s, _| s + f(k));
            assert_eq!(f32::from_le_bytes([v[0], v[1], v[2], v[3]]), want, "element {k}");
        }
        assert!(m.bytes(z).iter().enumerate().take(80).all(|(k, v)| usize::from(*v) == k % 40));
    }
}

/// Runs a body of 40 threads in two blocks on two threads of the machine; `%d1` addresses this thread's word of the output.
fn run(declare: &str, body: &str) -> (Vec<u32>, Vec<FindingKind>) {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out) {{\n\
         .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %d<20>; .reg .f32 %f<9>;\n{declare}\n\
         mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 40, %r1; ld.param.u64 %d2, [in]; ld.param.u64 %d0, [out];\n\
         mad.wide.u32 %d1, %r3, 4, %d0;\n{body}\nret;\n}}"
    );
    let p = Program::load(&parse(&text).expect("parses"), "k").unwrap_or_else(|e| panic!("{}", e[0]));
    let mut m = Memory::new();
    let input: Vec<u8> = (0..64u32).flat_map(|v| (3 * v).to_le_bytes()).collect();
    let i = m.add("in", &input, Access::In);
    let o = m.add("out", &[0; 320], Access::InOut);
    let options = Options { threads: 2, idle_rounds: 20, ..Options::default() };
    let r = p.run(&m, &Launch::new([2, 1, 1], [40, 1, 1]).arg(i).arg(o).options(options)).expect("launches");
    let words = m.bytes(o).chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
    (words, r.errors().map(|f| f.kind).collect())
}

const TILE: &str = ".shared .align 16 .b8 tile[640]; .shared .align 8 .b8 bar[8];";

#[test]
fn barriers_of_the_block_and_of_lanes() {
    let (out, kinds) = run(
        TILE,
        "mov.u32 %r4, tile; mad.lo.u32 %r5, %r1, 4, %r4; st.shared.b32 [%r5], %r3; setp.lt.u32 %p1, %r1, 20; bar.red.popc.u32 %r6, 0, %p1;
         sub.u32 %r7, 39, %r1; mad.lo.u32 %r7, %r7, 4, %r4; ld.shared.b32 %r8, [%r7]; bar.sync 1;
         setp.ge.u32 %p2, %r1, 32; @%p2 bra OUT; st.shared.b32 [%r5], %r8; bar.warp.sync -1; xor.b32 %r9, %r1, 1; mad.lo.u32 %r9, %r9, 4, %r4;
         ld.shared.b32 %r8, [%r9]; shfl.sync.bfly.b32 %r8, %r8, 1, 31, -1; OUT: mad.lo.u32 %r8, %r6, 1000, %r8; st.global.b32 [%d1], %r8;",
    );
    assert_eq!(kinds, []);
    assert!(out.iter().enumerate().all(|(k, v)| *v as usize == 20_000 + k / 40 * 40 + 39 - k % 40), "{out:?}");
}

#[test]
fn atomics_on_both_memories() {
    let (out, kinds) = run(
        TILE,
        "mov.u32 %r4, tile; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.b64 [%r4], 0; bar.sync 0; atom.shared.add.u32 %r5, [%r4], 2;
         cvt.rn.f32.u32 %f1, %r1; red.shared.add.f32 [%r4+4], %f1; red.global.add.u32 [%d0+4], 1; atom.global.max.u32 %r6, [%d0+8], %r3; bar.sync 0;
         @!%p1 exit; ld.shared.v2.b32 {%r7, %r8}, [%r4]; mov.b32 %f2, %r8; cvt.rzi.u32.f32 %r8, %f2; add.u32 %r7, %r7, %r8; atom.global.add.u32 %r9, [%d0], %r7;",
    );
    assert_eq!(kinds, []);
    assert_eq!(out[..3], [2 * (80 + 780), 80, 79]);
}

#[test]
fn copies_by_lanes_and_in_bulk() {
    let (out, kinds) = run(
        TILE,
        "mov.u32 %r4, tile; mov.u32 %r10, bar; setp.ne.u32 %p1, %r1, 0; @!%p1 mbarrier.init.shared.b64 [%r10], 1; bar.sync 0; @%p1 bra LANES;
         mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 64;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4+512], [%d2], 64, [%r10];
         LANES: and.b32 %r5, %r1, 15; mad.wide.u32 %d3, %r5, 4, %d2; mad.lo.u32 %r6, %r1, 4, %r4; cp.async.ca.shared.global [%r6], [%d3], 4;
         cp.async.commit_group; TRY: mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0; @!%p2 bra TRY; cp.async.wait_group 0;
         ld.shared.b32 %r7, [%r6]; mad.lo.u32 %r8, %r5, 4, %r4; ld.shared.b32 %r9, [%r8+512]; mad.lo.u32 %r7, %r7, 100, %r9; st.global.b32 [%d1], %r7;",
    );
    assert_eq!(kinds, []);
    assert!(out.iter().enumerate().all(|(k, v)| *v as usize == 303 * (k % 40 % 16)), "{out:?}");
}

#[test]
fn fragments_of_matrices() {
    let (out, kinds) = run(
        TILE,
        "setp.ge.u32 %p1, %r1, 32; @%p1 exit; mov.u32 %r4, tile; mad.lo.u32 %r5, %r1, 4, %r4; mov.b32 %r6, 0x3f803f80; st.shared.b32 [%r5], %r6; bar.warp.sync -1;
         and.b32 %r7, %r1, 7; mad.lo.u32 %r7, %r7, 16, %r4; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r7]; mov.f32 %f1, 0f3F800000;
         mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5}, {%r8, %r8}, {%r8}, {%f1, %f1, %f1, %f1};
         cvt.rzi.u32.f32 %r9, %f5; st.global.b32 [%d1], %r9;",
    );
    assert_eq!(kinds, []);
    assert!(out.iter().enumerate().all(|(k, v)| *v == if k % 40 < 32 { 9 } else { 0 }), "{out:?}");
}
