//! The rewrite rules, by subject. `docs/rules.md` is the rule book: directional, every premise in the rule, the numerics
//! class stated. A rule is a function from a node to equal terms; it adds them and leaves the union to the caller.

pub(crate) mod axes;
mod contract;
mod index;
mod norm;
mod order;
pub(crate) mod product;
mod view;
mod widen;

use crate::term::{Graph, Term};
use egg::Id;
use spinec_ir::ops::Opcode;

/// What a rule does to rounding, weakest demand last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The same bits.
    Exact,
    /// Equal in real arithmetic, with the same rounding points and dtypes at least as wide; sums and products associate
    /// differently. Error a small multiple of the unit roundoff times the sum of magnitudes.
    Reassociating,
    /// Equal in real arithmetic; a rounding point moves, appears or disappears.
    RoundingChanging,
    /// Equal in real arithmetic, but the error is not bounded by the magnitude of the result: terms may cancel.
    Approximate,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 4] = [Class::Exact, Class::Reassociating, Class::RoundingChanging, Class::Approximate];

    /// The name in policies and records.
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Reassociating => "reassociating",
            Class::RoundingChanging => "rounding-changing",
            Class::Approximate => "approximate",
        }
    }
}

/// A rule.
pub struct Rule {
    /// Name, unique, as records show it.
    pub name: &'static str,
    /// Left side and right side.
    pub form: &'static str,
    /// What must hold besides the form.
    pub premises: &'static str,
    /// Numerics class.
    pub class: Class,
    /// Ops at the root of the left side.
    pub roots: &'static [Opcode],
    /// Adds terms equal to the node, which is a member of the class, and returns them.
    pub apply: fn(&mut Graph, Id, &Term) -> Vec<Id>,
}

/// The rules in the order they are tried.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [view::RULES, index::RULES, order::RULES, norm::RULES, contract::RULES, product::RULES, widen::RULES]
        .into_iter()
        .flatten()
}
