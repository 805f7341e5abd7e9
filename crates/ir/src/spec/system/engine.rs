//! The vocabulary a system's phases share with the engine: which phases there are, what the engine feeds them by name and
//! what it reads from them. The list is closed; every other input of a phase is wired from another phase.

use crate::ty::DType;

/// A phase the engine runs.
#[derive(Clone, Copy, Debug)]
pub struct EnginePhase {
    /// Name.
    pub name: &'static str,
    /// A system with phases must have it; otherwise only one that drafts must.
    pub always: bool,
    /// When it runs.
    pub doc: &'static str,
}

/// A value the engine feeds.
#[derive(Clone, Copy, Debug)]
pub struct EngineInput {
    /// Name of the input.
    pub name: &'static str,
    /// Phases that may ask for it.
    pub phases: &'static [&'static str],
    /// Dtype.
    pub dtype: DType,
    /// Axes, as they are usually written: N requests, T rows of a prompt, W rows of a block.
    pub axes: &'static [&'static str],
    /// What it holds.
    pub doc: &'static str,
}

/// A value the engine reads.
#[derive(Clone, Copy, Debug)]
pub struct EngineOutput {
    /// Phase that makes it.
    pub phase: &'static str,
    /// Name of the output.
    pub name: &'static str,
    /// Dtype.
    pub dtype: DType,
    /// Axes.
    pub axes: &'static [&'static str],
    /// What it holds.
    pub doc: &'static str,
}

/// A choice the engine makes before it calls a phase; a phase that offers it is made in one variant a word.
#[derive(Clone, Copy, Debug)]
pub struct EngineChoice {
    /// Name of the variant.
    pub name: &'static str,
    /// The words the engine may choose.
    pub words: &'static [&'static str],
    /// A phase that offers the choice must offer every word (prefill, which works on one request, not `mixed`).
    pub complete: bool,
    /// What decides it.
    pub doc: &'static str,
}

/// Every choice.
pub const CHOICES: &[EngineChoice] = &[
    EngineChoice {
        name: "law",
        words: &["greedy", "sampled", "mixed"],
        complete: true,
        doc: "What the requests of the call ask for: all greedy, all sampled, or both kinds.",
    },
    EngineChoice {
        name: "candidates",
        words: &["coarse", "exact"],
        complete: false,
        doc: "How candidates are found; exact ones also stand in for coarse scores that are not finite.",
    },
];

macro_rules! phases {
    ($($name:literal $always:literal $doc:literal;)*) => {
        /// Every phase.
        pub const PHASES: &[EnginePhase] = &[$(EnginePhase { name: $name, always: $always, doc: $doc }),*];
    };
}

macro_rules! inputs {
    ($($name:literal [$($phase:literal)*] $dtype:ident [$($axis:literal)*] $doc:literal;)*) => {
        /// Every value the engine feeds.
        pub const INPUTS: &[EngineInput] = &[$(EngineInput {
            name: $name, phases: &[$($phase),*], dtype: DType::$dtype, axes: &[$($axis),*], doc: $doc,
        }),*];
    };
}

macro_rules! outputs {
    ($($phase:literal $name:literal $dtype:ident [$($axis:literal)*] $doc:literal;)*) => {
        /// Every value the engine reads; a phase that is there must make all of its own.
        pub const OUTPUTS: &[EngineOutput] = &[$(EngineOutput {
            phase: $phase, name: $name, dtype: DType::$dtype, axes: &[$($axis),*], doc: $doc,
        }),*];
    };
}

phases! {
    "prefill" true "Rows of one request's prompt, chunk by chunk.";
    "decode" true "One row a request, without drafting.";
    "draft" false "One block a request: the proposals, and the laws they were drawn from.";
    "verify" false "The anchor and the first proposals through the target, and how many of them it accepts.";
    "commit" false "What the drafter keeps of the accepted rows.";
}

inputs! {
    "tokens" ["prefill"] I32 ["1" "T"] "Token ids of the chunk.";
    "rows" ["prefill"] I32 ["1"] "Real rows of the chunk; what is behind them is padding.";
    "positions" ["prefill" "verify" "commit"] I32 ["N" "T"] "Absolute position of every row.";
    "anchor" ["decode" "draft" "verify"] I32 ["N"] "The newest token of each request, emitted and in no pool yet.";
    "position" ["decode" "draft" "verify"] I32 ["N"] "Its absolute position.";
    "width" ["verify"] I32 ["N"] "Rows verified for each request, the anchor included.";
    "first" ["verify"] I32 ["N"] "Rows of the block before the call's, whose proposals were all accepted. A phase that takes it is run in steps.";
    "keep" ["commit"] I32 ["N"] "Rows kept of each request: the anchor and the accepted proposals.";
    "greedy" ["prefill" "decode" "draft" "verify"] Bool ["N"] "True where a request takes the most likely token.";
    "temperature" ["prefill" "decode" "draft" "verify"] F64 ["N"] "Temperature of each request.";
    "top_k" ["prefill" "decode" "draft" "verify"] I32 ["N"] "Most likely tokens a request samples from; 0 is all.";
    "top_p" ["prefill" "decode" "draft" "verify"] F64 ["N"] "Mass a request samples from; 1 is all.";
    "seed" ["prefill" "decode" "draft" "verify"] I32 ["N" "2"] "Low and high word of each request's seed, for coin.";
}

outputs! {
    "prefill" "token" I32 ["1"] "The token behind the last real row.";
    "decode" "token" I32 ["N"] "The token behind the anchor.";
    "prefill" "sound" Bool ["1"] "False where the logits are not numbers; the request then ends with an error.";
    "decode" "sound" Bool ["N"] "False where the logits are not numbers; the request then ends with an error.";
    "verify" "sound" Bool ["N"] "False where logits of a request's rows are not numbers; the request then ends with an error.";
    "draft" "proposal" I32 ["N" "B-1"] "The proposed tokens.";
    "draft" "finite" Bool ["N"] "False where a request's candidate scores are not finite; it then drafts exactly or not at all.";
    "verify" "accepted" I32 ["N"] "Accepted proposals of each request, those of earlier steps included.";
    "verify" "token" I32 ["N"] "The token behind the accepted ones.";
}

/// The phase of that name.
pub fn phase(name: &str) -> Option<&'static EnginePhase> {
    PHASES.iter().find(|p| p.name == name)
}

/// What the engine feeds a phase under a name.
pub fn input(phase: &str, name: &str) -> Option<&'static EngineInput> {
    INPUTS.iter().find(|i| i.name == name && i.phases.contains(&phase))
}

/// What the engine reads of a phase under a name.
pub fn output(phase: &str, name: &str) -> Option<&'static EngineOutput> {
    OUTPUTS.iter().find(|o| o.phase == phase && o.name == name)
}

/// A type as specs write it.
pub(crate) fn written(dtype: DType, axes: &[&str]) -> String {
    format!("{}[{}]", dtype.name(), axes.join(", "))
}

impl EngineInput {
    /// The type as specs write it.
    pub fn written(&self) -> String {
        written(self.dtype, self.axes)
    }
}

impl EngineOutput {
    /// The type as specs write it.
    pub fn written(&self) -> String {
        written(self.dtype, self.axes)
    }
}

/// Whether an output of a phase decides a token: what such a phase computes must not depend on which phase computes it.
pub fn decides(output: &str) -> bool {
    matches!(output, "token" | "accepted")
}
