//! Elementwise ops.
//!
//! Floats: operands are converted to the compute dtype (f64 if any is f64, else f32), the operation is done there, the
//! result is rounded once to the declared dtype.
//!
//! Integers: `+ - * neg abs pow` wrap around (i32 modulo 2^32, u8 modulo 256). `a // b` and `a % b` round towards minus
//! infinity; `a // 0` is 0 and `a % 0` is a, so that `b * (a // b) + a % b` is always a. `a ** b` with negative b is the
//! exact power cut off to an integer: 1 for a = 1, 1 or -1 for a = -1, else 0. `a / b` is a float division.

use super::call::Call;
use super::index::{broadcast, broadcast_shape, pick};
use super::number::{Real, bools, cast, from_ints, from_reals, ints, reals, tensor};
use crate::ops::Opcode;
use crate::tensor::{Data, Tensor};
use crate::ty::DType;

/// Neg to Floor in the registry's order.
pub(super) fn unary(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let out = call.out(0)?;
    if out.dtype.is_int() {
        let f = match call.op.code {
            Opcode::Neg => i32::wrapping_neg,
            Opcode::Abs => i32::wrapping_abs,
            other => return Err(format!("`{}` has no integer form", other.name())),
        };
        return from_ints(out.dtype, x.shape.clone(), ints(x)?.into_iter().map(f).collect());
    }
    if call.wide() { unary_in::<f64>(call, x) } else { unary_in::<f32>(call, x) }
}

fn unary_in<R: Real>(call: &Call, x: &Tensor) -> Result<Tensor, String> {
    let f: fn(R) -> R = match call.op.code {
        Opcode::Neg => |x| -x,
        Opcode::Abs => R::abs,
        Opcode::Exp => R::exp,
        Opcode::Log => R::ln,
        Opcode::Sqrt => R::sqrt,
        Opcode::Rsqrt => |x| R::ONE / x.sqrt(),
        Opcode::Sin => R::sin,
        Opcode::Cos => R::cos,
        Opcode::Tanh => R::tanh,
        Opcode::Erf => R::erf,
        Opcode::Sigmoid => sigmoid,
        Opcode::Silu => |x| x * sigmoid(x),
        Opcode::Softplus => |x| if x > R::from_f64(20.0) { x } else { x.exp().ln_1p() },
        Opcode::Relu => |x| x.larger(R::ZERO),
        Opcode::Floor => R::floor,
        other => return Err(format!("`{}` has not one float operand", other.name())),
    };
    from_reals(call.out(0)?.dtype, x.shape.clone(), reals::<R>(x).into_iter().map(f).collect())
}

fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}

pub(super) fn is_finite(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    let finite = reals::<f64>(x).into_iter().map(f64::is_finite).collect();
    tensor(DType::Bool, x.shape.clone(), Data::Bool(finite))
}

pub(super) fn not(call: &Call) -> Result<Tensor, String> {
    let x = call.tensor(0)?;
    tensor(DType::Bool, x.shape.clone(), Data::Bool(bools(x)?.iter().map(|b| !b).collect()))
}

pub(super) fn convert(call: &Call) -> Result<Tensor, String> {
    cast(call.tensor(0)?, call.dtype("dtype")?)
}

/// Add to Maximum in the registry's order.
pub(super) fn arithmetic(call: &Call) -> Result<Tensor, String> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let dtype = call.out(0)?.dtype;
    if dtype.is_int() {
        let f = match call.op.code {
            Opcode::Add => i32::wrapping_add,
            Opcode::Sub => i32::wrapping_sub,
            Opcode::Mul => i32::wrapping_mul,
            Opcode::FloorDiv => floor_div,
            Opcode::Mod => modulo,
            Opcode::Pow => power,
            Opcode::Minimum => |a: i32, b: i32| a.min(b),
            Opcode::Maximum => |a: i32, b: i32| a.max(b),
            other => return Err(format!("`{}` has no integer form", other.name())),
        };
        let (shape, values) = zip(a, b, &ints(a)?, &ints(b)?, f)?;
        return from_ints(dtype, shape, values);
    }
    if call.wide() { arithmetic_in::<f64>(call, a, b) } else { arithmetic_in::<f32>(call, a, b) }
}

fn arithmetic_in<R: Real>(call: &Call, a: &Tensor, b: &Tensor) -> Result<Tensor, String> {
    let f: fn(R, R) -> R = match call.op.code {
        Opcode::Add => |a, b| a + b,
        Opcode::Sub => |a, b| a - b,
        Opcode::Mul => |a, b| a * b,
        Opcode::Div => |a, b| a / b,
        Opcode::FloorDiv => |a, b| (a / b).floor(),
        Opcode::Mod => |a, b| {
            let r = a.rem(b);
            if r != R::ZERO && (r < R::ZERO) != (b < R::ZERO) { r + b } else { r }
        },
        Opcode::Pow => R::pow,
        Opcode::Minimum => R::smaller,
        Opcode::Maximum => R::larger,
        other => return Err(format!("`{}` is not arithmetic of two operands", other.name())),
    };
    let (shape, values) = zip(a, b, &reals::<R>(a), &reals::<R>(b), f)?;
    from_reals(call.out(0)?.dtype, shape, values)
}

