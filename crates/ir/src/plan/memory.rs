//! What a plan keeps in memory, by owner, and what its buffers take when they share an arena.

use super::{Phase, Plan, Step};
use crate::ir::{Func, Module, Nest, OpId, RegionId, WeightId};
use crate::ops::Opcode;
use crate::ty::{Dim, Env, StateKind};
use std::collections::{BTreeMap, BTreeSet};

/// What bytes are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Per {
    /// Once.
    System,
    /// For every request.
    Request,
    /// For every position of every request.
    Position,
}

impl Per {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Per::System => "system",
            Per::Request => "request",
            Per::Position => "position",
        }
    }
}

/// Bytes of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The owner: `weights`, `derived`, `head_fp8`, `target_kv`, `draft_kv`, `recurrent`, `replay`, `conv` or `arena`.
    pub owner: &'static str,
    /// Bytes of one.
    pub bytes: u64,
    /// What `bytes` is for.
    pub per: Per,
    /// How many there are.
    pub count: u64,
}

impl Owned {
    /// All bytes.
    pub fn total(&self) -> u64 {
        self.bytes.saturating_mul(self.count)
    }
}

impl Memory {
    /// All bytes.
    pub fn total(&self) -> u64 {
        self.owned.iter().map(Owned::total).fold(0, u64::saturating_add)
    }
}

/// The buffers of a plan in one arena that its phases use in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Arena {
    /// Highest end of a buffer.
    pub peak: u64,
    /// Most bytes alive at once: no plan of these launches needs less.
    pub lower_bound: u64,
    /// All buffers of the largest phase side by side.
    pub no_reuse: u64,
}

/// Buffers begin at multiples of this.
const ALIGNMENT: u64 = 256;

/// What a deployment of so many requests of so many positions keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// By owner.
    pub owned: Vec<Owned>,
    /// The arena.
    pub arena: Arena,
}

/// Memory of plans that are served together: they share weights and states. `env` gives the symbols their largest values.
///
/// # Errors
/// A size without a value: a symbol has no upper bound.
pub fn memory(plans: &[&Plan], env: &Env, requests: u64, positions: u64) -> Result<Memory, String> {
    let Some(first) = plans.first() else { return Err("there is no plan".to_owned()) };
    let mut owned = Vec::new();
    let mut add = |owner, bytes, per, count| owned.push(Owned { owner, bytes, per, count });
    add("weights", weights(plans)?, Per::System, 1);
    let [derived, head] = derived(plans)?;
    add("derived", derived, Per::System, 1);
    add("head_fp8", head, Per::System, 1);
    let mut by_owner: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut pools = 0;
    for s in &first.module.states {
        let number = |d: &Dim| size(d, env);
        let (owner, elements) = match &s.kind {
            StateKind::KvPool { heads, width } => {
                pools += 1;
                let owner = if pools == 1 { "target_kv" } else { "draft_kv" };
                (owner, number(heads)?.saturating_mul(number(width)?).saturating_mul(2))
            }
            StateKind::Recurrent { shape } => {
                let mut n = 1u64;
                for d in shape {
                    n = n.saturating_mul(number(d)?);
                }
                ("recurrent", n)
            }
            StateKind::Window { channels, taps } => {
                ("conv", number(channels)?.saturating_mul(number(taps)?.saturating_sub(1)))
            }
        };
        let bytes = elements.saturating_mul(s.dtype.bytes() as u64).saturating_mul(s.count.max(0) as u64);
        let sum = by_owner.entry(owner).or_default();
        *sum = sum.saturating_add(bytes);
    }
    for owner in ["target_kv", "draft_kv"] {
        add(owner, by_owner.get(owner).copied().unwrap_or(0), Per::Position, requests.saturating_mul(positions));
    }
    for owner in ["recurrent", "conv"] {
        add(owner, by_owner.get(owner).copied().unwrap_or(0), Per::Request, requests);
    }
    add("replay", replay(plans, env)?, Per::Request, requests);
    let mut arena = Arena::default();
    for plan in plans {
        for (func, phase) in plan.module.funcs.iter().zip(&plan.phases) {
            let a = phase_arena(func, phase, env)?;
            arena.peak = arena.peak.max(a.peak);
            arena.lower_bound = arena.lower_bound.max(a.lower_bound);
            arena.no_reuse = arena.no_reuse.max(a.no_reuse);
        }
    }
    add("arena", arena.peak, Per::System, 1);
    Ok(Memory { owned, arena })
}

