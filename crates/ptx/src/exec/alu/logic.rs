//! Selection, predicate logic, carries, and operations with immediate selectors.

use super::int::{bit_insert, lookup_internal};
use crate::exec::inst::{Inst, NONE, flag};
use crate::exec::regs::{Alu, AluFn, LANES, Lane, Regs, both, pick, put32, put64};

#[inline(always)]
fn choose<T: Lane>(r: &mut Regs, i: &Inst, m: u32) {
    let p = r.p[i.c as usize] ^ if i.has(flag::NEG) { !0 } else { 0 };
    let (a, b) = (T::row(r, i.a), T::row(r, i.b));
    let mut t = [T::Raw::default(); LANES];
    for l in 0..LANES {
        t[l] = if p >> l & 1 == 1 { a[l] } else { b[l] };
    }
    T::put(r, i.d, m, &t);
}

/// `selp` on 32-bit (also 16-bit) or 64-bit registers.
pub(crate) fn select(wide: bool) -> (AluFn, AluFn) {
    if wide { both!(|r, i, m| choose::<u64>(r, i, m)) } else { both!(|r, i, m| choose::<u32>(r, i, m)) }
}

/// Predicate logic, selected by `sel`: 0 and, 1 or, 2 xor, 3 not, 4 move, 5 constant `imm`.
pub(crate) fn logic_predicate() -> AluFn {
    fn run(r: &mut Regs, i: &Inst, m: u32) {
        let get = |id: u32, negated: bool| {
            let v = if id == NONE { 0 } else { r.p[id as usize] };
            if negated { !v } else { v }
        };
        let a = get(i.a, i.has(flag::NEG));
        let b = get(i.b, i.has(flag::TRANS));
        let v = match i.sel {
            0 => a & b,
            1 => a | b,
            2 => a ^ b,
            3 => !a,
            4 => a,
            _ => i.imm as u32,
        };
        let slot = &mut r.p[i.d as usize];
        *slot = *slot & !m | v & m;
    }
    run
}

/// Moves between widths: `zext`, `sext`, `low`, `high`, `low16`, `high16`; and packing of two halves:
/// `pack32` (two 16-bit into 32), `pack64` (two 32-bit into 64).
pub(crate) fn move_pack(name: &str) -> Option<AluFn> {
    let pair = match name {
        "pack32" => {
            both!(|r, i, m| {
                let (a, b) = (u32::row(r, i.a), u32::row(r, i.b));
                let mut t = [0; LANES];
                for l in 0..LANES {
                    t[l] = a[l] & 0xffff | b[l] << 16;
                }
                put32(&mut r.r[i.d as usize].0, m, &t);
            })
        }
        "pack64" => {
            both!(|r, i, m| {
                let (a, b) = (u32::row(r, i.a), u32::row(r, i.b));
                let mut t = [0; LANES];
                for l in 0..LANES {
                    t[l] = u64::from(a[l]) | u64::from(b[l]) << 32;
                }
                put64(&mut r.d[i.d as usize].0, m, &t);
            })
        }
        // Four 16-bit registers, c and e above a and b.
        "pack16x4" => {
            both!(|r, i, m| {
                let mut t = [0; LANES];
                for (k, id) in [i.a, i.b, i.c, i.e].into_iter().enumerate() {
                    let v = u32::row(r, id);
                    for l in 0..LANES {
                        t[l] |= u64::from(v[l] & 0xffff) << (16 * k);
                    }
                }
                put64(&mut r.d[i.d as usize].0, m, &t);
            })
        }
        // Bits `imm` and up of a 64-bit register as 16 bits.
        "extract16" => {
            both!(|r, i, m| {
                let a = u64::row(r, i.a);
                let mut t = [0; LANES];
                for l in 0..LANES {
                    t[l] = (a[l] >> i.imm) as u32 & 0xffff;
                }
                put32(&mut r.r[i.d as usize].0, m, &t);
            })
        }
        _ => return lookup_internal(name).map(Alu::pick),
    };
    Some(pick(pair))
}

/// Four-operand forms and those with a literal table: `lop3` (`imm` is the table), `bfi` of both widths.
pub(crate) fn lookup_special(op: &str) -> Option<AluFn> {
    let pair = match op {
        "lop3.b32" => both!(|r, i, m| {
            let (a, b, c) = (u32::row(r, i.a), u32::row(r, i.b), u32::row(r, i.c));
            let table = i.imm as u32;
            let mut t = [0; LANES];
            for k in 0..8 {
                let on = 0u32.wrapping_sub(table >> k & 1);
                let flip = |v: u32, bit: u32| v ^ if k >> bit & 1 == 1 { 0 } else { !0 };
                for l in 0..LANES {
                    t[l] |= flip(a[l], 2) & flip(b[l], 1) & flip(c[l], 0) & on;
                }
            }
            put32(&mut r.r[i.d as usize].0, m, &t);
        }),
        "bfi.b32" => both!(|r, i, m| {
            let (a, b, c, e) = (u32::row(r, i.a), u32::row(r, i.b), u32::row(r, i.c), u32::row(r, i.e));
            let mut t = [0; LANES];
            for l in 0..LANES {
                t[l] = bit_insert(u64::from(a[l]), u64::from(b[l]), 32, c[l], e[l]) as u32;
            }
            put32(&mut r.r[i.d as usize].0, m, &t);
        }),
        "bfi.b64" => both!(|r, i, m| {
            let (a, b, c, e) = (u64::row(r, i.a), u64::row(r, i.b), u32::row(r, i.c), u32::row(r, i.e));
            let mut t = [0; LANES];
            for l in 0..LANES {
                t[l] = bit_insert(a[l], b[l], 64, c[l], e[l]);
            }
            put64(&mut r.d[i.d as usize].0, m, &t);
        }),
        _ => return None,
    };
    Some(pick(pair))
}

/// Extended-precision arithmetic. `e` is the carry predicate, read when `sel & 1`, written when `sel & 2`; `imm` selects
/// 0 add, 1 subtract, 2 multiply-add low, 3 multiply-add high (unsigned).
pub(crate) fn carry(wide: bool) -> AluFn {
    fn run<T: Lane>(
        r: &mut Regs,
        i: &Inst,
        m: u32,
        bits: u32,
        to: impl Fn(T::Raw) -> u128,
        of: impl Fn(u128) -> T::Raw,
    ) {
        let cin = if i.sel & 1 != 0 { r.p[i.e as usize] } else { 0 };
        let mut t = [T::Raw::default(); LANES];
        let mut out = 0;
        let mask = (1u128 << bits) - 1;
        for l in 0..LANES {
            let (a, b) = (to(T::row(r, i.a)[l]), to(T::row(r, i.b)[l]));
            let c = u128::from(cin >> l & 1);
            let v = match i.imm {
                0 => a + b + c,
                // The carry flag of a subtraction means "borrow".
                1 => a.wrapping_sub(b).wrapping_sub(c),
                2 => ((a * b) & mask) + to(T::row(r, i.c)[l]) + c,
                _ => ((a * b) >> bits) + to(T::row(r, i.c)[l]) + c,
            };
            out |= u32::from(v >> bits & 1 == 1) << l;
            t[l] = of(v & mask);
        }
        T::put(r, i.d, m, &t);
        if i.sel & 2 != 0 {
            let slot = &mut r.p[i.e as usize];
            *slot = *slot & !m | out & m;
        }
    }
    if wide {
        |r, i, m| run::<u64>(r, i, m, 64, u128::from, |v| v as u64)
    } else {
        |r, i, m| run::<u32>(r, i, m, 32, u128::from, |v| v as u32)
    }
}
