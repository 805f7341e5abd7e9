//! Opening a checkpoint directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use serde_json::Value;

use super::config;
use super::convert::TensorView;
use super::error::{CheckpointError, CheckpointErrorKind as Kind};
use super::header::HeaderEntry;
use super::json::read_object;
use super::layout::{self, Layout};
use super::mapped::MappedFile;

const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";

/// An open checkpoint directory. Cheap to share between threads.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    config: Value,
    config_text: String,
    generation_config: Option<Value>,
    stop_ids: Vec<u32>,
    files: Vec<MappedFile>,
    tensors: BTreeMap<String, Place>,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Place {
    file: usize,
    dtype: Dtype,
    shape: Box<[usize]>,
    start: usize,
    end: usize,
}

/// A tensor of a checkpoint, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorInfo<'a> {
    /// Name, unique in the checkpoint.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions; empty for a scalar.
    pub shape: &'a [usize],
    /// The file it stands in.
    pub file: &'a Path,
}

impl Checkpoint {
    /// Opens the directory `dir`. Without weight files it opens as well, see [`Checkpoint::has_weights`].
    ///
    /// # Errors
    /// Every problem of the directory, ordered by the file looked at: config, generation config, index, weight files.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, Vec<CheckpointError>> {
        let dir = dir.as_ref();
        match fs::metadata(dir) {
            Err(e) => return Err(vec![CheckpointError::io(dir, &e)]),
            Ok(m) if !m.is_dir() => return Err(vec![CheckpointError::new(dir, Kind::NotADirectory)]),
            Ok(_) => {}
        }
        let mut errors = Vec::new();
        let (config, config_text) = read_config(dir, &mut errors).unwrap_or_default();
        let generation_path = dir.join(GENERATION_CONFIG);
        let generation_config = match fs::symlink_metadata(&generation_path) {
            Ok(_) => read_object(&generation_path).map_err(|e| errors.push(e)).ok().map(|(v, _)| v),
            Err(_) => None,
        };
        let stop_ids =
            config::stop_ids(generation_config.as_ref(), &config).unwrap_or_else(|(in_generation, found)| {
                let path = if in_generation { generation_path } else { dir.join(CONFIG) };
                errors.push(CheckpointError::new(path, Kind::BadStopIds { found }));
                Vec::new()
            });
        let layout = layout::find(dir, &mut errors);
        let mut weights = Weights::default();
        for path in &layout.files {
            match MappedFile::open(path) {
                Ok((file, entries)) => weights.add(file, entries, &mut errors),
                Err(list) => {
                    errors.extend(list);
                    weights.unreadable.insert(path.clone());
                }
            }
        }
        weights.compare_with_index(dir, &layout, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let Weights { files, tensors, notes, .. } = weights;
        Ok(Self { dir: dir.to_owned(), config, config_text, generation_config, stop_ids, files, tensors, notes })
    }

    /// The directory as given.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of `config.json`.
    pub fn config_file(&self) -> PathBuf {
        self.dir.join(CONFIG)
    }

    /// The whole of `config.json`, an object.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The text of `config.json`, for messages that point into it.
    pub fn config_text(&self) -> &str {
        &self.config_text
    }

    /// The value at a dotted path in `config.json`, such as `text_config.hidden_size` or `layer_types.3`: names select
    /// members, numbers select elements of a list. `None` if there is none; a null that is there is `Some`.
    pub fn config_path(&self, path: &str) -> Option<&Value> {
        config::at(&self.config, path)
    }

    /// The whole of `generation_config.json`, if there is one.
    pub fn generation_config(&self) -> Option<&Value> {
        self.generation_config.as_ref()
    }

    /// Ids that end generation, ascending, each once: `eos_token_id` of generation_config.json, else of config.json (top
    /// level, then `text_config`). Null counts as absent. May be empty.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// Path of `tokenizer.json`, if there is one.
    pub fn tokenizer_file(&self) -> Option<PathBuf> {
        Some(self.dir.join("tokenizer.json")).filter(|p| fs::symlink_metadata(p).is_ok())
    }

    /// Path of `tokenizer_config.json`, if there is one.
    pub fn tokenizer_config_file(&self) -> Option<PathBuf> {
        Some(self.dir.join("tokenizer_config.json")).filter(|p| fs::symlink_metadata(p).is_ok())
    }

    /// True if the directory has at least one weight file.
    pub fn has_weights(&self) -> bool {
        !self.files.is_empty()
    }

