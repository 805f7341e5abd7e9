//! A sanitised view of a function: every reachable region and op exactly once, in textual order.
//!
//! Everything that walks a function which may be malformed (verifier, printer, canonical form) walks this tree, so ids
//! out of range, shared regions and cyclic nesting are met in one place only.

use super::Site;
use crate::ir::{Func, FuncId, OpId, RegionId, ValueDef, ValueId};

/// Deepest nesting of regions. Walks recurse; lowering nests one region per `repeat`, `scan` or case, so real graphs
/// stay below ten.
pub const MAX_NESTING: usize = 64;

pub(crate) struct RegionNode {
    pub id: RegionId,
    /// Parameters that exist.
    pub params: Vec<ValueId>,
    pub ops: Vec<OpNode>,
}

pub(crate) struct OpNode {
    pub id: OpId,
    /// One entry a region of the op; `None` if the region cannot be entered.
    pub regions: Vec<Option<RegionNode>>,
}

pub(crate) struct Tree {
    /// `None` if the body does not exist.
    pub body: Option<RegionNode>,
    /// What is wrong with the structure.
    pub faults: Vec<(Site, String)>,
    /// Number of a value in textual order; `None` if nothing reachable defines it.
    numbers: Vec<Option<u32>>,
    region_start: Vec<u32>,
    region_end: Vec<u32>,
    op_at: Vec<u32>,
}

impl Tree {
    pub fn new(id: FuncId, func: &Func) -> Tree {
        let tree = Tree {
            body: None,
            faults: Vec::new(),
            numbers: vec![None; func.values.len()],
            region_start: vec![u32::MAX; func.regions.len()],
            region_end: vec![u32::MAX; func.regions.len()],
            op_at: vec![u32::MAX; func.ops.len()],
        };
        let mut builder = Builder { id, func, tree, next_value: 0, next_place: 1 };
        let body = builder.region(func.body, 0, Site::Func(id));
        builder.tree.body = body;
        builder.tree
    }

    /// The number a value is printed with.
    pub fn number(&self, v: ValueId) -> Option<u32> {
        self.numbers.get(v.index()).copied().flatten()
    }

    /// A value as it is printed; values that nothing reachable defines show their raw id.
    pub fn show(&self, v: ValueId) -> String {
        match self.number(v) {
            Some(n) => format!("%{n}"),
            None => format!("%?{}", v.0),
        }
    }

    /// Where a site stands in textual order; sites outside the tree come last.
    pub fn place(&self, site: Site) -> u32 {
        let get = |v: &[u32], i: usize| v.get(i).copied().unwrap_or(u32::MAX);
        match site {
            Site::Region(_, r) | Site::Param(_, r, _) => get(&self.region_start, r.index()),
            Site::Op(_, op) => get(&self.op_at, op.index()),
            Site::Yield(_, r) => get(&self.region_end, r.index()),
            _ => 0,
        }
    }
}

struct Builder<'a> {
    id: FuncId,
    func: &'a Func,
    tree: Tree,
    next_value: u32,
    next_place: u32,
}

impl Builder<'_> {
    fn fault(&mut self, site: Site, message: String) {
        self.tree.faults.push((site, message));
    }

    fn place(&mut self) -> u32 {
        self.next_place += 1;
        self.next_place - 1
    }

    /// Numbers a value and checks that it points back at its definition. False if it does not exist.
    fn define(&mut self, v: ValueId, def: ValueDef, site: Site) -> bool {
        let Some(value) = self.func.values.get(v.index()) else {
            self.fault(site, format!("value {} does not exist", v.0));
            return false;
        };
        if value.def != def {
            let message = format!("value {} is defined here but its definition is recorded as {:?}", v.0, value.def);
            self.fault(site, message);
        }
        if self.tree.numbers[v.index()].is_none() {
            self.tree.numbers[v.index()] = Some(self.next_value);
            self.next_value += 1;
        }
        true
    }

    fn region(&mut self, id: RegionId, depth: usize, owner: Site) -> Option<RegionNode> {
        let Some(region) = self.func.regions.get(id.index()) else {
            self.fault(owner, format!("region {} does not exist", id.0));
            return None;
        };
        if self.tree.region_start[id.index()] != u32::MAX {
            self.fault(owner, format!("region {} has a second owner", id.0));
            return None;
        }
        if depth > MAX_NESTING {
            self.fault(owner, format!("regions nest deeper than {MAX_NESTING} levels"));
            return None;
        }
        self.tree.region_start[id.index()] = self.place();
        let mut node = RegionNode { id, params: Vec::new(), ops: Vec::new() };
        for (i, &v) in region.params.iter().enumerate() {
            let i = i as u32;
            if self.define(v, ValueDef::Param(id, i), Site::Param(self.id, id, i)) {
                node.params.push(v);
            }
        }
        for &op in &region.ops {
            node.ops.extend(self.op(op, depth, Site::Region(self.id, id)));
        }
        self.tree.region_end[id.index()] = self.place();
        for &v in &region.yields {
            self.exists(v, Site::Yield(self.id, id));
        }
        Some(node)
    }

    fn op(&mut self, id: OpId, depth: usize, owner: Site) -> Option<OpNode> {
        let Some(op) = self.func.ops.get(id.index()) else {
            self.fault(owner, format!("op {} does not exist", id.0));
            return None;
        };
        if self.tree.op_at[id.index()] != u32::MAX {
            self.fault(owner, format!("op {} (`{}`) has a second place", id.0, op.code.name()));
            return None;
        }
        self.tree.op_at[id.index()] = self.place();
        let site = Site::Op(self.id, id);
        for &v in &op.operands {
            self.exists(v, site);
        }
        for (i, &v) in op.results.iter().enumerate() {
            self.define(v, ValueDef::Result(id, i as u32), site);
        }
        let regions = op.regions.iter().map(|&r| self.region(r, depth + 1, site)).collect();
        Some(OpNode { id, regions })
    }

    fn exists(&mut self, v: ValueId, site: Site) {
        if self.func.values.get(v.index()).is_none() {
            self.fault(site, format!("value {} does not exist", v.0));
        }
    }
}
