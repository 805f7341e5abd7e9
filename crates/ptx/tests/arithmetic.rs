//! Arithmetic against independent statements: directed rounding against `rustc_apfloat`, integers against wide
//! arithmetic on random operands.

// Layout formulas stay as close to the ISA's text as they can.
#![allow(clippy::precedence, clippy::needless_range_loop, clippy::manual_is_multiple_of)]
#![allow(clippy::format_in_format_args, clippy::type_complexity)]

mod single;

use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
use rustc_apfloat::{Float, Round};
use single::apply;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// Bit patterns that meet: few exponents, many zeros, ones and special values.
    fn float(&mut self, exponent: u32, fraction: u32) -> u64 {
        let r = self.next();
        let top = (1u64 << exponent) - 1;
        let e = match r % 8 {
            0 => 0,
            1 => 1 + r % 3,
            2 => top - (r >> 8) % 3,
            _ => (top / 2).wrapping_add((r >> 16) % 64).wrapping_sub(32) & top,
        };
        let f = match r >> 24 & 3 {
            0 => 0,
            1 => (1 << fraction) - 1,
            2 => self.next() & 7,
            _ => self.next(),
        } & ((1 << fraction) - 1);
        (r >> 63) << (exponent + fraction) | e << fraction | f
    }
    fn f32(&mut self) -> u64 {
        self.float(8, 23)
    }
    fn f64(&mut self) -> u64 {
        self.float(11, 52)
    }
}

const ROUNDS: [(&str, Round); 4] = [
    ("rn", Round::NearestTiesToEven),
    ("rz", Round::TowardZero),
    ("rm", Round::TowardNegative),
    ("rp", Round::TowardPositive),
];

fn agree<F: Float>(text: &str, row: &[u64], got: u64, want: F) {
    let g = F::from_bits(u128::from(got));
    let ok = (g.is_nan() && want.is_nan()) || g.to_bits() == want.to_bits();
    assert!(ok, "{text} of {row:x?}: got {got:#x}, expected {:#x}", want.to_bits());
}

fn directed<F: Float + std::fmt::Debug>(ty: &str, class: char, count: usize, mut operand: impl FnMut() -> u64) {
    let rows: Vec<Vec<u64>> = (0..count).map(|_| vec![operand(), operand(), operand()]).collect();
    let f = |v: u64| F::from_bits(u128::from(v));
    for (name, round) in ROUNDS {
        type Op<F> = fn(F, F, F, Round) -> F;
        let cases: [(&str, &str, Op<F>); 5] = [
            ("add", "$0, $1", |a, b, _, r| a.add_r(b, r).value),
            ("sub", "$0, $1", |a, b, _, r| a.sub_r(b, r).value),
            ("mul", "$0, $1", |a, b, _, r| a.mul_r(b, r).value),
            ("div", "$0, $1", |a, b, _, r| a.div_r(b, r).value),
            ("fma", "$0, $1, $2", |a, b, c, r| a.mul_add_r(b, c, r).value),
        ];
        for (op, operands, want) in cases {
            let text = format!("{op}.{name}.{ty} $d, {operands};");
            let got = apply(&text, class, &[class, class, class], &rows);
            for (row, g) in rows.iter().zip(got) {
                agree(&text, row, g, want(f(row[0]), f(row[1]), f(row[2]), round));
            }
        }
        // A root is right when its square and that of its neighbour enclose the operand.
        let text = format!("sqrt.{name}.{ty} $d, $0;");
        let positive: Vec<Vec<u64>> = rows.iter().map(|r| vec![f(r[0]).to_bits() as u64 & !sign::<F>()]).collect();
        for (row, g) in positive.iter().zip(apply(&text, class, &[class], &positive)) {
            check_root::<F>(&text, f(row[0]), F::from_bits(g.into()), round);
        }
    }
}

fn sign<F: Float>() -> u64 {
    1 << (F::BITS - 1)
}

fn check_root<F: Float + std::fmt::Debug>(text: &str, x: F, r: F, round: Round) {
    if !x.is_finite() || x.is_zero() {
        assert!(r.is_nan() == x.is_nan() && (x.is_nan() || r.to_bits() == x.to_bits()), "{text} of {x:?}: {r:?}");
        return;
    }
    // Below this the difference may underflow, which says nothing of its sign.
    if x.ilogb() < -60 {
        return;
    }
    // The sign of r^2 - x, exactly: a fused multiply-add does not lose it.
    let side = |r: F| {
        let e = r.mul_add_r(r, -x, Round::NearestTiesToEven).value;
        if e.is_zero() {
            0
        } else if e.is_negative() {
            -1
        } else {
            1
        }
    };
    let bits = |d: i128| F::from_bits((r.to_bits() as i128 + d) as u128);
    let ok = match round {
        Round::TowardPositive => side(r) >= 0 && side(bits(-1)) < 0,
        Round::NearestTiesToEven => side(bits(1)) > 0 && side(bits(-1)) < 0,
        _ => side(r) <= 0 && side(bits(1)) > 0,
    };
    assert!(ok, "{text} of {x:?}: {r:?}");
}

