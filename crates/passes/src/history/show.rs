//! Terms for people: names where there are any, structure where a step changes it.

use super::store::{Store, TermId};
use super::{History, Place};
use crate::term::Head;
use spinec_ir::ir::{Attr, Attrs, Module};
use spinec_ir::ops::Opcode;
use std::collections::{BTreeMap, BTreeSet};

/// Names of terms at a place.
pub struct Names<'a> {
    store: &'a Store,
    place: &'a Place,
    module: &'a Module,
    /// Node paths of written values.
    named: BTreeMap<TermId, String>,
}

/// Shows the terms of a chain: large terms that several sides share are written once.
pub struct Shown<'a> {
    names: &'a Names<'a>,
    /// Terms that were given a number, in order, with their text.
    numbered: Vec<(TermId, String)>,
}

/// Unnamed terms with more nodes than this that a step leaves alone get a number.
const SMALL: usize = 3;

/// Operands with more characters than this get a number.
const LONG: usize = 100;

impl History {
    /// The names at one of the history's places, in a module whose weights are those the region was written with.
    pub fn names<'a>(&'a self, place: &'a Place, module: &'a Module) -> Names<'a> {
        let mut named = BTreeMap::new();
        for (op, results) in place.ops.iter().zip(&self.written) {
            for (names, term) in op.names.iter().zip(results) {
                if let Some(n) = names.first() {
                    named.entry(*term).or_insert_with(|| n.to_string());
                }
            }
        }
        Names { store: &self.store, place, module, named }
    }
}

impl<'a> Names<'a> {
    /// The node path of a written value.
    pub fn name(&self, t: TermId) -> Option<&str> {
        self.named.get(&t).map(String::as_str)
    }

