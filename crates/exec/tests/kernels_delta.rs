//! The gated delta rule against its plain f64 statement, and the bits of its three forms.

mod kernels_common;

use kernels_common::*;
use spinec_exec::kernels::delta::{Records, RecordsMut, Rows, Shape, advance, fold, tentative};
use spinec_exec::kernels::simd::Real;
use spinec_exec::threads::Pool;

struct Inputs<T> {
    shape: Shape,
    q: Vec<T>,
    k: Vec<T>,
    v: Vec<T>,
    g: Vec<T>,
    beta: Vec<T>,
    state: Vec<T>,
}

impl<T: Real> Inputs<T> {
    fn new(shape: Shape, rows: usize) -> Self {
        let keys = rows * shape.key_heads * shape.key_width;
        let scaled = |n, seed, by: f64| -> Vec<T> {
            numbers::<T>(n, seed).into_iter().map(|x| T::from_f64(x.to_f64() * by)).collect()
        };
        let unit = (shape.key_width as f64).powf(-0.5);
        Self {
            shape,
            q: scaled(keys, 1, unit),
            k: scaled(keys, 2, unit),
            v: numbers(rows * shape.value_heads * shape.value_width, 3),
            g: numbers::<T>(rows * shape.value_heads, 4).into_iter().map(|x| T::from_f64(x.to_f64() - 1.1)).collect(),
            beta: numbers::<T>(rows * shape.value_heads, 5)
                .into_iter()
                .map(|x| T::from_f64(x.to_f64().mul_add(0.5, 0.5)))
                .collect(),
            state: numbers(shape.state(), 6),
        }
    }

    fn rows(&self, first: usize, last: usize) -> Rows<'_, T> {
        let Shape { key_heads, value_heads, key_width, value_width } = self.shape;
        let cut = |x, n: usize| -> &[T] { &<[T]>::as_ref(x)[first * n..last * n] };
        Rows {
            q: cut(&self.q, key_heads * key_width),
            k: cut(&self.k, key_heads * key_width),
            v: cut(&self.v, value_heads * value_width),
            g: cut(&self.g, value_heads),
            beta: cut(&self.beta, value_heads),
        }
    }

    fn values(&self) -> usize {
        self.shape.value_heads * self.shape.value_width
    }

    /// The state and outputs after `count` rows in one call.
    fn advanced(&self, pool: &Pool, count: usize) -> (Vec<T>, Vec<T>) {
        let mut state = self.state.clone();
        let mut out = vec![T::ZERO; count * self.values()];
        advance(pool, &self.shape, &self.rows(0, count), &mut [(&mut state, 0..count)], &mut out);
        (state, out)
    }

    fn plain(&self, count: usize) -> (Vec<f64>, Vec<f64>) {
        let Shape { key_heads, value_heads, key_width, value_width } = self.shape;
        let wide = |x: &[T]| x.iter().map(|x| x.to_f64()).collect::<Vec<_>>();
        let (mut state, mut out) = (wide(&self.state), Vec::new());
        for t in 0..count {
            for h in 0..value_heads {
                let key = (t * key_heads + h * key_heads / value_heads) * key_width;
                let (q, k) = (wide(&self.q[key..key + key_width]), wide(&self.k[key..key + key_width]));
                let gate = t * value_heads + h;
                for i in 0..value_width {
                    let row = &mut state[(h * value_width + i) * key_width..][..key_width];
                    row.iter_mut().for_each(|s| *s *= self.g[gate].to_f64().exp());
                    let known: f64 = row.iter().zip(&k).map(|(s, k)| s * k).sum();
                    let d = self.beta[gate].to_f64() * (self.v[gate * value_width + i].to_f64() - known);
                    row.iter_mut().zip(&k).for_each(|(s, k)| *s += d * k);
                    out.push(row.iter().zip(&q).map(|(s, q)| s * q).sum());
                }
            }
        }
        (state, out)
    }
}

const SHAPES: [(usize, usize, usize, usize); 4] = [(2, 6, 32, 32), (1, 1, 5, 7), (3, 4, 24, 40), (2, 2, 128, 128)];

