//! A function with the chosen terms in place of its regions.

use super::derive::read_weight;
use crate::choose::Solution;
use crate::dag::{DagNode, Slow, append};
use crate::region::{Cut, Terms, def, is_source, needs};
use crate::term::Head;
use spinec_ir::ir::{Attr, Attrs, Func, Loc, Module, OpId, RegionId, ValueDef, ValueId, WeightId};
use spinec_ir::ops::Opcode;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What stands for a region.
pub(super) struct Chosen {
    pub solution: Rc<Solution>,
    /// The weights of the solution's derived nodes.
    pub weights: BTreeMap<usize, WeightId>,
}

impl Solution {
    /// The solution with, for every node, the first op of the region that is in its class: where it comes from. A node that is
    /// no value of the spec comes from where the first node that uses it does.
    pub(super) fn located(mut self, t: &Terms) -> Solution {
        let mut first: BTreeMap<egg::Id, usize> = BTreeMap::new();
        for (i, op) in t.ops.iter().enumerate() {
            first.entry(t.graph.eg.find(*op)).or_insert(i);
        }
        self.origin = self.classes.iter().map(|c| first.get(c).copied()).collect();
        let mut same: BTreeMap<egg::Id, Vec<(usize, usize)>> = BTreeMap::new();
        for (i, results) in t.results.iter().enumerate() {
            for (r, id) in results.iter().enumerate() {
                same.entry(t.graph.eg.find(*id)).or_default().push((i, r));
            }
        }
        self.same = self.classes.iter().map(|c| same.get(c).cloned().unwrap_or_default()).collect();
        let mut users: Vec<Option<usize>> = vec![None; self.dag.nodes.len()];
        for n in (0..self.dag.nodes.len()).rev() {
            self.origin[n] = self.origin[n].or_else(|| users[n].and_then(|u| self.origin[u]));
            for child in &self.dag.nodes[n].children {
                users[*child] = Some(n);
            }
        }
        self
    }
}

/// Rebuilds `func`: effects and control as they are and in their order, pure ops where they are first needed.
pub(super) fn rebuild(module: &Module, func: &Func, cut: &Cut, chosen: &[Chosen]) -> Result<Func, String> {
    let mut new = Func::new(func.name.clone());
    new.inputs = func.inputs.clone();
    new.outputs = func.outputs.clone();
    let emitted = chosen.iter().map(|c| vec![None; c.solution.dag.nodes.len()]).collect();
    let mut b = Builder { module, old: func, new, cut, chosen, map: vec![None; func.values.len()], emitted };
    let body = b.new.body;
    b.params(func.body, body);
    b.block(func.body, body)?;
    Ok(b.new)
}

struct Builder<'a> {
    module: &'a Module,
    old: &'a Func,
    new: Func,
    cut: &'a Cut,
    chosen: &'a [Chosen],
    /// The new value of an old one.
    map: Vec<Option<ValueId>>,
    /// The results of every emitted node, by region.
    emitted: Vec<Vec<Option<Vec<ValueId>>>>,
}

