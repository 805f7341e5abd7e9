//! Requests: what is asked for, and what has become of it.

use super::EngineError;
use crate::runtime::RequestId;
use crate::text::{StopMatcher, StreamDecoder, Tokenizer};
use spinec_ir::spec::system::System;

/// Sampling parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Temperature; below 1e-5 is greedy.
    pub temperature: f64,
    /// Most likely tokens kept; 0 keeps all.
    pub top_k: i32,
    /// Mass kept.
    pub top_p: f64,
    /// Seed.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// True if the most likely token is always taken.
    pub fn is_greedy(&self) -> bool {
        self.temperature < 1e-5 || self.top_k == 1
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The user's name for it.
    pub id: String,
    /// Prompt tokens.
    pub prompt: Vec<u32>,
    /// Most tokens to emit.
    pub max_tokens: usize,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Texts that end it.
    pub stop: Vec<String>,
    /// Token ids that end it, besides the model's own.
    pub stop_ids: Vec<u32>,
    /// The model's own end tokens do not end it.
    pub ignore_eos: bool,
    /// Give up after so many tokens.
    pub cancel_after: Option<usize>,
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop token or text.
    Stop,
    /// The token limit or the end of the context.
    Length,
    /// It was cancelled.
    Cancelled,
    /// Its logits were not numbers.
    Error,
}

impl Finish {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Cancelled => "cancelled",
            Finish::Error => "error",
        }
    }
}

/// One cycle of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Position of the anchor.
    pub position: usize,
    /// Rows verified, the anchor included.
    pub width: usize,
    /// What was proposed; empty in plain decoding.
    pub proposal: Vec<u32>,
    /// Leading proposals accepted, before trimming.
    pub accepted: usize,
    /// Tokens emitted, after trimming by stop or cap.
    pub committed: usize,
}

/// What a request became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The user's name for it.
    pub id: String,
    /// Prompt length.
    pub prompt_tokens: usize,
    /// Everything after the prompt, the first and a stop token included.
    pub tokens: Vec<u32>,
    /// The text without the stop; `None` without a tokenizer.
    pub text: Option<String>,
    /// Why it ended.
    pub finish: Finish,
    /// Its cycles.
    pub cycles: Vec<Cycle>,
}

impl Request {
    /// Refuses what no run could serve.
    pub(super) fn check(&self, system: &System, has_tokenizer: bool) -> Result<(), EngineError> {
        let bad = |m: String| Err(EngineError::Request(format!("request `{}`: {m}", self.id)));
        if self.prompt.is_empty() {
            return bad("the prompt is empty".into());
        }
        if self.max_tokens == 0 {
            return bad("max_tokens must be at least 1".into());
        }
        if self.cancel_after == Some(0) {
            return bad("cancel_after must be at least 1".into());
        }
        if !self.stop.is_empty() && !has_tokenizer {
            return bad("stop texts need a tokenizer, the target checkpoint has none".into());
        }
        if let Err(e) = StopMatcher::new(&self.stop, []) {
            return bad(e.to_string());
        }
        let s = &self.sampling;
        if !(s.temperature >= 0.0 && s.temperature.is_finite()) {
            return bad(format!("a temperature of {} is not a number from 0 on", s.temperature));
        }
        if s.top_k < 0 {
            return bad(format!("top_k must not be negative, it is {}", s.top_k));
        }
        if !(s.top_p > 0.0 && s.top_p <= 1.0) {
            return bad(format!("top_p is above 0 and at most 1, it is {}", s.top_p));
        }
        if let Some(v) = system.vocabulary()
            && let Some(id) = self.prompt.iter().chain(&self.stop_ids).find(|id| i64::from(**id) >= v)
        {
            return bad(format!("token {id} does not exist, the vocabulary has {v}"));
        }
        let context = system.serve.context;
        if self.prompt.len() as i64 >= context {
            return Err(EngineError::DoesNotFit(format!(
                "request `{}`: a prompt of {} tokens leaves no room in a context of {context}",
                self.id,
                self.prompt.len()
            )));
        }
        Ok(())
    }

    /// Tokens it may emit at most.
    pub(super) fn limit(&self, system: &System) -> usize {
        let room = usize::try_from(system.serve.context).unwrap_or(usize::MAX) - self.prompt.len();
        self.max_tokens.min(room)
    }

    /// Positions it may touch, the scratch rows of a block included.
    pub(super) fn positions(&self, system: &System) -> usize {
        self.prompt.len() + self.limit(system) + usize::try_from(system.serve.block).unwrap_or(0)
    }
}

