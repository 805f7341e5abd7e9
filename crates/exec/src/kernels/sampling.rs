//! The distribution that sampling draws from, and the draw.
//!
//! All in f64. Sums run in order of the index, so one row and one coin give one token on every machine.

use super::select::top_k;
use super::simd::Real;

/// Logits from which no distribution follows: a NaN, a positive infinity, or nothing above negative infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDistribution;

impl std::fmt::Display for NoDistribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the logits define no distribution: they hold NaN or infinity")
    }
}

impl std::error::Error for NoDistribution {}

/// Candidates that a top-p filter sorts first; eight times as many where they hold too little mass, and so on.
const FIRST_SORTED: usize = 256;

/// Writes to `out` the probabilities of `softmax(logits / temperature)` after top-k, then top-p on the renormalised
/// rest, then renormalisation. `top_k` below 1, or not below the row's length, is off; so is `top_p` from 1 on. A token
/// stays while the mass strictly before it, in order of probability, is at most `top_p`. Equal logits order by id.
///
/// # Errors
/// If the logits define no distribution; `out` is then unspecified.
///
/// # Panics
/// If `out` differs in length from `logits`.
pub fn deployed<T: Real>(
    logits: &[T],
    temperature: f64,
    top_k: i32,
    top_p: f64,
    out: &mut [f64],
) -> Result<(), NoDistribution> {
    assert_eq!(logits.len(), out.len(), "logits and result differ in length");
    let kept = usize::try_from(top_k).ok().filter(|k| (1..logits.len()).contains(k));
    match kept {
        None => all(logits, temperature, out)?,
        Some(k) => {
            let ids = self::top_k(logits, k);
            if logits.iter().any(|x| x.to_f64().is_nan()) {
                return Err(NoDistribution);
            }
            out.fill(0.0);
            some(logits, temperature, ids, out)?;
        }
    }
    if top_p < 1.0 {
        nucleus(logits, top_p, kept.unwrap_or(logits.len()), out);
    }
    Ok(())
}

/// Softmax over the whole row.
fn all<T: Real>(logits: &[T], temperature: f64, out: &mut [f64]) -> Result<(), NoDistribution> {
    let mut peak = f64::NEG_INFINITY;
    let mut spoiled = false;
    for (logit, out) in logits.iter().zip(&mut *out) {
        let scaled = logit.to_f64() / temperature;
        *out = scaled;
        spoiled |= scaled.is_nan();
        peak = if scaled > peak { scaled } else { peak };
    }
    if spoiled || !peak.is_finite() {
        return Err(NoDistribution);
    }
    let mut total = 0.0;
    for out in &mut *out {
        *out = (*out - peak).exp();
        total += *out;
    }
    out.iter_mut().for_each(|out| *out /= total);
    Ok(())
}

/// Softmax over `ids`, summed in order of id; other elements of `out` are left alone.
fn some<T: Real>(logits: &[T], temperature: f64, mut ids: Vec<u32>, out: &mut [f64]) -> Result<(), NoDistribution> {
    let at = |id: &u32| logits[*id as usize].to_f64() / temperature;
    let peak = ids.iter().map(at).fold(f64::NEG_INFINITY, f64::max);
    if !peak.is_finite() {
        return Err(NoDistribution);
    }
    ids.sort_unstable();
    let mut total = 0.0;
    for id in &ids {
        let weight = (at(id) - peak).exp();
        out[*id as usize] = weight;
        total += weight;
    }
    ids.iter().for_each(|id| out[*id as usize] /= total);
    Ok(())
}

/// Keeps the first tokens in order of `logits` whose mass before them is at most `top_p`, and renormalises. Only the
/// first `support` have mass.
fn nucleus<T: Real>(logits: &[T], top_p: f64, support: usize, out: &mut [f64]) {
    let mut count = FIRST_SORTED.min(support);
    let kept = loop {
        let order = top_k(logits, count);
        let mut mass = 0.0;
        let kept = order.iter().take_while(|id| {
            let own = out[**id as usize];
            mass += own;
            mass - own <= top_p
        });
        let kept = kept.count();
        if kept < count || count == support {
            break order[..kept].to_vec();
        }
        count = (count * 8).min(support);
    };
    let mut weights: Vec<(usize, f64)> = kept.iter().map(|id| (*id as usize, out[*id as usize])).collect();
    weights.sort_unstable_by_key(|(id, _)| *id);
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    out.fill(0.0);
    weights.into_iter().for_each(|(id, weight)| out[id] = weight / total);
}

/// The token that `coin` in `[0, 1)` draws from weights `p`, which need not sum to 1: the number of cumulative sums at
/// most `coin` times the total, at most the last index. 0 for no weights.
#[must_use]
pub fn draw(p: &[f64], coin: f64) -> usize {
    let total = p.iter().fold(0.0, |sum, p| sum + p);
    let mark = coin * total;
    let mut sum = 0.0;
    let below = p.iter().take_while(|p| {
        sum += **p;
        sum <= mark
    });
    below.count().min(p.len().saturating_sub(1))
}
