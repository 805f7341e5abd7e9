//! mbarriers: arrival counts, transaction bytes and phases.

use super::access::{By, How, Place};
use super::atomic::{combine, type_of};
use super::bulk::reduce_bytes;
use super::gang::{Gang, Run, Stop};
use super::inst::{Inst, NONE, Op, Space, flag};
use super::regs::{LANES, put32};
use crate::check::FindingKind;
use crate::check::clock::Clock;

/// Largest count of an mbarrier.
const MAX_COUNT: u32 = (1 << 20) - 1;

/// State of one mbarrier.
#[derive(Default)]
pub(crate) struct Mbar {
    expected: i64,
    pending: i64,
    tx: i64,
    phase: u64,
    /// Clock of the current phase's arrivals and copies, and of the last completed phase.
    clock: Clock,
    last: Clock,
    /// Clock thread of the copies it tracks, and its value.
    carrier: Option<(usize, u32)>,
    /// Initialising warp, its clock value and place, and the lane.
    init: (usize, u32, u32, u32),
}

impl Mbar {
    pub(crate) fn describe(&self, offset: u32) -> String {
        format!(
            "the mbarrier at shared offset {offset} (phase {}, {} of {} arrivals and {} bytes outstanding)",
            self.phase, self.pending, self.expected, self.tx
        )
    }
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    /// Shared offset that an mbarrier instruction names in lane 0's registers; for messages.
    pub(super) fn mbar_offset(&self, w: usize, i: &Inst) -> u32 {
        if i.a == NONE {
            return 0;
        }
        let lane = self.warps[w].groups.first().map_or(0, |g| g.mask.trailing_zeros() as usize & 31);
        (u64::from(self.warps[w].regs.word(i.a, i.wide.a, lane)).wrapping_add(i.imm as u64) & 0xff_ffff) as u32
    }

    /// The block and offset of an mbarrier address.
    pub(super) fn mbar_at(&mut self, by: By, space: Space, address: u64) -> Run<(usize, u32)> {
        match self.resolve(by, space, address, 8, 8, true)? {
            Place::Shared(cta, o) => Ok((cta, o as u32)),
            _ => self.fault(by.w, by.pc, by.lane, FindingKind::MbarrierMisuse, || {
                "an mbarrier must be in shared memory".into()
            }),
        }
    }

    fn mbar(&mut self, by: By, cta: usize, at: u32) -> Run<&mut Mbar> {
        if !self.ctas[cta].mbars.contains_key(&at) {
            return self.fault(by.w, by.pc, by.lane, FindingKind::MbarrierMisuse, || {
                format!("no mbarrier was initialised at shared offset {at}")
            });
        }
        if CHECK && self.cx.options.races {
            let init = self.ctas[cta].mbars[&at].init;
            let warp = &self.warps[by.w];
            let known = if init.0 == by.w {
                warp.order.knows(by.lane as u32, init.3, init.1)
            } else {
                warp.clock.get(init.0).max(warp.clock.lane(init.0, init.3)) >= init.1
            };
            if !known {
                self.report_pair(by.w, by.pc, by.lane, FindingKind::SharedRace, Some(init.2), || {
                    format!("the mbarrier at shared offset {at} is used without waiting for its initialisation")
                });
            }
        }
        self.ctas[cta].mbars.get_mut(&at).ok_or(Stop)
    }

