//! What `explain` found, for people.

use crate::output;
use serde_json::Value;

fn line(depth: usize, text: &str) {
    output::line(&format!("{}{text}", "  ".repeat(depth)));
}

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

fn text(v: &Value) -> &str {
    v.as_str().unwrap_or_default()
}

fn joined(v: &Value, by: &str) -> String {
    list(v).iter().map(text).collect::<Vec<_>>().join(by)
}

/// Prints a report.
pub fn print(report: &Value) {
    let iterations = joined(&report["iterations"], ", ");
    if !iterations.is_empty() {
        line(0, &format!("what iteration {iterations} computes"));
    }
    for phase in list(&report["phases"]) {
        line(0, &format!("{}:", text(&phase["phase"])));
        for fact in list(&phase["facts"]) {
            line(1, text(fact));
        }
        ops(phase);
        kernels(phase);
        let readers = joined(&phase["read_by"], ", ");
        if !readers.is_empty() {
            line(1, &format!("read from memory by {readers}"));
        }
        for region in list(&phase["regions"]) {
            for value in list(&region["values"]) {
                chain(value, text(&value["value"]));
            }
            fired(region);
        }
        if let Some(note) = phase["note"].as_str() {
            line(1, note);
        }
    }
    let weight = &report["weight"];
    if weight.is_object() {
        for l in list(&weight["text"]) {
            line(0, text(l));
        }
        for part in list(&weight["parts"]) {
            let name = text(&weight["name"]);
            let of = match part["column"].as_i64() {
                Some(c) => format!("{name} from column {c}"),
                None => name.to_owned(),
            };
            chain(part, &of);
            fired(part);
        }
    }
}

fn ops(phase: &Value) {
    for op in list(&phase["ops"]) {
        line(1, &format!("{} : {}", text(&op["op"]), joined(&op["types"], ", ")));
        for w in list(&op["written"]) {
            line(2, &format!("written at {}: {}", text(&w["place"]), text(&w["text"])));
        }
        if let Some(role) = op["role"].as_str() {
            line(2, role);
        }
    }
}

fn kernels(phase: &Value) {
    for k in list(&phase["kernels"]) {
        line(1, &format!("kernel {}: {}, {} blocks", text(&k["id"]), text(&k["family"]), text(&k["grid"])));
        for m in list(&k["mechanisms"]) {
            line(2, &format!("{}: {}", text(&m["name"]), text(&m["doc"])));
        }
        line(2, &format!("ops: {}", joined(&k["ops"], "; ")));
        for a in list(&k["accesses"]) {
            let words = ["access", "place", "bytes", "size"].map(|f| text(&a[f]));
            line(2, &format!("{} {}: {} bytes ({} for one request)", words[0], words[1], words[2], words[3]));
        }
        for d in list(&k["decisions"]) {
            let detail = text(&d["detail"]);
            let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
            let words = ["producer", "consumer", "reason", "doc"].map(|f| text(&d[f]));
            line(2, &format!("{} -> {}: {} ({}){detail}", words[0], words[1], words[2], words[3]));
        }
    }
}

fn fired(region: &Value) {
    let rules: Vec<String> =
        region["fired"].as_object().into_iter().flatten().map(|(n, k)| format!("{n} x{k}")).collect();
    if !rules.is_empty() {
        let at = text(&region["region"]);
        line(1, &format!("rules that fired in the region that begins at {at}: {}", rules.join(", ")));
    }
}

fn chain(value: &Value, name: &str) {
    line(1, &format!("chain of {name}:"));
    let written = &value["written"];
    line(2, &format!("as written: {} : {}", text(&written["term"]), text(&written["type"])));
    place(3, &written["at"]);
    for (i, step) in list(&value["steps"]).iter().enumerate() {
        match (step["rule"].as_str(), &step["again"]) {
            (Some(rule), _) => {
                let back = if step["reversed"] == true { ", read from right to left" } else { "" };
                let at = step["value"].as_str().map(|n| format!(" at {n}")).unwrap_or_default();
                line(2, &format!("{}. {rule} ({}{back}){at} : {}", i + 1, text(&step["class"]), text(&step["type"])));
            }
            (None, again) if again[0] == again[1] => line(2, &format!("{}. as in {}, elsewhere", i + 1, again[0])),
            (None, again) => line(2, &format!("{}. as in {} to {}, elsewhere", i + 1, again[0], again[1])),
        }
        line(4, text(&step["before"]));
        line(3, &format!("-> {}", text(&step["after"])));
        if step["written_at"] != written["at"] {
            place(4, &step["written_at"]);
        }
    }
    match text(&value["status"]) {
        "removed" => match (value["removed_by"].as_str(), value["part_of"].as_str()) {
            (Some(rule), Some(root)) => line(2, &format!("not computed any more: {rule} makes {root} without it")),
            _ => line(2, "not computed any more: nothing needs it"),
        },
        "as_written" => line(2, "computed as written: no rule rewrote it"),
        _ => {
            let (term, ty) = (text(&value["chosen"]["term"]), text(&value["chosen"]["type"]));
            // The dtype stands first in a type.
            let stored = value["stored"].as_str().filter(|s| ty.split('[').next() != Some(s));
            let stored = stored.map(|s| format!(", stored as {s}: rounded once, after everything else"));
            line(2, &format!("computed as: {term} : {ty}{}", stored.unwrap_or_default()));
        }
    }
    let held = joined(&value["held_by"], ", ");
    if !held.is_empty() && text(&value["status"]) == "removed" {
        line(2, &format!("what it was for is computed before the first run and held in {held}"));
    } else if !held.is_empty() {
        line(2, &format!("computed before the first run and held in {held}"));
    }
    for (i, n) in list(&value["where"]).iter().enumerate() {
        let with = if i == 0 { "with" } else { "    " };
        line(2, &format!("{with} {} = {}", text(&n["name"]), text(&n["term"])));
    }
}

fn place(depth: usize, at: &Value) {
    if at.is_object() {
        line(depth, &format!("written at {}: {}", text(&at["place"]), text(&at["text"])));
    }
}
