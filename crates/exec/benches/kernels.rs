//! Speed of the kernels: `cargo bench -p spinec-exec --bench kernels`. Throughput counts floating-point operations.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use spinec_exec::kernels::attention::{KvView, Request, Rule, attention};
use spinec_exec::kernels::delta::{Rows, Shape, advance};
use spinec_exec::kernels::gemm::{PackedB, linear};
use spinec_exec::kernels::rowwise::{Unary, rms_norm, silu_mul, unary};
use spinec_exec::kernels::sampling::{deployed, draw};
use spinec_exec::kernels::select::{argmax, top_k};
use spinec_exec::threads::Pool;
use std::hint::black_box;

/// Numbers in -1..1, the same in every run.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bf16(x: &[f32]) -> Vec<u16> {
    x.iter().map(|x| (x.to_bits() >> 16) as u16).collect()
}

fn dispatch(c: &mut Criterion) {
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        c.bench_function(&format!("dispatch/{threads}threads"), |b| b.iter(|| pool.run(threads, |i| _ = black_box(i))));
    }
}

fn gemm(c: &mut Criterion) {
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        let mut group = c.benchmark_group(format!("gemm/{threads}threads"));
        for (inputs, outputs) in [(192, 512), (512, 192), (192, 2048), (2048, 2048)] {
            let w = numbers(inputs * outputs, 1);
            let packs = [
                ("f32", PackedB::new(&pool, &w, outputs, inputs)),
                ("bf16", PackedB::from_bf16(&pool, &bf16(&w), outputs, inputs)),
            ];
            for rows in [1, 16, 128] {
                let x = numbers(rows * inputs, 2);
                let mut y = vec![0.0; rows * outputs];
                group.throughput(Throughput::Elements((2 * rows * inputs * outputs) as u64));
                for (kind, w) in &packs {
                    let id = BenchmarkId::new(*kind, format!("{rows}x{inputs}x{outputs}"));
                    group.bench_function(id, |b| {
                        b.iter(|| linear(&pool, &x, inputs, rows, w, black_box(&mut y), outputs))
                    });
                }
            }
        }
    }
}

fn attend(c: &mut Criterion) {
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        let mut group = c.benchmark_group(format!("attention/{threads}threads"));
        for (heads, query_heads, width) in [(2, 6, 32), (4, 24, 128)] {
            for context in [256, 2048, 8192] {
                let pages: Vec<u32> = (0..context as u32 / 16 + 8).rev().collect();
                let k = numbers(pages.len() * 16 * heads * width, 1);
                let v = numbers(pages.len() * 16 * heads * width, 2);
                let kv = KvView { k: &k, v: &v, heads, width, page_size: 16, pages: &pages };
                let rule = Rule { query_heads, causal: true, window: None, scale: (width as f32).powf(-0.5) };
                for rows in [1, 16, 64] {
                    let q = numbers(rows * query_heads * width, 3);
                    let mut out = vec![0.0; q.len()];
                    let positions: Vec<u32> = (0..rows as u32).map(|t| context as u32 + t).collect();
                    let requests = [Request { kv, end: context + rows, rows: 0..rows }];
                    group.throughput(Throughput::Elements((4 * rows * query_heads * width * context) as u64));
                    group.bench_function(format!("{rows}rows/{context}/{query_heads}of{heads}x{width}"), |b| {
                        b.iter(|| attention(&pool, &rule, &q, &positions, &requests, black_box(&mut out)));
                    });
                }
            }
        }
    }
}

fn delta(c: &mut Criterion) {
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        let mut group = c.benchmark_group(format!("delta/{threads}threads"));
        for (key_heads, value_heads, width) in [(2, 6, 32), (16, 48, 128)] {
            let shape = Shape { key_heads, value_heads, key_width: width, value_width: width };
            for rows in [1, 16] {
                let keys = numbers(rows * key_heads * width, 1).iter().map(|x| x * 0.1).collect::<Vec<_>>();
                let v = numbers(rows * value_heads * width, 2);
                let g: Vec<f32> = numbers(rows * value_heads, 3).iter().map(|x| x - 1.0).collect();
                let inputs = Rows { q: &keys, k: &keys, v: &v, g: &g, beta: &g };
                let mut state = numbers(shape.state(), 4);
                let mut out = vec![0.0; v.len()];
                group.throughput(Throughput::Elements((7 * rows * shape.state()) as u64));
                group.bench_function(format!("{rows}rows/{value_heads}x{width}x{width}"), |b| {
                    b.iter(|| advance(&pool, &shape, &inputs, &mut [(&mut state, 0..rows)], black_box(&mut out)));
                });
            }
        }
    }
}

fn rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("rows");
    let (x, w) = (numbers(16 * 192, 1), numbers(192, 2));
    let mut y = x.clone();
    group.bench_function("rms_norm/16x192", |b| b.iter(|| rms_norm(&x, &w, 1e-6, black_box(&mut y))));
    group.bench_function("exp/3072", |b| b.iter(|| unary(Unary::Exp, &x, black_box(&mut y))));
    group.bench_function("silu_mul/3072", |b| b.iter(|| silu_mul(&x, &x, black_box(&mut y))));
    for vocabulary in [2048, 248_320] {
        let logits = numbers(vocabulary, 3);
        let mut p = vec![0.0; vocabulary];
        group.bench_function(format!("argmax/{vocabulary}"), |b| b.iter(|| argmax(black_box(&logits))));
        for k in [16, 128] {
            group.bench_function(format!("top_k/{k}of{vocabulary}"), |b| b.iter(|| top_k(black_box(&logits), k)));
        }
        for (k, mass) in [(0, 1.0), (20, 1.0), (20, 0.95), (0, 0.9)] {
            group.bench_function(format!("deployed/k{k}p{mass}/{vocabulary}"), |b| {
                b.iter(|| deployed(black_box(&logits), 0.7, k, mass, &mut p));
            });
        }
        group.bench_function(format!("draw/{vocabulary}"), |b| b.iter(|| draw(black_box(&p), 0.9)));
    }
}

criterion_group! {
    name = kernels;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(600))
        .sample_size(20)
        .without_plots();
    targets = dispatch, gemm, attend, delta, rows
}
criterion_main!(kernels);
