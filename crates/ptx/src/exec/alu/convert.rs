//! `cvt`: common forms as vector loops, every other combination lane by lane through exact values.

use super::convert_form::{Convert, Num};
use crate::exec::inst::Inst;
use crate::exec::regs::{AluFn, H, LANES, Regs, both, lane_table, pick, put32, put64};
use crate::numeric::{self as n, F32, Format, Round, f32_to_bf16, f32_to_f16, ftz, round_to, value_of};

lane_table! {
/// Conversions worth a loop of their own.
fn lookup, OPCODES {
    "cvt.f32.bf16" => (a: u32) -> u32 { a << 16 };
    "cvt.f32.f16" => (a: H) -> f32 { n::f16_to_f32(a.0) };
    "cvt.rn.bf16.f32" => (a: f32) -> u32 { u32::from(f32_to_bf16(a)) };
    "cvt.rn.f16.f32" => (a: f32) -> u32 { u32::from(f32_to_f16(a)) };
    "cvt.rn.bf16x2.f32" => (a: f32, b: f32) -> u32 { u32::from(f32_to_bf16(a)) << 16 | u32::from(f32_to_bf16(b)) };
    "cvt.rn.f16x2.f32" => (a: f32, b: f32) -> u32 { u32::from(f32_to_f16(a)) << 16 | u32::from(f32_to_f16(b)) };
    "cvt.f64.f32" => (a: f32) -> f64 { f64::from(a) };
    "cvt.rn.f32.f64" => (a: f64) -> f32 { a as f32 };
    "cvt.rn.f32.s32" => (a: i32) -> f32 { a as f32 };
    "cvt.rn.f32.u32" => (a: u32) -> f32 { a as f32 };
    "cvt.rn.f64.s32" | "cvt.f64.s32" => (a: i32) -> f64 { f64::from(a) };
    "cvt.rn.f64.u32" | "cvt.f64.u32" => (a: u32) -> f64 { f64::from(a) };
    "cvt.rn.f64.s64" => (a: i64) -> f64 { a as f64 };
    "cvt.rn.f64.u64" => (a: u64) -> f64 { a as f64 };
    "cvt.rn.f32.s64" => (a: i64) -> f32 { a as f32 };
    "cvt.rn.f32.u64" => (a: u64) -> f32 { a as f32 };
    "cvt.rzi.s32.f32" => (a: f32) -> i32 { a as i32 };
    "cvt.rzi.u32.f32" => (a: f32) -> u32 { a as u32 };
    "cvt.rni.s32.f32" => (a: f32) -> i32 { a.round_ties_even() as i32 };
    "cvt.rni.f32.f32" => (a: f32) -> f32 { a.round_ties_even() };
    "cvt.rmi.f32.f32" => (a: f32) -> f32 { a.floor() };
    "cvt.rpi.f32.f32" => (a: f32) -> f32 { a.ceil() };
    "cvt.rzi.f32.f32" => (a: f32) -> f32 { a.trunc() };
    "cvt.sat.f32.f32" => (a: f32) -> f32 { super::float::sat(a) };
    "cvt.ftz.f32.f32" => (a: f32) -> f32 { ftz(a) };
    "cvt.u32.u16" => (a: u16) -> u32 { u32::from(a) };
    "cvt.s32.s16" => (a: i16) -> i32 { i32::from(a) };
    "cvt.u16.u32" | "cvt.s16.s32" | "cvt.u16.s32" | "cvt.s16.u32" => (a: u32) -> u32 { a & 0xffff };
    "cvt.u64.u32" => (a: u32) -> u64 { u64::from(a) };
    "cvt.s64.s32" => (a: i32) -> i64 { i64::from(a) };
    "cvt.pack.sat.u16.s32" => (a: i32, b: i32) -> u32 { pack(a, b, 0, 0, 0xffff, 16) };
    "cvt.pack.sat.s16.s32" => (a: i32, b: i32) -> u32 { pack(a, b, 0, -0x8000, 0x7fff, 16) };
    "cvt.pack.sat.u8.s32.b32" => (a: i32, b: i32, c: u32) -> u32 { pack(a, b, c, 0, 0xff, 8) };
    "cvt.pack.sat.s8.s32.b32" => (a: i32, b: i32, c: u32) -> u32 { pack(a, b, c, -0x80, 0x7f, 8) };
    "cvt.u32.u64" | "cvt.s32.s64" | "cvt.s32.u64" | "cvt.u32.s64" => (a: u64) -> u32 { a as u32 };
}}

