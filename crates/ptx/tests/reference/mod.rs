//! What each lane function computes, stated independently of the interpreter: integers in 128-bit arithmetic, floats by
//! `rustc_apfloat`, bit operations as the ISA's pseudo code.
#![allow(dead_code)]

pub mod convert;

use rustc_apfloat::ieee::{BFloat, Double, Half, Quad, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

/// What a result must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Want {
    /// These bits.
    Bits(u64),
    /// A NaN of this many bits.
    Nan(u32),
    /// Within some units in the last place of a value in this many bits.
    Near(f64, u32, u64),
    /// The operation is not defined on these operands.
    Any,
}

impl Want {
    /// Whether a result satisfies the statement.
    pub fn holds(self, got: u64) -> bool {
        match self {
            Self::Bits(b) => b == got,
            Self::Nan(64) => f64::from_bits(got).is_nan(),
            Self::Nan(32) => f32::from_bits(got as u32).is_nan(),
            Self::Nan(_) => got & 0x7fff > 0x7c00,
            Self::Near(x, 64, ulps) => {
                let y = f64::from_bits(got);
                y == x
                    || (y - x).abs() <= x.abs() * ulps as f64 * f64::EPSILON
                    || (x.abs() < 1e-300 && y.abs() < 1e-300)
            }
            Self::Near(x, _, ulps) => {
                let y = f32::from_bits(got as u32);
                let near = x as f32;
                y == near || (i64::from(y.to_bits()) - i64::from(near.to_bits())).unsigned_abs() <= ulps
            }
            Self::Any => true,
        }
    }
}

/// Bits and signedness of an integer type.
pub fn integer(ty: &str) -> Option<(u32, bool)> {
    let bits = ty[1..].parse().ok()?;
    match ty.as_bytes()[0] {
        b'u' | b'b' => Some((bits, false)),
        b's' => Some((bits, true)),
        _ => None,
    }
}

/// The low bits of a value as a number.
pub fn value(v: u64, bits: u32, signed: bool) -> i128 {
    let up = 128 - bits;
    let w = u128::from(v) << up;
    if signed { w as i128 >> up } else { (w >> up) as i128 }
}

fn low(v: i128, bits: u32) -> u64 {
    (v as u128 & ((1u128 << bits) - 1)) as u64
}

