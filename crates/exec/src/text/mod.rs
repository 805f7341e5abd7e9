//! Text to token ids and back: encoding, streaming decoding, and where text stops.

mod stop;
mod stream;
mod tokenizer;

pub use stop::{EmptyStop, StopMatcher, StopStep};
pub use stream::StreamDecoder;
pub use tokenizer::{TextError, Tokenizer};
