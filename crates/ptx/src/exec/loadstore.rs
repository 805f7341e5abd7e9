//! Loads and stores of a warp.

use super::access::{By, How, Place};
use super::gang::{Gang, Run};
use super::inst::{Inst, NONE, Space, flag};
use super::regs::{LANES, put32, put64};
use crate::check::FindingKind;
use crate::memory::{Access, WINDOW_BASE, WINDOW_BITS};

/// All active lanes in one memory, in bounds and aligned: no lane needs looking at alone.
#[derive(Clone, Copy, Debug)]
enum Uniform {
    Global(usize),
    Shared(usize),
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    /// Recognises the common case; `None` sends the access lane by lane, which also reports what is wrong.
    #[inline]
    fn uniform(&self, w: usize, i: &Inst, m: u32, a: &[u64; LANES], bytes: usize, write: bool) -> Option<Uniform> {
        let first = a[m.trailing_zeros() as usize & 31];
        let (mut low, mut high, mut bits) = (u64::MAX, 0, 0);
        for (l, &x) in a.iter().enumerate() {
            let on = m >> l & 1 == 1;
            let x = if on { x } else { first };
            low = low.min(x);
            high = high.max(x);
            bits |= x;
        }
        if bits & (bytes as u64 - 1) != 0 || !bytes.is_power_of_two() {
            return None;
        }
        if i.space == Space::Shared {
            return (high + bytes as u64 <= self.cx.shared_bytes as u64).then_some(Uniform::Shared(self.warps[w].cta));
        }
        if !matches!(i.space, Space::Generic | Space::Global | Space::Const) {
            return None;
        }
        let window = first >> WINDOW_BITS;
        let base = window << WINDOW_BITS | WINDOW_BASE;
        let (k, buffer) = self.cx.buffer(window)?;
        let fits = low >= base && high - base + bytes as u64 <= buffer.len as u64;
        (fits && !(write && buffer.access == Access::In)).then_some(Uniform::Global(k))
    }

    pub(super) fn load_param(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let size = usize::from(i.size);
        for (k, &reg) in self.cx.prog.pool[i.ext as usize..][..usize::from(i.ext_len)].iter().enumerate() {
            let at = i.imm + (k * size) as i64;
            let end = at.saturating_add(size as i64);
            if at < 0 || end > self.cx.params.len() as i64 {
                let len = self.cx.params.len();
                return self.fault(w, pc, 0, FindingKind::OutOfBounds, || {
                    format!("parameters: offset {at} size {size} of {len} bytes")
                });
            }
            let mut raw = [0; 8];
            raw[..size].copy_from_slice(&self.cx.params[at as usize..end as usize]);
            let v = widen(u64::from_le_bytes(raw), i);
            self.put(w, i, reg, m, &[v; LANES]);
        }
        Ok(())
    }

    /// Writes loaded values to a register of either bank.
    #[inline]
    fn put(&mut self, w: usize, i: &Inst, reg: u32, m: u32, v: &[u64; LANES]) {
        if reg == NONE {
            return;
        }
        let regs = &mut self.warps[w].regs;
        if i.wide.ext {
            put64(&mut regs.d[reg as usize].0, m, v);
        } else {
            let mut t = [0; LANES];
            for l in 0..LANES {
                t[l] = v[l] as u32;
            }
            put32(&mut regs.r[reg as usize].0, m, &t);
        }
    }

