//! The cheapest class first.

use super::{Picks, Problem};
use std::collections::BTreeSet;

/// A set of classes.
type Bits = Vec<u64>;

fn contains(bits: &Bits, i: usize) -> bool {
    bits[i / 64] >> (i % 64) & 1 == 1
}

/// Fixes one class after the other: always the one whose cheapest choice, together with everything it needs, costs least.
/// A class is fixed after all it needs, so the result is acyclic by construction, and what two classes share is the same in
/// both. Every class that can be made gets a pick. `None` if a root cannot be made.
pub fn greedy(problem: &Problem) -> Option<Picks> {
    let n = problem.classes.len();
    let words = n.div_ceil(64);
    let mut users: Vec<Vec<(usize, usize)>> = vec![Vec::new(); n];
    let mut missing: Vec<Vec<usize>> = Vec::with_capacity(n);
    let mut ready: BTreeSet<(u64, usize, usize)> = BTreeSet::new();
    for (class, choices) in problem.classes.iter().enumerate() {
        missing.push(choices.iter().map(|c| c.needs.len()).collect());
        for (i, choice) in choices.iter().enumerate() {
            for need in &choice.needs {
                users[*need].push((class, i));
            }
            if choice.needs.is_empty() {
                ready.insert((choice.cost, class, i));
            }
        }
    }
    let mut picks: Picks = vec![None; n];
    let mut sets: Vec<Bits> = vec![Vec::new(); n];
    while let Some((_, class, choice)) = ready.pop_first() {
        if picks[class].is_some() {
            continue;
        }
        picks[class] = Some(choice);
        sets[class] = union(problem, &sets, class, choice, words);
        for &(user, i) in &users[class] {
            missing[user][i] -= 1;
            if missing[user][i] == 0 && picks[user].is_none() {
                let set = union(problem, &sets, user, i, words);
                let own = problem.classes[user][i].cost;
                let below = (0..n).filter(|c| *c != user && contains(&set, *c));
                let cost =
                    below.fold(own, |sum, c| sum.saturating_add(picks[c].map_or(0, |p| problem.classes[c][p].cost)));
                ready.insert((cost, user, i));
            }
        }
    }
    problem.roots.iter().all(|r| picks[*r].is_some()).then_some(picks)
}

/// What a choice needs, with the class itself.
fn union(problem: &Problem, sets: &[Bits], class: usize, choice: usize, words: usize) -> Bits {
    let mut out = vec![0; words];
    for need in &problem.classes[class][choice].needs {
        for (o, s) in out.iter_mut().zip(&sets[*need]) {
            *o |= s;
        }
    }
    out[class / 64] |= 1 << (class % 64);
    out
}
