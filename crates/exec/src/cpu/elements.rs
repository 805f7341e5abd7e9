//! Memory: typed elements, the slots that instructions read and write, and references to both.

use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::DType;
use std::sync::Arc;

use super::view::View;

/// How a dtype lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// f32; bf16 and f16 rounded to their dtype.
    F32,
    F64,
    I32,
    /// u8, bits of f8e4m3, and truth values as 0 and 1.
    U8,
}

impl Kind {
    pub fn of(dtype: DType) -> Kind {
        match dtype {
            DType::F64 => Kind::F64,
            DType::F32 | DType::F16 | DType::BF16 => Kind::F32,
            DType::I32 => Kind::I32,
            DType::U8 | DType::Bool | DType::F8E4M3 => Kind::U8,
        }
    }

    pub fn bytes(self) -> u64 {
        match self {
            Kind::F64 => 8,
            Kind::F32 | Kind::I32 => 4,
            Kind::U8 => 1,
        }
    }
}

/// Elements of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Elements {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I32(Vec<i32>),
    U8(Vec<u8>),
}

impl Elements {
    /// The elements of a tensor.
    pub fn of(t: &Tensor) -> Elements {
        match &t.data {
            Data::F64(v) => Elements::F64(v.clone()),
            Data::F32(v) => Elements::F32(v.clone()),
            Data::I32(v) => Elements::I32(v.clone()),
            Data::U8(v) => Elements::U8(v.clone()),
            Data::Bool(v) => Elements::U8(v.iter().map(|b| u8::from(*b)).collect()),
        }
    }

    /// The elements of a tensor that is not needed any more.
    pub fn from_tensor(t: Tensor) -> Elements {
        match t.data {
            Data::F64(v) => Elements::F64(v),
            Data::F32(v) => Elements::F32(v),
            Data::I32(v) => Elements::I32(v),
            Data::U8(v) => Elements::U8(v),
            Data::Bool(v) => Elements::U8(v.into_iter().map(u8::from).collect()),
        }
    }

    /// No elements of a kind.
    pub fn empty(kind: Kind) -> Elements {
        match kind {
            Kind::F32 => Elements::F32(Vec::new()),
            Kind::F64 => Elements::F64(Vec::new()),
            Kind::I32 => Elements::I32(Vec::new()),
            Kind::U8 => Elements::U8(Vec::new()),
        }
    }

    /// Makes room for exactly so many more.
    pub fn reserve(&mut self, n: usize) {
        match self {
            Elements::F32(v) => v.reserve_exact(n),
            Elements::F64(v) => v.reserve_exact(n),
            Elements::I32(v) => v.reserve_exact(n),
            Elements::U8(v) => v.reserve_exact(n),
        }
    }

    /// Puts elements of the same kind behind; those of another kind are left away.
    pub fn append(&mut self, more: &Elements) {
        match (self, more) {
            (Elements::F32(v), Elements::F32(m)) => v.extend_from_slice(m),
            (Elements::F64(v), Elements::F64(m)) => v.extend_from_slice(m),
            (Elements::I32(v), Elements::I32(m)) => v.extend_from_slice(m),
            (Elements::U8(v), Elements::U8(m)) => v.extend_from_slice(m),
            _ => {}
        }
    }

    /// What a view of them shows, in row-major order; `None` if it leaves them.
    pub fn viewed(&self, view: &View) -> Option<Elements> {
        match self {
            Elements::F32(v) => view.gather(v).map(Elements::F32),
            Elements::F64(v) => view.gather(v).map(Elements::F64),
            Elements::I32(v) => view.gather(v).map(Elements::I32),
            Elements::U8(v) => view.gather(v).map(Elements::U8),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Elements::F32(_) => Kind::F32,
            Elements::F64(_) => Kind::F64,
            Elements::I32(_) => Kind::I32,
            Elements::U8(_) => Kind::U8,
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Elements::F32(v) => v.len(),
            Elements::F64(v) => v.len(),
            Elements::I32(v) => v.len(),
            Elements::U8(v) => v.len(),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.len() as u64 * self.kind().bytes()
    }
}

/// A type of elements in memory.
pub(super) trait Elem: Copy + Default + PartialEq + Send + Sync + 'static {
    const KIND: Kind;
    /// The elements, if they are of this type.
    fn of(e: &Elements) -> Option<&[Self]>;
    fn slots(a: &Arena) -> &[Vec<Self>];
    fn slots_mut(a: &mut Arena) -> &mut Vec<Vec<Self>>;
}

