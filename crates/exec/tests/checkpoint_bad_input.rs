//! Broken directories and hostile safetensors files: each gives exactly the errors it should, at once.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use proptest::prelude::*;
use safetensors::SafeTensors;
use spinec_exec::checkpoint::header::{Header, HeaderError};
use spinec_exec::checkpoint::{Checkpoint, CheckpointErrorKind as Kind, Dtype, HeaderProblem as P, MAX_PROBLEMS};

/// A file with this header text and so many zero bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn problems(bytes: &[u8]) -> Vec<P> {
    match Header::read(&mut Cursor::new(bytes), bytes.len() as u64) {
        Ok(_) => Vec::new(),
        Err(HeaderError::Problems(list)) => list,
        Err(HeaderError::Io(e)) => panic!("{e}"),
    }
}

const GOOD: &str = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]}}"#;

/// An entry named `a`.
fn one(dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
}

#[test]
fn the_good_file_is_good() {
    assert_eq!(problems(&file(GOOD, 12)), []);
    assert_eq!(problems(&file("{}", 0)), []);
    assert_eq!(problems(&file(&one("F32", "[]", "[0,4]"), 4)), []);
    assert_eq!(problems(&file(&one("F32", "[3,0]", "[0,0]"), 0)), []);
    assert_eq!(problems(&file(&one("F4", "[3,2]", "[0,3]"), 3)), []);
    assert_eq!(problems(&file(&format!("{GOOD}   "), 12)), []);
}

#[test]
fn lengths_that_cannot_be() {
    assert_eq!(problems(&[]), [P::TooShort { file_len: 0 }]);
    assert_eq!(problems(&[1; 7]), [P::TooShort { file_len: 7 }]);
    assert_eq!(problems(&[255; 64]), [P::HeaderTooLarge { declared: u64::MAX }]);
    let large = 100_000_001u64.to_le_bytes();
    assert_eq!(problems(&large), [P::HeaderTooLarge { declared: 100_000_001 }]);
    assert_eq!(problems(&99_000_000u64.to_le_bytes()), [P::HeaderPastEnd { declared: 99_000_000, file_len: 8 }]);
    // A pointer file of a large-file store is text.
    let pointer = b"version https://git-lfs.github.com/spec/v1\n";
    assert!(matches!(problems(pointer)[..], [P::HeaderTooLarge { .. }]));
}

#[test]
fn every_truncation_of_a_good_file_is_an_error() {
    let good = file(GOOD, 12);
    for n in 0..good.len() {
        let found = problems(&good[..n]);
        assert_eq!(found.len(), 1, "{n}");
        let expected = match n {
            0..8 => P::TooShort { file_len: n as u64 },
            _ if n < 8 + GOOD.len() => P::HeaderPastEnd { declared: GOOD.len() as u64, file_len: n as u64 },
            _ => P::Truncated {
                tensor: if n < good.len() - 4 { "a" } else { "b" }.into(),
                tensors: if n < good.len() - 4 { 2 } else { 1 },
                needed: good.len() as u64,
                file_len: n as u64,
            },
        };
        assert_eq!(found[0], expected);
    }
}

#[test]
fn headers_that_are_no_json_object() {
    let not_json = |text: &str| matches!(problems(&file(text, 0))[..], [P::NotJson { .. }]);
    for text in
        ["", " {}", "[]", "{", "{}x", "{} {}", "{\"a\":}", "{\"a\":{\"b\":1}", "{a:1}", "null", "\0\0", "{\"a\"}"]
    {
        assert!(not_json(text), "{text}");
    }
    assert!(not_json(&format!("{{\"a\":{}", "[".repeat(1_000_000))));
    assert!(not_json(&format!("{{\"a\":{}", "{\"a\":".repeat(1_000_000))));
    let mut bytes = file(GOOD, 12);
    bytes[12] = 0xff;
    assert_eq!(problems(&bytes), [P::NotUtf8 { offset: 4 }]);
}

