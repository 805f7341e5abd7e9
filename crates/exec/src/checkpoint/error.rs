//! Errors of reading a checkpoint directory.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use safetensors::Dtype;

use super::problem::HeaderProblem;

/// Names listed in one message before the rest is only counted.
const LISTED: usize = 10;
/// Characters of an untrusted name shown before it is cut.
const NAME_CHARS: usize = 160;

/// One problem of a checkpoint directory or of a file of tensors: where, what, and what to do about it.
///
/// `Display` gives all three in one line: `PLACE: CAUSE; REMEDY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointError {
    /// The file or directory the problem stands in.
    pub path: PathBuf,
    /// What is wrong there.
    pub kind: CheckpointErrorKind,
}

/// What is wrong with a checkpoint directory or a file of tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointErrorKind {
    /// The path does not exist (or is a link to nothing).
    NotFound,
    /// A file was given where the checkpoint directory is expected.
    NotADirectory,
    /// A directory, pipe or device stands where a file is expected.
    NotAFile,
    /// The operating system refused; the text is its message.
    Io(String),
    /// The directory has no `config.json`.
    MissingConfig,
    /// A JSON file exceeds the size limit.
    JsonTooLarge {
        /// Limit in bytes.
        limit: u64,
    },
    /// A JSON file is not UTF-8.
    NotUtf8 {
        /// Byte offset of the first invalid byte.
        offset: usize,
    },
    /// A file is not valid JSON, or has a key twice.
    Json {
        /// One-based line.
        line: usize,
        /// One-based column.
        column: usize,
        /// The parser's message.
        message: String,
    },
    /// The file is JSON, but not an object.
    JsonNotObject,
    /// `eos_token_id` is neither null, an id, nor a list of ids.
    BadStopIds {
        /// The value found.
        found: String,
    },
    /// The index has no object `weight_map`, or a value in it is not a file name.
    BadIndex(String),
    /// The index names a shard outside the directory.
    ShardOutside {
        /// Name as the index gives it.
        shard: String,
    },
    /// A shard is missing, as named by the index or by the numbering of the other shards.
    MissingShard {
        /// File name of the shard.
        shard: String,
        /// How many tensors the index places there; `None` without an index.
        tensors: Option<usize>,
    },
    /// Tensors that the index places in a shard are not there.
    NotInShard {
        /// File name of the shard.
        shard: String,
        /// Their names, in order.
        tensors: Vec<String>,
    },
    /// A shard holds tensors that the index does not list, or lists in another shard.
    NotInIndex {
        /// File name of the index.
        index: String,
        /// Their names, in order.
        tensors: Vec<String>,
    },
    /// The same tensors stand in an earlier file as well.
    DuplicateTensors {
        /// The earlier file.
        other: PathBuf,
        /// Their names, in order.
        tensors: Vec<String>,
    },
    /// Both `model.safetensors` and an index of other files exist.
    TwoLayouts {
        /// File name of the index.
        index: String,
    },
    /// A file of tensors to compute with holds an element type that is none of those computed with.
    UnsupportedDtype {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
    },
    /// A byte of a BOOL tensor is neither 0 nor 1.
    BadBool {
        /// The tensor.
        tensor: String,
        /// Row-major index of the first such element.
        index: usize,
        /// The byte.
        value: u8,
    },
    /// A safetensors file is malformed.
    Safetensors(HeaderProblem),
}

impl CheckpointError {
    /// The error `kind` at `path`.
    pub fn new(path: impl Into<PathBuf>, kind: CheckpointErrorKind) -> Self {
        Self { path: path.into(), kind }
    }

    /// The error for a failed system call on `path`.
    pub(crate) fn io(path: &Path, e: &io::Error) -> Self {
        let kind = match e.kind() {
            io::ErrorKind::NotFound => CheckpointErrorKind::NotFound,
            _ => CheckpointErrorKind::Io(e.to_string()),
        };
        Self::new(path, kind)
    }

