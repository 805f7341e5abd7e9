//! `spinec eval`: any entry or graph on given tensors.

use crate::args::EvalArgs;
use crate::exit::Exit;
use crate::files;
use crate::output;
use serde_json::json;
use spinec_exec::checkpoint::Checkpoint;
use spinec_exec::cpu::Capacity;
use spinec_exec::eval::{
    EvalError, EvalOptions, Evaluated, eval_entry, from_file, note_unread, once, path_wanted, to_file,
};
use spinec_exec::host::FsHost;
use spinec_exec::runtime::Tables;
use spinec_exec::tensorfile::{read_tensors, write_tensors};
use spinec_ir::diag::SourceMap;
use spinec_ir::interp::WeightStore;
use spinec_ir::ir::{Weight, WeightId};
use spinec_ir::spec::load_graph;
use spinec_ir::tensor::Tensor;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Evaluations have no serving bounds; memory is taken as positions are written.
const CAPACITY: Capacity = Capacity { positions: 1 << 32, requests: 1 << 16 };

/// Runs an evaluation.
pub fn run(args: &EvalArgs) -> Exit {
    match evaluate(args) {
        Ok(out) => write(args, out),
        Err(exit) => exit,
    }
}

fn evaluate(args: &EvalArgs) -> Result<Evaluated, Exit> {
    if same(&args.inputs, &args.output) {
        output::error(&format!("-o {} is the input file; name another for the results", args.output.display()));
        return Err(Exit::Usage);
    }
    let given = read_inputs(args)?;
    let options = EvalOptions { dump: args.dump.clone(), chunk: args.chunk };
    if is_graph(args) {
        return graph(args, &given, &options);
    }
    let (system, sources) = files::load_system(&args.spec, true)?;
    let Some(entry) = &args.entry else {
        output::error(&format!(
            "--entry is needed; the entries of {} are {}",
            system.name,
            system.entries().join(", ")
        ));
        return Err(Exit::Usage);
    };
    let checkpoints = files::open_checkpoints(&system)?;
    let configs = ["config.json", "generation_config.json", "model.safetensors.index.json"];
    let of = |c: &Checkpoint| {
        let configs = configs.iter().map(|n| c.dir().join(n));
        configs.chain(c.weight_files().map(Path::to_path_buf)).collect::<Vec<_>>()
    };
    keep(args, spec_files(args, &sources).chain(checkpoints.values().flat_map(of)))?;
    let store = files::bind_weights(&system, &sources, checkpoints, args.strict)?;
    let tables = Tables { weights: system.weights.clone(), states: system.states.clone() };
    let mut runtime =
        files::runtime(args.backend, &tables, system.numerics, Box::new(store), args.threads, CAPACITY, None)?;
    eval_entry(&system, runtime.as_mut(), entry, &given, &options).map_err(|e| failed(e, &sources))
}

