//! Whether ids follow the text.

use crate::ir::{Func, OpId, RegionId, ValueId};

/// True if values, ops and regions of a valid function are numbered in the order of the text and all are reached.
pub(super) fn is_canonical(func: &Func) -> bool {
    let mut w = Walk { func, values: 0, ops: 0, regions: 0 };
    w.region(func.body)
        && w.values as usize == func.values.len()
        && w.ops as usize == func.ops.len()
        && w.regions as usize == func.regions.len()
}

struct Walk<'a> {
    func: &'a Func,
    values: u32,
    ops: u32,
    regions: u32,
}

impl Walk<'_> {
    fn next(counter: &mut u32, id: u32) -> bool {
        *counter += 1;
        *counter - 1 == id
    }

    fn values(&mut self, list: &[ValueId]) -> bool {
        list.iter().all(|v| Self::next(&mut self.values, v.0))
    }

    /// Ids are checked before they are followed, so the walk ends whatever they are.
    fn region(&mut self, id: RegionId) -> bool {
        let Some(region) = self.func.regions.get(id.index()) else { return false };
        Self::next(&mut self.regions, id.0) && self.values(&region.params) && region.ops.iter().all(|op| self.op(*op))
    }

    fn op(&mut self, id: OpId) -> bool {
        let Some(op) = self.func.ops.get(id.index()) else { return false };
        Self::next(&mut self.ops, id.0) && self.values(&op.results) && op.regions.iter().all(|r| self.region(*r))
    }
}
