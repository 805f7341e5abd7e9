//! Attention against its plain f64 statement, its bits over calls, and values that must not be read.

mod kernels_common;

use kernels_common::*;
use spinec_exec::kernels::attention::{KvView, Request, Rule, attention};
use spinec_exec::kernels::simd::Real;
use spinec_exec::threads::Pool;

#[derive(Clone)]
struct Pools<T> {
    k: Vec<T>,
    v: Vec<T>,
    heads: usize,
    width: usize,
    page_size: usize,
    pages: Vec<u32>,
}

impl<T: Real> Pools<T> {
    /// `positions` positions in shuffled pages of a pool that is NaN elsewhere.
    fn new(positions: usize, heads: usize, width: usize, page_size: usize) -> Self {
        let count = positions.div_ceil(page_size);
        let pages: Vec<u32> = (0..count).map(|p| ((p * 7 + 3) % (count * 2)) as u32).collect();
        let mut seen = pages.clone();
        seen.sort_unstable();
        seen.dedup();
        let pages = if seen.len() == count { pages } else { (0..count as u32).rev().collect() };
        let len = count * 2 * page_size * heads * width;
        let mut pool = Self {
            k: vec![T::from_f64(f64::NAN); len],
            v: vec![T::from_f64(f64::NAN); len],
            heads,
            width,
            page_size,
            pages,
        };
        for j in 0..positions {
            let at = pool.slot(j) * heads * width;
            pool.k[at..at + heads * width].copy_from_slice(&numbers(heads * width, 2 * j as u64 + 1));
            pool.v[at..at + heads * width].copy_from_slice(&numbers(heads * width, 2 * j as u64 + 2));
        }
        pool
    }

    fn slot(&self, j: usize) -> usize {
        self.pages[j / self.page_size] as usize * self.page_size + j % self.page_size
    }

    fn poison(&mut self, positions: impl Iterator<Item = usize>) {
        let row = self.heads * self.width;
        for j in positions {
            let at = self.slot(j) * row;
            self.k[at..at + row].fill(T::from_f64(f64::NAN));
            self.v[at..at + row].fill(T::from_f64(f64::NAN));
        }
    }

    fn view(&self) -> KvView<'_, T> {
        let Self { k, v, heads, width, page_size, pages } = self;
        KvView { k, v, heads: *heads, width: *width, page_size: *page_size, pages }
    }

    fn plain(&self, rule: &Rule<T>, q: &[T], position: usize, end: usize) -> Vec<f64> {
        let mut out = Vec::new();
        for h in 0..rule.query_heads {
            let head = h / (rule.query_heads / self.heads);
            let q = &q[h * self.width..][..self.width];
            let at = |j: usize| (self.slot(j) * self.heads + head) * self.width;
            let seen: Vec<usize> = (0..end)
                .filter(|&j| {
                    let w = rule.window.map_or(i64::MAX, i64::from);
                    let d = position as i64 - j as i64;
                    if rule.causal { 0 <= d && d < w } else { d.abs() < w }
                })
                .collect();
            let scores: Vec<f64> = seen
                .iter()
                .map(|&j| {
                    let k = &self.k[at(j)..][..self.width];
                    q.iter().zip(k).map(|(q, k)| q.to_f64() * k.to_f64()).sum::<f64>() * rule.scale.to_f64()
                })
                .collect();
            let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let norm: f64 = scores.iter().map(|s| (s - peak).exp()).sum();
            for w in 0..self.width {
                let sum: f64 =
                    seen.iter().zip(&scores).map(|(&j, s)| (s - peak).exp() * self.v[at(j) + w].to_f64()).sum();
                out.push(if seen.is_empty() { 0.0 } else { sum / norm });
            }
        }
        out
    }
}

fn run<T: Real>(pool: &Pool, rule: &Rule<T>, kv: &Pools<T>, q: &[T], positions: &[u32], end: usize) -> Vec<T> {
    let mut out = vec![T::from_f64(f64::NAN); q.len()];
    let request = Request { kv: kv.view(), end, rows: 0..positions.len() };
    attention(pool, rule, q, positions, &[request], &mut out);
    out
}

