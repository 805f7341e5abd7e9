//! `spinec run`: prompts in, text out.

use crate::args::{CandidatesArg, RunArgs};
use crate::exit::Exit;
use crate::files;
use crate::output;
use crate::planner;
use serde::Deserialize;
use serde_json::json;
use spinec_exec::cpu::{Capacity, OnProgress};
use spinec_exec::engine::{
    Candidates, Engine, EngineError, EngineOptions, Events, Finished, Request, Sampling, Totals,
};
use spinec_exec::runtime::{Bytes, RunError, Tables};
use spinec_exec::text::Tokenizer;
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set by Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What the spinner says while the engine warms up.
const COMPILING: &str = "compiling phases, packing weights";

/// Tokens emitted when nothing is said.
const DEFAULT_MAX_TOKENS: usize = 256;

/// Generates text.
pub fn run(args: &RunArgs) -> Exit {
    match generate(args) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn generate(args: &RunArgs) -> Result<Exit, Exit> {
    let began = Instant::now();
    let (system, sources) = files::load_system(&args.spec, false)?;
    let progress = progress("loading checkpoints");
    let checkpoints = files::open_checkpoints(&system)?;
    let target = checkpoints.get("target").or_else(|| checkpoints.values().next());
    let stop_ids = target.map(|c| c.stop_ids().to_vec()).unwrap_or_default();
    let tokenizer = match target.map(Tokenizer::from_checkpoint) {
        Some(Ok(t)) => t,
        None => None,
        Some(Err(e)) => {
            output::error(&e.to_string());
            return Err(Exit::Checkpoint);
        }
    };
    let requests = requests(args, tokenizer.as_ref())?;
    let has_text = tokenizer.is_some();
    progress.set_message("checking weights");
    let store = files::bind_weights(&system, &sources, checkpoints, args.strict)?;
    let tables = Tables { weights: system.weights.clone(), states: system.states.clone() };
    let whole = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
    let capacity = Capacity::of(whole(system.serve.requests), whole(system.serve.context + system.serve.block));
    let runtime = files::runtime(
        args.backend,
        &tables,
        system.numerics,
        Box::new(store),
        args.threads,
        capacity,
        making(&progress),
    )?;
    let runtime = if args.unplanned { runtime } else { planner::planned(runtime, &system) };
    progress.set_message(COMPILING);
    // A system without a drafter decodes a row at a time.
    let target_only = args.target_only || !system.phases().contains(&"draft");
    let options = EngineOptions {
        target_only,
        width: args.width,
        candidates: match args.candidates {
            CandidatesArg::Coarse => Candidates::Coarse,
            CandidatesArg::Exact => Candidates::Exact,
        },
        ..EngineOptions::default()
    };
    let fail = |e: EngineError| {
        progress.finish_and_clear();
        engine_failed(e, &sources)
    };
    let mut engine = Engine::new(&system, runtime, tokenizer, stop_ids, options).map_err(fail)?;
    let single = requests.len() == 1;
    for r in requests {
        engine.submit(r).map_err(fail)?;
    }
    // Without a handler Ctrl-C ends the process at once, which is what happens if none can be set.
    let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
    engine.interrupt_on(&INTERRUPTED);
    engine.warm_up().map_err(fail)?;
    progress.finish_and_clear();
    let load = began.elapsed();
    let started = Instant::now();
    let mut watch = Watch { stream: single && !args.json, spans: args.trace.is_some().then(Vec::new), zero: began };
    engine.run(&mut watch).map_err(fail)?;
    let wall = started.elapsed();
    let (done, totals, peak) = engine.results();
    if let (Some(path), Some(spans)) = (&args.trace, &watch.spans) {
        write_trace(path, spans)?;
    }
    if args.json {
        output::json(&report(&done, &totals, &peak, load, wall));
    } else if single && has_text {
        output::line("");
    } else if single {
        // Without a tokenizer there is no text to stream.
        let ids: Vec<String> = done.iter().flat_map(|d| &d.tokens).map(ToString::to_string).collect();
        output::line(&ids.join(","));
    } else {
        for d in &done {
            output::line(
                &json!({"id": d.id, "tokens": d.tokens, "text": d.text, "finish": d.finish.name()}).to_string(),
            );
        }
    }
    let failed = done.iter().any(|d| d.finish == spinec_exec::engine::Finish::Error);
    if !args.json {
        let rate = totals.tokens as f64 / wall.as_secs_f64().max(1e-9);
        let spec = if target_only { String::new() } else { format!(", {:.2} a cycle", totals.accept_length()) };
        output::note(&format!("{} tokens at {rate:.0} tokens/s{spec}", totals.tokens));
    }
    for d in done.iter().filter(|d| d.finish == spinec_exec::engine::Finish::Error) {
        output::error(&format!("request `{}` ended: its logits are not numbers", d.id));
    }
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

fn progress(message: &'static str) -> indicatif::ProgressBar {
    if !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new_spinner();
    bar.set_message(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Shows how far the making of a weight is; nobody is told where nothing is shown.
fn making(bar: &indicatif::ProgressBar) -> Option<OnProgress> {
    if bar.is_hidden() {
        return None;
    }
    let bar = bar.clone();
    Some(Box::new(move |p| {
        if bar.is_finished() {
            return;
        }
        if p.done < p.rows {
            bar.set_message(format!("{COMPILING}: {} {} %", p.name, 100 * p.done / p.rows.max(1)));
        } else {
            bar.set_message(COMPILING);
        }
    }))
}

fn engine_failed(e: EngineError, sources: &spinec_ir::diag::SourceMap) -> Exit {
    match e {
        EngineError::Spec(diags) => {
            output::diagnostics(diags, sources);
            Exit::Usage
        }
        EngineError::Request(m) => {
            output::error(&m);
            Exit::Usage
        }
        EngineError::DoesNotFit(m) => {
            output::error(&m);
            Exit::DoesNotFit
        }
        EngineError::Interrupted => Exit::Interrupted,
        EngineError::Run(RunError::Compiler(m)) => {
            output::error(&m);
            Exit::Bug
        }
        other => {
            output::error(&other.to_string());
            Exit::Failed
        }
    }
}

/// A line of a requests file. A field that is not here is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Option<String>,
    prompt: Option<String>,
    prompt_ids: Option<Vec<u32>>,
    max_tokens: Option<usize>,
    temperature: Option<f64>,
    top_k: Option<i32>,
    top_p: Option<f64>,
    seed: Option<u64>,
    #[serde(default)]
    stop: OneOrMany,
    #[serde(default)]
    stop_ids: Vec<u32>,
    cancel_after: Option<usize>,
}

/// `"a"` or `["a", "b"]`.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        OneOrMany::Many(Vec::new())
    }
}

fn requests(args: &RunArgs, tokenizer: Option<&Tokenizer>) -> Result<Vec<Request>, Exit> {
    let usage = |m: String| {
        output::error(&m);
        Exit::Usage
    };
    let stop_ids = match &args.stop_ids {
        Some(s) => ids(s).map_err(|e| usage(format!("--stop-ids: {e}")))?,
        None => Vec::new(),
    };
    let asked = args.temperature.is_some()
        || args.top_k.is_some()
        || args.top_p.is_some()
        || (args.seed.is_some() && !args.greedy);
    let base = Request {
        id: "0".into(),
        prompt: Vec::new(),
        max_tokens: args.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        sampling: sampling(asked, args.temperature, args.top_k, args.top_p, args.seed),
        stop: args.stop.clone(),
        stop_ids,
        ignore_eos: args.ignore_eos,
        cancel_after: None,
    };
    let encode = |text: &str| -> Result<Vec<u32>, Exit> {
        let t = tokenizer.ok_or_else(|| usage("the target checkpoint has no tokenizer; give --prompt-ids".into()))?;
        t.encode(text).map_err(|e| usage(e.to_string()))
    };
    if let Some(p) = &args.prompt {
        return Ok(vec![Request { prompt: encode(p)?, ..base }]);
    }
    if let Some(path) = &args.prompt_file {
        let text = std::fs::read_to_string(path).map_err(|e| usage(format!("{}: {e}", path.display())))?;
        return Ok(vec![Request { prompt: encode(&text)?, ..base }]);
    }
    if let Some(list) = &args.prompt_ids {
        let prompt = ids(list).map_err(|e| usage(format!("--prompt-ids: {e}")))?;
        return Ok(vec![Request { prompt, ..base }]);
    }
    let Some(path) = &args.requests else {
        return Err(usage("give --prompt, --prompt-file, --prompt-ids or --requests".into()));
    };
    let text = read_lines(path).map_err(|e| usage(format!("{}: {e}", path.display())))?;
    let mut out = Vec::new();
    for (i, line) in text.iter().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let at = |m: String| usage(format!("{} line {}: {m}", path.display(), i + 1));
        let l: Line = serde_json::from_str(line).map_err(|e| at(e.to_string()))?;
        let prompt = match (l.prompt, l.prompt_ids) {
            (Some(p), None) => encode(&p)?,
            (None, Some(ids)) => ids,
            _ => return Err(at("one of prompt and prompt_ids is needed".into())),
        };
        let own = l.temperature.is_some() || l.top_k.is_some() || l.top_p.is_some() || l.seed.is_some();
        let sampling = if own { sampling(true, l.temperature, l.top_k, l.top_p, l.seed) } else { base.sampling };
        let mut stop = match l.stop {
            OneOrMany::One(s) => vec![s],
            OneOrMany::Many(v) => v,
        };
        stop.extend(base.stop.iter().cloned());
        let mut stop_ids = l.stop_ids;
        stop_ids.extend(&base.stop_ids);
        out.push(Request {
            id: l.id.unwrap_or_else(|| i.to_string()),
            prompt,
            max_tokens: l.max_tokens.unwrap_or(base.max_tokens),
            sampling,
            stop,
            stop_ids,
            ignore_eos: base.ignore_eos,
            cancel_after: l.cancel_after,
        });
    }
    if out.is_empty() {
        return Err(usage(format!("{} holds no request", path.display())));
    }
    Ok(out)
}

