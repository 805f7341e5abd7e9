//! Vector clocks: who has seen whose accesses.
//!
//! Threads of the clocks are warps, and one virtual thread per mbarrier that stands for the asynchronous copies it
//! tracks. Clocks of the gang being executed are dense; what is known of gangs that ran before is kept sparsely.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Clock values of a gang's threads; missing entries are zero.
pub(crate) type Dense = Vec<u32>;

/// Knowledge of gangs executed earlier, by gang number.
pub(crate) type Far = Arc<BTreeMap<u64, Arc<Dense>>>;

/// What a warp knows to have happened before its next instruction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// Accesses of each thread of the gang.
    pub(crate) seen: Dense,
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

    /// Everything `other` knows is known.
    pub(crate) fn join(&mut self, other: &Self) {
        join(&mut self.seen, &other.seen);
        join(&mut self.proxy, &other.proxy);
        if let Some(theirs) = &other.far {
            match &mut self.far {
                None => self.far = Some(theirs.clone()),
                Some(mine) if Arc::ptr_eq(mine, theirs) => {}
                Some(mine) => {
                    let mine = Arc::make_mut(mine);
                    for (gang, clock) in theirs.iter() {
                        match mine.get_mut(gang) {
                            None => {
                                mine.insert(*gang, clock.clone());
                            }
                            Some(c) if Arc::ptr_eq(c, clock) => {}
                            Some(c) => join(Arc::make_mut(c), clock),
                        }
                    }
                }
            }
        }
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

    /// Whether an access of another gang is known.
    pub(crate) fn knows_far(&self, gang: u64, thread: usize, clock: u32) -> bool {
        let known = self.far.as_ref().and_then(|f| f.get(&gang)).and_then(|c| c.get(thread).copied());
        known.unwrap_or(0) >= clock
    }

    /// This clock as seen from other gangs: its dense part filed under the own gang's number.
    pub(crate) fn exported(&self, gang: u64) -> Self {
        let mut far = self.far.clone().unwrap_or_default();
        Arc::make_mut(&mut far).insert(gang, Arc::new(self.seen.clone()));
        Self { seen: Vec::new(), proxy: Vec::new(), far: Some(far) }
    }
}
