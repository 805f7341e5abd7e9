//! Warpgroup matrix operations.
//!
//! The four warps of a warpgroup meet at each `mma_async` and `wait_group`; the last to arrive executes for all. Results
//! are written at once, but the registers and the shared memory of an operation count as in use until a `wait_group`
//! retires its group: touching them earlier is a finding.

use super::access::{By, How, Place};
use super::gang::{Cta, Gang, Run, State, Warp};
use super::inst::{Inst, Op, flag};
use super::mma::{Acc, Elem, TileA, TileB, TileC, WgmmaSpec, load_a, load_acc, multiply, store_acc};
use crate::check::FindingKind;
use crate::check::cell::{Conflict, Touch};
use crate::check::record::{Rec, View};

/// Asynchronous matrix work of one warp.
#[derive(Default)]
pub(crate) struct WgmmaState {
    /// Committed groups, oldest first, then the open one in `open`.
    committed: Vec<Group>,
    open: Group,
    /// Registers of all of them, as bits.
    busy: Vec<u64>,
    /// Whether `wgmma.fence` came after the last touch of the accumulators.
    fenced: bool,
}

#[derive(Default, Clone)]
struct Group {
    /// Accumulators, under the numbers of `Program::word_operands`.
    registers: Vec<u32>,
    /// 16-byte pieces of shared memory read, with the instruction.
    reads: Vec<(u32, u32)>,
}

impl WgmmaState {
    pub(crate) fn in_flight(&self) -> bool {
        !self.committed.is_empty() || !self.open.registers.is_empty()
    }

    fn rebuild(&mut self) {
        self.busy.clear();
        for g in self.committed.iter().chain([&self.open]) {
            for &r in &g.registers {
                let k = r as usize / 64;
                if self.busy.len() <= k {
                    self.busy.resize(k + 1, 0);
                }
                self.busy[k] |= 1 << (r % 64);
            }
        }
    }

    fn is_busy(&self, r: u32) -> bool {
        self.busy.get(r as usize / 64).is_some_and(|w| w >> (r % 64) & 1 == 1)
    }
}

/// A shared-memory matrix descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    start: u32,
    leading: u32,
    stride: u32,
    base_offset: u32,
    mode: u32,
}

impl Descriptor {
    pub(super) fn decode(bits: u64) -> Self {
        let field = |shift: u32| ((bits >> shift) as u32 & 0x3fff) << 4;
        Self {
            start: field(0),
            leading: field(16),
            stride: field(32),
            base_offset: (bits >> 49) as u32 & 7,
            mode: (bits >> 62) as u32,
        }
    }

    /// Bytes of a swizzled row.
    fn width(self) -> u32 {
        [16, 128, 64, 32][self.mode as usize]
    }

    fn swizzled(self, address: u32) -> u32 {
        address ^ swizzle(address, [0, 128, 64, 32][self.mode as usize])
    }

    /// Address of 16 bytes of a K-major operand: row `row`, half `half` of its 32 bytes.
    fn k_major(self, row: u32, half: u32) -> u32 {
        if self.mode == 0 {
            return self.start + row / 8 * self.stride + row % 8 * 16 + half * self.leading;
        }
        self.swizzled(self.start + row / 8 * self.stride + row % 8 * self.width() + half * 16)
    }

    /// Address of the 8 elements from `mn` (a multiple of 8) at `k` of an MN-major operand of 16-bit elements.
    fn mn_major(self, mn: u32, k: u32) -> u32 {
        if self.mode == 0 {
            return self.start + mn / 8 * self.stride + k % 8 * 16 + k / 8 * self.leading;
        }
        let per_row = self.width() / 2;
        self.swizzled(
            self.start + mn % per_row * 2 + mn / per_row * self.leading + k % 8 * self.width() + k / 8 * self.stride,
        )
    }
}

