//! Chains of rules for values, as JSON; `text` prints them.

use super::super::values::{ValuePath, output_of};
use crate::planner::Subject;
use serde_json::{Value, json};
use spinec_ir::diag::{Span, json_range};
use spinec_ir::ir::{Func, Module};
use spinec_passes::compile::Compiled;
use spinec_passes::history::{Chain, Fate, Held, History, Place, Shown, TermId, Why};
use spinec_passes::rules::rules;
use std::collections::BTreeSet;

/// What chains are told with.
pub struct Teller<'a> {
    pub subject: &'a Subject,
    pub compiled: &'a Compiled,
}

impl Teller<'_> {
    fn module(&self) -> &Module {
        &self.compiled.plan.module
    }

    /// Regions of a function that have the value, and that its iterations reach, with what became of it in each; regions that
    /// have intermediates of its expression if none has the value. An output goes by the name of its value.
    pub fn values(&self, func: &Func, path: &ValuePath) -> Vec<Value> {
        let lowered = self.subject.module.func(&func.name);
        let output = lowered.and_then(|f| Some(f.value(output_of(f, &path.plain)?).names.first()?.to_string()));
        let names = std::iter::once(path.plain.clone()).chain(output.filter(|_| path.indices.is_empty()));
        let names: BTreeSet<String> = names.collect();
        let named = self.regions(func, path, |h, place| names.iter().flat_map(|n| h.named(place, n)).collect());
        if !named.is_empty() {
            return named;
        }
        // Intermediates of an expression are in the chain of what is made of them.
        self.regions(func, path, |h, place| outermost(h, h.within(place, &path.plain)))
    }

    fn regions(
        &self,
        func: &Func,
        path: &ValuePath,
        find: impl Fn(&History, &Place) -> Vec<(usize, usize)>,
    ) -> Vec<Value> {
        let mut out = Vec::new();
        for r in &self.compiled.regions {
            let Some(h) = &r.history else { continue };
            for place in h.places.iter().filter(|p| p.func == func.name && path.reaches(&p.taken)) {
                let found = find(h, place);
                if !found.is_empty() {
                    let values: Vec<Value> = found.iter().map(|at| self.value(h, place, *at)).collect();
                    out.push(json!({"region": at(place), "fired": r.saturation.fired, "values": values}));
                }
            }
        }
        out
    }

    /// Where a derived weight comes from: for each of its parts the chain that made it.
    pub fn derived(&self, name: &str) -> Vec<Value> {
        let mut out: Vec<Value> = Vec::new();
        let mut seen = BTreeSet::new();
        for r in &self.compiled.regions {
            let Some(h) = &r.history else { continue };
            for held in h.held.iter().filter(|w| self.module().weight(w.weight).name == name) {
                let place = &h.places[0];
                let Some((i, chain)) = h.roots.iter().enumerate().find(|(_, c)| h.store.holds(c.to, held.term)) else {
                    continue;
                };
                // Regions that derive the same share it.
                if !seen.insert((held.column, h.names(place, self.module()).shown().term(held.term))) {
                    continue;
                }
                let (from, steps) = chain.made(&h.store, held.term);
                let names = h.names(place, self.module());
                let mut shown = names.shown();
                let mut told = self.told(h, place, &mut shown, chain, from, &steps);
                told["region"] = json!(at(place));
                told["fired"] = json!(r.saturation.fired);
                told["column"] = json!(held.column);
                told["status"] = json!(if steps.is_empty() { "as_written" } else { "rewritten" });
                told["stored"] = json!(self.module().weight(held.weight).ty.dtype.name());
                told["part_of"] = json!(self.name(h, place, place.roots[i]));
                told["chosen"] = json!({"term": shown.term(held.term), "type": names.ty(held.term)});
                told["where"] = numbers(&shown);
                out.push(told);
            }
        }
        out
    }

    fn value(&self, h: &History, place: &Place, (op, result): (usize, usize)) -> Value {
        let names = h.names(place, self.module());
        let mut shown = names.shown();
        let written = h.written[op][result];
        let mut told = match &h.values[op][result] {
            Some(chain) => {
                let steps: Vec<(usize, TermId)> =
                    chain.steps.iter().enumerate().map(|(i, s)| (i, s.whole_after())).collect();
                let mut told = self.told(h, place, &mut shown, chain, chain.from, &steps);
                told["status"] = json!(if chain.steps.is_empty() { "as_written" } else { "rewritten" });
                told["chosen"] = json!({"term": shown.term(chain.to), "type": names.ty(chain.to)});
                let held = h.held.iter().filter(|w| w.term == chain.to || self.only_in(h, w.term, chain.to));
                let held: BTreeSet<&str> = held.map(|w| &*self.module().weight(w.weight).name).collect();
                told["held_by"] = json!(held);
                told
            }
            None => self.removed(h, place, &mut shown, written),
        };
        told["value"] = json!(self.name(h, place, (op, result)));
        told["where"] = numbers(&shown);
        told
    }

    /// Whether what the region hands on has `inner` in a derived weight and nowhere else.
    fn only_in(&self, h: &History, weight: TermId, inner: TermId) -> bool {
        let derived: BTreeSet<TermId> = h.held.iter().map(|w| w.term).collect();
        let (mut open, mut seen) = (h.roots.iter().map(|c| c.to).collect::<Vec<_>>(), BTreeSet::new());
        while let Some(t) = open.pop() {
            if t == inner {
                return false;
            }
            if seen.insert(t) && !derived.contains(&t) {
                open.extend(&h.store.node(t).children);
            }
        }
        h.store.holds(weight, inner)
    }

    /// A value that is not computed: the rules that did away with it.
    fn removed(&self, h: &History, place: &Place, shown: &mut Shown, written: TermId) -> Value {
        let mut out = json!({"status": "removed", "steps": [], "chosen": null, "held_by": []});
        for (root, chain) in place.roots.iter().zip(&h.roots).filter(|(_, c)| h.store.holds(c.from, written)) {
            if let Fate::Removed(steps) = chain.fate(&h.store, written) {
                let last = steps.last().copied();
                let from_it = |w: &&Held| {
                    let inside = h.store.holds(chain.to, w.term);
                    inside && chain.made(&h.store, w.term).1.iter().any(|(i, _)| Some(*i) == last)
                };
                let held: BTreeSet<&str> =
                    h.held.iter().filter(from_it).map(|w| &*self.module().weight(w.weight).name).collect();
                let steps: Vec<(usize, TermId)> = steps.iter().map(|i| (*i, chain.steps[*i].after)).collect();
                out = self.told(h, place, shown, chain, written, &steps);
                out["status"] = json!("removed");
                out["held_by"] = json!(held);
                out["chosen"] = Value::Null;
                out["removed_by"] =
                    out["steps"].as_array().and_then(|s| s.last()).map_or(Value::Null, |s| s["rule"].clone());
                out["part_of"] = json!(self.name(h, place, *root));
                return out;
            }
        }
        out["written"] = self.written(h, place, shown, written);
        out
    }

    /// A chain from `from` over some of its steps.
    fn told(
        &self,
        h: &History,
        place: &Place,
        shown: &mut Shown,
        chain: &Chain,
        from: TermId,
        steps: &[(usize, TermId)],
    ) -> Value {
        // Steps that are referred to are shown too.
        let mut which: BTreeSet<usize> = steps.iter().map(|s| s.0).collect();
        for i in which.clone().into_iter().rev() {
            if let Why::Again { first, last } = chain.steps[i].why {
                which.extend(first..=last);
            }
        }
        let number = |i: usize| which.iter().position(|w| *w == i).map_or(0, |n| n + 1);
        let written = self.written(h, place, shown, from);
        let steps: Vec<Value> = which
            .iter()
            .map(|i| {
                let step = &chain.steps[*i];
                let (before, after) = match step.why {
                    Why::Rule { .. } => shown.step(step.before, step.after),
                    // What differs was shown where it happened first.
                    Why::Again { .. } => (shown.operand(step.before), shown.operand(step.after)),
                };
                let (rule, reversed, again) = match step.why {
                    Why::Rule { name, reversed } => (Some(name), reversed, None),
                    Why::Again { first, last } => (None, false, Some([number(first), number(last)])),
                };
                let class = rules().find(|r| Some(r.name) == rule).map(|r| r.class.name());
                let span = h.op_of(step.before).and_then(|(op, _)| place.ops[op].span);
                json!({
                    "rule": rule, "class": class, "reversed": reversed, "again": again,
                    "before": before, "after": after, "type": shown.ty(step.before),
                    "value": shown.name(step.before), "written_at": self.place(span),
                })
            })
            .collect();
        json!({"written": written, "steps": steps})
    }

    fn written(&self, h: &History, place: &Place, shown: &mut Shown, term: TermId) -> Value {
        let span = h.op_of(term).and_then(|(op, _)| place.ops[op].span);
        json!({
            "term": shown.term(term), "type": shown.ty(term), "value": shown.name(term), "at": self.place(span),
        })
    }

    fn place(&self, span: Option<Span>) -> Value {
        let sources = &self.subject.sources;
        span.map_or(Value::Null, |s| {
            json!({
                "file": sources.file(s.file).name, "range": json_range(s, sources), "place": sources.place(s),
                "text": sources.text(s).trim(),
            })
        })
    }

    fn name(&self, h: &History, place: &Place, (op, result): (usize, usize)) -> String {
        let names = h.names(place, self.module());
        match names.name(h.written[op][result]) {
            Some(name) => name.to_owned(),
            None => format!("{} in {}", names.shown().term(h.written[op][result]), place.ops[op].path),
        }
    }
}

fn numbers(shown: &Shown) -> Value {
    shown.numbers().map(|(n, text)| json!({"name": n, "term": text})).collect()
}

/// Where a region is: the function and the node path of its first op, as in its record.
fn at(place: &Place) -> String {
    let path = place.ops.iter().map(|op| &*op.path).find(|p| !p.is_empty());
    format!("{}:{}", place.func, path.unwrap_or(""))
}

/// Those of some values that are no part of another.
fn outermost(h: &History, found: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let term = |at: &(usize, usize)| h.written[at.0][at.1];
    let inner = |a: &(usize, usize)| found.iter().any(|b| term(a) != term(b) && h.store.holds(term(b), term(a)));
    found.iter().filter(|a| !inner(a)).copied().collect()
}
