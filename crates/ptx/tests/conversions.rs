//! Conversions and roundings against `rustc_apfloat`, an independent implementation: all 16-bit inputs, and for wider
//! inputs every value at, halfway between and just beside neighbouring results.

// Layout formulas stay as close to the ISA's text as they can.
#![allow(clippy::precedence, clippy::needless_range_loop, clippy::manual_is_multiple_of)]
#![allow(clippy::format_in_format_args, clippy::type_complexity)]

mod single;

use rustc_apfloat::ieee::{BFloat, Double, Float8E4M3FN, Float8E5M2, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};
use single::apply1;

const ROUNDS: [(&str, Round); 4] = [
    ("rn", Round::NearestTiesToEven),
    ("rz", Round::TowardZero),
    ("rm", Round::TowardNegative),
    ("rp", Round::TowardPositive),
];

fn convert<A: Float + FloatConvert<B>, B: Float>(bits: u128, round: Round) -> B {
    let mut loses = false;
    A::from_bits(bits).convert_r(round, &mut loses).value
}

/// NaN payloads are not specified: any NaN matches any other.
fn same<F: Float>(got: u64, want: F) -> bool {
    let got = F::from_bits(u128::from(got));
    (got.is_nan() && want.is_nan()) || got.to_bits() == want.to_bits()
}

/// Floats at, between and beside the values of a 16-bit format.
fn neighbours(value: impl Fn(u16) -> f32) -> Vec<u64> {
    let mut out = Vec::new();
    for h in 0..=0xffffu16 {
        let v = value(h);
        let next = value(h.wrapping_add(1));
        let middle = ((f64::from(v) + f64::from(next)) / 2.0) as f32;
        for x in [v, middle] {
            let b = x.to_bits();
            out.extend([b.wrapping_sub(1), b, b.wrapping_add(1)].map(u64::from));
        }
    }
    out
}

fn half(h: u16) -> f32 {
    f32::from_bits(convert::<Half, Single>(h.into(), Round::NearestTiesToEven).to_bits() as u32)
}

