//! Canonical source text of expressions and types.

use std::fmt::{self, Display, Formatter};

use super::parser::{COMPARE, NOT, POSTFIX, PREFIX, binding};
use super::{BinaryOp, Expr, ExprKind, IndexItem, IndexKind, TypeExpr, TypeKind, UnaryOp};

impl Display for BinaryOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BinaryOp::Or => "or",
            BinaryOp::And => "and",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::FloorDiv => "//",
            BinaryOp::Mod => "%",
            BinaryOp::Pow => "**",
        })
    }
}

impl Display for UnaryOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnaryOp::Neg => "-",
            UnaryOp::Not => "not",
        })
    }
}

/// Prints source that parses to the same expression, spans aside.
impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_at(self, 0, f)
    }
}

/// How tightly the outermost operator of `e` binds.
fn tightness(e: &Expr) -> u8 {
    match &e.kind {
        ExprKind::Binary(op, ..) => binding(*op).0,
        ExprKind::Unary(UnaryOp::Not, _) => NOT,
        ExprKind::Unary(UnaryOp::Neg, _) => PREFIX,
        ExprKind::Int(i) if *i < 0 => PREFIX,
        ExprKind::Float(x) if x.is_sign_negative() && !x.is_nan() => PREFIX,
        _ => POSTFIX,
    }
}

/// Prints `e` where an operator of tightness below `least` needs parentheses.
fn write_at(e: &Expr, least: u8, f: &mut Formatter<'_>) -> fmt::Result {
    if tightness(e) < least {
        f.write_str("(")?;
        write_at(e, 0, f)?;
        return f.write_str(")");
    }
    match &e.kind {
        ExprKind::Int(i) => write!(f, "{i}"),
        ExprKind::Float(x) => write_float(*x, f),
        ExprKind::Bool(b) => write!(f, "{b}"),
        ExprKind::None => f.write_str("none"),
        ExprKind::Broken => f.write_str("?"),
        ExprKind::Str(s) => write_str(s, f),
        ExprKind::Name(name) => f.write_str(name),
        ExprKind::Attr(base, name) => {
            write_base(base, f)?;
            write!(f, ".{}", name.name)
        }
        ExprKind::Index(base, items) => {
            write_base(base, f)?;
            f.write_str("[")?;
            write_list(items, f)?;
            f.write_str("]")
        }
        ExprKind::Call { callee, args, kwargs } => {
            write_base(callee, f)?;
            f.write_str("(")?;
            write_list(args, f)?;
            for (i, (name, value)) in kwargs.iter().enumerate() {
                let comma = if i > 0 || !args.is_empty() { ", " } else { "" };
                write!(f, "{comma}{}={value}", name.name)?;
            }
            f.write_str(")")
        }
        ExprKind::Unary(UnaryOp::Not, x) => {
            f.write_str("not ")?;
            write_at(x, NOT, f)
        }
        ExprKind::Unary(UnaryOp::Neg, x) => {
            // `-1` is a literal, so the negation of a number keeps its parentheses.
            let number = matches!(x.kind, ExprKind::Int(_) | ExprKind::Float(_));
            f.write_str("-")?;
            write_at(x, if number { u8::MAX } else { PREFIX }, f)
        }
        ExprKind::Binary(op, a, b) => {
            let (left, right) = binding(*op);
            let left = match left {
                COMPARE => COMPARE + 1,
                _ if *op == BinaryOp::Pow => POSTFIX,
                _ => left,
            };
            write_at(a, left, f)?;
            write!(f, " {op} ")?;
            write_at(b, right, f)
        }
        ExprKind::List(items) => {
            f.write_str("[")?;
            write_list(items, f)?;
            f.write_str("]")
        }
    }
}

/// Prints what stands before `.`, `[` or `(`; numbers need parentheses before a dot.
fn write_base(e: &Expr, f: &mut Formatter<'_>) -> fmt::Result {
    let number = matches!(e.kind, ExprKind::Int(_) | ExprKind::Float(_));
    write_at(e, if number { u8::MAX } else { POSTFIX }, f)
}

fn write_float(x: f64, f: &mut Formatter<'_>) -> fmt::Result {
    if x.is_finite() {
        write!(f, "{x:?}")
    } else if x.is_nan() {
        f.write_str(".nan")
    } else {
        f.write_str(if x < 0.0 { "-.inf" } else { ".inf" })
    }
}

fn write_str(s: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in s.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            _ => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

fn write_list<T: Display>(items: &[T], f: &mut Formatter<'_>) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

impl Display for IndexItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            // Bare `none` between index brackets is a new axis.
            IndexKind::At(e) if e.kind == ExprKind::None => f.write_str("(none)"),
            IndexKind::At(e) => e.fmt(f),
            IndexKind::Slice(start, stop) => {
                if let Some(start) = start {
                    start.fmt(f)?;
                }
                f.write_str(":")?;
                stop.as_ref().map_or(Ok(()), |stop| stop.fmt(f))
            }
            IndexKind::NewAxis => f.write_str("None"),
            IndexKind::Ellipsis => f.write_str("..."),
        }
    }
}

/// Prints source that parses to the same type, spans aside.
impl Display for TypeExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let TypeKind::Tensor { dist, dtype, dims } = &self.kind else { return f.write_str("state") };
        if *dist {
            f.write_str("dist ")?;
        }
        if let Some(dtype) = dtype {
            f.write_str(&dtype.name)?;
        }
        if dtype.is_some() && dims.is_empty() {
            return Ok(());
        }
        f.write_str("[")?;
        write_list(dims, f)?;
        f.write_str("]")
    }
}