/// Value of an opcode on one row of operands.
pub fn expect(op: &str, row: &[u64]) -> Want {
    let parts: Vec<&str> = op.split('.').collect();
    let (name, mods) = (parts[0], &parts[1..]);
    let ty = mods.last().copied().unwrap_or("");
    let at = |k: usize| row.get(k).copied().unwrap_or(0);
    if name == "cvt" && mods[0] == "pack" {
        let (bits, signed) = integer(mods[2]).expect("an integer type");
        let (min, max) = if signed { (-(1i64 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
        let part = |k: usize| i64::from(at(k) as u32 as i32).clamp(min, max) as u64 & ((1 << bits) - 1);
        let above = if bits == 8 { (at(2) & 0xffff) << 16 } else { 0 };
        return Want::Bits(above | part(0) << bits | part(1));
    }
    if name == "cvt" {
        return convert::expect(mods, row);
    }
    if let Some(scalar) = ty.strip_suffix("x2") {
        let op = format!("{}{scalar}", op.strip_suffix(ty).unwrap_or(op));
        let width = if scalar == "f32" { 32 } else { 16 };
        let part = |k: u32| -> Vec<u64> { row.iter().map(|v| v >> (width * k) & ((1 << width) - 1)).collect() };
        return match (expect(&op, &part(0)), expect(&op, &part(1))) {
            (Want::Bits(a), Want::Bits(b)) => Want::Bits(a | b << width),
            // Halves with a NaN are compared by the scalar forms.
            _ => Want::Any,
        };
    }
    match ty {
        "f32" if name != "slct" => return float::<Single>(name, mods, row),
        "f64" if name != "slct" => return float::<Double>(name, mods, row),
        "f16" => return float::<Half>(name, mods, row),
        "bf16" => return float::<BFloat>(name, mods, row),
        _ => {}
    }
    if name == "prmt" {
        return Want::Bits(permute(mods.get(1).copied().unwrap_or(""), at(0) as u32, at(1) as u32, at(2) as u32));
    }
    if name == "lop3" || name == "bfi" {
        panic!("{op} is stated by a test of its own");
    }
    if name == "slct" {
        let chosen = match ty {
            "s32" => at(2) as u32 as i32 >= 0,
            _ => {
                let c = f32::from_bits(at(2) as u32);
                // A subnormal is flushed to a zero of its sign, and both zeros are not negative.
                c >= 0.0 || (mods.contains(&"ftz") && c.is_subnormal())
            }
        };
        let bits = mods[mods.len() - 2][1..].parse().unwrap_or(32);
        return Want::Bits(low(i128::from(if chosen { at(0) } else { at(1) }), bits));
    }
    let Some((bits, signed)) = integer(ty) else { panic!("no statement of {op}") };
    let v = |k: usize| value(at(k), bits, signed);
    let word = |k: usize| i128::from(at(k) as u32);
    let (min, max) =
        if signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
    let has = |m: &str| mods.contains(&m);
    let bounded = |x: i128| if has("sat") { x.clamp(min, max) } else { x };
    let product = v(0).wrapping_mul(v(1));
    let high = if signed { product >> bits } else { (product as u128 >> bits) as i128 };
    let n = bits as usize;
    let result = match name {
        "mov" => v(0),
        "add" => bounded(v(0) + v(1)),
        "sub" => bounded(v(0) - v(1)),
        "mul" if has("hi") => high,
        "mul" => product,
        "mad" if has("wide") => product + value(at(2), 2 * bits, signed),
        "mad" if has("hi") => bounded(high + v(2)),
        "mad" => product.wrapping_add(v(2)),
        "mul24" | "mad24" => {
            let p = value(at(0), 24, signed) * value(at(1), 24, signed);
            let part = if has("hi") { value((p >> 16) as u64, 32, signed) } else { p };
            if name == "mad24" { bounded(part + v(2)) } else { part }
        }
        "sad" => v(2) + (v(0) - v(1)).abs(),
        "div" | "rem" if v(1) == 0 => return Want::Any,
        "div" => v(0) / v(1),
        "rem" => v(0) % v(1),
        "abs" => v(0).abs(),
        "neg" => -v(0),
        "min" if has("relu") => v(0).min(v(1)).max(0),
        "max" if has("relu") => v(0).max(v(1)).max(0),
        "min" => v(0).min(v(1)),
        "max" => v(0).max(v(1)),
        "and" => v(0) & v(1),
        "or" => v(0) | v(1),
        "xor" => v(0) ^ v(1),
        "not" => !v(0),
        "cnot" => i128::from(v(0) == 0),
        "shl" => v(0) << word(1).min(i128::from(bits)),
        "shr" => v(0) >> word(1).min(i128::from(bits)),
        "popc" => (0..n).filter(|k| v(0) >> k & 1 == 1).count() as i128,
        "clz" => (0..n).rev().take_while(|k| v(0) >> k & 1 == 0).count() as i128,
        "brev" => (0..n).fold(0, |d, k| d | (v(0) >> k & 1) << (n - 1 - k)),
        "bfind" => {
            let sign = if signed { v(0) >> (n - 1) & 1 } else { 0 };
            match (0..n).rev().find(|k| v(0) >> k & 1 != sign) {
                Some(k) if has("shiftamt") => (n - 1 - k) as i128,
                Some(k) => k as i128,
                None => 0xffff_ffff,
            }
        }
        "bfe" => {
            let (pos, len, msb) = ((at(1) & 255) as usize, (at(2) & 255) as usize, n - 1);
            let fill = if signed && len > 0 { v(0) >> (pos + len - 1).min(msb) & 1 } else { 0 };
            (0..n).fold(0, |d, k| d | (if k < len && pos + k <= msb { v(0) >> (pos + k) & 1 } else { fill }) << k)
        }
        "bmsk" => {
            let (a, b, clamp) = (at(0) as u32, at(1) as u32, has("clamp"));
            let (start, width) = (a & 31, b & 31);
            let first = if clamp && a >= 32 { 0 } else { !0u32 << start };
            let end = start + width;
            let rest = if end >= 32 || (clamp && (a >= 32 || b >= 32)) { 0 } else { !0u32 << end };
            i128::from(first & !rest)
        }
        "szext" => {
            let (a, b) = (at(0) as u32, at(1) as u32);
            let count = if has("clamp") { b.min(32) } else { b & 31 };
            // Bit `k` of the result is the operand's below the count, the field's top bit above.
            let top = if signed && count > 0 { a >> (count - 1) & 1 } else { 0 };
            i128::from((0..32).fold(0u32, |d, k| d | (if k < count { a >> k & 1 } else { top }) << k))
        }
        "shf" => {
            let count = if has("wrap") { at(2) as u32 & 31 } else { (at(2) as u32).min(32) };
            let both = i128::from(at(1) as u32) << 32 | i128::from(at(0) as u32);
            if has("l") { both << count >> 32 } else { both >> count }
        }
        "dp4a" | "dp2a" => {
            let signs = [mods[mods.len() - 2], ty].map(|t| t == "s32");
            let elements = if name == "dp4a" { 4 } else { 2 };
            let width = 32 / elements;
            let first = if has("hi") { 2 } else { 0 };
            let dot: i128 = (0..elements)
                .map(|k| value(at(0) >> (width * k), width, signs[0]) * value(at(1) >> (8 * (first + k)), 8, signs[1]))
                .sum();
            dot + word(2)
        }
        _ => panic!("no statement of {op}"),
    };
    let bits = match name {
        "mul" | "mad" if has("wide") => 2 * bits,
        "popc" | "clz" | "bfind" => 32,
        _ => bits,
    };
    Want::Bits(low(result, bits))
}

/// `prmt`: bytes of b:a by selector, or by the table of a mode, most significant byte first as the ISA prints it.
fn permute(mode: &str, a: u32, b: u32, c: u32) -> u64 {
    let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
    let table = |rows: [[usize; 4]; 4]| rows[c as usize & 3].iter().fold(0u64, |d, k| d << 8 | u64::from(bytes[*k]));
    match mode {
        "f4e" => table([[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]]),
        "b4e" => table([[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]]),
        "rc8" => table([[0; 4], [1; 4], [2; 4], [3; 4]]),
        "ecl" => table([[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]]),
        "ecr" => table([[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]]),
        "rc16" => table([[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]]),
        _ => (0..4).fold(0, |d, k| {
            let s = c >> (4 * k) & 15;
            let byte = bytes[s as usize & 7];
            let byte = if s & 8 == 0 { byte } else { [0, 0xff][usize::from(byte >> 7)] };
            d | u64::from(byte) << (8 * k)
        }),
    }
}

fn flush<F: Float>(x: F) -> F {
    if x.is_denormal() { if x.is_negative() { -F::ZERO } else { F::ZERO } } else { x }
}

fn saturated<F: Float>(x: F) -> F {
    let one = F::from_u128(1).value;
    if x.is_nan() || x.is_negative() || x.is_zero() {
        F::ZERO
    } else if x > one {
        one
    } else {
        x
    }
}

fn double<F: Float + FloatConvert<Double>>(x: F) -> f64 {
    f64::from_bits(x.convert(&mut false).value.to_bits() as u64)
}

fn float<F>(name: &str, mods: &[&str], row: &[u64]) -> Want
where
    F: Float + FloatConvert<Double> + std::fmt::Debug,
    Double: FloatConvert<F>,
{
    let bits = F::BITS as u32;
    let has = |m: &str| mods.contains(&m);
    let f = |k: usize| {
        let x = F::from_bits(u128::from(row.get(k).copied().unwrap_or(0)) & ((1 << bits) - 1));
        if has("ftz") { flush(x) } else { x }
    };
    let (a, b, c) = (f(0), f(1), f(2));
    let round = [("rz", Round::TowardZero), ("rm", Round::TowardNegative), ("rp", Round::TowardPositive)];
    let round = round.iter().find(|r| has(r.0)).map_or(Round::NearestTiesToEven, |r| r.1);
    let approximate = |x: f64| {
        if x.is_nan() {
            return Want::Nan(bits);
        }
        if bits == 16 {
            // The nearest value of the format, or its neighbour when the double was rounded before.
            let near: F = Double::from_bits(x.to_bits().into()).convert(&mut false).value;
            let near = if has("ftz") { flush(near) } else { near };
            return Want::Bits(near.to_bits() as u64);
        }
        if has("ftz") && bits == 32 && x.abs() < f64::from(f32::MIN_POSITIVE) {
            return Want::Near(if x.is_sign_negative() { -0.0 } else { 0.0 }, 32, 0);
        }
        Want::Near(x, bits, if bits == 64 { 4 } else { 1 })
    };
    let magnitude = |x: F| if x.is_negative() { -x } else { x };
    // Operands that are numbers in order, -0 below +0.
    let order = |x: F, y: F, max: bool| {
        let less = x < y || (x == y && x.is_negative());
        if less != max { x } else { y }
    };
    let result = match name {
        "mov" => return Want::Bits(F::from_bits(row[0].into()).to_bits() as u64),
        "add" => a.add_r(b, round).value,
        "sub" => a.sub_r(b, round).value,
        "mul" => a.mul_r(b, round).value,
        "fma" | "mad" => a.mul_add_r(b, c, round).value,
        "div" => a.div_r(b, round).value,
        "rcp" if bits == 64 && has("approx") => {
            // On the upper words only, subnormals flushed.
            let x = f64::from_bits(row[0] & !0xffff_ffff);
            let x = if x.is_subnormal() { 0f64.copysign(x) } else { x };
            let r = 1.0 / x;
            let r = if r.is_subnormal() { 0f64.copysign(r) } else { r };
            return if r.is_nan() { Want::Nan(64) } else { Want::Bits(r.to_bits() & !0xffff_ffff) };
        }
        "rcp" => F::from_u128(1).value.div_r(a, round).value,
        "sqrt" => return root(a, round, bits),
        "rsqrt" => return approximate(1.0 / double(a).sqrt()),
        "sin" => return approximate(double(a).sin()),
        "cos" => return approximate(double(a).cos()),
        "lg2" => return approximate(double(a).log2()),
        "ex2" => return approximate(double(a).exp2()),
        "tanh" => return approximate(double(a).tanh()),
        "abs" => return Want::Bits(a.to_bits() as u64 & ((1 << (bits - 1)) - 1)),
        "neg" => return Want::Bits(a.to_bits() as u64 ^ 1 << (bits - 1)),
        "copysign" => {
            let sign = 1u64 << (bits - 1);
            return Want::Bits(row[0] & sign | row[1] & (sign - 1));
        }
        "min" | "max" => {
            let max = name == "max";
            let xorsign = has("xorsign");
            let (x, y) = if xorsign { (magnitude(a), magnitude(b)) } else { (a, b) };
            let r = match (x.is_nan(), y.is_nan()) {
                (true, true) => return Want::Nan(bits),
                (true, _) | (_, true) if has("NaN") => return Want::Nan(bits),
                (true, _) => y,
                (_, true) => x,
                _ => order(x, y, max),
            };
            if xorsign && a.is_negative() != b.is_negative() { -magnitude(r) } else { r }
        }
        _ => panic!("no statement of {name}.{}", mods.join(".")),
    };
    let result = if has("ftz") && !has("approx") || has("ftz") && bits == 32 { flush(result) } else { result };
    let result = if has("sat") { saturated(result) } else { result };
    let result = if has("relu") && result.is_negative() && !result.is_nan() { F::ZERO } else { result };
    if result.is_nan() { Want::Nan(bits) } else { Want::Bits(result.to_bits() as u64) }
}

/// Square root: the candidate next to the double's root whose exact square lies as the rounding says.
fn root<F>(x: F, round: Round, bits: u32) -> Want
where
    F: Float + FloatConvert<Double>,
    Double: FloatConvert<F>,
{
    if x.is_nan() || (x.is_negative() && !x.is_zero()) {
        return Want::Nan(bits);
    }
    if x.is_zero() || x.is_infinite() {
        return Want::Bits(x.to_bits() as u64);
    }
    // Squares of 53 bits fit the 113 bits of a quad.
    let quad =
        |v: f64| -> Quad { FloatConvert::<Quad>::convert(Double::from_bits(v.to_bits().into()), &mut false).value };
    let near: F = Double::from_bits(double(x).sqrt().to_bits().into()).convert(&mut false).value;
    let step = |d: i128| F::from_bits((near.to_bits() as i128 + d) as u128);
    let square = |r: F| quad(double(r)) * quad(double(r));
    let target = quad(double(x));
    let below = (-2..=2).map(step).filter(|r| square(*r).value <= target).last().unwrap_or(near);
    let above = F::from_bits(below.to_bits() + u128::from(square(below).value < target));
    let r = match round {
        Round::TowardPositive => above,
        Round::NearestTiesToEven => {
            // The middle of both against the root, by squares.
            let middle = (quad(double(below)) + quad(double(above))).value;
            let square = (middle * middle).value;
            let four = (target * Quad::from_u128(4).value).value;
            if square < four { above } else { below }
        }
        _ => below,
    };
    Want::Bits(r.to_bits() as u64)
}
