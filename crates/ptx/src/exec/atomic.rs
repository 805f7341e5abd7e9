//! Atomics and reductions, and what strong accesses and fences order.

use super::access::{By, How, Place};
use super::gang::{Gang, Run};
use super::inst::{Inst, Space, flag};
use super::regs::LANES;
use crate::check::clock::Clock;
use crate::numeric::{BF16, F16, Format, Round, fma_odd, ftz, round_to, value_of};
use crate::syntax::ast::Type;

/// Operations in the order of `sel`.
pub(super) const ADD: u8 = 0;
pub(super) const MIN: u8 = 1;
pub(super) const MAX: u8 = 2;
pub(super) const INC: u8 = 3;
pub(super) const DEC: u8 = 4;
const AND: u8 = 5;
const OR: u8 = 6;
const XOR: u8 = 7;
const EXCH: u8 = 8;
const CAS: u8 = 9;

/// Types by the number the decoder stored.
pub(super) fn type_of(code: i64) -> Type {
    const ALL: [Type; 20] = [
        Type::Pred,
        Type::B8,
        Type::B16,
        Type::B32,
        Type::B64,
        Type::B128,
        Type::U8,
        Type::U16,
        Type::U32,
        Type::U64,
        Type::S8,
        Type::S16,
        Type::S32,
        Type::S64,
        Type::F16,
        Type::F16x2,
        Type::BF16,
        Type::BF16x2,
        Type::F32,
        Type::F64,
    ];
    ALL[code as usize % ALL.len()]
}

fn narrow_add(old: u16, v: u16, f: &Format) -> u16 {
    let (a, b) = (value_of(u32::from(old), f), value_of(u32::from(v), f));
    round_to(fma_odd(a, 1.0, b), f, Round::Nearest, false) as u16
}

fn narrow_pick(old: u16, v: u16, f: &Format, max: bool) -> u16 {
    let (a, b) = (value_of(u32::from(old), f), value_of(u32::from(v), f));
    if a.is_nan() {
        v
    } else if b.is_nan() || (if max { a >= b } else { a <= b }) {
        old
    } else {
        v
    }
}

fn packed(old: u64, v: u64, f: impl Fn(u16, u16) -> u16) -> u64 {
    u64::from(f(old as u16, v as u16)) | u64::from(f((old >> 16) as u16, (v >> 16) as u16)) << 16
}

/// New value of a location: `op` on the old value, the operand and, for compare-and-swap, the replacement.
pub(super) fn combine(op: u8, ty: Type, old: u64, v: u64, replacement: u64) -> u64 {
    let mask = if ty.size() == 8 { !0 } else { (1u64 << (8 * ty.size())) - 1 };
    let signed = |x: u64| match ty.size() {
        8 => x as i64,
        4 => i64::from(x as u32 as i32),
        _ => i64::from(x as u16 as i16),
    };
    let out = match (op, ty) {
        (ADD, Type::F32) => u64::from((f32::from_bits(old as u32) + f32::from_bits(v as u32)).to_bits()),
        (ADD, Type::F64) => (f64::from_bits(old) + f64::from_bits(v)).to_bits(),
        (ADD, Type::F16) => u64::from(narrow_add(old as u16, v as u16, &F16)),
        (ADD, Type::BF16) => u64::from(narrow_add(old as u16, v as u16, &BF16)),
        (ADD, Type::F16x2) => packed(old, v, |a, b| narrow_add(a, b, &F16)),
        (ADD, Type::BF16x2) => packed(old, v, |a, b| narrow_add(a, b, &BF16)),
        (ADD, _) => old.wrapping_add(v),
        (MIN | MAX, Type::F16) => u64::from(narrow_pick(old as u16, v as u16, &F16, op == MAX)),
        (MIN | MAX, Type::BF16) => u64::from(narrow_pick(old as u16, v as u16, &BF16, op == MAX)),
        (MIN, t) if t.is_signed() => signed(old).min(signed(v)) as u64,
        (MAX, t) if t.is_signed() => signed(old).max(signed(v)) as u64,
        (MIN, _) => old.min(v),
        (MAX, _) => old.max(v),
        (INC, _) => {
            if old >= v {
                0
            } else {
                old + 1
            }
        }
        (DEC, _) => {
            if old == 0 || old > v {
                v
            } else {
                old - 1
            }
        }
        (AND, _) => old & v,
        (OR, _) => old | v,
        (XOR, _) => old ^ v,
        (EXCH, _) => v,
        (CAS, _) if old == v & mask => replacement,
        _ => old,
    };
    out & mask
}

