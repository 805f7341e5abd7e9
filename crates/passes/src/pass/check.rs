//! Numerics of passes: both sides of each on the reference interpreter.

use super::{Options, PASSES, PassError, Program, start, step};
use spinec_ir::diag::Span;
use spinec_ir::interp::{Mode, Observer, RequestState, WeightStore, run};
use spinec_ir::ir::{Func, Module, ValueDef, WeightId};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{DType, Env, Numerics, TensorType};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Gives an input of a function by name and type; `None` takes one made up.
pub type Given<'a> = &'a dyn Fn(&Func, &str, &TensorType) -> Option<Tensor>;

/// How numerics are checked.
pub struct Check<'a> {
    /// Values of the run-time symbols. The interpreter is plain: dims should be small, in the system too.
    pub env: Env,
    /// Requests of every call.
    pub requests: usize,
    /// Seed of weights and inputs.
    pub seed: u64,
    /// Inputs that must be something in particular. Made up are reals in [-1, 1), and integers that count along the last axis.
    pub given: Given<'a>,
    /// Largest difference allowed, relative to the largest magnitude of the value; `None` takes what the module's policy
    /// allows. Integers must be equal. In 16 bits a rounding may turn a comparison, so f64 says more about a pass.
    pub tolerance: Option<f64>,
}

/// The first value that a pass changed too much.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The pass; empty where two programs were compared.
    pub pass: &'static str,
    /// The function.
    pub func: String,
    /// The value: a node path with loop indices, an output as `-> NAME`, or a state.
    pub value: String,
    /// The value's expression in the YAML file.
    pub span: Option<Span>,
    /// Largest difference over the largest magnitude; infinite for shapes, integers and NaN on one side.
    pub error: f64,
}

/// Runs all passes and compares the program before and after each; stops at the first difference.
///
/// # Errors
/// See [`PassError`]; also a function the interpreter cannot evaluate.
pub fn check_each(
    module: Module,
    options: &Options,
    check: &Check,
) -> Result<(Program, Option<Difference>), PassError> {
    let mut program = start(module)?;
    for pass in PASSES {
        let after = step(pass, program.clone(), options)?;
        if let Some(found) = compare(&program, &after, check)? {
            return Ok((after, Some(Difference { pass: pass.name, ..found })));
        }
        program = after;
        if options.stop_after.as_deref() == Some(pass.name) {
            break;
        }
    }
    Ok((program, None))
}

/// The first value of `before`, in the order of evaluation, that is another in `after`. Values that only one of them names are
/// not looked at; outputs and states always are.
///
/// # Errors
/// A function the interpreter cannot evaluate.
pub fn compare(before: &Program, after: &Program, check: &Check) -> Result<Option<Difference>, PassError> {
    let tolerance = check.tolerance.unwrap_or(match before.module.numerics {
        Numerics::F64 => 1e-9,
        Numerics::F32 => 1e-4,
        Numerics::BF16 => 5e-2,
    });
    for func in &before.module.funcs {
        let Some(other) = after.module.func(&func.name) else { continue };
        let inputs = inputs(func, check).map_err(PassError::Internal)?;
        let (want, got) = (values(before, func, &inputs, check)?, values(after, other, &inputs, check)?);
        let got: BTreeMap<&str, &Tensor> = got.iter().map(|(name, t)| (name.as_str(), t)).collect();
        for (name, want) in &want {
            let Some(error) = got.get(name.as_str()).map(|got| distance(got, want)) else { continue };
            if error > tolerance {
                let (func, value, span) = (func.name.clone(), name.clone(), span(func, name));
                return Ok(Some(Difference { pass: "", func, value, span, error }));
            }
        }
    }
    Ok(None)
}

/// Named values in the order of evaluation, then outputs and states.
fn values(p: &Program, func: &Func, inputs: &[Tensor], check: &Check) -> Result<Vec<(String, Tensor)>, PassError> {
    let fail = |e: String| PassError::Internal(format!("function `{}` cannot be evaluated: {e}", func.name));
    let mut states = Vec::new();
    for _ in 0..check.requests {
        states.push(RequestState::new(&p.module).map_err(|e| fail(format!("{e:?}")))?);
    }
    let store = Store { program: p, seed: check.seed, derived: RefCell::default() };
    let mut all = Recorder::default();
    let out = run(&p.module, func, inputs, &store, &mut states, Mode::Immediate, &mut all);
    let out = out.map_err(|e| fail(e.to_string()))?;
    all.0.extend(func.outputs.iter().map(|o| format!("-> {o}")).zip(out));
    for (i, state) in states.iter().enumerate() {
        all.0.extend(state.export().into_iter().map(|(name, t)| (format!("state {name} of request {i}"), t)));
    }
    Ok(all.0)
}

#[derive(Default)]
struct Recorder(Vec<(String, Tensor)>);

impl Observer for Recorder {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn value(&mut self, path: &str, t: &Tensor) {
        self.0.push((path.to_owned(), t.clone()));
    }
}

