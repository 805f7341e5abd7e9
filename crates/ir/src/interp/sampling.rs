//! Distributions a request samples from, and drawing from them.

use super::call::Call;
use super::index::count;
use super::number::{Real, ints, reals};
use super::reduce::normalised_exp;
use crate::tensor::Tensor;
use std::cmp::Ordering;

/// The distribution of one row of logits: divided by the temperature (at least 1e-5), the `top_k` largest kept (all if it
/// is not within 1..V), the rest normalised; if `top_p` < 1, of those in falling order the ones kept that have at most
/// `top_p` of mass before them, normalised again. Ties keep the lower id. A NaN logit makes the row NaN.
pub fn sampling_law_row(logits: &[f64], temperature: f64, top_k: i32, top_p: f64) -> Vec<f64> {
    let temperature = if temperature > 1e-5 { temperature } else { 1e-5 };
    let s: Vec<f64> = logits.iter().map(|x| x / temperature).collect();
    let mut order: Vec<usize> = (0..s.len()).collect();
    // NaN first, so that it is among the kept ones.
    order.sort_by(|a, b| {
        let (a, b) = (s[*a], s[*b]);
        b.is_nan().cmp(&a.is_nan()).then(b.partial_cmp(&a).unwrap_or(Ordering::Equal))
    });
    let k = usize::try_from(top_k).ok().filter(|k| (1..s.len()).contains(k)).unwrap_or(s.len());
    let mut kept = vec![f64::NEG_INFINITY; s.len()];
    for id in &order[..k] {
        kept[*id] = s[*id];
    }
    let mut p = normalised_exp(&kept);
    if top_p < 1.0 {
        let mut sum = 0.0;
        for id in &order {
            sum += p[*id];
            if sum - p[*id] > top_p || sum.is_nan() {
                p[*id] = 0.0;
            }
        }
        let total = p.iter().fold(0.0, |acc, x| acc + x);
        p.iter_mut().for_each(|x| *x /= total);
    }
    p
}

pub(super) fn sampling_law(call: &Call) -> Result<Tensor, String> {
    let logits = call.tensor(0)?;
    let (temperature, top_k, top_p) =
        (reals::<f64>(call.tensor(1)?), ints(call.tensor(2)?)?, reals::<f64>(call.tensor(3)?));
    let [n, further @ .., v] = logits.shape.as_slice() else {
        return Err("logits need two axes".into());
    };
    if [temperature.len(), top_k.len(), top_p.len()] != [*n; 3] {
        return Err(format!("sampling parameters of {n} requests are needed"));
    }
    let values = reals::<f64>(logits);
    let mut out = Vec::with_capacity(values.len());
    for row in 0..n * count(further) {
        let request = row / count(further);
        let logits = &values[row * v..(row + 1) * v];
        out.extend(sampling_law_row(logits, temperature[request], top_k[request], top_p[request]));
    }
    Ok(Tensor::f64(logits.shape.clone(), out))
}

/// The number of running sums of `law` that are at most `coin` times their last, at most the last position.
pub(super) fn draw_row<R: Real>(law: &[R], coin: R) -> usize {
    let mut sum = R::ZERO;
    let sums: Vec<R> = law
        .iter()
        .map(|p| {
            sum = sum + *p;
            sum
        })
        .collect();
    let index = sums.iter().filter(|s| **s <= coin * sum).count();
    index.min(law.len().saturating_sub(1))
}

pub(super) fn draw(call: &Call) -> Result<Tensor, String> {
    if call.wide() { draw_in::<f64>(call) } else { draw_in::<f32>(call) }
}

fn draw_in<R: Real>(call: &Call) -> Result<Tensor, String> {
    let (law, coin) = (call.tensor(0)?, call.tensor(1)?);
    let v = *law.shape.last().ok_or("draw needs at least one axis")?;
    let (laws, coins) = (reals::<R>(law), reals::<R>(coin));
    if v == 0 && !coins.is_empty() {
        return Err("nothing can be drawn from an empty axis".into());
    }
    if laws.len() != coins.len() * v {
        return Err(format!("{} coins for laws of extents {:?}", coins.len(), law.shape));
    }
    let drawn = coins.iter().enumerate().map(|(row, c)| draw_row(&laws[row * v..(row + 1) * v], *c) as i32);
    Ok(Tensor::i32(coin.shape.clone(), drawn.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: &[f64], b: &[f64]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-15), "{a:?} against {b:?}");
    }

    #[test]
    fn a_token_stays_while_the_mass_before_it_is_at_most_top_p() {
        let logits: Vec<f64> = [0.5f64, 0.25, 0.125, 0.125].iter().map(|p| p.ln()).collect();
        close(&sampling_law_row(&logits, 1.0, 0, 0.6), &[2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0]);
        close(&sampling_law_row(&logits, 1.0, 0, 0.4), &[1.0, 0.0, 0.0, 0.0]);
        close(&sampling_law_row(&logits, 1.0, 0, 1.0), &[0.5, 0.25, 0.125, 0.125]);
        close(&sampling_law_row(&logits, 1.0, 3, 1.0), &[0.5 / 0.875, 0.25 / 0.875, 0.125 / 0.875, 0.0]);
        close(&sampling_law_row(&logits, 0.5, 2, 1.0), &[0.8, 0.2, 0.0, 0.0]);
    }

    #[test]
    fn ties_keep_the_lower_id_and_cold_rows_are_one_hot() {
        close(&sampling_law_row(&[1.0, 2.0, 2.0, 2.0], 1.0, 2, 1.0), &[0.0, 0.5, 0.5, 0.0]);
        close(&sampling_law_row(&[1.0, 2.0], 0.0, 0, 1.0), &[0.0, 1.0]);
        assert!(sampling_law_row(&[1.0, f64::NAN], 1.0, 1, 0.5).iter().all(|p| p.is_nan()));
    }

    #[test]
    fn draws_follow_the_running_sums() {
        let law = [1.0, 0.0, 2.0, 1.0];
        for (coin, want) in [(0.0, 0), (0.2499, 0), (0.25, 2), (0.7499, 2), (0.75, 3), (0.9999, 3), (2.0, 3)] {
            assert_eq!(draw_row(&law, coin), want, "{coin}");
        }
        assert_eq!(draw_row(&[f64::NAN, 1.0], 0.5), 0);
        assert_eq!(draw_row(&[0.0, 0.0], 0.5), 1);
    }
}