    pub(super) fn load(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let size = usize::from(i.size);
        let count = usize::from(i.count);
        let bytes = size * count;
        let a = self.addresses(w, i.a, i.wide.a, i.imm);
        let how = How { atomic: i.has(flag::STRONG), ..How::default() };
        let kind = self.uniform(w, i, m, &a, bytes, false);
        if let Some(u) = kind {
            if COUNT {
                self.account(pc, i.space, m, &a, bytes, false, u.is_global());
            }
            if CHECK {
                self.check_uniform(w, pc, m, &a, bytes, how, u);
            }
            if CHECK && how.atomic {
                self.strong_load(w, i, m, &a);
            }
            let prog = self.cx.prog;
            for k in 0..count {
                let reg = prog.pool[i.ext as usize + k];
                let shift = (k * size) as u64;
                match u {
                    Uniform::Global(b) if size <= 4 && !i.wide.ext => {
                        let buffer = self.cx.buffer_at(b);
                        let mut t = [0u32; LANES];
                        for l in 0..LANES {
                            if m >> l & 1 == 1 {
                                t[l] = buffer.load(offset_of(a[l] + shift), size);
                            }
                        }
                        self.put_words(w, i, reg, m, t);
                    }
                    Uniform::Global(b) => {
                        let buffer = self.cx.buffer_at(b);
                        let mut t = [0u64; LANES];
                        for l in 0..LANES {
                            if m >> l & 1 == 1 {
                                let o = offset_of(a[l] + shift);
                                t[l] = if size == 8 {
                                    u64::from(buffer.load(o, 4)) | u64::from(buffer.load(o + 4, 4)) << 32
                                } else {
                                    widen(u64::from(buffer.load(o, size)), i)
                                };
                            }
                        }
                        self.put(w, i, reg, m, &t);
                    }
                    Uniform::Shared(c) if size == 4 && !i.wide.ext => {
                        let s = &self.ctas[c].shared;
                        let mut t = [0u32; LANES];
                        for l in 0..LANES {
                            if m >> l & 1 == 1 {
                                let o = (a[l] + shift) as usize;
                                t[l] = u32::from_le_bytes([s[o], s[o + 1], s[o + 2], s[o + 3]]);
                            }
                        }
                        self.put_words(w, i, reg, m, t);
                    }
                    Uniform::Shared(c) => {
                        let s = &self.ctas[c].shared;
                        let mut t = [0u64; LANES];
                        for l in 0..LANES {
                            if m >> l & 1 == 1 {
                                let o = (a[l] + shift) as usize;
                                let mut raw = [0; 8];
                                raw[..size].copy_from_slice(&s[o..o + size]);
                                t[l] = widen(u64::from_le_bytes(raw), i);
                            }
                        }
                        self.put(w, i, reg, m, &t);
                    }
                }
            }
            return Ok(());
        }
        let mut out = [[0u64; LANES]; 8];
        let mut mixed = 0;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let place = self.resolve(by, i.space, a[l], bytes, bytes, false)?;
            mixed |= u32::from(matches!(place, Place::Global(..))) << l;
            if CHECK {
                self.check(by, place, bytes, how);
            }
            let mut raw = [0u8; 32];
            self.read_place(by, place, &mut raw[..bytes]);
            for (k, row) in out.iter_mut().enumerate().take(count) {
                let mut v = [0; 8];
                v[..size].copy_from_slice(&raw[k * size..(k + 1) * size]);
                row[l] = widen(u64::from_le_bytes(v), i);
            }
        }
        if COUNT && mixed != 0 {
            self.account(pc, Space::Generic, mixed, &a, bytes, false, true);
        }
        if CHECK && how.atomic {
            self.strong_load(w, i, m, &a);
        }
        for (k, row) in out.iter().enumerate().take(count) {
            let reg = self.cx.prog.pool[i.ext as usize + k];
            self.put(w, i, reg, m, row);
        }
        Ok(())
    }

    #[inline]
    fn put_words(&mut self, w: usize, i: &Inst, reg: u32, m: u32, mut t: [u32; LANES]) {
        if reg == NONE {
            return;
        }
        if i.has(flag::SIGNED) && i.size < 4 {
            let up = 32 - 8 * u32::from(i.size);
            for v in &mut t {
                *v = ((*v << up) as i32 >> up) as u32;
            }
        }
        put32(&mut self.warps[w].regs.r[reg as usize].0, m, &t);
    }

    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn check_uniform(&mut self, w: usize, pc: u32, m: u32, a: &[u64; LANES], n: usize, how: How, u: Uniform) {
        if let Uniform::Global(k) = u
            && self.cx.buffer_at(k).access == Access::In
        {
            return;
        }
        // Lanes at the same bytes are checked together.
        let mut left = m;
        let mut distinct = true;
        let mut last = None;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            distinct &= last.is_none_or(|x| x < a[l]);
            last = Some(a[l]);
        }
        while left != 0 {
            let l = left.trailing_zeros() as usize;
            let lanes =
                if distinct { 1 << l } else { (0..LANES).fold(0, |t, k| t | u32::from(a[k] == a[l]) << k) & left };
            left &= !lanes;
            let by = By { w, pc, lane: l };
            let how = How { lanes, ..how };
            match u {
                Uniform::Global(k) => self.check(by, Place::Global(k, offset_of(a[l])), n, how),
                Uniform::Shared(c) => self.check_shared(by, c, a[l] as usize, n, how),
            }
        }
    }

    pub(super) fn store(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        self.events += 1;
        let size = usize::from(i.size);
        let count = usize::from(i.count);
        let bytes = size * count;
        let a = self.addresses(w, i.a, i.wide.a, i.imm);
        let how = How { write: true, atomic: i.has(flag::STRONG), ..How::default() };
        let pool = &self.cx.prog.pool[i.ext as usize..][..count];
        if CHECK && how.atomic {
            self.strong_store(w, i, m, &a);
        }
        if let Some(u) = self.uniform(w, i, m, &a, bytes, true) {
            if COUNT {
                self.account(pc, i.space, m, &a, bytes, true, u.is_global());
            }
            if CHECK {
                self.check_uniform(w, pc, m, &a, bytes, how, u);
                self.check_lanes(w, pc, i, m, &a, bytes);
            }
            for (k, &reg) in pool.iter().enumerate() {
                let shift = (k * size) as u64;
                let value = |g: &Self, l: usize| -> u64 {
                    if i.wide.ext {
                        g.warps[w].regs.d[reg as usize].0[l]
                    } else {
                        u64::from(g.warps[w].regs.r[reg as usize].0[l])
                    }
                };
                match u {
                    Uniform::Global(b) => {
                        let buffer = self.cx.buffer_at(b);
                        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
                            let (o, v) = (offset_of(a[l] + shift), value(self, l));
                            buffer.store(o, size.min(4), v as u32);
                            if size == 8 {
                                buffer.store(o + 4, 4, (v >> 32) as u32);
                            }
                        }
                    }
                    Uniform::Shared(c) => {
                        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
                            let v = value(self, l).to_le_bytes();
                            let o = (a[l] + shift) as usize;
                            self.ctas[c].shared[o..o + size].copy_from_slice(&v[..size]);
                        }
                    }
                }
            }
            return Ok(());
        }
        let mut mixed = 0;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let place = self.resolve(by, i.space, a[l], bytes, bytes, true)?;
            mixed |= u32::from(matches!(place, Place::Global(..))) << l;
            if CHECK {
                self.check(by, place, bytes, how);
            }
            let mut raw = [0u8; 32];
            for (k, &reg) in pool.iter().enumerate() {
                let regs = &self.warps[w].regs;
                let v = if i.wide.ext { regs.d[reg as usize].0[l] } else { u64::from(regs.r[reg as usize].0[l]) };
                raw[k * size..(k + 1) * size].copy_from_slice(&v.to_le_bytes()[..size]);
            }
            self.write_place(by, place, &raw[..bytes]);
        }
        if COUNT && mixed != 0 {
            self.account(pc, Space::Generic, mixed, &a, bytes, true, true);
        }
        Ok(())
    }

    /// Lanes of one store that write different values to the same bytes.
    fn check_lanes(&mut self, w: usize, pc: u32, i: &Inst, m: u32, a: &[u64; LANES], bytes: usize) {
        let mut order: [(u64, u8); LANES] = [(0, 0); LANES];
        let mut n = 0;
        let mut sorted = true;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            sorted &= n == 0 || order[n - 1].0 + bytes as u64 <= a[l];
            order[n] = (a[l], l as u8);
            n += 1;
        }
        if sorted {
            return;
        }
        order[..n].sort_unstable();
        for pair in order[..n].windows(2) {
            let ((a0, l0), (a1, l1)) = (pair[0], pair[1]);
            let same = a0 == a1
                && self.cx.prog.pool[i.ext as usize..][..usize::from(i.count)].iter().all(|&r| {
                    let regs = &self.warps[w].regs;
                    let get = |l: u8| {
                        let l = usize::from(l);
                        if i.wide.ext { regs.d[r as usize].0[l] } else { u64::from(regs.r[r as usize].0[l]) }
                    };
                    get(l0) == get(l1)
                });
            if a1 < a0 + bytes as u64 && !same {
                self.report(w, pc, usize::from(l1), FindingKind::LaneConflict, || {
                    format!("lanes {l0} and {l1} write different values to the same bytes")
                });
                return;
            }
        }
    }
}

impl Uniform {
    fn is_global(self) -> bool {
        matches!(self, Self::Global(_))
    }
}

/// Offset in the buffer of an address known to be inside its window.
#[inline(always)]
fn offset_of(address: u64) -> usize {
    (address & (WINDOW_BASE - 1)) as usize
}

/// Extends a loaded value to 64 bits by the type of the load.
#[inline(always)]
fn widen(v: u64, i: &Inst) -> u64 {
    if i.has(flag::SIGNED) && i.size < 8 {
        let up = 64 - 8 * u32::from(i.size);
        ((v << up) as i64 >> up) as u64
    } else {
        v
    }
}
