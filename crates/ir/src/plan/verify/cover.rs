//! Which ops stand in which kernel.

use super::{Check, Cx, Role};
use crate::ir::{OpId, RegionId};
use std::collections::BTreeMap;

/// Fills in `owner` and `work`, and checks that kernels share out what works.
pub(super) fn check(cx: &mut Cx) {
    for k in 0..cx.phase.kernels.len() {
        kernel(cx, k);
    }
    for id in (0..cx.func.ops.len() as u32).map(OpId) {
        if cx.works(id) && cx.owner[id.index()].is_none() {
            cx.error(Check::Cover, None, Some(id), "works, but stands in no kernel");
        }
    }
    contiguous(cx);
}

fn kernel(cx: &mut Cx, k: usize) {
    let kernel = &cx.phase.kernels[k];
    cx.work.push(Default::default());
    if cx.func.regions.get(kernel.block.index()).is_none() {
        cx.error(Check::Ids, Some(k), None, format!("there is no block {}", kernel.block.0));
    }
    if !kernel.ops.is_sorted_by(|a, b| a < b) {
        cx.error(Check::Ops, Some(k), None, "its ops do not stand in order, each once");
    }
    for id in &kernel.ops {
        match cx.role(*id) {
            _ if id.index() >= cx.func.ops.len() => {
                cx.error(Check::Ids, Some(k), None, format!("there is no op {}", id.0));
            }
            None => cx.error(Check::Ops, Some(k), Some(*id), "stands inside another op"),
            Some(Role::Free) => cx.error(Check::Ops, Some(k), Some(*id), "is no work: readers do it"),
            Some(Role::Control) => cx.error(Check::Ops, Some(k), Some(*id), "is control, not work"),
            Some(Role::Repeated) => {}
            Some(Role::Work) => {
                if cx.roles.block[id.index()] != Some(kernel.block) {
                    cx.error(Check::Block, Some(k), Some(*id), format!("does not stand in block {}", kernel.block.0));
                }
                match cx.owner[id.index()] {
                    Some(other) if other != k => {
                        cx.error(Check::Cover, Some(k), Some(*id), format!("stands in kernel {other} too"));
                    }
                    _ => cx.owner[id.index()] = Some(k),
                }
                cx.work[k].insert(*id);
            }
        }
    }
    if cx.work[k].is_empty() {
        cx.error(Check::Ops, Some(k), None, "it has no op that works");
    }
}

/// In every block, ops that work or control come kernel by kernel.
fn contiguous(cx: &mut Cx) {
    let mut open: BTreeMap<RegionId, usize> = BTreeMap::new();
    let mut begun = vec![false; cx.phase.kernels.len()];
    for id in (0..cx.func.ops.len() as u32).map(OpId) {
        let Some(block) = cx.roles.block[id.index()] else { continue };
        match cx.roles.role[id.index()] {
            Role::Control => {
                open.remove(&block);
            }
            Role::Work => {
                let Some(k) = cx.owner[id.index()] else { continue };
                if open.insert(block, k) != Some(k) && std::mem::replace(&mut begun[k], true) {
                    cx.error(Check::Contiguous, Some(k), Some(id), "other work stands before it in its kernel");
                }
            }
            Role::Free | Role::Repeated => {}
        }
    }
}
