//! What does not depend on a run: weights, values computed from weights alone, and the forms instructions want them in.
//!
//! A constant is identified by what it is, not by who asks: weights by their tensor, results of ops by op, attributes
//! and operands. Nothing is fetched, computed or packed before an instruction needs it, and each form is made once.

use super::elements::{Elements, Kind};
use super::emit::Call;
use super::instr::{Packed, TapsOf};
use super::stream::{Making, OnProgress, Streaming};
use super::view::View;
use crate::threads::Pool;
use crate::weights::tensor_name;
use spinec_ir::interp::{WeightStore, f8};
use spinec_ir::ir::{Attrs, Weight, WeightId};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::DType;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
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

/// Where a constant comes from.
pub(super) enum Origin {
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

/// A constant; its elements once they are kept.
pub(super) struct Constant {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub origin: Origin,
    pub plain: Option<Arc<Elements>>,
}

/// Whom a constant's bytes count for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Weights,
    Derived,
    HeadFp8,
}

/// A form of a constant with its bytes.
pub(super) struct Form<T> {
    pub owner: Owner,
    pub bytes: u64,
    pub what: T,
}

/// Weights and constants of a runtime.
pub(super) struct Shared {
    pub pool: Pool,
    pub streaming: Streaming,
    pub progress: Option<OnProgress>,
    store: Box<dyn WeightStore + Send + Sync>,
    weights: Vec<Weight>,
    pub consts: Vec<Constant>,
    by_key: BTreeMap<String, u32>,
    /// Names of derived weights by constant.
    names: BTreeMap<u32, String>,
    pub packed: BTreeMap<(String, bool), Form<Packed>>,
    pub tables: BTreeMap<String, Option<Form<Arc<Vec<u16>>>>>,
    pub taps: BTreeMap<(String, bool), Form<Arc<TapsOf>>>,
}

type Step<T> = Result<T, String>;

impl Shared {
    pub fn new(weights: &[Weight], store: Box<dyn WeightStore + Send + Sync>, threads: usize) -> Shared {
        Shared {
            pool: Pool::new(threads),
            streaming: Streaming::default(),
            progress: None,
            store,
            weights: weights.to_vec(),
            consts: Vec::new(),
            by_key: BTreeMap::new(),
            names: BTreeMap::new(),
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

    /// The name of a derived weight that is this constant.
    pub fn name(&mut self, v: &Val, name: &str) {
        if let Src::Const(id) = v.src {
            self.names.entry(id).or_insert_with(|| name.to_owned());
        }
    }

    /// What a constant is called.
    pub fn name_of(&self, id: u32) -> String {
        match (&self.consts[id as usize].origin, self.names.get(&id)) {
            (_, Some(name)) => name.clone(),
            (Origin::Weight(weight, _), _) => self.weights[weight.index()].name.to_string(),
            (Origin::Derived { code, .. }, _) => code.name().to_owned(),
            (Origin::Value, _) => "value".to_owned(),
        }
    }

    /// A constant that is a weight from the store, or entries of its first axis.
    pub fn read(&self, id: u32, rows: Option<Range<usize>>) -> Step<Elements> {
        let c = &self.consts[id as usize];
        let Origin::Weight(weight, index) = &c.origin else { return Err("a constant is no weight".into()) };
        let w = &self.weights[weight.index()];
        let mut shape = c.shape.clone();
        let t = match rows {
            None => self.store.weight(*weight, index),
            Some(rows) => {
                shape.iter_mut().take(1).for_each(|n| *n = rows.len());
                self.store.rows(*weight, index, rows)
            }
        };
        let t = t.map_err(|m| format!("weight `{}` at {index:?}: {m}", w.name))?;
        if t.dtype != c.dtype || t.shape != shape || t.len() != shape.iter().product::<usize>() {
            let dtype = c.dtype;
            return Err(format!("weight `{}` is {}{:?}, not {dtype}{shape:?}", w.name, t.dtype, t.shape));
        }
        Ok(Elements::from_tensor(t))
    }

    /// The elements of a whole constant, kept from now on.
    pub fn plain(&mut self, id: u32) -> Step<Arc<Elements>> {
        let e = self.whole(id, &mut Making::default())?;
        self.consts[id as usize].plain = Some(e.clone());
        Ok(e)
    }

    /// The elements a view of a constant shows, in row-major order.
    pub fn viewed(&mut self, v: &Val) -> Step<Elements> {
        let mut all = Elements::empty(v.kind());
        let room = v.view.len();
        self.rows(v, &mut |_, rows, e| {
            if rows.start == 0 {
                all.reserve(room);
            }
            all.append(e);
            ControlFlow::Continue(())
        })?;
        Ok(all)
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

    pub fn owner_of(&self, v: &Val) -> Owner {
        match v.src {
            Src::Const(id) => self.owner(id),
            Src::Buf(_) => Owner::Derived,
        }
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