/// `cvt.pack`: `a` above `b`, both saturated, above them the low bits of `c`.
fn pack(a: i32, b: i32, c: u32, low: i32, high: i32, bits: u32) -> u32 {
    let part = |x: i32| x.clamp(low, high) as u32 & ((1 << bits) - 1);
    part(b) | part(a) << bits | if bits < 16 { c << (2 * bits) } else { 0 }
}

/// A value between conversion and store, exact.
#[derive(Clone, Copy)]
enum Value {
    Int(i128),
    Float(f64),
}

fn load(src: Num, raw: u64, flush: bool) -> Value {
    match src {
        Num::Int { bits, signed } => {
            let up = 64 - u32::from(bits);
            let v = if signed { i128::from((raw << up) as i64 >> up) } else { i128::from(raw << up >> up) };
            Value::Int(v)
        }
        Num::Narrow(f) => Value::Float(value_of(raw as u32 & 0xffff, &f)),
        Num::F32 | Num::Tf32 => {
            let x = f32::from_bits(raw as u32);
            Value::Float(f64::from(if flush { ftz(x) } else { x }))
        }
        Num::F64 => Value::Float(f64::from_bits(raw)),
        Num::Pair(..) => Value::Float(f64::NAN),
    }
}

fn integral(x: f64, mode: Round) -> f64 {
    match mode {
        Round::Nearest => x.round_ties_even(),
        Round::Away => x.round(),
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
    }
}

/// Clamped to [0, 1]; NaN becomes zero.
fn unit(x: f64) -> f64 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// An integer as a double rounded to odd, so that a second rounding to fewer bits is exact.
fn int_to_odd(v: i128) -> f64 {
    let near = v as f64;
    let back = near as i128;
    if back == v || near.to_bits() & 1 == 1 {
        near
    } else if back.abs() > v.abs() {
        f64::from_bits(near.to_bits() - 1)
    } else {
        f64::from_bits(near.to_bits() | 1)
    }
}

impl Convert {
    fn narrow(&self, x: f64, f: &Format) -> u32 {
        let x = if self.relu && x <= 0.0 { 0.0 } else { x };
        round_to(x, f, self.round, self.finite)
    }

    fn store(&self, value: Value) -> u64 {
        match (self.dst, value) {
            (Num::Int { bits, signed }, v) => {
                let v = match v {
                    Value::Int(v) => v,
                    // NaN gives zero, or the top bit alone when either side has 64 bits.
                    Value::Float(x) if x.is_nan() => i128::from(self.src == Num::F64 || bits == 64) << (bits - 1),
                    Value::Float(x) => integral(x, self.round) as i128,
                };
                let clamp = self.saturate || self.src.is_float();
                let (low, high) =
                    if signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
                let nan = matches!(value, Value::Float(x) if x.is_nan());
                let v = if clamp && !nan { v.clamp(low, high) } else { v };
                let raw = v as u64;
                // A narrow result is kept sign- or zero-extended in its wider register.
                match (bits, signed) {
                    (64, _) => raw,
                    (32, _) => raw & 0xffff_ffff,
                    (8, true) => u64::from(raw as u8 as i8 as i16 as u16),
                    (8, false) => raw & 0xff,
                    _ => raw & 0xffff,
                }
            }
            (Num::F64, Value::Int(v)) => {
                if self.saturate {
                    return f64::from(u8::from(v > 0)).to_bits();
                }
                let near = v as f64;
                let back = near as i128;
                let error = (v - back).signum() as f64;
                let up = match self.round {
                    Round::Up => error > 0.0,
                    Round::Zero => v < 0 && error > 0.0,
                    _ => false,
                };
                let down = match self.round {
                    Round::Down => error < 0.0,
                    Round::Zero => v > 0 && error < 0.0,
                    _ => false,
                };
                (if up {
                    near.next_up()
                } else if down {
                    near.next_down()
                } else {
                    near
                })
                .to_bits()
            }
            (Num::F64, Value::Float(x)) => {
                let x = if self.integral { integral(x, self.round) } else { x };
                let x = if self.saturate { unit(x) } else { x };
                x.to_bits()
            }
            (Num::F32, v) => {
                let x = match v {
                    Value::Int(v) => int_to_odd(v),
                    Value::Float(x) => x,
                };
                let x = if self.integral { integral(x, self.round) } else { x };
                let x = if self.saturate { unit(x) } else { x };
                let y = f32::from_bits(round_to(x, &F32, self.round, false));
                u64::from((if self.flush { ftz(y) } else { y }).to_bits())
            }
            (Num::Tf32, Value::Float(x)) => {
                let x = if self.relu && x <= 0.0 { 0.0 } else { x };
                let tf32 = Format {
                    emin: -126,
                    fraction: 10,
                    max: 0x3fbff,
                    inf: Some(0x3fc00),
                    nan: Some(0x3ffff),
                    sign: 1 << 18,
                };
                let y = round_to(x, &tf32, self.round, self.finite);
                u64::from(y << 13 | if x.is_nan() { 0x1fff } else { 0 })
            }
            (Num::Narrow(f), v) => {
                let x = match v {
                    Value::Int(v) => int_to_odd(v),
                    Value::Float(x) => x,
                };
                let x = if self.integral { integral(x, self.round) } else { x };
                let x = if self.saturate { unit(x) } else { x };
                u64::from(self.narrow(x, &f))
            }
            (Num::Pair(..) | Num::Tf32, _) => 0,
        }
    }