/// Bits that the swizzle over rows of `width` bytes (32, 64 or 128, else none) flips in a shared address.
pub(super) fn swizzle(address: u32, width: u32) -> u32 {
    match width {
        128 => (address >> 7 & 7) << 4,
        64 => (address >> 7 & 3) << 4,
        32 => (address >> 7 & 1) << 4,
        _ => 0,
    }
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    /// Waits for the other warps of the warpgroup, then executes for all four.
    pub(super) fn warpgroup(&mut self, w: usize, g: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let alive = self.warps[w].alive;
        if m != !0 || alive != !0 {
            return self.fault(w, pc, m.trailing_zeros() as usize & 31, FindingKind::TensorOperand, || {
                format!("executed by lanes {m:#x} only: a warpgroup operation needs all lanes of four warps")
            });
        }
        let first = w - self.warps[w].id as usize % 4;
        let per = self.cx.warps_per_block;
        if self.warps[w].id / 4 * 4 + 4 > per {
            return self.fault(w, pc, 0, FindingKind::TensorOperand, || "the block has no whole warpgroup here".into());
        }
        let group = &mut self.warps[w].groups[g];
        group.pc = pc;
        group.state = State::Warpgroup;
        let ready = (first..first + 4).all(|k| {
            let groups = &self.warps[k].groups;
            groups.len() == 1 && groups[0].state == State::Warpgroup && groups[0].pc == pc
        });
        if !ready {
            // All four waiting at different places will never meet.
            let stuck = (first..first + 4).all(|k| self.warps[k].groups.iter().all(|g| g.state == State::Warpgroup));
            if stuck {
                return self.fault(w, pc, 0, FindingKind::Deadlock, || {
                    "the warps of the warpgroup are at different wgmma operations".into()
                });
            }
            return Ok(());
        }
        self.events += 1;
        if i.op == Op::WgmmaMma {
            self.multiply_group(first, pc, i)?;
        } else {
            self.wait_group(first, i);
        }
        for k in first..first + 4 {
            let group = &mut self.warps[k].groups[0];
            group.pc = pc + 1;
            group.state = State::Run;
        }
        Ok(())
    }

    fn shared_piece(&mut self, w: usize, pc: u32, address: u32) -> Run<[u8; 16]> {
        let by = By { w, pc, lane: 0 };
        let Place::Shared(cta, offset) = self.resolve_shared(by, i64::from(address & 0x3ffff), 16)? else {
            return Err(super::gang::Stop);
        };
        if CHECK {
            self.check_shared(by, cta, offset, 16, How { proxy: true, lanes: !0, ..How::default() });
            self.warps[w].wgmma.open.reads.push((offset as u32, pc));
        }
        let mut raw = [0; 16];
        raw.copy_from_slice(&self.ctas[cta].shared[offset..offset + 16]);
        Ok(raw)
    }

    fn descriptor(&mut self, first: usize, pc: u32, reg: u32) -> Run<Descriptor> {
        let bits = self.warps[first].regs.d[reg as usize].0[0];
        let same = (first..first + 4).all(|w| self.warps[w].regs.d[reg as usize].0.iter().all(|v| *v == bits));
        if !same {
            return self.fault(first, pc, 0, FindingKind::TensorOperand, || {
                "the lanes of the warpgroup hold different matrix descriptors".into()
            });
        }
        let d = Descriptor::decode(bits);
        if d.base_offset != 0 {
            return self.fault(first, pc, 0, FindingKind::TensorOperand, || {
                format!("matrix descriptor with base offset {} is not supported", d.base_offset)
            });
        }
        Ok(d)
    }

    /// Words of a matrix of `rows` (M or N) by 32 bytes of K, as 32-bit registers of one K-major row.
    fn operand(&mut self, w: usize, pc: u32, d: Descriptor, rows: usize, trans: bool) -> Run<Vec<[u32; 8]>> {
        let mut out = vec![[0u32; 8]; rows];
        if trans {
            for k in 0..16u32 {
                for mn in (0..rows as u32).step_by(8) {
                    let raw = self.shared_piece(w, pc, d.mn_major(mn, k))?;
                    for j in 0..8usize {
                        let v = u32::from(u16::from_le_bytes([raw[2 * j], raw[2 * j + 1]]));
                        out[mn as usize + j][k as usize / 2] |= v << (16 * (k & 1));
                    }
                }
            }
            return Ok(out);
        }
        for (r, row) in out.iter_mut().enumerate() {
            for half in 0..2 {
                let raw = self.shared_piece(w, pc, d.k_major(r as u32, half))?;
                for (j, c) in raw.chunks_exact(4).enumerate() {
                    row[4 * half as usize + j] = u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
                }
            }
        }
        Ok(out)
    }

    fn multiply_group(&mut self, first: usize, pc: u32, i: &Inst) -> Run {
        let spec = self.cx.prog.wgmmas[i.imm as usize];
        let prog = self.cx.prog;
        let pool = &prog.pool[i.ext as usize..][..usize::from(i.ext_len)];
        if COUNT {
            // Counted once for the warpgroup; executions count once a warp.
            self.tally.insts[pc as usize].tensor_ops += spec.operations();
        }
        let a = if spec.from_registers {
            None
        } else {
            let d = self.descriptor(first, pc, i.a)?;
            Some(self.operand(first, pc, d, 64, spec.trans_a)?)
        };
        let d = self.descriptor(first, pc, i.b)?;
        let b = self.operand(first, pc, d, spec.n, spec.trans_b)?;
        let flip = if i.has(flag::NEG) { !0 } else { 0 };
        for w in first..first + 4 {
            let scale = (self.warps[w].regs.p[i.c as usize] ^ flip) & 1 == 1;
            let rows = a.as_ref().map(|a| &a[16 * (w - first)..][..16]);
            let regs = &mut self.warps[w].regs;
            if spec.acc == Acc::S32 {
                multiply_int(regs, pool, &spec, rows, &b, scale);
            } else {
                multiply_float(regs, pool, &spec, rows, &b, scale, self.cx.simd);
            }
            if CHECK {
                let state = &mut self.warps[w].wgmma;
                if !state.fenced {
                    self.report(w, pc, 0, FindingKind::TensorOperand, || {
                        "wgmma.mma_async without wgmma.fence before it".into()
                    });
                }
                let state = &mut self.warps[w].wgmma;
                state.open.registers.extend_from_slice(&prog.word_operands[pc as usize]);
                state.rebuild();
            }
        }
        Ok(())
    }

    pub(super) fn wgmma_fence(&mut self, w: usize) {
        self.warps[w].wgmma.fenced = true;
    }

    pub(super) fn wgmma_commit(&mut self, w: usize) {
        let s = &mut self.warps[w].wgmma;
        let open = std::mem::take(&mut s.open);
        s.committed.push(open);
    }

    /// Retires groups; their reads of shared memory end here, so they are recorded again with the present clock.
    fn wait_group(&mut self, first: usize, i: &Inst) {
        if !CHECK {
            return;
        }
        let mut clock = self.warps[first].clock.clone();
        for w in first + 1..first + 4 {
            clock.join(&self.warps[w].clock);
        }
        for w in first..first + 4 {
            let s = &mut self.warps[w].wgmma;
            let done = s.committed.len().saturating_sub(i.imm as usize);
            let retired: Vec<Group> = s.committed.drain(..done).collect();
            s.rebuild();
            for &(offset, pc) in retired.iter().flat_map(|g| &g.reads) {
                self.reread(w, offset as usize, pc);
            }
            self.warps[w].clock.join(&clock);
        }
        for w in first..first + 4 {
            self.warps[w].clock.tick(w);
        }
    }

    fn reread(&mut self, w: usize, offset: usize, pc: u32) {
        if !self.cx.options.races {
            return;
        }
        let Warp { clock, order, cta, .. } = &self.warps[w];
        let Some(rec) = Rec::new(clock.get(w), w, pc, 15, false, true) else { return };
        let view = View::new(clock, order, w, !0);
        let mut found = None;
        let Cta { cells, pool, .. } = &mut self.ctas[*cta];
        for cell in &mut cells[offset / 4..offset / 4 + 4] {
            found = found.or(cell.touch(rec, Touch::Read, &view, |_| true, pool));
        }
        if let Some(Conflict::Race { other, .. }) = found {
            self.report_pair(w, pc, 0, FindingKind::SharedRace, Some(other.pc()), || {
                format!("shared byte {offset}: overwritten while a wgmma that reads it was not known to be complete")
            });
        }
    }

    /// Whether an instruction touches registers of a matrix operation in flight.
    pub(super) fn check_in_flight(&mut self, w: usize, pc: u32, i: &Inst) -> Run {
        if i.op == Op::WgmmaFence || i.op == Op::WgmmaCommit {
            return Ok(());
        }
        let Some(words) = self.cx.prog.word_operands.get(pc as usize) else { return Ok(()) };
        if words.iter().any(|r| self.warps[w].wgmma.is_busy(*r)) {
            self.report(w, pc, 0, FindingKind::TensorOperand, || {
                "register of a wgmma that no wgmma.wait_group has retired".into()
            });
        }
        Ok(())
    }
}

