//! Recurrent states and convolution windows: content, and rows that wait for a commit.

use crate::kernels::delta;
use crate::kernels::simd::Real;
use crate::runtime::Mode;
use crate::threads::Pool;

/// Rows of a tentative run that are not committed.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Segment<T> {
    pub rows: usize,
    pub what: Pending,
    pub decay: Vec<T>,
    pub delta: Vec<T>,
    pub key: Vec<T>,
    /// The whole state after each row, or the row a window stores.
    pub states: Vec<T>,
    pub shape: Option<delta::Shape>,
}

/// How a segment's rows are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Pending {
    /// Records of a delta rule.
    Records,
    /// Whole states.
    #[default]
    States,
    /// Rows that enter a window.
    Inputs,
}

/// A recurrent state or window of one request.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Fixed<T> {
    pub value: Vec<T>,
    /// Segments of the last tentative run, `used` of them in use; `None`: the state has moved on.
    pub segments: Vec<Segment<T>>,
    pub used: Option<usize>,
}

/// [`Fixed`] in the type the state's dtype lies in.
#[derive(Clone, Debug)]
pub(in super::super) enum Element {
    Pool,
    F32(Fixed<f32>),
    F64(Fixed<f64>),
}

impl<T: Real> Fixed<T> {
    /// Forgets rows that were not committed; rows of a tentative run wait for a commit.
    pub fn begin(&mut self, mode: Mode) {
        self.used = (mode == Mode::Tentative).then_some(0);
    }

    /// A segment for `rows` more rows, with the memory of one from an earlier run.
    pub fn segment(&mut self, rows: usize, what: Pending) -> &mut Segment<T> {
        let used = self.used.unwrap_or(0);
        if self.segments.len() == used {
            self.segments.push(Segment::default());
        }
        self.used = Some(used + 1);
        let s = &mut self.segments[used];
        s.rows = rows;
        s.what = what;
        s
    }

    pub fn waiting(&self) -> Option<usize> {
        self.used.map(|used| self.segments[..used].iter().map(|s| s.rows).sum())
    }

    /// Applies the first `rows` waiting rows to `value`.
    pub fn apply(&self, pool: &Pool, rows: usize, value: &mut [T]) {
        let size = value.len();
        let mut left = rows;
        for s in &self.segments[..self.used.unwrap_or(0)] {
            let n = left.min(s.rows);
            left -= n;
            if n == 0 {
                continue;
            }
            match (s.what, s.shape) {
                (Pending::Records, Some(shape)) => {
                    let records = delta::Records { decay: &s.decay, delta: &s.delta, key: &s.key };
                    delta::fold(pool, &shape, &records, 0..n, value);
                }
                (Pending::Inputs, _) => {
                    let channels = s.states.len() / s.rows;
                    let new = n * channels;
                    if new >= size {
                        value.copy_from_slice(&s.states[new - size..new]);
                    } else {
                        value.copy_within(new.., 0);
                        value[size - new..].copy_from_slice(&s.states[..new]);
                    }
                }
                _ => value.copy_from_slice(&s.states[(n - 1) * size..n * size]),
            }
        }
    }

    pub fn commit(&mut self, pool: &Pool, rows: usize) {
        if self.used.is_some() {
            let mut value = std::mem::take(&mut self.value);
            self.apply(pool, rows, &mut value);
            self.value = value;
            self.used = None;
        }
    }

    pub fn bytes(&self) -> [usize; 2] {
        let pending = |s: &Segment<T>| s.decay.capacity() + s.delta.capacity() + s.key.capacity() + s.states.capacity();
        [self.value.capacity() * size_of::<T>(), self.segments.iter().map(pending).sum::<usize>() * size_of::<T>()]
    }
}

impl Element {
    pub fn begin(&mut self, mode: Mode) {
        match self {
            Element::Pool => {}
            Element::F32(f) => f.begin(mode),
            Element::F64(f) => f.begin(mode),
        }
    }

    pub fn forget(&mut self) {
        match self {
            Element::Pool => {}
            Element::F32(f) => f.used = None,
            Element::F64(f) => f.used = None,
        }
    }

    pub fn waiting(&self) -> Option<usize> {
        match self {
            Element::Pool => None,
            Element::F32(f) => f.waiting(),
            Element::F64(f) => f.waiting(),
        }
    }

    pub fn commit(&mut self, pool: &Pool, rows: usize) {
        match self {
            Element::Pool => {}
            Element::F32(f) => f.commit(pool, rows),
            Element::F64(f) => f.commit(pool, rows),
        }
    }

    /// Bytes of the state and of waiting rows.
    pub fn bytes(&self) -> [usize; 2] {
        match self {
            Element::Pool => [0, 0],
            Element::F32(f) => f.bytes(),
            Element::F64(f) => f.bytes(),
        }
    }
}
