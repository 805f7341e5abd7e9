//! Atomics and reductions in every type and space, asynchronous stores and reductions, and plain accesses of every width,
//! against statements of their own.

#![allow(clippy::precedence, clippy::needless_range_loop)]

mod common;
mod warps;

use common::{Rng, f32s};
use half::{bf16, f16};
use spinec_ptx::{Access, Arg, FindingKind, Launch, Memory, Program, TensorMap, TensorType, parse};
use warps::{clean, run};

fn load(params: &str, declare: &str, body: &str) -> Program {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k({params}) {{\n\
         .reg .pred %p<9>; .reg .b16 %h<40>; .reg .b32 %r<60>; .reg .b64 %d<60>; .reg .f32 %f<9>;\n{declare}\n{body}\nret;\n}}"
    );
    let m = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Program::load(&m, "k").unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

/// Bits of a type, and the register prefix of its width.
fn width(ty: &str) -> (u32, char) {
    match ty {
        "b16" | "f16" | "bf16" => (16, 'h'),
        t if t.ends_with("64") => (64, 'd'),
        _ => (32, 'r'),
    }
}

/// What an operation makes of an old value and an operand, stated by type with the `half` crate and wide integers.
fn combined(op: &str, ty: &str, old: u64, v: u64, flush: bool) -> u64 {
    let pair = |f: &dyn Fn(u16, u16) -> u16| {
        u64::from(f(old as u16, v as u16)) | u64::from(f((old >> 16) as u16, (v >> 16) as u16)) << 16
    };
    let add16 = |a: u16, b: u16| f16::from_bits(a).to_f64() + f16::from_bits(b).to_f64();
    let addb = |a: u16, b: u16| bf16::from_bits(a).to_f64() + bf16::from_bits(b).to_f64();
    let ftz = |x: f32| if flush && x.is_subnormal() { 0f32.copysign(x) } else { x };
    let signed = |x: u64| if width(ty).0 == 64 { x as i64 } else { i64::from(x as u32 as i32) };
    let new = match (op, ty) {
        ("add", "f16") => u64::from(f16::from_f64(add16(old as u16, v as u16)).to_bits()),
        ("add", "bf16") => u64::from(bf16::from_f64(addb(old as u16, v as u16)).to_bits()),
        ("add", "f16x2") => pair(&|a, b| f16::from_f64(add16(a, b)).to_bits()),
        ("add", "bf16x2") => pair(&|a, b| bf16::from_f64(addb(a, b)).to_bits()),
        ("add", "f32") => {
            let sum = ftz(f32::from_bits(old as u32)) + ftz(f32::from_bits(v as u32));
            u64::from(ftz(sum).to_bits())
        }
        ("add", "f64") => (f64::from_bits(old) + f64::from_bits(v)).to_bits(),
        ("min", "f16") => u64::from(f16::from_bits(old as u16).min(f16::from_bits(v as u16)).to_bits()),
        ("max", "f16") => u64::from(f16::from_bits(old as u16).max(f16::from_bits(v as u16)).to_bits()),
        ("min", "bf16") => u64::from(bf16::from_bits(old as u16).min(bf16::from_bits(v as u16)).to_bits()),
        ("max", "bf16") => u64::from(bf16::from_bits(old as u16).max(bf16::from_bits(v as u16)).to_bits()),
        ("min", "s32" | "s64") => signed(old).min(signed(v)) as u64,
        ("max", "s32" | "s64") => signed(old).max(signed(v)) as u64,
        ("min", _) => old.min(v),
        ("max", _) => old.max(v),
        ("add", _) => old.wrapping_add(v),
        ("inc", _) => {
            if old >= v {
                0
            } else {
                old + 1
            }
        }
        ("dec", _) => {
            if old == 0 || old > v {
                v
            } else {
                old - 1
            }
        }
        ("and", _) => old & v,
        ("or", _) => old | v,
        ("xor", _) => old ^ v,
        ("exch", _) => v,
        _ => panic!("no statement of {op}.{ty}"),
    };
    new & if width(ty).0 == 64 { !0 } else { (1 << width(ty).0) - 1 }
}

