//! Plans and the modules they come from on the reference interpreter.

use super::unspanned;
use spinec_ir::interp::{Mode, NoObserver, RequestState, WeightStore, run};
use spinec_ir::ir::testing::Sample;
use spinec_ir::ir::{Func, Module, WeightId};
use spinec_ir::plan::text::{parse, print};
use spinec_ir::plan::{Plan, derived_element};
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::Env;
use std::cell::RefCell;
use std::collections::BTreeMap;

pub struct Weights<'a> {
    sample: &'a Sample,
    values: &'a [Vec<Option<Tensor>>],
    plan: Option<&'a Plan>,
    known: RefCell<BTreeMap<WeightId, Tensor>>,
}

impl WeightStore for Weights<'_> {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        let given = self.sample.module.weights.len();
        if let (Some(plan), Some(i)) = (self.plan, id.index().checked_sub(given)) {
            let known = self.known.borrow().get(&id).cloned();
            let all = match known {
                Some(t) => t,
                None => {
                    let func: &Func = plan.load.funcs.get(i).ok_or("no such derived weight")?;
                    let out = run(&plan.load, func, &[], self, &mut [], Mode::Immediate, &mut NoObserver);
                    let t = out.map_err(|e| format!("{e:?}"))?.remove(0);
                    self.known.borrow_mut().insert(id, t.clone());
                    t
                }
            };
            let weight = plan.module.weight(id);
            if weight.loops.is_empty() {
                return Ok(all);
            }
            let at = derived_element(weight, index).ok_or("no such element")?;
            let n: usize = all.shape[1..].iter().product();
            let part = Tensor::f64(all.shape[1..].to_vec(), all.to_f64()[at * n..(at + 1) * n].to_vec());
            return part.cast(all.dtype).ok_or_else(|| "the dtype converts".to_owned());
        }
        let loops = &self.sample.module.weight(id).loops;
        let flat = index.iter().zip(loops).fold(0, |flat, (i, (_, extent))| flat * extent + i);
        self.values[id.index()][flat as usize].clone().ok_or_else(|| format!("weight {} is absent", id.0))
    }
}

/// By function its outputs and the states behind it.
pub type Results = Vec<(Vec<Tensor>, Vec<(String, Tensor)>)>;

/// Outputs of all functions, one after the other, and the states after each.
pub fn results(module: &Module, plan: Option<&Plan>, s: &Sample, seed: u64, mode: Mode) -> Result<Results, String> {
    let env = Env::from([("N".to_owned(), 1 + (seed % 3) as i64), ("T".to_owned(), 1 + (seed % 4) as i64)]);
    let values = s.weight_values(seed).ok_or("no weights")?;
    let weights = Weights { sample: s, values: &values, plan, known: RefCell::default() };
    let n = env["N"] as usize;
    let mut states = vec![RequestState::new(module).map_err(|e| e.to_string())?; n];
    let mut out = Vec::new();
    for (i, f) in module.funcs.iter().enumerate() {
        let inputs = s.input_values(i, &env, seed).ok_or("no inputs")?;
        let results = run(module, f, &inputs, &weights, &mut states, mode, &mut NoObserver);
        let results = results.map_err(|e| format!("{e:?}"))?;
        let mut after = Vec::new();
        for s in &mut states {
            // Functions advance states by different numbers of rows; none can always be committed.
            let rows = if mode == Mode::Immediate { 3 } else { 0 };
            let done = s.commit(rows).is_ok();
            after.push((done.to_string(), Tensor::zeros(spinec_ir::ty::DType::U8, vec![0])));
            after.extend(s.export());
        }
        out.push((results, after));
    }
    Ok(out)
}

pub fn near(got: &Tensor, want: &Tensor, tolerance: f64) -> Result<(), String> {
    if got.dtype != want.dtype || got.shape != want.shape {
        return Err(format!("{} {:?} against {} {:?}", got.dtype, got.shape, want.dtype, want.shape));
    }
    if !want.dtype.is_float() {
        return if got.data == want.data { Ok(()) } else { Err("integers differ".to_owned()) };
    }
    let (a, b) = (got.to_f64(), want.to_f64());
    let scale = b.iter().filter(|x| x.is_finite()).fold(1.0, |m: f64, x| m.max(x.abs()));
    for (x, y) in a.iter().zip(&b) {
        if !((x - y).abs() <= tolerance * scale || x == y || x.is_nan() && y.is_nan()) {
            return Err(format!("{x} against {y}"));
        }
    }
    Ok(())
}

pub fn compare(got: &Results, want: &Results, tolerance: f64) -> Result<(), String> {
    for (f, (got, want)) in got.iter().zip(want).enumerate() {
        for (i, (a, b)) in got.0.iter().zip(&want.0).enumerate() {
            near(a, b, tolerance).map_err(|e| format!("function {f} output {i}: {e}"))?;
        }
        for ((name, a), (other, b)) in got.1.iter().zip(&want.1) {
            if name != other {
                return Err(format!("function {f}: state {name} against {other}"));
            }
            near(a, b, tolerance).map_err(|e| format!("function {f} state {name}: {e}"))?;
        }
    }
    Ok(())
}

/// The text loses nothing. Plans of random modules are compared by text too, as NaN does not equal itself.
pub fn round_trip(plan: &Plan) -> Result<(), String> {
    let printed = print(plan);
    let again = parse(&printed).map_err(|e| format!("{:?}\n{printed}", e.first()))?;
    if print(&again) != printed || again != unspanned(plan) {
        return Err(format!("the text reads back as another plan\n{printed}"));
    }
    Ok(())
}
