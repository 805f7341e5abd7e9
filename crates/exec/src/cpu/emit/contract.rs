//! Matrix products.

use super::super::consts::Val;
use super::super::instr::{Batched, Code, Packed};
use super::super::view::{View, count};
use super::{Call, Emitter, Step, compute};
use spinec_ir::ty::DType;

impl Emitter<'_> {
    pub(super) fn linear(&mut self, call: &Call) -> Step<Vec<Val>> {
        let wide = call.wide() || call.dtype("acc")? == DType::F64;
        let (dtype, shape) = call.result(0)?;
        let (x, w) = (call.operand(0)?, call.operand(1)?);
        let (Some((k, lead)), [outputs, inputs]) = (x.view.shape.split_last(), w.view.shape.as_slice()) else {
            return Err(format!("linear of {:?} and {:?}", x.view.shape, w.view.shape));
        };
        if k != inputs {
            return Err(format!("linear sums over {k} and {inputs} entries"));
        }
        let (rows, k, outputs) = (count(lead), *k, *outputs);
        if !w.is_const() && w.dtype == DType::F8E4M3 {
            return self.reference(call);
        }
        let mut x = self.real(x, wide)?;
        let out = self.fresh(compute(wide), shape);
        if w.is_const() {
            let mut stride = row_stride(&x.view);
            if stride.is_none_or(|s| s < k) {
                x = self.dense(&x)?;
                stride = row_stride(&x.view);
            }
            let stride = stride.ok_or("rows of a dense tensor follow each other")?;
            let weight = self.shared.packed(w, wide)?;
            debug_assert!(matches!(weight, Packed::F64(_)) == wide);
            let x = self.read(&x)?;
            self.push(Code::Linear { weights: vec![weight], rows, stride }, vec![x], &[&out])?;
        } else {
            let w = self.real(w, wide)?;
            let ins = vec![self.dense_ref(&x)?, self.dense_ref(&w)?];
            let sizes = Batched { batch: 1, rows, columns: outputs, width: k };
            self.push(Code::Batched { wide, sizes }, ins, &[&out])?;
        }
        Ok(vec![self.cast(&out, dtype)?])
    }

    pub(super) fn einsum(&mut self, call: &Call) -> Step<Vec<Val>> {
        let [a, b] = call.operands else { return self.reference(call) };
        let wide = call.wide() || call.dtype("acc")? == DType::F64;
        let (dtype, shape) = call.result(0)?;
        let spec = call.text("spec")?;
        if a.dtype == DType::F8E4M3 || b.dtype == DType::F8E4M3 {
            return self.reference(call);
        }
        let (a, b) = (self.real(a, wide)?, self.real(b, wide)?);
        let axes = Axes::parse(spec, &a.view, &b.view)?;
        let out = self.fresh(compute(wide), shape);
        if let Some((swap, [batch, left, right, summed])) = axes.batched() {
            let (x, w) = if swap { (&b, &a) } else { (&a, &b) };
            let (own, other) = if swap { (1, 0) } else { (0, 1) };
            let sizes = Batched {
                batch: axes.count(&batch),
                rows: axes.count(&left),
                columns: axes.count(&right),
                width: axes.count(&summed),
            };
            let x = Val { view: axes.view(&[&batch, &left, &summed], own, x.view.offset), ..x.clone() };
            let w = Val { view: axes.view(&[&batch, &right, &summed], other, w.view.offset), ..w.clone() };
            let ins = vec![self.dense_ref(&x)?, self.dense_ref(&w)?];
            self.push(Code::Batched { wide, sizes }, ins, &[&out])?;
        } else {
            let ins = vec![self.read(&a)?, self.read(&b)?];
            let steps = |list: &[usize]| list.iter().map(|i| (axes.extents[*i], axes.strides[*i])).collect();
            let code = Code::Einsum { wide, kept: steps(&axes.kept), summed: steps(&axes.summed) };
            self.push(code, ins, &[&out])?;
        }
        Ok(vec![self.cast(&out, dtype)?])
    }
}

