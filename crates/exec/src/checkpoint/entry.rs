//! The JSON of a safetensors header: split into raw entries first, so that one bad entry does not hide the others.
//!
//! Memory is bounded: entries are borrowed slices of the header, their number and every shape have a limit.

use std::borrow::Cow;
use std::fmt;

use safetensors::Dtype;
use serde::Deserialize;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::problem::{HeaderProblem, MAX_RANK, MAX_TENSORS};

const METADATA: &str = "__metadata__";
/// Longest parser message kept: the parser quotes the input.
const MESSAGE_CHARS: usize = 200;

/// A header split into its members.
pub(crate) struct RawHeader<'a> {
    pub(crate) metadata: Option<&'a RawValue>,
    pub(crate) tensors: Vec<(String, &'a RawValue)>,
}

/// One entry whose values have the right kinds; nothing is checked against anything else.
pub(crate) struct RawEntry {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) offsets: (u64, u64),
}

/// Splits the header text.
pub(crate) fn split(text: &str) -> Result<RawHeader<'_>, HeaderProblem> {
    let mut de = serde_json::Deserializer::from_str(text);
    let not_json = |e: serde_json::Error| HeaderProblem::NotJson { message: message(&e) };
    let split = de.deserialize_map(SplitVisitor).map_err(not_json)?;
    de.end().map_err(not_json)?;
    match split {
        Split::Header(h) => Ok(h),
        Split::TooMany => Err(HeaderProblem::TooManyTensors),
        Split::TwoMetadata => Err(HeaderProblem::Metadata { message: "it is listed twice".into() }),
    }
}

enum Split<'a> {
    Header(RawHeader<'a>),
    TooMany,
    TwoMetadata,
}

struct SplitVisitor;

impl<'de> Visitor<'de> for SplitVisitor {
    type Value = Split<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Split<'de>, A::Error> {
        let (mut metadata, mut tensors) = (None, Vec::new());
        let (mut too_many, mut two_metadata) = (false, false);
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                two_metadata |= metadata.replace(map.next_value::<&RawValue>()?).is_some();
            } else if tensors.len() == MAX_TENSORS {
                too_many = true;
                map.next_value::<IgnoredAny>()?;
            } else {
                tensors.push((name, map.next_value::<&RawValue>()?));
            }
        }
        Ok(match (too_many, two_metadata) {
            (true, _) => Split::TooMany,
            (_, true) => Split::TwoMetadata,
            _ => Split::Header(RawHeader { metadata, tensors }),
        })
    }
}

/// Checks that metadata maps strings to strings.
pub(crate) fn check_metadata(raw: &RawValue) -> Result<(), String> {
    struct Strings;
    impl<'de> Visitor<'de> for Strings {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of strings")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while map.next_entry::<Cow<'de, str>, Cow<'de, str>>()?.is_some() {}
            Ok(())
        }
    }
    serde_json::Deserializer::from_str(raw.get()).deserialize_map(Strings).map_err(|e| message(&e))
}

/// Parses the entry of `name`.
pub(crate) fn parse(name: &str, raw: &RawValue) -> Result<RawEntry, HeaderProblem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Entry<'a> {
        #[serde(borrow)]
        dtype: Cow<'a, str>,
        shape: Shape,
        data_offsets: (u64, u64),
    }
    let bad = |message: String| HeaderProblem::BadEntry { tensor: name.to_owned(), message };
    // A sequence would fill the fields by position; the format knows objects alone.
    if !raw.get().starts_with('{') {
        return Err(bad("the entry is not an object".into()));
    }
    let entry: Entry<'_> = serde_json::from_str(raw.get()).map_err(|e| bad(message(&e)))?;
    let dtype = Dtype::deserialize(BorrowedStrDeserializer::<de::value::Error>::new(&entry.dtype)).map_err(|_| {
        HeaderProblem::UnknownDtype {
            tensor: name.to_owned(),
            dtype: entry.dtype.chars().take(MESSAGE_CHARS).collect(),
        }
    })?;
    if entry.shape.rank > MAX_RANK {
        return Err(HeaderProblem::TooManyDims { tensor: name.to_owned(), rank: entry.shape.rank });
    }
    Ok(RawEntry { dtype, shape: entry.shape.dims, offsets: entry.data_offsets })
}

/// A shape of which no more than [`MAX_RANK`] dimensions are kept.
struct Shape {
    dims: Vec<u64>,
    rank: usize,
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Dims;
        impl<'de> Visitor<'de> for Dims {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut shape = Shape { dims: Vec::new(), rank: 0 };
                while let Some(d) = seq.next_element::<u64>()? {
                    if shape.rank < MAX_RANK {
                        shape.dims.push(d);
                    }
                    shape.rank += 1;
                }
                Ok(shape)
            }
        }
        d.deserialize_seq(Dims)
    }
}

fn message(e: &serde_json::Error) -> String {
    let text = e.to_string();
    if text.chars().count() <= MESSAGE_CHARS {
        return text;
    }
    text.chars().take(MESSAGE_CHARS).chain("...".chars()).collect()
}
