//! What does not depend on a run: weights, values computed from weights alone, and the forms instructions want them in.
//!
//! A constant is identified by what it is, not by who asks: weights by their tensor, results of ops by op, attributes
//! and operands. Nothing is fetched, computed or packed before an instruction needs it, and each form is made once.

use super::elements::{Elem, Elements, Kind};
use super::emit::{Call, evaluate};
use super::instr::{Packed, TapsOf};
use super::view::View;
use crate::kernels::conv::Taps;
use crate::kernels::gemm::PackedB;
use crate::threads::Pool;
use crate::weights::tensor_name;
use spinec_ir::interp::{WeightStore, f8};
use spinec_ir::ir::{Attrs, Weight, WeightId};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::DType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A tensor while a tape is built.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Val {
    pub src: Src,
    pub dtype: DType,
    pub view: View,
}

/// What holds a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Src {
    /// A buffer of the tape.
    Buf(u32),
    /// A constant of the runtime.
    Const(u32),
}

impl Val {
    pub fn kind(&self) -> Kind {
        Kind::of(self.dtype)
    }

    pub fn is_const(&self) -> bool {
        matches!(self.src, Src::Const(_))
    }

    /// Tells two tensors apart.
    pub fn key(&self) -> String {
        let View { shape, strides, offset } = &self.view;
        format!("{:?} {} {shape:?} {strides:?} {offset}", self.src, self.dtype)
    }
}

enum Origin {
    Weight(WeightId, Vec<i64>),
    /// Elements that were given.
    Value,
    /// Result `which` of an op; the other results stand next to it.
    Derived {
        code: Opcode,
        attrs: Attrs,
        operands: Vec<Val>,
        results: Vec<(DType, Vec<usize>)>,
        which: usize,
    },
}

struct Constant {
    dtype: DType,
    shape: Vec<usize>,
    origin: Origin,
    plain: Option<Arc<Elements>>,
}

/// Whom a constant's bytes count for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Weights,
    Derived,
    HeadFp8,
}

/// A form of a constant with its bytes.
struct Form<T> {
    owner: Owner,
    bytes: u64,
    what: T,
}

/// Weights and constants of a runtime.
pub(super) struct Shared {
    pub pool: Pool,
    store: Box<dyn WeightStore + Send + Sync>,
    weights: Vec<Weight>,
    consts: Vec<Constant>,
    by_key: BTreeMap<String, u32>,
    packed: BTreeMap<(String, bool), Form<Packed>>,
    tables: BTreeMap<String, Option<Form<Arc<Vec<u16>>>>>,
    taps: BTreeMap<(String, bool), Form<Arc<TapsOf>>>,
}

type Step<T> = Result<T, String>;

impl Shared {
    pub fn new(weights: &[Weight], store: Box<dyn WeightStore + Send + Sync>, threads: usize) -> Shared {
        Shared {
            pool: Pool::new(threads),
            store,
            weights: weights.to_vec(),
            consts: Vec::new(),
            by_key: BTreeMap::new(),
            packed: BTreeMap::new(),
            tables: BTreeMap::new(),
            taps: BTreeMap::new(),
        }
    }

    fn add(&mut self, key: String, dtype: DType, shape: Vec<usize>, origin: Origin, plain: Option<Elements>) -> Val {
        let id = match self.by_key.get(&key) {
            Some(id) => *id,
            None => {
                let id = self.consts.len() as u32;
                let plain = plain.map(Arc::new);
                self.consts.push(Constant { dtype, shape: shape.clone(), origin, plain });
                self.by_key.insert(key, id);
                id
            }
        };
        Val { src: Src::Const(id), dtype, view: View::dense(&shape) }
    }

    /// How many weights there are, derived ones not counted.
    pub fn weights(&self) -> usize {
        self.weights.len()
    }

    /// A weight at the indices of its loops.
    pub fn weight(&mut self, id: WeightId, index: &[i64]) -> Step<Val> {
        let w = self.weights.get(id.index()).ok_or_else(|| format!("there is no weight {}", id.0))?;
        let within = index.len() == w.loops.len() && index.iter().zip(&w.loops).all(|(i, (_, n))| (0..*n).contains(i));
        let flat = index.iter().zip(&w.loops).fold(0, |flat, (i, (_, n))| flat * n + i);
        if !within || (!w.present.is_empty() && w.present.get(flat as usize) != Some(&true)) {
            return Err(format!("weight `{}` does not exist at {index:?}", w.name));
        }
        let shape = crate::weights::shape(w).ok_or_else(|| format!("weight `{}` has no known shape", w.name))?;
        let key = match tensor_name(w, index) {
            Some((checkpoint, name)) => format!("tensor {checkpoint:?} {name:?} {}", w.ty.dtype),
            None => format!("weight {} {index:?}", id.0),
        };
        Ok(self.add(key, w.ty.dtype, shape, Origin::Weight(id, index.to_vec()), None))
    }

