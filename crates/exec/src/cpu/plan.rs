//! From emitted instructions to a tape: elementwise programs are merged, buffers put into slots.

use super::elements::{Kind, Place, Ref, SlotSizes};
use super::instr::{Code, Instr, Tape, together};
use super::map::{MAX_LOADS, MAX_REGISTERS, Pattern, Program, Step};
use std::collections::BTreeMap;

pub(super) fn plan(mut tape: Tape, buffers: &[(Kind, usize)]) -> Tape {
    merge(&mut tape, buffers.len());
    super::fuse::fuse(&mut tape, buffers);
    join_linears(&mut tape);
    place(&mut tape, buffers);
    tape
}

/// Puts a program into the only one that reads its result, element by element.
fn merge(tape: &mut Tape, buffers: usize) {
    let mut uses = vec![0u32; buffers];
    let mut count = |r: &Ref| {
        if let Place::Slot(b) = r.place {
            uses[b as usize] += 1;
        }
    };
    tape.instrs.iter().flat_map(|i| &i.ins).for_each(&mut count);
    tape.outputs.iter().for_each(|o| count(&o.elements));
    // The map that makes a buffer.
    let mut maker: Vec<Option<usize>> = vec![None; buffers];
    for at in 0..tape.instrs.len() {
        let (before, rest) = tape.instrs.split_at_mut(at);
        let Some(Instr { code: Code::Map(program), ins, outs, launch }) = rest.first_mut() else { continue };
        let mut operand = 0;
        while operand < ins.len() {
            let from = match ins[operand].place {
                Place::Slot(b) if uses[b as usize] == 1 => maker[b as usize],
                _ => None,
            };
            let merged = from.is_some_and(|from| {
                let Instr { code: Code::Map(inner), ins: inner_ins, outs: inner_outs, launch: inner_launch } =
                    &mut before[from]
                else {
                    return false;
                };
                if !together(*inner_launch, *launch) || !exact(inner, inner_outs[0].kind) {
                    return false;
                }
                absorb(program, ins, operand, inner, inner_ins)
            });
            if let (true, Some(from)) = (merged, from) {
                before[from].code =
                    Code::Map(Program { compute: Kind::F32, loads: vec![], steps: vec![], len: 0, truth: false });
                before[from].outs.clear();
                before[from].ins.clear();
            } else {
                operand += 1;
            }
        }
        maker[outs[0].slot as usize] = Some(at);
    }
    tape.instrs.retain(|i| !matches!(&i.code, Code::Map(p) if p.len == 0));
}

/// Rows that linear maps share: slot, offset, elements, rows, their distance, result kind, launch.
type Rows = (u32, usize, usize, usize, usize, Kind, Option<u32>);

/// Linear maps of the same rows become one instruction, where the first of them stands: one job for all threads.
fn join_linears(tape: &mut Tape) {
    let mut first: BTreeMap<Rows, usize> = BTreeMap::new();
    for at in 0..tape.instrs.len() {
        let (before, rest) = tape.instrs.split_at_mut(at);
        let Some(Instr { code: Code::Linear { weights, rows, stride }, ins, outs, launch }) = rest.first_mut() else {
            continue;
        };
        let Place::Slot(slot) = ins[0].place else { continue };
        let key = (slot, ins[0].offset, ins[0].len, *rows, *stride, outs[0].kind, *launch);
        match first.get(&key) {
            Some(known) => {
                let Instr { code: Code::Linear { weights: all, .. }, outs: all_outs, .. } = &mut before[*known] else {
                    continue;
                };
                all.append(weights);
                all_outs.append(outs);
            }
            None => {
                first.insert(key, at);
            }
        }
    }
    tape.instrs.retain(|i| !matches!(&i.code, Code::Linear { weights, .. } if weights.is_empty()));
}

/// True if a program's last register holds what a reader of its result would load.
fn exact(program: &Program, stored: Kind) -> bool {
    if program.compute == stored {
        return true;
    }
    // Truth values are 0 and 1 in every type.
    stored == Kind::U8 && program.zero_or_one()
}

