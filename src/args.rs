//! The command line.

use crate::numbers::{bytes, integer, real, threads, whole};
use clap::{Args, Parser, Subcommand, ValueEnum};
use spinec_ir::ty::Numerics;
use std::path::PathBuf;

/// Compiler and engine for block-speculative decoding.
///
/// A system (target model, drafter, verification) is a set of YAML graphs. `check` understands them, `eval` runs any part
/// of them on tensors, `run` generates text with them.
#[derive(Debug, Parser)]
#[command(name = "spinec", version, propagate_version = true, max_term_width = 110, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  spinec check graphs/spinal-demo.yaml
  spinec run graphs/spinal-demo.yaml --prompt 'def main():' --max-tokens 64
  spinec eval SYSTEM.yaml --entry draft --inputs in.safetensors -o out.safetensors

Exit codes: 0 ok, 1 a check or run failed, 2 usage or spec error, 3 checkpoint or input tensors, 4 does not fit,
70 a bug, 130 interrupted, 141 stdout was closed early.";

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a system or graph: every error of every file, with its place and a remedy
    Check(CheckArgs),
    /// Run an entry of a system, or a graph, on tensors of a safetensors file
    Eval(EvalArgs),
    /// Generate text
    Run(RunArgs),
    /// Write random checkpoints for a system, for tests and benchmarks
    Synth(SynthArgs),
    /// Plan the phases for a device: launches, traffic, memory, derived weights
    Plan(PlanCommandArgs),
    /// Say what an error code means, or where a value of a system is computed and why there
    Explain(ExplainArgs),
    /// Say why two values of a system do not share a kernel
    WhyNot(WhyNotArgs),
    /// List the compiler's passes, or run them and show what each does
    Passes(PassesArgs),
    /// Check PTX, or run it on the CPU with memory, race and synchronisation checks
    #[command(subcommand)]
    Ptx(PtxCommand),
}

/// `spinec ptx`
#[derive(Debug, Subcommand)]
pub enum PtxCommand {
    /// Parse a PTX file and resolve every instruction
    Check(PtxCheckArgs),
    /// Run a kernel: findings and counters, output buffers written back
    Run(PtxRunArgs),
}

/// `spinec ptx check`
#[derive(Debug, Args)]
pub struct PtxCheckArgs {
    /// PTX file
    pub file: PathBuf,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `spinec ptx run`
#[derive(Debug, Args)]
pub struct PtxRunArgs {
    /// PTX file
    pub file: PathBuf,
    /// Kernel to run
    #[arg(long)]
    pub entry: String,
    /// Blocks: x, x,y or x,y,z
    #[arg(long, value_name = "X,Y,Z")]
    pub grid: String,
    /// Threads of a block: x, x,y or x,y,z
    #[arg(long, value_name = "X,Y,Z")]
    pub block: String,
    /// Blocks of a cluster, if not the kernel's own
    #[arg(long, value_name = "X,Y,Z")]
    pub cluster: Option<String>,
    /// Dynamic shared memory in bytes
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub shared: usize,
    /// Arguments: {"args": [{"buffer": FILE, "mode": "in|out|inout", "bytes": N} | {"f32": 1.0} | ...]}
    #[arg(long, value_name = "SPEC.json")]
    pub args: PathBuf,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// What every command says about a spec.
#[derive(Clone, Debug, Args)]
pub struct SpecArgs {
    /// System or graph file
    pub spec: PathBuf,
    #[command(flatten)]
    pub with: OverrideArgs,
}

/// What a spec is read with.
#[derive(Clone, Debug, Args)]
pub struct OverrideArgs {
    /// Checkpoint directory by name, as in `--checkpoint target=DIR`
    #[arg(long = "checkpoint", value_name = "NAME=DIR")]
    pub checkpoints: Vec<String>,
    /// Bind a dim, list or parameter, each name once: `--set B=8`, `--set drafter.window=none`, `--set serve.requests=4`
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub sets: Vec<String>,
    /// Floating-point types: as the spec says them (bf16), or all widened to f32 or f64
    #[arg(long, value_enum, env = "SPINEC_NUMERICS")]
    pub numerics: Option<NumericsArg>,
}

/// Numerics policies.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum NumericsArg {
    /// Everything in f64
    F64,
    /// Everything in f32
    F32,
    /// BF16 storage and rounding points as the spec states them
    Bf16,
}

impl From<NumericsArg> for Numerics {
    fn from(n: NumericsArg) -> Self {
        match n {
            NumericsArg::F64 => Numerics::F64,
            NumericsArg::F32 => Numerics::F32,
            NumericsArg::Bf16 => Numerics::BF16,
        }
    }
}

/// Backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Multi-threaded SIMD kernels
    Cpu,
    /// The reference interpreter: slow and plain
    Interp,
}