fn shapes() -> impl Iterator<Item = Shape> {
    SHAPES.into_iter().map(|(key_heads, value_heads, key_width, value_width)| Shape {
        key_heads,
        value_heads,
        key_width,
        value_width,
    })
}

#[test]
fn close_to_the_plain_statement() {
    let pool = Pool::new(2);
    for shape in shapes() {
        let (narrow, wide) = (Inputs::<f32>::new(shape, 20), Inputs::<f64>::new(shape, 20));
        for count in [1, 20] {
            let ((state, out), (want_state, want)) = (narrow.advanced(&pool, count), narrow.plain(count));
            assert_close(&out, &want, 1e-5);
            assert_close(&state, &want_state, 1e-5);
            let ((state, out), (want_state, want)) = (wide.advanced(&pool, count), wide.plain(count));
            assert_close(&out, &want, 1e-13);
            assert_close(&state, &want_state, 1e-13);
        }
    }
}

#[test]
fn row_by_row_tentative_and_folded_have_the_bits_of_one_call() {
    let pools = [1, 3].map(Pool::new);
    for shape in shapes() {
        let inputs = Inputs::<f32>::new(shape, 16);
        let states: Vec<_> = (0..=16).map(|count| inputs.advanced(&pools[0], count)).collect();
        let (_, outputs) = &states[16];
        for (path, ()) in on_every_path(|| {
            for pool in &pools {
                let mut state = inputs.state.clone();
                for t in 0..16 {
                    let mut out = vec![0.0; inputs.values()];
                    advance(pool, &shape, &inputs.rows(t, t + 1), &mut [(&mut state, 0..1)], &mut out);
                    assert_bits(&out, &outputs[t * inputs.values()..][..inputs.values()], "row by row");
                    assert_bits(&state, &states[t + 1].0, "state row by row");
                }
                let keys = 16 * shape.key_heads * shape.key_width;
                let (mut decay, mut delta, mut key) =
                    (vec![0.0; 16 * shape.value_heads], vec![0.0; 16 * inputs.values()], vec![0.0; keys]);
                let mut records = RecordsMut { decay: &mut decay, delta: &mut delta, key: &mut key };
                let before = inputs.state.clone();
                let mut out = vec![0.0; outputs.len()];
                let requests = [(inputs.state.as_slice(), 0..16)];
                tentative(pool, &shape, &inputs.rows(0, 16), &requests, &mut out, &mut records);
                assert_bits(&out, outputs, "tentative outputs");
                assert_bits(&inputs.state, &before, "a tentative run keeps the state");
                let records = Records { decay: &decay, delta: &delta, key: &key };
                for (count, (want, _)) in states.iter().enumerate() {
                    let mut state = inputs.state.clone();
                    fold(pool, &shape, &records, 0..count, &mut state);
                    assert_bits(&state, want, &format!("{count} records folded"));
                }
            }
        }) {
            println!("{path:?} agrees");
        }
    }
}

#[test]
fn requests_of_a_batch_do_not_meet() {
    let shape = Shape { key_heads: 2, value_heads: 4, key_width: 16, value_width: 24 };
    let inputs = Inputs::<f32>::new(shape, 24);
    let value = inputs.values();
    let ranges = [0..3, 3..20, 20..24];
    let mut states = vec![inputs.state.clone(), numbers(shape.state(), 8), numbers(shape.state(), 9)];
    let starts = states.clone();
    let mut out = vec![0.0; 24 * value];
    let mut requests: Vec<_> = states.iter_mut().map(Vec::as_mut_slice).zip(ranges.clone()).collect();
    advance(&Pool::new(2), &shape, &inputs.rows(0, 24), &mut requests, &mut out);
    for ((range, start), state) in ranges.into_iter().zip(starts).zip(&states) {
        let mut alone = start;
        let mut y = vec![0.0; range.len() * value];
        let rows = inputs.rows(range.start, range.end);
        advance(&Pool::new(1), &shape, &rows, &mut [(&mut alone, 0..range.len())], &mut y);
        assert_bits(&out[range.start * value..range.end * value], &y, "outputs");
        assert_bits(state, &alone, "state");
    }
}
