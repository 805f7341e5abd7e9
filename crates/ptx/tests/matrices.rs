//! Matrix operations: fragments written out from the ISA's tables, and products over small integers that are exact in every
//! type.

// Layout formulas stay as close to the ISA's text as they can.
#![allow(clippy::precedence, clippy::needless_range_loop, clippy::manual_is_multiple_of)]
#![allow(clippy::format_in_format_args, clippy::type_complexity)]

mod common;
mod warps;

use common::Rng;
use warps::{clean, run};

/// A matrix element type: bits, and the code of a small integer.
struct Elem {
    name: &'static str,
    bits: usize,
    code: fn(i32) -> u32,
}

fn e4m3(v: i32) -> u32 {
    // Integers up to 8 have exact codes: exponent bias 7, three fraction bits.
    let (s, a) = (u32::from(v < 0) << 7, v.unsigned_abs());
    if a == 0 { s } else { s | (a.ilog2() + 7) << 3 | (a << (3 - a.ilog2().min(3))) & 7 }
}

fn e5m2(v: i32) -> u32 {
    let (s, a) = (u32::from(v < 0) << 7, v.unsigned_abs());
    // Only two fraction bits: values up to 4 are exact.
    if a == 0 { s } else { s | (a.ilog2() + 15) << 2 | (a << (2 - a.ilog2().min(2))) & 3 }
}

const F16: Elem = Elem { name: "f16", bits: 16, code: |v| u32::from(half::f16::from_f32(v as f32).to_bits()) };
const BF16: Elem = Elem { name: "bf16", bits: 16, code: |v| u32::from(half::bf16::from_f32(v as f32).to_bits()) };
const TF32: Elem = Elem { name: "tf32", bits: 32, code: |v| (v as f32).to_bits() };
const E4M3: Elem = Elem { name: "e4m3", bits: 8, code: e4m3 };
const E5M2: Elem = Elem { name: "e5m2", bits: 8, code: e5m2 };
const S8: Elem = Elem { name: "s8", bits: 8, code: |v| v as u8 as u32 };
const U8: Elem = Elem { name: "u8", bits: 8, code: |v| v.unsigned_abs() };

/// Row and column of element `i` of A's fragment in `lane`, from the tables of the ISA (m16n8k*).
fn a_place(bits: usize, lane: usize, i: usize) -> (usize, usize) {
    let (group, t) = (lane / 4, lane % 4);
    match bits {
        // "row = groupID for ai where 0 <= i < 2 || 4 <= i < 6; groupID + 8 otherwise;
        //  col = (threadID_in_group * 2) + (i & 1) for i < 4, + 8 for i >= 4"
        16 => (if i % 4 < 2 { group } else { group + 8 }, t * 2 + (i & 1) + if i < 4 { 0 } else { 8 }),
        // tf32: a0 (g, t), a1 (g + 8, t), a2 (g, t + 4), a3 (g + 8, t + 4)
        32 => (if i % 2 == 0 { group } else { group + 8 }, t + if i < 2 { 0 } else { 4 }),
        // "row = groupID for 0 <= i < 4 || 8 <= i < 12; col = (threadID_in_group * 4) + (i & 3) for i < 8, + 16 beyond"
        _ => (if i % 8 < 4 { group } else { group + 8 }, t * 4 + (i & 3) + if i < 8 { 0 } else { 16 }),
    }
}

/// Row (k) and column (n) of element `i` of B's fragment.
fn b_place(bits: usize, lane: usize, i: usize) -> (usize, usize) {
    let (group, t) = (lane / 4, lane % 4);
    match bits {
        16 => (t * 2 + (i & 1) + if i < 2 { 0 } else { 8 }, group),
        32 => (t + if i < 1 { 0 } else { 4 }, group),
        _ => (t * 4 + (i & 3) + if i < 4 { 0 } else { 16 }, group),
    }
}

fn pack(bits: usize, codes: &[u32]) -> Vec<u64> {
    codes.chunks(32 / bits).map(|c| c.iter().enumerate().fold(0, |w, (k, v)| w | u64::from(*v) << (bits * k))).collect()
}

