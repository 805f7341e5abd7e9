//! A gang: the blocks that execute together, one cluster or, for cooperative launches, the whole grid.

use super::bulk::BulkState;
use super::cp_async::CopyState;
use super::launch::LaunchCx;
use super::mbarrier::Mbar;
use super::regs::{LANES, Regs, Row32, Row64};
use super::wgmma::WgmmaState;
use crate::check::cell::SharedCell;
use crate::check::clock::{Clock, Far};
use crate::check::global::GlobalShadow;
use crate::check::lanes::LaneOrder;
use crate::check::pool::Pool;
use crate::check::{FindingKind, Findings};
use crate::counters::Tally;
use crate::exec::regs::Bank;
use std::collections::{BTreeMap, HashMap};

/// The gang cannot continue; the finding that says why has been recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop;

pub(crate) type Run<T = ()> = Result<T, Stop>;

/// What a group of lanes is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Run,
    /// Waits at a `.sync` operation for the lanes of its member mask.
    Sync,
    /// Waits at a CTA barrier.
    Barrier(u8),
    /// Waits for the cluster.
    Cluster,
    /// Waits for the other warps of its warpgroup.
    Warpgroup,
}

/// Lanes of a warp at one place in the code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    pub(crate) state: State,
    /// Has had its turn; others run first.
    pub(crate) waits: bool,
}

pub(crate) struct Warp {
    pub(crate) cta: usize,
    /// Number within the block.
    pub(crate) id: u32,
    pub(crate) regs: Regs,
    pub(crate) groups: Vec<Group>,
    pub(crate) alive: u32,
    pub(crate) local: Vec<u8>,
    /// Per byte of local memory, whether it holds a value.
    pub(crate) local_written: Vec<bool>,
    pub(crate) copies: CopyState,
    pub(crate) bulk: BulkState,
    pub(crate) wgmma: WgmmaState,
    pub(crate) clock: Clock,
    /// Order between the warp's own lanes.
    pub(crate) order: LaneOrder,
    /// Clock published by relaxed writes since the last fence.
    pub(crate) released: Option<Clock>,
    /// Clocks read by relaxed operations, acquired at the next fence.
    pub(crate) pending: Option<Clock>,
    /// Cluster barrier phase the warp last arrived in.
    pub(crate) cluster_phase: Option<u64>,
    pub(crate) executed: u64,
}

/// One CTA barrier.
#[derive(Default)]
pub(crate) struct Barrier {
    pub(crate) arrived: u32,
    pub(crate) expected: Option<u32>,
    pub(crate) clock: Clock,
    /// Arrivals: warp, place, lanes.
    pub(crate) parts: Vec<(usize, u32, u32)>,
    /// Reduction so far: count, and, or.
    pub(crate) reduction: (u32, bool, bool),
}

pub(crate) struct Cta {
    pub(crate) index: [u32; 3],
    pub(crate) linear: u64,
    /// Rank in its cluster, and the gang's index of the cluster's first block.
    pub(crate) rank: u32,
    pub(crate) cluster_base: usize,
    pub(crate) cluster: usize,
    pub(crate) first_warp: usize,
    pub(crate) shared: Vec<u8>,
    /// Per word: low nibble written bytes, high nibble bytes in flight.
    pub(crate) written: Vec<u8>,
    pub(crate) cells: Vec<SharedCell>,
    pub(crate) pool: Pool,
    pub(crate) mbars: BTreeMap<u32, Mbar>,
    pub(crate) barriers: BTreeMap<u8, Barrier>,
    pub(crate) alive: u32,
}

/// Barrier of one cluster.
#[derive(Default)]
pub(crate) struct ClusterBarrier {
    pub(crate) phase: u64,
    pub(crate) arrived: u32,
    pub(crate) clock: Clock,
    pub(crate) last: Clock,
}

/// What an atomic location carries from releases to acquires.
#[derive(Default)]
pub(crate) struct SyncVar {
    pub(crate) gang: u64,
    pub(crate) near: Clock,
    pub(crate) far: Option<Far>,
}