fn sampling(
    asked: bool,
    temperature: Option<f64>,
    top_k: Option<i32>,
    top_p: Option<f64>,
    seed: Option<u64>,
) -> Sampling {
    Sampling {
        temperature: temperature.unwrap_or(if asked { 1.0 } else { 0.0 }),
        top_k: top_k.unwrap_or(0),
        top_p: top_p.unwrap_or(1.0),
        seed: seed.unwrap_or(0),
    }
}

fn ids(list: &str) -> Result<Vec<u32>, String> {
    list.split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(|s| s.parse().map_err(|_| format!("`{s}` is no token id")))
        .collect()
}

fn read_lines(path: &Path) -> std::io::Result<Vec<String>> {
    if path.as_os_str() == "-" {
        return std::io::stdin().lock().lines().collect();
    }
    std::io::BufReader::new(std::fs::File::open(path)?).lines().collect()
}

/// One timed phase.
struct Span {
    name: &'static str,
    began: Duration,
    took: Duration,
    requests: usize,
}

/// Shows text as it comes and notes times.
struct Watch {
    stream: bool,
    spans: Option<Vec<Span>>,
    zero: Instant,
}

impl Events for Watch {
    fn text(&mut self, _: usize, text: &str) {
        if self.stream {
            let mut out = std::io::stdout().lock();
            // A reader that went away stops reading; the run goes on to its end.
            output::written(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
        }
    }

    fn span(&mut self, name: &'static str, began: Instant, requests: usize) {
        if let Some(spans) = &mut self.spans {
            spans.push(Span { name, began: began.duration_since(self.zero), took: began.elapsed(), requests });
        }
    }
}

/// Chrome trace JSON: one track a phase.
fn write_trace(path: &Path, spans: &[Span]) -> Result<(), Exit> {
    const TRACKS: [&str; 6] = ["prefill", "draft", "verify", "accept", "commit", "decode"];
    let track = |name: &str| TRACKS.iter().position(|t| *t == name).unwrap_or(TRACKS.len());
    let mut events: Vec<_> = TRACKS
        .iter()
        .enumerate()
        .map(|(i, t)| json!({"name": "thread_name", "ph": "M", "pid": 1, "tid": i, "args": {"name": t}}))
        .collect();
    events.extend(spans.iter().map(|s| {
        json!({
            "name": s.name, "ph": "X", "pid": 1, "tid": track(s.name),
            "ts": s.began.as_secs_f64() * 1e6, "dur": s.took.as_secs_f64() * 1e6,
            "args": {"requests": s.requests},
        })
    }));
    std::fs::write(path, json!({"traceEvents": events}).to_string()).map_err(|e| {
        output::error(&format!("{}: {e}", path.display()));
        Exit::Failed
    })
}

fn report(done: &[Finished], totals: &Totals, peak: &Bytes, load: Duration, wall: Duration) -> serde_json::Value {
    let requests: Vec<_> = done
        .iter()
        .map(|d| {
            let cycles: Vec<_> = d
                .cycles
                .iter()
                .map(|c| {
                    json!({"position": c.position, "width": c.width, "proposal": c.proposal, "accepted": c.accepted, "committed": c.committed})
                })
                .collect();
            json!({
                "id": d.id, "prompt_tokens": d.prompt_tokens, "tokens": d.tokens, "text": d.text,
                "finish": d.finish.name(), "cycles": cycles,
            })
        })
        .collect();
    let t = &totals.times;
    json!({
        "schema": "spinec.run/1",
        "requests": requests,
        "totals": {
            "tokens": totals.tokens,
            "cycles": totals.cycles,
            "plain_cycles": totals.plain,
            "accept_length": totals.accept_length(),
            "accept_rate": totals.accept_rate(),
            "tokens_per_s": totals.tokens as f64 / wall.as_secs_f64().max(1e-9),
            "time_s": {
                "load": load.as_secs_f64(),
                "prefill": t.prefill.as_secs_f64(),
                "draft": t.draft.as_secs_f64(),
                "tail": t.tail.as_secs_f64(),
                "verify": t.verify.as_secs_f64(),
                "accept": t.accept.as_secs_f64(),
                "commit": t.commit.as_secs_f64(),
                "wall": wall.as_secs_f64(),
            },
            "peak_bytes": peak,
        },
    })
}
