//! Bulk copies without a tensor map, and the groups of bulk and tensor stores.

use super::access::{By, How, Place};
use super::atomic::{combine_global, type_of};
use super::gang::{Gang, Run, Stop};
use super::inst::{Inst, Op, Space, flag};
use super::regs::LANES;
use crate::check::FindingKind;

/// Stores of one warp through the asynchronous proxy.
#[derive(Default)]
pub(crate) struct BulkState {
    /// Clock threads of the reads of shared memory and of the writes to global memory.
    carriers: Option<(usize, usize)>,
    /// Number of the last store, and of the last committed group.
    issued: u32,
    groups: Vec<u32>,
    committed: u32,
    /// Stores whose reads are known to be done.
    read: u32,
    /// Place of the last store.
    pc: u32,
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    /// Starts a store and returns the carriers and clock of its reads and writes.
    pub(super) fn bulk_begin(&mut self, w: usize, pc: u32) -> ((usize, u32), (usize, u32)) {
        let next = self.threads;
        let s = &mut self.warps[w].bulk;
        let (r, wr) = match s.carriers {
            Some(a) => a,
            None => {
                s.carriers = Some((next, next + 1));
                self.threads += 2;
                (next, next + 1)
            }
        };
        let s = &mut self.warps[w].bulk;
        s.issued += 1;
        s.pc = pc;
        ((r, s.issued), (wr, s.issued))
    }

    pub(super) fn bulk_commit(&mut self, w: usize) {
        let s = &mut self.warps[w].bulk;
        s.groups.push(s.issued);
        s.committed = s.issued;
    }

    pub(super) fn bulk_wait(&mut self, w: usize, _: u32, i: &Inst) -> Run {
        let s = &mut self.warps[w].bulk;
        let done = s.groups.len().saturating_sub(i.imm as usize);
        let Some(k) = done.checked_sub(1) else { return Ok(()) };
        let upto = s.groups[k];
        s.read = s.read.max(upto);
        let carriers = s.carriers;
        if !i.has(flag::READ) {
            s.groups.drain(..done);
        }
        if CHECK && let Some((r, wr)) = carriers {
            let seen = &mut self.warps[w].clock.seen;
            if seen.len() <= wr {
                seen.resize(wr + 1, 0);
            }
            seen[r] = seen[r].max(upto);
            if !i.has(flag::READ) {
                seen[wr] = seen[wr].max(upto);
            }
        }
        Ok(())
    }

    /// A block must not end while a store may still read its shared memory.
    pub(super) fn check_pending_bulk(&mut self, cta: usize) {
        let first = self.ctas[cta].first_warp;
        for w in first..first + self.cx.warps_per_block as usize {
            let s = &self.warps[w].bulk;
            if s.read < s.issued {
                let pc = s.pc;
                self.report(w, pc, 0, FindingKind::InFlight, || {
                    "the block ends without waiting for this store to have read its shared memory".into()
                });
            }
        }
    }

    fn bulk_size(&mut self, by: By, bytes: u32) -> Run<usize> {
        if bytes == 0 || !bytes.is_multiple_of(16) {
            return self.fault(by.w, by.pc, by.lane, FindingKind::Misaligned, || {
                format!("bulk size {bytes} is not a positive multiple of 16")
            });
        }
        Ok(bytes as usize)
    }

    /// Blocks that a multicast mask names, as (block, offset of the same place); the target's own block otherwise.
    pub(super) fn multicast(
        &mut self,
        by: By,
        i: &Inst,
        mask_reg: u32,
        target: (usize, usize),
    ) -> Run<Vec<(usize, usize)>> {
        if !i.has(flag::MULTICAST) {
            return Ok(vec![target]);
        }
        let mask = self.warps[by.w].regs.r[mask_reg as usize].0[by.lane] & 0xffff;
        let base = self.ctas[target.0].cluster_base;
        let n = self.cx.cluster.iter().product::<u32>();
        if mask == 0 || mask >> n != 0 {
            return self.fault(by.w, by.pc, by.lane, FindingKind::OutOfBounds, || {
                format!("multicast mask {mask:#x} for a cluster of {n} blocks")
            });
        }
        Ok((0..n as usize).filter(|r| mask >> r & 1 == 1).map(|r| (base + r, target.1)).collect())
    }

