//! Values known before the run: arithmetic and the few functions bindings and limits may use.

use super::expr::{BinaryOp, UnaryOp};
use crate::ty::Dim;
use std::fmt;

/// A value known before the run.
#[derive(Clone, Debug, PartialEq)]
pub enum Static {
    /// An integer; symbolic while dims are unbound.
    Int(Dim),
    /// A real number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A word.
    Str(String),
    /// `none`.
    None,
    /// A list.
    List(Vec<Static>),
}

impl From<i64> for Static {
    fn from(v: i64) -> Self {
        Static::Int(Dim::from(v))
    }
}

impl Static {
    /// What it is, for messages.
    pub fn describe(&self) -> &'static str {
        match self {
            Static::Int(_) => "an integer",
            Static::Float(_) => "a real number",
            Static::Bool(_) => "a truth value",
            Static::Str(_) => "a word",
            Static::None => "none",
            Static::List(_) => "a list",
        }
    }

    /// The integer, if it is one without symbols.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Static::Int(d) => d.as_const(),
            _ => None,
        }
    }

    /// The number as a real, if it is one without symbols.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Static::Float(f) => Some(*f),
            Static::Int(d) => d.as_const().map(|v| v as f64),
            _ => None,
        }
    }
}

impl fmt::Display for Static {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Static::Int(d) => d.fmt(f),
            Static::Float(v) => write!(f, "{v}"),
            Static::Bool(v) => v.fmt(f),
            Static::Str(s) => write!(f, "'{s}'"),
            Static::None => f.write_str("none"),
            Static::List(items) => {
                let items: Vec<String> = items.iter().map(Static::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
        }
    }
}

/// Why a static operation has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaticError {
    /// The values do not allow it; the text says why.
    Wrong(String),
    /// A symbol without a value decides it.
    Symbolic,
}

type Result = std::result::Result<Static, StaticError>;

fn wrong<T>(text: impl Into<String>) -> std::result::Result<T, StaticError> {
    Err(StaticError::Wrong(text.into()))
}

/// A prefix operator.
pub fn unary(op: UnaryOp, x: &Static) -> Result {
    match (op, x) {
        (UnaryOp::Neg, Static::Int(d)) => match d.mul(&Dim::from(-1)) {
            Some(d) => Ok(Static::Int(d)),
            None => wrong("the integer overflows"),
        },
        (UnaryOp::Neg, Static::Float(v)) => Ok(Static::Float(-v)),
        (UnaryOp::Not, Static::Bool(v)) => Ok(Static::Bool(!v)),
        (_, x) => {
            wrong(format!("{} cannot be {}", x.describe(), if op == UnaryOp::Neg { "negated" } else { "`not`-ed" }))
        }
    }
}

/// An infix operator; `and` and `or` are evaluated by the caller from left to right.
pub fn binary(op: BinaryOp, a: &Static, b: &Static) -> Result {
    use BinaryOp::*;
    match (op, a, b) {
        (Eq, a, b) => equal(a, b).map(Static::Bool),
        (Ne, a, b) => equal(a, b).map(|e| Static::Bool(!e)),
        (And, Static::Bool(a), Static::Bool(b)) => Ok(Static::Bool(*a && *b)),
        (Or, Static::Bool(a), Static::Bool(b)) => Ok(Static::Bool(*a || *b)),
        (Add | Sub | Mul | FloorDiv | Mod, Static::Int(x), Static::Int(y)) => {
            small(x, y)?;
            let out = match op {
                Add => x.add(y),
                Sub => x.sub(y),
                Mul => x.mul(y),
                FloorDiv => x.floor_div(y),
                _ => x.modulo(y),
            };
            match out {
                Some(d) => Ok(Static::Int(d)),
                None if y.as_const() == Some(0) => wrong("division by zero"),
                None => wrong("the integer overflows"),
            }
        }
        (Pow, Static::Int(x), Static::Int(y)) if y.as_const().is_some_and(|e| e >= 0) => {
            match (x.as_const(), y.as_const()) {
                (Some(x), Some(y)) => match u32::try_from(y).ok().and_then(|y| x.checked_pow(y)) {
                    Some(v) => Ok(Static::from(v)),
                    None => wrong("the integer overflows"),
                },
                _ => Err(StaticError::Symbolic),
            }
        }
        (Lt | Le | Gt | Ge, Static::Int(x), Static::Int(y)) => {
            // A difference without symbols decides even when both sides have them.
            let Some(diff) = x.sub(y) else { return wrong("the integer overflows") };
            match diff.as_const() {
                Some(d) => Ok(Static::Bool(compare(op, d.cmp(&0)))),
                None => Err(StaticError::Symbolic),
            }
        }
        (_, Static::Int(_) | Static::Float(_), Static::Int(_) | Static::Float(_)) => {
            let (Some(x), Some(y)) = (a.as_f64(), b.as_f64()) else { return Err(StaticError::Symbolic) };
            Ok(match op {
                Add => Static::Float(x + y),
                Sub => Static::Float(x - y),
                Mul => Static::Float(x * y),
                Div => Static::Float(x / y),
                FloorDiv => Static::Float((x / y).floor()),
                Mod => Static::Float(x - y * (x / y).floor()),
                Pow => Static::Float(x.powf(y)),
                Lt | Le | Gt | Ge => match x.partial_cmp(&y) {
                    Some(o) => Static::Bool(compare(op, o)),
                    None => Static::Bool(false),
                },
                And | Or | Eq | Ne => return wrong("numbers are not truth values"),
            })
        }
        (_, a, b) => wrong(format!("this operator does not take {} and {}", a.describe(), b.describe())),
    }
}

