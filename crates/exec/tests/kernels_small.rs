//! Batched products and causal convolution against plain statements, and their bits over calls.

mod kernels_common;

use kernels_common::*;
use spinec_exec::kernels::bmm::{Matrices, Taken, bmm_nt, bmm_taken};
use spinec_exec::kernels::conv::{Taps, causal_conv, window_after};
use spinec_exec::kernels::simd::Real;
use spinec_exec::threads::Pool;

fn dots<T: Real>(x: &[T], w: &[T], batch: usize, m: usize, n: usize, k: usize) -> Vec<f64> {
    let mut y = Vec::new();
    for b in 0..batch {
        for i in 0..m {
            for j in 0..n {
                let (x, w) = (&x[(b * m + i) * k..][..k], &w[(b * n + j) * k..][..k]);
                y.push(x.iter().zip(w).map(|(x, w)| x.to_f64() * w.to_f64()).sum());
            }
        }
    }
    y
}

fn product<T: Real>(pool: &Pool, x: &[T], w: &[T], batch: usize, m: usize, n: usize, k: usize) -> Vec<T> {
    let mut y = vec![T::ZERO; batch * m * n];
    bmm_nt(pool, batch, k, Matrices::dense(x, m, k), Matrices::dense(w, n, k), &mut y);
    y
}

#[test]
fn batched_products_are_close_and_keep_their_bits() {
    let pools = [1, 3].map(Pool::new);
    for (batch, m, n, k) in
        [(1, 1, 1, 1), (3, 5, 7, 33), (15, 16, 16, 512), (15, 1, 128, 192), (2, 3, 4, 0), (4, 6, 5, 15)]
    {
        let (x, w) = (numbers::<f32>(batch * m * k, 1), numbers::<f32>(batch * n * k, 2));
        let base = product(&pools[0], &x, &w, batch, m, n, k);
        assert_close(&base, &dots(&x, &w, batch, m, n, k), 1e-5);
        let (x64, w64) = (numbers::<f64>(batch * m * k, 1), numbers::<f64>(batch * n * k, 2));
        assert_close(&product(&pools[1], &x64, &w64, batch, m, n, k), &dots(&x64, &w64, batch, m, n, k), 1e-13);
        for (path, ()) in on_every_path(|| {
            for pool in &pools {
                assert_bits(&product(pool, &x, &w, batch, m, n, k), &base, "whole");
            }
            for (at, y) in base.iter().enumerate() {
                let (b, i, j) = (at / (m * n), at / n % m, at % n);
                let (x, w) = (&x[(b * m + i) * k..][..k], &w[(b * n + j) * k..][..k]);
                assert_bits(&product(&pools[0], x, w, 1, 1, 1, k), &[*y], "alone");
            }
        }) {
            println!("{path:?} agrees");
        }
    }
}

#[test]
fn products_with_rows_of_a_table_are_those_of_the_rows() {
    let pools = [1, 3].map(Pool::new);
    for (batch, rows, others, k) in [(1, 1, 1, 1), (15, 128, 1, 192), (3, 21, 1, 20), (15, 16, 16, 192), (2, 5, 3, 33)]
    {
        let extent = 40;
        let table = bf16(&numbers::<f32>(extent * k, 5));
        let index: Vec<i32> = (0..batch * rows).map(|i| (i * 7919 % 43) as i32 - 1).collect();
        let taken: Vec<f32> =
            index.iter().flat_map(|i| widen(&table[(*i).clamp(0, extent as i32 - 1) as usize * k..][..k])).collect();
        let other = numbers::<f32>(batch * others * k, 6);
        let want = [
            product(&pools[0], &taken, &other, batch, rows, others, k),
            product(&pools[0], &other, &taken, batch, others, rows, k),
        ];
        for (path, ()) in on_every_path(|| {
            for pool in &pools {
                for (first, want) in [true, false].into_iter().zip(&want) {
                    let mut y = vec![0.0; want.len()];
                    let taken = Taken { table: &table, extent, index: &index, rows };
                    bmm_taken(pool, batch, k, &taken, Matrices::dense(&other, others, k), first, &mut y);
                    assert_bits(&y, want, "taken");
                }
            }
        }) {
            println!("{path:?} agrees");
        }
    }
}

#[test]
fn strides_skip_what_is_between() {
    let (batch, m, n, k) = (3, 2, 5, 20);
    let pool = Pool::new(2);
    let x = numbers::<f32>(batch * (m * 30 + 7), 3);
    let w = numbers::<f32>(n * 24, 4);
    let mut y = vec![0.0; batch * m * n];
    let shared = Matrices { data: &w, rows: n, row_stride: 24, batch_stride: 0 };
    let wide = Matrices { data: &x, rows: m, row_stride: 30, batch_stride: m * 30 + 7 };
    bmm_nt(&pool, batch, k, wide, shared, &mut y);
    for (at, y) in y.iter().enumerate() {
        let (b, i, j) = (at / (m * n), at / n % m, at % n);
        let x = &x[b * (m * 30 + 7) + i * 30..][..k];
        assert_bits(&product(&pool, x, &w[j * 24..][..k], 1, 1, 1, k), &[*y], "strided");
    }
}

#[test]
fn convolution_of_any_cut_has_the_bits_of_the_whole() {
    for (channels, width) in [(1, 1), (10, 4), (48, 4), (33, 2)] {
        let rows = 12;
        let raw = numbers::<f32>(channels * width, 1);
        let taps = Taps::new(&raw, channels);
        assert_eq!((taps.width(), taps.channels()), (width, channels));
        let start = numbers::<f32>((width - 1) * channels, 2);
        let x = numbers::<f32>(rows * channels, 3);
        let mut whole = vec![0.0; x.len()];
        causal_conv(&taps, &start, &x, &mut whole);
        let all: Vec<f32> = start.iter().chain(&x).copied().collect();
        let want: Vec<f64> = (0..rows * channels)
            .map(|at| {
                let (t, c) = (at / channels, at % channels);
                (0..width).map(|i| f64::from(raw[c * width + i]) * f64::from(all[(t + i) * channels + c])).sum()
            })
            .collect();
        assert_close(&whole, &want, 1e-5);
        for (path, ()) in on_every_path(|| {
            for step in [1, 2, 5, 12] {
                let mut window = start.clone();
                let mut y = vec![0.0; x.len()];
                for first in (0..rows).step_by(step) {
                    let count = step.min(rows - first);
                    let part = first * channels..(first + count) * channels;
                    causal_conv(&taps, &window, &x[part.clone()], &mut y[part.clone()]);
                    let mut next = vec![0.0; window.len()];
                    window_after(&taps, &window, &x[part], count, &mut next);
                    window = next;
                }
                assert_bits(&y, &whole, "cut");
                assert_bits(&window, &all[rows * channels..], "last window");
            }
        }) {
            println!("{path:?} agrees");
        }
    }
}

#[test]
fn the_window_takes_accepted_rows_alone() {
    let taps = Taps::new(&[1.0_f64; 8], 2);
    let mut next = [0.0; 6];
    let (window, x) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0]);
    window_after(&taps, &window, &x, 0, &mut next);
    assert_eq!(next, window);
    window_after(&taps, &window, &x, 2, &mut next);
    assert_eq!(next, [5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
    window_after(&taps, &window, &x, 4, &mut next);
    assert_eq!(next, [9.0, 10.0, 11.0, 12.0, 13.0, 14.0]);
}
