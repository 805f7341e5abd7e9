//! Syntax trees of expressions and types.

use crate::diag::Span;

/// A name with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ident {
    /// The name.
    pub name: String,
    /// Where it stands.
    pub span: Span,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: ExprKind,
}

/// The forms of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `16`
    Int(i64),
    /// `1e-6`
    Float(f64),
    /// `true`
    Bool(bool),
    /// `none`
    None,
    /// `"text"`, single or double quoted
    Str(String),
    /// `x`
    Name(String),
    /// `a.b`
    Attr(Box<Expr>, Ident),
    /// `x[:, None, 1:]`
    Index(Box<Expr>, Vec<IndexItem>),
    /// `f(a, b, axis=-1)`; the callee is a name or an attribute (`kv.write(...)`)
    Call {
        /// What is called.
        callee: Box<Expr>,
        /// Positional arguments.
        args: Vec<Expr>,
        /// Keyword arguments in order.
        kwargs: Vec<(Ident, Expr)>,
    },
    /// `-x`, `not x`
    Unary(UnaryOp, Box<Expr>),
    /// `a + b`
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `[a, b]`
    List(Vec<Expr>),
    /// What stands here could not be read, which was reported.
    Broken,
}

/// One item between index brackets.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexItem {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: IndexKind,
}

/// The forms of an index.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexKind {
    /// `i`
    At(Expr),
    /// `start:stop`, both optional; there is no step
    Slice(Option<Expr>, Option<Expr>),
    /// `None`: a new axis of extent one
    NewAxis,
    /// `...`
    Ellipsis,
}

/// Prefix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `not`
    Not,
}

/// Infix operators, loosest to tightest: `or`, `and`, comparisons (not chained), `+ -`, `* / // %`, unary, `**`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

/// A written type: `bf16[N, B, H]`, `i32`, `[GV]`, `dist f64[N, KC]`, `state`.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeExpr {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: TypeKind,
}

/// The forms of a written type.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeKind {
    /// A tensor; no dtype means "any floating-point dtype", no brackets mean a scalar (rank 0).
    Tensor {
        /// `dist`: the last axis sums to one.
        dist: bool,
        /// The written dtype name, not yet checked.
        dtype: Option<Ident>,
        /// The dims as expressions.
        dims: Vec<Expr>,
    },
    /// `state`: a state element passed by reference.
    State,
}
