//! The optimum by branch and bound, for small problems.

use super::{Picks, Problem};

/// The cheapest picks. Takes time exponential in the number of classes. `None` if a root cannot be made.
pub fn exact(problem: &Problem) -> Option<(u64, Picks)> {
    let mut search = Search { problem, picks: vec![None; problem.classes.len()], best: None };
    search.step(0);
    search.best
}

struct Search<'a> {
    problem: &'a Problem,
    picks: Picks,
    best: Option<(u64, Picks)>,
}

impl Search<'_> {
    /// Decides the first class that is needed and not decided.
    fn step(&mut self, spent: u64) {
        if self.best.as_ref().is_some_and(|(b, _)| spent >= *b) {
            return;
        }
        let Some(class) = self.open() else {
            if let Some(cost) = self.problem.cost(&|c| self.picks[c]) {
                self.best = Some((cost, self.picks.clone()));
            }
            return;
        };
        for (i, choice) in self.problem.classes[class].iter().enumerate() {
            self.picks[class] = Some(i);
            self.step(spent.saturating_add(choice.cost));
        }
        self.picks[class] = None;
    }

    fn open(&self) -> Option<usize> {
        let decided = self.picks.iter().enumerate().filter_map(|(c, p)| p.map(|p| (c, p)));
        let needed = decided.flat_map(|(c, p)| &self.problem.classes[c][p].needs);
        self.problem.roots.iter().chain(needed).copied().filter(|c| self.picks[*c].is_none()).min()
    }
}
