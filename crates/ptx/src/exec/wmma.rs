//! `wmma`: matrices whose fragments only these instructions know.
//!
//! PTX leaves open which lane holds which element. Here the elements are dealt row by row, to each lane as many as its
//! registers hold, and over again until all lanes are full.

use super::access::{By, How, Place};
use super::gang::{Gang, Run};
use super::inst::{Inst, NONE, Space};
use super::mma::{Acc, Elem};
use super::regs::{LANES, Regs};
use crate::numeric::{f16_to_f32, f32_to_f16};

/// Shape and types of a multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WmmaSpec {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) elem: Elem,
    /// Types of the result and of the addend.
    pub(crate) d: Acc,
    pub(crate) c: Acc,
    pub(crate) satfinite: bool,
}

/// A matrix in memory, of elements of `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WmmaMatrix {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) bytes: usize,
    pub(crate) row_major: bool,
}

/// What a `wmma` instruction works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wmma {
    Multiply(WmmaSpec),
    Memory(WmmaMatrix),
}

/// Registers of a fragment of `elements` elements of `bytes`, the 16-bit floats of A and B apart.
pub(crate) fn registers(elements: usize, bytes: usize) -> usize {
    elements * bytes / (4 * LANES)
}

/// The element that a lane holds in its place `slot` of `per`.
fn element(lane: usize, slot: usize, per: usize, total: usize) -> usize {
    (lane * per + slot) % total
}

/// Raw elements of a fragment in the order of rows.
fn gather(regs: &Regs, ids: &[u32], bytes: usize, total: usize) -> Vec<u32> {
    let in_word = 4 / bytes;
    let per = ids.len() * in_word;
    let mask = if bytes == 4 { !0 } else { (1u32 << (8 * bytes)) - 1 };
    (0..total)
        .map(|e| {
            let (lane, slot) = (e / per % LANES, e % per);
            regs.r[ids[slot / in_word] as usize].0[lane] >> (8 * bytes * (slot % in_word)) & mask
        })
        .collect()
}

/// Puts raw elements into every lane that holds them.
fn scatter(regs: &mut Regs, ids: &[u32], bytes: usize, elements: &[u32]) {
    let in_word = 4 / bytes;
    let per = ids.len() * in_word;
    for (q, id) in ids.iter().enumerate() {
        for (lane, slot) in regs.r[*id as usize].0.iter_mut().enumerate() {
            *slot = (0..in_word)
                .fold(0, |w, h| w | elements[element(lane, q * in_word + h, per, elements.len())] << (8 * bytes * h));
        }
    }
}