fn b_tile(b: &[[u32; 8]], spec: &WgmmaSpec, block: usize, out: &mut TileB) {
    let n = spec.b.per_word();
    let sign = if spec.negate_b { -1.0 } else { 1.0 };
    for col in 0..8 {
        for (j, word) in b[8 * block + col].iter().enumerate() {
            for k in 0..n {
                out[n * j + k][col] = sign * spec.b.get(*word, k);
            }
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn multiply_float(
    regs: &mut super::regs::Regs,
    pool: &[u32],
    spec: &WgmmaSpec,
    rows: Option<&[[u32; 8]]>,
    b: &[[u32; 8]],
    scale: bool,
    simd: bool,
) {
    let mut a: TileA = [[0.0; 32]; 16];
    let n = spec.a.per_word();
    match rows {
        Some(rows) => {
            for (r, row) in rows.iter().enumerate() {
                for (j, word) in row.iter().enumerate() {
                    for k in 0..n {
                        a[r][n * j + k] = spec.a.get(*word, k);
                    }
                }
            }
        }
        None => load_a(regs, &pool[2 * spec.accumulators()..], spec.a, &mut a),
    }
    if spec.negate_a {
        a.iter_mut().flatten().for_each(|v| *v = -*v);
    }
    let per = spec.accumulators() / (spec.n / 8);
    let mut bt: TileB = [[0.0; 8]; 32];
    for block in 0..spec.n / 8 {
        b_tile(b, spec, block, &mut bt);
        let ids = &pool[block * per..(block + 1) * per];
        let mut c: TileC = [[0.0; 8]; 16];
        if scale {
            load_acc(regs, ids, spec.acc, &mut c);
        }
        multiply(&a, &bt, &mut c, spec.k, simd);
        store_acc(regs, ids, spec.acc, &c);
    }
}

fn multiply_int(
    regs: &mut super::regs::Regs,
    pool: &[u32],
    spec: &WgmmaSpec,
    rows: Option<&[[u32; 8]]>,
    b: &[[u32; 8]],
    scale: bool,
) {
    let get = |e: Elem, row: &[u32; 8], k: usize| i64::from(e.get_int(row[k / 4], k % 4));
    let mut a = [[0u32; 8]; 16];
    match rows {
        Some(rows) => a.copy_from_slice(rows),
        None => {
            for (q, id) in pool[2 * spec.accumulators()..].iter().enumerate() {
                for (lane, v) in regs.r[*id as usize].0.iter().enumerate() {
                    a[lane / 4 + 8 * (q & 1)][4 * (q >> 1) + lane % 4] = *v;
                }
            }
        }
    }
    for block in 0..spec.n / 8 {
        for q in 0..4 {
            let row = &mut regs.r[pool[4 * block + q] as usize].0;
            for (lane, slot) in row.iter_mut().enumerate() {
                let (r, col) = (lane / 4 + 8 * (q >> 1), 8 * block + 2 * (lane % 4) + (q & 1));
                let dot: i64 = (0..spec.k).map(|k| get(spec.a, &a[r], k) * get(spec.b, &b[col], k)).sum();
                let sum = dot + if scale { i64::from(*slot as i32) } else { 0 };
                *slot = if spec.satfinite {
                    sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32
                } else {
                    sum as u32
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_fields() {
        let d = Descriptor::decode(0x1234 | 1 << 16 | 64 << 32 | 1 << 62);
        assert_eq!((d.start, d.leading, d.stride, d.mode), (0x12340, 16, 1024, 1));
    }

    #[test]
    fn swizzle_patterns() {
        // Row 3 of a 128-byte pattern flips the 16-byte chunk by 3.
        let d = Descriptor::decode(64 << 32 | 1 << 62);
        assert_eq!(d.k_major(3, 0), 3 * 128 + (3 << 4));
        assert_eq!(d.k_major(8, 1), 1024 + 16);
        // 64-byte rows repeat every four, 32-byte rows every eight; the pattern spans address bits 7 and up.
        let d = Descriptor::decode(32 << 32 | 2 << 62);
        assert_eq!(d.k_major(2, 0), 128 + (1 << 4));
        let d = Descriptor::decode(16 << 32 | 3 << 62);
        assert_eq!(d.k_major(4, 0), 128 + (1 << 4));
        // Without swizzle the second half is a leading-dimension step away.
        let d = Descriptor::decode(8 << 16 | 16 << 32);
        assert_eq!(d.k_major(9, 1), 256 + 16 + 128);
    }
}