/// A finite value of a type, often small.
fn sample(r: &mut Rng, ty: &str) -> u64 {
    let small = r.below(4000) as f64 / 16.0 - 120.0;
    match ty {
        "f16" => u64::from(f16::from_f64(small).to_bits()),
        "bf16" => u64::from(bf16::from_f64(small).to_bits()),
        "f16x2" => sample(r, "f16") | sample(r, "f16") << 16,
        "bf16x2" => sample(r, "bf16") | sample(r, "bf16") << 16,
        // Some subnormal, which global sums flush and shared ones keep.
        "f32" if r.below(3) == 0 => 1 + r.below(0x7f_fffe) | r.below(2) << 31,
        "f32" => u64::from((small as f32 * 1.1).to_bits()),
        "f64" => (small * 1.1).to_bits(),
        _ => {
            let v = r.next() >> (r.next() & 63);
            if width(ty).0 == 64 { v } else { v & 0xffff_ffff }
        }
    }
}

const ATOMICS: [(&str, &[&str]); 9] = [
    ("add", &["u32", "s32", "u64", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64"]),
    ("min", &["u32", "s32", "u64", "s64"]),
    ("max", &["u32", "s32", "u64", "s64"]),
    ("inc", &["u32"]),
    ("dec", &["u32"]),
    ("and", &["b32", "b64"]),
    ("or", &["b32", "b64"]),
    ("xor", &["b32", "b64"]),
    ("exch", &["b16", "b32", "b64"]),
];

/// Lane by lane: each has a location of its own, so order does not matter.
#[test]
fn atomics_of_every_type_in_global_and_shared_memory() {
    let mut r = Rng(41);
    for (op, types) in ATOMICS {
        for ty in types {
            let (bits, c) = width(ty);
            let noftz = if ty.contains("16") && op == "add" { "noftz." } else { "" };
            let pairs: Vec<Vec<u64>> = (0..64).map(|_| vec![sample(&mut r, ty), sample(&mut r, ty)]).collect();
            for (reduce, global) in [(false, false), (false, true), (true, false), (true, true)] {
                if reduce && op == "exch" {
                    continue;
                }
                let space = if global { "global" } else { "shared" };
                let name = if reduce { "red" } else { "atom" };
                let result = if reduce { String::new() } else { format!("%{c}30, ") };
                // Global memory: the lane's own output slot.
                let address = if global { "%d2" } else { "%d9" };
                let widen =
                    if c == 'd' { "mov.b64 %d8, %d30;".into() } else { format!("cvt.u64.u{bits} %d8, %{c}30;") };
                let body = format!(
                    "mov.u64 %d9, cells; mad.wide.u32 %d9, %r0, 8, %d9; ld.global.b64 %d3, [%d1]; ld.global.b{bits} %{c}20, [%d1+8];\n\
                     mov.b{bits} %{c}30, 0; st.{space}.b64 [{address}], %d3;\n\
                     {name}.{space}.{op}.{noftz}{ty} {result}[{address}], %{c}20;\n\
                     {widen} st.global.b64 [%d2+8], %d8; ld.{space}.b64 %d4, [{address}]; st.global.b64 [%d2], %d4;",
                );
                let (out, report) = run(".shared .align 8 .b8 cells[512];", &body, 2, &pairs, 2);
                clean(&report);
                for (row, got) in pairs.iter().zip(&out) {
                    let mask = if bits == 64 { !0 } else { (1u64 << bits) - 1 };
                    let new = combined(op, ty, row[0] & mask, row[1], global);
                    let want = [row[0] & !mask | new, if reduce { 0 } else { row[0] & mask }];
                    assert_eq!(got[..], want, "{name}.{space}.{op}.{ty} of {row:x?}");
                }
            }
        }
    }
}

#[test]
fn compare_and_swap_of_every_width() {
    for (ty, bits, c) in [("b16", 16, 'h'), ("b32", 32, 'r'), ("b64", 64, 'd')] {
        // Old value, comparand, replacement: equal in even lanes.
        let rows: Vec<Vec<u64>> = (0..32u64).map(|l| vec![l + 5, l + 5 + (l & 1), 900 + l]).collect();
        for space in ["global", "shared"] {
            let address = if space == "global" { "%d2" } else { "%d9" };
            let widen = if c == 'd' { "mov.b64 %d8, %d30;".into() } else { format!("cvt.u64.u{bits} %d8, %{c}30;") };
            let body = format!(
                "mov.u64 %d9, cells; mad.wide.u32 %d9, %r0, 8, %d9; ld.global.b64 %d3, [%d1]; st.{space}.b64 [{address}], %d3;\n\
                 ld.global.b{bits} %{c}20, [%d1+8]; ld.global.b{bits} %{c}21, [%d1+16];\n\
                 atom.{space}.cas.{ty} %{c}30, [{address}], %{c}20, %{c}21; {widen} st.global.b64 [%d2+8], %d8;\n\
                 ld.{space}.b64 %d4, [{address}]; st.global.b64 [%d2], %d4;"
            );
            let (out, report) = run(".shared .align 8 .b8 cells[256];", &body, 1, &rows, 2);
            clean(&report);
            for (l, got) in out.iter().enumerate() {
                let (old, new) = (5 + l as u64, if l % 2 == 0 { 900 + l as u64 } else { 5 + l as u64 });
                assert_eq!(got[..], [new, old], "{space} {ty} lane {l}");
            }
        }
    }
}

const REDUCTIONS: [(&str, &[&str]); 8] = [
    ("add", &["u32", "s32", "u64", "f16", "bf16", "f32", "f64"]),
    ("min", &["u32", "s32", "u64", "s64", "f16", "bf16"]),
    ("max", &["u32", "s32", "u64", "s64", "f16", "bf16"]),
    ("inc", &["u32"]),
    ("dec", &["u32"]),
    ("and", &["b32", "b64"]),
    ("or", &["b32", "b64"]),
    ("xor", &["b32", "b64"]),
];

fn packed(values: &[u64], ty: &str) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()[..width(ty).0 as usize / 8].to_vec()).collect()
}