/// True if both paths lead to one file, by whatever links.
fn same(a: &Path, b: &Path) -> bool {
    matches!((std::fs::canonicalize(a), std::fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// The spec and every file it is made of.
fn spec_files<'a>(args: &'a EvalArgs, sources: &'a SourceMap) -> impl Iterator<Item = PathBuf> + 'a {
    std::iter::once(args.spec.spec.clone()).chain(sources.files().map(|(_, f)| PathBuf::from(&f.name)))
}

/// Refuses to write the results over a file that is read.
fn keep(args: &EvalArgs, mut read: impl Iterator<Item = PathBuf>) -> Result<(), Exit> {
    let Some(over) = read.find(|r| same(r, &args.output)) else { return Ok(()) };
    output::error(&format!(
        "-o {} is {}, which is read here; name another file for the results",
        args.output.display(),
        over.display()
    ));
    Err(Exit::Usage)
}

/// True if the spec is a graph file. A file that cannot be read is reported by the loader.
fn is_graph(args: &EvalArgs) -> bool {
    std::fs::read_to_string(&args.spec.spec).is_ok_and(|t| !t.lines().any(|l| l.starts_with("system:")))
}

fn graph(args: &EvalArgs, given: &BTreeMap<String, Tensor>, options: &EvalOptions) -> Result<Evaluated, Exit> {
    let over = files::overrides(&args.spec, true)?;
    if !over.checkpoints.is_empty() {
        output::error("a graph on its own takes its weights from --inputs, by path; checkpoints belong to systems");
        return Err(Exit::Usage);
    }
    let shapes = given.iter().map(|(n, t)| (n.clone(), t.shape.clone())).collect();
    let wanted = |path: &str| path_wanted(&options.dump, path);
    let wanted: Option<&dyn Fn(&str) -> bool> = if options.dump.is_empty() { None } else { Some(&wanted) };
    let path = args.spec.spec.to_string_lossy();
    let loaded = load_graph(&path, &FsHost, &over, args.entry.as_deref(), &shapes, wanted);
    let loaded = loaded.map_err(|(sources, diags)| {
        let exit = Exit::of(&diags);
        output::diagnostics(diags, &sources);
        exit
    })?;
    keep(args, spec_files(args, &loaded.sources))?;
    let module = loaded.module;
    let mut out = Evaluated::default();
    let weights = weight_names(&module.weights);
    let known = |n: &str| loaded.input_types.contains_key(n) || weights.iter().any(|w| w == n);
    let names = loaded.input_types.keys().chain(&weights).map(String::as_str);
    note_unread(given, known, names, &format!("graph `{}`", module.funcs[0].name), &mut out);
    let store = Given::new(&module.weights, given, args.strict)?;
    let tables = Tables { weights: module.weights.clone(), states: module.states.clone() };
    let mut runtime =
        files::runtime(args.backend, &tables, module.numerics, Box::new(store), args.threads, CAPACITY, None)?;
    let program = runtime.add(module.clone()).map_err(|e| failed(e.into(), &loaded.sources))?;
    once(runtime.as_mut(), program, &module, given, &loaded.input_types, options, &mut out)
        .map_err(|e| failed(e, &loaded.sources))?;
    Ok(out)
}

/// A weight's path with indices for loop variables.
fn weight_name(w: &Weight, index: &[i64]) -> String {
    let mut name = w.name.clone();
    for ((var, _), i) in w.loops.iter().zip(index) {
        name = name.replace(&format!("{{{var}}}"), &i.to_string());
    }
    name
}

fn weight_names(weights: &[Weight]) -> Vec<String> {
    let all = |w| spinec_exec::weights::indices(w).into_iter().map(move |i| weight_name(w, &i));
    weights.iter().flat_map(all).collect()
}

/// Weights of a graph on its own: tensors of the input file by path.
struct Given {
    tensors: BTreeMap<(WeightId, Vec<i64>), Tensor>,
}

impl Given {
    fn new(weights: &[Weight], given: &BTreeMap<String, Tensor>, strict: bool) -> Result<Given, Exit> {
        let mut tensors = BTreeMap::new();
        let mut ok = true;
        for (i, w) in weights.iter().enumerate() {
            let want = spinec_exec::weights::shape(w);
            for index in spinec_exec::weights::indices(w) {
                let name = weight_name(w, &index);
                let Some(t) = given.get(&name) else {
                    output::error(&format!("weight `{name}` is not among the input tensors"));
                    ok = false;
                    continue;
                };
                if want.as_ref() != Some(&t.shape) {
                    output::error(&format!("weight `{name}` is {:?}, the graph needs {}", t.shape, w.ty));
                    ok = false;
                    continue;
                }
                if let Some(declared) = w.storage.filter(|d| strict && *d != t.dtype) {
                    output::error(&format!(
                        "weight `{name}` is {}, the graph declares {declared}; without --strict it is converted",
                        t.dtype
                    ));
                    ok = false;
                    continue;
                }
                match t.cast(w.ty.dtype) {
                    Some(t) => {
                        tensors.insert((WeightId(i as u32), index), t);
                    }
                    None => {
                        output::error(&format!("weight `{name}` is {}, the graph needs {}", t.dtype, w.ty));
                        ok = false;
                    }
                }
            }
        }
        if ok { Ok(Given { tensors }) } else { Err(Exit::Checkpoint) }
    }
}

impl WeightStore for Given {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        self.tensors.get(&(id, index.to_vec())).cloned().ok_or_else(|| "the weight was not given".to_string())
    }

    fn rows(&self, id: WeightId, index: &[i64], rows: Range<usize>) -> Result<Tensor, String> {
        let t = self.tensors.get(&(id, index.to_vec())).ok_or("the weight was not given")?;
        t.rows(rows.clone()).ok_or_else(|| format!("extents {:?} have no entries {rows:?}", t.shape))
    }
}

fn read_inputs(args: &EvalArgs) -> Result<BTreeMap<String, Tensor>, Exit> {
    let file = read_tensors(&args.inputs).map_err(|problems| {
        for p in problems {
            output::error(&p.to_string());
        }
        Exit::Checkpoint
    })?;
    let mut out = BTreeMap::new();
    for (name, t) in file {
        let t = from_file(&name, t).map_err(|e| {
            output::error(&format!("{}: {e}", args.inputs.display()));
            Exit::Checkpoint
        })?;
        out.insert(name, t);
    }
    Ok(out)
}

fn failed(e: EvalError, sources: &SourceMap) -> Exit {
    match e {
        EvalError::Spec(diags) => {
            let exit = Exit::of(&diags);
            output::diagnostics(diags, sources);
            exit
        }
        EvalError::Inputs(m) => {
            output::error(&m);
            Exit::Checkpoint
        }
        EvalError::Run(e) => {
            output::error(&e.to_string());
            Exit::Failed
        }
    }
}

fn write(args: &EvalArgs, out: Evaluated) -> Exit {
    for n in &out.notes {
        output::note(n);
    }
    let mut tensors = BTreeMap::new();
    for (name, t) in &out.tensors {
        match to_file(name, t) {
            Ok(t) => {
                tensors.insert(name.clone(), t);
            }
            Err(e) => {
                output::error(&e);
                return Exit::Failed;
            }
        }
    }
    if let Err(e) = write_tensors(&args.output, &tensors) {
        output::error(&e.to_string());
        return Exit::Failed;
    }
    let list: Vec<_> =
        out.tensors.iter().map(|(n, t)| json!({"name": n, "dtype": t.dtype.name(), "shape": t.shape})).collect();
    if args.json {
        output::json(&json!({"schema": "spinec.eval/1", "output": args.output, "tensors": list, "notes": out.notes}));
    } else {
        for (n, t) in &out.tensors {
            output::line(&format!("{n}: {}{:?}", t.dtype, t.shape));
        }
    }
    Exit::Ok
}
