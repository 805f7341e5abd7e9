//! Rounding and number formats: the exact arithmetic under `cvt`, directed rounding and narrow floats.

/// Rounding of a result that does not fit its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// `.rn`: nearest, ties to even.
    Nearest,
    /// `.rna`: nearest, ties away from zero.
    Away,
    /// `.rz`: towards zero.
    Zero,
    /// `.rm`: towards minus infinity.
    Down,
    /// `.rp`: towards plus infinity.
    Up,
}

/// A binary floating-point format of at most 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Exponent of the smallest normal number.
    pub emin: i32,
    /// Fraction bits.
    pub fraction: u32,
    /// Bits of the largest finite magnitude.
    pub max: u32,
    /// Bits of infinity, if the format has one.
    pub inf: Option<u32>,
    /// Bits of the canonical NaN, if the format has one.
    pub nan: Option<u32>,
    /// Bit of the sign.
    pub sign: u32,
}

/// IEEE half.
pub const F16: Format =
    Format { emin: -14, fraction: 10, max: 0x7bff, inf: Some(0x7c00), nan: Some(0x7fff), sign: 0x8000 };
/// bfloat16.
pub const BF16: Format =
    Format { emin: -126, fraction: 7, max: 0x7f7f, inf: Some(0x7f80), nan: Some(0x7fff), sign: 0x8000 };
/// IEEE single.
pub const F32: Format = Format {
    emin: -126,
    fraction: 23,
    max: 0x7f7f_ffff,
    inf: Some(0x7f80_0000),
    nan: Some(0x7fff_ffff),
    sign: 0x8000_0000,
};
/// FP8 with 4 exponent bits, no infinity.
pub const E4M3: Format = Format { emin: -6, fraction: 3, max: 0x7e, inf: None, nan: Some(0x7f), sign: 0x80 };
/// FP8 with 5 exponent bits.
pub const E5M2: Format = Format { emin: -14, fraction: 2, max: 0x7b, inf: Some(0x7c), nan: Some(0x7f), sign: 0x80 };

/// Rounds a finite or special `x` into `f`; with `saturate`, overflow and infinities give the largest finite value.
pub fn round_to(x: f64, f: &Format, mode: Round, saturate: bool) -> u32 {
    let bits = x.to_bits();
    let negative = bits >> 63 != 0;
    let sign = if negative { f.sign } else { 0 };
    if x.is_nan() {
        return f.nan.unwrap_or(f.max);
    }
    if x.is_infinite() {
        return sign | if saturate { f.max } else { f.inf.or(f.nan).unwrap_or(f.max) };
    }
    let field = (bits >> 52 & 0x7ff) as i32;
    let (mantissa, exponent) = match field {
        0 => (bits & ((1 << 52) - 1), -1022),
        e => (bits & ((1 << 52) - 1) | 1 << 52, e - 1023),
    };
    if mantissa == 0 {
        return sign;
    }
    let e = exponent.max(f.emin);
    // Bits of the 53-bit significand below the last place of the target.
    let shift = (52 - f.fraction as i32 + (e - exponent)) as u32;
    let (mut q, rest, half) =
        if shift > 63 { (0, 1, 2) } else { (mantissa >> shift, mantissa & ((1 << shift) - 1), 1u64 << (shift - 1)) };
    let up = match mode {
        Round::Nearest => rest > half || (rest == half && q & 1 == 1),
        Round::Away => rest >= half,
        Round::Zero => false,
        Round::Down => negative && rest != 0,
        Round::Up => !negative && rest != 0,
    };
    q += u64::from(up);
    let out = (((e - f.emin) as u64) << f.fraction) + q;
    if out <= u64::from(f.max) {
        return sign | out as u32;
    }
    let to_max = match mode {
        Round::Nearest | Round::Away => false,
        Round::Zero => true,
        Round::Down => !negative,
        Round::Up => negative,
    };
    sign | if saturate || to_max { f.max } else { f.inf.or(f.nan).unwrap_or(f.max) }
}

