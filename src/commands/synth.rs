//! `spinec synth`: random checkpoints for a system.

use crate::args::SynthArgs;
use crate::exit::Exit;
use crate::files;
use crate::output;
use spinec_exec::checkpoint::{Dtype, Init, SynthTensor, TensorSpec, write_synth_checkpoint};
use spinec_exec::weights::{indices, shape, tensor_name};
use spinec_ir::ir::{Module, Weight};
use spinec_ir::ops::Opcode;
use spinec_ir::spec::system::System;
use spinec_ir::ty::DType;
use std::collections::{BTreeMap, BTreeSet};

/// Writes one checkpoint directory for every checkpoint of the system.
pub fn run(args: &SynthArgs) -> Exit {
    match write(args) {
        Ok(()) => Exit::Ok,
        Err(exit) => exit,
    }
}

fn write(args: &SynthArgs) -> Result<(), Exit> {
    let (system, sources) = files::load_system(&args.spec, true)?;
    let scales = norm_weights(&system).map_err(|diags| {
        output::diagnostics(diags, &sources);
        Exit::Usage
    })?;
    let mut tensors: BTreeMap<String, BTreeMap<String, SynthTensor>> = BTreeMap::new();
    for w in &system.weights {
        let Some(dims) = shape(w) else { continue };
        for index in indices(w) {
            let Some((checkpoint, name)) = tensor_name(w, &index) else { continue };
            let spec = TensorSpec { name: name.clone(), dtype: file_dtype(w), shape: dims.clone() };
            let init = init(w, &dims, scales.contains(&w.name));
            tensors.entry(checkpoint).or_default().insert(name, SynthTensor { spec, init });
        }
    }
    for c in &system.checkpoints {
        let config = system.patched_config(&c.name).ok_or_else(|| {
            output::error(&format!("checkpoint `{}` has no config.json to start from", c.name));
            Exit::Checkpoint
        })?;
        let list: Vec<SynthTensor> = tensors.remove(&c.name).unwrap_or_default().into_values().collect();
        let dir = args.output.join(&c.name);
        write_synth_checkpoint(&dir, &format!("{config:#}\n"), None, &list, args.seed).map_err(|e| {
            output::error(&e.to_string());
            Exit::Failed
        })?;
        println!("{}: {} tensors", dir.display(), list.len());
    }
    Ok(())
}

fn file_dtype(w: &Weight) -> Dtype {
    match w.storage {
        Some(DType::F64) => Dtype::F64,
        Some(DType::F32) => Dtype::F32,
        Some(DType::F16) => Dtype::F16,
        _ => Dtype::BF16,
    }
}

/// Values that keep activations near unit scale: matrices by their fan-in, norm scales around one, other vectors around
/// zero.
fn init(w: &Weight, dims: &[usize], is_scale: bool) -> Init {
    match dims {
        [] | [_] if is_scale => Init::Normal { mean: 1.0, std: 0.1 },
        [] | [_] => Init::Normal { mean: 0.0, std: 0.1 },
        [.., k] => {
            let _ = w;
            Init::Normal { mean: 0.0, std: 1.0 / (*k as f64).sqrt() }
        }
    }
}

/// Weights that multiply a normalised value as they are.
fn norm_weights(system: &System) -> Result<BTreeSet<String>, spinec_ir::diag::Diagnostics> {
    let mut out = BTreeSet::new();
    let choices = BTreeMap::from([("law".to_string(), "greedy".to_string()), ("candidates".to_string(), "coarse".to_string())]);
    let phases = system.phase_module(&choices, &|_, _| true)?;
    collect(&phases.module, &mut out);
    Ok(out)
}

fn collect(module: &Module, out: &mut BTreeSet<String>) {
    for f in &module.funcs {
        for op in f.ops.iter().filter(|o| o.code == Opcode::RmsNorm) {
            let Some(v) = op.operands.get(1) else { continue };
            if let spinec_ir::ir::ValueDef::Result(def, _) = f.value(*v).def
                && f.op(def).code == Opcode::Weight
                && let Some(w) = f.op(def).int("weight").and_then(|i| module.weights.get(usize::try_from(i).ok()?))
            {
                out.insert(w.name.clone());
            }
        }
    }
}
