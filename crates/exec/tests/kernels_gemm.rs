//! Packed linear maps against their plain statement, and their bits over row counts, threads and instruction sets.

mod kernels_common;

use kernels_common::*;
use spinec_exec::kernels::gemm::{PackedB, linear};
use spinec_exec::kernels::simd::Real;
use spinec_exec::threads::Pool;

/// The law, literally.
fn plain<T: Real>(x: &[T], w: &[T], rows: usize, inputs: usize, outputs: usize) -> Vec<T> {
    let mut y = Vec::with_capacity(rows * outputs);
    for n in 0..rows {
        for o in 0..outputs {
            let mut sum = T::ZERO;
            for k in 0..inputs {
                sum = x[n * inputs + k].fma(w[o * inputs + k], sum);
            }
            y.push(sum);
        }
    }
    y
}

fn run<T: Real>(pool: &Pool, x: &[T], rows: usize, w: &PackedB<T>) -> Vec<T> {
    let mut y = vec![T::from_f64(f64::NAN); rows * w.outputs()];
    linear(pool, x, w.inputs(), rows, w, &mut y, w.outputs());
    y
}

const SHAPES: [(usize, usize); 11] =
    [(1, 1), (3, 6), (7, 17), (32, 64), (33, 65), (192, 512), (64, 200), (300, 129), (129, 48), (513, 100), (1000, 30)];

#[test]
fn equals_the_sequential_sum_bit_for_bit() {
    let pool = Pool::new(2);
    for (inputs, outputs) in SHAPES {
        for rows in [1, 2, 5, 6, 7, 16, 17, 101] {
            let x = numbers::<f32>(rows * inputs, 1);
            let bits = bf16(&numbers::<f32>(outputs * inputs, 2));
            let w = widen(&bits);
            let want = plain(&x, &w, rows, inputs, outputs);
            let what = format!("{rows} x {inputs} x {outputs}");
            assert_bits(&run(&pool, &x, rows, &PackedB::new(&pool, &w, outputs, inputs)), &want, &what);
            assert_bits(&run(&pool, &x, rows, &PackedB::from_bf16(&pool, &bits, outputs, inputs)), &want, &what);
        }
    }
}

#[test]
fn f64_equals_the_sequential_sum_bit_for_bit() {
    let pool = Pool::new(2);
    for (inputs, outputs) in SHAPES {
        for rows in [1, 4, 16] {
            let (x, w) = (numbers::<f64>(rows * inputs, 1), numbers::<f64>(outputs * inputs, 2));
            let want = plain(&x, &w, rows, inputs, outputs);
            assert_bits(&run(&pool, &x, rows, &PackedB::new(&pool, &w, outputs, inputs)), &want, "f64");
        }
    }
}

#[test]
fn close_to_f64() {
    let pool = Pool::new(1);
    let (inputs, outputs, rows) = (700, 90, 5);
    let (x, w) = (numbers::<f32>(rows * inputs, 3), numbers::<f32>(outputs * inputs, 4));
    let wide = |v: &[f32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    let want = plain(&wide(&x), &wide(&w), rows, inputs, outputs);
    assert_close(&run(&pool, &x, rows, &PackedB::new(&pool, &w, outputs, inputs)), &want, 1e-5);
}

#[test]
fn bits_do_not_depend_on_rows_threads_or_instructions() {
    let (inputs, outputs, rows) = (521, 1030, 100);
    let x = numbers::<f32>(rows * inputs, 5);
    let bits = bf16(&numbers::<f32>(outputs * inputs, 6));
    let pools = [1, 2, 3, 5].map(Pool::new);
    let w = PackedB::from_bf16(&pools[0], &bits, outputs, inputs);
    let alone: Vec<f32> = (0..rows).flat_map(|n| run(&pools[0], &x[n * inputs..][..inputs], 1, &w)).collect();
    for (path, ()) in on_every_path(|| {
        for pool in &pools {
            for count in [1, 3, 16, 100] {
                let y = run(pool, &x, count, &w);
                assert_bits(&y, &alone[..y.len()], &format!("{count} rows, {pool:?}"));
            }
        }
    }) {
        println!("{path:?} agrees");
    }
}

#[test]
fn strided_rows_and_foreign_columns_are_left_alone() {
    let pool = Pool::new(2);
    let (inputs, outputs, rows) = (40, 70, 9);
    let (x_stride, y_stride) = (inputs + 3, outputs + 5);
    let mut x = numbers::<f32>(rows * x_stride, 7);
    let w = numbers::<f32>(outputs * inputs, 8);
    let dense: Vec<f32> = x.chunks(x_stride).flat_map(|row| row[..inputs].to_vec()).collect();
    for row in x.chunks_mut(x_stride) {
        row[inputs..].fill(f32::NAN);
    }
    let mut y = vec![-7.0; rows * y_stride];
    linear(&pool, &x, x_stride, rows, &PackedB::new(&pool, &w, outputs, inputs), &mut y, y_stride);
    let want = plain(&dense, &w, rows, inputs, outputs);
    for (row, want) in y.chunks(y_stride).zip(want.chunks(outputs)) {
        assert_bits(&row[..outputs], want, "strided");
        assert!(row[outputs..].iter().all(|v| *v == -7.0));
    }
}

#[test]
fn a_row_of_nan_stays_in_its_row() {
    let pool = Pool::new(1);
    let (inputs, outputs) = (20, 33);
    let mut x = numbers::<f32>(16 * inputs, 9);
    let w = PackedB::new(&pool, &numbers::<f32>(outputs * inputs, 10), outputs, inputs);
    let clean = run(&pool, &x, 16, &w);
    x[3 * inputs..4 * inputs].fill(f32::NAN);
    let y = run(&pool, &x, 16, &w);
    assert!(y[3 * outputs..4 * outputs].iter().all(|v| v.is_nan()));
    assert_bits(&y[..3 * outputs], &clean[..3 * outputs], "before");
    assert_bits(&y[4 * outputs..], &clean[4 * outputs..], "after");
}

#[test]
fn packed_bf16_takes_two_bytes_a_weight() {
    let pool = Pool::new(1);
    assert_eq!(PackedB::<f32>::from_bf16(&pool, &vec![0; 192 * 512], 512, 192).bytes(), 2 * 192 * 512);
    assert_eq!(PackedB::new(&pool, &vec![0.0_f32; 192 * 512], 512, 192).bytes(), 4 * 192 * 512);
}

#[test]
fn a_weight_packed_by_pieces_is_the_weight_packed_at_once() {
    let pool = Pool::new(2);
    let (outputs, inputs, rows) = (150, 33, 3);
    let x = numbers::<f32>(rows * inputs, 21);
    let bits: Vec<u16> = numbers::<f32>(outputs * inputs, 22).iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    let w: Vec<f32> = bits.iter().map(|b| f32::from_bits(u32::from(*b) << 16)).collect();
    let want = run(&pool, &x, rows, &PackedB::new(&pool, &w, outputs, inputs));
    for step in [1, 7, 16, 64, 100] {
        let mut plain = PackedB::zeros(outputs, inputs);
        let mut halves = PackedB::zeros_bf16(outputs, inputs);
        for first in (0..outputs).step_by(step) {
            let part = first * inputs..(first + step).min(outputs) * inputs;
            plain.put(&pool, first, &w[part.clone()]);
            halves.put_bf16(&pool, first, &bits[part]);
        }
        assert_bits(&run(&pool, &x, rows, &plain), &want, &format!("{step} rows"));
        assert_bits(&run(&pool, &x, rows, &halves), &want, &format!("{step} rows of bf16"));
    }
}
