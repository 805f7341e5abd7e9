//! Loops and cases.

use super::Range;
use super::build::{Builder, Enclosing};
use crate::ir::verify::loop_types;
use crate::ir::{Attr, Attrs, Keep, Loc, RegionId, ValueId};
use crate::ops::Opcode;
use crate::ty::{DType, Dim, TensorType, Type};

/// Deepest nesting of loops and cases.
const DEPTH: usize = 3;

impl Builder {
    /// Runs `inside` in a new region; what it defines is out of scope afterwards.
    pub(super) fn in_region<T>(&mut self, inside: impl FnOnce(&mut Self, RegionId) -> T) -> (RegionId, T) {
        let region = self.func.add_region();
        let outer = std::mem::replace(&mut self.region, region);
        let visible = self.scope.clone();
        let inputs = self.func.inputs.len();
        self.depth += 1;
        let out = inside(self, region);
        self.depth -= 1;
        self.region = outer;
        // Inputs made inside stay; they stand in front.
        let new = self.func.inputs.len() - inputs;
        self.scope.truncate(new);
        self.scope.extend(visible);
        (region, out)
    }

    /// Adds an op that owns regions made before it.
    pub(super) fn emit_owner(
        &mut self,
        code: Opcode,
        operands: &[ValueId],
        attrs: Attrs,
        regions: Vec<RegionId>,
        results: Vec<(Type, Range)>,
    ) -> Vec<ValueId> {
        let (types, ranges): (Vec<Type>, Vec<Range>) = results.into_iter().unzip();
        let loc = Loc { path: "graph.repeat".into(), span: None };
        let op = self.func.add_op(self.region, code, operands.to_vec(), attrs, regions, types, loc);
        self.ranges.extend(ranges);
        let results = self.func.op(op).results.clone();
        let tensors: Vec<ValueId> = results.iter().copied().filter(|v| self.func.tensor(*v).is_some()).collect();
        self.scope.extend(tensors);
        results
    }

    /// What a carried value may grow to.
    fn carried_range(&self, v: ValueId) -> Range {
        let wide = if self.ty(v).dtype.is_float() { Range::symmetric(2.0) } else { self.range(v) };
        self.range(v).hull(wide)
    }

    pub(super) fn loop_op(&mut self) -> Option<()> {
        if self.depth >= DEPTH {
            return None;
        }
        let serial = self.rng.chance(40);
        let extent = if serial { self.dim() } else { Dim::from(self.rng.int(1, 4)) };
        let mut carried = Vec::new();
        for _ in 0..self.rng.below(3) {
            carried.extend(self.pick(|t, _| t.dtype != DType::F8E4M3));
        }
        let types: Vec<(TensorType, Range)> = carried.iter().map(|v| (self.ty(*v), self.carried_range(*v))).collect();
        let steps = 1 + self.rng.below(5);
        let (region, yields) = self.in_region(|b, region| {
            let most = b.most(&extent) - 1.0;
            let index = b.param(region, TensorType::scalar(DType::I32).into(), Range::new(0.0, most));
            b.scope.push(index);
            let mut params = Vec::new();
            for (ty, range) in &types {
                params.push(b.param(region, ty.clone().into(), *range));
            }
            b.scope.extend(&params);
            let reach = if serial { vec![] } else { (0..extent.as_const().unwrap_or(0)).collect() };
            b.loops.push(Enclosing { index, serial, extent: extent.clone(), reach });
            b.steps(steps);
            let mut yields = Vec::new();
            for ((ty, range), param) in types.iter().zip(params) {
                yields.push(b.conform(ty, *range).unwrap_or(param));
            }
            for _ in 0..b.rng.below(3) {
                yields.extend(b.pick(|t, _| t.rank() < 4));
            }
            b.loops.pop();
            yields
        });
        let kept = &yields[types.len()..];
        let mut keeps = Vec::new();
        for v in kept {
            let axis = self.rng.below(self.ty(*v).rank() + 1);
            let at = extent.as_const().filter(|_| self.rng.chance(30)).map(|n| {
                let some: Vec<i64> = (0..n).filter(|_| self.rng.chance(50)).collect();
                if some.is_empty() { vec![n - 1] } else { some }
            });
            keeps.push(Keep { axis, at });
        }
        let kept_types: Vec<TensorType> = kept.iter().map(|v| self.ty(*v)).collect();
        let carried_types: Vec<Type> = types.iter().map(|(t, _)| t.clone().into()).collect();
        let all = loop_types(&carried_types, &kept_types, &extent, &keeps)?;
        let ranges = types.iter().map(|(_, r)| *r).chain(kept.iter().map(|v| self.range(*v))).collect::<Vec<_>>();
        let results = all.into_iter().zip(ranges).collect();
        self.func.regions[region.index()].yields = yields;
        let attrs =
            Attrs::from([("extent", Attr::Dim(extent)), ("serial", Attr::Bool(serial)), ("keep", Attr::Keeps(keeps))]);
        self.emit_owner(Opcode::Loop, &carried, attrs, vec![region], results);
        Some(())
    }

