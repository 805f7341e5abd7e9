//! Numerics of passes: both sides of each on the reference interpreter, value by value.
//!
//! Every value that a pass leaves is compared with what it was, and what uses it is then given what it was. So a difference is
//! that of the steps between a value and the ones it is made of: it is bounded by the numerics class of what fired there,
//! nothing adds up over layers, and a pick that turns at a near tie is what the graph picked for all that follows.

mod advice;
mod bound;
mod comparison;
mod differ;
mod marks;
mod picks;
mod report;
mod run;

pub use advice::{Advice, Knob, advise};
pub use bound::Bound;
pub use picks::{Pick, Turned};
pub use report::{Applied, Change, Difference, Place, Report, Tie};

use super::{Options, PASSES, PassError, Program, RegionRecord, start, step};
use crate::choose::NARROW_STORAGE;
use crate::compile::options_for;
use crate::rules::Class;
use bound::Bounds;
use comparison::Comparison;
use spinec_ir::ir::{Func, Module};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, Env, TensorType};
use std::collections::BTreeSet;

/// Gives an input of a function by name and type; `None` takes one made up.
pub type Given<'a> = &'a dyn Fn(&Func, &str, &TensorType) -> Option<Tensor>;

/// How numerics are checked.
pub struct Check<'a> {
    /// Values of the run-time symbols. The interpreter is plain: dims should be small, in the system too. A call is for as many
    /// requests as its first input has entries.
    pub env: Env,
    /// Seeds of weights and inputs: every function is called once for each.
    pub seeds: Vec<u64>,
    /// Inputs that must be something in particular. Made up are reals in [-1, 1), and integers that count along the last axis.
    pub given: Given<'a>,
    /// Allowed for every value in place of what [`Bound::new`] gives for its class.
    pub tolerance: Option<f64>,
}

/// Runs all passes and compares the program before and after each; stops at the first difference. The program is the one
/// that [`crate::compile`] rewrites to: functions that decide tokens are rewritten by exact rules alone.
///
/// # Errors
/// See [`PassError`]; also a function the interpreter cannot evaluate.
pub fn check_each(module: Module, options: &Options, check: &Check) -> Result<(Program, Report), PassError> {
    let options = &options_for(&module, options);
    let mut program = start(module)?;
    let mut report = Report::default();
    for pass in PASSES {
        let mut before = program.clone();
        marks::mark(&mut before);
        let mut after = step(pass, before.clone(), options)?;
        let records = after.regions.get(before.regions.len()..).unwrap_or_default();
        let comparison = Comparison {
            pass: pass.name,
            before: &before,
            after: &after,
            check,
            bounds: Bounds::of(&before.module, records).or_all(check.tolerance),
            records,
            marked: true,
        };
        report.difference = comparison.run(&mut report)?;
        marks::strip(&mut after);
        program = after;
        if report.difference.is_some() || options.stop_after.as_deref() == Some(pass.name) {
            break;
        }
    }
    Ok((program, report))
}

/// The first value of `before`, in the order of evaluation, that is another in `after`, by the names both give it; outputs and
/// states always are. What is allowed is [`Check::tolerance`], else what the weakest class in the records of `after` allows.
///
/// # Errors
/// A function the interpreter cannot evaluate.
pub fn compare(before: &Program, after: &Program, check: &Check) -> Result<Option<Difference>, PassError> {
    let class = after.regions.iter().map(|r| r.class).max().unwrap_or(Class::Exact);
    let mut bound = Bound::new(class, before.module.numerics.apply(DType::BF16));
    bound.tolerance = check.tolerance.unwrap_or(bound.tolerance);
    let bounds = Bounds::same(&before.module, bound);
    let comparison = Comparison { pass: "", before, after, check, bounds, records: &[], marked: false };
    comparison.run(&mut Report::default())
}

/// What fired in a region.
fn fired(record: &RegionRecord) -> Vec<&'static str> {
    let narrow = (record.narrowed > 0).then_some(NARROW_STORAGE);
    record.saturation.fired.keys().copied().chain(narrow).collect()
}

/// Everything that fired, over all regions.
fn all_fired(regions: &[RegionRecord]) -> BTreeSet<&'static str> {
    regions.iter().flat_map(fired).collect()
}
