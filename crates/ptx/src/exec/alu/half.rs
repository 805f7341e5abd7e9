//! Half and bfloat16 arithmetic, scalar and packed.
//!
//! Sums and products of two halves are exact in f64, so rounding once from there is exact; fused multiply-adds go
//! through a double rounded to odd.

use crate::exec::regs::{B, H, lane_table};
use crate::numeric::{self as n, BF16, F16, Format, Round, round_to};

trait Narrow: Copy {
    const FORMAT: Format;
    fn get(self) -> f64;
    fn from_bits(bits: u16) -> Self;
    fn bits(self) -> u16;
}

impl Narrow for H {
    const FORMAT: Format = F16;
    fn get(self) -> f64 {
        f64::from(n::f16_to_f32(self.0))
    }
    fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
    fn bits(self) -> u16 {
        self.0
    }
}

impl Narrow for B {
    const FORMAT: Format = BF16;
    fn get(self) -> f64 {
        f64::from(n::bf16_to_f32(self.0))
    }
    fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
    fn bits(self) -> u16 {
        self.0
    }
}

fn put<T: Narrow>(x: f64) -> T {
    T::from_bits(round_to(x, &T::FORMAT, Round::Nearest, false) as u16)
}

fn fma<T: Narrow>(a: T, b: T, c: T) -> T {
    put(n::fma_odd(a.get(), b.get(), c.get()))
}

fn add<T: Narrow>(a: T, b: T) -> T {
    put(n::fma_odd(a.get(), 1.0, b.get()))
}

fn sub<T: Narrow>(a: T, b: T) -> T {
    put(n::fma_odd(b.get(), -1.0, a.get()))
}

fn mul<T: Narrow>(a: T, b: T) -> T {
    put(a.get() * b.get())
}

fn relu<T: Narrow>(x: T) -> T {
    if x.get().is_nan() { x } else { put(x.get().max(0.0)) }
}

fn clamp<T: Narrow>(x: T) -> T {
    put(if x.get() > 0.0 { x.get().min(1.0) } else { 0.0 })
}

fn neg<T: Narrow>(x: T) -> T {
    T::from_bits(x.bits() ^ 0x8000)
}

fn abs<T: Narrow>(x: T) -> T {
    T::from_bits(x.bits() & 0x7fff)
}

/// Minimum (or maximum) as PTX defines it: a number wins over NaN unless `nan` is asked for, -0 is below +0.
fn pick<T: Narrow>(a: T, b: T, max: bool, nan: bool) -> T {
    let (x, y) = (a.get(), b.get());
    if x.is_nan() || y.is_nan() {
        return if nan || (x.is_nan() && y.is_nan()) {
            T::from_bits(0x7fff)
        } else if x.is_nan() {
            b
        } else {
            a
        };
    }
    let less = x < y || (x == y && x.is_sign_negative());
    if less != max { a } else { b }
}

fn unary<T: Narrow>(x: T, f: impl Fn(f64) -> f64) -> T {
    put(f(x.get()))
}

/// Subnormals become zeros of their sign.
fn flush<T: Narrow>(x: T) -> T {
    let bits = x.bits();
    if bits >> T::FORMAT.fraction & ((1 << (15 - T::FORMAT.fraction)) - 1) == 0 {
        T::from_bits(bits & 0x8000)
    } else {
        x
    }
}

fn ex2_flushed<T: Narrow>(x: T) -> T {
    flush(unary(flush(x), n::exp2_f64))
}

fn two<T: Narrow>(a: u32, b: u32, f: impl Fn(T, T) -> T) -> u32 {
    let low = f(T::from_bits(a as u16), T::from_bits(b as u16));
    let high = f(T::from_bits((a >> 16) as u16), T::from_bits((b >> 16) as u16));
    u32::from(low.bits()) | u32::from(high.bits()) << 16
}

fn three<T: Narrow>(a: u32, b: u32, c: u32, f: impl Fn(T, T, T) -> T) -> u32 {
    let at = |v: u32, k: u32| T::from_bits((v >> k) as u16);
    let low = f(at(a, 0), at(b, 0), at(c, 0));
    let high = f(at(a, 16), at(b, 16), at(c, 16));
    u32::from(low.bits()) | u32::from(high.bits()) << 16
}

