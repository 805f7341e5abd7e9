//! The header of a safetensors file: parsed and fully checked before any tensor byte is touched.
//!
//! Layout of a file: 8 bytes little-endian header length `n`, `n` bytes of JSON, then the data. After
//! [`Header::parse`] every tensor lies inside the data, has exactly `elements * dtype` bytes, and the tensors cover the
//! data without holes or overlaps.

use std::collections::HashSet;
use std::io::{self, Read};

use safetensors::Dtype;

use super::entry::{self, RawEntry};
use super::problem::{HeaderProblem, Limits, MAX_HEADER_BYTES};

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderEntry {
    /// Name, unique in the file.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, at most [`super::MAX_RANK`]; empty for a scalar.
    pub shape: Vec<usize>,
    /// First byte, counted from the start of the file.
    pub start: usize,
    /// One past the last byte, counted from the start of the file.
    pub end: usize,
}

/// Why a header could not be read.
#[derive(Debug)]
pub enum HeaderError {
    /// Everything wrong with it.
    Problems(Vec<HeaderProblem>),
    /// A read failed.
    Io(io::Error),
}

/// A checked header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The tensors in the order of their data.
    pub entries: Vec<HeaderEntry>,
    /// Length the file must have, in bytes.
    pub file_len: usize,
}

impl Header {
    /// Reads and checks the header of a file of `file_len` bytes. Reads no further than the header.
    pub fn read(reader: &mut dyn Read, file_len: u64) -> Result<Self, HeaderError> {
        let fail = |p| Err(HeaderError::Problems(vec![p]));
        if file_len < 8 {
            return fail(HeaderProblem::TooShort { file_len });
        }
        let mut prefix = [0; 8];
        reader.read_exact(&mut prefix).map_err(HeaderError::Io)?;
        let n = u64::from_le_bytes(prefix);
        if n > MAX_HEADER_BYTES {
            return fail(HeaderProblem::HeaderTooLarge { declared: n });
        }
        if n > file_len - 8 {
            return fail(HeaderProblem::HeaderPastEnd { declared: n, file_len });
        }
        let mut bytes = vec![0; n as usize];
        reader.read_exact(&mut bytes).map_err(HeaderError::Io)?;
        Self::parse(&bytes, file_len).map_err(HeaderError::Problems)
    }

    /// Checks the JSON bytes of a header against the length of the whole file.
    ///
    /// # Errors
    /// Every problem found, in the order of the header, at most [`super::MAX_PROBLEMS`] and a count of the rest.
    pub fn parse(json: &[u8], file_len: u64) -> Result<Self, Vec<HeaderProblem>> {
        let text = std::str::from_utf8(json).map_err(|e| vec![HeaderProblem::NotUtf8 { offset: e.valid_up_to() }])?;
        if !text.starts_with('{') {
            return Err(vec![HeaderProblem::NotJson { message: "it does not begin with {".into() }]);
        }
        let raw = entry::split(text).map_err(|p| vec![p])?;
        let mut problems = Limits::default();
        if let Some(metadata) = raw.metadata
            && let Err(message) = entry::check_metadata(metadata)
        {
            problems.push(HeaderProblem::Metadata { message });
        }
        let mut names = HashSet::with_capacity(raw.tensors.len());
        let mut entries = Vec::with_capacity(raw.tensors.len());
        for (name, json) in &raw.tensors {
            if !names.insert(name.as_str()) {
                problems.push(HeaderProblem::DuplicateName { tensor: name.clone() });
                continue;
            }
            match entry::parse(name, json).and_then(|e| sized(name, e)) {
                Ok(e) => entries.push(e),
                Err(p) => problems.push(p),
            }
        }
        let complete = problems.is_empty();
        entries.sort_by_key(|e| (e.start, e.end));
        let data_start = 8 + json.len() as u64;
        check_cover(&entries, file_len.saturating_sub(data_start), complete, data_start, &mut problems);
        if !problems.is_empty() {
            return Err(problems.into_vec());
        }
        let base = data_start as usize;
        for e in &mut entries {
            (e.start, e.end) = (e.start + base, e.end + base);
        }
        Ok(Self { entries, file_len: file_len as usize })
    }
}

/// The entry with its type known and its byte count equal to what dtype and shape ask for; offsets still count from the
/// start of the data.
fn sized(name: &str, raw: RawEntry) -> Result<HeaderEntry, HeaderProblem> {
    let tensor = || name.to_owned();
    let overflow = || HeaderProblem::SizeOverflow { tensor: tensor() };
    let mut shape = Vec::with_capacity(raw.shape.len());
    let mut nonzero: usize = 1;
    for &d in &raw.shape {
        let d = usize::try_from(d).map_err(|_| overflow())?;
        nonzero = nonzero.checked_mul(d.max(1)).ok_or_else(overflow)?;
        shape.push(d);
    }
    let elements = if shape.contains(&0) { 0 } else { nonzero };
    let bits = elements.checked_mul(raw.dtype.bitsize()).ok_or_else(overflow)?;
    if !bits.is_multiple_of(8) {
        return Err(HeaderProblem::PartialByte { tensor: tensor(), dtype: raw.dtype });
    }
    let (begin, end) = raw.offsets;
    if begin > end {
        return Err(HeaderProblem::OffsetsReversed { tensor: tensor(), begin, end });
    }
    if end - begin != (bits / 8) as u64 {
        return Err(HeaderProblem::SizeMismatch {
            tensor: tensor(),
            dtype: raw.dtype,
            shape,
            expected: (bits / 8) as u64,
            found: end - begin,
        });
    }
    // Offsets beyond the address space cannot lie in any file; the cover check reports them.
    let clamp = |x: u64| usize::try_from(x).unwrap_or(usize::MAX);
    Ok(HeaderEntry { name: tensor(), dtype: raw.dtype, shape, start: clamp(begin), end: clamp(end) })
}

/// Entries, sorted by offset, must follow one another from 0 to `data_len`. If some tensors could not be read
/// (`complete` is false) holes prove nothing and only overlaps and the end are checked.
fn check_cover(entries: &[HeaderEntry], data_len: u64, complete: bool, data_start: u64, problems: &mut Limits) {
    let mut covered = 0usize;
    let mut last: Option<&HeaderEntry> = None;
    for e in entries {
        if e.start < covered {
            problems.push(HeaderProblem::Overlap {
                tensor: e.name.clone(),
                other: last.map_or_else(String::new, |l| l.name.clone()),
                begin: e.start as u64,
            });
        } else if e.start > covered && complete {
            problems.push(HeaderProblem::Hole { tensor: e.name.clone(), begin: covered as u64, end: e.start as u64 });
        }
        if e.end >= covered {
            covered = e.end;
            last = Some(e);
        }
    }
    let past: Vec<_> = entries.iter().filter(|e| e.end as u64 > data_len).collect();
    if let Some(first) = past.first() {
        problems.push(HeaderProblem::Truncated {
            tensor: first.name.clone(),
            tensors: past.len(),
            needed: (covered as u64).saturating_add(data_start),
            file_len: data_start + data_len,
        });
    } else if complete && (covered as u64) < data_len {
        problems.push(HeaderProblem::TrailingBytes { bytes: data_len - covered as u64 });
    }
}
