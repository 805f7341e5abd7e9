//! AVX2 and FMA: two registers a vector, lanes 0-7 and 8-15.
#![cfg(target_arch = "x86_64")]

use super::exp::{Exponent, ROUND};
use super::portable::array_simd;
use super::real::x86::run_avx2;
use super::{Kernel, LANES, Simd};
use std::arch::x86_64::*;

/// AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor must have the instructions of [`super::Path::Avx2`].
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

array_simd!(Avx2, f64, 4, run_avx2::<f64, K>);

/// Two registers.
pub type Pair = (__m256, __m256);

impl Exponent for Avx2 {
    #[inline(always)]
    fn exponent(self, n: Pair) -> Pair {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { (exponent8(n.0), exponent8(n.1)) }
    }
}

/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn exponent8(n: __m256) -> __m256 {
    // SAFETY: by the caller's promise.
    unsafe {
        let biased = _mm256_add_ps(n, _mm256_set1_ps(ROUND));
        let bits = _mm256_add_epi32(_mm256_castps_si256(biased), _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(bits))
    }
}

/// Folds 8 lanes: 4 apart, 2 apart, 1 apart.
///
/// # Safety
/// The processor must have AVX.
#[inline(always)]
pub(super) unsafe fn tree_add8(v: __m256) -> f32 {
    // SAFETY: by the caller's promise.
    unsafe {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
    }
}

// SAFETY of the blocks below, where none is given: `self` proves that the processor has the instructions.
impl Simd<f32> for Avx2 {
    type V = Pair;
    const ACCUMULATORS: usize = 6;

    #[inline(always)]
    fn outlined<K: Kernel<f32>>(self, kernel: K) -> K::Out {
        // SAFETY: see above.
        unsafe { run_avx2::<f32, K>(kernel) }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Pair {
        // SAFETY: see above.
        let v = unsafe { _mm256_set1_ps(x) };
        (v, v)
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Pair {
        // SAFETY: see above; 16 elements are readable by the caller's promise.
        unsafe { (_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: Pair) {
        // SAFETY: see above; 16 elements are writable by the caller's promise.
        unsafe {
            _mm256_storeu_ps(to, v.0);
            _mm256_storeu_ps(to.add(8), v.1);
        }
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(self, from: *const u32) -> (Pair, Pair) {
        // SAFETY: see above; 16 words are readable by the caller's promise.
        unsafe {
            let (a, b) = (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(8).cast()));
            let upper = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
            (
                (_mm256_castsi256_ps(_mm256_slli_epi32::<16>(a)), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(b))),
                (_mm256_castsi256_ps(_mm256_and_si256(a, upper)), _mm256_castsi256_ps(_mm256_and_si256(b, upper))),
            )
        }
    }
    #[inline(always)]
    fn add(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { (_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn sub(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { (_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn mul(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { (_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn div(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { (_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn fma(self, a: Pair, b: Pair, c: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { (_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)) }
    }
    #[inline(always)]
    fn max(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { (_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn min(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { (_mm256_min_ps(a.0, b.0), _mm256_min_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn sqrt(self, a: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { (_mm256_sqrt_ps(a.0), _mm256_sqrt_ps(a.1)) }
    }
    #[inline(always)]
    fn exp(self, a: Pair) -> Pair {
        super::exp::exp(self, a)
    }
    #[inline(always)]
    fn gt(self, a: Pair, b: Pair) -> u32 {
        // SAFETY: see above.
        unsafe {
            let low = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a.0, b.0));
            let high = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a.1, b.1));
            (low | high << 8).cast_unsigned()
        }
    }
    #[inline(always)]
    fn select(self, mask: u32, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { (_mm256_blendv_ps(b.0, a.0, lanes_of(mask)), _mm256_blendv_ps(b.1, a.1, lanes_of(mask >> 8))) }
    }
    #[inline(always)]
    fn transpose(self, rows: [Pair; LANES]) -> [Pair; LANES] {
        let mut out = rows;
        let mut half = 0;
        while half < 2 {
            let mut low = [rows[0].0; 8];
            let mut high = [rows[0].0; 8];
            let mut i = 0;
            while i < 8 {
                low[i] = rows[half * 8 + i].0;
                high[i] = rows[half * 8 + i].1;
                i += 1;
            }
            // SAFETY: see above.
            let (low, high) = unsafe { (transpose8(low), transpose8(high)) };
            let mut i = 0;
            while i < 8 {
                if half == 0 {
                    out[i].0 = low[i];
                    out[8 + i].0 = high[i];
                } else {
                    out[i].1 = low[i];
                    out[8 + i].1 = high[i];
                }
                i += 1;
            }
            half += 1;
        }
        out
    }
    #[inline(always)]
    fn to_array(self, v: Pair) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: see above; the array has 16 elements.
        unsafe { self.store(out.as_mut_ptr(), v) };
        out
    }
    #[inline(always)]
    fn tree_add(self, v: Pair) -> f32 {
        // SAFETY: see above.
        unsafe { tree_add8(_mm256_add_ps(v.0, v.1)) }
    }
}

/// The 8x8 transpose.
///
/// # Safety
/// The processor must have AVX.
#[inline(always)]
unsafe fn transpose8(r: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut t = r;
        let mut i = 0;
        while i < 8 {
            let (a, b) = (_mm256_unpacklo_ps(r[i], r[i + 1]), _mm256_unpackhi_ps(r[i], r[i + 1]));
            let (c, d) = (_mm256_unpacklo_ps(r[i + 2], r[i + 3]), _mm256_unpackhi_ps(r[i + 2], r[i + 3]));
            t[i] = _mm256_shuffle_ps::<0b01_00_01_00>(a, c);
            t[i + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(a, c);
            t[i + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(b, d);
            t[i + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(b, d);
            i += 4;
        }
        let mut u = t;
        let mut c = 0;
        while c < 4 {
            u[c] = _mm256_permute2f128_ps::<0x20>(t[c], t[4 + c]);
            u[4 + c] = _mm256_permute2f128_ps::<0x31>(t[c], t[4 + c]);
            c += 1;
        }
        u
    }
}

/// Lanes whose sign bit is the mask's bit.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn lanes_of(mask: u32) -> __m256 {
    // SAFETY: by the caller's promise.
    unsafe {
        let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        let set = _mm256_and_si256(_mm256_set1_epi32(mask.cast_signed()), bits);
        _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bits))
    }
}
