//! Every op of the registry on operands small enough to compute by hand.

mod interp_support;

use interp_support::*;
use spinec_ir::interp::{Mode, Observer, run};
use spinec_ir::ir::{Attr, Attrs, Keep};
use spinec_ir::ops::{OPS, Opcode};
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::{DType, Dim, StateKind};

#[test]
fn every_op_has_a_case() {
    for def in OPS {
        println!("{}", def.name);
        case(def.code);
    }
}

/// No catch-all: a new op without a case does not compile.
fn case(code: Opcode) {
    use Opcode::*;
    match code {
        Const => constants(),
        DimValue => dim_values(),
        Weight => weights(),
        StateOpen | StateClose => states(),
        Loop => loops(),
        Cases => case_regions(),
        Guarded => guards(),
        Neg => {
            unary(code, &[(1.5, -1.5), (-2.0, 2.0), (0.0, -0.0)]);
            let x = i32s(&[3], &[5, -7, i32::MIN]);
            assert_eq!(eval(code, &[x], Attrs::new()), [i32s(&[3], &[-5, 7, i32::MIN])]);
            let x = u8s(DType::U8, &[2], &[0, 1]);
            assert_eq!(eval(code, &[x], Attrs::new()), [u8s(DType::U8, &[2], &[0, 255])]);
        }
        Abs => {
            unary(code, &[(1.5, 1.5), (-2.0, 2.0)]);
            let x = i32s(&[3], &[5, -7, i32::MIN]);
            assert_eq!(eval(code, &[x], Attrs::new()), [i32s(&[3], &[5, 7, i32::MIN])]);
        }
        Exp => unary(code, &[(0.0, 1.0), (1.0, std::f64::consts::E), (f64::NEG_INFINITY, 0.0)]),
        Log => unary(code, &[(1.0, 0.0), (0.0, f64::NEG_INFINITY), (2.0, std::f64::consts::LN_2)]),
        Sqrt => unary(code, &[(4.0, 2.0), (0.25, 0.5), (-1.0, f64::NAN)]),
        Rsqrt => unary(code, &[(4.0, 0.5), (0.0, f64::INFINITY)]),
        Sin => unary(code, &[(0.0, 0.0), (std::f64::consts::FRAC_PI_6, 0.5)]),
        Cos => unary(code, &[(0.0, 1.0), (std::f64::consts::FRAC_PI_3, 0.5)]),
        Tanh => unary(code, &[(0.0, 0.0), (0.5 * 3f64.ln(), 0.5), (100.0, 1.0)]),
        Erf => unary(code, &[(0.0, 0.0), (1.0, 0.8427007929497149), (-1.0, -0.8427007929497149)]),
        Sigmoid => unary(code, &[(0.0, 0.5), (3f64.ln(), 0.75), (-1000.0, 0.0), (1000.0, 1.0)]),
        Silu => unary(code, &[(0.0, 0.0), (3f64.ln(), 0.75 * 3f64.ln()), (1000.0, 1000.0)]),
        Softplus => {
            unary(code, &[(0.0, std::f64::consts::LN_2), (25.0, 25.0), (-800.0, 0.0), (1.0, 1.3132616875182228)])
        }
        Relu => unary(code, &[(-1.0, 0.0), (2.0, 2.0), (f64::NAN, f64::NAN)]),
        Floor => unary(code, &[(1.5, 1.0), (-1.5, -2.0), (3.0, 3.0)]),
        IsFinite => {
            let x = f32s(&[4], &[1.0, f32::INFINITY, f32::NAN, -0.0]);
            assert_eq!(eval(code, &[x], Attrs::new()), [bools(&[4], &[true, false, false, true])]);
        }
        Not => {
            let x = bools(&[2], &[true, false]);
            assert_eq!(eval(code, &[x], Attrs::new()), [bools(&[2], &[false, true])]);
        }
        Cast => casts(),
        Add => arithmetic(code, |a, b| a + b, &[(i32::MAX, 1, i32::MIN), (2, -5, -3)]),
        Sub => arithmetic(code, |a, b| a - b, &[(i32::MIN, 1, i32::MAX), (2, -5, 7)]),
        Mul => arithmetic(code, |a, b| a * b, &[(1 << 20, 1 << 20, 0), (3, -5, -15)]),
        Div => {
            let (a, b) = (i32s(&[3], &[7, -1, 0]), i32s(&[3], &[2, 0, 0]));
            let out = eval(code, &[a, b], Attrs::new());
            assert_same(&out[0], &f32s(&[3], &[3.5, f32::NEG_INFINITY, f32::NAN]));
            let out = eval(code, &[f32s(&[1], &[1.0]), f64s(&[1], &[3.0])], Attrs::new());
            assert_eq!(out, [f64s(&[1], &[1.0 / 3.0])]);
        }
        FloorDiv => {
            arithmetic(code, |a, b| (a / b).floor(), &[(7, 2, 3), (-7, 2, -4), (7, 0, 0), (i32::MIN, -1, i32::MIN)])
        }
        Mod => arithmetic(code, |a, b| a - b * (a / b).floor(), &[(7, 2, 1), (-7, 2, 1), (7, -2, -1), (7, 0, 7)]),
        Pow => {
            let (a, b) = (f64s(&[3], &[2.0, 9.0, -1.0]), f64s(&[3], &[10.0, 0.5, 0.5]));
            assert_same(&eval(code, &[a, b], Attrs::new())[0], &f64s(&[3], &[1024.0, 3.0, f64::NAN]));
            integer(code, &[(3, 4, 81), (2, 32, 0), (-1, -3, -1), (5, -1, 0)]);
        }
        Minimum => {
            arithmetic(code, f64::min, &[(3, -4, -4)]);
            nan_wins(code);
        }
        Maximum => {
            arithmetic(code, f64::max, &[(3, -4, 3)]);
            nan_wins(code);
        }
        Eq => compare(code, [false, true, false, false], [false, true]),
        Ne => compare(code, [true, false, true, true], [true, false]),
        Lt => compare(code, [true, false, false, false], [true, false]),
        Le => compare(code, [true, true, false, false], [true, true]),
        Gt => compare(code, [false, false, true, false], [false, false]),
        Ge => compare(code, [false, true, true, false], [false, true]),
        And => logic(code, [true, false, false, false]),
        Or => logic(code, [true, true, true, false]),
        Where => wheres(),
        Iota => {
            let out = eval(code, &[], attrs([("n", Attr::Dim(Dim::from(4)))]));
            assert_eq!(out, [i32s(&[4], &[0, 1, 2, 3])]);
        }
        Fill => {
            let out = eval(code, &[f64s(&[], &[2.5])], attrs([("dims", Attr::Dims(dims("2 3")))]));
            assert_eq!(out, [f64s(&[2, 3], &[2.5; 6])]);
        }
        Reshape => {
            let out = eval(code, &[i32s(&[2, 3], &[0, 1, 2, 3, 4, 5])], attrs([("dims", Attr::Dims(dims("3 -1")))]));
            assert_eq!(out, [i32s(&[3, 2], &[0, 1, 2, 3, 4, 5])]);
        }
        Transpose => {
            let x = i32s(&[2, 1, 3], &[0, 1, 2, 3, 4, 5]);
            let out = eval(code, &[x], attrs([("axes", Attr::Ints(vec![2, 0, 1]))]));
            assert_eq!(out, [i32s(&[3, 2, 1], &[0, 3, 1, 4, 2, 5])]);
        }
        Broadcast => {
            let out = eval(code, &[i32s(&[2, 1], &[7, 8])], attrs([("dims", Attr::Dims(dims("2 2 3")))]));
            assert_eq!(out, [i32s(&[2, 2, 3], &[7, 7, 7, 8, 8, 8, 7, 7, 7, 8, 8, 8])]);
        }
        Concat => {
            let parts = [i32s(&[2, 1], &[1, 2]), i32s(&[2, 0], &[]), i32s(&[2, 2], &[3, 4, 5, 6])];
            assert_eq!(eval(code, &parts, axis(1)), [i32s(&[2, 3], &[1, 3, 4, 2, 5, 6])]);
            let parts = [bf16s(&[1], &[1.0]), f32s(&[1], &[0.1])];
            assert_eq!(eval(code, &parts, axis(0)), [f32s(&[2], &[1.0, 0.1])]);
        }
        Slice => {
            let at = |start, len| {
                attrs([
                    ("axis", Attr::Int(-1)),
                    ("start", Attr::Dim(Dim::from(start))),
                    ("len", Attr::Dim(Dim::from(len))),
                ])
            };
            let x = i32s(&[2, 3], &[0, 1, 2, 3, 4, 5]);
            assert_eq!(eval(code, std::slice::from_ref(&x), at(1, 2)), [i32s(&[2, 2], &[1, 2, 4, 5])]);
            assert_eq!(eval(code, &[x], at(3, 0)), [i32s(&[2, 0], &[])]);
        }
        IndexAt => {
            let x = i32s(&[2, 3], &[0, 1, 2, 3, 4, 5]);
            for (i, want) in [(1, [1, 4]), (-5, [0, 3]), (9, [2, 5])] {
                assert_eq!(eval(code, &[x.clone(), i32s(&[], &[i])], axis(1)), [i32s(&[2], &want)]);
            }
        }
        Shift => {
            let at = |by| attrs([("by", Attr::Int(by)), ("axis", Attr::Int(1)), ("fill", Attr::Float(9.0))]);
            let x = i32s(&[2, 3], &[0, 1, 2, 3, 4, 5]);
            assert_eq!(eval(code, std::slice::from_ref(&x), at(1)), [i32s(&[2, 3], &[9, 0, 1, 9, 3, 4])]);
            assert_eq!(eval(code, std::slice::from_ref(&x), at(-2)), [i32s(&[2, 3], &[2, 9, 9, 5, 9, 9])]);
            assert_eq!(eval(code, &[x], at(i64::MIN)), [i32s(&[2, 3], &[9; 6])]);
        }
        Take => {
            let x = i32s(&[2, 3], &[0, 1, 2, 3, 4, 5]);
            let out = eval(code, &[x.clone(), i32s(&[2, 2], &[2, -1, 0, 7])], axis(1));
            assert_eq!(out, [i32s(&[2, 2], &[2, 0, 3, 5])]);
            let out = eval(code, &[x, i32s(&[1, 2], &[1, 1])], axis(0));
            assert_eq!(out, [i32s(&[1, 2, 3], &[3, 4, 5, 3, 4, 5])]);
        }
        OneHot => {
            let out = eval(code, &[i32s(&[3], &[1, 0, 9])], attrs([("n", Attr::Dim(Dim::from(3)))]));
            assert_eq!(out, [f64s(&[3, 3], &[0., 1., 0., 1., 0., 0., 0., 0., 1.])]);
        }
        ScatterAdd => {
            let x = f64s(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
            let index = i32s(&[2, 2], &[0, 0, 2, 1]);
            let out = eval(code, &[x, index, f64s(&[2, 2], &[10., 20., 30., 40.])], Attrs::new());
            assert_eq!(out, [f64s(&[2, 3], &[31., 2., 3., 4., 45., 36.])]);
        }
        Sort => {
            let x = f32s(&[2, 3], &[3.0, f32::NAN, -1.0, 2.0, 0.0, f32::INFINITY]);
            let want = f32s(&[2, 3], &[-1.0, 3.0, f32::NAN, 0.0, 2.0, f32::INFINITY]);
            assert_same(&eval(code, &[x], Attrs::new())[0], &want);
        }
        Sum => {
            reduced(code, [6.0, 15.0], [5.0, 7.0, 9.0]);
            let x = i32s(&[2], &[i32::MAX, 1]);
            assert_eq!(eval(code, &[x], reduce_at(0, false)), [i32s(&[], &[i32::MIN])]);
            // Held in f32, rounded once: 256 + 1 + 1 is 258; step by step in bf16 it would stay 256.
            let x = bf16s(&[3], &[256.0, 1.0, 1.0]);
            assert_eq!(eval(code, &[x], reduce_at(0, false)), [bf16s(&[], &[258.0])]);
        }
        Mean => reduced(code, [2.0, 5.0], [2.5, 3.5, 4.5]),
        ReduceMax => {
            reduced(code, [3.0, 6.0], [4.0, 5.0, 6.0]);
            let x = f32s(&[2, 2], &[1.0, f32::NAN, f32::NEG_INFINITY, -3.0]);
            assert_same(&eval(code, &[x], reduce_at(1, false))[0], &f32s(&[2], &[f32::NAN, -3.0]));
            assert_eq!(eval(code, &[f64s(&[0], &[])], reduce_at(0, false)), [f64s(&[], &[f64::NEG_INFINITY])]);
        }
        ReduceMin => {
            reduced(code, [1.0, 4.0], [1.0, 2.0, 3.0]);
            assert_eq!(eval(code, &[i32s(&[3], &[4, -2, 7])], reduce_at(0, true)), [i32s(&[1], &[-2])]);
        }
        Rms => {
            let out = eval(code, &[f64s(&[1, 2], &[1.0, 7.0])], reduce_at(-1, true));
            assert_eq!(out, [f64s(&[1, 1], &[5.0])]);
        }
        Norm2 => {
            let out = eval(code, &[f64s(&[1, 2], &[3.0, 4.0])], reduce_at(-1, false));
            assert_eq!(out, [f64s(&[1], &[5.0])]);
        }
        Cumsum => {
            let x = f64s(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
            assert_eq!(eval(code, std::slice::from_ref(&x), axis(1)), [f64s(&[2, 3], &[1., 3., 6., 4., 9., 15.])]);
            assert_eq!(eval(code, &[x], axis(0)), [f64s(&[2, 3], &[1., 2., 3., 5., 7., 9.])]);
        }
        Cumprod => {
            let x = f64s(&[3], &[2., 3., 4.]);
            assert_eq!(eval(code, &[x], axis(0)), [f64s(&[3], &[2., 6., 24.])]);
            let x = bools(&[4], &[true, true, false, true]);
            assert_eq!(eval(code, &[x], axis(0)), [bools(&[4], &[true, true, false, false])]);
        }
        Argmax => {
            let nan = f64::NAN;
            let x = f64s(&[5, 3], &[1., 3., 3., nan, 1., 0., nan, nan, nan, nan, f64::NEG_INFINITY, nan, 2., 1., nan]);
            assert_eq!(eval(code, &[x], axis(-1)), [i32s(&[5], &[1, 1, 0, 1, 0])]);
            assert_eq!(eval(code, &[i32s(&[2, 2], &[1, 5, 2, 4])], axis(0)), [i32s(&[2], &[1, 0])]);
        }
        TopK => {
            let x = f32s(&[2, 4], &[1.0, 3.0, 2.0, 3.0, f32::NAN, 0.0, -1.0, f32::NAN]);
            let out = eval(code, &[x], attrs([("k", Attr::Dim(Dim::from(3)))]));
            assert_same(&out[0], &f32s(&[2, 3], &[3.0, 3.0, 2.0, 0.0, -1.0, f32::NAN]));
            assert_eq!(out[1], i32s(&[2, 3], &[1, 3, 2, 1, 2, 0]));
        }
        Softmax => {
            let x = f64s(&[1, 3], &[0.0, 2f64.ln(), 5f64.ln()]);
            close(&eval(code, &[x], axis(-1))[0], &f64s(&[1, 3], &[0.125, 0.25, 0.625]));
            let x = f64s(&[2, 1], &[1000.0, 1000.0]);
            close(&eval(code, &[x], axis(0))[0], &f64s(&[2, 1], &[0.5, 0.5]));
        }
        Linear => linear(),
        Einsum => einsum(),
        RmsNorm => {
            let at = || attrs([("eps", Attr::Float(7.0))]);
            let x = f64s(&[1, 2], &[3.0, 9.0]);
            close(
                &eval(code, std::slice::from_ref(&x), at())[0],
                &f64s(&[1, 2], &[3.0 / 52f64.sqrt(), 9.0 / 52f64.sqrt()]),
            );
            let at = attrs([("eps", Attr::Float(4.0))]);
            let out = eval(code, &[x, f64s(&[2], &[2.0, -1.0])], at);
            close(&out[0], &f64s(&[1, 2], &[6.0 / 7.0, -9.0 / 7.0]));
        }
        L2Norm => {
            let out = eval(code, &[f64s(&[2], &[3.0, 4.0])], attrs([("eps", Attr::Float(11.0))]));
            close(&out[0], &f64s(&[2], &[0.5, 4.0 / 6.0]));
        }
        Rope => ropes(),
        Attention => {
            states();
            shared_heads();
        }
        KvWrite => states(),
        CausalConv => conv(),
        DeltaRule => {
            delta();
            shared_key_heads();
        }
        Coin => coins(),
        SamplingLaw => laws(),
        Draw => {
            let law = f64s(&[3, 3], &[1., 1., 2., 0., 1., 0., 0.25, 0.5, 0.25]);
            let out = eval(code, &[law, f64s(&[3], &[0.5, 0.0, 0.99])], Attrs::new());
            assert_eq!(out, [i32s(&[3], &[2, 1, 2])]);
        }
        QuantizeRows => {
            let out = eval(code, &[bf16s(&[2, 2], &[-448.0, 1.0, 0.0, 0.0])], Attrs::new());
            assert_eq!(out[0], u8s(DType::F8E4M3, &[2, 2], &[0xfe, 0x38, 0, 0]));
            assert_eq!(out[1], f32s(&[2], &[1.0, 1e-12f32 / 448.0]));
        }
    }
}

/// Equal, NaN equal to NaN and zeros equal in sign.
fn assert_same(a: &Tensor, b: &Tensor) {
    let bits = |t: &Tensor| t.to_f64().iter().map(|x| if x.is_nan() { 0 } else { x.to_bits() }).collect::<Vec<_>>();
    let nan = |t: &Tensor| t.to_f64().iter().map(|x| x.is_nan()).collect::<Vec<_>>();
    assert!(a.dtype == b.dtype && a.shape == b.shape && bits(a) == bits(b) && nan(a) == nan(b), "{a:?}\n{b:?}");
}

fn close(a: &Tensor, b: &Tensor) {
    assert_eq!((a.dtype, &a.shape), (b.dtype, &b.shape));
    let tolerance = if a.dtype == DType::F64 { 1e-14 } else { 1e-6 };
    for (x, y) in a.to_f64().iter().zip(b.to_f64()) {
        assert!((x - y).abs() <= tolerance * y.abs().max(1.0), "{a:?}\n{b:?}");
    }
}

/// The op in f64 and in f32; a bf16 operand gives f32.
fn unary(code: Opcode, cases: &[(f64, f64)]) {
    for (x, want) in cases {
        let fits = |got: f64, tolerance: f64| {
            let same = got == *want
                || (got.is_nan() && want.is_nan())
                || (got - want).abs() <= tolerance * want.abs().max(1.0);
            assert!(same, "{}({x}) = {got}, not {want}", code.name());
        };
        let out = eval(code, &[f64s(&[], &[*x])], Attrs::new());
        assert_eq!(out[0].dtype, DType::F64);
        fits(out[0].to_f64()[0], 1e-15);
        let out = eval(code, &[f32s(&[], &[*x as f32])], Attrs::new());
        assert_eq!(out[0].dtype, DType::F32);
        fits(out[0].to_f64()[0], 3e-7);
    }
    let out = eval(code, &[bf16s(&[], &[0.5])], Attrs::new());
    assert_eq!(out[0].dtype, DType::F32);
}

fn integer(code: Opcode, cases: &[(i32, i32, i32)]) {
    for (a, b, want) in cases {
        let out = eval(code, &[i32s(&[], &[*a]), i32s(&[], &[*b])], Attrs::new());
        assert_eq!(out, [i32s(&[], &[*want])], "{}({a}, {b})", code.name());
    }
}

/// Broadcast floats, promotion and integers.
fn arithmetic(code: Opcode, f: impl Fn(f64, f64) -> f64, cases: &[(i32, i32, i32)]) {
    let (a, b) = ([1.5, -2.0], [0.5, 4.0, -3.0]);
    let want: Vec<f64> = a.iter().flat_map(|x| b.iter().map(|y| f(*x, *y)).collect::<Vec<_>>()).collect();
    let out = eval(code, &[f64s(&[2, 1], &a), f64s(&[3], &b)], Attrs::new());
    assert_eq!(out, [f64s(&[2, 3], &want)], "{}", code.name());
    let narrow = |v: &[f64]| v.iter().map(|x| *x as f32).collect::<Vec<f32>>();
    let out = eval(code, &[bf16s(&[2, 1], &narrow(&a)), bf16s(&[3], &narrow(&b))], Attrs::new());
    assert_eq!(out, [f32s(&[2, 3], &narrow(&want))], "{}", code.name());
    let out = eval(code, &[i32s(&[1], &[7]), f32s(&[1], &[2.5])], Attrs::new());
    assert_eq!(out, [f32s(&[1], &[f(7.0, 2.5) as f32])], "{}", code.name());
    integer(code, cases);
}

fn nan_wins(code: Opcode) {
    let nan = f32::NAN;
    let out = eval(code, &[f32s(&[3], &[nan, 1.0, nan]), f32s(&[3], &[1.0, nan, nan])], Attrs::new());
    assert_same(&out[0], &f32s(&[3], &[nan; 3]));
}

/// `want` of (1, 2), (2, 2), (3, 2) and (NaN, 2); `truth` of (false, true) and (true, true) where truth values compare.
fn compare(code: Opcode, want: [bool; 4], truth: [bool; 2]) {
    let a = f32s(&[4], &[1.0, 2.0, 3.0, f32::NAN]);
    let out = eval(code, &[a, f32s(&[], &[2.0])], Attrs::new());
    assert_eq!(out, [bools(&[4], &want)], "{}", code.name());
    // Integers compare exactly: as f32 these two would be equal.
    let out = eval(code, &[i32s(&[], &[16777216]), i32s(&[], &[16777217])], Attrs::new());
    assert_eq!(out, [bools(&[], &[want[0]])], "{}", code.name());
    if matches!(code, Opcode::Eq | Opcode::Ne) {
        let out = eval(code, &[bools(&[2], &[false, true]), bools(&[1], &[true])], Attrs::new());
        assert_eq!(out, [bools(&[2], &truth)], "{}", code.name());
    }
}

fn logic(code: Opcode, want: [bool; 4]) {
    let (a, b) = (bools(&[2, 1], &[true, false]), bools(&[2], &[true, false]));
    assert_eq!(eval(code, &[a, b], Attrs::new()), [bools(&[2, 2], &want)]);
}

fn reduce_at(a: i64, keep: bool) -> Attrs {
    attrs([("axis", Attr::Int(a)), ("keep", Attr::Bool(keep))])
}

/// Over rows and over columns of [[1, 2, 3], [4, 5, 6]].
fn reduced(code: Opcode, rows: [f64; 2], columns: [f64; 3]) {
    let x = f64s(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
    assert_eq!(eval(code, std::slice::from_ref(&x), reduce_at(-1, true)), [f64s(&[2, 1], &rows)]);
    assert_eq!(eval(code, &[x], reduce_at(0, false)), [f64s(&[3], &columns)]);
}

fn constants() {
    let mut g = Graph::default();
    let above = 1.0 + 2f64.powi(-8) + 2f64.powi(-50);
    for (value, dtype) in [(above, DType::BF16), (above, DType::F64), (-3.7, DType::I32), (2.0, DType::Bool)] {
        let v = g.constant(value, dtype);
        g.output(v);
    }
    let want = [bf16s(&[], &[1.0078125]), f64s(&[], &[above]), i32s(&[], &[-3]), bools(&[], &[true])];
    assert_eq!(g.run(&[]).unwrap(), want);
}

fn dim_values() {
    let mut g = Graph::default();
    g.input("x", ty(DType::F32, "N"));
    let d = dim("N").mul(&Dim::from(2)).and_then(|d| d.add(&Dim::from(1))).unwrap();
    let v = g.op(Opcode::DimValue, &[], attrs([("value", Attr::Dim(d))]));
    g.output(v);
    assert_eq!(g.run(&[f32s(&[3], &[0.0; 3])]).unwrap(), [i32s(&[], &[7])]);
}

fn weights() {
    let mut g = Graph::default();
    let i = g.constant(1.0, DType::I32);
    let v = g.weight("layers.{l}.w", ty(DType::BF16, "2"), &[("l", 2)], &[i]);
    g.output(v);
    g.weights.0.insert((0, vec![1]), bf16s(&[2], &[3.0, 4.0]));
    assert_eq!(g.run(&[]).unwrap(), [bf16s(&[2], &[3.0, 4.0])]);
}

fn loops() {
    let mut g = Graph::default();
    let zero = g.constant(0.0, DType::I32);
    let keeps = vec![Keep { axis: 0, at: None }, Keep { axis: 0, at: Some(vec![1, 3]) }];
    let out = g.repeat("walk", Dim::from(4), &[zero], keeps, |g, i, c| {
        let next = g.op(Opcode::Add, &[c[0], i], Attrs::new());
        (vec![next], vec![next, i])
    });
    out.into_iter().for_each(|v| g.output(v));
    assert_eq!(g.run(&[]).unwrap(), [i32s(&[], &[6]), i32s(&[4], &[0, 1, 3, 6]), i32s(&[2], &[1, 3])]);
}

fn case_regions() {
    for (index, want) in [(0, 10.0), (1, 20.0), (2, 10.0)] {
        let mut g = Graph::default();
        let i = g.constant(f64::from(index), DType::I32);
        let v = g.cases(i, &[0, 1, 0], &[&|g| g.constant(10.0, DType::F64), &|g| g.constant(20.0, DType::F64)]);
        g.output(v);
        assert_eq!(g.run(&[]).unwrap(), [f64s(&[], &[want])]);
    }
}

/// The names of values that were computed.
#[derive(Default)]
struct Seen(Vec<String>);

impl Observer for Seen {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn value(&mut self, path: &str, _: &Tensor) {
        self.0.push(path.into());
    }
}

/// The region runs only where it is needed, and only its chosen elements count.
fn guards() {
    let mut g = Graph::default();
    let (ok, x) = (g.input("ok", ty(DType::Bool, "N")), g.input("x", ty(DType::F32, "N")));
    let v = g.guarded(ok, x, |g| {
        let slow = g.op(Opcode::Neg, &[x], Attrs::new());
        g.name(slow, "slow");
        slow
    });
    g.output(v);
    let x = f32s(&[3], &[1., 2., f32::NAN]);
    for (ok, want, ran) in [
        ([true, false, true], [1., -2., f32::NAN], 1),
        ([false, false, false], [-1., -2., f32::NAN], 1),
        ([true, true, true], [1., 2., f32::NAN], 0),
    ] {
        let mut seen = Seen::default();
        let inputs = [bools(&[3], &ok), x.clone()];
        let out = run(&g.module, &g.func, &inputs, &g.weights, &mut [], Mode::Immediate, &mut seen).unwrap();
        assert_same(&out[0], &f32s(&[3], &want));
        assert_eq!(seen.0.len(), ran);
    }
    let out = g.run(&[bools(&[0], &[]), f32s(&[0], &[])]).unwrap();
    assert_eq!(out, [f32s(&[0], &[])]);
}

fn casts() {
    let to = |t: Tensor, d| eval(Opcode::Cast, &[t], attrs([("dtype", Attr::DType(d))])).remove(0);
    assert_eq!(to(f32s(&[2], &[1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0]), DType::BF16), bf16s(&[2], &[1.0, 1.015625]));
    assert_eq!(to(f32s(&[3], &[2.9, -2.9, f32::NAN]), DType::I32), i32s(&[3], &[2, -2, 0]));
    assert_eq!(to(f32s(&[2], &[0.0, -0.5]), DType::Bool), bools(&[2], &[false, true]));
    assert_eq!(to(bools(&[2], &[false, true]), DType::F64), f64s(&[2], &[0.0, 1.0]));
    let half = to(f64s(&[1], &[65520.0]), DType::F16);
    assert_eq!(half.data, Data::F32(vec![f32::INFINITY]));
    assert_eq!(
        to(u8s(DType::F8E4M3, &[3], &[0x01, 0x38, 0xfe]), DType::F64),
        f64s(&[3], &[2f64.powi(-9), 1.0, -448.0])
    );
}

fn wheres() {
    let cond = bools(&[2, 1], &[true, false]);
    let out = eval(Opcode::Where, &[cond, f32s(&[2], &[1.0, 2.0]), f32s(&[], &[f32::NAN])], Attrs::new());
    assert_same(&out[0], &f32s(&[2, 2], &[1.0, 2.0, f32::NAN, f32::NAN]));
    let cond = bools(&[], &[true]);
    let out = eval(Opcode::Where, &[cond, bf16s(&[1], &[1.5]), i32s(&[1], &[7])], Attrs::new());
    assert_eq!(out, [f32s(&[1], &[1.5])]);
}

fn linear() {
    let acc = |d| attrs([("acc", Attr::DType(d))]);
    let x = f64s(&[1, 2, 2], &[1., 2., 3., 4.]);
    let w = f64s(&[3, 2], &[1., 0., 0., 1., 2., -1.]);
    let out = eval(Opcode::Linear, &[x, w], acc(DType::F32));
    assert_eq!(out, [f64s(&[1, 2, 3], &[1., 2., 0., 3., 4., 2.])]);
    // 256 + 1 + 1 rounded once to bf16.
    let out = eval(Opcode::Linear, &[bf16s(&[1, 3], &[256., 1., 1.]), bf16s(&[1, 3], &[1.; 3])], acc(DType::F32));
    assert_eq!(out, [bf16s(&[1, 1], &[258.0])]);
    // 2^24 + 1 - 2^24 is 1 in f64 and 0 in f32.
    let big = || [f32s(&[3], &[16777216.0, 1.0, -16777216.0]), f32s(&[1, 3], &[1.0; 3])];
    assert_eq!(eval(Opcode::Linear, &big(), acc(DType::F64)), [f32s(&[1], &[1.0])]);
    assert_eq!(eval(Opcode::Linear, &big(), acc(DType::F32)), [f32s(&[1], &[0.0])]);
    let w = u8s(DType::F8E4M3, &[2, 2], &[0x38, 0x40, 0xc1, 0x01]);
    let out = eval(Opcode::Linear, &[bf16s(&[2], &[1.0, 8.0]), w], acc(DType::F32));
    assert_eq!(out, [f32s(&[2], &[17.0, -2.25 + 0.015625])]);
    let out = eval(Opcode::Linear, &[f64s(&[2, 0], &[]), f64s(&[1, 0], &[])], acc(DType::F32));
    assert_eq!(out, [f64s(&[2, 1], &[0.0; 2])]);
}

fn einsum() {
    let at = |s: &str| attrs([("spec", Attr::Str(s.into())), ("acc", Attr::DType(DType::F32))]);
    let a = f64s(&[2, 2], &[1., 2., 3., 4.]);
    let b = f64s(&[2, 2], &[5., 6., 7., 8.]);
    let ev = |s: &str, t: &[Tensor]| eval(Opcode::Einsum, t, at(s)).remove(0);
    assert_eq!(ev("i k, k j -> i j", &[a.clone(), b.clone()]), f64s(&[2, 2], &[19., 22., 43., 50.]));
    assert_eq!(ev("i j, i j ->", &[a.clone(), b.clone()]), f64s(&[], &[70.0]));
    assert_eq!(ev("i j -> j i", std::slice::from_ref(&a)), f64s(&[2, 2], &[1., 3., 2., 4.]));
    assert_eq!(ev("i j -> i", std::slice::from_ref(&a)), f64s(&[2], &[3., 7.]));
    assert_eq!(ev("n i, m j -> n m", &[a, b]), f64s(&[2, 2], &[33., 45., 77., 105.]));
    let codes = u8s(DType::F8E4M3, &[2], &[0x38, 0x40]);
    assert_eq!(ev("i, i ->", &[codes, bf16s(&[2], &[3.0, 5.0])]), f32s(&[], &[13.0]));
}

fn ropes() {
    let of = |base, width, held: &str| {
        attrs([("base", Attr::Float(base)), ("width", Attr::Int(width)), ("frequencies", Attr::Str(held.into()))])
    };
    let at = |width| of(16.0, width, "f64");
    let x = f64s(&[1, 1, 4], &[1., 2., 3., 4.]);
    // 10^(-1/2) is 0.31622..., of the bf16 numbers 0.31640625 is nearest.
    let out = eval(Opcode::Rope, &[x.clone(), i32s(&[1], &[7])], of(10.0, 0, "bf16"));
    let (c, s) = ((7.0 * 0.316_406_25_f64).cos(), (7.0 * 0.316_406_25_f64).sin());
    let (c0, s0) = (7f64.cos(), 7f64.sin());
    close(&out[0], &f64s(&[1, 1, 4], &[c0 - 3. * s0, 2. * c - 4. * s, 3. * c0 + s0, 4. * c + 2. * s]));
    // Frequencies 1 and 16^(-1/2) = 1/4.
    let turned = |p: f64| {
        let (c0, s0, c1, s1) = (p.cos(), p.sin(), (p / 4.0).cos(), (p / 4.0).sin());
        [c0 - 3. * s0, 2. * c1 - 4. * s1, 3. * c0 + s0, 4. * c1 + 2. * s1]
    };
    let out = eval(Opcode::Rope, &[x.clone(), i32s(&[1], &[5])], at(0));
    close(&out[0], &f64s(&[1, 1, 4], &turned(5.0)));
    let out = eval(Opcode::Rope, &[x.clone(), i32s(&[1], &[5])], at(2));
    let (c, s) = (5f64.cos(), 5f64.sin());
    close(&out[0], &f64s(&[1, 1, 4], &[c - 2. * s, 2. * c + s, 3., 4.]));
    // f32 far out: the angle keeps its digits.
    let x = f32s(&[1, 1, 4], &[1., 2., 3., 4.]);
    let far = eval(Opcode::Rope, &[x, i32s(&[1], &[100_003])], at(0));
    let want: Vec<f32> = turned(100_003.0).iter().map(|v| *v as f32).collect();
    close(&far[0], &f32s(&[1, 1, 4], &want));
}

/// Opening, writing, reading and closing a pool of one head of width 1.
fn states() {
    let mut g = Graph::default();
    let kv = g.state("kv", StateKind::KvPool { heads: dim("1"), width: dim("1") }, DType::BF16, &[]);
    let (q, k, v) = (
        g.input("q", ty(DType::F64, "N T 1 1")),
        g.input("k", ty(DType::F64, "N T 1 1")),
        g.input("v", ty(DType::F64, "N T 1 1")),
    );
    let at = g.input("at", ty(DType::I32, "N T"));
    let s = g.open(kv, None);
    let s = g.op(Opcode::KvWrite, &[s, k, v, at], Attrs::new());
    let window = attrs([("causal", Attr::Bool(true)), ("window", Attr::Int(0)), ("scale", Attr::Float(0.5))]);
    let o = g.op(Opcode::Attention, &[q, s, at], window);
    g.close(s);
    g.output(o);
    let mut request = [g.request()];
    let (k, v) = ([0.0, 2.0], [8.0, 16.0]);
    let inputs =
        [f64s(&[1, 2, 1, 1], &[3.0, 1.0]), f64s(&[1, 2, 1, 1], &k), f64s(&[1, 2, 1, 1], &v), i32s(&[1, 2], &[0, 1])];
    let out = g.run_with(&inputs, &mut request, Mode::Immediate).unwrap();
    let e = 1f64.exp();
    close(&out[0], &f64s(&[1, 2, 1, 1], &[8.0, (8.0 + 16.0 * e) / (1.0 + e)]));
    request[0].commit(2).unwrap();
    let export = request[0].export();
    assert_eq!(export[0], ("kv.0.k".into(), bf16s(&[2, 1, 1], &[0.0, 2.0])));
    assert_eq!(export[1], ("kv.0.v".into(), bf16s(&[2, 1, 1], &[8.0, 16.0])));
}

fn conv() {
    let mut g = Graph::default();
    let window = g.state("conv", StateKind::Window { channels: dim("2"), taps: dim("4") }, DType::F64, &[]);
    let (x, taps) = (g.input("x", ty(DType::F64, "N T 2")), g.input("taps", ty(DType::F64, "2 1 4")));
    let s = g.open(window, None);
    let out = g.ops(Opcode::CausalConv, &[s, x, taps], Attrs::new());
    g.close(out[1]);
    g.output(out[0]);
    let mut request = [g.request()];
    let x = f64s(&[1, 4, 2], &[1., 10., 2., 20., 3., 30., 4., 40.]);
    let taps = f64s(&[2, 1, 4], &[1000., 100., 10., 1., 3., 0., 1., 2.]);
    let out = g.run_with(&[x, taps], &mut request, Mode::Immediate).unwrap();
    assert_eq!(out, [f64s(&[1, 4, 2], &[1., 20., 12., 50., 123., 80., 1234., 140.])]);
    assert_eq!(request[0].export(), [("conv.0".to_string(), f64s(&[2, 3], &[2., 3., 4., 20., 30., 40.]))]);
}

fn delta() {
    let mut g = Graph::default();
    let shape = dims("2 2 1");
    let state = g.state("delta", StateKind::Recurrent { shape }, DType::F64, &[]);
    let mut input = |name, d| g.input(name, ty(DType::F64, d));
    let ops =
        [input("q", "N T 1 2"), input("k", "N T 1 2"), input("v", "N T 2 1"), input("a", "N T 2"), input("b", "N T 2")];
    let s = g.open(state, None);
    let out = g.ops(Opcode::DeltaRule, &[&[s], &ops[..]].concat(), Attrs::new());
    g.close(out[1]);
    g.output(out[0]);
    let mut request = [g.request()];
    let half = 0.5f64.ln();
    let inputs = [
        f64s(&[1, 2, 1, 2], &[1., 0., 1., 1.]),
        f64s(&[1, 2, 1, 2], &[1., 2., 1., 0.]),
        f64s(&[1, 2, 2, 1], &[4., 8., 2., 0.]),
        f64s(&[1, 2, 2], &[0., 0., half, half]),
        f64s(&[1, 2, 2], &[0.5, 1., 1., 0.5]),
    ];
    let out = g.run_with(&inputs, &mut request, Mode::Immediate).unwrap();
    // Head 0: d = 2, S = (2, 4), o = 2; then S = (1, 2), d = 2 - 1 = 1, S = (2, 2), o = 4.
    // Head 1: d = 8, S = (8, 16), o = 8; then S = (4, 8), d = -2, S = (2, 8), o = 10.
    close(&out[0], &f64s(&[1, 2, 2, 1], &[2., 8., 4., 10.]));
    close(&request[0].export()[0].1, &f64s(&[2, 2, 1], &[2., 2., 2., 8.]));
}

/// Query heads 0 and 1 read key/value head 0, heads 2 and 3 head 1.
fn shared_heads() {
    let mut g = Graph::default();
    let kv = g.state("kv", StateKind::KvPool { heads: dim("2"), width: dim("1") }, DType::F64, &[]);
    let (q, x) = (g.input("q", ty(DType::F64, "N T 4 1")), g.input("x", ty(DType::F64, "N T 2 1")));
    let at = g.input("at", ty(DType::I32, "N T"));
    let s = g.open(kv, None);
    let s = g.op(Opcode::KvWrite, &[s, x, x, at], Attrs::new());
    let how = attrs([("causal", Attr::Bool(true)), ("window", Attr::Int(0)), ("scale", Attr::Float(1.0))]);
    let o = g.op(Opcode::Attention, &[q, s, at], how);
    g.close(s);
    g.output(o);
    let inputs = [f64s(&[1, 1, 4, 1], &[1.0; 4]), f64s(&[1, 1, 2, 1], &[5.0, 7.0]), i32s(&[1, 1], &[0])];
    let out = g.run_with(&inputs, &mut [g.request()], Mode::Immediate).unwrap();
    assert_eq!(out, [f64s(&[1, 1, 4, 1], &[5.0, 5.0, 7.0, 7.0])]);
}

/// Value heads 0 and 1 use key head 0, heads 2 and 3 head 1. From zero, o = (q k) beta v.
fn shared_key_heads() {
    let mut g = Graph::default();
    let state = g.state("delta", StateKind::Recurrent { shape: dims("4 1 1") }, DType::F32, &[]);
    let mut input = |name, d| g.input(name, ty(DType::BF16, d));
    let ops =
        [input("q", "N T 2 1"), input("k", "N T 2 1"), input("v", "N T 4 1"), input("a", "N T 4"), input("b", "N T 4")];
    let s = g.open(state, None);
    let out = g.ops(Opcode::DeltaRule, &[&[s], &ops[..]].concat(), Attrs::new());
    g.close(out[1]);
    g.output(out[0]);
    let inputs = [
        bf16s(&[1, 1, 2, 1], &[1., 2.]),
        bf16s(&[1, 1, 2, 1], &[3., 5.]),
        bf16s(&[1, 1, 4, 1], &[1., 2., 3., 4.]),
        bf16s(&[1, 1, 4], &[-1.; 4]),
        bf16s(&[1, 1, 4], &[1.; 4]),
    ];
    let out = g.run_with(&inputs, &mut [g.request()], Mode::Immediate).unwrap();
    assert_eq!(out, [f32s(&[1, 1, 4, 1], &[3., 6., 30., 40.])]);
}

fn coins() {
    let purpose = |p| attrs([("purpose", Attr::Int(p))]);
    // The published answer for key 0 and counter 0 begins with 6627e8d5.
    let zero = [i32s(&[1, 2], &[0, 0]), i32s(&[1, 1], &[0]), i32s(&[1], &[0])];
    assert_eq!(eval(Opcode::Coin, &zero, purpose(0)), [f64s(&[1, 1], &[f64::from(0x6627e8) / 16777216.0])]);
    let seed = i32s(&[2, 2], &[1, -1, 5, 6]);
    let out = eval(Opcode::Coin, &[seed, i32s(&[2, 2], &[3, -2, 3, 4]), i32s(&[2], &[9, 8])], purpose(2));
    let coin = spinec_ir::interp::coin;
    let want = [
        coin([1, u32::MAX], 3, 2, 9),
        coin([1, u32::MAX], u32::MAX - 1, 2, 9),
        coin([5, 6], 3, 2, 8),
        coin([5, 6], 4, 2, 8),
    ];
    assert_eq!(out, [f64s(&[2, 2], &want)]);
}

fn laws() {
    let ln = |p: f32| p.ln();
    let logits = f32s(&[2, 1, 3], &[ln(1.0), ln(2.0), ln(1.0), 5.0, 5.0, 5.0]);
    let (t, k, p) = (f64s(&[2], &[0.5, 1.0]), i32s(&[2], &[0, 2]), f64s(&[2], &[0.5, 1.0]));
    let out = eval(Opcode::SamplingLaw, &[logits, t, k, p], Attrs::new());
    // Squared: 1/6, 4/6, 1/6, of which only the largest has no more than half before it.
    close(&out[0], &f64s(&[2, 1, 3], &[0., 1., 0., 0.5, 0.5, 0.]));
}
