//! From a rewritten module to a plan: loops are specialised, ops grouped into kernels, blocks brought into launch order.
//!
//! Groups grow by merging along edges between ops of one block, in textual order, while [`spinec_ir::plan::families`]
//! allows the kernel, contraction makes no cycle, and one kernel takes no longer than two at either end of the symbols.
//! Every edge leaves a record with one of the closed reasons.

mod assemble;
mod context;
mod group;
mod legal;
mod order;
mod specialise;
mod time;

use crate::cost::Device;
use crate::pass::{PassError, Program};
use crate::rules::Class;
use crate::saturate::Stop;
use context::Context;
use group::Groups;
use spinec_ir::ir::{Func, Module, OpId, canonical};
use spinec_ir::plan::families::{Family, Mechanism};
use spinec_ir::plan::role::Roles;
use spinec_ir::plan::{Decision, DerivedWeight, Plan, verify};
use std::collections::{BTreeMap, BTreeSet};

/// What fusion is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What kernels are timed against.
    pub device: Device,
    /// Whether sums may be added up in another order.
    pub reassociate: bool,
    /// False leaves every op a kernel of its own: what plans are compared with.
    pub fuse: bool,
}

/// A kernel to be: its ops and what legality found out about it.
struct Kernels {
    /// By kernel, in launch order within their blocks.
    groups: Vec<(BTreeSet<OpId>, Family, BTreeSet<Mechanism>)>,
    decisions: Vec<Decision>,
}

/// Plans what the passes made.
///
/// # Errors
/// [`PassError::Internal`]: the module was not verified, or a size does not fit 64 bits. [`PassError::Invalid`]: the plan breaks
/// rules of plans, which is a bug.
pub fn plan(program: Program, options: &Options) -> Result<Plan, PassError> {
    let mut module = program.module;
    module.funcs = module.funcs.iter().map(specialise::specialise).collect();
    module.funcs.iter_mut().for_each(crate::pass::clean::drop_unused);
    module = canonical(&module);
    let [_, largest] = spinec_ir::plan::range(&module);
    let mut found = Vec::new();
    let mut ordered = Vec::new();
    for func in &module.funcs {
        let roles = Roles::of(func, &largest, options.reassociate);
        let (func, kernels) = group(&module, func, &roles, options)
            .map_err(|why| PassError::Internal(format!("function `{}`: {why}", func.name)))?;
        ordered.push(func);
        found.push(kernels);
    }
    let before = Module { funcs: ordered, ..module };
    let module = canonical(&before);
    let mut phases = Vec::new();
    for ((old, new), kernels) in before.funcs.iter().zip(&module.funcs).zip(found) {
        let map = order::renumbered(old, new);
        let roles = Roles::of(new, &largest, options.reassociate);
        let phase = assemble::phase(&module, new, &roles, kernels.renamed(&map));
        phases.push(phase.map_err(|why| PassError::Internal(format!("function `{}`: {why}", new.name)))?);
    }
    let mut rules: BTreeMap<String, usize> = BTreeMap::new();
    let mut limits_hit = Vec::new();
    for r in &program.regions {
        for (rule, n) in &r.saturation.fired {
            *rules.entry((*rule).to_owned()).or_default() += n;
        }
        if r.saturation.stop != Stop::Saturated {
            limits_hit.push(format!("saturation of {} ended early: {:?}", r.at, r.saturation.stop));
        }
    }
    let derived = program.derived.iter().map(|d| DerivedWeight {
        weight: d.weight,
        of: d.of.clone(),
        bytes: d.bytes,
        reason: format!("saves {:.1} ns a run", d.saving_ps as f64 / 1000.0),
    });
    let plan = Plan {
        module,
        load: program.load,
        derived: derived.collect(),
        phases,
        reassociate: options.reassociate,
        rules,
        limits_hit,
    };
    let errors: Vec<String> = verify::verify(&plan).iter().map(ToString::to_string).collect();
    if errors.is_empty() { Ok(plan) } else { Err(PassError::Invalid { pass: "fuse", errors }) }
}

impl Options {
    /// Options that go with those of the passes.
    pub fn of(options: &crate::pass::Options) -> Options {
        let reassociate = options.classes.contains(&Class::Reassociating);
        Options { device: options.device.clone(), reassociate, fuse: true }
    }
}

impl Kernels {
    fn renamed(mut self, map: &BTreeMap<OpId, OpId>) -> Kernels {
        for (ops, _, _) in &mut self.groups {
            *ops = ops.iter().filter_map(|id| map.get(id).copied()).collect();
        }
        self.decisions.retain_mut(|d| match (map.get(&d.producer), map.get(&d.consumer)) {
            (Some(p), Some(c)) => {
                (d.producer, d.consumer) = (*p, *c);
                true
            }
            _ => false,
        });
        self
    }
}

/// Groups the ops of all blocks and brings them into launch order.
fn group(module: &Module, func: &Func, roles: &Roles, options: &Options) -> Result<(Func, Kernels), String> {
    let c = Context::new(module, func, roles, options);
    let mut out = Kernels { groups: Vec::new(), decisions: Vec::new() };
    let mut new = func.clone();
    let mut orders = BTreeMap::new();
    for block in crate::region::blocks(func) {
        if block != func.body && roles.owner[block.index()].is_none() {
            continue;
        }
        let mut g = Groups::new(&c, block)?;
        if options.fuse {
            g.merge();
        }
        let sorted = g.sorted();
        let nodes: Vec<Vec<OpId>> =
            sorted.iter().filter_map(|n| g.nodes[*n].as_ref()).map(|n| n.ops.iter().copied().collect()).collect();
        orders.insert(block, nodes);
        out.decisions.extend(g.decisions());
        for n in sorted {
            if let Some(node) = g.nodes[n].take()
                && let Some(form) = node.form
            {
                out.groups.push((node.ops, form.family, form.mechanisms));
            }
        }
    }
    order::reorder(&mut new, roles, &orders);
    Ok((new, out))
}
