//! The tables of `docs/plan.md` are those of the code; `SPINEC_BLESS=1` writes them anew.

use spinec_ir::plan::families::{FAMILIES, MAX_OPERANDS, MAX_OPS};
use spinec_ir::plan::verify::Check;
use spinec_ir::plan::{Mechanism, Reason};
use std::path::Path;

fn rows(head: [&str; 2], rows: impl Iterator<Item = [String; 2]>) -> String {
    let mut out = format!("| {} | {} |\n|---|---|\n", head[0], head[1]);
    rows.for_each(|[a, b]| out.push_str(&format!("| {a} | {b} |\n")));
    out
}

fn table(name: &str) -> String {
    match name {
        "families" => {
            let mut out =
                "| family | kernels | anchors | before the anchor | behind it | mechanisms | blocks |\n".to_owned();
            out.push_str("|---|---|---|---|---|---|---|\n");
            for d in FAMILIES {
                let codes = |list: &[spinec_ir::ops::Opcode]| list.iter().map(|c| c.name()).collect::<Vec<_>>();
                let around = |elementwise: bool, list: &[spinec_ir::ops::Opcode]| {
                    if d.family.is_row() {
                        return "whatever keeps rows apart".to_owned();
                    }
                    let mut all = if elementwise { vec!["elementwise"] } else { Vec::new() };
                    all.extend(codes(list));
                    all.join(", ")
                };
                let mechanisms: Vec<&str> = d.mechanisms.iter().map(|m| m.name()).collect();
                let cells = [
                    d.family.name().to_owned(),
                    d.family.doc().to_owned(),
                    codes(d.anchors).join(", "),
                    around(d.before, d.rows_before),
                    around(d.after, d.rows_after),
                    mechanisms.join(", "),
                    d.schedule.to_owned(),
                ];
                out.push_str(&format!("| {} |\n", cells.join(" | ")));
            }
            out
        }
        "mechanisms" => {
            rows(["mechanism", "meaning"], Mechanism::ALL.iter().map(|m| [m.name().to_owned(), m.doc().to_owned()]))
        }
        "reasons" => rows(["reason", "meaning"], Reason::ALL.iter().map(|r| [r.name().to_owned(), r.doc().to_owned()])),
        "checks" => rows(["rule", "meaning"], Check::ALL.iter().map(|c| [c.name().to_owned(), c.doc().to_owned()])),
        other => panic!("docs/plan.md has a table `{other}` that no code writes"),
    }
}

#[test]
fn the_tables_are_those_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plan.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let mut out = String::new();
    let mut found = 0;
    let mut inside = false;
    for line in page.lines() {
        inside &= line != "<!-- end -->";
        if !inside {
            out.push_str(line);
            out.push('\n');
        }
        if let Some(name) = line.strip_prefix("<!-- table ").and_then(|l| l.strip_suffix(" -->")) {
            out.push_str(&table(name));
            inside = true;
            found += 1;
        }
    }
    assert_eq!((found, inside), (4, false), "a table for each of the four, each with an end");
    if std::env::var_os("SPINEC_BLESS").is_some() {
        std::fs::write(&path, &out).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).expect("the page is there");
    assert!(page == out, "SPINEC_BLESS=1 writes the tables of docs/plan.md anew");
    let limits = format!(
        "At most {MAX_OPERANDS} things may be read and written by a fused kernel, and it has at most {MAX_OPS} ops."
    );
    assert!(page.contains(&limits), "{limits}");
}