    pub(super) fn mbar_init(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let a = self.addresses(w, i.a, i.wide.a, i.imm);
        self.events += 1;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let (cta, at) = self.mbar_at(by, i.space, a[l])?;
            if i.op == Op::MbarInval {
                self.mbar(by, cta, at)?;
                self.ctas[cta].mbars.remove(&at);
                continue;
            }
            let count = self.warps[w].regs.r[i.b as usize].0[l];
            if count == 0 || count > MAX_COUNT {
                return self.fault(w, pc, l, FindingKind::MbarrierMisuse, || {
                    format!("mbarrier count {count} is not in 1..={MAX_COUNT}")
                });
            }
            if CHECK {
                let how = How { write: true, ..How::default() };
                self.check_shared(by, cta, at as usize, 8, how);
            }
            let init = (w, self.warps[w].clock.get(w), pc, l as u32);
            let n = i64::from(count);
            self.ctas[cta].mbars.insert(at, Mbar { expected: n, pending: n, init, ..Mbar::default() });
        }
        if CHECK {
            self.warps[w].clock.tick(w);
        }
        Ok(())
    }

    pub(super) fn mbar_raise(&mut self, cta: usize, at: u32) {
        if let Some(b) = self.ctas[cta].mbars.get_mut(&at) {
            b.pending += 1;
        }
    }

    /// One arrival of `count`, with expected bytes; returns the state token of the phase.
    pub(super) fn mbar_arrive_one(&mut self, by: By, cta: usize, at: u32, count: i64, tx: Option<i64>) -> Run<u64> {
        self.mbar_arrive_as(by, (cta, at), count, tx, 0)
    }

    /// An arrival with the flags of its instruction: it may lower the count of later phases, or have to leave this one
    /// incomplete.
    fn mbar_arrive_as(&mut self, by: By, (cta, at): (usize, u32), count: i64, tx: Option<i64>, flags: u16) -> Run<u64> {
        let clock = if CHECK { Some(self.released(by.w, 1 << by.lane)) } else { None };
        let b = self.mbar(by, cta, at)?;
        let token = b.phase << 32 | (b.pending as u64 & 0xffff_ffff);
        b.tx += tx.unwrap_or(0);
        b.pending -= count;
        if flags & flag::DROP != 0 {
            b.expected -= count;
        }
        if let Some(c) = clock {
            b.clock.join(&c);
        }
        let (pending, expected) = (b.pending, b.expected);
        if pending < 0 || expected < 0 {
            return self.fault(by.w, by.pc, by.lane, FindingKind::MbarrierMisuse, || {
                format!("more arrivals than the count of the mbarrier at shared offset {at}")
            });
        }
        if flags & flag::NOCOMPLETE != 0 && pending == 0 {
            return self.fault(by.w, by.pc, by.lane, FindingKind::MbarrierMisuse, || {
                format!("a .noComplete arrival is the last of the mbarrier at shared offset {at}")
            });
        }
        self.events += 1;
        self.mbar_complete(by, cta, at)?;
        if CHECK {
            self.warps[by.w].clock.tick(by.w);
        }
        Ok(token)
    }

    fn mbar_complete(&mut self, by: By, cta: usize, at: u32) -> Run {
        let b = self.mbar(by, cta, at)?;
        if b.pending > 0 || b.tx > 0 {
            return Ok(());
        }
        if b.tx < 0 {
            let over = -b.tx;
            return self.fault(by.w, by.pc, by.lane, FindingKind::TxCount, || {
                format!("copies complete {over} bytes more than the mbarrier at shared offset {at} expects")
            });
        }
        b.phase += 1;
        b.pending = b.expected;
        b.last = std::mem::take(&mut b.clock);
        if let Some((thread, value)) = &mut b.carrier {
            crate::check::clock::join(&mut b.last.seen, &sparse(*thread, *value));
            *value += 1;
        }
        self.events += 1;
        if COUNT {
            self.tally.phases += 1;
        }
        Ok(())
    }

    /// Clock thread and value of the copies an mbarrier tracks in its current phase.
    pub(super) fn mbar_carrier(&mut self, by: By, cta: usize, at: u32) -> Run<(usize, u32)> {
        let next = self.threads;
        let b = self.mbar(by, cta, at)?;
        if let Some(a) = b.carrier {
            return Ok(a);
        }
        b.carrier = Some((next, 1));
        self.threads += 1;
        Ok((next, 1))
    }

    /// Bytes of a copy have landed. What the issuing warp knew comes before what waiters do after.
    pub(super) fn mbar_complete_tx(&mut self, by: By, cta: usize, at: u32, bytes: i64) -> Run {
        let clock = if CHECK { Some(self.released(by.w, 1 << by.lane)) } else { None };
        let b = self.mbar(by, cta, at)?;
        b.tx -= bytes;
        if let Some(c) = clock {
            b.clock.join(&c);
        }
        self.events += 1;
        self.mbar_complete(by, cta, at)?;
        if CHECK {
            self.warps[by.w].clock.tick(by.w);
        }
        Ok(())
    }

    pub(super) fn mbar_arrive(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let a = self.addresses(w, i.a, i.wide.a, i.imm);
        let mut tokens = [0u64; LANES];
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let (cta, at) = self.mbar_at(by, i.space, a[l])?;
            let v = if i.b == NONE { 1 } else { i64::from(self.warps[w].regs.r[i.b as usize].0[l]) };
            match (i.op, i.sel) {
                (Op::MbarArrive, 0) => tokens[l] = self.mbar_arrive_as(by, (cta, at), v, None, i.flags)?,
                (Op::MbarArrive, _) => tokens[l] = self.mbar_arrive_as(by, (cta, at), 1, Some(v), i.flags)?,
                (Op::MbarExpect, _) => {
                    self.mbar(by, cta, at)?.tx += v;
                    self.events += 1;
                }
                _ => self.mbar_complete_tx(by, cta, at, v)?,
            }
        }
        if i.d != NONE {
            super::regs::put64(&mut self.warps[w].regs.d[i.d as usize].0, m, &tokens);
        }
        Ok(())
    }

    /// `test_wait` and `try_wait`: true in the lanes whose phase has completed. Returns whether that is all.
    pub(super) fn mbar_wait(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run<bool> {
        let a = self.addresses(w, i.a, i.wide.a, i.imm);
        let mut done = 0;
        let mut last = None;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let regs = &self.warps[w].regs;
            let token = if i.wide.b { regs.d[i.b as usize].0[l] } else { u64::from(regs.r[i.b as usize].0[l]) };
            let key = (a[l], token);
            if let Some((k, ok, _)) = last
                && k == key
            {
                done |= u32::from(ok) << l;
                continue;
            }
            let (cta, at) = self.mbar_at(by, i.space, a[l])?;
            let b = self.mbar(by, cta, at)?;
            let ok = if i.has(flag::PARITY) { b.phase & 1 != token & 1 } else { b.phase > token >> 32 };
            done |= u32::from(ok) << l;
            last = Some((key, ok, at));
            if CHECK && ok && !i.has(flag::STRONG) {
                let clock = self.ctas[cta].mbars[&at].last.clone();
                let together = (0..LANES).filter(|k| m >> k & 1 == 1 && a[*k] == a[l]).fold(0, |t, k| t | 1 << k);
                self.acquire(w, together, &clock);
            }
        }
        if i.d != NONE {
            let p = &mut self.warps[w].regs.p[i.d as usize];
            *p = *p & !m | done & m;
        }
        Ok(done == m)
    }

    pub(super) fn mbar_pending(&mut self, w: usize, i: &Inst, m: u32) {
        let row = self.warps[w].regs.d[i.a as usize].0;
        put32(&mut self.warps[w].regs.r[i.d as usize].0, m, &row.map(|v| v as u32));
    }

    /// `st.async` and `red.async`: stores that complete bytes on an mbarrier of the same block.
    pub(super) fn store_async(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let (size, count) = (usize::from(i.size), usize::from(i.count));
        let to = self.addresses(w, i.a, i.wide.a, i.imm);
        let bar = self.addresses(w, i.c, i.wide.c, i.imm2);
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let bytes = size * count;
            let place = self.resolve(by, Space::Shared, to[l], bytes, bytes, true)?;
            let (cta, at) = self.mbar_at(by, Space::Shared, bar[l])?;
            if !matches!(place, Place::Shared(c, _) if c == cta) {
                return self.fault(w, pc, l, FindingKind::MbarrierMisuse, || {
                    "the destination and its mbarrier are in different blocks".into()
                });
            }
            let mut raw = [0u8; 32];
            for k in 0..count {
                let reg = self.cx.prog.pool[i.ext as usize + k];
                let regs = &self.warps[w].regs;
                let v = if i.wide.ext { regs.d[reg as usize].0[l] } else { u64::from(regs.r[reg as usize].0[l]) };
                raw[k * size..(k + 1) * size].copy_from_slice(&v.to_le_bytes()[..size]);
            }
            if CHECK {
                let carrier = self.mbar_carrier(by, cta, at)?;
                let atomic = i.op == Op::RedAsync;
                if atomic {
                    self.check(by, place, bytes, How { atomic, carrier: Some(carrier), ..How::default() });
                }
                self.check(by, place, bytes, How { write: true, atomic, carrier: Some(carrier), ..How::default() });
            }
            if i.op == Op::RedAsync {
                let ty = type_of(i64::from(i.target));
                let mut old = vec![0; bytes];
                self.read_place(by, place, &mut old);
                reduce_bytes(|o, v| combine(i.sel, ty, o, v, 0), ty, &old, &mut raw[..bytes]);
            }
            self.write_place(by, place, &raw[..bytes]);
            self.mbar_complete_tx(by, cta, at, bytes as i64)?;
        }
        Ok(())
    }
}

/// A clock in which only one thread is known.
fn sparse(thread: usize, value: u32) -> Vec<u32> {
    let mut v = vec![0; thread + 1];
    v[thread] = value;
    v
}
