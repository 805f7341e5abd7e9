//! What the tests of specs share: files of the repository, and expected errors that stand in them.
#![allow(dead_code)]

use spinec_ir::diag::{Diagnostic, SourceMap};
use spinec_ir::spec::system::{Overrides, System};
use spinec_ir::spec::{Host, Loaded, load};
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files of the repository by their path from its root.
pub struct Repository;

impl Host for Repository {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        // The reason must not depend on the system the tests run on.
        std::fs::read(root().join(path)).map_err(|e| e.kind().to_string())
    }
}

/// Paths of the YAML files of a folder, from the root, in order.
pub fn yaml_files(folder: &str) -> Vec<String> {
    let dir = root().join(folder);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let names = entries.map(|e| e.expect("entry").file_name().into_string().expect("UTF-8 name"));
    let mut out: Vec<String> = names.filter(|n| n.ends_with(".yaml")).map(|n| format!("{folder}/{n}")).collect();
    out.sort();
    out
}

/// Loads a file: its sources, its diagnostics in order, and the system if it is a usable one.
pub fn check(path: &str, host: &dyn Host, over: &Overrides) -> (SourceMap, Vec<Diagnostic>, Option<System>) {
    match load(path, host, over) {
        Loaded::Graph { sources, diags } => (sources, diags.into_sorted(), None),
        Loaded::System(s) => (s.sources, s.diags.into_sorted(), s.system),
    }
}

/// An expected error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Name of the file; empty for an error without a place.
    pub file: String,
    /// Line from one; 0 without a place.
    pub line: usize,
    /// Code.
    pub code: String,
    /// Part of the message.
    pub text: String,
}

/// The claims of a file: `#! E0301 part of the message` behind the line that causes it; in lines of their own
/// `#! line N E0301 ...`, `#! at FILE:N E0301 ...` and `#! nowhere E0301 ...`. Also its options: `#! set NAME=VALUE`.
pub fn claims(file: &str, text: &str, over: &mut Overrides) -> Vec<Claim> {
    let mut out = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for part in line.split("#! ").skip(1) {
            let part = part.trim();
            let (word, rest) = part.split_once(' ').unwrap_or((part, ""));
            let (place, claim) = match word {
                "set" => {
                    let (name, value) = rest.split_once('=').unwrap_or_else(|| panic!("{file}: `{part}` needs NAME=VALUE"));
                    over.sets.push((name.to_string(), value.to_string()));
                    continue;
                }
                "line" => {
                    let (n, claim) = rest.split_once(' ').unwrap_or((rest, ""));
                    ((file.to_string(), n.parse().unwrap_or_else(|_| panic!("{file}: `{part}`"))), claim)
                }
                "at" => {
                    let (at, claim) = rest.split_once(" E").unwrap_or((rest, ""));
                    let (name, n) = at.rsplit_once(':').unwrap_or_else(|| panic!("{file}: `{part}` needs FILE:LINE"));
                    ((name.to_string(), n.parse().unwrap_or_else(|_| panic!("{file}: `{part}`"))), &rest[rest.len() - claim.len() - 1..])
                }
                "nowhere" => ((String::new(), 0), rest),
                _ => ((file.to_string(), i + 1), part),
            };
            let (code, text) = claim.split_once(' ').unwrap_or((claim, ""));
            out.push(Claim { file: place.0, line: place.1, code: code.to_string(), text: text.trim().to_string() });
        }
    }
    out
}

/// Where a diagnostic stands, as a claim with its whole message.
pub fn claim_of(d: &Diagnostic, sources: &SourceMap) -> Claim {
    let (file, line) = match d.span {
        Some(s) => (sources.file(s.file).name.clone(), sources.file(s.file).line_col(s.start).0 as usize + 1),
        None => (String::new(), 0),
    };
    Claim { file, line, code: d.code.to_string(), text: d.message.clone() }
}
