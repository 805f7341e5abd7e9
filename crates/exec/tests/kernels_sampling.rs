//! Argmax, top-k, the deployed distribution and the draw against plain statements.

mod kernels_common;

use kernels_common::*;
use proptest::prelude::*;
use spinec_exec::kernels::sampling::{NoDistribution, deployed, draw};
use spinec_exec::kernels::select::{Argmax, argmax, top_k, top_set};

/// All indices in the order of values: greater first, equal by index, NaN last.
fn order(x: &[f32]) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..x.len() as u32).collect();
    let key = |i: u32| (x[i as usize].is_nan(), -x[i as usize]);
    ids.sort_by(|a, b| key(*a).partial_cmp(&key(*b)).unwrap_or(std::cmp::Ordering::Equal).then(a.cmp(b)));
    ids
}

fn set(x: &[f32], k: usize) -> Vec<i32> {
    let mut out = vec![-1; k.min(x.len())];
    top_set(x, &mut out);
    out
}

fn sorted(ids: &[u32]) -> Vec<i32> {
    let mut ids: Vec<i32> = ids.iter().map(|i| *i as i32).collect();
    ids.sort_unstable();
    ids
}

/// The law as the reference states it: stable descending order, masks, sequential sums.
fn reference(logits: &[f32], temperature: f64, top_k: i32, top_p: f64) -> Vec<f64> {
    let s: Vec<f64> = logits.iter().map(|x| f64::from(*x) / temperature).collect();
    let mut order: Vec<usize> = (0..s.len()).collect();
    order.sort_by(|a, b| s[*b].partial_cmp(&s[*a]).unwrap_or(std::cmp::Ordering::Equal));
    let k = usize::try_from(top_k).ok().filter(|k| (1..s.len()).contains(k)).unwrap_or(s.len());
    let peak = s[order[0]];
    let mut p = vec![0.0; s.len()];
    order[..k].iter().for_each(|i| p[*i] = (s[*i] - peak).exp());
    let total: f64 = p.iter().sum();
    p.iter_mut().for_each(|p| *p /= total);
    if top_p < 1.0 {
        let mut mass = 0.0;
        for i in order {
            let own = p[i];
            mass += own;
            if mass - own > top_p {
                p[i] = 0.0;
            }
        }
        let total: f64 = p.iter().sum();
        p.iter_mut().for_each(|p| *p /= total);
    }
    p
}

fn law(logits: &[f32], temperature: f64, top_k: i32, top_p: f64) -> Result<Vec<f64>, NoDistribution> {
    let mut out = vec![f64::NAN; logits.len()];
    deployed(logits, temperature, top_k, top_p, &mut out).map(|()| out)
}

#[test]
fn argmax_is_the_first_greatest_number() {
    let nan = f32::NAN;
    let cases: [(&[f32], usize, bool); 7] = [
        (&[1.0, 3.0, 3.0], 1, false),
        (&[nan, nan], 0, true),
        (&[], 0, true),
        (&[nan, f32::NEG_INFINITY], 1, false),
        (&[nan, 2.0, nan, 2.0], 1, false),
        (&[-0.0, 0.0], 0, false),
        (&[f32::INFINITY, nan], 0, false),
    ];
    for (path, ()) in on_every_path(|| {
        for (x, index, all_nan) in cases {
            assert_eq!(argmax(x), Argmax { index, all_nan });
            let padded: Vec<f32> = [nan; 50].iter().chain(x).copied().collect();
            let index = if all_nan { 0 } else { index + 50 };
            assert_eq!(argmax(&padded), Argmax { index, all_nan });
        }
    }) {
        println!("{path:?} agrees");
    }
}

#[test]
fn top_k_of_long_rows() {
    let mut rising: Vec<f32> = (0..20_000).map(|i| i as f32).collect();
    let coarse: Vec<f32> = numbers::<f32>(20_000, 1).into_iter().map(|x| (x * 50.0).round()).collect();
    let mut holes = numbers::<f32>(20_000, 2);
    holes[..5000].fill(f32::NAN);
    holes[6000..].fill(f32::NEG_INFINITY);
    let flat = vec![0.5; 20_000];
    for (path, ()) in on_every_path(|| {
        for x in [&rising, &coarse, &holes, &flat] {
            let want = order(x);
            for k in [1, 16, 128, 1500, 20_000, 30_000] {
                assert_eq!(top_k(x, k), want[..k.min(x.len())], "k {k}");
                assert_eq!(set(x, k), sorted(&want[..k.min(x.len())]), "k {k}");
            }
        }
    }) {
        println!("{path:?} agrees");
    }
    rising.reverse();
    assert_eq!(top_k(&rising, 3), [0, 1, 2]);
    assert!(top_k(&rising, 0).is_empty());
}