/// `spinec check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `spinec eval`
#[derive(Debug, Args)]
pub struct EvalArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Entry of the system, or graph of the file (a file with one graph needs none)
    #[arg(long)]
    pub entry: Option<String>,
    /// Input tensors; for a graph on its own also its weights, by path. Others are left alone with a note
    #[arg(long, value_name = "IN.safetensors")]
    pub inputs: PathBuf,
    /// Where to write outputs and dumped values
    #[arg(short, long, value_name = "OUT.safetensors")]
    pub output: PathBuf,
    /// Also write named values that match: `layers.3.x`, `*.codes`
    #[arg(long = "dump", value_name = "GLOB")]
    pub dump: Vec<String>,
    /// Rows fed at once to an entry that takes a stream
    #[arg(long, value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub chunk: Option<usize>,
    /// What runs it
    #[arg(long, value_enum, default_value = "cpu", env = "SPINEC_BACKEND")]
    pub backend: Backend,
    /// Threads, at most 256; 0 is all cores
    #[arg(long, default_value_t = 0, env = "SPINEC_THREADS", value_parser = threads, allow_negative_numbers = true)]
    pub threads: usize,
    /// Refuse weights of another float type than the spec declares. Inputs are not checked: whatever float type they have is
    /// converted to the one they are declared with
    #[arg(long)]
    pub strict: bool,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `spinec run`
#[derive(Debug, Args)]
#[command(
    after_help = "Without a sampling flag the most likely token is taken. A line of --requests is an object with prompt or prompt_ids and
any of id, max_tokens, temperature, top_k, top_p, seed, stop, stop_ids, cancel_after."
)]
pub struct RunArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Prompt text
    #[arg(long, group = "source")]
    pub prompt: Option<String>,
    /// File with the prompt text
    #[arg(long, group = "source", value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// Prompt token ids, separated by commas
    #[arg(long, group = "source", value_name = "IDS")]
    pub prompt_ids: Option<String>,
    /// File with one JSON request a line; `-` is standard input
    #[arg(long, group = "source", value_name = "FILE.jsonl")]
    pub requests: Option<PathBuf>,
    /// Most tokens to emit
    #[arg(long, value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub max_tokens: Option<usize>,
    /// Take the most likely token (the default without other sampling flags)
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p"])]
    pub greedy: bool,
    /// Sampling temperature; below 1e-5 is greedy
    #[arg(long, value_parser = real, allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Keep the K most likely tokens; 0 keeps all
    #[arg(long, value_name = "K", value_parser = integer::<i32>, allow_negative_numbers = true)]
    pub top_k: Option<i32>,
    /// Keep the most likely tokens up to this mass
    #[arg(long, value_name = "P", value_parser = real, allow_negative_numbers = true)]
    pub top_p: Option<f64>,
    /// Seed of the random numbers
    #[arg(long, value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Text that ends the output; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Token ids that end the output, separated by commas
    #[arg(long, value_name = "IDS")]
    pub stop_ids: Option<String>,
    /// The model's own end tokens do not end the output
    #[arg(long)]
    pub ignore_eos: bool,
    /// Rows to verify per request, instead of the system's rules
    #[arg(long, value_name = "W", value_parser = integer::<i64>, allow_negative_numbers = true)]
    pub width: Option<i64>,
    /// Decode plainly, without drafting
    #[arg(long)]
    pub target_only: bool,
    /// Candidate retrieval
    #[arg(long, value_enum, default_value = "coarse")]
    pub candidates: CandidatesArg,
    /// What runs it
    #[arg(long, value_enum, default_value = "cpu", env = "SPINEC_BACKEND")]
    pub backend: Backend,
    /// Threads, at most 256; 0 is all cores
    #[arg(long, default_value_t = 0, env = "SPINEC_THREADS", value_parser = threads, allow_negative_numbers = true)]
    pub threads: usize,
    /// Run the phases as they are written, without rewriting and fusing them: for comparison. In bf16 the drafter's
    /// proposals may round differently, and a sampled run draw other tokens of the same law
    #[arg(long)]
    pub unplanned: bool,
    /// Write what happened when as Chrome trace JSON
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Refuse weights of another float type than the spec declares
    #[arg(long)]
    pub strict: bool,
    /// One JSON object on stdout instead of text
    #[arg(long)]
    pub json: bool,
}

/// Candidate retrieval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CandidatesArg {
    /// Coarse scores of a quantised head, rescored
    Coarse,
    /// The whole head
    Exact,
}

/// `spinec synth`
#[derive(Debug, Args)]
pub struct SynthArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Directory that gets one checkpoint directory by name
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Seed; the same seed writes the same bytes
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: u64,
}

