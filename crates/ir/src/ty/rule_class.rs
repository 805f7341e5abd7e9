//! What rewriting may do to rounding.

/// What a rewrite rule does to rounding, weakest demand last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleClass {
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

impl RuleClass {
    /// All classes.
    pub const ALL: [RuleClass; 4] =
        [RuleClass::Exact, RuleClass::Reassociating, RuleClass::RoundingChanging, RuleClass::Approximate];

    /// Those that may fire where a system says nothing else: all but approximate ones.
    pub const DEFAULT: [RuleClass; 3] = [RuleClass::Exact, RuleClass::Reassociating, RuleClass::RoundingChanging];

    /// The class with that name.
    pub fn from_name(name: &str) -> Option<RuleClass> {
        RuleClass::ALL.into_iter().find(|c| c.name() == name)
    }

    /// The name in policies and records.
    pub fn name(self) -> &'static str {
        match self {
            RuleClass::Exact => "exact",
            RuleClass::Reassociating => "reassociating",
            RuleClass::RoundingChanging => "rounding-changing",
            RuleClass::Approximate => "approximate",
        }
    }
}
