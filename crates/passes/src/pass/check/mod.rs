//! Numerics of passes: both sides of each on the reference interpreter, value by value.
//!
//! Every value that a pass leaves is compared with what it was, and what uses it is then given what it was. So a difference is
//! that of the steps between a value and the ones it is made of: it is bounded by the numerics class of what fired there,
//! nothing adds up over layers, and a pick that turns at a near tie is what the graph picked for all that follows.

mod advice;
mod bound;
mod marks;
mod picks;
mod run;

pub use advice::{Advice, Knob, advise};
pub use bound::Bound;
pub(crate) use marks::is_mark;
pub use picks::{Pick, Turned};

use super::{Options, PASSES, PassError, Program, RegionRecord, start, step};
use crate::choose::NARROW_STORAGE;
use crate::rules::Class;
use bound::Bounds;
use run::{Event, Key, Log, Weights, call, inputs};
use spinec_ir::diag::Span;
use spinec_ir::ir::{Func, ValueDef, ValueId};
use spinec_ir::ops::Opcode;
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
    /// What fired in the region that computes it: rules, and [`NARROW_STORAGE`].
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

/// Runs all passes and compares the program before and after each; stops at the first difference. The program is the one
/// that [`super::run`] gives.
///
/// # Errors
/// See [`PassError`]; also a function the interpreter cannot evaluate.
pub fn check_each(
    module: spinec_ir::ir::Module,
    options: &Options,
    check: &Check,
) -> Result<(Program, Report), PassError> {
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

/// Two programs.
struct Comparison<'a> {
    pass: &'static str,
    before: &'a Program,
    after: &'a Program,
    check: &'a Check<'a>,
    bounds: Bounds,
    records: &'a [RegionRecord],
    marked: bool,
}

