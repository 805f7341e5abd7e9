//! Improving a choice, with everything shared counted once over all roots.

use super::{Picks, Problem, greedy};
use std::collections::BTreeSet;

/// Most rounds; each but the last lowers the cost, so this only bounds unlucky chains.
const ROUNDS: usize = 8;

/// Replaces single picks, then tries shared classes, while the total cost falls. `picks` has a pick for every class that can
/// be made.
pub(super) fn climb(problem: &Problem, mut picks: Picks) -> Picks {
    let Some(mut best) = problem.cost(&|c| picks[c]) else { return picks };
    for _ in 0..ROUNDS {
        let before = best;
        singles(problem, &mut picks, &mut best);
        share(problem, &mut picks, &mut best);
        if best == before {
            break;
        }
    }
    picks
}

/// Other choices for one class at a time.
fn singles(problem: &Problem, picks: &mut Picks, best: &mut u64) {
    let Some(used) = problem.order(&|c| picks[c]) else { return };
    for class in used {
        for choice in 0..problem.classes[class].len() {
            let cost = problem.cost(&|c| if c == class { Some(choice) } else { picks[c] });
            if let Some(cost) = cost.filter(|c| *c < *best) {
                *best = cost;
                picks[class] = Some(choice);
            }
        }
    }
}

/// A class that several others could use may pay only if all of them do: each such class is supposed to be there already,
/// everything is chosen anew, and the result is kept if it is cheaper with the class paid for.
fn share(problem: &Problem, picks: &mut Picks, best: &mut u64) {
    let Some(used) = problem.order(&|c| picks[c]) else { return };
    let used: BTreeSet<usize> = used.into_iter().collect();
    let mut users: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); problem.classes.len()];
    for class in &used {
        for need in problem.classes[*class].iter().flat_map(|c| &c.needs) {
            users[*need].insert(*class);
        }
    }
    for shared in (0..problem.classes.len()).filter(|c| !used.contains(c) && users[*c].len() > 1) {
        let mut cheap = problem.clone();
        let mut below = vec![shared];
        // What the class is made of now is paid with it.
        while let Some(class) = below.pop() {
            let Some(pick) = picks[class] else { continue };
            let choice = &mut cheap.classes[class][pick];
            if choice.cost > 1 {
                choice.cost = 1;
                below.extend(choice.needs.iter().filter(|n| !used.contains(n)));
            }
        }
        let Some(other) = greedy(&cheap) else { continue };
        if let Some(cost) = problem.cost(&|c| other[c]).filter(|c| *c < *best) {
            *best = cost;
            *picks = other;
            return;
        }
    }
}