#[test]
fn single_precision_in_all_roundings() {
    let mut r = Rng(0x9e37_79b9_7f4a_7c15);
    directed::<Single>("f32", 'r', 20_000, || r.f32());
}

#[test]
fn double_precision_in_all_roundings() {
    let mut r = Rng(0x1234_5678_9abc_def1);
    directed::<Double>("f64", 'd', 20_000, || r.f64());
}

#[test]
fn sixteen_bit_floats() {
    let mut r = Rng(77);
    let rows: Vec<Vec<u64>> = (0..60_000).map(|_| (0..3).map(|_| r.next() & 0xffff).collect()).collect();
    macro_rules! check {
        ($ty:literal, $f:ty) => {
            let f = |v: u64| <$f>::from_bits(u128::from(v));
            let n = Round::NearestTiesToEven;
            for (text, want) in [
                (concat!("add.rn.", $ty, " $d, $0, $1;"), (|a, b, _| a + b) as fn($f, $f, $f) -> _),
                (concat!("sub.rn.", $ty, " $d, $0, $1;"), |a, b, _| a - b),
                (concat!("mul.rn.", $ty, " $d, $0, $1;"), |a, b, _| a * b),
            ] {
                for (row, g) in rows.iter().zip(apply(text, 'h', &['h', 'h', 'h'], &rows)) {
                    agree(text, row, g, want(f(row[0]), f(row[1]), f(row[2])).value);
                }
            }
            let text = concat!("fma.rn.", $ty, " $d, $0, $1, $2;");
            for (row, g) in rows.iter().zip(apply(text, 'h', &['h', 'h', 'h'], &rows)) {
                agree(text, row, g, f(row[0]).mul_add_r(f(row[1]), f(row[2]), n).value);
            }
        };
    }
    check!("f16", Half);
    check!("bf16", BFloat);
}

#[test]
fn packed_halves_work_on_both_parts() {
    let mut r = Rng(5);
    let rows: Vec<Vec<u64>> = (0..5000).map(|_| (0..3).map(|_| r.next() & 0xffff_ffff).collect()).collect();
    let part = |k: u32| -> Vec<Vec<u64>> {
        rows.iter().map(|row| row.iter().map(|v| v >> (16 * k) & 0xffff).collect()).collect()
    };
    for op in ["add.rn", "mul.rn", "fma.rn", "min", "max", "max.NaN"] {
        for ty in ["f16", "bf16"] {
            let operands = if op == "fma.rn" { "$0, $1, $2" } else { "$0, $1" };
            let both = apply(&format!("{op}.{ty}x2 $d, {operands};"), 'r', &['r', 'r', 'r'], &rows);
            let one = |k| apply(&format!("{op}.{ty} $d, {operands};"), 'h', &['h', 'h', 'h'], &part(k));
            let want: Vec<u64> = one(0).iter().zip(one(1)).map(|(a, b)| a | b << 16).collect();
            assert_eq!(both, want, "{op}.{ty}x2");
        }
    }
}

#[test]
fn flushing_and_minima() {
    let tiny = u64::from(f32::from_bits(1).to_bits());
    let rows = [vec![tiny, 0x3f80_0000], vec![0x8000_0001, 0x3f80_0000], vec![0x7fc0_0000, 0x3f80_0000]];
    let run = |text: &str| apply(text, 'r', &['r', 'r'], &rows);
    assert_eq!(run("mul.f32 $d, $0, $1;")[..2], [1, 0x8000_0001]);
    assert_eq!(run("mul.ftz.f32 $d, $0, $1;")[..2], [0, 0x8000_0000]);
    assert_eq!(run("min.f32 $d, $0, $1;"), [1, 0x8000_0001, 0x3f80_0000]);
    assert_eq!(run("max.NaN.f32 $d, $0, $1;")[2], 0x7fff_ffff);
    let zeros = [vec![0x8000_0000, 0], vec![0, 0x8000_0000]];
    assert_eq!(apply("min.f32 $d, $0, $1;", 'r', &['r', 'r'], &zeros), [0x8000_0000; 2]);
    assert_eq!(apply("max.f32 $d, $0, $1;", 'r', &['r', 'r'], &zeros), [0; 2]);
}

