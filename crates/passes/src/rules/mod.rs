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

pub use spinec_ir::ty::RuleClass as Class;

use crate::term::{Graph, Term};
use egg::Id;
use spinec_ir::ops::Opcode;

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

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The rules in the order they are tried.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [view::RULES, index::RULES, order::RULES, norm::RULES, contract::RULES, product::RULES, widen::RULES]
        .into_iter()
        .flatten()
}
