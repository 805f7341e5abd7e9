//! Elementwise operations, reductions and norms against std and f64, and their bits over positions and paths.

mod kernels_common;

use kernels_common::*;
use spinec_exec::kernels::rowwise::*;
use spinec_exec::kernels::simd::Real;

const UNARY: [Unary; 9] = [
    Unary::Neg,
    Unary::Abs,
    Unary::Square,
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Exp,
    Unary::Sigmoid,
    Unary::Silu,
    Unary::Softplus,
];

fn statement(op: Unary, x: f64) -> f64 {
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Square => x * x,
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Exp => x.exp(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Softplus => {
            if x > 20.0 {
                x
            } else {
                x.exp().ln_1p()
            }
        }
    }
}

fn apply<T: Real>(op: Unary, x: &[T]) -> Vec<T> {
    let mut y = vec![T::ZERO; x.len()];
    unary(op, x, &mut y);
    y
}

#[test]
fn exp_is_within_two_units_in_the_last_place() {
    // Every 1009th f32 whose exponential is finite and normal, both signs; then the subnormal results.
    let mut worst = 0.0_f64;
    let check = |bits: u32| {
        let x = f32::from_bits(bits);
        let want = f64::from(x).exp();
        let got = f64::from(apply(Unary::Exp, &[x])[0]);
        let unit = f64::from((want as f32).next_up() - want as f32);
        (got - want).abs() / unit
    };
    for bits in (0..88.7_f32.to_bits()).step_by(1009) {
        worst = worst.max(check(bits)).max(check(bits | 1 << 31));
    }
    for bits in (87.0_f32.to_bits()..104.0_f32.to_bits()).step_by(97) {
        worst = worst.max(check(bits | 1 << 31));
    }
    println!("{worst} units in the last place");
    assert!(worst <= 2.0, "{worst} units");
}

#[test]
fn exp_at_the_edges() {
    for (path, y) in on_every_path(|| {
        apply(
            Unary::Exp,
            &[0.0, -0.0, f32::NEG_INFINITY, f32::INFINITY, 89.0, 1e30, -104.0, -200.0, f32::NAN, 88.72283, f32::MIN],
        )
    }) {
        assert_eq!(y[..8], [1.0, 1.0, 0.0, f32::INFINITY, f32::INFINITY, f32::INFINITY, 0.0, 0.0], "{path:?}");
        assert!(y[8].is_nan() && y[9].is_finite() && y[10] == 0.0, "{path:?}");
    }
}

#[test]
fn functions_of_one_element_are_close() {
    let x: Vec<f32> = numbers::<f32>(1000, 1).into_iter().map(|x| x * 30.0).collect();
    for op in UNARY {
        let positive = matches!(op, Unary::Sqrt | Unary::Rsqrt);
        let x: Vec<f32> = if positive { x.iter().map(|x| x.abs() + 1e-3).collect() } else { x.clone() };
        let x64: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        for (i, x) in x.iter().enumerate() {
            let want = [statement(op, f64::from(*x))];
            assert_close(&apply(op, &[*x]), &want, 1e-6);
            assert_close(&apply(op, &x64[i..=i]), &want, 1e-15);
        }
    }
}

#[test]
fn an_element_has_the_same_bits_wherever_it_stands() {
    let x: Vec<f32> = numbers::<f32>(70, 2).into_iter().map(|x| x * 20.0).chain([0.0, -0.0, 1e-40, -1e-40]).collect();
    for op in UNARY {
        let base: Vec<f32> = x.iter().map(|x| apply(op, &[*x])[0]).collect();
        for (path, ()) in on_every_path(|| {
            for from in 0..20 {
                let what = format!("{op:?} from {from}");
                let y = apply(op, &x[from..]);
                let same = |a: &f32, b: &f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                assert!(y.iter().zip(&base[from..]).all(|(a, b)| same(a, b)), "{what}");
                let mut in_place = x[from..].to_vec();
                unary_in_place(op, &mut in_place);
                assert!(in_place.iter().zip(&y).all(|(a, b)| same(a, b)), "{what} in place");
            }
        }) {
            println!("{path:?} agrees");
        }
    }
}

