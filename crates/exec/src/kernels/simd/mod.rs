//! Virtual 16-lane vectors: one statement of a kernel, the same bits from every instruction set.
//!
//! A kernel is written once over [`Simd`] and run through [`Real::dispatch`]. All implementations have the same 16
//! lanes and perform the same IEEE operations in each, fused multiply-add included, and reductions over lanes are one
//! fixed tree: lane `i` takes lane `i + 8`, then `i + 4`, `i + 2`, `i + 1`.

mod avx2;
mod avx512;
mod exp;
mod portable;
mod real;
mod slices;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use real::Real;
pub(crate) use slices::{load_lanes, store_lanes};

/// Lanes of a virtual vector, for every element type and instruction set.
pub const LANES: usize = 16;

/// Instruction sets that a kernel can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Path {
    /// Plain Rust with `mul_add`; compiles everywhere.
    Portable = 1,
    /// AVX2 and FMA: a vector is two registers of 8 lanes.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ, VL: a vector is one register.
    Avx512 = 3,
}

static FORCED: AtomicU8 = AtomicU8::new(0);
static FORCING: Mutex<()> = Mutex::new(());

/// Restores the detected path when dropped.
#[derive(Debug)]
pub struct ForcedPath {
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Drop for ForcedPath {
    fn drop(&mut self) {
        FORCED.store(0, Ordering::SeqCst);
    }
}

impl Path {
    /// Every path, slowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// The path that kernels take now.
    #[must_use]
    pub fn current() -> Self {
        match FORCED.load(Ordering::Relaxed) {
            1 => Self::Portable,
            2 => Self::Avx2,
            3 => Self::Avx512,
            _ => Self::detected(),
        }
    }

    /// The fastest path of this processor.
    #[must_use]
    pub fn detected() -> Self {
        if Self::Avx512.supported() {
            Self::Avx512
        } else if Self::Avx2.supported() {
            Self::Avx2
        } else {
            Self::Portable
        }
    }

    /// Whether this processor has the path's instructions.
    #[must_use]
    pub fn supported(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// Makes all kernels of the process take this path until the guard is dropped; waits while another guard lives.
    /// `None` where the processor lacks the instructions. For tests and measurements: the bits are the same.
    #[must_use]
    pub fn force(self) -> Option<ForcedPath> {
        if !self.supported() {
            return None;
        }
        let guard = FORCING.lock().unwrap_or_else(PoisonError::into_inner);
        FORCED.store(self as u8, Ordering::SeqCst);
        Some(ForcedPath { _one_at_a_time: guard })
    }
}

/// A computation written over virtual vectors of `T`.
///
/// `run` and everything it calls on vectors must be `#[inline(always)]`, and no closure may hold vector code: the
/// instructions of a path are enabled in the function that [`Real::dispatch`] calls, and only code inlined into it is
/// compiled with them.
pub trait Kernel<T: Real> {
    /// What the computation returns.
    type Out;
    /// The computation on the instructions of `S`.
    fn run<S: Simd<T>>(self, simd: S) -> Self::Out;
}

/// Operations on 16 virtual lanes of `T`. A value of an implementation proves that the processor has its instructions.
///
/// Every operation acts on each lane as the scalar IEEE operation of its name. `max` and `min` return their second
/// operand where either is NaN or both are zeros.
pub trait Simd<T: Real>: Copy + Send + Sync + 'static {
    /// Sixteen lanes.
    type V: Copy;
    /// The most vectors that a tile may keep as accumulators without spilling registers.
    const ACCUMULATORS: usize;

