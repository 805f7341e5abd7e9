//! How two values of a plan stand to each other.

use super::super::plan::describe;
use super::super::values::facts::{fact, name};
use super::super::values::flow::{Flow, Route, Way};
use super::super::values::{Found, Named, ValuePath};
use spinec_ir::ir::{Func, Module, Nest, RegionId, ValueId};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::{Place, Plan, Reason};
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
    pub shared: bool,
    pub reason: Option<Reason>,
    pub text: String,
}

/// Takes an answer about a phase: whether a kernel is shared, the reason of the closed list, the text.
type Say<'a> = dyn FnMut(bool, Option<Reason>, String) + 'a;

/// Where a value is in a phase.
struct Home {
    /// The kernels that compute it, or those that compute what it is had from.
    kernels: BTreeSet<usize>,
    /// What it is if no kernel computes it.
    facts: Vec<String>,
    /// Nothing is left of it.
    gone: bool,
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
            out.push(Answer { phase: None, shared: false, reason: None, text });
        }
        out
    }

    fn home(&self, flow: &Flow, side: &Side, found: &Found) -> Home {
        // Ops the iterations do not reach are not among those found.
        let own: BTreeSet<usize> = found.ops.iter().flat_map(|id| flow.computing(*id)).copied().collect();
        let computed = |v| flow.op(v).is_some_and(|op| !flow.computing(op).is_empty());
        let mut facts: Vec<String> = Vec::new();
        if own.is_empty() {
            facts = found.values.iter().filter(|v| !computed(**v)).filter_map(|v| fact(flow, self.plan, *v)).collect();
            facts.dedup();
        }
        // The value has a name where it is written: what is left of its expression is not the value.
        let named = |f: &Func| side.path.find(f).values.iter().any(|v| names(f, *v, &side.path.plain));
        let lost = self.lowered.func(&flow.func.name).is_some_and(named) && !named(flow.func);
        if found.is_empty() || lost {
            facts = vec![format!(
                "`{}` is not computed in this phase: `spinec explain` shows what became of it",
                side.given
            )];
            return Home { kernels: BTreeSet::new(), facts, gone: true };
        }
        let kernels = if own.is_empty() { found.values.iter().flat_map(|v| flow.makers(*v)).collect() } else { own };
        Home { kernels, facts, gone: false }
    }

    fn phase(&self, flow: &Flow, found: &[Found; 2], out: &mut Vec<Answer>) {
        let (mut a, mut b) = (self.home(flow, self.a, &found[0]), self.home(flow, self.b, &found[1]));
        let mut say = |shared: bool, reason: Option<Reason>, text: String| {
            out.push(Answer { phase: Some(flow.func.name.clone()), shared, reason, text });
        };
        for f in a.facts.iter().chain(&b.facts) {
            say(false, None, f.clone());
        }
        if a.gone || b.gone || a.kernels.is_empty() || b.kernels.is_empty() {
            for (side, home) in [(self.a, &a), (self.b, &b)].into_iter().filter(|(_, h)| !h.kernels.is_empty()) {
                let list: Vec<String> = home.kernels.iter().map(|k| kernel(flow, *k)).collect();
                say(false, None, format!("`{}` is computed by {}", side.given, list.join(", ")));
            }
            return;
        }
        let apart = self.apart();
        let distance = apart.as_ref().map_or(0, |(_, n)| *n);
        let shared: Vec<usize> = a.kernels.intersection(&b.kernels).copied().collect();
        if distance == 0 && !shared.is_empty() {
            let made = if a.facts.is_empty() && b.facts.is_empty() { "both are" } else { "what they are had from is" };
            let block = |k: usize| flow.phase.kernels[k].block;
            let blocks: BTreeSet<RegionId> = shared.iter().map(|k| block(*k)).collect();
            for k in shared {
                say(true, None, format!("{made} computed by {}", kernel(flow, k)));
            }
            // In other cases of a loop they may be computed otherwise.
            for home in [&mut a, &mut b] {
                home.kernels.retain(|k| !blocks.contains(&block(*k)));
            }
            if !a.kernels.is_empty() && !b.kernels.is_empty() {
                self.cases(flow, &a, &b, None, &mut say);
            }
            return;
        }
        for k in shared {
            let of = apart.as_ref().map_or("", |(p, _)| p);
            let text =
                format!("{} computes both, in a launch of its own for each iteration of `{of}`", kernel(flow, k));
            say(false, Some(Reason::Control), text);
        }
        self.cases(flow, &a, &b, apart.as_ref().map(|(p, n)| (p.as_str(), *n)), &mut say);
    }

    /// Case by case, where both are computed in several cases of a loop.
    fn cases(&self, flow: &Flow, a: &Home, b: &Home, apart: Option<(&str, i64)>, say: &mut Say) {
        let blocks =
            |h: &Home| -> BTreeSet<RegionId> { h.kernels.iter().map(|k| flow.phase.kernels[*k].block).collect() };
        let (of_a, of_b) = (blocks(a), blocks(b));
        if of_a != of_b || of_a.len() < 2 || apart.is_some_and(|(_, n)| n != 0) {
            return self.apart_in(flow, a, b, apart, say);
        }
        for block in of_a {
            let only = |h: &Home| Home {
                kernels: h.kernels.iter().copied().filter(|k| flow.phase.kernels[*k].block == block).collect(),
                facts: Vec::new(),
                gone: false,
            };
            self.apart_in(flow, &only(a), &only(b), apart, say);
        }
    }

    /// Why kernels that are not the same are not one; `apart` says by how many iterations of which loops they are apart.
    fn apart_in(&self, flow: &Flow, a: &Home, b: &Home, apart: Option<(&str, i64)>, say: &mut Say) {
        let distance = apart.map_or(0, |(_, n)| n);
        if distance == 0 && self.decisions(flow, a, b, say) {
            return;
        }
        let ahead = flow.route(&a.kernels, &b.kernels, apart.filter(|(_, n)| *n >= 0));
        let back = flow.route(&b.kernels, &a.kernels, apart.filter(|(_, n)| *n <= 0).map(|(p, n)| (p, -n)));
        let ahead = ahead.filter(|_| apart.is_none_or(|(_, n)| n >= 0)).map(|r| (r, self.a, self.b, a, b));
        let back = back.filter(|_| apart.is_none_or(|(_, n)| n <= 0)).map(|r| (r, self.b, self.a, b, a));
        let best = match (ahead, back) {
            (Some(x), Some(y)) => Some(if y.0.rank() < x.0.rank() { y } else { x }),
            (x, y) => x.or(y),
        };
        match best {
            Some((route, from, to, hf, ht)) => {
                let (reason, text) = tell(flow, &route, from, to, hf, ht);
                say(false, Some(reason), text);
            }
            None => say(false, None, independent(flow, a, b)),
        }
    }

    /// The records about the kernels of both; false if there are none.
    fn decisions(&self, flow: &Flow, a: &Home, b: &Home, say: &mut Say) -> bool {
        let of = |h: &Home, id| flow.computing(id).iter().any(|k| h.kernels.contains(k));
        let between = flow.phase.decisions.iter().filter(|d| {
            let (p, c) = (d.producer, d.consumer);
            !d.accepted && (of(a, p) && of(b, c) || of(b, p) && of(a, c))
        });
        let mut any = false;
        for d in between {
            any = true;
            let (p, c) = (describe(flow.func, d.producer), describe(flow.func, d.consumer));
            say(false, Some(d.reason), format!("{p} -> {c}: {} ({}): {}", d.reason.name(), d.reason.doc(), d.detail));
        }
        any
    }

    /// The loop both were given an index of, and how many iterations later the second is.
    fn apart(&self) -> Option<(String, i64)> {
        self.a.path.indices.iter().find_map(|(path, i)| {
            let other = self.b.path.indices.iter().find(|(p, _)| p == path)?;
            Some((path.clone(), other.1 - i))
        })
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
                let both = if home.kernels.contains(&k) { format!(" with `{}`", other.given) } else { String::new() };
                format!("{}{both}", kernel(flow, k))
            })
            .collect();
        let text = if list.is_empty() {
            format!("weight `{w}` {how}; no kernel of this phase reads it")
        } else {
            format!("weight `{w}` {how}; it is read by {}", list.join(", "))
        };
        Answer { phase: Some(flow.func.name.clone()), shared: false, reason: None, text }
    }
}

