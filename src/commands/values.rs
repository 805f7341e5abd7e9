//! Finding values of a system by node paths, with or without indices of loops.

use spinec_ir::diag::suggest;
use spinec_ir::ir::{Func, Module, OpId, ValueDef, Weight};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::Plan;

/// A node path as the user gave it.
pub struct ValuePath {
    /// Without indices, as values are named.
    pub plain: String,
    /// The indices it had: the path of the loop, and which of its iterations. One that no loop can have is the largest number.
    indices: Vec<(String, i64)>,
    /// The indices as they were written.
    written: Vec<String>,
}

impl ValuePath {
    /// `layers.3.x` as `layers.x` with the third iteration of `layers`.
    pub fn parse(path: &str) -> ValuePath {
        let (mut parts, mut indices): (Vec<&str>, Vec<(String, i64)>) = (Vec::new(), Vec::new());
        let mut written = Vec::new();
        for part in path.split('.') {
            if part.is_empty() || !part.chars().all(|c| c.is_ascii_digit()) {
                parts.push(part);
            } else {
                indices.push((parts.join("."), part.parse().unwrap_or(i64::MAX)));
                written.push(shown_index(part));
            }
        }
        ValuePath { plain: parts.join("."), indices, written }
    }

    /// Whether every index is one of its loop, and the value is computed there.
    ///
    /// # Errors
    /// What is wrong, with the range there is.
    pub fn check(&self, module: &Module) -> Result<(), String> {
        for ((path, at), written) in self.indices.iter().zip(&self.written) {
            let extents: Vec<i64> = module.funcs.iter().flat_map(|f| extents(f, path)).collect();
            let Some(most) = extents.iter().max() else {
                // A value that is not there is reported as such.
                if module.funcs.iter().all(|f| ops_of(f, &self.plain).is_empty()) {
                    continue;
                }
                return Err(format!("`{path}` is no loop and has no index: write `{}`", self.plain));
            };
            if at >= most {
                return Err(format!("`{path}` has the indices 0 to {}, {written} is none of them", most - 1));
            }
        }
        let funcs: Vec<&Func> = module.funcs.iter().filter(|f| !ops_of(f, &self.plain).is_empty()).collect();
        if self.indices.is_empty() || funcs.is_empty() || funcs.iter().any(|f| self.somewhere(f)) {
            return Ok(());
        }
        let at: Vec<String> = self.indices.iter().map(|(l, i)| format!("index {i} of `{l}`")).collect();
        Err(format!("`{}` is a value of another case than that of {}", self.plain, at.join(" and ")))
    }

    /// Whether some op of the value is in the cases its indices take.
    fn somewhere(&self, func: &Func) -> bool {
        let hidden: Vec<OpId> = self.indices.iter().flat_map(|(path, at)| other_cases(func, path, *at)).collect();
        ops_of(func, &self.plain).iter().any(|id| !hidden.contains(id))
    }

    /// For people: which iterations are meant; empty if none were named.
    pub fn iterations(&self) -> String {
        let at: Vec<String> = self.indices.iter().map(|(l, i)| format!("{l} = {i}")).collect();
        at.join(", ")
    }
}

/// An index as it was written; of a very long one its beginning.
fn shown_index(digits: &str) -> String {
    const MOST: usize = 32;
    if digits.len() <= MOST { digits.to_string() } else { format!("{}...", &digits[..MOST]) }
}

/// Extents of the loops of a path, where they are known.
fn extents(func: &Func, path: &str) -> Vec<i64> {
    let of = |op: &spinec_ir::ir::Op| {
        let there = op.code == Opcode::Loop && *op.loc.path == *path;
        there.then(|| op.dim("extent").and_then(|d| d.as_const())).flatten()
    };
    func.ops.iter().filter_map(of).collect()
}

