//! Recorded accesses: who made them, and whether another access is ordered after them.

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
    pub(super) fn some(self) -> bool {
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
    pub(super) fn mask(self) -> u8 {
        (self.0 >> 58) as u8 & 15
    }
    pub(super) fn atomic(self) -> bool {
        self.0 >> 62 & 1 != 0
    }
    pub(super) fn asynchronous(self) -> bool {
        self.0 >> 63 != 0
    }
    /// The same access over other bytes of the word.
    pub(crate) fn with_mask(self, mask: u8) -> Self {
        Self(self.0 & !(15 << 58) | u64::from(mask & 15) << 58)
    }
    /// Same thread, clock and manner; place and bytes may differ.
    pub(super) fn alike(self, other: Self) -> bool {
        const PLACE: u64 = (((1 << PC_BITS) - 1) << (CLOCK_BITS + THREAD_BITS)) | 15 << 58;
        (self.0 ^ other.0) & !PLACE == 0
    }
    pub(super) fn without(self, mask: u8) -> Self {
        let rest = self.mask() & !mask;
        if rest == 0 { Self::default() } else { self.with_mask(rest) }
    }
}

/// Lanes of a write, one of 6 bits a byte: a lane, or [`SEVERAL`] that wrote the same value at once.
pub(super) type Codes = u32;
/// Bits of codes that no lane uses.
pub(super) const OWNER: u32 = 0xff << 24;
pub(super) const SEVERAL: u32 = 32;

fn codes_of(lanes: u32) -> Codes {
    let code = if lanes.is_power_of_two() { lanes.trailing_zeros() } else { SEVERAL };
    code | code << 6 | code << 12 | code << 18
}

/// Lanes that wrote the bytes of a mask; writes of several lanes count as everyone's own.
pub(super) fn writers(codes: Codes, mask: u8) -> u32 {
    (0..4).filter(|b| mask >> b & 1 == 1).fold(0, |m, b| {
        let code = codes >> (6 * b) & 63;
        if code == SEVERAL { m } else { m | 1 << code }
    })
}

pub(super) fn lanes_in(mask: u32) -> impl Iterator<Item = u32> {
    (0..32).filter(move |l| mask >> l & 1 == 1)
}

/// Who accesses now: a warp, which of its lanes, and what they know.
pub(crate) struct View<'a> {
    pub(super) clock: &'a Clock,
    order: &'a LaneOrder,
    /// The warp's thread number.
    pub(super) me: usize,
    pub(super) lanes: u32,
    pub(super) codes: Codes,
}

impl<'a> View<'a> {
    #[inline(always)]
    pub(crate) fn new(clock: &'a Clock, order: &'a LaneOrder, me: usize, lanes: u32) -> Self {
        Self { clock, order, me, lanes, codes: codes_of(lanes) }
    }

    /// The warp's clock.
    pub(crate) fn clock(&self) -> &'a Clock {
        self.clock
    }

    /// Whether an access is known whoever of its warp made it. Cheap, and enough for most accesses.
    #[inline(always)]
    pub(super) fn surely(&self, r: Rec) -> bool {
        let (thread, clock) = (r.thread(), r.clock());
        if thread == self.me { clock <= self.order.full() } else { self.clock.get(thread) >= clock }
    }

    /// A lane of `lanes`, whose access `r` is, that this access is not ordered after; `None` when it is after all.
    #[inline]
    pub(super) fn unordered(&self, r: Rec, lanes: u32) -> Option<u32> {
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
    pub(super) fn covers(&self, r: Rec, lanes: u32) -> bool {
        if r.thread() == self.me && !r.asynchronous() {
            let clock = r.clock();
            let known = |j: u32| lanes_in(self.lanes).any(|l| self.order.knows(l, j, clock));
            return clock <= self.order.full() || lanes & !self.lanes == 0 || lanes_in(lanes).all(known);
        }
        self.unordered(r, lanes).is_none()
    }

    /// Whether a write can stand for an earlier access: it conflicts with no less, and what does not race with it for being
    /// atomic alone is known.
    pub(super) fn replaces(&self, rec: Rec, earlier: Rec, lanes: u32) -> bool {
        !weaker(rec, earlier) && (!(rec.atomic() && earlier.atomic()) || self.covers(earlier, lanes))
    }
}

/// Whether an access conflicts with less than an earlier one does, so that it cannot stand for that.
pub(super) fn weaker(rec: Rec, earlier: Rec) -> bool {
    rec.atomic() && !earlier.atomic()
}
