//! How two values of a plan stand to each other.

use super::super::plan::describe;
use super::super::values::facts::{fact, name};
use super::super::values::flow::{At, Flow, Launch, Way, compatible};
use super::super::values::{Found, Named, Route, ValuePath};
use spinec_ir::ir::{Func, Module, Nest, RegionId, ValueId};
use spinec_ir::plan::{Access, Family, Place, Plan, Reason};
use std::collections::BTreeSet;

/// Most kernels that are listed one by one.
const SHOWN: usize = 5;

/// One of the two values.
pub struct Side<'a> {
    /// As the user gave it.
    pub given: &'a str,
    pub path: ValuePath,
    /// The weight of that name.
    pub weight: Option<Named>,
}

/// The question.
pub struct Relation<'a> {
    /// The phases as they are written.
    pub lowered: &'a Module,
    pub plan: &'a Plan,
    pub a: &'a Side<'a>,
    pub b: &'a Side<'a>,
}

/// What is said of a phase, or of all.
pub struct Answer {
    pub phase: Option<String>,
    /// It says what one of the values is, and nothing of the two.
    pub fact: bool,
    pub shared: bool,
    pub reason: Option<Reason>,
    pub text: String,
}

/// Takes an answer about a phase: whether it is about one value only, whether a kernel is shared, the reason of the closed list, the text.
type Say<'a> = dyn FnMut(bool, bool, Option<Reason>, String) + 'a;

/// Where a value is in a phase.
struct Home {
    /// The values, in the iterations that were named.
    values: Vec<(ValueId, At)>,
    /// The launches that compute them, or those that compute what they are had from.
    launches: BTreeSet<Launch>,
    /// What they are if no kernel computes them.
    facts: Vec<String>,
    /// Nothing is left of them.
    gone: bool,
}

impl Home {
    /// What is computed in a block.
    fn within(&self, flow: &Flow, block: RegionId) -> Home {
        let here = |l: &Launch| flow.phase.kernels[l.kernel].block == block;
        Home {
            values: self.values.iter().filter(|(v, at)| flow.makers(*v, at).iter().any(here)).cloned().collect(),
            launches: self.launches.iter().filter(|l| here(l)).cloned().collect(),
            facts: self.facts.clone(),
            gone: self.gone,
        }
    }
}

