//! Definitions come before uses: within a region in execution order, and outer values are visible inside.

use super::tree::{RegionNode, Tree};
use super::{Cx, Site};
use crate::ir::ValueId;

pub(super) fn check(cx: &mut Cx, body: &RegionNode) {
    let mut visible = vec![false; cx.func.values.len()];
    region(cx, body, &mut visible);
}

fn region(cx: &mut Cx, node: &RegionNode, visible: &mut [bool]) {
    let mut defined: Vec<ValueId> = node.params.clone();
    set(visible, &defined, true);
    for op_node in &node.ops {
        let op = cx.func.op(op_node.id);
        let site = Site::Op(cx.id, op_node.id);
        uses(cx, site, &op.operands, visible);
        for inner in op_node.regions.iter().flatten() {
            region(cx, inner, visible);
        }
        set(visible, &op.results, true);
        defined.extend(&op.results);
    }
    uses(cx, Site::Yield(cx.id, node.id), cx.yields(node), visible);
    set(visible, &defined, false);
}

fn set(visible: &mut [bool], values: &[ValueId], to: bool) {
    for v in values {
        if let Some(slot) = visible.get_mut(v.index()) {
            *slot = to;
        }
    }
}

fn uses(cx: &mut Cx, site: Site, values: &[ValueId], visible: &[bool]) {
    for &v in values {
        if visible.get(v.index()) == Some(&false) {
            let message = undefined(cx.tree, v);
            cx.error(site, message);
        }
    }
}

fn undefined(tree: &Tree, v: ValueId) -> String {
    match tree.number(v) {
        Some(_) => format!("{} is not defined before this use, or only inside another region", tree.show(v)),
        None => format!("{} is used but nothing in the function defines it", tree.show(v)),
    }
}
