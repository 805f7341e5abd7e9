//! JSON files of a checkpoint, read strictly: bounded size, UTF-8, an object, no key twice.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde::Deserializer;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::error::{CheckpointError, CheckpointErrorKind as Kind};

/// Largest JSON file accepted. An index of a hundred thousand tensors has about 10 MB.
pub(crate) const MAX_JSON_BYTES: u64 = 64 << 20;

/// Opens a regular file for reading and gives its length. Pipes and devices are refused before anything can block.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64), CheckpointError> {
    let io = |e: std::io::Error| CheckpointError::io(path, &e);
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(CheckpointError::new(path, Kind::NotAFile));
    }
    let file = File::open(path).map_err(io)?;
    let len = file.metadata().map_err(io)?.len();
    Ok((file, len))
}

/// The text of a file of at most `limit` bytes.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, CheckpointError> {
    let (file, len) = open_regular(path)?;
    let too_large = || CheckpointError::new(path, Kind::JsonTooLarge { limit });
    if len > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| CheckpointError::io(path, &e))?;
    if bytes.len() as u64 > limit {
        return Err(too_large());
    }
    String::from_utf8(bytes)
        .map_err(|e| CheckpointError::new(path, Kind::NotUtf8 { offset: e.utf8_error().valid_up_to() }))
}

/// Reads a JSON object: its value and its text.
pub(crate) fn read_object(path: &Path) -> Result<(Value, String), CheckpointError> {
    let text = read_text(path, MAX_JSON_BYTES)?;
    let value = parse_object(&text).map_err(|kind| CheckpointError::new(path, kind))?;
    Ok((value, text))
}

/// Parses a JSON object in which no object has a key twice.
pub(crate) fn parse_object(text: &str) -> Result<Value, Kind> {
    let value: Value = serde_json::from_str(text).map_err(json_error)?;
    check_syntax(text)?;
    if value.is_object() { Ok(value) } else { Err(Kind::JsonNotObject) }
}

/// Checks that a text is JSON in which no object has a key twice.
pub(crate) fn check_syntax(text: &str) -> Result<(), Kind> {
    let mut de = serde_json::Deserializer::from_str(text);
    UniqueKeys.deserialize(&mut de).and_then(|()| de.end()).map_err(json_error)
}

/// The parser's error with its position taken out of the message.
fn json_error(e: serde_json::Error) -> Kind {
    let (line, column) = (e.line(), e.column());
    let message = e.to_string();
    let message = match message.rfind(" at line ") {
        Some(at) => message[..at].to_owned(),
        None => message,
    };
    Kind::Json { line, column, message }
}

/// Walks any JSON value, keeps nothing, and fails on a repeated key.
struct UniqueKeys;

impl<'de> DeserializeSeed<'de> for UniqueKeys {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(UniqueKeys)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(de::Error::custom(format_args!(
                    "the key {} stands here twice",
                    super::error::quoted(&key)
                )));
            }
            seen.insert(key);
            map.next_value_seed(UniqueKeys)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_is_placed() {
        let Err(Kind::Json { line, message, .. }) = parse_object("{\"a\": {\n\"b\": 1,\n\"b\": 2}}") else {
            panic!("accepted");
        };
        assert_eq!((line, message.as_str()), (3, "the key `b` stands here twice"));
    }

    #[test]
    fn the_same_key_in_two_objects_is_no_repetition() {
        assert!(parse_object(r#"{"a": {"b": 1}, "c": [{"b": 2}, {"b": 1.5e3}], "b": null}"#).is_ok());
    }

    #[test]
    fn syntax_errors_have_line_and_column() {
        assert_eq!(
            parse_object("{\"a\": 1,\n \"b\": }"),
            Err(Kind::Json { line: 2, column: 7, message: "expected value".into() })
        );
        assert_eq!(parse_object("[1]"), Err(Kind::JsonNotObject));
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_stack_overflow() {
        assert!(matches!(parse_object(&"{\"a\":".repeat(100_000)), Err(Kind::Json { .. })));
    }
}