lane_table! {
/// Lane functions on 16-bit floats.
fn lookup, OPCODES {
    "add.f16" | "add.rn.f16" => (a: H, b: H) -> H { add(a, b) };
    "add.bf16" | "add.rn.bf16" => (a: B, b: B) -> B { add(a, b) };
    "add.f16x2" | "add.rn.f16x2" => (a: u32, b: u32) -> u32 { two::<H>(a, b, add) };
    "add.bf16x2" | "add.rn.bf16x2" => (a: u32, b: u32) -> u32 { two::<B>(a, b, add) };
    "sub.f16" | "sub.rn.f16" => (a: H, b: H) -> H { sub(a, b) };
    "sub.bf16" | "sub.rn.bf16" => (a: B, b: B) -> B { sub(a, b) };
    "sub.f16x2" | "sub.rn.f16x2" => (a: u32, b: u32) -> u32 { two::<H>(a, b, sub) };
    "sub.bf16x2" | "sub.rn.bf16x2" => (a: u32, b: u32) -> u32 { two::<B>(a, b, sub) };
    "mul.f16" | "mul.rn.f16" => (a: H, b: H) -> H { mul(a, b) };
    "mul.bf16" | "mul.rn.bf16" => (a: B, b: B) -> B { mul(a, b) };
    "mul.f16x2" | "mul.rn.f16x2" => (a: u32, b: u32) -> u32 { two::<H>(a, b, mul) };
    "mul.bf16x2" | "mul.rn.bf16x2" => (a: u32, b: u32) -> u32 { two::<B>(a, b, mul) };
    "fma.rn.f16" => (a: H, b: H, c: H) -> H { fma(a, b, c) };
    "fma.rn.bf16" => (a: B, b: B, c: B) -> B { fma(a, b, c) };
    "fma.rn.f16x2" => (a: u32, b: u32, c: u32) -> u32 { three::<H>(a, b, c, fma) };
    "fma.rn.bf16x2" => (a: u32, b: u32, c: u32) -> u32 { three::<B>(a, b, c, fma) };
    "fma.rn.relu.f16" => (a: H, b: H, c: H) -> H { relu(fma(a, b, c)) };
    "fma.rn.relu.bf16" => (a: B, b: B, c: B) -> B { relu(fma(a, b, c)) };
    "fma.rn.relu.f16x2" => (a: u32, b: u32, c: u32) -> u32 { three::<H>(a, b, c, |x, y, z| relu(fma(x, y, z))) };
    "fma.rn.relu.bf16x2" => (a: u32, b: u32, c: u32) -> u32 { three::<B>(a, b, c, |x, y, z| relu(fma(x, y, z))) };
    "fma.rn.sat.f16" => (a: H, b: H, c: H) -> H { clamp(fma(a, b, c)) };
    "neg.f16" => (a: H) -> H { neg(a) };
    "neg.bf16" => (a: B) -> B { neg(a) };
    "neg.f16x2" | "neg.bf16x2" => (a: u32) -> u32 { a ^ 0x8000_8000 };
    "abs.f16" => (a: H) -> H { abs(a) };
    "abs.bf16" => (a: B) -> B { abs(a) };
    "abs.f16x2" | "abs.bf16x2" => (a: u32) -> u32 { a & 0x7fff_7fff };
    "min.f16" => (a: H, b: H) -> H { pick(a, b, false, false) };
    "max.f16" => (a: H, b: H) -> H { pick(a, b, true, false) };
    "min.bf16" => (a: B, b: B) -> B { pick(a, b, false, false) };
    "max.bf16" => (a: B, b: B) -> B { pick(a, b, true, false) };
    "min.NaN.f16" => (a: H, b: H) -> H { pick(a, b, false, true) };
    "max.NaN.f16" => (a: H, b: H) -> H { pick(a, b, true, true) };
    "min.NaN.bf16" => (a: B, b: B) -> B { pick(a, b, false, true) };
    "max.NaN.bf16" => (a: B, b: B) -> B { pick(a, b, true, true) };
    "min.f16x2" => (a: u32, b: u32) -> u32 { two::<H>(a, b, |x, y| pick(x, y, false, false)) };
    "max.f16x2" => (a: u32, b: u32) -> u32 { two::<H>(a, b, |x, y| pick(x, y, true, false)) };
    "min.bf16x2" => (a: u32, b: u32) -> u32 { two::<B>(a, b, |x, y| pick(x, y, false, false)) };
    "max.bf16x2" => (a: u32, b: u32) -> u32 { two::<B>(a, b, |x, y| pick(x, y, true, false)) };
    "min.NaN.f16x2" => (a: u32, b: u32) -> u32 { two::<H>(a, b, |x, y| pick(x, y, false, true)) };
    "max.NaN.f16x2" => (a: u32, b: u32) -> u32 { two::<H>(a, b, |x, y| pick(x, y, true, true)) };
    "min.NaN.bf16x2" => (a: u32, b: u32) -> u32 { two::<B>(a, b, |x, y| pick(x, y, false, true)) };
    "max.NaN.bf16x2" => (a: u32, b: u32) -> u32 { two::<B>(a, b, |x, y| pick(x, y, true, true)) };
    "ex2.approx.f16" => (a: H) -> H { unary(a, n::exp2_f64) };
    "ex2.approx.ftz.bf16" => (a: B) -> B { ex2_flushed(a) };
    "ex2.approx.f16x2" => (a: u32) -> u32 { two::<H>(a, a, |x, _| unary(x, n::exp2_f64)) };
    "ex2.approx.ftz.bf16x2" => (a: u32) -> u32 { two::<B>(a, a, |x, _| ex2_flushed(x)) };
    "tanh.approx.f16" => (a: H) -> H { unary(a, f64::tanh) };
    "tanh.approx.bf16" => (a: B) -> B { unary(a, f64::tanh) };
    "tanh.approx.f16x2" => (a: u32) -> u32 { two::<H>(a, a, |x, _| unary(x, f64::tanh)) };
    "tanh.approx.bf16x2" => (a: u32) -> u32 { two::<B>(a, a, |x, _| unary(x, f64::tanh)) };
}}
