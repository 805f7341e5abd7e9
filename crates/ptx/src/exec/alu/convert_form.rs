//! Which conversions there are: types, roundings and modifiers of `cvt`.

use crate::numeric::{BF16, E4M3, E5M2, F16, Format, Round};

/// Source or destination of a conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Num {
    Int {
        bits: u8,
        signed: bool,
    },
    Narrow(Format),
    F32,
    F64,
    /// Two narrow values in one register.
    Pair(Format, u8),
    Tf32,
}

impl Num {
    fn parse(name: &str) -> Option<Self> {
        let int = |bits, signed| Some(Self::Int { bits, signed });
        match name {
            "u8" => int(8, false),
            "s8" => int(8, true),
            "u16" => int(16, false),
            "s16" => int(16, true),
            "u32" => int(32, false),
            "s32" => int(32, true),
            "u64" => int(64, false),
            "s64" => int(64, true),
            "f16" => Some(Self::Narrow(F16)),
            "bf16" => Some(Self::Narrow(BF16)),
            "f32" => Some(Self::F32),
            "f64" => Some(Self::F64),
            "f16x2" => Some(Self::Pair(F16, 16)),
            "bf16x2" => Some(Self::Pair(BF16, 16)),
            "e4m3x2" => Some(Self::Pair(E4M3, 8)),
            "e5m2x2" => Some(Self::Pair(E5M2, 8)),
            "tf32" => Some(Self::Tf32),
            _ => None,
        }
    }

    pub(crate) fn wide(self) -> bool {
        matches!(self, Self::F64 | Self::Int { bits: 64, .. })
    }

    /// Order of the floats: one holds all values of another when it is higher; the half formats are level.
    fn precision(self) -> u8 {
        match self {
            Self::F64 => 3,
            Self::F32 => 2,
            _ => 1,
        }
    }

    pub(super) fn is_float(self) -> bool {
        !matches!(self, Self::Int { .. })
    }
}

/// A decoded `cvt`, kept in the program's table and named by the instruction's `imm`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Convert {
    pub(crate) dst: Num,
    pub(crate) src: Num,
    pub(crate) round: Round,
    /// The integer rounding of a float-to-float or float-to-integer conversion.
    pub(super) integral: bool,
    /// `.sat`: integers to their range, floats to [0, 1].
    pub(super) saturate: bool,
    /// `.satfinite`: overflow gives the largest finite value.
    pub(super) finite: bool,
    pub(super) relu: bool,
    pub(super) flush: bool,
    /// Two source registers make one packed destination.
    pub(crate) two: bool,
}

/// Parses the modifiers of a `cvt` after the mnemonic. Combinations that PTX does not define are refused.
pub(crate) fn parse_convert(mods: &[&str]) -> Option<Convert> {
    let [head @ .., dst, src] = mods else { return None };
    let (dst, src) = (Num::parse(dst)?, Num::parse(src)?);
    let mut c = Convert {
        dst,
        src,
        round: Round::Nearest,
        integral: false,
        saturate: false,
        finite: false,
        relu: false,
        flush: false,
        two: matches!(dst, Num::Pair(..)) && src == Num::F32,
    };
    let mut rounded = false;
    for m in head {
        let mut round = |r, integral| {
            c.round = r;
            c.integral = integral;
            !std::mem::replace(&mut rounded, true)
        };
        let fresh = match *m {
            "rn" => round(Round::Nearest, false),
            "rna" => round(Round::Away, false),
            "rz" => round(Round::Zero, false),
            "rm" => round(Round::Down, false),
            "rp" => round(Round::Up, false),
            "rni" => round(Round::Nearest, true),
            "rzi" => round(Round::Zero, true),
            "rmi" => round(Round::Down, true),
            "rpi" => round(Round::Up, true),
            "sat" => !std::mem::replace(&mut c.saturate, true),
            "satfinite" => !std::mem::replace(&mut c.finite, true),
            "relu" => !std::mem::replace(&mut c.relu, true),
            "ftz" => !std::mem::replace(&mut c.flush, true),
            _ => false,
        };
        if !fresh {
            return None;
        }
    }
    if !defined(&c, rounded) {
        return None;
    }
    Some(c)
}