#[test]
fn bulk_reductions_of_every_type() {
    let mut r = Rng(43);
    for (op, types) in REDUCTIONS {
        for ty in types {
            let n = 128 / (width(ty).0 as usize / 8);
            let old: Vec<u64> = (0..n).map(|_| sample(&mut r, ty)).collect();
            let v: Vec<u64> = (0..n).map(|_| sample(&mut r, ty)).collect();
            let noftz = if matches!(*ty, "f16" | "bf16") && op == "add" { "noftz." } else { "" };
            let p = load(
                ".param .u64 x, .param .u64 y",
                ".shared .align 16 .b8 tile[128];",
                &format!(
                    "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; mov.u32 %r2, tile;
                     shl.b32 %r3, %r1, 2; cvt.u64.u32 %d3, %r3; add.u64 %d4, %d1, %d3; add.u32 %r4, %r2, %r3;
                     ld.global.b32 %r5, [%d4]; st.shared.b32 [%r4], %r5; fence.proxy.async; bar.sync 0;
                     setp.ne.u32 %p1, %r1, 0; @%p1 exit;
                     cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{noftz}{ty} [%d2], [%r2], 128;
                     cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
                ),
            );
            let mut m = Memory::new();
            let x = m.add("x", &packed(&v, ty), Access::In);
            let y = m.add("y", &packed(&old, ty), Access::InOut);
            let report = p.run(&m, &Launch::new([1; 3], [32, 1, 1]).arg(x).arg(y)).expect("launches");
            clean(&report);
            let want: Vec<u64> = old.iter().zip(&v).map(|(o, v)| combined(op, ty, *o, *v, true)).collect();
            assert_eq!(m.bytes(y), packed(&want, ty), "{op}.{ty}");
        }
    }
}

