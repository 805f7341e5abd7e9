//! How the regions of a function lie in each other.

use super::{Func, OpId, RegionId, ValueDef, ValueId};
use crate::ops::Opcode;
use crate::ty::Dim;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where the ops and regions of a function stand.
#[derive(Clone, Debug)]
pub struct Nest<'a> {
    func: &'a Func,
    owner: Vec<Option<OpId>>,
    region: Vec<Option<RegionId>>,
}

/// A loop around a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    /// The loop.
    pub op: OpId,
    /// Its iterations that reach the block, if cases around the block are chosen by its index; else all do.
    pub taken: Option<BTreeSet<i64>>,
}

impl Around {
    /// How many of its iterations reach the block.
    pub fn count(&self, func: &Func) -> Option<Dim> {
        match &self.taken {
            Some(taken) => Some(Dim::from(i64::try_from(taken.len()).ok()?)),
            None => func.op(self.op).dim("extent").cloned(),
        }
    }
}

/// The iterations of a loop in which a region runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The node path of the loop.
    pub path: Arc<str>,
    /// Its iterations that reach the region, increasing.
    pub iterations: Vec<i64>,
}

impl<'a> Nest<'a> {
    /// The nest of a verified function.
    pub fn of(func: &'a Func) -> Nest<'a> {
        let mut nest = Nest { func, owner: vec![None; func.regions.len()], region: vec![None; func.ops.len()] };
        let mut open = vec![func.body];
        while let Some(r) = open.pop() {
            for id in &func.region(r).ops {
                nest.region[id.index()] = Some(r);
                for inner in &func.op(*id).regions {
                    nest.owner[inner.index()] = Some(*id);
                    open.push(*inner);
                }
            }
        }
        nest
    }

    /// The op a region belongs to; none for the body of the function.
    pub fn owner(&self, region: RegionId) -> Option<OpId> {
        self.owner[region.index()]
    }

    /// The region an op stands in; none if nothing reaches the op.
    pub fn region(&self, op: OpId) -> Option<RegionId> {
        self.region[op.index()]
    }

    /// The region a value is defined in; none if nothing reaches it.
    pub fn home(&self, v: ValueId) -> Option<RegionId> {
        match self.func.value(v).def {
            ValueDef::Param(r, _) => Some(r),
            ValueDef::Result(op, _) => self.region(op),
        }
    }

    /// A region and those around it, from the inside out.
    pub fn outwards(&self, region: RegionId) -> impl Iterator<Item = RegionId> + '_ {
        std::iter::successors(Some(region), |r| self.owner(*r).and_then(|op| self.region(op)))
    }

    /// The loops around a block, from the inside out. A case is chosen by the index of a loop around it, which need not be the
    /// nearest: a block within cases of the same loop is reached by the iterations that all of them have in common.
    pub fn around(&self, block: RegionId) -> Vec<Around> {
        let mut out: Vec<Around> = Vec::new();
        let mut taken: Vec<(RegionId, BTreeSet<i64>)> = Vec::new();
        for region in self.outwards(block) {
            let Some(id) = self.owner(region) else { continue };
            let op = self.func.op(id);
            match op.code {
                Opcode::Loop => {
                    let own = taken.iter().position(|(body, _)| *body == region).map(|at| taken.swap_remove(at).1);
                    out.push(Around { op: id, taken: own });
                }
                Opcode::Cases => {
                    let index = op.operands.first().map(|v| self.func.value(*v).def);
                    let (Some(ValueDef::Param(body, 0)), Some(select)) = (index, op.ints("select")) else { continue };
                    let arm = op.regions.iter().position(|r| *r == region).map_or(-1, |k| k as i64);
                    let here = (0i64..).zip(select).filter(|(_, s)| **s == arm).map(|(i, _)| i);
                    match taken.iter_mut().find(|(of, _)| *of == body) {
                        Some((_, known)) => {
                            let here: BTreeSet<i64> = here.collect();
                            known.retain(|i| here.contains(i));
                        }
                        None => taken.push((body, here.collect())),
                    }
                }
                _ => {}
            }
        }
        out
    }

    /// How often a block runs in one run of the function; `None` if the count overflows.
    pub fn times(&self, block: RegionId) -> Option<Dim> {
        self.around(block).iter().try_fold(Dim::from(1), |n, a| n.mul(&a.count(self.func)?))
    }