/// Everything one worker uses to execute gangs, one after the other.
///
/// `CHECK` turns on reads of unwritten bytes, races, proxies and the like; `COUNT` the counters. Bounds, alignment and
/// synchronisation are always checked.
pub(crate) struct Gang<'c, const CHECK: bool, const COUNT: bool> {
    pub(crate) cx: &'c LaunchCx<'c>,
    pub(crate) number: u64,
    pub(crate) ctas: Vec<Cta>,
    pub(crate) warps: Vec<Warp>,
    pub(crate) clusters: Vec<ClusterBarrier>,
    pub(crate) findings: Findings,
    pub(crate) tally: Tally,
    pub(crate) output: Vec<(u64, String)>,
    pub(crate) global: GlobalShadow,
    pub(crate) sync: HashMap<u64, SyncVar>,
    /// Threads of the clocks so far: warps, then asynchronous carriers.
    pub(crate) threads: usize,
    /// Changes of state that let others proceed.
    pub(crate) events: u64,
    pub(crate) budget: u64,
    /// Another gang touched the same bytes in conflicting ways.
    pub(crate) conflict: bool,
}

impl<'c, const CHECK: bool, const COUNT: bool> Gang<'c, CHECK, COUNT> {
    pub(crate) fn new(cx: &'c LaunchCx<'c>) -> Self {
        Self {
            cx,
            number: 0,
            ctas: Vec::new(),
            warps: Vec::new(),
            clusters: Vec::new(),
            findings: Findings::default(),
            tally: if COUNT { Tally::new(cx.prog.code.len(), cx.buffer_count()) } else { Tally::default() },
            output: Vec::new(),
            global: GlobalShadow::default(),
            sync: HashMap::new(),
            threads: 0,
            events: 0,
            budget: cx.options.instruction_budget,
            conflict: false,
        }
    }

    /// Makes the blocks of cluster `number` (all clusters when resident) ready to start.
    pub(crate) fn start(&mut self, number: u64) {
        let cx = self.cx;
        self.number = number;
        let blocks = cx.gang_blocks(number);
        let words = if CHECK { cx.shared_bytes.div_ceil(4) } else { 0 };
        let per = cx.warps_per_block as usize;
        let cluster_size = cx.cluster.iter().product::<u32>();
        self.ctas.truncate(blocks.len());
        self.warps.truncate(blocks.len() * per);
        self.clusters.clear();
        self.clusters.resize_with(blocks.len() / cluster_size.max(1) as usize, ClusterBarrier::default);
        self.threads = blocks.len() * per;
        // Shared locations die with their block; global ones carry on, as ordered blocks may synchronise through them.
        self.sync.retain(|k, _| k >> 63 == 0);
        self.budget = cx.options.instruction_budget;
        for (k, &(index, rank)) in blocks.iter().enumerate() {
            if self.ctas.len() == k {
                self.ctas.push(Cta {
                    index,
                    linear: 0,
                    rank,
                    cluster_base: 0,
                    cluster: 0,
                    first_warp: k * per,
                    shared: vec![0; cx.shared_bytes],
                    written: vec![0; words],
                    cells: vec![SharedCell::default(); words],
                    pool: Pool::default(),
                    mbars: BTreeMap::new(),
                    barriers: BTreeMap::new(),
                    alive: 0,
                });
            } else {
                let c = &mut self.ctas[k];
                c.shared.fill(0);
                c.written.fill(0);
                c.cells.fill(SharedCell::default());
                c.pool.clear();
                c.mbars.clear();
                c.barriers.clear();
            }
            let c = &mut self.ctas[k];
            c.index = index;
            c.rank = rank;
            c.cluster = k / cluster_size as usize;
            c.cluster_base = c.cluster * cluster_size as usize;
            c.linear = u64::from(index[0])
                + u64::from(cx.grid[0]) * (u64::from(index[1]) + u64::from(cx.grid[1]) * u64::from(index[2]));
            c.alive = cx.threads;
            for id in 0..per {
                self.start_warp(k, id as u32);
            }
        }
    }

