//! Integer arithmetic and bit operations.

use crate::exec::regs::lane_table;
use crate::numeric::ftz;

fn bfe_u64(v: u64, pos: u32, len: u32) -> u64 {
    let (pos, len) = (pos & 255, len & 255);
    if pos > 63 || len == 0 {
        0
    } else if len > 63 {
        v >> pos
    } else {
        v >> pos & ((1 << len) - 1)
    }
}

/// Bits past the top repeat the sign bit of the field, or of the value when the field reaches over it.
fn bfe_signed(v: i64, bits: u32, pos: u32, len: u32) -> i64 {
    let (pos, len) = (pos & 255, len & 255);
    if len == 0 {
        return 0;
    }
    let shifted = v >> pos.min(63);
    if pos + len > bits || len > 63 {
        return shifted;
    }
    shifted << (64 - len) >> (64 - len)
}

fn bfi(a: u64, b: u64, bits: u32, pos: u32, len: u32) -> u64 {
    let (pos, len) = (pos & 255, len & 255);
    if pos >= bits || len == 0 {
        return b;
    }
    let mask = if len >= 64 { !0 } else { (1u64 << len) - 1 } << pos;
    a << pos & mask | b & !mask
}

/// Position of the most significant bit that differs from the sign; all ones if there is none.
fn bfind(v: u64, signed: bool, bits: u32) -> u32 {
    let v = if signed && v >> (bits - 1) & 1 == 1 { !v } else { v } & if bits == 64 { !0 } else { (1 << bits) - 1 };
    if v == 0 { !0 } else { 63 - v.leading_zeros() }
}

fn prmt(a: u32, b: u32, s: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |out, k| {
        let sel = s >> (4 * k) & 15;
        let byte = (bytes >> (8 * (sel & 7))) as u8;
        let v = if sel & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        out | u32::from(v) << (8 * k)
    })
}

/// `prmt` with a named mode: the byte indices that each output byte takes.
fn prmt_mode(a: u32, b: u32, c: u32, table: [[u32; 4]; 4]) -> u32 {
    let idx = table[(c & 3) as usize];
    prmt(a, b, idx[0] | idx[1] << 4 | idx[2] << 8 | idx[3] << 12)
}

fn dp4(a: u32, b: u32, c: u32, sa: bool, sb: bool) -> u32 {
    let byte = |v: u32, k: u32, s: bool| {
        let x = (v >> (8 * k)) as u8;
        if s { i64::from(x as i8) } else { i64::from(x) }
    };
    (0..4).fold(c, |acc, k| acc.wrapping_add((byte(a, k, sa) * byte(b, k, sb)) as u32))
}

fn dp2(a: u32, b: u32, c: u32, sa: bool, sb: bool, hi: u32) -> u32 {
    (0..2).fold(c, |acc, k| {
        let h = (a >> (16 * k)) as u16;
        let x = if sa { i64::from(h as i16) } else { i64::from(h) };
        let q = (b >> (8 * (k + 2 * hi))) as u8;
        let y = if sb { i64::from(q as i8) } else { i64::from(q) };
        acc.wrapping_add((x * y) as u32)
    })
}

fn mul24(a: u32, b: u32, signed: bool, hi: bool) -> u32 {
    let w = |v: u32| if signed { i64::from((v << 8) as i32 >> 8) } else { i64::from(v & 0xff_ffff) };
    let p = w(a) * w(b);
    if hi { (p >> 16) as u32 } else { p as u32 }
}

