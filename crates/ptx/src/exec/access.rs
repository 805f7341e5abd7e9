//! Addresses: which bytes an access names, and the checks on them.

use super::gang::{Cta, Gang, Run, Warp};
use super::inst::{Inst, Space};
use super::regs::LANES;
use crate::check::FindingKind;
use crate::check::cell::{Conflict, Touch};
use crate::check::record::{Rec, View};
use crate::memory::{Access, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, split_address};

/// The bytes an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Buffer number and offset.
    Global(usize, usize),
    /// Block of the gang and offset.
    Shared(usize, usize),
    /// Offset in the lane's frame.
    Local(usize),
    /// Offset in the parameter block.
    Param(usize),
}

/// Who accesses, for messages and clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct By {
    pub(super) w: usize,
    pub(super) pc: u32,
    pub(super) lane: usize,
}

/// How a checked access behaves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    pub(super) write: bool,
    /// Strong or atomic: no race with other strong accesses.
    pub(super) atomic: bool,
    /// Through the asynchronous proxy.
    pub(super) proxy: bool,
    /// Clock thread and value of the access when it is not the warp itself.
    pub(super) carrier: Option<(usize, u32)>,
    /// Lanes that make the access together; the one of [`By`] alone when zero.
    pub(super) lanes: u32,
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    /// Addresses of all lanes: base register plus offset.
    #[inline]
    pub(super) fn addresses(&self, w: usize, reg: u32, wide: bool, offset: i64) -> [u64; LANES] {
        let regs = &self.warps[w].regs;
        let mut out = [0; LANES];
        if wide {
            let row = &regs.d[reg as usize].0;
            for l in 0..LANES {
                out[l] = row[l].wrapping_add(offset as u64);
            }
        } else {
            let row = &regs.r[reg as usize].0;
            for l in 0..LANES {
                out[l] = u64::from(row[l]).wrapping_add(offset as u64);
            }
        }
        out
    }

    /// The bytes `n` at `address`, in bounds and aligned to `align`, or a fault.
    pub(super) fn resolve(
        &mut self,
        by: By,
        space: Space,
        address: u64,
        n: usize,
        align: usize,
        write: bool,
    ) -> Run<Place> {
        if address & (align as u64 - 1) != 0 {
            return self.misaligned(by, space, address, align);
        }
        let (window, offset) = match space {
            Space::Shared => (SHARED_WINDOW, address as i64),
            Space::Local => (LOCAL_WINDOW, address as i64),
            Space::Param => (PARAM_WINDOW, address as i64),
            _ => split_address(address),
        };
        let fits = |len: usize| offset >= 0 && (offset as u64).saturating_add(n as u64) <= len as u64;
        match window {
            SHARED_WINDOW => self.resolve_shared(by, offset, n),
            LOCAL_WINDOW => {
                let frame = self.cx.prog.frame;
                if fits(frame) {
                    return Ok(Place::Local(offset as usize));
                }
                self.fault(by.w, by.pc, by.lane, FindingKind::OutOfBounds, || {
                    format!("local memory: offset {offset} size {n} of {frame} bytes")
                })
            }
            PARAM_WINDOW => {
                let len = self.cx.params.len();
                if write {
                    return self.fault(by.w, by.pc, by.lane, FindingKind::ReadOnly, || "write to parameters".into());
                }
                if fits(len) {
                    return Ok(Place::Param(offset as usize));
                }
                self.fault(by.w, by.pc, by.lane, FindingKind::OutOfBounds, || {
                    format!("parameters: offset {offset} size {n} of {len} bytes")
                })
            }
            _ => {
                let Some((k, buffer)) = self.cx.buffer(window) else {
                    return self.fault(by.w, by.pc, by.lane, FindingKind::OutOfBounds, || {
                        format!("address {address:#x} ({n} bytes) belongs to no buffer")
                    });
                };
                let (len, name) = (buffer.len, &buffer.name);
                if !fits(len) {
                    let name = name.clone();
                    return self.fault(by.w, by.pc, by.lane, FindingKind::OutOfBounds, || {
                        format!("buffer `{name}`: offset {offset} size {n} of {len} bytes")
                    });
                }
                if write && buffer.access == Access::In {
                    let name = name.clone();
                    return self.fault(by.w, by.pc, by.lane, FindingKind::ReadOnly, || {
                        format!("write to input buffer `{name}` at offset {offset}")
                    });
                }
                Ok(Place::Global(k, offset as usize))
            }
        }
    }

    #[cold]
    fn misaligned(&mut self, by: By, space: Space, address: u64, align: usize) -> Run<Place> {
        let place = match space {
            Space::Shared => format!("shared offset {:#x}", address),
            Space::Local => format!("local offset {:#x}", address),
            Space::Param => format!("parameter offset {:#x}", address),
            _ => {
                let (window, offset) = split_address(address);
                match self.cx.buffer(window) {
                    Some((_, b)) => format!("buffer `{}` offset {offset}", b.name),
                    None => format!("address {address:#x}"),
                }
            }
        };
        self.fault(by.w, by.pc, by.lane, FindingKind::Misaligned, || {
            format!("{place} is not a multiple of the {align}-byte access")
        })
    }

    /// A shared address, whose bits from 24 up may name another block of the cluster.
    pub(super) fn resolve_shared(&mut self, by: By, offset: i64, n: usize) -> Run<Place> {
        let own = self.warps[by.w].cta;
        let len = self.cx.shared_bytes;
        let low = (offset & 0xff_ffff) as usize;
        let rank = (offset as u32 >> 24) as usize;
        let cluster = self.cx.cluster.iter().product::<u32>() as usize;
        let cta = match rank {
            0 => own,
            r if r <= cluster => self.ctas[own].cluster_base + r - 1,
            _ => usize::MAX,
        };
        if cta != usize::MAX && (0..1 << 32).contains(&offset) && low + n <= len {
            return Ok(Place::Shared(cta, low));
        }
        let shown = if rank >= 0x80 { i64::from(offset as i32) } else { offset };
        let near = self.cx.prog.shared_vars.iter().filter(|v| v.1 as i64 <= shown).max_by_key(|v| v.1);
        let near = near.map_or(String::new(), |v| format!(", after `{}` ({} bytes at {})", v.0, v.2, v.1));
        self.fault(by.w, by.pc, by.lane, FindingKind::OutOfBounds, || {
            format!("shared memory: offset {shown} size {n} of {len} bytes{near}")
        })
    }

    /// Checks an access that is known to be in bounds.
    #[inline]
    pub(super) fn check(&mut self, by: By, place: Place, n: usize, how: How) {
        match place {
            Place::Global(k, offset) => self.check_global(by, k, offset, n, how),
            Place::Shared(cta, offset) => self.check_shared(by, cta, offset, n, how),
            Place::Local(offset) => self.check_local(by, offset, n, how.write),
            Place::Param(_) => {}
        }
    }

    fn check_local(&mut self, by: By, offset: usize, n: usize, write: bool) {
        let base = by.lane * self.cx.prog.frame + offset;
        let state = &mut self.warps[by.w].local_written[base..base + n];
        if write {
            state.fill(true);
        } else if let Some(k) = state.iter().position(|s| !s) {
            self.report(by.w, by.pc, by.lane, FindingKind::Uninitialised, || {
                format!("local memory: byte {} was never written", offset + k)
            });
        }
    }

    fn check_global(&mut self, by: By, k: usize, offset: usize, n: usize, how: How) {
        let cx = self.cx;
        let buffer = cx.buffer_at(k);
        if buffer.access == Access::In {
            return;
        }
        if how.write {
            buffer.mark_written(offset, n);
        } else if !buffer.is_written(offset, n) {
            self.report(by.w, by.pc, by.lane, FindingKind::Uninitialised, || {
                format!("buffer `{}`: bytes {offset}..{} were never written", buffer.name, offset + n)
            });
        }
        if !cx.options.races {
            return;
        }
        let view = view(&self.warps[by.w], by, how);
        let (thread, value) = how.carrier.unwrap_or_else(|| (by.w, view.clock().get(by.w)));
        let Some(rec) = Rec::new(value, thread, by.pc, 15, how.atomic, how.proxy) else { return };
        let touch = if how.write { Touch::Write } else { Touch::Read };
        let mut found = None;
        for word in offset / 4..(offset + n).div_ceil(4) {
            let mask = byte_mask(word, offset, n);
            let (near, far) = self.global.touch((k, word), self.number, rec.with_mask(mask), touch, &view);
            if let Some(c) = near {
                found = found.or(Some((word, c, None)));
            } else if let Some(f) = far {
                let c = Conflict::Race { other: f.other, lane: 0, what: f.what, in_flight: false };
                found = found.or(Some((word, c, Some(f.gang))));
            }
        }
        if let Some((word, Conflict::Race { other, lane, what, .. }, gang)) = found {
            self.conflict |= gang.is_some();
            let who = self.who(by, other, lane, gang);
            self.report_pair(by.w, by.pc, by.lane, FindingKind::GlobalRace, Some(other.pc()), || {
                format!("buffer `{}` byte {}: {what} race with {who}", buffer.name, word * 4)
            });
        }
    }

    /// Names the other side of a race.
    fn who(&self, by: By, other: Rec, lane: u32, gang: Option<u64>) -> String {
        let line = self.cx.prog.places.get(other.pc() as usize).map_or(0, |p| p.line);
        match gang {
            None if other.thread() == by.w => {
                format!("lane {lane} of the same warp at PTX line {line}, with no barrier of both lanes between")
            }
            Some(g) => format!("another block (cluster {g}) at PTX line {line}"),
            None => match self.warps.get(other.thread()) {
                Some(w) => {
                    format!("block {:?} warp {} at PTX line {line}", self.ctas[w.cta].index, w.id)
                }
                None => format!("an asynchronous copy issued at PTX line {line}"),
            },
        }
    }

    pub(super) fn check_shared(&mut self, by: By, cta: usize, offset: usize, n: usize, how: How) {
        let first = offset / 4;
        let end = (offset + n).div_ceil(4);
        let mut unwritten = None;
        let mut flying = None;
        if how.carrier.is_none() || !how.write {
            for word in first..end {
                let mask = byte_mask(word, offset, n);
                let s = &mut self.ctas[cta].written[word];
                if *s >> 4 & mask != 0 {
                    flying = flying.or(Some(word));
                }
                if how.write {
                    *s |= mask;
                } else if *s & mask != mask && *s >> 4 & mask == 0 {
                    unwritten = unwritten.or(Some(word));
                }
            }
        } else {
            for word in first..end {
                self.ctas[cta].written[word] |= byte_mask(word, offset, n);
            }
        }
        if let Some(word) = flying {
            self.report(by.w, by.pc, by.lane, FindingKind::InFlight, || {
                let what = if how.write { "write to" } else { "read of" };
                format!("{what} shared byte {} while an asynchronous copy to it is in flight", word * 4)
            });
        } else if let Some(word) = unwritten {
            self.report(by.w, by.pc, by.lane, FindingKind::Uninitialised, || {
                format!("shared memory: byte {} was never written", (word * 4).max(offset))
            });
        }
        if !self.cx.options.races {
            return;
        }
        let view = view(&self.warps[by.w], by, how);
        let clock = view.clock();
        let (thread, value) = how.carrier.unwrap_or_else(|| (by.w, clock.get(by.w)));
        let Some(rec) = Rec::new(value, thread, by.pc, 15, how.atomic, how.proxy) else { return };
        let touch = if how.write { Touch::Write } else { Touch::Read };
        let Cta { cells, pool, .. } = &mut self.ctas[cta];
        let cells = &mut cells[first..end];
        let mut found = None;
        for (k, cell) in cells.iter_mut().enumerate() {
            let mask = byte_mask(first + k, offset, n);
            let fenced = |r: Rec| clock.proxy(r.thread()) >= r.clock();
            let hit = cell.touch(rec.with_mask(mask), touch, &view, fenced, pool);
            if found.is_none()
                && let Some(c) = hit
            {
                found = Some((first + k, c));
            }
        }
        if let Some((word, c)) = found {
            self.shared_conflict(by, cta, word, c);
        }
    }

    #[cold]
    fn shared_conflict(&mut self, by: By, cta: usize, word: usize, c: Conflict) {
        let (other, lane, kind, text) = match c {
            Conflict::Race { other, lane, in_flight: true, .. } => {
                (other, lane, FindingKind::InFlight, "access is not ordered after the completion of".to_string())
            }
            Conflict::Race { other, lane, what, .. } => {
                (other, lane, FindingKind::SharedRace, format!("{what} race with"))
            }
            Conflict::Proxy { other } => (
                other,
                0,
                FindingKind::MissingProxyFence,
                "read through the asynchronous proxy without fence.proxy.async after the write by".into(),
            ),
        };
        let same_warp = kind == FindingKind::MissingProxyFence && other.thread() == by.w;
        let who = if same_warp { "the same warp".into() } else { self.who(by, other, lane, None) };
        let remote = if cta == self.warps[by.w].cta { "" } else { " (of another block)" };
        self.report_pair(by.w, by.pc, by.lane, kind, Some(other.pc()), || {
            format!("shared byte {}{remote}: {text} {who}", word * 4)
        });
    }

    /// Copies resolved bytes out.
    pub(super) fn read_place(&self, by: By, place: Place, out: &mut [u8]) {
        let n = out.len();
        match place {
            Place::Global(k, o) => self.cx.buffer_at(k).read_bytes(o, out),
            Place::Shared(c, o) => out.copy_from_slice(&self.ctas[c].shared[o..o + n]),
            Place::Local(o) => {
                let base = by.lane * self.cx.prog.frame + o;
                out.copy_from_slice(&self.warps[by.w].local[base..base + n]);
            }
            Place::Param(o) => out.copy_from_slice(&self.cx.params[o..o + n]),
        }
    }

    /// Writes resolved bytes.
    pub(super) fn write_place(&mut self, by: By, place: Place, bytes: &[u8]) {
        let n = bytes.len();
        match place {
            Place::Global(k, o) => {
                let b = self.cx.buffer_at(k);
                if o.is_multiple_of(4) && n.is_multiple_of(4) {
                    for (j, w) in bytes.chunks_exact(4).enumerate() {
                        b.store(o + 4 * j, 4, u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
                    }
                } else if o.is_multiple_of(2) && n == 2 {
                    b.store(o, 2, u32::from(u16::from_le_bytes([bytes[0], bytes[1]])));
                } else {
                    bytes.iter().enumerate().for_each(|(j, v)| b.store(o + j, 1, u32::from(*v)));
                }
            }
            Place::Shared(c, o) => self.ctas[c].shared[o..o + n].copy_from_slice(bytes),
            Place::Local(o) => {
                let base = by.lane * self.cx.prog.frame + o;
                self.warps[by.w].local[base..base + n].copy_from_slice(bytes);
            }
            Place::Param(_) => {}
        }
    }

    pub(super) fn is_space(&mut self, w: usize, i: &Inst, m: u32) {
        let row = self.warps[w].regs.d[i.a as usize].0;
        let mut t = 0;
        for (l, a) in row.iter().enumerate() {
            let (window, _) = split_address(*a);
            let hit = if i.imm == 0 { self.cx.buffer(window).is_some() } else { window == i.imm as u64 };
            t |= u32::from(hit) << l;
        }
        if i.d != super::inst::NONE {
            let p = &mut self.warps[w].regs.p[i.d as usize];
            *p = *p & !m | t & m;
        }
    }

    pub(super) fn read_clock(&mut self, w: usize, i: &Inst, m: u32) {
        let now = self.warps[w].executed;
        if i.wide.d {
            super::regs::put64(&mut self.warps[w].regs.d[i.d as usize].0, m, &[now; LANES]);
        } else {
            super::regs::put32(&mut self.warps[w].regs.r[i.d as usize].0, m, &[now as u32; LANES]);
        }
    }
}

/// What the lanes that access know.
#[inline(always)]
fn view(warp: &Warp, by: By, how: How) -> View<'_> {
    let lanes = if how.lanes == 0 { 1 << by.lane } else { how.lanes };
    View::new(&warp.clock, &warp.order, by.w, lanes)
}

/// Bytes of a word that an access covers.
#[inline(always)]
pub(super) fn byte_mask(word: usize, offset: usize, n: usize) -> u8 {
    let low = offset.saturating_sub(word * 4);
    let high = (offset + n - word * 4).min(4);
    ((0xf << low) & ((1u32 << high) - 1)) as u8
}
