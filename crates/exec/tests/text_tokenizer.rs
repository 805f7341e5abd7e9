//! The demo tokenizer: round trips, streams that never break a character, stops across token boundaries.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};
use spinec_exec::checkpoint::{Checkpoint, CheckpointErrorKind};
use spinec_exec::text::{StopMatcher, StreamDecoder, TextError, Tokenizer};

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/spinal-demo")
}

static TOKENIZER: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::from_file(&demo().join("target/tokenizer.json")).unwrap());

/// The pieces a stream gives for these ids, the last from its end.
fn stream(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) -> Vec<String> {
    let mut decoder = StreamDecoder::new(tokenizer, skip_special);
    let mut pieces: Vec<String> = ids.iter().map(|&id| decoder.push(tokenizer, id).unwrap()).collect();
    pieces.push(decoder.finish(tokenizer).unwrap());
    pieces
}

#[test]
fn prompts_of_the_demo_tokenise_as_recorded() {
    let expected: Value =
        serde_json::from_str(&fs::read_to_string(demo().join("eval_expected.json")).unwrap()).unwrap();
    let mut compared = 0;
    for case in expected["prompts"].as_array().unwrap() {
        let ids: Vec<u32> = case["prompt_ids"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
        let text = TOKENIZER.decode(&ids, false).unwrap();
        assert_eq!(stream(&TOKENIZER, &ids, false).concat(), text);
        compared += usize::from(TOKENIZER.encode(&text).unwrap() == ids);
    }
    assert!(compared > 0);
}

#[test]
fn characters_split_over_tokens_come_out_whole() {
    let text = "naïve 漢字 😀🏳️‍🌈 ẞ\u{10ffff} end";
    let ids = TOKENIZER.encode(text).unwrap();
    assert_eq!(TOKENIZER.decode(&ids, false).unwrap(), text);
    let pieces = stream(&TOKENIZER, &ids, false);
    assert_eq!(pieces.concat(), text);
    // The vocabulary has no token for such characters, so some tokens complete none.
    assert!(pieces[..ids.len()].iter().any(String::is_empty));
    assert!(pieces.iter().all(|p| !p.contains('\u{fffd}')));
    assert_eq!(pieces.last().unwrap(), "");
    // Cut inside a character: its beginning is held back until the end.
    let cut = stream(&TOKENIZER, &ids[..ids.len() - 8], false);
    assert!(cut[..cut.len() - 1].iter().all(|p| !p.contains('\u{fffd}')));
}

#[test]
fn special_tokens_are_recognised_and_none_is_added() {
    let ids = TOKENIZER.encode("<|im_start|>user\nhi<|im_end|>").unwrap();
    assert_eq!((ids[0], *ids.last().unwrap()), (2045, 2046));
    assert_eq!(TOKENIZER.token_id("<|endoftext|>"), Some(2044));
    assert!(TOKENIZER.encode("").unwrap().is_empty());
    assert!(!TOKENIZER.encode("hi").unwrap().iter().any(|id| *id >= 2044));
    assert_eq!(TOKENIZER.decode(&ids, false).unwrap(), "<|im_start|>user\nhi<|im_end|>");
    assert_eq!(TOKENIZER.decode(&ids, true).unwrap(), "user\nhi");
    assert_eq!(stream(&TOKENIZER, &ids, true).concat(), "user\nhi");
    assert_eq!(TOKENIZER.vocab_size(), 2048);
}

#[test]
fn truncation_padding_and_dropout_of_the_file_are_off() {
    let mut file: Value =
        serde_json::from_str(&fs::read_to_string(demo().join("target/tokenizer.json")).unwrap()).unwrap();
    file["truncation"] = json!({"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0});
    file["padding"] = json!({"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 2044, "pad_type_id": 0, "pad_token": "<|endoftext|>"});
    file["model"]["dropout"] = json!(0.9);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    fs::write(&path, file.to_string()).unwrap();
    let text = "def function(argument): return argument";
    assert_eq!(Tokenizer::from_file(&path).unwrap().encode(text), TOKENIZER.encode(text));
}

#[test]
fn a_missing_tokenizer_is_none_and_a_broken_one_an_error() {
    let open = |name: &str| Checkpoint::open(demo().join(name)).unwrap();
    assert!(Tokenizer::from_checkpoint(&open("drafter")).unwrap().is_none());
    assert!(Tokenizer::from_checkpoint(&open("target")).unwrap().is_some());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    let broken = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Tokenizer::from_file(&path).unwrap_err()
    };
    let whole = fs::read(demo().join("target/tokenizer.json")).unwrap();
    for text in [&b"{}"[..], b"[]", b"{\"version\": \"1.0\"}"] {
        let error = broken(text);
        assert!(matches!(error, TextError::Invalid { .. }) && error.to_string().contains("tokenizer.json"), "{error}");
    }
    let kind = |bytes: &[u8]| match broken(bytes) {
        TextError::File(e) => e.kind,
        other => panic!("{other}"),
    };
    assert!(matches!(kind(b"{\n\"decoder\": {,}}"), CheckpointErrorKind::Json { line: 2, column: 13, .. }));
    assert!(matches!(kind(&whole[..whole.len() / 2]), CheckpointErrorKind::Json { .. }));
    assert_eq!(kind(b"\xff"), CheckpointErrorKind::NotUtf8 { offset: 0 });
    let none = Tokenizer::from_file(&dir.path().join("none.json"));
    assert!(matches!(none, Err(TextError::File(e)) if e.kind == CheckpointErrorKind::NotFound));
}

/// A vocabulary with spaces as U+2581 and bytes as `<0x..>`, in the manner of sentence-piece models.
fn sentence_piece() -> Tokenizer {
    let mut vocab: Vec<String> = (0..=255u8).map(|b| format!("<0x{b:02X}>")).collect();
    vocab.extend(["▁", "▁the", "▁cat", "s", "é", "\n"].map(String::from));
    let vocab: serde_json::Map<String, Value> = vocab.into_iter().enumerate().map(|(i, t)| (t, json!(i))).collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": true, "unk_token": null},
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    fs::write(&path, file.to_string()).unwrap();
    Tokenizer::from_file(&path).unwrap()
}

#[test]
fn other_decoders_stream_as_well() {
    let t = sentence_piece();
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<u32>>();
    let ids: Vec<u32> = [vec![257, 258, 259, 257], bytes("漢"), bytes("😀"), vec![260, 261, 256, 258]].concat();
    let pieces = stream(&t, &ids, false);
    assert_eq!(pieces.concat(), t.decode(&ids, false).unwrap());
    assert_eq!(pieces.concat(), "the cats the漢😀é\n  cat");
    assert!(pieces.iter().all(|p| !p.contains('\u{fffd}')));
    // After a prompt the first word keeps its space.
    let mut decoder = StreamDecoder::new(&t, false).with_context(&[257]);
    assert_eq!(decoder.push(&t, 258).unwrap(), " cat");
    // Bytes that are no text do not hold the stream back for ever.
    let garbage: Vec<u32> = std::iter::repeat_n(0xff, 100).chain([257]).collect();
    let pieces = stream(&t, &garbage, false);
    assert!(pieces[..99].iter().any(|p| !p.is_empty()) && pieces.concat().ends_with(" the"));
}

#[test]
fn stop_strings_end_text_across_tokens() {
    let text = "def f(x):\n    return x\n\nprint(f(1))";
    let ids = TOKENIZER.encode(text).unwrap();
    let mut decoder = StreamDecoder::new(&TOKENIZER, true);
    let mut matcher = StopMatcher::new(&["\n\npr", "never"], [2046]).unwrap();
    let mut out = String::new();
    let mut stopped = None;
    for &id in &ids {
        assert!(!matcher.is_stop_id(id));
        let step = matcher.push(&decoder.push(&TOKENIZER, id).unwrap());
        out += &step.emit;
        stopped = step.stopped;
        if stopped.is_some() {
            break;
        }
    }
    assert_eq!((out.as_str(), stopped), ("def f(x):\n    return x", Some(0)));
    assert!(matcher.is_stop_id(2046));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any text that Unicode normalisation leaves alone comes back; the stream says the same.
    #[test]
    fn text_round_trips(text in "[a-zA-Z0-9 \n\t_(){}漢字😀é€𝒳]{0,60}") {
        let ids = TOKENIZER.encode(&text).unwrap();
        prop_assert_eq!(&TOKENIZER.decode(&ids, false).unwrap(), &text);
        let pieces = stream(&TOKENIZER, &ids, false);
        prop_assert!(!pieces.iter().any(|p| p.contains(char::REPLACEMENT_CHARACTER)));
        prop_assert_eq!(pieces.concat(), text);
    }

    /// Any ids at all, unknown ones and invalid bytes included: the stream concatenates to the decoding of the whole.
    #[test]
    fn streams_agree_with_whole_decoding(
        ids in prop::collection::vec(prop_oneof![0u32..256, 0u32..2100, any::<u32>()], 0..60),
        skip in any::<bool>(),
    ) {
        prop_assert_eq!(stream(&TOKENIZER, &ids, skip).concat(), TOKENIZER.decode(&ids, skip).unwrap());
    }
}
