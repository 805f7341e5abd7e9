//! Parsing of a phase: buffers, kernels, steps, decisions.

use crate::ir::text::cursor::{Cursor, Fail, Result};
use crate::ir::verify::MAX_NESTING;
use crate::ir::{Func, OpId, RegionId, StateId, ValueDef, ValueId, WeightId};
use crate::plan::{
    Access, Buffer, BufferId, Decision, Family, Kernel, KernelId, Mechanism, Phase, Place, Reason, Step,
};
use crate::ty::Dim;
use std::collections::BTreeMap;

/// A phase being read.
pub(super) struct PhaseParser {
    /// The function and the numbers of its values; none if it could not be read, and references are then not looked up.
    func: Option<(Func, BTreeMap<u32, ValueId>)>,
    line: u32,
    phase: Phase,
    /// Rows met, readable or not.
    buffers: usize,
    kernels: usize,
    /// Lists of steps that have not ended; the first is the phase's. Empty before `steps` and behind its `end`.
    open: Vec<Open>,
    stepped: bool,
}

/// A list of steps and what it belongs to.
struct Open {
    line: u32,
    of: Owner,
    steps: Vec<Step>,
}

enum Owner {
    Phase,
    Loop(OpId),
    /// Arms that have ended, and whether one is open.
    Cases(OpId, Vec<Vec<Step>>, bool),
}

impl PhaseParser {
    /// The phase of a function.
    pub fn new(func: Func, numbers: BTreeMap<u32, ValueId>, line: u32) -> PhaseParser {
        PhaseParser { func: Some((func, numbers)), ..PhaseParser::lost(line) }
    }

    /// A phase of a function that could not be read.
    pub fn lost(line: u32) -> PhaseParser {
        let phase = Phase::default();
        PhaseParser { func: None, line, phase, buffers: 0, kernels: 0, open: Vec::new(), stepped: false }
    }

    /// Reads a line.
    pub fn line(&mut self, c: &mut Cursor, line: u32) -> Result<()> {
        if !self.open.is_empty() {
            return self.step(c, line);
        }
        if c.eat_word("buffer") {
            let row = self.buffers;
            self.buffers += 1;
            let buffer = self.buffer(c, row)?;
            self.phase.buffers.push(buffer);
        } else if c.eat_word("kernel") {
            let row = self.kernels;
            self.kernels += 1;
            // A kernel that cannot be read keeps its place for the lines that follow.
            self.phase.kernels.push(placeholder());
            let kernel = kernel(c, row)?;
            self.phase.kernels.pop();
            self.phase.kernels.push(kernel);
        } else if c.is_word("steps") {
            let col = c.col();
            c.eat_word("steps");
            if std::mem::replace(&mut self.stepped, true) {
                return Err((col, "a second list of steps".to_owned()));
            }
            self.open.push(Open { line, of: Owner::Phase, steps: Vec::new() });
            c.end()?;
        } else if c.is_word("taken") || c.is_word("refused") {
            let decision = self.decision(c)?;
            self.phase.decisions.push(decision);
        } else if !self.part(c)? {
            return c.fail("`buffer`, `kernel`, a part of a kernel, `steps`, `taken` or `refused`");
        }
        Ok(())
    }

    fn value(&self, c: &mut Cursor) -> Result<ValueId> {
        let col = c.col();
        let number = c.value()?;
        match &self.func {
            None => Ok(ValueId(number)),
            Some((_, numbers)) => {
                numbers.get(&number).copied().ok_or_else(|| (col, format!("%{number} is not defined in the function")))
            }
        }
    }

    /// `%3`, the first result of an op, or `op 7`.
    fn op(&self, c: &mut Cursor) -> Result<OpId> {
        let col = c.col();
        if c.eat_word("op") {
            let id = OpId(c.index()?);
            let named =
                self.func.as_ref().and_then(|(f, _)| f.ops.get(id.index())).is_some_and(|op| !op.results.is_empty());
            if named {
                return Err((col, format!("op {} has results and is written by the first of them", id.0)));
            }
            return Ok(id);
        }
        let v = self.value(c)?;
        let Some((func, _)) = &self.func else { return Ok(OpId(0)) };
        match func.value(v).def {
            ValueDef::Result(op, 0) => Ok(op),
            ValueDef::Result(..) => Err((col, "an op is written by the first of its results".to_owned())),
            ValueDef::Param(..) => Err((col, "no op makes this value".to_owned())),
        }
    }

