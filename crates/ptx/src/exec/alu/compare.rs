//! Comparisons that write predicates: `setp`, `testp`.

use crate::exec::inst::{Inst, NONE, flag};
use crate::exec::regs::{AluFn, B, H, Kind, LANES, Lane, Regs, both};
use crate::numeric::{bf16_to_f32, f16_to_f32, ftz};

/// Comparison operators of `setp` and `set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CmpOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

impl CmpOp {
    /// Names with what they mean; `lo`, `ls`, `hi` and `hs` are for unsigned integers.
    pub(super) const NAMES: [(&'static str, Self); 18] = [
        ("eq", Self::Eq),
        ("ne", Self::Ne),
        ("lt", Self::Lt),
        ("le", Self::Le),
        ("gt", Self::Gt),
        ("ge", Self::Ge),
        ("lo", Self::Lt),
        ("ls", Self::Le),
        ("hi", Self::Gt),
        ("hs", Self::Ge),
        ("equ", Self::Equ),
        ("neu", Self::Neu),
        ("ltu", Self::Ltu),
        ("leu", Self::Leu),
        ("gtu", Self::Gtu),
        ("geu", Self::Geu),
        ("num", Self::Num),
        ("nan", Self::Nan),
    ];

    /// The operator of a name on a type.
    pub(crate) fn parse(name: &str, ty: &str) -> Option<Self> {
        let unsigned = matches!(name, "lo" | "ls" | "hi" | "hs");
        if unsigned && !ty.starts_with('u') {
            return None;
        }
        Self::NAMES.iter().find(|n| n.0 == name).map(|n| n.1)
    }
}

/// Stores the comparison mask `t` into p and its complement into q, combined with the third operand.
#[inline(always)]
fn store(r: &mut Regs, i: &Inst, m: u32, t: u32) {
    let c = if i.c == NONE { 0 } else { r.p[i.c as usize] ^ if i.has(flag::NEG) { !0 } else { 0 } };
    let combine = |x: u32| match i.sel {
        0 => x,
        1 => x & c,
        2 => x | c,
        _ => x ^ c,
    };
    let (p, q) = (combine(t), combine(!t));
    if i.d != NONE {
        let slot = &mut r.p[i.d as usize];
        *slot = *slot & !m | p & m;
    }
    if i.d2 != NONE {
        let slot = &mut r.p[i.d2 as usize];
        *slot = *slot & !m | q & m;
    }
}

#[inline(always)]
fn compare<T: Lane>(r: &mut Regs, i: &Inst, m: u32, f: impl Fn(T, T) -> bool) {
    let (a, b) = (T::row(r, i.a), T::row(r, i.b));
    let mut t = 0;
    for l in 0..LANES {
        t |= u32::from(f(T::of(a[l]), T::of(b[l]))) << l;
    }
    store(r, i, m, t);
}

macro_rules! arms {
    ($cmp:expr, $t:ty, $conv:expr, [$($op:ident: $e:expr),+]) => {
        match $cmp {
            $(CmpOp::$op => Some(both!(|r, i, m| {
                compare::<$t>(r, i, m, |a, b| {
                    let f: fn(_, _) -> bool = $e;
                    let g = $conv;
                    f(g(a), g(b))
                })
            })),)+
            #[allow(unreachable_patterns)]
            _ => None,
        }
    };
}

macro_rules! int {
    ($cmp:expr, $t:ty) => {
        arms!($cmp, $t, |x: $t| x, [
            Eq: |a, b| a == b, Ne: |a, b| a != b, Lt: |a, b| a < b, Le: |a, b| a <= b, Gt: |a, b| a > b,
            Ge: |a, b| a >= b
        ])
    };
}

macro_rules! float {
    ($cmp:expr, $t:ty, $f:ty, $conv:expr) => {
        arms!($cmp, $t, $conv, [
            Eq: |a: $f, b: $f| a == b,
            Ne: |a: $f, b: $f| a < b || a > b,
            Lt: |a: $f, b: $f| a < b,
            Le: |a: $f, b: $f| a <= b,
            Gt: |a: $f, b: $f| a > b,
            Ge: |a: $f, b: $f| a >= b,
            Equ: |a: $f, b: $f| !(a < b || a > b),
            Neu: |a: $f, b: $f| a != b,
            Ltu: |a: $f, b: $f| !(a >= b),
            Leu: |a: $f, b: $f| !(a > b),
            Gtu: |a: $f, b: $f| !(a <= b),
            Geu: |a: $f, b: $f| !(a < b),
            Num: |a: $f, b: $f| !a.is_nan() && !b.is_nan(),
            Nan: |a: $f, b: $f| a.is_nan() || b.is_nan()
        ])
    };
}

/// The comparison `op` on a type, as portable and AVX2 builds with the kind of both operands.
#[allow(clippy::neg_cmp_op_on_partial_ord, clippy::double_comparisons)]
pub(crate) fn set_predicate(op: CmpOp, ty: &str, flush: bool) -> Option<((AluFn, AluFn), Kind)> {
    let (pair, kind) = match (ty, flush) {
        ("u16" | "b16", false) => (int!(op, u16), Kind::B16),
        ("s16", false) => (int!(op, i16), Kind::B16),
        ("u32" | "b32", false) => (int!(op, u32), Kind::B32),
        ("s32", false) => (int!(op, i32), Kind::B32),
        ("u64" | "b64", false) => (int!(op, u64), Kind::B64),
        ("s64", false) => (int!(op, i64), Kind::B64),
        ("f32", false) => (float!(op, f32, f32, |x: f32| x), Kind::F32),
        ("f32", true) => (float!(op, f32, f32, ftz), Kind::F32),
        ("f64", false) => (float!(op, f64, f64, |x: f64| x), Kind::F64),
        ("f16", false) => (float!(op, H, f32, |x: H| f16_to_f32(x.0)), Kind::B16),
        ("bf16", false) => (float!(op, B, f32, |x: B| bf16_to_f32(x.0)), Kind::B16),
        _ => return None,
    };
    // Bit-typed operands only compare for equality.
    if ty.starts_with('b') && ty != "bf16" && !matches!(op, CmpOp::Eq | CmpOp::Ne) {
        return None;
    }
    Some((pair?, kind))
}

#[inline(always)]
fn test<T: Lane>(r: &mut Regs, i: &Inst, m: u32, f: impl Fn(T) -> bool) {
    let a = T::row(r, i.a);
    let mut t = 0;
    for l in 0..LANES {
        t |= u32::from(f(T::of(a[l]))) << l;
    }
    store(r, i, m, t);
}

/// All comparisons of `setp`: operator, type, and the kind of the operands.
pub(crate) fn comparisons() -> impl Iterator<Item = (&'static str, &'static str, Kind)> {
    CmpOp::NAMES.iter().flat_map(|(name, _)| {
        TYPES.iter().filter_map(|ty| {
            let op = CmpOp::parse(name, ty)?;
            set_predicate(op, ty, false).map(|(_, kind)| (*name, *ty, kind))
        })
    })
}

/// Types that `setp` compares.
const TYPES: [&str; 13] = ["u16", "b16", "s16", "u32", "b32", "s32", "u64", "b64", "s64", "f32", "f64", "f16", "bf16"];

/// Properties of `testp`.
const PROPERTIES: [&str; 6] = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];

