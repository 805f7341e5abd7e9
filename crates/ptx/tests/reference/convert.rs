//! Conversions through 113-bit floats, which hold every source exactly, and one rounding from there.

use super::{Want, integer, value};
use rustc_apfloat::ieee::{BFloat, Double, Float8E4M3FN, Float8E5M2, Half, Quad, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

fn quad<F: Float + FloatConvert<Quad>>(bits: u64) -> Quad {
    F::from_bits(u128::from(bits) & (u128::MAX >> (128 - F::BITS))).convert(&mut false).value
}

fn source(ty: &str, bits: u64) -> Quad {
    match ty {
        "f16" => quad::<Half>(bits),
        "bf16" => quad::<BFloat>(bits),
        "f32" => quad::<Single>(bits),
        "f64" => quad::<Double>(bits),
        _ => {
            let (n, signed) = integer(ty).expect("an integer type");
            Quad::from_i128(value(bits, n, signed)).value
        }
    }
}

/// The value rounded to a format, as its bits.
fn rounded<F>(x: Quad, round: Round, has: &dyn Fn(&str) -> bool) -> Want
where
    F: Float,
    Quad: FloatConvert<F>,
{
    let bits = F::BITS as u32;
    if x.is_nan() {
        return if has("sat") { Want::Bits(0) } else { Want::Nan(bits) };
    }
    let zero = x.is_zero();
    let x = if (has("relu") || has("sat")) && (x.is_negative() || zero) { Quad::ZERO } else { x };
    let one = Quad::from_u128(1).value;
    let x = if has("sat") && x > one { one } else { x };
    let y: F = x.convert_r(round, &mut false).value;
    if has("satfinite") && (y.is_infinite() || y.is_nan() || x.is_infinite()) {
        let largest = F::largest();
        return Want::Bits((if x.is_negative() { -largest } else { largest }).to_bits() as u64);
    }
    if y.is_nan() {
        return Want::Nan(bits);
    }
    Want::Bits(y.to_bits() as u64)
}

fn narrow(ty: &str, x: Quad, round: Round, has: &dyn Fn(&str) -> bool) -> Want {
    match ty {
        "f16" => rounded::<Half>(x, round, has),
        "bf16" => rounded::<BFloat>(x, round, has),
        "e4m3" => match rounded::<Float8E4M3FN>(x, round, has) {
            Want::Nan(_) => Want::Bits(0x7f),
            w => w,
        },
        "e5m2" => match rounded::<Float8E5M2>(x, round, has) {
            Want::Nan(_) => Want::Bits(0x7f),
            w => w,
        },
        "f32" => rounded::<Single>(x, round, has),
        _ => rounded::<Double>(x, round, has),
    }
}

fn subnormal(bits: u64) -> bool {
    f32::from_bits(bits as u32).is_subnormal()
}

/// Value of a `cvt` with these modifiers.
pub fn expect(mods: &[&str], row: &[u64]) -> Want {
    let [head @ .., dst, src] = mods else { panic!("cvt without types") };
    let has = |m: &str| head.contains(&m);
    let directed = [("rz", Round::TowardZero), ("rm", Round::TowardNegative), ("rp", Round::TowardPositive)];
    let mut round = Round::NearestTiesToEven;
    let mut whole = false;
    for (name, r) in directed.into_iter().chain([("rn", Round::NearestTiesToEven)]) {
        whole |= has(&format!("{name}i"));
        if has(name) || has(&format!("{name}i")) {
            round = r;
        }
    }
    if has("rna") {
        round = Round::NearestTiesToAway;
    }
    // Packed forms, element by element; the first source is the upper half.
    if let Some(element) = dst.strip_suffix("x2") {
        let width = if element.starts_with('e') { 8 } else { 16 };
        let (low, high) = match src.strip_suffix("x2") {
            None => (source("f32", row[1]), source("f32", row[0])),
            Some("f16") => (source("f16", row[0] & 0xffff), source("f16", row[0] >> 16 & 0xffff)),
            Some("e4m3") => (quad::<Float8E4M3FN>(row[0] & 0xff), quad::<Float8E4M3FN>(row[0] >> 8 & 0xff)),
            Some(_) => (quad::<Float8E5M2>(row[0] & 0xff), quad::<Float8E5M2>(row[0] >> 8 & 0xff)),
        };
        let both = (narrow(element, low, round, &has), narrow(element, high, round, &has));
        return match both {
            (Want::Bits(a), Want::Bits(b)) => Want::Bits(a | b << width),
            _ => Want::Any,
        };
    }
    if *dst == "tf32" {
        return tf32(row[0] as u32, round, &has);
    }
    let mut raw = row[0];
    if has("ftz") && *src == "f32" && subnormal(raw) {
        raw &= 0x8000_0000;
    }
    let x = source(src, raw);
    let float_source = src.starts_with('f') || src.starts_with('b');
    if let Some((bits, signed)) = integer(dst).filter(|_| *dst != "bf16") {
        let (min, max) =
            if signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
        let v = if !float_source {
            let (n, s) = integer(src).expect("an integer type");
            let v = value(raw, n, s);
            if has("sat") { v.clamp(min, max) } else { v }
        } else if x.is_nan() {
            // "Zero if the source is not .f64 and the destination is not .s64 or .u64, 1 << (width - 1) otherwise."
            if *src == "f64" || bits == 64 { 1 << (bits - 1) } else { 0 }
        } else {
            let w = x.round_to_integral(round).value;
            let limit = Quad::from_i128(1 << 100).value;
            if w > limit {
                max
            } else if w < -limit {
                min
            } else {
                w.to_i128(128).value.clamp(min, max)
            }
        };
        // A register holds a narrow result extended to 16 bits.
        let width = bits.max(16);
        let kept = value(v as u64, bits, signed);
        return Want::Bits((kept as u128 & ((1u128 << width) - 1)) as u64);
    }
    let x = if whole { x.round_to_integral(round).value } else { x };
    match narrow(dst, x, round, &has) {
        Want::Bits(b) if has("ftz") && *dst == "f32" && subnormal(b) => Want::Bits(b & 0x8000_0000),
        w => w,
    }
}

/// Rounding to ten fraction bits on the bits of the float; the thirteen bits below are not specified.
fn tf32(a: u32, round: Round, has: &dyn Fn(&str) -> bool) -> Want {
    let x = f32::from_bits(a);
    if x.is_nan() {
        return Want::Nan(32);
    }
    if has("relu") && x.is_sign_negative() {
        return Want::Bits(0);
    }
    let (sign, m) = (a & 0x8000_0000, a & 0x7fff_ffff);
    let (kept, rest) = (m >> 13, m & 0x1fff);
    let up = match round {
        Round::TowardZero => false,
        Round::NearestTiesToAway => rest >= 0x1000,
        _ => rest > 0x1000 || (rest == 0x1000 && kept & 1 == 1),
    };
    let mut r = (kept + u32::from(up)) << 13;
    if has("satfinite") && r >= 0x7f80_0000 {
        r = 0x7f7f_e000;
    }
    Want::Bits((sign | r).into())
}