impl Route {
    fn rank(&self) -> (usize, usize) {
        (self.between.len(), self.ways.len())
    }
}

fn kernel(flow: &Flow, k: usize) -> String {
    format!("kernel {}.{k} ({})", flow.func.name, flow.phase.kernels[k].family.name())
}

/// Why kernels that a route joins are two.
fn tell(flow: &Flow, route: &Route, from: &Side, to: &Side, hf: &Home, ht: &Home) -> (Reason, String) {
    let (a, b) = (from.given, to.given);
    if !route.between.is_empty() {
        let mut list: Vec<String> = route.between.iter().map(|k| kernel(flow, *k)).collect();
        if list.len() > SHOWN {
            let more = list.len() - SHOWN + 1;
            list.truncate(SHOWN - 1);
            list.push(format!("{more} more launches"));
        }
        let word = if list.len() == 1 { "stands" } else { "stand" };
        let reason = Reason::Cycle;
        return (
            reason,
            format!(
                "{} ({}): `{a}` goes to `{b}` through {}, which {word} between the two",
                reason.name(),
                reason.doc(),
                list.join(", ")
            ),
        );
    }
    let reason = Reason::Control;
    let mut how: Vec<String> = Vec::new();
    for (way, v) in &route.ways {
        let path = |op| format!("`{}`", flow.func.op(op).loc.path);
        let v = name(flow, *v);
        how.push(match *way {
            Way::Begins(op) => format!("the loop {} begins with {v}", path(op)),
            Way::Carried(op) => format!("the loop {} carries {v} into its next iteration", path(op)),
            Way::Ends(op) => format!("the loop {} ends with {v}", path(op)),
            Way::Case(op) if flow.func.op(op).code == Opcode::Cases => format!("a case ends with {v}"),
            Way::Case(_) | Way::Read => v,
        });
    }
    how.dedup();
    let mut text = format!("`{a}` goes to `{b}`: {} ({}): {}", reason.name(), reason.doc(), how.join(", "));
    // What a kernel leaves behind of a row is finished by the reader, across iterations too.
    if partial(flow, &hf.kernels, &ht.kernels) {
        text += "; the first kernel leaves row statistics, which the second finishes";
    }
    (reason, text)
}

