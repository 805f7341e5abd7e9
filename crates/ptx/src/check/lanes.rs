//! Order between the lanes of one warp.
//!
//! Lanes are threads: one knows what another did only after both met at a barrier, or through a release and an acquire.
//! Shuffles, votes and the like order no memory.

use super::clock::Clock;

const LANES: usize = 32;

/// What the lanes of a warp know of each other, in values of the warp's own clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneOrder {
    /// Accesses up to here are known to all lanes.
    full: u32,
    /// How far each lane knows each other one, where that differs.
    pairs: Option<Box<[[u32; LANES]; LANES]>>,
}

fn members(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |l| mask >> l & 1 == 1)
}

impl LaneOrder {
    /// Whether `lane` knows what `other` did at `clock`.
    pub(crate) fn knows(&self, lane: u32, other: u32, clock: u32) -> bool {
        lane == other
            || clock <= self.full
            || self.pairs.as_ref().is_some_and(|p| p[lane as usize][other as usize] >= clock)
    }

    /// Accesses up to here are known to all lanes.
    #[inline(always)]
    pub(crate) fn full(&self) -> u32 {
        self.full
    }

    /// The lanes `mask`, of those alive, have met at the warp's clock `now`: each knows what all of them knew and did.
    pub(crate) fn meet(&mut self, mask: u32, alive: u32, now: u32) {
        if mask & alive == alive {
            self.full = now;
            self.pairs = None;
            return;
        }
        let pairs = self.pairs.get_or_insert_with(|| Box::new([[0; LANES]; LANES]));
        let mut row = [0; LANES];
        for l in members(mask) {
            for (a, b) in row.iter_mut().zip(&pairs[l]) {
                *a = (*a).max(*b);
            }
        }
        members(mask).for_each(|l| row[l] = now);
        members(mask).for_each(|l| pairs[l] = row);
    }

    /// The lanes `mask` have acquired a clock that says how far their own warp `me` is known.
    pub(crate) fn learn(&mut self, mask: u32, alive: u32, me: usize, clock: &Clock) {
        let own = clock.get(me);
        let first = (me as u32) << 5;
        let entries = clock.lanes.iter().filter(|e| e.0 & !31 == first && e.1 > self.full);
        let entries: Vec<(usize, u32)> = entries.map(|e| ((e.0 & 31) as usize, e.1)).collect();
        if own > self.full && mask & alive == alive {
            self.full = own;
        }
        if own <= self.full && entries.is_empty() {
            return;
        }
        let pairs = self.pairs.get_or_insert_with(|| Box::new([[0; LANES]; LANES]));
        for l in members(mask) {
            pairs[l].iter_mut().for_each(|v| *v = (*v).max(own));
            entries.iter().for_each(|(j, v)| pairs[l][*j] = pairs[l][*j].max(*v));
        }
    }

    /// What the lanes `mask` of warp `me` release: the warp's clock, with its own lanes as far as those know them.
    pub(crate) fn release(&self, mask: u32, alive: u32, me: usize, clock: &Clock) -> Clock {
        let mut out = clock.clone();
        if mask & alive == alive {
            return out;
        }
        let now = out.get(me);
        if let Some(v) = out.seen.get_mut(me) {
            *v = self.full;
        }
        let mut row = [0; LANES];
        if let Some(p) = &self.pairs {
            for l in members(mask) {
                for (a, b) in row.iter_mut().zip(&p[l]) {
                    *a = (*a).max(*b);
                }
            }
        }
        members(mask).for_each(|l| row[l] = now);
        let beyond = (0..).zip(row).filter(|(_, v)| *v > self.full);
        let lanes: Vec<(u32, u32)> = beyond.map(|(l, v)| ((me as u32) << 5 | l, v)).collect();
        out.join_lanes(&lanes);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meetings_are_transitive_and_partial() {
        let mut o = LaneOrder::default();
        o.meet(0b0011, 0b1111, 5);
        assert!(o.knows(0, 1, 5) && o.knows(1, 0, 5) && !o.knows(0, 2, 5) && !o.knows(2, 0, 5));
        // Lane 2 learns of lane 0 through lane 1, up to their meeting.
        o.meet(0b0110, 0b1111, 7);
        assert!(o.knows(2, 0, 5) && !o.knows(2, 0, 6) && o.knows(2, 1, 7));
        o.meet(0b1111, 0b1111, 9);
        assert!(o.knows(3, 0, 9) && !o.knows(3, 0, 10) && o.knows(3, 3, 10));
    }

    #[test]
    fn a_release_by_one_lane_covers_what_it_knows() {
        let mut o = LaneOrder::default();
        o.meet(!0, !0, 3);
        let mut clock = Clock::start(1);
        clock.seen[1] = 8;
        let c = o.release(1 << 4, !0, 1, &clock);
        assert_eq!((c.get(1), c.lane(1, 4), c.lane(1, 5)), (3, 8, 0));
        assert_eq!(o.release(!0, !0, 1, &clock).get(1), 8);
        // Another lane of the warp that acquires it knows lane 4 only.
        let mut other = o.clone();
        other.learn(1 << 6, !0, 1, &c);
        assert!(other.knows(6, 4, 8) && !other.knows(6, 5, 4) && !other.knows(7, 4, 4));
    }
}
