//! Registers of one warp, as arrays over lanes.
//!
//! Three banks: 32-bit words (8-, 16- and 32-bit values), 64-bit words, and predicates as one lane mask each. Lane
//! functions compute all 32 lanes and blend by the active mask, so loops have constant trip counts and vectorise.

use super::inst::Inst;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// A 32-bit register of all lanes.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Row32(pub(crate) [u32; LANES]);

/// A 64-bit register of all lanes.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Row64(pub(crate) [u64; LANES]);

/// All registers of a warp.
#[derive(Clone, Default)]
pub(crate) struct Regs {
    pub(crate) r: Vec<Row32>,
    pub(crate) d: Vec<Row64>,
    pub(crate) p: Vec<u32>,
}

impl Regs {
    /// Low 32 bits of a register of either wide bank, per lane.
    pub(crate) fn word(&self, id: u32, wide: bool, lane: usize) -> u32 {
        if wide { self.d[id as usize].0[lane] as u32 } else { self.r[id as usize].0[lane] }
    }
}

/// Which array a register lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bank {
    /// 32-bit rows.
    R,
    /// 64-bit rows.
    D,
    /// Predicates.
    P,
}

/// How a literal operand of a lane function is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    B16,
    B32,
    B64,
    F32,
    F64,
}

impl Kind {
    pub(crate) fn bank(self) -> Bank {
        match self {
            Self::B64 | Self::F64 => Bank::D,
            _ => Bank::R,
        }
    }
}

/// A value that one lane of a register holds.
pub(crate) trait Lane: Copy {
    type Raw: Copy + Default;
    const KIND: Kind;
    fn of(raw: Self::Raw) -> Self;
    fn raw(self) -> Self::Raw;
    fn row(regs: &Regs, id: u32) -> &[Self::Raw; LANES];
    /// Writes the lanes of `mask`.
    fn put(regs: &mut Regs, id: u32, mask: u32, new: &[Self::Raw; LANES]);
}

#[inline(always)]
pub(crate) fn put32(dst: &mut [u32; LANES], mask: u32, new: &[u32; LANES]) {
    if mask == !0 {
        *dst = *new;
    } else {
        for l in 0..LANES {
            let take = 0u32.wrapping_sub(mask >> l & 1);
            dst[l] = new[l] & take | dst[l] & !take;
        }
    }
}

#[inline(always)]
pub(crate) fn put64(dst: &mut [u64; LANES], mask: u32, new: &[u64; LANES]) {
    if mask == !0 {
        *dst = *new;
    } else {
        for l in 0..LANES {
            let take = 0u64.wrapping_sub(u64::from(mask >> l & 1));
            dst[l] = new[l] & take | dst[l] & !take;
        }
    }
}

macro_rules! lanes {
    ($($t:ty, $kind:ident, $bank:ident, $raw:ty, $put:ident, $of:expr, $to:expr;)*) => { $(
        impl Lane for $t {
            type Raw = $raw;
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            fn of(raw: $raw) -> Self {
                ($of)(raw)
            }
            #[inline(always)]
            fn raw(self) -> $raw {
                ($to)(self)
            }
            #[inline(always)]
            fn row(regs: &Regs, id: u32) -> &[$raw; LANES] {
                &regs.$bank[id as usize].0
            }
            #[inline(always)]
            fn put(regs: &mut Regs, id: u32, mask: u32, new: &[$raw; LANES]) {
                $put(&mut regs.$bank[id as usize].0, mask, new)
            }
        }
    )* };
}

/// A half in a 16-bit register.
#[derive(Clone, Copy)]
pub(crate) struct H(pub(crate) u16);
/// A bfloat16 in a 16-bit register.
#[derive(Clone, Copy)]
pub(crate) struct B(pub(crate) u16);

lanes! {
    u16, B16, r, u32, put32, |r: u32| r as u16, |x: u16| u32::from(x);
    i16, B16, r, u32, put32, |r: u32| r as i16, |x: i16| u32::from(x as u16);
    u32, B32, r, u32, put32, |r: u32| r, |x: u32| x;
    i32, B32, r, u32, put32, |r: u32| r as i32, |x: i32| x as u32;
    f32, F32, r, u32, put32, |r: u32| f32::from_bits(r), |x: f32| x.to_bits();
    u64, B64, d, u64, put64, |r: u64| r, |x: u64| x;
    i64, B64, d, u64, put64, |r: u64| r as i64, |x: i64| x as u64;
    f64, F64, d, u64, put64, |r: u64| f64::from_bits(r), |x: f64| x.to_bits();
    H, B16, r, u32, put32, |r: u32| H(r as u16), |x: H| u32::from(x.0);
    B, B16, r, u32, put32, |r: u32| B(r as u16), |x: B| u32::from(x.0);
}

/// A lane function: reads the operands of the instruction, writes the lanes of the mask.
///
/// Unsafe to call because it may use CPU features: only pointers chosen by [`Alu::pick`] may be called.
pub(crate) type AluFn = unsafe fn(&mut Regs, &Inst, u32);

/// A lane function in a portable and an AVX2 build, with the kinds of its operands.
pub(crate) struct Alu {
    pub(crate) dst: Kind,
    pub(crate) src: &'static [Kind],
    pub(crate) base: AluFn,
    pub(crate) v3: AluFn,
}