impl Relation<'_> {
    /// All there is to say, phase by phase.
    pub fn answers(&self) -> Vec<Answer> {
        let mut out = Vec::new();
        for (func, phase) in self.plan.module.funcs.iter().zip(&self.plan.phases) {
            let flow = Flow::of(func, phase);
            let found = [self.a, self.b].map(|s| s.path.find(func));
            let written = |s: &Side| self.lowered.func(&func.name).is_some_and(|f| !s.path.find(f).is_empty());
            let there = |s: &Side, f: &Found| !f.is_empty() || s.weight.is_some() || written(s);
            if !there(self.a, &found[0]) || !there(self.b, &found[1]) {
                continue;
            }
            let weights = [self.a, self.b].map(|s| s.weight.as_ref());
            if let Some(w) = weights[0].or(weights[1]) {
                let other = match weights {
                    [Some(_), Some(_)] => None,
                    [Some(_), None] => Some((self.b, self.home(&flow, self.b, &found[1]))),
                    _ => Some((self.a, self.home(&flow, self.a, &found[0]))),
                };
                out.extend(other.map(|(side, home)| self.weight(&flow, w, side, &home)));
                continue;
            }
            self.phase(&flow, &found, &mut out);
        }
        // Cases of a loop may give the same answer.
        out.dedup_by(|x, y| (&x.phase, &x.text) == (&y.phase, &y.text));
        if out.is_empty() {
            let weights = self.a.weight.is_some() || self.b.weight.is_some();
            let text = if weights {
                "a weight is read and not computed: it shares no kernel".to_owned()
            } else {
                format!(
                    "`{}` and `{}` are values of different phases, which never share a kernel",
                    self.a.given, self.b.given
                )
            };
            out.push(Answer { phase: None, fact: false, shared: false, reason: None, text });
        }
        out
    }

    fn home(&self, flow: &Flow, side: &Side, found: &Found) -> Home {
        let values: Vec<(ValueId, At)> = found.values.iter().map(|v| (*v, flow.at(*v, &side.path))).collect();
        // The value has a name where it is written: what is left of its expression is not the value.
        let named = |f: &Func, found: &Found| found.values.iter().any(|v| names(f, *v, &side.path.plain));
        let written = self.lowered.func(&flow.func.name);
        let lost = written.is_some_and(|f| named(f, &side.path.find(f))) && !named(flow.func, found);
        if found.is_empty() || lost {
            let text =
                format!("`{}` is not computed in this phase: `spinec explain` shows what became of it", side.given);
            return Home { values: Vec::new(), launches: BTreeSet::new(), facts: vec![text], gone: true };
        }
        let own: BTreeSet<Launch> = values.iter().flat_map(|(v, at)| flow.own(*v, at)).collect();
        if !own.is_empty() {
            return Home { values, launches: own, facts: Vec::new(), gone: false };
        }
        let mut facts: Vec<String> = values.iter().filter_map(|(v, at)| fact(flow, self.plan, *v, at)).collect();
        facts.dedup();
        let launches = values.iter().flat_map(|(v, at)| flow.makers(*v, at)).collect();
        Home { values, launches, facts, gone: false }
    }

    fn phase(&self, flow: &Flow, found: &[Found; 2], out: &mut Vec<Answer>) {
        let (a, b) = (self.home(flow, self.a, &found[0]), self.home(flow, self.b, &found[1]));
        let mut say = |fact: bool, shared: bool, reason: Option<Reason>, text: String| {
            out.push(Answer { phase: Some(flow.func.name.clone()), fact, shared, reason, text });
        };
        let facts: Vec<&String> = a.facts.iter().chain(b.facts.iter().filter(|f| !a.facts.contains(f))).collect();
        facts.into_iter().for_each(|f| say(true, false, None, f.clone()));
        if a.launches.is_empty() || b.launches.is_empty() {
            for (side, home) in [(self.a, &a), (self.b, &b)].into_iter().filter(|(_, h)| !h.launches.is_empty()) {
                let text = format!("`{}` is computed by {}", side.given, list(flow, &home.launches));
                say(true, false, None, text);
            }
            // An input reaches kernels all the same.
            if a.gone || b.gone {
                return;
            }
            return self.apart(flow, &a, &b, &mut say);
        }
        // Case by case, where both are computed in several cases of a loop.
        let blocks = |h: &Home| -> BTreeSet<RegionId> {
            h.launches.iter().map(|l| flow.phase.kernels[l.kernel].block).collect()
        };
        let (of_a, of_b) = (blocks(&a), blocks(&b));
        if of_a != of_b {
            return self.pair(flow, &a, &b, &mut say);
        }
        for block in of_a {
            self.pair(flow, &a.within(flow, block), &b.within(flow, block), &mut say);
        }
    }

    /// Whether launches are the same, and why not.
    fn pair(&self, flow: &Flow, a: &Home, b: &Home, say: &mut Say) {
        let pairs = || a.launches.iter().flat_map(|x| b.launches.iter().map(move |y| (x, y)));
        let same: Vec<_> = pairs().filter(|(x, y)| x.kernel == y.kernel).collect();
        let shared: BTreeSet<usize> =
            same.iter().filter(|(x, y)| compatible(&x.at, &y.at)).map(|(x, _)| x.kernel).collect();
        if !shared.is_empty() {
            let made = if a.facts.is_empty() && b.facts.is_empty() { "both are" } else { "what they are had from is" };
            for k in shared {
                let scan = flow.phase.kernels[k].family == Family::Scan && self.indexed();
                let inside = if scan { ": the loop runs inside the kernel" } else { "" };
                say(false, true, None, format!("{made} computed by {}{inside}", kernel(flow, k)));
            }
            return;
        }
        for (x, y) in same {
            let other = x.at.iter().find(|(l, i)| y.at.get(l).is_some_and(|j| j != *i));
            let of = other.map_or("", |(l, _)| &flow.func.op(*l).loc.path);
            let text = format!(
                "{} computes both, in a launch of its own for each iteration of `{of}`",
                kernel(flow, x.kernel)
            );
            say(false, false, Some(Reason::Control), text);
        }
        self.apart(flow, a, b, say);
    }

    fn indexed(&self) -> bool {
        !self.a.path.indices.is_empty() && !self.b.path.indices.is_empty()
    }

    /// Why launches are two: by which way one value reaches the other, or what was decided about their kernels.
    fn apart(&self, flow: &Flow, a: &Home, b: &Home, say: &mut Say) {
        let ahead = flow.route(&a.values, &b.values).map(|r| (r, self.a, self.b, a, b));
        let back = flow.route(&b.values, &a.values).map(|r| (r, self.b, self.a, b, a));
        let best = match (ahead, back) {
            (Some(x), Some(y)) => Some(if rank(&y.0) < rank(&x.0) { y } else { x }),
            (x, y) => x.or(y),
        };
        let near = best.as_ref().is_none_or(|(r, ..)| r.between.is_empty() && r.ways.is_empty());
        if near && self.decisions(flow, a, b, say) {
            return;
        }
        match best {
            Some((route, from, to, hf, ht)) => {
                let (reason, text) = tell(flow, &route, from, to, hf, ht);
                say(false, false, reason, text);
            }
            None => say(false, false, None, independent(flow, a, b)),
        }
    }

    /// The records about the kernels of both; false if there are none.
    fn decisions(&self, flow: &Flow, a: &Home, b: &Home, say: &mut Say) -> bool {
        let meet = a.launches.iter().any(|x| b.launches.iter().any(|y| compatible(&x.at, &y.at)));
        let of = |h: &Home, id| flow.computing(id).iter().any(|k| h.launches.iter().any(|l| l.kernel == *k));
        let between = flow.phase.decisions.iter().filter(|d| {
            let (p, c) = (d.producer, d.consumer);
            meet && !d.accepted && (of(a, p) && of(b, c) || of(b, p) && of(a, c))
        });
        let mut any = false;
        for d in between {
            any = true;
            let (p, c) = (describe(flow.func, d.producer), describe(flow.func, d.consumer));
            let text = format!("{p} -> {c}: {} ({}): {}", d.reason.name(), d.reason.doc(), d.detail);
            say(false, false, Some(d.reason), text);
        }
        any
    }

    /// What is said of a weight and a value.
    fn weight(&self, flow: &Flow, weight: &Named, other: &Side, home: &Home) -> Answer {
        let nest = Nest::of(flow.func);
        let reads = |k: &usize| {
            let kernel = &flow.phase.kernels[*k];
            kernel.reads.iter().any(|a| match a.place {
                Place::Weight(w, at) => w.index() == weight.id && weight.read_by(flow.func, &nest, kernel, at),
                _ => false,
            })
        };
        let w = &self.plan.module.weights[weight.id].name;
        let derived = self.plan.derived.iter().any(|d| d.weight.index() == weight.id);
        let how = if derived { "is computed before the first run" } else { "is read and not computed" };
        let list: Vec<String> = (0..flow.phase.kernels.len())
            .filter(reads)
            .map(|k| {
                let both = if home.launches.iter().any(|l| l.kernel == k) {
                    format!(" with `{}`", other.given)
                } else {
                    String::new()
                };
                format!("{}{both}", kernel(flow, k))
            })
            .collect();
        let text = if list.is_empty() {
            format!("weight `{w}` {how}; no kernel of this phase reads it")
        } else {
            format!("weight `{w}` {how}; it is read by {}", list.join(", "))
        };
        Answer { phase: Some(flow.func.name.clone()), fact: false, shared: false, reason: None, text }
    }
}

