//! Equality saturation with node and iteration limits. There is no clock: what is found depends on the terms alone.

use crate::rules::Rule;
use crate::term::{Graph, Head, Term};
use egg::Id;
use spinec_ir::ty::Type;
use std::collections::BTreeMap;

/// Bounds of saturation. Hitting one is recorded and the terms found so far are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most rounds in which every rule is tried on every node.
    pub iterations: usize,
    /// Most nodes.
    pub nodes: usize,
}

impl Default for Limits {
    /// The largest region of the shipped systems takes 9 rounds and 200 nodes; the limits leave room for edited specs, while
    /// a rule that does not end still ends within seconds.
    fn default() -> Self {
        Limits { iterations: 40, nodes: 10_000 }
    }
}

/// Why saturation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// No rule finds anything new.
    Saturated,
    /// The iteration limit was hit.
    Iterations,
    /// The node limit was hit.
    Nodes,
    /// As many rewrites were made as asked for.
    Fuel,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Why it ended.
    pub stop: Stop,
    /// Rounds, the last one, which finds nothing, included.
    pub iterations: usize,
    /// Nodes at the end.
    pub nodes: usize,
    /// Classes at the end.
    pub classes: usize,
    /// How often each rule united two classes.
    pub fired: BTreeMap<&'static str, usize>,
}

/// Applies the rules in order until nothing new is found or a limit is hit. `fuel`, if given, is the number of
/// rewrites that may still be made; it is counted down.
///
/// # Errors
/// Two members of a class contradict each other: a rule is wrong.
pub fn saturate(g: &mut Graph, enabled: &[&Rule], limits: Limits, fuel: &mut Option<usize>) -> Result<Report, String> {
    let mut report = Report { stop: Stop::Iterations, iterations: 0, nodes: 0, classes: 0, fired: BTreeMap::new() };
    g.eg.rebuild();
    for _ in 0..limits.iterations {
        report.iterations += 1;
        match round(g, enabled, limits, fuel, &mut report)? {
            Some(stop) => {
                report.stop = stop;
                break;
            }
            None => continue,
        }
    }
    report.nodes = g.eg.total_number_of_nodes();
    report.classes = g.eg.number_of_classes();
    Ok(report)
}

/// Every rule on every node there is now. `Some` if saturation ends.
fn round(
    g: &mut Graph,
    enabled: &[&Rule],
    limits: Limits,
    fuel: &mut Option<usize>,
    report: &mut Report,
) -> Result<Option<Stop>, String> {
    let mut nodes: Vec<(Id, Term)> = g.eg.classes().flat_map(|c| c.nodes.iter().map(|n| (c.id, n.clone()))).collect();
    nodes.sort();
    let mut changed = false;
    let mut stop = None;
    'rules: for rule in enabled {
        for (id, node) in &nodes {
            if !matches!(node.head, Head::Op(code) if rule.roots.contains(&code)) {
                continue;
            }
            g.begin(*id, node);
            let made = (rule.apply)(g, *id, node);
            let sides = g.sides(&made);
            for (i, new) in made.into_iter().enumerate() {
                if !fits(&g.facts(new).types, &g.facts(*id).types) {
                    continue;
                }
                if *fuel == Some(0) {
                    stop = Some(Stop::Fuel);
                    break 'rules;
                }
                if g.eg.union(*id, new) {
                    changed = true;
                    g.derived(rule.name, sides.get(i));
                    *report.fired.entry(rule.name).or_default() += 1;
                    if let Some(left) = fuel {
                        *left -= 1;
                    }
                }
            }
            if g.eg.total_size() > limits.nodes {
                stop = Some(Stop::Nodes);
                break 'rules;
            }
        }
    }
    g.eg.rebuild();
    g.settle();
    if let Some(why) = &g.eg.analysis.contradiction {
        return Err(why.clone());
    }
    Ok(stop.or((!changed).then_some(Stop::Saturated)))
}

/// A rule's result stands for the original only if it has its type.
fn fits(new: &[Type], old: &[Type]) -> bool {
    new == old
}
