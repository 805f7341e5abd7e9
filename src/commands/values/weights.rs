//! Finding weights by name.

use spinec_ir::ir::{Func, Module, Nest, Op, Taken, ValueDef};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::Kernel;

/// A weight as the user named it.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its id.
    pub id: usize,
    /// For every loop the index that was named, if one was.
    pub at: Vec<Option<i64>>,
}

impl Named {
    /// Whether a kernel that reads the weight, at a constant index or at those of its loops, reads the element named.
    pub fn read_by(&self, func: &Func, nest: &Nest, kernel: &Kernel, constant: Option<i64>) -> bool {
        if let Some(c) = constant {
            return self.at.iter().all(|at| at.is_none_or(|at| at == c));
        }
        let taken = nest.taken(kernel.block);
        let reads = func.ops.iter().filter(|op| op.code == Opcode::Weight && op.int("weight") == Some(self.id as i64));
        let mut reads = reads.filter(|op| op.operands.len() == self.at.len()).peekable();
        let reached = |op: &Op| {
            op.operands.iter().zip(&self.at).all(|(v, at)| {
                let ValueDef::Param(body, 0) = func.value(*v).def else { return true };
                let path = nest.owner(body).map(|id| &func.op(id).loc.path);
                let other = |t: &&Taken| Some(&t.path) == path && at.is_some_and(|at| !t.iterations.contains(&at));
                !taken.iter().any(|t| other(&t))
            })
        };
        reads.peek().is_none() || reads.any(reached)
    }
}

/// For every `{placeholder}` of a pattern what a name has in its place; none if the name is not of that pattern.
fn placed<'n>(pattern: &'n str, name: &'n str) -> Option<Vec<(&'n str, &'n str)>> {
    let (own, asked): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), name.split('.').collect());
    let index = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    let fits = |(a, b): &(&str, &str)| a == b || a.starts_with('{') && index(b);
    let pairs: Vec<(&str, &str)> = own.iter().copied().zip(asked.iter().copied()).collect();
    let all = own.len() == asked.len() && pairs.iter().all(fits);
    all.then(|| pairs.into_iter().filter(|(a, _)| a.starts_with('{')).collect())
}

/// The weight of a name, in which loop variables may be indices: `layers.3.norm` for `layers.{l}.norm`.
///
/// # Errors
/// An index the weight does not have, with those it has.
pub fn weight_of(module: &Module, name: &str) -> Result<Option<Named>, String> {
    for (id, w) in module.weights.iter().enumerate() {
        let Some(placed) = placed(&w.name, name) else { continue };
        let given = |var: &str| placed.iter().find(|(p, _)| *p == format!("{{{var}}}"))?.1.parse::<i64>().ok();
        let at: Vec<Option<i64>> = w.loops.iter().map(|(var, _)| given(var)).collect();
        let mut flat = Some(0i64);
        for (at, (_, extent)) in at.iter().zip(&w.loops) {
            if let Some(at) = at.filter(|at| at >= extent) {
                return Err(format!("`{}` has the indices 0 to {}, {at} is none of them", w.name, extent - 1));
            }
            flat = flat.zip(*at).map(|(flat, at)| flat * extent + at);
        }
        let element = flat.and_then(|i| usize::try_from(i).ok());
        if element.is_some_and(|i| w.present.get(i) == Some(&false)) {
            return Err(format!("the checkpoint has no `{name}`: `{}` does not exist for every index", w.name));
        }
        return Ok(Some(Named { id, at }));
    }
    Ok(None)
}

/// The name of the weight that a part of a system knows by another: a shared one, or one taken from other loops.
pub fn alias(module: &Module, name: &str) -> Option<String> {
    let mut reads = module.funcs.iter().flat_map(|f| &f.ops).filter(|op| op.code == Opcode::Weight);
    let (op, placed) = reads.find_map(|op| Some((op, placed(&op.loc.path, name)?)))?;
    let weight = &module.weights.get(usize::try_from(op.int("weight")?).ok()?)?.name;
    let mut given = placed.into_iter().map(|(_, index)| index);
    let part = |p: &str| if p.starts_with('{') { given.next().unwrap_or(p).to_owned() } else { p.to_owned() };
    Some(weight.split('.').map(part).collect::<Vec<_>>().join("."))
}
