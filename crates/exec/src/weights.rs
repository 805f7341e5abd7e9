//! Weights of a system from its checkpoints: the load check, and reading by id.

use crate::checkpoint::{Checkpoint, Dtype};
use spinec_ir::diag::{Diagnostic, Diagnostics, codes};
use spinec_ir::interp::WeightStore;
use spinec_ir::ir::{Weight, WeightId};
use spinec_ir::spec::system::CheckpointRef;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Opened checkpoints by name, with the tensor behind every weight.
pub struct CheckpointWeights {
    checkpoints: BTreeMap<String, Checkpoint>,
    weights: Vec<Weight>,
}

/// How strictly dtypes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtypeRule {
    /// F32 and F16 files serve a BF16 weight, with a note.
    Convert,
    /// Files hold exactly what the spec declares.
    Strict,
}

/// Every combination of loop indices a weight exists for.
pub fn indices(w: &Weight) -> Vec<Vec<i64>> {
    let mut out: Vec<Vec<i64>> = vec![Vec::new()];
    for (_, extent) in &w.loops {
        out = out.iter().flat_map(|p| (0..*extent).map(move |i| p.iter().copied().chain([i]).collect())).collect();
    }
    if w.present.is_empty() {
        return out;
    }
    out.into_iter().zip(&w.present).filter(|(_, p)| **p).map(|(i, _)| i).collect()
}

/// The tensor name of a weight at loop indices.
pub fn tensor_name(w: &Weight, index: &[i64]) -> Option<(String, String)> {
    let source = w.source.as_ref()?;
    let mut name = source.tensor.clone();
    for ((var, _), i) in w.loops.iter().zip(index) {
        name = name.replace(&format!("{{{var}}}"), &i.to_string());
    }
    Some((source.checkpoint.clone(), name))
}

/// The extents of one element of a weight.
pub fn shape(w: &Weight) -> Option<Vec<usize>> {
    w.ty.dims.iter().map(|d| d.as_const().and_then(|v| usize::try_from(v).ok())).collect()
}

impl CheckpointWeights {
    /// Checks that every declared tensor is there once with the right shape and dtype, and that every tensor of the files
    /// is claimed or ignored by a pattern. All problems are reported.
    pub fn bind(
        weights: &[Weight],
        checkpoints: BTreeMap<String, Checkpoint>,
        refs: &[CheckpointRef],
        rule: DtypeRule,
    ) -> (Option<Self>, Diagnostics) {
        let mut diags = Diagnostics::default();
        let mut claimed: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut converted: BTreeMap<(String, String), usize> = BTreeMap::new();
        for r in refs {
            if let Some(c) = checkpoints.get(&r.name)
                && !c.has_weights()
            {
                diags.push(
                    Diagnostic::error_nowhere(
                        codes::CHECKPOINT,
                        format!("{} holds config.json, but no weights", r.dir),
                    )
                    .help(format!("give a directory with *.safetensors: --checkpoint {}=DIR", r.name)),
                );
            }
        }
        if diags.has_errors() {
            return (None, diags);
        }
        for w in weights {
            let Some(want) = shape(w) else {
                diags.push(Diagnostic::error_nowhere(
                    codes::UNBOUND_DIM,
                    format!("weight `{}` has no known shape: {}", w.name, w.ty),
                ));
                continue;
            };
            for index in indices(w) {
                let Some((checkpoint, name)) = tensor_name(w, &index) else { continue };
                let Some(c) = checkpoints.get(&checkpoint) else { continue };
                let key = refs.iter().find(|r| r.name == checkpoint).map_or("", |r| r.name.as_str());
                claimed.entry(key).or_default().insert(name.clone());
                let error = |text: String| {
                    let d = match w.span {
                        Some(span) => Diagnostic::error(codes::CHECKPOINT_TENSOR, span, text),
                        None => Diagnostic::error_nowhere(codes::CHECKPOINT_TENSOR, text),
                    };
                    match w.bound_at {
                        Some(at) => d.related(at, "bound by this line of the tensor table"),
                        None => d,
                    }
                };
                let Some(info) = c.tensor_info(&name) else {
                    let names: Vec<&str> = c.tensors().map(|t| t.name).collect();
                    let d = error(format!("checkpoint `{checkpoint}` has no tensor `{name}`"));
                    diags.push(match spinec_ir::diag::suggest(&name, names.iter().copied()) {
                        Some(near) => d.help(format!("it has `{near}`")),
                        None => d.help(format!(
                            "weight `{}` needs it; another checkpoint layout needs another tensor table",
                            w.name
                        )),
                    });
                    continue;
                };
                if info.shape != want.as_slice() {
                    diags.push(error(format!(
                        "tensor `{name}` of checkpoint `{checkpoint}` is {:?}, the graph needs {want:?}",
                        info.shape
                    )));
                }
                let declared = w.storage.map(storage_dtype);
                let known = matches!(info.dtype, Dtype::BF16 | Dtype::F16 | Dtype::F32 | Dtype::F64);
                match declared {
                    _ if !known => diags.push(error(format!("tensor `{name}` of checkpoint `{checkpoint}` is {:?}, which is no float the graphs compute with", info.dtype))),
                    Some(d) if d != info.dtype && rule == DtypeRule::Strict => {
                        diags.push(error(format!("tensor `{name}` of checkpoint `{checkpoint}` is {:?}, the graph declares {d:?}", info.dtype)).help("without --strict it is converted"));
                    }
                    Some(d) if d != info.dtype => {
                        *converted.entry((checkpoint.clone(), format!("{:?} to {d:?}", info.dtype))).or_default() += 1;
                    }
                    _ => {}
                }
            }
        }
        for r in refs {
            let Some(c) = checkpoints.get(&r.name) else { continue };
            let none = BTreeSet::new();
            let mine = claimed.get(r.name.as_str()).unwrap_or(&none);
            for t in c.tensors() {
                if !mine.contains(t.name) && !r.ignore.iter().any(|(p, _)| matches_pattern(p, t.name)) {
                    diags.push(
                        Diagnostic::error_nowhere(
                            codes::CHECKPOINT_TENSOR,
                            format!("tensor `{}` of checkpoint `{}` is used by no graph", t.name, r.name),
                        )
                        .help("bind it in the tensor table, or ignore it by pattern with a reason"),
                    );
                }
            }
        }
        for ((checkpoint, what), n) in converted {
            let mut d = Diagnostic::error_nowhere(
                codes::CHECKPOINT_TENSOR,
                format!("{n} tensors of checkpoint `{checkpoint}` are converted from {what}"),
            );
            d.severity = spinec_ir::diag::Severity::Note;
            diags.push(d);
        }
        let ok = !diags.has_errors();
        (ok.then(|| CheckpointWeights { checkpoints, weights: weights.to_vec() }), diags)
    }
}

