//! Equal pure ops of a block become one; ops that nobody uses and that change no state go.

use super::rebuild::used;
use super::{Options, PassError, Program};
use crate::region::{blocks, is_skeleton};
use crate::term::Key;
use spinec_ir::ir::{Func, OpId, ValueId};
use spinec_ir::ops::{Effect, Opcode};
use spinec_ir::ty::Type;
use std::collections::BTreeMap;

pub(super) fn run(mut program: Program, _options: &Options) -> Result<Program, PassError> {
    for func in program.module.funcs.iter_mut().chain(&mut program.load.funcs) {
        merge(func);
        drop_unused(func);
    }
    Ok(program)
}

type Signature = (Opcode, Key, Vec<ValueId>, Vec<Type>);

/// Within a block only: an op that stands in two blocks has a reason to.
fn merge(func: &mut Func) {
    let mut replaced: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for block in blocks(func) {
        let mut known: BTreeMap<Signature, OpId> = BTreeMap::new();
        for id in func.region(block).ops.clone() {
            let op = &mut func.ops[id.index()];
            for v in &mut op.operands {
                if let Some(new) = replaced.get(v) {
                    *v = *new;
                }
            }
            if is_skeleton(op.code) {
                continue;
            }
            let op = func.op(id).clone();
            let types = op.results.iter().map(|v| func.ty(*v).clone()).collect();
            let signature = (op.code, Key::new(op.attrs), op.operands, types);
            match known.get(&signature) {
                None => {
                    known.insert(signature, id);
                }
                Some(first) => {
                    for (new, old) in func.op(*first).results.clone().into_iter().zip(op.results) {
                        let names = std::mem::take(&mut func.values[old.index()].names);
                        let kept = &mut func.values[new.index()].names;
                        kept.extend(names);
                        let mut seen = std::collections::BTreeSet::new();
                        kept.retain(|n| seen.insert(n.clone()));
                        replaced.insert(old, new);
                    }
                }
            }
        }
        for v in &mut func.regions[block.index()].yields {
            if let Some(new) = replaced.get(v) {
                *v = *new;
            }
        }
    }
}

/// Drops ops that nobody uses and that change no state, loops and cases with all they hold among them.
pub(crate) fn drop_unused(func: &mut Func) {
    loop {
        let used = used(func);
        let mut dropped = false;
        for block in blocks(func) {
            let ops = func.region(block).ops.clone();
            let kept: Vec<OpId> = ops
                .iter()
                .copied()
                .filter(|op| func.op(*op).results.iter().any(|r| used.contains(r)) || changes_state(func, *op))
                .collect();
            dropped |= kept.len() != ops.len();
            func.regions[block.index()].ops = kept;
        }
        if !dropped {
            return;
        }
    }
}

/// Whether an op, or one in its regions, has to run even if nobody uses its results.
fn changes_state(func: &Func, id: OpId) -> bool {
    let op = func.op(id);
    let own = op.code.def().effect == Effect::AdvancesState || op.results.iter().any(|v| func.ty(*v).is_state());
    own || op.regions.iter().any(|r| func.region(*r).ops.iter().any(|id| changes_state(func, *id)))
}
