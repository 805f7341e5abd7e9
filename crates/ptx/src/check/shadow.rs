//! Shadow memory: for every four bytes, the last write and all reads that no later access is known to follow.
//!
//! Accesses to parts of a word carry a byte mask, so neighbours in a word do not conflict. The last write and two readers
//! stand in the cell; more of them, and what remains of partly overwritten ones, in a list of their own.

use super::clock::Clock;
use super::lanes::LaneOrder;

/// One access packed in 64 bits; zero means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rec(u64);

const CLOCK_BITS: u32 = 24;
const THREAD_BITS: u32 = 14;
const PC_BITS: u32 = 20;

impl Rec {
    /// Packs an access; `None` when a field does not fit, in which case the access is not tracked.
    pub(crate) fn new(clock: u32, thread: usize, pc: u32, mask: u8, atomic: bool, asynchronous: bool) -> Option<Self> {
        if clock >= 1 << CLOCK_BITS || thread >= 1 << THREAD_BITS || pc >= 1 << PC_BITS {
            return None;
        }
        let mut v = u64::from(clock);
        v |= (thread as u64) << CLOCK_BITS;
        v |= u64::from(pc) << (CLOCK_BITS + THREAD_BITS);
        v |= u64::from(mask & 15) << 58;
        v |= u64::from(atomic) << 62;
        v |= u64::from(asynchronous) << 63;
        Some(Self(v))
    }
    fn some(self) -> bool {
        self.0 != 0
    }
    pub(crate) fn clock(self) -> u32 {
        (self.0 & ((1 << CLOCK_BITS) - 1)) as u32
    }
    pub(crate) fn thread(self) -> usize {
        (self.0 >> CLOCK_BITS) as usize & ((1 << THREAD_BITS) - 1)
    }
    pub(crate) fn pc(self) -> u32 {
        (self.0 >> (CLOCK_BITS + THREAD_BITS)) as u32 & ((1 << PC_BITS) - 1)
    }
    fn mask(self) -> u8 {
        (self.0 >> 58) as u8 & 15
    }
    fn atomic(self) -> bool {
        self.0 >> 62 & 1 != 0
    }
    fn asynchronous(self) -> bool {
        self.0 >> 63 != 0
    }
    /// The same access over other bytes of the word.
    pub(crate) fn with_mask(self, mask: u8) -> Self {
        Self(self.0 & !(15 << 58) | u64::from(mask & 15) << 58)
    }
    /// Same thread, clock and manner; place and bytes may differ.
    fn alike(self, other: Self) -> bool {
        const PLACE: u64 = (((1 << PC_BITS) - 1) << (CLOCK_BITS + THREAD_BITS)) | 15 << 58;
        (self.0 ^ other.0) & !PLACE == 0
    }
    fn without(self, mask: u8) -> Self {
        let rest = self.mask() & !mask;
        if rest == 0 { Self::default() } else { self.with_mask(rest) }
    }
}

/// Lanes of a write, one of 6 bits a byte: a lane, or [`SEVERAL`] that wrote the same value at once.
type Codes = u32;
const SEVERAL: u32 = 32;

fn codes_of(lanes: u32) -> Codes {
    let code = if lanes.is_power_of_two() { lanes.trailing_zeros() } else { SEVERAL };
    code | code << 6 | code << 12 | code << 18
}

/// Lanes that wrote the bytes of a mask; writes of several lanes count as everyone's own.
fn writers(codes: Codes, mask: u8) -> u32 {
    (0..4).filter(|b| mask >> b & 1 == 1).fold(0, |m, b| {
        let code = codes >> (6 * b) & 63;
        if code == SEVERAL { m } else { m | 1 << code }
    })
}

fn lanes_in(mask: u32) -> impl Iterator<Item = u32> {
    (0..32).filter(move |l| mask >> l & 1 == 1)
}

/// Who accesses now: a warp, which of its lanes, and what they know.
pub(crate) struct View<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) order: &'a LaneOrder,
    /// The warp's thread number.
    pub(crate) me: usize,
    pub(crate) lanes: u32,
}

