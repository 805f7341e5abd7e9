//! `mma.sync` and the arithmetic that `wgmma` shares with it.
//!
//! Products are exact in f32 (f64 for f64) and are added in ascending order of k with fused multiply-adds. Hardware adds
//! in another order and width, so results compare with tolerances; integers are exact.
//!
//! With g = lane / 4, t = lane % 4 and e elements a register, register q of A holds row g + 8 (q % 2), columns
//! 4 e (q / 2) + e t onwards; register q of B holds column g, rows 4 e q + e t onwards; registers of C hold row
//! g (+ 8 in the upper half), columns 2 t and 2 t + 1.

use super::gang::Gang;
use super::inst::Inst;
use super::regs::{Regs, wide_simd};
use crate::numeric::{E4M3, E5M2, bf16_to_f32, f16_to_f32, f32_to_f16, value_of};
use std::sync::OnceLock;

/// Element types of A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elem {
    F16,
    BF16,
    TF32,
    E4M3,
    E5M2,
    S8,
    U8,
    F64,
}

impl Elem {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "f16" => Self::F16,
            "bf16" => Self::BF16,
            "tf32" => Self::TF32,
            "e4m3" => Self::E4M3,
            "e5m2" => Self::E5M2,
            "s8" => Self::S8,
            "u8" => Self::U8,
            "f64" => Self::F64,
            _ => return None,
        })
    }

    pub(crate) fn is_fp8(self) -> bool {
        matches!(self, Self::E4M3 | Self::E5M2)
    }

    /// Elements of a 32-bit register.
    pub(crate) fn per_word(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::TF32 | Self::F64 => 1,
            _ => 4,
        }
    }

    /// Value of element `k` of a register. Tensor cores read the upper 19 bits of a tf32.
    #[inline(always)]
    pub(crate) fn get(self, word: u32, k: usize) -> f32 {
        match self {
            Self::F16 => f16_to_f32((word >> (16 * k)) as u16),
            Self::BF16 => bf16_to_f32((word >> (16 * k)) as u16),
            Self::TF32 => f32::from_bits(word & !0x1fff),
            Self::E4M3 => fp8_tables().0[(word >> (8 * k)) as usize & 255],
            Self::E5M2 => fp8_tables().1[(word >> (8 * k)) as usize & 255],
            Self::S8 => f32::from((word >> (8 * k)) as i8),
            Self::U8 => f32::from((word >> (8 * k)) as u8),
            Self::F64 => 0.0,
        }
    }

    /// Integer value of element `k` of a register.
    #[inline(always)]
    pub(crate) fn get_int(self, word: u32, k: usize) -> i32 {
        let byte = (word >> (8 * k)) as u8;
        if self == Self::S8 { i32::from(byte as i8) } else { i32::from(byte) }
    }
}

fn fp8_tables() -> &'static ([f32; 256], [f32; 256]) {
    static TABLES: OnceLock<([f32; 256], [f32; 256])> = OnceLock::new();
    TABLES.get_or_init(|| {
        let table = |f| std::array::from_fn(|b| value_of(b as u32, f) as f32);
        (table(&E4M3), table(&E5M2))
    })
}

/// Accumulator types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acc {
    F32,
    F16,
    S32,
    F64,
}

impl Acc {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "f32" => Self::F32,
            "f16" => Self::F16,
            "s32" => Self::S32,
            "f64" => Self::F64,
            _ => return None,
        })
    }
}

/// A decoded `mma.sync`: m16n8 with this k, or m8n8k4 for f64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MmaSpec {
    pub(crate) k: usize,
    pub(crate) a: Elem,
    pub(crate) b: Elem,
    pub(crate) acc: Acc,
    pub(crate) satfinite: bool,
}

impl MmaSpec {
    /// Registers of A, B and C.
    pub(crate) fn registers(&self) -> (usize, usize, usize) {
        match self.acc {
            Acc::F64 => (1, 1, 2),
            acc => {
                let b = self.k / (4 * self.b.per_word());
                (2 * (self.k / (4 * self.a.per_word())), b, if acc == Acc::F16 { 2 } else { 4 })
            }
        }
    }

    pub(crate) fn operations(&self) -> u64 {
        if self.acc == Acc::F64 { 2 * 8 * 8 * 4 } else { 2 * 16 * 8 * self.k as u64 }
    }
}

/// A decoded `wgmma.mma_async`: m64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WgmmaSpec {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Elem,
    pub(crate) b: Elem,
    pub(crate) acc: Acc,
    pub(crate) satfinite: bool,
    pub(crate) from_registers: bool,
    pub(crate) negate_a: bool,
    pub(crate) negate_b: bool,
    pub(crate) trans_a: bool,
    pub(crate) trans_b: bool,
}

impl WgmmaSpec {
    /// Accumulator registers of a lane.
    pub(crate) fn accumulators(&self) -> usize {
        if self.acc == Acc::F16 { self.n / 4 } else { self.n / 2 }
    }

