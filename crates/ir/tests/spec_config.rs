//! What config.json says and the graphs do not compute is refused, in every system and where nothing is served too.

mod spec_support;

use serde_json::{Value, json};
use spec_support::{Repository, check, yaml_files};
use spinec_ir::diag::Diagnostic;
use spinec_ir::spec::Host;
use spinec_ir::spec::system::Overrides;

/// The repository, with some keys of the config.json of one checkpoint changed.
struct Edited<'a> {
    drafter: bool,
    keys: &'a [(&'a str, Value)],
}

impl Host for Edited<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let bytes = Repository.read(path)?;
        let Some(dir) = path.strip_suffix("/config.json") else { return Ok(bytes) };
        let drafter = dir.contains("drafter") || dir.ends_with("-b16");
        if drafter != self.drafter {
            return Ok(bytes);
        }
        let mut config: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
        for (key, value) in self.keys {
            let place = if config.get("text_config").is_some() { &mut config["text_config"] } else { &mut config };
            let parts: Vec<&str> = key.split('.').collect();
            let (last, outer) = parts.split_last().expect("a key has parts");
            let at = outer.iter().fold(place, |at, part| &mut at[*part]);
            at[*last] = value.clone();
        }
        Ok(serde_json::to_vec(&config).expect("a tree that was read can be written"))
    }
}

fn found(system: &str, drafter: bool, keys: &[(&str, Value)], eval: bool) -> Vec<Diagnostic> {
    let over = Overrides { no_limits: eval, ..Overrides::default() };
    check(system, &Edited { drafter, keys }, &over).1
}

#[test]
fn facts_that_no_graph_expresses() {
    let yarn = json!({"rope_type": "yarn", "factor": 4});
    let both: &[(&str, Value)] = &[
        ("hidden_act", json!("gelu")),
        ("attention_bias", json!(true)),
        ("mlp_bias", json!(true)),
        ("rope_scaling", yarn.clone()),
        ("rope_scaling", json!({"type": "linear", "factor": 2.0})),
        ("rope_parameters.rope_type", json!("llama3")),
    ];
    let of_target: &[(&str, Value)] = &[
        ("attn_output_gate", json!(false)),
        ("tie_word_embeddings", json!(true)),
        ("use_sliding_window", json!(true)),
        ("mamba_ssm_dtype", json!("bfloat16")),
    ];
    let of_drafter: &[(&str, Value)] =
        &[("partial_rotary_factor", json!(0.5)), ("rope_parameters.partial_rotary_factor", json!(0.25))];
    let systems = yaml_files("graphs");
    assert!(systems.len() >= 4);
    for system in &systems {
        for drafter in [false, true] {
            for fact in both.iter().chain(if drafter { of_drafter } else { of_target }) {
                for eval in [false, true] {
                    let found = found(system, drafter, std::slice::from_ref(fact), eval);
                    assert_eq!(found.len(), 1, "{system} {drafter} {fact:?}: {found:?}");
                    assert_eq!(found[0].code, "E0601", "{system} {drafter} {fact:?}");
                    let help = found[0].help.as_deref().unwrap_or("");
                    assert!(help.contains(fact.0) && help.contains("config.json"), "{fact:?}: {help}");
                }
            }
        }
    }
}

#[test]
fn the_same_facts_said_harmlessly() {
    for system in yaml_files("graphs") {
        let harmless = [
            ("rope_scaling", json!(null)),
            ("rope_scaling", json!({"rope_type": "default"})),
            ("rope_scaling", json!({"type": "default"})),
            ("mlp_bias", json!(false)),
            ("attention_bias", json!(null)),
        ];
        for fact in harmless {
            for drafter in [false, true] {
                let found = found(&system, drafter, std::slice::from_ref(&fact), false);
                assert!(found.is_empty(), "{system} {drafter} {fact:?}: {found:?}");
            }
        }
        let more = [("hidden_act", json!(null)), ("rope_parameters", json!({"rope_type": "default"}))];
        let found = found(&system, true, &more, false);
        assert!(found.is_empty(), "{system}: {found:?}");
    }
}

#[test]
fn limits_of_serving_are_off_where_nothing_is_served() {
    let over = |no_limits| Overrides { sets: vec![("B".into(), "8".into())], no_limits, ..Overrides::default() };
    let system = "graphs/spinal-demo.yaml";
    assert!(check(system, &Repository, &over(false)).1.iter().any(|d| d.code == "E0601"));
    assert!(check(system, &Repository, &over(true)).1.is_empty());
}