    /// Converts the raw bits of one lane (two source registers for packed results).
    pub(crate) fn lane(&self, a: u64, b: u64) -> u64 {
        match (self.src, self.dst) {
            (Num::F32, Num::Pair(f, width)) => {
                let get = |raw: u64| match load(Num::F32, raw, self.flush) {
                    Value::Float(x) => x,
                    Value::Int(_) => 0.0,
                };
                u64::from(self.narrow(get(a), &f) << width | self.narrow(get(b), &f))
            }
            (Num::Pair(from, fw), Num::Pair(to, tw)) => {
                let part = |k: u32| {
                    let bits = (a >> (k * u32::from(fw))) as u32 & ((1 << fw) - 1);
                    u64::from(self.narrow(value_of(bits, &from), &to)) << (k * u32::from(tw))
                };
                part(0) | part(1)
            }
            _ => self.store(load(self.src, a, self.flush)),
        }
    }
}

/// The general conversion, lane by lane.
pub(crate) fn convert(r: &mut Regs, i: &Inst, m: u32, c: &Convert) {
    let mut t = [0u64; LANES];
    for (l, slot) in t.iter_mut().enumerate() {
        if m >> l & 1 == 0 {
            continue;
        }
        let get = |id: u32| if i.wide.a { r.d[id as usize].0[l] } else { u64::from(r.r[id as usize].0[l]) };
        *slot = c.lane(get(i.a), if c.two { get(i.b) } else { 0 });
    }
    if i.wide.d {
        // Converting into a wider register than the type keeps the sign of a signed result.
        if let Num::Int { bits, signed: true } = c.dst
            && bits < 64
        {
            let up = 64 - u32::from(bits);
            t.iter_mut().for_each(|v| *v = ((*v << up) as i64 >> up) as u64);
        }
        put64(&mut r.d[i.d as usize].0, m, &t);
    } else {
        let mut s = [0u32; LANES];
        for l in 0..LANES {
            s[l] = t[l] as u32;
        }
        put32(&mut r.r[i.d as usize].0, m, &s);
    }
}

/// Integer conversions without saturation as shifts: `imm` is the shift that drops the high bits, `sel` 1 for signed.
pub(crate) fn extend(src_wide: bool, dst_wide: bool) -> AluFn {
    #[inline(always)]
    fn cut(v: u64, i: &Inst) -> u64 {
        if i.sel == 1 { ((v << i.imm) as i64 >> i.imm) as u64 } else { v << i.imm >> i.imm }
    }
    let pair = match (src_wide, dst_wide) {
        (false, false) => {
            both!(|r, i, m| {
                let mut t = [0; LANES];
                for l in 0..LANES {
                    t[l] = cut(u64::from(r.r[i.a as usize].0[l]), i) as u32;
                }
                put32(&mut r.r[i.d as usize].0, m, &t);
            })
        }
        (true, false) => {
            both!(|r, i, m| {
                let mut t = [0; LANES];
                for l in 0..LANES {
                    t[l] = cut(r.d[i.a as usize].0[l], i) as u32;
                }
                put32(&mut r.r[i.d as usize].0, m, &t);
            })
        }
        (false, true) => {
            both!(|r, i, m| {
                let mut t = [0; LANES];
                for l in 0..LANES {
                    t[l] = cut(u64::from(r.r[i.a as usize].0[l]), i);
                }
                put64(&mut r.d[i.d as usize].0, m, &t);
            })
        }
        (true, true) => {
            both!(|r, i, m| {
                let mut t = [0; LANES];
                for l in 0..LANES {
                    t[l] = cut(r.d[i.a as usize].0[l], i);
                }
                put64(&mut r.d[i.d as usize].0, m, &t);
            })
        }
    };
    pick(pair)
}