/// Eq to Ge: integers and truth values exactly, everything else in the compute dtype. NaN is unequal to everything.
pub(super) fn compare(call: &Call) -> Result<Tensor, String> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let whole = |t: &Tensor| t.dtype.is_int() || t.dtype == DType::Bool;
    let (shape, values) = if whole(a) && whole(b) {
        zip(a, b, &ints(a)?, &ints(b)?, relation(call.op.code)?)?
    } else if call.wide() {
        zip(a, b, &reals::<f64>(a), &reals::<f64>(b), relation(call.op.code)?)?
    } else {
        zip(a, b, &reals::<f32>(a), &reals::<f32>(b), relation(call.op.code)?)?
    };
    tensor(DType::Bool, shape, Data::Bool(values))
}

fn relation<T: PartialOrd>(code: Opcode) -> Result<fn(T, T) -> bool, String> {
    Ok(match code {
        Opcode::Eq => |a, b| a == b,
        Opcode::Ne => |a, b| a != b,
        Opcode::Lt => |a, b| a < b,
        Opcode::Le => |a, b| a <= b,
        Opcode::Gt => |a, b| a > b,
        Opcode::Ge => |a, b| a >= b,
        other => return Err(format!("`{}` is not a comparison", other.name())),
    })
}

pub(super) fn logical(call: &Call) -> Result<Tensor, String> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let f: fn(bool, bool) -> bool = if call.op.code == Opcode::And { |a, b| a && b } else { |a, b| a || b };
    let (shape, values) = zip(a, b, bools(a)?, bools(b)?, f)?;
    tensor(DType::Bool, shape, Data::Bool(values))
}

/// Chooses entries; the one not chosen is not looked at.
pub(super) fn choose(call: &Call) -> Result<Tensor, String> {
    let dtype = call.out(0)?.dtype;
    let (a, b) = (cast(call.tensor(1)?, dtype)?, cast(call.tensor(2)?, dtype)?);
    select(call.tensor(0)?, &a, &b)
}

/// `a` where `cond` is true, else `b`, broadcast.
pub(super) fn select(cond: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor, String> {
    let shape = broadcast_shape(&broadcast_shape(&a.shape, &b.shape)?, &cond.shape)?;
    let (at_cond, at_a, at_b) =
        (broadcast(&cond.shape, &shape)?, broadcast(&a.shape, &shape)?, broadcast(&b.shape, &shape)?);
    let both = super::index::joined([a, b]).ok_or("both branches must have one dtype")?;
    let cond = bools(cond)?;
    let places: Vec<usize> =
        (0..at_cond.len()).map(|i| if cond[at_cond[i]] { at_a[i] } else { a.len() + at_b[i] }).collect();
    tensor(a.dtype, shape, pick(&both, &places))
}

/// `f` of the broadcast elements.
fn zip<T: Copy, U>(
    a: &Tensor,
    b: &Tensor,
    av: &[T],
    bv: &[T],
    f: impl Fn(T, T) -> U,
) -> Result<(Vec<usize>, Vec<U>), String> {
    let shape = broadcast_shape(&a.shape, &b.shape)?;
    let (at_a, at_b) = (broadcast(&a.shape, &shape)?, broadcast(&b.shape, &shape)?);
    let values = at_a.iter().zip(&at_b).map(|(i, j)| f(av[*i], bv[*j])).collect();
    Ok((shape, values))
}

fn floor_div(a: i32, b: i32) -> i32 {
    if b == 0 {
        return 0;
    }
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

fn modulo(a: i32, b: i32) -> i32 {
    a.wrapping_sub(floor_div(a, b).wrapping_mul(b))
}

fn power(a: i32, b: i32) -> i32 {
    match (a, u32::try_from(b)) {
        (_, Ok(e)) => a.wrapping_pow(e),
        (1, _) => 1,
        (-1, _) => 1 - 2 * (b & 1),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_division_rounds_down_and_divides_by_zero() {
        for (a, b, q, r) in
            [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (5, 0, 0, 5), (-6, 3, -2, 0)]
        {
            assert_eq!((floor_div(a, b), modulo(a, b)), (q, r), "{a} by {b}");
        }
        assert_eq!((floor_div(i32::MIN, -1), modulo(i32::MIN, -1)), (i32::MIN, 0));
    }

    #[test]
    fn integer_powers() {
        assert_eq!([power(3, 4), power(2, 31), power(2, 32)], [81, i32::MIN, 0]);
        assert_eq!([power(1, -5), power(-1, -5), power(-1, -4), power(7, -1), power(0, -1)], [1, -1, 1, 0, 0]);
    }
}
