//! Specs as they are written, whole, cut and mutated: no panic, no hang, every diagnostic inside its file.

use proptest::prelude::*;
use spinec_ir::diag::{Diagnostics, SourceMap, render, to_json};
use spinec_ir::spec::expr::{parse_expr_node, parse_type_node};
use spinec_ir::spec::yaml::{self, Node, Value};

const BRIDGE: &str = r#"# one gated write
graph: bridge
doc: One gated predecessor write between draft layers – naïve form.
dims: {H: residual width, D: code width, K: message rank, V: vocabulary, B: block rows}
symbols: {N: {min: 1, max: 8, doc: requests in the batch}}
inputs:
  x:      {type: "bf16[N, B, H]", doc: state after the layer's MLP add}
  anchor: {type: "i32[N]"}
weights:
  codebook: "bf16[V, D]"
  gate:     "bf16[K, D]"
nodes:                      # evaluation order is not the file's order
  r:       rms(x, axis=-1)                                  # f32[N, B, 1]
  z:       linear(x / (r + 1e-6), read)
  predicted: z / (norm2(z, axis=-1) + 1e-6) * sqrt(D)
  known:   gather(codebook, anchor)[:, None] * sqrt(D)
  first:   iota(B)[None, :, None] == 0
  code:    where(first, known, predicted)
  prev:    shift(code, by=1, axis=1, fill=0)
  out:     where(first, x, x + r * linear(m, write))
outputs: {x: out, code: code}
"#;

const WALK: &str = r#"graph: walk
params: {rope_base: f64, eps: f64}
lists:
  kinds:    {length: L, of: [linear_attention, full_attention]}
inputs:
  codes:      "[N, B, D]"
  tokens:    "i32[N, T]"
state:
  kv:    {kind: kv_pool, per: kinds == full_attention, heads: KH, width: HD, dtype: bf16}
  conv:  {kind: window, per: kinds == linear_attention, channels: "2*GK*DK + GV*DV", taps: C, dtype: bf16}
nodes:
  layers:
    repeat: {l: L}
    carry: {x: "gather(embed, tokens)"}
    weights: {norm_in: "bf16[H]", gate: "bf16[I, H]", up: "bf16[I, H]"}
    nodes:
      h: rms_norm(x, 1 + norm_in)                     # zero-centred weight
      mixed:
        match: kinds[l]
        linear_attention: delta_net(h, rows, delta[l], conv[l])
        full_attention:   gated_attention(h, positions, rows, kv[l])
      y:   x + mixed
    yield: {x: y}
    keep:  {features: {value: y, at: captured, join: last}}
  walk:
    scan: {t: B-1}
    carry: {i: "fill(0, [N])"}
    nodes: {row: "take(law[:, t], i, axis=-2)", j: "draw(row, coins[:, t])"}
    yield: {i: j}
outputs: {proposal: walk.token, q: {value: walk.q, over: candidates, type: dist}}
graphs:
  logits:
    doc: "logits[t, p, c] of candidate c at row t+1 when the row before holds token p"
    inputs: {prev: "i32[N, B-1, P]", kv: state}
    weights:
      k: {type: "bf16[KH*HD, H]", from: "layers.{l}.k"}
    nodes:
      u:    linear(codes[:, 1:], gate) + gate_bias
      x:    last[:, 1:][:, :, None]
      o:    delta.gated_delta_rule(q, k, v, decay, beta, rows=rows)
      a:    attention(qr, kv.write(kr, vr, at=positions, rows=rows), causal=true, scale=1/sqrt(HD))
      s:    split(mixed, axis=-1, parts(q=GK*DK, k=GK*DK, v=GV*DV))
      decay: -exp(a_log) * softplus(cast(linear(h, a), f32) + dt_bias)
      out:  einsum("n t c h, n t p h -> n t p c", gather(head, candidates), xn)
    outputs: {out: out}
"#;

const SYSTEM: &str = r#"system: demo
checkpoints:
  target:
    config: text_config
    tensors:
      embed:                     model.language_model.embed_tokens.weight
      layers.{l}.norm_in:        model.language_model.layers.{l}.input_layernorm.weight
    ignore: [{pattern: "model.visual.*", reason: text only}, {pattern: "mtp.*", reason: this system drafts by itself}]
dims:
  H: target.hidden_size
limits:
  - {require: "B == 16",            reason: kernels and training geometry of the release}
  - {require: "draft_kv.kind == dense and draft_kv.dtype == bf16", reason: bounded pools break the slots}
serve: {requests: 8, context: 131072, chunk: 2048}
phases:
  draft:
    nodes:
      d: block_drafter(anchor, position)
      c: candidates(d.hidden[:, 1:])                                             # coarse
      proposal: where(sampling.greedy, g.proposal, s.proposal)
  commit:
    inputs: {keep: "i32[N]"}
    nodes:
      s: [target_kv.commit(keep), delta.commit(keep)]
widths:
  greedy:  [{requests: 1..7, width: 16}, {requests: 8, rows: 96, by: confidence}]
"#;

const SPECS: [&str; 3] = [BRIDGE, WALK, SYSTEM];

/// Parses bytes as `check` would and renders what came of it; checks that every place lies in the file.
fn check(bytes: &[u8]) -> (Option<Node>, Diagnostics) {
    let mut sources = SourceMap::default();
    let mut diags = Diagnostics::default();
    let (file, node) = yaml::parse_bytes("t.yaml", bytes, &mut sources, &mut diags);
    assert!(node.is_some() || diags.has_errors());
    let text = &sources.file(file).text;
    let inside = |start: u32, end: u32| start <= end && text.get(start as usize..end as usize).is_some();
    for d in diags.iter() {
        assert!(d.span.is_none_or(|s| inside(s.start, s.end)), "{d:?} in {text:?}");
        assert!(d.related.iter().all(|r| inside(r.span.start, r.span.end)), "{d:?} in {text:?}");
    }
    if let Some(root) = &node {
        nested(root, text);
        let mut more = Diagnostics::default();
        each_value(root, &mut |key, value| {
            parse_expr_node(value, &mut more);
            if key == "type" {
                parse_type_node(value, &mut more);
            }
        });
        diags.extend(more);
    }
    let list: Vec<_> = diags.iter().cloned().collect();
    assert_eq!(render(&list, &sources, false, 80).is_empty(), list.is_empty());
    assert_eq!(to_json(&list, &sources).len(), list.len());
    (node, diags)
}

/// Children lie inside their parents and in order; verbatim text stands where it says.
fn nested(node: &Node, text: &str) {
    let within = |inner: u32, outer: u32| assert!(inner <= outer, "{node:?} in {text:?}");
    let mut last = node.span.start;
    let mut child = |start: u32, end: u32| {
        within(last, start);
        within(end, node.span.end);
        last = end;
    };
    match &node.value {
        Value::Str(value) => {
            if let Some(at) = value.verbatim_at {
                assert!(text[at as usize..].starts_with(&value.value), "{value:?} in {text:?}");
            }
        }
        Value::Seq(items) => items.iter().for_each(|i| {
            child(i.span.start, i.span.end);
            nested(i, text);
        }),
        Value::Map(entries) => entries.iter().for_each(|e| {
            child(e.key_span.start, e.key_span.end);
            child(e.value.span.start, e.value.span.end);
            nested(&e.value, text);
        }),
        _ => {}
    }
}

fn each_value(node: &Node, f: &mut impl FnMut(&str, &Node)) {
    match &node.value {
        Value::Seq(items) => items.iter().for_each(|i| each_value(i, f)),
        Value::Map(entries) => entries.iter().for_each(|e| {
            f(&e.key, &e.value);
            each_value(&e.value, f);
        }),
        _ => {}
    }
}

#[test]
fn specs_parse_without_a_word() {
    for spec in SPECS {
        let mut sources = SourceMap::default();
        let file = sources.add("spec.yaml", spec);
        let mut diags = Diagnostics::default();
        let root = yaml::parse(file, &sources, &mut diags).expect("is YAML");
        let mut expressions = 0;
        each_value(&root, &mut |key, section| match (key, &section.value) {
            ("nodes" | "outputs" | "carry" | "yield", Value::Map(entries)) => {
                for entry in entries.iter().filter(|e| e.value.as_map().is_none()) {
                    expressions += 1;
                    assert!(parse_expr_node(&entry.value, &mut diags).is_some(), "{entry:?}");
                }
            }
            ("inputs" | "weights", Value::Map(entries)) => {
                for entry in entries {
                    let value = entry.value.get("type").map_or(&entry.value, |e| &e.value);
                    assert!(parse_type_node(value, &mut diags).is_some(), "{entry:?}");
                }
            }
            _ => {}
        });
        assert!(expressions > 3 && diags.is_empty(), "{diags:?}");
    }
}

#[test]
fn cut_specs_are_handled_at_every_byte() {
    for spec in SPECS {
        for end in 0..spec.len() {
            check(&spec.as_bytes()[..end]);
        }
    }
}

#[test]
fn repeated_indicators_are_handled() {
    let units = [
        " ",
        "\n",
        "-",
        "- ",
        "? ",
        "{",
        "[",
        "\"",
        "'",
        "a: ",
        "a:\n",
        "!!",
        "!a ",
        "&a ",
        "*a ",
        "%",
        "---\n",
        "...\n",
        "#",
        ",",
        "|",
        ">\n",
        "\t",
        "\\",
        "\"\\",
        "- *b\n",
        "\u{feff}",
        "\r",
        ": ",
        ":\n",
        "? a\n",
        "- |\n a\n",
        "[a: ",
        "{a: ",
        "x(,",
        "\"a\",",
        "]",
        "a:b ",
        "<<: *a\n",
        "[?",
        "{? a,",
        "é",
        "\0",
    ];
    for unit in units {
        for prefix in ["", "[", "{", "a: \"", "a: |\n ", "x: ", "- ", "a: [\n"] {
            check(format!("{prefix}{}", unit.repeat(3000 / unit.len())).as_bytes());
        }
    }
}

/// A spec with a few edits at random bytes.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let piece = proptest::sample::select(
        &[
            "", "\n", " ", "\t", ":", ": ", "- ", "[", "]", "{", "}", ",", "#", " #", "&a", "*a", "!", "|", ">", "'",
            "\"", "%", "@", "(", ")", "=", "\\", "é", "𝄞", "\r\n", "---\n", "<<: ", "a: b\n", "~", "1e999", "?",
            "\u{0}", "\u{85}",
        ][..],
    );
    let edit = (any::<prop::sample::Index>(), 0usize..12, piece);
    let edits = proptest::collection::vec(edit, 1..6);
    (proptest::sample::select(&SPECS[..]), edits, any::<bool>()).prop_map(|(spec, edits, bytes)| {
        let mut text = spec.as_bytes().to_vec();
        for (at, cut, piece) in edits {
            let mut at = at.index(text.len().max(1)).min(text.len());
            // Half of the cases cut through characters and are mostly not UTF-8.
            while !bytes && !String::from_utf8_lossy(&text).is_char_boundary(at) {
                at -= 1;
            }
            let end = (at + cut).min(text.len());
            text.splice(at..end, piece.bytes());
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_handled(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }

    #[test]
    fn arbitrary_yaml_characters_are_handled(text in "[-a1é \\n:,\\[\\]{}#&*!|>'\"%@?~.()=\\\\\\t]{0,60}") {
        check(text.as_bytes());
    }

    #[test]
    fn mutated_specs_are_handled(bytes in mutated()) {
        check(&bytes);
    }
}
