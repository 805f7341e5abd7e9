//! Written checkpoints: deterministic, readable by the reference reader, whole or not there.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use safetensors::SafeTensors;
use spinec_exec::checkpoint::{
    Checkpoint, Dtype, Init, NewCheckpoint, SynthTensor, TensorSpec, WriteErrorKind as W, write_checkpoint,
    write_safetensors, write_synth_checkpoint,
};

fn spec(name: &str, dtype: Dtype, shape: &[usize]) -> TensorSpec {
    TensorSpec { name: name.into(), dtype, shape: shape.into() }
}

fn synth(name: &str, dtype: Dtype, shape: &[usize], init: Init) -> SynthTensor {
    SynthTensor { spec: spec(name, dtype, shape), init }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn synthetic_checkpoints_depend_on_seed_and_names_alone() {
    let normal = Init::Normal { mean: 1.0, std: 0.1 };
    let mut tensors = vec![
        synth("layers.1.w", Dtype::BF16, &[64, 33], normal),
        synth("codebook", Dtype::F16, &[10, 16], Init::UnitRows),
        synth("layers.0.w", Dtype::BF16, &[64, 33], normal),
        synth("a \"quoted\" name\n", Dtype::F32, &[], Init::Constant(0.5)),
        synth("empty", Dtype::F32, &[3, 0], Init::UnitRows),
    ];
    let root = tempfile::tempdir().unwrap();
    let write = |dir: &str, tensors: &[SynthTensor], seed| {
        let dir = root.path().join(dir);
        write_synth_checkpoint(&dir, "{\"x\": 1}", Some("{\"eos_token_id\": 3}"), tensors, seed).unwrap();
        assert_eq!(names(&dir), ["config.json", "generation_config.json", "model.safetensors"]);
        fs::read(dir.join("model.safetensors")).unwrap()
    };
    let first = write("a", &tensors, 1);
    tensors.reverse();
    assert_eq!(first, write("b", &tensors, 1));
    assert_ne!(first, write("c", &tensors, 2));
    let theirs = SafeTensors::deserialize(&first).unwrap();
    assert_eq!(theirs.len(), 5);

    let c = Checkpoint::open(root.path().join("a")).unwrap();
    assert_eq!(c.stop_ids(), [3]);
    assert!(c.tensors().map(|t| t.name).is_sorted());
    let (w0, w1) =
        (c.tensor("layers.0.w").unwrap().to_f32().unwrap(), c.tensor("layers.1.w").unwrap().to_f32().unwrap());
    assert_ne!(w0, w1);
    assert!((w0.iter().sum::<f32>() / w0.len() as f32 - 1.0).abs() < 0.02);
    assert_eq!(c.tensor("a \"quoted\" name\n").unwrap().to_f32().unwrap(), [0.5]);
    assert!(c.tensor("empty").unwrap().is_empty());
    for row in c.tensor("codebook").unwrap().to_f64().unwrap().chunks(16) {
        assert!((row.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 2e-3);
    }
    // The data lies in name order, back to back, and begins at a multiple of 8.
    let start = u64::from_le_bytes(first[..8].try_into().unwrap());
    assert_eq!(start % 8, 0);
    let integers = [synth("i", Dtype::I32, &[1], normal)];
    let refused = write_synth_checkpoint(&root.path().join("d"), "{}", None, &integers, 1).unwrap_err();
    assert!(matches!(refused.kind, W::Dtype { .. }));
}

#[test]
fn a_failed_write_leaves_the_old_file_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.safetensors");
    fs::write(&path, "old").unwrap();
    let specs = [spec("a", Dtype::U8, &[4]), spec("b", Dtype::U8, &[4])];
    let fail = write_safetensors(&path, &[], &specs, |s, out| match s.name.as_str() {
        "a" => out.write_all(&[0; 4]),
        _ => Err(io::Error::new(ErrorKind::Interrupted, "stopped")),
    });
    assert!(matches!(fail.unwrap_err().kind, W::Io(_)));
    for n in [3, 5] {
        let fail = write_safetensors(&path, &[], &specs, |_, out| out.write_all(&vec![0; n])).unwrap_err();
        assert!(
            matches!(&fail.kind, W::ByteCount { tensor, expected: 4, found } if tensor == "a" && *found == n as u64)
        );
        assert!(fail.to_string().starts_with(path.to_str().unwrap()));
    }
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(dir.path()), ["t.safetensors"]);
    write_safetensors(&path, &[], &specs, |_, out| out.write_all(&[1; 4])).unwrap();
    assert_eq!(SafeTensors::deserialize(&fs::read(&path).unwrap()).unwrap().len(), 2);
    assert_eq!(names(dir.path()), ["t.safetensors"]);
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.safetensors");
    let write = |specs: &[TensorSpec]| write_safetensors(&path, &[], specs, |_, _| Ok(())).unwrap_err().kind;
    let a = |shape: &[usize]| spec("a", Dtype::F32, shape);
    assert!(matches!(write(&[a(&[0]), a(&[0])]), W::DuplicateName(_)));
    assert!(matches!(write(&[spec("__metadata__", Dtype::F32, &[0])]), W::ReservedName));
    assert!(matches!(write(&[a(&[0; 9])]), W::TooManyDims(_)));
    assert!(matches!(write(&[a(&[usize::MAX, 2])]), W::Size(_)));
    assert!(matches!(write(&[spec("a", Dtype::F4, &[3])]), W::Size(_)));
    assert!(names(dir.path()).is_empty());
    let nowhere = write_safetensors(&dir.path().join("no/t.safetensors"), &[], &[], |_, _| Ok(()));
    assert!(matches!(nowhere.unwrap_err().kind, W::Io(e) if e.kind() == ErrorKind::NotFound));
}

