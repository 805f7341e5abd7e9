//! Launches as a whole: cooperative grids, tensor copies of every rank, bulk copies, counters, limits.

// Layout formulas stay as close to the ISA's text as they can.
#![allow(clippy::precedence, clippy::needless_range_loop, clippy::manual_is_multiple_of)]
#![allow(clippy::format_in_format_args, clippy::type_complexity)]

mod common;

use common::*;
use spinec_ptx::{
    Access, Arg, BufferId, FindingKind, Launch, LaunchError, Memory, Options, Program, Report, TensorMap, TensorType,
    parse,
};

fn program(params: &str, declare: &str, body: &str) -> Program {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k({params}) {{\n\
         .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .f32 %f<9>;\n{declare}\n{body}\nret;\n}}"
    );
    let m = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Program::load(&m, "k").unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

fn list(r: &Report) -> String {
    r.findings.iter().map(|f| format!("\n{f}")).collect()
}

/// Every block adds one to its neighbour's cell after a barrier of the whole grid, three times.
fn grid_barrier() -> Program {
    program(
        ".param .u64 cells, .param .u64 count",
        "",
        "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x; ld.param.u64 %d1, [cells]; ld.param.u64 %d2, [count];
         mov.u32 %r4, 0;
         ROUND: add.u32 %r5, %r2, %r4; rem.u32 %r5, %r5, %r3; mad.wide.u32 %d3, %r5, 4, %d1;
         setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT;
         ld.global.u32 %r6, [%d3]; add.u32 %r6, %r6, 1; st.global.u32 [%d3], %r6;
         WAIT: bar.sync 0; @%p1 bra JOIN;
         membar.gl; atom.global.add.u32 %r7, [%d2], 1;
         add.u32 %r8, %r4, 1; mul.lo.u32 %r8, %r8, %r3;
         SPIN: ld.acquire.gpu.global.u32 %r9, [%d2]; setp.lt.u32 %p2, %r9, %r8; @%p2 bra SPIN;
         membar.gl;
         JOIN: bar.sync 0; add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 3; @%p3 bra ROUND;",
    )
}

#[test]
fn blocks_wait_for_each_other_when_resident() {
    let p = grid_barrier();
    let run = |cooperative: bool| {
        let mut m = Memory::new();
        let cells = m.add("cells", &[0; 20], Access::InOut);
        let count = m.add("count", &[0; 4], Access::InOut);
        let options = Options { cooperative, idle_rounds: 50, ..Options::default() };
        let r =
            p.run(&m, &Launch::new([5, 1, 1], [64, 1, 1]).arg(cells).arg(count).options(options)).expect("launches");
        (r, u32s(&m.bytes(cells)))
    };
    let (r, cells) = run(true);
    assert!(r.findings.is_empty(), "{}", list(&r));
    assert_eq!(cells, [3; 5]);
    let (r, _) = run(false);
    assert!(
        r.findings.iter().any(|f| f.kind == FindingKind::Livelock && f.message.contains("cooperative")),
        "{}",
        list(&r)
    );
}

#[test]
fn an_unordered_grid_barrier_is_a_race() {
    let p = program(
        ".param .u64 cells",
        "",
        "mov.u32 %r2, %ctaid.x; ld.param.u64 %d1, [cells]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 exit;
         shr.u32 %r3, %r2, 1; mad.wide.u32 %d3, %r3, 4, %d1; st.global.u32 [%d3], %r2;",
    );
    for threads in [1, 2, 4] {
        let mut m = Memory::new();
        let cells = m.add_output("cells", 16);
        let options = Options { threads, ..Options::default() };
        let r = p.run(&m, &Launch::new([8, 1, 1], [32, 1, 1]).arg(cells).options(options)).expect("launches");
        assert_eq!(r.findings.len(), 1, "{}", list(&r));
        let f = &r.findings[0];
        assert_eq!((f.kind, f.cta, f.count), (FindingKind::GlobalRace, [1, 0, 0], 4), "{f}");
        // The last block in order wins, whatever the number of threads.
        assert_eq!(u32s(&m.bytes(cells)), [1, 3, 5, 7]);
    }
}