/// A map over rows of `cols` elements of a type, boxes of 8 rows of 32 bytes.
fn map(base: u64, ty: TensorType, cols: u64) -> TensorMap {
    TensorMap {
        ty,
        base,
        dims: vec![cols, 6],
        strides: vec![cols * ty.size()],
        box_dims: vec![(32 / ty.size()) as u32, 8],
        element_strides: vec![],
        swizzle: 32,
        nan_fill: false,
    }
}

#[test]
fn tensor_reductions_of_every_type() {
    let mut r = Rng(47);
    let types = [
        ("u32", TensorType::U32),
        ("s32", TensorType::S32),
        ("u64", TensorType::U64),
        ("s64", TensorType::S64),
        ("f16", TensorType::F16),
        ("bf16", TensorType::BF16),
        ("f32", TensorType::F32),
        ("f64", TensorType::F64),
    ];
    for (op, scalar) in REDUCTIONS {
        let program = load(
            ".param .align 64 .b8 map[128], .param .u64 x",
            ".shared .align 128 .b8 tile[256];",
            &format!(
                "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [x]; mov.u32 %r2, tile; mov.b64 %d5, map; cvta.param.u64 %d5, %d5;
                 shl.b32 %r3, %r1, 3; cvt.u64.u32 %d3, %r3; add.u64 %d4, %d1, %d3; add.u32 %r4, %r2, %r3;
                 ld.global.b64 %d6, [%d4]; st.shared.b64 [%r4], %d6; fence.proxy.async; bar.sync 0;
                 setp.ne.u32 %p1, %r1, 0; @%p1 exit;
                 cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.tile.bulk_group [%d5, {{1, -1}}], [%r2];
                 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
            ),
        );
        for (ty, tensor) in types {
            let bits = matches!(op, "and" | "or" | "xor");
            // Bitwise reductions take the integer types of their width.
            let defined = if bits { !ty.contains('f') } else { scalar.contains(&ty) };
            let (size, cols) = (tensor.size() as usize, 16usize);
            let old: Vec<u64> = (0..6 * cols).map(|_| sample(&mut r, ty)).collect();
            let v: Vec<u64> = (0..256 / size).map(|_| sample(&mut r, ty)).collect();
            let mut m = Memory::new();
            let x = m.add("x", &packed(&v, ty), Access::In);
            let y = m.add("y", &packed(&old, ty), Access::InOut);
            let launch =
                Launch::new([1; 3], [32, 1, 1]).arg(Arg::Map(map(m.address(y, 0), tensor, cols as u64))).arg(x);
            let report = program.run(&m, &launch).expect("launches");
            if !defined {
                assert_eq!(report.findings[0].kind, FindingKind::TensorOperand, "{op} of {ty}");
                continue;
            }
            clean(&report);
            let mut want = old.clone();
            let row = 32 / size;
            for k in 0..v.len() {
                // The box starts at row -1, column 1; its 16-byte units are exchanged by address bit 7.
                let (line, col) = (k / row, k % row);
                let byte = k * size;
                let place = (byte ^ (byte / 128 % 2) * 16) / size;
                let (gr, gc) = (line as i64 - 1, col + 1);
                if (0..6).contains(&gr) && gc < cols {
                    let at = gr as usize * cols + gc;
                    want[at] = combined(op, ty, old[at], v[place], false);
                }
            }
            assert_eq!(m.bytes(y), packed(&want, ty), "{op} of {ty}");
        }
    }
}

