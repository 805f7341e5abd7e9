//! What can be wrong with a safetensors file, and the limits put on its header.

use std::fmt;

use safetensors::Dtype;

use super::error::quoted;

/// Largest header accepted, in bytes; the limit of the reference implementation of the format.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Most dimensions of a tensor.
pub const MAX_RANK: usize = 8;
/// Most tensors of one file. The largest public checkpoints have some 100,000 in all their files.
pub const MAX_TENSORS: usize = 1 << 20;
/// Most problems reported for one file; the rest is counted.
pub const MAX_PROBLEMS: usize = 50;

/// What is wrong with one safetensors file. Offsets are in bytes from the start of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderProblem {
    /// The file has less than the 8 bytes of the header length.
    TooShort {
        /// Length of the file.
        file_len: u64,
    },
    /// The header claims more than [`MAX_HEADER_BYTES`].
    HeaderTooLarge {
        /// Length it claims.
        declared: u64,
    },
    /// The header claims more bytes than the file has.
    HeaderPastEnd {
        /// Length it claims.
        declared: u64,
        /// Length of the file.
        file_len: u64,
    },
    /// The header is not UTF-8.
    NotUtf8 {
        /// Offset in the header.
        offset: usize,
    },
    /// The header is not a JSON object.
    NotJson {
        /// The parser's message.
        message: String,
    },
    /// The header lists more than [`MAX_TENSORS`] tensors.
    TooManyTensors,
    /// `__metadata__` is not a map of strings to strings, or stands there twice.
    Metadata {
        /// The parser's message.
        message: String,
    },
    /// A tensor is listed twice.
    DuplicateName {
        /// Its name.
        tensor: String,
    },
    /// A tensor's entry is not `{dtype, shape, data_offsets}` with values of the right kind.
    BadEntry {
        /// The tensor.
        tensor: String,
        /// The parser's message.
        message: String,
    },
    /// The element type is none the format has.
    UnknownDtype {
        /// The tensor.
        tensor: String,
        /// The name found.
        dtype: String,
    },
    /// More than [`MAX_RANK`] dimensions.
    TooManyDims {
        /// The tensor.
        tensor: String,
        /// How many it has.
        rank: usize,
    },
    /// The number of bytes does not fit in an address.
    SizeOverflow {
        /// The tensor.
        tensor: String,
    },
    /// Elements of less than a byte do not fill whole bytes.
    PartialByte {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
    },
    /// The end lies before the beginning.
    OffsetsReversed {
        /// The tensor.
        tensor: String,
        /// First byte.
        begin: u64,
        /// One past the last byte.
        end: u64,
    },
    /// The byte range has not the size that dtype and shape ask for.
    SizeMismatch {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
        /// Its dimensions.
        shape: Vec<usize>,
        /// Bytes dtype and shape ask for.
        expected: u64,
        /// Bytes between the offsets.
        found: u64,
    },
    /// Two tensors share bytes.
    Overlap {
        /// The later tensor.
        tensor: String,
        /// The tensor it runs into.
        other: String,
        /// Where the later one begins.
        begin: u64,
    },
    /// Bytes before a tensor belong to none.
    Hole {
        /// The tensor after the hole.
        tensor: String,
        /// First byte of the hole.
        begin: u64,
        /// One past its last byte.
        end: u64,
    },
    /// The file ends before its tensors do.
    Truncated {
        /// The first tensor that is not wholly in the file.
        tensor: String,
        /// How many such tensors there are.
        tensors: usize,
        /// Length the file should have.
        needed: u64,
        /// Length it has.
        file_len: u64,
    },
    /// Bytes after the last tensor belong to none.
    TrailingBytes {
        /// How many.
        bytes: u64,
    },
    /// The file changed its length while it was being opened.
    Changed,
    /// Further problems, not listed.
    More(usize),
}

