//! Virtual vectors as arrays: the path for any processor, and the form of f64 vectors on every path.

use super::{Kernel, LANES, Real, Simd};

/// No instructions beyond the build's baseline.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

/// Implements [`Simd`] for a path and element type by arrays; under a path's enabled instructions the compiler turns
/// the loops into vector code, with the same operations in each lane.
macro_rules! array_simd {
    ($path:ty, $real:ty, $accumulators:expr, $run:path) => {
        impl $crate::kernels::simd::Simd<$real> for $path {
            type V = [$real; $crate::kernels::simd::LANES];
            const ACCUMULATORS: usize = $accumulators;

            #[inline(always)]
            fn outlined<K: $crate::kernels::simd::Kernel<$real>>(self, kernel: K) -> K::Out {
                // SAFETY: `self` proves that the processor has the instructions.
                unsafe { $run(kernel) }
            }
            #[inline(always)]
            fn splat(self, x: $real) -> Self::V {
                [x; $crate::kernels::simd::LANES]
            }
            #[inline(always)]
            unsafe fn load(self, from: *const $real) -> Self::V {
                // SAFETY: 16 elements are readable by the caller's promise.
                unsafe { from.cast::<Self::V>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $real, v: Self::V) {
                // SAFETY: 16 elements are writable by the caller's promise.
                unsafe { to.cast::<Self::V>().write_unaligned(v) }
            }
            #[inline(always)]
            unsafe fn load_bf16_pairs(self, from: *const u32) -> (Self::V, Self::V) {
                // SAFETY: 16 words are readable by the caller's promise.
                let words = unsafe { from.cast::<[u32; $crate::kernels::simd::LANES]>().read_unaligned() };
                (
                    words.map(|w| <$real>::from(f32::from_bits(w << 16))),
                    words.map(|w| <$real>::from(f32::from_bits(w & 0xffff_0000))),
                )
            }
            #[inline(always)]
            fn add(self, a: Self::V, b: Self::V) -> Self::V {
                $crate::kernels::simd::portable::zip(a, b, |a, b| a + b)
            }
            #[inline(always)]
            fn sub(self, a: Self::V, b: Self::V) -> Self::V {
                $crate::kernels::simd::portable::zip(a, b, |a, b| a - b)
            }
            #[inline(always)]
            fn mul(self, a: Self::V, b: Self::V) -> Self::V {
                $crate::kernels::simd::portable::zip(a, b, |a, b| a * b)
            }
            #[inline(always)]
            fn div(self, a: Self::V, b: Self::V) -> Self::V {
                $crate::kernels::simd::portable::zip(a, b, |a, b| a / b)
            }
            #[inline(always)]
            fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
                let mut out = c;
                for i in 0..$crate::kernels::simd::LANES {
                    out[i] = a[i].mul_add(b[i], c[i]);
                }
                out
            }
            #[inline(always)]
            fn max(self, a: Self::V, b: Self::V) -> Self::V {
                $crate::kernels::simd::portable::zip(a, b, |a, b| if a > b { a } else { b })
            }
            #[inline(always)]
            fn min(self, a: Self::V, b: Self::V) -> Self::V {
                $crate::kernels::simd::portable::zip(a, b, |a, b| if a < b { a } else { b })
            }
            #[inline(always)]
            fn sqrt(self, a: Self::V) -> Self::V {
                a.map(<$real>::sqrt)
            }
            #[inline(always)]
            fn exp(self, a: Self::V) -> Self::V {
                <$real as $crate::kernels::simd::portable::ArrayExp>::exp_lanes(a)
            }
            #[inline(always)]
            fn gt(self, a: Self::V, b: Self::V) -> u32 {
                let mut mask = 0;
                for i in 0..$crate::kernels::simd::LANES {
                    mask |= u32::from(a[i] > b[i]) << i;
                }
                mask
            }
            #[inline(always)]
            fn select(self, mask: u32, a: Self::V, b: Self::V) -> Self::V {
                let mut out = b;
                for i in 0..$crate::kernels::simd::LANES {
                    out[i] = if mask >> i & 1 == 1 { a[i] } else { b[i] };
                }
                out
            }
            #[inline(always)]
            fn transpose(
                self,
                rows: [Self::V; $crate::kernels::simd::LANES],
            ) -> [Self::V; $crate::kernels::simd::LANES] {
                let mut out = rows;
                for i in 0..$crate::kernels::simd::LANES {
                    for j in 0..$crate::kernels::simd::LANES {
                        out[j][i] = rows[i][j];
                    }
                }
                out
            }
            #[inline(always)]
            fn to_array(self, v: Self::V) -> [$real; $crate::kernels::simd::LANES] {
                v
            }
            #[inline(always)]
            fn tree_add(self, v: Self::V) -> $real {
                $crate::kernels::simd::portable::tree_add(v)
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use array_simd;

array_simd!(Portable, f32, 8, run::<f32, K>);
array_simd!(Portable, f64, 8, run::<f64, K>);

/// # Safety
/// None is needed; the paths with instructions of their own need them.
#[inline(never)]
unsafe fn run<T: Real, K: Kernel<T>>(kernel: K) -> K::Out
where
    Portable: Simd<T>,
{
    kernel.run(Portable)
}

/// `exp` of lanes held in an array.
pub(super) trait ArrayExp: Real {
    fn exp_lanes(lanes: [Self; LANES]) -> [Self; LANES];
}

impl ArrayExp for f32 {
    #[inline(always)]
    fn exp_lanes(lanes: [Self; LANES]) -> [Self; LANES] {
        super::exp::exp(Portable, lanes)
    }
}

impl ArrayExp for f64 {
    #[inline(always)]
    fn exp_lanes(lanes: [Self; LANES]) -> [Self; LANES] {
        lanes.map(Self::exp)
    }
}

impl super::exp::Exponent for Portable {
    #[inline(always)]
    fn exponent(self, n: [f32; LANES]) -> [f32; LANES] {
        n.map(|n| f32::from_bits((n + super::exp::ROUND).to_bits().wrapping_add(127) << 23))
    }
}

#[inline(always)]
pub(super) fn zip<T: Copy>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> T) -> [T; LANES] {
    let mut out = a;
    for i in 0..LANES {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline(always)]
pub(super) fn tree_add<T: Real>(mut lanes: [T; LANES]) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}
