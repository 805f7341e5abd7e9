//! Values that turn on a comparison: which entry is the largest, which is drawn, which side of a number. A small change of
//! what is compared turns them where it is nearly a tie.

use super::run::{Key, Log};
use spinec_ir::interp::{Mode, NoObserver, RequestState, WeightStore, run};
use spinec_ir::ir::{Attr, Func, Loc, Module, Op, ValueDef, ValueId, WeightId};
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::{Dim, Env, TensorType};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The largest entry, or one of the largest.
    Largest,
    /// An entry drawn from a law.
    Drawn,
    /// Two numbers.
    Sides,
    /// A number that is rounded to an integer.
    Rounded,
}

/// How a value turned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turned {
    /// What is compared.
    pub pick: Pick,
    /// What the graph as it was gave; truth values are 0 and 1.
    pub want: i64,
    /// What it gives now.
    pub got: i64,
    /// What lay between the two as the graph was, relative to the largest magnitude of what is compared: the difference of
    /// the two scores, of the two numbers, of the running sums to the coin, or of the number to the next integer.
    pub gap: f64,
}

impl std::fmt::Display for Turned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Turned { want, got, gap, .. } = self;
        match self.pick {
            Pick::Largest => write!(f, "picks {got} where the graph picked {want}; their scores differ by {gap:.1e}"),
            Pick::Drawn => {
                write!(f, "draws {got} where the graph drew {want}; the running sums are {gap:.1e} from the coin")
            }
            Pick::Sides => {
                let truth = |v: i64| if v == 0 { "false" } else { "true" };
                let (got, want) = (truth(*got), truth(*want));
                write!(f, "is {got} where it was {want}; the two sides differ by {gap:.1e}")
            }
            Pick::Rounded => write!(f, "is {got} where it was {want}; the number is {gap:.1e} from that"),
        }
    }
}

/// What an op compares, if its first or, for the largest, its last result turns on that.
pub(super) fn pick(func: &Func, v: ValueId) -> Option<(&Op, Pick)> {
    let ValueDef::Result(op, result) = func.value(v).def else { return None };
    let op = func.op(op);
    let pick = match (op.code, result) {
        (Opcode::Argmax, 0) | (Opcode::TopK, 1) => Pick::Largest,
        (Opcode::Draw, 0) => Pick::Drawn,
        (Opcode::Eq | Opcode::Ne | Opcode::Lt | Opcode::Le | Opcode::Gt | Opcode::Ge, 0) => Pick::Sides,
        (Opcode::Floor, 0) => Pick::Rounded,
        (Opcode::Cast, 0) if !func.tensor(v)?.dtype.is_float() => Pick::Rounded,
        _ => return None,
    };
    let floats = op.operands.iter().all(|o| func.tensor(*o).is_some_and(|t| t.dtype.is_float()));
    floats.then_some((op, pick))
}

/// The operands of an op as they were when event `now` of a log was told; `own`, if given, is asked first. `None` if one of
/// them is not known.
pub(super) fn operands(op: &Op, log: &Log, now: usize, own: Option<&Log>) -> Option<Vec<Tensor>> {
    let operand = |v: &ValueId| {
        let key = Key::Mark(v.index());
        let time = log.times(&key, now).checked_sub(1)?;
        own.and_then(|own| own.get(&key, time)).or_else(|| log.get(&key, time)).cloned()
    };
    op.operands.iter().map(operand).collect()
}

