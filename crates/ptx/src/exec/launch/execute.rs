//! Workers: gangs one after the other on each thread, and a repetition in block order where blocks race.

use super::report::report;
use super::{LaunchCx, Report};
use crate::check::Findings;
use crate::check::global::GlobalShadow;
use crate::counters::Tally;
use crate::exec::gang::Gang;
use crate::memory::Access;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a worker brings home.
pub(super) struct Harvest {
    pub(super) findings: Findings,
    pub(super) tally: Tally,
    pub(super) output: Vec<(u64, String)>,
    global: GlobalShadow,
    conflict: bool,
    pub(super) executed: u64,
}

fn work<const CHECK: bool, const COUNT: bool>(cx: &LaunchCx, next: &AtomicU64) -> Harvest {
    let mut gang = Gang::<CHECK, COUNT>::new(cx);
    let mut executed = 0;
    let gangs = cx.gangs();
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= gangs {
            break;
        }
        gang.start(n);
        gang.run();
        executed += gang.warps.iter().map(|w| w.executed).sum::<u64>();
    }
    Harvest {
        findings: gang.findings,
        tally: gang.tally,
        output: gang.output,
        global: gang.global,
        conflict: gang.conflict,
        executed,
    }
}

pub(super) fn execute<const CHECK: bool, const COUNT: bool>(cx: &LaunchCx) -> Report {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if cx.options.threads == 0 { available } else { cx.options.threads };
    let threads = if cx.prog.ordered_blocks { 1 } else { wanted.min(cx.gangs().min(1 << 16) as usize).max(1) };
    if threads == 1 {
        return report(cx, vec![work::<CHECK, COUNT>(cx, &AtomicU64::new(0))]);
    }
    let snapshot: Vec<_> = if CHECK {
        (0..cx.buffer_count())
            .map(|k| (cx.buffer_at(k).access != Access::In).then(|| cx.buffer_at(k).snapshot()))
            .collect()
    } else {
        Vec::new()
    };
    let next = AtomicU64::new(0);
    let harvests: Vec<Harvest> = std::thread::scope(|s| {
        let handles: Vec<_> = (0..threads).map(|_| s.spawn(|| work::<CHECK, COUNT>(cx, &next))).collect();
        handles
            .into_iter()
            .map(|h| match h.join() {
                Ok(x) => x,
                Err(p) => std::panic::resume_unwind(p),
            })
            .collect()
    });
    // Blocks that race with each other may see each other's writes in any order: such a launch is repeated in block
    // order, so that the report is the same for every number of threads.
    let clash = harvests.iter().any(|h| h.conflict)
        || (0..harvests.len()).any(|a| (0..a).any(|b| harvests[a].global.conflicts(&harvests[b].global)));
    if CHECK && clash {
        for (k, s) in snapshot.iter().enumerate() {
            if let Some(s) = s {
                cx.buffer_at(k).restore(s);
            }
        }
        return report(cx, vec![work::<CHECK, COUNT>(cx, &AtomicU64::new(0))]);
    }
    report(cx, harvests)
}
