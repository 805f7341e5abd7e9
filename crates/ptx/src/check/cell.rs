//! Shadow of one word: the last write and all reads that no later access is known to follow.
//!
//! Accesses to parts of a word carry a byte mask, so neighbours in a word do not conflict. The last write and some readers
//! stand in the cell; more of them, and what remains of partly overwritten ones, in a list of their own.

use super::pool::{More, Pool};
use super::record::{Codes, OWNER, Rec, SEVERAL, View, weaker, writers};

/// Unordered atomic writes to one word that are remembered against later plain accesses.
const MAX_ATOMIC: usize = 16;

/// Shadow of one word, with room for `N` readers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<const N: usize> {
    pub(super) write: Rec,
    pub(super) reads: [Rec; N],
    pub(super) read_lanes: [u32; N],
    /// Codes of the write; the top byte belongs to the owner of the cell.
    pub(super) codes: Codes,
    pub(super) more: u32,
}

/// A word of shared memory: tiles are often read by several warps.
pub(crate) type SharedCell = Cell<4>;

impl<const N: usize> Default for Cell<N> {
    fn default() -> Self {
        Self { write: Rec::default(), reads: [Rec::default(); N], read_lanes: [0; N], codes: 0, more: 0 }
    }
}

/// How an access touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
}

/// What a conflicting earlier access was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// Unordered with the record.
    Race {
        other: Rec,
        /// Lane of the other access.
        lane: u32,
        /// "read-after-write" and so on.
        what: &'static str,
        /// The earlier access is an asynchronous copy.
        in_flight: bool,
    },
    /// Ordered, but written through the generic proxy and read through the asynchronous one.
    Proxy { other: Rec },
}

