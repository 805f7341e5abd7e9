//! Dim algebra: integer polynomials over named symbols, with floor-division, remainder, minimum and maximum as opaque
//! atoms, kept in canonical form so that equality of canonical forms is equality of dims.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Values of symbols.
pub type Env = BTreeMap<String, i64>;

/// Bounds of a symbol, both inclusive; `None` is unbounded on that side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Smallest value.
    pub min: Option<i64>,
    /// Largest value.
    pub max: Option<i64>,
}

/// A factor that is not itself a product or sum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Atom {
    Symbol(Arc<str>),
    FloorDiv(Box<Dim>, Box<Dim>),
    Mod(Box<Dim>, Box<Dim>),
    Min(Box<Dim>, Box<Dim>),
    Max(Box<Dim>, Box<Dim>),
}

/// A product of atoms with positive powers, sorted.
type Monomial = Vec<(Atom, u32)>;

/// A dim: a canonical integer polynomial. Equality is equality of canonical forms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim {
    terms: BTreeMap<Monomial, i64>,
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        let mut terms = BTreeMap::new();
        if value != 0 {
            terms.insert(Vec::new(), value);
        }
        Dim { terms }
    }
}

impl Dim {
    /// The symbol `name`.
    pub fn symbol(name: &str) -> Dim {
        Dim::atom(Atom::Symbol(name.into()))
    }

    fn atom(atom: Atom) -> Dim {
        Dim { terms: BTreeMap::from([(vec![(atom, 1)], 1)]) }
    }

