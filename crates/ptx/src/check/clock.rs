//! Vector clocks: who has seen whose accesses.
//!
//! Threads of the clocks are warps, and one virtual thread per mbarrier that stands for the asynchronous copies it
//! tracks. Clocks of the gang being executed are dense; what is known of gangs that ran before is kept sparsely. A release
//! by some lanes of a warp only covers what those lanes know, so a clock also names single lanes that are known further
//! than their warp.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Clock values of a gang's threads; missing entries are zero.
pub(crate) type Dense = Vec<u32>;

/// Lanes known further than their thread: `thread << 5 | lane` and clock, in order.
pub(crate) type Lanes = Vec<(u32, u32)>;

/// What is known of one gang executed earlier.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    seen: Dense,
    lanes: Lanes,
}

/// Knowledge of gangs executed earlier, by gang number.
pub(crate) type Far = Arc<BTreeMap<u64, Arc<Known>>>;

/// What a warp knows to have happened before its next instruction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// Accesses of each thread of the gang.
    pub(crate) seen: Dense,
    /// Accesses of single lanes beyond those.
    pub(crate) lanes: Lanes,
    /// Generic-proxy writes of each thread made visible to the asynchronous proxy.
    pub(crate) proxy: Dense,
    /// Accesses of earlier gangs.
    pub(crate) far: Option<Far>,
}

/// Element-wise maximum.
pub(crate) fn join(into: &mut Dense, from: &[u32]) {
    if into.len() < from.len() {
        into.resize(from.len(), 0);
    }
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*a).max(*b);
    }
}

/// The maximum of both lists, without lanes that are known no further than their thread.
fn join_lanes(into: &mut Lanes, from: &[(u32, u32)], seen: &[u32]) {
    if into.is_empty() && from.is_empty() {
        return;
    }
    let beyond = |(key, v): (u32, u32)| v > seen.get((key >> 5) as usize).copied().unwrap_or(0);
    let old = std::mem::take(into);
    let (mut a, mut b) = (old.iter().copied().peekable(), from.iter().copied().peekable());
    while let Some(next) = match (a.peek(), b.peek()) {
        (Some(x), Some(y)) if x.0 == y.0 => {
            let both = (x.0, x.1.max(y.1));
            a.next();
            b.next();
            Some(both)
        }
        (Some(x), Some(y)) if x.0 > y.0 => b.next(),
        (Some(_), _) => a.next(),
        _ => b.next(),
    } {
        if beyond(next) {
            into.push(next);
        }
    }
}

fn lane_in(lanes: &[(u32, u32)], thread: usize, lane: u32) -> u32 {
    let key = (thread as u32) << 5 | lane;
    lanes.binary_search_by_key(&key, |e| e.0).map_or(0, |k| lanes[k].1)
}

impl Known {
    fn join(&mut self, other: &Self) {
        join(&mut self.seen, &other.seen);
        join_lanes(&mut self.lanes, &other.lanes, &self.seen);
    }
}

impl Clock {
    /// The clock of thread `me` at its start.
    pub(crate) fn start(me: usize) -> Self {
        let mut seen = vec![0; me + 1];
        seen[me] = 1;
        Self { seen, ..Self::default() }
    }

    pub(crate) fn get(&self, thread: usize) -> u32 {
        self.seen.get(thread).copied().unwrap_or(0)
    }

    pub(crate) fn proxy(&self, thread: usize) -> u32 {
        self.proxy.get(thread).copied().unwrap_or(0)
    }

    /// How far a single lane of another thread is known.
    pub(crate) fn lane(&self, thread: usize, lane: u32) -> u32 {
        lane_in(&self.lanes, thread, lane)
    }

    /// Everything `other` knows is known.
    pub(crate) fn join(&mut self, other: &Self) {
        join(&mut self.seen, &other.seen);
        join_lanes(&mut self.lanes, &other.lanes, &self.seen);
        join(&mut self.proxy, &other.proxy);
        if let Some(theirs) = &other.far {
            match &mut self.far {
                None => self.far = Some(theirs.clone()),
                Some(mine) if Arc::ptr_eq(mine, theirs) => {}
                Some(mine) => {
                    let mine = Arc::make_mut(mine);
                    for (gang, known) in theirs.iter() {
                        match mine.get_mut(gang) {
                            None => {
                                mine.insert(*gang, known.clone());
                            }
                            Some(k) if Arc::ptr_eq(k, known) => {}
                            Some(k) => Arc::make_mut(k).join(known),
                        }
                    }
                }
            }
        }
    }

    /// Raises single lanes.
    pub(crate) fn join_lanes(&mut self, lanes: &[(u32, u32)]) {
        join_lanes(&mut self.lanes, lanes, &self.seen);
    }

    /// Starts a new epoch of thread `me`: later accesses are not covered by clocks taken before.
    pub(crate) fn tick(&mut self, me: usize) {
        if self.seen.len() <= me {
            self.seen.resize(me + 1, 0);
        }
        self.seen[me] += 1;
    }

    /// Makes all writes seen so far visible to the asynchronous proxy.
    pub(crate) fn fence_proxy(&mut self) {
        self.proxy.clone_from(&self.seen);
    }

    /// Whether accesses of the lanes `lanes` of a thread of another gang, at that thread's `clock`, are known.
    pub(crate) fn knows_far(&self, gang: u64, thread: usize, clock: u32, lanes: impl Iterator<Item = u32>) -> bool {
        let Some(known) = self.far.as_ref().and_then(|f| f.get(&gang)) else { return false };
        if known.seen.get(thread).copied().unwrap_or(0) >= clock {
            return true;
        }
        let mut lanes = lanes.peekable();
        !known.lanes.is_empty() && lanes.peek().is_some() && lanes.all(|l| lane_in(&known.lanes, thread, l) >= clock)
    }

    /// This clock as seen from other gangs: what it knows of its own gang filed under that gang's number.
    pub(crate) fn exported(&self, gang: u64) -> Self {
        let mut far = self.far.clone().unwrap_or_default();
        let own = Known { seen: self.seen.clone(), lanes: self.lanes.clone() };
        Arc::make_mut(&mut far).insert(gang, Arc::new(own));
        Self { far: Some(far), ..Self::default() }
    }
}