fn lerp16(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

lane_table! {
/// Integer lane functions.
fn lookup, OPCODES {
    "add.u16" | "add.s16" => (a: u16, b: u16) -> u16 { a.wrapping_add(b) };
    "add.u32" | "add.s32" => (a: u32, b: u32) -> u32 { a.wrapping_add(b) };
    "add.u64" | "add.s64" => (a: u64, b: u64) -> u64 { a.wrapping_add(b) };
    "add.sat.s32" => (a: i32, b: i32) -> i32 { a.saturating_add(b) };
    "add.u16x2" | "add.s16x2" => (a: u32, b: u32) -> u32 { lerp16(a, b, u16::wrapping_add) };
    "sub.u16" | "sub.s16" => (a: u16, b: u16) -> u16 { a.wrapping_sub(b) };
    "sub.u32" | "sub.s32" => (a: u32, b: u32) -> u32 { a.wrapping_sub(b) };
    "sub.u64" | "sub.s64" => (a: u64, b: u64) -> u64 { a.wrapping_sub(b) };
    "sub.sat.s32" => (a: i32, b: i32) -> i32 { a.saturating_sub(b) };
    "mul.lo.u16" | "mul.lo.s16" => (a: u16, b: u16) -> u16 { a.wrapping_mul(b) };
    "mul.lo.u32" | "mul.lo.s32" => (a: u32, b: u32) -> u32 { a.wrapping_mul(b) };
    "mul.lo.u64" | "mul.lo.s64" => (a: u64, b: u64) -> u64 { a.wrapping_mul(b) };
    "mul.hi.u16" => (a: u16, b: u16) -> u16 { ((u32::from(a) * u32::from(b)) >> 16) as u16 };
    "mul.hi.s16" => (a: i16, b: i16) -> i16 { ((i32::from(a) * i32::from(b)) >> 16) as i16 };
    "mul.hi.u32" => (a: u32, b: u32) -> u32 { ((u64::from(a) * u64::from(b)) >> 32) as u32 };
    "mul.hi.s32" => (a: i32, b: i32) -> i32 { ((i64::from(a) * i64::from(b)) >> 32) as i32 };
    "mul.hi.u64" => (a: u64, b: u64) -> u64 { ((u128::from(a) * u128::from(b)) >> 64) as u64 };
    "mul.hi.s64" => (a: i64, b: i64) -> i64 { ((i128::from(a) * i128::from(b)) >> 64) as i64 };
    "mul.wide.u16" => (a: u16, b: u16) -> u32 { u32::from(a) * u32::from(b) };
    "mul.wide.s16" => (a: i16, b: i16) -> i32 { i32::from(a) * i32::from(b) };
    "mul.wide.u32" => (a: u32, b: u32) -> u64 { u64::from(a) * u64::from(b) };
    "mul.wide.s32" => (a: i32, b: i32) -> i64 { i64::from(a) * i64::from(b) };
    "mul24.lo.u32" => (a: u32, b: u32) -> u32 { mul24(a, b, false, false) };
    "mul24.lo.s32" => (a: u32, b: u32) -> u32 { mul24(a, b, true, false) };
    "mul24.hi.u32" => (a: u32, b: u32) -> u32 { mul24(a, b, false, true) };
    "mul24.hi.s32" => (a: u32, b: u32) -> u32 { mul24(a, b, true, true) };
    "mad24.lo.u32" => (a: u32, b: u32, c: u32) -> u32 { mul24(a, b, false, false).wrapping_add(c) };
    "mad24.lo.s32" => (a: u32, b: u32, c: u32) -> u32 { mul24(a, b, true, false).wrapping_add(c) };
    "mad24.hi.u32" => (a: u32, b: u32, c: u32) -> u32 { mul24(a, b, false, true).wrapping_add(c) };
    "mad24.hi.s32" => (a: u32, b: u32, c: u32) -> u32 { mul24(a, b, true, true).wrapping_add(c) };
    "mad24.hi.sat.s32" => (a: u32, b: u32, c: i32) -> i32 { (mul24(a, b, true, true) as i32).saturating_add(c) };
    "mad.lo.u16" | "mad.lo.s16" => (a: u16, b: u16, c: u16) -> u16 { a.wrapping_mul(b).wrapping_add(c) };
    "mad.lo.u32" | "mad.lo.s32" => (a: u32, b: u32, c: u32) -> u32 { a.wrapping_mul(b).wrapping_add(c) };
    "mad.lo.u64" | "mad.lo.s64" => (a: u64, b: u64, c: u64) -> u64 { a.wrapping_mul(b).wrapping_add(c) };
    "mad.hi.u32" => (a: u32, b: u32, c: u32) -> u32 {
        (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c)
    };
    "mad.hi.s32" => (a: i32, b: i32, c: i32) -> i32 {
        (((i64::from(a) * i64::from(b)) >> 32) as i32).wrapping_add(c)
    };
    "mad.hi.sat.s32" => (a: i32, b: i32, c: i32) -> i32 {
        (((i64::from(a) * i64::from(b)) >> 32) as i32).saturating_add(c)
    };
    "mad.hi.u64" => (a: u64, b: u64, c: u64) -> u64 {
        (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c)
    };
    "mad.hi.s64" => (a: i64, b: i64, c: i64) -> i64 {
        (((i128::from(a) * i128::from(b)) >> 64) as i64).wrapping_add(c)
    };
    "mad.wide.u16" => (a: u16, b: u16, c: u32) -> u32 { (u32::from(a) * u32::from(b)).wrapping_add(c) };
    "mad.wide.s16" => (a: i16, b: i16, c: i32) -> i32 { (i32::from(a) * i32::from(b)).wrapping_add(c) };
    "mad.wide.u32" => (a: u32, b: u32, c: u64) -> u64 { (u64::from(a) * u64::from(b)).wrapping_add(c) };
    "mad.wide.s32" => (a: i32, b: i32, c: i64) -> i64 { (i64::from(a) * i64::from(b)).wrapping_add(c) };
    "sad.u32" => (a: u32, b: u32, c: u32) -> u32 { c.wrapping_add(a.abs_diff(b)) };
    "sad.s32" => (a: i32, b: i32, c: u32) -> u32 { c.wrapping_add(a.abs_diff(b)) };
    "sad.u64" => (a: u64, b: u64, c: u64) -> u64 { c.wrapping_add(a.abs_diff(b)) };
    "sad.s64" => (a: i64, b: i64, c: u64) -> u64 { c.wrapping_add(a.abs_diff(b)) };
    "div.u16" => (a: u16, b: u16) -> u16 { a.checked_div(b).unwrap_or(!0) };
    "div.s16" => (a: i16, b: i16) -> i16 { if b == 0 { -1 } else { a.wrapping_div(b) } };
    "div.u32" => (a: u32, b: u32) -> u32 { a.checked_div(b).unwrap_or(!0) };
    "div.s32" => (a: i32, b: i32) -> i32 { if b == 0 { -1 } else { a.wrapping_div(b) } };
    "div.u64" => (a: u64, b: u64) -> u64 { a.checked_div(b).unwrap_or(!0) };
    "div.s64" => (a: i64, b: i64) -> i64 { if b == 0 { -1 } else { a.wrapping_div(b) } };
    "rem.u16" => (a: u16, b: u16) -> u16 { a.checked_rem(b).unwrap_or(a) };
    "rem.s16" => (a: i16, b: i16) -> i16 { if b == 0 { a } else { a.wrapping_rem(b) } };
    "rem.u32" => (a: u32, b: u32) -> u32 { a.checked_rem(b).unwrap_or(a) };
    "rem.s32" => (a: i32, b: i32) -> i32 { if b == 0 { a } else { a.wrapping_rem(b) } };
    "rem.u64" => (a: u64, b: u64) -> u64 { a.checked_rem(b).unwrap_or(a) };
    "rem.s64" => (a: i64, b: i64) -> i64 { if b == 0 { a } else { a.wrapping_rem(b) } };
    "abs.s16" => (a: i16) -> i16 { a.wrapping_abs() };
    "abs.s32" => (a: i32) -> i32 { a.wrapping_abs() };
    "abs.s64" => (a: i64) -> i64 { a.wrapping_abs() };
    "neg.s16" => (a: i16) -> i16 { a.wrapping_neg() };
    "neg.s32" => (a: i32) -> i32 { a.wrapping_neg() };
    "neg.s64" => (a: i64) -> i64 { a.wrapping_neg() };
    "min.u16" => (a: u16, b: u16) -> u16 { a.min(b) };
    "min.s16" => (a: i16, b: i16) -> i16 { a.min(b) };
    "min.u32" => (a: u32, b: u32) -> u32 { a.min(b) };
    "min.s32" => (a: i32, b: i32) -> i32 { a.min(b) };
    "mad.hi.u16" => (a: u16, b: u16, c: u16) -> u16 { ((u32::from(a) * u32::from(b)) >> 16).wrapping_add(c.into()) as u16 };
    "mad.hi.s16" => (a: i16, b: i16, c: i16) -> i16 { ((i32::from(a) * i32::from(b)) >> 16).wrapping_add(c.into()) as i16 };
    "sad.u16" => (a: u16, b: u16, c: u16) -> u16 { c.wrapping_add(a.abs_diff(b)) };
    "sad.s16" => (a: i16, b: i16, c: u16) -> u16 { c.wrapping_add(a.abs_diff(b)) };
    "bfind.shiftamt.u64" => (a: u64) -> u32 {
        let p = bfind(a, false, 64);
        if p == !0 { p } else { 63 - p }
    };
    "bfind.shiftamt.s64" => (a: u64) -> u32 {
        let p = bfind(a, true, 64);
        if p == !0 { p } else { 63 - p }
    };
    "min.relu.s16x2" => (a: u32, b: u32) -> u32 { lerp16(a, b, |x, y| (x as i16).min(y as i16).max(0) as u16) };
    "max.relu.s16x2" => (a: u32, b: u32) -> u32 { lerp16(a, b, |x, y| (x as i16).max(y as i16).max(0) as u16) };
    "prmt.b32.ecl" => (a: u32, b: u32, c: u32) -> u32 {
        prmt_mode(a, b, c, [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]])
    };
    "prmt.b32.ecr" => (a: u32, b: u32, c: u32) -> u32 {
        prmt_mode(a, b, c, [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]])
    };
    "min.relu.s32" => (a: i32, b: i32) -> i32 { a.min(b).max(0) };
    "min.u64" => (a: u64, b: u64) -> u64 { a.min(b) };
    "min.s64" => (a: i64, b: i64) -> i64 { a.min(b) };
    "min.u16x2" => (a: u32, b: u32) -> u32 { lerp16(a, b, u16::min) };
    "min.s16x2" => (a: u32, b: u32) -> u32 { lerp16(a, b, |x, y| (x as i16).min(y as i16) as u16) };
    "max.u16" => (a: u16, b: u16) -> u16 { a.max(b) };
    "max.s16" => (a: i16, b: i16) -> i16 { a.max(b) };
    "max.u32" => (a: u32, b: u32) -> u32 { a.max(b) };
    "max.s32" => (a: i32, b: i32) -> i32 { a.max(b) };
    "max.relu.s32" => (a: i32, b: i32) -> i32 { a.max(b).max(0) };
    "max.u64" => (a: u64, b: u64) -> u64 { a.max(b) };
    "max.s64" => (a: i64, b: i64) -> i64 { a.max(b) };
    "max.u16x2" => (a: u32, b: u32) -> u32 { lerp16(a, b, u16::max) };
    "max.s16x2" => (a: u32, b: u32) -> u32 { lerp16(a, b, |x, y| (x as i16).max(y as i16) as u16) };
    "popc.b32" => (a: u32) -> u32 { a.count_ones() };
    "popc.b64" => (a: u64) -> u32 { a.count_ones() };
    "clz.b32" => (a: u32) -> u32 { a.leading_zeros() };
    "clz.b64" => (a: u64) -> u32 { a.leading_zeros() };
    "bfind.u32" => (a: u32) -> u32 { bfind(u64::from(a), false, 32) };
    "bfind.s32" => (a: u32) -> u32 { bfind(u64::from(a), true, 32) };
    "bfind.u64" => (a: u64) -> u32 { bfind(a, false, 64) };
    "bfind.s64" => (a: u64) -> u32 { bfind(a, true, 64) };
    "bfind.shiftamt.u32" => (a: u32) -> u32 {
        let p = bfind(u64::from(a), false, 32);
        if p == !0 { p } else { 31 - p }
    };
    "bfind.shiftamt.s32" => (a: u32) -> u32 {
        let p = bfind(u64::from(a), true, 32);
        if p == !0 { p } else { 31 - p }
    };
    "brev.b32" => (a: u32) -> u32 { a.reverse_bits() };
    "brev.b64" => (a: u64) -> u64 { a.reverse_bits() };
    "bfe.u32" => (a: u32, b: u32, c: u32) -> u32 { bfe_u64(u64::from(a), b, c) as u32 };
    "bfe.s32" => (a: i32, b: u32, c: u32) -> i32 { bfe_signed(i64::from(a), 32, b, c) as i32 };
    "bfe.u64" => (a: u64, b: u32, c: u32) -> u64 { bfe_u64(a, b, c) };
    "bfe.s64" => (a: i64, b: u32, c: u32) -> i64 { bfe_signed(a, 64, b, c) };
    "bmsk.clamp.b32" => (a: u32, b: u32) -> u32 { bfi(!0, 0, 32, a.min(255), b.min(32)) as u32 };
    "bmsk.wrap.b32" => (a: u32, b: u32) -> u32 { bfi(!0, 0, 32, a & 31, b & 31) as u32 };
    "szext.wrap.u32" => (a: u32, b: u32) -> u32 { bfe_u64(u64::from(a), 0, b & 31) as u32 };
    "szext.wrap.s32" => (a: i32, b: u32) -> i32 { bfe_signed(i64::from(a), 32, 0, b & 31) as i32 };
    "szext.clamp.u32" => (a: u32, b: u32) -> u32 { bfe_u64(u64::from(a), 0, b.min(32)) as u32 };
    "szext.clamp.s32" => (a: i32, b: u32) -> i32 { bfe_signed(i64::from(a), 32, 0, b.min(32)) as i32 };
    "and.b16" => (a: u16, b: u16) -> u16 { a & b };
    "and.b32" => (a: u32, b: u32) -> u32 { a & b };
    "and.b64" => (a: u64, b: u64) -> u64 { a & b };
    "or.b16" => (a: u16, b: u16) -> u16 { a | b };
    "or.b32" => (a: u32, b: u32) -> u32 { a | b };
    "or.b64" => (a: u64, b: u64) -> u64 { a | b };
    "xor.b16" => (a: u16, b: u16) -> u16 { a ^ b };
    "xor.b32" => (a: u32, b: u32) -> u32 { a ^ b };
    "xor.b64" => (a: u64, b: u64) -> u64 { a ^ b };
    "not.b16" => (a: u16) -> u16 { !a };
    "not.b32" => (a: u32) -> u32 { !a };
    "not.b64" => (a: u64) -> u64 { !a };
    "cnot.b16" => (a: u16) -> u16 { u16::from(a == 0) };
    "cnot.b32" => (a: u32) -> u32 { u32::from(a == 0) };
    "cnot.b64" => (a: u64) -> u64 { u64::from(a == 0) };
    "shl.b16" => (a: u16, b: u32) -> u16 { if b > 15 { 0 } else { a << b } };
    "shl.b32" => (a: u32, b: u32) -> u32 { if b > 31 { 0 } else { a << b } };
    "shl.b64" => (a: u64, b: u32) -> u64 { if b > 63 { 0 } else { a << b } };
    "shr.u16" | "shr.b16" => (a: u16, b: u32) -> u16 { if b > 15 { 0 } else { a >> b } };
    "shr.u32" | "shr.b32" => (a: u32, b: u32) -> u32 { if b > 31 { 0 } else { a >> b } };
    "shr.u64" | "shr.b64" => (a: u64, b: u32) -> u64 { if b > 63 { 0 } else { a >> b } };
    "shr.s16" => (a: i16, b: u32) -> i16 { a >> b.min(15) };
    "shr.s32" => (a: i32, b: u32) -> i32 { a >> b.min(31) };
    "shr.s64" => (a: i64, b: u32) -> i64 { a >> b.min(63) };
    "shf.l.wrap.b32" => (a: u32, b: u32, c: u32) -> u32 {
        (((u64::from(b) << 32 | u64::from(a)) << (c & 31)) >> 32) as u32
    };
    "shf.r.wrap.b32" => (a: u32, b: u32, c: u32) -> u32 {
        ((u64::from(b) << 32 | u64::from(a)) >> (c & 31)) as u32
    };
    "shf.l.clamp.b32" => (a: u32, b: u32, c: u32) -> u32 {
        (((u64::from(b) << 32 | u64::from(a)) << c.min(32)) >> 32) as u32
    };
    "shf.r.clamp.b32" => (a: u32, b: u32, c: u32) -> u32 {
        ((u64::from(b) << 32 | u64::from(a)) >> c.min(32)) as u32
    };
    "prmt.b32" => (a: u32, b: u32, c: u32) -> u32 { prmt(a, b, c) };
    "prmt.b32.f4e" => (a: u32, b: u32, c: u32) -> u32 {
        prmt_mode(a, b, c, [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]])
    };
    "prmt.b32.b4e" => (a: u32, b: u32, c: u32) -> u32 {
        prmt_mode(a, b, c, [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]])
    };
    "prmt.b32.rc8" => (a: u32, b: u32, c: u32) -> u32 {
        prmt_mode(a, b, c, [[0; 4], [1; 4], [2; 4], [3; 4]])
    };
    "prmt.b32.rc16" => (a: u32, b: u32, c: u32) -> u32 {
        prmt_mode(a, b, c, [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]])
    };
    "dp4a.u32.u32" => (a: u32, b: u32, c: u32) -> u32 { dp4(a, b, c, false, false) };
    "dp4a.u32.s32" => (a: u32, b: u32, c: u32) -> u32 { dp4(a, b, c, false, true) };
    "dp4a.s32.u32" => (a: u32, b: u32, c: u32) -> u32 { dp4(a, b, c, true, false) };
    "dp4a.s32.s32" => (a: u32, b: u32, c: u32) -> u32 { dp4(a, b, c, true, true) };
    "dp2a.lo.s32.s32" => (a: u32, b: u32, c: u32) -> u32 { dp2(a, b, c, true, true, 0) };
    "dp2a.hi.s32.s32" => (a: u32, b: u32, c: u32) -> u32 { dp2(a, b, c, true, true, 1) };
    "dp2a.lo.s32.u32" => (a: u32, b: u32, c: u32) -> u32 { dp2(a, b, c, true, false, 0) };
    "dp2a.hi.s32.u32" => (a: u32, b: u32, c: u32) -> u32 { dp2(a, b, c, true, false, 1) };
    "dp2a.lo.u32.s32" => (a: u32, b: u32, c: u32) -> u32 { dp2(a, b, c, false, true, 0) };
    "dp2a.hi.u32.s32" => (a: u32, b: u32, c: u32) -> u32 { dp2(a, b, c, false, true, 1) };
    "dp2a.lo.u32.u32" => (a: u32, b: u32, c: u32) -> u32 { dp2(a, b, c, false, false, 0) };
    "dp2a.hi.u32.u32" => (a: u32, b: u32, c: u32) -> u32 { dp2(a, b, c, false, false, 1) };
    "slct.b16.s32" | "slct.u16.s32" | "slct.s16.s32" => (a: u16, b: u16, c: i32) -> u16 { if c >= 0 { a } else { b } };
    "slct.b32.s32" | "slct.u32.s32" | "slct.s32.s32" => (a: u32, b: u32, c: i32) -> u32 { if c >= 0 { a } else { b } };
    "slct.f32.s32" => (a: f32, b: f32, c: i32) -> f32 { if c >= 0 { a } else { b } };
    "slct.b64.s32" | "slct.u64.s32" | "slct.s64.s32" => (a: u64, b: u64, c: i32) -> u64 { if c >= 0 { a } else { b } };
    "slct.f64.s32" => (a: f64, b: f64, c: i32) -> f64 { if c >= 0 { a } else { b } };
    "slct.b16.f32" | "slct.u16.f32" | "slct.s16.f32" => (a: u16, b: u16, c: f32) -> u16 { if c >= 0.0 { a } else { b } };
    "slct.b32.f32" | "slct.u32.f32" | "slct.s32.f32" => (a: u32, b: u32, c: f32) -> u32 { if c >= 0.0 { a } else { b } };
    "slct.f32.f32" => (a: f32, b: f32, c: f32) -> f32 { if c >= 0.0 { a } else { b } };
    "slct.b64.f32" | "slct.u64.f32" | "slct.s64.f32" => (a: u64, b: u64, c: f32) -> u64 { if c >= 0.0 { a } else { b } };
    "slct.f64.f32" => (a: f64, b: f64, c: f32) -> f64 { if c >= 0.0 { a } else { b } };
    "slct.ftz.b32.f32" | "slct.ftz.u32.f32" | "slct.ftz.s32.f32" => (a: u32, b: u32, c: f32) -> u32 {
        if ftz(c) >= 0.0 { a } else { b }
    };
    "slct.ftz.f32.f32" => (a: f32, b: f32, c: f32) -> f32 { if ftz(c) >= 0.0 { a } else { b } };
    "mov.b16" | "mov.u16" | "mov.s16" => (a: u16) -> u16 { a };
    "mov.b32" | "mov.u32" | "mov.s32" => (a: u32) -> u32 { a };
    "mov.f32" => (a: f32) -> f32 { a };
    "mov.b64" | "mov.u64" | "mov.s64" => (a: u64) -> u64 { a };
    "mov.f64" => (a: f64) -> f64 { a };
}}

