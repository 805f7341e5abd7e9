//! Random values for the inputs and weights of a sample.

use super::build::UNIT;
use super::{Range, Rng, Sample};
use crate::tensor::{Data, Tensor};
use crate::ty::{DType, Env, TensorType};

impl Sample {
    /// Values for the inputs of function `func` under values of the symbols. `None` if a symbol has none.
    pub fn input_values(&self, func: usize, env: &Env, seed: u64) -> Option<Vec<Tensor>> {
        let f = self.module.funcs.get(func)?;
        let mut rng = Rng::new(seed);
        let params = &f.region(f.body).params;
        let ranges = self.inputs.get(func)?;
        params.iter().zip(ranges).map(|(v, range)| random(f.tensor(*v)?, *range, env, &mut rng)).collect()
    }

    /// Values of every weight: one tensor for every combination of its loop indices, row-major; `None` where the weight
    /// is absent.
    pub fn weight_values(&self, seed: u64) -> Option<Vec<Vec<Option<Tensor>>>> {
        let mut rng = Rng::new(seed);
        let mut out = Vec::new();
        for w in &self.module.weights {
            let n = usize::try_from(w.elements()?).ok()?;
            let mut elements = Vec::new();
            for i in 0..n {
                let t = random(&w.ty, UNIT, &Env::new(), &mut rng)?;
                elements.push(w.present.get(i).copied().unwrap_or(true).then_some(t));
            }
            out.push(elements);
        }
        Some(out)
    }
}

fn random(ty: &TensorType, range: Range, env: &Env, rng: &mut Rng) -> Option<Tensor> {
    let shape = ty.dims.iter().map(|d| usize::try_from(d.eval(env)?).ok()).collect::<Option<Vec<usize>>>()?;
    let whole = !ty.dtype.is_float();
    let value = |rng: &mut Rng| {
        if whole { rng.int(range.lo as i64, range.hi as i64) as f64 } else { rng.real(range.lo, range.hi) }
    };
    let n = shape.iter().product::<usize>();
    let wide = Tensor::new(DType::F64, shape, Data::F64((0..n).map(|_| value(rng)).collect()))?;
    wide.cast(ty.dtype)
}
