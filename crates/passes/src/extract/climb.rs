//! Improving a choice, with everything shared counted once over all roots.

use super::{Picks, Problem, greedy};
use std::collections::BTreeSet;

/// Most rounds; each but the last lowers the cost, so this only bounds unlucky chains.
const ROUNDS: usize = 8;

/// Replaces single picks, then tries shared classes, while the total cost falls. `picks` has a pick for every class that can
/// be made.
pub(super) fn climb(problem: &Problem, mut picks: Picks) -> Picks {
    let Some(mut best) = problem.cost(&|c| picks[c]) else { return picks };
    let mut agreed = BTreeSet::new();
    for _ in 0..ROUNDS {
        let before = best;
        singles(problem, &mut picks, &mut best);
        share(problem, &mut picks, &mut best, &mut agreed);
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

/// A class that several others could use may pay only if all of them do: such a class is supposed to be there already,
/// with those `agreed` on before, everything is chosen anew, and the result is kept if it is cheaper with the class paid for.
/// If it is not, it may be in place of one agreed on before.
fn share(problem: &Problem, picks: &mut Picks, best: &mut u64, agreed: &mut BTreeSet<usize>) {
    let mut users = vec![0usize; problem.classes.len()];
    for class in &problem.classes {
        let needs: BTreeSet<usize> = class.iter().flat_map(|c| c.needs.iter().copied()).collect();
        needs.into_iter().for_each(|n| users[n] += 1);
    }
    for shared in (0..problem.classes.len()).filter(|c| users[*c] > 1) {
        let Some(used) = problem.order(&|c| picks[c]) else { return };
        let used: BTreeSet<usize> = used.into_iter().collect();
        if used.contains(&shared) {
            continue;
        }
        let mut tried = vec![None];
        tried.extend(agreed.iter().copied().map(Some));
        for without in tried {
            let mut there: BTreeSet<usize> = agreed.iter().copied().filter(|c| Some(*c) != without).collect();
            there.insert(shared);
            let Some(other) = greedy(&discounted(problem, picks, &used, &there)) else { continue };
            if let Some(cost) = problem.cost(&|c| other[c]).filter(|c| *c < *best) {
                *best = cost;
                *picks = other;
                *agreed = there;
                break;
            }
        }
    }
}

/// The problem with some classes paid for, and what they are made of now.
fn discounted(problem: &Problem, picks: &Picks, used: &BTreeSet<usize>, there: &BTreeSet<usize>) -> Problem {
    let mut cheap = problem.clone();
    let mut below: Vec<usize> = there.iter().copied().collect();
    while let Some(class) = below.pop() {
        let Some(pick) = picks[class] else { continue };
        let choice = &mut cheap.classes[class][pick];
        if choice.cost > 1 {
            choice.cost = 1;
            below.extend(choice.needs.iter().filter(|n| !used.contains(n)));
        }
    }
    cheap
}
