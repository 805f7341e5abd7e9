//! The packed form of a weight matrix.
//!
//! Outputs are cut into panels of 16, panels into groups of [`GROUP`] (the last group may hold fewer). A group is stored
//! as `[K][panels of the group][16]`, so that one walk over `k` reads a single stream. bf16 weights keep two successive
//! `k` in one word, the even one in the lower half, so that a panel's two vectors come from one load. Outputs past the
//! last are zeros; they are computed and never stored.

use super::super::simd::{LANES, Real};
use crate::threads::Pool;
use std::ops::Range;

/// Panels of a full group: four AVX-512 accumulators a row.
pub(super) const GROUP: usize = 4;

/// Lines of a weight that are asked for before its product begins.
const FIRST_LINES: usize = 256;

/// Sixteen lanes at a cache line's start.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line<E>(pub(super) [E; LANES]);

/// The lanes in memory.
pub(super) enum Store<T> {
    Plain(Vec<Line<T>>),
    /// Lines of bf16 pairs over `k.div_ceil(2)` steps.
    Bf16(Vec<Line<u32>>),
}

/// A weight matrix `[outputs, inputs]` in packed form, for [`super::linear`].
pub struct PackedB<T> {
    outputs: usize,
    inputs: usize,
    pub(super) store: Store<T>,
}

impl<T> std::fmt::Debug for PackedB<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.store {
            Store::Plain(_) => "plain",
            Store::Bf16(_) => "bf16",
        };
        write!(f, "PackedB([{}, {}], {kind})", self.outputs, self.inputs)
    }
}

impl<T: Real> PackedB<T> {
    /// Packs a row-major weight `[outputs, inputs]`.
    ///
    /// # Panics
    /// If `w` does not hold `outputs * inputs` elements.
    #[must_use]
    pub fn new(pool: &Pool, w: &[T], outputs: usize, inputs: usize) -> Self {
        assert_eq!(w.len(), outputs * inputs, "weight is not [outputs, inputs]");
        let mut out = Self::zeros(outputs, inputs);
        out.put(pool, 0, w);
        out
    }

    /// A weight of zeros, for [`PackedB::put`].
    #[must_use]
    pub fn zeros(outputs: usize, inputs: usize) -> Self {
        let lines = vec![Line([T::ZERO; LANES]); outputs.div_ceil(LANES) * inputs];
        Self { outputs, inputs, store: Store::Plain(lines) }
    }

    /// A weight of bf16 zeros, for [`PackedB::put_bf16`].
    #[must_use]
    pub fn zeros_bf16(outputs: usize, inputs: usize) -> Self {
        let lines = vec![Line([0; LANES]); outputs.div_ceil(LANES) * inputs.div_ceil(2)];
        Self { outputs, inputs, store: Store::Bf16(lines) }
    }

    /// Sets outputs `first..` to the rows `w`, a multiple of `inputs` elements.
    ///
    /// # Panics
    /// If the weight holds bf16 bits or has not as many outputs.
    pub fn put(&mut self, pool: &Pool, first: usize, w: &[T]) {
        let inputs = self.inputs;
        let Store::Plain(lines) = &mut self.store else { panic!("the weight holds bf16 bits") };
        let rows = first..first + w.len().checked_div(inputs).unwrap_or(0);
        assert!(rows.end <= self.outputs, "the weight has fewer outputs");
        pack(pool, lines, rows, inputs, |row, k| w[row * inputs + k]);
    }

    /// Sets outputs `first..` to rows of bf16 bits, a multiple of `inputs` elements.
    ///
    /// # Panics
    /// If the weight holds no bf16 bits or has not as many outputs.
    pub fn put_bf16(&mut self, pool: &Pool, first: usize, bits: &[u16]) {
        let inputs = self.inputs;
        let Store::Bf16(lines) = &mut self.store else { panic!("the weight holds no bf16 bits") };
        let rows = first..first + bits.len().checked_div(inputs).unwrap_or(0);
        assert!(rows.end <= self.outputs, "the weight has fewer outputs");
        pack(pool, lines, rows, inputs.div_ceil(2), |row, pair| {
            let at = |k: usize| if k < inputs { u32::from(bits[row * inputs + k]) } else { 0 };
            at(2 * pair) | at(2 * pair + 1) << 16
        });
    }

    /// Packs a row-major weight `[outputs, inputs]` of bf16 bits, two bytes an element. Results are the bits that the
    /// widened weight gives.
    ///
    /// # Panics
    /// If `bits` does not hold `outputs * inputs` elements.
    #[must_use]
    pub fn from_bf16(pool: &Pool, bits: &[u16], outputs: usize, inputs: usize) -> Self {
        assert_eq!(bits.len(), outputs * inputs, "weight is not [outputs, inputs]");
        let mut out = Self::zeros_bf16(outputs, inputs);
        out.put_bf16(pool, 0, bits);
        out
    }

    /// Rows of the weight: elements of an output row.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the weight: elements of an input row.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Asks for the first lines, which the next product begins with.
    pub fn prefetch(&self) {
        fn lines<E>(lines: &[Line<E>]) {
            lines.iter().take(FIRST_LINES).for_each(|l| super::tile::fetch(std::ptr::from_ref(l)));
        }
        match &self.store {
            Store::Plain(l) => lines(l),
            Store::Bf16(l) => lines(l),
        }
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.store {
            Store::Plain(lines) => size_of_val(lines.as_slice()),
            Store::Bf16(lines) => size_of_val(lines.as_slice()),
        }
    }
}

/// Fills the lanes of outputs `rows` over `steps` steps of `k`, a group a task. `at` counts rows from 0.
fn pack<E: Copy + Send + Sync>(
    pool: &Pool,
    lines: &mut [Line<E>],
    rows: Range<usize>,
    steps: usize,
    at: impl Fn(usize, usize) -> E + Sync,
) {
    const HIGH: usize = GROUP * LANES;
    if rows.is_empty() || steps == 0 {
        return;
    }
    let first = rows.start / HIGH;
    let end = (rows.end.div_ceil(HIGH) * GROUP * steps).min(lines.len());
    pool.par_chunks_mut(&mut lines[first * GROUP * steps..end], GROUP * steps, |group, lines| {
        let width = lines.len() / steps;
        for panel in 0..width {
            for lane in 0..LANES {
                let o = ((first + group) * GROUP + panel) * LANES + lane;
                if rows.contains(&o) {
                    for k in 0..steps {
                        lines[k * width + panel].0[lane] = at(o - rows.start, k);
                    }
                }
            }
        }
    });
}