    /// The weight files, in name order.
    pub fn weight_files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|f| f.path.as_path())
    }

    /// All tensors in name order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = TensorInfo<'_>> {
        self.tensors.iter().map(|(name, p)| self.info(name, p))
    }

    /// The description of one tensor.
    pub fn tensor_info(&self, name: &str) -> Option<TensorInfo<'_>> {
        self.tensors.get_key_value(name).map(|(name, p)| self.info(name, p))
    }

    /// One tensor with its bytes. They are read from disk when first touched.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let p = self.tensors.get(name)?;
        Some(TensorView::in_checked_file(p.dtype, &p.shape, self.files[p.file].bytes(p.start, p.end)))
    }

    /// Remarks that are no errors, such as a total size in the index that does not agree with the files.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn info<'a>(&'a self, name: &'a str, p: &'a Place) -> TensorInfo<'a> {
        TensorInfo { name, dtype: p.dtype, shape: &p.shape, file: &self.files[p.file].path }
    }
}

fn read_config(dir: &Path, errors: &mut Vec<CheckpointError>) -> Option<(Value, String)> {
    match read_object(&dir.join(CONFIG)) {
        Ok(config) => Some(config),
        Err(e) if e.kind == Kind::NotFound => {
            errors.push(CheckpointError::new(dir, Kind::MissingConfig));
            None
        }
        Err(e) => {
            errors.push(e);
            None
        }
    }
}

/// The weight files opened so far.
#[derive(Default)]
struct Weights {
    files: Vec<MappedFile>,
    tensors: BTreeMap<String, Place>,
    unreadable: BTreeSet<PathBuf>,
    /// Tensors reported as duplicates; the comparison with the index does not report them again.
    duplicates: BTreeSet<String>,
    notes: Vec<String>,
}

impl Weights {
    fn add(&mut self, file: MappedFile, entries: Vec<HeaderEntry>, errors: &mut Vec<CheckpointError>) {
        let index = self.files.len();
        let mut twice: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for HeaderEntry { name, dtype, shape, start, end } in entries {
            if let Some(earlier) = self.tensors.get(&name) {
                self.duplicates.insert(name.clone());
                twice.entry(earlier.file).or_default().push(name);
                continue;
            }
            self.tensors.insert(name, Place { file: index, dtype, shape: shape.into(), start, end });
        }
        for (earlier, mut tensors) in twice {
            tensors.sort();
            let other = self.files[earlier].path.clone();
            errors.push(CheckpointError::new(&file.path, Kind::DuplicateTensors { other, tensors }));
        }
        self.files.push(file);
    }

    /// Index and shards must list the same tensors. A shard that could not be read proves nothing.
    fn compare_with_index(&mut self, dir: &Path, layout: &Layout, errors: &mut Vec<CheckpointError>) {
        let Some(index) = &layout.index else { return };
        let mut there: BTreeMap<&Path, BTreeSet<&str>> = BTreeMap::new();
        for (name, p) in &self.tensors {
            there.entry(&self.files[p.file].path).or_default().insert(name);
        }
        let none = BTreeSet::new();
        let unique = |t: &str| !self.duplicates.contains(t);
        for (shard, placed) in &index.shards {
            let path = dir.join(shard);
            if self.unreadable.contains(&path) || !layout.files.contains(&path) {
                continue;
            }
            let there = there.get(path.as_path()).unwrap_or(&none);
            let missing: Vec<String> =
                placed.iter().filter(|t| unique(t) && !there.contains(t.as_str())).cloned().collect();
            if !missing.is_empty() {
                let kind = Kind::NotInShard { shard: shard.clone(), tensors: missing };
                errors.push(CheckpointError::new(&index.path, kind));
            }
            let extra: Vec<String> =
                there.iter().filter(|t| unique(t) && !placed.contains(**t)).map(|t| (*t).to_owned()).collect();
            if !extra.is_empty() {
                let kind = Kind::NotInIndex { index: layout::INDEX.into(), tensors: extra };
                errors.push(CheckpointError::new(path, kind));
            }
        }
        let bytes: u64 = self.tensors.values().map(|p| (p.end - p.start) as u64).sum();
        if let Some(stated) = index.total_size
            && stated != bytes
        {
            self.notes.push(format!(
                "{}: states a total size of {stated} bytes; the tensors have {bytes}",
                index.path.display()
            ));
        }
    }
}