/// Whether kernels finish row statistics that others leave behind.
fn partial(flow: &Flow, from: &BTreeSet<usize>, to: &BTreeSet<usize>) -> bool {
    let phase = flow.phase;
    let statistic = |a: &spinec_ir::plan::Access| match a.place {
        Place::Buffer(b) => Some(&phase.buffers[b.index()]).filter(|b| b.partial).map(|b| b.value),
        _ => None,
    };
    let left: BTreeSet<ValueId> = from.iter().flat_map(|k| &phase.kernels[*k].writes).filter_map(statistic).collect();
    let finished = to.iter().flat_map(|k| &phase.kernels[*k].reads).filter_map(statistic);
    finished.flat_map(|v| flow.sources(v)).any(|v| left.contains(&v))
}

/// What is said of two kernels neither of which needs the other.
fn independent(flow: &Flow, a: &Home, b: &Home) -> String {
    let reads = |h: &Home| -> BTreeSet<Place> {
        h.kernels
            .iter()
            .flat_map(|k| &flow.phase.kernels[*k].reads)
            .map(|a| a.place)
            .filter(|p| matches!(p, Place::Buffer(_)))
            .collect()
    };
    let common: Vec<String> = reads(a)
        .intersection(&reads(b))
        .filter_map(|p| match p {
            Place::Buffer(i) => Some(name(flow, flow.phase.buffers[i.index()].value)),
            _ => None,
        })
        .collect();
    let list = |h: &Home| h.kernels.iter().map(|k| kernel(flow, *k)).collect::<Vec<_>>().join(", ");
    let kernels = format!("{} and {}", list(a), list(b));
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