    /// A loop that is not serial, by position, with a selection of `cases` regions for its iterations.
    pub(super) fn selection(&mut self) -> Option<(usize, usize, Vec<i64>)> {
        if self.depth >= DEPTH {
            return None;
        }
        let open: Vec<usize> = (0..self.loops.len()).filter(|&i| !self.loops[i].serial).collect();
        let which = self.rng.pick(&open)?;
        let cases = 1 + self.rng.below(3);
        let n = self.loops[which].extent.as_const()?;
        Some((which, cases, (0..n).map(|_| self.rng.below(cases) as i64).collect()))
    }

    /// Runs `inside` in the region of case `k`.
    pub(super) fn in_case<T>(
        &mut self,
        which: usize,
        select: &[i64],
        k: usize,
        inside: impl FnOnce(&mut Self) -> T,
    ) -> (RegionId, T) {
        let reach = self.loops[which].reach.clone();
        self.loops[which].reach.retain(|i| select[*i as usize] == k as i64);
        let out = self.in_region(|b, _| inside(b));
        self.loops[which].reach = reach;
        out
    }

    pub(super) fn cases_op(&mut self) -> Option<()> {
        let (which, cases, select) = self.selection()?;
        let mut types = Vec::new();
        for _ in 0..self.rng.below(3) {
            let v = self.pick(|t, _| t.dtype != DType::F8E4M3)?;
            types.push((self.ty(v), self.carried_range(v)));
        }
        let mut regions = Vec::new();
        for k in 0..cases {
            let steps = 1 + self.rng.below(3);
            let (region, yields) = self.in_case(which, &select, k, |b| {
                b.steps(steps);
                let mut yields = Vec::new();
                for (ty, range) in &types {
                    yields.extend(match b.conform(ty, *range) {
                        Some(v) => Some(v),
                        None => b.pick(|t, r| t == ty && r.within(*range)),
                    });
                }
                yields
            });
            self.func.regions[region.index()].yields = yields;
            regions.push(region);
        }
        let index = self.loops[which].index;
        let results = types.into_iter().map(|(t, r)| (t.into(), r)).collect();
        self.emit_owner(Opcode::Cases, &[index], Attrs::from([("select", Attr::Ints(select))]), regions, results);
        Some(())
    }

    /// Chooses between a value and what a region makes; the region runs in some samples only.
    pub(super) fn guarded_op(&mut self) -> Option<()> {
        if self.depth >= DEPTH {
            return None;
        }
        let fast = self.pick(|t, _| t.dtype.is_float() && t.dtype != DType::F8E4M3 && !t.dist)?;
        let (ty, range) = (self.ty(fast), self.range(fast));
        let of_scope = self.pick(|t, _| t.dtype == DType::Bool && t.dims == ty.dims);
        let ok = match of_scope {
            Some(ok) => ok,
            None => {
                let finite = self.emit(Opcode::IsFinite, &[fast], vec![], Range::new(0.0, 1.0))?;
                let none = self.rng.chance(50);
                if none { self.emit(Opcode::Not, &[finite], vec![], Range::new(0.0, 1.0))? } else { finite }
            }
        };
        let steps = 1 + self.rng.below(3);
        // A region that may not run has no effects.
        let states = std::mem::replace(&mut self.config.states, false);
        let (region, slow) = self.in_region(|b, _| {
            b.steps(steps);
            b.conform(&ty, range).unwrap_or(fast)
        });
        self.config.states = states;
        self.func.regions[region.index()].yields = vec![slow];
        self.emit_owner(Opcode::Guarded, &[ok, fast], Attrs::new(), vec![region], vec![(ty.into(), range)]);
        Some(())
    }
}
