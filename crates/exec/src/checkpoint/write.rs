//! Writing safetensors files and checkpoint directories: deterministic, streaming, and never half a file under the final
//! name.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use serde::Serialize;
use tempfile::NamedTempFile;

use super::error::quoted;
use super::json::{open_regular, parse_object};
use super::layout::{INDEX, SINGLE};
use super::problem::{MAX_HEADER_BYTES, MAX_RANK};

/// Bytes gathered before a write to the file.
const BUFFER: usize = 1 << 20;

/// A tensor to be written, without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name, unique in the file.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, at most [`MAX_RANK`]; empty for a scalar.
    pub shape: Vec<usize>,
}

/// A checkpoint directory to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewCheckpoint<'a> {
    /// Text of `config.json`, a JSON object; written as it is.
    pub config: &'a str,
    /// Text of `generation_config.json`, if there shall be one.
    pub generation_config: Option<&'a str>,
    /// The tensors of `model.safetensors`, in any order.
    pub tensors: &'a [TensorSpec],
}

/// A file that could not be written. `Display` gives place, cause and remedy.
#[derive(Debug)]
pub struct WriteError {
    /// The file or directory.
    pub path: PathBuf,
    /// What is wrong.
    pub kind: WriteErrorKind,
}

/// Why a file could not be written.
#[derive(Debug)]
pub enum WriteErrorKind {
    /// The operating system refused, or the source of the values failed.
    Io(io::Error),
    /// Two tensors have this name.
    DuplicateName(String),
    /// The format reserves this name.
    ReservedName,
    /// The tensor has more than [`MAX_RANK`] dimensions.
    TooManyDims(String),
    /// The tensor's size, or that of the file, overflows or is no whole number of bytes.
    Size(String),
    /// The header exceeds the limit of the format.
    HeaderTooLarge,
    /// The source gave another number of bytes than dtype and shape ask for.
    ByteCount {
        /// The tensor.
        tensor: String,
        /// Bytes asked for.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// A tensor of this element type cannot be written from these values.
    Dtype {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
    },
    /// The text to be written as this JSON file is no JSON object.
    NotJson(String),
    /// There is something at the path that is no file.
    NoFile,
    /// The directory holds the index of a sharded checkpoint, which would contradict the new file.
    ShardedThere,
    /// The directory holds this file of a checkpoint that was not invented, which would be lost.
    OthersThere(&'static str),
}

impl WriteError {
    pub(crate) fn new(path: &Path, kind: WriteErrorKind) -> Self {
        Self { path: path.to_owned(), kind }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use WriteErrorKind as K;
        write!(f, "{}: ", self.path.display())?;
        match &self.kind {
            K::Io(e) => write!(f, "cannot be written: {e}; check the path, the permissions and the free space"),
            K::DuplicateName(t) => write!(f, "two tensors are named {}; rename one", quoted(t)),
            K::ReservedName => write!(f, "a tensor cannot be named `__metadata__`; rename it"),
            K::TooManyDims(t) => write!(f, "tensor {} has more than {MAX_RANK} dimensions; reshape it", quoted(t)),
            K::Size(t) => write!(f, "the byte count of tensor {} cannot be stored; check its shape", quoted(t)),
            K::HeaderTooLarge => {
                write!(f, "the header exceeds {MAX_HEADER_BYTES} bytes; write fewer tensors or shorter names")
            }
            K::ByteCount { tensor, expected, found } => write!(
                f,
                "tensor {} needs {expected} bytes and was given {found}; check its shape against its values",
                quoted(tensor)
            ),
            K::Dtype { tensor, dtype } => write!(
                f,
                "tensor {} cannot be written as {dtype} from its values; choose a type of the same kind",
                quoted(tensor)
            ),
            K::NotJson(message) => write!(f, "the text to be written is no JSON object: {message}; fix it first"),
            K::NoFile => {
                write!(f, "is a device or a pipe; files are written whole and renamed into place, so name a file")
            }
            K::ShardedThere => write!(f, "holds {INDEX} of another checkpoint; choose an empty directory"),
            K::OthersThere(name) => {
                write!(f, "holds {name} of another checkpoint, which synth did not write; choose an empty directory")
            }
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            WriteErrorKind::Io(e) => Some(e),
            _ => None,
        }
    }
}

/// Writes a safetensors file with the tensors in name order. `fill` is called once a tensor, in that order, and must
/// write exactly its little-endian row-major bytes. The bytes of the file depend on nothing but the arguments.
///
/// The file appears under `path` only when complete; an older file there is replaced in one step.
///
/// # Errors
/// The tensors cannot be stored, `fill` failed or wrote the wrong number of bytes, or the file cannot be written.
pub fn write_safetensors(
    path: &Path,
    metadata: &[(&str, &str)],
    tensors: &[TensorSpec],
    mut fill: impl FnMut(&TensorSpec, &mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    let error = |kind| WriteError::new(path, kind);
    let mut sorted: Vec<&TensorSpec> = tensors.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let (header, sizes) = header(metadata, &sorted).map_err(error)?;
    atomically(path, |out| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for (spec, &expected) in sorted.iter().zip(&sizes) {
            let mut counted = Counted { out: &mut *out, written: 0 };
            fill(spec, &mut counted)?;
            let found = counted.written;
            if found != expected {
                return Ok(Err(WriteErrorKind::ByteCount { tensor: spec.name.clone(), expected, found }));
            }
        }
        Ok(Ok(()))
    })
}

/// Writes `config.json`, `generation_config.json` if given, and `model.safetensors` into `dir`, which is created if
/// need be. `fill` as for [`write_safetensors`]. The weights come first: a config alone is never left of a writer that was
/// stopped.
///
/// # Errors
/// As [`write_safetensors`]; the configs are no JSON objects; or the directory holds a sharded checkpoint.
pub fn write_checkpoint(
    dir: &Path,
    checkpoint: &NewCheckpoint<'_>,
    fill: impl FnMut(&TensorSpec, &mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    write_marked(dir, checkpoint, None, fill)
}

/// [`write_checkpoint`] with an entry of the metadata that tells whose weights these are. With a mark, only weights that
/// bear its name are replaced, with the configs beside them.
///
/// # Errors
/// As there, and [`WriteErrorKind::OthersThere`].
pub(super) fn write_marked(
    dir: &Path,
    checkpoint: &NewCheckpoint<'_>,
    mark: Option<(&str, &str)>,
    fill: impl FnMut(&TensorSpec, &mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    let configs = [("config.json", Some(checkpoint.config)), ("generation_config.json", checkpoint.generation_config)];
    for (name, text) in configs {
        if let Some(text) = text {
            parse_object(text).map_err(|kind| {
                let message = super::CheckpointError::new(name, kind).cause();
                WriteError::new(&dir.join(name), WriteErrorKind::NotJson(message))
            })?;
        }
    }
    fs::create_dir_all(dir).map_err(|e| WriteError::new(dir, WriteErrorKind::Io(e)))?;
    if fs::symlink_metadata(dir.join(INDEX)).is_ok() {
        return Err(WriteError::new(dir, WriteErrorKind::ShardedThere));
    }
    if let Some((key, _)) = mark {
        let there = |name: &str| fs::symlink_metadata(dir.join(name)).is_ok();
        let found = match there(SINGLE) {
            true => Some(SINGLE).filter(|_| !has_mark(&dir.join(SINGLE), key)),
            false => configs.iter().map(|(name, _)| *name).find(|name| there(name)),
        };
        if let Some(name) = found {
            return Err(WriteError::new(dir, WriteErrorKind::OthersThere(name)));
        }
    }
    // Other readers of the format refuse checkpoints that do not state the framework's layout.
    let metadata: Vec<_> = [("format", "pt")].into_iter().chain(mark).collect();
    write_safetensors(&dir.join(SINGLE), &metadata, checkpoint.tensors, fill)?;
    for (name, text) in configs {
        if let Some(text) = text {
            atomically(&dir.join(name), |out| out.write_all(text.as_bytes()).map(Ok))?;
        }
    }
    Ok(())
}

/// True if the metadata of a safetensors file has this key. Whatever is no such file has none.
fn has_mark(path: &Path, key: &str) -> bool {
    let read = || {
        let (mut file, _) = open_regular(path).ok()?;
        let mut length = [0; 8];
        file.read_exact(&mut length).ok()?;
        let length = u64::from_le_bytes(length);
        let mut text = Vec::new();
        file.take(length.min(MAX_HEADER_BYTES)).read_to_end(&mut text).ok()?;
        let header: serde_json::Value = serde_json::from_slice(&text).ok()?;
        Some(header.get("__metadata__")?.get(key)?.is_string())
    };
    read() == Some(true)
}

/// Header bytes, padded so that the data begins at a multiple of 8, and the byte count of each tensor.
fn header(metadata: &[(&str, &str)], sorted: &[&TensorSpec]) -> Result<(Vec<u8>, Vec<u64>), WriteErrorKind> {
    #[derive(Serialize)]
    struct Entry<'a> {
        dtype: Dtype,
        shape: &'a [usize],
        data_offsets: (u64, u64),
    }
    fn json(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), WriteErrorKind> {
        serde_json::to_writer(out, value).map_err(|e| WriteErrorKind::Io(e.into()))
    }
    let mut members: Vec<u8> = vec![b'{'];
    let begin_member = |name: &str, out: &mut Vec<u8>| {
        if out.len() > 1 {
            out.push(b',');
        }
        json(&name, out)?;
        out.push(b':');
        Ok::<_, WriteErrorKind>(())
    };
    if !metadata.is_empty() {
        let sorted: std::collections::BTreeMap<_, _> = metadata.iter().copied().collect();
        begin_member("__metadata__", &mut members)?;
        json(&sorted, &mut members)?;
    }
    let mut names = BTreeSet::new();
    let (mut sizes, mut at) = (Vec::with_capacity(sorted.len()), 0u64);
    for spec in sorted {
        if spec.name == "__metadata__" {
            return Err(WriteErrorKind::ReservedName);
        }
        if !names.insert(&spec.name) {
            return Err(WriteErrorKind::DuplicateName(spec.name.clone()));
        }
        if spec.shape.len() > MAX_RANK {
            return Err(WriteErrorKind::TooManyDims(spec.name.clone()));
        }
        let size = byte_count(spec).ok_or_else(|| WriteErrorKind::Size(spec.name.clone()))?;
        let end = at.checked_add(size).ok_or_else(|| WriteErrorKind::Size(spec.name.clone()))?;
        begin_member(&spec.name, &mut members)?;
        json(&Entry { dtype: spec.dtype, shape: &spec.shape, data_offsets: (at, end) }, &mut members)?;
        sizes.push(size);
        at = end;
    }
    members.push(b'}');
    members.resize(members.len().next_multiple_of(8), b' ');
    if members.len() as u64 > MAX_HEADER_BYTES {
        return Err(WriteErrorKind::HeaderTooLarge);
    }
    Ok((members, sizes))
}

fn byte_count(spec: &TensorSpec) -> Option<u64> {
    let nonzero = spec.shape.iter().try_fold(1u64, |n, &d| n.checked_mul((d as u64).max(1)))?;
    let elements = if spec.shape.contains(&0) { 0 } else { nonzero };
    let bits = elements.checked_mul(spec.dtype.bitsize() as u64)?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

/// Writes a file under a temporary name in the same directory and renames it once it is on the disk. On any error the
/// temporary file is removed and `path` is untouched. A link stays: what it leads to is written. Renaming onto a device, a pipe
/// or a link to nothing would put a file in its place, so those are refused.
pub(crate) fn atomically(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<Result<(), WriteErrorKind>>,
) -> Result<(), WriteError> {
    let error = |kind| WriteError::new(path, kind);
    let io = |e| error(WriteErrorKind::Io(e));
    let path = &match fs::symlink_metadata(path) {
        Ok(_) => fs::canonicalize(path).map_err(io)?,
        Err(_) => path.to_owned(),
    };
    if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return Err(error(WriteErrorKind::NoFile));
    }
    let dir = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let mut out = BufWriter::with_capacity(BUFFER, temporary(dir, path).map_err(io)?);
    write(&mut out).map_err(io)?.map_err(error)?;
    let file = out.into_inner().map_err(|e| io(e.into_error()))?;
    file.as_file().sync_all().map_err(io)?;
    file.persist(path).map_err(|e| io(e.error))?;
    Ok(())
}

/// A temporary file beside `path`. Its name is made from that of `path`, so that what a killed process left is taken over by
/// the next one that writes the same file; a lock tells what is left from what is being written.
fn temporary(dir: &Path, path: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".spinec-").suffix(".tmp");
    // Temporary files are private by default; this one becomes an ordinary file, so the process's mask decides.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).filter(|n| n.len() <= LONGEST_NAME);
    if let Some(name) = name
        && let Some(file) = taken_over(&dir.join(format!(".spinec-{name}.tmp")))
    {
        return Ok(file);
    }
    builder.tempfile_in(dir)
}

/// Longest name a temporary one is made from; file systems allow 255 bytes.
const LONGEST_NAME: usize = 200;

/// The file at `temp`, made or taken over, locked and empty; `None` if it cannot be had.
fn taken_over(temp: &Path) -> Option<NamedTempFile> {
    // A link or a device of that name is not this program's.
    if fs::symlink_metadata(temp).is_ok_and(|m| !m.is_file()) {
        return None;
    }
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(temp).ok()?;
    file.try_lock().ok()?;
    // Between opening and locking another process may have finished this file and given it its name.
    if !same_file(&file, temp) {
        return None;
    }
    file.set_len(0).ok()?;
    Some(NamedTempFile::from_parts(file, tempfile::TempPath::try_from_path(temp).ok()?))
}

#[cfg(unix)]
fn same_file(file: &fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |m: &fs::Metadata| (m.dev(), m.ino());
    matches!((file.metadata(), fs::symlink_metadata(path)), (Ok(a), Ok(b)) if of(&a) == of(&b))
}

/// Elsewhere an open file cannot be renamed.
#[cfg(not(unix))]
fn same_file(_: &fs::File, path: &Path) -> bool {
    path.exists()
}

/// Counts what goes through.
struct Counted<'a> {
    out: &'a mut dyn Write,
    written: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