fn rule<T: Real>(query_heads: usize, causal: bool, window: Option<u32>, width: usize) -> Rule<T> {
    Rule { query_heads, causal, window, scale: T::from_f64((width as f64).powf(-0.5)) }
}

#[test]
fn close_to_the_plain_statement() {
    let pool = Pool::new(2);
    for (heads, query_heads, width, page) in [(2, 6, 32, 16), (1, 4, 8, 1), (2, 2, 20, 7), (1, 6, 128, 64)] {
        for context in [1, 5, 64, 130, 700, 1100] {
            let kv32 = Pools::<f32>::new(context + 16, heads, width, page);
            let kv64 = Pools::<f64>::new(context + 16, heads, width, page);
            for (causal, window) in
                [(true, None), (true, Some(40)), (false, None), (false, Some(30)), (true, Some(513))]
            {
                let positions: Vec<u32> = (0..16).map(|t| (context + t) as u32).collect();
                let end = context + 16;
                let row = query_heads * width;
                let q32 = numbers::<f32>(16 * row, 9);
                let q64 = numbers::<f64>(16 * row, 9);
                let (r32, r64) = (rule(query_heads, causal, window, width), rule(query_heads, causal, window, width));
                let y32 = run(&pool, &r32, &kv32, &q32, &positions, end);
                let y64 = run(&pool, &r64, &kv64, &q64, &positions, end);
                for t in 0..16 {
                    let part = t * row..(t + 1) * row;
                    let want = kv32.plain(&r32, &q32[part.clone()], context + t, end);
                    assert_close(&y32[part.clone()], &want, 1e-5);
                    let want = kv64.plain(&r64, &q64[part.clone()], context + t, end);
                    assert_close(&y64[part], &want, 1e-12);
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_in_a_block_in_a_chunk_and_in_a_batch() {
    let pools = [1, 3].map(Pool::new);
    let (heads, query_heads, width, total) = (1, 3, 24, 700);
    let kv = Pools::<f32>::new(total, heads, width, 16);
    let row = query_heads * width;
    let q = numbers::<f32>(total * row, 3);
    let positions: Vec<u32> = (0..total as u32).collect();
    for window in [None, Some(17), Some(600)] {
        let rule = rule(query_heads, true, window, width);
        let chosen: Vec<usize> = (0..9).chain(500..540).chain(690..700).collect();
        // Decoding one row at a time: nothing after the row exists.
        let alone: Vec<f32> = chosen
            .iter()
            .flat_map(|&t| run(&pools[0], &rule, &kv, &q[t * row..][..row], &positions[t..=t], t + 1))
            .collect();
        for (path, ()) in on_every_path(|| {
            for pool in &pools {
                for block in [16, 333] {
                    let mut out = vec![0.0; q.len()];
                    for first in (0..total).step_by(block) {
                        let last = (first + block).min(total);
                        if !chosen.iter().any(|t| (first..last).contains(t)) {
                            continue;
                        }
                        let part = &q[first * row..last * row];
                        let y = run(pool, &rule, &kv, part, &positions[first..last], last);
                        out[first * row..last * row].copy_from_slice(&y);
                    }
                    for (i, t) in chosen.iter().enumerate() {
                        let what = format!("row {t}, block {block}, window {window:?}");
                        assert_bits(&out[t * row..][..row], &alone[i * row..][..row], &what);
                    }
                }
            }
        }) {
            println!("{path:?} agrees");
        }
    }
}

#[test]
fn requests_of_a_batch_do_not_meet() {
    let (heads, query_heads, width) = (2, 4, 16);
    let row = query_heads * width;
    let kv = [40, 700, 3].map(|n| Pools::<f32>::new(n + 16, heads, width, 8));
    let rule = rule(query_heads, false, Some(100), width);
    let q = numbers::<f32>(3 * 16 * row, 4);
    let positions: Vec<u32> = [40, 700, 3].into_iter().flat_map(|n| (0..16).map(move |t| n + t)).collect();
    let mut out = vec![0.0; q.len()];
    let requests: Vec<_> = [40, 700, 3]
        .into_iter()
        .enumerate()
        .map(|(i, n)| Request { kv: kv[i].view(), end: n + 16, rows: i * 16..(i + 1) * 16 })
        .collect();
    attention(&Pool::new(2), &rule, &q, &positions, &requests, &mut out);
    for (i, n) in [40, 700, 3].into_iter().enumerate() {
        let part = i * 16 * row..(i + 1) * 16 * row;
        let rows = &positions[i * 16..(i + 1) * 16];
        let y = run(&Pool::new(1), &rule, &kv[i], &q[part.clone()], rows, n + 16);
        assert_bits(&out[part], &y, &format!("request {i}"));
    }
}

#[test]
fn what_a_row_does_not_see_is_never_used() {
    let pool = Pool::new(1);
    let (heads, query_heads, width, context) = (1, 3, 24, 900);
    let row = query_heads * width;
    let q = numbers::<f32>(16 * row, 5);
    let positions: Vec<u32> = (0..16).map(|t| (context + t) as u32).collect();
    let clean = Pools::<f32>::new(context + 16, heads, width, 16);
    for window in [None, Some(50_u32), Some(513)] {
        let rule = rule(query_heads, true, window, width);
        let want = run(&pool, &rule, &clean, &q, &positions, context + 16);
        // Past the end and before every window.
        let mut kv = clean.clone();
        kv.poison(context + 10..context + 16);
        if let Some(w) = window {
            kv.poison(0..context + 1 - w as usize);
        }
        let y = run(&pool, &rule, &kv, &q[..10 * row], &positions[..10], context + 10);
        assert_bits(&y, &want[..10 * row], "stale slots");
        // Seen by later rows of the same call alone: they turn NaN, the earlier rows do not.
        let mut kv = clean.clone();
        kv.poison(context + 7..context + 8);
        let y = run(&pool, &rule, &kv, &q, &positions, context + 16);
        assert_bits(&y[..7 * row], &want[..7 * row], "rows before the poison");
        assert!(y[7 * row..].iter().all(|v| v.is_nan()));
        // Seen by earlier rows alone.
        if let Some(w) = window {
            let mut kv = clean.clone();
            kv.poison(context + 8 - w as usize..context + 9 - w as usize);
            let y = run(&pool, &rule, &kv, &q, &positions, context + 16);
            assert!(y[..8 * row].iter().all(|v| v.is_nan()));
            assert_bits(&y[8 * row..], &want[8 * row..], "rows after the poison left the window");
        }
    }
}

#[test]
fn the_window_counts_the_row_itself() {
    let pool = Pool::new(1);
    let rule = rule::<f32>(1, true, Some(8), 16);
    let kv = Pools::<f32>::new(100, 1, 16, 4);
    let q = numbers::<f32>(16, 6);
    let base = run(&pool, &rule, &kv, &q, &[60], 61);
    for (j, matters) in [(52, false), (53, true), (60, true), (61, false)] {
        let mut other = kv.clone();
        let at = other.slot(j) * 16;
        other.k[at] += 1.0;
        assert_eq!(run(&pool, &rule, &other, &q, &[60], 61) != base, matters, "position {j}");
    }
}

#[test]
fn a_row_that_sees_nothing_is_zero_and_large_scores_do_not_overflow() {
    let pool = Pool::new(1);
    let kv = Pools::<f32>::new(20, 1, 16, 4);
    let q = numbers::<f32>(16, 6);
    assert_eq!(run(&pool, &rule(1, true, None, 16), &kv, &q, &[5], 0), vec![0.0; 16]);
    let steep = Rule { query_heads: 1, causal: true, window: None, scale: 1e6_f32 };
    let y = run(&pool, &steep, &kv, &q, &[19], 20);
    assert_close(&y, &kv.plain(&steep, &q, 19, 20), 1e-5);
}
