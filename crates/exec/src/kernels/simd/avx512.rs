//! AVX-512: one register a vector.
#![cfg(target_arch = "x86_64")]

use super::exp::{Exponent, ROUND};
use super::portable::array_simd;
use super::real::x86::run_avx512;
use super::{Kernel, LANES, Simd};
use std::arch::x86_64::*;

/// AVX-512 F, BW, DQ, VL with AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor must have the instructions of [`super::Path::Avx512`].
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

array_simd!(Avx512, f64, 12, run_avx512::<f64, K>);

impl Exponent for Avx512 {
    #[inline(always)]
    fn exponent(self, n: __m512) -> __m512 {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let biased = _mm512_add_ps(n, _mm512_set1_ps(ROUND));
            let bits = _mm512_add_epi32(_mm512_castps_si512(biased), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(bits))
        }
    }
}

// SAFETY of the blocks below, where none is given: `self` proves that the processor has the instructions.
impl Simd<f32> for Avx512 {
    type V = __m512;
    const ACCUMULATORS: usize = 24;

    #[inline(always)]
    fn outlined<K: Kernel<f32>>(self, kernel: K) -> K::Out {
        // SAFETY: see above.
        unsafe { run_avx512::<f32, K>(kernel) }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: see above; 16 elements are readable by the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m512) {
        // SAFETY: see above; 16 elements are writable by the caller's promise.
        unsafe { _mm512_storeu_ps(to, v) }
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(self, from: *const u32) -> (__m512, __m512) {
        // SAFETY: see above; 16 words are readable by the caller's promise.
        unsafe {
            let words = _mm512_loadu_si512(from.cast());
            let upper = _mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
            (_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)), _mm512_castsi512_ps(upper))
        }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_sqrt_ps(a) }
    }
    #[inline(always)]
    fn exp(self, a: __m512) -> __m512 {
        super::exp::exp(self, a)
    }
    #[inline(always)]
    fn gt(self, a: __m512, b: __m512) -> u32 {
        // SAFETY: see above.
        u32::from(unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) })
    }
    #[inline(always)]
    fn select(self, mask: u32, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mask_blend_ps(mask as u16, b, a) }
    }
    #[inline(always)]
    fn transpose(self, rows: [__m512; LANES]) -> [__m512; LANES] {
        let mut t = rows;
        let mut u = rows;
        // SAFETY: see above.
        unsafe {
            // Within 128-bit parts: 4x4 transposes of rows 4i..4i+4.
            let mut i = 0;
            while i < LANES {
                let (a, b) = (_mm512_unpacklo_ps(rows[i], rows[i + 1]), _mm512_unpackhi_ps(rows[i], rows[i + 1]));
                let (c, d) =
                    (_mm512_unpacklo_ps(rows[i + 2], rows[i + 3]), _mm512_unpackhi_ps(rows[i + 2], rows[i + 3]));
                t[i] = _mm512_shuffle_ps::<0b01_00_01_00>(a, c);
                t[i + 1] = _mm512_shuffle_ps::<0b11_10_11_10>(a, c);
                t[i + 2] = _mm512_shuffle_ps::<0b01_00_01_00>(b, d);
                t[i + 3] = _mm512_shuffle_ps::<0b11_10_11_10>(b, d);
                i += 4;
            }
            // Across parts: t[4i + c] holds in part p the rows 4i.. of column 4p + c.
            let mut c = 0;
            while c < 4 {
                let low = _mm512_shuffle_f32x4::<0b10_00_10_00>(t[c], t[4 + c]);
                let high = _mm512_shuffle_f32x4::<0b11_01_11_01>(t[c], t[4 + c]);
                let low2 = _mm512_shuffle_f32x4::<0b10_00_10_00>(t[8 + c], t[12 + c]);
                let high2 = _mm512_shuffle_f32x4::<0b11_01_11_01>(t[8 + c], t[12 + c]);
                u[c] = _mm512_shuffle_f32x4::<0b10_00_10_00>(low, low2);
                u[8 + c] = _mm512_shuffle_f32x4::<0b11_01_11_01>(low, low2);
                u[4 + c] = _mm512_shuffle_f32x4::<0b10_00_10_00>(high, high2);
                u[12 + c] = _mm512_shuffle_f32x4::<0b11_01_11_01>(high, high2);
                c += 1;
            }
        }
        u
    }
    #[inline(always)]
    fn tree_add_rows(self, rows: [__m512; LANES]) -> __m512 {
        // Each step folds two vectors into one, so that lane `4 b + p` ends as row `4 b + p`.
        // SAFETY: see above.
        unsafe {
            let mut quarters = [rows[0]; 4];
            let mut p = 0;
            while p < 4 {
                let (a, b) = (fold_8(rows[p], rows[4 + p]), fold_8(rows[8 + p], rows[12 + p]));
                let low = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
                let high = _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
                quarters[p] = _mm512_add_ps(low, high);
                p += 1;
            }
            let (a, b) = (fold_2(quarters[0], quarters[1]), fold_2(quarters[2], quarters[3]));
            _mm512_add_ps(_mm512_shuffle_ps::<0b10_00_10_00>(a, b), _mm512_shuffle_ps::<0b11_01_11_01>(a, b))
        }
    }
    #[inline(always)]
    fn to_array(self, v: __m512) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: see above; the array has 16 elements.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) };
        out
    }
    #[inline(always)]
    fn tree_add(self, v: __m512) -> f32 {
        // SAFETY: see above.
        unsafe {
            let upper = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v)));
            super::avx2::tree_add8(_mm256_add_ps(_mm512_castps512_ps256(v), upper))
        }
    }
}

/// Lanes 8 apart added: those of `a` in the lower half, those of `b` in the upper.
///
/// # Safety
/// The processor must have AVX-512.
#[inline(always)]
unsafe fn fold_8(a: __m512, b: __m512) -> __m512 {
    // SAFETY: by the caller's promise.
    unsafe {
        let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b);
        _mm512_add_ps(low, _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b))
    }
}

/// Within each 128-bit part, lanes 2 apart added: those of `a` in the lower half, those of `b` in the upper.
///
/// # Safety
/// The processor must have AVX-512.
#[inline(always)]
unsafe fn fold_2(a: __m512, b: __m512) -> __m512 {
    // SAFETY: by the caller's promise.
    unsafe {
        let low = _mm512_shuffle_ps::<0b01_00_01_00>(a, b);
        _mm512_add_ps(low, _mm512_shuffle_ps::<0b11_10_11_10>(a, b))
    }
}