impl HeaderProblem {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        use HeaderProblem as P;
        match self {
            P::TooShort { .. } | P::HeaderPastEnd { .. } | P::Truncated { .. } => {
                "the file was cut or is a placeholder of a large-file store; fetch it again"
            }
            P::Changed => "wait until the file is completely written",
            P::More(_) => "fix the ones above first",
            _ => "the file is damaged or no safetensors file; fetch or export it again",
        }
    }
}

impl fmt::Display for HeaderProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use HeaderProblem as P;
        match self {
            P::TooShort { file_len } => write!(f, "has {file_len} bytes, less than the 8 of the header length"),
            P::HeaderTooLarge { declared } => {
                write!(f, "claims a header of {declared} bytes; at most {MAX_HEADER_BYTES} are accepted")
            }
            P::HeaderPastEnd { declared, file_len } => {
                write!(f, "claims a header of {declared} bytes, but the whole file has {file_len}")
            }
            P::NotUtf8 { offset } => write!(f, "the header is not UTF-8 at its byte {offset}"),
            P::NotJson { message } => write!(f, "the header is not a JSON object: {message}"),
            P::TooManyTensors => write!(f, "the header lists more than {MAX_TENSORS} tensors"),
            P::Metadata { message } => write!(f, "__metadata__ is not one map of strings to strings: {message}"),
            P::DuplicateName { tensor } => write!(f, "tensor {} is listed twice", quoted(tensor)),
            P::BadEntry { tensor, message } => write!(f, "tensor {}: {message}", quoted(tensor)),
            P::UnknownDtype { tensor, dtype } => {
                write!(f, "tensor {} has the unknown dtype {}", quoted(tensor), quoted(dtype))
            }
            P::TooManyDims { tensor, rank } => {
                write!(f, "tensor {} has {rank} dimensions; at most {MAX_RANK} are accepted", quoted(tensor))
            }
            P::SizeOverflow { tensor } => {
                write!(f, "tensor {} has a shape whose byte count overflows", quoted(tensor))
            }
            P::PartialByte { tensor, dtype } => {
                write!(f, "tensor {} of {dtype} does not fill whole bytes", quoted(tensor))
            }
            P::OffsetsReversed { tensor, begin, end } => {
                write!(f, "tensor {} begins at byte {begin} and ends before, at {end}", quoted(tensor))
            }
            P::SizeMismatch { tensor, dtype, shape, expected, found } => write!(
                f,
                "tensor {}, {dtype} of shape {shape:?}, needs {expected} bytes, but its offsets span {found}",
                quoted(tensor)
            ),
            P::Overlap { tensor, other, begin } => {
                write!(f, "tensor {} begins at byte {begin}, inside {}", quoted(tensor), quoted(other))
            }
            P::Hole { tensor, begin, end } => {
                write!(f, "bytes {begin}..{end} before tensor {} belong to no tensor", quoted(tensor))
            }
            P::Truncated { tensor, tensors, needed, file_len } => {
                write!(f, "has {file_len} bytes, but its tensors need {needed}: {} ", quoted(tensor))?;
                match tensors {
                    0 | 1 => write!(f, "is not wholly there"),
                    n => write!(f, "and {} more are not wholly there", n - 1),
                }
            }
            P::TrailingBytes { bytes } => write!(f, "the last {bytes} bytes belong to no tensor"),
            P::Changed => write!(f, "changed its length while it was being opened"),
            P::More(n) => write!(f, "{n} more problems"),
        }
    }
}

/// Collects problems up to [`MAX_PROBLEMS`] and counts the rest.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    list: Vec<HeaderProblem>,
    more: usize,
}

impl Limits {
    pub(crate) fn push(&mut self, p: HeaderProblem) {
        if self.list.len() < MAX_PROBLEMS { self.list.push(p) } else { self.more += 1 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn into_vec(mut self) -> Vec<HeaderProblem> {
        if self.more > 0 {
            self.list.push(HeaderProblem::More(self.more));
        }
        self.list
    }
}
