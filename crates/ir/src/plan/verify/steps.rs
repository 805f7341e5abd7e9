//! Steps: what is launched, in which order.

use super::{Check, Cx, Role};
use crate::ir::{OpId, RegionId};
use crate::ops::Opcode;
use crate::plan::Step;

pub(super) fn check(cx: &mut Cx) {
    let phase = cx.phase;
    let mut w = Walk { cx, launched: vec![0; phase.kernels.len()], next: 0 };
    w.block(w.cx.func.body, &phase.steps);
    let launched = w.launched;
    for (k, n) in launched.into_iter().enumerate() {
        match n {
            0 => cx.error(Check::Launches, Some(k), None, "no step launches it"),
            1 => {}
            n => cx.error(Check::Launches, Some(k), None, format!("{n} steps launch it")),
        }
    }
    for k in 0..phase.kernels.len() {
        for before in &phase.kernels[k].after {
            match before.index() {
                b if b >= phase.kernels.len() => {
                    cx.error(Check::Ids, Some(k), None, format!("it waits for kernel {b}, which does not exist"));
                }
                b if b >= k => cx.error(Check::Order, Some(k), None, format!("it waits for the later kernel {b}")),
                _ => {}
            }
        }
    }
}

struct Walk<'a, 'b> {
    cx: &'a mut Cx<'b>,
    launched: Vec<usize>,
    /// Kernels met so far.
    next: usize,
}

impl Walk<'_, '_> {
    /// Steps of a block; descends only along control ops of the function, so no deeper than it nests.
    fn block(&mut self, block: RegionId, steps: &[Step]) {
        let (func, phase) = (self.cx.func, self.cx.phase);
        let mut control: Vec<OpId> = func.region(block).ops.clone();
        control.retain(|id| self.cx.role(*id) == Some(Role::Control));
        let mut missed = control.into_iter().peekable();
        let mut last: Option<OpId> = None;
        for step in steps {
            let (at, inner): (Option<OpId>, Vec<&[Step]>) = match step {
                Step::Launch(k) => {
                    self.launch(block, *k);
                    let first = phase.kernels.get(k.index()).map(|_| self.cx.work[k.index()].first().copied());
                    (first.flatten(), Vec::new())
                }
                Step::Loop { op, body } => (Some(*op), vec![body]),
                Step::Cases { op, arms } => (Some(*op), arms.iter().map(Vec::as_slice).collect()),
            };
            let Some(at) = at else { continue };
            if last.is_some_and(|l| at <= l) {
                self.cx.error(Check::Steps, None, Some(at), "its step does not follow the order of the text");
            }
            last = last.max(Some(at));
            if matches!(step, Step::Launch(_)) {
                continue;
            }
            let code = if matches!(step, Step::Loop { .. }) { Opcode::Loop } else { Opcode::Cases };
            if self.cx.role(at) != Some(Role::Control)
                || self.cx.roles.block[at.index()] != Some(block)
                || func.op(at).code != code
            {
                self.cx.error(Check::Steps, None, Some(at), format!("is no {} of this block", code.name()));
                self.skipped(&inner);
                continue;
            }
            while let Some(id) = missed.next_if(|id| *id < at) {
                self.cx.error(Check::Steps, None, Some(id), "has no step");
            }
            missed.next_if_eq(&at);
            let regions = &func.op(at).regions;
            if regions.len() != inner.len() {
                let message = format!("{} lists of steps for {} blocks", inner.len(), regions.len());
                self.cx.error(Check::Steps, None, Some(at), message);
            }
            for (region, steps) in regions.iter().zip(inner) {
                self.block(*region, steps);
            }
        }
        for id in missed {
            self.cx.error(Check::Steps, None, Some(id), "has no step");
        }
    }

    fn launch(&mut self, block: RegionId, k: crate::plan::KernelId) {
        let Some(kernel) = self.cx.phase.kernels.get(k.index()) else {
            self.cx.error(Check::Ids, None, None, format!("a step launches kernel {}, which does not exist", k.0));
            return;
        };
        if kernel.block != block {
            let message = format!("it is launched among the steps of block {}", block.0);
            self.cx.error(Check::Launches, Some(k.index()), None, message);
        }
        if k.index() != self.next {
            self.cx.error(Check::Launches, Some(k.index()), None, format!("it is launch {} in the text", self.next));
        }
        self.next += 1;
        self.launched[k.index()] += 1;
    }

    /// Counts the launches of steps that stand under no block.
    fn skipped(&mut self, lists: &[&[Step]]) {
        let mut stack: Vec<&Step> = lists.iter().flat_map(|l| l.iter()).collect();
        while let Some(step) = stack.pop() {
            match step {
                Step::Launch(k) => self.launched.get_mut(k.index()).into_iter().for_each(|n| *n += 1),
                Step::Loop { body, .. } => stack.extend(body),
                Step::Cases { arms, .. } => stack.extend(arms.iter().flatten()),
            }
        }
    }
}