/// The entry that turned by the widest gap. `None` if none did or the operands are not what the op takes.
pub(super) fn turned(op: &Op, pick: Pick, operands: &[Tensor], want: &Tensor, got: &Tensor) -> Option<Turned> {
    if want.shape != got.shape {
        return None;
    }
    let values: Vec<(Vec<f64>, &[usize])> = operands.iter().map(|t| (t.to_f64(), t.shape.as_slice())).collect();
    let largest = |v: &[f64]| v.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    let scale = values.iter().map(|(v, _)| largest(v)).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let (want_all, got_all) = (want.to_f64(), got.to_f64());
    let mut worst: Option<Turned> = None;
    for (i, (want_i, got_i)) in want_all.iter().zip(&got_all).enumerate() {
        if want_i == got_i {
            continue;
        }
        let gap = match pick {
            Pick::Largest => {
                let (scores, shape) = values.first()?;
                let stride: usize = axis(op, shape.len()).map(|a| shape[a + 1..].iter().product()).unwrap_or(1);
                let extent = axis(op, shape.len()).and_then(|a| shape.get(a)).or(shape.last()).copied()?;
                // Entry i of the result is of row i, or one of several of a row.
                let row = if op.code == Opcode::TopK { i / want.shape.last()? } else { i };
                let start = row / stride * stride * extent + row % stride;
                let score = |entry: f64| {
                    let entry = (0.0..extent as f64).contains(&entry).then_some(entry as usize)?;
                    scores.get(start + entry * stride)
                };
                (score(*want_i)? - score(*got_i)?).abs() / scale
            }
            Pick::Drawn => {
                let ((law, shape), (coins, _)) = (values.first()?, values.get(1)?);
                let extent = *shape.last()?;
                let row = law.get(i * extent..(i + 1) * extent)?;
                let at = coins.get(i)? * row.iter().sum::<f64>();
                let (low, high) = (want_i.min(*got_i) as usize, want_i.max(*got_i) as usize);
                let sums = row.iter().scan(0.0, |sum, p| {
                    *sum += p;
                    Some(*sum)
                });
                let between = sums.skip(low).take(high - low).map(|s| (s - at).abs());
                between.fold(0.0, f64::max) / row.iter().sum::<f64>().max(f64::MIN_POSITIVE)
            }
            Pick::Sides => {
                let side =
                    |k: usize| values.get(k).and_then(|(v, shape)| v.get(aligned(i, &want.shape, shape)).copied());
                (side(0)? - side(1)?).abs() / scale
            }
            Pick::Rounded => {
                let v = *values.first()?.0.get(i)?;
                let (low, high) = if op.code == Opcode::Floor || *got_i > 0.0 {
                    (*got_i, got_i + 1.0)
                } else if *got_i < 0.0 {
                    (got_i - 1.0, *got_i)
                } else {
                    (-1.0, 1.0)
                };
                (low - v).max(v - high).max(0.0) / scale
            }
        };
        let gap = if gap.is_nan() { f64::INFINITY } else { gap };
        if worst.is_none_or(|w| gap > w.gap) {
            worst = Some(Turned { pick, want: *want_i as i64, got: *got_i as i64, gap });
        }
    }
    worst
}

fn axis(op: &Op, rank: usize) -> Option<usize> {
    let axis = op.int("axis")?;
    usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok().filter(|a| *a < rank)
}

/// Where element `i` of a shape is in a tensor that is broadcast to it.
fn aligned(i: usize, whole: &[usize], part: &[usize]) -> usize {
    let (mut rest, mut at, mut stride) = (i, 0, 1);
    for (k, extent) in whole.iter().rev().enumerate() {
        let place = rest % extent.max(&1);
        rest /= extent.max(&1);
        if let Some(own) = part.len().checked_sub(k + 1).map(|p| part[p]) {
            at += if own == 1 { 0 } else { place * stride };
            stride *= own;
        }
    }
    at
}

/// Result `result` of an op on other operands.
pub(super) fn again(
    module: &Module,
    op: &Op,
    operands: &[Tensor],
    results: &[TensorType],
    v: usize,
    env: &Env,
) -> Option<Tensor> {
    let constant = |d: &Dim| d.eval(env).map(Dim::from);
    let dims =
        |t: &TensorType| Some(TensorType { dims: t.dims.iter().map(constant).collect::<Option<_>>()?, ..t.clone() });
    let mut func = Func::new("again");
    let body = func.body;
    let mut params = Vec::new();
    for (i, t) in operands.iter().enumerate() {
        func.inputs.push(i.to_string());
        let extents = t.shape.iter().map(|n| Dim::from(*n as i64)).collect();
        params.push(func.add_param(body, TensorType::new(t.dtype, extents).into()));
    }
    let mut attrs = op.attrs.clone();
    if let Some(Attr::Dim(k)) = attrs.get_mut("k") {
        *k = constant(k)?;
    }
    let types = results.iter().map(|t| dims(t).map(Into::into)).collect::<Option<_>>()?;
    let made = func.add_op(body, op.code, params, attrs, vec![], types, Loc::default());
    let results = func.op(made).results.clone();
    func.outputs = results.iter().map(|r| r.0.to_string()).collect();
    func.regions[body.index()].yields = results;
    let module = Module { funcs: vec![], weights: vec![], states: vec![], ..module.clone() };
    let states: &mut [RequestState] = &mut [];
    let out = run(&module, &func, operands, &NoWeights, states, Mode::Immediate, &mut NoObserver).ok()?;
    out.into_iter().nth(v)
}

struct NoWeights;

impl WeightStore for NoWeights {
    fn weight(&self, _: WeightId, _: &[i64]) -> Result<Tensor, String> {
        Err("there are no weights".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::aligned;

    #[test]
    fn broadcast_operands_are_found() {
        let at = |part: &[usize]| (0..6).map(|i| aligned(i, &[2, 3], part)).collect::<Vec<_>>();
        assert_eq!(at(&[2, 3]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(at(&[3]), [0, 1, 2, 0, 1, 2]);
        assert_eq!(at(&[2, 1]), [0, 0, 0, 1, 1, 1]);
        assert_eq!(at(&[]), [0; 6]);
    }
}