#[test]
fn operands_repeat_over_rows_and_columns() {
    let (rows, width) = (5, 19);
    let full = numbers::<f32>(rows * width, 1);
    let other = numbers::<f32>(rows * width, 2);
    let row = numbers::<f32>(width, 3);
    let per_row = numbers::<f32>(rows, 4);
    let value = |o: &Operand<'_, f32>, r: usize, c: usize| match o {
        Operand::Full(x) => x[r * width + c],
        Operand::Row(x) => x[c],
        Operand::PerRow(x) => x[r],
        Operand::Scalar(x) => *x,
    };
    let operands = [Operand::Full(&other), Operand::Row(&row), Operand::PerRow(&per_row), Operand::Scalar(0.7)];
    for op in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min] {
        for b in operands {
            for (a, b) in [(Operand::Full(&full), b), (b, Operand::Full(&full))] {
                let mut y = vec![0.0; rows * width];
                binary(op, a, b, width, &mut y);
                for (at, y) in y.iter().enumerate() {
                    let (a, b) = (value(&a, at / width, at % width), value(&b, at / width, at % width));
                    let want = match op {
                        Binary::Add => a + b,
                        Binary::Sub => a - b,
                        Binary::Mul => a * b,
                        Binary::Div => a / b,
                        Binary::Max => a.max(b),
                        Binary::Min => a.min(b),
                    };
                    assert_eq!(*y, want, "{op:?}");
                }
            }
        }
    }
}

#[test]
fn rows_reduce_alone() {
    for width in [1, 7, 16, 33, 192, 1000] {
        let rows = 6;
        let x = numbers::<f32>(rows * width, width as u64);
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let reduced = |op, x: &[f32]| {
            let mut y = vec![0.0; x.len() / width];
            reduce(op, x, width, &mut y);
            y
        };
        for op in [Reduction::Sum, Reduction::SumSquares, Reduction::MeanSquare, Reduction::Max] {
            let base: Vec<f32> = x.chunks(width).flat_map(|row| reduced(op, row)).collect();
            let want: Vec<f64> = wide
                .chunks(width)
                .map(|row| match op {
                    Reduction::Sum => row.iter().sum(),
                    Reduction::SumSquares => row.iter().map(|x| x * x).sum(),
                    Reduction::MeanSquare => row.iter().map(|x| x * x).sum::<f64>() / width as f64,
                    Reduction::Max => row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                })
                .collect();
            let scale = wide.iter().map(|x| x.abs()).sum::<f64>();
            for (b, w) in base.iter().zip(&want) {
                assert!((f64::from(*b) - w).abs() <= 1e-6 * scale, "{op:?} {width}");
            }
            for (path, y) in on_every_path(|| reduced(op, &x)) {
                assert_bits(&y, &base, &format!("{op:?} {width} {path:?}"));
            }
        }
    }
}

#[test]
fn a_nan_shows_in_the_greatest_element_and_an_infinity_does_not_hide_it() {
    for width in [3, 40] {
        let mut x = vec![1.0_f32; width];
        x[width - 1] = f32::INFINITY;
        let mut y = [0.0];
        reduce(Reduction::Max, &x, width, &mut y);
        assert_eq!(y, [f32::INFINITY]);
        x[1] = f32::NAN;
        reduce(Reduction::Max, &x, width, &mut y);
        assert!(y[0].is_nan());
        reduce(Reduction::Max, &vec![f32::NEG_INFINITY; width], width, &mut y);
        assert_eq!(y, [f32::NEG_INFINITY]);
    }
}

#[test]
fn norms_are_close_and_keep_their_bits() {
    for width in [1, 5, 32, 192, 300] {
        let rows = 4;
        let x = numbers::<f32>(rows * width, 1);
        let w = numbers::<f32>(width, 2);
        let wide: Vec<Vec<f64>> = x.chunks(width).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect();
        let square = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>();
        type Norm<'a> = (&'a dyn Fn(&[f32], &mut [f32]), Vec<f64>);
        let norms: [Norm<'_>; 3] = [
            (
                &|x, y| rms_norm(x, &w, 1e-6, y),
                wide.iter()
                    .flat_map(|row| {
                        let r = (square(row) / width as f64 + 1e-6).sqrt();
                        row.iter().zip(&w).map(move |(x, w)| x / r * f64::from(*w))
                    })
                    .collect(),
            ),
            (
                &|x, y| l2_normalise(x, width, 1e-6, 0.25, y),
                wide.iter()
                    .flat_map(|row| {
                        let r = (square(row) + 1e-6).sqrt();
                        row.iter().map(move |x| x / r * 0.25)
                    })
                    .collect(),
            ),
            (
                &|x, y| softmax(x, width, y),
                wide.iter()
                    .flat_map(|row| {
                        let total: f64 = row.iter().map(|x| x.exp()).sum();
                        row.iter().map(move |x| x.exp() / total)
                    })
                    .collect(),
            ),
        ];
        for (norm, want) in norms {
            let mut base = vec![0.0; x.len()];
            for (x, y) in x.chunks(width).zip(base.chunks_mut(width)) {
                norm(x, y);
            }
            assert_close(&base, &want, 1e-6);
            for (path, y) in on_every_path(|| {
                let mut y = vec![0.0; x.len()];
                norm(&x, &mut y);
                y
            }) {
                assert_bits(&y, &base, &format!("{width} {path:?}"));
            }
        }
    }
}

