//! `cp.async`: per-lane copies that land when a wait says so.
//!
//! The source is read at once; the bytes stay out of shared memory until the lane waits for their group, so a missing
//! wait shows in results as well as in findings.

use super::access::{By, How, Place};
use super::gang::{Gang, Run};
use super::inst::{Inst, NONE, Space, flag};
use super::regs::LANES;
use crate::check::FindingKind;
use crate::exec::access::byte_mask;

/// One copy of one lane.
#[derive(Clone, Copy)]
struct Copy {
    lane: u8,
    size: u8,
    group: u32,
    cta: u32,
    offset: u32,
    pc: u32,
    data: [u8; 16],
}

/// Copies of a warp not yet landed.
#[derive(Default)]
pub(crate) struct CopyState {
    pending: Vec<Copy>,
    /// Number of the open group of each lane.
    group: [u32; LANES],
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    pub(super) fn cp_async(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let size = usize::from(i.size);
        let to = self.addresses(w, i.a, i.wide.a, i.imm);
        let from = self.addresses(w, i.b, i.wide.b, i.imm2);
        let ignored =
            if i.e == NONE { 0 } else { self.warps[w].regs.p[i.e as usize] ^ if i.has(flag::NEG) { !0 } else { 0 } };
        let mut reading = 0;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let wanted = if i.c == NONE { size } else { self.warps[w].regs.r[i.c as usize].0[l] as usize };
            let wanted = if ignored >> l & 1 == 1 { 0 } else { wanted };
            if wanted > size {
                return self.fault(w, pc, l, FindingKind::OutOfBounds, || {
                    format!("source size {wanted} exceeds the copy size {size}")
                });
            }
            let Place::Shared(cta, offset) = self.resolve(by, Space::Shared, to[l], size, size, true)? else {
                return Err(super::gang::Stop);
            };
            let mut data = [0; 16];
            if wanted > 0 {
                let place = self.resolve(by, Space::Global, from[l], wanted, size, false)?;
                if CHECK {
                    self.check(by, place, wanted, How::default());
                }
                self.read_place(by, place, &mut data[..wanted]);
                reading |= 1 << l;
            }
            if CHECK {
                // Readers so far must be done; the write itself is recorded when it lands.
                self.check_shared(by, cta, offset, size, How { write: true, ..How::default() });
                for word in offset / 4..(offset + size).div_ceil(4) {
                    let s = &mut self.ctas[cta].written[word];
                    *s |= byte_mask(word, offset, size) << 4;
                }
            }
            let warp = &mut self.warps[w];
            let group = warp.copies.group[l];
            warp.copies.pending.push(Copy {
                lane: l as u8,
                size: i.size,
                group,
                cta: cta as u32,
                offset: offset as u32,
                pc,
                data,
            });
        }
        if COUNT {
            if reading != 0 {
                self.account(pc, Space::Global, reading, &from, size, false, true);
            }
            self.account(pc, Space::Shared, m, &to, size, true, false);
        }
        Ok(())
    }

    pub(super) fn cp_commit(&mut self, w: usize, m: u32) {
        for (l, g) in self.warps[w].copies.group.iter_mut().enumerate() {
            *g += m >> l & 1;
        }
    }

    /// Lands the groups of each lane older than its `imm` newest; all copies when negative.
    pub(super) fn cp_wait(&mut self, w: usize, i: &Inst, m: u32) {
        let group = self.warps[w].copies.group;
        let keep = i.imm;
        self.land(w, |c| {
            let l = usize::from(c.lane);
            m >> l & 1 == 1 && (keep < 0 || i64::from(c.group) < i64::from(group[l]) - keep)
        });
    }

    fn land(&mut self, w: usize, due: impl Fn(&Copy) -> bool) {
        if !self.warps[w].copies.pending.iter().any(&due) {
            return;
        }
        let pending = std::mem::take(&mut self.warps[w].copies.pending);
        let (landed, rest): (Vec<_>, Vec<_>) = pending.into_iter().partition(due);
        self.warps[w].copies.pending = rest;
        self.events += u64::from(!landed.is_empty());
        for c in landed {
            let (cta, offset, size) = (c.cta as usize, c.offset as usize, usize::from(c.size));
            self.ctas[cta].shared[offset..offset + size].copy_from_slice(&c.data[..size]);
            if CHECK {
                for word in offset / 4..(offset + size).div_ceil(4) {
                    self.ctas[cta].written[word] &= !(byte_mask(word, offset, size) << 4);
                }
                let by = By { w, pc: c.pc, lane: usize::from(c.lane) };
                self.check_shared(by, cta, offset, size, How { write: true, ..How::default() });
            }
        }
    }

    /// `cp.async.mbarrier.arrive`: arrives when the lane's copies have landed.
    pub(super) fn cp_mbar_arrive(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        self.land(w, |c| m >> c.lane & 1 == 1);
        let a = self.addresses(w, i.a, i.wide.a, i.imm);
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let (cta, at) = self.mbar_at(by, i.space, a[l])?;
            // Without `.noinc` the pending count is raised first, so that the arrival does not count against it.
            if !i.has(flag::NOINC) {
                self.mbar_raise(cta, at);
            }
            self.mbar_arrive_one(by, cta, at, 1, None)?;
        }
        Ok(())
    }
}
