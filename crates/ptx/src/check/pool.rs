//! Lists of accesses that the cells of shadow memory have no room for.

use super::record::{Rec, writers};

/// An access beyond those that a cell has room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct More {
    pub(super) rec: Rec,
    /// Lanes of a read, codes of a write.
    pub(super) lanes: u32,
    pub(super) write: bool,
    /// Gang, counted from one, when it is not the present one.
    pub(super) gang: u64,
}

impl More {
    pub(super) fn lanes(&self, mask: u8) -> u32 {
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

    pub(super) fn push(&mut self, list: &mut u32, more: More) {
        if *list == 0 {
            *list = self.free.pop().unwrap_or_else(|| {
                self.lists.push(Vec::new());
                self.lists.len() as u32
            });
        }
        self.lists[*list as usize - 1].push(more);
    }

    pub(super) fn get(&mut self, list: u32) -> Option<&mut Vec<More>> {
        self.lists.get_mut((list as usize).wrapping_sub(1))
    }

    /// Gives an emptied list back.
    pub(super) fn release_empty(&mut self, list: &mut u32) {
        if self.get(*list).is_some_and(|l| l.is_empty()) {
            self.free.push(*list);
            *list = 0;
        }
    }
}