/// Copies a box to shared memory and out in linear order.
fn tensor_load(bytes: usize) -> Program {
    load(
        ".param .align 64 .b8 map[128], .param .u64 out",
        &format!(".shared .align 128 .b8 tile[{bytes}]; .shared .align 8 .b8 bar[8];"),
        &format!(
            "mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, bar; setp.ne.u32 %p1, %r1, 0; mov.b64 %d1, map; cvta.param.u64 %d1, %d1;
             @%p1 bra SYNC;
             mbarrier.init.shared::cta.b64 [%r3], 1; fence.mbarrier_init.release.cluster;
             mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {bytes};
             cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%d1, {{-2, 1}}], [%r3];
             SYNC: bar.sync 0;
             TRY: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra TRY;
             ld.param.u64 %d2, [out];
             COPY: setp.ge.u32 %p3, %r1, {bytes}; @%p3 exit; add.u32 %r4, %r2, %r1; ld.shared.u8 %h1, [%r4];
             cvt.u64.u32 %d3, %r1; add.u64 %d3, %d3, %d2; st.global.u8 [%d3], %h1; add.u32 %r1, %r1, 32; bra COPY;"
        ),
    )
}

#[test]
fn element_strides_skip_elements() {
    // Every second row and so on, from column -2, row 1; the step of the contiguous dimension is ignored.
    let (cols, rows) = (64usize, 10usize);
    let x: Vec<f32> = (0..cols * rows).map(|k| k as f32 + 1.0).collect();
    for (step, row_step) in [(3u32, 2u32), (1, 2), (2, 1), (8, 3), (1, 8)] {
        let (width, height) = (8u32, 4u32);
        let mut m = Memory::new();
        let ix = m.add("x", &x.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>(), Access::In);
        let out = m.add_output("out", (width * height * 4) as usize);
        let map = TensorMap {
            ty: TensorType::F32,
            base: m.address(ix, 0),
            dims: vec![cols as u64, rows as u64],
            strides: vec![cols as u64 * 4],
            // A box spans as many rows as the step for each that it copies.
            box_dims: vec![width, height * row_step],
            element_strides: vec![step, row_step],
            swizzle: 0,
            nan_fill: false,
        };
        let p = tensor_load((width * height * 4) as usize);
        let report = p.run(&m, &Launch::new([1; 3], [32, 1, 1]).arg(Arg::Map(map)).arg(out)).expect("launches");
        clean(&report);
        let got = f32s(&m.bytes(out));
        for j in 0..height as usize {
            for i in 0..width as usize {
                let (c, r) = (i as i64 - 2, j as i64 * i64::from(row_step) + 1);
                let inside = (0..cols as i64).contains(&c) && (0..rows as i64).contains(&r);
                let want = if inside { x[r as usize * cols + c as usize] } else { 0.0 };
                assert_eq!(got[j * width as usize + i], want, "steps {step} {row_step}, element {i}, {j}");
            }
        }
    }
}

#[test]
fn fills_of_elements_outside_are_zero_or_nan() {
    for (ty, nan_fill) in [
        (TensorType::F32, true),
        (TensorType::F16, true),
        (TensorType::BF16, true),
        (TensorType::F64, true),
        (TensorType::F32, false),
    ] {
        let size = ty.size() as usize;
        let (cols, width) = (16usize, 32 / size);
        let mut m = Memory::new();
        let ix = m.add("x", &vec![0x11; cols * 3 * size], Access::In);
        let out = m.add_output("out", 32 * 4);
        let map = TensorMap {
            ty,
            base: m.address(ix, 0),
            dims: vec![cols as u64, 3],
            strides: vec![(cols * size) as u64],
            box_dims: vec![width as u32, 4],
            element_strides: vec![],
            swizzle: 0,
            nan_fill,
        };
        let report = tensor_load(128).run(&m, &Launch::new([1; 3], [32, 1, 1]).arg(Arg::Map(map)).arg(out));
        clean(&report.expect("launches"));
        let got = m.bytes(out);
        for (k, e) in got.chunks_exact(size).enumerate() {
            let (c, r) = (k % width, k / width);
            let inside = c >= 2 && r + 1 < 3;
            let nan = match ty {
                TensorType::F16 => f16::from_le_bytes([e[0], e[1]]).is_nan(),
                TensorType::BF16 => bf16::from_le_bytes([e[0], e[1]]).is_nan(),
                TensorType::F64 => f64::from_le_bytes(e.try_into().expect("eight bytes")).is_nan(),
                _ => f32::from_le_bytes(e.try_into().expect("four bytes")).is_nan(),
            };
            let filled = if nan_fill { nan } else { e.iter().all(|b| *b == 0) };
            assert!(if inside { e.iter().all(|b| *b == 0x11) } else { filled }, "{ty:?} element {c}, {r}: {e:x?}");
        }
    }
}

