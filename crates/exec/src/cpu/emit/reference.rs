//! Ops no kernel is made for: the reference evaluates them.

use super::super::consts::Val;
use super::super::instr::{Code, Reference};
use super::{Call, Emitter, Step};
use spinec_ir::ir::{Func, Loc};
use spinec_ir::ty::{DType, Dim, TensorType, Type};

impl Emitter<'_> {
    pub(super) fn reference(&mut self, call: &Call) -> Step<Vec<Val>> {
        let ty = |dtype: DType, shape: &[usize]| -> Type {
            TensorType::new(dtype, shape.iter().map(|d| Dim::from(*d as i64)).collect()).into()
        };
        let mut func = Func::new("op");
        let body = func.body;
        let mut ins = Vec::new();
        let mut operands = Vec::new();
        let mut params = Vec::new();
        for (i, v) in call.operands.iter().enumerate() {
            params.push(func.add_param(body, ty(v.dtype, &v.view.shape)));
            func.inputs.push(i.to_string());
            ins.push(self.dense_ref(v)?);
            operands.push((v.dtype, v.view.shape.clone()));
        }
        let types = call.results.iter().map(|(dtype, shape)| ty(*dtype, shape)).collect();
        let op = func.add_op(body, call.code, params, call.attrs.clone(), vec![], types, Loc::default());
        let yields = func.op(op).results.clone();
        func.outputs = (0..yields.len()).map(|i| i.to_string()).collect();
        func.regions[body.index()].yields = yields;
        let made: Vec<Val> = call.results.iter().map(|(dtype, shape)| self.fresh(*dtype, shape)).collect();
        let results = call.results.iter().map(|(dtype, _)| *dtype).collect();
        let outs: Vec<&Val> = made.iter().collect();
        self.push(Code::Reference(Box::new(Reference { func, operands, results })), ins, &outs)?;
        Ok(made)
    }
}
