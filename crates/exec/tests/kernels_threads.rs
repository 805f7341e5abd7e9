//! The pool: every task once, panics reach the caller, nested and concurrent calls do not block.

use spinec_exec::threads::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn every_task_runs_once() {
    for threads in [0, 1, 2, 4] {
        let pool = Pool::new(threads);
        assert_eq!(pool.threads(), threads.max(1));
        for round in 0..2000 {
            let tasks = round % 17;
            let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            pool.run(tasks, |i| _ = counts[i].fetch_add(1, Ordering::Relaxed));
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
        }
    }
}

#[test]
fn parked_workers_wake() {
    let pool = Pool::new(3);
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        let sum = AtomicUsize::new(0);
        pool.run(100, |i| _ = sum.fetch_add(i, Ordering::Relaxed));
        assert_eq!(sum.into_inner(), 4950);
    }
}

#[test]
fn a_long_task_of_a_worker_is_waited_for() {
    let pool = Pool::new(2);
    let done = AtomicUsize::new(0);
    pool.run(2, |_| {
        std::thread::sleep(std::time::Duration::from_millis(3));
        done.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(done.into_inner(), 2);
}

#[test]
fn ranges_cover_once_and_respect_the_grain() {
    for threads in [1, 2, 3] {
        let pool = Pool::new(threads);
        for (len, grain) in [(0, 4), (1, 4), (100, 7), (64, 16), (1000, 1), (5, 0)] {
            let mut hits = vec![0_u8; len];
            let seen: Vec<AtomicUsize> = (0..len).map(|_| AtomicUsize::new(0)).collect();
            pool.par_ranges(len, grain, |range| {
                assert_eq!(range.start % grain.max(1), 0);
                assert!(!range.is_empty());
                range.for_each(|i| _ = seen[i].fetch_add(1, Ordering::Relaxed));
            });
            assert!(seen.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{len} by {grain}");
            pool.par_chunks_mut(&mut hits, 3, |i, piece| piece.fill(u8::try_from(i % 200).unwrap_or(0) + 1));
            assert!(hits.iter().enumerate().all(|(i, h)| usize::from(*h) == i / 3 % 200 + 1));
        }
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    for threads in [1, 2, 4] {
        let pool = Pool::new(threads);
        for bad in 0..12 {
            let caught = catch_unwind(AssertUnwindSafe(|| pool.run(12, |i| assert!(i != bad, "task {i}"))));
            let message = caught.unwrap_err().downcast::<String>().map(|m| *m).unwrap_or_default();
            assert_eq!(message, format!("task {bad}"));
            let sum = AtomicUsize::new(0);
            pool.run(10, |i| _ = sum.fetch_add(i, Ordering::Relaxed));
            assert_eq!(sum.into_inner(), 45);
        }
    }
}

#[test]
fn nested_and_concurrent_calls_run_inline() {
    let pool = Pool::new(2);
    let sum = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.run(4, |_| pool.run(4, |i| _ = sum.fetch_add(i, Ordering::Relaxed)));
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 3 * 200 * 4 * 6);
}