#[test]
fn accesses_of_every_width_extend_as_their_type_says() {
    let rows: Vec<Vec<u64>> = (0..32u64).map(|l| vec![(0x8182_8384_8586_8788u64).wrapping_mul(2 * l + 1), l]).collect();
    // (load, register, widening move, statement of the loaded value)
    type Case = (&'static str, &'static str, fn(u64) -> u64);
    let cases: [Case; 12] = [
        ("u8", "%r5", |v| v & 0xff),
        ("s8", "%r5", |v| v as i8 as i32 as u32 as u64),
        ("b8", "%r5", |v| v & 0xff),
        ("u16", "%r5", |v| v & 0xffff),
        ("s16", "%r5", |v| v as i16 as i32 as u32 as u64),
        ("u32", "%r5", |v| v & 0xffff_ffff),
        ("s32", "%d5", |v| v as i32 as i64 as u64),
        ("u32", "%d5", |v| v & 0xffff_ffff),
        ("s8", "%d5", |v| v as i8 as i64 as u64),
        ("b64", "%d5", |v| v),
        ("u64", "%d5", |v| v),
        ("f64", "%d5", |v| v),
    ];
    for (ty, reg, want) in cases {
        for space in ["global", "shared", "local", ""] {
            let widen = if reg == "%r5" { "cvt.u64.u32 %d5, %r5;" } else { "" };
            let (dot, address) = match space {
                "shared" => (".shared", "%d9"),
                "local" => (".local", "%d10"),
                "" => ("", "%d11"),
                _ => (".global", "%d1"),
            };
            let body = format!(
                "ld.global.b64 %d3, [%d1]; mov.u64 %d9, cells; mad.wide.u32 %d9, %r0, 8, %d9; mov.u64 %d10, own; cvta.shared.u64 %d11, %d9;\n\
                 st.shared.b64 [%d9], %d3; st.local.b64 [%d10], %d3;\n\
                 ld{dot}.{ty} {reg}, [{address}]; {widen} st.global.b64 [%d2], %d5;"
            );
            let (out, report) = run(".shared .align 8 .b8 cells[256]; .local .align 8 .b8 own[8];", &body, 1, &rows, 1);
            clean(&report);
            assert!(rows.iter().zip(&out).all(|(r, o)| o[0] == want(r[0])), "ld{dot}.{ty} into {reg}");
        }
    }
    // Stores write only their bytes.
    for (ty, reg, bytes) in [("b8", "%r4", 1), ("b16", "%r4", 2), ("b32", "%r4", 4), ("b64", "%d3", 8)] {
        let body = format!(
            "ld.global.b64 %d3, [%d1]; cvt.u32.u64 %r4, %d3; mov.u64 %d9, cells; mad.wide.u32 %d9, %r0, 8, %d9; cvta.shared.u64 %d11, %d9;\n\
             st.shared.b64 [%d9], -1; st.{ty} [%d11], {reg}; ld.shared.b64 %d5, [%d9]; st.global.b64 [%d2], %d5;"
        );
        let (out, report) = run(".shared .align 8 .b8 cells[256];", &body, 1, &rows, 1);
        clean(&report);
        let mask = if bytes == 8 { !0 } else { (1u64 << (8 * bytes)) - 1 };
        assert!(rows.iter().zip(&out).all(|(r, o)| o[0] == r[0] & mask | !mask), "st.{ty}");
    }
}

