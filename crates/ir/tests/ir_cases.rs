//! Hand-written modules: correct ones cover every op and stay as they are through parse and print; malformed ones carry
//! the expected errors as `; error: ...` on the line that causes them.

use spinec_ir::ir::text::{annotate, parse, parse_mapped, print};
use spinec_ir::ir::verify::verify;
use spinec_ir::ir::{canonical, without_spans};
use spinec_ir::ops::OPS;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn files(kind: &str) -> Vec<(PathBuf, String)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(kind);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "ir"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no cases in {}", dir.display());
    paths.into_iter().map(|p| (p.clone(), std::fs::read_to_string(&p).unwrap())).collect()
}

fn without_comment_lines(text: &str) -> String {
    text.lines().filter(|l| !l.starts_with(';')).map(|l| format!("{l}\n")).collect()
}

#[test]
fn correct_cases_verify_and_are_canonical() {
    for (path, text) in files("ok") {
        let module = parse(&text).unwrap_or_else(|e| panic!("{}: {e:#?}", path.display()));
        let errors = verify(&module);
        assert!(errors.is_empty(), "{}\n{}", path.display(), annotate(&module, &errors));
        let printed = print(&module);
        if std::env::var_os("SPINEC_BLESS").is_some() {
            let head: String = text.lines().filter(|l| l.starts_with(';')).map(|l| format!("{l}\n")).collect();
            std::fs::write(&path, head + &printed).unwrap();
        } else {
            assert_eq!(printed, without_comment_lines(&text), "{}", path.display());
        }
        assert_eq!(format!("{module:?}"), format!("{:?}", without_spans(&canonical(&module))), "{}", path.display());
    }
}

#[test]
fn every_op_has_a_case() {
    let mut met = BTreeSet::new();
    for (_, text) in files("ok") {
        let module = parse(&text).unwrap();
        met.extend(module.funcs.iter().flat_map(|f| &f.ops).map(|op| op.code));
    }
    let missing: Vec<&str> = OPS.iter().filter(|d| !met.contains(&d.code)).map(|d| d.name).collect();
    assert!(missing.is_empty(), "ops without a case: {missing:?}");
}

/// Errors of a text with their lines.
fn errors_of(text: &str) -> Vec<(u32, String)> {
    match parse_mapped(text) {
        Err(errors) => errors.into_iter().map(|e| (e.line, e.message)).collect(),
        Ok((module, lines)) => verify(&module)
            .into_iter()
            .map(|e| (lines.line(e.site).expect("every site has a line"), e.message))
            .collect(),
    }
}

#[test]
fn malformed_cases_report_exactly_the_errors_on_their_lines() {
    const MARK: &str = "; error: ";
    for (path, text) in files("bad") {
        let mut found = errors_of(&text);
        if std::env::var_os("SPINEC_BLESS").is_some() {
            let mut out = String::new();
            for (i, line) in text.lines().enumerate() {
                out.push_str(line.split(MARK).next().unwrap_or(line).trim_end());
                for (_, message) in found.iter().filter(|(at, _)| *at as usize == i + 1) {
                    out.push_str(&format!(" {MARK}{message}"));
                }
                out.push('\n');
            }
            std::fs::write(&path, out).unwrap();
            continue;
        }
        let mut wanted = Vec::new();
        for (i, line) in text.lines().enumerate() {
            wanted.extend(line.split(MARK).skip(1).map(|m| (i as u32 + 1, m.trim_end().to_owned())));
        }
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "{}", path.display());
        assert!(!wanted.is_empty(), "{} expects nothing", path.display());
    }
}