/// The ops that stand in cases which iteration `at` of the loops of a path does not take.
fn other_cases(func: &Func, path: &str, at: i64) -> Vec<OpId> {
    let mut out = Vec::new();
    for op in &func.ops {
        let Some(operand) = op.operands.first().filter(|_| op.code == Opcode::Cases) else { continue };
        let ValueDef::Param(block, 0) = func.value(*operand).def else { continue };
        let of_loop = |o: &spinec_ir::ir::Op| *o.loc.path == *path && o.regions.contains(&block);
        let taken = op.ints("select").and_then(|s| s.get(usize::try_from(at).ok()?)).copied();
        if !func.ops.iter().any(of_loop) {
            continue;
        }
        let mut open: Vec<_> = (0i64..).zip(&op.regions).filter(|(i, _)| Some(*i) != taken).map(|(_, r)| *r).collect();
        while let Some(region) = open.pop() {
            for id in &func.region(region).ops {
                out.push(*id);
                open.extend(&func.op(*id).regions);
            }
        }
    }
    out
}

/// Ops of a function that compute a value of that path without indices, or an intermediate of its expression.
pub fn ops_of(func: &Func, plain: &str) -> Vec<OpId> {
    if plain.is_empty() {
        return Vec::new();
    }
    let named = |id: &OpId| func.op(*id).results.iter().flat_map(|v| &func.value(*v).names).any(|n| **n == *plain);
    let within = |id: &OpId| *func.op(*id).loc.path == *plain;
    let all = || (0..func.ops.len() as u32).map(OpId);
    let found: Vec<OpId> = all().filter(named).collect();
    if found.is_empty() { all().filter(within).collect() } else { found }
}

/// The path of the value that a function hands out under a name.
pub fn output_of(func: &Func, name: &str) -> Option<String> {
    let i = func.outputs.iter().position(|o| o == name)?;
    let v = *func.region(func.body).yields.get(i)?;
    let value = func.value(v);
    match (value.names.first(), value.def) {
        (Some(n), _) => Some(n.to_string()),
        (None, ValueDef::Result(op, _)) => Some(func.op(op).loc.path.to_string()),
        (None, ValueDef::Param(..)) => None,
    }
}

/// The weight of a name, in which loop variables may be indices: `layers.3.norm` for `layers.{l}.norm`.
///
/// # Errors
/// An index the weight does not have, with those it has.
pub fn weight_of<'m>(module: &'m Module, name: &str) -> Result<Option<(usize, &'m Weight)>, String> {
    for (id, w) in module.weights.iter().enumerate() {
        let (own, asked): (Vec<&str>, Vec<&str>) = (w.name.split('.').collect(), name.split('.').collect());
        let index = |part: &str| part.chars().all(|c| c.is_ascii_digit()) && !part.is_empty();
        let fits = |(a, b): (&&str, &&str)| a == b || a.starts_with('{') && index(b);
        if own.len() != asked.len() || !own.iter().zip(&asked).all(fits) {
            continue;
        }
        let (mut flat, mut whole) = (0i64, true);
        for (var, extent) in &w.loops {
            let at = own.iter().position(|p| *p == format!("{{{var}}}")).map(|i| asked[i]);
            let written = at.filter(|a| index(a));
            match written.map(|a| a.parse::<i64>().unwrap_or(i64::MAX)) {
                Some(at) if at >= *extent => {
                    let shown = shown_index(written.unwrap_or_default());
                    return Err(format!("`{}` has the indices 0 to {}, {shown} is none of them", w.name, extent - 1));
                }
                Some(at) => flat = flat * extent + at,
                None => whole = false,
            }
        }
        if whole && usize::try_from(flat).is_ok_and(|i| w.present.get(i) == Some(&false)) {
            return Err(format!("the checkpoint has no `{name}`: `{}` does not exist for every index", w.name));
        }
        return Ok(Some((id, w)));
    }
    Ok(None)
}

/// What to say when no function has a value of that path.
pub fn unknown(plan: &Plan, path: &str) -> String {
    let weights = plan.module.weights.iter().map(|w| &*w.name);
    let mut names: Vec<&str> = plan
        .module
        .funcs
        .iter()
        .flat_map(|f| {
            f.values.iter().flat_map(|v| v.names.iter().map(|n| &**n)).chain(f.ops.iter().map(|op| &*op.loc.path))
        })
        .chain(weights)
        .filter(|n| !n.is_empty())
        .collect();
    names.sort_unstable();
    names.dedup();
    let near = suggest(&ValuePath::parse(path).plain, names.iter().copied());
    let help = near.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
    format!("no phase has a value `{path}`{help}")
}