impl View<'_> {
    /// A lane of `lanes`, whose access `r` is, that this access is not ordered after; `None` when it is after all.
    #[inline]
    fn unordered(&self, r: Rec, lanes: u32) -> Option<u32> {
        let (thread, clock) = (r.thread(), r.clock());
        if thread == self.me {
            // Work of the whole warp is over for all its lanes once the warp's clock has moved on.
            if clock <= self.order.full() || (r.asynchronous() && clock < self.clock.get(thread)) {
                return None;
            }
            if lanes == self.lanes && lanes.is_power_of_two() {
                return None;
            }
            return lanes_in(lanes).find(|j| lanes_in(self.lanes).any(|l| !self.order.knows(l, *j, clock)));
        }
        if self.clock.get(thread) >= clock {
            return None;
        }
        if self.clock.lanes.is_empty() || lanes == 0 {
            return Some(lanes.trailing_zeros() & 31);
        }
        if r.asynchronous() {
            let known = lanes_in(lanes).any(|j| self.clock.lane(thread, j) >= clock);
            return if known { None } else { Some(0) };
        }
        lanes_in(lanes).find(|j| self.clock.lane(thread, *j) < clock)
    }

    /// Whether whatever follows this access also follows the earlier one.
    fn covers(&self, r: Rec, lanes: u32) -> bool {
        if r.thread() == self.me && !r.asynchronous() {
            let clock = r.clock();
            let known = |j: u32| lanes_in(self.lanes).any(|l| self.order.knows(l, j, clock));
            return clock <= self.order.full() || lanes & !self.lanes == 0 || lanes_in(lanes).all(known);
        }
        self.unordered(r, lanes).is_none()
    }

    /// Whether a write can stand for an earlier access: it conflicts with no less, and what does not race with it for being
    /// atomic alone is known.
    fn replaces(&self, rec: Rec, earlier: Rec, lanes: u32) -> bool {
        !weaker(rec, earlier) && (!(rec.atomic() && earlier.atomic()) || self.covers(earlier, lanes))
    }
}

/// An access beyond those that a cell has room for.
#[derive(Clone, Copy, Debug)]
struct More {
    rec: Rec,
    /// Lanes of a read, codes of a write.
    lanes: u32,
    write: bool,
    gang: u64,
}

impl More {
    fn lanes(&self, mask: u8) -> u32 {
        if self.write { writers(self.lanes, mask) } else { self.lanes }
    }
}

/// Lists of further accesses; cells name theirs by number, from 1.
#[derive(Default)]
pub(crate) struct Pool {
    lists: Vec<Vec<More>>,
    free: Vec<u32>,
}

impl Pool {
    pub(crate) fn clear(&mut self) {
        self.lists.clear();
        self.free.clear();
    }

    fn push(&mut self, list: &mut u32, more: More) {
        if *list == 0 {
            *list = self.free.pop().unwrap_or_else(|| {
                self.lists.push(Vec::new());
                self.lists.len() as u32
            });
        }
        self.lists[*list as usize - 1].push(more);
    }

    fn get(&mut self, list: u32) -> Option<&mut Vec<More>> {
        self.lists.get_mut((list as usize).wrapping_sub(1))
    }

    /// Gives an emptied list back.
    fn release_empty(&mut self, list: &mut u32) {
        if self.get(*list).is_some_and(|l| l.is_empty()) {
            self.free.push(*list);
            *list = 0;
        }
    }
}

/// Shadow of one word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    write: Rec,
    reads: [Rec; 2],
    codes: Codes,
    read_lanes: [u32; 2],
    more: u32,
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

