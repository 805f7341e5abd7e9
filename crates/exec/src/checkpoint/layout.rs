//! Which files of a directory hold the weights.
//!
//! `model.safetensors` alone, or the shards named by `model.safetensors.index.json`, or, with neither, every
//! `*.safetensors` file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::error::{CheckpointError, CheckpointErrorKind as Kind, quoted};
use super::json::read_object;

/// The file that holds all weights of an unsharded checkpoint.
pub(crate) const SINGLE: &str = "model.safetensors";
/// The file that names the shards.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// The weight files of a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Files to open, in name order.
    pub(crate) files: Vec<PathBuf>,
    /// With an index: the tensors it places in each file of `files`, and the total size it states.
    pub(crate) index: Option<Index>,
}

/// The contents of an index.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) path: PathBuf,
    /// Shard name to the tensors placed there.
    pub(crate) shards: BTreeMap<String, BTreeSet<String>>,
    /// `metadata.total_size`, where it is a whole number.
    pub(crate) total_size: Option<u64>,
}

/// Finds the weight files of `dir`. Problems are added to `errors`; what could be found is returned all the same.
pub(crate) fn find(dir: &Path, errors: &mut Vec<CheckpointError>) -> Layout {
    let index_path = dir.join(INDEX);
    // `exists` follows links; a link to nothing must be reported, not skipped.
    let present = |p: &Path| fs::symlink_metadata(p).is_ok();
    if present(&index_path) {
        let Some(index) = read_index(&index_path, errors) else { return Layout::default() };
        if present(&dir.join(SINGLE)) && !index.shards.contains_key(SINGLE) {
            errors.push(CheckpointError::new(dir, Kind::TwoLayouts { index: INDEX.into() }));
        }
        let mut files = Vec::new();
        for (shard, tensors) in &index.shards {
            let path = dir.join(shard);
            if path.exists() {
                files.push(path);
            } else {
                let kind = Kind::MissingShard { shard: shard.clone(), tensors: Some(tensors.len()) };
                errors.push(CheckpointError::new(&index_path, kind));
            }
        }
        return Layout { files, index: Some(index) };
    }
    if present(&dir.join(SINGLE)) {
        return Layout { files: vec![dir.join(SINGLE)], index: None };
    }
    let files = match list(dir) {
        Ok(files) => files,
        Err(e) => {
            errors.push(CheckpointError::io(dir, &e));
            return Layout::default();
        }
    };
    for shard in missing_numbers(&files) {
        errors.push(CheckpointError::new(dir, Kind::MissingShard { shard, tensors: None }));
    }
    Layout { files, index: None }
}

/// Every visible `*.safetensors` of the directory, in name order.
fn list(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|e| e == "safetensors") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Names that the numbering `PREFIX-00001-of-00003.safetensors` of the files promises and the directory lacks.
fn missing_numbers(files: &[PathBuf]) -> Vec<String> {
    /// More shards than this are not believed, so that a hostile name cannot ask for a billion messages.
    const MAX_SHARDS: usize = 10_000;
    let names: BTreeSet<&str> = files.iter().filter_map(|f| f.file_name()?.to_str()).collect();
    let mut wanted = BTreeSet::new();
    for name in &names {
        let Some((rest, total)) = name.strip_suffix(".safetensors").and_then(|s| s.rsplit_once("-of-")) else {
            continue;
        };
        let Some((prefix, number)) = rest.rsplit_once('-') else { continue };
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        let Some(n) = total.parse::<usize>().ok().filter(|n| *n <= MAX_SHARDS) else { continue };
        if digits(number) && digits(total) && wanted.len() < MAX_SHARDS {
            let width = number.len();
            wanted.extend((1..=n).map(|i| format!("{prefix}-{i:0width$}-of-{total}.safetensors")));
        }
    }
    wanted.into_iter().filter(|w| !names.contains(w.as_str())).collect()
}

fn read_index(path: &Path, errors: &mut Vec<CheckpointError>) -> Option<Index> {
    let value = match read_object(path) {
        Ok((value, _)) => value,
        Err(e) => {
            errors.push(e);
            return None;
        }
    };
    let mut bad = |message: String| errors.push(CheckpointError::new(path, Kind::BadIndex(message)));
    let Some(map) = value.get("weight_map").and_then(Value::as_object) else {
        bad("has no object weight_map".into());
        return None;
    };
    let mut index = Index {
        path: path.to_owned(),
        total_size: value.get("metadata").and_then(|m| m.get("total_size")).and_then(Value::as_u64),
        ..Index::default()
    };
    let mut not_names = Vec::new();
    let mut outside = BTreeSet::new();
    for (tensor, shard) in map {
        match shard.as_str() {
            Some(s) if is_inside(s) => {
                index.shards.entry(s.to_owned()).or_default().insert(tensor.clone());
            }
            Some(s) => {
                outside.insert(s.to_owned());
            }
            None => not_names.push(tensor),
        }
    }
    if let Some(first) = not_names.first() {
        bad(format!("weight_map gives no file name for {} tensors, the first is {}", not_names.len(), quoted(first)));
    }
    errors.extend(outside.into_iter().map(|shard| CheckpointError::new(path, Kind::ShardOutside { shard })));
    Some(index)
}

/// True for a relative path that never leaves the directory.
fn is_inside(shard: &str) -> bool {
    !shard.is_empty() && Path::new(shard).components().all(|c| matches!(c, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbering_gaps_are_named() {
        let files = ["model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors", "extra.safetensors"];
        let files: Vec<PathBuf> = files.iter().map(|f| Path::new("d").join(f)).collect();
        assert_eq!(missing_numbers(&files), ["model-00002-of-00003.safetensors"]);
        assert_eq!(missing_numbers(&[PathBuf::from("m-1-of-99999999999.safetensors")]), [""; 0]);
        assert_eq!(missing_numbers(&[PathBuf::from("one-of-many.safetensors")]), [""; 0]);
    }

    #[test]
    fn shard_names_stay_inside() {
        for ok in ["a.safetensors", "sub/a.safetensors"] {
            assert!(is_inside(ok), "{ok}");
        }
        for bad in ["", "../a", "/etc/passwd", "sub/../../a", "./a"] {
            assert!(!is_inside(bad), "{bad}");
        }
    }
}
