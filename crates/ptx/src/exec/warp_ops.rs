//! Shuffles, votes and reductions between lanes.

use super::gang::Gang;
use super::inst::{Inst, NONE, flag};
use super::regs::{LANES, put32};
use crate::check::FindingKind;

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    fn put_predicate(&mut self, w: usize, id: u32, m: u32, t: u32) {
        if id != NONE {
            let p = &mut self.warps[w].regs.p[id as usize];
            *p = *p & !m | t & m;
        }
    }

    pub(super) fn shuffle(&mut self, w: usize, pc: u32, i: &Inst, m: u32) {
        let regs = &mut self.warps[w].regs;
        let (src, lane, clamp) = (regs.r[i.a as usize].0, regs.r[i.b as usize].0, regs.r[i.c as usize].0);
        let (mut out, mut valid, mut inactive) = ([0; LANES], 0u32, 0u32);
        for l in 0..LANES as u32 {
            let (b, c) = (lane[l as usize] & 31, clamp[l as usize] & 31);
            let segment = clamp[l as usize] >> 8 & 31;
            let (min, max) = (l & segment, l & segment | c & !segment);
            let (j, ok) = match i.sel {
                0 => (l.wrapping_sub(b), l as i32 - b as i32 >= max as i32),
                1 => (l + b, l + b <= max),
                2 => (l ^ b, l ^ b <= max),
                _ => (min | b & !segment, min | b & !segment <= max),
            };
            let j = if ok { j & 31 } else { l };
            inactive |= u32::from(m >> j & 1 == 0) << l;
            out[l as usize] = src[j as usize];
            valid |= u32::from(ok) << l;
        }
        put32(&mut regs.r[i.d as usize].0, m, &out);
        self.put_predicate(w, i.d2, m, valid);
        if inactive & m != 0 {
            let l = (inactive & m).trailing_zeros() as usize;
            self.report(w, pc, l, FindingKind::InactiveLane, || {
                format!("lane {l} shuffles from a lane outside the active lanes {m:#x}: its value is undefined")
            });
        }
    }

    pub(super) fn vote(&mut self, w: usize, i: &Inst, m: u32) {
        let p = (self.warps[w].regs.p[i.a as usize] ^ if i.has(flag::NEG) { !0 } else { 0 }) & m;
        match i.sel {
            3 => put32(&mut self.warps[w].regs.r[i.d as usize].0, m, &[p; LANES]),
            k => {
                let on = match k {
                    0 => p == m,
                    1 => p != 0,
                    _ => p == m || p == 0,
                };
                self.put_predicate(w, i.d, m, if on { !0 } else { 0 });
            }
        }
    }

    pub(super) fn match_lanes(&mut self, w: usize, i: &Inst, m: u32) {
        let regs = &self.warps[w].regs;
        let v: [u64; LANES] = std::array::from_fn(|l| {
            if i.wide.a { regs.d[i.a as usize].0[l] } else { u64::from(regs.r[i.a as usize].0[l]) }
        });
        let same = |l: usize| (0..LANES).filter(|&j| m >> j & 1 == 1 && v[j] == v[l]).fold(0, |a, j| a | 1u32 << j);
        let first = m.trailing_zeros() as usize & 31;
        if i.sel == 1 {
            let all = same(first) == m;
            put32(&mut self.warps[w].regs.r[i.d as usize].0, m, &[if all { m } else { 0 }; LANES]);
            self.put_predicate(w, i.d2, m, if all { !0 } else { 0 });
        } else {
            let out = std::array::from_fn(|l| if m >> l & 1 == 1 { same(l) } else { 0 });
            put32(&mut self.warps[w].regs.r[i.d as usize].0, m, &out);
        }
    }

    pub(super) fn redux(&mut self, w: usize, i: &Inst, m: u32) {
        let row = self.warps[w].regs.r[i.a as usize].0;
        let values = (0..LANES).filter(|l| m >> l & 1 == 1).map(|l| row[l]);
        let signed = i.has(flag::SIGNED);
        let pick = |a: u32, b: u32, max: bool| {
            let less = if signed { (a as i32) < b as i32 } else { a < b };
            if less != max { a } else { b }
        };
        let v = values.reduce(|a, b| match i.sel {
            0 => a.wrapping_add(b),
            1 => pick(a, b, false),
            2 => pick(a, b, true),
            3 => a & b,
            4 => a | b,
            _ => a ^ b,
        });
        put32(&mut self.warps[w].regs.r[i.d as usize].0, m, &[v.unwrap_or(0); LANES]);
    }

    pub(super) fn elect(&mut self, w: usize, i: &Inst, m: u32) {
        let leader = m.trailing_zeros();
        put32(&mut self.warps[w].regs.r[i.d as usize].0, m, &[leader; LANES]);
        self.put_predicate(w, i.d2, m, 1u32.checked_shl(leader).unwrap_or(0));
    }
}
