//! Files for the front end.

use spinec_ir::spec::Host;
use std::io::Read;

/// Reads spec files and configurations from the file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsHost;

/// Largest file the front end is given; it refuses smaller ones itself with a better message.
const MAX_BYTES: u64 = 64 << 20;

impl Host for FsHost {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let file = std::fs::File::open(path).map_err(|e| plain(&e))?;
        if file.metadata().map_err(|e| plain(&e))?.is_dir() {
            return Err("it is a directory".into());
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| plain(&e))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(format!("it is larger than {} MiB", MAX_BYTES >> 20));
        }
        Ok(bytes)
    }
}

fn plain(e: &std::io::Error) -> String {
    match e.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => e.to_string(),
    }
}