    /// A tensor that is known.
    pub fn value(&mut self, t: &Tensor) -> Val {
        let key = format!("value {} {:?} {:?}", t.dtype, t.shape, t.data);
        self.add(key, t.dtype, t.shape.clone(), Origin::Value, Some(Elements::of(t)))
    }

    /// The results of an op on constants.
    pub fn derived(&mut self, call: &Call) -> Vec<Val> {
        let operands: Vec<String> = call.operands.iter().map(Val::key).collect();
        let key = format!("{} {:?} {operands:?} {:?}", call.code.name(), call.attrs, call.results);
        let mut out = Vec::new();
        for (which, (dtype, shape)) in call.results.iter().enumerate() {
            let origin = Origin::Derived {
                code: call.code,
                attrs: call.attrs.clone(),
                operands: call.operands.to_vec(),
                results: call.results.to_vec(),
                which,
            };
            out.push(self.add(format!("{key} {which}"), *dtype, shape.clone(), origin, None));
        }
        out
    }

    fn owner(&self, id: u32) -> Owner {
        let c = &self.consts[id as usize];
        match c.origin {
            Origin::Weight(..) => Owner::Weights,
            _ if c.dtype == DType::F8E4M3 => Owner::HeadFp8,
            _ => Owner::Derived,
        }
    }

    /// The elements of a whole constant, not kept if they are a weight's.
    fn elements(&mut self, id: u32) -> Step<Arc<Elements>> {
        let c = &self.consts[id as usize];
        if let Some(e) = &c.plain {
            return Ok(e.clone());
        }
        match &c.origin {
            Origin::Value => Err("a value without elements".into()),
            Origin::Weight(weight, index) => {
                let w = &self.weights[weight.index()];
                let t =
                    self.store.weight(*weight, index).map_err(|m| format!("weight `{}` at {index:?}: {m}", w.name))?;
                if t.dtype != c.dtype || t.shape != c.shape || t.len() != c.shape.iter().product::<usize>() {
                    let (dtype, shape) = (c.dtype, &c.shape);
                    return Err(format!("weight `{}` is {}{:?}, not {dtype}{shape:?}", w.name, t.dtype, t.shape));
                }
                Ok(Arc::new(Elements::of(&t)))
            }
            Origin::Derived { code, attrs, operands, results, which } => {
                let (code, attrs, operands, results) = (*code, attrs.clone(), operands.clone(), results.clone());
                let first = id as usize - which;
                let mut given = Vec::new();
                for v in &operands {
                    given.push((v.dtype, v.view.shape.clone(), self.viewed(v)?));
                }
                for (i, e) in evaluate(self, code, &attrs, given, &results)?.into_iter().enumerate() {
                    self.consts[first + i].plain = Some(Arc::new(e));
                }
                let made = self.consts[id as usize].plain.clone();
                made.ok_or_else(|| "an op did not make all its results".into())
            }
        }
    }

    /// The elements of a whole constant, kept from now on.
    pub fn plain(&mut self, id: u32) -> Step<Arc<Elements>> {
        let e = self.elements(id)?;
        self.consts[id as usize].plain = Some(e.clone());
        Ok(e)
    }

    /// The elements a view of a constant shows, in row-major order.
    pub fn viewed(&mut self, v: &Val) -> Step<Elements> {
        fn pick<E: Elem>(e: &Elements, view: &View) -> Option<Elements> {
            let all = E::of(e)?;
            if view.is_dense() {
                return Some(E::wrap(all.get(view.offset..view.offset + view.len())?.to_vec()));
            }
            Some(E::wrap(view.places().into_iter().map(|p| all[p]).collect()))
        }
        let Src::Const(id) = v.src else { return Err("a buffer is no constant".into()) };
        let e = self.elements(id)?;
        let picked = match e.kind() {
            Kind::F32 => pick::<f32>(&e, &v.view),
            Kind::F64 => pick::<f64>(&e, &v.view),
            Kind::I32 => pick::<i32>(&e, &v.view),
            Kind::U8 => pick::<u8>(&e, &v.view),
        };
        picked.ok_or_else(|| "a view leaves its constant".into())
    }

    /// A constant of one element as a number.
    pub fn number(&mut self, v: &Val) -> Step<f64> {
        let one = View { shape: vec![], strides: vec![], offset: v.view.offset };
        Ok(match self.viewed(&Val { view: one, ..v.clone() })? {
            Elements::F32(x) => f64::from(x[0]),
            Elements::F64(x) => x[0],
            Elements::I32(x) => f64::from(x[0]),
            Elements::U8(x) if v.dtype == DType::F8E4M3 => f64::from(f8::decode(x[0])),
            Elements::U8(x) => f64::from(x[0]),
        })
    }

