//! Single and double precision arithmetic.
//!
//! The `.approx` functions return the correctly rounded result; hardware differs from it by a few units in the last
//! place, so results compare with tolerances only.

use crate::exec::regs::lane_table;
use crate::numeric::{self as n, Round, ftz};

#[inline(always)]
fn min_f32(a: f32, b: f32) -> f32 {
    let r = if a < b || (a == b && a.is_sign_negative()) { a } else { b };
    if a.is_nan() {
        if b.is_nan() { f32::from_bits(0x7fff_ffff) } else { b }
    } else if b.is_nan() {
        a
    } else {
        r
    }
}

#[inline(always)]
fn max_f32(a: f32, b: f32) -> f32 {
    let r = if a > b || (a == b && b.is_sign_negative()) { a } else { b };
    if a.is_nan() {
        if b.is_nan() { f32::from_bits(0x7fff_ffff) } else { b }
    } else if b.is_nan() {
        a
    } else {
        r
    }
}

#[inline(always)]
fn nan_f32(a: f32, b: f32, r: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::from_bits(0x7fff_ffff) } else { r }
}

#[inline(always)]
fn min_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}

#[inline(always)]
fn max_f64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a > b || (a == b && b.is_sign_negative()) {
        a
    } else {
        b
    }
}

/// Clamps to [0, 1]; NaN becomes zero.
#[inline(always)]
pub(super) fn sat(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

#[inline(always)]
fn ex2(x: f32) -> f32 {
    n::exp2_f64(f64::from(x)) as f32
}

#[inline(always)]
fn rsqrt(x: f32) -> f32 {
    (1.0 / f64::from(x).sqrt()) as f32
}

fn xor_sign(a: f32, b: f32, r: f32) -> f32 {
    f32::from_bits(r.to_bits() & 0x7fff_ffff | (a.to_bits() ^ b.to_bits()) & 0x8000_0000)
}

/// The reciprocal on the upper 32 bits of a double, as the hardware's seed for division.
fn rcp_high(x: f64) -> f64 {
    let t = |v: f64| f64::from_bits(v.to_bits() & !0xffff_ffff);
    let x = t(if x.is_subnormal() { 0f64.copysign(x) } else { x });
    let r = 1.0 / x;
    t(if r.is_subnormal() { 0f64.copysign(r) } else { r })
}

/// Two singles in one 64-bit register.
#[inline(always)]
fn two(a: u64, b: u64, c: u64, f: impl Fn(f32, f32, f32) -> f32) -> u64 {
    let part = |k: u32| {
        let at = |v: u64| f32::from_bits((v >> k) as u32);
        u64::from(f(at(a), at(b), at(c)).to_bits()) << k
    };
    part(0) | part(32)
}

lane_table! {
/// Floating-point lane functions.
fn lookup, OPCODES {
    "add.f32" | "add.rn.f32" => (a: f32, b: f32) -> f32 { a + b };
    "add.ftz.f32" | "add.rn.ftz.f32" => (a: f32, b: f32) -> f32 { ftz(ftz(a) + ftz(b)) };
    "add.sat.f32" | "add.rn.sat.f32" => (a: f32, b: f32) -> f32 { sat(a + b) };
    "add.ftz.sat.f32" | "add.rn.ftz.sat.f32" => (a: f32, b: f32) -> f32 { sat(ftz(ftz(a) + ftz(b))) };
    "add.rz.f32" => (a: f32, b: f32) -> f32 { n::add_f32(a, b, Round::Zero) };
    "add.rm.f32" => (a: f32, b: f32) -> f32 { n::add_f32(a, b, Round::Down) };
    "add.rp.f32" => (a: f32, b: f32) -> f32 { n::add_f32(a, b, Round::Up) };
    "add.rz.ftz.f32" => (a: f32, b: f32) -> f32 { ftz(n::add_f32(ftz(a), ftz(b), Round::Zero)) };
    "add.rm.ftz.f32" => (a: f32, b: f32) -> f32 { ftz(n::add_f32(ftz(a), ftz(b), Round::Down)) };
    "add.rp.ftz.f32" => (a: f32, b: f32) -> f32 { ftz(n::add_f32(ftz(a), ftz(b), Round::Up)) };
    "sub.f32" | "sub.rn.f32" => (a: f32, b: f32) -> f32 { a - b };
    "sub.ftz.f32" | "sub.rn.ftz.f32" => (a: f32, b: f32) -> f32 { ftz(ftz(a) - ftz(b)) };
    "sub.sat.f32" | "sub.rn.sat.f32" => (a: f32, b: f32) -> f32 { sat(a - b) };
    "sub.rz.f32" => (a: f32, b: f32) -> f32 { n::add_f32(a, -b, Round::Zero) };
    "sub.rm.f32" => (a: f32, b: f32) -> f32 { n::add_f32(a, -b, Round::Down) };
    "sub.rp.f32" => (a: f32, b: f32) -> f32 { n::add_f32(a, -b, Round::Up) };
    "mul.f32" | "mul.rn.f32" => (a: f32, b: f32) -> f32 { a * b };
    "mul.ftz.f32" | "mul.rn.ftz.f32" => (a: f32, b: f32) -> f32 { ftz(ftz(a) * ftz(b)) };
    "mul.sat.f32" | "mul.rn.sat.f32" => (a: f32, b: f32) -> f32 { sat(a * b) };
    "mul.ftz.sat.f32" | "mul.rn.ftz.sat.f32" => (a: f32, b: f32) -> f32 { sat(ftz(ftz(a) * ftz(b))) };
    "mul.rz.f32" => (a: f32, b: f32) -> f32 { n::mul_f32(a, b, Round::Zero) };
    "mul.rm.f32" => (a: f32, b: f32) -> f32 { n::mul_f32(a, b, Round::Down) };
    "mul.rp.f32" => (a: f32, b: f32) -> f32 { n::mul_f32(a, b, Round::Up) };
    "fma.rn.f32" | "mad.rn.f32" => (a: f32, b: f32, c: f32) -> f32 { a.mul_add(b, c) };
    "fma.rn.ftz.f32" | "mad.rn.ftz.f32" => (a: f32, b: f32, c: f32) -> f32 { ftz(ftz(a).mul_add(ftz(b), ftz(c))) };
    "fma.rn.sat.f32" => (a: f32, b: f32, c: f32) -> f32 { sat(a.mul_add(b, c)) };
    "fma.rn.ftz.sat.f32" => (a: f32, b: f32, c: f32) -> f32 { sat(ftz(ftz(a).mul_add(ftz(b), ftz(c)))) };
    "fma.rz.f32" => (a: f32, b: f32, c: f32) -> f32 { n::fma_f32(a, b, c, Round::Zero) };
    "fma.rm.f32" => (a: f32, b: f32, c: f32) -> f32 { n::fma_f32(a, b, c, Round::Down) };
    "fma.rp.f32" => (a: f32, b: f32, c: f32) -> f32 { n::fma_f32(a, b, c, Round::Up) };
    "fma.rz.ftz.f32" => (a: f32, b: f32, c: f32) -> f32 { ftz(n::fma_f32(ftz(a), ftz(b), ftz(c), Round::Zero)) };
    "fma.rm.ftz.f32" => (a: f32, b: f32, c: f32) -> f32 { ftz(n::fma_f32(ftz(a), ftz(b), ftz(c), Round::Down)) };
    "fma.rp.ftz.f32" => (a: f32, b: f32, c: f32) -> f32 { ftz(n::fma_f32(ftz(a), ftz(b), ftz(c), Round::Up)) };
    "div.rn.f32" | "div.approx.f32" | "div.full.f32" => (a: f32, b: f32) -> f32 { a / b };
    "div.rn.ftz.f32" | "div.approx.ftz.f32" | "div.full.ftz.f32" => (a: f32, b: f32) -> f32 { ftz(ftz(a) / ftz(b)) };
    "div.rz.f32" => (a: f32, b: f32) -> f32 { n::div_f32(a, b, Round::Zero) };
    "div.rm.f32" => (a: f32, b: f32) -> f32 { n::div_f32(a, b, Round::Down) };
    "div.rp.f32" => (a: f32, b: f32) -> f32 { n::div_f32(a, b, Round::Up) };
    "rcp.rn.f32" | "rcp.approx.f32" => (a: f32) -> f32 { 1.0 / a };
    "rcp.rn.ftz.f32" | "rcp.approx.ftz.f32" => (a: f32) -> f32 { ftz(1.0 / ftz(a)) };
    "rcp.rz.f32" => (a: f32) -> f32 { n::div_f32(1.0, a, Round::Zero) };
    "rcp.rm.f32" => (a: f32) -> f32 { n::div_f32(1.0, a, Round::Down) };
    "rcp.rp.f32" => (a: f32) -> f32 { n::div_f32(1.0, a, Round::Up) };
    "sqrt.rn.f32" | "sqrt.approx.f32" => (a: f32) -> f32 { a.sqrt() };
    "sqrt.rn.ftz.f32" | "sqrt.approx.ftz.f32" => (a: f32) -> f32 { ftz(a).sqrt() };
    "sqrt.rz.f32" => (a: f32) -> f32 { n::sqrt_f32(a, Round::Zero) };
    "sqrt.rm.f32" => (a: f32) -> f32 { n::sqrt_f32(a, Round::Down) };
    "sqrt.rp.f32" => (a: f32) -> f32 { n::sqrt_f32(a, Round::Up) };
    "rsqrt.approx.f32" => (a: f32) -> f32 { rsqrt(a) };
    "rsqrt.approx.ftz.f32" => (a: f32) -> f32 { rsqrt(ftz(a)) };
    "sin.approx.f32" => (a: f32) -> f32 { f64::from(a).sin() as f32 };
    "sin.approx.ftz.f32" => (a: f32) -> f32 { ftz(f64::from(ftz(a)).sin() as f32) };
    "cos.approx.f32" => (a: f32) -> f32 { f64::from(a).cos() as f32 };
    "cos.approx.ftz.f32" => (a: f32) -> f32 { f64::from(ftz(a)).cos() as f32 };
    "lg2.approx.f32" => (a: f32) -> f32 { f64::from(a).log2() as f32 };
    "lg2.approx.ftz.f32" => (a: f32) -> f32 { f64::from(ftz(a)).log2() as f32 };
    "ex2.approx.f32" => (a: f32) -> f32 { ex2(a) };
    "ex2.approx.ftz.f32" => (a: f32) -> f32 { ftz(ex2(ftz(a))) };
    "tanh.approx.f32" => (a: f32) -> f32 { f64::from(a).tanh() as f32 };
    "min.f32" => (a: f32, b: f32) -> f32 { min_f32(a, b) };
    "min.ftz.f32" => (a: f32, b: f32) -> f32 { min_f32(ftz(a), ftz(b)) };
    "min.NaN.f32" => (a: f32, b: f32) -> f32 { nan_f32(a, b, min_f32(a, b)) };
    "min.ftz.NaN.f32" => (a: f32, b: f32) -> f32 { nan_f32(a, b, min_f32(ftz(a), ftz(b))) };
    "min.xorsign.abs.f32" => (a: f32, b: f32) -> f32 { xor_sign(a, b, min_f32(a.abs(), b.abs())) };
    "max.f32" => (a: f32, b: f32) -> f32 { max_f32(a, b) };
    "max.ftz.f32" => (a: f32, b: f32) -> f32 { max_f32(ftz(a), ftz(b)) };
    "max.NaN.f32" => (a: f32, b: f32) -> f32 { nan_f32(a, b, max_f32(a, b)) };
    "max.ftz.NaN.f32" => (a: f32, b: f32) -> f32 { nan_f32(a, b, max_f32(ftz(a), ftz(b))) };
    "max.xorsign.abs.f32" => (a: f32, b: f32) -> f32 { xor_sign(a, b, max_f32(a.abs(), b.abs())) };
    "abs.f32" => (a: f32) -> f32 { a.abs() };
    "abs.ftz.f32" => (a: f32) -> f32 { ftz(a).abs() };
    "neg.f32" => (a: f32) -> f32 { -a };
    "neg.ftz.f32" => (a: f32) -> f32 { -ftz(a) };
    "copysign.f32" => (a: f32, b: f32) -> f32 { b.copysign(a) };
    "copysign.f64" => (a: f64, b: f64) -> f64 { b.copysign(a) };
    "add.f32x2" | "add.rn.f32x2" => (a: u64, b: u64) -> u64 { two(a, b, 0, |x, y, _| x + y) };
    "add.ftz.f32x2" | "add.rn.ftz.f32x2" => (a: u64, b: u64) -> u64 { two(a, b, 0, |x, y, _| ftz(ftz(x) + ftz(y))) };
    "sub.f32x2" | "sub.rn.f32x2" => (a: u64, b: u64) -> u64 { two(a, b, 0, |x, y, _| x - y) };
    "sub.ftz.f32x2" | "sub.rn.ftz.f32x2" => (a: u64, b: u64) -> u64 { two(a, b, 0, |x, y, _| ftz(ftz(x) - ftz(y))) };
    "mul.f32x2" | "mul.rn.f32x2" => (a: u64, b: u64) -> u64 { two(a, b, 0, |x, y, _| x * y) };
    "mul.ftz.f32x2" | "mul.rn.ftz.f32x2" => (a: u64, b: u64) -> u64 { two(a, b, 0, |x, y, _| ftz(ftz(x) * ftz(y))) };
    "fma.rn.f32x2" => (a: u64, b: u64, c: u64) -> u64 { two(a, b, c, f32::mul_add) };
    "fma.rn.ftz.f32x2" => (a: u64, b: u64, c: u64) -> u64 {
        two(a, b, c, |x, y, z| ftz(ftz(x).mul_add(ftz(y), ftz(z))))
    };
    "add.f64" | "add.rn.f64" => (a: f64, b: f64) -> f64 { a + b };
    "add.rz.f64" => (a: f64, b: f64) -> f64 { n::add_f64(a, b, Round::Zero) };
    "add.rm.f64" => (a: f64, b: f64) -> f64 { n::add_f64(a, b, Round::Down) };
    "add.rp.f64" => (a: f64, b: f64) -> f64 { n::add_f64(a, b, Round::Up) };
    "sub.f64" | "sub.rn.f64" => (a: f64, b: f64) -> f64 { a - b };
    "sub.rz.f64" => (a: f64, b: f64) -> f64 { n::add_f64(a, -b, Round::Zero) };
    "sub.rm.f64" => (a: f64, b: f64) -> f64 { n::add_f64(a, -b, Round::Down) };
    "sub.rp.f64" => (a: f64, b: f64) -> f64 { n::add_f64(a, -b, Round::Up) };
    "mul.f64" | "mul.rn.f64" => (a: f64, b: f64) -> f64 { a * b };
    "mul.rz.f64" => (a: f64, b: f64) -> f64 { n::mul_f64(a, b, Round::Zero) };
    "mul.rm.f64" => (a: f64, b: f64) -> f64 { n::mul_f64(a, b, Round::Down) };
    "mul.rp.f64" => (a: f64, b: f64) -> f64 { n::mul_f64(a, b, Round::Up) };
    "fma.rn.f64" | "mad.rn.f64" => (a: f64, b: f64, c: f64) -> f64 { a.mul_add(b, c) };
    "fma.rz.f64" => (a: f64, b: f64, c: f64) -> f64 { n::fma_f64(a, b, c, Round::Zero) };
    "fma.rm.f64" => (a: f64, b: f64, c: f64) -> f64 { n::fma_f64(a, b, c, Round::Down) };
    "fma.rp.f64" => (a: f64, b: f64, c: f64) -> f64 { n::fma_f64(a, b, c, Round::Up) };
    "div.rn.f64" => (a: f64, b: f64) -> f64 { a / b };
    "div.rz.f64" => (a: f64, b: f64) -> f64 { n::div_f64(a, b, Round::Zero) };
    "div.rm.f64" => (a: f64, b: f64) -> f64 { n::div_f64(a, b, Round::Down) };
    "div.rp.f64" => (a: f64, b: f64) -> f64 { n::div_f64(a, b, Round::Up) };
    "rcp.rn.f64" => (a: f64) -> f64 { 1.0 / a };
    "rcp.rz.f64" => (a: f64) -> f64 { n::div_f64(1.0, a, Round::Zero) };
    "rcp.rm.f64" => (a: f64) -> f64 { n::div_f64(1.0, a, Round::Down) };
    "rcp.rp.f64" => (a: f64) -> f64 { n::div_f64(1.0, a, Round::Up) };
    "rcp.approx.ftz.f64" => (a: f64) -> f64 { rcp_high(a) };
    "rsqrt.approx.f64" => (a: f64) -> f64 { 1.0 / a.sqrt() };
    "rsqrt.approx.ftz.f64" => (a: f64) -> f64 {
        let x = if a.is_subnormal() { 0f64.copysign(a) } else { a };
        1.0 / x.sqrt()
    };
    "sqrt.rn.f64" => (a: f64) -> f64 { a.sqrt() };
    "sqrt.rz.f64" => (a: f64) -> f64 { n::sqrt_f64(a, Round::Zero) };
    "sqrt.rm.f64" => (a: f64) -> f64 { n::sqrt_f64(a, Round::Down) };
    "sqrt.rp.f64" => (a: f64) -> f64 { n::sqrt_f64(a, Round::Up) };
    "min.f64" => (a: f64, b: f64) -> f64 { min_f64(a, b) };
    "max.f64" => (a: f64, b: f64) -> f64 { max_f64(a, b) };
    "abs.f64" => (a: f64) -> f64 { a.abs() };
    "neg.f64" => (a: f64) -> f64 { -a };
}}