/// A request that holds state.
pub(super) struct Active {
    pub index: usize,
    pub slot: RequestId,
    pub request: Request,
    /// Rows of the prompt already computed.
    pub prefilled: usize,
    /// Emitted tokens.
    pub tokens: Vec<u32>,
    pub finish: Option<Finish>,
    pub cycles: Vec<Cycle>,
    text: Option<Text>,
    stops: Vec<u32>,
}

/// Text of a request while it grows.
struct Text {
    decoder: StreamDecoder,
    matcher: StopMatcher,
    emitted: String,
}

impl Active {
    pub fn new(
        index: usize,
        slot: RequestId,
        request: Request,
        tokenizer: Option<&Tokenizer>,
        model_stops: &[u32],
    ) -> Result<Self, EngineError> {
        let mut stops = request.stop_ids.clone();
        if !request.ignore_eos {
            stops.extend(model_stops);
        }
        let text = match tokenizer {
            None => None,
            Some(t) => Some(Text {
                decoder: StreamDecoder::new(t, true).with_context(&request.prompt),
                matcher: StopMatcher::new(&request.stop, stops.iter().copied())
                    .map_err(|e| EngineError::Request(format!("request `{}`: {e}", request.id)))?,
                emitted: String::new(),
            }),
        };
        Ok(Active {
            index,
            slot,
            request,
            prefilled: 0,
            tokens: Vec::new(),
            finish: None,
            cycles: Vec::new(),
            text,
            stops,
        })
    }

    /// True once the first token is there.
    pub fn decodes(&self) -> bool {
        !self.tokens.is_empty() && self.finish.is_none()
    }

    /// The token that was emitted last and is not cached yet.
    pub fn anchor(&self) -> u32 {
        self.tokens.last().copied().unwrap_or(0)
    }

    /// Emits one token and says what new text can be shown. The earliest of stop token, stop text, cancellation and limit
    /// ends the request; nothing is emitted after that.
    pub fn commit_token(
        &mut self,
        token: u32,
        limit: usize,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<String, EngineError> {
        self.tokens.push(token);
        let mut shown = String::new();
        let mut finish = None;
        if self.stops.contains(&token) {
            finish = Some(Finish::Stop);
        } else if let (Some(text), Some(tokenizer)) = (&mut self.text, tokenizer) {
            let piece = text.decoder.push(tokenizer, token)?;
            let step = text.matcher.push(&piece);
            shown.push_str(&step.emit);
            if step.stopped.is_some() {
                finish = Some(Finish::Stop);
            }
        }
        if finish.is_none() && self.request.cancel_after.is_some_and(|n| self.tokens.len() >= n) {
            finish = Some(Finish::Cancelled);
        }
        if finish.is_none() && self.tokens.len() >= limit {
            finish = Some(Finish::Length);
        }
        if finish.is_some_and(|end| end != Finish::Stop || self.stops.contains(&token)) {
            shown.push_str(&self.held_text(tokenizer)?);
        }
        if let Some(text) = &mut self.text {
            text.emitted.push_str(&shown);
        }
        self.finish = finish;
        Ok(shown)
    }

    /// Ends a request whose next token cannot be decided, and says what text was held back.
    pub fn fail(&mut self, tokenizer: Option<&Tokenizer>) -> Result<String, EngineError> {
        self.finish = Some(Finish::Error);
        let shown = self.held_text(tokenizer)?;
        if let Some(text) = &mut self.text {
            text.emitted.push_str(&shown);
        }
        Ok(shown)
    }

    /// What was held back as a possible stop, and an unfinished character: text after all where no stop text was found.
    fn held_text(&mut self, tokenizer: Option<&Tokenizer>) -> Result<String, EngineError> {
        let (Some(text), Some(tokenizer)) = (&mut self.text, tokenizer) else { return Ok(String::new()) };
        let tail = text.decoder.finish(tokenizer)?;
        let step = text.matcher.push(&tail);
        Ok(if step.stopped.is_some() { step.emit } else { step.emit + &text.matcher.finish() })
    }

    pub fn into_finished(self) -> Finished {
        Finished {
            id: self.request.id,
            prompt_tokens: self.request.prompt.len(),
            tokens: self.tokens,
            text: self.text.map(|t| t.emitted),
            finish: self.finish.unwrap_or(Finish::Error),
            cycles: self.cycles,
        }
    }
}