macro_rules! elem {
    ($t:ty, $kind:ident, $field:ident) => {
        impl Elem for $t {
            const KIND: Kind = Kind::$kind;
            fn of(e: &Elements) -> Option<&[Self]> {
                match e {
                    Elements::$kind(v) => Some(v),
                    _ => None,
                }
            }
            fn slots(a: &Arena) -> &[Vec<Self>] {
                &a.$field
            }
            fn slots_mut(a: &mut Arena) -> &mut Vec<Vec<Self>> {
                &mut a.$field
            }
        }
    };
}

elem!(f32, F32, f32);
elem!(f64, F64, f64);
elem!(i32, I32, i32);
elem!(u8, U8, u8);

/// Slots by kind. A slot is reused by all buffers, of all tapes, that are not live at the same time.
#[derive(Debug, Default)]
pub(super) struct Arena {
    f32: Vec<Vec<f32>>,
    f64: Vec<Vec<f64>>,
    i32: Vec<Vec<i32>>,
    u8: Vec<Vec<u8>>,
}

/// Elements each slot must have, by kind in the order of [`Kind`].
pub(super) type SlotSizes = [Vec<usize>; 4];

impl Arena {
    /// Makes every slot at least as long as `sizes` says.
    pub fn fit(&mut self, sizes: &SlotSizes) {
        fn grow<E: Elem>(a: &mut Arena, sizes: &[usize]) {
            let slots = E::slots_mut(a);
            if slots.len() < sizes.len() {
                slots.resize_with(sizes.len(), Vec::new);
            }
            for (slot, size) in slots.iter_mut().zip(sizes) {
                if slot.len() < *size {
                    slot.resize(*size, E::default());
                }
            }
        }
        grow::<f32>(self, &sizes[Kind::F32 as usize]);
        grow::<f64>(self, &sizes[Kind::F64 as usize]);
        grow::<i32>(self, &sizes[Kind::I32 as usize]);
        grow::<u8>(self, &sizes[Kind::U8 as usize]);
    }

    pub fn bytes(&self) -> u64 {
        let sum = |n: usize, k: Kind| n as u64 * k.bytes();
        sum(self.f32.iter().map(Vec::capacity).sum(), Kind::F32)
            + sum(self.f64.iter().map(Vec::capacity).sum(), Kind::F64)
            + sum(self.i32.iter().map(Vec::capacity).sum(), Kind::I32)
            + sum(self.u8.iter().map(Vec::capacity).sum(), Kind::U8)
    }

    /// Takes a slot out for writing; [`Arena::give`] brings it back.
    pub fn take<E: Elem>(&mut self, out: &Out) -> Vec<E> {
        std::mem::take(&mut E::slots_mut(self)[out.slot as usize])
    }

    pub fn give<E: Elem>(&mut self, out: &Out, memory: Vec<E>) {
        E::slots_mut(self)[out.slot as usize] = memory;
    }
}

/// Where operands lie.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A buffer while a tape is built, its slot afterwards.
    Slot(u32),
    /// Constants, kept alive by whoever refers to them.
    Held(Arc<Elements>),
}

/// A range of elements to read.
#[derive(Clone, Debug)]
pub(super) struct Ref {
    pub place: Place,
    pub kind: Kind,
    pub offset: usize,
    pub len: usize,
}

impl Ref {
    pub fn get<'a, E: Elem>(&'a self, arena: &'a Arena) -> &'a [E] {
        debug_assert_eq!(self.kind, E::KIND);
        let all = match &self.place {
            Place::Slot(slot) => E::slots(arena)[*slot as usize].as_slice(),
            Place::Held(e) => E::of(e).unwrap_or(&[]),
        };
        &all[self.offset..self.offset + self.len]
    }
}

/// A buffer to write, from its first element on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Out {
    /// The buffer while a tape is built, its slot afterwards.
    pub slot: u32,
    pub kind: Kind,
    pub len: usize,
}

/// A tensor of the elements a view shows; `elements` begins at the view's first.
pub(super) fn tensor_of(dtype: DType, view: &View, elements: &Ref, arena: &Arena) -> Option<Tensor> {
    fn pick<E: Elem>(view: &View, elements: &Ref, arena: &Arena) -> Vec<E> {
        let all = elements.get::<E>(arena);
        if view.is_dense() {
            return all[..view.len()].to_vec();
        }
        View { offset: 0, ..view.clone() }.places().into_iter().map(|p| all[p]).collect()
    }
    let data = match Kind::of(dtype) {
        Kind::F64 => Data::F64(pick(view, elements, arena)),
        Kind::F32 => Data::F32(pick(view, elements, arena)),
        Kind::I32 => Data::I32(pick(view, elements, arena)),
        Kind::U8 if dtype == DType::Bool => {
            Data::Bool(pick::<u8>(view, elements, arena).into_iter().map(|b| b != 0).collect())
        }
        Kind::U8 => Data::U8(pick(view, elements, arena)),
    };
    Tensor::new(dtype, view.shape.clone(), data)
}