/// The same in global memory, where single-precision sums flush subnormal operands and results.
pub(super) fn combine_global(op: u8, ty: Type, old: u64, v: u64, replacement: u64) -> u64 {
    if (op, ty) != (ADD, Type::F32) {
        return combine(op, ty, old, v, replacement);
    }
    let flushed = |x: u64| u64::from(ftz(f32::from_bits(x as u32)).to_bits());
    flushed(combine(op, ty, flushed(old), flushed(v), 0))
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    pub(super) fn atomic(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let size = usize::from(i.size);
        let ty = type_of(i.imm2);
        let a = self.addresses(w, i.a, i.wide.a, i.imm);
        let how = How { write: true, atomic: true, ..How::default() };
        let mut out = [0u64; LANES];
        let (mut global, mut shared) = (0, 0);
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let place = self.resolve(by, i.space, a[l], size, size, true)?;
            match place {
                Place::Global(..) => global |= 1 << l,
                _ => shared |= 1 << l,
            }
            let mut raw = [0; 8];
            self.read_place(by, place, &mut raw[..size]);
            let old = u64::from_le_bytes(raw);
            if CHECK {
                self.check(by, place, size, How { write: false, ..how });
                self.check(by, place, size, how);
                self.order_atomic(w, i, place, 1 << l);
            }
            let get = |g: &Self, r: u32| {
                let regs = &g.warps[w].regs;
                if i.wide.d { regs.d[r as usize].0[l] } else { u64::from(regs.r[r as usize].0[l]) }
            };
            let v = get(self, i.b);
            let mask = if size == 8 { !0 } else { (1u64 << (8 * size)) - 1 };
            let replacement = if i.sel == CAS { get(self, i.c) } else { 0 };
            let new = match place {
                Place::Global(..) => combine_global(i.sel, ty, old, v & mask, replacement),
                _ => combine(i.sel, ty, old, v & mask, replacement),
            };
            if new != old {
                self.events += 1;
                self.write_place(by, place, &new.to_le_bytes()[..size]);
            }
            out[l] = old;
        }
        if !i.has(flag::NORESULT) {
            let regs = &mut self.warps[w].regs;
            if i.wide.d {
                super::regs::put64(&mut regs.d[i.d as usize].0, m, &out);
            } else {
                let mut t = [0; LANES];
                for l in 0..LANES {
                    t[l] = out[l] as u32;
                }
                super::regs::put32(&mut regs.r[i.d as usize].0, m, &t);
            }
        }
        if COUNT && global != 0 {
            self.account(pc, Space::Global, global, &a, size, true, true);
        }
        if COUNT && shared != 0 && i.space == Space::Shared {
            self.account(pc, Space::Shared, shared, &a, size, true, false);
        }
        Ok(())
    }

    /// Key of a location's synchronisation state.
    fn location(&self, place: Place) -> Option<u64> {
        match place {
            Place::Global(k, o) => Some((k as u64) << 40 | (o as u64) >> 2),
            Place::Shared(c, o) => Some(1 << 63 | self.number << 40 | (c as u64) << 24 | (o as u64) >> 2),
            _ => None,
        }
    }

    fn order_atomic(&mut self, w: usize, i: &Inst, place: Place, m: u32) {
        let Some(key) = self.location(place) else { return };
        self.read_sync(w, key, i.has(flag::ACQUIRE), m);
        self.write_sync(w, key, i.has(flag::RELEASE), true, m);
    }

    /// A strong read takes over what the location carries: at once when acquiring, at the next fence otherwise.
    fn read_sync(&mut self, w: usize, key: u64, acquire: bool, m: u32) {
        let Some(v) = self.sync.get(&key) else { return };
        let mut clock = if v.gang == self.number { v.near.clone() } else { Clock::default() };
        if let Some(far) = &v.far {
            clock.join(&Clock { far: Some(far.clone()), ..Clock::default() });
        }
        if acquire {
            self.acquire(w, m, &clock);
        } else {
            self.warps[w].pending.get_or_insert_with(Clock::default).join(&clock);
        }
    }

    /// A strong write publishes: all the warp knows when releasing, what it knew at its last fence otherwise.
    fn write_sync(&mut self, w: usize, key: u64, release: bool, joins: bool, m: u32) {
        let number = self.number;
        let published = if release { Some(self.released(w, m)) } else { self.warps[w].released.clone() };
        let v = self.sync.entry(key).or_default();
        if !joins || v.gang != number {
            v.near = Clock::default();
        }
        if !joins {
            v.far = None;
        }
        v.gang = number;
        if let Some(c) = published {
            let mut far = Clock { far: v.far.take(), ..Clock::default() };
            far.join(&c.exported(number));
            v.far = far.far;
            v.near.join(&c);
        }
        if release {
            self.warps[w].clock.tick(w);
        }
    }

    pub(super) fn strong_load(&mut self, w: usize, i: &Inst, m: u32, a: &[u64; LANES]) {
        self.strong(w, i, m, a, false);
    }

    pub(super) fn strong_store(&mut self, w: usize, i: &Inst, m: u32, a: &[u64; LANES]) {
        self.strong(w, i, m, a, true);
    }

    fn strong(&mut self, w: usize, i: &Inst, m: u32, a: &[u64; LANES], write: bool) {
        let mut last = u64::MAX;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            if a[l] == last {
                continue;
            }
            last = a[l];
            let (window, offset) = crate::memory::split_address(a[l]);
            let place = match i.space {
                Space::Shared => Place::Shared(self.warps[w].cta, a[l] as usize & 0xff_ffff),
                Space::Global | Space::Generic => match self.cx.buffer(window) {
                    Some((k, _)) => Place::Global(k, offset.max(0) as usize),
                    None if window == crate::memory::SHARED_WINDOW => {
                        Place::Shared(self.warps[w].cta, offset as usize & 0xff_ffff)
                    }
                    None => continue,
                },
                _ => continue,
            };
            let Some(key) = self.location(place) else { continue };
            let together = (0..LANES).filter(|k| m >> k & 1 == 1 && a[*k] == a[l]).fold(0, |t, k| t | 1 << k);
            if write {
                self.write_sync(w, key, i.has(flag::RELEASE), false, together);
            } else {
                self.read_sync(w, key, i.has(flag::ACQUIRE), together);
            }
        }
    }

    /// A memory fence: earlier relaxed reads acquire, later relaxed writes release.
    pub(super) fn fence(&mut self, w: usize, m: u32) {
        if !CHECK {
            return;
        }
        if let Some(p) = self.warps[w].pending.take() {
            self.acquire(w, m, &p);
        }
        let released = self.released(w, m);
        let warp = &mut self.warps[w];
        warp.released.get_or_insert_with(Clock::default).join(&released);
        warp.clock.tick(w);
    }
}
