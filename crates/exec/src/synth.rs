//! Random checkpoints for a system: everything its graphs declare, at scales that keep activations near one.

use crate::checkpoint::{Dtype, Init, SynthTensor, TensorSpec, WriteError, write_synth_checkpoint_unless};
use crate::weights::{indices, shape, tensor_name};
use spinec_ir::diag::Diagnostics;
use spinec_ir::ir::{Module, Weight};
use spinec_ir::ops::Opcode;
use spinec_ir::spec::system::System;
use spinec_ir::ty::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Why no checkpoints were written.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// The phases of the system cannot be lowered.
    #[error("the phases of the system cannot be used")]
    Spec(Diagnostics),
    /// A checkpoint has no configuration to start from.
    #[error("checkpoint `{0}` has no config.json to start from")]
    NoConfig(String),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It was stopped; the checkpoint being written is not there.
    #[error("stopped")]
    Stopped,
}

/// A checkpoint directory that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where.
    pub dir: PathBuf,
    /// How many tensors it holds.
    pub tensors: usize,
}

/// Writes one checkpoint directory below `output` for every checkpoint of the system, named as in the system file. The
/// values depend on `seed` and the tensor's name alone.
///
/// # Errors
/// The first that is met; what was written before stays.
pub fn write_checkpoints(system: &System, output: &Path, seed: u64) -> Result<Vec<Written>, SynthError> {
    write_checkpoints_unless(system, output, seed, &AtomicBool::new(false))
}

/// [`write_checkpoints`], given up once `stopped` is set.
///
/// # Errors
/// As there, and [`SynthError::Stopped`].
pub fn write_checkpoints_unless(
    system: &System,
    output: &Path,
    seed: u64,
    stopped: &AtomicBool,
) -> Result<Vec<Written>, SynthError> {
    let scales = norm_weights(system).map_err(SynthError::Spec)?;
    let mut tensors: BTreeMap<String, BTreeMap<String, SynthTensor>> = BTreeMap::new();
    for w in &system.weights {
        let Some(dims) = shape(w) else { continue };
        for index in indices(w) {
            let Some((checkpoint, name)) = tensor_name(w, &index) else { continue };
            let spec = TensorSpec { name: name.clone(), dtype: file_dtype(w), shape: dims.clone() };
            let init = init(&dims, scales.contains(&w.name));
            tensors.entry(checkpoint).or_default().insert(name, SynthTensor { spec, init });
        }
    }
    let mut out = Vec::new();
    for c in &system.checkpoints {
        let config = system.patched_config(&c.name).ok_or_else(|| SynthError::NoConfig(c.name.clone()))?;
        let list: Vec<SynthTensor> = tensors.remove(&c.name).unwrap_or_default().into_values().collect();
        let dir = output.join(&c.name);
        let written = write_synth_checkpoint_unless(&dir, &format!("{config:#}\n"), None, &list, seed, stopped);
        if stopped.load(Ordering::Relaxed) {
            return Err(SynthError::Stopped);
        }
        written?;
        out.push(Written { dir, tensors: list.len() });
    }
    Ok(out)
}

fn file_dtype(w: &Weight) -> Dtype {
    match w.storage {
        Some(DType::F64) => Dtype::F64,
        Some(DType::F32) => Dtype::F32,
        Some(DType::F16) => Dtype::F16,
        _ => Dtype::BF16,
    }
}

/// Matrices by their fan-in, norm scales around one, other vectors around zero.
fn init(dims: &[usize], is_scale: bool) -> Init {
    match dims {
        [] | [_] if is_scale => Init::Normal { mean: 1.0, std: 0.1 },
        [] | [_] => Init::Normal { mean: 0.0, std: 0.1 },
        [.., k] => Init::Normal { mean: 0.0, std: 1.0 / (*k as f64).sqrt() },
    }
}

/// Weights that multiply a normalised value as they are.
fn norm_weights(system: &System) -> Result<BTreeSet<String>, Diagnostics> {
    let mut out = BTreeSet::new();
    let choices =
        BTreeMap::from([("law".to_string(), "greedy".to_string()), ("candidates".to_string(), "coarse".to_string())]);
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