fn rank(r: &Route) -> (usize, usize) {
    (r.between.len(), r.ways.len())
}

fn kernel(flow: &Flow, k: usize) -> String {
    format!("kernel {}.{k} ({})", flow.func.name, flow.phase.kernels[k].family.name())
}

/// Kernels of launches, each once.
fn list(flow: &Flow, launches: &BTreeSet<Launch>) -> String {
    let kernels: BTreeSet<usize> = launches.iter().map(|l| l.kernel).collect();
    kernels.into_iter().map(|k| kernel(flow, k)).collect::<Vec<_>>().join(", ")
}

/// Why kernels that a route joins are two.
fn tell(flow: &Flow, route: &Route, from: &Side, to: &Side, hf: &Home, ht: &Home) -> (Option<Reason>, String) {
    let (a, b) = (from.given, to.given);
    if !route.between.is_empty() {
        let mut list: Vec<String> = route.between.iter().map(|l| kernel(flow, l.kernel)).collect();
        if list.len() > SHOWN {
            let more = list.len() - SHOWN + 1;
            list.truncate(SHOWN - 1);
            list.push(format!("{more} more launches"));
        }
        let word = if list.len() == 1 { "stands" } else { "stand" };
        let reason = Reason::Cycle;
        let text = format!(
            "{} ({}): `{a}` goes to `{b}` through {}, which {word} between the two",
            reason.name(),
            reason.doc(),
            list.join(", ")
        );
        return (Some(reason), text);
    }
    let mut how: Vec<String> = Vec::new();
    for (way, v) in &route.ways {
        let path = |op| format!("`{}`", flow.func.op(op).loc.path);
        let v = name(flow, *v);
        how.push(match *way {
            Way::Begins(op) => format!("the loop {} begins with {v}", path(op)),
            Way::Inside(op) => format!("the loop {} uses {v} from outside", path(op)),
            Way::Carried(op) => format!("the loop {} carries {v} into its next iteration", path(op)),
            Way::Ends(op) if hf.launches.is_empty() => format!("the loop {} hands on {v}", path(op)),
            Way::Ends(op) => format!("the loop {} ends with {v} or keeps it", path(op)),
            Way::Case(_) => format!("a case ends with {v}"),
            Way::Read => v,
        });
    }
    if how.is_empty() {
        let carrying = |(v, _): &(ValueId, At)| flow.carrying(*v).map(|op| flow.func.op(op).loc.path.clone());
        how.extend(hf.values.iter().find_map(carrying).map(|path| format!("the loop `{path}` hands on {a}")));
    }
    how.dedup();
    if how.is_empty() || hf.launches.is_empty() || ht.launches.is_empty() {
        let how = if how.is_empty() { String::new() } else { format!(": {}", how.join(", ")) };
        return (None, format!("`{b}` is had from `{a}` with no other kernel between{how}"));
    }
    let reason = Reason::Control;
    let mut text = format!("`{a}` goes to `{b}`: {} ({}): {}", reason.name(), reason.doc(), how.join(", "));
    // What a kernel leaves behind of a row is finished by the reader, across iterations too.
    if partial(flow, &hf.launches, &ht.launches) {
        text += "; the first kernel leaves row statistics, which the second finishes";
    }
    (Some(reason), text)
}