#[test]
fn entries_with_values_of_the_wrong_kind() {
    let bad = [
        r#"{"a":null}"#,
        r#"{"a":[]}"#,
        r#"{"a":["F32",[1],[0,4]]}"#,
        r#"{"a":{}}"#,
        r#"{"a":{"dtype":"F32","shape":[1]}}"#,
        r#"{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":1}}"#,
        &one("F32", "[1]", "[0]"),
        &one("F32", "[1]", "[0,4,8]"),
        &one("F32", "[1]", "[-4,0]"),
        &one("F32", "[1]", "[0,1e1]"),
        &one("F32", "[1]", "[0,18446744073709551616]"),
        &one("F32", "[-1]", "[0,4]"),
        &one("F32", "[1.0]", "[0,4]"),
        &one("F32", "[[1]]", "[0,4]"),
        &one("F32", "1", "[0,4]"),
        &one("F32", "{}", "[0,4]"),
        r#"{"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}}"#,
    ];
    for header in bad {
        let found = problems(&file(header, 4));
        assert!(matches!(&found[..], [P::BadEntry { tensor, .. }] if tensor == "a"), "{header}: {found:?}");
    }
}

#[test]
fn entries_that_contradict_themselves() {
    let a = || "a".to_owned();
    let cases = [
        (one("F33", "[1]", "[0,4]"), P::UnknownDtype { tensor: a(), dtype: "F33".into() }),
        (one("f32", "[1]", "[0,4]"), P::UnknownDtype { tensor: a(), dtype: "f32".into() }),
        (one("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), P::TooManyDims { tensor: a(), rank: 9 }),
        (one("F32", &format!("[{}1]", "1,".repeat(99_999)), "[0,4]"), P::TooManyDims { tensor: a(), rank: 100_000 }),
        (one("F32", "[4294967296,4294967296]", "[0,4]"), P::SizeOverflow { tensor: a() }),
        (one("F32", "[18446744073709551615]", "[0,4]"), P::SizeOverflow { tensor: a() }),
        (one("F32", "[4611686018427387905]", "[0,4]"), P::SizeOverflow { tensor: a() }),
        (one("F32", "[0,4294967296,4294967296]", "[0,0]"), P::SizeOverflow { tensor: a() }),
        (one("F4", "[3]", "[0,2]"), P::PartialByte { tensor: a(), dtype: Dtype::F4 }),
        (one("F32", "[1]", "[4,0]"), P::OffsetsReversed { tensor: a(), begin: 4, end: 0 }),
        (
            one("F32", "[1]", "[0,2]"),
            P::SizeMismatch { tensor: a(), dtype: Dtype::F32, shape: vec![1], expected: 4, found: 2 },
        ),
        (
            one("BF16", "[]", "[0,4]"),
            P::SizeMismatch { tensor: a(), dtype: Dtype::BF16, shape: vec![], expected: 2, found: 4 },
        ),
    ];
    for (header, expected) in cases {
        assert_eq!(problems(&file(&header, 4)), [expected]);
    }
    let far = one("U8", "[1]", "[18446744073709551614,18446744073709551615]");
    assert!(matches!(problems(&file(&far, 1))[..], [P::Hole { .. }, P::Truncated { needed: u64::MAX, .. }]));
}

#[test]
fn tensors_that_do_not_tile_the_data() {
    let two = |a: (u32, u32), b: (u32, u32)| {
        let entry = |n: &str, (s, e): (u32, u32)| {
            format!(r#""{n}":{{"dtype":"U8","shape":[{}],"data_offsets":[{s},{e}]}}"#, e - s)
        };
        format!("{{{},{}}}", entry("a", a), entry("b", b))
    };
    let overlap = |begin| P::Overlap { tensor: "b".into(), other: "a".into(), begin };
    assert_eq!(problems(&file(&two((0, 4), (3, 6)), 6)), [overlap(3)]);
    assert_eq!(problems(&file(&two((0, 6), (2, 4)), 6)), [overlap(2)]);
    assert_eq!(problems(&file(&two((0, 4), (0, 4)), 4)), [overlap(0)]);
    assert_eq!(problems(&file(&two((0, 2), (4, 6)), 6)), [P::Hole { tensor: "b".into(), begin: 2, end: 4 }]);
    assert_eq!(problems(&file(&two((1, 2), (2, 6)), 6)), [P::Hole { tensor: "a".into(), begin: 0, end: 1 }]);
    assert_eq!(problems(&file(&two((0, 2), (2, 6)), 9)), [P::TrailingBytes { bytes: 3 }]);
    assert_eq!(problems(&file("{}", 1)), [P::TrailingBytes { bytes: 1 }]);
}

#[test]
fn names_and_metadata() {
    let entry = r#"{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#;
    // The second spelling is the same name.
    let twice = format!(r#"{{"ab":{entry},"a\u0062":{entry}}}"#);
    assert_eq!(problems(&file(&twice, 0)), [P::DuplicateName { tensor: "ab".into() }]);
    for bad in ["{\"a\":1}", "{\"a\":null}", "[]", "\"pt\"", "{\"a\":{}}", "null"] {
        let found = problems(&file(&format!(r#"{{"__metadata__":{bad}}}"#), 0));
        assert!(matches!(found[..], [P::Metadata { .. }]), "{bad}: {found:?}");
    }
    let found = problems(&file(r#"{"__metadata__":{},"__metadata__":{}}"#, 0));
    assert!(matches!(found[..], [P::Metadata { .. }]), "{found:?}");
}

#[test]
fn all_problems_come_at_once_and_their_number_is_bounded() {
    let header = r#"{"__metadata__":3,"a":1,"b":{"dtype":"X","shape":[],"data_offsets":[0,4]},
        "c":{"dtype":"F32","shape":[2],"data_offsets":[0,4]},"d":{"dtype":"F32","shape":[1],"data_offsets":[6,10]}}"#;
    let found = problems(&file(header, 8));
    assert!(
        matches!(
            found[..],
            [
                P::Metadata { .. },
                P::BadEntry { .. },
                P::UnknownDtype { .. },
                P::SizeMismatch { .. },
                P::Truncated { .. }
            ]
        ),
        "{found:?}"
    );
    let many: Vec<String> = (0..10_000).map(|i| format!("\"{i}\":0")).collect();
    let found = problems(&file(&format!("{{{}}}", many.join(",")), 0));
    assert_eq!(found.len(), MAX_PROBLEMS + 1);
    assert_eq!(found[MAX_PROBLEMS], P::More(10_000 - MAX_PROBLEMS));
    let many: Vec<String> = (0..1 << 20).map(|i| format!("\"{i}\":0")).collect();
    assert_eq!(problems(&file(&format!("{{{},\"x\":0}}", many.join(",")), 0)), [P::TooManyTensors]);
}

#[test]
fn messages_show_hostile_names_harmlessly() {
    let name = format!("\\u001b[31m\\n{}", "x".repeat(5000));
    let header = format!(r#"{{"{name}":{{"dtype":"\u001b[0m","shape":[],"data_offsets":[0,0]}}}}"#);
    let text = problems(&file(&header, 0))[0].to_string();
    assert!(text.len() < 400 && !text.chars().any(char::is_control), "{text}");
}

fn kinds(dir: &Path) -> Vec<Kind> {
    Checkpoint::open(dir).err().unwrap_or_default().into_iter().map(|e| e.kind).collect()
}

#[test]
fn directories_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(kinds(&dir.path().join("nowhere")), [Kind::NotFound]);
    let f = dir.path().join("file");
    fs::write(&f, "{}").unwrap();
    assert_eq!(kinds(&f), [Kind::NotADirectory]);
    assert_eq!(kinds(dir.path()), [Kind::MissingConfig]);
    fs::create_dir(dir.path().join("config.json")).unwrap();
    assert_eq!(kinds(dir.path()), [Kind::NotAFile]);
}

#[test]
fn broken_configs_are_placed() {
    let dir = tempfile::tempdir().unwrap();
    let config = |text: &[u8]| {
        fs::write(dir.path().join("config.json"), text).unwrap();
        kinds(dir.path())
    };
    assert_eq!(config(b"{}"), []);
    assert!(matches!(config(b"{\"a\": 1,\n  \"b\" 2}")[..], [Kind::Json { line: 2, column: 7, .. }]));
    assert!(matches!(config(b"")[..], [Kind::Json { .. }]));
    assert!(matches!(config(b"{\"a\": 1, \"a\": 2}")[..], [Kind::Json { .. }]));
    assert!(matches!(config(b"{\"a\": NaN}")[..], [Kind::Json { .. }]));
    assert_eq!(config(b"[]"), [Kind::JsonNotObject]);
    assert_eq!(config(b"{\"a\": \"\xff\"}"), [Kind::NotUtf8 { offset: 7 }]);
    assert_eq!(config(b"{\"eos_token_id\": \"x\"}"), [Kind::BadStopIds { found: "\"x\"".into() }]);
    fs::write(dir.path().join("generation_config.json"), "{").unwrap();
    let found = config(b"{");
    assert!(matches!(found[..], [Kind::Json { .. }, Kind::Json { .. }]), "{found:?}");
    let large = fs::File::create(dir.path().join("config.json")).unwrap();
    large.set_len(1 << 40).unwrap();
    assert!(matches!(kinds(dir.path())[..], [Kind::JsonTooLarge { .. }, Kind::Json { .. }]));
}

#[test]
fn broken_weights_are_reported_file_by_file() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    put("config.json", b"{}");
    put("a.safetensors", &file(GOOD, 12)[..20]);
    put("b.safetensors", b"");
    put("c.safetensors", &file(&one("F33", "[1]", "[0,4]"), 4));
    put(".hidden.safetensors", b"");
    fs::create_dir(dir.path().join("d.safetensors")).unwrap();
    put("m-00002-of-00002.safetensors", &file("{}", 0));
    let errors = Checkpoint::open(dir.path()).unwrap_err();
    let found: Vec<String> =
        errors.iter().map(|e| e.path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    let own = dir.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(found, [own, "a.safetensors", "b.safetensors", "c.safetensors", "d.safetensors"]);
    assert!(matches!(errors[0].kind, Kind::MissingShard { tensors: None, .. }));
    assert!(matches!(errors[1].kind, Kind::Safetensors(P::HeaderPastEnd { .. })));
    assert_eq!(errors[2].kind, Kind::Safetensors(P::TooShort { file_len: 0 }));
    assert!(matches!(errors[3].kind, Kind::Safetensors(P::UnknownDtype { .. })));
    assert_eq!(errors[4].kind, Kind::NotAFile);
    for e in &errors {
        let text = e.to_string();
        assert!(text.starts_with(&e.path.display().to_string()) && text.ends_with(e.remedy()), "{text}");
        assert!(text.contains(&e.cause()) && !e.remedy().is_empty(), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn links_and_pipes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("config.json"), "{}").unwrap();
    std::os::unix::fs::symlink(path("gone"), path("model.safetensors")).unwrap();
    assert_eq!(kinds(dir.path()), [Kind::NotFound]);
    fs::write(path("gone"), file(GOOD, 12)).unwrap();
    assert_eq!(kinds(dir.path()), []);
    // Opening a pipe for reading would wait for ever.
    fs::remove_file(path("model.safetensors")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(path("model.safetensors")).status();
    if made.is_ok_and(|s| s.success()) {
        assert_eq!(kinds(dir.path()), [Kind::NotAFile]);
    }
}

#[test]
fn two_layouts_and_broken_indices() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    put("config.json", b"{}");
    put("model.safetensors", &file(GOOD, 12));
    let index = |text: &str| {
        put("model.safetensors.index.json", text.as_bytes());
        kinds(dir.path())
    };
    assert_eq!(index(r#"{"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}"#), []);
    put("s.safetensors", &file(GOOD, 12));
    let two = Kind::TwoLayouts { index: "model.safetensors.index.json".into() };
    assert_eq!(index(r#"{"weight_map": {"a": "s.safetensors", "b": "s.safetensors"}}"#), [two]);
    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    assert!(matches!(index("{}")[..], [Kind::BadIndex(_)]));
    assert!(matches!(index(r#"{"weight_map": []}"#)[..], [Kind::BadIndex(_)]));
    assert!(matches!(index(r#"{"weight_map": {"a": "s.safetensors",}}"#)[..], [Kind::Json { .. }]));
    let double = r#"{"weight_map": {"a": "s.safetensors", "b": "s.safetensors", "a": "t"}}"#;
    assert!(matches!(index(double)[..], [Kind::Json { .. }]));
    put("s.safetensors", b"");
    // A shard that cannot be read is one error, not one for each of its tensors.
    assert!(matches!(index(r#"{"weight_map": {"a": "s.safetensors"}}"#)[..], [Kind::Safetensors(_)]));
}

/// What we accept the reference reader accepts, and both see the same tensors.
fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(header) = Header::read(&mut Cursor::new(bytes), bytes.len() as u64) else { return Ok(()) };
    let theirs = SafeTensors::deserialize(bytes).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(header.entries.len(), theirs.len());
    for e in &header.entries {
        let t = theirs.tensor(&e.name).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!((t.dtype(), t.shape(), t.data()), (e.dtype, &e.shape[..], &bytes[e.start..e.end]));
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, u8),
    Insert(usize, u8),
    Remove(usize),
    Copy(usize, usize, usize),
    Cut(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(b"0123456789{}[]\",:-.eE\\u ".to_vec())];
    let at = 0usize..200;
    prop_oneof![
        4 => (at.clone(), byte.clone()).prop_map(|(i, b)| Mutation::Set(i, b)),
        4 => (at.clone(), byte).prop_map(|(i, b)| Mutation::Insert(i, b)),
        4 => at.clone().prop_map(Mutation::Remove),
        2 => (at.clone(), at.clone(), 1usize..40).prop_map(|(a, b, n)| Mutation::Copy(a, b, n)),
        1 => at.prop_map(Mutation::Cut),
    ]
}

fn apply(bytes: &mut Vec<u8>, m: Mutation) {
    let len = bytes.len().max(1);
    match m {
        Mutation::Set(i, b) => {
            if let Some(x) = bytes.get_mut(i % len) {
                *x = b;
            }
        }
        Mutation::Insert(i, b) => bytes.insert(i % len, b),
        Mutation::Remove(i) => drop(bytes.splice(i % len..(i % len + 1).min(bytes.len()), [])),
        Mutation::Copy(a, b, n) => {
            let part: Vec<u8> = bytes.iter().skip(a % len).take(n).copied().collect();
            let at = (b % len).min(bytes.len());
            drop(bytes.splice(at..at, part));
        }
        Mutation::Cut(i) => bytes.truncate(i % len),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Mutated header texts of the right length: no panic, and agreement with the reference reader.
    #[test]
    fn mutated_headers(mutations in prop::collection::vec(mutation(), 1..4), data in 8usize..16) {
        let mut header = GOOD.as_bytes().to_vec();
        mutations.into_iter().for_each(|m| apply(&mut header, m));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.resize(bytes.len() + data, 7);
        agree(&bytes)?;
    }

    /// Mutated files, the length included.
    #[test]
    fn mutated_files(mutations in prop::collection::vec(mutation(), 1..6)) {
        let mut bytes = file(GOOD, 12);
        mutations.into_iter().for_each(|m| apply(&mut bytes, m));
        agree(&bytes)?;
    }

    /// Headers of plausible entries with arbitrary numbers.
    #[test]
    fn arbitrary_entries(
        entries in prop::collection::vec(
            (prop::sample::select(vec!["U8", "BF16", "F64", "F4", "F6_E2M3"]), prop::collection::vec(0u64..4, 0..4), 0u64..9, 0u64..9),
            0..4,
        ),
        huge in prop::option::of((0usize..4, any::<u64>())),
        data in 0usize..24,
    ) {
        let mut at = 0;
        let members: Vec<String> = entries.iter().enumerate().map(|(i, (dtype, shape, skip, slack))| {
            let bits = match *dtype { "U8" => 8, "BF16" => 16, "F64" => 64, "F4" => 4, _ => 6 };
            let mut shape = shape.clone();
            // Mostly what a correct file says, sometimes off.
            let begin = at + if *skip > 6 { 1 } else { 0 };
            let end = begin + shape.iter().product::<u64>() * bits / 8 + if *slack > 6 { 1 } else { 0 };
            at = end;
            if let Some((_, n)) = huge.filter(|(k, _)| *k == i) {
                shape.push(n);
            }
            format!(r#""{i}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#)
        }).collect();
        let data = if data < 16 { at as usize } else { data };
        agree(&file(&format!("{{{}}}", members.join(",")), data))?;
    }
}
