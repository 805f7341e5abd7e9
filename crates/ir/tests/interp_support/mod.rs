//! A small builder of functions, for the tests of the interpreter.
#![allow(dead_code)]

use spinec_ir::interp::{InterpError, Mode, NoObserver, Observer, RequestState, WeightStore, run};
use spinec_ir::ir::{Attr, Attrs, Func, Keep, Loc, Module, RegionId, StateDecl, StateId, ValueId, Weight, WeightId};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::{DType, Dim, Numerics, StateKind, TensorType, Type};
use std::collections::BTreeMap;

/// A dim: a number or a symbol.
pub fn dim(text: &str) -> Dim {
    text.parse::<i64>().map_or_else(|_| Dim::symbol(text), Dim::from)
}

/// Dims from words: `dims("N 3")`.
pub fn dims(text: &str) -> Vec<Dim> {
    text.split_whitespace().map(dim).collect()
}

pub fn ty(dtype: DType, text: &str) -> TensorType {
    TensorType::new(dtype, dims(text))
}

pub fn attrs<const N: usize>(list: [(&'static str, Attr); N]) -> Attrs {
    list.into_iter().collect()
}

pub fn axis(a: i64) -> Attrs {
    attrs([("axis", Attr::Int(a))])
}

pub fn f32s(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::new(DType::F32, shape.to_vec(), Data::F32(values.to_vec())).expect("the data fills the shape")
}

pub fn bf16s(shape: &[usize], values: &[f32]) -> Tensor {
    assert!(values.iter().all(|x| half::bf16::from_f32(*x).to_f32() == *x), "values must be bf16");
    Tensor::new(DType::BF16, shape.to_vec(), Data::F32(values.to_vec())).expect("the data fills the shape")
}

pub fn f64s(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::f64(shape.to_vec(), values.to_vec())
}

pub fn i32s(shape: &[usize], values: &[i32]) -> Tensor {
    Tensor::i32(shape.to_vec(), values.to_vec())
}

pub fn bools(shape: &[usize], values: &[bool]) -> Tensor {
    Tensor::new(DType::Bool, shape.to_vec(), Data::Bool(values.to_vec())).expect("the data fills the shape")
}

pub fn u8s(dtype: DType, shape: &[usize], values: &[u8]) -> Tensor {
    Tensor::new(dtype, shape.to_vec(), Data::U8(values.to_vec())).expect("the data fills the shape")
}

/// Weights by id and index.
#[derive(Default)]
pub struct Weights(pub BTreeMap<(u32, Vec<i64>), Tensor>);

impl WeightStore for Weights {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        self.0.get(&(id.0, index.to_vec())).cloned().ok_or_else(|| "nobody stored it".into())
    }
}

/// Keeps everything it is told, in order.
#[derive(Default)]
pub struct Recorder(pub Vec<(String, Tensor)>);

impl Observer for Recorder {
    fn wants(&self, path: &str) -> bool {
        !path.contains("secret")
    }

    fn value(&mut self, full_path: &str, t: &Tensor) {
        self.0.push((full_path.into(), t.clone()));
    }
}

pub struct Graph {
    pub module: Module,
    pub func: Func,
    pub weights: Weights,
    region: RegionId,
    path: String,
}

impl Default for Graph {
    fn default() -> Self {
        Graph {
            module: Module {
                name: "test".into(),
                numerics: Numerics::BF16,
                symbols: vec![],
                weights: vec![],
                states: vec![],
                funcs: vec![],
            },
            func: Func::new("test"),
            weights: Weights::default(),
            region: RegionId(0),
            path: String::new(),
        }
    }
}

impl Graph {
    pub fn input(&mut self, name: &str, ty: TensorType) -> ValueId {
        self.func.inputs.push(name.into());
        self.func.add_param(self.func.body, ty.into())
    }

    /// Inputs of exactly the shapes of these tensors.
    pub fn inputs(&mut self, tensors: &[Tensor]) -> Vec<ValueId> {
        let ty = |t: &Tensor| TensorType::new(t.dtype, t.shape.iter().map(|d| Dim::from(*d as i64)).collect());
        tensors.iter().enumerate().map(|(i, t)| self.input(&format!("in{i}"), ty(t))).collect()
    }

    fn raw(
        &mut self,
        code: Opcode,
        ops: &[ValueId],
        at: Attrs,
        regions: Vec<RegionId>,
        types: Vec<Type>,
    ) -> Vec<ValueId> {
        let loc = Loc { path: self.path.as_str().into(), span: None };
        let id = self.func.add_op(self.region, code, ops.to_vec(), at, regions, types, loc);
        self.func.op(id).results.clone()
    }

    pub fn try_op(&mut self, code: Opcode, ops: &[ValueId], at: Attrs) -> Option<Vec<ValueId>> {
        let types: Vec<Type> = ops.iter().map(|v| self.func.ty(*v).clone()).collect();
        let types = code.infer(&types.iter().collect::<Vec<_>>(), &at).ok()?;
        Some(self.raw(code, ops, at, vec![], types))
    }

    pub fn ops(&mut self, code: Opcode, ops: &[ValueId], at: Attrs) -> Vec<ValueId> {
        let types: Vec<Type> = ops.iter().map(|v| self.func.ty(*v).clone()).collect();
        let types = code.infer(&types.iter().collect::<Vec<_>>(), &at);
        let types = types.unwrap_or_else(|e| panic!("{}: {}", code.name(), e.message));
        self.raw(code, ops, at, vec![], types)
    }

    pub fn op(&mut self, code: Opcode, ops: &[ValueId], at: Attrs) -> ValueId {
        self.ops(code, ops, at)[0]
    }

    pub fn constant(&mut self, value: f64, dtype: DType) -> ValueId {
        self.op(Opcode::Const, &[], attrs([("value", Attr::Float(value)), ("dtype", Attr::DType(dtype))]))
    }

    pub fn weight(&mut self, name: &str, ty: TensorType, loops: &[(&str, i64)], index: &[ValueId]) -> ValueId {
        let id = self.module.weights.len();
        self.module.weights.push(Weight {
            name: name.into(),
            loops: loops.iter().map(|(v, n)| (v.to_string(), *n)).collect(),
            present: vec![],
            ty: ty.clone(),
            storage: None,
            source: None,
            span: None,
            bound_at: None,
        });
        self.raw(Opcode::Weight, index, attrs([("weight", Attr::Int(id as i64))]), vec![], vec![ty.into()])[0]
    }

    pub fn state(&mut self, name: &str, kind: StateKind, dtype: DType, element: &[i64]) -> StateId {
        let count = element.iter().copied().max().map_or(1, |m| m + 1);
        let decl = StateDecl { name: name.into(), kind, dtype, count, element: element.to_vec(), span: None };
        self.module.states.push(decl);
        StateId(self.module.states.len() as u32 - 1)
    }

    pub fn open(&mut self, id: StateId, index: Option<ValueId>) -> ValueId {
        let decl = self.module.state(id);
        let ty = Type::State { kind: decl.kind.clone(), dtype: decl.dtype };
        let index: Vec<ValueId> = index.into_iter().collect();
        self.raw(Opcode::StateOpen, &index, attrs([("state", Attr::Int(i64::from(id.0)))]), vec![], vec![ty])[0]
    }

    pub fn close(&mut self, state: ValueId) {
        self.ops(Opcode::StateClose, &[state], Attrs::new());
    }

    pub fn name(&mut self, value: ValueId, name: &str) {
        self.func.values[value.index()].names.push(name.into());
    }

    /// A loop at `path`. `body` gets the index and the carried values and gives the next carried and the kept ones.
    pub fn repeat(
        &mut self,
        path: &str,
        extent: Dim,
        init: &[ValueId],
        keeps: Vec<Keep>,
        body: impl FnOnce(&mut Graph, ValueId, &[ValueId]) -> (Vec<ValueId>, Vec<ValueId>),
    ) -> Vec<ValueId> {
        let (outer, region) = (self.region, self.func.add_region());
        let before = std::mem::replace(&mut self.path, path.into());
        self.region = region;
        let index = self.func.add_param(region, TensorType::scalar(DType::I32).into());
        let types: Vec<Type> = init.iter().map(|v| self.func.ty(*v).clone()).collect();
        let carried: Vec<ValueId> = types.iter().map(|t| self.func.add_param(region, t.clone())).collect();
        let (next, kept) = body(self, index, &carried);
        self.region = outer;
        let mut results = types;
        for (value, keep) in kept.iter().zip(&keeps) {
            let mut ty = self.func.tensor(*value).expect("kept values are tensors").clone();
            ty.dims.insert(keep.axis, keep.at.as_ref().map_or(extent.clone(), |at| Dim::from(at.len() as i64)));
            results.push(ty.into());
        }
        self.func.regions[region.index()].yields = next.into_iter().chain(kept).collect();
        let at = attrs([("extent", Attr::Dim(extent)), ("serial", Attr::Bool(true)), ("keep", Attr::Keeps(keeps))]);
        let out = self.raw(Opcode::Loop, init, at, vec![region], results);
        self.path = before;
        out
    }

    pub fn cases(&mut self, index: ValueId, select: &[i64], bodies: &[&dyn Fn(&mut Graph) -> ValueId]) -> ValueId {
        let outer = self.region;
        let mut regions = Vec::new();
        let mut types = Vec::new();
        for body in bodies {
            let region = self.func.add_region();
            self.region = region;
            let value = body(self);
            types = vec![self.func.ty(value).clone()];
            self.func.regions[region.index()].yields = vec![value];
            regions.push(region);
        }
        self.region = outer;
        self.raw(Opcode::Cases, &[index], attrs([("select", Attr::Ints(select.to_vec()))]), regions, types)[0]
    }

    pub fn output(&mut self, value: ValueId) {
        self.func.outputs.push(format!("out{}", self.func.outputs.len()));
        let body = self.func.body;
        self.func.regions[body.index()].yields.push(value);
    }

    pub fn request(&self) -> RequestState {
        RequestState::new(&self.module).expect("extents are constant")
    }

    /// A choice between `fast` and what `body` makes.
    pub fn guarded(&mut self, ok: ValueId, fast: ValueId, body: impl FnOnce(&mut Graph) -> ValueId) -> ValueId {
        let (outer, region) = (self.region, self.func.add_region());
        self.region = region;
        let slow = body(self);
        self.func.regions[region.index()].yields = vec![slow];
        self.region = outer;
        let ty = self.func.ty(fast).clone();
        self.raw(Opcode::Guarded, &[ok, fast], Attrs::new(), vec![region], vec![ty])[0]
    }

    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, InterpError> {
        self.run_with(inputs, &mut [], Mode::Immediate)
    }

    pub fn run_with(
        &self,
        inputs: &[Tensor],
        states: &mut [RequestState],
        mode: Mode,
    ) -> Result<Vec<Tensor>, InterpError> {
        run(&self.module, &self.func, inputs, &self.weights, states, mode, &mut NoObserver)
    }
}

/// The results of one op on these operands.
pub fn eval(code: Opcode, operands: &[Tensor], at: Attrs) -> Vec<Tensor> {
    try_eval(code, operands, at).unwrap_or_else(|e| panic!("{}: {e}", code.name()))
}

pub fn try_eval(code: Opcode, operands: &[Tensor], at: Attrs) -> Result<Vec<Tensor>, InterpError> {
    let mut g = Graph::default();
    let values = g.inputs(operands);
    for v in g.ops(code, &values, at) {
        g.output(v);
    }
    g.run(operands)
}

/// Reproducible numbers in [-1, 1).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = (self.0 >> 32) ^ self.0;
        x.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    pub fn real(&mut self) -> f64 {
        self.bits() as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// A tensor rounded to `dtype`.
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        let n = shape.iter().product();
        let wide = Tensor::f64(shape.to_vec(), (0..n).map(|_| self.real()).collect());
        spinec_ir::interp::cast(&wide, dtype).expect("numbers cast to every dtype")
    }
}