/// Replaces operand `at` of `outer` by the program that computes it.
fn absorb(outer: &mut Program, ins: &mut Vec<Ref>, at: usize, inner: &Program, inner_ins: &[Ref]) -> bool {
    let loads = outer.loads.len() - 1 + inner.loads.len();
    let registers = loads + inner.steps.len() + outer.steps.len();
    if inner.compute != outer.compute
        || inner.len != outer.len
        || outer.loads[at] != Pattern::Dense
        || loads > MAX_LOADS
        || registers > MAX_REGISTERS
    {
        return false;
    }
    // Registers: the other operands, the inner operands, the inner steps, the outer steps.
    let (kept, taken) = (outer.loads.len() - 1, inner.loads.len());
    let inner_register = |r: usize| if r < taken { kept + r } else { kept + taken + (r - taken) };
    let result = inner_register(taken + inner.steps.len() - 1);
    let outer_register = |r: usize| match r {
        r if r == at => result,
        r if r <= kept => r - usize::from(r > at),
        r => r - (kept + 1) + kept + taken + inner.steps.len(),
    };
    let mut steps: Vec<Step> = inner.steps.iter().map(|s| renumber(s, inner_register)).collect();
    steps.extend(outer.steps.iter().map(|s| renumber(s, outer_register)));
    outer.loads.remove(at);
    outer.loads.extend(inner.loads.iter().cloned());
    ins.remove(at);
    ins.extend(inner_ins.iter().cloned());
    outer.steps = steps;
    true
}

fn renumber(step: &Step, f: impl Fn(usize) -> usize) -> Step {
    match *step {
        Step::Unary(code, x) => Step::Unary(code, f(x)),
        Step::Binary(code, a, b) => Step::Binary(code, f(a), f(b)),
        Step::Select(c, a, b) => Step::Select(f(c), f(a), f(b)),
        Step::Round(dtype, x) => Step::Round(dtype, f(x)),
    }
}

/// Gives every buffer a slot that no other buffer uses between its first and its last instruction.
fn place(tape: &mut Tape, buffers: &[(Kind, usize)]) {
    let last = tape.instrs.len();
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; buffers.len()];
    let mut touch = |b: u32, at: usize| {
        let life = lives[b as usize].get_or_insert((at, at));
        life.1 = life.1.max(at);
    };
    // Inputs are there before the first instruction, outputs after the last.
    tape.inputs.iter().for_each(|(_, _, out)| touch(out.slot, 0));
    for (at, instr) in tape.instrs.iter().enumerate() {
        instr.outs.iter().for_each(|o| touch(o.slot, at));
        for r in &instr.ins {
            if let Place::Slot(b) = r.place {
                touch(b, at);
            }
        }
    }
    for output in &tape.outputs {
        if let Place::Slot(b) = output.elements.place {
            touch(b, last);
        }
    }
    let mut begin: Vec<Vec<u32>> = vec![Vec::new(); last + 1];
    let mut end: Vec<Vec<u32>> = vec![Vec::new(); last + 1];
    for (b, life) in lives.iter().enumerate() {
        if let Some((first, until)) = life {
            begin[*first].push(b as u32);
            end[*until].push(b as u32);
        }
    }
    let mut sizes = SlotSizes::default();
    let mut free: [Vec<u32>; 4] = Default::default();
    let mut slots = vec![u32::MAX; buffers.len()];
    for at in 0..=last {
        for b in &begin[at] {
            let (kind, len) = buffers[*b as usize];
            slots[*b as usize] = take_slot(&mut free[kind as usize], &mut sizes[kind as usize], len);
        }
        for b in &end[at] {
            free[buffers[*b as usize].0 as usize].push(slots[*b as usize]);
        }
    }
    let set = |r: &mut Ref| {
        if let Place::Slot(b) = &mut r.place {
            *b = slots[*b as usize];
        }
    };
    tape.inputs.iter_mut().for_each(|(_, _, o)| o.slot = slots[o.slot as usize]);
    for instr in &mut tape.instrs {
        instr.outs.iter_mut().for_each(|o| o.slot = slots[o.slot as usize]);
        instr.ins.iter_mut().for_each(set);
    }
    tape.outputs.iter_mut().for_each(|o| set(&mut o.elements));
    tape.sizes = sizes;
}

/// The smallest free slot that is long enough, else the longest, made longer, else a new one.
fn take_slot(free: &mut Vec<u32>, sizes: &mut Vec<usize>, len: usize) -> u32 {
    let fitting = (0..free.len()).filter(|i| sizes[free[*i] as usize] >= len).min_by_key(|i| sizes[free[*i] as usize]);
    match fitting.or_else(|| (0..free.len()).max_by_key(|i| sizes[free[*i] as usize])) {
        Some(i) => {
            let slot = free.swap_remove(i);
            let size = &mut sizes[slot as usize];
            *size = (*size).max(len);
            slot
        }
        None => {
            sizes.push(len);
            sizes.len() as u32 - 1
        }
    }
}