/// What is planned, and for what.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    /// Device record: a name, or a file
    #[arg(long, value_name = "NAME|FILE")]
    pub device: Option<String>,
    /// Which requests the phases are for
    #[arg(long, value_enum, default_value = "greedy")]
    pub law: LawArg,
    /// Candidate retrieval
    #[arg(long, value_enum, default_value = "coarse")]
    pub candidates: CandidatesArg,
    /// Bytes derived weights may take: a number, or with KiB, MiB, GiB, kB, MB, GB behind it
    #[arg(long, value_name = "BYTES", value_parser = bytes, allow_negative_numbers = true)]
    pub budget: Option<u64>,
}

/// Sampling laws a phase is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LawArg {
    /// The most likely token
    Greedy,
    /// A draw
    Sampled,
    /// Both in a batch
    Mixed,
}

/// `spinec plan`
#[derive(Debug, Args)]
pub struct PlanCommandArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Positions of a request; the system's serving context if not given
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub context: Option<u64>,
    /// Requests served together; the system's if not given
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub requests: Option<u64>,
    /// Print the whole plan in its text form
    #[arg(long, conflicts_with = "json")]
    pub text: bool,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `spinec why-not`
#[derive(Debug, Args)]
pub struct WhyNotArgs {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Node path of a value, such as d.layers.z.qr, or d.layers.3.z.qr for one iteration of a loop
    pub a: String,
    /// Node path of another value
    pub b: String,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// `spinec passes`
#[derive(Debug, Args)]
pub struct PassesArgs {
    /// System to run the passes on; none lists them
    pub spec: Option<PathBuf>,
    #[command(flatten)]
    pub plan: PlanArgs,
    #[command(flatten)]
    pub with: OverrideArgs,
    /// Print the module after a pass
    #[arg(long, value_name = "PASS", conflicts_with = "json")]
    pub print_after: Option<String>,
    /// Write the module after every pass into a directory
    #[arg(long, value_name = "DIR")]
    pub dump_dir: Option<PathBuf>,
    /// The last pass to run
    #[arg(long, value_name = "PASS")]
    pub stop_after: Option<String>,
    /// Rewrites to make at most, for finding the one that breaks something
    #[arg(long, value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub limit: Option<usize>,
    /// Leave out a rule by name, or `narrow-storage`, the rounding of derived weights; may be given several times
    #[arg(long, value_name = "RULE")]
    pub without: Vec<String>,
    /// Check the rules of the IR after every pass; this is always done
    #[arg(long, value_enum, value_name = "WHEN", default_value = "each")]
    pub verify: WhenArg,
    /// Evaluate the phases before and after every pass on made-up weights and inputs, and name the first value that a pass
    /// changed too much, its place in the YAML, and what to leave out so that nothing differs, which was tried. The dims of
    /// the system have to be small, by a small checkpoint (--checkpoint NAME=DIR) or --set. Computes in f64 unless
    /// --numerics says otherwise.
    ///
    /// How far a value may be off follows from what fired where it is computed: nothing or exact rules, the same bits;
    /// reassociating ones, 1e-10 in f64, 1e-5 in f32, 8e-3 in 16 bits; rounding-changing ones, narrow-storage among them,
    /// 1e-8, 1e-5 and 2e-2, by the narrowest dtype there; relative to the largest magnitude of the value. Every value is
    /// computed from what the values before it were, so that nothing adds up. A pick (argmax, top k, a draw, a comparison)
    /// that turns where its scores are that close is named as a near tie and is no failure.
    ///
    /// Example: spinec passes SYSTEM.yaml --check-numerics each --numerics bf16 --law mixed
    #[arg(long, value_enum, value_name = "WHEN")]
    pub check_numerics: Option<WhenArg>,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// When something is checked.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum WhenArg {
    /// After each pass
    Each,
}

const EXPLAIN: &str = "For a value: its place in the YAML files, the kernels that compute it with what they read and write, and \
the chain of rules from the term as it is written to the term that is computed, each step with rule, numerics class, type, \
and the term before and after. Of a value that is not computed any more the chain says which rule did away with it; of one \
that depends on weights alone, which derived weight holds it. For a derived weight: what it is made of and the chain that led \
to it.

Examples:
  spinec explain E0301
  spinec explain graphs/spinal-demo.yaml g.scores.out
  spinec explain graphs/spinal-demo.yaml derived.9 --json";

/// `spinec explain`
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN)]
pub struct ExplainArgs {
    /// An error code, such as E0301, or a system file; none lists all codes
    pub code: Option<String>,
    /// Node path of a value of the system, such as d.layers.z.qr, or d.layers.3.z.qr for one iteration of a loop; an input
    /// or output of a phase; a weight, also a derived one; a state; a kernel by its id in the plan
    pub value: Option<String>,
    #[command(flatten)]
    pub with: OverrideArgs,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// One JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

impl LawArg {
    /// The name on the command line.
    pub fn name(self) -> String {
        value_name(self)
    }
}

impl CandidatesArg {
    /// The name on the command line.
    pub fn name(self) -> String {
        value_name(self)
    }
}

fn value_name(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}