/// Made-up weights; derived ones are computed from them.
struct Store<'a> {
    program: &'a Program,
    seed: u64,
    derived: RefCell<BTreeMap<usize, Tensor>>,
}

impl WeightStore for Store<'_> {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        let weight = self.program.module.weights.get(id.index()).ok_or("no such weight")?;
        let Some(i) = self.program.derived.iter().position(|d| d.weight == id) else {
            let flat =
                index.iter().fold(id.index() as u64 + 1, |h, i| h.wrapping_mul(1_000_003).wrapping_add(*i as u64));
            return made_up(&weight.ty, &Env::new(), self.seed ^ flat);
        };
        if !self.derived.borrow().contains_key(&i) {
            let load = &self.program.load;
            let mut none = Recorder::default();
            let out = run(load, &load.funcs[i], &[], self, &mut [], Mode::Immediate, &mut none);
            let value = out.map_err(|e| e.to_string())?.pop().ok_or("a weight is computed by a function")?;
            self.derived.borrow_mut().insert(i, value);
        }
        let known = self.derived.borrow();
        let all = known.get(&i).ok_or("a derived weight is missing")?;
        if weight.loops.is_empty() {
            return Ok(all.clone());
        }
        let at = self.program.element(i, index).ok_or("the weight does not exist there")?;
        let shape: Vec<usize> = all.shape[1..].to_vec();
        let n: usize = shape.iter().product();
        let part = Tensor::f64(shape, all.to_f64()[at * n..(at + 1) * n].to_vec());
        part.cast(all.dtype).ok_or_else(|| "the dtype has no values".to_owned())
    }
}

fn inputs(func: &Func, check: &Check) -> Result<Vec<Tensor>, String> {
    let params = func.inputs.iter().zip(&func.region(func.body).params);
    params
        .enumerate()
        .map(|(i, (name, v))| {
            let ty = func.tensor(*v).ok_or("an input is a tensor")?;
            match (check.given)(func, name, ty) {
                Some(t) => Ok(t),
                None => made_up(ty, &check.env, check.seed.wrapping_add(1 + i as u64)),
            }
        })
        .collect()
}

/// Reals in [-1, 1), integers that count along the last axis, truths that alternate; the same for the same seed.
fn made_up(ty: &TensorType, env: &Env, seed: u64) -> Result<Tensor, String> {
    let extent = |d: &spinec_ir::ty::Dim| d.eval(env).and_then(|n| usize::try_from(n).ok());
    let shape =
        ty.dims.iter().map(|d| extent(d).ok_or_else(|| format!("{d} has no value"))).collect::<Result<Vec<_>, _>>()?;
    let (n, last) = (shape.iter().product::<usize>(), shape.last().copied().unwrap_or(1).max(1));
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut real = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let value = |i: usize| match ty.dtype {
        DType::I32 | DType::U8 => (i % last) as f64,
        DType::Bool => f64::from(u8::from(i.is_multiple_of(2))),
        _ if ty.dist => 1.0 / last as f64,
        _ => real(),
    };
    let wide = Tensor::f64(shape, (0..n).map(value).collect());
    wide.cast(ty.dtype).ok_or_else(|| format!("{ty} has no values"))
}

fn distance(got: &Tensor, want: &Tensor) -> f64 {
    if got.shape != want.shape || got.dtype.is_float() != want.dtype.is_float() {
        return f64::INFINITY;
    }
    let (a, b) = (got.to_f64(), want.to_f64());
    let scale = b.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    let mut worst = 0.0f64;
    for (x, y) in a.iter().zip(&b) {
        if x.to_bits() == y.to_bits() || x == y || (x.is_nan() && y.is_nan()) {
            continue;
        }
        let off = (x - y).abs() / scale.max(f64::MIN_POSITIVE);
        worst = worst.max(if want.dtype.is_float() && !off.is_nan() { off } else { f64::INFINITY });
    }
    worst
}

/// Where a value stands in the YAML: that of the op that makes it, by its name without loop indices.
fn span(func: &Func, path: &str) -> Option<Span> {
    let of = |v: &spinec_ir::ir::ValueId| match func.value(*v).def {
        ValueDef::Result(op, _) => func.op(op).loc.span,
        ValueDef::Param(..) => None,
    };
    if let Some(output) = path.strip_prefix("-> ") {
        let at = func.outputs.iter().position(|o| o == output)?;
        return of(func.region(func.body).yields.get(at)?);
    }
    let number = |part: &&str| part.is_empty() || !part.chars().all(|c| c.is_ascii_digit());
    let plain = path.split('.').filter(number).collect::<Vec<_>>().join(".");
    let named = |v: &&spinec_ir::ir::ValueId| func.value(**v).names.iter().any(|n| **n == *plain || **n == *path);
    func.ops.iter().flat_map(|op| &op.results).find(named).and_then(of)
}
