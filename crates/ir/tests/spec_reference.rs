//! The language reference: its tables are the compiler's, its example is a file that works. `SPINEC_BLESS=1` rewrites.

mod spec_support;

use spec_support::{Repository, check, root};
use spinec_ir::diag::render;
use spinec_ir::ir::verify::verify;
use spinec_ir::spec::reference::PARTS;
use spinec_ir::spec::system::Overrides;

const DOCUMENT: &str = "docs/spec-language.md";

/// What belongs between the marks of a line, if it opens a part.
fn wanted(line: &str) -> Option<String> {
    let mark = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    if let Some(name) = mark.strip_prefix("generated: ") {
        let part = PARTS.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("there is no part `{name}`"));
        return Some(format!("\n{}\n", (part.make)()));
    }
    let path = mark.strip_prefix("file: ")?;
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    Some(format!("\n```yaml\n{text}```\n\n"))
}

#[test]
fn generated_parts_are_up_to_date() {
    let path = root().join(DOCUMENT);
    let text = std::fs::read_to_string(&path).expect("the reference is there");
    let mut out = String::new();
    let mut lines = text.lines();
    let mut opened = Vec::new();
    while let Some(line) = lines.next() {
        out.push_str(&format!("{line}\n"));
        let Some(part) = wanted(line) else { continue };
        opened.push(line);
        out.push_str(&part);
        let end = lines.by_ref().find(|l| *l == "<!-- end -->").unwrap_or_else(|| panic!("no end of {line}"));
        out.push_str(&format!("{end}\n"));
    }
    for p in PARTS {
        assert!(
            opened.contains(&format!("<!-- generated: {} -->", p.name).as_str()),
            "{DOCUMENT} has no part `{}`",
            p.name
        );
    }
    if std::env::var_os("SPINEC_BLESS").is_some() {
        std::fs::write(&path, &out).expect("the reference can be written");
    } else {
        assert_eq!(out, text, "SPINEC_BLESS=1 rewrites {DOCUMENT}");
    }
}

#[test]
fn the_example_works() {
    for path in ["tests/filetests/example/decoder.yaml", "tests/filetests/example/system.yaml"] {
        let (sources, found, system) = check(path, &Repository, &Overrides::default());
        assert!(found.is_empty(), "{}", render(&found, &sources, false, 100));
        if let Some(s) = system {
            let m = s.entry_module("decoder", None, None).expect("lowers");
            assert_eq!(verify(&m.module), []);
            assert_eq!(m.module.funcs[0].outputs, ["logits", "after_layer.0", "after_layer.1", "after_layer.2"]);
            assert!(m.module.weights.iter().all(|w| w.source.is_some()));
        }
    }
}