impl Alu {
    /// The build for this CPU.
    pub(crate) fn pick(&self) -> AluFn {
        pick((self.base, self.v3))
    }
}

/// The build for this CPU of a portable and an AVX2 function.
pub(crate) fn pick((base, v3): (AluFn, AluFn)) -> AluFn {
    if wide_simd() { v3 } else { base }
}

/// Whether the CPU has everything the AVX2 builds use.
#[cfg(target_arch = "x86_64")]
pub(crate) fn wide_simd() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

/// Whether the CPU has everything the AVX2 builds use.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn wide_simd() -> bool {
    false
}

#[inline(always)]
pub(crate) fn map1<A: Lane, T: Lane>(r: &mut Regs, i: &Inst, m: u32, f: impl Fn(A) -> T) {
    let a = A::row(r, i.a);
    let mut t = [T::Raw::default(); LANES];
    for l in 0..LANES {
        t[l] = f(A::of(a[l])).raw();
    }
    T::put(r, i.d, m, &t);
}

#[inline(always)]
pub(crate) fn map2<A: Lane, B: Lane, T: Lane>(r: &mut Regs, i: &Inst, m: u32, f: impl Fn(A, B) -> T) {
    let (a, b) = (A::row(r, i.a), B::row(r, i.b));
    let mut t = [T::Raw::default(); LANES];
    for l in 0..LANES {
        t[l] = f(A::of(a[l]), B::of(b[l])).raw();
    }
    T::put(r, i.d, m, &t);
}

#[inline(always)]
pub(crate) fn map3<A: Lane, B: Lane, C: Lane, T: Lane>(r: &mut Regs, i: &Inst, m: u32, f: impl Fn(A, B, C) -> T) {
    let (a, b, c) = (A::row(r, i.a), B::row(r, i.b), C::row(r, i.c));
    let mut t = [T::Raw::default(); LANES];
    for l in 0..LANES {
        t[l] = f(A::of(a[l]), B::of(b[l]), C::of(c[l])).raw();
    }
    T::put(r, i.d, m, &t);
}

/// Builds a function once portably and once with AVX2, as a pair of [`AluFn`].
macro_rules! both {
    (|$r:ident, $i:ident, $m:ident| $body:expr) => {{
        fn base($r: &mut $crate::exec::regs::Regs, $i: &$crate::exec::inst::Inst, $m: u32) {
            $body
        }
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt"))]
        fn v3($r: &mut $crate::exec::regs::Regs, $i: &$crate::exec::inst::Inst, $m: u32) {
            $body
        }
        (base as $crate::exec::regs::AluFn, v3 as $crate::exec::regs::AluFn)
    }};
}
pub(crate) use both;

/// A table from full opcode text to lane functions: `"op" | "alias" => (a: type, ...) -> type { expression };`, and the
/// list of its opcodes.
macro_rules! lane_table {
    ($(#[$doc:meta])* fn $name:ident, $list:ident { $($($text:literal)|+ => $args:tt -> $to:ty $e:block;)* }) => {
        /// The opcodes of the table.
        pub(crate) const $list: &[&str] = &[$($($text),+),*];

        $crate::exec::regs::lane_table! { $(#[$doc])* fn $name { $($($text)|+ => $args -> $to $e;)* } }
    };
    ($(#[$doc:meta])* fn $name:ident { $($($text:literal)|+ => ($($x:ident : $tx:ty),+) -> $to:ty $e:block;)* }) => {
        $(#[$doc])*
        pub(crate) fn $name(op: &str) -> Option<&'static $crate::exec::regs::Alu> {
            use $crate::exec::regs::{Alu, AluFn, Kind, Lane};
            Some(match op {
                $($($text)|+ => {
                    const PAIR: (AluFn, AluFn) =
                        $crate::exec::regs::both!(|r, i, m| $crate::exec::regs::lane_map!(r, i, m, [$($x: $tx),+], $to, $e));
                    const SRC: &[Kind] = &[$(<$tx as Lane>::KIND),+];
                    const ALU: &Alu = &Alu { dst: <$to as Lane>::KIND, src: SRC, base: PAIR.0, v3: PAIR.1 };
                    ALU
                })*
                _ => return None,
            })
        }
    };
}
pub(crate) use lane_table;

macro_rules! lane_map {
    ($r:ident, $i:ident, $m:ident, [$a:ident: $ta:ty], $to:ty, $e:block) => {
        $crate::exec::regs::map1($r, $i, $m, |$a: $ta| -> $to { $e })
    };
    ($r:ident, $i:ident, $m:ident, [$a:ident: $ta:ty, $b:ident: $tb:ty], $to:ty, $e:block) => {
        $crate::exec::regs::map2($r, $i, $m, |$a: $ta, $b: $tb| -> $to { $e })
    };
    ($r:ident, $i:ident, $m:ident, [$a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty], $to:ty, $e:block) => {
        $crate::exec::regs::map3($r, $i, $m, |$a: $ta, $b: $tb, $c: $tc| -> $to { $e })
    };
}
pub(crate) use lane_map;