    /// The value, if no symbol occurs.
    pub fn as_const(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&Vec::new() as &Monomial).copied(),
            _ => None,
        }
    }

    /// The name, if the dim is one bare symbol.
    pub fn as_symbol(&self) -> Option<&str> {
        let (mono, coeff) = self.terms.iter().next()?;
        match (self.terms.len(), coeff, mono.as_slice()) {
            (1, 1, [(Atom::Symbol(name), 1)]) => Some(name),
            _ => None,
        }
    }

    /// How much there is to it: the atoms of all terms, counted with their powers. Arithmetic takes time in this.
    pub(crate) fn size(&self) -> usize {
        let term =
            |m: &Monomial| m.iter().fold(1, |n: usize, (a, p)| n.saturating_add(a.size().saturating_mul(*p as usize)));
        self.terms.keys().fold(0, |n: usize, m| n.saturating_add(term(m)))
    }

    /// Sum; `None` on overflow.
    pub fn add(&self, other: &Dim) -> Option<Dim> {
        let mut terms = self.terms.clone();
        for (mono, coeff) in &other.terms {
            let entry = terms.entry(mono.clone()).or_insert(0);
            *entry = entry.checked_add(*coeff)?;
        }
        terms.retain(|_, c| *c != 0);
        Some(Dim { terms })
    }

    /// Difference; `None` on overflow.
    pub fn sub(&self, other: &Dim) -> Option<Dim> {
        self.add(&other.mul(&Dim::from(-1))?)
    }

    /// Product; `None` on overflow.
    pub fn mul(&self, other: &Dim) -> Option<Dim> {
        let mut out = Dim::from(0);
        for (ma, ca) in &self.terms {
            for (mb, cb) in &other.terms {
                let coeff = ca.checked_mul(*cb)?;
                let term = Dim { terms: BTreeMap::from([(mono_mul(ma, mb)?, coeff)]) };
                out = out.add(&term)?;
            }
        }
        Some(out)
    }

    /// Quotient rounded towards minus infinity; `None` on overflow or a zero divisor. An exact quotient by one term is simplified.
    pub fn floor_div(&self, other: &Dim) -> Option<Dim> {
        if let Some(exact) = self.exact_div(other) {
            return Some(exact);
        }
        match (self.as_const(), other.as_const()) {
            (_, Some(0)) => None,
            (Some(a), Some(b)) => Some(Dim::from(floor_div(a, b)?)),
            _ => Some(Dim::atom(Atom::FloorDiv(Box::new(self.clone()), Box::new(other.clone())))),
        }
    }

    /// Remainder of [`Dim::floor_div`].
    pub fn modulo(&self, other: &Dim) -> Option<Dim> {
        if self.exact_div(other).is_some() {
            return Some(Dim::from(0));
        }
        match (self.as_const(), other.as_const()) {
            (_, Some(0)) => None,
            (Some(a), Some(b)) => a.checked_sub(floor_div(a, b)?.checked_mul(b)?).map(Dim::from),
            _ => Some(Dim::atom(Atom::Mod(Box::new(self.clone()), Box::new(other.clone())))),
        }
    }

    /// The smaller of both.
    pub fn minimum(&self, other: &Dim) -> Dim {
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) => Dim::from(a.min(b)),
            _ if self == other => self.clone(),
            _ => {
                let (a, b) = sorted(self, other);
                Dim::atom(Atom::Min(a, b))
            }
        }
    }

    /// The larger of both.
    pub fn maximum(&self, other: &Dim) -> Dim {
        match (self.as_const(), other.as_const()) {
            (Some(a), Some(b)) => Dim::from(a.max(b)),
            _ if self == other => self.clone(),
            _ => {
                let (a, b) = sorted(self, other);
                Dim::atom(Atom::Max(a, b))
            }
        }
    }

    /// The quotient, if `other` is a single term that divides every term of `self` exactly.
    pub fn exact_div(&self, other: &Dim) -> Option<Dim> {
        if self == other && !self.terms.is_empty() {
            return Some(Dim::from(1));
        }
        let (div_mono, div_coeff) = match other.terms.len() {
            1 => other.terms.iter().next()?,
            _ => return None,
        };
        let mut terms = BTreeMap::new();
        for (mono, coeff) in &self.terms {
            if coeff.checked_rem(*div_coeff)? != 0 {
                return None;
            }
            terms.insert(mono_div(mono, div_mono)?, coeff.checked_div(*div_coeff)?);
        }
        Some(Dim { terms })
    }

    /// Replaces symbols by dims; `None` on overflow or division by zero.
    pub fn subst(&self, lookup: &dyn Fn(&str) -> Option<Dim>) -> Option<Dim> {
        let mut out = Dim::from(0);
        for (mono, coeff) in &self.terms {
            let mut term = Dim::from(*coeff);
            for (atom, power) in mono {
                let base = match atom {
                    Atom::Symbol(name) => lookup(name).unwrap_or_else(|| Dim::symbol(name)),
                    Atom::FloorDiv(a, b) => a.subst(lookup)?.floor_div(&b.subst(lookup)?)?,
                    Atom::Mod(a, b) => a.subst(lookup)?.modulo(&b.subst(lookup)?)?,
                    Atom::Min(a, b) => a.subst(lookup)?.minimum(&b.subst(lookup)?),
                    Atom::Max(a, b) => a.subst(lookup)?.maximum(&b.subst(lookup)?),
                };
                for _ in 0..*power {
                    term = term.mul(&base)?;
                }
            }
            out = out.add(&term)?;
        }
        Some(out)
    }

    /// The value under `env`; `None` if a symbol is missing or the value overflows.
    pub fn eval(&self, env: &Env) -> Option<i64> {
        if let Some(c) = self.as_const() {
            return Some(c);
        }
        self.subst(&|name| env.get(name).map(|v| Dim::from(*v)))?.as_const()
    }

    /// Every symbol that occurs, in name order.
    pub fn symbols(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect_symbols(&mut out);
        out.sort();
        out.dedup();
        out
    }

    fn collect_symbols(&self, out: &mut Vec<String>) {
        for (atom, _) in self.terms.keys().flatten() {
            match atom {
                Atom::Symbol(name) => out.push(name.to_string()),
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
                    a.collect_symbols(out);
                    b.collect_symbols(out);
                }
            }
        }
    }

    /// Bounds of the dim given bounds of its symbols. All symbols are at least zero in this language.
    pub fn bounds(&self, of: &dyn Fn(&str) -> Bounds) -> Bounds {
        let mut sum = Bounds { min: Some(0), max: Some(0) };
        for (mono, coeff) in &self.terms {
            let mut term = Bounds { min: Some(1), max: Some(1) };
            for (atom, power) in mono {
                let b = atom.bounds(of);
                for _ in 0..*power {
                    term = bounds_mul(term, b);
                }
            }
            term = bounds_mul(term, Bounds { min: Some(*coeff), max: Some(*coeff) });
            sum = Bounds {
                min: opt2(sum.min, term.min, i64::checked_add),
                max: opt2(sum.max, term.max, i64::checked_add),
            };
        }
        sum
    }
}