    /// `buffer 0 %0 : f32 input bytes=4*N`, after the keyword.
    fn buffer(&self, c: &mut Cursor, row: usize) -> Result<Buffer> {
        position(c, "buffer", row)?;
        let value = self.value(c)?;
        c.expect(":")?;
        let dtype = c.dtype()?;
        let input = c.eat_word("input");
        let partial = c.eat_word("partial");
        c.expect_key("bytes")?;
        let bytes = c.dim()?;
        c.end()?;
        Ok(Buffer { value, partial, input, dtype, bytes })
    }

    /// A line below a kernel; false if it is none.
    fn part(&mut self, c: &mut Cursor) -> Result<bool> {
        let col = c.col();
        let words = ["ops", "mechanisms", "leaves", "after", "read", "write"];
        let Some(word) = words.into_iter().find(|w| c.eat_word(w)) else { return Ok(false) };
        let Some(mut kernel) = self.phase.kernels.pop() else {
            return Err((col, format!("`{word}` stands below a kernel")));
        };
        let read = self.fill(c, (col, word), &mut kernel);
        self.phase.kernels.push(kernel);
        read.map(|()| true)
    }

    fn fill(&self, c: &mut Cursor, (col, word): (u32, &str), kernel: &mut Kernel) -> Result<()> {
        let empty = match word {
            "ops" => kernel.ops.is_empty(),
            "mechanisms" => kernel.mechanisms.is_empty(),
            "leaves" => kernel.leaves.is_empty(),
            "after" => kernel.after.is_empty(),
            _ => true,
        };
        if !empty {
            return Err((col, format!("a second `{word}` line of this kernel")));
        }
        match word {
            "ops" if c.peek().is_none() => {}
            "ops" => kernel.ops = comma(c, |c| self.op(c))?,
            "leaves" => kernel.leaves = comma(c, |c| self.value(c))?,
            "after" => kernel.after = comma(c, |c| c.index().map(KernelId))?,
            "mechanisms" => {
                kernel.mechanisms = comma(c, |c| {
                    let col = c.col();
                    let name = c.word("a mechanism")?;
                    Mechanism::from_name(name).ok_or_else(|| (col, format!("there is no mechanism `{name}`")))
                })?;
            }
            _ => {
                let access = access(c)?;
                if word == "read" { kernel.reads.push(access) } else { kernel.writes.push(access) }
            }
        }
        c.end()
    }

    /// `taken %1 into %2 epilogue` or `refused %1 into %2 costlier "particulars"`.
    fn decision(&self, c: &mut Cursor) -> Result<Decision> {
        let accepted = c.eat_word("taken");
        if !accepted {
            c.eat_word("refused");
        }
        let producer = self.op(c)?;
        if !c.eat_word("into") {
            return c.fail("`into`");
        }
        let consumer = self.op(c)?;
        let col = c.col();
        let name = c.word("a reason")?;
        let reason = Reason::from_name(name).ok_or_else(|| (col, format!("there is no reason `{name}`")))?;
        let detail = if c.peek().is_some() { c.string("the particulars in quotes")?.to_owned() } else { String::new() };
        c.end()?;
        Ok(Decision { producer, consumer, accepted, reason, detail })
    }

