//! Shadow memory: for every four bytes, the last write and up to two last readers.
//!
//! Accesses to parts of a word carry a byte mask, so neighbours in a word do not conflict. Only the last write is kept:
//! of two unordered writes to different bytes of one word the earlier is forgotten, which can hide a race but never
//! invents one.

use super::clock::Clock;

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
    fn same_epoch(self, other: Self) -> bool {
        (self.0 ^ other.0) & ((1 << (CLOCK_BITS + THREAD_BITS)) - 1) == 0
    }
}

/// Shadow of one word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    write: Rec,
    reads: [Rec; 2],
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
        /// "read-after-write" and so on.
        what: &'static str,
        /// The earlier access is an asynchronous copy.
        in_flight: bool,
    },
    /// Ordered, but written through the generic proxy and read through the asynchronous one.
    Proxy { other: Rec },
}

impl Cell {
    /// Applies an access and returns the conflict with an earlier one, if any. `before` tells whether a record is
    /// ordered before this access; `fenced` whether a generic write is visible to the asynchronous proxy.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        rec: Rec,
        kind: Touch,
        before: impl Fn(Rec) -> bool,
        fenced: impl Fn(Rec) -> bool,
    ) -> Option<Conflict> {
        let mask = rec.mask();
        let mut conflict = None;
        let w = self.write;
        let own = w.same_epoch(rec) && !rec.asynchronous();
        let both_atomic = w.atomic() && rec.atomic();
        if w.some() && w.mask() & mask != 0 && !both_atomic && !own {
            if !before(w) {
                let what = if kind == Touch::Read { "read-after-write" } else { "write-after-write" };
                conflict = Some(Conflict::Race { other: w, what, in_flight: w.asynchronous() });
            } else if rec.asynchronous() && kind == Touch::Read && !w.asynchronous() && !fenced(w) {
                conflict = Some(Conflict::Proxy { other: w });
            }
        }
        match kind {
            Touch::Read => {
                let slot = self
                    .reads
                    .iter()
                    .position(|r| !r.some() || r.thread() == rec.thread())
                    .or_else(|| self.reads.iter().position(|r| before(*r)))
                    .unwrap_or(1);
                let old = self.reads[slot];
                let merged = if old.some() && old.same_epoch(rec) { mask | old.mask() } else { mask };
                self.reads[slot] = rec.with_mask(merged);
            }
            Touch::Write => {
                for r in &mut self.reads {
                    if r.some() && r.mask() & mask != 0 {
                        let fine = r.same_epoch(rec) || (r.atomic() && rec.atomic()) || before(*r);
                        let clash = !fine;
                        if clash && conflict.is_none() {
                            conflict = Some(Conflict::Race { other: *r, what: "write-after-read", in_flight: false });
                        }
                        *r = if r.mask() & !mask == 0 { Rec::default() } else { r.with_mask(r.mask() & !mask) };
                    }
                }
                let merged = if w.some() && w.same_epoch(rec) { mask | w.mask() } else { mask };
                self.write = rec.with_mask(merged);
            }
        }
        conflict
    }
}

/// Whether `rec`, of the same gang, is ordered before an access of a warp with this clock.
pub(crate) fn ordered(clock: &Clock, rec: Rec) -> bool {
    clock.get(rec.thread()) >= rec.clock()
}

/// Words of one page of global shadow.
const PAGE_WORDS: usize = 256;

/// A global word: its cell and the gangs of the three records.
#[derive(Clone, Copy, Debug, Default)]
struct GlobalCell {
    cell: Cell,
    gang: u64,
}

/// Shadow of global buffers, allocated by the page on first touch.
#[derive(Default)]
pub(crate) struct GlobalShadow {
    buffers: Vec<Vec<Option<Box<[GlobalCell; PAGE_WORDS]>>>>,
}

/// An earlier access of another gang.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarConflict {
    pub(crate) gang: u64,
    pub(crate) other: Rec,
    pub(crate) what: &'static str,
}

impl GlobalShadow {
    fn cell(&mut self, buffer: usize, word: usize) -> &mut GlobalCell {
        if self.buffers.len() <= buffer {
            self.buffers.resize_with(buffer + 1, Vec::new);
        }
        let pages = &mut self.buffers[buffer];
        let page = word / PAGE_WORDS;
        if pages.len() <= page {
            pages.resize_with(page + 1, || None);
        }
        let page = pages[page].get_or_insert_with(|| Box::new([GlobalCell::default(); PAGE_WORDS]));
        &mut page[word % PAGE_WORDS]
    }

    /// Applies an access of gang `gang`.
    pub(crate) fn touch(
        &mut self,
        place: (usize, usize),
        gang: u64,
        rec: Rec,
        kind: Touch,
        clock: &Clock,
    ) -> (Option<Conflict>, Option<FarConflict>) {
        let slot = self.cell(place.0, place.1);
        let mut far = None;
        if slot.gang != gang {
            // Records of one word all belong to the last gang that touched it, so an older gang's are checked once.
            let old = slot.cell;
            let clash = |r: Rec| {
                r.some()
                    && r.mask() & rec.mask() != 0
                    && !(r.atomic() && rec.atomic())
                    && !clock.knows_far(slot.gang, r.thread(), r.clock())
            };
            if clash(old.write) {
                let what = if kind == Touch::Read { "read-after-write" } else { "write-after-write" };
                far = Some(FarConflict { gang: slot.gang, other: old.write, what });
            } else if kind == Touch::Write
                && let Some(r) = old.reads.into_iter().find(|r| clash(*r))
            {
                far = Some(FarConflict { gang: slot.gang, other: r, what: "write-after-read" });
            }
            // Parts of the word that this access does not cover keep their history.
            if kind == Touch::Write || !old.write.some() {
                *slot = GlobalCell { cell: Cell::default(), gang };
            } else {
                return (None, far);
            }
        }
        let near = slot.cell.touch(rec, kind, |r| ordered(clock, r), |_| true);
        (near, far)
    }

    /// Whether any word was touched in conflicting ways by the gangs of both shadows.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        self.buffers.iter().zip(&other.buffers).any(|(a, b)| {
            a.iter().zip(b).any(|(a, b)| match (a, b) {
                (Some(a), Some(b)) => a.iter().zip(b.iter()).any(|(x, y)| {
                    let bytes = |c: &Cell| {
                        let plain = |r: Rec| if r.some() { r.mask() } else { 0 };
                        (plain(c.write), plain(c.reads[0]) | plain(c.reads[1]))
                    };
                    let ((xw, xr), (yw, yr)) = (bytes(&x.cell), bytes(&y.cell));
                    xw & (yw | yr) != 0 || xr & yw != 0
                }),
                _ => false,
            })
        })
    }
}
