//! Speed of the interpreter: lane instructions and tensor operations a second, unchecked, checked, on one and two threads.
//!
//! Throughput is in elements: lane instructions, or floating-point operations for `*_flops`.

#[path = "../tests/common/mod.rs"]
mod common;

use common::*;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use spinec_ptx::Options;
use std::hint::black_box;

/// A benchmark's name, its PTX, its launch, and whether it counts tensor operations instead of lane instructions.
type Bench = (&'static str, &'static str, fn() -> Case, bool);

const CASES: [Bench; 5] = [
    ("rmsnorm_256x8192", "rmsnorm.sm_80.ptx", || rmsnorm(256, 8192), false),
    ("gemm_mma_256x256x1024", "gemm_mma.sm_80.ptx", || gemm_mma(256, 256, 1024), false),
    ("gemm_mma_256x256x1024_flops", "gemm_mma.sm_80.ptx", || gemm_mma(256, 256, 1024), true),
    ("gemm_wgmma_256x256x1024_flops", "gemm_wgmma.sm_90a.ptx", || gemm_wgmma(256, 256, 1024), true),
    ("gdn_8", "gdn.sm_80.ptx", || gdn(8), false),
];

fn interpreter(c: &mut Criterion) {
    for (name, file, make, flops) in CASES {
        let case = make();
        let program = load(file, case.entry);
        let counted = case.run(&program, Options::default()).counters;
        let mut group = c.benchmark_group(name);
        group.sample_size(10);
        group.throughput(Throughput::Elements(if flops {
            counted.total.tensor_ops
        } else {
            counted.lane_instructions
        }));
        for (what, options) in [
            ("unchecked", Options::unchecked()),
            ("unchecked_2_threads", Options { threads: 2, ..Options::unchecked() }),
            ("checked", Options { count: false, ..Options::default() }),
            ("checked_counted", Options::default()),
        ] {
            group.bench_with_input(BenchmarkId::from_parameter(what), &options, |b, o| {
                b.iter(|| black_box(case.run(&program, o.clone()).warp_instructions));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, interpreter);
criterion_main!(benches);
