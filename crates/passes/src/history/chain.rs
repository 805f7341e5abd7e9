//! From a proof to a chain of steps, each of which rewrites one place of the whole term.

use super::prove::{Link, Proof};
use super::store::{Store, TermId};
use std::collections::{BTreeMap, BTreeSet};

/// Why a step may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// A rule was applied.
    Rule {
        /// Its name.
        name: &'static str,
        /// The rule leads from the term after to the term before: both were made equal by it.
        reversed: bool,
    },
    /// The same as some steps before, which rewrote the same term elsewhere.
    Again {
        /// The first of them.
        first: usize,
        /// The last.
        last: usize,
    },
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Why.
    pub why: Why,
    /// What is replaced.
    pub before: TermId,
    /// What by.
    pub after: TermId,
    /// What is replaced with all that is around it, the innermost first, each with what it becomes: the first is
    /// (`before`, `after`), the last the whole term.
    pub around: Vec<(TermId, TermId)>,
}

impl Step {
    /// The whole term before.
    pub fn whole_before(&self) -> TermId {
        self.around.last().map_or(self.before, |a| a.0)
    }

    /// The whole term after.
    pub fn whole_after(&self) -> TermId {
        self.around.last().map_or(self.after, |a| a.1)
    }
}

/// How a term became another: the whole term after a step is the one before the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The first term.
    pub from: TermId,
    /// The last.
    pub to: TermId,
    /// The steps; none if the term was never rewritten.
    pub steps: Vec<Step>,
}

/// Most steps of a chain; what rules do to a term of the shipped systems takes less than a hundred.
const MOST_STEPS: usize = 4096;

/// The chain between two equal terms. `store` has the terms of the proof and gets those between.
///
/// # Errors
/// Nothing that was recorded makes them equal.
pub(crate) fn chain(store: &mut Store, proof: &Proof, from: TermId, to: TermId) -> Result<Chain, String> {
    let mut w = Walk { store, proof, steps: Vec::new(), frames: Vec::new(), done: BTreeMap::new() };
    w.walk(from, to)?;
    Ok(Chain { from, to, steps: w.steps })
}

/// Something around what is rewritten: the term as it is now, and which operands are rewritten.
struct Frame {
    term: TermId,
    at: Vec<usize>,
}

struct Walk<'a, 'p> {
    store: &'a mut Store,
    proof: &'a Proof<'p>,
    steps: Vec<Step>,
    frames: Vec<Frame>,
    /// The steps that rewrote one term to another.
    done: BTreeMap<(TermId, TermId), (usize, usize)>,
}

impl Walk<'_, '_> {
    fn walk(&mut self, from: TermId, to: TermId) -> Result<(), String> {
        if from == to {
            return Ok(());
        }
        if let Some((first, last)) = self.done.get(&(from, to)).copied() {
            return self.step(Why::Again { first, last }, from, to);
        }
        let begin = self.steps.len();
        let path = self.proof.path(from, to).ok_or("a term was rewritten and nothing says how")?;
        let mut now = from;
        for (next, link) in path {
            match link {
                Link::Rule(name, reversed) => self.step(Why::Rule { name, reversed }, now, next)?,
                Link::Operands => self.operands(now, next)?,
            }
            now = next;
        }
        self.done.insert((from, to), (begin, self.steps.len() - 1));
        Ok(())
    }

    /// Rewrites operands, equal ones together.
    fn operands(&mut self, from: TermId, to: TermId) -> Result<(), String> {
        let (a, b) = (self.store.node(from).children.clone(), self.store.node(to).children.clone());
        let pairs: Vec<(TermId, TermId)> = a.into_iter().zip(b).collect();
        let mut seen = BTreeSet::new();
        let mut now = from;
        for pair in &pairs {
            if pair.0 == pair.1 || !seen.insert(*pair) {
                continue;
            }
            let at = (0..pairs.len()).filter(|i| pairs[*i] == *pair).collect();
            self.frames.push(Frame { term: now, at });
            self.walk(pair.0, pair.1)?;
            now = self.frames.pop().map_or(now, |f| f.term);
        }
        if now == to { Ok(()) } else { Err("operands were rewritten to others than those asked for".to_owned()) }
    }

    fn step(&mut self, why: Why, before: TermId, after: TermId) -> Result<(), String> {
        if self.steps.len() == MOST_STEPS {
            return Err("a chain has too many steps to be shown".to_owned());
        }
        let mut around = vec![(before, after)];
        for frame in self.frames.iter_mut().rev() {
            let (_, new) = around[around.len() - 1];
            let mut children = self.store.node(frame.term).children.clone();
            for i in &frame.at {
                children[*i] = new;
            }
            let made = self.store.with(frame.term, children);
            around.push((frame.term, made));
            frame.term = made;
        }
        self.steps.push(Step { why, before, after, around });
        Ok(())
    }
}

impl Chain {
    /// How `term`, which is the last term or in it, came about: the steps that made it or rewrote it, in order, each with the
    /// term it is in the end or becomes next; and the term it all began with, which is the first term or in it.
    pub fn made(&self, store: &Store, term: TermId) -> (TermId, Vec<(usize, TermId)>) {
        let (mut now, mut out) = (term, Vec::new());
        for (i, step) in self.steps.iter().enumerate().rev() {
            if let Some((old, _)) = step.around.iter().find(|(_, new)| *new == now) {
                out.push((i, now));
                now = *old;
            } else if !store.holds(step.whole_before(), now) {
                out.push((i, now));
                now = step.before;
            }
        }
        out.reverse();
        (now, out)
    }

    /// What becomes of `term`, which is the first term or in it.
    pub fn fate(&self, store: &Store, term: TermId) -> Fate {
        let (mut forms, mut touched) = (BTreeSet::from([term]), Vec::new());
        for (i, step) in self.steps.iter().enumerate() {
            let mut next = BTreeSet::new();
            for form in &forms {
                let rewritten = step.around.iter().filter(|(old, _)| old == form).map(|(_, new)| *new);
                next.extend(rewritten);
                if store.holds(step.whole_after(), *form) {
                    next.insert(*form);
                }
            }
            if next.is_empty() {
                touched.push(self.remover(store, i, &forms));
                return Fate::Removed(touched);
            }
            if next != forms && matches!(step.why, Why::Rule { .. }) {
                touched.push(i);
            }
            forms = next;
        }
        Fate::Kept(forms)
    }

    /// The step by a rule that removes some terms: step `i`, or the one among those it repeats.
    fn remover(&self, store: &Store, i: usize, forms: &BTreeSet<TermId>) -> usize {
        let Why::Again { first, last } = self.steps[i].why else { return i };
        let removes = |k: &usize| {
            let (s, any) = (&self.steps[*k], |t: TermId| forms.iter().any(|f| store.holds(t, *f)));
            matches!(s.why, Why::Rule { .. }) && any(s.before) && !any(s.after)
        };
        (first..=last).find(removes).unwrap_or(last)
    }
}

/// What becomes of a term that is rewritten as a part of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is there in the end, in these forms.
    Kept(BTreeSet<TermId>),
    /// The steps that rewrote it, the last of which left it nowhere.
    Removed(Vec<usize>),
}