/// Loads one box into shared memory and copies it out in linear order.
fn tma_load(rank: usize, bytes: usize) -> Program {
    let coords: Vec<String> = (0..rank).map(|k| format!("%r{}", 10 + k)).collect();
    let loads: String = (0..rank).map(|k| format!("ld.param.u32 %r{}, [c{k}];\n", 10 + k)).collect();
    let params: String = (0..5).map(|k| format!(", .param .u32 c{k}")).collect();
    program(
        &format!(".param .align 64 .b8 map[128], .param .u64 out{params}"),
        &format!(".shared .align 1024 .b8 tile[{bytes}]; .shared .align 8 .b8 bar[8];"),
        &format!(
            "mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, bar; setp.ne.u32 %p1, %r1, 0; mov.b64 %d1, map; cvta.param.u64 %d1, %d1;
             {loads}@%p1 bra SYNC;
             mbarrier.init.shared::cta.b64 [%r3], 1; fence.mbarrier_init.release.cluster;
             mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {bytes};
             cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%d1, {{{}}}], [%r3];
             SYNC: bar.sync 0;
             TRY: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra TRY;
             ld.param.u64 %d2, [out];
             COPY: setp.ge.u32 %p3, %r1, {bytes}; @%p3 exit; add.u32 %r4, %r2, %r1; ld.shared.u8 %h1, [%r4];
             cvt.u64.u32 %d3, %r1; add.u64 %d3, %d3, %d2; st.global.u8 [%d3], %h1; add.u32 %r1, %r1, 32; bra COPY;",
            coords.join(", ")
        ),
    )
}

#[test]
fn tensor_loads_of_every_rank() {
    for (rank, swizzle) in [(1, 0), (2, 0), (2, 32), (2, 64), (2, 128), (3, 64), (4, 0), (5, 32)] {
        let mut r = Rng(rank as u64 * 100 + swizzle);
        let all_dims = [if swizzle == 0 { 40u64 } else { swizzle / 2 + 8 }, 9, 4, 3, 2];
        let all_box = [if swizzle == 0 { 24u32 } else { swizzle as u32 / 2 }, 8, 2, 2, 1];
        let dims = all_dims[..rank].to_vec();
        let boxes = all_box[..rank].to_vec();
        let mut strides = Vec::new();
        let mut s = dims[0] * 2;
        for d in &dims[1..] {
            s = s.next_multiple_of(16);
            strides.push(s);
            s *= d;
        }
        let data = r.bf16((s / 2) as usize);
        let total: usize = boxes.iter().product::<u32>() as usize * 2;
        let p = tma_load(rank, total);
        // Inside, past the end, before the start.
        for start in [[0i32; 5], [8, 3, 3, 2, 1], [-8, -2, -1, -1, 0]] {
            let mut m = Memory::new();
            let x = m.add("x", &data.bytes(), Access::In);
            let out = m.add_output("out", total);
            let map = TensorMap {
                ty: TensorType::BF16,
                base: m.address(x, 0),
                dims: dims.clone(),
                strides: strides.clone(),
                box_dims: boxes.clone(),
                element_strides: vec![],
                swizzle: swizzle as u32,
                nan_fill: false,
            };
            let mut launch = Launch::new([1; 3], [32, 1, 1]).arg(Arg::Map(map)).arg(out);
            for c in start {
                launch = launch.arg(Arg::I32(c));
            }
            let report = p.run(&m, &launch).expect("launches");
            assert!(report.is_clean(), "rank {rank} swizzle {swizzle} at {start:?}: {}", list(&report));
            let got = m.bytes(out);
            for k in 0..total / 2 {
                let (mut rest, mut at, mut inside) = (k, 0usize, true);
                for d in 0..rank {
                    let c = start[d] + (rest % boxes[d] as usize) as i32;
                    rest /= boxes[d] as usize;
                    inside &= (0..dims[d] as i32).contains(&c);
                    at = at.wrapping_add_signed(c as isize * if d == 0 { 2 } else { strides[d - 1] as isize });
                }
                let want = if inside { data[at / 2] } else { 0 };
                // The swizzle exchanges the 16-byte units of a row by bits 7 and up of the address.
                let byte = 2 * k;
                let flip = match swizzle {
                    128 => byte / 128 % 8,
                    64 => byte / 128 % 4,
                    32 => byte / 128 % 2,
                    _ => 0,
                };
                let place = byte ^ (flip * 16);
                let v = u16::from_le_bytes([got[place], got[place + 1]]);
                assert_eq!(v, want, "rank {rank} swizzle {swizzle} at {start:?} element {k}");
            }
        }
    }
}