impl Builder<'_> {
    fn params(&mut self, old: RegionId, new: RegionId) {
        for v in &self.old.region(old).params {
            let value = self.old.value(*v).clone();
            let id = self.new.add_param(new, value.ty);
            self.new.values[id.index()].names = value.names;
            self.map[v.index()] = Some(id);
        }
    }

    fn block(&mut self, old: RegionId, new: RegionId) -> Result<(), String> {
        for op in self.old.region(old).ops.clone() {
            let code = self.old.op(op).code;
            if self.cut.owner[op.index()].is_none() && !is_source(code) {
                self.skeleton(op, new)?;
            }
        }
        for v in self.old.region(old).yields.clone() {
            let value = self.value(v, new)?;
            self.new.regions[new.index()].yields.push(value);
        }
        Ok(())
    }

    /// An op that stays as it is, after everything it and its regions need from here.
    fn skeleton(&mut self, id: OpId, block: RegionId) -> Result<(), String> {
        let op = self.old.op(id).clone();
        for v in needs(self.old, id) {
            if def(self.old, v).is_none_or(|d| !is_source(self.old.op(d).code)) {
                self.value(v, block)?;
            }
        }
        let operands = op.operands.iter().map(|v| self.value(*v, block)).collect::<Result<Vec<_>, _>>()?;
        let regions: Vec<RegionId> = op.regions.iter().map(|_| self.new.add_region()).collect();
        for (old, new) in op.regions.iter().zip(&regions) {
            self.params(*old, *new);
        }
        let types = op.results.iter().map(|v| self.old.ty(*v).clone()).collect();
        let made = self.new.add_op(block, op.code, operands, op.attrs, regions.clone(), types, op.loc);
        for (old, new) in op.regions.iter().zip(&regions) {
            self.block(*old, *new)?;
        }
        for (old, new) in op.results.iter().zip(self.new.op(made).results.clone()) {
            self.map[old.index()] = Some(new);
            self.new.values[new.index()].names = self.old.value(*old).names.clone();
        }
        Ok(())
    }

    /// The new value of an old one, emitted at the end of `block` if it is not there.
    fn value(&mut self, v: ValueId, block: RegionId) -> Result<ValueId, String> {
        if let Some(known) = self.map[v.index()] {
            return Ok(known);
        }
        let ValueDef::Result(op, _) = self.old.value(v).def else {
            return Err("a parameter is used outside its region".to_owned());
        };
        if is_source(self.old.op(op).code) {
            // Not kept: what stands in one block is not visible in the next.
            let op = self.old.op(op).clone();
            let operands = op.operands.iter().map(|v| self.value(*v, block)).collect::<Result<Vec<_>, _>>()?;
            let made = append(&mut self.new, block, op.code, operands, op.attrs, &[self.old.ty(v).clone()], op.loc)?[0];
            self.name(v, made);
            return Ok(made);
        }
        let region = self.cut.owner[op.index()].ok_or("an op is used before it is made")?;
        let root = self.cut.regions[region]
            .roots
            .iter()
            .position(|r| *r == v)
            .ok_or("a region does not give a value it has to")?;
        let node = self.chosen[region].solution.roots[root];
        let made = self.node(region, node, block, &self.old.op(op).loc.clone())?[0];
        self.map[v.index()] = Some(made);
        self.name(v, made);
        Ok(made)
    }

    /// Gives a value the names of an old one that it lacks.
    fn name(&mut self, old: ValueId, new: ValueId) {
        for name in &self.old.value(old).names {
            let names = &mut self.new.values[new.index()].names;
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }

    /// The results of a node, after all it needs: what is used stands before what uses it in a term.
    fn node(&mut self, region: usize, n: usize, block: RegionId, user: &Loc) -> Result<Vec<ValueId>, String> {
        let solution = self.chosen[region].solution.clone();
        let mut wanted = BTreeSet::new();
        let mut stack = vec![n];
        while let Some(n) = stack.pop() {
            if self.emitted[region][n].is_none() && wanted.insert(n) {
                let children = &solution.dag.nodes[n].children;
                stack.extend(&children[usize::from(rows_of_derived(&solution, n))..]);
            }
        }
        for n in wanted {
            let made = self.emit(region, &solution, n, block, user)?;
            for (op, result) in &solution.same[n] {
                let old = self.old.op(self.cut.regions[region].ops[*op]).results[*result];
                self.name(old, made[0]);
            }
            self.emitted[region][n] = Some(made);
        }
        self.emitted[region][n].clone().ok_or_else(|| "a node was not emitted".to_owned())
    }

    /// The first result of a node that is emitted.
    fn ready(&self, region: usize, n: usize) -> Result<ValueId, String> {
        let results = self.emitted[region][n].as_ref();
        results.and_then(|r| r.first().copied()).ok_or_else(|| "a node is used before it is made".to_owned())
    }

    /// Emits a node whose operands are there. What comes from no op of the spec is where the op that needs it is.
    fn emit(
        &mut self,
        region: usize,
        solution: &Solution,
        n: usize,
        block: RegionId,
        user: &Loc,
    ) -> Result<Vec<ValueId>, String> {
        let node = &solution.dag.nodes[n];
        let origin = solution.origin.get(n).copied().flatten();
        let loc = origin.map_or_else(|| user.clone(), |i| self.old.op(self.cut.regions[region].ops[i]).loc.clone());
        Ok(match node.head {
            None => {
                let narrow = self.derived(region, n, block, &loc)?;
                vec![self.widen(narrow, &node.types, block, &loc)?]
            }
            Some(Head::Pack | Head::Packed) => return Err("a term has a packed map".to_owned()),
            Some(Head::Leaf(l)) => vec![self.value(self.cut.regions[region].leaves[l as usize], block)?],
            Some(Head::Proj(p)) => {
                let results = self.emitted[region][node.children[0]].as_ref();
                vec![*results.and_then(|r| r.get(p as usize)).ok_or("an op has too few results")?]
            }
            Some(Head::Guard(_)) => {
                let slow = solution.dag.slow.get(&n).ok_or("a guard has no slow value")?;
                vec![self.guard(region, node, slow, block, loc)?]
            }
            Some(Head::Op(code)) if rows_of_derived(solution, n) => {
                let table = self.derived(region, node.children[0], block, &loc)?;
                let index = self.ready(region, node.children[1])?;
                let rows =
                    append(&mut self.new, block, code, vec![table, index], node.key.attrs().clone(), &[], loc.clone())?;
                vec![self.widen(rows[0], &node.types, block, &loc)?]
            }
            Some(Head::Op(code)) => {
                let operands = node.children.iter().map(|c| self.ready(region, *c)).collect::<Result<Vec<_>, _>>()?;
                append(&mut self.new, block, code, operands, node.key.attrs().clone(), &node.types, loc)?
            }
        })
    }

    /// A guard with its slow value in a region of its own. What that takes from other regions is made in front of it, since
    /// others may need it too.
    fn guard(
        &mut self,
        region: usize,
        node: &DagNode,
        slow: &Slow,
        block: RegionId,
        loc: Loc,
    ) -> Result<ValueId, String> {
        let operands = node.children.iter().map(|c| self.ready(region, *c)).collect::<Result<Vec<_>, _>>()?;
        let mut leaves = BTreeMap::new();
        for n in &slow.nodes {
            if let Some(Head::Leaf(l)) = n.head {
                leaves.insert(l, self.value(self.cut.regions[region].leaves[l as usize], block)?);
            }
        }
        let inner = self.new.add_region();
        let mut made: Vec<Vec<ValueId>> = Vec::new();
        for n in &slow.nodes {
            let operand = |c: &usize| match c.checked_sub(slow.first) {
                Some(own) => Ok(made[own].clone()),
                None => self.emitted[region][*c].clone().ok_or("a node is used before it is made"),
            };
            let operands = n.children.iter().map(operand).collect::<Result<Vec<_>, &str>>()?;
            made.push(match n.head {
                Some(Head::Leaf(l)) => vec![leaves[&l]],
                Some(Head::Proj(p)) => vec![operands[0][p as usize]],
                Some(Head::Op(code)) => {
                    let first = operands.iter().map(|o| o[0]).collect();
                    append(&mut self.new, inner, code, first, n.key.attrs().clone(), &n.types, loc.clone())?
                }
                _ => return Err("the slow value of a guard is made of plain ops".to_owned()),
            });
        }
        let last = made.last().and_then(|v| v.first()).ok_or("a guard has no slow value")?;
        self.new.regions[inner.index()].yields.push(*last);
        let types = node.types.clone();
        let op = self.new.add_op(block, Opcode::Guarded, operands, Attrs::new(), vec![inner], types, loc);
        Ok(self.new.op(op).results[0])
    }

    fn derived(&mut self, region: usize, n: usize, block: RegionId, loc: &Loc) -> Result<ValueId, String> {
        let chosen = &self.chosen[region];
        let id = *chosen.weights.get(&n).ok_or("a derived weight was not made")?;
        let loops = chosen.solution.derived.get(&n).map(|d| d.loops.leaves.clone()).unwrap_or_default();
        let index = loops.iter().map(|l| self.value(self.cut.regions[region].leaves[*l as usize], block));
        let index = index.collect::<Result<Vec<_>, _>>()?;
        Ok(read_weight(&mut self.new, block, id, index, &self.module.weight(id).ty, loc.clone()))
    }

    /// A value in the dtype it is computed with.
    fn widen(
        &mut self,
        v: ValueId,
        types: &[spinec_ir::ty::Type],
        block: RegionId,
        loc: &Loc,
    ) -> Result<ValueId, String> {
        let want = types.first().and_then(|t| t.tensor()).map(|t| t.dtype);
        let have = self.new.tensor(v).map(|t| t.dtype);
        match want {
            Some(dtype) if have != want => {
                let attrs = Attrs::from([("dtype", Attr::DType(dtype))]);
                Ok(append(&mut self.new, block, Opcode::Cast, vec![v], attrs, &[], loc.clone())?[0])
            }
            _ => Ok(v),
        }
    }
}

/// True for a take from a derived weight: its rows are taken as they are stored and widened after.
fn rows_of_derived(solution: &Solution, n: usize) -> bool {
    let nodes = &solution.dag.nodes;
    nodes[n].head == Some(Head::Op(Opcode::Take)) && nodes[nodes[n].children[0]].head.is_none()
}

/// Values used anywhere in a function.
pub(super) fn used(func: &Func) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    for block in crate::region::blocks(func) {
        let block = func.region(block);
        out.extend(block.yields.iter().copied());
        out.extend(block.ops.iter().flat_map(|op| func.op(*op).operands.iter().copied()));
    }
    out
}
