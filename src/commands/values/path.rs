//! Node paths as users give them.

use spinec_ir::ir::{Func, Module, Nest, OpId, RegionId, Taken, ValueDef, ValueId};
use spinec_ir::ops::Opcode;

/// A node path as the user gave it.
pub struct ValuePath {
    /// Without indices, as values are named.
    pub plain: String,
    /// The indices it had: the path of the loop, and which of its iterations.
    pub indices: Vec<(String, i64)>,
}

/// What a path stands for in a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The values it names, or those of the intermediates of an expression.
    pub values: Vec<ValueId>,
    /// The ops that make them, where ops do.
    pub ops: Vec<OpId>,
}

impl Found {
    /// Whether the function has nothing of that name.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.ops.is_empty()
    }
}

impl ValuePath {
    /// `layers.3.x` as `layers.x` with the third iteration of `layers`.
    ///
    /// # Errors
    /// An index that no loop can have.
    pub fn parse(path: &str) -> Result<ValuePath, String> {
        let (mut parts, mut indices): (Vec<&str>, Vec<(String, i64)>) = (Vec::new(), Vec::new());
        for part in path.split('.') {
            if part.is_empty() || !part.chars().all(|c| c.is_ascii_digit()) {
                parts.push(part);
                continue;
            }
            let at = part.parse().map_err(|_| format!("{} is larger than any index of a loop", shown_index(part)))?;
            indices.push((parts.join("."), at));
        }
        Ok(ValuePath { plain: parts.join("."), indices })
    }

    /// The same value in any iteration.
    pub fn anywhere(&self) -> ValuePath {
        ValuePath { plain: self.plain.clone(), indices: Vec::new() }
    }

    /// What the path stands for: the values of that name, and the input or output of that name; else the intermediates of
    /// the expression of that name. With indices, only what these iterations compute.
    pub fn find(&self, func: &Func) -> Found {
        let nest = Nest::of(func);
        let all = (0..func.values.len() as u32)
            .map(ValueId)
            .filter(|v| nest.home(*v).is_some_and(|r| self.takes(func, &nest, r)));
        let mut values: Vec<ValueId> =
            all.filter(|v| func.value(*v).names.iter().any(|n| **n == *self.plain)).collect();
        let body = func.region(func.body);
        if self.indices.is_empty() {
            let input = func.inputs.iter().position(|n| *n == self.plain).and_then(|i| body.params.get(i));
            values.extend(input.into_iter().chain(output_of(func, &self.plain).as_ref()));
        }
        values.sort_unstable();
        values.dedup();
        if values.is_empty() && !self.plain.is_empty() {
            let ops: Vec<OpId> = (0..func.ops.len() as u32)
                .map(OpId)
                .filter(|id| *func.op(*id).loc.path == *self.plain)
                .filter(|id| nest.region(*id).is_some_and(|r| self.takes(func, &nest, r)))
                .collect();
            let values = ops.iter().flat_map(|id| func.op(*id).results.clone()).collect();
            return Found { values, ops };
        }
        let op = |v: &ValueId| match func.value(*v).def {
            ValueDef::Result(op, _) => Some(op),
            ValueDef::Param(..) => None,
        };
        let mut ops: Vec<OpId> = values.iter().filter_map(op).collect();
        ops.sort_unstable();
        ops.dedup();
        Found { values, ops }
    }

    /// Whether the iterations of the path reach a region, and it lies in their loops.
    fn takes(&self, func: &Func, nest: &Nest, region: RegionId) -> bool {
        self.indices.is_empty() || self.within(func, nest, region) && self.reaches(&nest.taken(region))
    }

    /// Whether the iterations of the path are among those in which something runs.
    pub fn reaches(&self, taken: &[Taken]) -> bool {
        let other = |t: &&Taken| self.indices.iter().any(|(path, at)| *t.path == **path && !t.iterations.contains(at));
        !taken.iter().any(|t| other(&t))
    }

    /// Whether every index is one of its loop, and the value is computed there.
    ///
    /// # Errors
    /// What is wrong, with the range there is.
    pub fn check(&self, module: &Module) -> Result<(), String> {
        let plain = self.anywhere();
        let there: Vec<&Func> = module.funcs.iter().filter(|f| !plain.find(f).is_empty()).collect();
        if there.is_empty() || self.indices.is_empty() {
            return Ok(());
        }
        for (path, at) in &self.indices {
            let extents: Vec<Option<i64>> = module.funcs.iter().flat_map(|f| extents(f, path)).collect();
            if extents.is_empty() {
                return Err(format!("`{path}` is no loop and has no index: write `{}`", self.plain));
            }
            if *path == self.plain {
                return Err(format!("`{path}` is a loop: name a value that it computes, as in `{path}.{at}.NAME`"));
            }
            // One that is known when the phase runs takes any index.
            let most = extents.into_iter().collect::<Option<Vec<i64>>>().and_then(|e| e.into_iter().max());
            if let Some(most) = most.filter(|most| at >= most) {
                return Err(format!("`{path}` has the indices 0 to {}, {at} is none of them", most - 1));
            }
        }
        if there.iter().any(|f| !self.find(f).is_empty()) {
            return Ok(());
        }
        let inside = |f: &&Func| {
            let nest = Nest::of(f);
            let home = |v: &ValueId| nest.home(*v).is_some_and(|r| self.within(f, &nest, r));
            plain.find(f).values.iter().any(home)
        };
        let at: Vec<String> = self.indices.iter().map(|(l, i)| format!("index {i} of `{l}`")).collect();
        Err(if there.iter().any(inside) {
            format!("`{}` is a value of another case than that of {}", self.plain, at.join(" and "))
        } else {
            format!("`{}` is not computed in an iteration: it has no index", self.plain)
        })
    }

