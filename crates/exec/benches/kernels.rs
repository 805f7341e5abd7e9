//! Speed of the kernels: `cargo bench -p spinec-exec --bench kernels`. Throughput counts floating-point operations.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use spinec_exec::kernels::gemm::{PackedB, linear};
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

criterion_group! {
    name = kernels;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(600))
        .sample_size(20)
        .without_plots();
    targets = dispatch, gemm
}
criterion_main!(kernels);