impl Comparison<'_> {
    fn run(&self, report: &mut Report) -> Result<Option<Difference>, PassError> {
        for seed in &self.check.seeds {
            let stores = (Weights::new(self.before, *seed), Weights::new(self.after, *seed));
            for (f, func) in self.before.module.funcs.iter().enumerate() {
                let Some(other) = self.after.module.func(&func.name) else { continue };
                let inputs = inputs(func, self.check, *seed).map_err(PassError::Internal)?;
                let want = call(&stores.0, func, &inputs, self.marked, None)?;
                let got = call(&stores.1, other, &inputs, self.marked, self.marked.then_some(&want))?;
                let pair = Pair { f, func, seed: *seed, want, got };
                if let Some(found) = self.values(&pair, report) {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Values in the order of evaluation, then outputs and states.
    fn values(&self, pair: &Pair, report: &mut Report) -> Option<Difference> {
        let of = |mark: usize| self.bounds.get(pair.f, mark);
        // What a value with several references was given may be off for some of its users.
        let loose = pair.got.several.iter().map(|m| of(*m).0).fold(Bound::EXACT, Bound::or);
        for (now, event) in pair.want.events.iter().enumerate() {
            let mark = match event.key {
                Key::Mark(mark) => mark,
                Key::Name(_) => usize::MAX,
            };
            let (bound, record) = match event.key {
                Key::Mark(mark) => of(mark),
                Key::Name(_) => of(0),
            };
            let bound = bound.or(loose);
            self.replayed(pair, now, event, mark, report);
            let Some(got) = pair.got.get(&event.key, event.time) else { continue };
            let place = || self.place(pair, &event.path, mark);
            let summands = || summands(pair.func, mark, &pair.want, now);
            match differ(got, &event.value, &summands) {
                Some(Change::Off(error)) if error <= bound.tolerance => self.count(report, bound, error),
                None => self.count(report, bound, 0.0),
                Some(change) => {
                    let change = match self.turned(pair, now, event, mark, got) {
                        Some((turned, bound)) if turned.gap <= 2.0 * bound.tolerance => {
                            self.count(report, bound, 0.0);
                            self.tie(report, Tie { place: place(), turned, bound });
                            continue;
                        }
                        Some((turned, _)) => Change::Turned(turned),
                        None => change,
                    };
                    return Some(self.difference(place(), change, bound, record));
                }
            }
        }
        let yields = &pair.func.region(pair.func.body).yields;
        let outputs = pair.want.outputs.iter().zip(&pair.got.outputs).zip(yields);
        let outputs = outputs.map(|(((name, want), (_, got)), v)| (format!("-> {name}"), want, got, of(v.index())));
        let states = pair.want.states.iter().zip(&pair.got.states);
        let states = states.map(|((name, want), (_, got))| {
            let bound = if self.marked { (Bound::EXACT, None) } else { of(0) };
            (name.clone(), want, got, bound)
        });
        for (name, want, got, (bound, record)) in outputs.chain(states) {
            let bound = bound.or(loose);
            match differ(got, want, &|| 0.0) {
                None => {}
                Some(Change::Off(error)) if error <= bound.tolerance => {}
                Some(change) => {
                    let place = self.place(pair, &name, usize::MAX);
                    return Some(self.difference(place, change, bound, record));
                }
            }
        }
        None
    }

    /// How a value turned, and the bound of what it turned on.
    fn turned(&self, pair: &Pair, now: usize, event: &Event, mark: usize, got: &Tensor) -> Option<(Turned, Bound)> {
        let v = ValueId(u32::try_from(mark).ok().filter(|_| mark < pair.func.values.len())?);
        let (op, pick) = picks::pick(pair.func, v)?;
        let operands = picks::operands(op, &pair.want, now, None)?;
        let turned = picks::turned(op, pick, &operands, &event.value, got)?;
        let of = |v: usize| self.bounds.get(pair.f, v).0;
        let bound = op.operands.iter().map(|o| of(o.index())).fold(of(mark), Bound::or);
        Some((turned, bound))
    }

    /// Names a value that would turn on what its operands are now.
    fn replayed(&self, pair: &Pair, now: usize, event: &Event, mark: usize, report: &mut Report) {
        let v = match u32::try_from(mark) {
            Ok(v) if mark < pair.func.values.len() => ValueId(v),
            _ => return,
        };
        let Some((op, _)) = picks::pick(pair.func, v) else { return };
        let own = picks::operands(op, &pair.want, now, Some(&pair.got));
        let Some(own) = own.filter(|own| Some(own) != picks::operands(op, &pair.want, now, None).as_ref()) else {
            return;
        };
        let types: Option<Vec<TensorType>> = op.results.iter().map(|r| pair.func.tensor(*r).cloned()).collect();
        let result = op.results.iter().position(|r| *r == v).unwrap_or(0);
        let Some(types) = types else { return };
        let again = picks::again(&self.before.module, op, &own, &types, result, &self.check.env);
        if let Some((turned, bound)) = again.and_then(|again| self.turned(pair, now, event, mark, &again))
            && turned.gap <= 2.0 * bound.tolerance
        {
            self.tie(report, Tie { place: self.place(pair, &event.path, mark), turned, bound });
        }
    }

    fn tie(&self, report: &mut Report, tie: Tie) {
        let key = |t: &Tie| (t.place.pass, t.place.func.clone(), t.place.value.clone());
        if !report.ties.iter().any(|known| key(known) == key(&tie)) {
            report.ties.push(tie);
        }
    }

    fn count(&self, report: &mut Report, bound: Bound, error: f64) {
        let at = report.applied.iter().position(|a| a.pass == self.pass && a.bound == bound);
        let at = at.unwrap_or_else(|| {
            let order = |a: &Applied| {
                a.pass == self.pass && (a.bound.class, a.bound.tolerance) > (bound.class, bound.tolerance)
            };
            let at = report.applied.iter().position(order).unwrap_or(report.applied.len());
            report.applied.insert(at, Applied { pass: self.pass, bound, values: 0, worst: 0.0 });
            at
        });
        report.applied[at].values += 1;
        report.applied[at].worst = report.applied[at].worst.max(error);
    }

    fn place(&self, pair: &Pair, path: &str, mark: usize) -> Place {
        let value = pair.func.values.get(mark);
        let part = value.is_some_and(|v| v.names.iter().all(|n| is_mark(n)) && matches!(v.def, ValueDef::Result(..)));
        let own = value.and_then(|v| match v.def {
            ValueDef::Result(op, _) => pair.func.op(op).loc.span,
            ValueDef::Param(..) => None,
        });
        let (func, value) = (pair.func.name.clone(), path.to_owned());
        Place { pass: self.pass, func, value, part, span: own.or_else(|| span(pair.func, path)), seed: pair.seed }
    }

    fn difference(&self, place: Place, change: Change, bound: Bound, record: Option<usize>) -> Difference {
        let record = record.and_then(|r| self.records.get(r));
        Difference { place, change, bound, fired: record.map(fired).unwrap_or_default() }
    }
}

/// A function before and after.
struct Pair<'a> {
    f: usize,
    func: &'a Func,
    seed: u64,
    want: Log,
    got: Log,
}

/// What fired in a region.
fn fired(record: &RegionRecord) -> Vec<&'static str> {
    let narrow = (record.narrowed > 0).then_some(NARROW_STORAGE);
    record.saturation.fired.keys().copied().chain(narrow).collect()
}

/// The largest magnitude of what a sum or a difference is made of: what its rounding is relative to.
fn summands(func: &Func, mark: usize, log: &Log, now: usize) -> f64 {
    let Some(ValueDef::Result(op, _)) = func.values.get(mark).map(|v| v.def) else { return 0.0 };
    let op = func.op(op);
    if !matches!(op.code, Opcode::Add | Opcode::Sub | Opcode::Sum | Opcode::Mean | Opcode::Cumsum | Opcode::Einsum) {
        return 0.0;
    }
    let operands = picks::operands(op, log, now, None).unwrap_or_default();
    let sizes = operands.iter().map(|t| largest(&t.to_f64()));
    if op.code == Opcode::Einsum { sizes.product() } else { sizes.fold(0.0, f64::max) }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()))
}

