//! Pairs of instructions that are one: the value between them has no other reader. Results keep their bits.

use super::elements::{Kind, Place};
use super::instr::{Code, Instr, Tape, together};
use super::map::{Pattern, Step};
use spinec_ir::ops::Opcode;

/// Replaces pairs in a tape whose buffers are still numbered, each written before it is read.
pub(super) fn fuse(tape: &mut Tape, buffers: &[(Kind, usize)]) {
    let mut uses = vec![0u32; buffers.len()];
    let mut writers = vec![0u32; buffers.len()];
    let refs = tape.instrs.iter().flat_map(|i| &i.ins).chain(tape.outputs.iter().map(|o| &o.elements));
    for r in refs {
        if let Place::Slot(b) = r.place {
            uses[b as usize] += 1;
        }
    }
    tape.instrs.iter().flat_map(|i| &i.outs).for_each(|o| writers[o.slot as usize] += 1);
    let mut maker: Vec<Option<usize>> = vec![None; buffers.len()];
    for at in 0..tape.instrs.len() {
        let (before, rest) = tape.instrs.split_at_mut(at);
        let Some(own) = rest.first_mut() else { continue };
        for operand in 0..own.ins.len() {
            let r = &own.ins[operand];
            let Place::Slot(b) = r.place else { continue };
            let whole = r.offset == 0 && r.len == buffers[b as usize].1;
            if !whole || uses[b as usize] != 1 || writers[b as usize] != 1 {
                continue;
            }
            let Some(from) = maker[b as usize] else { continue };
            let others_unread = before[from].outs.iter().all(|o| o.slot == b || uses[o.slot as usize] == 0);
            if others_unread && together(before[from].launch, own.launch) && pair(&mut before[from], own, operand) {
                break;
            }
        }
        own.outs.iter().for_each(|o| maker[o.slot as usize] = Some(at));
    }
    tape.instrs.retain(|i| !matches!(&i.code, Code::Gone));
}

/// Takes `first`, which makes operand `at` of `second`, into `second`.
fn pair(first: &mut Instr, second: &mut Instr, at: usize) -> bool {
    let one = |i: &Instr| i.ins.len() == 1;
    match (&first.code, &second.code) {
        // Rows of a table that are only multiplied.
        (Code::TakeBf16 { table, lanes }, Code::Batched { wide: false, sizes })
            if at < 2 && lanes.inner == sizes.width =>
        {
            second.code = Code::BatchedTake { sizes: *sizes, table: table.clone(), lanes: *lanes, side: at };
            second.ins[at] = first.ins[0].clone();
        }
        // The order of the best is not asked for.
        (Code::TopK { k, width }, Code::Sort { width: sorted })
            if sorted == k && one(second) && second.outs[0].kind == Kind::I32 =>
        {
            second.code = Code::TopSet { k: *k, width: *width };
            second.ins = first.ins.clone();
        }
        // Whether all elements of a row are finite.
        (Code::Map(map), Code::ReduceInts { code: Opcode::ReduceMin, width })
            if map.loads == [Pattern::Dense]
                && matches!(map.steps.as_slice(), [Step::Unary(Opcode::IsFinite, 0)])
                && first.ins.first().is_some_and(|x| x.kind == Kind::F32) =>
        {
            second.code = Code::AllFinite { width: *width };
            second.ins = first.ins.clone();
        }
        // A truth value in another type is 0 or 1 as it was computed.
        (Code::Map(inner), Code::Map(outer))
            if inner.truth
                && outer.steps.is_empty()
                && outer.loads == [Pattern::Dense]
                && outer.len == inner.len
                && inner.zero_or_one() =>
        {
            let mut program = inner.clone();
            program.truth = outer.truth;
            second.code = Code::Map(program);
            second.ins = first.ins.clone();
        }
        _ => return false,
    }
    first.code = Code::Gone;
    first.ins.clear();
    first.outs.clear();
    true
}