#[test]
fn approximations_are_within_an_ulp() {
    let x: Vec<f32> = (1..4000).map(|k| k as f32 * 0.0137 - 20.0).collect();
    let rows: Vec<Vec<u64>> = x.iter().map(|v| vec![u64::from(v.to_bits())]).collect();
    let cases: [(&str, fn(f64) -> f64); 6] = [
        ("ex2.approx.f32", f64::exp2),
        ("lg2.approx.f32", f64::log2),
        ("sin.approx.f32", f64::sin),
        ("cos.approx.f32", f64::cos),
        ("tanh.approx.f32", f64::tanh),
        ("rsqrt.approx.f32", |v| 1.0 / v.sqrt()),
    ];
    for (text, want) in cases {
        for (v, g) in x.iter().zip(apply(&format!("{text} $d, $0;"), 'r', &['r'], &rows)) {
            let (got, want) = (f32::from_bits(g as u32), want(f64::from(*v)) as f32);
            let near = got == want || got == want.next_up() || got == want.next_down();
            assert!(near || (got.is_nan() && want.is_nan()), "{text} of {v}: {got}, {want}");
        }
    }
    // The extremes of a function computed by series.
    let ends = [200.0f32, -200.0, 128.0, -149.0, f32::INFINITY, f32::NEG_INFINITY];
    let rows: Vec<Vec<u64>> = ends.iter().map(|v| vec![u64::from(v.to_bits())]).collect();
    let got = apply("ex2.approx.f32 $d, $0;", 'r', &['r'], &rows);
    let want: Vec<u64> = ends.iter().map(|v| u64::from(v.exp2().to_bits())).collect();
    assert_eq!(got, want);
}

/// Sign- or zero-extends the low bits of a value.
fn int(v: u64, bits: u32, signed: bool) -> i128 {
    let up = 128 - bits;
    let w = u128::from(v) << up;
    if signed { w as i128 >> up } else { (w >> up) as i128 }
}

#[test]
fn integers_against_wide_arithmetic() {
    let mut r = Rng(3);
    let interesting =
        [0u64, 1, 2, 31, 32, 33, 63, 64, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, u64::MAX, 1 << 63];
    let rows: Vec<Vec<u64>> = (0..6000)
        .map(|k| {
            (0..4)
                .map(|_| {
                    let v = r.next();
                    if k % 3 == 0 { interesting[(v % 15) as usize] } else { v >> (v % 64) }
                })
                .collect()
        })
        .collect();
    for (bits, class, types) in [(16u32, 'h', ["u16", "s16"]), (32, 'r', ["u32", "s32"]), (64, 'd', ["u64", "s64"])] {
        for (signed, ty) in [(false, types[0]), (true, types[1])] {
            type Op = fn(i128, i128, i128, u32) -> i128;
            let cases: [(&str, &str, Op); 12] = [
                ("add", "$0, $1", |a, b, _, _| a + b),
                ("sub", "$0, $1", |a, b, _, _| a - b),
                ("mul.lo", "$0, $1", |a, b, _, _| a.wrapping_mul(b)),
                ("mul.hi", "$0, $1", |a, b, _, n| if n == 64 { hi64(a, b) } else { (a * b) >> n }),
                ("mad.lo", "$0, $1, $2", |a, b, c, _| a.wrapping_mul(b).wrapping_add(c)),
                ("min", "$0, $1", |a, b, _, _| a.min(b)),
                ("max", "$0, $1", |a, b, _, _| a.max(b)),
                ("div", "$0, $1", |a, b, _, _| a / b),
                ("rem", "$0, $1", |a, b, _, _| a % b),
                ("sad", "$0, $1, $2", |a, b, c, _| c + (a - b).abs()),
                ("abs", "$0", |a, _, _, _| a.abs()),
                ("neg", "$0", |a, _, _, _| -a),
            ];
            for (op, operands, want) in cases {
                let only_signed = matches!(op, "abs" | "neg");
                if (only_signed && !signed) || (op == "sad" && bits == 16) {
                    continue;
                }
                let text = format!("{op}.{ty} $d, {operands};");
                // Division by zero has no defined result.
                let rows: Vec<Vec<u64>> = rows
                    .iter()
                    .filter(|row| !matches!(op, "div" | "rem") || int(row[1], bits, false) != 0)
                    .cloned()
                    .collect();
                let got = apply(&text, class, &[class; 4], &rows);
                for (row, g) in rows.iter().zip(got) {
                    let v = |k: usize| int(row[k], bits, signed);
                    let w = want(v(0), v(1), v(2), bits) as u64;
                    assert_eq!(int(g, bits, false), int(w, bits, false), "{text} of {row:x?}");
                }
            }
        }
    }
}

