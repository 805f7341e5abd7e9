//! Element types of the kernels and the choice of instruction set.

use super::portable::Portable;
use super::{Kernel, Path};
use std::cell::Cell;
use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// f32 or f64. Scalar operations are the lanes' operations.
pub trait Real:
    Copy
    + Debug
    + Default
    + PartialEq
    + PartialOrd
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Send
    + Sync
    + sealed::Sealed
    + 'static
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// Negative infinity
    const NEG_INFINITY: Self;

    /// `self * a + b`, rounded once.
    #[must_use]
    fn fma(self, a: Self, b: Self) -> Self;
    /// Square root, correctly rounded.
    #[must_use]
    fn root(self) -> Self;
    /// The standard library's exponential.
    #[must_use]
    fn std_exp(self) -> Self;
    /// Rounded to this type.
    #[must_use]
    fn from_f64(x: f64) -> Self;
    /// Widened.
    #[must_use]
    fn to_f64(self) -> f64;
    /// A key whose unsigned order is the order of values, both zeros equal and every NaN lowest.
    #[must_use]
    fn order_key(self) -> u64;

    /// Calls `body` with `len` elements of unspecified content that this thread keeps between calls. A call from inside
    /// `body` gets memory of its own.
    fn scratch<R>(len: usize, body: impl FnOnce(&mut [Self]) -> R) -> R;

    /// Runs a kernel on the instructions of [`Path::current`].
    fn dispatch<K: Kernel<Self>>(kernel: K) -> K::Out;
}

macro_rules! real {
    ($t:ty, $bits:ty) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = <$t>::NEG_INFINITY;

            #[inline(always)]
            fn fma(self, a: Self, b: Self) -> Self {
                self.mul_add(a, b)
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn std_exp(self) -> Self {
                self.exp()
            }
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn order_key(self) -> u64 {
                if self.is_nan() {
                    return 0;
                }
                // Adding zero turns -0 into +0.
                let bits = (self + 0.0).to_bits();
                let top = 1 << (<$bits>::BITS - 1);
                u64::from(if bits & top == 0 { bits | top } else { !bits })
            }
            fn scratch<R>(len: usize, body: impl FnOnce(&mut [Self]) -> R) -> R {
                thread_local! {
                    static MEMORY: Cell<Vec<$t>> = const { Cell::new(Vec::new()) };
                }
                let mut memory = MEMORY.take();
                if memory.len() < len {
                    memory.resize(len, 0.0);
                }
                let out = body(&mut memory[..len]);
                MEMORY.set(memory);
                out
            }
            #[inline]
            fn dispatch<K: Kernel<Self>>(kernel: K) -> K::Out {
                match Path::current() {
                    Path::Portable => kernel.run(Portable),
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the current path is supported by this processor.
                    Path::Avx2 => unsafe { x86::run_avx2::<$t, K>(kernel) },
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: the current path is supported by this processor.
                    Path::Avx512 => unsafe { x86::run_avx512::<$t, K>(kernel) },
                    #[cfg(not(target_arch = "x86_64"))]
                    _ => kernel.run(Portable),
                }
            }
        }
    };
}
real!(f32, u32);
real!(f64, u64);

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use super::super::avx2::Avx2;
    use super::super::avx512::Avx512;
    use super::super::{Kernel, Real, Simd};

    #[target_feature(enable = "avx2,fma")]
    pub(in super::super) fn run_avx2<T: Real, K: Kernel<T>>(kernel: K) -> K::Out
    where
        Avx2: Simd<T>,
    {
        // SAFETY: this function's callers have the instructions.
        kernel.run(unsafe { Avx2::new() })
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub(in super::super) fn run_avx512<T: Real, K: Kernel<T>>(kernel: K) -> K::Out
    where
        Avx512: Simd<T>,
    {
        // SAFETY: this function's callers have the instructions.
        kernel.run(unsafe { Avx512::new() })
    }
}