/// How a value is another, if it is. Zeros of both signs are the same, and so is all that is not a number.
fn differ(got: &Tensor, want: &Tensor, summands: &dyn Fn() -> f64) -> Option<Change> {
    if got.shape != want.shape || got.dtype != want.dtype {
        let show = |t: &Tensor| format!("{}{:?}", t.dtype, t.shape);
        return Some(Change::Type { got: show(got), want: show(want) });
    }
    if got.data == want.data {
        return None;
    }
    let (a, b) = (got.to_f64(), want.to_f64());
    let mut off = 0.0f64;
    for (x, y) in a.iter().zip(&b) {
        if x == y || (x.is_nan() && y.is_nan()) {
            continue;
        }
        if !want.dtype.is_float() || !x.is_finite() || !y.is_finite() {
            return Some(Change::Other { got: *x, want: *y });
        }
        off = off.max((x - y).abs());
    }
    let scale = largest(&b).max(summands()).max(f64::MIN_POSITIVE);
    (off > 0.0).then_some(Change::Off(off / scale))
}

/// Where a value stands in the YAML: that of the op that makes it, by its name without loop indices.
fn span(func: &Func, path: &str) -> Option<Span> {
    let of = |v: &ValueId| match func.value(*v).def {
        ValueDef::Result(op, _) => func.op(op).loc.span,
        ValueDef::Param(..) => None,
    };
    if let Some(output) = path.strip_prefix("-> ") {
        let at = func.outputs.iter().position(|o| o == output)?;
        return of(func.region(func.body).yields.get(at)?);
    }
    let number = |part: &&str| part.is_empty() || !part.chars().all(|c| c.is_ascii_digit());
    let plain = path.split('.').filter(number).collect::<Vec<_>>().join(".");
    let named = |v: &&ValueId| func.value(**v).names.iter().any(|n| **n == *plain || **n == *path);
    func.ops.iter().flat_map(|op| &op.results).find(named).and_then(of)
}

/// Everything that fired, over all regions.
fn all_fired(regions: &[RegionRecord]) -> BTreeSet<&'static str> {
    regions.iter().flat_map(fired).collect()
}
