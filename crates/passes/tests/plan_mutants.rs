//! Every check of the plan verifier sees what breaks its rule.

mod plan_support;
mod support;

use plan_support::*;
use spinec_ir::ir::text::parse;
use spinec_ir::ir::{OpId, RegionId, StateId, ValueId, WeightId};
use spinec_ir::plan::role::{Role, Roles};
use spinec_ir::plan::verify::{Check, PlanError, verify};
use spinec_ir::plan::*;
use spinec_ir::ty::Dim;
use std::collections::BTreeSet;
use support::*;

/// A plan with everything the checks look at.
struct Base {
    plan: Plan,
    roles: Vec<Roles>,
}

fn base(plan: Plan) -> Base {
    assert_eq!(complaints(&plan), "");
    let [_, large] = range(&plan.module);
    let roles = plan.module.funcs.iter().map(|f| Roles::of(f, &large, plan.reassociate)).collect();
    Base { plan, roles }
}

impl Base {
    /// The first kernel that is as asked for.
    fn kernel(&self, wanted: impl Fn(&Kernel) -> bool) -> (usize, usize) {
        let all = self.plan.phases.iter().enumerate();
        let mut all =
            all.flat_map(|(p, phase)| phase.kernels.iter().enumerate().map(move |(k, kernel)| (p, k, kernel)));
        all.find(|(_, _, k)| wanted(k)).map(|(p, k, _)| (p, k)).expect("the release has such a kernel")
    }

    fn work(&self, p: usize, k: usize) -> Vec<OpId> {
        let ops = &self.plan.phases[p].kernels[k].ops;
        ops.iter().copied().filter(|id| self.roles[p].role[id.index()] == Role::Work).collect()
    }

    /// What the verifier finds after a change.
    fn broken(&self, change: impl FnOnce(&mut Plan)) -> Vec<PlanError> {
        let mut plan = self.plan.clone();
        change(&mut plan);
        verify(&plan)
    }

    /// The plan with the work of kernel `from` given to `to`.
    fn joined(&self, p: usize, to: usize, from: usize) -> Vec<PlanError> {
        let work = self.work(p, from);
        self.broken(|plan| {
            let kernels = &mut plan.phases[p].kernels;
            kernels[from].ops.retain(|id| !work.contains(id));
            kernels[to].ops.extend(work);
            kernels[to].ops.sort_unstable();
        })
    }

    /// All pairs of kernels of a block, the earlier first.
    fn pairs(&self) -> Vec<(usize, usize, usize)> {
        let mut out = Vec::new();
        for (p, phase) in self.plan.phases.iter().enumerate() {
            for b in 0..phase.kernels.len() {
                out.extend((0..b).filter(|a| phase.kernels[*a].block == phase.kernels[b].block).map(|a| (p, a, b)));
            }
        }
        out
    }
}

fn has(errors: &[PlanError], check: Check) -> bool {
    errors.iter().any(|e| e.check == check)
}

/// Two row-wise kernels with other rows.
const ROWS_APART: &str = r#"spinec-ir 1
module "m" numerics=f32

func "f"
  input "x" = %0 : f32[96, 128]
  %1 = softmax(%0) {axis=1} : dist f32[96, 128]
  %2 = transpose(%1) {axes=[1, 0]} : f32[128, 96]
  %3 = softmax(%2) {axis=1} : dist f32[128, 96]
  return "y" = %3
"#;

/// The error says where it is: the phase, and the kernel if asked for.
fn said(errors: &[PlanError], check: Check, at: Option<(&str, usize)>) {
    let found: Vec<&PlanError> = errors.iter().filter(|e| e.check == check).collect();
    assert!(!found.is_empty(), "{} is not reported among {errors:?}", check.name());
    if let Some((phase, kernel)) = at {
        let right = |e: &&&PlanError| {
            e.phase.as_deref() == Some(phase)
                && e.kernel == Some(KernelId(kernel as u32))
                && e.to_string().starts_with(&format!("phase {phase}: kernel {kernel}: "))
        };
        assert!(found.iter().any(|e| right(&e)), "{found:?}");
    }
}

fn first_loop(steps: &[Step]) -> usize {
    steps.iter().position(|s| matches!(s, Step::Loop { .. })).expect("there is a loop")
}