/// High half of a 64-bit product that may not fit 128 bits signed.
fn hi64(a: i128, b: i128) -> i128 {
    if a < 0 || b < 0 { (a * b) >> 64 } else { ((a as u128 * b as u128) >> 64) as i128 }
}

#[test]
fn bit_operations() {
    let mut r = Rng(11);
    let rows: Vec<Vec<u64>> = (0..4000).map(|_| vec![r.next(), r.next(), r.next() % 70, r.next() % 70]).collect();
    let bit = |v: u64, k: u32| v >> k & 1;
    for (bits, class) in [(32u32, 'r'), (64, 'd')] {
        let low = |v: u64| if bits == 64 { v } else { v & 0xffff_ffff };
        // bfe as the manual's loop over bits.
        for signed in [false, true] {
            let text = format!("bfe.{}{bits} $d, $0, $2, $3;", if signed { 's' } else { 'u' });
            for (row, g) in rows.iter().zip(apply(&text, class, &[class, class, 'r', 'r'], &rows)) {
                let (a, pos, len, msb) = (low(row[0]), row[2] as u32, row[3] as u32, bits - 1);
                let fill = if signed && len > 0 { bit(a, (pos + len - 1).min(msb)) } else { 0 };
                let want = (0..bits).fold(0, |d, k| {
                    let inside = k < len && pos + k <= msb;
                    d | (if inside { bit(a, pos + k) } else { fill }) << k
                });
                assert_eq!(g, want, "{text} of {row:x?}");
            }
        }
        let text = format!("bfi.b{bits} $d, $0, $1, $2, $3;");
        for (row, g) in rows.iter().zip(apply(&text, class, &[class, class, 'r', 'r'], &rows)) {
            let (pos, len) = (row[2] as u32, row[3] as u32);
            let want = (0..bits).fold(0, |d, k| {
                let inside = k >= pos && k - pos < len;
                d | (if inside { bit(row[0], k - pos) } else { bit(row[1], k) }) << k
            });
            assert_eq!(g, want, "{text} of {row:x?}");
        }
        for (text, want) in [
            (
                format!("popc.b{bits} $d, $0;"),
                (|a: u64, n: u32| (0..n).map(|k| a >> k & 1).sum()) as fn(u64, u32) -> u64,
            ),
            (format!("clz.b{bits} $d, $0;"), |a, n| (0..n).take_while(|k| a >> (n - 1 - k) & 1 == 0).count() as u64),
            (format!("bfind.u{bits} $d, $0;"), |a, n| {
                (0..n).rev().find(|k| a >> k & 1 == 1).map_or(0xffff_ffff, u64::from)
            }),
        ] {
            for (row, g) in rows.iter().zip(apply(&text, 'r', &[class, class, 'r', 'r'], &rows)) {
                assert_eq!(g, want(low(row[0]), bits), "{text} of {row:x?}");
            }
        }
    }
    for table in [0x00u32, 0x1b, 0x96, 0xe8, 0xca, 0xff] {
        let text = format!("lop3.b32 $d, $0, $1, $2, {table};");
        let wide: Vec<Vec<u64>> = rows.iter().map(|row| vec![row[0], row[1], row[0] >> 17 ^ row[1] << 3]).collect();
        for (row, g) in wide.iter().zip(apply(&text, 'r', &['r'; 3], &wide)) {
            let want = (0..32).fold(0, |d, k| {
                let index = bit(row[0], k) << 2 | bit(row[1], k) << 1 | bit(row[2], k);
                d | u64::from(table >> index & 1) << k
            });
            assert_eq!(g, want, "{text}");
        }
    }
    for (text, want) in [
        ("shf.l.wrap.b32 $d, $0, $1, $2;", (|v: u64, n: u32| v << (n & 31) >> 32) as fn(u64, u32) -> u64),
        ("shf.r.wrap.b32 $d, $0, $1, $2;", |v, n| v >> (n & 31)),
        ("shf.l.clamp.b32 $d, $0, $1, $2;", |v, n| ((u128::from(v) << n.min(32)) >> 32) as u64),
        ("shf.r.clamp.b32 $d, $0, $1, $2;", |v, n| v >> n.min(32)),
    ] {
        for (row, g) in rows.iter().zip(apply(text, 'r', &['r'; 4], &rows)) {
            let v = (row[1] & 0xffff_ffff) << 32 | row[0] & 0xffff_ffff;
            assert_eq!(g, want(v, row[2] as u32) & 0xffff_ffff, "{text} of {row:x?}");
        }
    }
    let text = "prmt.b32 $d, $0, $1, $2;";
    let rows: Vec<Vec<u64>> = (0..2000).map(|_| vec![r.next(), r.next(), r.next()]).collect();
    for (row, g) in rows.iter().zip(apply(text, 'r', &['r'; 3], &rows)) {
        let bytes = [(row[0] as u32).to_le_bytes(), (row[1] as u32).to_le_bytes()].concat();
        for k in 0..4 {
            let sel = (row[2] >> (4 * k)) as usize & 15;
            let b = bytes[sel & 7];
            let want = if sel & 8 == 0 {
                b
            } else if b & 0x80 != 0 {
                0xff
            } else {
                0
            };
            assert_eq!((g >> (8 * k)) as u8, want, "{row:x?}");
        }
    }
}

