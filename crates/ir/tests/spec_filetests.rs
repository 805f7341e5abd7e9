//! Broken specs in `tests/filetests/diagnostics`: every error stands on the line that causes it, and nothing else is
//! reported. `SPINEC_BLESS=1` writes what is reported into the files.

mod spec_support;

use spec_support::{Claim, Repository, check, claim_of, claims, fits, root, yaml_files};
use spinec_ir::diag::{Severity, render, to_json};
use spinec_ir::spec::system::Overrides;

const FOLDER: &str = "tests/filetests/diagnostics";

#[test]
fn every_error_is_claimed_and_every_claim_is_found() {
    let bless = std::env::var_os("SPINEC_BLESS").is_some();
    let files = yaml_files(FOLDER);
    let mut failed = String::new();
    for path in &files {
        if let Err(why) = one(path, bless) {
            failed.push_str(&format!("== {path}\n{why}\n"));
        }
    }
    assert!(failed.is_empty(), "SPINEC_BLESS=1 rewrites the claims\n{failed}");
}

/// Loads one file and compares.
fn one(path: &str, bless: bool) -> Result<(), String> {
    let bytes = std::fs::read(root().join(path)).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut over = Overrides::default();
    claims(path, &text, &mut over);
    let (sources, found, _) = check(path, &Repository, &over);
    let mut wanted: Vec<Claim> = Vec::new();
    // Helper files carry their own claims; those of the system under test must not hold any.
    for (_, f) in sources.files().filter(|(_, f)| f.name.starts_with(FOLDER)) {
        wanted.extend(claims(&f.name, &f.text, &mut Overrides::default()));
    }
    let mut why = String::new();
    let mut open = wanted.clone();
    let mut unclaimed = Vec::new();
    for d in &found {
        let have = claim_of(d, &sources);
        match open.iter().position(|c| fits(c, &have)) {
            Some(i) => {
                open.remove(i);
            }
            None => unclaimed.push(have),
        }
        if d.help.is_none() {
            why.push_str(&format!(
                "without help: {}:{} {} {}\n",
                claim_of(d, &sources).file,
                claim_of(d, &sources).line,
                d.code,
                d.message
            ));
        }
    }
    if found.iter().all(|d| d.severity != Severity::Error) {
        why.push_str("nothing is wrong with it\n");
    }
    // Both renderings take whatever was found.
    let shown = render(&found, &sources, false, 100);
    assert_eq!(to_json(&found, &sources).len(), found.len());
    if bless && (!open.is_empty() || !unclaimed.is_empty()) {
        write_claims(path, &text, &found.iter().map(|d| claim_of(d, &sources)).collect::<Vec<_>>());
        return Ok(());
    }
    for c in unclaimed {
        why.push_str(&format!("unclaimed: {}:{} {} {}\n", c.file, c.line, c.code, c.text));
    }
    for c in open {
        why.push_str(&format!("not found: {}:{} {} {}\n", c.file, c.line, c.code, c.text));
    }
    if why.is_empty() { Ok(()) } else { Err(format!("{why}{shown}")) }
}

/// Writes claims behind their lines, or into the head of a file that has its claims there.
fn write_claims(path: &str, text: &str, found: &[Claim]) {
    let in_head = text.contains("#! line ");
    let old: Vec<&str> = text.lines().collect();
    let is_head = |l: &str| ["#! line ", "#! at ", "#! nowhere "].iter().any(|p| l.starts_with(p));
    // The number of head lines moves the lines of the file.
    let kept: Vec<(usize, &str)> =
        old.iter().enumerate().filter(|(_, l)| !is_head(l)).map(|(i, l)| (i + 1, *l)).collect();
    let head: Vec<&Claim> = found.iter().filter(|c| in_head || c.file != path).collect();
    let mut out: Vec<String> = Vec::new();
    for c in &head {
        let moved = kept.iter().position(|(n, _)| *n == c.line).map_or(0, |p| p + 1) + head.len();
        out.push(match (c.file.as_str(), c.file == path) {
            ("", _) => format!("#! nowhere {} {}", c.code, c.text),
            (_, true) => format!("#! line {moved} {} {}", c.code, c.text),
            (file, _) => {
                format!("#! at {file} <<{}>> {} {}", c.written.split("  #! ").next().unwrap_or(""), c.code, c.text)
            }
        });
    }
    for (n, line) in kept {
        let (mut rest, mut options) = (line.to_string(), String::new());
        if let Some(at) = line.find("#! ") {
            if line[at..].starts_with("#! set ") {
                options = line[at..].to_string();
            }
            rest = line[..at].trim_end().to_string();
        }
        for c in found.iter().filter(|c| !in_head && c.file == path && c.line == n) {
            rest = format!("{rest}  #! {} {}", c.code, c.text);
        }
        out.push(format!("{rest}{options}"));
    }
    std::fs::write(root().join(path), out.join("\n") + "\n").expect("the file can be written");
}
