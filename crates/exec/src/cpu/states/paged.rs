//! Paged keys and values.

use super::PAGE;
use crate::kernels::simd::Real;

/// Keys and values of one element of a pool state, [pages * PAGE, heads, width] each.
#[derive(Clone, Debug)]
pub(in super::super) struct KeysValues<T> {
    pub k: Vec<T>,
    pub v: Vec<T>,
    /// Elements of a position.
    pub row: usize,
}

/// [`KeysValues`] in the type the state's dtype lies in.
#[derive(Clone, Debug)]
pub(in super::super) enum Paged {
    F32(KeysValues<f32>),
    F64(KeysValues<f64>),
}

impl<T: Real> KeysValues<T> {
    pub fn grow(&mut self, pages: usize) {
        let nan = T::from_f64(f64::NAN);
        self.k.resize(pages * PAGE * self.row, nan);
        self.v.resize(pages * PAGE * self.row, nan);
    }

    pub fn spoil(&mut self, slots: std::ops::Range<usize>) {
        let nan = T::from_f64(f64::NAN);
        self.k[slots.start * self.row..slots.end * self.row].fill(nan);
        self.v[slots.start * self.row..slots.end * self.row].fill(nan);
    }
}

impl Paged {
    pub fn grow(&mut self, pages: usize) {
        match self {
            Paged::F32(p) => p.grow(pages),
            Paged::F64(p) => p.grow(pages),
        }
    }

    pub fn spoil(&mut self, slots: std::ops::Range<usize>) {
        match self {
            Paged::F32(p) => p.spoil(slots),
            Paged::F64(p) => p.spoil(slots),
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Paged::F32(p) => 4 * (p.k.capacity() + p.v.capacity()),
            Paged::F64(p) => 8 * (p.k.capacity() + p.v.capacity()),
        }
    }
}