    fn step(&mut self, c: &mut Cursor, line: u32) -> Result<()> {
        let col = c.col();
        let depth = self.open.len();
        let waits = |o: &Open| matches!(o.of, Owner::Cases(_, _, false));
        if c.eat_word("end") {
            self.close();
            return c.end();
        }
        if c.eat_word("arm") {
            if let Some(Open { of: Owner::Cases(_, arms, open), steps, .. }) = self.open.last_mut() {
                if std::mem::replace(open, true) {
                    arms.push(std::mem::take(steps));
                }
                return c.end();
            }
            return Err((col, "`arm` stands in `cases`".to_owned()));
        }
        if self.open.last().is_some_and(waits) {
            return c.fail("`arm` or `end`");
        }
        if c.eat_word("launch") {
            let k = KernelId(c.index()?);
            if let Some(open) = self.open.last_mut() {
                open.steps.push(Step::Launch(k));
            }
            return c.end();
        }
        let cases = c.eat_word("cases");
        if !cases && !c.eat_word("loop") {
            return c.fail("`launch`, `loop`, `cases`, `arm` or `end`");
        }
        if depth > MAX_NESTING {
            return Err((col, format!("steps nest deeper than {MAX_NESTING} levels")));
        }
        // What cannot be read still has an end.
        let op = self.op(c);
        let id = *op.as_ref().unwrap_or(&OpId(0));
        let of = if cases { Owner::Cases(id, Vec::new(), false) } else { Owner::Loop(id) };
        self.open.push(Open { line, of, steps: Vec::new() });
        op.and_then(|_| c.end())
    }

    fn close(&mut self) {
        let Some(Open { of, steps, .. }) = self.open.pop() else { return };
        let step = match of {
            Owner::Phase => {
                self.phase.steps = steps;
                return;
            }
            Owner::Loop(op) => Step::Loop { op, body: steps },
            Owner::Cases(op, mut arms, open) => {
                arms.extend(open.then_some(steps));
                Step::Cases { op, arms }
            }
        };
        if let Some(outer) = self.open.last_mut() {
            outer.steps.push(step);
        }
    }

    /// The phase, or the line and reason why it has not ended.
    pub fn finish(self) -> std::result::Result<Phase, (u32, Fail)> {
        match self.open.last() {
            Some(open) => Err((open.line, (1, "these steps have no `end`".to_owned()))),
            None if !self.stepped && self.func.is_some() => Err((self.line, (1, "the phase has no steps".to_owned()))),
            None => Ok(self.phase),
        }
    }
}

fn placeholder() -> Kernel {
    Kernel {
        family: Family::Row,
        block: RegionId(0),
        ops: Vec::new(),
        leaves: Vec::new(),
        mechanisms: Vec::new(),
        grid: Dim::from(0),
        reads: Vec::new(),
        writes: Vec::new(),
        flops: Dim::from(0),
        after: Vec::new(),
    }
}

/// `kernel 0 gemm block=0 grid=N flops=2*N`, after the keyword.
fn kernel(c: &mut Cursor, row: usize) -> Result<Kernel> {
    position(c, "kernel", row)?;
    let col = c.col();
    let name = c.word("a kernel family")?;
    let family = Family::from_name(name).ok_or_else(|| (col, format!("there is no kernel family `{name}`")))?;
    c.expect_key("block")?;
    let block = RegionId(c.index()?);
    c.expect_key("grid")?;
    let grid = c.dim()?;
    c.expect_key("flops")?;
    let flops = c.dim()?;
    c.end()?;
    Ok(Kernel { family, block, grid, flops, ..placeholder() })
}

/// `weight 3 at 1 bytes=8`, `buffer 0 bytes=4*N` or `state 2 bytes=N`.
fn access(c: &mut Cursor) -> Result<Access> {
    let place = if c.eat_word("weight") {
        let w = WeightId(c.index()?);
        Place::Weight(w, if c.eat_word("at") { Some(c.int()?) } else { None })
    } else if c.eat_word("buffer") {
        Place::Buffer(BufferId(c.index()?))
    } else if c.eat_word("state") {
        Place::State(StateId(c.index()?))
    } else {
        return c.fail("`weight`, `buffer` or `state`");
    };
    c.expect_key("bytes")?;
    Ok(Access { place, bytes: c.dim()? })
}

/// The number of a row, which must be its position.
fn position(c: &mut Cursor, what: &str, row: usize) -> Result<()> {
    let col = c.col();
    if c.index()? as usize == row {
        return Ok(());
    }
    Err((col, format!("this {what} has number {row}: numbers follow the order of the lines")))
}

/// Items up to the end of the line.
fn comma<T>(c: &mut Cursor, mut item: impl FnMut(&mut Cursor) -> Result<T>) -> Result<Vec<T>> {
    let mut out = vec![item(c)?];
    while c.eat(",") {
        out.push(item(c)?);
    }
    Ok(out)
}
