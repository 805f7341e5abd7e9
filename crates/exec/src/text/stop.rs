//! Stop strings over a stream of text.
//!
//! The stop string that is complete first ends the text; of several that end at the same character the longest counts.
//! So the result does not depend on how the text is cut into pieces. Text that may be the beginning of a stop string is
//! held back until that is decided.

use std::collections::BTreeSet;

/// Watches a stream for stop ids and stop strings. The work per byte does not grow with the length of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    ids: BTreeSet<u32>,
    held: String,
    stopped: Option<usize>,
}

/// What a piece of text leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopStep {
    /// Text that certainly precedes any stop string.
    pub emit: String,
    /// Index of the stop string that ended the text. All text before it has been emitted.
    pub stopped: Option<usize>,
}

/// A stop string is empty: it would stop before the first character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stop string {index} is empty, which would stop before any text; leave it out")]
pub struct EmptyStop {
    /// Its index.
    pub index: usize,
}

/// A stop string as a failure-function automaton over bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: Vec<u8>,
    /// `borders[n]`: length of the longest proper prefix of `text[..n]` that is its suffix as well.
    borders: Vec<usize>,
    /// Length of the longest prefix that the text so far ends with.
    matched: usize,
}

impl StopMatcher {
    /// A matcher for these stop strings and stop ids.
    ///
    /// # Errors
    /// A stop string is empty.
    pub fn new<S: AsRef<str>>(stops: &[S], ids: impl IntoIterator<Item = u32>) -> Result<Self, EmptyStop> {
        if let Some(index) = stops.iter().position(|s| s.as_ref().is_empty()) {
            return Err(EmptyStop { index });
        }
        let patterns = stops.iter().map(|s| Pattern::new(s.as_ref())).collect();
        Ok(Self { patterns, ids: ids.into_iter().collect(), held: String::new(), stopped: None })
    }

    /// True if the token ends the text. The text of such a token is not to be pushed.
    pub fn is_stop_id(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// Adds text. After a stop nothing more is emitted.
    pub fn push(&mut self, text: &str) -> StopStep {
        if self.stopped.is_some() {
            return StopStep { emit: String::new(), stopped: self.stopped };
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (i, &byte) in text.as_bytes().iter().enumerate() {
            // Of equally long ones, that is of equal ones, the first.
            let mut complete: Option<(usize, usize)> = None;
            for (p, pattern) in self.patterns.iter_mut().enumerate() {
                if pattern.step(byte) && complete.is_none_or(|(_, len)| pattern.text.len() > len) {
                    complete = Some((p, pattern.text.len()));
                }
            }
            if let Some((p, len)) = complete {
                self.stopped = Some(p);
                self.held.truncate(before + i + 1 - len);
                return StopStep { emit: std::mem::take(&mut self.held), stopped: self.stopped };
            }
        }
        let keep = self.patterns.iter().map(|p| p.matched).max().unwrap_or(0);
        let held = self.held.split_off(self.held.len() - keep);
        StopStep { emit: std::mem::replace(&mut self.held, held), stopped: None }
    }

    /// Ends the text: what was held back was no stop string after all.
    pub fn finish(&mut self) -> String {
        self.patterns.iter_mut().for_each(|p| p.matched = 0);
        std::mem::take(&mut self.held)
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        let text = text.as_bytes().to_vec();
        let mut borders = vec![0; text.len() + 1];
        let mut k = 0;
        for n in 1..text.len() {
            while k > 0 && text[k] != text[n] {
                k = borders[k];
            }
            k += usize::from(text[k] == text[n]);
            borders[n + 1] = k;
        }
        Self { text, borders, matched: 0 }
    }

    /// Takes one byte; true if it completes the string.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && (self.matched == self.text.len() || self.text[self.matched] != byte) {
            self.matched = self.borders[self.matched];
        }
        self.matched += usize::from(self.text[self.matched] == byte);
        self.matched == self.text.len()
    }
}