    fn start_warp(&mut self, cta: usize, id: u32) {
        let cx = self.cx;
        let p = cx.prog;
        let at = cta * cx.warps_per_block as usize + id as usize;
        let lanes = (cx.threads - id * 32).min(32);
        let alive = if lanes == 32 { !0 } else { (1u32 << lanes) - 1 };
        if self.warps.len() == at {
            self.warps.push(Warp {
                cta,
                id,
                regs: Regs::default(),
                groups: Vec::new(),
                alive,
                local: vec![0; p.frame * LANES],
                local_written: vec![false; if CHECK { p.frame * LANES } else { 0 }],
                copies: CopyState::default(),
                bulk: BulkState::default(),
                wgmma: WgmmaState::default(),
                clock: Clock::default(),
                order: LaneOrder::default(),
                released: None,
                pending: None,
                cluster_phase: None,
                executed: 0,
            });
        }
        let index = self.ctas[cta].index;
        let rank = self.ctas[cta].rank;
        let w = &mut self.warps[at];
        w.regs.r.clear();
        w.regs.r.resize(p.banks[0], Row32([0; LANES]));
        w.regs.d.clear();
        w.regs.d.resize(p.banks[1], Row64([0; LANES]));
        w.regs.p.clear();
        w.regs.p.resize(p.banks[2], 0);
        for (r, v) in &p.init_words {
            w.regs.r[*r as usize].0 = [*v; LANES];
        }
        for (r, v) in &p.init_doubles {
            w.regs.d[*r as usize].0 = [*v; LANES];
        }
        for (s, r) in &p.specials {
            let (bank, r) = super::inst::untag(*r);
            for l in 0..LANES as u32 {
                let v = cx.special(*s, index, rank, id, l);
                match bank {
                    Bank::D => w.regs.d[r as usize].0[l as usize] = v,
                    _ => w.regs.r[r as usize].0[l as usize] = v as u32,
                }
            }
        }
        w.alive = alive;
        w.groups.clear();
        w.groups.push(Group { pc: 0, mask: alive, state: State::Run, waits: false });
        w.local.fill(0);
        w.local_written.fill(false);
        w.copies = CopyState::default();
        w.bulk = BulkState::default();
        w.wgmma = WgmmaState::default();
        w.clock = if CHECK { Clock::start(at) } else { Clock::default() };
        w.order = LaneOrder::default();
        w.released = None;
        w.pending = None;
        w.cluster_phase = None;
        w.executed = 0;
    }

    /// What the lanes `m` of a warp release.
    pub(crate) fn released(&self, w: usize, m: u32) -> Clock {
        let warp = &self.warps[w];
        warp.order.release(m, warp.alive, w, &warp.clock)
    }

    /// The lanes `m` of a warp acquire a clock.
    pub(crate) fn acquire(&mut self, w: usize, m: u32, clock: &Clock) {
        let warp = &mut self.warps[w];
        warp.order.learn(m, warp.alive, w, clock);
        warp.clock.join(clock);
    }

    /// The lanes `m` of a warp have met.
    pub(crate) fn meet(&mut self, w: usize, m: u32) {
        let warp = &mut self.warps[w];
        warp.order.meet(m, warp.alive, warp.clock.get(w));
        warp.clock.tick(w);
    }

    /// Records a finding.
    #[cold]
    pub(crate) fn report(
        &mut self,
        w: usize,
        pc: u32,
        lane: usize,
        kind: FindingKind,
        message: impl FnOnce() -> String,
    ) {
        self.report_pair(w, pc, lane, kind, None, message);
    }

    /// Records a finding with the place of another access.
    #[cold]
    pub(crate) fn report_pair(
        &mut self,
        w: usize,
        pc: u32,
        lane: usize,
        kind: FindingKind,
        other: Option<u32>,
        message: impl FnOnce() -> String,
    ) {
        let cta = self.ctas[self.warps[w].cta].linear;
        let warp = self.warps[w].id;
        let raw = || crate::check::Raw { message: message(), cta, warp, lane: lane as u32, other, count: 1 };
        self.findings.add(pc, kind, raw, cta);
    }

    /// Records a finding that ends the gang.
    #[cold]
    pub(crate) fn fault<T>(
        &mut self,
        w: usize,
        pc: u32,
        lane: usize,
        kind: FindingKind,
        message: impl FnOnce() -> String,
    ) -> Run<T> {
        self.report(w, pc, lane, kind, message);
        Err(Stop)
    }

    /// Executes the started gang to its end.
    pub(crate) fn run(&mut self) {
        if self.run_all().is_ok() {
            self.finish();
        }
    }

