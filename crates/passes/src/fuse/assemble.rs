//! Kernels, buffers and steps of a phase from the groups of ops.

use super::Kernels;
use spinec_ir::ir::{Func, Module, OpId, RegionId};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::build::{Group, kernels};
use spinec_ir::plan::role::{Role, Roles};
use spinec_ir::plan::{Phase, Step};
use std::collections::BTreeMap;

/// The phase of a function whose blocks are in launch order.
pub(super) fn phase(module: &Module, func: &Func, roles: &Roles, found: Kernels) -> Result<Phase, String> {
    // Kernels are numbered in the order of the text, which is launch order.
    let mut owner: BTreeMap<OpId, usize> = BTreeMap::new();
    for (k, (ops, _, _)) in found.groups.iter().enumerate() {
        owner.extend(ops.iter().map(|id| (*id, k)));
    }
    let mut order: Vec<usize> = Vec::new();
    let mut number: BTreeMap<usize, u32> = BTreeMap::new();
    let steps = steps(func, roles, func.body, &owner, &mut order, &mut number);
    let groups: Vec<Group> = order
        .iter()
        .map(|k| {
            let (ops, family, mechanisms) = &found.groups[*k];
            Group { ops: ops.clone(), family: *family, mechanisms: mechanisms.clone() }
        })
        .collect();
    let (kernels, buffers) = kernels(module, func, roles, &groups)?;
    Ok(Phase { kernels, buffers, steps, decisions: found.decisions })
}

fn steps(
    func: &Func,
    roles: &Roles,
    block: RegionId,
    owner: &BTreeMap<OpId, usize>,
    order: &mut Vec<usize>,
    number: &mut BTreeMap<usize, u32>,
) -> Vec<Step> {
    let mut out = Vec::new();
    for id in &func.region(block).ops {
        let op = func.op(*id);
        if roles.role[id.index()] == Role::Control {
            let mut inner: Vec<Vec<Step>> =
                op.regions.iter().map(|r| steps(func, roles, *r, owner, order, number)).collect();
            out.push(match op.code {
                Opcode::Loop => Step::Loop { op: *id, body: inner.pop().unwrap_or_default() },
                _ => Step::Cases { op: *id, arms: inner },
            });
        } else if let Some(k) = owner.get(id)
            && !number.contains_key(k)
        {
            let n = order.len() as u32;
            number.insert(*k, n);
            order.push(*k);
            out.push(Step::Launch(spinec_ir::plan::KernelId(n)));
        }
    }
    out
}