impl Atom {
    fn size(&self) -> usize {
        match self {
            Atom::Symbol(_) => 1,
            Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
                a.size().saturating_add(b.size())
            }
        }
    }

    fn bounds(&self, of: &dyn Fn(&str) -> Bounds) -> Bounds {
        match self {
            Atom::Symbol(name) => {
                let b = of(name);
                Bounds { min: Some(b.min.unwrap_or(0).max(0)), max: b.max }
            }
            Atom::FloorDiv(a, b) => match (a.bounds(of), b.as_const()) {
                (a, Some(b)) if b > 0 => {
                    Bounds { min: a.min.and_then(|v| floor_div(v, b)), max: a.max.and_then(|v| floor_div(v, b)) }
                }
                _ => Bounds::default(),
            },
            Atom::Mod(_, b) => Bounds { min: Some(0), max: b.bounds(of).max.map(|v| (v - 1).max(0)) },
            Atom::Min(a, b) => {
                let (a, b) = (a.bounds(of), b.bounds(of));
                Bounds {
                    min: opt2(a.min, b.min, |x, y| Some(x.min(y))),
                    max: match (a.max, b.max) {
                        (Some(x), Some(y)) => Some(x.min(y)),
                        (x, y) => x.or(y),
                    },
                }
            }
            Atom::Max(a, b) => {
                let (a, b) = (a.bounds(of), b.bounds(of));
                Bounds {
                    min: match (a.min, b.min) {
                        (Some(x), Some(y)) => Some(x.max(y)),
                        (x, y) => x.or(y),
                    },
                    max: opt2(a.max, b.max, |x, y| Some(x.max(y))),
                }
            }
        }
    }
}

fn opt2(a: Option<i64>, b: Option<i64>, f: impl Fn(i64, i64) -> Option<i64>) -> Option<i64> {
    f(a?, b?)
}

fn bounds_mul(a: Bounds, b: Bounds) -> Bounds {
    let corner = |x: Option<i64>, y: Option<i64>| match (x, y) {
        (Some(0), _) | (_, Some(0)) => Some(Some(0)),
        (Some(x), Some(y)) => Some(x.checked_mul(y)),
        _ => None,
    };
    let corners = [corner(a.min, b.min), corner(a.min, b.max), corner(a.max, b.min), corner(a.max, b.max)];
    let known: Option<Vec<i64>> = corners.iter().map(|c| c.flatten()).collect();
    match known {
        Some(v) => Bounds { min: v.iter().min().copied(), max: v.iter().max().copied() },
        None => {
            let nonneg = |b: Bounds| b.min.is_some_and(|m| m >= 0);
            let min = if nonneg(a) && nonneg(b) { corner(a.min, b.min).flatten() } else { None };
            Bounds { min, max: None }
        }
    }
}

