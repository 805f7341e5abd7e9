//! The history of a region from what its graph recorded and the term that was chosen.

use super::chain::chain;
use super::prove::Proof;
use super::store::{Store, TermId};
use super::{Held, History, Place};
use crate::choose::{Derivation, Solution};
use crate::dag::DagNode;
use crate::region::Terms;
use crate::term::{Head, Key};
use spinec_ir::ir::WeightId;
use std::collections::BTreeMap;

/// The history of a region whose graph was recorded; `weights` are the weights of the solution's derived nodes.
///
/// # Errors
/// Something chosen that nothing recorded leads to: a bug.
pub(crate) fn history(
    t: &Terms,
    solution: &Solution,
    weights: &BTreeMap<usize, WeightId>,
    places: Vec<Place>,
) -> Result<Option<History>, String> {
    let Some(record) = &t.graph.history else { return Ok(None) };
    let mut terms = record.store.clone();
    let chosen = chosen(&mut terms, solution)?;
    let proof = Proof::new(&terms, &record.events);
    let mut store = terms.clone();
    let mut equal: BTreeMap<TermId, TermId> = BTreeMap::new();
    for c in &chosen {
        equal.entry(proof.find(*c)).or_insert(*c);
    }
    // What is computed once, for a derived weight, is there too, and what a guard computes only if it has to.
    let held: Vec<Held> = solution
        .derived
        .keys()
        .filter_map(|n| Some(Held { weight: *weights.get(n)?, column: None, term: chosen[*n] }))
        .collect();
    let inside = held.iter().map(|h| h.term).chain(solution.roots.iter().map(|n| chosen[*n]));
    for inner in inside.flat_map(|t| terms.below(t)) {
        equal.entry(proof.find(inner)).or_insert(inner);
    }
    let mut values = Vec::new();
    for results in &t.as_written {
        let mut of_op = Vec::new();
        for w in results {
            let now = equal.get(&proof.find(*w));
            of_op.push(now.map(|to| chain(&mut store, &proof, *w, *to)).transpose()?);
        }
        values.push(of_op);
    }
    let mut roots = Vec::new();
    let place = places.first().ok_or("a region is nowhere")?;
    for ((op, result), node) in place.roots.iter().zip(&solution.roots) {
        roots.push(chain(&mut store, &proof, t.as_written[*op][*result], chosen[*node])?);
    }
    Ok(Some(History { store, written: t.as_written.clone(), values, roots, held, places }))
}

/// The terms of a solution's nodes, with derived weights as what they are derived from.
fn chosen(store: &mut Store, solution: &Solution) -> Result<Vec<TermId>, String> {
    let mut out: Vec<TermId> = Vec::new();
    for (n, node) in solution.dag.nodes.iter().enumerate() {
        let term = match node.head {
            None => {
                let derivation = solution.derived.get(&n).ok_or("a derived weight has no definition")?;
                definition(store, derivation)?
            }
            Some(Head::Guard(_)) => guard(store, solution, n, node, &out)?,
            Some(head) => {
                let children = node.children.iter().map(|c| out[*c]).collect();
                store.add(head, node.key.clone(), children, node.types.clone())
            }
        };
        out.push(term);
    }
    Ok(out)
}

fn definition(store: &mut Store, d: &Derivation) -> Result<TermId, String> {
    let mut out: Vec<TermId> = Vec::new();
    for node in &d.definition.nodes {
        let head = match node.head.ok_or("a weight is derived from weights alone")? {
            Head::Leaf(i) => {
                Head::Leaf(*d.loops.leaves.get(i as usize).ok_or("a derived weight is of a loop that is not there")?)
            }
            head => head,
        };
        let children = node.children.iter().map(|c| out[*c]).collect();
        out.push(store.add(head, node.key.clone(), children, node.types.clone()));
    }
    out.last().copied().ok_or_else(|| "an empty term".to_owned())
}

fn guard(store: &mut Store, solution: &Solution, n: usize, node: &DagNode, outer: &[TermId]) -> Result<TermId, String> {
    let slow = solution.dag.slow.get(&n).ok_or("a guard has no slow value")?;
    let (root, inner) = slow.nodes.split_last().ok_or("a guard has no slow value")?;
    let mut own: Vec<TermId> = Vec::new();
    let operand = |own: &[TermId], c: usize| match c.checked_sub(slow.first) {
        Some(i) => own[i],
        None => outer[c],
    };
    for node in inner {
        let children = node.children.iter().map(|c| operand(&own, *c)).collect();
        let head = node.head.ok_or("the slow value of a guard is made of plain ops")?;
        own.push(store.add(head, node.key.clone(), children, node.types.clone()));
    }
    let mut children: Vec<TermId> = node.children.iter().map(|c| outer[*c]).collect();
    children.extend(root.children.iter().map(|c| operand(&own, *c)));
    let (head, key): (Head, Key) = (node.head.ok_or("a guard is an op")?, root.key.clone());
    Ok(store.add(head, key, children, node.types.clone()))
}