lane_table! {
/// Moves between widths for packing and unpacking, and addresses of other CTAs of a cluster.
fn lookup_internal {
    "zext" => (a: u32) -> u64 { u64::from(a) };
    "sext" => (a: i32) -> i64 { i64::from(a) };
    "low" => (a: u64) -> u32 { a as u32 };
    "high" => (a: u64) -> u32 { (a >> 32) as u32 };
    "low16" => (a: u32) -> u32 { a & 0xffff };
    "high16" => (a: u32) -> u32 { a >> 16 };
    "mapa32" => (a: u32, b: u32) -> u32 { a & 0x00ff_ffff | (b & 0x7f).wrapping_add(1) << 24 };
    "mapa64" => (a: u64, b: u32) -> u64 { a & !0xff00_0000 | u64::from((b & 0x7f) + 1) << 24 };
    "rank32" => (a: u32, b: u32) -> u32 { if a >> 24 == 0 { b } else { (a >> 24) - 1 } };
    "rank64" => (a: u64, b: u32) -> u32 { if a >> 24 & 255 == 0 { b } else { (a >> 24 & 255) as u32 - 1 } };
}}

/// `bfi` of 32 or 64 bits on one lane.
pub(super) fn bit_insert(a: u64, b: u64, bits: u32, pos: u32, len: u32) -> u64 {
    bfi(a, b, bits, pos, len)
}
