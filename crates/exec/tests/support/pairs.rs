//! Random checkpoint pairs small enough for the interpreter, and systems with changed YAML.

use super::{load_system, root};
use serde_json::{Value, json};
use spinec_exec::synth::write_checkpoints;
use spinec_ir::spec::system::{Overrides, System};
use spinec_ir::ty::Numerics;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A system over random weights. The directory lives as long as this does.
pub struct Pair {
    pub dir: TempDir,
    pub spec: PathBuf,
    pub system: System,
    over: Overrides,
}

impl Pair {
    /// The system again, with further settings.
    pub fn reload(&self, sets: &[(&str, &str)]) -> System {
        let mut over = self.over.clone();
        over.sets.extend(sets.iter().map(|(n, v)| (n.to_string(), v.to_string())));
        load_system(&self.spec, &over)
    }
}

/// What a pair is made of. Everything that is not said here is the same for all.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub vocabulary: usize,
    pub block: usize,
    pub kept: usize,
    pub window: Option<usize>,
    pub causal: bool,
    /// `d` for a delta layer, `f` for full attention.
    pub kinds: &'static str,
    pub captured: &'static [usize],
    pub positions: usize,
    pub sets: Vec<(String, String)>,
    /// Replacements in files below `graphs/`: each text is there once.
    pub edits: Vec<(&'static str, String, String)>,
    /// YAML appended to the system file.
    pub extra: String,
    pub numerics: Numerics,
    pub seed: u64,
}

impl Default for Recipe {
    fn default() -> Self {
        Recipe {
            vocabulary: 48,
            block: 8,
            kept: 4,
            window: Some(12),
            causal: true,
            kinds: "dfdf",
            captured: &[0, 2],
            positions: 512,
            sets: Vec::new(),
            edits: Vec::new(),
            extra: PROBES.to_string(),
            numerics: Numerics::F32,
            seed: 1,
        }
    }
}

/// Entries that show what the phases hide.
pub const PROBES: &str = r#"
entries:
  rows:
    doc: Rows of several requests through the target, and what they leave in the draft pool.
    symbols: {N: {min: 1}, T: {min: 1}}
    inputs: {tokens: "i32[N, T]", positions: "i32[N, T]", rows: "i32[N]"}
    nodes:
      t: target(tokens, positions, rows)
    outputs: {logits: t.logits, features: t.features}
  keep:
    doc: The draft context of the first rows of each request.
    symbols: {N: {min: 1}, T: {min: 1}}
    inputs: {features: "[N, T, F*H]", positions: "i32[N, T]", keep: "i32[N]"}
    nodes:
      context: drafter.context_kv(features, positions, keep)
    outputs: {context: context.context}
  block:
    doc: One block per request.
    symbols: {N: {min: 1}}
    inputs: {anchor: "i32[N]", position: "i32[N]"}
    nodes:
      d: drafter(anchor, position)
    outputs: {hidden: d.hidden, last: d.last, codes: d.codes}
"#;

impl Recipe {
    fn target(&self) -> Value {
        let kinds: Vec<&str> =
            self.kinds.chars().map(|c| if c == 'd' { "linear_attention" } else { "full_attention" }).collect();
        json!({
            "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "attention_bias": false,
            "head_dim": 16, "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 48, "layer_types": kinds,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
            "linear_value_head_dim": 12, "max_position_embeddings": self.positions, "num_attention_heads": 4,
            "num_hidden_layers": self.kinds.len(), "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
            "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"},
            "tie_word_embeddings": false, "vocab_size": self.vocabulary,
        })
    }

    fn drafter(&self) -> Value {
        json!({
            "architectures": ["DSpineDraftModel"], "model_type": "qwen3", "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48,
            "vocab_size": self.vocabulary, "block_size": self.block, "sliding_window": self.window,
            "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": false,
            "max_position_embeddings": self.positions, "num_target_layers": self.kinds.len(), "is_causal": self.causal,
            "dspine_config": {
                "target_layer_ids": self.captured, "mask_token_id": self.vocabulary - 1, "code_size": 16, "message_rank": 8,
                "head_topk": self.kept, "coarse_topk": (2 * self.kept).min(self.vocabulary), "causal": self.causal,
            },
        })
    }

    /// Writes specs, configurations and random weights, and loads the system.
    pub fn build(&self) -> Pair {
        let dir = TempDir::new().expect("a temporary directory");
        let graphs = dir.path().join("graphs");
        copy_tree(&root().join("graphs"), &graphs);
        for (file, from, to) in &self.edits {
            let path = graphs.join(file);
            let text = std::fs::read_to_string(&path).expect("the graph is there");
            assert_eq!(text.matches(from.as_str()).count(), 1, "`{from}` is once in {file}");
            std::fs::write(&path, text.replace(from.as_str(), to)).expect("the graph is written");
        }
        let spec = graphs.join("pair.yaml");
        let head = "system: pair\nextends: parts/system_dspine.yaml\ncheckpoints:\n  target: {path: ../shape/target}\n  drafter: {path: ../shape/drafter}\n";
        std::fs::write(&spec, format!("{head}{}", self.extra)).expect("the system is written");
        for (name, config) in [("target", self.target()), ("drafter", self.drafter())] {
            let at = dir.path().join("shape").join(name);
            std::fs::create_dir_all(&at).expect("a directory");
            std::fs::write(at.join("config.json"), config.to_string()).expect("the configuration is written");
        }
        let mut over = Overrides { sets: self.sets.clone(), numerics: Some(self.numerics), ..Overrides::default() };
        let shape = load_system(&spec, &over);
        write_checkpoints(&shape, &dir.path().join("weights"), self.seed).expect("checkpoints are written");
        for c in &shape.checkpoints {
            over.checkpoints.insert(c.name.clone(), dir.path().join("weights").join(&c.name).display().to_string());
        }
        Pair { system: load_system(&spec, &over), spec, dir, over }
    }
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("the directory is there") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Named settings.
pub fn sets(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect()
}

/// One replacement in a file below `graphs/`.
pub fn edit(file: &'static str, from: &str, to: &str) -> (&'static str, String, String) {
    (file, from.to_string(), to.to_string())
}

impl Pair {
    /// Overwrites one row of a BF16 tensor of a checkpoint with one value, given by its bits.
    pub fn poke(&self, checkpoint: &str, tensor: &str, row: usize, bits: u16) {
        let path = self.dir.path().join("weights").join(checkpoint).join("model.safetensors");
        let mut bytes = std::fs::read(&path).expect("the weights are there");
        let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
        let json: Value = serde_json::from_slice(&bytes[8..8 + header]).expect("a header");
        let at = |i: usize| json[tensor]["data_offsets"][i].as_u64().expect("an offset") as usize;
        assert_eq!(json[tensor]["dtype"], "BF16");
        let rows = json[tensor]["shape"][0].as_u64().expect("an extent") as usize;
        let width = (at(1) - at(0)) / rows;
        let start = 8 + header + at(0) + row * width;
        for pair in bytes[start..start + width].chunks_mut(2) {
            pair.copy_from_slice(&bits.to_le_bytes());
        }
        std::fs::write(path, bytes).expect("the weights are written");
    }
}