    /// For every loop whose index chooses a case around a block, the iterations in which the block runs.
    pub fn taken(&self, block: RegionId) -> Vec<Taken> {
        let taken = |a: Around| {
            let iterations = a.taken?.into_iter().collect();
            Some(Taken { path: self.func.op(a.op).loc.path.clone(), iterations })
        };
        self.around(block).into_iter().filter_map(taken).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::text::parse;

    const CASES: &str = r#"spinec-ir 1
module "m" numerics=f32

func "f"
  input "x" = %0 : f32[4]
  %1 = loop(%0) {extent=3, keep=[], serial=false} : f32[4] at "layers"
    region (%2 : i32[], %3 : f32[4])
      %4 = cases(%2) {select=[0, 1, 0]} : f32[4] at "layers.mixed"
        region ()
          %5 "layers.mixed.a" = neg(%3) : f32[4]
          yield %5
        region ()
          %6 "layers.mixed.b" = exp(%3) : f32[4]
          yield %6
      yield %4
  return "y" = %1
"#;

    #[test]
    fn a_case_knows_its_iterations() {
        let module = parse(CASES).expect("the text parses");
        let func = &module.funcs[0];
        let nest = Nest::of(func);
        let home = |name: &str| {
            let v = func.values.iter().position(|v| v.names.iter().any(|n| **n == *name)).expect("a value");
            nest.home(ValueId(v as u32)).expect("a region")
        };
        let taken =
            |name: &str| nest.taken(home(name)).into_iter().map(|t| (t.path.to_string(), t.iterations)).collect();
        let a: Vec<(String, Vec<i64>)> = taken("layers.mixed.a");
        assert_eq!(a, [("layers".to_owned(), vec![0, 2])]);
        let b: Vec<(String, Vec<i64>)> = taken("layers.mixed.b");
        assert_eq!(b, [("layers".to_owned(), vec![1])]);
        assert!(nest.taken(func.body).is_empty());
        assert_eq!(nest.outwards(home("layers.mixed.a")).count(), 3);
        assert_eq!(nest.outwards(home("layers.mixed.a")).last(), Some(func.body));
    }

    const NESTED: &str = r#"spinec-ir 1
module "m" numerics=f32

func "f"
  input "x" = %0 : f32[4]
  %1 = loop(%0) {extent=5, keep=[], serial=false} : f32[4] at "outer"
    region (%2 : i32[], %3 : f32[4])
      %4 = loop(%3) {extent=7, keep=[], serial=false} : f32[4] at "outer.inner"
        region (%5 : i32[], %6 : f32[4])
          %7 = cases(%2) {select=[0, 1, 0, 1, 1]} : f32[4]
            region ()
              %8 "a" = neg(%6) : f32[4]
              yield %8
            region ()
              %9 = cases(%2) {select=[0, 0, 0, 1, 1]} : f32[4]
                region ()
                  %10 "b" = exp(%6) : f32[4]
                  yield %10
                region ()
                  %11 = cases(%5) {select=[0, 0, 0, 1, 1, 1, 1]} : f32[4]
                    region ()
                      %12 "c" = relu(%6) : f32[4]
                      yield %12
                    region ()
                      %13 "d" = tanh(%6) : f32[4]
                      yield %13
                  yield %11
              yield %9
          yield %7
      yield %4
  return "y" = %1
"#;

    #[test]
    fn a_block_runs_in_the_iterations_that_its_cases_share() {
        let module = parse(NESTED).unwrap_or_else(|e| panic!("{}", e[0]));
        let func = &module.funcs[0];
        let nest = Nest::of(func);
        let block = |name: &str| {
            let v = func.values.iter().position(|v| v.names.iter().any(|n| **n == *name)).expect("a value");
            nest.home(ValueId(v as u32)).expect("a block")
        };
        for (name, n) in [("a", 2 * 7), ("b", 7), ("c", 2 * 3), ("d", 2 * 4)] {
            assert_eq!(nest.times(block(name)), Some(Dim::from(n)), "{name}");
        }
        assert_eq!(nest.times(func.body), Some(Dim::from(1)));
        let around = nest.around(block("c"));
        let taken: Vec<Option<Vec<i64>>> =
            around.iter().map(|a| a.taken.as_ref().map(|t| t.iter().copied().collect())).collect();
        assert_eq!(taken, [Some(vec![0, 1, 2]), Some(vec![3, 4])]);
    }
}
