//! Printing.

use super::FORMAT_VERSION;
use crate::ir::text::lex::quote;
use crate::ir::verify::tree::Tree;
use crate::ir::{Func, FuncId, OpId, ValueId};
use crate::plan::verify::name;
use crate::plan::{Access, Decision, DerivedWeight, Kernel, Phase, Place, Plan, Step};
use std::fmt::Write;

/// The canonical text of a plan. A malformed plan is printed as far as it goes, for reading only.
pub fn print(plan: &Plan) -> String {
    let Plan { module, load, derived, phases, reassociate, rules, limits_hit } = plan;
    let mut out = format!("spinec-plan {FORMAT_VERSION}\nreassociate {reassociate}\n");
    for (rule, n) in rules {
        let _ = writeln!(out, "rule {} {n}", quote(rule));
    }
    for limit in limits_hit {
        let _ = writeln!(out, "limit {}", quote(limit));
    }
    for DerivedWeight { weight, of, bytes, reason } in derived {
        let of: Vec<String> = of.iter().map(|s| quote(s)).collect();
        let _ = writeln!(out, "derived {} bytes={bytes} of=[{}] {}", weight.0, of.join(", "), quote(reason));
    }
    let _ = write!(out, "\nsection module\n{}", crate::ir::text::print(module));
    let _ = write!(out, "\nsection load\n{}", crate::ir::text::print(load));
    for (i, phase) in phases.iter().enumerate() {
        let name = module.funcs.get(i).map_or("", |f| f.name.as_str());
        let _ = writeln!(out, "\nsection phase {}", quote(name));
        let empty = Func::new("");
        let func = module.funcs.get(i).unwrap_or(&empty);
        let mut p = Printer { func, tree: Tree::new(FuncId(i as u32), func), out: String::new() };
        p.phase(phase);
        out.push_str(&p.out);
    }
    out
}

struct Printer<'a> {
    func: &'a Func,
    tree: Tree,
    out: String,
}

impl Printer<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.out, "{}{text}", "  ".repeat(depth));
    }

    /// An op by its first result; those without one by number.
    fn op(&self, id: OpId) -> String {
        let first = self.func.ops.get(id.index()).and_then(|op| op.results.first());
        match first.filter(|v| self.tree.number(**v).is_some()) {
            Some(v) => self.tree.show(*v),
            None => format!("op {}", id.0),
        }
    }

    fn value(&self, v: ValueId) -> String {
        self.tree.show(v)
    }

    fn phase(&mut self, phase: &Phase) {
        let Phase { kernels, buffers, steps, decisions } = phase;
        for (i, b) in buffers.iter().enumerate() {
            let kind = match (b.input, b.partial) {
                (true, true) => " input partial",
                (true, false) => " input",
                (false, true) => " partial",
                (false, false) => "",
            };
            let value = self.value(b.value);
            self.line(1, &format!("buffer {i} {value} : {}{kind} bytes={}", b.dtype, b.bytes));
        }
        for (i, k) in kernels.iter().enumerate() {
            self.kernel(i, k);
        }
        self.line(1, "steps");
        self.steps(2, steps);
        self.line(1, "end");
        for d in decisions {
            self.decision(d);
        }
    }

    fn kernel(&mut self, i: usize, k: &Kernel) {
        let Kernel { family, block, ops, leaves, mechanisms, grid, reads, writes, flops, after } = k;
        self.line(1, &format!("kernel {i} {} block={} grid={grid} flops={flops}", family.name(), block.0));
        for id in ops {
            let comment = format!("; {}", shown(self.func, *id));
            self.line(2, &comment);
        }
        let list = |items: Vec<String>| items.join(", ");
        let ops = list(ops.iter().map(|id| self.op(*id)).collect());
        self.line(2, format!("ops {ops}").trim_end());
        let lists = [
            ("mechanisms", list(mechanisms.iter().map(|m| m.name().to_owned()).collect())),
            ("leaves", list(leaves.iter().map(|v| self.value(*v)).collect())),
            ("after", list(after.iter().map(|k| k.0.to_string()).collect())),
        ];
        for (word, items) in lists {
            if !items.is_empty() {
                self.line(2, &format!("{word} {items}"));
            }
        }
        for (word, accesses) in [("read", reads), ("write", writes)] {
            for Access { place, bytes } in accesses {
                let place = match place {
                    Place::Weight(w, None) => format!("weight {}", w.0),
                    Place::Weight(w, Some(at)) => format!("weight {} at {at}", w.0),
                    Place::Buffer(b) => format!("buffer {}", b.0),
                    Place::State(s) => format!("state {}", s.0),
                };
                self.line(2, &format!("{word} {place} bytes={bytes}"));
            }
        }
    }

    fn steps(&mut self, depth: usize, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Launch(k) => self.line(depth, &format!("launch {}", k.0)),
                Step::Loop { op, body } => {
                    let op = self.op(*op);
                    self.line(depth, &format!("loop {op}"));
                    self.steps(depth + 1, body);
                    self.line(depth, "end");
                }
                Step::Cases { op, arms } => {
                    let op = self.op(*op);
                    self.line(depth, &format!("cases {op}"));
                    for arm in arms {
                        self.line(depth + 1, "arm");
                        self.steps(depth + 2, arm);
                    }
                    self.line(depth, "end");
                }
            }
        }
    }

    fn decision(&mut self, d: &Decision) {
        let Decision { producer, consumer, accepted, reason, detail } = d;
        let (producer, consumer) = (self.op(*producer), self.op(*consumer));
        let outcome = if *accepted { "taken" } else { "refused" };
        let detail = if detail.is_empty() { String::new() } else { format!(" {}", quote(detail)) };
        self.line(1, &format!("{outcome} {producer} into {consumer} {}{detail}", reason.name()));
    }
}

/// An op for people, on one line.
fn shown(func: &Func, id: OpId) -> String {
    let code = func.ops.get(id.index()).map_or("", |op| op.code.name());
    let name = name(func, id);
    let name = if name.chars().any(char::is_control) { quote(&name) } else { name };
    if name.starts_with(code) { name } else { format!("{code} {name}") }
}