impl<const N: usize> Cell<N> {
    /// Applies an access and returns the conflict with an earlier one, if any; `fenced` tells whether a generic write is
    /// visible to the asynchronous proxy.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        rec: Rec,
        kind: Touch,
        view: &View,
        fenced: impl Fn(Rec) -> bool,
        pool: &mut Pool,
    ) -> Option<Conflict> {
        if self.more == 0 && self.plain(rec, kind, view, &fenced) {
            return None;
        }
        self.touch_all(rec, kind, view, fenced, pool)
    }

    #[inline(always)]
    fn set_codes(&mut self, codes: Codes) {
        self.codes = self.codes & OWNER | codes;
    }

    /// Applies an access that follows everything in the cell, when that is plain to see; false when it is not.
    #[inline(always)]
    pub(super) fn plain(&mut self, rec: Rec, kind: Touch, view: &View, fenced: impl Fn(Rec) -> bool) -> bool {
        let mask = rec.mask();
        let w = self.write;
        let own = w.alike(rec)
            && (self.codes ^ view.codes) & !OWNER == 0
            && rec.thread() == view.me
            && view.codes & SEVERAL == 0;
        if kind == Touch::Read {
            let common = w.mask() & mask != 0;
            let visible = !rec.asynchronous() || w.asynchronous() || fenced(w);
            if common && !(visible && (own || view.surely(w))) {
                return false;
            }
            for k in 0..N {
                let r = self.reads[k];
                if r.alike(rec) && (r.mask() == mask || self.read_lanes[k] == view.lanes) {
                    self.reads[k] = rec.with_mask(mask | r.mask());
                    self.read_lanes[k] |= view.lanes;
                    return true;
                }
            }
            // A read by the same warp after all its lanes have met, or a first one.
            for k in 0..N {
                let r = self.reads[k];
                if !r.some() || (r.mask() & !mask == 0 && !weaker(rec, r) && view.surely(r)) {
                    self.reads[k] = rec;
                    self.read_lanes[k] = view.lanes;
                    return true;
                }
            }
            return false;
        }
        let gone = |r: Rec| !r.some() || (r.mask() & !mask == 0 && !weaker(rec, r) && view.surely(r));
        if !(own || gone(w)) {
            return false;
        }
        for k in 0..N {
            let mine = || {
                self.reads[k].alike(rec)
                    && self.read_lanes[k] == view.lanes
                    && view.lanes.is_power_of_two()
                    && !rec.atomic()
                    && self.reads[k].mask() & !mask == 0
            };
            if !(gone(self.reads[k]) || mine()) {
                return false;
            }
        }
        self.reads = [Rec::default(); N];
        self.write = if own { rec.with_mask(mask | w.mask()) } else { rec };
        self.set_codes(view.codes);
        true
    }

    pub(super) fn touch_all(
        &mut self,
        rec: Rec,
        kind: Touch,
        view: &View,
        fenced: impl Fn(Rec) -> bool,
        pool: &mut Pool,
    ) -> Option<Conflict> {
        let mask = rec.mask();
        let mut conflict = None;
        let w = self.write;
        let common = w.mask() & mask;
        if common != 0 && !(w.atomic() && rec.atomic()) {
            // Copies of one carrier and phase that are not asynchronous reads follow each other.
            let own = rec.thread() != view.me && w.alike(rec) && !rec.asynchronous();
            let unordered = if own { None } else { view.unordered(w, writers(self.codes, common)) };
            if let Some(lane) = unordered {
                conflict = Some(race(w, lane, kind, true));
            } else if rec.asynchronous() && kind == Touch::Read && !w.asynchronous() && !fenced(w) {
                conflict = Some(Conflict::Proxy { other: w });
            }
        }
        match kind {
            Touch::Read => self.read(rec, view, pool),
            Touch::Write => {
                for k in 0..N {
                    let r = self.reads[k];
                    if r.mask() & mask == 0 {
                        continue;
                    }
                    if conflict.is_none()
                        && !(r.atomic() && rec.atomic())
                        && !(r.alike(rec) && rec.thread() != view.me)
                        && let Some(lane) = view.unordered(r, self.read_lanes[k])
                    {
                        conflict = Some(race(r, lane, kind, false));
                    }
                    if view.replaces(rec, r, self.read_lanes[k]) {
                        self.reads[k] = r.without(mask);
                    }
                }
                self.write_now(rec, view, pool);
            }
        }
        if self.more != 0 {
            conflict = self.touch_more(rec, kind, view, pool, conflict);
        }
        conflict
    }

    /// Makes the access the last write, keeping what it does not cover of an earlier one.
    #[inline]
    fn write_now(&mut self, rec: Rec, view: &View, pool: &mut Pool) {
        let (w, mask) = (self.write, rec.mask());
        let codes = view.codes;
        let stands = !w.some() || view.replaces(rec, w, writers(self.codes, w.mask()));
        if !stands && pool.get(self.more).is_none_or(|l| l.len() < MAX_ATOMIC || !w.atomic()) {
            pool.push(&mut self.more, More { rec: w, lanes: self.codes, write: true, gang: 0 });
            self.write = rec;
            self.set_codes(codes);
            return;
        }
        let rest = w.without(mask);
        if rest.some() {
            if w.alike(rec) {
                let bytes = (0..4).filter(|b| mask >> b & 1 == 1).fold(0, |m, b| m | 63 << (6 * b));
                self.codes = self.codes & !bytes | codes & bytes;
                self.write = rec.with_mask(mask | w.mask());
                return;
            }
            pool.push(&mut self.more, More { rec: rest, lanes: self.codes, write: true, gang: 0 });
        }
        self.write = rec;
        self.set_codes(codes);
    }

    /// Adds a read; earlier ones that it covers are dropped.
    #[inline]
    fn read(&mut self, rec: Rec, view: &View, pool: &mut Pool) {
        for k in 0..N {
            let r = self.reads[k];
            if r.alike(rec) && (r.mask() == rec.mask() || self.read_lanes[k] == view.lanes) {
                self.reads[k] = rec.with_mask(rec.mask() | r.mask());
                self.read_lanes[k] |= view.lanes;
                return;
            }
        }
        let mut slot = None;
        for k in 0..N {
            let r = self.reads[k];
            if r.mask() & rec.mask() != 0 && !weaker(rec, r) && view.covers(r, self.read_lanes[k]) {
                self.reads[k] = r.without(rec.mask());
            }
            if !self.reads[k].some() {
                slot = slot.or(Some(k));
            }
        }
        let k = slot.unwrap_or_else(|| {
            let old = More { rec: self.reads[N - 1], lanes: self.read_lanes[N - 1], write: false, gang: 0 };
            let listed = pool.get(self.more).and_then(|list| {
                list.iter_mut().find(|m| !m.write && m.rec.alike(old.rec) && m.rec.mask() == old.rec.mask())
            });
            match listed {
                Some(m) => m.lanes |= old.lanes,
                None => pool.push(&mut self.more, old),
            }
            N - 1
        });
        self.reads[k] = rec;
        self.read_lanes[k] = view.lanes;
    }

    /// The same for the accesses in the list.
    #[cold]
    fn touch_more(
        &mut self,
        rec: Rec,
        kind: Touch,
        view: &View,
        pool: &mut Pool,
        mut conflict: Option<Conflict>,
    ) -> Option<Conflict> {
        let mask = rec.mask();
        let Some(list) = pool.get(self.more) else { return conflict };
        list.retain_mut(|m| {
            let common = m.rec.mask() & mask;
            if common == 0 || m.gang != 0 {
                return true;
            }
            let lanes = m.lanes(common);
            let relevant = m.write || kind == Touch::Write;
            if relevant
                && conflict.is_none()
                && !(m.rec.atomic() && rec.atomic())
                && let Some(lane) = view.unordered(m.rec, lanes)
            {
                conflict = Some(race(m.rec, lane, kind, m.write));
            }
            let gone = match kind {
                Touch::Write => view.replaces(rec, m.rec, lanes),
                Touch::Read => !m.write && !weaker(rec, m.rec) && view.covers(m.rec, lanes),
            };
            if gone {
                m.rec = m.rec.without(mask);
            }
            m.rec.some()
        });
        pool.release_empty(&mut self.more);
        conflict
    }
}