/// Exact value of bits in a narrow format.
pub fn value_of(bits: u32, f: &Format) -> f64 {
    let magnitude = bits & (f.sign - 1);
    let v = if Some(magnitude) == f.inf {
        f64::INFINITY
    } else if magnitude > f.max {
        f64::NAN
    } else {
        let field = (magnitude >> f.fraction) as i32;
        let fraction = f64::from(magnitude & ((1 << f.fraction) - 1));
        let unit = (f.emin - f.fraction as i32) as f64;
        if field == 0 {
            fraction * unit.exp2()
        } else {
            (fraction + f64::from(1u32 << f.fraction)) * (unit + f64::from(field - 1)).exp2()
        }
    };
    if bits & f.sign != 0 { -v } else { v }
}

/// bfloat16 bits to f32, exact.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// f32 to bfloat16, nearest even; NaN becomes 0x7fff.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let b = x.to_bits();
    let r = (b.wrapping_add(0x7fff + (b >> 16 & 1)) >> 16) as u16;
    if x.is_nan() { 0x7fff } else { r }
}

/// Half bits to f32, exact; free of branches so that loops over lanes vectorise.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // Reinterpreted with f32's bias the value is 2^-112 of what it should be; scaling also normalises subnormals.
    let scaled = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
    let special = magnitude | 0x7f80_0000;
    let abs = if magnitude >= 0x0f80_0000 { special } else { scaled.to_bits() };
    f32::from_bits(abs | u32::from(bits & 0x8000) << 16)
}

/// f32 to half, nearest even; NaN becomes 0x7fff.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    let sign = (x.to_bits() >> 16 & 0x8000) as u16;
    let a = x.to_bits() & 0x7fff_ffff;
    // Subnormal results: adding 0.5 aligns the last place of a half with that of the float.
    let tiny = (f32::from_bits(a) + 0.5).to_bits().wrapping_sub(0x3f00_0000) as u16;
    let normal = (a.wrapping_add(0xc800_0fff).wrapping_add(a >> 13 & 1) >> 13) as u16;
    let r = if a >= 0x477f_f000 {
        0x7c00
    } else if a < 0x3880_0000 {
        tiny
    } else {
        normal
    };
    if a > 0x7f80_0000 { 0x7fff } else { sign | r }
}

/// Replaces a subnormal by zero of the same sign.
#[inline(always)]
pub fn ftz(x: f32) -> f32 {
    if x.to_bits() & 0x7f80_0000 == 0 { f32::from_bits(x.to_bits() & 0x8000_0000) } else { x }
}

/// Sum and exact error of two doubles.
#[inline(always)]
pub fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// `a * b + c` in f64 rounded to odd: rounding it again to at most 51 bits gives the correctly rounded result.
/// Exact product required: both factors have at most 26 significant bits.
#[inline(always)]
pub fn fma_odd(a: f64, b: f64, c: f64) -> f64 {
    let (s, e) = two_sum(a * b, c);
    sticky(s, e)
}

/// `s` with its last bit set when a non-zero error `e` was lost.
#[inline(always)]
fn sticky(s: f64, e: f64) -> f64 {
    if e == 0.0 || !s.is_finite() || s.to_bits() & 1 == 1 {
        return s;
    }
    // Truncate towards the exact value's lower magnitude neighbour, which then has an odd last bit.
    if (e > 0.0) == (s > 0.0) { f64::from_bits(s.to_bits() | 1) } else { f64::from_bits(s.to_bits() - 1) }
}

/// Sign of an exact zero sum: minus only when both addends are negative zero, or when rounding down.
fn zero_sum(a: f64, b: f64, mode: Round) -> f32 {
    let both = a == 0.0 && b == 0.0 && a.is_sign_negative() == b.is_sign_negative();
    let negative = if both { a.is_sign_negative() } else { mode == Round::Down };
    if negative { -0.0 } else { 0.0 }
}

