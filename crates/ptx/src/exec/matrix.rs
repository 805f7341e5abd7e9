//! `ldmatrix`, `stmatrix`, `movmatrix`: 8x8 matrices of 16-bit elements.
//!
//! Lane `l` holds elements (l / 4, 2 (l % 4)) and the next one of its row; transposed, of its column.

use super::access::{By, How};
use super::gang::{Gang, Run};
use super::inst::{Inst, flag};
use super::regs::{LANES, put32};

/// One 8x8 matrix, rows first.
type Tile = [[u16; 8]; 8];

fn fragment(t: &Tile, trans: bool) -> [u32; LANES] {
    std::array::from_fn(|l| {
        let (r, c) = (l / 4, 2 * (l % 4));
        let at = |r: usize, c: usize| u32::from(if trans { t[c][r] } else { t[r][c] });
        at(r, c) | at(r, c + 1) << 16
    })
}

fn tile(v: &[u32; LANES], trans: bool) -> Tile {
    let mut t = [[0; 8]; 8];
    for (l, x) in v.iter().enumerate() {
        let (r, c) = (l / 4, 2 * (l % 4));
        for (k, h) in [(c, *x as u16), (c + 1, (x >> 16) as u16)] {
            if trans {
                t[k][r] = h;
            } else {
                t[r][k] = h;
            }
        }
    }
    t
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    fn account_rows(&mut self, pc: u32, i: &Inst, a: &[u64; LANES]) {
        if !COUNT {
            return;
        }
        // Each matrix is one phase of eight rows of 16 bytes.
        let rows = 8 * usize::from(i.count);
        let m = if rows == LANES { !0 } else { (1u32 << rows) - 1 };
        if i.space == super::inst::Space::Shared {
            self.account_shared(pc, m, a, 16);
        }
    }

    pub(super) fn load_matrix(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let a = self.addresses(w, i.a, i.wide.a, i.imm);
        self.account_rows(pc, i, &a);
        for k in 0..usize::from(i.count) {
            let mut t: Tile = [[0; 8]; 8];
            for (r, row) in t.iter_mut().enumerate() {
                let lane = 8 * k + r;
                let by = By { w, pc, lane };
                let place = self.resolve(by, i.space, a[lane], 16, 16, false)?;
                if CHECK {
                    self.check(by, place, 16, How::default());
                }
                let mut raw = [0; 16];
                self.read_place(by, place, &mut raw);
                for (c, v) in row.iter_mut().enumerate() {
                    *v = u16::from_le_bytes([raw[2 * c], raw[2 * c + 1]]);
                }
            }
            let reg = self.cx.prog.pool[i.ext as usize + k];
            put32(&mut self.warps[w].regs.r[reg as usize].0, m, &fragment(&t, i.has(flag::TRANS)));
        }
        Ok(())
    }

    pub(super) fn store_matrix(&mut self, w: usize, pc: u32, i: &Inst, _: u32) -> Run {
        self.events += 1;
        let a = self.addresses(w, i.a, i.wide.a, i.imm);
        self.account_rows(pc, i, &a);
        for k in 0..usize::from(i.count) {
            let reg = self.cx.prog.pool[i.ext as usize + k];
            let t = tile(&self.warps[w].regs.r[reg as usize].0, i.has(flag::TRANS));
            for (r, row) in t.iter().enumerate() {
                let lane = 8 * k + r;
                let by = By { w, pc, lane };
                let place = self.resolve(by, i.space, a[lane], 16, 16, true)?;
                if CHECK {
                    self.check(by, place, 16, How { write: true, ..How::default() });
                }
                let mut raw = [0; 16];
                for (c, v) in row.iter().enumerate() {
                    raw[2 * c..2 * c + 2].copy_from_slice(&v.to_le_bytes());
                }
                self.write_place(by, place, &raw);
            }
        }
        Ok(())
    }

    pub(super) fn move_matrix(&mut self, w: usize, i: &Inst, m: u32) {
        let t = tile(&self.warps[w].regs.r[i.a as usize].0, false);
        put32(&mut self.warps[w].regs.r[i.d as usize].0, m, &fragment(&t, true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_and_tiles_are_inverse() {
        let mut t: Tile = [[0; 8]; 8];
        for (r, row) in t.iter_mut().enumerate() {
            for (c, v) in row.iter_mut().enumerate() {
                *v = (10 * r + c) as u16;
            }
        }
        let f = fragment(&t, false);
        // Lane 5 holds row 1, columns 2 and 3.
        assert_eq!(f[5], 12 | 13 << 16);
        // Transposed, lane 5 holds column 1 of rows 2 and 3.
        assert_eq!(fragment(&t, true)[5], 21 | 31 << 16);
        for trans in [false, true] {
            assert_eq!(tile(&fragment(&t, trans), trans), t);
        }
    }
}
