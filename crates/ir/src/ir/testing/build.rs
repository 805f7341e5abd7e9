//! The function under construction: values in scope with their ranges, and ways to get a value of a wanted type.

use super::{Config, LIMIT, Range, Rng};
use crate::ir::{Attr, Attrs, Func, Loc, Module, RegionId, Symbol, ValueDef, ValueId, Weight};
use crate::ops::Opcode;
use crate::ty::{Bounds, DType, Dim, Numerics, TensorType, Type};

pub(super) const UNIT: Range = Range { lo: -1.0, hi: 1.0 };
/// Upper bound of both symbols.
const SYMBOL_MAX: i64 = 4;

impl Range {
    pub(super) fn new(lo: f64, hi: f64) -> Range {
        Range { lo, hi }
    }

    pub(super) fn magnitude(self) -> f64 {
        self.lo.abs().max(self.hi.abs())
    }

    pub(super) fn symmetric(m: f64) -> Range {
        Range { lo: -m, hi: m }
    }

    pub(super) fn hull(self, other: Range) -> Range {
        Range { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    pub(super) fn within(self, other: Range) -> bool {
        self.lo >= other.lo && self.hi <= other.hi
    }
}

/// An enclosing loop.
pub(super) struct Enclosing {
    pub index: ValueId,
    pub serial: bool,
    pub extent: Dim,
    /// Iterations that reach the current region; only for loops that are not serial.
    pub reach: Vec<i64>,
}

pub(super) struct Builder {
    pub rng: Rng,
    pub config: Config,
    pub module: Module,
    pub func: Func,
    pub region: RegionId,
    /// Tensors in scope.
    pub scope: Vec<ValueId>,
    /// Range of every value; states have one nobody reads.
    pub ranges: Vec<Range>,
    pub loops: Vec<Enclosing>,
    /// Number of regions around the current one.
    pub depth: usize,
    inputs: Vec<Range>,
}

impl Builder {
    pub fn new(rng: Rng, config: Config) -> Builder {
        let bounds = Bounds { min: Some(1), max: Some(SYMBOL_MAX) };
        let symbol = |name: &str| Symbol { name: name.to_owned(), bounds, span: None };
        let module = Module {
            name: "random".to_owned(),
            numerics: config.numerics,
            symbols: vec![symbol("N"), symbol("T")],
            weights: Vec::new(),
            states: Vec::new(),
            funcs: Vec::new(),
        };
        Builder {
            rng,
            config,
            module,
            func: Func::new(""),
            region: RegionId(0),
            scope: Vec::new(),
            ranges: Vec::new(),
            loops: Vec::new(),
            depth: 0,
            inputs: Vec::new(),
        }
    }

    pub fn begin(&mut self, name: String) {
        self.func = Func::new(name);
        self.region = self.func.body;
        self.scope.clear();
        self.ranges.clear();
        self.inputs.clear();
        // The first input binds the symbols.
        let symbols = vec![Dim::symbol("N"), Dim::symbol("T")];
        for dims in [symbols, self.dims(3)] {
            let dtype = self.float_dtype();
            self.input(TensorType::new(dtype, dims), UNIT);
        }
    }

    /// Ends the function with some outputs; gives the ranges of its inputs. Half of the outputs are results that nothing else
    /// uses: what no output depends on is no test of a compiler.
    pub fn end(&mut self) -> Vec<Range> {
        let unused: Vec<ValueId> = self.scope.iter().copied().filter(|v| self.unused(*v)).collect();
        let mut outputs = Vec::new();
        for _ in 0..1 + self.rng.below(4) {
            outputs.extend(self.rng.pick(&self.scope));
            outputs.extend(self.rng.pick(&unused));
        }
        self.func.outputs = (0..outputs.len()).map(|i| format!("out{i}")).collect();
        let body = self.func.body;
        self.func.regions[body.index()].yields = outputs;
        let func = std::mem::replace(&mut self.func, Func::new(""));
        self.module.funcs.push(func);
        std::mem::take(&mut self.inputs)
    }

    fn unused(&self, v: ValueId) -> bool {
        let result = matches!(self.func.value(v).def, ValueDef::Result(..));
        let read = self.func.ops.iter().any(|op| op.operands.contains(&v));
        result && !read && !self.func.regions.iter().any(|r| r.yields.contains(&v))
    }

    pub fn ty(&self, v: ValueId) -> TensorType {
        self.func.tensor(v).expect("only tensors are in scope").clone()
    }

    pub fn range(&self, v: ValueId) -> Range {
        self.ranges[v.index()]
    }

    pub fn float_dtype(&mut self) -> DType {
        let all: &[DType] = match self.config.numerics {
            Numerics::F64 => &[DType::F64],
            Numerics::F32 => &[DType::F32, DType::F32, DType::F64],
            Numerics::BF16 => &[DType::BF16, DType::BF16, DType::F32, DType::F16, DType::F64],
        };
        all[self.rng.below(all.len())]
    }

    pub fn dim(&mut self) -> Dim {
        match self.rng.below(6) {
            0 => Dim::symbol("N"),
            1 => Dim::symbol("T"),
            _ => Dim::from(self.rng.int(1, 4)),
        }
    }

    /// Up to `rank` dims.
    pub fn dims(&mut self, rank: usize) -> Vec<Dim> {
        (0..self.rng.below(rank + 1)).map(|_| self.dim()).collect()
    }

    /// Largest value of a dim.
    pub fn most(&self, dim: &Dim) -> f64 {
        dim.bounds(&|_| Bounds { min: Some(1), max: Some(SYMBOL_MAX) }).max.unwrap_or(i64::MAX) as f64
    }

    /// Adds an op; gives its results. `None` if the op does not take these operands.
    pub fn emit_all(
        &mut self,
        code: Opcode,
        operands: &[ValueId],
        attrs: Vec<(&'static str, Attr)>,
        range: Range,
    ) -> Option<Vec<ValueId>> {
        let attrs: Attrs = attrs.into_iter().collect();
        let types: Vec<&Type> = operands.iter().map(|v| self.func.ty(*v)).collect();
        let types = code.infer(&types, &attrs).ok()?;
        Some(self.emit_typed(code, operands, attrs, types, range))
    }

    /// Adds an op with the given result types.
    pub fn emit_typed(
        &mut self,
        code: Opcode,
        operands: &[ValueId],
        attrs: Attrs,
        types: Vec<Type>,
        range: Range,
    ) -> Vec<ValueId> {
        let n = self.func.ops.len();
        let path = if self.rng.chance(30) { format!("graph.n{n}") } else { String::new() };
        let loc = Loc { path: path.as_str().into(), span: None };
        let op = self.func.add_op(self.region, code, operands.to_vec(), attrs, vec![], types, loc);
        let results = self.func.op(op).results.clone();
        for &v in &results {
            self.ranges.push(range);
            if self.rng.chance(20) {
                self.func.values[v.index()].names.push(format!("graph.v{}", v.0).as_str().into());
            }
            if self.func.tensor(v).is_some() {
                self.scope.push(v);
            }
        }
        results
    }

    /// [`Builder::emit_all`] for an op with one result.
    pub fn emit(
        &mut self,
        code: Opcode,
        operands: &[ValueId],
        attrs: Vec<(&'static str, Attr)>,
        range: Range,
    ) -> Option<ValueId> {
        self.emit_all(code, operands, attrs, range)?.first().copied()
    }

    pub fn input(&mut self, ty: TensorType, range: Range) -> ValueId {
        let v = self.func.add_param(self.func.body, ty.into());
        self.func.inputs.push(format!("in{}", self.inputs.len()));
        self.inputs.push(range);
        self.ranges.push(range);
        // Inputs are visible everywhere, so they go below what a region may cut off.
        self.scope.insert(0, v);
        v
    }

    pub fn param(&mut self, region: RegionId, ty: Type, range: Range) -> ValueId {
        let v = self.func.add_param(region, ty);
        self.ranges.push(range);
        v
    }

    pub fn scalar(&mut self, value: f64, dtype: DType) -> Option<ValueId> {
        let attrs = vec![("dtype", Attr::DType(dtype)), ("value", Attr::Float(value))];
        self.emit(Opcode::Const, &[], attrs, Range::new(value, value))
    }

    /// A new tensor: an input, a weight or a constant.
    pub fn fresh(&mut self, dtype: DType, dims: Vec<Dim>, range: Range) -> Option<ValueId> {
        let fixed = dims.iter().all(|d| d.as_const().is_some());
        let whole = !dtype.is_float();
        match self.rng.below(4) {
            0 if fixed && !whole && UNIT.within(range) => self.weight(TensorType::new(dtype, dims)),
            1 => {
                let value = self.rng.real(range.lo, range.hi);
                let value = if whole { value.round() } else { (value * 64.0).round() / 64.0 };
                let s = self.scalar(value.clamp(range.lo, range.hi), dtype)?;
                let range = self.range(s);
                self.emit(Opcode::Fill, &[s], vec![("dims", Attr::Dims(dims))], range)
            }
            _ => Some(self.input(TensorType::new(dtype, dims), range)),
        }
    }

    pub fn weight_op(&mut self) -> Option<()> {
        let dtype = self.float_dtype();
        let dims: Vec<Dim> = (0..self.rng.below(3)).map(|_| Dim::from(self.rng.int(1, 4))).collect();
        self.weight(TensorType::new(dtype, dims)).map(|_| ())
    }

    /// A new weight of some of the enclosing loops, and an op that reads it.
    fn weight(&mut self, ty: TensorType) -> Option<ValueId> {
        let (mut operands, mut loops, mut mask) = (Vec::new(), Vec::new(), vec![true]);
        let id = self.module.weights.len();
        let mut name = format!("w{id}");
        for enclosing in self.loops.iter().filter(|l| !l.serial) {
            if self.rng.chance(30) {
                continue;
            }
            let extent = enclosing.extent.as_const()?;
            let var = format!("l{}", loops.len());
            name.push_str(&format!(".{{{var}}}"));
            operands.push(enclosing.index);
            loops.push((var, extent));
            mask = mask.iter().flat_map(|m| (0..extent).map(move |i| *m && enclosing.reach.contains(&i))).collect();
        }
        // Where it is not needed it may be missing.
        let present = mask.iter().map(|needed| *needed || self.rng.chance(50)).collect::<Vec<_>>();
        let present = if present.contains(&false) || self.rng.chance(20) { present } else { Vec::new() };
        let storage = self.rng.chance(30).then_some(ty.dtype);
        self.module.weights.push(Weight {
            name,
            loops,
            present,
            ty: ty.clone(),
            storage,
            source: None,
            span: None,
            bound_at: None,
        });
        let attrs = Attrs::from([("weight", Attr::Int(id as i64))]);
        self.emit_typed(Opcode::Weight, &operands, attrs, vec![ty.into()], UNIT).first().copied()
    }

    /// A random tensor in scope that satisfies `wanted`.
    pub fn pick(&mut self, wanted: impl Fn(&TensorType, Range) -> bool) -> Option<ValueId> {
        let fits: Vec<ValueId> = self
            .scope
            .iter()
            .copied()
            .filter(|v| self.func.tensor(*v).is_some_and(|t| wanted(t, self.range(*v))))
            .collect();
        self.rng.pick(&fits)
    }

    /// A float tensor with at least `rank` axes.
    pub fn float(&mut self, rank: usize) -> Option<ValueId> {
        if self.rng.chance(85)
            && let Some(v) = self.pick(|t, _| t.dtype.is_float() && t.rank() >= rank)
        {
            return Some(v);
        }
        let (dtype, mut dims) = (self.float_dtype(), self.dims(2));
        while dims.len() < rank {
            dims.push(self.dim());
        }
        self.fresh(dtype, dims, UNIT)
    }

    /// A float tensor of these dims.
    pub fn float_of(&mut self, dims: &[Dim]) -> Option<ValueId> {
        if self.rng.chance(70)
            && let Some(v) = self.pick(|t, r| t.dtype.is_float() && t.dims == dims && r.within(Range::symmetric(4.0)))
        {
            return Some(v);
        }
        let dtype = self.float_dtype();
        self.fresh(dtype, dims.to_vec(), UNIT)
    }

    /// A tensor of i32 or u8 within `range`.
    pub fn ints(&mut self, dims: &[Dim], range: Range) -> Option<ValueId> {
        if self.rng.chance(60)
            && let Some(v) = self.pick(|t, r| t.dtype == DType::I32 && t.dims == dims && r.within(range))
        {
            return Some(v);
        }
        self.fresh(DType::I32, dims.to_vec(), range)
    }

    /// A value in [-1, 1] made from a float tensor, or itself if it lies there.
    pub fn squash(&mut self, v: ValueId) -> Option<ValueId> {
        if self.range(v).within(UNIT) { Some(v) } else { self.emit(Opcode::Tanh, &[v], vec![], UNIT) }
    }

    /// `v` itself while `result` of its range stays within the limit, else `v` squashed.
    pub fn tame(&mut self, v: ValueId, result: impl Fn(Range) -> Range) -> Option<ValueId> {
        if result(self.range(v)).magnitude() <= LIMIT { Some(v) } else { self.squash(v) }
    }

    /// A float tensor of positive values, at least 0.1.
    pub fn positive(&mut self, v: ValueId) -> Option<ValueId> {
        if self.range(v).lo >= 0.1 {
            return Some(v);
        }
        let s = self.emit(Opcode::Sigmoid, &[v], vec![], Range::new(0.0, 1.0))?;
        let dtype = self.ty(s).dtype;
        let c = self.scalar(0.125, dtype)?;
        self.emit(Opcode::Add, &[s, c], vec![], Range::new(0.125, 1.125))
    }

    /// A value of type `ty` within `range`, made from one in scope of the same shape; at least one must be there.
    pub fn conform(&mut self, ty: &TensorType, range: Range) -> Option<ValueId> {
        let exact = self.pick(|t, r| t == ty && r.within(range));
        if ty.dist || !ty.dtype.is_float() || self.rng.chance(30) {
            return exact;
        }
        let Some(mut v) = self.pick(|t, _| t.dtype.is_float() && t.dims == ty.dims) else { return exact };
        if !self.range(v).within(range) {
            let dtype = self.ty(v).dtype;
            for (code, bound) in [(Opcode::Maximum, range.lo), (Opcode::Minimum, range.hi)] {
                let bound = self.scalar(bound, dtype)?;
                v = self.emit(code, &[v, bound], vec![], range)?;
            }
        }
        if self.ty(v) != *ty {
            let kept = self.range(v);
            v = self.emit(Opcode::Cast, &[v], vec![("dtype", Attr::DType(ty.dtype))], kept)?;
        }
        if self.ty(v) == *ty { Some(v) } else { exact }
    }
}
