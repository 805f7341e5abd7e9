//! A loop whose body asks at several places which case its index is in becomes a loop that asks once: every combination of
//! cases that occurs gets a body of its own, so that work before, in and behind a case can share kernels.

use spinec_ir::ir::{Attr, Attrs, Func, Loc, OpId, RegionId, ValueId};
use spinec_ir::ops::Opcode;
use std::collections::BTreeMap;

/// Most bodies a loop is split into; one with more combinations stays as it is.
const MAX_BODIES: usize = 8;

/// The function with its loops specialised.
pub fn specialise(func: &Func) -> Func {
    let mut new = Func::new(func.name.clone());
    new.inputs = func.inputs.clone();
    new.outputs = func.outputs.clone();
    let body = new.body;
    let mut c = Copier { old: func, new, map: BTreeMap::new(), chosen: BTreeMap::new() };
    c.params(func.body, body);
    c.block(func.body, body);
    c.new
}

struct Copier<'a> {
    old: &'a Func,
    new: Func,
    map: BTreeMap<ValueId, ValueId>,
    /// The region of every case op of the body that is being copied.
    chosen: BTreeMap<OpId, usize>,
}

impl Copier<'_> {
    fn params(&mut self, old: RegionId, new: RegionId) {
        for v in &self.old.region(old).params {
            let value = self.old.value(*v);
            let id = self.new.add_param(new, value.ty.clone());
            self.new.values[id.index()].names = value.names.clone();
            self.map.insert(*v, id);
        }
    }

    fn block(&mut self, old: RegionId, new: RegionId) {
        self.ops(old, new);
        let yields = self.old.region(old).yields.iter().map(|v| self.map[v]).collect();
        self.new.regions[new.index()].yields = yields;
    }

    fn ops(&mut self, old: RegionId, new: RegionId) {
        for id in self.old.region(old).ops.clone() {
            let op = self.old.op(id);
            match (op.code, self.chosen.get(&id).copied()) {
                (Opcode::Cases, Some(arm)) => {
                    let region = op.regions[arm];
                    self.ops(region, new);
                    for (result, y) in op.results.iter().zip(&self.old.region(region).yields) {
                        let value = self.map[y];
                        self.map.insert(*result, value);
                        self.name(*result, value);
                    }
                }
                _ => self.op(id, new),
            }
        }
    }

    fn op(&mut self, id: OpId, block: RegionId) {
        let op = self.old.op(id).clone();
        let operands = op.operands.iter().map(|v| self.map[v]).collect();
        let regions: Vec<RegionId> = op.regions.iter().map(|_| self.new.add_region()).collect();
        let types = op.results.iter().map(|v| self.old.ty(*v).clone()).collect();
        let made = self.new.add_op(block, op.code, operands, op.attrs.clone(), regions.clone(), types, op.loc.clone());
        for (old, new) in op.regions.iter().zip(&regions) {
            self.params(*old, *new);
            match bodies(self.old, id) {
                Some(bodies) => self.split(id, *old, *new, &bodies),
                None => self.block(*old, *new),
            }
        }
        for (old, new) in op.results.iter().zip(self.new.op(made).results.clone()) {
            self.map.insert(*old, new);
            self.name(*old, new);
        }
    }

    fn name(&mut self, old: ValueId, new: ValueId) {
        for name in &self.old.value(old).names {
            let names = &mut self.new.values[new.index()].names;
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }

    /// The body of a loop as one case op over the bodies.
    fn split(&mut self, id: OpId, old: RegionId, new: RegionId, bodies: &Bodies) {
        let outer = self.chosen.clone();
        if let [only] = &bodies.kinds[..] {
            self.chosen.extend(only.iter().copied());
            self.block(old, new);
            self.chosen = outer;
            return;
        }
        let index = self.map[&self.old.region(old).params[0]];
        let yields = self.old.region(old).yields.clone();
        let types = yields.iter().map(|v| self.old.ty(*v).clone()).collect();
        let regions: Vec<RegionId> = bodies.kinds.iter().map(|_| self.new.add_region()).collect();
        let attrs = Attrs::from([("select", Attr::Ints(bodies.select.clone()))]);
        let loc = Loc { path: self.old.op(id).loc.path.clone(), span: self.old.op(id).loc.span };
        let made = self.new.add_op(new, Opcode::Cases, vec![index], attrs, regions.clone(), types, loc);
        for (kind, region) in bodies.kinds.iter().zip(regions) {
            let before = self.map.clone();
            self.chosen.extend(kind.iter().copied());
            self.block(old, region);
            self.chosen.clone_from(&outer);
            self.map = before;
        }
        self.new.regions[new.index()].yields = self.new.op(made).results.clone();
    }
}

/// Which bodies a loop has.
struct Bodies {
    /// By body, the region of every case op.
    kinds: Vec<Vec<(OpId, usize)>>,
    /// By iteration, the body.
    select: Vec<i64>,
}

/// The bodies of a loop with case ops directly in its body; `None` if there are none or too many.
fn bodies(func: &Func, id: OpId) -> Option<Bodies> {
    let op = func.op(id);
    if op.code != Opcode::Loop {
        return None;
    }
    let body = *op.regions.first()?;
    let index = *func.region(body).params.first()?;
    let mut cases: Vec<OpId> = Vec::new();
    find(func, body, index, &mut cases);
    let extent = usize::try_from(op.dim("extent")?.as_const()?).ok()?;
    if cases.is_empty() || extent == 0 {
        return None;
    }
    let mut out = Bodies { kinds: Vec::new(), select: Vec::new() };
    for i in 0..extent {
        let kind: Vec<(OpId, usize)> = cases
            .iter()
            .map(|c| Some((*c, usize::try_from(*func.op(*c).ints("select")?.get(i)?).ok()?)))
            .collect::<Option<_>>()?;
        let k = out.kinds.iter().position(|k| *k == kind).unwrap_or_else(|| {
            out.kinds.push(kind);
            out.kinds.len() - 1
        });
        out.select.push(k as i64);
    }
    (out.kinds.len() <= MAX_BODIES).then_some(out)
}

/// Case ops of a block on the given index, those inside cases included.
fn find(func: &Func, block: RegionId, index: ValueId, out: &mut Vec<OpId>) {
    for id in &func.region(block).ops {
        let op = func.op(*id);
        if op.code == Opcode::Cases && op.operands.first() == Some(&index) {
            out.push(*id);
            op.regions.iter().for_each(|r| find(func, *r, index, out));
        }
    }
}
