//! What fusion knows of a function: roles, dependencies between ops that work, and who uses what.

use super::Options;
use spinec_ir::ir::{Func, Module, OpId, RegionId, ValueDef, ValueId};
use spinec_ir::ops::{Effect, Opcode};
use spinec_ir::plan::role::{Role, Roles, inner_operands, is_statistic};
use spinec_ir::ty::Env;
use std::collections::BTreeSet;

/// A function as fusion sees it.
pub(super) struct Context<'a> {
    pub module: &'a Module,
    pub func: &'a Func,
    pub roles: &'a Roles,
    pub options: &'a Options,
    /// Smallest and largest values of the symbols.
    pub range: [Env; 2],
    /// By op: the ops that work or control, in any block, whose results it uses through accesses and repeated work, and
    /// those that have to run before it for the sake of a state.
    pub deps: Vec<BTreeSet<OpId>>,
    /// By op that works: the ops that use its results, and whether all they use are row statistics.
    pub uses: Vec<Vec<(OpId, bool)>>,
    /// By op that works: the ops whose results it uses, each once.
    pub makers: Vec<Vec<OpId>>,
}

impl<'a> Context<'a> {
    pub fn new(module: &'a Module, func: &'a Func, roles: &'a Roles, options: &'a Options) -> Context<'a> {
        let mut c = Context {
            module,
            func,
            roles,
            options,
            range: spinec_ir::plan::range(module),
            deps: vec![BTreeSet::new(); func.ops.len()],
            uses: vec![Vec::new(); func.ops.len()],
            makers: vec![Vec::new(); func.ops.len()],
        };
        for block in crate::region::blocks(func) {
            for id in &func.region(block).ops {
                if c.works(*id) {
                    c.deps[id.index()] = c.needed(*id);
                }
            }
        }
        for id in (0..func.ops.len() as u32).map(OpId) {
            if c.works(id) {
                c.count_uses(id);
            }
        }
        c
    }

    /// Whether an op is one a kernel computes, or control.
    pub fn works(&self, id: OpId) -> bool {
        self.roles.block[id.index()].is_some() && matches!(self.roles.role[id.index()], Role::Work | Role::Control)
    }

    fn needed(&self, id: OpId) -> BTreeSet<OpId> {
        let mut out = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let own = match self.roles.role[id.index()] {
            // A block may end with a value of the block around it.
            Role::Control => {
                let op = self.func.op(id);
                let yields = op.regions.iter().flat_map(|r| &self.func.region(*r).yields);
                op.operands.iter().chain(yields).copied().collect()
            }
            _ => inner_operands(self.func, id),
        };
        for v in &own {
            self.trace(*v, &mut seen, &mut out);
        }
        // Whoever ends a version waits for its readers; a loop ends those it begins with.
        if self.func.op(id).code.def().effect == Effect::AdvancesState || self.roles.role[id.index()] == Role::Control {
            for v in own.iter().filter(|v| self.func.ty(**v).is_state()) {
                out.extend(self.roles.users[v.index()].iter().filter(|u| **u != id && self.works(**u)));
            }
        }
        out.extend(self.roles.behind.get(&id).into_iter().flatten());
        out
    }

    fn trace(&self, v: ValueId, seen: &mut BTreeSet<ValueId>, out: &mut BTreeSet<OpId>) {
        if !seen.insert(v) {
            return;
        }
        if let ValueDef::Result(id, _) = self.func.value(v).def {
            match self.roles.role[id.index()] {
                Role::Work | Role::Control => {
                    out.insert(id);
                }
                Role::Free | Role::Repeated => {
                    self.func.op(id).operands.iter().for_each(|v| self.trace(*v, seen, out));
                }
            }
        }
    }

    /// Records the uses an op makes of what others compute.
    fn count_uses(&mut self, id: OpId) {
        if self.roles.role[id.index()] == Role::Control {
            return;
        }
        let mut found: Vec<(OpId, bool)> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut stack: Vec<(ValueId, bool)> = inner_operands(self.func, id).into_iter().map(|v| (v, false)).collect();
        while let Some((v, partial)) = stack.pop() {
            if !seen.insert((v, partial)) {
                continue;
            }
            let ValueDef::Result(def, _) = self.func.value(v).def else { continue };
            match self.roles.role[def.index()] {
                Role::Work => found.push((def, partial)),
                Role::Control => {}
                role => {
                    let op = self.func.op(def);
                    let statistic = role == Role::Repeated && is_statistic(op.code);
                    stack.extend(op.operands.iter().map(|v| (*v, partial || statistic)));
                }
            }
        }
        found.sort_unstable();
        self.makers[id.index()] = found.iter().map(|(def, _)| *def).collect();
        self.makers[id.index()].dedup();
        for (def, partial) in found {
            self.uses[def.index()].push((id, partial));
        }
    }

    /// The op of `block` that an op is or stands in.
    pub fn lifted(&self, id: OpId, block: RegionId) -> Option<OpId> {
        let mut at = id;
        loop {
            let own = self.roles.block[at.index()]?;
            if own == block {
                return Some(at);
            }
            at = self.roles.owner[own.index()]?;
        }
    }

    /// Whether results of an op of a group have to be in memory behind the group.
    pub fn escapes(&self, id: OpId, group: &BTreeSet<OpId>) -> bool {
        let rooted = self.func.op(id).results.iter().any(|v| self.roles.roots[v.index()]);
        rooted || self.uses[id.index()].iter().any(|(user, partial)| !partial && !group.contains(user))
    }

    /// The opcode of an op.
    pub fn code(&self, id: OpId) -> Opcode {
        self.func.op(id).code
    }

    /// Its path in the spec, for people.
    pub fn path(&self, id: OpId) -> String {
        let op = self.func.op(id);
        let name = op.results.iter().flat_map(|v| &self.func.value(*v).names).next();
        match name.filter(|_| op.regions.is_empty()) {
            Some(name) => format!("`{name}`"),
            None if !op.regions.is_empty() => format!("{} `{}`", op.code.name(), op.loc.path),
            None if op.loc.path.is_empty() => op.code.name().to_owned(),
            None => format!("{} in `{}`", op.code.name(), op.loc.path),
        }
    }
}
