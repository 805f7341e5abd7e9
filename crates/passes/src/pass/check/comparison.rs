//! Two programs on the same inputs, value by value.

use super::bound::{Bound, Bounds};
use super::differ::{differ, span, summands};
use super::marks::is_mark;
use super::picks::{self, Turned};
use super::report::{Applied, Change, Difference, Place, Report, Tie};
use super::run::{Event, Key, Log, Weights, call, inputs};
use super::{Check, fired};
use crate::pass::{PassError, Program, RegionRecord};
use spinec_ir::ir::{Func, ValueDef, ValueId};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::TensorType;

/// Two programs.
pub(super) struct Comparison<'a> {
    pub pass: &'static str,
    pub before: &'a Program,
    pub after: &'a Program,
    pub check: &'a Check<'a>,
    pub bounds: Bounds,
    pub records: &'a [RegionRecord],
    pub marked: bool,
}

impl Comparison<'_> {
    pub fn run(&self, report: &mut Report) -> Result<Option<Difference>, PassError> {
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
