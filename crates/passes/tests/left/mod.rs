//! Random well-typed left sides for every rule, and what their values are compared by.
#![allow(dead_code)]

use spinec_ir::interp::WeightStore;
use spinec_ir::ir::testing::Rng;
use spinec_ir::ir::{Attr, Attrs, Func, Loc, Module, ValueId, Weight, WeightId};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, Dim, Numerics, TensorType, Type};
use spinec_passes::dag::append;
use spinec_passes::rules::Class;

/// Which float dtypes occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    F64,
    Narrow,
}

/// A left side under construction.
pub struct Left {
    pub rng: Rng,
    pub mix: Mix,
    pub func: Func,
    pub weights: Vec<TensorType>,
    /// Floats made before, which may stand for weights and inputs.
    pub pool: Vec<ValueId>,
}

pub type Value = Option<ValueId>;

impl Left {
    pub fn float(&mut self) -> DType {
        let narrow = [DType::BF16, DType::F32, DType::F32, DType::F16, DType::F64];
        if self.mix == Mix::F64 { DType::F64 } else { narrow[self.rng.below(narrow.len())] }
    }

    pub fn extent(&mut self) -> i64 {
        self.rng.int(1, 4)
    }

    pub fn extents(&mut self, least: usize, most: usize) -> Vec<i64> {
        let n = least + self.rng.below(most - least + 1);
        (0..n).map(|_| self.extent()).collect()
    }

    pub fn input(&mut self, dims: &[i64], dtype: DType) -> ValueId {
        let ty = TensorType::new(dtype, dims.iter().map(|d| Dim::from(*d)).collect());
        self.func.inputs.push(format!("in{}", self.func.inputs.len()));
        self.func.add_param(self.func.body, ty.into())
    }

    pub fn any(&mut self, dims: &[i64]) -> ValueId {
        let dtype = self.float();
        self.input(dims, dtype)
    }

    pub fn weight(&mut self, dims: &[i64]) -> ValueId {
        let ty = TensorType::new(self.float(), dims.iter().map(|d| Dim::from(*d)).collect());
        let attrs = Attrs::from([("weight", Attr::Int(self.weights.len() as i64))]);
        self.weights.push(ty.clone());
        let body = self.func.body;
        append(&mut self.func, body, Opcode::Weight, vec![], attrs, &[ty.into()], Loc::default())
            .expect("weights are typed")[0]
    }

    /// A weight, an input or what was made before.
    pub fn either(&mut self, dims: &[i64]) -> ValueId {
        let fits: Vec<ValueId> = self.pool.iter().copied().filter(|v| self.dims(*v) == dims).collect();
        if self.rng.chance(60)
            && let Some(v) = self.rng.pick(&fits)
        {
            return v;
        }
        if self.rng.chance(70) { self.weight(dims) } else { self.any(dims) }
    }

