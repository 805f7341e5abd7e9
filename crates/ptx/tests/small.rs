//! A kernel small enough for miri (`cargo +nightly miri test -p spinec-ptx --test small`): the paths that touch memory
//! shared between threads, lane functions through pointers, divergence, and accesses outside buffers.

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
