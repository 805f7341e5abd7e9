//! Linear maps of one operand as one kernel.
//!
//! Maps that read the same operand can be one launch that reads it once, with their weights behind each other. Which maps
//! read the same operand depends on the terms chosen, so the choice is left to extraction: after saturation every operand of
//! several maps gets a [`Pack`](crate::term::Head::Pack) that carries the launch and the reading, and every such map a [`Packed`](crate::term::Head::Packed) that
//! carries only its own arithmetic, weight and result. Both are united with what they stand for without a rule: a packed map
//! is the map, computed by the same sums. The dag of a solution has plain maps again, and lists which of them are packed.

use crate::rules::product::acc;
use crate::term::{Graph, Term};
use egg::Id;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::DType;
use std::collections::BTreeMap;

/// Why maps may be one kernel. Recorded with every group.
pub const REASON: &str = "one operand: read once, in one launch";

/// What maps of one group have in common: the operand, the dtype summed in, that of the weights and that of the results.
type Shared = (Id, DType, DType, DType);

/// Adds packs to a saturated graph; gives their number. Only maps by weights of this run are packed: what is weight-only as a
/// whole is computed once anyway.
pub fn seed(g: &mut Graph) -> usize {
    let mut maps: BTreeMap<Shared, BTreeMap<Id, Vec<Term>>> = BTreeMap::new();
    for class in g.eg.classes() {
        for node in class.nodes.iter().filter(|n| n.code() == Some(Opcode::Linear)) {
            if let Some(key) = shared(g, class.id, node) {
                maps.entry(key).or_default().entry(class.id).or_default().push(node.clone());
            }
        }
    }
    maps.retain(|_, classes| classes.len() > 1);
    for ((x, ..), classes) in &maps {
        let pack = g.pack(*x);
        for (id, nodes) in classes {
            let mut nodes = nodes.clone();
            nodes.sort();
            for node in &nodes {
                let packed = g.packed(pack, node);
                g.eg.union_trusted(*id, packed, REASON);
            }
        }
    }
    g.eg.rebuild();
    maps.len()
}

fn shared(g: &Graph, id: Id, node: &Term) -> Option<Shared> {
    let (x, w) = (g.eg.find(node.children[0]), node.children[1]);
    let (of_w, of_x) = (g.facts(w), g.facts(x));
    let by_weight = of_w.held && of_w.source.is_some() && !of_x.held;
    let shared = (x, acc(node)?, of_w.tensor()?.dtype, g.ty(id)?.dtype);
    by_weight.then_some(shared)
}