/// Distance of rows whose elements follow each other; `None` if they do not, or rows have no single distance.
fn row_stride(x: &View) -> Option<usize> {
    let (k, lead) = x.shape.split_last()?;
    if *k > 1 && x.strides.last() != Some(&1) {
        return None;
    }
    let lead = View { shape: lead.to_vec(), strides: x.strides[..lead.len()].to_vec(), offset: 0 };
    match lead.merged().as_slice() {
        [] => Some(*k),
        [(_, stride)] => Some(*stride),
        _ => None,
    }
}

/// Named axes of a sum of products, with their distances in both operands.
struct Axes {
    extents: Vec<usize>,
    strides: Vec<[usize; 2]>,
    /// Which operands have the axis.
    present: Vec<[bool; 2]>,
    kept: Vec<usize>,
    summed: Vec<usize>,
    /// True if an operand has an axis twice.
    repeated: bool,
}

impl Axes {
    fn parse(spec: &str, a: &View, b: &View) -> Step<Axes> {
        let (left, right) = spec.split_once("->").ok_or_else(|| format!("`{spec}` has no arrow"))?;
        let names: Vec<Vec<&str>> = left.split(',').map(|s| s.split_whitespace().collect()).collect();
        if names.len() != 2 {
            return Err(format!("`{spec}` does not name the 2 operands"));
        }
        let mut known: Vec<&str> = Vec::new();
        let mut axes =
            Axes { extents: vec![], strides: vec![], present: vec![], kept: vec![], summed: vec![], repeated: false };
        for (side, (names, view)) in names.iter().zip([a, b]).enumerate() {
            if names.len() != view.shape.len() {
                return Err(format!("`{spec}` gives {} axes to an operand of extents {:?}", names.len(), view.shape));
            }
            for ((name, extent), stride) in names.iter().zip(&view.shape).zip(&view.strides) {
                let at = known.iter().position(|k| k == name).unwrap_or_else(|| {
                    known.push(name);
                    axes.extents.push(*extent);
                    axes.strides.push([0, 0]);
                    axes.present.push([false, false]);
                    known.len() - 1
                });
                if axes.extents[at] != *extent {
                    return Err(format!("axis `{name}` of `{spec}` has extents {} and {extent}", axes.extents[at]));
                }
                axes.repeated |= axes.present[at][side];
                axes.strides[at][side] += stride;
                axes.present[at][side] = true;
            }
        }
        for name in right.split_whitespace() {
            let at = known.iter().position(|k| *k == name).ok_or_else(|| format!("axis `{name}` is in no operand"))?;
            axes.kept.push(at);
        }
        axes.summed = (0..known.len()).filter(|i| !axes.kept.contains(i)).collect();
        Ok(axes)
    }

    /// Axes of batch, rows, columns and sum, if this is a batch of products of row vectors; true if the second operand
    /// gives the rows.
    fn batched(&self) -> Option<(bool, [Vec<usize>; 4])> {
        let both = |i: &usize| self.present[*i] == [true, true];
        if self.repeated || !self.summed.iter().all(both) || self.summed.is_empty() {
            return None;
        }
        let batch: Vec<usize> = self.kept.iter().copied().take_while(|i| both(i)).collect();
        let rest = &self.kept[batch.len()..];
        let swap = rest.first().is_some_and(|i| self.present[*i] == [false, true]);
        let first = if swap { [false, true] } else { [true, false] };
        let left: Vec<usize> = rest.iter().copied().take_while(|i| self.present[*i] == first).collect();
        let right = rest[left.len()..].to_vec();
        let second = [!first[0], !first[1]];
        if !right.iter().all(|i| self.present[*i] == second) {
            return None;
        }
        Some((swap, [batch, left, right, self.summed.clone()]))
    }

    fn count(&self, list: &[usize]) -> usize {
        list.iter().map(|i| self.extents[*i]).product()
    }

    /// One operand with its axes in the order of `groups`.
    fn view(&self, groups: &[&[usize]], side: usize, offset: usize) -> View {
        let order = || groups.iter().flat_map(|g| g.iter());
        View {
            shape: order().map(|i| self.extents[*i]).collect(),
            strides: order().map(|i| self.strides[*i][side]).collect(),
            offset,
        }
    }
}
