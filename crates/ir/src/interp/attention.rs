//! Attention over a pool, and writing to it.

use super::call::Call;
use super::number::{Real, from_reals, ints, reals};
use super::reduce::normalised_exp;
use super::state::{Element, KvRow, Shape, StateValue};
use crate::tensor::Tensor;
use std::sync::Arc;

/// Real rows of every request: operand `i` if it is given, else all `t`.
pub(super) fn real_rows(call: &Call, i: usize, requests: usize, t: usize) -> Result<Vec<usize>, String> {
    let Some(rows) = call.optional(i)? else {
        return Ok(vec![t; requests]);
    };
    let rows = ints(rows)?;
    if rows.len() != requests {
        return Err(format!("rows has {} entries for {requests} requests", rows.len()));
    }
    let within = |(n, r): (usize, &i32)| {
        usize::try_from(*r).ok().filter(|r| *r <= t).ok_or_else(|| format!("rows[{n}] is {r}, not within 0..={t}"))
    };
    rows.iter().enumerate().map(within).collect()
}

/// Checks that axis 0 of a batch tensor is the request.
pub(super) fn batch<const R: usize>(t: &Tensor, state: &StateValue, what: &str) -> Result<[usize; R], String> {
    let shape: [usize; R] =
        t.shape.as_slice().try_into().map_err(|_| format!("{what} must have {R} axes, it has {:?}", t.shape))?;
    if shape.first() != Some(&state.requests.len()) {
        return Err(format!("{what} has {:?} requests, the call {}", shape.first(), state.requests.len()));
    }
    Ok(shape)
}

/// Checks an operand's extents.
pub(super) fn expect(t: &Tensor, shape: &[usize], what: &str) -> Result<(), String> {
    if t.shape == shape { Ok(()) } else { Err(format!("{what} must be {shape:?}, it is {:?}", t.shape)) }
}

/// First and last visible position of a row at `at`, the last real row of its request being at `end`. Nothing is visible
/// if the first is beyond the last.
fn visible(at: i64, end: i64, causal: bool, window: i64) -> (i64, i64) {
    let (reach, open) = (window.saturating_sub(1), window == 0);
    let first = if open { 0 } else { at.saturating_sub(reach).max(0) };
    let last = match (causal, open) {
        (true, _) => at,
        (false, true) => end,
        (false, false) => end.min(at.saturating_add(reach)),
    };
    (first, last)
}

/// Padding rows and rows that see nothing are zero.
pub(super) fn attention(call: &Call) -> Result<Tensor, String> {
    if call.wide() { attention_in::<f64>(call) } else { attention_in::<f32>(call) }
}

fn attention_in<R: Real>(call: &Call) -> Result<Tensor, String> {
    let (q, kv, at) = (call.tensor(0)?, call.state(1)?, call.tensor(2)?);
    let [n, t, heads, width] = batch(q, kv, "q")?;
    let Shape::Kv { heads: kv_heads, width: kv_width } = kv.shape else {
        return Err("attention reads a kv_pool".into());
    };
    if width != kv_width || kv_heads == 0 || heads % kv_heads != 0 {
        return Err(format!("{heads} heads of width {width} over a pool of {kv_heads} heads of width {kv_width}"));
    }
    expect(at, &[n, t], "at")?;
    let (at, rows) = (ints(at)?, real_rows(call, 3, n, t)?);
    let (causal, window) = (call.bool("causal")?, call.int("window")?);
    let scale = R::from_f64(call.float("scale")?);
    let query = reals::<R>(q);
    let mut out = vec![R::ZERO; query.len()];
    for request in 0..n {
        let pool = kv.requests[request].rows()?;
        for row in 0..rows[request] {
            let position = |r: usize| i64::from(at[request * t + r]);
            let (first, last) = visible(position(row), position(rows[request] - 1), causal, window);
            // Positions are those of i32, so the bounds of a range that is not empty fit.
            let (Ok(from), Ok(to), true) = (i32::try_from(first), i32::try_from(last), first <= last) else {
                continue;
            };
            let seen: Vec<&KvRow> = pool.range(from..=to).map(|(_, r)| r.as_ref()).collect();
            let complete = seen.len() as i64 == last - first + 1;
            for h in 0..heads {
                let start = ((request * t + row) * heads + h) * width;
                let head = (h * kv_heads / heads) * width..(h * kv_heads / heads + 1) * width;
                let result = if complete {
                    attend(&query[start..start + width], &seen, head, scale)
                } else {
                    // A position nobody wrote holds NaN, and a NaN score makes the whole row NaN.
                    vec![R::from_f64(f64::NAN); width]
                };
                out[start..start + width].copy_from_slice(&result);
            }
        }
    }
    from_reals(call.out(0)?.dtype, q.shape.clone(), out)
}

fn attend<R: Real>(q: &[R], seen: &[&KvRow], head: std::ops::Range<usize>, scale: R) -> Vec<R> {
    let scores: Vec<R> = seen
        .iter()
        .map(|row| {
            let k = &row.k[head.clone()];
            q.iter().zip(k).fold(R::ZERO, |acc, (a, b)| acc + *a * R::from_f64(*b)) * scale
        })
        .collect();
    let mut out = vec![R::ZERO; q.len()];
    for (p, row) in normalised_exp(&scores).into_iter().zip(seen) {
        for (o, v) in out.iter_mut().zip(&row.v[head.clone()]) {
            *o = *o + p * R::from_f64(*v);
        }
    }
    out
}

pub(super) fn kv_write(call: &Call) -> Result<StateValue, String> {
    let (kv, k, v, at) = (call.state(0)?, call.tensor(1)?, call.tensor(2)?, call.tensor(3)?);
    let [n, t, heads, width] = batch(k, kv, "k")?;
    if kv.shape != (Shape::Kv { heads, width }) {
        return Err(format!("k and v have {heads} heads of width {width}, the state is {:?}", kv.shape));
    }
    expect(v, &k.shape, "v")?;
    expect(at, &[n, t], "at")?;
    let (at, rows) = (ints(at)?, real_rows(call, 4, n, t)?);
    let (k, v) = (reals::<f64>(k), reals::<f64>(v));
    let size = heads * width;
    let mut next = kv.clone();
    for (request, element) in next.requests.iter_mut().enumerate() {
        let Element::Kv(pool) = element else {
            return Err("kv_write writes to a kv_pool".into());
        };
        for row in request * t..request * t + rows[request] {
            if at[row] < 0 {
                return Err(format!("a row is written at position {}", at[row]));
            }
            let stored = |x: &[f64]| x[row * size..][..size].iter().map(|x| kv.stored(*x)).collect();
            pool.insert(at[row], Arc::new(KvRow { k: stored(&k), v: stored(&v) }));
        }
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn windows_include_the_row_itself() {
        assert_eq!(visible(10, 12, true, 4), (7, 10));
        assert_eq!(visible(10, 12, false, 4), (7, 12));
        assert_eq!(visible(10, 20, false, 4), (7, 13));
        assert_eq!(visible(2, 3, true, 4), (0, 2));
        assert_eq!(visible(10, 12, true, 0), (0, 10));
        assert_eq!(visible(10, 12, false, 0), (0, 12));
        assert_eq!(visible(5, 5, true, i64::MAX), (0, 5));
        assert_eq!(visible(-1, -1, true, 1), (0, -1));
    }
}