/// Whether launches finish row statistics that others leave behind.
fn partial(flow: &Flow, from: &BTreeSet<Launch>, to: &BTreeSet<Launch>) -> bool {
    let phase = flow.phase;
    let statistic = |a: &Access| match a.place {
        Place::Buffer(b) => Some(&phase.buffers[b.index()]).filter(|b| b.partial).map(|b| b.value),
        _ => None,
    };
    let kernel = |l: &Launch| &phase.kernels[l.kernel];
    let left: BTreeSet<ValueId> = from.iter().flat_map(|l| &kernel(l).writes).filter_map(statistic).collect();
    let mut finished = to.iter().flat_map(|l| kernel(l).reads.iter().filter_map(statistic).map(move |v| (v, &l.at)));
    finished.any(|(v, at)| flow.sources(v, at).iter().any(|(v, _)| left.contains(v)))
}

/// What is said of two values neither of which needs the other.
fn independent(flow: &Flow, a: &Home, b: &Home) -> String {
    if a.launches.is_empty() || b.launches.is_empty() {
        return "neither needs the other".to_owned();
    }
    let reads = |h: &Home| -> BTreeSet<Place> {
        let all = h.launches.iter().flat_map(|l| &flow.phase.kernels[l.kernel].reads).map(|a| a.place);
        all.filter(|p| matches!(p, Place::Buffer(_))).collect()
    };
    let common: Vec<String> = reads(a)
        .intersection(&reads(b))
        .filter_map(|p| match p {
            Place::Buffer(i) => Some(name(flow, flow.phase.buffers[i.index()].value)),
            _ => None,
        })
        .collect();
    let kernels = format!("{} and {}", list(flow, &a.launches), list(flow, &b.launches));
    if common.is_empty() {
        format!("neither needs the other, and their kernels read nothing in common: {kernels}")
    } else {
        format!(
            "neither needs the other; both read {}, for which only products of one operand and row-wise work share a launch: {kernels}",
            common.join(", ")
        )
    }
}

fn names(func: &Func, v: ValueId, plain: &str) -> bool {
    func.value(v).names.iter().any(|n| **n == *plain) || func.outputs.iter().chain(&func.inputs).any(|n| n == plain)
}