    /// The register that holds the multicast mask: the last of the pool.
    pub(super) fn mask_register(&self, i: &Inst) -> u32 {
        match i.ext_len {
            0 => 0,
            n => self.cx.prog.pool[i.ext as usize + usize::from(n) - 1],
        }
    }

    /// Global or shared to shared, completing bytes on an mbarrier.
    pub(super) fn bulk_load(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let to = self.addresses(w, i.a, i.wide.a, i.imm);
        let from = self.addresses(w, i.b, i.wide.b, i.imm2);
        let bar = self.addresses(w, i.e, i.wide.e, i64::from(i.target as i32));
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let bytes = self.warps[w].regs.r[i.c as usize].0[l];
            let n = self.bulk_size(by, bytes)?;
            let Place::Shared(cta, offset) = self.resolve(by, Space::Shared, to[l], n, 16, true)? else {
                return Err(Stop);
            };
            let source = if i.op == Op::BulkShared { Space::Shared } else { Space::Global };
            let place = self.resolve(by, source, from[l], n, 16, false)?;
            let (bar_cta, bar_at) = self.mbar_at(by, Space::Shared, bar[l])?;
            let mut data = vec![0; n];
            self.read_place(by, place, &mut data);
            if CHECK {
                let how = How { proxy: source == Space::Shared, ..How::default() };
                self.check(by, place, n, how);
            }
            if source == Space::Global {
                self.account_bulk(pc, from[l], n as u64, false);
            }
            for (c, o) in self.multicast(by, i, self.mask_register(i), (cta, offset))? {
                let signal = if i.has(flag::MULTICAST) { c } else { bar_cta };
                self.land_shared(by, c, o, &data, (signal, bar_at))?;
                self.mbar_complete_tx(by, signal, bar_at, n as i64)?;
            }
        }
        Ok(())
    }

    /// Writes bytes of a copy that the mbarrier tracks.
    pub(super) fn land_shared(&mut self, by: By, cta: usize, offset: usize, data: &[u8], bar: (usize, u32)) -> Run {
        if CHECK {
            let carrier = self.mbar_carrier(by, bar.0, bar.1)?;
            let how = How { write: true, proxy: true, carrier: Some(carrier), ..How::default() };
            self.check_shared(by, cta, offset, data.len(), how);
        }
        self.ctas[cta].shared[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    /// Shared to global, or reduced into it, in a bulk group.
    pub(super) fn bulk_store(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let to = self.addresses(w, i.a, i.wide.a, i.imm);
        let from = self.addresses(w, i.b, i.wide.b, i.imm2);
        self.events += 1;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let bytes = self.warps[w].regs.r[i.c as usize].0[l];
            let n = self.bulk_size(by, bytes)?;
            let source = self.resolve(by, Space::Shared, from[l], n, 16, false)?;
            let place = self.resolve(by, Space::Global, to[l], n, 16, true)?;
            let (reads, writes) = self.bulk_begin(w, pc);
            if CHECK {
                self.check(by, source, n, How { proxy: true, carrier: Some(reads), ..How::default() });
                let atomic = i.op == Op::BulkReduce;
                self.check(by, place, n, How { write: true, atomic, carrier: Some(writes), ..How::default() });
            }
            let mut data = vec![0; n];
            self.read_place(by, source, &mut data);
            if i.op == Op::BulkReduce {
                let ty = type_of(i64::from(i.target));
                let mut old = vec![0; n];
                self.read_place(by, place, &mut old);
                reduce_bytes(|o, v| combine_global(i.sel, ty, o, v, 0), ty, &old, &mut data);
            }
            self.write_place(by, place, &data);
            self.account_bulk(pc, to[l], n as u64, true);
        }
        Ok(())
    }
}

/// Combines `data` into `old` element by element; the result is left in `data`.
pub(super) fn reduce_bytes(
    combine: impl Fn(u64, u64) -> u64,
    ty: crate::syntax::ast::Type,
    old: &[u8],
    data: &mut [u8],
) {
    let size = ty.size() as usize;
    for (o, d) in old.chunks_exact(size).zip(data.chunks_exact_mut(size)) {
        let word = |b: &[u8]| {
            let mut raw = [0; 8];
            raw[..size].copy_from_slice(b);
            u64::from_le_bytes(raw)
        };
        let new = combine(word(o), word(d));
        d.copy_from_slice(&new.to_le_bytes()[..size]);
    }
}