    /// What is wrong, without the place.
    pub fn cause(&self) -> String {
        use CheckpointErrorKind as K;
        match &self.kind {
            K::NotFound => "does not exist".into(),
            K::NotADirectory => "is a file, but a checkpoint is a directory".into(),
            K::NotAFile => "is not a regular file".into(),
            K::Io(message) => format!("cannot be read: {message}"),
            K::MissingConfig => "has no config.json".into(),
            K::JsonTooLarge { limit } => format!("is larger than {limit} bytes, which no such JSON file is"),
            K::NotUtf8 { offset } => format!("is not UTF-8 at byte {offset}"),
            K::Json { line, column, message } => format!("line {line}, column {column}: {message}"),
            K::JsonNotObject => "is not a JSON object".into(),
            K::BadStopIds { found } => format!("eos_token_id is {found}, not null, a token id or a list of them"),
            K::BadIndex(message) => message.clone(),
            K::ShardOutside { shard } => format!("names the shard {}, which is outside the directory", quoted(shard)),
            K::MissingShard { shard, tensors: Some(n) } => {
                format!("places {n} tensors in {}, which does not exist", quoted(shard))
            }
            K::MissingShard { shard, tensors: None } => {
                format!("has numbered shards, but {} does not exist", quoted(shard))
            }
            K::NotInShard { shard, tensors } => {
                format!("places in {} what is not there: {}", quoted(shard), listed(tensors))
            }
            K::NotInIndex { index, tensors } => {
                format!("holds tensors that {} does not place here: {}", quoted(index), listed(tensors))
            }
            K::DuplicateTensors { other, tensors } => {
                format!("holds tensors that {} holds too: {}", other.display(), listed(tensors))
            }
            K::TwoLayouts { index } => {
                format!("has both model.safetensors and {}, which names other files", quoted(index))
            }
            K::UnsupportedDtype { tensor, dtype } => {
                format!("tensor {} has the dtype {dtype}, which is not computed with", quoted(tensor))
            }
            K::BadBool { tensor, index, value } => {
                format!("element {index} of the BOOL tensor {} is the byte {value}, not 0 or 1", quoted(tensor))
            }
            K::Safetensors(problem) => problem.to_string(),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        use CheckpointErrorKind as K;
        match &self.kind {
            K::NotFound => "check the path",
            K::NotADirectory => "give the directory that holds config.json and the *.safetensors files",
            K::NotAFile => "put the file itself there",
            K::Io(_) => "check the permissions and the disk",
            K::MissingConfig => "give a Hugging Face checkpoint directory, or fetch its config.json",
            K::JsonTooLarge { .. } | K::NotUtf8 { .. } | K::Json { .. } | K::JsonNotObject => {
                "fix the file or fetch it again"
            }
            K::BadStopIds { .. } => "write one id, a list of ids, or null for none",
            K::BadIndex(_) | K::ShardOutside { .. } => {
                "fetch the index again; weight_map maps tensor names to file names"
            }
            K::MissingShard { .. } => "fetch the missing file",
            K::NotInShard { .. } | K::NotInIndex { .. } => "fetch the index and its shards from the same revision",
            K::DuplicateTensors { .. } => "remove one of the files, or add an index that names the files to use",
            K::TwoLayouts { .. } => "remove the one that is stale",
            K::UnsupportedDtype { .. } => "store it as F64, F32, F16, BF16, I64, I32, U8 or BOOL",
            K::BadBool { .. } => "store truth values as 0 and 1, or declare the tensor U8",
            K::Safetensors(problem) => problem.remedy(),
        }
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path.display(), self.cause(), self.remedy())
    }
}

impl std::error::Error for CheckpointError {}

/// An untrusted name for a message: quoted, control characters escaped, cut when long.
pub(crate) fn quoted(name: &str) -> String {
    let mut out = String::from("`");
    for (i, c) in name.chars().enumerate() {
        if i == NAME_CHARS {
            out.push_str("...");
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out.push('`');
    out
}

/// The first names of a list, and how many more there are.
fn listed(names: &[String]) -> String {
    let mut out = names.iter().take(LISTED).map(|n| quoted(n)).collect::<Vec<_>>().join(", ");
    if names.len() > LISTED {
        out.push_str(&format!(" and {} more", names.len() - LISTED));
    }
    out
}
