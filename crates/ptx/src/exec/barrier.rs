//! CTA and cluster barriers.

use super::gang::{Barrier, Gang, Run, State};
use super::inst::{Inst, NONE, flag};
use super::regs::LANES;
use crate::check::FindingKind;

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    /// Barrier number and thread count of an instruction, checked.
    fn barrier_operands(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run<(u8, Option<u32>)> {
        let lane = m.trailing_zeros() as usize & 31;
        let regs = &self.warps[w].regs;
        let id = regs.r[i.a as usize].0[lane];
        let count = if i.b == NONE { None } else { Some(regs.r[i.b as usize].0[lane]) };
        let row = regs.r[i.a as usize].0;
        if let Some(l) = (0..LANES).find(|&l| m >> l & 1 == 1 && row[l] != id) {
            let other = row[l];
            return self.fault(w, pc, l, FindingKind::BarrierMisuse, || {
                format!("lanes of one warp name barriers {id} and {other}")
            });
        }
        if id > 15 {
            return self.fault(w, pc, lane, FindingKind::BarrierMisuse, || format!("barrier {id} of 16"));
        }
        if let Some(n) = count {
            let max = self.cx.threads.next_multiple_of(32);
            if n == 0 || n % 32 != 0 || n > max {
                return self.fault(w, pc, lane, FindingKind::BarrierMisuse, || {
                    format!("thread count {n} is not a multiple of 32 in 32..={max}")
                });
            }
        }
        Ok((id as u8, count))
    }

    fn arrive(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run<u8> {
        let (id, count) = self.barrier_operands(w, pc, i, m)?;
        let cta = self.warps[w].cta;
        let alive = self.warps[w].alive;
        let clock = if CHECK { Some(self.released(w, m)) } else { None };
        let pred =
            if i.c == NONE { 0 } else { self.warps[w].regs.p[i.c as usize] ^ if i.has(flag::NEG) { !0 } else { 0 } };
        let b = self.ctas[cta].barriers.entry(id).or_default();
        if b.parts.is_empty() {
            b.expected = count;
            b.reduction = (0, true, false);
        } else if b.expected != count {
            let had = b.expected;
            let show = |c: Option<u32>| c.map_or("all".into(), |n| n.to_string());
            return self.fault(w, pc, m.trailing_zeros() as usize, FindingKind::BarrierMisuse, || {
                format!("barrier {id} is waited for with {} and {} threads", show(had), show(count))
            });
        }
        // With a thread count a warp counts as a whole, exited lanes included.
        let earlier: u32 = b.parts.iter().filter(|p| p.0 == w).fold(0, |a, p| a | p.2);
        let whole = count.is_some() && (earlier | m) & alive == alive;
        b.arrived += if whole { 32 - earlier.count_ones() } else { m.count_ones() };
        b.parts.push((w, pc, m));
        b.reduction.0 += (pred & m).count_ones();
        b.reduction.1 &= pred & m == m;
        b.reduction.2 |= pred & m != 0;
        if let Some(c) = clock {
            b.clock.join(&c);
            self.warps[w].clock.tick(w);
        }
        Ok(id)
    }

    /// `bar.sync` and `bar.red`: the group waits until the barrier is complete.
    pub(super) fn barrier(&mut self, w: usize, g: usize, pc: u32, i: &Inst, m: u32, mask: u32) -> Run {
        let id = self.arrive(w, pc, i, m)?;
        let groups = &mut self.warps[w].groups;
        if m == mask {
            groups[g].pc = pc;
            groups[g].state = State::Barrier(id);
        } else {
            // Lanes whose guard is false go on.
            let waits = groups[g].waits;
            groups[g].pc = pc + 1;
            groups[g].mask = mask & !m;
            groups.push(super::gang::Group { pc, mask: m, state: State::Barrier(id), waits });
        }
        let cta = self.warps[w].cta;
        self.complete(cta, id)
    }

    pub(super) fn barrier_arrive(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let id = self.arrive(w, pc, i, m)?;
        let cta = self.warps[w].cta;
        self.complete(cta, id)
    }

    /// Exited threads are no longer waited for.
    pub(super) fn barriers_after_exit(&mut self, cta: usize) {
        let ids: Vec<u8> = self.ctas[cta].barriers.iter().filter(|b| !b.1.parts.is_empty()).map(|b| *b.0).collect();
        for id in ids {
            // Completion after an exit cannot exceed a count, the only fault.
            let _ = self.complete(cta, id);
        }
        let cluster = self.ctas[cta].cluster;
        self.complete_cluster(cluster);
    }

    fn complete(&mut self, cta: usize, id: u8) -> Run {
        let alive = self.ctas[cta].alive;
        let Some(b) = self.ctas[cta].barriers.get_mut(&id) else { return Ok(()) };
        let want = b.expected.unwrap_or(alive);
        if b.parts.is_empty() || b.arrived < want {
            return Ok(());
        }
        let done: Barrier = std::mem::take(b);
        self.events += 1;
        if COUNT {
            self.tally.barriers += 1;
        }
        if done.arrived > want
            && let Some(&(w, pc, m)) = done.parts.last()
        {
            return self.fault(w, pc, m.trailing_zeros() as usize, FindingKind::BarrierMisuse, || {
                format!("{} threads arrive at barrier {id}, {want} expected", done.arrived)
            });
        }
        self.check_convergence(id, &done);
        let (first, per) = (self.ctas[cta].first_warp, self.cx.warps_per_block as usize);
        if CHECK {
            for w in first..first + per {
                let waiting = self.warps[w].groups.iter().filter(|g| g.state == State::Barrier(id));
                let lanes = waiting.fold(0, |m, g| m | g.mask);
                if lanes != 0 {
                    self.acquire(w, lanes, &done.clock);
                }
            }
        }
        let code = &self.cx.prog.code;
        for warp in &mut self.warps[first..first + per] {
            for k in 0..warp.groups.len() {
                let g = warp.groups[k];
                if g.state != State::Barrier(id) {
                    continue;
                }
                let i = &code[g.pc as usize];
                if i.op == super::inst::Op::BarRed {
                    let (count, all, any) = done.reduction;
                    if i.sel == 0 {
                        super::regs::put32(&mut warp.regs.r[i.d as usize].0, g.mask, &[count; LANES]);
                    } else if i.d != NONE {
                        let p = &mut warp.regs.p[i.d as usize];
                        let on = if i.sel == 1 { all } else { any };
                        *p = if on { *p | g.mask } else { *p & !g.mask };
                    }
                }
                warp.groups[k].pc += 1;
                warp.groups[k].state = State::Run;
            }
        }
        Ok(())
    }

    /// A barrier is for whole warps: lanes of one warp that arrive at different places have diverged.
    fn check_convergence(&mut self, id: u8, done: &Barrier) {
        for (k, &(w, pc, m)) in done.parts.iter().enumerate() {
            let other = done.parts[k + 1..].iter().find(|p| p.0 == w && p.1 != pc);
            if let Some(&(_, other, more)) = other {
                let lane = m.trailing_zeros() as usize & 31;
                self.report_pair(w, pc, lane, FindingKind::DivergentBarrier, Some(other), || {
                    format!("lanes {m:#x} wait at barrier {id} here, lanes {more:#x} of the same warp elsewhere")
                });
            }
        }
    }

    pub(super) fn cluster_arrive(&mut self, w: usize, i: &Inst, m: u32) {
        let c = self.ctas[self.warps[w].cta].cluster;
        let b = &mut self.clusters[c];
        b.arrived += m.count_ones();
        if self.warps[w].cluster_phase.is_none() {
            self.warps[w].cluster_phase = Some(b.phase);
        }
        if CHECK && !i.has(flag::STRONG) {
            let clock = self.released(w, m);
            self.clusters[c].clock.join(&clock);
            self.warps[w].clock.tick(w);
        }
        self.events += 1;
        self.complete_cluster(c);
    }

    fn complete_cluster(&mut self, c: usize) {
        let alive: u32 = self.ctas.iter().filter(|x| x.cluster == c).map(|x| x.alive).sum();
        let b = &mut self.clusters[c];
        if b.arrived == 0 || b.arrived < alive {
            return;
        }
        b.phase += 1;
        b.arrived = 0;
        b.last = std::mem::take(&mut b.clock);
        self.events += 1;
        if COUNT {
            self.tally.cluster_barriers += 1;
        }
        for warp in &mut self.warps {
            if self.ctas[warp.cta].cluster == c {
                for g in warp.groups.iter_mut().filter(|g| g.state == State::Cluster) {
                    g.state = State::Run;
                }
            }
        }
    }

    /// Whether the phase the warp arrived in has completed.
    pub(super) fn cluster_wait(&mut self, w: usize, pc: u32, m: u32) -> Run<bool> {
        let c = self.ctas[self.warps[w].cta].cluster;
        let Some(phase) = self.warps[w].cluster_phase else {
            return self.fault(w, pc, 0, FindingKind::BarrierMisuse, || {
                "barrier.cluster.wait without an arrival before it".into()
            });
        };
        if self.clusters[c].phase <= phase {
            return Ok(false);
        }
        self.warps[w].cluster_phase = None;
        if CHECK {
            let clock = self.clusters[c].last.clone();
            self.acquire(w, m, &clock);
        }
        Ok(true)
    }
}
