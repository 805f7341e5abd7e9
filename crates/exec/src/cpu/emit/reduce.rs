//! Reductions, scans and selections along one axis, which is brought to the end.

use super::super::consts::Val;
use super::super::instr::Code;
use super::super::view::count;
use super::{Call, Emitter, Step, compute};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::DType;

impl Emitter<'_> {
    /// The operand with the op's axis at the end, and that axis.
    fn along(&mut self, call: &Call) -> Step<(Val, usize)> {
        let x = call.operand(0)?;
        let axis = call.axis(x.view.shape.len())?;
        Ok((Val { view: x.view.axis_last(axis), ..x.clone() }, axis))
    }

    pub(super) fn reduce(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let (x, _) = self.along(call)?;
        let width = *x.view.shape.last().ok_or("a reduction needs an axis")?;
        let wide = call.wide();
        let (x, code, made) = if dtype.is_int() {
            (self.int(&x)?, Code::ReduceInts { code: call.code, width }, DType::I32)
        } else {
            (self.real(&x, wide)?, Code::Reduce { wide, code: call.code, width }, compute(wide))
        };
        let x = self.dense_ref(&x)?;
        let out = self.fresh(made, shape);
        self.push(code, vec![x], &[&out])?;
        self.cast(&out, dtype)
    }

    /// Cumsum and Cumprod.
    pub(super) fn running(&mut self, call: &Call) -> Step<Val> {
        let (dtype, _) = call.result(0)?;
        let (x, axis) = self.along(call)?;
        let width = *x.view.shape.last().ok_or("a scan needs an axis")?;
        let x = if dtype.is_float() { self.real(&x, call.wide())? } else { self.int(&x)? };
        let out = self.fresh(x.dtype, &x.view.shape);
        let x = self.dense_ref(&x)?;
        self.push(Code::Running { product: call.code == Opcode::Cumprod, width }, vec![x], &[&out])?;
        let out = self.cast(&out, dtype)?;
        Ok(Val { view: out.view.last_to(axis), ..out })
    }

    pub(super) fn argmax(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let (x, _) = self.along(call)?;
        let width = *x.view.shape.last().ok_or("argmax needs an axis")?;
        let x = self.real(&x, !x.dtype.is_float() || x.dtype == DType::F64)?;
        let x = self.dense_ref(&x)?;
        let out = self.fresh(dtype, shape);
        self.push(Code::Argmax { width }, vec![x], &[&out])?;
        Ok(out)
    }

    pub(super) fn top_k(&mut self, call: &Call) -> Step<Vec<Val>> {
        let x = call.operand(0)?;
        if !x.dtype.is_float() {
            return self.reference(call);
        }
        let width = *x.view.shape.last().ok_or("topk needs an axis")?;
        let k = call.index("k")?;
        if k > width {
            return Err(format!("topk of {k} entries from {width}"));
        }
        let ins = vec![self.dense_ref(x)?];
        let ((dtype, shape), (index_dtype, index_shape)) = (call.result(0)?, call.result(1)?);
        let (values, indices) = (self.fresh(dtype, shape), self.fresh(index_dtype, index_shape));
        self.push(Code::TopK { k, width }, ins, &[&values, &indices])?;
        Ok(vec![values, indices])
    }

    pub(super) fn softmax(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let wide = call.wide();
        let (x, axis) = self.along(call)?;
        let width = *x.view.shape.last().ok_or("softmax needs an axis")?;
        debug_assert_eq!(count(shape), x.view.len());
        let x = self.real(&x, wide)?;
        let out = self.fresh(x.dtype, &x.view.shape);
        let x = self.dense_ref(&x)?;
        self.push(Code::Softmax { wide, width }, vec![x], &[&out])?;
        let out = self.cast(&out, dtype)?;
        Ok(Val { view: out.view.last_to(axis), ..out })
    }
}
