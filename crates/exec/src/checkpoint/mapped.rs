//! Safetensors files, opened and mapped into memory after their header is checked.

use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::error::{CheckpointError, CheckpointErrorKind as Kind};
use super::header::{Header, HeaderEntry, HeaderError};
use super::json::open_regular;
use super::problem::HeaderProblem;

/// One mapped file.
#[derive(Debug)]
pub(crate) struct MappedFile {
    pub(crate) path: PathBuf,
    map: Mmap,
}

impl MappedFile {
    /// Opens `path`: its tensors in data order, and the file they lie in. Every entry's range lies inside the map.
    pub(crate) fn open(path: &Path) -> Result<(Self, Vec<HeaderEntry>), Vec<CheckpointError>> {
        let error = |p| CheckpointError::new(path, Kind::Safetensors(p));
        let io = |e: std::io::Error| vec![CheckpointError::io(path, &e)];
        let (mut file, len) = open_regular(path).map_err(|e| vec![e])?;
        let header = match Header::read(&mut file, len) {
            Ok(h) => h,
            Err(HeaderError::Io(e)) => return Err(io(e)),
            Err(HeaderError::Problems(list)) => return Err(list.into_iter().map(error).collect()),
        };
        // SAFETY: the map is read only. Its bytes stay valid as long as nobody truncates the file; files of a checkpoint
        // are documented to be left alone while it is open. The length is compared again below, so that a file cut
        // before this point is refused instead of faulting later.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let now = file.metadata().map_err(io)?.len();
        if map.len() != header.file_len || now != len {
            return Err(vec![error(HeaderProblem::Changed)]);
        }
        Ok((Self { path: path.to_owned(), map }, header.entries))
    }

    /// The bytes `start..end` of the file.
    pub(crate) fn bytes(&self, start: usize, end: usize) -> &[u8] {
        &self.map[start..end]
    }
}