/// All forms of `testp` with the kind of their operand.
pub(crate) fn test_properties() -> impl Iterator<Item = (String, Kind)> {
    PROPERTIES.iter().flat_map(|p| [(format!("testp.{p}.f32"), Kind::F32), (format!("testp.{p}.f64"), Kind::F64)])
}

/// `testp` by property and type.
pub(crate) fn test_property(op: &str) -> Option<((AluFn, AluFn), Kind)> {
    macro_rules! t {
        ($t:ty, $f:expr) => {
            both!(|r, i, m| test::<$t>(r, i, m, $f))
        };
    }
    Some(match op {
        "testp.finite.f32" => (t!(f32, |x: f32| x.is_finite()), Kind::F32),
        "testp.infinite.f32" => (t!(f32, |x: f32| x.is_infinite()), Kind::F32),
        "testp.number.f32" => (t!(f32, |x: f32| !x.is_nan()), Kind::F32),
        "testp.notanumber.f32" => (t!(f32, |x: f32| x.is_nan()), Kind::F32),
        "testp.normal.f32" => (t!(f32, |x: f32| x.is_normal()), Kind::F32),
        "testp.subnormal.f32" => (t!(f32, |x: f32| x.is_subnormal()), Kind::F32),
        "testp.finite.f64" => (t!(f64, |x: f64| x.is_finite()), Kind::F64),
        "testp.infinite.f64" => (t!(f64, |x: f64| x.is_infinite()), Kind::F64),
        "testp.number.f64" => (t!(f64, |x: f64| !x.is_nan()), Kind::F64),
        "testp.notanumber.f64" => (t!(f64, |x: f64| x.is_nan()), Kind::F64),
        "testp.normal.f64" => (t!(f64, |x: f64| x.is_normal()), Kind::F64),
        "testp.subnormal.f64" => (t!(f64, |x: f64| x.is_subnormal()), Kind::F64),
        _ => return None,
    })
}
