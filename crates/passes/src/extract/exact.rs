//! The optimum by branch and bound, for small problems.

use super::{Picks, Problem};
use std::collections::BTreeSet;

/// The cheapest picks. Takes time exponential in the number of classes. `None` if a root cannot be made.
pub fn exact(problem: &Problem) -> Option<(u64, Picks)> {
    cheaper(problem, u64::MAX)
}

/// The cheapest picks that cost less than `bound`; `None` if there are none. The closer the bound, the less is searched.
pub fn cheaper(problem: &Problem, bound: u64) -> Option<(u64, Picks)> {
    let least = problem.classes.iter().map(|c| c.iter().map(|c| c.cost).min().unwrap_or(u64::MAX)).collect();
    let mut search = Search { problem, least, picks: vec![None; problem.classes.len()], bound, best: None };
    search.step(0, &problem.roots.iter().copied().collect());
    search.best
}

struct Search<'a> {
    problem: &'a Problem,
    /// The least a class costs by itself.
    least: Vec<u64>,
    picks: Picks,
    bound: u64,
    best: Option<(u64, Picks)>,
}

impl Search<'_> {
    /// Decides the first of the classes that are needed and not decided.
    fn step(&mut self, spent: u64, open: &BTreeSet<usize>) {
        let least = open.iter().fold(spent, |sum, c| sum.saturating_add(self.least[*c]));
        if least >= self.bound {
            return;
        }
        let Some(class) = open.first().copied() else {
            if let Some(cost) = self.problem.cost(&|c| self.picks[c]) {
                self.bound = cost;
                self.best = Some((cost, self.picks.clone()));
            }
            return;
        };
        for (i, choice) in self.problem.classes[class].iter().enumerate() {
            self.picks[class] = Some(i);
            let mut open = open.clone();
            open.remove(&class);
            open.extend(choice.needs.iter().filter(|n| self.picks[**n].is_none()));
            self.step(spent.saturating_add(choice.cost), &open);
        }
        self.picks[class] = None;
    }
}
