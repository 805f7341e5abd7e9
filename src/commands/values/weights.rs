//! Finding weights by name.

use super::path::shown_index;
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

/// The weight of a name, in which loop variables may be indices: `layers.3.norm` for `layers.{l}.norm`.
///
/// # Errors
/// An index the weight does not have, with those it has.
pub fn weight_of(module: &Module, name: &str) -> Result<Option<Named>, String> {
    for (id, w) in module.weights.iter().enumerate() {
        let (own, asked): (Vec<&str>, Vec<&str>) = (w.name.split('.').collect(), name.split('.').collect());
        let index = |part: &str| part.chars().all(|c| c.is_ascii_digit()) && !part.is_empty();
        let fits = |(a, b): (&&str, &&str)| a == b || a.starts_with('{') && index(b);
        if own.len() != asked.len() || !own.iter().zip(&asked).all(fits) {
            continue;
        }
        let (mut flat, mut whole) = (0i64, true);
        let mut indices = Vec::new();
        for (var, extent) in &w.loops {
            let at = own.iter().position(|p| *p == format!("{{{var}}}")).map(|i| asked[i]);
            let written = at.filter(|a| index(a));
            let at = written.map(|a| a.parse::<i64>().unwrap_or(i64::MAX));
            indices.push(at);
            match at {
                Some(n) if n >= *extent => {
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
        return Ok(Some(Named { id, at: indices }));
    }
    Ok(None)
}

/// The name of the weight that a part of a system knows by another: a shared one, or one taken from other loops.
pub fn alias(module: &Module, name: &str) -> Option<String> {
    let asked: Vec<&str> = name.split('.').collect();
    let index = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    let reads = module.funcs.iter().flat_map(|f| &f.ops).filter(|op| op.code == Opcode::Weight);
    for op in reads {
        let own: Vec<&str> = op.loc.path.split('.').collect();
        let fits = |(a, b): (&&str, &&str)| a == b || a.starts_with('{') && index(b);
        if own.len() != asked.len() || !own.iter().zip(&asked).all(fits) {
            continue;
        }
        let weight = &module.weights.get(usize::try_from(op.int("weight")?).ok()?)?.name;
        let mut indices = own.iter().zip(&asked).filter(|(a, b)| a.starts_with('{') && index(b)).map(|(_, b)| *b);
        let part = |p: &'_ str| if p.starts_with('{') { indices.next().unwrap_or(p).to_owned() } else { p.to_owned() };
        return Some(weight.split('.').map(part).collect::<Vec<_>>().join("."));
    }
    None
}
