//! What a guard computes only if it has to: chosen after everything else, from what is there by then.

use super::classes::Classes;
use crate::dag::{Dag, DagNode, Slow};
use crate::extract::{Choice, Problem, extract};
use crate::term::{Head, Term};
use std::collections::{BTreeMap, BTreeSet};

impl Classes<'_> {
    /// The slow value of guard `node` of class `k`, which is the next node of `dag`; `children` are its condition and fast
    /// value. It may use what these two are made of, since that is computed in front of the guard whatever else is.
    pub(super) fn slow(
        &self,
        k: usize,
        node: &Term,
        dag: &Dag,
        place: &BTreeMap<usize, usize>,
        children: &[usize],
    ) -> Option<Slow> {
        let Head::Guard(code) = node.head else { return None };
        let mut below: BTreeSet<usize> = BTreeSet::new();
        let mut open = children.to_vec();
        while let Some(n) = open.pop() {
            if below.insert(n) {
                open.extend(&dag.nodes[n].children);
            }
        }
        let there = |c: usize| place.get(&c).copied().filter(|n| below.contains(n) && dag.nodes[*n].head.is_some());
        let never = |c: usize| Choice { needs: vec![c], cost: 1 };
        let plain = |head: Head| !matches!(head, Head::Guard(_) | Head::Pack | Head::Packed);
        let classes = (0..self.ids.len())
            .map(|c| {
                if there(c).is_some() {
                    return vec![Choice { needs: vec![], cost: 1 }];
                }
                let choices = self.base[c].iter().zip(&self.nodes[c]);
                choices.map(|(ch, n)| if c != k && plain(n.head) { ch.clone() } else { never(c) }).collect()
            })
            .collect();
        let operands: Vec<usize> = node.children[2..].iter().map(|c| self.child(*c)).collect();
        let problem = Problem { classes, roots: operands.clone() };
        let picks = extract(&problem)?;
        let mut out = Slow { first: dag.nodes.len(), nodes: Vec::new() };
        let mut own: BTreeMap<usize, usize> = BTreeMap::new();
        for c in problem.order(&|c| picks[c])? {
            let at = match there(c) {
                Some(outer) => outer,
                None => {
                    let n = &self.nodes[c][picks[c]?];
                    let children = n.children.iter().map(|d| own.get(&self.child(*d)).copied());
                    let children = children.collect::<Option<Vec<_>>>()?;
                    let types = self.g.facts(self.ids[c]).types.clone();
                    out.nodes.push(DagNode { head: Some(n.head), key: n.key.clone(), children, types });
                    out.first + out.nodes.len() - 1
                }
            };
            own.insert(c, at);
        }
        let children = operands.iter().map(|c| own.get(c).copied()).collect::<Option<Vec<_>>>()?;
        let types = self.g.facts(self.ids[k]).types.clone();
        out.nodes.push(DagNode { head: Some(Head::Op(code)), key: node.key.clone(), children, types });
        Some(out)
    }
}
