//! Improving a choice class by class, with everything shared counted once over all roots.

use super::{Picks, Problem};

/// Most sweeps over the classes in use; each but the last lowers the cost, so this only bounds unlucky chains.
const SWEEPS: usize = 16;

/// Replaces single picks while the total cost falls.
pub(super) fn climb(problem: &Problem, mut picks: Picks) -> Picks {
    let Some(mut best) = problem.cost(&|c| picks[c]) else { return picks };
    for _ in 0..SWEEPS {
        let before = best;
        let Some(used) = problem.order(&|c| picks[c]) else { return picks };
        for class in used {
            for choice in 0..problem.classes[class].len() {
                let cost = problem.cost(&|c| if c == class { Some(choice) } else { picks[c] });
                if let Some(cost) = cost.filter(|c| *c < best) {
                    best = cost;
                    picks[class] = Some(choice);
                }
            }
        }
        if best == before {
            break;
        }
    }
    picks
}