#[test]
fn a_checkpoint_is_not_written_over_a_sharded_one_or_with_a_broken_config() {
    let dir = tempfile::tempdir().unwrap();
    let new = |config| NewCheckpoint { config, generation_config: None, tensors: &[] };
    for config in ["{", "[]", "{\"a\":1,\"a\":1}"] {
        let error = write_checkpoint(dir.path(), &new(config), |_, _| Ok(())).unwrap_err();
        assert!(matches!(error.kind, W::NotJson(_)));
    }
    fs::write(dir.path().join("model.safetensors.index.json"), "{}").unwrap();
    let error = write_checkpoint(dir.path(), &new("{}"), |_, _| Ok(())).unwrap_err();
    assert!(matches!(error.kind, W::ShardedThere));
    assert_eq!(names(dir.path()), ["model.safetensors.index.json"]);
}

#[cfg(unix)]
#[test]
fn written_files_have_ordinary_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    fs::write(&plain, "").unwrap();
    let written = dir.path().join("t.safetensors");
    write_safetensors(&written, &[], &[], |_, _| Ok(())).unwrap();
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode();
    assert_eq!(mode(&written), mode(&plain));
}

/// Links stay and lead to the new content; what is no file, or leads nowhere, stays as it is.
#[cfg(unix)]
#[test]
fn only_files_are_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::os::unix::net::UnixListener;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let write = |path: &Path| write_safetensors(path, &[], &[], |_, _| Ok(()));
    fs::write(at("file"), "old").unwrap();
    symlink(at("file"), at("link")).unwrap();
    write(&at("link")).unwrap();
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert!(SafeTensors::deserialize(&fs::read(at("file")).unwrap()).is_ok());
    symlink(at("nothing"), at("lost")).unwrap();
    assert!(matches!(write(&at("lost")).unwrap_err().kind, W::Io(_)));
    assert!(fs::symlink_metadata(at("lost")).unwrap().is_symlink());
    let _listener = UnixListener::bind(at("socket")).unwrap();
    symlink(at("socket"), at("to socket")).unwrap();
    for name in ["socket", "to socket"] {
        assert!(matches!(write(&at(name)).unwrap_err().kind, W::NoFile), "{name}");
    }
    assert!(fs::metadata(at("socket")).unwrap().file_type().is_socket());
    assert_eq!(names(dir.path()), ["file", "link", "lost", "socket", "to socket"]);
}

#[test]
fn invented_weights_replace_invented_ones_alone() {
    let config = "{\"a\": 1}";
    let write = |dir: &Path, seed| write_synth_checkpoint(dir, config, None, &[], seed);
    let fresh = tempfile::tempdir().unwrap();
    write(fresh.path(), 1).unwrap();
    write(fresh.path(), 2).unwrap();
    let trained = tempfile::tempdir().unwrap();
    write_checkpoint(trained.path(), &NewCheckpoint { config: "{}", generation_config: None, tensors: &[] }, |_, _| {
        Ok(())
    })
    .unwrap();
    let before = fs::read(trained.path().join("model.safetensors")).unwrap();
    let error = write(trained.path(), 1).unwrap_err();
    assert!(matches!(error.kind, W::OthersThere("model.safetensors")), "{error}");
    assert!(error.to_string().ends_with("choose an empty directory"));
    assert_eq!(fs::read(trained.path().join("model.safetensors")).unwrap(), before);
    assert_eq!(fs::read(trained.path().join("config.json")).unwrap(), b"{}");
    for name in ["config.json", "generation_config.json", "model.safetensors"] {
        let alone = tempfile::tempdir().unwrap();
        fs::write(alone.path().join(name), "{}").unwrap();
        assert!(matches!(write(alone.path(), 1).unwrap_err().kind, W::OthersThere(n) if n == name));
        assert_eq!(names(alone.path()), [name]);
    }
}