fn small(r: &mut Rng, unsigned: bool, limit: u64) -> i32 {
    let v = r.below(2 * limit + 1) as i32 - limit as i32;
    if unsigned { v.abs() } else { v }
}

fn names(prefix: &str, range: std::ops::Range<usize>) -> String {
    let list: Vec<String> = range.map(|k| format!("%{prefix}{k}")).collect();
    format!("{{{}}}", list.join(","))
}

fn loads(first: usize, count: usize) -> String {
    (0..count).map(|k| format!("ld.global.b32 %r{}, [%d1+{}];\n", first + k, 8 * k)).collect()
}

fn mma(shape_k: usize, a: &Elem, b: &Elem, acc: &str) {
    let mut r = Rng(shape_k as u64 * 31 + a.bits as u64);
    let limit = if a.name == "e5m2" || b.name == "e5m2" { 4 } else { 7 };
    let am: Vec<Vec<i32>> =
        (0..16).map(|_| (0..shape_k).map(|_| small(&mut r, a.name == "u8", limit)).collect()).collect();
    let bm: Vec<Vec<i32>> =
        (0..shape_k).map(|_| (0..8).map(|_| small(&mut r, b.name == "u8", limit)).collect()).collect();
    let cm: Vec<Vec<i32>> = (0..16).map(|_| (0..8).map(|_| small(&mut r, false, 50)).collect()).collect();
    let (na, nb) = (16 * shape_k / 32, 8 * shape_k / 32);
    let input: Vec<Vec<u64>> = (0..32)
        .map(|lane| {
            let fa: Vec<u32> = (0..na).map(|i| a_place(a.bits, lane, i)).map(|(x, y)| (a.code)(am[x][y])).collect();
            let fb: Vec<u32> = (0..nb).map(|i| b_place(b.bits, lane, i)).map(|(x, y)| (b.code)(bm[x][y])).collect();
            let fc: Vec<i32> = (0..4).map(|i| cm[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2]).collect();
            let mut words = pack(a.bits, &fa);
            words.extend(pack(b.bits, &fb));
            match acc {
                "f32" => words.extend(fc.iter().map(|v| u64::from((*v as f32).to_bits()))),
                "s32" => words.extend(fc.iter().map(|v| u64::from(*v as u32))),
                _ => words.extend(pack(16, &fc.iter().map(|v| (F16.code)(*v)).collect::<Vec<_>>())),
            }
            words
        })
        .collect();
    let (wa, wb, wc) = (na * a.bits / 32, nb * b.bits / 32, if acc == "f16" { 2 } else { 4 });
    let (first_b, first_c) = (10 + wa, 10 + wa + wb);
    let prefix = if acc == "f32" { "f" } else { "r" };
    let mut body = loads(10, wa + wb + wc);
    if acc == "f32" {
        body += &(0..4).map(|k| format!("mov.b32 %f{}, %r{};\n", 20 + k, first_c + k)).collect::<String>();
    }
    let (c, d) = if acc == "f32" { (20, 30) } else { (first_c, 60) };
    body += &format!(
        "mma.sync.aligned.m16n8k{shape_k}.row.col.{acc}.{}.{}.{acc} {}, {}, {}, {};\n",
        a.name,
        b.name,
        names(prefix, d..d + wc),
        names("r", 10..first_b),
        names("r", first_b..first_c),
        names(prefix, c..c + wc),
    );
    body += &(0..wc).map(|k| format!("st.global.b32 [%d2+{}], %{prefix}{};\n", 8 * k, d + k)).collect::<String>();
    // The output slots hold 32-bit values; the upper halves are written too so that every byte has a value.
    body += &(0..wc).map(|k| format!("st.global.b32 [%d2+{}], 0;\n", 8 * k + 4)).collect::<String>();
    let (out, report) = run("", &body, 1, &input, wc);
    clean(&report);
    for (lane, words) in out.iter().enumerate() {
        for i in 0..4 {
            let (row, col) = (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
            let want = cm[row][col] + (0..shape_k).map(|k| am[row][k] * bm[k][col]).sum::<i32>();
            let got = match acc {
                "f32" => f32::from_bits(words[i] as u32) as i32,
                "s32" => words[i] as i32,
                _ => half::f16::from_bits((words[i / 2] >> (16 * (i % 2))) as u16).to_f32() as i32,
            };
            assert_eq!(got, want, "k{shape_k} {} {} {acc} lane {lane} element {i}", a.name, b.name);
        }
    }
}

#[test]
fn matrix_products_in_every_type() {
    for (k, a, b, acc) in [
        (16, &BF16, &BF16, "f32"),
        (8, &BF16, &BF16, "f32"),
        (16, &F16, &F16, "f32"),
        (8, &F16, &F16, "f32"),
        (16, &F16, &F16, "f16"),
        (8, &F16, &F16, "f16"),
        (8, &TF32, &TF32, "f32"),
        (4, &TF32, &TF32, "f32"),
        (32, &E4M3, &E4M3, "f32"),
        (32, &E4M3, &E5M2, "f32"),
        (32, &E5M2, &E5M2, "f16"),
        (16, &E4M3, &E4M3, "f32"),
        (32, &S8, &S8, "s32"),
        (32, &U8, &S8, "s32"),
        (16, &S8, &U8, "s32"),
    ] {
        mma(k, a, b, acc);
    }
}

#[test]
fn double_precision_product() {
    let mut r = Rng(3);
    let mut v = || (r.below(19) as f64) - 9.0;
    let a: Vec<Vec<f64>> = (0..8).map(|_| (0..4).map(|_| v()).collect()).collect();
    let b: Vec<Vec<f64>> = (0..4).map(|_| (0..8).map(|_| v()).collect()).collect();
    let input: Vec<Vec<u64>> =
        (0..32).map(|l| [a[l / 4][l % 4], b[l % 4][l / 4], 1.0, 2.0].iter().map(|x| x.to_bits()).collect()).collect();
    let body = "ld.global.b64 %d3, [%d1]; ld.global.b64 %d4, [%d1+8]; ld.global.b64 %d5, [%d1+16]; ld.global.b64 %d6, [%d1+24];\n\
        mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d7,%d8}, {%d3}, {%d4}, {%d5,%d6};\n\
        st.global.b64 [%d2], %d7; st.global.b64 [%d2+8], %d8;";
    let (out, report) = run("", body, 1, &input, 2);
    clean(&report);
    for (l, words) in out.iter().enumerate() {
        for (i, w) in words.iter().enumerate() {
            let col = 2 * (l % 4) + i;
            let want = (1 + i) as f64 + (0..4).map(|k| a[l / 4][k] * b[k][col]).sum::<f64>();
            assert_eq!(f64::from_bits(*w), want);
        }
    }
}

#[test]
fn integer_products_wrap_or_saturate() {
    let ones = |v: u64| vec![v; 6];
    for (sat, want) in [("", (i32::MAX as u32).wrapping_add(32 * 127 * 127)), (".satfinite", i32::MAX as u32)] {
        let input: Vec<Vec<u64>> = (0..32).map(|_| ones(0x7f7f_7f7f)).collect();
        let body = format!(
            "{}mov.b32 %r20, {};\nmma.sync.aligned.m16n8k32.row.col{sat}.s32.s8.s8.s32 {{%r30,%r31,%r32,%r33}}, \
             {{%r10,%r11,%r12,%r13}}, {{%r14,%r15}}, {{%r20,%r20,%r20,%r20}};\ncvt.u64.u32 %d3, %r33; st.global.b64 [%d2], %d3;",
            loads(10, 6),
            i32::MAX
        );
        let (out, report) = run("", &body, 1, &input, 1);
        clean(&report);
        assert!(out.iter().all(|w| w[0] == u64::from(want)), "{sat}");
    }
}

#[test]
fn matrix_loads_and_stores() {
    // Element (r, c) of matrix m is 100 m + 10 r + c, stored by plain stores; rows are found by lane as the ISA says.
    for (count, trans) in [(1, false), (2, true), (4, false), (4, true)] {
        let t = if trans { ".trans" } else { "" };
        let regs = names("r", 40..40 + count);
        let fill: String = (0..8)
            .map(|c| format!("add.u32 %r5, %r4, {c}; cvt.u16.u32 %h1, %r5; st.shared.u16 [%r3+{}], %h1;\n", 2 * c))
            .collect();
        // Lane l fills row l % 8 of matrix l / 8.
        let body = format!(
            "shl.b32 %r3, %r0, 4; mov.u32 %r1, tile; add.u32 %r3, %r3, %r1;\n\
             shr.u32 %r4, %r0, 3; mul.lo.u32 %r4, %r4, 100; and.b32 %r5, %r0, 7; mad.lo.u32 %r4, %r5, 10, %r4;\n{fill}\
             bar.warp.sync -1;\nldmatrix.sync.aligned.m8n8.x{count}{t}.shared.b16 {regs}, [%r3];\n{}\
             mov.u32 %r1, back; shl.b32 %r6, %r0, 4; add.u32 %r6, %r6, %r1;\n\
             stmatrix.sync.aligned.m8n8.x{count}{t}.shared.b16 [%r6], {regs};\nbar.warp.sync -1;\n{}",
            (0..count)
                .map(|k| format!("cvt.u64.u32 %d3, %r{}; st.global.b64 [%d2+{}], %d3;\n", 40 + k, 8 * k))
                .collect::<String>(),
            // Stored the way it was loaded, every row comes back; lanes past the matrices have none.
            format!(
                "mov.b64 %d4, 0; setp.lt.u32 %p1, %r0, {}; @%p1 ld.shared.b64 %d4, [%r6]; st.global.b64 [%d2+{}], %d4;",
                8 * count,
                8 * count
            ),
        );
        let declare = ".shared .align 16 .b8 tile[512]; .shared .align 16 .b8 back[512];";
        let (out, report) = run(declare, &body, 1, &vec![vec![0]; 32], count + 1);
        clean(&report);
        for (l, words) in out.iter().enumerate() {
            for (m, w) in words[..count].iter().enumerate() {
                let (r, c) = (l / 4, 2 * (l % 4));
                let at = |r: usize, c: usize| (100 * m + if trans { 10 * c + r } else { 10 * r + c }) as u64;
                assert_eq!(*w, at(r, c) | at(r, c + 1) << 16, "x{count}{t} lane {l}");
            }
            if l < 8 * count {
                let row = (0..4).fold(0, |v, c| v | ((100 * (l / 8) + 10 * (l % 8) + c) as u64) << (16 * c));
                assert_eq!(words[count], row, "x{count}{t} row {l} back");
            }
        }
    }
    let body = "mul.lo.u32 %r1, %r0, 0x20002; add.u32 %r1, %r1, 0x10000; \
                movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; cvt.u64.u32 %d3, %r2; st.global.b64 [%d2], %d3;";
    let (out, report) = run("", body, 1, &vec![vec![0]; 32], 1);
    clean(&report);
    // Elements are numbered by row: lane l holds 2 l and 2 l + 1, which are row l / 4, columns 2 (l % 4) and next.
    for (l, w) in out.iter().enumerate() {
        let at = |r: usize, c: usize| (8 * c + r) as u64;
        assert_eq!(w[0], at(l / 4, 2 * (l % 4)) | at(l / 4, 2 * (l % 4) + 1) << 16);
    }
}

/// A wgmma of one warpgroup over operands that the kernel copies byte by byte from `in` to shared memory.
fn wgmma(n: usize, a: &Elem, b: &Elem, acc: &str, swizzle: usize, trans: (bool, bool)) {
    let k = 32 * 8 / a.bits;
    let mut r = Rng((n + a.bits + swizzle) as u64);
    let limit = if a.name == "e5m2" || b.name == "e5m2" { 4 } else { 5 };
    let am: Vec<Vec<i32>> = (0..64).map(|_| (0..k).map(|_| small(&mut r, a.name == "u8", limit)).collect()).collect();
    let bm: Vec<Vec<i32>> = (0..n).map(|_| (0..k).map(|_| small(&mut r, b.name == "u8", limit)).collect()).collect();
    // Layouts of 16-byte units as in CUTLASS' canonical forms, in bytes: (offset, leading, stride) of element (mn, k).
    // The swizzle then exchanges the 16-byte units of each row of `swizzle` bytes by the row's number.
    let place = |mn: usize, kk: usize, bits: usize, rows: usize, transposed: bool| -> usize {
        let size = bits / 8;
        let flat = if transposed {
            match swizzle {
                0 => mn / 8 * 128 * 2 + kk / 8 * 128 + kk % 8 * 16 + mn % 8 * size,
                w => {
                    let per = w / size;
                    mn / per * (w * 16) + kk / 8 * (w * 8) + kk % 8 * w + mn % per * size
                }
            }
        } else {
            match swizzle {
                0 => mn / 8 * 128 + mn % 8 * 16 + kk * size / 16 * (rows * 16) + kk * size % 16,
                w => mn / 8 * (8 * w) + mn % 8 * w + kk * size,
            }
        };
        match swizzle {
            128 => flat ^ (flat / 128 % 8) * 16,
            64 => flat ^ (flat / 128 % 4) * 16,
            32 => flat ^ (flat / 128 % 2) * 16,
            _ => flat,
        }
    };
    let strides = |rows: usize, transposed: bool| -> (usize, usize) {
        match (transposed, swizzle) {
            (false, 0) => (rows * 16, 128),
            (false, w) => (16, 8 * w),
            // Without a swizzle the roles exchange: the stride steps along MN, the leading dimension along K.
            (true, 0) => (128, 256),
            (true, w) => (w * 16, w * 8),
        }
    };
    let build = |m: &[Vec<i32>], e: &Elem, transposed: bool| {
        let mut image = vec![0u8; 16384];
        for (i, row) in m.iter().enumerate() {
            for (j, v) in row.iter().enumerate() {
                let at = place(i, j, e.bits, m.len(), transposed);
                let code = (e.code)(*v).to_le_bytes();
                image[at..at + e.bits / 8].copy_from_slice(&code[..e.bits / 8]);
            }
        }
        image
    };
    let (ia, ib) = (build(&am, a, trans.0), build(&bm, b, trans.1));
    // 128 lanes copy 128 bytes of each image: 16 slots of A, 16 of B.
    let input: Vec<Vec<u64>> = (0..128)
        .map(|l| {
            let part = |image: &[u8]| -> Vec<u64> {
                image[128 * l..128 * (l + 1)]
                    .chunks_exact(8)
                    .map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes")))
                    .collect()
            };
            [part(&ia), part(&ib)].concat()
        })
        .collect();
    let mode = match swizzle {
        128 => 1u64,
        64 => 2,
        32 => 3,
        _ => 0,
    };
    let desc = |rows: usize, transposed: bool| {
        let (lead, stride) = strides(rows, transposed);
        (lead as u64 / 16) << 16 | (stride as u64 / 16) << 32 | mode << 62
    };
    let copy: String = (0..16)
        .map(|s| {
            format!(
                "ld.global.b64 %d3, [%d1+{}]; st.shared.b64 [%r2+{}], %d3; ld.global.b64 %d3, [%d1+{}]; st.shared.b64 [%r2+{}], %d3;\n",
                8 * s, 8 * s, 128 + 8 * s, 16384 + 8 * s
            )
        })
        .collect();
    let regs = if acc == "f16" { n / 4 } else { n / 2 };
    let prefix = if acc == "f32" { "f" } else { "r" };
    let first = if acc == "f32" { 0 } else { 60 };
    let zero: String = (0..regs).map(|q| format!("mov.b32 %{prefix}{}, 0;\n", first + q)).collect();
    let tail = match (acc, a.bits) {
        ("s32", _) => "",
        (_, 16) => &format!(", 1, 1, {}, {}", u8::from(trans.0), u8::from(trans.1)),
        _ => ", 1, 1",
    };
    let store: String = (0..regs)
        .map(|q| {
            let reg = format!("%{prefix}{}", first + q);
            format!("mov.b32 %r3, {reg}; cvt.u64.u32 %d3, %r3; st.global.b64 [%d2+{}], %d3;\n", 8 * q)
        })
        .collect();
    let body = format!(
        "mov.u32 %r1, tiles; shl.b32 %r2, %r0, 7; add.u32 %r2, %r2, %r1;\n{copy}{zero}fence.proxy.async; bar.sync 0;\n\
         cvt.u64.u32 %d10, %r1; shr.u64 %d10, %d10, 4; or.b64 %d11, %d10, {}; add.u64 %d12, %d10, 1024; or.b64 %d12, %d12, {};\n\
         wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n{n}k{k}.{acc}.{}.{} {}, %d11, %d12, 1{tail};\n\
         wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n{store}",
        desc(64, trans.0) as i64,
        desc(n, trans.1) as i64,
        a.name,
        b.name,
        names(prefix, first..first + regs),
    );
    let (out, report) = run(".shared .align 1024 .b8 tiles[32768];", &body, 4, &input, regs);
    clean(&report);
    for (lane, words) in out.iter().enumerate() {
        let (warp, l) = (lane / 32, lane % 32);
        for col in 0..n {
            for half_row in 0..2 {
                if col % 8 / 2 != l % 4 {
                    continue;
                }
                let row = 16 * warp + l / 4 + 8 * half_row;
                let index = 4 * (col / 8) + 2 * half_row + col % 2;
                let got = match acc {
                    "f32" => f32::from_bits(words[index] as u32) as i32,
                    "s32" => words[index] as i32,
                    _ => half::f16::from_bits((words[index / 2] >> (16 * (index % 2))) as u16).to_f32() as i32,
                };
                let want: i32 = (0..k).map(|j| am[row][j] * bm[col][j]).sum();
                let what = format!("n{n} {} {} {acc} swizzle {swizzle} {trans:?}", a.name, b.name);
                assert_eq!(got, want, "{what}: row {row} column {col}");
            }
        }
    }
}

#[test]
fn warpgroup_products_in_every_type_and_swizzle() {
    for swizzle in [0, 32, 64, 128] {
        wgmma(64, &BF16, &BF16, "f32", swizzle, (false, false));
        wgmma(24, &E4M3, &E5M2, "f32", swizzle, (false, false));
    }
    for swizzle in [0, 32, 64, 128] {
        wgmma(64, &BF16, &BF16, "f32", swizzle, (true, true));
        wgmma(128, &F16, &F16, "f32", swizzle, (false, true));
    }
    wgmma(32, &F16, &F16, "f16", 128, (false, false));
    wgmma(16, &TF32, &TF32, "f32", 128, (false, false));
    wgmma(32, &S8, &U8, "s32", 64, (false, false));
    wgmma(8, &E4M3, &E4M3, "f16", 32, (false, false));
}

/// A product of matrices that the kernel loads from its input, row by row or column by column, and stores by rows.
fn wmma(shape: [usize; 3], e: &Elem, (d, c): (&str, &str), layouts: [&str; 3], fragments: (usize, usize)) {
    let [m, n, k] = shape;
    let mut r = Rng((m + 7 * n + e.bits) as u64);
    let mut matrix = |rows: usize, cols: usize, limit: u64, unsigned: bool| -> Vec<Vec<i32>> {
        (0..rows).map(|_| (0..cols).map(|_| small(&mut r, unsigned, limit)).collect()).collect()
    };
    let (am, bm, cm) = (matrix(m, k, 7, e.name == "u8"), matrix(k, n, 7, e.name == "u8"), matrix(m, n, 50, false));
    let acc = |name: &str, v: i32| match name {
        "f32" => (v as f32).to_bits(),
        "f16" => (F16.code)(v),
        _ => v as u32,
    };
    // Each matrix at its own place of the input, with a stride of 40 elements.
    const STRIDE: usize = 40;
    let mut image = vec![0u8; 3 * 8192];
    let mut put = |at: usize, mm: &[Vec<i32>], row: bool, bytes: usize, code: &dyn Fn(i32) -> u32| {
        for (i, line) in mm.iter().enumerate() {
            for (j, v) in line.iter().enumerate() {
                let place = at + bytes * if row { i * STRIDE + j } else { j * STRIDE + i };
                image[place..place + bytes].copy_from_slice(&code(*v).to_le_bytes()[..bytes]);
            }
        }
    };
    let (eb, cb, db) = (e.bits / 8, if c == "f16" { 2 } else { 4 }, if d == "f16" { 2 } else { 4 });
    put(0, &am, layouts[0] == "row", eb, &|v| (e.code)(v));
    put(8192, &bm, layouts[1] == "row", eb, &|v| (e.code)(v));
    put(16384, &cm, layouts[2] == "row", cb, &|v| acc(c, v));
    let input: Vec<Vec<u64>> = image
        .chunks_exact(768)
        .map(|l| l.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes"))).collect())
        .collect();
    let (nc, nd) = (m * n * cb / 128, m * n * db / 128);
    let (pc, pd) = (if c == "f32" { "f" } else { "r" }, if d == "f32" { "f" } else { "r" });
    let types = if e.name == "f16" { format!("{d}.{c}") } else { format!("{d}.{0}.{0}.{c}", e.name) };
    let text = format!("m{m}n{n}k{k}");
    let (a, b) = (names("r", 10..10 + fragments.0), names("r", 30..30 + fragments.1));
    let (cr, dr) = (names(pc, 50..50 + nc), names(pd, 70..70 + nd));
    let body = format!(
        "ld.param.u64 %d5, [in]; ld.param.u64 %d6, [out]; mov.u32 %r9, {STRIDE};
         wmma.load.a.sync.aligned.{}.{text}.global.{} {a}, [%d5], %r9; wmma.load.b.sync.aligned.{}.{text}.{} {b}, [%d5+8192], %r9;
         wmma.load.c.sync.aligned.{}.{text}.{c} {cr}, [%d5+16384], %r9;
         wmma.mma.sync.aligned.{}.{}.{text}.{types} {dr}, {a}, {b}, {cr};
         wmma.store.d.sync.aligned.row.{text}.global.{d} [%d6], {dr}, {n};",
        layouts[0], e.name, layouts[1], e.name, layouts[2], layouts[0], layouts[1]
    );
    let (out, report) = run("", &body, 1, &input, m * n * db / 8 / 32);
    clean(&report);
    let bytes: Vec<u8> = out.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    for i in 0..m {
        for j in 0..n {
            let want = cm[i][j] + (0..k).map(|q| am[i][q] * bm[q][j]).sum::<i32>();
            let at = (i * n + j) * db;
            let raw = bytes[at..at + db].iter().rev().fold(0u32, |w, b| w << 8 | u32::from(*b));
            assert_eq!(raw, acc(d, want), "{text} {} {d} {c} {layouts:?} element {i}, {j}", e.name);
        }
    }
}

#[test]
fn opaque_fragments_multiply() {
    for shape in [[16, 16, 16], [32, 8, 16], [8, 32, 16]] {
        let [m, n, _] = shape;
        wmma(shape, &F16, ("f32", "f32"), ["row", "col", "row"], (8, 8));
        wmma(shape, &F16, ("f16", "f16"), ["col", "row", "col"], (8, 8));
        wmma(shape, &F16, ("f32", "f16"), ["row", "row", "row"], (8, 8));
        wmma(shape, &BF16, ("f32", "f32"), ["row", "col", "col"], (m / 4, n / 4));
        wmma(shape, &S8, ("s32", "s32"), ["row", "col", "row"], (m / 8, n / 8));
        wmma(shape, &U8, ("s32", "s32"), ["col", "col", "row"], (m / 8, n / 8));
    }
    wmma([16, 16, 8], &TF32, ("f32", "f32"), ["row", "col", "row"], (4, 4));
}