#[test]
fn rows_without_a_distribution_are_refused() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut x = numbers::<f32>(100, 1);
        x[60] = bad;
        for (k, p) in [(0, 1.0), (5, 1.0), (0, 0.9), (5, 0.9)] {
            assert_eq!(law(&x, 0.7, k, p), Err(NoDistribution));
        }
    }
    assert_eq!(law(&[f32::NEG_INFINITY; 4], 1.0, 0, 1.0), Err(NoDistribution));
    assert_eq!(law(&[f32::NEG_INFINITY, 0.0], 1.0, 0, 1.0), Ok(vec![0.0, 1.0]));
}

#[test]
fn ties_at_a_cut_keep_the_lower_id() {
    assert_eq!(law(&[1.0, 2.0, 2.0, 2.0, 0.0], 1.0, 2, 1.0), Ok(vec![0.0, 0.5, 0.5, 0.0, 0.0]));
    // The mass before the third token is exactly 0.5: it stays.
    assert_eq!(law(&[0.0; 4], 1.0, 0, 0.5).map(|p| p[3]), Ok(0.0));
    assert_eq!(law(&[0.0; 4], 1.0, 0, 0.5), law(&[0.0, 0.0, 0.0, f32::NEG_INFINITY], 1.0, 0, 1.0));
}

#[test]
fn long_rows_with_little_or_much_mass_in_front() {
    let flat = numbers::<f32>(6000, 3);
    let steep: Vec<f32> = flat.iter().map(|x| x * 60.0).collect();
    for x in [flat, steep] {
        for (k, p) in [(0, 0.5), (0, 0.99), (4000, 0.9), (50, 0.3)] {
            let (got, want) = (law(&x, 0.8, k, p).unwrap_or_default(), reference(&x, 0.8, k, p));
            assert_close(&got, &want, 1e-12);
            assert!(got.iter().zip(&want).all(|(g, w)| (*g > 0.0) == (*w > 0.0)));
        }
    }
}

#[test]
fn a_coin_draws_the_token_whose_mass_it_falls_in() {
    let p = [0.25, 0.0, 0.5, 0.25, 0.0];
    for (coin, want) in [(0.0, 0), (0.2499, 0), (0.25, 2), (0.74, 2), (0.75, 3), (0.999, 3)] {
        assert_eq!(draw(&p, coin), want, "coin {coin}");
    }
    assert_eq!(draw(&[2.0, 6.0], 0.3), 1);
    assert_eq!(draw(&[0.0, 0.0], 0.5), 1);
    assert_eq!(draw(&[], 0.5), 0);
}

proptest! {
    #[test]
    fn the_distribution_is_the_reference(
        logits in prop::collection::vec((-40_i32..40).prop_map(|x| x as f32 / 8.0), 1..80),
        temperature in 0.05_f64..3.0,
        top_k in -1_i32..90,
        top_p in 0.0_f64..1.2,
    ) {
        let (got, want) = (law(&logits, temperature, top_k, top_p).unwrap(), reference(&logits, temperature, top_k, top_p));
        for (g, w) in got.iter().zip(&want) {
            prop_assert!((g - w).abs() <= 1e-12);
            prop_assert_eq!(*g > 0.0, *w > 0.0);
        }
    }

    #[test]
    fn top_k_is_a_prefix_of_the_order(
        x in prop::collection::vec(prop_oneof![
            8 => (-20_i32..20).prop_map(|x| x as f32 / 4.0),
            1 => Just(f32::NAN),
            1 => Just(f32::NEG_INFINITY),
            1 => Just(-0.0_f32),
        ], 0..400),
        k in 0_usize..60,
    ) {
        let want = order(&x);
        prop_assert_eq!(top_k(&x, k), &want[..k.min(x.len())]);
        prop_assert_eq!(set(&x, k), sorted(&want[..k.min(x.len())]));
        let numbers = x.iter().any(|x| !x.is_nan());
        let found = argmax(&x);
        prop_assert_eq!(found.all_nan, !numbers);
        if numbers {
            prop_assert_eq!(found.index, want[0] as usize);
        }
    }
}
