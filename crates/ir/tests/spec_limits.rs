//! Inputs made to hurt: large, deep, explosive.

mod spec_support;

use spec_support::check;
use spinec_ir::spec::Host;
use spinec_ir::spec::system::Overrides;
use std::time::{Duration, Instant};

struct One(String);

impl Host for One {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == "x.yaml" { Ok(self.0.clone().into_bytes()) } else { Err("no such file".into()) }
    }
}

/// Codes and messages of a graph file, found soon.
fn found(text: String) -> Vec<(&'static str, String)> {
    let start = Instant::now();
    let (_, diags, _) = check("x.yaml", &One(text), &Overrides::default());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    diags.into_iter().map(|d| (d.code, d.message)).collect()
}

fn codes(text: String) -> Vec<&'static str> {
    found(text).into_iter().map(|(c, _)| c).collect()
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "graph: g\na0: &a0 [x, x]\n".to_string();
    for i in 1..30 {
        text.push_str(&format!("a{i}: &a{i} [*a{0}, *a{0}, *a{0}]\n", i - 1));
    }
    let all = codes(text);
    assert!(!all.is_empty() && all.iter().all(|c| *c == "E0106"), "{all:?}");
}

#[test]
fn a_scalar_of_10_mb_is_refused() {
    let all = found(format!("graph: g\ndoc: {}\n", "x".repeat(10 << 20)));
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].0, "E0103");
    let all = found(format!("graph: g\ndoc: {}\n", "x".repeat(2 << 20)));
    assert_eq!(all, [("E0103", "a value of 2097152 bytes; the limit is 1048576".to_string())]);
}

#[test]
fn deep_nesting_is_refused() {
    assert_eq!(codes(format!("graph: g\nnodes: {}x{}\n", "[".repeat(5000), "]".repeat(5000))), ["E0103"]);
    let deep = format!(
        "graph: g\ninputs: {{x: \"f32[2]\"}}\nnodes:\n  y: {}x{}\noutputs: {{y: y}}\n",
        "(".repeat(5000),
        ")".repeat(5000)
    );
    assert_eq!(codes(deep), ["E0110"]);
    let chain =
        format!("graph: g\ninputs: {{x: \"f32[2]\"}}\nnodes:\n  y: x{}\noutputs: {{y: y}}\n", " + x".repeat(5000));
    assert_eq!(codes(chain), ["E0110"]);
}

#[test]
fn a_long_chain_of_nodes_is_fine_in_any_order() {
    let mut forward = "graph: g\ninputs: {x: \"f32[2]\"}\nnodes:\n  n0: x * 2\n".to_string();
    let mut backward = "graph: g\ninputs: {x: \"f32[2]\"}\nnodes:\n".to_string();
    for i in 1..3000 {
        forward.push_str(&format!("  n{i}: n{} + 1\n", i - 1));
        backward.push_str(&format!("  n{}: n{} + 1\n", 3000 - i, 3000 - i - 1));
    }
    assert_eq!(found(forward + "outputs: {y: n2999}\n"), []);
    assert_eq!(found(backward + "  n0: x * 2\noutputs: {y: n2999}\n"), []);
}

#[test]
fn calls_and_expressions_deep_inside_each_other_end_with_an_error() {
    // Sixty graphs that call the next inside thirty nested calls.
    let mut text = "graph: g\ninputs: {x: \"f32[2]\"}\noutputs: {y: g0(x)}\ngraphs:\n".to_string();
    for i in 0..60 {
        let inner = format!("{}g{}(x){}", "exp(".repeat(30), i + 1, ")".repeat(30));
        text.push_str(&format!("  g{i}:\n    inputs: {{x: \"f32[2]\"}}\n    outputs: {{y: {inner}}}\n"));
    }
    text.push_str("  g60:\n    inputs: {x: \"f32[2]\"}\n    outputs: {y: x * 2}\n");
    let all = codes(text);
    assert!(all.contains(&"E0210"), "{all:?}");
    // Nested calls alone, as deep as the parser allows.
    let text = format!(
        "graph: g\ninputs: {{x: \"f32[2]\"}}\nnodes:\n  y: {}x{}\noutputs: {{y: y}}\n",
        "exp(".repeat(90),
        ")".repeat(90)
    );
    assert_eq!(codes(text), [] as [&str; 0]);
}

#[test]
fn loops_deep_inside_each_other_end_with_an_error() {
    let mut text = "graph: g\ninputs: {x: \"f32[2]\"}\nnodes:\n".to_string();
    let mut indent = "  ".to_string();
    for i in 0..18 {
        let outer = if i == 0 { "x".to_string() } else { format!("c{}", i - 1) };
        text.push_str(&format!("{indent}l{i}:\n{indent}  repeat: {{i{i}: 4}}\n{indent}  carry: {{c{i}: {outer}}}\n"));
        let next = if i == 17 { format!("c{i} * 2") } else { format!("l{}.c{}", i + 1, i + 1) };
        text.push_str(&format!("{indent}  yield: {{c{i}: {next}}}\n{indent}  nodes:\n"));
        indent.push_str("    ");
    }
    text.push_str(&format!("{indent}end: c17 + 1\noutputs: {{y: l0.c0}}\n"));
    let all = codes(text);
    assert!(all.contains(&"E0602"), "{all:?}");
}

/// Files `0.yaml` to `N.yaml`, each of which extends the next.
struct Chain(usize);

impl Host for Chain {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let n: usize = path.trim_end_matches(".yaml").parse().map_err(|_| "no such file".to_string())?;
        let more = if n < self.0 { format!("extends: {}.yaml\n", n + 1) } else { String::new() };
        Ok(format!("system: s\n{more}").into_bytes())
    }
}

#[test]
fn a_long_chain_of_files_that_extend_each_other_is_refused() {
    let refused = |length| {
        let (sources, diags, _) = check("0.yaml", &Chain(length), &Overrides::default());
        let found = diags.into_iter().find(|d| d.message.contains("extend each other in a row"));
        found.map(|d| (d.message, d.span.map(|s| sources.place(s))))
    };
    assert_eq!(refused(255), None);
    for length in [256, 10_000] {
        let (message, place) = refused(length).expect("it is refused");
        assert_eq!(message, "more than 256 files extend each other in a row");
        assert!(place.is_some_and(|p| p.starts_with("255.yaml:2")), "{length}");
    }
}
