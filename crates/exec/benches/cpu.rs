//! Latency of the phases of the small pair that ships with the project.

#[path = "../tests/cpu_support/mod.rs"]
mod cpu_support;
mod demo;
#[path = "../tests/support/mod.rs"]
mod support;

use cpu_support::ints;
use criterion::{Criterion, criterion_group, criterion_main};
use demo::Demo;
use spinec_exec::runtime::{Mode, Runtime};
use std::hint::black_box;

fn phases(c: &mut Criterion) {
    for (law, context, threads) in [("greedy", 128, 1), ("greedy", 128, 2), ("greedy", 1024, 2), ("sampled", 128, 2)] {
        let mut g = c.benchmark_group(format!("{law} {context} positions {threads} threads"));
        g.sample_size(30);
        let mut demo = Demo::new(law, context, threads);
        let given = demo.common();
        g.bench_function("decode 1 row", |b| b.iter(|| black_box(demo.run("decode", &given, Mode::Tentative))));
        g.bench_function("draft", |b| b.iter(|| black_box(demo.run("draft", &given, Mode::Immediate))));
        let given = demo.verify_inputs();
        g.bench_function("verify 16 rows", |b| b.iter(|| black_box(demo.run("verify", &given, Mode::Tentative))));
        let verified = demo.run("verify", &given, Mode::Tentative);
        if let Some((_, features)) = verified.into_iter().find(|(n, _)| n == "features") {
            let mut given = given.clone();
            given.extend([("features", features), ("keep", ints(&[1], &[4]))]);
            g.bench_function("commit 4 rows", |b| {
                b.iter(|| black_box(demo.run("commit", &given, Mode::Immediate)));
            });
            g.bench_function("commit of states, 0 rows", |b| {
                b.iter(|| demo.runtime.commit(demo.request, 0).expect("no rows are always there"));
            });
        }
        g.bench_function("prefill 64 rows", |b| b.iter(|| black_box(demo.prefill(64))));
        g.finish();
    }
}

criterion_group!(benches, phases);
criterion_main!(benches);
