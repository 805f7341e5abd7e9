//! Streaming decoding: each token gives the text that it completes.
//!
//! The pieces of a stream concatenate to what [`Tokenizer::decode`] gives for all its ids (byte-level tokenizers;
//! others where their decoder looks at neighbouring tokens only), and no piece ends inside a character. The work per
//! token does not grow with the length of the stream.

use super::tokenizer::{TextError, Tokenizer};

/// The state of one stream. It holds no reference to the tokenizer: give the same one to every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDecoder {
    skip_special: bool,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Bytes of an unfinished character, at most 3.
    Bytes(Vec<u8>),
    /// The last tokens; those before `read` are decoded with, as context, but their text is out.
    Window { ids: Vec<u32>, read: usize },
}

/// Tokens held back at most while their text ends in U+FFFD. A character has 4 bytes and each token at least one, so
/// only invalid bytes reach this.
const MAX_HELD: usize = 8;

impl StreamDecoder {
    /// An empty stream. With `skip_special`, special tokens give no text.
    pub fn new(tokenizer: &Tokenizer, skip_special: bool) -> Self {
        let state = match tokenizer.is_byte_level() {
            true => State::Bytes(Vec::new()),
            false => State::Window { ids: Vec::new(), read: 0 },
        };
        Self { skip_special, state }
    }

    /// Sets the tokens before the stream, whose text does not belong to it: some decoders spell the first word of a
    /// text differently. Only before the first [`StreamDecoder::push`].
    pub fn with_context(mut self, context: &[u32]) -> Self {
        if let State::Window { ids, read } = &mut self.state {
            *ids = context[context.len().saturating_sub(MAX_HELD)..].to_vec();
            *read = ids.len();
        }
        self
    }

    /// Adds a token and returns the text it completes, which may be empty.
    ///
    /// # Errors
    /// The decoder refuses the token.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String, TextError> {
        match &mut self.state {
            State::Bytes(pending) => {
                if let Some(token) = tokenizer.token(id).filter(|t| !self.skip_special || !tokenizer.is_special(t)) {
                    push_token_bytes(&token, pending);
                }
                Ok(take_complete(pending))
            }
            State::Window { ids, read } => {
                ids.push(id);
                let before = tokenizer.decode(&ids[..*read], self.skip_special)?;
                let now = tokenizer.decode(ids, self.skip_special)?;
                if now.ends_with(char::REPLACEMENT_CHARACTER) && ids.len() - *read < MAX_HELD {
                    return Ok(String::new());
                }
                Ok(advance(ids, read, &before, &now))
            }
        }
    }

    /// Ends the stream and returns what is left: the replacement of an unfinished character.
    ///
    /// # Errors
    /// The decoder refuses the tokens held back.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String, TextError> {
        match &mut self.state {
            State::Bytes(pending) => Ok(String::from_utf8_lossy(&std::mem::take(pending)).into_owned()),
            State::Window { ids, read } => {
                let before = tokenizer.decode(&ids[..*read], self.skip_special)?;
                let now = tokenizer.decode(ids, self.skip_special)?;
                Ok(advance(ids, read, &before, &now))
            }
        }
    }
}

/// The part of `now` beyond `before`, which is out already; the tokens up to here become context.
fn advance(ids: &mut Vec<u32>, read: &mut usize, before: &str, now: &str) -> String {
    // Where a decoder changes text that is out, the stream keeps what it said and goes on behind it.
    let new = now.get(before.len()..).unwrap_or("").to_owned();
    if !new.is_empty() {
        // The tokens of the last piece are context enough.
        ids.drain(..*read);
        *read = ids.len();
    } else if ids.len() - *read >= MAX_HELD {
        // A run of tokens without text; some of those before it stay, or the context would be lost.
        ids.drain(..ids.len().saturating_sub(2 * MAX_HELD));
        *read = ids.len();
    }
    new
}

/// Takes the text of all whole characters off the front; bytes that can never become a character become U+FFFD, exactly
/// as in a lossy decoding of the whole.
fn take_complete(pending: &mut Vec<u8>) -> String {
    let mut out = String::new();
    let mut used = 0;
    for chunk in pending.utf8_chunks() {
        out.push_str(chunk.valid());
        used += chunk.valid().len();
        let at_end = used + chunk.invalid().len() == pending.len();
        if chunk.invalid().is_empty() || at_end && is_unfinished(chunk.invalid()) {
            break;
        }
        out.push(char::REPLACEMENT_CHARACTER);
        used += chunk.invalid().len();
    }
    pending.drain(..used);
    out
}

/// True if more bytes can still make these a character.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

/// Appends the bytes of a byte-level token. A token with a character outside the byte alphabet stands for itself.
fn push_token_bytes(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        match byte_of(c) {
            Some(b) => out.push(b),
            None => {
                out.truncate(start);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

/// The byte that a character of the byte-level alphabet stands for: printable Latin-1 stands for itself, the 68 other
/// bytes for U+0100 onwards in ascending order.
fn byte_of(c: char) -> Option<u8> {
    let c = c as u32;
    Some(match c {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => c as u8,
        0x100..=0x120 => (c - 0x100) as u8,
        0x121..=0x142 => (c - 0x121 + 0x7f) as u8,
        0x143 => 0xad,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_alphabet_is_that_of_the_library() {
        let alphabet: BTreeSet<char> =
            tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet().into_iter().collect();
        assert_eq!(alphabet.len(), 256);
        let bytes: BTreeSet<u8> = alphabet.iter().map(|c| byte_of(*c).expect("a character of the alphabet")).collect();
        assert_eq!(bytes.len(), 256);
        assert_eq!(byte_of(' '), None);
        assert_eq!(byte_of('\u{144}'), None);
        assert_eq!((byte_of('Ġ'), byte_of('Ċ')), (Some(b' '), Some(b'\n')));
    }

    #[test]
    fn bytes_come_out_as_the_lossy_whole() {
        let samples: [&[u8]; 6] = [
            "aé漢😀z".as_bytes(),
            b"\xff\xfe\x80a",
            b"\xe6\xbc",
            b"\xf0\x9f\x98\xe6\xbc\xa2",
            b"\xed\xa0\x80\xf4\x90\x80\x80",
            b"\xc3\xc3\xa9\xf0\x9f",
        ];
        for sample in samples {
            let mut pending = Vec::new();
            let mut out = String::new();
            for &b in sample {
                pending.push(b);
                out += &take_complete(&mut pending);
                assert!(pending.len() < 4);
            }
            out += &String::from_utf8_lossy(&pending);
            assert_eq!(out, String::from_utf8_lossy(sample));
        }
    }
}
