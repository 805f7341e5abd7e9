//! Lanes of one warp are threads of their own: what one writes, another may read only after an operation that orders them.

mod warps;

use warps::{clean, run};

#[test]
fn a_warp_barrier_orders_its_lanes() {
    // Each lane reads what its neighbour wrote; then halves of the warp wait for each other alone.
    let body = "mov.u32 %r1, cells; mad.lo.u32 %r2, %r0, 4, %r1; add.u32 %r3, %r0, 7; st.shared.b32 [%r2], %r3; bar.warp.sync -1;
        xor.b32 %r4, %r0, 1; mad.lo.u32 %r5, %r4, 4, %r1; ld.shared.b32 %r6, [%r5]; bar.warp.sync 0xffffffff; setp.ge.u32 %p1, %r0, 16;
        @%p1 bra HIGH; st.shared.b32 [%r2], %r0; bar.warp.sync 0xffff; ld.shared.b32 %r7, [%r5]; bra JOIN;
        HIGH: st.shared.b32 [%r2], %r0; bar.warp.sync 0xffff0000; ld.shared.b32 %r7, [%r5];
        JOIN: mov.b64 %d3, {%r6, %r7}; st.global.b64 [%d2], %d3;";
    let (out, r) = run(".shared .align 4 .b8 cells[128];", body, 1, &vec![vec![0]; 32], 1);
    clean(&r);
    assert!(out.iter().enumerate().all(|(l, o)| o[0] == (l as u64 ^ 1) << 32 | ((l as u64 ^ 1) + 7)), "{out:?}");
}
