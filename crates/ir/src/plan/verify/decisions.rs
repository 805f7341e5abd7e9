//! Records of fusions.

use super::{Check, Cx, Role};
use crate::ir::OpId;
use crate::plan::Decision;
use std::collections::BTreeSet;

pub(super) fn check(cx: &mut Cx) {
    let phase = cx.phase;
    let mut seen = BTreeSet::new();
    for d in &phase.decisions {
        one(cx, d, seen.insert((d.producer, d.consumer)));
    }
}

fn one(cx: &mut Cx, d: &Decision, first: bool) {
    let Decision { producer, consumer, accepted, reason, detail } = d;
    let mut known = true;
    for id in [*producer, *consumer] {
        match cx.role(id) {
            _ if id.index() >= cx.func.ops.len() => {
                cx.error(Check::Ids, None, None, format!("a decision names op {}, which does not exist", id.0));
                known = false;
            }
            Some(Role::Work | Role::Control) => {}
            _ => {
                cx.error(Check::Decisions, None, Some(id), "a decision about what is no work");
                known = false;
            }
        }
    }
    if !known {
        return;
    }
    let at = Some(*consumer);
    if producer == consumer {
        cx.error(Check::Decisions, None, at, "a decision about one op");
    }
    if !first {
        cx.error(Check::Decisions, None, at, "a second decision about the same two ops");
    }
    if reason.accepts() != *accepted {
        let outcome = if *accepted { "taken" } else { "refused" };
        cx.error(Check::Decisions, None, at, format!("{outcome} for the reason {}", reason.name()));
    }
    if !accepted && detail.is_empty() {
        cx.error(Check::Decisions, None, at, format!("refused for {} without particulars", reason.name()));
    }
    let owner = |id: OpId| cx.owner[id.index()];
    let shared = owner(*producer).is_some() && owner(*producer) == owner(*consumer);
    if shared != *accepted {
        let k = owner(*consumer);
        let message = if shared { "refused, but both ops share a kernel" } else { "taken, but in two kernels" };
        cx.error(Check::Outcome, k, at, message);
    }
}
