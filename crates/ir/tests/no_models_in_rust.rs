//! What a model is stands in YAML: no Rust source outside tests names one.

use std::path::{Path, PathBuf};

const NAMES: [&str; 5] = ["qwen", "dspine", "dflash", "deepseek", "llama"];

/// Rust files below `dir`, without those of tests and of build results.
fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.filter_map(|e| e.ok()).map(|e| e.path()) {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if path.is_dir() {
            if !["tests", "target", ".git"].contains(&name) {
                sources(&path, out);
            }
        } else if name.ends_with(".rs") {
            out.push(path);
        }
    }
}

/// Lines before the unit tests of a file that name a model.
fn named(text: &str) -> Vec<usize> {
    let own = text.lines().take_while(|l| l.trim() != "#[cfg(test)]");
    let hit = |l: &str| NAMES.iter().any(|n| l.to_lowercase().contains(n));
    own.enumerate().filter(|(_, l)| hit(l)).map(|(i, _)| i + 1).collect()
}

#[test]
fn no_rust_source_names_a_model() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 100, "only {} files were looked at", files.len());
    files.sort();
    let mut found = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("readable source");
        found.extend(named(&text).into_iter().map(|line| format!("{}:{line}", path.display())));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_search_finds_names_in_any_case() {
    assert_eq!(named("let a = 1;\nfn load_Qwen3() {}\n#[cfg(test)]\nmod tests { const DSPINE: i32 = 1; }\n"), [2]);
}
