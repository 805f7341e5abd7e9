//! The interpreter loop of one warp.

use super::alu;
use super::gang::{Gang, Group, Run, State};
use super::inst::{Inst, NONE, Op};
use crate::check::FindingKind;

/// Instructions after which the next warp gets its turn.
const QUANTUM: u64 = 1 << 16;
/// Backward branches of one group after which the warp's other groups get their turn.
const TURN: u32 = 64;
/// Strong loads in one turn after which the warp is taken to spin.
const SPIN_LOADS: u32 = 16;

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    /// Joins groups at the same place and picks the runnable one with the lowest place that has not just had its turn.
    fn pick(&mut self, w: usize) -> Option<usize> {
        let groups = &mut self.warps[w].groups;
        if groups.len() > 1 {
            let mut k = 0;
            while k < groups.len() {
                let mut j = k + 1;
                while j < groups.len() {
                    let joinable = |s| matches!(s, State::Run | State::Sync);
                    if groups[k].pc == groups[j].pc && joinable(groups[k].state) && joinable(groups[j].state) {
                        groups[k].mask |= groups[j].mask;
                        groups[k].state = State::Run;
                        groups[k].waits &= groups[j].waits;
                        groups.swap_remove(j);
                    } else {
                        j += 1;
                    }
                }
                k += 1;
            }
            if groups.iter().all(|g| g.waits || g.state != State::Run) {
                groups.iter_mut().for_each(|g| g.waits = false);
            }
        }
        let runnable = groups.iter().enumerate().filter(|(_, g)| g.state == State::Run);
        runnable.min_by_key(|(_, g)| (g.waits, g.pc)).map(|(k, _)| k)
    }

    /// Runs a warp until it blocks, spins or its quantum ends. Returns whether it only spun.
    pub(super) fn slice(&mut self, w: usize) -> Run<bool> {
        let code: &[Inst] = &self.cx.prog.code;
        let start = self.warps[w].executed;
        let mut spins = 0;
        'group: loop {
            let Some(g) = self.pick(w) else { return Ok(spins > 0) };
            let Group { mut pc, mask, .. } = self.warps[w].groups[g];
            let divergent = self.warps[w].groups.len() > 1;
            // The next place where another group may be joined.
            let meet = if divergent {
                let others = self.warps[w].groups.iter().enumerate();
                let ahead = others.filter(|(k, o)| *k != g && o.pc > pc && matches!(o.state, State::Run | State::Sync));
                ahead.map(|(_, o)| o.pc).min().unwrap_or(u32::MAX)
            } else {
                u32::MAX
            };
            let mut backward = 0;
            loop {
                let i = &code[pc as usize];
                let warp = &mut self.warps[w];
                let m = if i.guard == NONE { mask } else { mask & (warp.regs.p[i.guard as usize] ^ i.guard_flip) };
                warp.executed += 1;
                if COUNT && m != 0 {
                    let c = &mut self.tally.insts[pc as usize];
                    c.executed += 1;
                    c.lanes += u64::from(m.count_ones());
                    c.divergent += u64::from(m != warp.alive);
                }
                match i.op {
                    Op::Alu => {
                        // SAFETY: the decoder stored a function chosen by `Alu::pick` or `regs::pick`, which return
                        // builds for features this CPU has.
                        unsafe { (i.alu)(&mut warp.regs, i, m) };
                        if CHECK && warp.wgmma.in_flight() {
                            self.check_in_flight(w, pc, i)?;
                        }
                        pc += 1;
                    }
                    Op::Convert => {
                        alu::convert(&mut warp.regs, i, m, &self.cx.prog.converts[i.imm as usize]);
                        pc += 1;
                    }
                    Op::Bra => {
                        let back = i.target <= pc;
                        if m == mask {
                            pc = i.target;
                        } else if m == 0 {
                            pc += 1;
                        } else {
                            let waits = warp.groups[g].waits;
                            warp.groups[g] = Group { pc: pc + 1, mask: mask & !m, state: State::Run, waits };
                            warp.groups.push(Group { pc: i.target, mask: m, state: State::Run, waits });
                            if back {
                                self.spend(w, pc, start)?;
                            }
                            continue 'group;
                        }
                        if back && m != 0 {
                            backward += 1;
                            let over = self.spend(w, pc, start)?;
                            let groups = &mut self.warps[w].groups;
                            if divergent {
                                groups[g].pc = pc;
                                if backward >= TURN {
                                    groups[g].waits = true;
                                }
                                if backward >= TURN || groups.iter().any(|o| o.pc == pc && o.mask != mask) {
                                    self.wake_sync(w);
                                    continue 'group;
                                }
                                if pc < meet && groups.iter().any(|o| o.pc > pc && o.pc < meet && o.mask != mask) {
                                    continue 'group;
                                }
                            }
                            if over {
                                self.warps[w].groups[g].pc = pc;
                                return Ok(spins > 0);
                            }
                        }
                    }
                    Op::Exit => {
                        if m != 0 {
                            self.exit(w, g, pc, m);
                            continue 'group;
                        }
                        pc += 1;
                    }
                    Op::Brx => {
                        if m == 0 {
                            pc += 1;
                        } else {
                            self.indexed_branch(w, g, pc, i, m)?;
                            continue 'group;
                        }
                    }
                    Op::Nop | Op::GridDep | Op::SetMaxNReg | Op::BulkPrefetch => pc += 1,
                    Op::LdParam => {
                        if m != 0 {
                            self.load_param(w, pc, i, m)?;
                        }
                        pc += 1;
                    }
                    Op::Ld => {
                        if m != 0 {
                            if CHECK && self.warps[w].wgmma.in_flight() {
                                self.check_in_flight(w, pc, i)?;
                            }
                            self.load(w, pc, i, m)?;
                            if i.has(super::inst::flag::STRONG) {
                                spins += 1;
                                if spins >= SPIN_LOADS {
                                    self.yield_at(w, g, pc + 1);
                                    return Ok(true);
                                }
                            }
                        }
                        pc += 1;
                    }
                    Op::St => {
                        if m != 0 {
                            if CHECK && self.warps[w].wgmma.in_flight() {
                                self.check_in_flight(w, pc, i)?;
                            }
                            self.store(w, pc, i, m)?;
                        }
                        pc += 1;
                    }
                    Op::Nanosleep => {
                        pc += 1;
                        if m != 0 {
                            self.yield_at(w, g, pc);
                            return Ok(true);
                        }
                    }
                    Op::MbarWait => {
                        let done = m == 0 || self.mbar_wait(w, pc, i, m)?;
                        pc += 1;
                        if !done {
                            self.yield_at(w, g, pc);
                            return Ok(true);
                        }
                    }
                    Op::Atom => {
                        if m != 0 {
                            let events = self.events;
                            self.atomic(w, pc, i, m)?;
                            // A failed exchange changes nothing: likely a lock taken by someone else.
                            if self.events == events {
                                spins += 1;
                                if spins >= SPIN_LOADS {
                                    self.yield_at(w, g, pc + 1);
                                    return Ok(true);
                                }
                            }
                        }
                        pc += 1;
                    }
                    Op::Bar | Op::BarRed => {
                        if m == 0 {
                            pc += 1;
                        } else {
                            self.barrier(w, g, pc, i, m, mask)?;
                            continue 'group;
                        }
                    }
                    Op::ClusterWait => {
                        if m == 0 || self.cluster_wait(w, pc, m)? {
                            pc += 1;
                        } else {
                            let group = &mut self.warps[w].groups[g];
                            group.pc = pc;
                            group.state = State::Cluster;
                            continue 'group;
                        }
                    }
                    Op::WgmmaMma | Op::WgmmaWait => {
                        if m == 0 {
                            pc += 1;
                        } else {
                            self.warpgroup(w, g, pc, i, m)?;
                            continue 'group;
                        }
                    }
                    Op::BarWarp
                    | Op::Shfl
                    | Op::Vote
                    | Op::Match
                    | Op::Redux
                    | Op::Elect
                    | Op::LdMatrix
                    | Op::StMatrix
                    | Op::MoveMatrix
                    | Op::Mma
                    | Op::WmmaLoad
                    | Op::WmmaStore
                    | Op::WmmaMma
                    | Op::WgmmaFence
                    | Op::WgmmaCommit => {
                        if m == 0 {
                            pc += 1;
                        } else if self.gathered(w, pc, i, m, mask)? {
                            if CHECK && self.warps[w].wgmma.in_flight() {
                                self.check_in_flight(w, pc, i)?;
                            }
                            self.collective(w, pc, i, m)?;
                            pc += 1;
                        } else {
                            let group = &mut self.warps[w].groups[g];
                            group.pc = pc;
                            group.state = State::Sync;
                            continue 'group;
                        }
                    }
                    _ => {
                        if m != 0 {
                            self.other(w, pc, i, m)?;
                        }
                        pc += 1;
                    }
                }
                if pc >= meet {
                    self.warps[w].groups[g].pc = pc;
                    self.wake_sync(w);
                    continue 'group;
                }
            }
        }
    }

    /// Accounts for executed instructions; true when the quantum is used up.
    fn spend(&mut self, w: usize, pc: u32, start: u64) -> Run<bool> {
        let done = self.warps[w].executed;
        if done > self.budget {
            let limit = self.cx.options.instruction_budget;
            return self.fault(w, pc, 0, FindingKind::Budget, || {
                format!("warp executed more than its budget of {limit} instructions")
            });
        }
        Ok(done - start > QUANTUM)
    }

    /// Ends a group's turn; it continues at `pc` when others have had theirs.
    fn yield_at(&mut self, w: usize, g: usize, pc: u32) {
        let group = &mut self.warps[w].groups[g];
        group.pc = pc;
        group.waits = true;
        self.wake_sync(w);
    }

    /// Groups waiting for lanes look again: another group may have arrived.
    fn wake_sync(&mut self, w: usize) {
        for g in self.warps[w].groups.iter_mut().filter(|g| g.state == State::Sync) {
            g.state = State::Run;
        }
    }

    fn exit(&mut self, w: usize, g: usize, pc: u32, m: u32) {
        self.events += 1;
        let warp = &mut self.warps[w];
        warp.alive &= !m;
        if warp.groups[g].mask == m {
            warp.groups.swap_remove(g);
        } else {
            warp.groups[g].mask &= !m;
            warp.groups[g].pc = pc + 1;
        }
        let cta = warp.cta;
        self.ctas[cta].alive -= m.count_ones();
        self.wake_sync(w);
        self.barriers_after_exit(cta);
    }

    fn indexed_branch(&mut self, w: usize, g: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let table = &self.cx.prog.tables[i.target as usize];
        let index = self.warps[w].regs.r[i.a as usize].0;
        let mask = self.warps[w].groups[g].mask;
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for l in (0..32).filter(|l| m >> l & 1 == 1) {
            let Some(&to) = table.get(index[l] as usize) else {
                let n = table.len();
                return self.fault(w, pc, l, FindingKind::OutOfBounds, || {
                    format!("jump table index {} of {n} entries", index[l])
                });
            };
            match parts.iter_mut().find(|p| p.0 == to) {
                Some(p) => p.1 |= 1 << l,
                None => parts.push((to, 1 << l)),
            }
        }
        let back = parts.iter().any(|p| p.0 <= pc);
        if mask != m {
            parts.push((pc + 1, mask & !m));
        }
        let groups = &mut self.warps[w].groups;
        groups.swap_remove(g);
        groups.extend(parts.into_iter().map(|(pc, mask)| Group { pc, mask, state: State::Run, waits: false }));
        if back {
            let now = self.warps[w].executed;
            self.spend(w, pc, now)?;
        }
        Ok(())
    }

    /// Whether all lanes that a `.sync` operation names are here. Reports lanes that can never be.
    fn gathered(&mut self, w: usize, pc: u32, i: &Inst, m: u32, mask: u32) -> Run<bool> {
        let alive = self.warps[w].alive;
        let first = m.trailing_zeros() as usize;
        let named = if i.e == NONE { !0 } else { self.warps[w].regs.r[i.e as usize].0[first] };
        if i.e != NONE {
            let row = &self.warps[w].regs.r[i.e as usize].0;
            // Lanes of different member masks at one place form independent operations; they are not supported together.
            if let Some(l) = (0..32).find(|&l| m >> l & 1 == 1 && row[l] != named) {
                let other = row[l];
                return self.fault(w, pc, l, FindingKind::MemberMask, || {
                    format!("lanes {first} and {l} name different member masks {named:#x} and {other:#x}")
                });
            }
            if m & !named != 0 {
                let l = (m & !named).trailing_zeros() as usize;
                return self.fault(w, pc, l, FindingKind::MemberMask, || {
                    format!("lane {l} executes the operation but is not in its member mask {named:#x}")
                });
            }
        }
        let need = named & alive;
        if m & need == need {
            return Ok(true);
        }
        if need & mask & !m != 0 {
            let l = (need & mask & !m).trailing_zeros() as usize;
            return self.fault(w, pc, l, FindingKind::MemberMask, || {
                format!("lane {l} is in the member mask {named:#x} but its guard is false")
            });
        }
        Ok(false)
    }

    fn collective(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        match i.op {
            Op::Shfl => self.shuffle(w, pc, i, m),
            Op::Vote => self.vote(w, i, m),
            Op::Match => self.match_lanes(w, i, m),
            Op::Redux => self.redux(w, i, m),
            Op::Elect => self.elect(w, i, m),
            Op::LdMatrix => return self.load_matrix(w, pc, i, m),
            Op::StMatrix => return self.store_matrix(w, pc, i, m),
            Op::MoveMatrix => self.move_matrix(w, i, m),
            Op::Mma => self.mma(w, pc, i),
            Op::WmmaLoad => return self.wmma_memory(w, pc, i, false),
            Op::WmmaStore => return self.wmma_memory(w, pc, i, true),
            Op::WmmaMma => self.wmma_multiply(w, pc, i),
            Op::BarWarp if CHECK => self.meet(w, m),
            Op::WgmmaFence => self.wgmma_fence(w),
            Op::WgmmaCommit => self.wgmma_commit(w),
            _ => {}
        }
        Ok(())
    }

    #[inline(never)]
    fn other(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        match i.op {
            Op::Trap => {
                let l = m.trailing_zeros() as usize;
                self.fault(w, pc, l, FindingKind::Trap, || format!("trap executed by lanes {m:#x}"))
            }
            Op::ActiveMask => {
                super::regs::put32(&mut self.warps[w].regs.r[i.d as usize].0, m, &[m; 32]);
                Ok(())
            }
            Op::Clock => {
                self.read_clock(w, i, m);
                Ok(())
            }
            Op::IsSpace => {
                self.is_space(w, i, m);
                Ok(())
            }
            Op::BarArrive => self.barrier_arrive(w, pc, i, m),
            Op::ClusterArrive => {
                self.cluster_arrive(w, i, m);
                Ok(())
            }
            Op::Fence => {
                self.fence(w, m);
                Ok(())
            }
            Op::ProxyFence => {
                if CHECK {
                    self.warps[w].clock.fence_proxy();
                }
                Ok(())
            }
            Op::CpAsync => self.cp_async(w, pc, i, m),
            Op::CpCommit => {
                self.cp_commit(w, m);
                Ok(())
            }
            Op::CpWait => {
                self.cp_wait(w, i, m);
                Ok(())
            }
            Op::CpMbarArrive => self.cp_mbar_arrive(w, pc, i, m),
            Op::BulkLoad | Op::BulkShared => self.bulk_load(w, pc, i, m),
            Op::BulkStore | Op::BulkReduce => self.bulk_store(w, pc, i, m),
            Op::TmaLoad => self.tma_load(w, pc, i, m),
            Op::TmaStore => self.tma_store(w, pc, i, m),
            Op::BulkCommit => {
                self.bulk_commit(w);
                Ok(())
            }
            Op::BulkWait => self.bulk_wait(w, pc, i),
            Op::MbarInit | Op::MbarInval => self.mbar_init(w, pc, i, m),
            Op::MbarArrive | Op::MbarExpect | Op::MbarComplete => self.mbar_arrive(w, pc, i, m),
            Op::MbarPending => {
                self.mbar_pending(w, i, m);
                Ok(())
            }
            Op::StAsync | Op::RedAsync => self.store_async(w, pc, i, m),
            Op::Printf => self.printf(w, pc, i, m),
            Op::AssertFail => self.assert_fail(w, pc, i, m),
            _ => Ok(()),
        }
    }
}
