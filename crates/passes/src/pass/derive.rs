//! Derived weights as weights of the module and functions that compute them.

use super::{Derived, PassError, Program};
use crate::choose::{Derivation, Spread};
use crate::dag::append;
use spinec_ir::ir::{Attr, Attrs, Func, Keep, Loc, RegionId, ValueId, Weight, WeightId};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Dim, TensorType, Type};
use std::collections::BTreeMap;

/// Derived weights by definition, in the order they are met.
#[derive(Default)]
pub(super) struct Table {
    by_definition: BTreeMap<String, usize>,
}

impl Table {
    /// The weight of a derivation, made if it is new. `runs` is how often the region that uses it runs.
    pub fn derive(&mut self, program: &mut Program, d: &Derivation, runs: u64) -> Result<WeightId, PassError> {
        let text = format!("{}{}", d.definition.text(), d.storage);
        let saving_ps = d.saving_ps.saturating_mul(runs);
        if let Some(i) = self.by_definition.get(&text) {
            let known = &mut program.derived[*i];
            known.saving_ps = known.saving_ps.saturating_add(saving_ps);
            return Ok(known.weight);
        }
        let name = format!("derived.{}", program.derived.len());
        let (func, ty) = load(name.clone(), d).map_err(PassError::Internal)?;
        program.load.funcs.push(func);
        let weights = d.definition.weights();
        let of = weights.into_iter().filter_map(|w| program.module.weights.get(w)).map(|w| w.name.clone()).collect();
        let weight = WeightId(program.module.weights.len() as u32);
        program.module.weights.push(Weight {
            name,
            loops: d.loops.loops.clone(),
            present: d.loops.present.clone(),
            ty,
            storage: None,
            source: None,
            span: None,
            bound_at: None,
        });
        self.by_definition.insert(text, program.derived.len());
        program.derived.push(Derived { weight, of, bytes: d.bytes, saving_ps });
        Ok(weight)
    }
}

/// The function that computes a derived weight, and the type of an element. Over a loop it gives all elements, stacked along a
/// new first axis.
fn load(name: String, d: &Derivation) -> Result<(Func, TensorType), String> {
    let mut func = Func::new(name);
    let body = func.body;
    let value = match d.loops.loops.first() {
        None => element(&mut func, body, d, &[])?,
        Some((_, extent)) => stacked(&mut func, body, d, *extent)?,
    };
    let mut ty = func.tensor(value).cloned().ok_or("a derived weight is a tensor")?;
    ty.dims.drain(..d.loops.loops.len());
    func.outputs.push("out".to_owned());
    func.regions[body.index()].yields.push(value);
    Ok((func, ty))
}

/// One element, rounded to its storage dtype.
fn element(func: &mut Func, block: RegionId, d: &Derivation, leaves: &[ValueId]) -> Result<ValueId, String> {
    let value = d.definition.emit(func, block, leaves)?;
    if func.tensor(value).map(|t| t.dtype) == Some(d.storage) {
        return Ok(value);
    }
    let attrs = Attrs::from([("dtype", Attr::DType(d.storage))]);
    Ok(append(func, block, Opcode::Cast, vec![value], attrs, &[], Loc::default())?[0])
}

/// A loop over all indices that keeps the elements that exist.
fn stacked(func: &mut Func, block: RegionId, d: &Derivation, extent: i64) -> Result<ValueId, String> {
    let Spread { present, .. } = &d.loops;
    let inner = func.add_region();
    let index = func.add_param(inner, TensorType::new(DType::I32, vec![]).into());
    let value = if present.is_empty() {
        element(func, inner, d, &[index])?
    } else {
        let (there, absent) = (func.add_region(), func.add_region());
        let value = element(func, there, d, &[index])?;
        let ty = func.tensor(value).cloned().ok_or("a derived weight is a tensor")?;
        let none = nothing(func, absent, &ty)?;
        func.regions[there.index()].yields.push(value);
        func.regions[absent.index()].yields.push(none);
        let select = present.iter().map(|p| i64::from(!p)).collect();
        let attrs = Attrs::from([("select", Attr::Ints(select))]);
        let op =
            func.add_op(inner, Opcode::Cases, vec![index], attrs, vec![there, absent], vec![ty.into()], Loc::default());
        func.op(op).results[0]
    };
    func.regions[inner.index()].yields.push(value);
    let mut ty = func.tensor(value).cloned().ok_or("a derived weight is a tensor")?;
    let at: Vec<i64> = (0..extent).filter(|i| present.get(*i as usize).copied().unwrap_or(true)).collect();
    ty.dims.insert(0, Dim::from(at.len() as i64));
    let keep = Keep { axis: 0, at: (!present.is_empty()).then_some(at) };
    let attrs = Attrs::from([
        ("extent", Attr::Dim(Dim::from(extent))),
        ("serial", Attr::Bool(false)),
        ("keep", Attr::Keeps(vec![keep])),
    ]);
    let op = func.add_op(block, Opcode::Loop, vec![], attrs, vec![inner], vec![ty.into()], Loc::default());
    Ok(func.op(op).results[0])
}

/// Zeros where there is no element; nothing keeps them.
fn nothing(func: &mut Func, block: RegionId, ty: &TensorType) -> Result<ValueId, String> {
    let attrs = Attrs::from([("value", Attr::Float(0.0)), ("dtype", Attr::DType(DType::F32))]);
    let mut zero = append(func, block, Opcode::Const, vec![], attrs, &[], Loc::default())?[0];
    if ty.dtype != DType::F32 {
        let attrs = Attrs::from([("dtype", Attr::DType(ty.dtype))]);
        zero = append(func, block, Opcode::Cast, vec![zero], attrs, &[], Loc::default())?[0];
    }
    let attrs = Attrs::from([("dims", Attr::Dims(ty.dims.clone()))]);
    Ok(append(func, block, Opcode::Fill, vec![zero], attrs, &[], Loc::default())?[0])
}

/// An op that reads a weight; `index` are the indices of its loops.
pub(super) fn read_weight(
    func: &mut Func,
    block: RegionId,
    id: WeightId,
    index: Vec<ValueId>,
    ty: &TensorType,
    loc: Loc,
) -> ValueId {
    let types: Vec<Type> = vec![ty.clone().into()];
    let attrs = Attrs::from([("weight", Attr::Int(id.0.into()))]);
    let op = func.add_op(block, Opcode::Weight, index, attrs, vec![], types, loc);
    func.op(op).results[0]
}