/// `a * b + c` of single-precision values with any rounding.
pub fn fma_f32(a: f32, b: f32, c: f32, mode: Round) -> f32 {
    let (p, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let s = fma_odd(f64::from(a), f64::from(b), c);
    if s == 0.0 {
        return zero_sum(p, c, mode);
    }
    f32::from_bits(round_to(s, &F32, mode, false))
}

/// `a + b` of single-precision values with any rounding.
pub fn add_f32(a: f32, b: f32, mode: Round) -> f32 {
    fma_f32(a, 1.0, b, mode)
}

/// `a * b` of single-precision values with any rounding.
pub fn mul_f32(a: f32, b: f32, mode: Round) -> f32 {
    f32::from_bits(round_to(f64::from(a) * f64::from(b), &F32, mode, false))
}

/// `a / b` of single-precision values with any rounding.
pub fn div_f32(a: f32, b: f32, mode: Round) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    let q = x / y;
    if !q.is_finite() || q == 0.0 {
        return q as f32;
    }
    // The remainder of a double quotient of singles is exact.
    let r = q.mul_add(-y, x);
    f32::from_bits(round_to(sticky(q, if y < 0.0 { -r } else { r }), &F32, mode, false))
}

/// Square root of a single-precision value with any rounding.
pub fn sqrt_f32(a: f32, mode: Round) -> f32 {
    let x = f64::from(a);
    let q = x.sqrt();
    if !q.is_finite() || q == 0.0 {
        return q as f32;
    }
    f32::from_bits(round_to(sticky(q, q.mul_add(-q, x)), &F32, mode, false))
}

/// Moves a nearest-rounded double to the neighbour that `mode` asks for, given the sign of the exact error.
fn direct(r: f64, error: f64, mode: Round) -> f64 {
    let up = match mode {
        Round::Nearest | Round::Away => return r,
        Round::Up => true,
        Round::Down => false,
        Round::Zero => r.is_sign_negative(),
    };
    match (up, error > 0.0, error < 0.0) {
        (true, true, _) => r.next_up(),
        (false, _, true) => r.next_down(),
        _ => r,
    }
}

/// An overflowed finite operation: nearest gives infinity, directed modes may stop at the largest finite value.
fn overflowed(r: f64, mode: Round) -> f64 {
    match (mode, r > 0.0) {
        (Round::Zero, _) | (Round::Down, true) | (Round::Up, false) => f64::MAX.copysign(r),
        _ => r,
    }
}

/// `a + b` in double precision with any rounding.
pub fn add_f64(a: f64, b: f64, mode: Round) -> f64 {
    let s = a + b;
    if s.is_infinite() && a.is_finite() && b.is_finite() {
        return overflowed(s, mode);
    }
    if !s.is_finite() || mode == Round::Nearest {
        return s;
    }
    if s == 0.0 {
        return f64::from(zero_sum(a, b, mode));
    }
    // Near the largest numbers the usual error-free sum overflows inside.
    direct(s, fma_error_sign(a, 1.0, b, s), mode)
}

/// `a * b + c` in double precision with any rounding.
pub fn fma_f64(a: f64, b: f64, c: f64, mode: Round) -> f64 {
    let r = a.mul_add(b, c);
    if mode == Round::Nearest || r.is_nan() || !a.is_finite() || !b.is_finite() || !c.is_finite() {
        return r;
    }
    if r.is_infinite() {
        return overflowed(r, mode);
    }
    if a == 0.0 || b == 0.0 {
        return add_f64(a * b, c, mode);
    }
    let error = fma_error_sign(a, b, c, r);
    if r == 0.0 && error == 0.0 {
        return f64::from(zero_sum(a.signum() * b.signum(), c, mode));
    }
    direct(r, error, mode)
}

/// `a * b` in double precision with any rounding.
pub fn mul_f64(a: f64, b: f64, mode: Round) -> f64 {
    let r = a * b;
    if mode == Round::Nearest || !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return r;
    }
    if r.is_infinite() {
        return overflowed(r, mode);
    }
    direct(r, fma_error_sign(a, b, 0.0, r), mode)
}