    pub fn op(&mut self, code: Opcode, operands: &[ValueId], attrs: Vec<(&'static str, Attr)>) -> Value {
        let body = self.func.body;
        append(&mut self.func, body, code, operands.to_vec(), attrs.into_iter().collect(), &[], Loc::default())
            .ok()?
            .first()
            .copied()
    }

    pub fn cast(&mut self, x: ValueId, dtype: DType) -> Value {
        self.op(Opcode::Cast, &[x], vec![("dtype", Attr::DType(dtype))])
    }

    pub fn dims(&self, x: ValueId) -> Vec<i64> {
        let t = self.func.tensor(x).expect("only tensors are made");
        t.dims.iter().map(|d| d.as_const().expect("extents are constant")).collect()
    }

    /// Extents that broadcast to `dims`: some axes one, some leading ones missing.
    pub fn broadcasting(&mut self, dims: &[i64]) -> Vec<i64> {
        let from = self.rng.below(dims.len() + 1);
        dims[from..].iter().map(|d| if self.rng.chance(50) { 1 } else { *d }).collect()
    }

    /// `u` of extents `dims` and something that broadcasts to it, combined by `code` in either order; sometimes the axes `u`
    /// lacks come from the other.
    pub fn combined(&mut self, code: Opcode, dims: &[i64]) -> Value {
        let (mut u, mut s) = (dims.to_vec(), self.broadcasting(dims));
        if self.rng.chance(30) {
            (u, s) = (self.broadcasting(dims), dims.to_vec());
        }
        let (u, s) = (self.either(&u), self.either(&s));
        if code == Opcode::Div {
            let s = self.op(Opcode::Exp, &[s], vec![])?;
            return self.op(code, &[u, s], vec![]);
        }
        let operands = if self.rng.chance(50) { [u, s] } else { [s, u] };
        self.op(code, &operands, vec![])
    }

    /// A random einsum one of whose operands is made by `make` from its extents.
    pub fn einsum(&mut self, mut make: impl FnMut(&mut Left, &[i64]) -> Value) -> Value {
        let names = ["n", "t", "p", "c", "h"];
        let n = 1 + self.rng.below(names.len());
        let extent: Vec<i64> = (0..n).map(|_| self.extent()).collect();
        let (mut a, mut b, mut out) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..n {
            let side = self.rng.below(4);
            if side != 0 {
                a.push(i);
            }
            if side != 1 {
                b.push(i);
            }
            if self.rng.chance(50) {
                out.push(i);
            }
        }
        if self.rng.chance(30) {
            out.reverse();
            let by = usize::from(b.len() > 1);
            b.rotate_left(by);
        }
        let dims = |axes: &[usize]| axes.iter().map(|i| extent[*i]).collect::<Vec<i64>>();
        let special = make(self, &dims(&a))?;
        let other = self.either(&dims(&b));
        let text = |axes: &[usize]| axes.iter().map(|i| names[*i]).collect::<Vec<_>>().join(" ");
        let (x, y, x_text, y_text) = if self.rng.chance(50) {
            (special, other, text(&a), text(&b))
        } else {
            (other, special, text(&b), text(&a))
        };
        self.product(&format!("{x_text}, {y_text} -> {}", text(&out)), x, y)
    }

    pub fn product(&mut self, spec: &str, a: ValueId, b: ValueId) -> Value {
        let acc = self.acc();
        self.op(Opcode::Einsum, &[a, b], vec![("spec", Attr::Str(spec.to_owned())), ("acc", acc)])
    }

    pub fn acc(&mut self) -> Attr {
        Attr::DType(if self.mix == Mix::F64 || self.rng.chance(30) { DType::F64 } else { DType::F32 })
    }

    pub fn linear(&mut self, x: ValueId, w: ValueId) -> Value {
        let acc = self.acc();
        self.op(Opcode::Linear, &[x, w], vec![("acc", acc)])
    }

    /// Rows taken from a table, mostly a weight, by an index from outside.
    pub fn taken(&mut self, least: usize) -> Value {
        let dims = self.extents(least, 3);
        let table = self.either(&dims);
        let axis = self.rng.below(dims.len());
        let mut index = dims[..axis].to_vec();
        index.extend(self.extents(0, 2));
        let index = self.input(&index, DType::I32);
        let axis = axis as i64 - if self.rng.chance(20) { dims.len() as i64 } else { 0 };
        self.op(Opcode::Take, &[table, index], vec![("axis", Attr::Int(axis))])
    }
}

/// Makes the left side of a rule.
pub type Make = fn(&mut Left) -> Value;

/// A generator for every rule.
pub const GENERATORS: &[(&str, Make)] = &[
    ("cast-fold", |l| {
        let all = [DType::F64, DType::F32, DType::BF16, DType::F16, DType::I32, DType::U8];
        let dims = l.extents(0, 2);
        let x = l.any(&dims);
        let (a, b) = (all[l.rng.below(all.len())], all[l.rng.below(all.len())]);
        let x = l.cast(x, a)?;
        l.cast(x, b)
    }),
    ("reshape-fold", |l| {
        let x = l.any(&[2, 6]);
        let all: [&[i64]; 4] = [&[2, 6], &[3, 4], &[12], &[1, 12, 1]];
        let shape = |l: &mut Left, x| {
            let dims = all[l.rng.below(all.len())].iter().map(|d| Dim::from(*d)).collect();
            l.op(Opcode::Reshape, &[x], vec![("dims", Attr::Dims(dims))])
        };
        let x = shape(l, x)?;
        shape(l, x)
    }),
    ("transpose-fold", |l| {
        let dims = l.extents(1, 3);
        let mut x = l.any(&dims);
        for _ in 0..2 {
            let mut axes: Vec<i64> = (0..dims.len() as i64).collect();
            axes.rotate_left(l.rng.below(dims.len()));
            x = l.op(Opcode::Transpose, &[x], vec![("axes", Attr::Ints(axes))])?;
        }
        Some(x)
    }),
    ("unary-over-take", |l| {
        use Opcode::*;
        let all = [
            Neg, Abs, Exp, Log, Sqrt, Rsqrt, Sin, Cos, Tanh, Erf, Sigmoid, Silu, Softplus, Relu, Floor, IsFinite, Cast,
        ];
        let code = all[l.rng.below(all.len())];
        let x = l.taken(1)?;
        let dtype = l.float();
        if code == Cast { l.cast(x, dtype) } else { l.op(code, &[x], vec![]) }
    }),
    ("binary-over-take", |l| {
        use Opcode::*;
        let all = [Add, Sub, Mul, Div, Pow, Minimum, Maximum];
        let code = all[l.rng.below(all.len())];
        let x = l.taken(1)?;
        let dims = l.dims(x);
        let other = if l.rng.chance(30) {
            l.op(Const, &[], vec![("value", Attr::Float(0.75)), ("dtype", Attr::DType(DType::F32))])?
        } else {
            let dims = l.broadcasting(&dims);
            l.either(&dims)
        };
        let operands = if l.rng.chance(50) { [x, other] } else { [other, x] };
        l.op(code, &operands, vec![])
    }),
    ("linear-over-take", |l| {
        let x = l.taken(1)?;
        let last = *l.dims(x).last()?;
        let out = l.extent();
        let w = l.either(&[out, last]);
        l.linear(x, w)
    }),
    ("argmax-scale", |l| {
        let dims = l.extents(1, 3);
        let x = l.any(&dims);
        let s = if l.rng.chance(20) { dims.clone() } else { l.broadcasting(&dims) };
        let mut s = l.any(&s);
        for code in [Opcode::Exp, Opcode::Sigmoid, Opcode::Abs, Opcode::Rsqrt, Opcode::Sqrt] {
            if l.rng.chance(40) {
                s = l.op(code, &[s], vec![])?;
            }
        }
        let code = if l.rng.chance(30) { Opcode::Div } else { Opcode::Mul };
        let operands = if code == Opcode::Mul && l.rng.chance(50) { [s, x] } else { [x, s] };
        let y = l.op(code, &operands, vec![])?;
        let axis = l.rng.int(-(dims.len() as i64), dims.len() as i64 - 1);
        l.op(Opcode::Argmax, &[y], vec![("axis", Attr::Int(axis))])
    }),
    ("argmax-widen", |l| {
        let dims = l.extents(1, 3);
        let narrow = [DType::BF16, DType::F32, DType::F64][l.rng.below(3)];
        let x = l.input(&dims, narrow);
        let wide = [DType::BF16, DType::F32, DType::F64][l.rng.below(3)];
        let y = l.cast(x, wide)?;
        l.op(Opcode::Argmax, &[y], vec![("axis", Attr::Int(-1))])
    }),
    ("norm-definition", |l| {
        let dims = l.extents(1, 3);
        let x = l.either(&dims);
        let w = l.weight(&dims[dims.len() - 1..]);
        let operands = if l.rng.chance(70) { vec![x, w] } else { vec![x] };
        l.op(Opcode::RmsNorm, &operands, vec![("eps", Attr::Float(1e-6))])
    }),
    ("contract-scale", |l| {
        let code = if l.rng.chance(30) { Opcode::Div } else { Opcode::Mul };
        l.einsum(|l, dims| l.combined(code, dims))
    }),
    ("contract-diagonal", |l| l.einsum(|l, dims| l.combined(Opcode::Mul, dims))),
    ("contract-sum", |l| {
        let code = if l.rng.chance(30) { Opcode::Sub } else { Opcode::Add };
        l.einsum(|l, dims| l.combined(code, dims))
    }),
    ("contract-square", |l| {
        if l.rng.chance(20) {
            let n = l.extent();
            let y = l.combined(Opcode::Add, &[n, n])?;
            return l.product("n t, t n -> n", y, y);
        }
        let dims = l.extents(1, 3);
        let y = l.combined(Opcode::Add, &dims)?;
        let names = ["n", "t", "h"];
        let text = names[..dims.len()].join(" ");
        let kept: Vec<&str> = names[..dims.len()].iter().copied().filter(|_| l.rng.chance(50)).collect();
        l.product(&format!("{text}, {text} -> {}", kept.join(" ")), y, y)
    }),
    ("contract-linear", |l| {
        let (n, c, k, h) = (l.extent(), l.extent(), l.extent(), l.extent());
        let m = l.either(&[n, k]);
        let w = l.either(&[h, k]);
        let y = l.linear(m, w)?;
        let specs = [
            "n h, c h -> n c",
            "n h, c h -> c n",
            "n h, c h -> n",
            "n h, c h -> n h c",
            "n h, h c -> n c",
            "n h, h c -> n",
        ];
        let spec = specs[l.rng.below(specs.len())];
        let (c, h) = if spec.contains("h c ->") { (h, c) } else { (c, h) };
        let other = l.either(&[c, h]);
        if l.rng.chance(50) {
            return l.product(spec, y, other);
        }
        let (left, right) = spec.split_once("->")?;
        let (a, b) = left.split_once(',')?;
        l.product(&format!("{b}, {a} -> {right}"), other, y)
    }),
    ("linear-chain", |l| {
        let (i, j, o) = (l.extent(), l.extent(), l.extent());
        let mut dims = l.extents(0, 2);
        dims.push(i);
        let x = l.either(&dims);
        let (a, b) = (l.either(&[j, i]), l.either(&[o, j]));
        let y = l.linear(x, a)?;
        l.linear(y, b)
    }),
    ("linear-scale", |l| {
        let dims = l.extents(1, 3);
        let code = if l.rng.chance(30) { Opcode::Div } else { Opcode::Mul };
        let x = l.combined(code, &dims)?;
        let o = l.extent();
        let w = l.either(&[o, dims[dims.len() - 1]]);
        l.linear(x, w)
    }),
    ("linear-scale-rounded", |l| {
        let narrow = |l: &mut Left| if l.rng.chance(80) { DType::BF16 } else { l.float() };
        let dims = l.extents(1, 3);
        let (of_x, of_w, of_cast) = (narrow(l), narrow(l), narrow(l));
        // Of one sign: where a sum cancels, any rounding is large against the result.
        let positive = |l: &mut Left, dims: &[i64], dtype| {
            let x = l.any(dims);
            let x = l.op(Opcode::Exp, &[x], vec![])?;
            l.cast(x, dtype)
        };
        let x = positive(l, &dims, of_x)?;
        let mut s = dims.clone();
        if l.rng.chance(80) {
            s[dims.len() - 1] = 1;
        }
        let s = l.any(&s);
        let s = l.op(Opcode::Exp, &[s], vec![])?;
        let (code, operands) = match l.rng.below(3) {
            0 => (Opcode::Div, [x, s]),
            1 => (Opcode::Mul, [x, s]),
            _ => (Opcode::Mul, [s, x]),
        };
        let y = l.op(code, &operands, vec![])?;
        let y = l.cast(y, of_cast)?;
        let o = l.extent();
        let w = positive(l, &[o, dims[dims.len() - 1]], of_w)?;
        l.linear(y, w)
    }),
    ("linear-shift", |l| {
        let dims = l.extents(1, 3);
        let x = l.either(&dims);
        let rank = dims.len() as i64;
        let (by, axis) = (l.rng.int(-1, 2), l.rng.int(-rank, rank - 1));
        let fill = if l.rng.chance(20) { 0.5 } else { 0.0 };
        let attrs = vec![("by", Attr::Int(by)), ("axis", Attr::Int(axis)), ("fill", Attr::Float(fill))];
        let x = l.op(Opcode::Shift, &[x], attrs)?;
        let o = l.extent();
        let w = l.either(&[o, dims[dims.len() - 1]]);
        l.linear(x, w)
    }),
    ("widen-arithmetic", |l| {
        use Opcode::*;
        if l.mix == Mix::F64 {
            return None;
        }
        let code = [Add, Sub, Mul, Div][l.rng.below(4)];
        let dims = l.extents(0, 3);
        let (a, b) = (l.input(&dims, DType::F32), l.input(&dims, DType::BF16));
        let b = if code == Div { l.op(Exp, &[b], vec![])? } else { b };
        let y = l.op(code, &[a, b], vec![])?;
        l.cast(y, DType::F64)
    }),
    ("widen-linear", |l| {
        if l.mix == Mix::F64 {
            return None;
        }
        let (o, k) = (l.extent(), l.extent());
        let x = l.input(&[2, k], DType::F32);
        let w = l.weight(&[o, k]);
        let y = l.linear(x, w)?;
        l.cast(y, DType::F64)
    }),
];

/// Largest relative error of a rule's class, as `docs/rules.md` states it. `None` asks for the same bits.
pub fn bound(class: Class, mix: Mix) -> Option<f64> {
    match (class, mix) {
        (Class::Exact, _) => None,
        (Class::Approximate, Mix::F64) => Some(1e-9),
        (_, Mix::F64) => Some(1e-10),
        (_, Mix::Narrow) => Some(1e-5),
    }
}

/// The same for a result of 16 bits. A rounding of every operand to 16 bits may have moved.
pub fn bound_16(class: Class) -> f64 {
    if class == Class::RoundingChanging { 2e-2 } else { 8e-3 }
}

pub struct Values(pub Vec<Tensor>);

impl WeightStore for Values {
    fn weight(&self, id: WeightId, _index: &[i64]) -> Result<Tensor, String> {
        self.0.get(id.index()).cloned().ok_or_else(|| "no such weight".to_owned())
    }
}

pub fn random(ty: &Type, rng: &mut Rng) -> Tensor {
    let t = ty.tensor().expect("only tensors are made");
    let shape: Vec<usize> = t.dims.iter().map(|d| d.as_const().expect("constant") as usize).collect();
    let n: usize = shape.iter().product();
    if t.dtype == DType::I32 {
        // Some indices lie outside and are clamped.
        return Tensor::i32(shape, (0..n).map(|_| rng.int(-1, 5) as i32).collect());
    }
    let wide = Tensor::f64(shape, (0..n).map(|_| rng.real(-1.0, 1.0)).collect());
    wide.cast(t.dtype).expect("floats convert")
}

pub fn module(l: &Left) -> Module {
    let weight = |(i, ty): (usize, &TensorType)| Weight {
        name: format!("w{i}"),
        loops: vec![],
        present: vec![],
        ty: ty.clone(),
        storage: None,
        source: None,
        span: None,
        bound_at: None,
    };
    Module {
        name: "rule".to_owned(),
        numerics: Numerics::BF16,
        symbols: vec![],
        weights: l.weights.iter().enumerate().map(weight).collect(),
        states: vec![],
        funcs: vec![l.func.clone()],
    }
}

pub fn compare(a: &Tensor, b: &Tensor, bound: Option<f64>, bound_16: f64, what: &dyn Fn() -> String) {
    assert_eq!((a.dtype, &a.shape), (b.dtype, &b.shape), "{}", what());
    let (x, y) = (a.to_f64(), b.to_f64());
    let scale = x.iter().chain(&y).filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs())).max(1e-3);
    for (x, y) in x.iter().zip(&y) {
        let same = x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
        let near = match bound {
            Some(bound) if a.dtype.is_float() => {
                (x - y).abs() <= scale * bound.max(if a.dtype.bytes() == 2 { bound_16 } else { 0.0 })
            }
            _ => false,
        };
        assert!(same || near, "{x:e} and {y:e}: {}", what());
    }
}

/// A function in f64 in which `terms` left sides feed each other; every value is an output.
pub fn composed(seed: u64, terms: usize) -> Left {
    // Comparisons of computed values turn on the last bit.
    let makes: Vec<Make> = GENERATORS.iter().filter(|(n, _)| !n.starts_with("argmax")).map(|(_, m)| *m).collect();
    let mut l = Left { rng: Rng::new(seed), mix: Mix::F64, func: Func::new("f"), weights: vec![], pool: vec![] };
    for _ in 0..terms {
        let make = makes[l.rng.below(makes.len())];
        if let Some(v) = make(&mut l)
            && l.func.tensor(v).is_some_and(|t| t.dtype == DType::F64)
        {
            l.pool.push(v);
        }
    }
    let body = l.func.body.index();
    l.func.outputs = (0..l.pool.len()).map(|i| format!("out{i}")).collect();
    l.func.regions[body].yields = l.pool.clone();
    l
}