fn storage_dtype(d: DType) -> Dtype {
    match d {
        DType::F64 => Dtype::F64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        _ => Dtype::F32,
    }
}

/// `*` stands for any text.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else { return false };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut last = first;
    let mut any = false;
    for part in parts {
        any = true;
        last = part;
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || (any && (last.is_empty() || name.ends_with(last)))
}

impl CheckpointWeights {
    /// A weight, or entries of its first axis.
    fn read(&self, id: WeightId, index: &[i64], rows: Option<Range<usize>>) -> Result<Tensor, String> {
        let w = self.weights.get(id.index()).ok_or("there is no such weight")?;
        let (checkpoint, name) =
            tensor_name(w, index).ok_or_else(|| format!("weight `{}` is bound to no tensor", w.name))?;
        let view = self
            .checkpoints
            .get(&checkpoint)
            .and_then(|c| c.tensor(&name))
            .ok_or_else(|| format!("checkpoint `{checkpoint}` has no tensor `{name}`"))?;
        let mut shape = view.shape().to_vec();
        let mut range = 0..view.len();
        if let Some(rows) = rows {
            let no_rows = || format!("tensor `{name}` of extents {:?} has no entries {rows:?}", view.shape());
            let (n, inner) = shape.split_first_mut().ok_or_else(no_rows)?;
            if rows.start > rows.end || rows.end > *n {
                return Err(no_rows());
            }
            let size: usize = inner.iter().product();
            range = rows.start * size..rows.end * size;
            *n = rows.len();
        }
        let dtype = w.ty.dtype;
        let t = if dtype == DType::F64 {
            let mut out = vec![0.0; range.len()];
            view.read_f64(range, &mut out).map_err(|e| e.to_string())?;
            Tensor::new(DType::F64, shape, Data::F64(out))
        } else {
            let mut out = vec![0.0; range.len()];
            view.read_f32(range, &mut out).map_err(|e| e.to_string())?;
            // bf16 numbers need no rounding to be bf16.
            let exact = dtype == DType::BF16 && view.dtype() == Dtype::BF16;
            Tensor::new(if exact { DType::BF16 } else { DType::F32 }, shape, Data::F32(out))
        };
        let t = t.ok_or_else(|| format!("tensor `{name}` does not fill its shape"))?;
        if t.dtype == dtype {
            return Ok(t);
        }
        t.cast(dtype).ok_or_else(|| format!("tensor `{name}` cannot be {dtype}"))
    }
}

impl WeightStore for CheckpointWeights {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        self.read(id, index, None)
    }

    fn rows(&self, id: WeightId, index: &[i64], rows: Range<usize>) -> Result<Tensor, String> {
        self.read(id, index, Some(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;

    #[test]
    fn patterns() {
        assert!(matches_pattern("model.visual.*", "model.visual.patch.weight"));
        assert!(matches_pattern("*.bias", "a.b.bias"));
        assert!(matches_pattern("a", "a"));
        assert!(!matches_pattern("a", "ab"));
        assert!(!matches_pattern("mtp.*", "model.mtp.x"));
        assert!(matches_pattern("*", "anything"));
        assert!(!matches_pattern("*.q.*", "x.k.y"));
    }
}
