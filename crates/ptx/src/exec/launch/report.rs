//! The report of a launch: findings with their lines, counters and output.

use super::execute::Harvest;
use super::{LaunchCx, Report};
use crate::check::{Finding, Findings};
use crate::counters::{BufferTraffic, ClassCounters, Counters, InstCounters, LineCounters, Tally};
use crate::exec::inst::Class;

/// Puts together what the workers brought home.
pub(super) fn report(cx: &LaunchCx, harvests: Vec<Harvest>) -> Report {
    let mut findings = Findings::default();
    let mut tally = Tally::new(cx.prog.code.len(), cx.buffer_count());
    let mut output = Vec::new();
    let mut executed = 0;
    for h in harvests {
        findings.merge(h.findings);
        tally.merge(&h.tally);
        output.extend(h.output);
        executed += h.executed;
    }
    // Stable: the pieces of one block all come from one worker, in order.
    output.sort_by_key(|o| o.0);
    let mut list: Vec<Finding> = findings
        .0
        .into_iter()
        .map(|((pc, kind), raw)| {
            let block = raw.cta;
            let x = block % u64::from(cx.grid[0]);
            let y = block / u64::from(cx.grid[0]) % u64::from(cx.grid[1]);
            let z = block / u64::from(cx.grid[0]) / u64::from(cx.grid[1]);
            let place = cx.prog.places[pc as usize];
            let other = raw.other.and_then(|p| cx.prog.places.get(p as usize));
            Finding {
                kind,
                severity: kind.severity(),
                ptx_line: place.line,
                source_line: source_line(place.source_line),
                source_file: file(cx, place.file),
                other_ptx_line: other.map(|p| p.line),
                other_source_line: other.and_then(|p| source_line(p.source_line)),
                message: raw.message,
                cta: [x as u32, y as u32, z as u32],
                warp: raw.warp,
                lane: raw.lane,
                count: raw.count,
            }
        })
        .collect();
    if cx.options.count {
        list.extend(performance(cx, &tally));
    }
    list.sort_by_key(|f| (f.severity, f.ptx_line, f.kind));
    let counters = if cx.options.count { counters(cx, &tally) } else { Counters::default() };
    let output = output.into_iter().map(|o| o.1).collect();
    Report { findings: list, counters, output, warp_instructions: executed }
}

fn source_line(n: u32) -> Option<u32> {
    (n != 0).then_some(n)
}

fn file(cx: &LaunchCx, index: u32) -> Option<String> {
    cx.prog.files.iter().find(|f| f.0 == index).map(|f| f.1.clone())
}

/// Findings about memory requests that cost more than their data.
fn performance(cx: &LaunchCx, tally: &Tally) -> Vec<Finding> {
    use crate::check::FindingKind::{BankConflict, Uncoalesced};
    let mut out = Vec::new();
    for (pc, c) in tally.insts.iter().enumerate() {
        let place = cx.prog.places[pc];
        let mut add = |kind: crate::check::FindingKind, message: String, count: u64| {
            out.push(Finding {
                kind,
                severity: kind.severity(),
                ptx_line: place.line,
                source_line: source_line(place.source_line),
                source_file: file(cx, place.file),
                other_ptx_line: None,
                other_source_line: None,
                message,
                cta: [0; 3],
                warp: 0,
                lane: 0,
                count,
            });
        };
        let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        let r = ratio(c.wavefronts, c.ideal_wavefronts);
        if c.wavefronts > 0 && r >= cx.options.bank_conflict_ratio {
            add(BankConflict, format!("{r:.1} times the wavefronts its data needs"), c.shared_requests);
        }
        let r = ratio(c.sectors, c.ideal_sectors);
        if c.sectors > 0 && r >= cx.options.uncoalesced_ratio {
            add(Uncoalesced, format!("{r:.1} times the sectors its data needs"), c.global_requests);
        }
    }
    out
}

fn counters(cx: &LaunchCx, tally: &Tally) -> Counters {
    let mut c = Counters { barriers: tally.barriers, mbarrier_phases: tally.phases, ..Counters::default() };
    c.cluster_barriers = tally.cluster_barriers;
    c.classes = Class::ALL
        .iter()
        .map(|class| ClassCounters { class: *class, warp_instructions: 0, lane_instructions: 0 })
        .collect();
    for (pc, i) in tally.insts.iter().enumerate().filter(|(_, i)| i.executed > 0) {
        c.total.add(i);
        let class = &mut c.classes[cx.prog.code[pc].op.class() as usize];
        class.warp_instructions += i.executed;
        class.lane_instructions += i.lanes;
        let place = cx.prog.places[pc];
        c.lines.push(LineCounters {
            ptx_line: place.line,
            source_line: source_line(place.source_line),
            opcode: cx.prog.opcodes.get(place.opcode as usize).cloned().unwrap_or_default(),
            counters: *i,
        });
    }
    let InstCounters { executed, lanes, divergent, bytes_loaded, bytes_stored, .. } = c.total;
    c.warp_instructions = executed;
    c.lane_instructions = lanes;
    c.divergent_instructions = divergent;
    c.requested_bytes = bytes_loaded + bytes_stored;
    for (k, (read, written, either)) in tally.unique().into_iter().enumerate() {
        c.unique_bytes += either;
        if either > 0 {
            c.buffers.push(BufferTraffic {
                buffer: cx.buffer_at(k).name.clone(),
                unique_read_bytes: read,
                unique_written_bytes: written,
            });
        }
    }
    c
}