fn acc_bytes(acc: Acc) -> usize {
    if acc == Acc::F16 { 2 } else { 4 }
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    fn wmma_matrix(&self, i: &Inst) -> WmmaMatrix {
        match self.cx.prog.wmmas[i.imm2 as usize] {
            Wmma::Memory(m) => m,
            Wmma::Multiply(s) => WmmaMatrix { rows: s.m, cols: s.n, bytes: 4, row_major: true },
        }
    }

    /// Addresses of each lane's element in one place of its fragment.
    fn wmma_addresses(&self, w: usize, i: &Inst, m: &WmmaMatrix, slot: usize, per: usize) -> [u64; LANES] {
        let base = self.addresses(w, i.a, i.wide.a, i.imm);
        let default = if m.row_major { m.cols } else { m.rows };
        std::array::from_fn(|l| {
            let stride = if i.b == NONE { default as u64 } else { u64::from(self.warps[w].regs.r[i.b as usize].0[l]) };
            let e = element(l, slot, per, m.rows * m.cols);
            let (row, col) = ((e / m.cols) as u64, (e % m.cols) as u64);
            let at = if m.row_major { row * stride + col } else { col * stride + row };
            base[l].wrapping_add(at * m.bytes as u64)
        })
    }

    /// `wmma.load` and `wmma.store`.
    pub(super) fn wmma_memory(&mut self, w: usize, pc: u32, i: &Inst, write: bool) -> Run {
        self.events += u64::from(write);
        let matrix = self.wmma_matrix(i);
        let prog = self.cx.prog;
        let ids = &prog.pool[i.ext as usize..][..usize::from(i.ext_len)];
        let (n, in_word) = (matrix.bytes, 4 / matrix.bytes);
        let per = ids.len() * in_word;
        for slot in 0..per {
            let a = self.wmma_addresses(w, i, &matrix, slot, per);
            let shift = 8 * n * (slot % in_word);
            let mask = if n == 4 { !0 } else { (1u32 << (8 * n)) - 1 };
            let mut global = 0u32;
            for (l, &address) in a.iter().enumerate() {
                let by = By { w, pc, lane: l };
                let place = self.resolve(by, i.space, address, n, n, write)?;
                global |= u32::from(matches!(place, Place::Global(..))) << l;
                if CHECK {
                    self.check(by, place, n, How { write, ..How::default() });
                }
                let id = ids[slot / in_word] as usize;
                let mut raw = [0; 4];
                if write {
                    let v = self.warps[w].regs.r[id].0[l] >> shift & mask;
                    self.write_place(by, place, &v.to_le_bytes()[..n]);
                } else {
                    self.read_place(by, place, &mut raw[..n]);
                    let r = &mut self.warps[w].regs.r[id].0[l];
                    *r = *r & !(mask << shift) | u32::from_le_bytes(raw) << shift;
                }
            }
            if COUNT {
                if global != 0 {
                    self.account(pc, Space::Global, global, &a, n, write, true);
                } else if i.space == Space::Shared {
                    self.account(pc, Space::Shared, !0, &a, n, write, false);
                }
            }
        }
        Ok(())
    }

    /// `wmma.mma`: products are added in ascending k.
    pub(super) fn wmma_multiply(&mut self, w: usize, pc: u32, i: &Inst) {
        let Wmma::Multiply(s) = self.cx.prog.wmmas[i.imm2 as usize] else { return };
        let pool = &self.cx.prog.pool[i.ext as usize..][..usize::from(i.ext_len)];
        if COUNT {
            self.tally.insts[pc as usize].tensor_ops += 2 * (s.m * s.n * s.k) as u64;
        }
        let regs = &mut self.warps[w].regs;
        let bytes = 4 / s.elem.per_word();
        let (nd, nc) = (registers(s.m * s.n, acc_bytes(s.d)), registers(s.m * s.n, acc_bytes(s.c)));
        let na = s.fragment(s.m * s.k);
        let nb = s.fragment(s.k * s.n);
        let a = gather(regs, &pool[nd..nd + na], bytes, s.m * s.k);
        let b = gather(regs, &pool[nd + na..nd + na + nb], bytes, s.k * s.n);
        let c = gather(regs, &pool[nd + na + nb..nd + na + nb + nc], acc_bytes(s.c), s.m * s.n);
        let mut out = vec![0; s.m * s.n];
        for (e, slot) in out.iter_mut().enumerate() {
            let (row, col) = (e / s.n, e % s.n);
            let pairs = (0..s.k).map(|k| (a[row * s.k + k], b[k * s.n + col]));
            *slot = if s.d == Acc::S32 {
                let dot: i64 =
                    pairs.map(|(x, y)| i64::from(s.elem.get_int(x, 0)) * i64::from(s.elem.get_int(y, 0))).sum();
                let sum = dot + i64::from(c[e] as i32);
                let clamped = sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
                (if s.satfinite { clamped } else { sum }) as u32
            } else {
                let start = if s.c == Acc::F16 { f16_to_f32(c[e] as u16) } else { f32::from_bits(c[e]) };
                let sum = pairs.fold(start, |t, (x, y)| s.elem.get(x, 0).mul_add(s.elem.get(y, 0), t));
                if s.d == Acc::F16 { u32::from(f32_to_f16(sum)) } else { sum.to_bits() }
            };
        }
        scatter(regs, &pool[..nd], acc_bytes(s.d), &out);
    }
}

impl WmmaSpec {
    /// Registers of a fragment of A or B.
    pub(crate) fn fragment(&self, elements: usize) -> usize {
        fragment(self.elem, elements)
    }
}

/// Registers of a fragment of A or B; those of halves hold every element at least twice.
pub(crate) fn fragment(elem: Elem, elements: usize) -> usize {
    if elem == Elem::F16 { 8 } else { registers(elements, 4 / elem.per_word()) }
}