    fn owner_of(&self, v: &Val) -> Owner {
        match v.src {
            Src::Const(id) => self.owner(id),
            Src::Buf(_) => Owner::Derived,
        }
    }

    /// A constant matrix packed for products in f64 (`wide`) or f32. Weights whose every element is a bf16 number are
    /// packed as such, at half the size and with the same results.
    pub fn packed(&mut self, v: &Val, wide: bool) -> Step<Packed> {
        let key = (v.key(), wide);
        if let Some(form) = self.packed.get(&key) {
            return Ok(form.what.clone());
        }
        let [outputs, inputs] = *v.view.shape.as_slice() else { return Err("a matrix is needed".into()) };
        let elements = self.viewed(v)?;
        let pool = &self.pool;
        let (what, bytes) = if wide {
            let p = PackedB::new(pool, &f64s(&elements, v.dtype), outputs, inputs);
            let bytes = p.bytes();
            (Packed::F64(Arc::new(p)), bytes)
        } else {
            let x = f32s(elements, v.dtype);
            let p = match bf16_bits(&x) {
                Some(bits) => PackedB::from_bf16(pool, &bits, outputs, inputs),
                None => PackedB::new(pool, &x, outputs, inputs),
            };
            let bytes = p.bytes();
            (Packed::F32(Arc::new(p)), bytes)
        };
        let owner = self.owner_of(v);
        self.packed.insert(key, Form { owner, bytes: bytes as u64, what: what.clone() });
        Ok(what)
    }

    /// A weight of f32 kind as a table of bf16 bits, if it is one.
    pub fn bf16_table(&mut self, v: &Val) -> Step<Option<Arc<Vec<u16>>>> {
        let key = v.key();
        if let Some(known) = self.tables.get(&key) {
            return Ok(known.as_ref().map(|f| f.what.clone()));
        }
        let form = match self.viewed(v)? {
            Elements::F32(x) => bf16_bits(&x).map(|bits| {
                let bytes = 2 * bits.len() as u64;
                Form { owner: self.owner_of(v), bytes, what: Arc::new(bits) }
            }),
            _ => None,
        };
        let what = form.as_ref().map(|f| f.what.clone());
        self.tables.insert(key, form);
        Ok(what)
    }

    /// Constant filter taps of `channels` channels.
    pub fn taps(&mut self, v: &Val, channels: usize, wide: bool) -> Step<Arc<TapsOf>> {
        let key = (v.key(), wide);
        if let Some(form) = self.taps.get(&key) {
            return Ok(form.what.clone());
        }
        let elements = self.viewed(v)?;
        let bytes = elements.bytes();
        let what = Arc::new(if wide {
            TapsOf::F64(Taps::new(&f64s(&elements, v.dtype), channels))
        } else {
            TapsOf::F32(Taps::new(&f32s(elements, v.dtype), channels))
        });
        let owner = self.owner_of(v);
        self.taps.insert(key, Form { owner, bytes, what: what.clone() });
        Ok(what)
    }

    /// Bytes of weights, of derived values and of 8-bit copies.
    pub fn bytes(&self) -> [u64; 3] {
        let mut out = [0; 3];
        for (id, c) in self.consts.iter().enumerate() {
            out[self.owner(id as u32) as usize] += c.plain.as_ref().map_or(0, |e| e.bytes());
        }
        self.packed.values().for_each(|f| out[f.owner as usize] += f.bytes);
        self.tables.values().flatten().for_each(|f| out[f.owner as usize] += f.bytes);
        self.taps.values().for_each(|f| out[f.owner as usize] += f.bytes);
        out
    }
}

/// The upper halves of numbers that all are bf16 numbers.
fn bf16_bits(x: &[f32]) -> Option<Vec<u16>> {
    x.iter().all(|x| x.to_bits() & 0xffff == 0).then(|| x.iter().map(|x| (x.to_bits() >> 16) as u16).collect())
}

fn f64s(e: &Elements, dtype: DType) -> Vec<f64> {
    match e {
        Elements::F64(v) => v.clone(),
        Elements::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
        Elements::I32(v) => v.iter().map(|x| f64::from(*x)).collect(),
        Elements::U8(v) if dtype == DType::F8E4M3 => v.iter().map(|x| f64::from(f8::decode(*x))).collect(),
        Elements::U8(v) => v.iter().map(|x| f64::from(*x)).collect(),
    }
}

fn f32s(e: Elements, dtype: DType) -> Vec<f32> {
    match e {
        Elements::F32(v) => v,
        Elements::F64(v) => v.iter().map(|x| *x as f32).collect(),
        Elements::I32(v) => v.iter().map(|x| *x as f32).collect(),
        Elements::U8(v) if dtype == DType::F8E4M3 => v.iter().map(|x| f8::decode(*x)).collect(),
        Elements::U8(v) => v.iter().map(|x| f32::from(*x)).collect(),
    }
}