    fn within(&self, func: &Func, nest: &Nest, region: RegionId) -> bool {
        let of = |path: &str| nest.outwards(region).any(|r| nest.owner(r).is_some_and(|op| is_loop(func, op, path)));
        self.indices.iter().all(|(path, _)| of(path))
    }

    /// The iterations that were named, for people: `d.layers = 3`.
    pub fn iterations(&self) -> Vec<String> {
        self.indices.iter().map(|(l, i)| format!("{l} = {i}")).collect()
    }
}

/// An index as it was written; of a very long one its beginning.
fn shown_index(digits: &str) -> String {
    const MOST: usize = 32;
    if digits.len() <= MOST { digits.to_string() } else { format!("{}...", &digits[..MOST]) }
}

fn is_loop(func: &Func, id: OpId, path: &str) -> bool {
    let op = func.op(id);
    op.code == Opcode::Loop && *op.loc.path == *path
}

/// Extents of the loops of a path; none where it is known only when the phase runs.
fn extents(func: &Func, path: &str) -> Vec<Option<i64>> {
    let loops = (0..func.ops.len() as u32).map(OpId).filter(|id| is_loop(func, *id, path));
    loops.map(|id| func.op(id).dim("extent").and_then(|d| d.as_const())).collect()
}

/// The value that a function hands out under a name.
pub fn output_of(func: &Func, name: &str) -> Option<ValueId> {
    let i = func.outputs.iter().position(|o| o == name)?;
    func.region(func.body).yields.get(i).copied()
}

#[cfg(test)]
mod tests {
    use super::ValuePath;
    use spinec_ir::ir::text::parse;

    const LOOPS: &str = r#"spinec-ir 1
module "m" numerics=f32

symbol T 1..16

func "prefill"
  input "x" = %0 : f32[T]
  %1 = loop(%0) {extent=T, keep=[], serial=true} : f32[T] at "t.walk"
    region (%2 : i32[], %3 "t.walk.s" : f32[T])
      %4 "t.walk.row" = neg(%3) : f32[T]
      yield %4
  return "y" = %1

func "decode"
  input "x" = %0 : f32[1]
  %1 = loop(%0) {extent=1, keep=[], serial=true} : f32[1] at "t.walk"
    region (%2 : i32[], %3 "t.walk.s" : f32[1])
      %4 "t.walk.row" = neg(%3) : f32[1]
      yield %4
  return "y" = %1
"#;

    #[test]
    fn a_loop_that_runs_as_often_as_a_phase_says_takes_any_index() {
        let mut module = parse(LOOPS).unwrap_or_else(|e| panic!("{}", e[0]));
        let check = |module: &_, path: &str| ValuePath::parse(path).and_then(|p| p.check(module));
        assert_eq!(check(&module, "t.walk.2.row"), Ok(()));
        // With the decoding phase alone there is one iteration.
        module.funcs.remove(0);
        assert_eq!(check(&module, "t.walk.0.row"), Ok(()));
        assert!(check(&module, "t.walk.2.row").is_err_and(|e| e.contains("0 to 0, 2 is none of them")));
        assert!(check(&module, "t.2.walk.row").is_err_and(|e| e.contains("`t` is no loop")));
    }

    #[test]
    fn a_path_is_found_by_names_inputs_outputs_and_expressions() {
        let module = parse(LOOPS).unwrap_or_else(|e| panic!("{}", e[0]));
        let func = &module.funcs[0];
        let find = |path: &str| ValuePath::parse(path).expect("a path").find(func);
        assert_eq!(find("t.walk.row").ops.len(), 1);
        assert_eq!((find("x").values.len(), find("x").ops.len()), (1, 0));
        assert_eq!(find("y").values, func.region(func.body).yields);
        assert_eq!(find("t.walk.0.s").values.len(), 1);
        assert!(find("t.walk").ops.len() == 1 && find("nothing").is_empty());
        // Neither inputs nor outputs are of an iteration.
        assert!(find("x.0").is_empty() && ValuePath::parse("a.99999999999999999999.b").is_err());
    }
}