    pub(crate) fn operations(&self) -> u64 {
        2 * 64 * self.n as u64 * self.k as u64
    }
}

/// Rows of A, at most 32 columns.
pub(crate) type TileA = [[f32; 32]; 16];
/// Rows (k) of B.
pub(crate) type TileB = [[f32; 8]; 32];
/// Accumulators.
pub(crate) type TileC = [[f32; 8]; 16];

#[inline(always)]
fn multiply_body(a: &TileA, b: &TileB, c: &mut TileC, k: usize) {
    for r in (0..16).step_by(4) {
        let mut s = [c[r], c[r + 1], c[r + 2], c[r + 3]];
        for (j, row) in b.iter().enumerate().take(k) {
            for z in 0..4 {
                let x = a[r + z][j];
                for n in 0..8 {
                    s[z][n] = x.mul_add(row[n], s[z][n]);
                }
            }
        }
        c[r..r + 4].copy_from_slice(&s);
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt"))]
fn multiply_v3(a: &TileA, b: &TileB, c: &mut TileC, k: usize) {
    // A constant count lets the common shape unroll.
    if k == 16 { multiply_body(a, b, c, 16) } else { multiply_body(a, b, c, k) }
}

/// `c += a * b` over the first `k` columns of `a`.
#[inline]
pub(crate) fn multiply(a: &TileA, b: &TileB, c: &mut TileC, k: usize, simd: bool) {
    if simd {
        // SAFETY: `simd` comes from `wide_simd`, which checked these features.
        unsafe { multiply_v3(a, b, c, k) }
    } else {
        multiply_body(a, b, c, k);
    }
}

#[inline(always)]
fn run_bf16(regs: &mut Regs, pool: &[u32]) {
    // The shape nearly all kernels spend their time in: m16n8k16, bf16, f32.
    let (mut a, mut b, mut c): (TileA, TileB, TileC) = ([[0.0; 32]; 16], [[0.0; 8]; 32], [[0.0; 8]; 16]);
    for q in 0..4 {
        let s = &regs.r[pool[4 + q] as usize].0;
        let (r0, k0) = (8 * (q & 1), 8 * (q >> 1));
        for g in 0..8 {
            for t in 0..4 {
                let v = s[4 * g + t];
                a[g + r0][k0 + 2 * t] = f32::from_bits(v << 16);
                a[g + r0][k0 + 2 * t + 1] = f32::from_bits(v & 0xffff_0000);
            }
        }
    }
    for q in 0..2 {
        let s = &regs.r[pool[8 + q] as usize].0;
        for t in 0..4 {
            let k = 2 * t + 8 * q;
            for g in 0..8 {
                let v = s[4 * g + t];
                b[k][g] = f32::from_bits(v << 16);
                b[k + 1][g] = f32::from_bits(v & 0xffff_0000);
            }
        }
    }
    for h in 0..2 {
        for q in 0..2 {
            let s = &regs.r[pool[10 + 2 * h + q] as usize].0;
            for g in 0..8 {
                for t in 0..4 {
                    c[g + 8 * h][2 * t + q] = f32::from_bits(s[4 * g + t]);
                }
            }
        }
    }
    multiply_body(&a, &b, &mut c, 16);
    for h in 0..2 {
        for q in 0..2 {
            let d = &mut regs.r[pool[2 * h + q] as usize].0;
            for g in 0..8 {
                for t in 0..4 {
                    d[4 * g + t] = c[g + 8 * h][2 * t + q].to_bits();
                }
            }
        }
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt"))]
fn run_bf16_v3(regs: &mut Regs, pool: &[u32]) {
    run_bf16(regs, pool);
}

/// Accumulator fragments of one 16x8 tile, from and to registers.
pub(crate) fn load_acc(regs: &Regs, ids: &[u32], acc: Acc, c: &mut TileC) {
    for g in 0..8 {
        for t in 0..4 {
            let lane = 4 * g + t;
            for h in 0..2 {
                for q in 0..2 {
                    c[g + 8 * h][2 * t + q] = match acc {
                        Acc::F16 => f16_to_f32((regs.r[ids[h] as usize].0[lane] >> (16 * q)) as u16),
                        _ => f32::from_bits(regs.r[ids[2 * h + q] as usize].0[lane]),
                    };
                }
            }
        }
    }
}

/// Writes accumulator fragments of one 16x8 tile.
pub(crate) fn store_acc(regs: &mut Regs, ids: &[u32], acc: Acc, c: &TileC) {
    for g in 0..8 {
        for t in 0..4 {
            let lane = 4 * g + t;
            for h in 0..2 {
                let (x, y) = (c[g + 8 * h][2 * t], c[g + 8 * h][2 * t + 1]);
                if acc == Acc::F16 {
                    regs.r[ids[h] as usize].0[lane] = u32::from(f32_to_f16(x)) | u32::from(f32_to_f16(y)) << 16;
                } else {
                    regs.r[ids[2 * h] as usize].0[lane] = x.to_bits();
                    regs.r[ids[2 * h + 1] as usize].0[lane] = y.to_bits();
                }
            }
        }
    }
}

/// A fragment as rows of 16.
pub(crate) fn load_a(regs: &Regs, ids: &[u32], e: Elem, a: &mut TileA) {
    let n = e.per_word();
    for (q, id) in ids.iter().enumerate() {
        let s = &regs.r[*id as usize].0;
        for (lane, v) in s.iter().enumerate() {
            let (row, col) = (lane / 4 + 8 * (q & 1), 4 * n * (q >> 1) + n * (lane % 4));
            for k in 0..n {
                a[row][col + k] = e.get(*v, k);
            }
        }
    }
}

fn saturate(v: i64, on: bool) -> i32 {
    if on { v.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32 } else { v as i32 }
}

fn run_int(regs: &mut Regs, pool: &[u32], spec: &MmaSpec, na: usize, nb: usize) {
    let (mut a, mut b) = ([[0i32; 32]; 16], [[0i32; 8]; 32]);
    for q in 0..na {
        for (lane, v) in regs.r[pool[4 + q] as usize].0.iter().enumerate() {
            for k in 0..4 {
                a[lane / 4 + 8 * (q & 1)][16 * (q >> 1) + 4 * (lane % 4) + k] = spec.a.get_int(*v, k);
            }
        }
    }
    for q in 0..nb {
        for (lane, v) in regs.r[pool[4 + na + q] as usize].0.iter().enumerate() {
            for k in 0..4 {
                b[16 * q + 4 * (lane % 4) + k][lane / 4] = spec.b.get_int(*v, k);
            }
        }
    }
    let mut out = [[0u32; 32]; 4];
    for (q, row) in out.iter_mut().enumerate() {
        let c = &regs.r[pool[4 + na + nb + q] as usize].0;
        for (lane, slot) in row.iter_mut().enumerate() {
            let (r, col) = (lane / 4 + 8 * (q >> 1), 2 * (lane % 4) + (q & 1));
            let dot: i64 = (0..spec.k).map(|k| i64::from(a[r][k]) * i64::from(b[k][col])).sum();
            *slot = saturate(i64::from(c[lane] as i32) + dot, spec.satfinite) as u32;
        }
    }
    for (q, row) in out.iter().enumerate() {
        regs.r[pool[q] as usize].0 = *row;
    }
}

fn run_f64(regs: &mut Regs, pool: &[u32]) {
    let get = |id: u32, lane: usize| f64::from_bits(regs.d[id as usize].0[lane]);
    let mut out = [[0u64; 32]; 2];
    for (q, row) in out.iter_mut().enumerate() {
        for (lane, slot) in row.iter_mut().enumerate() {
            let (r, col) = (lane / 4, 2 * (lane % 4) + q);
            let start = get(pool[4 + q], lane);
            let v = (0..4).fold(start, |s, k| get(pool[2], 4 * r + k).mul_add(get(pool[3], 4 * col + k), s));
            *slot = v.to_bits();
        }
    }
    for (q, row) in out.iter().enumerate() {
        regs.d[pool[q] as usize].0 = *row;
    }
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    pub(super) fn mma(&mut self, w: usize, pc: u32, i: &Inst) {
        let spec = self.cx.prog.mmas[i.imm as usize];
        let pool = &self.cx.prog.pool[i.ext as usize..][..usize::from(i.ext_len)];
        let simd = self.cx.simd;
        let regs = &mut self.warps[w].regs;
        let (na, nb, nc) = spec.registers();
        if COUNT {
            self.tally.insts[pc as usize].tensor_ops += spec.operations();
        }
        match (spec.acc, spec.a, spec.k) {
            (Acc::F64, ..) => run_f64(regs, pool),
            (Acc::S32, ..) => run_int(regs, pool, &spec, na, nb),
            (Acc::F32, Elem::BF16, 16) => {
                if simd {
                    // SAFETY: `simd` comes from `wide_simd`, which checked these features.
                    unsafe { run_bf16_v3(regs, pool) }
                } else {
                    run_bf16(regs, pool);
                }
            }
            _ => {
                let (mut a, mut b, mut c): (TileA, TileB, TileC) = ([[0.0; 32]; 16], [[0.0; 8]; 32], [[0.0; 8]; 16]);
                load_a(regs, &pool[nc..nc + na], spec.a, &mut a);
                let n = spec.b.per_word();
                for (q, id) in pool[nc + na..nc + na + nb].iter().enumerate() {
                    for (lane, v) in regs.r[*id as usize].0.iter().enumerate() {
                        for k in 0..n {
                            b[4 * n * q + n * (lane % 4) + k][lane / 4] = spec.b.get(*v, k);
                        }
                    }
                }
                load_acc(regs, &pool[nc + na + nb..], spec.acc, &mut c);
                multiply(&a, &b, &mut c, spec.k, simd);
                store_acc(regs, &pool[..nc], spec.acc, &c);
            }
        }
    }
}

/// Whether this machine runs the AVX2 builds; asked once a launch.
pub(crate) fn detect() -> bool {
    wide_simd()
}