    fn run_all(&mut self) -> Run {
        let (mut idle, mut last) = (0u32, self.events);
        loop {
            let mut progress = false;
            let mut spinning = true;
            for w in 0..self.warps.len() {
                if self.warps[w].groups.iter().all(|g| g.state != State::Run) {
                    continue;
                }
                progress = true;
                spinning &= self.slice(w)?;
            }
            if self.warps.iter().all(|w| w.alive == 0) {
                return Ok(());
            }
            if !progress {
                return self.deadlock(FindingKind::Deadlock);
            }
            if spinning && self.events == last {
                idle += 1;
                if idle > self.cx.options.idle_rounds {
                    return self.deadlock(FindingKind::Livelock);
                }
            } else {
                idle = 0;
                last = self.events;
            }
        }
    }

    /// Reports that nothing proceeds, at the place of the first waiting group, with the state of every group.
    #[cold]
    fn deadlock(&mut self, kind: FindingKind) -> Run {
        let mut at: Option<((usize, u32, usize), bool)> = None;
        let mut text = String::new();
        let mut shown = 0;
        for w in 0..self.warps.len() {
            for g in &self.warps[w].groups {
                let spot = (w, g.pc, g.mask.trailing_zeros() as usize & 31);
                let waiting = g.state != State::Run;
                let better = match at {
                    None => true,
                    Some((_, old_waiting)) => waiting && !old_waiting,
                };
                if better {
                    at = Some((spot, waiting));
                }
                shown += 1;
                if shown <= 16 {
                    let what = self.describe(w, g);
                    text.push_str(&format!("; {what}"));
                }
            }
        }
        if shown > 16 {
            text.push_str(&format!("; and {} more groups", shown - 16));
        }
        let ((w, pc, lane), _) = at.unwrap_or(((0, 0, 0), false));
        let head = if kind == FindingKind::Deadlock {
            "no group of lanes can proceed"
        } else {
            "all groups spin and nothing changes (if blocks wait for each other, launch them as cooperative)"
        };
        let pc = if kind == FindingKind::Livelock { self.spin_place(w, pc) } else { pc };
        self.fault(w, pc, lane, kind, || format!("{head}{text}"))
    }

    /// Of a spinning group, the wait it spins on: the nearest wait instruction at or before its place.
    fn spin_place(&self, w: usize, pc: u32) -> u32 {
        use super::inst::Op;
        let code = &self.cx.prog.code;
        let _ = w;
        let near = (0..32u32).flat_map(|d| [pc.checked_sub(d), pc.checked_add(d)]).flatten();
        near.filter(|p| (*p as usize) < code.len())
            .find(|p| matches!(code[*p as usize].op, Op::MbarWait | Op::Atom | Op::Nanosleep))
            .unwrap_or(pc)
    }

    fn describe(&self, w: usize, g: &Group) -> String {
        use super::inst::Op;
        let cta = &self.ctas[self.warps[w].cta];
        let line = self.cx.prog.places[g.pc as usize].line;
        let state = match g.state {
            State::Run => {
                let near = self.spin_place(w, g.pc);
                let i = &self.cx.prog.code[near as usize];
                match (i.op, cta.mbars.get(&self.mbar_offset(w, i))) {
                    (Op::MbarWait, Some(b)) => format!("spins on {}", b.describe(self.mbar_offset(w, i))),
                    _ => "runs".into(),
                }
            }
            State::Sync => "waits at a .sync operation for lanes that do not arrive".into(),
            State::Barrier(b) => {
                let got = cta.barriers.get(&b).map_or(0, |x| x.arrived);
                let want = cta.barriers.get(&b).and_then(|x| x.expected).unwrap_or(cta.alive);
                format!("waits at barrier {b} ({got} of {want} threads arrived)")
            }
            State::Cluster => "waits for the cluster barrier".into(),
            State::Warpgroup => "waits for the other warps of its warpgroup".into(),
        };
        format!("block {:?} warp {} lanes {:#x} at PTX line {line} {state}", cta.index, self.warps[w].id, g.mask)
    }

    /// End of the gang: asynchronous work still pending is complete, and its clocks become history.
    fn finish(&mut self) {
        if CHECK {
            for c in 0..self.ctas.len() {
                self.check_pending_bulk(c);
            }
        }
    }
}