    /// Runs a kernel on the same instructions, in a function of its own: what several places use is compiled once.
    fn outlined<K: Kernel<T>>(self, kernel: K) -> K::Out;
    /// All lanes `x`.
    fn splat(self, x: T) -> Self::V;
    /// Sixteen elements from `from`.
    ///
    /// # Safety
    /// `from` must be valid for reading 16 elements; alignment is not required.
    unsafe fn load(self, from: *const T) -> Self::V;
    /// Stores sixteen elements.
    ///
    /// # Safety
    /// `to` must be valid for writing 16 elements; alignment is not required.
    unsafe fn store(self, to: *mut T, v: Self::V);
    /// Sixteen bf16 pairs from 16 words: the lower halves and the upper halves, widened.
    ///
    /// # Safety
    /// `from` must be valid for reading 16 words; alignment is not required.
    unsafe fn load_bf16_pairs(self, from: *const u32) -> (Self::V, Self::V);
    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `if a > b { a } else { b }`
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if a < b { a } else { b }`
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Square root, correctly rounded.
    fn sqrt(self, a: Self::V) -> Self::V;
    /// `exp(a)`: within 2 units in the last place, exact at 0, 0 at negative infinity, infinity above the range,
    /// NaN from NaN.
    fn exp(self, a: Self::V) -> Self::V;
    /// One bit a lane, lane 0 lowest: `a > b`, false where either is NaN.
    fn gt(self, a: Self::V, b: Self::V) -> u32;
    /// Lanes of `a` where the mask has a bit, lanes of `b` elsewhere.
    fn select(self, mask: u32, a: Self::V, b: Self::V) -> Self::V;
    /// The 16x16 transpose: lane `j` of vector `i` becomes lane `i` of vector `j`.
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES];
    /// The lanes as an array.
    fn to_array(self, v: Self::V) -> [T; LANES];
    /// The sum of the lanes by the fixed tree.
    fn tree_add(self, v: Self::V) -> T;

    /// Lane `i` is the sum of the lanes of `rows[i]` by the fixed tree.
    #[inline(always)]
    fn tree_add_rows(self, rows: [Self::V; LANES]) -> Self::V {
        let t = self.transpose(rows);
        let mut half = 8;
        let mut t = t;
        while half > 0 {
            let mut i = 0;
            while i < half {
                t[i] = self.add(t[i], t[i + half]);
                i += 1;
            }
            half /= 2;
        }
        t[0]
    }

    /// The greatest lane by the fixed tree, under the rule of `max`.
    #[inline(always)]
    fn tree_max(self, v: Self::V) -> T {
        let mut lanes = self.to_array(v);
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] = if lanes[i] > lanes[i + half] { lanes[i] } else { lanes[i + half] };
            }
            half /= 2;
        }
        lanes[0]
    }

    /// The first `count` (at most 16) elements at `from`; the other lanes are `fill`.
    ///
    /// # Safety
    /// `from` must be valid for reading `count` elements.
    #[inline(always)]
    unsafe fn load_part(self, from: *const T, count: usize, fill: T) -> Self::V {
        if count >= LANES {
            // SAFETY: 16 elements are readable by the caller's promise.
            return unsafe { self.load(from) };
        }
        let mut lanes = [fill; LANES];
        for (i, lane) in lanes.iter_mut().enumerate().take(count) {
            // SAFETY: `i < count`.
            *lane = unsafe { *from.add(i) };
        }
        // SAFETY: an array of 16 lanes.
        unsafe { self.load(lanes.as_ptr()) }
    }

    /// Stores the first `count` (at most 16) lanes.
    ///
    /// # Safety
    /// `to` must be valid for writing `count` elements.
    #[inline(always)]
    unsafe fn store_part(self, to: *mut T, v: Self::V, count: usize) {
        if count >= LANES {
            // SAFETY: 16 elements are writable by the caller's promise.
            unsafe { self.store(to, v) };
            return;
        }
        let lanes = self.to_array(v);
        for (i, lane) in lanes.iter().enumerate().take(count) {
            // SAFETY: `i < count`.
            unsafe { *to.add(i) = *lane };
        }
    }
}

/// The mask whose lanes `first..last` are set; both at most 16.
#[inline(always)]
#[must_use]
pub fn lane_range(first: usize, last: usize) -> u32 {
    let below = |n: usize| (1_u32 << n) - 1;
    below(last) & !below(first)
}