/// Largest dim, as a polynomial, that is computed with.
pub(crate) const MAX_DIM_SIZE: usize = 128;

fn small(x: &Dim, y: &Dim) -> std::result::Result<(), StaticError> {
    if x.size().saturating_add(y.size()) > MAX_DIM_SIZE {
        wrong("the formula of this dim has too many terms")
    } else {
        Ok(())
    }
}

fn compare(op: BinaryOp, o: std::cmp::Ordering) -> bool {
    match op {
        BinaryOp::Lt => o.is_lt(),
        BinaryOp::Le => o.is_le(),
        BinaryOp::Gt => o.is_gt(),
        _ => o.is_ge(),
    }
}

/// Equality; an integer equals the same real number.
pub fn equal(a: &Static, b: &Static) -> std::result::Result<bool, StaticError> {
    match (a, b) {
        (Static::Int(x), Static::Int(y)) => {
            if x == y {
                return Ok(true);
            }
            match x.sub(y).and_then(|d| d.as_const()) {
                Some(_) => Ok(false),
                None => Err(StaticError::Symbolic),
            }
        }
        (Static::Int(_) | Static::Float(_), Static::Int(_) | Static::Float(_)) => match (a.as_f64(), b.as_f64()) {
            (Some(x), Some(y)) => Ok(x == y),
            _ => Err(StaticError::Symbolic),
        },
        (Static::List(x), Static::List(y)) => {
            if x.len() != y.len() {
                return Ok(false);
            }
            for (a, b) in x.iter().zip(y) {
                if !equal(a, b)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(a == b),
    }
}

/// Names of the functions on static values.
pub const FUNCTIONS: &[&str] =
    &["len", "int", "float", "sqrt", "min", "max", "where", "all_equal", "all_in", "increasing", "count"];

/// Name, signature and meaning of every function on values known before the run; the last three belong to system files.
pub const TABLE: &[(&str, &str, &str)] = &[
    ("len", "len(list)", "Number of entries."),
    ("int", "int(x)", "A whole number as an integer; an error for 0.5."),
    ("float", "float(x)", "A real number."),
    ("sqrt", "sqrt(x)", "Square root; of a run-time symbol it is computed during the run."),
    ("min", "min(a, b)", "The smaller."),
    ("max", "max(a, b)", "The larger."),
    ("where", "where(condition, a, b)", "a if the condition is true, else b."),
    ("all_equal", "all_equal(list, value)", "True if every entry is the value."),
    ("all_in", "all_in(list, from, to)", "True if every entry is in from..to, to excluded."),
    ("increasing", "increasing(list)", "True if every entry is larger than the one before it."),
    ("count", "count(list, value)", "Number of entries that are the value."),
    (
        "same",
        "same(a, b, ...)",
        "Several spellings of one key of config.json: those that are there must agree, and one must be there.",
    ),
    ("has", "has(key)", "True if config.json has the key."),
    (
        "unset",
        "unset(key, value, ...)",
        "True if config.json lacks the key or says null, or if it says one of the values.",
    ),
];

/// A function on static values; `None` if there is no such function.
pub fn call(name: &str, args: &[Static]) -> Option<Result> {
    Some(match (name, args) {
        ("len", [Static::List(items)]) => Ok(Static::from(items.len() as i64)),
        ("int", [x]) => match x {
            Static::Int(_) => Ok(x.clone()),
            Static::Float(v) if v.fract() == 0.0 && v.abs() < 9e15 => Ok(Static::from(*v as i64)),
            other => wrong(format!("{other} is not a whole number")),
        },
        ("float", [x]) => x.as_f64().map(Static::Float).ok_or(StaticError::Symbolic),
        ("sqrt", [x]) => match x.as_f64() {
            Some(v) if v >= 0.0 => Ok(Static::Float(v.sqrt())),
            Some(v) => wrong(format!("{v} has no square root")),
            None if matches!(x, Static::Int(_)) => Err(StaticError::Symbolic),
            None => wrong(format!("{} has no square root", x.describe())),
        },
        ("min" | "max", [Static::Int(a), Static::Int(b)]) => {
            if let Err(e) = small(a, b) {
                return Some(Err(e));
            }
            Ok(Static::Int(if name == "min" { a.minimum(b) } else { a.maximum(b) }))
        }
        ("min" | "max", [a, b]) => match (a.as_f64(), b.as_f64()) {
            (Some(x), Some(y)) => Ok(Static::Float(if name == "min" { x.min(y) } else { x.max(y) })),
            _ => return None,
        },
        ("where", [Static::Bool(c), a, b]) => Ok(if *c { a.clone() } else { b.clone() }),
        ("all_equal", [Static::List(items), v]) => {
            let mut all = true;
            for item in items {
                match equal(item, v) {
                    Ok(e) => all &= e,
                    Err(e) => return Some(Err(e)),
                }
            }
            Ok(Static::Bool(all))
        }
        ("count", [Static::List(items), v]) => {
            Ok(Static::from(items.iter().filter(|i| equal(i, v) == Ok(true)).count() as i64))
        }
        ("all_in", [Static::List(items), lo, hi]) => match (ints(items), lo.as_i64(), hi.as_i64()) {
            (Some(v), Some(lo), Some(hi)) => Ok(Static::Bool(v.iter().all(|x| (lo..hi).contains(x)))),
            _ => Err(StaticError::Symbolic),
        },
        ("increasing", [Static::List(items)]) => match ints(items) {
            Some(v) => Ok(Static::Bool(v.windows(2).all(|w| w[0] < w[1]))),
            None => wrong("only integers can be compared"),
        },
        (name, args) if FUNCTIONS.contains(&name) => {
            let kinds: Vec<&str> = args.iter().map(Static::describe).collect();
            wrong(format!("`{name}` does not take ({})", kinds.join(", ")))
        }
        _ => return None,
    })
}

fn ints(items: &[Static]) -> Option<Vec<i64>> {
    items.iter().map(Static::as_i64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbolic_comparison_is_decided_by_the_difference() {
        let b = Dim::symbol("B");
        let b1 = b.sub(&Dim::from(1)).unwrap();
        assert_eq!(binary(BinaryOp::Lt, &Static::Int(b1), &Static::Int(b.clone())), Ok(Static::Bool(true)));
        assert_eq!(binary(BinaryOp::Lt, &Static::Int(b), &Static::from(3)), Err(StaticError::Symbolic));
    }

    #[test]
    fn integers_divide_to_reals_and_floor_to_integers() {
        assert_eq!(binary(BinaryOp::Div, &Static::from(1), &Static::from(2)), Ok(Static::Float(0.5)));
        assert_eq!(binary(BinaryOp::FloorDiv, &Static::from(7), &Static::from(2)), Ok(Static::from(3)));
        assert!(binary(BinaryOp::FloorDiv, &Static::from(7), &Static::from(0)).is_err());
    }

    #[test]
    fn list_predicates() {
        let l = |v: &[i64]| Static::List(v.iter().map(|x| Static::from(*x)).collect());
        assert_eq!(call("increasing", &[l(&[0, 1, 6])]), Some(Ok(Static::Bool(true))));
        assert_eq!(call("increasing", &[l(&[0, 6, 6])]), Some(Ok(Static::Bool(false))));
        assert_eq!(call("all_in", &[l(&[0, 6]), Static::from(0), Static::from(6)]), Some(Ok(Static::Bool(false))));
        assert_eq!(call("nonsense", &[]), None);
    }
}