#[test]
fn bulk_copies_and_reductions() {
    let p = program(
        ".param .u64 x, .param .u64 y",
        ".shared .align 16 .b8 tile[64]; .shared .align 8 .b8 bar[8];",
        "mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, bar; ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y];
         setp.ne.u32 %p1, %r1, 0; @%p1 exit;
         mbarrier.init.shared::cta.b64 [%r3], 1; fence.mbarrier_init.release.cluster;
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 64;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1], 64, [%r3];
         TRY: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra TRY;
         cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d2], [%r2], 64;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
         cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d2+16], [%r2], 32;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
    );
    let mut m = Memory::new();
    let x: Vec<f32> = (0..16).map(|k| k as f32).collect();
    let ix = m.add("x", &x.bytes(), Access::In);
    let y = m.add("y", &[1f32; 16].bytes(), Access::InOut);
    let r = p.run(&m, &Launch::new([1; 3], [32, 1, 1]).arg(ix).arg(y)).expect("launches");
    assert!(r.findings.is_empty(), "{}", list(&r));
    let want: Vec<f32> =
        (0..16).map(|k| 1.0 + k as f32 + if (4..12).contains(&k) { (k - 4) as f32 } else { 0.0 }).collect();
    assert_eq!(f32s(&m.bytes(y)), want);
    assert_eq!((r.counters.total.bytes_loaded, r.counters.total.bytes_stored), (64, 96));
}

#[test]
fn counters_of_a_known_kernel() {
    let c = transpose(64, 64);
    let p = load("transpose.sm_80.ptx", "transpose");
    let r = c.run(&p, Options::default());
    let t = &r.counters.total;
    assert_eq!((t.bytes_loaded, t.bytes_stored), (64 * 64 * 4, 64 * 64 * 4));
    assert_eq!((r.counters.unique_bytes, r.counters.requested_bytes), (2 * 64 * 64 * 4, 2 * 64 * 64 * 4));
    // A row of 32 floats is a request of four sectors; the padded tile has no conflicts.
    assert_eq!((t.global_requests, t.sectors, t.ideal_sectors), (256, 1024, 1024));
    assert_eq!((t.shared_requests, t.wavefronts, t.ideal_wavefronts), (256, 256, 256));
    assert_eq!(r.counters.barriers, 4);
    let lanes: u64 = r.counters.classes.iter().map(|c| c.lane_instructions).sum();
    assert_eq!((lanes, r.counters.divergent_instructions), (r.counters.lane_instructions, 0));
    assert_eq!(r.counters.lines.iter().map(|l| l.counters.executed).sum::<u64>(), r.counters.warp_instructions);
    let c = gemm_mma(128, 128, 64);
    let r = c.run(&load("gemm_mma.sm_80.ptx", "gemm_mma"), Options::default());
    assert_eq!(r.counters.total.tensor_ops, 2 * 128 * 128 * 64);
    assert_eq!(r.counters.unique_bytes, 2 * (128 * 64 * 2 + 128 * 128));
    let c = gemm_wgmma(128, 128, 64);
    let r = c.run(&load("gemm_wgmma.sm_90a.ptx", "gemm_wgmma"), Options::default());
    assert_eq!(r.counters.total.tensor_ops, 2 * 128 * 128 * 64);
    // Two tiles of 128x64 bf16, and the result.
    assert_eq!(r.counters.unique_bytes, 2 * (128 * 64 * 2 + 128 * 128));
}

fn refuse(what: impl FnOnce(&mut Launch, BufferId)) -> LaunchError {
    let c = transpose(8, 8);
    let p = load("transpose.sm_80.ptx", "transpose");
    let mut l = c.launch.clone();
    what(&mut l, c.mem.ids().next().expect("has buffers"));
    p.run(&c.mem, &l).expect_err("is refused")
}

#[test]
fn impossible_launches_are_errors() {
    let config = |e: LaunchError, part: &str| match e {
        LaunchError::Config(m) => assert!(m.contains(part), "{m}"),
        other => panic!("{other}"),
    };
    config(refuse(|l, _| l.block = [2048, 1, 1]), "1024");
    config(refuse(|l, _| l.block = [0, 1, 1]), "1024");
    config(refuse(|l, _| l.block = [512, 1, 1]), "the kernel allows 256");
    config(refuse(|l, _| l.grid = [0, 1, 1]), "grid");
    config(refuse(|l, _| l.grid = [1, 70000, 1]), "grid");
    config(refuse(|l, _| l.shared = 1 << 20), "shared memory");
    config(refuse(|l, _| l.cluster = Some([3, 1, 1])), "not a multiple");
    assert_eq!(refuse(|l, _| drop(l.args.pop())), LaunchError::ArgumentCount { expected: 4, given: 3 });
    assert!(matches!(refuse(|l, _| l.args[3] = Arg::U64(1)), LaunchError::Argument { index: 3, .. }));
    assert!(matches!(refuse(|l, id| l.args[2] = Arg::from(id)), LaunchError::Argument { index: 2, .. }));
}
