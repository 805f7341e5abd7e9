//! What a check of numerics found.

use super::bound::Bound;
use super::picks::Turned;
use spinec_ir::diag::Span;

/// How a value is another.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Off by so much, relative to the largest magnitude of the value or of its summands.
    Off(f64),
    /// It turned on a comparison, and not at a near tie.
    Turned(Turned),
    /// A whole number, a truth value, or one of the two is not finite.
    Other {
        /// What it is.
        got: f64,
        /// What it was.
        want: f64,
    },
    /// Another type.
    Type {
        /// What it is.
        got: String,
        /// What it was.
        want: String,
    },
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::Off(error) => write!(f, "is off by {error:.1e}"),
            Change::Turned(t) => t.fmt(f),
            Change::Other { got, want } => write!(f, "is {got} where it was {want}"),
            Change::Type { got, want } => write!(f, "is {got} where it was {want}"),
        }
    }
}

/// Where in a program a value is.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The pass; empty where two programs were compared.
    pub pass: &'static str,
    /// The function.
    pub func: String,
    /// The value: a node path with loop indices, an output as `-> NAME`, or a state.
    pub value: String,
    /// Whether it is no value of the spec but a part of that value's expression.
    pub part: bool,
    /// The value's expression in the YAML file.
    pub span: Option<Span>,
    /// The seed.
    pub seed: u64,
}

/// The first value that a pass changed too much.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Where.
    pub place: Place,
    /// How.
    pub change: Change,
    /// What is allowed there.
    pub bound: Bound,
    /// What fired in the region that computes it: rules, and [`crate::choose::NARROW_STORAGE`].
    pub fired: Vec<&'static str>,
}

/// A value that turned, or would if what uses a value were not given what it was, at a near tie: no fault of the pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Tie {
    /// Where.
    pub place: Place,
    /// How.
    pub turned: Turned,
    /// What makes it a tie: a gap of at most twice the tolerance.
    pub bound: Bound,
}

/// What a pass did to the values of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The pass.
    pub pass: &'static str,
    /// The bound.
    pub bound: Bound,
    /// Values compared with it, over all functions and seeds, each iteration of a loop by itself.
    pub values: usize,
    /// The largest difference there was.
    pub worst: f64,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The first difference beyond its bound; nothing is compared behind it.
    pub difference: Option<Difference>,
    /// Near ties, each value once a pass.
    pub ties: Vec<Tie>,
    /// Bounds in the order of passes, then of class.
    pub applied: Vec<Applied>,
}