#[test]
fn every_check_reports_what_breaks_its_rule() {
    let b = base(usual(phases(SYSTEMS[3], "sampled")));
    let mut tested: BTreeSet<Check> = BTreeSet::new();
    let name = |p: usize| b.plan.module.funcs[p].name.clone();
    let mut broke = |check: Check, at: Option<(usize, usize)>, change: &dyn Fn(&mut Plan)| {
        let errors = b.broken(change);
        let name = at.map(|(p, k)| (name(p), k));
        said(&errors, check, name.as_ref().map(|(n, k)| (n.as_str(), *k)));
        tested.insert(check);
    };

    // Modules and phases.
    broke(Check::Module, None, &|p| drop(p.module.funcs[0].outputs.pop()));
    broke(Check::Module, None, &|p| drop(p.load.funcs[0].outputs.pop()));
    broke(Check::Canonical, None, &|p| {
        let copy = p.module.funcs[0].ops[0].clone();
        p.module.funcs[0].ops.push(copy);
    });
    broke(Check::Phases, None, &|p| drop(p.phases.pop()));
    broke(Check::Phases, None, &|p| p.phases.push(Phase::default()));

    // Ids that name nothing.
    let far = u32::MAX;
    broke(Check::Ids, Some((0, 1)), &|p| p.phases[0].kernels[1].block = RegionId(far));
    broke(Check::Ids, Some((0, 1)), &|p| p.phases[0].kernels[1].ops.push(OpId(far)));
    broke(Check::Ids, Some((0, 1)), &|p| p.phases[0].kernels[1].leaves.push(ValueId(far)));
    broke(Check::Ids, Some((0, 1)), &|p| p.phases[0].kernels[1].after.push(KernelId(far)));
    for place in [Place::Buffer(BufferId(far)), Place::Weight(WeightId(far), None), Place::State(StateId(far))] {
        broke(Check::Ids, Some((0, 1)), &|p| p.phases[0].kernels[1].reads[0].place = place);
        broke(Check::Ids, Some((0, 1)), &|p| p.phases[0].kernels[1].writes[0].place = place);
    }
    broke(Check::Ids, None, &|p| p.phases[0].buffers[0].value = ValueId(far));
    broke(Check::Ids, None, &|p| p.phases[0].steps.push(Step::Launch(KernelId(far))));
    broke(Check::Ids, None, &|p| p.phases[0].decisions[0].producer = OpId(far));

    // Ops of kernels.
    let several = b.kernel(|k| k.ops.len() > 3);
    let work = b.work(several.0, several.1);
    broke(Check::Cover, None, &|p| p.phases[several.0].kernels[several.1].ops.retain(|id| *id != work[0]));
    let (p, k) = (several.0, several.1);
    broke(Check::Cover, Some((p, k + 1)), &|plan| {
        plan.phases[p].kernels[k + 1].ops.push(work[0]);
        plan.phases[p].kernels[k + 1].ops.sort_unstable();
    });
    broke(Check::Ops, Some((p, k)), &|plan| plan.phases[p].kernels[k].ops.reverse());
    broke(Check::Ops, Some((p, k)), &|plan| {
        let again = plan.phases[p].kernels[k].ops[0];
        plan.phases[p].kernels[k].ops.insert(0, again);
    });
    broke(Check::Ops, Some((p, k)), &|plan| plan.phases[p].kernels[k].ops.clear());
    for role in [Role::Free, Role::Control] {
        let id = b.roles[p].role.iter().position(|r| *r == role).map(|i| OpId(i as u32));
        broke(Check::Ops, Some((p, k)), &|plan| plan.phases[p].kernels[k].ops.extend(id));
    }
    let inside = b.roles[p].block.iter().position(Option::is_none).map(|i| OpId(i as u32));
    if let Some(id) = inside {
        broke(Check::Ops, Some((p, k)), &|plan| plan.phases[p].kernels[k].ops.push(id));
    }
    let nested = b.kernel(|k| k.block != RegionId(0));
    broke(Check::Block, Some(nested), &|plan| plan.phases[nested.0].kernels[nested.1].block = RegionId(0));

    // Families and mechanisms.
    let gemm = b.kernel(|k| k.family == Family::Gemm && k.mechanisms.contains(&Mechanism::Packed));
    broke(Check::Family, Some(gemm), &|plan| plan.phases[gemm.0].kernels[gemm.1].family = Family::Attention);
    for change in [
        (|m: &mut Vec<Mechanism>| m.truncate(1)) as fn(&mut Vec<Mechanism>),
        |m| m.reverse(),
        |m| m.push(Mechanism::HeadRows),
        |m| m.insert(0, m[0]),
        |m| m.extend([Mechanism::BlockShift, Mechanism::FirstTile].iter().find(|x| !m.clone().contains(x))),
    ] {
        broke(Check::Mechanisms, Some(gemm), &|plan| change(&mut plan.phases[gemm.0].kernels[gemm.1].mechanisms));
    }
    for m in
        [Mechanism::SplitKv, Mechanism::HeadRows, Mechanism::Siblings, Mechanism::PartialSums, Mechanism::FirstTile]
    {
        let at = b.kernel(|k| k.mechanisms.contains(&m));
        broke(Check::Mechanisms, Some(at), &|plan| plan.phases[at.0].kernels[at.1].mechanisms.retain(|x| *x != m));
    }
    broke(Check::Limits, Some((p, k)), &|plan| {
        let reads = &mut plan.phases[p].kernels[k].reads;
        let again = reads[0].clone();
        reads.extend(vec![again; 64]);
    });

    // Steps.
    let looped = b.plan.phases.iter().position(|p| p.steps.iter().any(|s| matches!(s, Step::Loop { .. })));
    let l = looped.expect("there is a loop");
    broke(Check::Steps, None, &|plan| {
        let i = first_loop(&plan.phases[l].steps);
        plan.phases[l].steps.remove(i);
    });
    broke(Check::Steps, None, &|plan| {
        let i = first_loop(&plan.phases[l].steps);
        if let Step::Loop { op, body } = plan.phases[l].steps[i].clone() {
            plan.phases[l].steps[i] = Step::Cases { op, arms: vec![body] };
        }
    });
    broke(Check::Steps, None, &|plan| {
        let i = first_loop(&plan.phases[l].steps);
        let again = plan.phases[l].steps[i].clone();
        plan.phases[l].steps.push(again);
    });
    broke(Check::Steps, None, &|plan| plan.phases[l].steps.swap(0, 1));
    let arms = |plan: &mut Plan| {
        for phase in &mut plan.phases {
            for step in &mut phase.steps {
                if let Step::Loop { body, .. } = step {
                    for step in body {
                        if let Step::Cases { arms, .. } = step {
                            arms.pop();
                            return;
                        }
                    }
                }
            }
        }
        panic!("the release has cases");
    };
    broke(Check::Steps, None, &arms);
    broke(Check::Launches, Some((0, 0)), &|plan| drop(plan.phases[0].steps.remove(0)));
    broke(Check::Launches, Some((0, 0)), &|plan| plan.phases[0].steps.push(Step::Launch(KernelId(0))));
    broke(Check::Launches, Some((0, 0)), &|plan| plan.phases[0].steps.swap(0, 1));
    broke(Check::Launches, Some((l, 0)), &|plan| {
        let moved = plan.phases[l].steps.remove(0);
        let i = first_loop(&plan.phases[l].steps);
        if let Step::Loop { body, .. } = &mut plan.phases[l].steps[i] {
            body.insert(0, moved);
        }
    });

    // What follows from the groups.
    let repeats = |at: (usize, usize)| b.work(at.0, at.1).len() < b.plan.phases[at.0].kernels[at.1].ops.len();
    let all = |f: &dyn Fn((usize, usize)) -> bool| {
        let mut all = b.plan.phases.iter().enumerate().flat_map(|(p, x)| (0..x.kernels.len()).map(move |k| (p, k)));
        all.find(|at| f(*at)).expect("the release has such a kernel")
    };
    let at = all(&repeats);
    broke(Check::Repeated, Some(at), &|plan| {
        let work = b.work(at.0, at.1);
        plan.phases[at.0].kernels[at.1].ops.retain(|id| work.contains(id));
    });
    let id = all(&repeats);
    let extra = b.plan.phases[id.0].kernels[id.1].ops.iter().copied().find(|op| !b.work(id.0, id.1).contains(op));
    let other = all(&|at| at.0 == id.0 && !b.plan.phases[at.0].kernels[at.1].ops.contains(&extra.expect("repeated")));
    broke(Check::Repeated, Some(other), &|plan| {
        let ops = &mut plan.phases[other.0].kernels[other.1].ops;
        ops.extend(extra);
        ops.sort_unstable();
    });
    let leaves = b.kernel(|k| !k.leaves.is_empty());
    broke(Check::Leaves, Some(leaves), &|plan| plan.phases[leaves.0].kernels[leaves.1].leaves.clear());
    broke(Check::Reads, Some((p, k)), &|plan| plan.phases[p].kernels[k].reads[0].bytes = Dim::from(1));
    broke(Check::Reads, Some((p, k)), &|plan| drop(plan.phases[p].kernels[k].reads.pop()));
    let two = b.kernel(|k| k.reads.len() > 1);
    broke(Check::Reads, Some(two), &|plan| plan.phases[two.0].kernels[two.1].reads.reverse());
    broke(Check::Writes, Some((p, k)), &|plan| plan.phases[p].kernels[k].writes.clear());
    broke(Check::Grid, Some((p, k)), &|plan| plan.phases[p].kernels[k].grid = Dim::symbol("N"));
    broke(Check::Flops, Some((p, k)), &|plan| plan.phases[p].kernels[k].flops = Dim::from(7));
    let waits = b.kernel(|k| !k.after.is_empty());
    broke(Check::After, Some(waits), &|plan| plan.phases[waits.0].kernels[waits.1].after.clear());
    broke(Check::Order, Some(waits), &|plan| {
        plan.phases[waits.0].kernels[waits.1].after = vec![KernelId(waits.1 as u32)];
    });
    broke(Check::Buffers, None, &|plan| plan.phases[0].buffers[0].bytes = Dim::from(3));
    broke(Check::Buffers, None, &|plan| plan.phases[0].buffers[0].input = false);
    broke(Check::Buffers, None, &|plan| {
        let again = plan.phases[0].buffers[0].clone();
        plan.phases[0].buffers.push(again);
    });

    // Decisions.
    let taken = b.plan.phases[0].decisions.iter().position(|d| d.accepted).expect("some are taken");
    let refused = b.plan.phases[0].decisions.iter().position(|d| !d.accepted).expect("some are refused");
    broke(Check::Decisions, None, &|plan| plan.phases[0].decisions[taken].reason = Reason::Shape);
    broke(Check::Decisions, None, &|plan| plan.phases[0].decisions[refused].detail.clear());
    broke(Check::Decisions, None, &|plan| {
        let again = plan.phases[0].decisions[taken].clone();
        plan.phases[0].decisions.push(again);
    });
    broke(Check::Decisions, None, &|plan| {
        let d = &mut plan.phases[0].decisions[taken];
        d.producer = d.consumer;
    });
    let free = b.roles[0].role.iter().position(|r| *r == Role::Free).map_or(OpId(0), |i| OpId(i as u32));
    broke(Check::Decisions, None, &|plan| plan.phases[0].decisions[taken].producer = free);
    broke(Check::Outcome, None, &|plan| {
        let d = &mut plan.phases[0].decisions[taken];
        (d.accepted, d.reason, d.detail) = (false, Reason::Costlier, "no".to_owned());
    });
    broke(Check::Outcome, None, &|plan| {
        let d = &mut plan.phases[0].decisions[refused];
        (d.accepted, d.reason) = (true, Reason::Epilogue);
    });

    // Derived weights.
    for change in [
        (|p: &mut Plan| drop(p.derived.pop())) as fn(&mut Plan),
        |p| drop(p.load.funcs.pop()),
        |p| p.derived[0].weight = WeightId(0),
        |p| p.derived[0].bytes += 1,
        |p| p.derived[0].of.push("nobody".to_owned()),
        |p| p.derived[0].reason.clear(),
        |p| p.load.funcs[0].name.push('x'),
        |p| drop(p.load.weights.pop()),
        |p| p.load.symbols.clear(),
        |p| p.load.states = p.module.states.clone(),
        |p| p.derived = vec![p.derived[0].clone(); p.module.weights.len() + 1],
        |p| {
            p.module.weights.last_mut().expect("it is derived").loops.extend([("l".to_owned(), 2), ("m".to_owned(), 2)])
        },
    ] {
        broke(Check::Derived, None, &change);
    }

    // Kernels that should not be joined.
    let pairs = b.pairs();
    for check in [Check::Legality, Check::Contiguous] {
        let found = pairs.iter().find_map(|(p, to, from)| {
            let errors = b.joined(*p, *to, *from);
            has(&errors, check).then_some((errors, *p, *to))
        });
        let (errors, p, to) = found.unwrap_or_else(|| panic!("{} is never reported", check.name()));
        said(&errors, check, Some((&name(p), to)));
        tested.insert(check);
    }

    let apart = base(usual(parse(ROWS_APART).expect("the text is well formed")));
    said(&apart.joined(0, 0, 1), Check::Rows, Some(("f", 0)));
    tested.insert(Check::Rows);

    let missing: Vec<&str> = Check::ALL.iter().filter(|c| !tested.contains(c)).map(|c| c.name()).collect();
    assert!(missing.is_empty(), "no test breaks {missing:?}");
}

/// Plans of one module and another's function, or with parts exchanged, are reported and never make the verifier panic.
#[test]
fn mixed_up_plans_are_reported() {
    let b = base(usual(phases(SYSTEMS[0], "mixed")));
    for p in 0..b.plan.phases.len() {
        for q in 0..b.plan.phases.len() {
            let errors = b.broken(|plan| plan.phases[p] = b.plan.phases[q].clone());
            assert_eq!(errors.is_empty(), p == q);
        }
    }
    for (p, x, y) in b.pairs() {
        assert!(!b.broken(|plan| plan.phases[p].kernels.swap(x, y)).is_empty());
        assert!(!b.joined(p, x, y).is_empty());
    }
}
