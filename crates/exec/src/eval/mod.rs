//! Running any entry of a system, or any graph, on given tensors.

mod inputs;
mod stream;

pub use inputs::{from_file, to_file};

use crate::runtime::{Mode, ProgramId, RequestId, RunError, Runtime};
use spinec_ir::diag::{Diagnostics, suggest};
use spinec_ir::interp::{Observer, bind_symbols};
use spinec_ir::ir::Module;
use spinec_ir::ops::Effect;
use spinec_ir::spec::system::{EntryModule, System};
use spinec_ir::tensor::Tensor;
use std::collections::BTreeMap;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct EvalOptions {
    /// Globs of named values to write besides the outputs.
    pub dump: Vec<String>,
    /// Rows fed at once to a stream; `None` is the system's prefill chunk.
    pub chunk: Option<usize>,
}

/// Why an evaluation failed.
#[derive(Debug)]
pub enum EvalError {
    /// The spec is wrong, or has no such entry.
    Spec(Diagnostics),
    /// The input tensors do not fit.
    Inputs(String),
    /// The run failed.
    Run(RunError),
}

impl From<RunError> for EvalError {
    fn from(e: RunError) -> Self {
        EvalError::Run(e)
    }
}

/// Outputs, and what was left out or converted.
#[derive(Debug, Default)]
pub struct Evaluated {
    /// Outputs and dumped values by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

/// True if a node path without loop indices can match one of the globs.
pub fn path_wanted(globs: &[String], path: &str) -> bool {
    globs.iter().any(|g| {
        let without: Vec<&str> =
            g.split('.').filter(|p| p.is_empty() || !p.chars().all(|c| c.is_ascii_digit())).collect();
        // A star may stand for the index as well as for a name.
        glob(&without.join("."), path) || star_may_be_index(g, path)
    })
}

fn star_may_be_index(g: &str, path: &str) -> bool {
    let parts: Vec<&str> = g.split('.').collect();
    let stars: Vec<usize> = (0..parts.len()).filter(|i| parts[*i] == "*").collect();
    stars.iter().any(|skip| {
        let rest: Vec<&str> = parts.iter().enumerate().filter(|(i, _)| i != skip).map(|(_, p)| *p).collect();
        glob(&rest.join("."), path)
    })
}

/// `*` stands for any text; a glob may also name the end of a path from a dot on.
fn glob(pattern: &str, path: &str) -> bool {
    fn whole(p: &[u8], s: &[u8]) -> bool {
        // Iterative matching with one backtrack point: linear in practice, never exponential.
        let (mut i, mut j, mut star, mut mark) = (0, 0, None, 0);
        while j < s.len() {
            if i < p.len() && p[i] == b'*' {
                star = Some(i);
                mark = j;
                i += 1;
            } else if i < p.len() && (p[i] == s[j] || p[i] == b'?') {
                i += 1;
                j += 1;
            } else if let Some(at) = star {
                i = at + 1;
                mark += 1;
                j = mark;
            } else {
                return false;
            }
        }
        p[i..].iter().all(|c| *c == b'*')
    }
    let ends = std::iter::once(path).chain(path.match_indices('.').map(|(i, _)| &path[i + 1..]));
    ends.into_iter().any(|s| whole(pattern.as_bytes(), s.as_bytes()))
}

/// Collects dumped values.
struct Dump<'d> {
    globs: &'d [String],
    values: BTreeMap<String, Tensor>,
}

impl Observer for Dump<'_> {
    fn wants(&self, path: &str) -> bool {
        self.globs.iter().any(|g| glob(g, path))
    }

    fn value(&mut self, full_path: &str, t: &Tensor) {
        self.values.insert(full_path.to_string(), t.clone());
    }
}

/// Lowers an entry for the inputs that are given.
pub fn entry_module(
    system: &System,
    entry: &str,
    given: &BTreeMap<String, Tensor>,
    dump: &[String],
) -> Result<EntryModule, EvalError> {
    let stream = system.stream(entry);
    let available = |name: &str| given.contains_key(name) || stream.is_some();
    let wanted = |path: &str| path_wanted(dump, path);
    let wanted: Option<&dyn Fn(&str) -> bool> = if dump.is_empty() { None } else { Some(&wanted) };
    system.entry_module(entry, Some(&available), wanted).map_err(EvalError::Spec)
}