/// `a / b` in double precision with any rounding.
pub fn div_f64(a: f64, b: f64, mode: Round) -> f64 {
    let r = a / b;
    if mode == Round::Nearest || !a.is_finite() || !b.is_finite() || a == 0.0 || b == 0.0 {
        return r;
    }
    if r.is_infinite() {
        return overflowed(r, mode);
    }
    // The exact quotient minus r has the sign of (a - r * b) / b.
    let e = -fma_error_sign(r, b, 0.0, a);
    direct(r, if b < 0.0 { -e } else { e }, mode)
}

/// Square root in double precision with any rounding.
pub fn sqrt_f64(a: f64, mode: Round) -> f64 {
    let r = a.sqrt();
    if mode == Round::Nearest || !r.is_finite() || r == 0.0 {
        return r;
    }
    direct(r, -fma_error_sign(r, r, 0.0, a), mode)
}

/// A finite double as significand and exponent, sign in the significand.
fn split(x: f64) -> (i128, i32) {
    let bits = x.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let fraction = (bits & ((1 << 52) - 1)) as i128;
    let (m, e) = if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
    (if bits >> 63 != 0 { -m } else { m }, e)
}

/// Sign (as -1, 0 or 1) of the exact value `a * b + c - r`, all finite.
fn fma_error_sign(a: f64, b: f64, c: f64, r: f64) -> f64 {
    let ((ma, ea), (mb, eb)) = (split(a), split(b));
    let (mut terms, mut n) = ([(0i128, 0i32); 3], 0);
    for (m, e) in [(ma * mb, ea + eb), split(c), split(-r)] {
        if m != 0 {
            terms[n] = (m, e);
            n += 1;
        }
    }
    let terms = &mut terms[..n];
    if terms.is_empty() {
        return 0.0;
    }
    // Fixed-point sum over 64-bit limbs, low limb first, two's complement with ample head room.
    const LIMBS: usize = 72;
    let low = terms.iter().map(|t| t.1).min().unwrap_or(0);
    let mut acc = [0u64; LIMBS];
    for &mut (m, e) in terms {
        let shift = (e - low) as usize;
        let (limb, bit) = (shift / 64, shift % 64);
        let negative = m < 0;
        let mag = m.unsigned_abs();
        let parts =
            [(mag << bit) as u64, ((mag << bit) >> 64) as u64, if bit == 0 { 0 } else { (mag >> (128 - bit)) as u64 }];
        let mut carry = u64::from(negative);
        for (k, slot) in acc.iter_mut().enumerate().skip(limb) {
            let add = parts.get(k - limb).copied().unwrap_or(0);
            let add = if negative { !add } else { add };
            let (s1, c1) = slot.overflowing_add(add);
            let (s2, c2) = s1.overflowing_add(carry);
            *slot = s2;
            carry = u64::from(c1 | c2);
        }
    }
    if acc.iter().all(|&l| l == 0) {
        0.0
    } else if acc[LIMBS - 1] >> 63 != 0 {
        -1.0
    } else {
        1.0
    }
}

/// `2^x` with about 1e-15 relative error: enough to round to single precision. Free of calls, so loops vectorise.
#[inline(always)]
pub fn exp2_f64(x: f64) -> f64 {
    let clamped = x.clamp(-1080.0, 1080.0);
    let n = clamped.round_ties_even();
    let t = (clamped - n) * std::f64::consts::LN_2;
    // Taylor series of exp on [-0.347, 0.347]; the first omitted term is below 2^-52.
    let mut p = 1.0 / 6_227_020_800.0;
    for c in [
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        p = p * t + c;
    }
    // Two factors keep the scale representable at both ends.
    let n = n as i64;
    let (h, l) = (n / 2, n - n / 2);
    let scale = |k: i64| f64::from_bits(((k + 1023) as u64) << 52);
    let r = p * scale(h) * scale(l);
    if x.is_nan() { x } else { r }
}
