//! Operations on single elements, with operands repeated over rows or columns.

use super::super::simd::{Kernel, LANES, Real, Simd, load_lanes, store_lanes};

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `-x`
    Neg,
    /// `|x|`
    Abs,
    /// `x * x`
    Square,
    /// Square root, correctly rounded.
    Sqrt,
    /// `1 / sqrt(x)`, both correctly rounded.
    Rsqrt,
    /// `exp(x)`
    Exp,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `x / (1 + exp(-x))`
    Silu,
    /// `ln(1 + exp(x))`, and `x` above 20.
    Softplus,
}

/// A function of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
    /// The greater; `b` where either is NaN.
    Max,
    /// The smaller; `b` where either is NaN.
    Min,
}

/// An operand of [`binary`] for a result `[rows, width]`.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a, T> {
    /// `[rows, width]`
    Full(&'a [T]),
    /// `[width]`, the same for every row.
    Row(&'a [T]),
    /// `[rows]`, the same for every element of a row.
    PerRow(&'a [T]),
    /// The same for every element.
    Scalar(T),
}

/// `y[i] = op(x[i])`.
///
/// # Panics
/// If the lengths differ.
pub fn unary<T: Real>(op: Unary, x: &[T], y: &mut [T]) {
    assert_eq!(x.len(), y.len(), "operand and result differ in length");
    T::dispatch(Map { op, x: Some(x), y });
}

/// `y[i] = op(y[i])`.
pub fn unary_in_place<T: Real>(op: Unary, y: &mut [T]) {
    T::dispatch(Map { op, x: None, y });
}

struct Map<'a, T> {
    op: Unary,
    /// `None`: the result's own elements.
    x: Option<&'a [T]>,
    y: &'a mut [T],
}

/// `1 / (1 + exp(-x))`, the denominator.
#[inline(always)]
fn logistic_denominator<T: Real, S: Simd<T>>(s: S, x: S::V) -> S::V {
    s.add(s.splat(T::ONE), s.exp(s.sub(s.splat(T::ZERO), x)))
}

/// Lane by lane in f64, where the logarithm is: gates are a few numbers a row.
#[inline(always)]
fn softplus<T: Real, S: Simd<T>>(s: S, x: S::V) -> S::V {
    let lanes = s.to_array(x).map(|x| {
        let wide = x.to_f64();
        if wide > 20.0 { x } else { T::from_f64(wide.exp().ln_1p()) }
    });
    // SAFETY: an array of 16 lanes.
    unsafe { s.load(lanes.as_ptr()) }
}

impl<T: Real> Kernel<T> for Map<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        let Self { op, x, y } = self;
        let (zero, one) = (s.splat(T::ZERO), s.splat(T::ONE));
        macro_rules! each {
            (|$v:ident| $value:expr) => {
                for at in (0..y.len()).step_by(LANES) {
                    let $v = load_lanes(s, x.unwrap_or(&*y), at, T::ZERO);
                    let value = $value;
                    store_lanes(s, y, at, value);
                }
            };
        }
        match op {
            // Subtraction from -0 negates zeros too.
            Unary::Neg => each!(|v| s.sub(s.splat(-T::ZERO), v)),
            // The maximum of `v` and `-v`; `0 - v` of a zero is +0, which `max` returns for two zeros.
            Unary::Abs => each!(|v| s.max(v, s.sub(zero, v))),
            Unary::Square => each!(|v| s.mul(v, v)),
            Unary::Sqrt => each!(|v| s.sqrt(v)),
            Unary::Rsqrt => each!(|v| s.div(one, s.sqrt(v))),
            Unary::Exp => each!(|v| s.exp(v)),
            Unary::Sigmoid => each!(|v| s.div(one, logistic_denominator(s, v))),
            Unary::Silu => each!(|v| s.div(v, logistic_denominator(s, v))),
            Unary::Softplus => each!(|v| softplus(s, v)),
        }
    }
}

/// `y = silu(gate) * up`, elementwise.
///
/// # Panics
/// If the lengths differ.
pub fn silu_mul<T: Real>(gate: &[T], up: &[T], y: &mut [T]) {
    assert!(gate.len() == y.len() && up.len() == y.len(), "operands and result differ in length");
    T::dispatch(SiluMul { gate, up, y });
}

struct SiluMul<'a, T> {
    gate: &'a [T],
    up: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Kernel<T> for SiluMul<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        for at in (0..self.y.len()).step_by(LANES) {
            let v = load_lanes(s, self.gate, at, T::ZERO);
            let silu = s.div(v, logistic_denominator(s, v));
            store_lanes(s, self.y, at, s.mul(silu, load_lanes(s, self.up, at, T::ZERO)));
        }
    }
}

/// `y[r, c] = op(a[r, c], b[r, c])` for `y` of `[rows, width]`, operands repeated as [`Operand`] says.
///
/// # Panics
/// If an operand does not fit `y`, or `width` is 0 or does not divide its length.
pub fn binary<T: Real>(op: Binary, a: Operand<'_, T>, b: Operand<'_, T>, width: usize, y: &mut [T]) {
    assert!(width > 0 && y.len().is_multiple_of(width), "result is not [rows, width]");
    for operand in [&a, &b] {
        let fits = match operand {
            Operand::Full(x) => x.len() == y.len(),
            Operand::Row(x) => x.len() == width,
            Operand::PerRow(x) => x.len() == y.len() / width,
            Operand::Scalar(_) => true,
        };
        assert!(fits, "operand does not fit the result");
    }
    T::dispatch(Zip { op, a, b, width, y });
}

struct Zip<'a, T> {
    op: Binary,
    a: Operand<'a, T>,
    b: Operand<'a, T>,
    width: usize,
    y: &'a mut [T],
}

/// An operand's part of one row.
#[derive(Clone, Copy)]
enum Part<'a, T> {
    Elements(&'a [T]),
    One(T),
}

impl<'a, T: Real> Operand<'a, T> {
    #[inline(always)]
    fn part(&self, row: usize, width: usize) -> Part<'a, T> {
        match *self {
            Operand::Full(x) => Part::Elements(&x[row * width..][..width]),
            Operand::Row(x) => Part::Elements(x),
            Operand::PerRow(x) => Part::One(x[row]),
            Operand::Scalar(x) => Part::One(x),
        }
    }
}

impl<T: Real> Part<'_, T> {
    #[inline(always)]
    fn load<S: Simd<T>>(&self, s: S, at: usize) -> S::V {
        match *self {
            Part::Elements(x) => load_lanes(s, x, at, T::ZERO),
            Part::One(x) => s.splat(x),
        }
    }
}

impl<T: Real> Kernel<T> for Zip<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        let Self { op, a, b, width, y } = self;
        macro_rules! each {
            ($f:ident) => {
                for (row, y) in y.chunks_exact_mut(width).enumerate() {
                    let (a, b) = (a.part(row, width), b.part(row, width));
                    for at in (0..width).step_by(LANES) {
                        store_lanes(s, y, at, s.$f(a.load(s, at), b.load(s, at)));
                    }
                }
            };
        }
        match op {
            Binary::Add => each!(add),
            Binary::Sub => each!(sub),
            Binary::Mul => each!(mul),
            Binary::Div => each!(div),
            Binary::Max => each!(max),
            Binary::Min => each!(min),
        }
    }
}