fn race(other: Rec, lane: u32, kind: Touch, written: bool) -> Conflict {
    let what = match (kind, written) {
        (Touch::Read, _) => "read-after-write",
        (Touch::Write, true) => "write-after-write",
        (Touch::Write, false) => "write-after-read",
    };
    Conflict::Race { other, lane, what, in_flight: written && other.asynchronous() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::clock::Clock;
    use crate::check::lanes::LaneOrder;

    const WARPS: usize = 3;
    const LANES: usize = 4;
    const ALIVE: u32 = (1 << LANES) - 1;

    struct Rng(u64);

    impl Rng {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % n
        }
    }

    /// Every access ever made, and for each lane how many of each other lane's it knows: happens-before by definition.
    struct History {
        known: [[u32; WARPS * LANES]; WARPS * LANES],
        done: [u32; WARPS * LANES],
        /// Thread, number, bytes, write, atomic.
        accesses: Vec<(usize, u32, u8, bool, bool)>,
    }

    impl History {
        fn access(&mut self, thread: usize, mask: u8, write: bool, atomic: bool) -> bool {
            let clash = self.accesses.iter().any(|&(t, n, m, w, a)| {
                t != thread && m & mask != 0 && (w || write) && !(a && atomic) && self.known[thread][t] < n
            });
            self.done[thread] += 1;
            self.accesses.push((thread, self.done[thread], mask, write, atomic));
            clash
        }

        fn knowledge(&self, threads: impl Iterator<Item = usize>) -> [u32; WARPS * LANES] {
            let mut all = [0; WARPS * LANES];
            for t in threads {
                all.iter_mut().zip(&self.known[t]).for_each(|(a, b)| *a = (*a).max(*b));
                all[t] = self.done[t];
            }
            all
        }
    }

    /// Random accesses to one word, meetings of lanes, and releases and acquires between warps: the first race is found at
    /// the access that completes it, and none is invented.
    #[test]
    fn the_first_race_is_found_and_none_invented() {
        first_race::<1>();
        first_race::<4>();
    }

    fn first_race<const N: usize>() {
        let mut races = 0;
        for seed in 1..4000u64 {
            let mut r = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            // Few orderings make races likely, many make long clean runs.
            let ordering = 1 + r.below(9);
            let mut history =
                History { known: [[0; WARPS * LANES]; WARPS * LANES], done: [0; WARPS * LANES], accesses: Vec::new() };
            let mut clocks: Vec<Clock> = (0..WARPS).map(Clock::start).collect();
            let mut orders = vec![LaneOrder::default(); WARPS];
            let (mut cell, mut pool) = (Cell::<N>::default(), Pool::default());
            let mut log = Vec::new();
            for _ in 0..60 {
                let w = r.below(WARPS as u64) as usize;
                let thread = |l: usize| w * LANES + l;
                if r.below(10) < ordering {
                    let mask = if r.below(3) == 0 { 1 + r.below(u64::from(ALIVE)) as u32 } else { ALIVE };
                    let members = || (0..LANES).filter(|l| mask >> l & 1 == 1).map(thread);
                    let all = history.knowledge(members());
                    if r.below(3) == 0 {
                        log.push(format!("meet {w} {mask:#x}"));
                        members().for_each(|t| history.known[t] = all);
                        orders[w].meet(mask, ALIVE, clocks[w].get(w));
                    } else {
                        // The lanes release, all lanes of some warp acquire.
                        let to = r.below(WARPS as u64) as usize;
                        log.push(format!("release {w} {mask:#x} to {to}"));
                        let c = orders[w].release(mask, ALIVE, w, &clocks[w]);
                        for l in 0..LANES {
                            let k = &mut history.known[to * LANES + l];
                            k.iter_mut().zip(&all).for_each(|(a, b)| *a = (*a).max(*b));
                        }
                        orders[to].learn(ALIVE, ALIVE, to, &c);
                        clocks[to].join(&c);
                    }
                    clocks[w].tick(w);
                    continue;
                }
                let lane = r.below(LANES as u64) as usize;
                let mask = [15, 15, 3, 12, 1][r.below(5) as usize];
                let (write, atomic) = (r.below(3) == 0, r.below(4) == 0);
                log.push(format!("{w}.{lane} mask {mask:#x} write {write} atomic {atomic}"));
                let want = history.access(thread(lane), mask, write, atomic);
                let rec = Rec::new(clocks[w].get(w), w, 0, mask, atomic, false).expect("fits");
                let view = View::new(&clocks[w], &orders[w], w, 1 << lane);
                let kind = if write { Touch::Write } else { Touch::Read };
                let got = cell.touch(rec, kind, &view, |_| true, &mut pool).is_some();
                assert_eq!(got, want, "seed {seed}:\n{}", log.join("\n"));
                if got {
                    races += 1;
                    break;
                }
            }
        }
        assert!((1000..3900).contains(&races), "{races}");
    }
}
