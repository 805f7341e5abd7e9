//! Choosing one node a class: the cheapest acyclic choice for some roots, every chosen node counted once.
//!
//! Costs are integers, ties go to the first choice in the order of the problem, and nothing depends on the order in which an
//! answer was found. [`greedy`] is the product path, [`exact`] its oracle on small problems.

mod climb;
mod exact;
mod greedy;

pub use exact::{cheaper, exact};
pub use greedy::greedy;

/// A way to make a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Classes it needs, each once.
    pub needs: Vec<usize>,
    /// Its own cost, at least one.
    pub cost: u64,
}

/// Classes with their choices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The choices of every class.
    pub classes: Vec<Vec<Choice>>,
    /// The classes to be made.
    pub roots: Vec<usize>,
}

/// For every class the choice taken, where the roots need it.
pub type Picks = Vec<Option<usize>>;

impl Problem {
    /// The classes the roots need under `pick`, what is needed before what needs it. `None` if a class has no choice or needs
    /// itself.
    pub fn order(&self, pick: &dyn Fn(usize) -> Option<usize>) -> Option<Vec<usize>> {
        self.order_of(&self.roots, pick)
    }

    /// The same for other roots.
    pub fn order_of(&self, roots: &[usize], pick: &dyn Fn(usize) -> Option<usize>) -> Option<Vec<usize>> {
        let mut state = vec![0u8; self.classes.len()];
        let mut out = Vec::new();
        for root in roots {
            let mut stack = vec![(*root, 0usize)];
            while let Some((class, next)) = stack.pop() {
                if next == 0 {
                    match state[class] {
                        2 => continue,
                        1 => return None,
                        _ => state[class] = 1,
                    }
                }
                let needs = &self.classes[class].get(pick(class)?)?.needs;
                match needs.get(next) {
                    Some(child) => {
                        stack.push((class, next + 1));
                        match state[*child] {
                            2 => {}
                            1 => return None,
                            _ => stack.push((*child, 0)),
                        }
                    }
                    None => {
                        state[class] = 2;
                        out.push(class);
                    }
                }
            }
        }
        Some(out)
    }

    /// The cost of `pick` for the roots; `None` if it is not acyclic and complete.
    pub fn cost(&self, pick: &dyn Fn(usize) -> Option<usize>) -> Option<u64> {
        let order = self.order(pick)?;
        Some(order.iter().fold(0, |sum: u64, c| sum.saturating_add(self.classes[*c][pick(*c).unwrap_or(0)].cost)))
    }

    /// `picks` where the roots need them.
    fn reached(&self, picks: &[Option<usize>]) -> Option<Picks> {
        let mut out = vec![None; self.classes.len()];
        for class in self.order(&|c| picks[c])? {
            out[class] = picks[class];
        }
        Some(out)
    }
}

/// The picks for a problem: greedy, then improved class by class. `None` if a root cannot be made.
pub fn extract(problem: &Problem) -> Option<Picks> {
    let start = greedy(problem)?;
    let better = climb::climb(problem, start);
    problem.reached(&better)
}