#[test]
fn carries_make_128_bit_sums() {
    let mut r = Rng(19);
    let rows: Vec<Vec<u64>> =
        (0..3000).map(|k| (0..4).map(|_| if k % 4 == 0 { u64::MAX } else { r.next() }).collect()).collect();
    let wide = |row: &[u64], k: usize| u128::from(row[k]) | u128::from(row[k + 1]) << 64;
    let up = apply("add.cc.u64 $d, $0, $2;\naddc.u64 $d, $1, $3;", 'd', &['d'; 4], &rows);
    let down = apply("sub.cc.u64 $d, $0, $2;\nsubc.u64 $d, $1, $3;", 'd', &['d'; 4], &rows);
    for ((row, u), d) in rows.iter().zip(up).zip(down) {
        assert_eq!(u, (wide(row, 0).wrapping_add(wide(row, 2)) >> 64) as u64);
        assert_eq!(d, (wide(row, 0).wrapping_sub(wide(row, 2)) >> 64) as u64);
    }
}

#[test]
fn comparisons_order_nan_and_signs() {
    let values = [f64::NAN, f64::NEG_INFINITY, -1.0, -0.0, 0.0, 1.0, f64::INFINITY];
    let rows: Vec<Vec<u64>> =
        values.iter().flat_map(|a| values.iter().map(|b| vec![a.to_bits(), b.to_bits()])).collect();
    use std::cmp::Ordering::{Equal, Greater, Less};
    // (operator, orderings that satisfy it, whether NaN does)
    let cases: [(&str, &[std::cmp::Ordering], bool); 14] = [
        ("eq", &[Equal], false),
        ("ne", &[Less, Greater], false),
        ("lt", &[Less], false),
        ("le", &[Less, Equal], false),
        ("gt", &[Greater], false),
        ("ge", &[Greater, Equal], false),
        ("equ", &[Equal], true),
        ("neu", &[Less, Greater], true),
        ("ltu", &[Less], true),
        ("leu", &[Less, Equal], true),
        ("gtu", &[Greater], true),
        ("geu", &[Greater, Equal], true),
        ("num", &[Less, Equal, Greater], false),
        ("nan", &[], true),
    ];
    for (op, orders, unordered) in cases {
        let f64s = apply(&format!("setp.{op}.f64 $d, $0, $1;"), 'p', &['d', 'd'], &rows);
        let narrow: Vec<Vec<u64>> =
            rows.iter().map(|r| r.iter().map(|v| u64::from((f64::from_bits(*v) as f32).to_bits())).collect()).collect();
        let f32s = apply(&format!("setp.{op}.f32 $d, $0, $1;"), 'p', &['r', 'r'], &narrow);
        for (k, row) in rows.iter().enumerate() {
            let order = f64::from_bits(row[0]).partial_cmp(&f64::from_bits(row[1]));
            let want = order.map_or(unordered, |o| orders.contains(&o));
            assert_eq!((f64s[k] == 1, f32s[k] == 1), (want, want), "{op} of {row:x?}");
        }
    }
    let rows = [vec![u64::from(u32::MAX), 1]];
    for (text, want) in [
        ("setp.lt.s32 $d, $0, $1;", 1),
        ("setp.lo.u32 $d, $0, $1;", 0),
        ("setp.hi.u32 $d, $0, $1;", 1),
        ("setp.gt.s32 $d, $0, $1;", 0),
        ("setp.lt.and.s32 $d, $0, $1, !%p3;", 1),
        ("setp.lt.xor.s32 $d, $0, $1, !%p3;", 0),
    ] {
        assert_eq!(apply(text, 'p', &['r', 'r'], &rows), [want], "{text}");
    }
}
