//! Constants and data movement.

use super::super::consts::Val;
use super::super::elements::Kind;
use super::super::instr::{Code, Lanes};
use super::super::view::count;
use super::{Call, Emitter, Step};
use spinec_ir::ir::Attr;
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::Tensor;
use spinec_ir::ty::DType;

impl Emitter<'_> {
    /// The result of an op that moves nothing; `None` if it takes an instruction.
    pub(super) fn view_op(&mut self, call: &Call) -> Step<Option<Val>> {
        let view = match call.code {
            Opcode::Fill | Opcode::Broadcast => {
                let (x, (_, shape)) = (call.operand(0)?, call.result(0)?);
                Some(
                    x.view
                        .broadcast(shape)
                        .ok_or_else(|| format!("{:?} does not broadcast to {shape:?}", x.view.shape))?,
                )
            }
            Opcode::Cast => {
                let (x, (dtype, _)) = (call.operand(0)?, call.result(0)?);
                // The narrower float lies in memory as the wider does.
                let same = x.dtype == dtype || matches!((x.dtype, dtype), (DType::BF16 | DType::F16, DType::F32));
                return Ok(same.then(|| Val { dtype, ..x.clone() }));
            }
            Opcode::Reshape => {
                let (_, shape) = call.result(0)?;
                let x = call.operand(0)?;
                if count(shape) != x.view.len() {
                    return Err(format!("{:?} cannot become {shape:?}", x.view.shape));
                }
                match x.view.reshape(shape) {
                    Some(view) => Some(view),
                    // Constants that have to be copied for it become a constant.
                    None if x.is_const() => return Ok(None),
                    None => {
                        let x = self.dense(x)?;
                        let view = x.view.reshape(shape).ok_or("a dense tensor takes any shape")?;
                        return Ok(Some(Val { view, ..x }));
                    }
                }
            }
            Opcode::Transpose => {
                let x = call.operand(0)?;
                let Attr::Ints(axes) = call.attr("axes")? else { return Err("attribute `axes` is no list".into()) };
                let rank = x.view.shape.len();
                let axis = |a: &i64| {
                    usize::try_from(*a).ok().filter(|a| *a < rank).ok_or_else(|| format!("there is no axis {a}"))
                };
                let axes = axes.iter().map(axis).collect::<Step<Vec<usize>>>()?;
                Some(x.view.transpose(&axes))
            }
            Opcode::Slice => {
                let x = call.operand(0)?;
                let axis = call.axis(x.view.shape.len())?;
                let (start, len) = (call.index("start")?, call.index("len")?);
                if start.checked_add(len).is_none_or(|end| end > x.view.shape[axis]) {
                    let extent = x.view.shape[axis];
                    return Err(format!(
                        "the range of {len} from {start} does not lie within axis {axis} of extent {extent}"
                    ));
                }
                Some(x.view.slice(axis, start, len))
            }
            Opcode::IndexAt => {
                let (x, i) = (call.operand(0)?, call.operand(1)?);
                let axis = call.axis(x.view.shape.len())?;
                let last = x.view.shape[axis].checked_sub(1).ok_or("an entry of an empty axis is asked for")?;
                if i.is_const() {
                    let place = self.shared.number(i)?.max(0.0) as usize;
                    Some(x.view.index(axis, place.min(last)))
                } else {
                    None
                }
            }
            _ => None,
        };
        view.map(|view| call.operand(0).map(|x| Val { view, ..x.clone() })).transpose()
    }

    /// Constants, dims and ranges.
    pub(super) fn known(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let t = match call.code {
            Opcode::Const => Tensor::f64(vec![], vec![call.float("value")?]),
            Opcode::DimValue => {
                let value = call.int("value")?;
                Tensor::i32(
                    vec![],
                    vec![i32::try_from(value).map_err(|_| format!("the dim is {value}, which is no i32"))?],
                )
            }
            _ => {
                let n = i32::try_from(count(shape)).map_err(|_| format!("0..{shape:?} does not fit i32"))?;
                Tensor::i32(shape.to_vec(), (0..n).collect())
            }
        };
        let t = spinec_ir::interp::cast(&t, dtype)?;
        Ok(self.shared.value(&t))
    }

    pub(super) fn concat(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let axis = call.axis(shape.len())?;
        let out = self.fresh(dtype, shape);
        let mut start = 0;
        for part in call.operands {
            let part = self.cast(part, dtype)?;
            let len = *part.view.shape.get(axis).ok_or("a part has too few axes")?;
            let view = out.view.slice(axis, start, len);
            if start + len > shape[axis] || view.shape != part.view.shape {
                return Err(format!(
                    "a part of extents {:?} does not fit into {shape:?} along axis {axis}",
                    part.view.shape
                ));
            }
            self.copy(&part, &Val { view, ..out.clone() })?;
            start += len;
        }
        if start == shape[axis] { Ok(out) } else { Err(format!("the parts have {start} entries along axis {axis}")) }
    }

    /// A position that is known only when the tape runs.
    pub(super) fn index_at(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let x = call.operand(0)?;
        let axis = call.axis(x.view.shape.len())?;
        let moved = Val { view: x.view.transpose(&axis_first(x.view.shape.len(), axis)), ..x.clone() };
        let lanes = Lanes { extent: x.view.shape[axis], inner: count(shape) };
        let index = self.int(call.operand(1)?)?;
        let ins = vec![self.dense_ref(&moved)?, self.dense_ref(&index)?];
        let out = self.fresh(dtype, shape);
        self.push(Code::Take { lanes, per_outer: 1 }, ins, &[&out])?;
        Ok(out)
    }

    pub(super) fn shift(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let lanes = lanes(shape, call.axis(shape.len())?);
        let fill = match Kind::of(dtype) {
            Kind::F32 | Kind::F64 => spinec_ir::interp::round_to(dtype, call.float("fill")?),
            _ => call.float("fill")?,
        };
        let x = self.dense_ref(call.operand(0)?)?;
        let out = self.fresh(dtype, shape);
        self.push(Code::Shift { lanes, by: call.int("by")?, fill }, vec![x], &[&out])?;
        Ok(out)
    }

    pub(super) fn take(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let (x, index) = (call.operand(0)?, call.operand(1)?);
        let axis = call.axis(x.view.shape.len())?;
        let lanes = lanes(&x.view.shape, axis);
        let index_shape = &index.view.shape;
        if index_shape.len() < axis || index_shape[..axis] != x.view.shape[..axis] {
            return Err(format!("the index {index_shape:?} must begin with the axes {:?}", &x.view.shape[..axis]));
        }
        let per_outer = count(&index_shape[axis..]);
        let index = self.int(index)?;
        let index = self.dense_ref(&index)?;
        let out = self.fresh(dtype, shape);
        if x.is_const()
            && axis == 0
            && x.kind() == Kind::F32
            && let Some(table) = self.shared.bf16_table(x)?
        {
            self.push(Code::TakeBf16 { table, lanes }, vec![index], &[&out])?;
            return Ok(out);
        }
        let x = self.dense_ref(x)?;
        self.push(Code::Take { lanes, per_outer }, vec![x, index], &[&out])?;
        Ok(out)
    }

    pub(super) fn one_hot(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let index = self.int(call.operand(0)?)?;
        let index = self.dense_ref(&index)?;
        let out = self.fresh(dtype, shape);
        let n = *shape.last().ok_or("one_hot makes at least one axis")?;
        self.push(Code::OneHot { n }, vec![index], &[&out])?;
        Ok(out)
    }

    pub(super) fn scatter_add(&mut self, call: &Call) -> Step<Val> {
        let wide = call.wide();
        let (dtype, shape) = call.result(0)?;
        let (x, updates) = (self.real(call.operand(0)?, wide)?, self.real(call.operand(2)?, wide)?);
        let index = self.int(call.operand(1)?)?;
        let (Some(extent), Some(m)) = (shape.last(), index.view.shape.last()) else {
            return Err("scatter_add needs at least one axis".into());
        };
        if updates.view.shape != index.view.shape || x.view.len() / extent * m != index.view.len() {
            return Err(format!("indices {:?} do not fit {shape:?}", index.view.shape));
        }
        let code = Code::ScatterAdd { wide, extent: *extent, updates: *m };
        let ins = vec![self.dense_ref(&x)?, self.dense_ref(&index)?, self.dense_ref(&updates)?];
        let out = self.fresh(super::compute(wide), shape);
        self.push(code, ins, &[&out])?;
        self.cast(&out, dtype)
    }

    pub(super) fn sort(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        if dtype == DType::F8E4M3 {
            return self.reference(call)?.pop().ok_or_else(|| "sort has a result".into());
        }
        let width = *shape.last().ok_or("sort needs at least one axis")?;
        let x = self.dense_ref(call.operand(0)?)?;
        let out = self.fresh(dtype, shape);
        self.push(Code::Sort { width }, vec![x], &[&out])?;
        Ok(out)
    }
}

/// A shape seen from one axis.
fn lanes(shape: &[usize], axis: usize) -> Lanes {
    Lanes { extent: shape[axis], inner: count(&shape[axis + 1..]) }
}

fn axis_first(rank: usize, axis: usize) -> Vec<usize> {
    std::iter::once(axis).chain((0..rank).filter(|a| *a != axis)).collect()
}