    /// The type of a term.
    pub fn ty(&self, t: TermId) -> String {
        self.store.node(t).types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// For a new chain.
    pub fn shown(&'a self) -> Shown<'a> {
        Shown { names: self, numbered: Vec::new() }
    }

    /// Whether an operand has more than [`SMALL`] nodes, named values counted as one.
    fn large(&self, t: TermId) -> bool {
        let (mut open, mut nodes) = (vec![t], 0);
        while let Some(t) = open.pop() {
            nodes += 1;
            if nodes > SMALL {
                return true;
            }
            if self.name(t).is_none() && self.atom(t).is_none() {
                open.extend(&self.store.node(t).children);
            }
        }
        false
    }

    /// What stands in several places of a term and is large.
    fn repeated(&self, t: TermId) -> BTreeSet<TermId> {
        let mut uses: BTreeMap<TermId, usize> = BTreeMap::new();
        for c in self.store.below(t).into_iter().flat_map(|t| &self.store.node(t).children) {
            *uses.entry(*c).or_default() += 1;
        }
        uses.into_iter().filter(|(t, n)| *n > 1 && self.large(*t)).map(|(t, _)| t).collect()
    }

    /// What is written without operands.
    fn atom(&self, t: TermId) -> Option<String> {
        let node = self.store.node(t);
        match node.head {
            Head::Leaf(l) => Some(self.place.leaves.get(l as usize).cloned().unwrap_or_else(|| format!("%{l}"))),
            Head::Op(Opcode::Weight) => {
                let Some(Attr::Int(w)) = node.key.attrs().get("weight") else { return None };
                let weight = usize::try_from(*w).ok().and_then(|w| self.module.weights.get(w));
                let mut name = weight.map_or_else(|| format!("w{w}"), |w| w.name.clone());
                // What is the same in every iteration has its index in the name.
                let loops = weight.map_or(&[][..], |w| &w.loops);
                for ((var, _), c) in loops.iter().zip(&node.children) {
                    if let Some(at) = self.atom(*c).filter(|_| self.store.node(*c).head == Head::Op(Opcode::Const)) {
                        name = name.replace(&format!("{{{var}}}"), &at);
                    }
                }
                Some(name)
            }
            Head::Op(Opcode::Const) => match node.key.attrs().get("value") {
                Some(Attr::Float(v)) => Some(v.to_string()),
                Some(a) => Some(attr(a)),
                None => None,
            },
            _ => None,
        }
    }
}

impl Shown<'_> {
    /// The type of a term.
    pub fn ty(&self, t: TermId) -> String {
        self.names.ty(t)
    }

    /// The node path of a written value.
    pub fn name(&self, t: TermId) -> Option<&str> {
        self.names.name(t)
    }

    /// Both sides of a step: what both have is written by name or number, what differs is written out.
    pub fn step(&mut self, before: TermId, after: TermId) -> (String, String) {
        let store = self.names.store;
        let (left, right) = (store.below(before), store.below(after));
        let mut both: BTreeSet<TermId> = left.intersection(&right).copied().collect();
        both.extend([before, after].into_iter().flat_map(|t| self.names.repeated(t)));
        (self.side(before, &both, true), self.side(after, &both, true))
    }

    /// A side of a step; `whole` is true for the side itself.
    fn side(&mut self, t: TermId, both: &BTreeSet<TermId>, whole: bool) -> String {
        if both.contains(&t) && !whole {
            return if self.names.large(t) { self.number(t) } else { self.operand(t) };
        }
        if let Some(atom) = self.names.atom(t) {
            return atom;
        }
        let node = self.names.store.node(t).clone();
        let operands: Vec<String> = node.children.iter().map(|c| self.side(*c, both, false)).collect();
        expression(node.head, node.key.attrs(), operands)
    }

    /// A term whose named operands are written by name.
    pub fn term(&mut self, t: TermId) -> String {
        if let Some(atom) = self.names.atom(t) {
            return atom;
        }
        let node = self.names.store.node(t).clone();
        let operands: Vec<String> = node.children.iter().map(|c| self.operand(*c)).collect();
        expression(node.head, node.key.attrs(), operands)
    }

    /// A term by its name or number, if it has one or is long.
    pub fn operand(&mut self, t: TermId) -> String {
        if let Some(name) = self.names.name(t) {
            return name.to_owned();
        }
        if self.numbered.iter().any(|(known, _)| *known == t) {
            return self.number(t);
        }
        let text = self.term(t);
        if text.len() <= LONG {
            return text;
        }
        self.numbered.push((t, text));
        self.number(t)
    }

    /// What the numbers stand for.
    pub fn numbers(&self) -> impl Iterator<Item = (String, &str)> {
        self.numbered.iter().enumerate().map(|(i, (_, text))| (format!("#{}", i + 1), text.as_str()))
    }

    fn number(&mut self, t: TermId) -> String {
        if let Some(i) = self.numbered.iter().position(|(known, _)| *known == t) {
            return format!("#{}", i + 1);
        }
        let text = self.term(t);
        self.numbered.push((t, text));
        format!("#{}", self.numbered.len())
    }
}

fn expression(head: Head, attrs: &Attrs, operands: Vec<String>) -> String {
    let infix = |sign: &str| format!("({} {sign} {})", operands[0], operands[1]);
    let call = |name: &str, more: Vec<String>| {
        let all: Vec<String> = operands.iter().cloned().chain(more).collect();
        format!("{name}({})", all.join(", "))
    };
    match head {
        Head::Leaf(l) => format!("%{l}"),
        Head::Proj(i) => format!("{}.{i}", operands.join(", ")),
        Head::Pack | Head::Packed => call("packed", vec![]),
        Head::Guard(code) => {
            let slow = expression(Head::Op(code), attrs, operands[2..].to_vec());
            format!("guarded({}, {}) else {slow}", operands[0], operands[1])
        }
        Head::Op(Opcode::Add) => infix("+"),
        Head::Op(Opcode::Sub) => infix("-"),
        Head::Op(Opcode::Mul) => infix("*"),
        Head::Op(Opcode::Div) => infix("/"),
        Head::Op(code) => {
            // What products are summed in is the policy's and in every one of them.
            let shown = attrs.iter().filter(|(name, _)| **name != "acc");
            let bare = |name: &str| matches!(name, "spec" | "dtype" | "dims" | "axes");
            call(code.name(), shown.map(|(n, a)| if bare(n) { attr(a) } else { format!("{n}={}", attr(a)) }).collect())
        }
    }
}

/// Axes of a canonical specification as letters.
fn letters(spec: &str) -> String {
    let axis = |word: &str| {
        let (number, rest) =
            word.strip_prefix('a').map_or((word, ""), |w| w.strip_suffix(',').map_or((w, ""), |w| (w, ",")));
        match number.parse::<u8>() {
            Ok(n) if n < 26 => format!("{}{rest}", char::from(b'a' + n)),
            _ => word.to_owned(),
        }
    };
    spec.split(' ').map(axis).collect::<Vec<_>>().join(" ")
}

fn attr(a: &Attr) -> String {
    let list = |all: Vec<String>| format!("[{}]", all.join(", "));
    match a {
        Attr::Int(v) => v.to_string(),
        Attr::Float(v) => v.to_string(),
        Attr::Bool(v) => v.to_string(),
        Attr::Str(v) => format!("\"{}\"", letters(v)),
        Attr::Dim(v) => v.to_string(),
        Attr::Dims(v) => list(v.iter().map(ToString::to_string).collect()),
        Attr::Ints(v) => list(v.iter().map(ToString::to_string).collect()),
        Attr::DType(v) => v.to_string(),
        Attr::Keeps(v) => format!("{} kept", v.len()),
    }
}
