//! Running the built binary, and files for it.
#![allow(dead_code)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

pub const DEMO: &str = "graphs/spinal-demo.yaml";

/// A command of the binary in the root of the repository.
pub fn spinec(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_spinec"));
    c.current_dir(env!("CARGO_MANIFEST_DIR")).args(args).stdin(Stdio::null());
    for v in ["SPINEC_BACKEND", "SPINEC_NUMERICS", "SPINEC_THREADS", "COLUMNS"] {
        c.env_remove(v);
    }
    c
}

pub struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn done(o: Output) -> Done {
    Done {
        code: o.status.code().unwrap_or(-1),
        out: String::from_utf8(o.stdout).expect("stdout is text"),
        err: String::from_utf8(o.stderr).expect("stderr is text"),
    }
}

pub fn run(args: &[&str]) -> Done {
    let d = done(spinec(args).output().expect("the binary starts"));
    assert!(!d.err.contains("bug in spinec") && !d.err.contains("panicked"), "{args:?}: {}", d.err);
    d
}

/// Runs, and expects an exit code.
pub fn expect(code: i32, args: &[&str]) -> Done {
    let d = run(args);
    assert_eq!(d.code, code, "{args:?}\n{}\n{}", d.out, d.err);
    d
}

/// The one JSON object on stdout.
pub fn json(args: &[&str]) -> Value {
    let d = expect(0, args);
    serde_json::from_str(&d.out).unwrap_or_else(|e| panic!("{e}: {}", d.out))
}

pub fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A copy of a checkpoint directory.
pub fn copy_checkpoint(from: &str) -> TempDir {
    let dir = TempDir::new().expect("a temporary directory");
    for entry in std::fs::read_dir(root(from)).expect("the checkpoint is there") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), dir.path().join(entry.file_name())).expect("a copy");
    }
    dir
}

/// Changes the header and the data of model.safetensors.
pub fn edit_weights(dir: &Path, change: impl FnOnce(&mut Value, &mut [u8])) {
    let path = dir.join("model.safetensors");
    let bytes = std::fs::read(&path).expect("the weights are there");
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + n]).expect("a header");
    let mut data = bytes[8 + n..].to_vec();
    change(&mut header, &mut data);
    let mut text = header.to_string();
    text.push_str(&" ".repeat((8 - text.len() % 8) % 8));
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text.as_bytes());
    out.extend(data);
    std::fs::write(path, out).expect("the weights are written");
}

/// Checks that a value has these fields with these types: `n` number, `s` text, `a` list, `o` object, `b` truth value.
pub fn has(v: &Value, fields: &[(&str, char)]) {
    for (name, kind) in fields {
        let f = v.get(name).unwrap_or_else(|| panic!("`{name}` is missing in {v}"));
        let ok = match kind {
            'n' => f.is_number(),
            's' => f.is_string(),
            'a' => f.is_array(),
            'o' => f.is_object(),
            'b' => f.is_boolean(),
            _ => false,
        };
        assert!(ok, "`{name}` is {f}");
    }
}
