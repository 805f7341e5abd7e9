//! Exact integration over coins: the unit interval cut at every point where a decision can change.

/// Cells shorter than this do not occur with the seeds in use; a cell is probed a part of its length from both ends.
const SHORTEST: f64 = 1e-7;
const INSET: f64 = 1e-4;

/// A part of [0, 1) on which every decision is the same, if the cuts were complete.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    from: f64,
    to: f64,
}

impl Cell {
    pub fn mass(self) -> f64 {
        self.to - self.from
    }

    /// A point near the lower or the upper end.
    pub fn corner(self, upper: bool) -> f64 {
        let inset = INSET * self.mass();
        if upper { self.to - inset } else { self.from + inset }
    }
}

/// The cells between these cuts. Cuts closer than rounding are one.
pub fn cells(mut cuts: Vec<f64>) -> Vec<Cell> {
    cuts.retain(|c| *c > 1e-13 && *c < 1.0 - 1e-13);
    cuts.push(1.0);
    cuts.sort_by(f64::total_cmp);
    let mut out: Vec<Cell> = Vec::new();
    let mut from = 0.0;
    for to in cuts {
        if to - from < 1e-13 {
            continue;
        }
        assert!(to - from > SHORTEST, "a cell of {:e} cannot be probed: choose another seed", to - from);
        out.push(Cell { from, to });
        from = to;
    }
    let total: f64 = out.iter().map(|c| c.mass()).sum();
    assert!((total - 1.0).abs() < 1e-12);
    out
}

/// Running sums of weights over their total.
pub fn cumulative(weights: &[f64]) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    weights
        .iter()
        .map(|w| {
            sum += w;
            sum / total
        })
        .collect()
}

/// Every sequence over `choices[0]`, `choices[1]`, ...
pub fn product(choices: &[usize]) -> Vec<Vec<usize>> {
    let mut out = vec![Vec::new()];
    for n in choices {
        out = out
            .iter()
            .flat_map(|p: &Vec<usize>| (0..*n).map(move |i| p.iter().copied().chain([i]).collect()))
            .collect();
    }
    out
}
