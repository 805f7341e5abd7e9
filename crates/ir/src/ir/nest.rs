//! How the regions of a function lie in each other.

use super::{Func, OpId, RegionId, ValueDef, ValueId};
use crate::ops::Opcode;
use std::sync::Arc;

/// Where the ops and regions of a function stand.
#[derive(Clone, Debug)]
pub struct Nest<'a> {
    func: &'a Func,
    owner: Vec<Option<OpId>>,
    region: Vec<Option<RegionId>>,
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

    /// For every loop whose index chooses a case around a region, the iterations in which the region runs.
    pub fn taken(&self, region: RegionId) -> Vec<Taken> {
        let mut out = Vec::new();
        for r in self.outwards(region) {
            let Some(op) = self.owner(r).map(|id| self.func.op(id)).filter(|op| op.code == Opcode::Cases) else {
                continue;
            };
            let index = op.operands.first().map(|v| self.func.value(*v).def);
            let Some(ValueDef::Param(body, 0)) = index else { continue };
            let (Some(around), Some(select)) = (self.owner(body), op.ints("select")) else { continue };
            let Some(arm) = op.regions.iter().position(|a| *a == r) else { continue };
            let iterations = (0i64..).zip(select).filter(|(_, s)| **s == arm as i64).map(|(i, _)| i).collect();
            out.push(Taken { path: self.func.op(around).loc.path.clone(), iterations });
        }
        out
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
}