#[test]
fn vectors_and_128_bits_keep_their_order() {
    let rows: Vec<Vec<u64>> = (0..32u64).map(|l| vec![l << 32 | (l + 100), (l + 200) << 32 | (l + 300)]).collect();
    for (load, words) in [
        ("ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%d1];", true),
        ("ld.global.nc.v4.u32 {%r10, %r11, %r12, %r13}, [%d1];", true),
        ("ld.global.v2.b64 {%d10, %d11}, [%d1];", false),
        ("ld.global.b128 %q0, [%d1]; mov.b128 {%d10, %d11}, %q0;", false),
        ("ld.global.b128 %q1, [%d1]; mov.b128 %q0, %q1; mov.b128 {%d10, %d11}, %q0;", false),
        // Halves exchanged twice are as before.
        (
            "ld.global.b128 %q1, [%d1]; mov.b128 {%d11, %d10}, %q1; mov.b128 %q2, {%d11, %d10}; mov.b128 {%d10, %d11}, %q2;",
            false,
        ),
        ("ldu.global.v2.u64 {%d10, %d11}, [%d1];", false),
    ] {
        let store = if words {
            "st.global.v2.b32 [%d2], {%r10, %r11}; st.global.v2.b32 [%d2+8], {%r12, %r13};"
        } else {
            "mov.b128 %q3, {%d10, %d11}; st.global.b128 [%d2], %q3;"
        };
        let (out, report) = run(".reg .b128 %q<4>;", &format!("{load} {store}"), 1, &rows, 2);
        clean(&report);
        assert_eq!(out, rows, "{load}");
    }
}

#[test]
fn tensor_stores_clip_at_the_edges() {
    // A box of 8 rows of 8 floats holding 1, 2, ... stored from row 3, column -2 of a tensor of 6 rows of 12.
    for swizzle in [0u32, 32] {
        let program = load(
            ".param .align 64 .b8 map[128]",
            ".shared .align 128 .b8 tile[256];",
            "mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.b64 %d5, map; cvta.param.u64 %d5, %d5;
             shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3; add.u32 %r6, %r1, 1; cvt.rn.f32.u32 %f1, %r6; st.shared.f32 [%r4], %f1;
             fence.proxy.async; bar.sync 0; setp.ne.u32 %p1, %r1, 0; @%p1 exit;
             cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d5, {-2, 3}], [%r2];
             cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        );
        let mut m = Memory::new();
        let y = m.add("y", &[0; 288], Access::InOut);
        let map = TensorMap {
            ty: TensorType::F32,
            base: m.address(y, 0),
            dims: vec![12, 6],
            strides: vec![48],
            box_dims: vec![8, 8],
            element_strides: vec![],
            swizzle,
            nan_fill: false,
        };
        let report = program.run(&m, &Launch::new([1; 3], [64, 1, 1]).arg(Arg::Map(map))).expect("launches");
        clean(&report);
        let got = f32s(&m.bytes(y));
        for (k, v) in got.iter().enumerate() {
            let (row, col) = (k / 12, k % 12);
            let want = if row >= 3 && col < 6 {
                let byte = ((row - 3) * 8 + col + 2) * 4;
                let place = if swizzle == 32 { byte ^ (byte / 128 % 2) * 16 } else { byte };
                (place / 4 + 1) as f32
            } else {
                0.0
            };
            assert_eq!(*v, want, "swizzle {swizzle} row {row} column {col}");
        }
    }
}