fn size(d: &Dim, env: &Env) -> Result<u64, String> {
    let n = d.eval(env).ok_or_else(|| format!("{d} has no value: a symbol of it has no upper bound"))?;
    u64::try_from(n).map_err(|_| format!("{d} is negative"))
}

/// Weights that any phase reads; tensors that several weights share count once.
fn weights(plans: &[&Plan]) -> Result<u64, String> {
    let mut seen: BTreeSet<(Option<(String, String)>, String)> = BTreeSet::new();
    let mut total = 0u64;
    for plan in plans {
        let own = plan.module.weights.len() - plan.derived.len().min(plan.module.weights.len());
        for id in used(&plan.module).into_iter().filter(|id| id.index() < own) {
            let w = plan.module.weight(id);
            let source = w.source.as_ref().map(|s| (s.checkpoint.clone(), s.tensor.clone()));
            let name = if source.is_some() { String::new() } else { w.name.clone() };
            if seen.insert((source, name)) {
                total = total.saturating_add(weight_bytes(&plan.module, id)?);
            }
        }
    }
    Ok(total)
}

/// Bytes of all elements of a weight.
///
/// # Errors
/// Its extents are not known.
pub fn weight_bytes(module: &Module, id: WeightId) -> Result<u64, String> {
    let w = module.weight(id);
    let loops = w.loops.iter().fold(1u64, |n, (_, e)| n.saturating_mul((*e).max(0) as u64));
    let there = if w.present.is_empty() { loops } else { w.present.iter().filter(|p| **p).count() as u64 };
    let mut n = there.saturating_mul(w.ty.dtype.bytes() as u64);
    for d in &w.ty.dims {
        n = n.saturating_mul(size(d, &Env::new())?);
    }
    Ok(n)
}

/// Weights the functions of a module read.
pub fn used(module: &Module) -> BTreeSet<WeightId> {
    let ops = module.funcs.iter().flat_map(|f| &f.ops).filter(|op| op.code == Opcode::Weight);
    ops.filter_map(|op| op.int("weight")).filter_map(|w| u32::try_from(w).ok()).map(WeightId).collect()
}

/// Bytes of derived weights, and of quantised copies of a head.
fn derived(plans: &[&Plan]) -> Result<[u64; 2], String> {
    let mut seen = BTreeSet::new();
    let mut out = [0u64; 2];
    for plan in plans {
        for (d, load) in plan.derived.iter().zip(&plan.load.funcs) {
            let mut alone = load.clone();
            alone.name.clear();
            let text = crate::ir::text::print(&Module {
                weights: Vec::new(),
                states: Vec::new(),
                funcs: vec![alone],
                ..plan.load.clone()
            });
            if seen.insert(text) {
                let quantised = load.ops.iter().any(|op| op.code == Opcode::QuantizeRows);
                out[usize::from(quantised)] += d.bytes;
            }
        }
    }
    Ok(out)
}

/// Bytes a request keeps of a tentative run so that any prefix of its rows can be committed: keys, values, decays and
/// steps of every recurrent state, and the inputs of every window.
fn replay(plans: &[&Plan], env: &Env) -> Result<u64, String> {
    let mut most = 0;
    for plan in plans {
        for func in &plan.module.funcs {
            if !func.inputs.iter().any(|i| i == "proposal" || i == "width") {
                continue;
            }
            let mut total = 0u64;
            rows(func, &Nest::of(func), func.body, env, &mut total)?;
            most = most.max(total);
        }
    }
    Ok(most)
}

fn rows(func: &Func, nest: &Nest, block: RegionId, env: &Env, total: &mut u64) -> Result<(), String> {
    let times = size(&nest.times(block).ok_or("a block runs more often than can be counted")?, env)?;
    for id in &func.region(block).ops {
        let op = func.op(*id);
        let records: &[usize] = match op.code {
            Opcode::DeltaRule => &[2, 3, 4, 5],
            Opcode::CausalConv => &[1],
            _ => &[],
        };
        for i in records {
            let Some(t) = op.operands.get(*i).and_then(|v| func.tensor(*v)) else { continue };
            let mut n = times.saturating_mul(t.dtype.bytes() as u64);
            // One request: the first axis counts requests.
            for d in t.dims.iter().skip(1) {
                n = n.saturating_mul(size(d, env)?);
            }
            *total = total.saturating_add(n);
        }
        for r in &op.regions {
            rows(func, nest, *r, env, total)?;
        }
    }
    Ok(())
}

/// A buffer's bytes and the first and last step it is alive at.
struct Life {
    bytes: u64,
    first: usize,
    last: usize,
}

impl Life {
    fn extend(&mut self, first: usize, last: usize) {
        self.first = self.first.min(first);
        self.last = self.last.max(last);
    }
}

