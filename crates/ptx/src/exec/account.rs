//! Counting what memory requests cost.

use super::gang::Gang;
use super::inst::Space;
use super::regs::LANES;
use crate::counters::SECTOR;
use crate::memory::{WINDOW_BASE, WINDOW_BITS};

/// Banks of shared memory, four bytes wide.
const BANKS: usize = 32;

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    /// Counts one request of the lanes `m`, each of `bytes` at its address.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn account(
        &mut self,
        pc: u32,
        space: Space,
        m: u32,
        a: &[u64; LANES],
        bytes: usize,
        write: bool,
        global: bool,
    ) {
        if global {
            self.account_global(pc, m, a, bytes, write);
        } else if space == Space::Shared {
            self.account_shared(pc, m, a, bytes);
        }
    }

    fn account_global(&mut self, pc: u32, m: u32, a: &[u64; LANES], bytes: usize, write: bool) {
        let mut sectors = [0u64; LANES];
        let mut n = 0;
        let mut sorted = true;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let s = a[l] / SECTOR;
            if n > 0 && sectors[n - 1] == s {
                continue;
            }
            sorted &= n == 0 || sectors[n - 1] < s;
            sectors[n] = s;
            n += 1;
        }
        let list = &mut sectors[..n];
        let distinct = if sorted {
            n
        } else {
            list.sort_unstable();
            1 + list.windows(2).filter(|p| p[0] != p[1]).count()
        };
        for s in list.iter() {
            self.touch_sector(s * SECTOR, write);
        }
        // Lanes that read one address need it once.
        let mut addresses = *a;
        let mut k = 0;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            addresses[k] = a[l];
            k += 1;
        }
        let unique = if addresses[..k].windows(2).all(|p| p[0] < p[1]) {
            k
        } else {
            addresses[..k].sort_unstable();
            1 + addresses[..k].windows(2).filter(|p| p[0] != p[1]).count()
        };
        let total = (m.count_ones() as usize * bytes) as u64;
        let c = &mut self.tally.insts[pc as usize];
        c.global_requests += 1;
        c.sectors += distinct as u64;
        c.ideal_sectors += ((unique * bytes) as u64).div_ceil(SECTOR);
        if write {
            c.bytes_stored += total;
        } else {
            c.bytes_loaded += total;
        }
    }

    /// Marks the sector of a generic address as moved.
    pub(super) fn touch_sector(&mut self, address: u64, write: bool) {
        let window = address >> WINDOW_BITS;
        let Some((k, _)) = self.cx.buffer(window) else { return };
        let sector = (address & (WINDOW_BASE - 1)) / SECTOR;
        let sets = if write { &mut self.tally.written } else { &mut self.tally.read };
        sets[k].insert(sector);
    }

    /// Counts a bulk transfer of consecutive bytes.
    pub(super) fn account_bulk(&mut self, pc: u32, address: u64, bytes: u64, write: bool) {
        if !COUNT || bytes == 0 {
            return;
        }
        let (first, last) = (address / SECTOR, (address + bytes - 1) / SECTOR);
        for s in first..=last {
            self.touch_sector(s * SECTOR, write);
        }
        let c = &mut self.tally.insts[pc as usize];
        c.global_requests += 1;
        c.sectors += last - first + 1;
        c.ideal_sectors += bytes.div_ceil(SECTOR);
        if write {
            c.bytes_stored += bytes;
        } else {
            c.bytes_loaded += bytes;
        }
    }

    /// Wavefronts of a shared request: wide accesses go in phases of 128 bytes, a bank serves one word a wavefront.
    pub(super) fn account_shared(&mut self, pc: u32, m: u32, a: &[u64; LANES], bytes: usize) {
        let lanes_per_phase = match bytes {
            16.. => 8,
            8 => 16,
            _ => LANES,
        };
        let (mut waves, mut ideal) = (0, 0);
        for phase in (0..LANES).step_by(lanes_per_phase) {
            let mut seen = [[0u32; BANKS]; BANKS];
            let mut count = [0u8; BANKS];
            let mut words = 0;
            for l in (phase..phase + lanes_per_phase).filter(|l| m >> l & 1 == 1) {
                for k in 0..bytes.div_ceil(4) as u32 {
                    let word = (a[l] / 4) as u32 + k;
                    let bank = word as usize % BANKS;
                    let n = usize::from(count[bank]);
                    if !seen[bank][..n].contains(&word) && n < BANKS {
                        seen[bank][n] = word;
                        count[bank] += 1;
                        words += 1;
                    }
                }
            }
            waves += u64::from(count.iter().copied().max().unwrap_or(0));
            ideal += u64::from(words > 0) * (words as u64).div_ceil(BANKS as u64);
        }
        let c = &mut self.tally.insts[pc as usize];
        c.shared_requests += 1;
        c.wavefronts += waves;
        c.ideal_wavefronts += ideal;
    }
}
