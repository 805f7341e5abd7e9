//! Convolution windows and the gated delta rule. Both take the rows of a request one by one, so feeding them in pieces
//! gives the same bits as feeding them at once. Padding rows give zeros and change nothing.

use super::attention::{batch, expect, real_rows};
use super::call::{Call, Slot};
use super::number::{Real, from_reals, reals};
use super::state::{Shape, StateValue};

/// Output and next window. The newest row enters as given, older rows as the window stores them.
pub(super) fn causal_conv(call: &Call) -> Result<Vec<Slot>, String> {
    if call.wide() { causal_conv_in::<f64>(call) } else { causal_conv_in::<f32>(call) }
}

fn causal_conv_in<R: Real>(call: &Call) -> Result<Vec<Slot>, String> {
    let (window, x, taps) = (call.state(0)?, call.tensor(1)?, call.tensor(2)?);
    let [n, t, channels] = batch(x, window, "x")?;
    let kept = match window.shape {
        Shape::Window { channels: c, kept } if c == channels => kept,
        _ => return Err(format!("a convolution of {channels} channels over the state {:?}", window.shape)),
    };
    if taps.len() != channels * (kept + 1) {
        return Err(format!("{} taps for {channels} channels and a window of {kept} rows", taps.len()));
    }
    let rows = real_rows(call, 3, n, t)?;
    let (values, taps) = (reals::<f64>(x), reals::<R>(taps));
    let mut out = vec![R::ZERO; values.len()];
    let mut next = window.clone();
    for (request, element) in next.requests.iter_mut().enumerate() {
        for row in 0..rows[request] {
            let start = (request * t + row) * channels;
            let newest = &values[start..start + channels];
            let mut after = element.fixed()?.to_vec();
            for c in 0..channels {
                let old = &mut after[c * kept..(c + 1) * kept];
                let filter = &taps[c * (kept + 1)..(c + 1) * (kept + 1)];
                let past = old.iter().zip(filter).fold(R::ZERO, |acc, (x, w)| acc + R::from_f64(*x) * *w);
                out[start + c] = past + R::from_f64(newest[c]) * filter[kept];
                if kept > 0 {
                    old.rotate_left(1);
                    old[kept - 1] = window.stored(newest[c]);
                }
            }
            element.advance(after);
        }
    }
    Ok(vec![from_reals(call.out(0)?.dtype, x.shape.clone(), out)?.into(), next.into()])
}

/// Output and next state. The state is rounded to its dtype after every row.
pub(super) fn delta_rule(call: &Call) -> Result<Vec<Slot>, String> {
    if call.wide() { delta_rule_in::<f64>(call) } else { delta_rule_in::<f32>(call) }
}

/// Extents of the delta rule: rows a request, key heads, value heads, key width, value width.
struct Extents {
    t: usize,
    gk: usize,
    gv: usize,
    dk: usize,
    dv: usize,
}

fn delta_rule_in<R: Real>(call: &Call) -> Result<Vec<Slot>, String> {
    let state = call.state(0)?;
    let (q, k, v, decay, beta) = (call.tensor(1)?, call.tensor(2)?, call.tensor(3)?, call.tensor(4)?, call.tensor(5)?);
    let [n, t, gk, dk] = batch(q, state, "q")?;
    let [_, _, gv, dv] = batch(v, state, "v")?;
    expect(k, &q.shape, "k")?;
    expect(v, &[n, t, gv, dv], "v")?;
    expect(decay, &[n, t, gv], "decay")?;
    expect(beta, &[n, t, gv], "beta")?;
    if state.shape != Shape::Recurrent(vec![gv, dk, dv]) || gk == 0 || gv % gk != 0 {
        return Err(format!("{gv} value heads over {gk} key heads do not fit the state {:?}", state.shape));
    }
    let rows = real_rows(call, 6, n, t)?;
    let ex = Extents { t, gk, gv, dk, dv };
    let inputs = [reals::<R>(q), reals::<R>(k), reals::<R>(v), reals::<R>(decay), reals::<R>(beta)];
    let mut out = vec![R::ZERO; v.len()];
    let mut next = state.clone();
    for (request, element) in next.requests.iter_mut().enumerate() {
        for row in 0..rows[request] {
            let place = request * ex.t + row;
            let mut s: Vec<R> = element.fixed()?.iter().map(|x| R::from_f64(*x)).collect();
            let o = &mut out[place * gv * dv..(place + 1) * gv * dv];
            step(&ex, place, &inputs, &mut s, o);
            element.advance(s.into_iter().map(|x| state.stored(x.to_f64())).collect());
        }
    }
    let out = from_reals(call.out(0)?.dtype, v.shape.clone(), out)?;
    Ok(vec![out.into(), StateValue::into(next)])
}

/// One row of one request: advances `s` [GV, DK, DV] and fills `out` [GV, DV].
fn step<R: Real>(ex: &Extents, place: usize, inputs: &[Vec<R>; 5], s: &mut [R], out: &mut [R]) {
    let [q, k, v, decay, beta] = inputs;
    let (dk, dv) = (ex.dk, ex.dv);
    for h in 0..ex.gv {
        let key = (place * ex.gk + h * ex.gk / ex.gv) * dk;
        let (q, k) = (&q[key..key + dk], &k[key..key + dk]);
        let head = place * ex.gv + h;
        let v = &v[head * dv..(head + 1) * dv];
        let s = &mut s[h * dk * dv..(h + 1) * dk * dv];
        let alpha = decay[head].exp();
        s.iter_mut().for_each(|x| *x = alpha * *x);
        for j in 0..dv {
            let seen = (0..dk).fold(R::ZERO, |acc, i| acc + s[i * dv + j] * k[i]);
            let d = beta[head] * (v[j] - seen);
            for i in 0..dk {
                s[i * dv + j] = s[i * dv + j] + d * k[i];
            }
            out[h * dv + j] = (0..dk).fold(R::ZERO, |acc, i| acc + s[i * dv + j] * q[i]);
        }
    }
}