fn phase_arena(func: &Func, phase: &Phase, env: &Env) -> Result<Arena, String> {
    let mut lives = Vec::new();
    for b in &phase.buffers {
        let bytes = size(&b.bytes, env)?.div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT);
        lives.push(Life { bytes, first: if b.input { 0 } else { usize::MAX }, last: 0 });
    }
    let mut at = 0;
    walk(func, phase, &phase.steps, &mut at, &mut lives);
    // Outputs stay to the end.
    for v in &func.region(func.body).yields {
        for (_, life) in phase.buffers.iter().zip(&mut lives).filter(|(b, _)| b.value == *v) {
            life.last = at;
        }
    }
    lives.retain(|l| l.first <= l.last);
    let total = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add);
    let no_reuse = total(&mut lives.iter().map(|l| l.bytes));
    let lower_bound =
        (0..=at).map(|t| total(&mut lives.iter().filter(|l| (l.first..=l.last).contains(&t)).map(|l| l.bytes))).max();
    // Largest first, each at the lowest offset where it meets nobody alive at the same time.
    lives.sort_by_key(|l| (std::cmp::Reverse(l.bytes), l.first, l.last));
    let mut placed: Vec<(u64, Life)> = Vec::new();
    let mut peak = 0;
    for life in lives {
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|(_, o)| o.first <= life.last && life.first <= o.last)
            .map(|(offset, o)| (*offset, offset.saturating_add(o.bytes)))
            .collect();
        taken.sort_unstable();
        let mut offset = 0u64;
        for (begin, end) in taken {
            if offset.saturating_add(life.bytes) <= begin {
                break;
            }
            offset = offset.max(end);
        }
        peak = peak.max(offset.saturating_add(life.bytes));
        placed.push((offset, life));
    }
    Ok(Arena { peak, lower_bound: lower_bound.unwrap_or(0), no_reuse })
}

/// Numbers the launches; what a loop touches from outside, carries or hands on is alive through all of its turns.
fn walk(func: &Func, phase: &Phase, steps: &[Step], at: &mut usize, lives: &mut [Life]) {
    for step in steps {
        let begin = *at + 1;
        match step {
            Step::Launch(k) => {
                *at += 1;
                let Some(kernel) = phase.kernels.get(k.index()) else { continue };
                for access in kernel.reads.iter().chain(&kernel.writes) {
                    if let super::Place::Buffer(b) = access.place
                        && let Some(life) = lives.get_mut(b.index())
                    {
                        life.extend(*at, *at);
                    }
                }
            }
            Step::Loop { op, body } => {
                let outside: Vec<bool> = lives.iter().map(|l| l.first < begin).collect();
                walk(func, phase, body, at, lives);
                for (life, outside) in lives.iter_mut().zip(outside) {
                    if outside && life.last >= begin {
                        life.last = *at;
                    }
                }
                handed(func, phase, *op, begin, *at, lives);
            }
            Step::Cases { op, arms } => {
                arms.iter().for_each(|a| walk(func, phase, a, at, lives));
                handed(func, phase, *op, begin, *at, lives);
            }
        }
    }
}

/// Parameters and yields of a control op live while it runs; its results from then on.
fn handed(func: &Func, phase: &Phase, op: OpId, begin: usize, end: usize, lives: &mut [Life]) {
    let op = func.op(op);
    for region in &op.regions {
        let region = func.region(*region);
        for (b, life) in phase.buffers.iter().zip(lives.iter_mut()) {
            if region.params.contains(&b.value) || region.yields.contains(&b.value) {
                life.extend(begin, end);
            }
        }
    }
    for (b, life) in phase.buffers.iter().zip(lives.iter_mut()) {
        if op.results.contains(&b.value) {
            life.extend(end, end);
        }
    }
}

/// The largest number of positions a request may hold, and of requests of so many positions, so that `total` stays within
/// so many bytes; `total` gives all bytes for requests and positions and grows with both. Both are figures of the plan that
/// `total` sums: planned for other bounds, the same system may take a little more or less.
pub fn capacity(total: &dyn Fn(u64, u64) -> Option<u64>, bytes: u64, requests: u64, positions: u64) -> (u64, u64) {
    let most = |fits: &dyn Fn(u64) -> bool| {
        let (mut good, mut bad) = (0u64, 1u64 << 40);
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            *(if fits(middle) { &mut good } else { &mut bad }) = middle;
        }
        good
    };
    let within = |r: u64, p: u64| total(r, p).is_some_and(|n| n <= bytes);
    (most(&|p| within(requests, p)), most(&|r| within(r, positions)))
}