fn bfloat(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

#[test]
fn sixteen_bit_floats_to_single() {
    let (x, y) = apply1("cvt.f32.f16 $d, $0;", 'r', 'h', 0..0x10000);
    assert!(x.iter().zip(&y).all(|(a, b)| same(*b, convert::<Half, Single>((*a).into(), Round::NearestTiesToEven))));
    let (x, y) = apply1("cvt.f32.bf16 $d, $0;", 'r', 'h', 0..0x10000);
    assert!(x.iter().zip(&y).all(|(a, b)| same(*b, convert::<BFloat, Single>((*a).into(), Round::NearestTiesToEven))));
    let (x, y) = apply1("cvt.f64.f16 $d, $0;", 'd', 'h', 0..0x10000);
    assert!(x.iter().zip(&y).all(|(a, b)| same(*b, convert::<Half, Double>((*a).into(), Round::NearestTiesToEven))));
}

#[test]
fn single_to_sixteen_bit_floats() {
    for (name, round) in ROUNDS {
        let (x, y) = apply1(&format!("cvt.{name}.f16.f32 $d, $0;"), 'h', 'r', neighbours(half));
        for (a, b) in x.iter().zip(&y) {
            assert!(same(*b, convert::<Single, Half>((*a).into(), round)), "{name} f16 of {a:#x} gave {b:#x}");
        }
        let (x, y) = apply1(&format!("cvt.{name}.bf16.f32 $d, $0;"), 'h', 'r', neighbours(bfloat));
        for (a, b) in x.iter().zip(&y) {
            assert!(same(*b, convert::<Single, BFloat>((*a).into(), round)), "{name} bf16 of {a:#x} gave {b:#x}");
        }
    }
}

#[test]
fn packed_conversions_put_the_first_source_high() {
    for (ty, one, two) in [("bf16x2", 0x3f80u64, 0x4000u64), ("f16x2", 0x3c00, 0x4000)] {
        let rows = vec![vec![u64::from(2f32.to_bits()), u64::from(1f32.to_bits())]];
        let y = single::apply(&format!("cvt.rn.{ty}.f32 $d, $0, $1;"), 'r', &['r', 'r'], &rows);
        assert_eq!(y[0], two << 16 | one);
    }
}

#[test]
fn relu_and_saturation() {
    let x = [-1.5f32, 0.25, 1e30, f32::NAN, f32::NEG_INFINITY].map(|v| u64::from(v.to_bits()));
    let (_, y) = apply1("cvt.rn.relu.bf16.f32 $d, $0;", 'h', 'r', x);
    assert_eq!(y, [0, 0x3e80, 0x714a, 0x7fff, 0]);
    let (_, y) = apply1("cvt.rn.satfinite.f16.f32 $d, $0;", 'h', 'r', x);
    assert_eq!(y, [0xbe00, 0x3400, 0x7bff, 0x7fff, 0xfbff]);
    let (_, y) = apply1("cvt.sat.f32.f32 $d, $0;", 'r', 'r', x);
    assert_eq!(y, [0f32, 0.25, 1.0, 0.0, 0.0].map(|v| u64::from(v.to_bits())));
}

/// The eight-bit value nearest to `x`, by trying all; ties to the even code; saturating.
fn nearest8(x: f64, value: impl Fn(u8) -> f64, max: u8) -> u8 {
    if x.is_nan() {
        return 0x7f;
    }
    // Far above the range doubles could not tell the codes apart.
    let a = x.abs().min(1e6);
    let best = (0..=max)
        .min_by(|p, q| (value(*p) - a).abs().total_cmp(&(value(*q) - a).abs()).then((p & 1).cmp(&(q & 1))))
        .unwrap_or(0);
    best | if x.is_sign_negative() { 0x80 } else { 0 }
}

fn f8<F: Float + FloatConvert<Double>>(code: u8) -> f64 {
    f64::from_bits(convert::<F, Double>(code.into(), Round::NearestTiesToEven).to_bits() as u64)
}

#[test]
fn eight_bit_floats() {
    // Every bf16 as single-precision source covers each code, its neighbours and all magnitudes.
    let inputs = || (0..0x10000u64).map(|h| h << 16);
    let (x, y) = apply1("cvt.rn.satfinite.e4m3x2.f32 $d, $0, $0;", 'h', 'r', inputs());
    for (a, b) in x.iter().zip(&y) {
        let want = nearest8(f64::from(f32::from_bits(*a as u32)), f8::<Float8E4M3FN>, 0x7e);
        let want = if want & 0x7f == 0x7f { 0x7f } else { want };
        assert_eq!(*b as u8, want, "e4m3 of {a:#x}");
        assert_eq!(*b >> 8, *b & 0xff);
    }
    let (x, y) = apply1("cvt.rn.satfinite.e5m2x2.f32 $d, $0, $0;", 'h', 'r', inputs());
    for (a, b) in x.iter().zip(&y) {
        let want = nearest8(f64::from(f32::from_bits(*a as u32)), f8::<Float8E5M2>, 0x7b);
        assert_eq!(*b as u8, want, "e5m2 of {a:#x}");
    }
    // Halves, all of them, go through the packed form.
    let (x, y) = apply1("cvt.rn.satfinite.e4m3x2.f16x2 $d, $0;", 'h', 'r', 0..0x10000);
    for (a, b) in x.iter().zip(&y) {
        let want = nearest8(f64::from(half(*a as u16)), f8::<Float8E4M3FN>, 0x7e);
        assert_eq!(*b as u8, want, "e4m3 of half {a:#x}");
    }
    let (x, y) = apply1("cvt.rn.f16x2.e4m3x2 $d, $0;", 'r', 'h', 0..0x10000);
    for (a, b) in x.iter().zip(&y) {
        for k in 0..2 {
            let code = (a >> (8 * k)) as u8;
            let want = convert::<Float8E4M3FN, Half>(code.into(), Round::NearestTiesToEven);
            assert!(same(b >> (16 * k) & 0xffff, want), "half of e4m3 {code:#x}");
        }
    }
    let (x, y) = apply1("cvt.rn.f16x2.e5m2x2 $d, $0;", 'r', 'h', 0..0x100);
    assert!(
        x.iter()
            .zip(&y)
            .all(|(a, b)| { same(b & 0xffff, convert::<Float8E5M2, Half>((*a).into(), Round::NearestTiesToEven)) })
    );
}

#[test]
fn tf32_keeps_ten_fraction_bits() {
    let inputs: Vec<u64> = (0..0x40000u64).map(|k| k << 14 | k & 0x3fff).collect();
    let (x, y) = apply1("cvt.rna.tf32.f32 $d, $0;", 'r', 'r', inputs);
    for (a, b) in x.iter().zip(&y) {
        let v = f32::from_bits(*a as u32);
        if v.is_finite() {
            // Nearest, ties away: half a unit is added to the magnitude and the rest cut off.
            assert_eq!(*b & 0xffff_e000, (*a + 0x1000) & 0xffff_e000, "{a:#x}");
        } else {
            assert_eq!(f32::from_bits(*b as u32).is_nan(), v.is_nan());
        }
    }
}

#[test]
fn integers_from_and_to_sixteen_bit_floats() {
    for (name, round) in ROUNDS {
        let (x, y) = apply1(&format!("cvt.{name}.f16.s16 $d, $0;"), 'h', 'h', 0..0x10000);
        for (a, b) in x.iter().zip(&y) {
            let want = Half::from_i128_r(i128::from(*a as u16 as i16), round).value;
            assert!(same(*b, want), "{name} {a}");
        }
        let text = format!("cvt.{name}i.s16.f16 $d, $0;");
        let (x, y) = apply1(&text, 'h', 'h', 0..0x10000);
        for (a, b) in x.iter().zip(&y) {
            let v = half(*a as u16);
            let whole = match round {
                Round::TowardZero => v.trunc(),
                Round::TowardNegative => v.floor(),
                Round::TowardPositive => v.ceil(),
                _ => v.round_ties_even(),
            };
            assert_eq!(*b as u16 as i16, whole as i16, "{text} of {a:#x}");
        }
    }
}

#[test]
fn wide_integers_round_once() {
    let mut r = 1u64;
    let inputs: Vec<u64> = (0..20000)
        .map(|k| {
            r = r.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            r >> (k % 64)
        })
        .collect();
    for (name, round) in ROUNDS {
        let (x, y) = apply1(&format!("cvt.{name}.f32.u64 $d, $0;"), 'r', 'd', inputs.clone());
        assert!(x.iter().zip(&y).all(|(a, b)| same(*b, Single::from_u128_r((*a).into(), round).value)), "{name}");
        let (x, y) = apply1(&format!("cvt.{name}.f64.s64 $d, $0;"), 'd', 'd', inputs.clone());
        assert!(
            x.iter().zip(&y).all(|(a, b)| same(*b, Double::from_i128_r((*a as i64).into(), round).value)),
            "{name}"
        );
        let (x, y) = apply1(&format!("cvt.{name}.f32.f64 $d, $0;"), 'r', 'd', inputs.clone());
        assert!(x.iter().zip(&y).all(|(a, b)| same(*b, convert::<Double, Single>((*a).into(), round))), "{name}");
    }
}

#[test]
fn integer_widths() {
    let inputs = [0u64, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff_ffff, 0x8000_0000, 0x1234_5678_9abc_def0];
    // (instruction, result class, source class, statement of the result)
    type Case = (&'static str, char, char, fn(u64) -> u64);
    let cases: [Case; 14] = [
        ("cvt.u32.u8", 'r', 'r', |v| u64::from(v as u8)),
        ("cvt.s32.s8", 'r', 'r', |v| u64::from(v as i8 as i32 as u32)),
        ("cvt.u16.u8", 'h', 'r', |v| u64::from(v as u8)),
        ("cvt.s16.s8", 'h', 'h', |v| u64::from(v as i8 as i16 as u16)),
        ("cvt.u8.u32", 'r', 'r', |v| u64::from(v as u8)),
        ("cvt.s8.s32", 'r', 'r', |v| u64::from(v as i8 as i32 as u32)),
        ("cvt.s64.s16", 'd', 'h', |v| v as i16 as i64 as u64),
        ("cvt.u64.u16", 'd', 'h', |v| u64::from(v as u16)),
        ("cvt.u64.s32", 'd', 'r', |v| v as i32 as i64 as u64),
        ("cvt.s16.s64", 'h', 'd', |v| u64::from(v as u16)),
        ("cvt.sat.u8.s32", 'r', 'r', |v| (v as i32).clamp(0, 255) as u64),
        ("cvt.sat.s16.s32", 'h', 'r', |v| u64::from((v as i32).clamp(-32768, 32767) as u16)),
        ("cvt.sat.s32.s64", 'r', 'd', |v| u64::from((v as i64).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32)),
        ("cvt.sat.u32.s64", 'r', 'd', |v| (v as i64).clamp(0, i64::from(u32::MAX)) as u64),
    ];
    for (text, dst, src, want) in cases {
        let (x, y) = apply1(&format!("{text} $d, $0;"), dst, src, inputs);
        let want: Vec<u64> = x.iter().map(|v| want(*v)).collect();
        assert_eq!(y, want, "{text}");
    }
}