/// Row `t` (or rows) of every request: [N, T, ...] at `from..to`.
pub fn rows(t: &Tensor, from: usize, to: usize) -> Tensor {
    let (n, all) = (t.shape[0], t.shape[1]);
    let inner: usize = t.shape[2..].iter().product();
    let mut shape = t.shape.clone();
    shape[1] = to - from;
    let places: Vec<usize> = (0..n).flat_map(|r| (r * all + from) * inner..(r * all + to) * inner).collect();
    let data = match &t.data {
        Data::F64(v) => Data::F64(places.iter().map(|p| v[*p]).collect()),
        Data::F32(v) => Data::F32(places.iter().map(|p| v[*p]).collect()),
        Data::I32(v) => Data::I32(places.iter().map(|p| v[*p]).collect()),
        Data::U8(v) => Data::U8(places.iter().map(|p| v[*p]).collect()),
        Data::Bool(v) => Data::Bool(places.iter().map(|p| v[*p]).collect()),
    };
    Tensor::new(t.dtype, shape, data).expect("the rows fill the shape")
}

/// The requests `from..to`.
pub fn requests(t: &Tensor, from: usize, to: usize) -> Tensor {
    let mut shape = t.shape.clone();
    shape.insert(0, 1);
    let wrapped = Tensor { dtype: t.dtype, shape, data: t.data.clone() };
    let mut out = rows(&wrapped, from, to);
    out.shape.remove(0);
    out
}