/// Runs an entry of a system.
pub fn eval_entry(
    system: &System,
    runtime: &mut dyn Runtime,
    entry: &str,
    given: &BTreeMap<String, Tensor>,
    options: &EvalOptions,
) -> Result<Evaluated, EvalError> {
    let lowered = entry_module(system, entry, given, &options.dump)?;
    let mut out = Evaluated::default();
    for (name, missing) in &lowered.left_out {
        out.notes.push(format!("output `{name}` is left out: input `{missing}` is not given"));
    }
    let inputs = system.entry_inputs(entry).unwrap_or_default();
    let fed = lowered.stream.as_ref().map(|s| [Some(&s.tokens), s.blocks.as_ref(), s.keep.as_ref()]);
    let read: Vec<&str> = match &fed {
        // What a stream feeds is no tensor of the file.
        Some(fed) => {
            let others = inputs.iter().filter(|i| !["tokens", "positions", "rows"].contains(&i.as_str()));
            fed.iter().copied().flatten().chain(others).map(String::as_str).collect()
        }
        None => inputs.iter().map(String::as_str).collect(),
    };
    note_unread(given, |n| read.contains(&n), read.iter().copied(), &format!("entry `{entry}`"), &mut out);
    let module = lowered.module.clone();
    let program = runtime.add(lowered.module)?;
    let func = &module.funcs[0];
    match &lowered.stream {
        Some(s) => stream::run(system, runtime, program, func, s, given, options, &mut out)?,
        None => {
            if let Some(n) = options.chunk {
                return Err(EvalError::Inputs(format!(
                    "entry `{entry}` takes no stream of rows, --chunk {n} has no meaning"
                )));
            }
            if func.outputs.is_empty() {
                let need = system.entry_inputs(entry).unwrap_or_default();
                return Err(EvalError::Inputs(format!(
                    "no output can be made from the given tensors; entry `{entry}` takes {}",
                    need.join(", ")
                )));
            }
            let types = system.entry_input_types(entry);
            once(runtime, program, &module, given, &types, options, &mut out)?;
        }
    }
    Ok(out)
}

/// Notes the tensors of an input file that nothing reads: a misspelled one would be missed silently otherwise.
pub fn note_unread<'n>(
    given: &BTreeMap<String, Tensor>,
    known: impl Fn(&str) -> bool,
    names: impl Iterator<Item = &'n str> + Clone,
    what: &str,
    out: &mut Evaluated,
) {
    for name in given.keys().filter(|n| !known(n)) {
        let near = suggest(name, names.clone().filter(|n| !given.contains_key(*n)));
        let near = near.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
        out.notes.push(format!("tensor `{name}` of the input file is read by nothing in {what}{near}"));
    }
}

/// Runs the first function of a module once, with fresh state. `types` are those of its inputs as the spec writes them.
pub fn once(
    runtime: &mut dyn Runtime,
    program: ProgramId,
    module: &Module,
    given: &BTreeMap<String, Tensor>,
    types: &BTreeMap<String, String>,
    options: &EvalOptions,
    out: &mut Evaluated,
) -> Result<(), EvalError> {
    let func = &module.funcs[0];
    let args = inputs::arguments(func, given)?;
    let refs: Vec<&Tensor> = args.iter().collect();
    let requests = open_requests(runtime, module, &args, types)?;
    let results = observed(runtime, program, &refs, &requests, Mode::Immediate, &options.dump, out)?;
    out.tensors.extend(func.outputs.iter().cloned().zip(results));
    for r in requests {
        runtime.close(r);
    }
    Ok(())
}

fn observed(
    runtime: &mut dyn Runtime,
    program: ProgramId,
    args: &[&Tensor],
    requests: &[RequestId],
    mode: Mode,
    dump: &[String],
    out: &mut Evaluated,
) -> Result<Vec<Tensor>, EvalError> {
    if dump.is_empty() {
        return Ok(runtime.run(program, 0, args, requests, mode, None)?);
    }
    let mut observer = Dump { globs: dump, values: BTreeMap::new() };
    let results = runtime.run(program, 0, args, requests, mode, Some(&mut observer))?;
    if observer.values.is_empty() {
        out.notes.push(format!("no value is named like {}", dump.join(", ")));
    }
    out.tensors.extend(observer.values);
    Ok(results)
}

/// One request for every row of the batch axis of the state ops; none if there are none.
fn open_requests(
    runtime: &mut dyn Runtime,
    module: &Module,
    args: &[Tensor],
    types: &BTreeMap<String, String>,
) -> Result<Vec<RequestId>, EvalError> {
    let func = &module.funcs[0];
    let env = bind_symbols(func, &module.symbols, args).map_err(|e| {
        let written = types.get(&*e.path).map(|t| format!("; it is declared as {t}")).unwrap_or_default();
        EvalError::Inputs(format!("{}{written}", e.message))
    })?;
    let mut n = None;
    for op in func.ops.iter().filter(|o| o.code.def().effect != Effect::Pure && o.operands.len() > 1) {
        let batch = op.operands.iter().filter_map(|v| func.tensor(*v)).find(|t| t.rank() >= 2);
        if let Some(size) = batch.and_then(|t| t.dims[0].eval(&env)) {
            n = Some(n.unwrap_or(0).max(size));
        }
    }
    let mut out = Vec::new();
    for _ in 0..n.unwrap_or(0) {
        out.push(runtime.open(EVAL_POSITIONS)?);
    }
    Ok(out)
}

/// Positions a request of an evaluation may grow to.
pub(crate) const EVAL_POSITIONS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_paths_and_their_ends() {
        assert!(glob("layers.3.x", "layers.3.x"));
        assert!(glob("layers.3.x", "t.layers.3.x"));
        assert!(glob("*.x", "t.layers.3.x"));
        assert!(!glob("layers.3.x", "layers.13.x"));
        assert!(!glob("ayers.3.x", "layers.3.x"));
    }

    #[test]
    fn indices_are_not_part_of_node_paths() {
        assert!(path_wanted(&["layers.3.x".into()], "t.layers.x"));
        assert!(path_wanted(&["layers.*.x".into()], "layers.x"));
        assert!(path_wanted(&["*".into()], "anything.at.all"));
        assert!(!path_wanted(&["layers.3.y".into()], "layers.x"));
    }
}