fn sorted(a: &Dim, b: &Dim) -> (Box<Dim>, Box<Dim>) {
    if a <= b { (Box::new(a.clone()), Box::new(b.clone())) } else { (Box::new(b.clone()), Box::new(a.clone())) }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

fn mono_mul(a: &Monomial, b: &Monomial) -> Option<Monomial> {
    let mut powers: BTreeMap<Atom, u32> = a.iter().cloned().collect();
    for (atom, power) in b {
        let entry = powers.entry(atom.clone()).or_insert(0);
        *entry = entry.checked_add(*power)?;
    }
    Some(powers.into_iter().collect())
}

fn mono_div(a: &Monomial, b: &Monomial) -> Option<Monomial> {
    let mut powers: BTreeMap<Atom, u32> = a.iter().cloned().collect();
    for (atom, power) in b {
        let entry = powers.get_mut(atom)?;
        *entry = entry.checked_sub(*power)?;
    }
    powers.retain(|_, p| *p > 0);
    Some(powers.into_iter().collect())
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(name) => f.write_str(name),
            Atom::FloorDiv(a, b) => write!(f, "floordiv({a}, {b})"),
            Atom::Mod(a, b) => write!(f, "mod({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // Terms with symbols come first, the constant last: `N + 1`.
        for (i, (mono, coeff)) in self.terms.iter().rev().enumerate() {
            match (i, *coeff < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let coeff = coeff.unsigned_abs();
            let mut parts = Vec::new();
            if coeff != 1 || mono.is_empty() {
                parts.push(coeff.to_string());
            }
            for (atom, power) in mono {
                for _ in 0..*power {
                    parts.push(atom.to_string());
                }
            }
            f.write_str(&parts.join("*"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(name: &str) -> Dim {
        Dim::symbol(name)
    }

    #[test]
    fn equality_is_by_canonical_form() {
        let a = s("Q").add(&s("K")).and_then(|x| x.mul(&s("D")));
        let b = s("Q").mul(&s("D")).and_then(|x| x.add(&s("D").mul(&s("K"))?));
        assert_eq!(a, b);
    }

    #[test]
    fn exact_division_needs_every_term() {
        let qd = s("Q").mul(&s("D")).unwrap();
        assert_eq!(qd.exact_div(&s("Q")), Some(s("D")));
        assert_eq!(qd.add(&Dim::from(1)).unwrap().exact_div(&s("Q")), None);
        assert_eq!(Dim::from(7).exact_div(&Dim::from(2)), None);
    }

    #[test]
    fn floor_division_rounds_down_and_zero_is_refused() {
        assert_eq!(Dim::from(-7).floor_div(&Dim::from(2)), Some(Dim::from(-4)));
        assert_eq!(Dim::from(7).floor_div(&Dim::from(0)), None);
        assert_eq!(s("N").modulo(&Dim::from(0)), None);
    }

    #[test]
    fn substitution_folds_atoms() {
        let d = s("N").floor_div(&Dim::from(16)).unwrap();
        assert_eq!(d.eval(&Env::from([("N".into(), 33)])), Some(2));
        assert_eq!(d.eval(&Env::new()), None);
    }

    #[test]
    fn bounds_follow_signs() {
        let of = |_: &str| Bounds { min: Some(1), max: Some(8) };
        let d = Dim::from(16).sub(&s("N").mul(&Dim::from(2)).unwrap()).unwrap();
        assert_eq!(d.bounds(&of), Bounds { min: Some(0), max: Some(14) });
        let free = |_: &str| Bounds { min: Some(1), max: None };
        assert_eq!(s("N").mul(&Dim::from(4)).unwrap().bounds(&free), Bounds { min: Some(4), max: None });
    }

    #[test]
    fn printing_is_canonical() {
        let d = Dim::from(2).mul(&s("K")).unwrap().add(&s("B")).unwrap().sub(&Dim::from(1)).unwrap();
        assert_eq!(d.to_string(), "2*K + B - 1");
    }

    #[test]
    fn overflow_is_reported_not_wrapped() {
        assert_eq!(Dim::from(i64::MAX).add(&Dim::from(1)), None);
        assert_eq!(Dim::from(i64::MAX).mul(&Dim::from(2)), None);
    }
}
