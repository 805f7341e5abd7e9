//! The trained demo pair and what is expected of it.

use super::{load_system, root};
use serde_json::Value;
use spinec_exec::checkpoint::Checkpoint;
use spinec_exec::text::Tokenizer;
use spinec_ir::spec::system::{Overrides, System};
use spinec_ir::ty::Numerics;

/// One held-out prompt.
pub struct Expected {
    pub prompt: Vec<u32>,
    pub greedy: Vec<u32>,
    pub accepted: Vec<usize>,
}

pub fn expected() -> Vec<Expected> {
    let text = std::fs::read(root().join("models/spinal-demo/eval_expected.json")).expect("the file is there");
    let json: Value = serde_json::from_slice(&text).expect("it is JSON");
    let list = |v: &Value, key: &str| -> Vec<u64> {
        v[key].as_array().expect("a list").iter().map(|x| x.as_u64().expect("a number")).collect()
    };
    let ids = |v: &Value, key: &str| -> Vec<u32> { list(v, key).into_iter().map(|x| x as u32).collect() };
    json["prompts"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|p| Expected {
            prompt: ids(p, "prompt_ids"),
            greedy: ids(p, "greedy"),
            accepted: list(p, "accepted").into_iter().map(|x| x as usize).collect(),
        })
        .collect()
}

pub fn demo() -> System {
    demo_with(&[])
}

pub fn demo_with(sets: &[(&str, &str)]) -> System {
    let over = Overrides {
        numerics: Some(Numerics::F32),
        sets: sets.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
        ..Overrides::default()
    };
    load_system(&root().join("graphs/spinal-demo.yaml"), &over)
}

pub fn tokenizer() -> Tokenizer {
    let checkpoint = Checkpoint::open(root().join("models/spinal-demo/target")).expect("the checkpoint opens");
    Tokenizer::from_checkpoint(&checkpoint).expect("the tokenizer is valid").expect("there is one")
}
