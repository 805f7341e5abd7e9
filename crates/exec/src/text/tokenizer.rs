//! The tokenizer of a checkpoint.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::ModelWrapper;

use crate::checkpoint::{Checkpoint, CheckpointError, check_syntax, read_text};

/// Largest tokenizer.json accepted; those of vocabularies of 250,000 have about 30 MB.
const MAX_BYTES: u64 = 512 << 20;

/// A tokenizer read from `tokenizer.json`. Encoding and decoding depend on nothing but the file: truncation, padding and
/// random merges that the file may ask for are switched off.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    byte_level: bool,
}

/// A problem with text. `Display` gives place, cause and remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] CheckpointError),
    /// The file is no tokenizer that is known here.
    #[error("{}: is no usable tokenizer: {message}; fetch it again, or give token ids instead of text", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        message: String,
    },
    /// The tokenizer has no tokens for a text.
    #[error("the prompt cannot be turned into tokens: {message}; give token ids instead of text")]
    Encode {
        /// The tokenizer's message.
        message: String,
    },
    /// The tokenizer has no text for tokens.
    #[error("tokens cannot be turned into text: {message}; ask for token ids alone")]
    Decode {
        /// The tokenizer's message.
        message: String,
    },
}

impl Tokenizer {
    /// The tokenizer of a checkpoint; `None` if it has no tokenizer.json.
    ///
    /// # Errors
    /// The file is there and cannot be used.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Option<Self>, TextError> {
        checkpoint.tokenizer_file().map(|path| Self::from_file(&path)).transpose()
    }

    /// Reads a tokenizer.json.
    ///
    /// # Errors
    /// The file cannot be read or used.
    pub fn from_file(path: &Path) -> Result<Self, TextError> {
        let text = read_text(path, MAX_BYTES)?;
        // The library panics on some syntax errors; and this one says where they are.
        check_syntax(&text).map_err(|kind| CheckpointError::new(path, kind))?;
        Self::from_json(&text).map_err(|message| TextError::Invalid { path: path.to_owned(), message })
    }

    fn from_json(text: &str) -> Result<Self, String> {
        let mut inner: tokenizers::Tokenizer = guarded(|| tokenizers::Tokenizer::from_bytes(text))?;
        inner.with_truncation(None).map_err(|e| e.to_string())?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(false);
        if let ModelWrapper::BPE(bpe) = inner.get_model()
            && bpe.dropout.is_some()
        {
            let mut bpe = bpe.clone();
            bpe.dropout = None;
            inner.with_model(bpe);
        }
        let byte_level = matches!(inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_)));
        Ok(Self { inner, byte_level })
    }

    /// The ids of a text. Special tokens written out in it are recognised; none is added.
    ///
    /// # Errors
    /// The text has a part that the vocabulary does not cover.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        guarded(|| self.inner.encode_fast(text, false))
            .map(|e| e.get_ids().to_vec())
            .map_err(|message| TextError::Encode { message })
    }

    /// The text of ids. Invalid UTF-8 becomes U+FFFD, ids outside the vocabulary become nothing, special tokens too if
    /// `skip_special`.
    ///
    /// # Errors
    /// The decoder refuses the tokens.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TextError> {
        guarded(|| self.inner.decode(ids, skip_special)).map_err(|message| TextError::Decode { message })
    }

    /// The id of a token by its exact text, special tokens included.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The text of a token as the vocabulary spells it (byte-level vocabularies: in their byte alphabet).
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// One more than the largest id. Checkpoints may pad their embedding beyond it.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// True if the text of tokens is the lossy UTF-8 of their concatenated bytes.
    pub(crate) fn is_byte_level(&self) -> bool {
        self.byte_level
    }

    /// True for a token the file declares special.
    pub(crate) fn is_special(&self, token: &str) -> bool {
        self.inner.get_added_vocabulary().is_special_token(token)
    }
}

/// Runs code of the tokenizer library on data of a file; its panics become errors.
fn guarded<T>(f: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err("the tokenizer library failed on it".into()),
    }
}
