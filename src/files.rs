//! Loading specs and checkpoints, with messages and exit codes.

use crate::args::{Backend, SpecArgs};
use crate::exit::Exit;
use crate::output;
use spinec_exec::checkpoint::Checkpoint;
use spinec_exec::cpu::{Capacity, CpuRuntime, OnProgress};
use spinec_exec::host::FsHost;
use spinec_exec::interp_runtime::InterpRuntime;
use spinec_exec::runtime::{Runtime, Tables};
use spinec_exec::weights::{CheckpointWeights, DtypeRule};
use spinec_ir::diag::{Diagnostics, SourceMap};
use spinec_ir::interp::WeightStore;
use spinec_ir::spec::system::{Overrides, System};
use spinec_ir::spec::{Loaded, load};
use spinec_ir::ty::Numerics;
use std::collections::BTreeMap;

/// The overrides of a command line.
pub fn overrides(args: &SpecArgs, no_limits: bool) -> Result<Overrides, Exit> {
    let mut over = Overrides { numerics: args.with.numerics.map(Into::into), no_limits, ..Overrides::default() };
    for s in &args.with.sets {
        let Some((name, value)) = s.split_once('=') else {
            output::error(&format!("--set {s}: NAME=VALUE is expected"));
            return Err(Exit::Usage);
        };
        over.sets.push((name.trim().to_string(), value.trim().to_string()));
    }
    for c in &args.with.checkpoints {
        let Some((name, dir)) = c.split_once('=') else {
            output::error(&format!("--checkpoint {c}: NAME=DIR is expected"));
            return Err(Exit::Usage);
        };
        over.checkpoints.insert(name.to_string(), dir.to_string());
    }
    Ok(over)
}

/// A spec that was loaded, with everything there is to say about it.
pub struct Spec {
    pub sources: SourceMap,
    pub diags: Diagnostics,
    pub system: Option<System>,
}

/// Loads a spec without printing anything.
pub fn load_spec(args: &SpecArgs, no_limits: bool) -> Result<Spec, Exit> {
    let over = overrides(args, no_limits)?;
    Ok(match load(&args.spec.to_string_lossy(), &FsHost, &over) {
        Loaded::System(l) => Spec { sources: l.sources, diags: l.diags, system: l.system },
        Loaded::Graph { sources, diags } => Spec { sources, diags, system: None },
    })
}

/// Loads a system; messages go to stderr.
pub fn load_system(args: &SpecArgs, no_limits: bool) -> Result<(System, SourceMap), Exit> {
    let Spec { sources, diags, system } = load_spec(args, no_limits)?;
    let exit = Exit::of(&diags);
    output::diagnostics(diags, &sources);
    if exit != Exit::Ok {
        return Err(exit);
    }
    match system {
        Some(s) => Ok((s, sources)),
        None => {
            output::error(&format!("{} is a graph; this command takes a system", args.spec.display()));
            Err(Exit::Usage)
        }
    }
}

/// Opens every checkpoint of a system; all problems are reported.
pub fn open_checkpoints(system: &System) -> Result<BTreeMap<String, Checkpoint>, Exit> {
    let mut out = BTreeMap::new();
    let mut failed = false;
    for c in &system.checkpoints {
        match Checkpoint::open(&c.dir) {
            Ok(k) => {
                for n in k.notes() {
                    output::note(&format!("{}: {n}", c.dir));
                }
                out.insert(c.name.clone(), k);
            }
            Err(problems) => {
                failed = true;
                for p in problems {
                    output::error(&p.to_string());
                }
            }
        }
    }
    if failed { Err(Exit::Checkpoint) } else { Ok(out) }
}

/// Checks the weights of a system against its checkpoints.
pub fn bind_weights(
    system: &System,
    sources: &SourceMap,
    checkpoints: BTreeMap<String, Checkpoint>,
    strict: bool,
) -> Result<CheckpointWeights, Exit> {
    let rule = if strict { DtypeRule::Strict } else { DtypeRule::Convert };
    let (store, diags) = CheckpointWeights::bind(&system.weights, checkpoints, &system.checkpoints, rule);
    output::diagnostics(system.explain_tensors(diags, sources), sources);
    store.ok_or(Exit::Checkpoint)
}

/// A runtime of the asked-for kind, which tells of weights it is long in making.
pub fn runtime(
    backend: Backend,
    tables: &Tables,
    numerics: Numerics,
    store: Box<dyn WeightStore + Send + Sync>,
    threads: usize,
    capacity: Capacity,
    progress: Option<OnProgress>,
) -> Result<Box<dyn Runtime>, Exit> {
    match backend {
        Backend::Interp => Ok(Box::new(InterpRuntime::new(tables, numerics, store))),
        Backend::Cpu => {
            let threads = match threads {
                0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
                n => n,
            };
            match CpuRuntime::new(tables, store, threads, capacity) {
                Ok(mut r) => {
                    if let Some(tell) = progress {
                        r.on_progress(tell);
                    }
                    Ok(Box::new(r))
                }
                Err(e) => {
                    output::error(&e.to_string());
                    Err(Exit::DoesNotFit)
                }
            }
        }
    }
}