/// Whether PTX defines the conversion.
fn defined(c: &Convert, rounded: bool) -> bool {
    let (src, dst) = (c.src, c.dst);
    let ok = match (src, dst) {
        (Num::Tf32, _) | (Num::Pair(..), Num::Tf32 | Num::F64 | Num::F32 | Num::Narrow(_) | Num::Int { .. }) => false,
        (Num::Pair(from, 8), Num::Pair(to, 16)) => {
            to == F16 && from != F16 && from != BF16 && rounded && c.round == Round::Nearest && !c.integral && !c.finite
        }
        (Num::Pair(from, 16), Num::Pair(_, 8)) => {
            from == F16 && c.finite && rounded && c.round == Round::Nearest && !c.integral
        }
        (Num::Pair(..), Num::Pair(..)) => false,
        (_, Num::Pair(_, w)) => {
            let round = c.round == Round::Nearest || (w == 16 && c.round == Round::Zero);
            src == Num::F32 && rounded && round && !c.integral && (w == 16 || c.finite)
        }
        (_, Num::Tf32) => {
            let round = match c.round {
                Round::Away => !c.relu,
                Round::Nearest | Round::Zero => true,
                _ => false,
            };
            src == Num::F32 && rounded && round && !c.integral
        }
        (Num::Int { .. }, Num::Int { .. }) => !rounded && !c.relu && !c.flush,
        (Num::Int { .. }, _) => rounded && !c.integral && !c.relu && !c.flush,
        (_, Num::Int { .. }) => rounded && c.integral && !c.relu,
        // Narrowing rounds to the format, widening is exact, and between equal types only to whole numbers.
        (s, d) => {
            let rounding = match s.precision().cmp(&d.precision()) {
                std::cmp::Ordering::Greater => rounded && !c.integral,
                std::cmp::Ordering::Less => !rounded,
                std::cmp::Ordering::Equal if s == d => !rounded || c.integral,
                // Neither half format holds the other's values.
                std::cmp::Ordering::Equal => rounded && !c.integral,
            };
            let narrow = matches!(d, Num::Narrow(_));
            let relu = !c.relu || (narrow && s == Num::F32 && matches!(c.round, Round::Nearest | Round::Zero));
            rounding && relu
        }
    };
    let away = c.round != Round::Away || dst == Num::Tf32;
    let finite = !c.finite
        || match dst {
            Num::Pair(..) => true,
            Num::Narrow(_) => src == Num::F32 && matches!(c.round, Round::Nearest | Round::Zero),
            Num::Tf32 => true,
            _ => false,
        };
    let sat = !c.saturate || (!matches!(dst, Num::Pair(..) | Num::Tf32 | Num::Narrow(BF16)) && !c.finite && !c.relu);
    let flushes = !c.flush
        || matches!((src, dst), (Num::F32, Num::Int { .. } | Num::Narrow(F16) | Num::F64 | Num::F32))
        || matches!((src, dst), (Num::Narrow(F16) | Num::F64, Num::F32));
    ok && away && finite && sat && flushes
}

/// Every conversion accepted, with the register classes of destination and sources: `h` 16, `r` 32, `d` 64 bits.
pub(crate) fn conversions() -> Vec<(String, String)> {
    const TYPES: [&str; 17] = [
        "u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "e4m3x2",
        "e5m2x2", "tf32",
    ];
    const ROUNDS: [&str; 10] = ["", "rn", "rna", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"];
    const FLAGS: [&str; 4] = ["ftz", "relu", "satfinite", "sat"];
    let class = |n: Num| match n {
        Num::Int { bits: 64, .. } | Num::F64 => 'd',
        Num::Int { bits: 32, .. } | Num::F32 | Num::Tf32 | Num::Pair(_, 16) => 'r',
        _ => 'h',
    };
    let mut out = Vec::new();
    for (dst, src) in TYPES.iter().flat_map(|d| TYPES.iter().map(move |s| (*d, *s))) {
        for (round, flags) in ROUNDS.iter().flat_map(|r| (0..16u32).map(move |f| (*r, f))) {
            let mut mods: Vec<&str> = if round.is_empty() { vec![] } else { vec![round] };
            mods.extend((0..4).filter(|k| flags >> k & 1 == 1).map(|k| FLAGS[k]));
            mods.extend([dst, src]);
            if let Some(c) = parse_convert(&mods) {
                let sources = if c.two { 2 } else { 1 };
                let classes = std::iter::once(class(c.dst)).chain(std::iter::repeat_n(class(c.src), sources));
                out.push((format!("cvt.{}", mods.join(".")), classes.collect()));
            }
        }
    }
    out
}
