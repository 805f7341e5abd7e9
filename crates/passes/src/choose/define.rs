//! What derived weights are: how a class is computed before the first run, and over which loops.

use super::Spread;
use super::classes::Classes;
use crate::dag::Dag;
use crate::term::Head;
use spinec_ir::ir::Attr;
use spinec_ir::ops::Opcode;
use std::collections::BTreeMap;

/// How a class is computed from weights.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    /// The term; leaf `i` is the index of loop `i`.
    pub dag: Dag,
    /// Equal for equal definitions in any region.
    pub text: String,
    /// The loops; `None` if the weights' loops do not fit together.
    pub spread: Option<Spread>,
}

impl Classes<'_> {
    /// How a class is computed from weights alone, at the least time and with no derived weights in it.
    pub fn definition(&self, k: usize) -> Definition {
        if let Some(known) = self.definitions.borrow().get(&k) {
            return known.clone();
        }
        let mut dag = self.dag(&self.held, &[k], &self.held_picks).map(|p| p.dag).unwrap_or_default();
        let mut leaves: Vec<u32> = Vec::new();
        for node in &mut dag.nodes {
            if let Some(Head::Leaf(l)) = node.head {
                let place = leaves.iter().position(|known| *known == l).unwrap_or(leaves.len());
                if place == leaves.len() {
                    leaves.push(l);
                }
                node.head = Some(Head::Leaf(place as u32));
            }
        }
        // What is rounded otherwise is another weight.
        let storage = self.derivable[k].map(|d| d.1.to_string()).unwrap_or_default();
        let text = format!("{}{storage}", dag.text());
        let definition = Definition { text, spread: self.spread(&dag, leaves), dag };
        self.definitions.borrow_mut().insert(k, definition.clone());
        definition
    }

    /// The loops of a definition by those of its weights.
    fn spread(&self, dag: &Dag, leaves: Vec<u32>) -> Option<Spread> {
        let mut out = Spread { leaves, ..Spread::default() };
        let Some(leaf) = out.leaves.first() else { return Some(out) };
        if out.leaves.len() > 1 {
            return None;
        }
        let extent = *self.g.eg.analysis.indices.get(leaf)?;
        let mut present = vec![true; usize::try_from(extent).ok()?];
        for node in dag.nodes.iter().filter(|n| n.head == Some(Head::Op(Opcode::Weight))) {
            let Some(Attr::Int(w)) = node.key.attrs().get("weight") else { return None };
            let weight = self.wish.weights.get(usize::try_from(*w).ok()?)?;
            let by_leaf = |c: &usize| matches!(dag.nodes[*c].head, Some(Head::Leaf(_)));
            if let Some(at) = node.children.iter().position(by_leaf) {
                out.loops = vec![weight.loops.get(at)?.clone()];
            }
            for (i, there) in present.iter_mut().enumerate() {
                *there &= self.exists(dag, &node.children, weight, i as i64)?;
            }
        }
        if present.contains(&false) {
            out.present = present;
        }
        Some(out)
    }

    /// Whether a weight exists where its indices are constants or, for leaves, `at`.
    fn exists(&self, dag: &Dag, indices: &[usize], weight: &spinec_ir::ir::Weight, at: i64) -> Option<bool> {
        let mut flat = 0i64;
        for (c, (_, extent)) in indices.iter().zip(&weight.loops) {
            let index = match (dag.nodes[*c].head, dag.nodes[*c].key.attrs().get("value")) {
                (Some(Head::Leaf(_)), _) => at,
                (_, Some(Attr::Float(v))) => *v as i64,
                _ => return None,
            };
            flat = flat * extent + index;
        }
        Some(weight.present.is_empty() || *weight.present.get(usize::try_from(flat).ok()?)?)
    }
}

/// Definitions by class.
pub(super) type Definitions = BTreeMap<usize, Definition>;