#[test]
fn rotation_turns_half_split_pairs() {
    let (heads, width, rotary) = (3, 20, 8);
    let positions = [0, 1, 7, 250_000];
    let x = numbers::<f64>(positions.len() * heads * width, 1);
    let angles = |positions: &[i32]| -> Vec<f64> {
        let pairs =
            |p: &i32| (0..rotary / 2).map(|i| f64::from(*p) * 1e7_f64.powf(-2.0 * i as f64 / rotary as f64)).collect();
        positions.iter().flat_map(|p| -> Vec<f64> { pairs(p) }).collect()
    };
    let (cos, sin): (Vec<f64>, Vec<f64>) = angles(&positions).iter().map(|a| (a.cos(), a.sin())).unzip();
    let mut y = vec![0.0; x.len()];
    rotate(&x, &cos, &sin, heads, width, rotary / 2, &mut y);
    for (at, y) in y.iter().enumerate() {
        let (row, i) = (at / (heads * width), at % width);
        let pair = i % (rotary / 2);
        let angle = f64::from(positions[row]) * 1e7_f64.powf(-2.0 * pair as f64 / rotary as f64);
        let want = if i < rotary / 2 {
            x[at] * angle.cos() - x[at + rotary / 2] * angle.sin()
        } else if i < rotary {
            x[at] * angle.cos() + x[at - rotary / 2] * angle.sin()
        } else {
            x[at]
        };
        assert!((y - want).abs() < 1e-12);
    }
    let narrow: Vec<f32> = x.iter().map(|x| *x as f32).collect();
    let (cos, sin): (Vec<f32>, Vec<f32>) = cos.iter().zip(&sin).map(|(c, s)| (*c as f32, *s as f32)).unzip();
    let mut whole = vec![0.0; narrow.len()];
    rotate(&narrow, &cos, &sin, heads, width, rotary / 2, &mut whole);
    for row in 0..positions.len() {
        let part = row * heads * width..(row + 1) * heads * width;
        let turns = row * rotary / 2..(row + 1) * rotary / 2;
        let mut alone = vec![0.0; heads * width];
        rotate(&narrow[part.clone()], &cos[turns.clone()], &sin[turns], heads, width, rotary / 2, &mut alone);
        assert_bits(&alone, &whole[part], "row alone");
    }
}

#[test]
fn rows_are_copied_and_sums_run_in_order() {
    let table = bf16(&numbers::<f32>(40, 1));
    let (mut a, mut b) = (vec![0.0_f32; 15], vec![0.0_f32; 15]);
    gather_rows_bf16(&table, 5, &[7, 0, 7], &mut a);
    gather_rows(&widen(&table), 5, &[7, 0, 7], &mut b);
    assert_eq!(a, b);
    assert_eq!(a[..5], widen(&table[35..40])[..]);
    let mut y = [0.0_f32; 6];
    cumsum(&[1e8, 1.0, -1e8, 3.0, 4.0, 5.0], 3, &mut y);
    assert_eq!(y, [1e8, 1e8, 0.0, 3.0, 7.0, 12.0]);
}

#[test]
fn gated_units_multiply() {
    let (gate, up) = (numbers::<f32>(50, 1), numbers::<f32>(50, 2));
    let mut y = vec![0.0; 50];
    silu_mul(&gate, &up, &mut y);
    let silu = apply(Unary::Silu, &gate);
    let want: Vec<f32> = silu.iter().zip(&up).map(|(s, u)| s * u).collect();
    assert_bits(&y, &want, "silu times up");
}
