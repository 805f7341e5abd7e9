//! Real checkpoint directories open and give what their files hold.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde_json::{Value, json};
use spinec_exec::checkpoint::{Checkpoint, CheckpointErrorKind as Kind, Dtype, TensorSpec, write_safetensors};

fn repo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn open(dir: &Path) -> Checkpoint {
    Checkpoint::open(dir).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

/// Every directory with a config.json among the golden sets and the demo pair.
fn directories() -> Vec<PathBuf> {
    let mut dirs = vec![repo().join("models/spinal-demo/target"), repo().join("models/spinal-demo/drafter")];
    for set in ["s0", "s1", "s3", "s4"] {
        for part in ["target", "drafter", "dflash"] {
            dirs.push(repo().join("tests/data/golden").join(set).join(part));
        }
    }
    dirs
}

#[test]
fn golden_checkpoints_agree_with_the_reference_reader() {
    for dir in directories() {
        let ours = open(&dir);
        assert!(ours.has_weights());
        let bytes = fs::read(dir.join("model.safetensors")).unwrap();
        let theirs = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(ours.tensors().len(), theirs.len());
        let names: Vec<&str> = ours.tensors().map(|t| t.name).collect();
        assert!(names.is_sorted(), "{}", dir.display());
        for info in ours.tensors() {
            let (our, their) = (ours.tensor(info.name).unwrap(), theirs.tensor(info.name).unwrap());
            assert_eq!((our.dtype(), our.shape(), our.bytes()), (their.dtype(), their.shape(), their.data()));
            assert_eq!((info.dtype, info.shape), (our.dtype(), our.shape()));
            assert_eq!(info.file, dir.join("model.safetensors"));
            assert!(our.to_f32().unwrap().iter().all(|v| v.is_finite()), "{}", info.name);
        }
        assert!(ours.tensor("no such tensor").is_none());
    }
}

#[test]
fn configs_are_reachable_by_path() {
    let dir = repo().join("models/spinal-demo/target");
    let c = open(&dir);
    assert_eq!(c.config_path("hidden_size"), Some(&json!(192)));
    assert_eq!(c.config_path("layer_types.3"), Some(&json!("full_attention")));
    assert_eq!(c.config_path("rope_parameters.partial_rotary_factor"), Some(&json!(0.25)));
    assert_eq!(c.config_path("bos_token_id"), Some(&Value::Null));
    assert_eq!(c.config_path("hidden_size.x"), None);
    assert_eq!(c.config_text(), fs::read_to_string(dir.join("config.json")).unwrap());
    assert_eq!(c.stop_ids(), [2044, 2046]);
    assert!(c.tokenizer_file().is_some() && c.tokenizer_config_file().is_some());

    let drafter = open(&repo().join("models/spinal-demo/drafter"));
    assert!(drafter.stop_ids().is_empty() && drafter.tokenizer_file().is_none());
    assert!(drafter.generation_config().is_none());
}

#[test]
fn a_directory_with_a_config_alone_opens() {
    for name in fs::read_dir(repo().join("configs")).unwrap() {
        let c = open(&name.unwrap().path());
        assert!(!c.has_weights() && c.tensors().len() == 0);
    }
    let target = open(&repo().join("configs/qwen3.8-27b"));
    assert_eq!(target.stop_ids(), [248_044]);
    assert_eq!(target.config_path("text_config.hidden_size"), Some(&json!(5120)));
}

/// Splits a checkpoint into `n` shards by name order; returns the weight map.
fn split(from: &Checkpoint, to: &Path, n: usize) -> serde_json::Map<String, Value> {
    fs::create_dir_all(to).unwrap();
    fs::write(to.join("config.json"), from.config_text()).unwrap();
    let mut map = serde_json::Map::new();
    let specs: Vec<TensorSpec> =
        from.tensors().map(|t| TensorSpec { name: t.name.into(), dtype: t.dtype, shape: t.shape.into() }).collect();
    for (i, part) in specs.chunks(specs.len().div_ceil(n)).enumerate() {
        let name = format!("model-{:05}-of-{n:05}.safetensors", i + 1);
        write_safetensors(&to.join(&name), &[], part, |spec, out| {
            out.write_all(from.tensor(&spec.name).unwrap().bytes())
        })
        .unwrap();
        map.extend(part.iter().map(|s| (s.name.clone(), json!(name))));
    }
    map
}

fn write_index(dir: &Path, map: &serde_json::Map<String, Value>, total_size: Value) {
    let index = json!({"metadata": {"total_size": total_size}, "weight_map": map});
    fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

fn errors(dir: &Path) -> Vec<(String, Kind)> {
    let list = Checkpoint::open(dir).err().unwrap_or_default();
    list.into_iter().map(|e| (e.path.strip_prefix(dir).unwrap().display().to_string(), e.kind)).collect()
}

#[test]
fn sharded_checkpoints_hold_the_same_tensors() {
    let single = open(&repo().join("tests/data/golden/s1/target"));
    let dir = tempfile::tempdir().unwrap();
    let map = split(&single, dir.path(), 3);
    let total: usize = single.tensors().map(|t| single.tensor(t.name).unwrap().bytes().len()).sum();
    // First without an index, then with one.
    for with_index in [false, true] {
        if with_index {
            write_index(dir.path(), &map, json!(total));
        }
        let sharded = open(dir.path());
        assert_eq!(sharded.weight_files().count(), 3);
        assert!(sharded.notes().is_empty());
        assert_eq!(sharded.tensors().len(), single.tensors().len());
        for t in single.tensors() {
            assert_eq!(sharded.tensor(t.name), single.tensor(t.name));
            assert_eq!(sharded.tensor_info(t.name).unwrap().file.file_name().unwrap().to_str(), map[t.name].as_str());
        }
    }
    // Files that the index does not name are not looked at.
    fs::write(dir.path().join("consolidated.safetensors"), "not a tensor file").unwrap();
    assert!(Checkpoint::open(dir.path()).is_ok());
    write_index(dir.path(), &map, json!(total + 1));
    assert_eq!(open(dir.path()).notes().len(), 1);
}

#[test]
fn index_and_shards_must_agree() {
    let single = open(&repo().join("tests/data/golden/s1/dflash"));
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut map = split(&single, dir, 4);
    let shard = |i: usize| format!("model-{i:05}-of-00004.safetensors");
    let first = single.tensors().next().unwrap().name.to_owned();
    map.insert(first.clone(), json!(shard(4)));
    map.insert("ghost".into(), json!(shard(1)));
    map.insert("lost.a".into(), json!("lost-1.safetensors"));
    map.insert("lost.b".into(), json!("lost-2.safetensors"));
    map.insert("evil".into(), json!("../evil.safetensors"));
    map.insert("number".into(), json!(3));
    write_index(dir, &map, json!(0));
    let index = "model.safetensors.index.json".to_owned();
    let number = "weight_map gives no file name for 1 tensors, the first is `number`";
    let expected = [
        (index.clone(), Kind::BadIndex(number.into())),
        (index.clone(), Kind::ShardOutside { shard: "../evil.safetensors".into() }),
        (index.clone(), Kind::MissingShard { shard: "lost-1.safetensors".into(), tensors: Some(1) }),
        (index.clone(), Kind::MissingShard { shard: "lost-2.safetensors".into(), tensors: Some(1) }),
        (index.clone(), Kind::NotInShard { shard: shard(1), tensors: vec!["ghost".into()] }),
        (shard(1), Kind::NotInIndex { index: index.clone(), tensors: vec![first.clone()] }),
        (index.clone(), Kind::NotInShard { shard: shard(4), tensors: vec![first] }),
    ];
    assert_eq!(errors(dir), expected);
}

#[test]
fn a_tensor_in_two_files_is_reported_once() {
    let single = open(&repo().join("tests/data/golden/s1/dflash"));
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let map = split(&single, dir, 1);
    let name = single.tensors().next().unwrap().name.to_owned();
    let spec = TensorSpec { name: name.clone(), dtype: Dtype::U8, shape: vec![] };
    write_safetensors(&dir.join("z.safetensors"), &[], &[spec], |_, out| out.write_all(&[1])).unwrap();
    let other = dir.join("model-00001-of-00001.safetensors");
    let expected = [("z.safetensors".to_owned(), Kind::DuplicateTensors { other, tensors: vec![name.clone()] })];
    assert_eq!(errors(dir), expected);
    let mut map = map;
    map.insert(name, json!("z.safetensors"));
    write_index(dir, &map, json!(0));
    assert_eq!(errors(dir), expected);
}
