//! What to leave out so that a difference goes, tried before it is said.

use super::{Check, Difference, all_fired, check_each};
use crate::choose::NARROW_STORAGE;
use crate::pass::{Options, PassError, Program};
use crate::rules::Class;
use spinec_ir::ir::Module;
use std::collections::BTreeSet;

/// What was found by leaving things out. Every set that is named was tried, and no value differs without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Leaving out one of these is enough, the likeliest first.
    OneOf(Vec<Knob>),
    /// All of these have to go: with any one of them back, a value differs.
    All(Vec<Knob>),
    /// A value differs though no rule fires and no weight is derived for the sake of time: the pass itself is wrong.
    Nothing,
}

/// What can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// A rule, or [`NARROW_STORAGE`]: `--without NAME`.
    Without(&'static str),
    /// Derived weights: a budget of no bytes.
    Derived,
}

impl Knob {
    /// As options of the command line.
    pub fn flag(self) -> String {
        match self {
            Knob::Without(name) => format!("--without {name}"),
            Knob::Derived => "--budget 0".to_owned(),
        }
    }

    fn turn(self, options: &mut Options) {
        match self {
            Knob::Without(name) => {
                options.without.insert(name.to_owned());
            }
            Knob::Derived => options.budget = Some(0),
        }
    }
}

/// Finds what makes the difference that a check with these options found, by running it again and again with less.
///
/// # Errors
/// As [`check_each`].
pub fn advise(
    module: &Module,
    options: &Options,
    check: &Check,
    found: &Difference,
    program: &Program,
) -> Result<Advice, PassError> {
    let whole = Trial { module: module.clone(), options: options.clone(), check, seeds: check.seeds.clone() };
    // One function, one seed and no later pass are quicker, if they show it too. What they find is tried on the whole before it
    // is said.
    let mut part = Trial { seeds: vec![found.place.seed], ..whole.clone() };
    part.module.funcs.retain(|f| f.name == found.place.func);
    part.options.stop_after = Some(found.place.pass.to_owned());
    let search = if part.passes(&[])? { &whole } else { &part };
    let all = knobs(options, found, program);
    if !whole.passes(&all)? {
        return Ok(Advice::Nothing);
    }
    let mut single = Vec::new();
    for knob in &all {
        if search.passes(&[*knob])? && whole.passes(&[*knob])? {
            single.push(*knob);
        }
    }
    if !single.is_empty() {
        return Ok(Advice::OneOf(single));
    }
    let fewer = search.minimal(&all)?;
    Ok(Advice::All(if whole.passes(&fewer)? { fewer } else { whole.minimal(&all)? }))
}

/// A check with something left out.
#[derive(Clone)]
struct Trial<'a> {
    module: Module,
    options: Options,
    check: &'a Check<'a>,
    seeds: Vec<u64>,
}

impl Trial<'_> {
    fn passes(&self, out: &[Knob]) -> Result<bool, PassError> {
        let mut options = self.options.clone();
        out.iter().for_each(|k| k.turn(&mut options));
        let check = Check { seeds: self.seeds.clone(), env: self.check.env.clone(), ..*self.check };
        let (_, report) = check_each(self.module.clone(), &options, &check)?;
        Ok(report.difference.is_none())
    }

    /// What of those is needed; the unlikeliest is put back first.
    fn minimal(&self, all: &[Knob]) -> Result<Vec<Knob>, PassError> {
        let mut out = all.to_vec();
        for knob in all.iter().rev() {
            let fewer: Vec<Knob> = out.iter().copied().filter(|k| k != knob).collect();
            if self.passes(&fewer)? {
                out = fewer;
            }
        }
        Ok(out)
    }
}

/// What may be to blame, the likeliest first: what fired where the value is computed, what changes most, and rules before
/// derived weights.
fn knobs(options: &Options, found: &Difference, program: &Program) -> Vec<Knob> {
    let here: BTreeSet<&str> = found.fired.iter().copied().collect();
    let class = |name: &str| match options.rules.iter().find(|r| r.name == name) {
        Some(rule) => rule.class,
        None => Class::RoundingChanging,
    };
    let mut names: Vec<&'static str> = all_fired(&program.regions).into_iter().collect();
    names.sort_by_key(|n| (!here.contains(n), std::cmp::Reverse(class(n)), *n == NARROW_STORAGE));
    let derived = (!program.derived.is_empty()).then_some(Knob::Derived);
    names.into_iter().map(Knob::Without).chain(derived).collect()
}