impl Cell {
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
                for k in 0..2 {
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
        let codes = codes_of(view.lanes);
        let stands = !w.some() || view.replaces(rec, w, writers(self.codes, w.mask()));
        if !stands && pool.get(self.more).is_none_or(|l| l.len() < MAX_ATOMIC || !w.atomic()) {
            pool.push(&mut self.more, More { rec: w, lanes: self.codes, write: true, gang: 0 });
            (self.write, self.codes) = (rec, codes);
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
        self.codes = codes;
    }

    /// Adds a read; earlier ones that it covers are dropped.
    #[inline]
    fn read(&mut self, rec: Rec, view: &View, pool: &mut Pool) {
        for k in 0..2 {
            let r = self.reads[k];
            if r.alike(rec) && (r.mask() == rec.mask() || self.read_lanes[k] == view.lanes) {
                self.reads[k] = rec.with_mask(rec.mask() | r.mask());
                self.read_lanes[k] |= view.lanes;
                return;
            }
        }
        let mut slot = None;
        for k in 0..2 {
            let r = self.reads[k];
            if r.mask() & rec.mask() != 0 && !weaker(rec, r) && view.covers(r, self.read_lanes[k]) {
                self.reads[k] = r.without(rec.mask());
            }
            if !self.reads[k].some() {
                slot = slot.or(Some(k));
            }
        }
        let k = slot.unwrap_or_else(|| {
            let old = More { rec: self.reads[1], lanes: self.read_lanes[1], write: false, gang: 0 };
            let listed = pool.get(self.more).and_then(|list| {
                list.iter_mut().find(|m| !m.write && m.rec.alike(old.rec) && m.rec.mask() == old.rec.mask())
            });
            match listed {
                Some(m) => m.lanes |= old.lanes,
                None => pool.push(&mut self.more, old),
            }
            1
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

/// Whether an access conflicts with less than an earlier one does, so that it cannot stand for that.
fn weaker(rec: Rec, earlier: Rec) -> bool {
    rec.atomic() && !earlier.atomic()
}

fn race(other: Rec, lane: u32, kind: Touch, written: bool) -> Conflict {
    let what = match (kind, written) {
        (Touch::Read, _) => "read-after-write",
        (Touch::Write, true) => "write-after-write",
        (Touch::Write, false) => "write-after-read",
    };
    Conflict::Race { other, lane, what, in_flight: written && other.asynchronous() }
}

/// Unordered atomic writes to one word that are remembered against later plain accesses.
const MAX_ATOMIC: usize = 16;

/// Words of one page of global shadow.
const PAGE_WORDS: usize = 256;

/// Accesses of other gangs that a global word remembers; a write after all of these but not after one more is missed.
const MAX_FAR: usize = 8;

/// A global word: the accesses of the last gang that touched it, and which bytes were ever read and written.
#[derive(Clone, Copy, Debug, Default)]
struct GlobalCell {
    cell: Cell,
    gang: u32,
    read: u8,
    written: u8,
}

/// Shadow of global buffers, allocated by the page on first touch.
#[derive(Default)]
pub(crate) struct GlobalShadow {
    buffers: Vec<Vec<Option<Box<[GlobalCell; PAGE_WORDS]>>>>,
    pool: Pool,
}

/// An earlier access of another gang.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarConflict {
    pub(crate) gang: u64,
    pub(crate) other: Rec,
    pub(crate) what: &'static str,
}

impl GlobalShadow {
    fn cell(
        buffers: &mut Vec<Vec<Option<Box<[GlobalCell; PAGE_WORDS]>>>>,
        buffer: usize,
        word: usize,
    ) -> &mut GlobalCell {
        if buffers.len() <= buffer {
            buffers.resize_with(buffer + 1, Vec::new);
        }
        let pages = &mut buffers[buffer];
        let page = word / PAGE_WORDS;
        if pages.len() <= page {
            pages.resize_with(page + 1, || None);
        }
        let page = pages[page].get_or_insert_with(|| Box::new([GlobalCell::default(); PAGE_WORDS]));
        &mut page[word % PAGE_WORDS]
    }

    /// Applies an access of gang `gang`. Gangs are numbered from zero and remembered from one.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        place: (usize, usize),
        gang: u64,
        rec: Rec,
        kind: Touch,
        view: &View,
    ) -> (Option<Conflict>, Option<FarConflict>) {
        let Self { buffers, pool } = self;
        let slot = Self::cell(buffers, place.0, place.1);
        let tag = gang as u32 + 1;
        match kind {
            Touch::Read => slot.read |= rec.mask(),
            Touch::Write => slot.written |= rec.mask(),
        }
        if slot.gang != tag {
            if slot.gang != 0 {
                Self::file(slot, pool, view);
            }
            slot.gang = tag;
        }
        let near = slot.cell.touch(rec, kind, view, |_| true, pool);
        let far = if slot.cell.more == 0 { None } else { Self::far(slot, pool, rec, kind, view) };
        (near, far)
    }

    /// Moves the accesses of the gang before to the list of others, except those that the present access is known to
    /// follow.
    #[cold]
    fn file(slot: &mut GlobalCell, pool: &mut Pool, view: &View) {
        let old = std::mem::take(&mut slot.cell);
        slot.cell.more = old.more;
        let Some(gang) = u64::from(slot.gang).checked_sub(1) else { return };
        if let Some(list) = pool.get(old.more) {
            list.iter_mut().filter(|m| m.gang == 0).for_each(|m| m.gang = gang + 1);
        }
        let inline = [
            More { rec: old.write, lanes: old.codes, write: true, gang: gang + 1 },
            More { rec: old.reads[0], lanes: old.read_lanes[0], write: false, gang: gang + 1 },
            More { rec: old.reads[1], lanes: old.read_lanes[1], write: false, gang: gang + 1 },
        ];
        for m in inline.into_iter().filter(|m| m.rec.some()) {
            let full = pool.get(slot.cell.more).is_some_and(|l| l.len() >= MAX_FAR);
            if !full && !knows(view, &m, 15) {
                pool.push(&mut slot.cell.more, m);
            }
        }
    }

    /// The conflict with an access of another gang; each is reported once.
    #[cold]
    fn far(slot: &mut GlobalCell, pool: &mut Pool, rec: Rec, kind: Touch, view: &View) -> Option<FarConflict> {
        let mask = rec.mask();
        let mut found: Option<FarConflict> = None;
        let list = pool.get(slot.cell.more)?;
        list.retain_mut(|m| {
            let common = m.rec.mask() & mask;
            if m.gang == 0 || common == 0 || !(m.write || kind == Touch::Write) {
                return true;
            }
            if !(m.rec.atomic() && rec.atomic()) && !knows(view, m, common) {
                let what = match (kind, m.write) {
                    (Touch::Read, _) => "read-after-write",
                    (_, true) => "write-after-write",
                    _ => "write-after-read",
                };
                // A write names the write before it rather than a read.
                if found.is_none() || m.write {
                    found = Some(FarConflict { gang: m.gang - 1, other: m.rec, what });
                }
            }
            if kind == Touch::Write {
                m.rec = m.rec.without(mask);
            }
            m.rec.some()
        });
        pool.release_empty(&mut slot.cell.more);
        found
    }

    /// Whether any word was touched in conflicting ways by the gangs of both shadows.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        self.buffers.iter().zip(&other.buffers).any(|(a, b)| {
            a.iter().zip(b).any(|(a, b)| match (a, b) {
                (Some(a), Some(b)) => a
                    .iter()
                    .zip(b.iter())
                    .any(|(x, y)| x.written & (y.written | y.read) != 0 || x.read & y.written != 0),
                _ => false,
            })
        })
    }
}

/// Whether an access of another gang is known.
fn knows(view: &View, m: &More, mask: u8) -> bool {
    view.clock.knows_far(m.gang - 1, m.rec.thread(), m.rec.clock(), lanes_in(m.lanes(mask)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut races = 0;
        for seed in 1..4000u64 {
            let mut r = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            // Few orderings make races likely, many make long clean runs.
            let ordering = 1 + r.below(9);
            let mut history =
                History { known: [[0; WARPS * LANES]; WARPS * LANES], done: [0; WARPS * LANES], accesses: Vec::new() };
            let mut clocks: Vec<Clock> = (0..WARPS).map(Clock::start).collect();
            let mut orders = vec![LaneOrder::default(); WARPS];
            let (mut cell, mut pool) = (Cell::default(), Pool::default());
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
                let view = View { clock: &clocks[w], order: &orders[w], me: w, lanes: 1 << lane };
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
