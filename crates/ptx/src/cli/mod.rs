//! The commands `ptx check` and `ptx run` as functions: options in, text and exit code out.
//!
//! Exit codes: 0 ok, 1 the PTX or the kernel has errors, 2 wrong usage or argument specification, 3 a file cannot be
//! read or written.

mod args;

use crate::check::Severity;
use crate::error::Diagnostic;
use crate::exec::launch::{Launch, Options, Report};
use crate::memory::Memory;
use crate::{Program, parse};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What a command prints and how it exits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Data: text, or one JSON object.
    pub stdout: String,
    /// Messages.
    pub stderr: String,
    /// Process exit code.
    pub exit_code: u8,
}

/// Everything is in order.
pub const OK: u8 = 0;
/// The PTX or the kernel has errors.
pub const FAILED: u8 = 1;
/// Wrong options or argument specification.
pub const USAGE: u8 = 2;
/// A file cannot be read or written.
pub const INPUT: u8 = 3;

/// Options of `ptx check`.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// PTX file.
    pub file: PathBuf,
    /// One JSON object instead of text.
    pub json: bool,
}

/// Options of `ptx run`.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// PTX file.
    pub file: PathBuf,
    /// Kernel.
    pub entry: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster, when not the kernel's own.
    pub cluster: Option<[u32; 3]>,
    /// Dynamic shared memory in bytes.
    pub shared: usize,
    /// JSON file of the arguments; buffer files are relative to it.
    pub args: PathBuf,
    /// One JSON object instead of text.
    pub json: bool,
    /// Checks and limits.
    pub launch: Options,
}

/// Parses `x`, `x,y` or `x,y,z`; missing numbers are 1.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_dim3(text: &str) -> Result<[u32; 3], String> {
    let mut out = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(format!("`{text}` has more than three numbers"));
    }
    for (slot, part) in out.iter_mut().zip(parts) {
        *slot = part.trim().parse().map_err(|_| format!("`{part}` in `{text}` is not a number"))?;
    }
    Ok(out)
}

fn failure(exit_code: u8, message: String) -> Outcome {
    Outcome { stdout: String::new(), stderr: format!("error: {message}\n"), exit_code }
}

fn diagnostics_json(list: &[Diagnostic]) -> Value {
    let one = |d: &Diagnostic| json!({"kind": d.kind.name(), "line": d.pos.line, "column": d.pos.column, "message": d.message});
    Value::Array(list.iter().map(one).collect())
}

fn diagnostics_text(file: &Path, list: &[Diagnostic]) -> String {
    list.iter().fold(String::new(), |mut out, d| {
        let _ = writeln!(out, "{}:{}: {}: {}", file.display(), d.pos, d.kind.name(), d.message);
        out
    })
}

fn print(v: &Value) -> String {
    format!("{v:#}\n")
}

/// Parses a PTX file and resolves every instruction of every kernel.
pub fn check(o: &CheckOptions) -> Outcome {
    let text = match std::fs::read_to_string(&o.file) {
        Ok(t) => t,
        Err(e) => return failure(INPUT, format!("{}: {e}", o.file.display())),
    };
    let mut errors = Vec::new();
    let mut kernels = Vec::new();
    let mut target = Vec::new();
    match parse(&text) {
        Err(e) => errors.push(e),
        Ok(module) => {
            target.clone_from(&module.target);
            for entry in module.entries() {
                match Program::load(&module, entry) {
                    Ok(p) => kernels.push(p),
                    Err(list) => errors.extend(list),
                }
            }
            errors.sort_by_key(|d| d.pos);
            errors.dedup();
        }
    }
    let exit_code = if errors.is_empty() { OK } else { FAILED };
    if o.json {
        let list: Vec<Value> = kernels
            .iter()
            .map(|p| {
                let params: Vec<Value> =
                    p.params().iter().map(|a| json!({"name": a.name, "offset": a.offset, "bytes": a.size})).collect();
                json!({
                    "name": p.name(),
                    "instructions": p.instruction_count(),
                    "static_shared_bytes": p.static_shared_bytes(),
                    "params": params,
                })
            })
            .collect();
        let v = json!({
            "schema": "spinec.ptx.check/1",
            "ok": errors.is_empty(),
            "target": target,
            "kernels": list,
            "diagnostics": diagnostics_json(&errors),
        });
        return Outcome { stdout: print(&v), stderr: String::new(), exit_code };
    }
    let mut stdout = String::new();
    for p in &kernels {
        let _ = writeln!(
            stdout,
            "{}: {} instructions, {} parameters, {} bytes of static shared memory",
            p.name(),
            p.instruction_count(),
            p.params().len(),
            p.static_shared_bytes()
        );
    }
    Outcome { stdout, stderr: diagnostics_text(&o.file, &errors), exit_code }
}

/// Runs a kernel of a PTX file on buffers from files. Output buffers are written back whatever was found.
pub fn run(o: &RunOptions) -> Outcome {
    let text = match std::fs::read_to_string(&o.file) {
        Ok(t) => t,
        Err(e) => return failure(INPUT, format!("{}: {e}", o.file.display())),
    };
    let loaded = parse(&text).map_err(|e| vec![e]).and_then(|m| Program::load(&m, &o.entry));
    let program = match loaded {
        Ok(p) => p,
        Err(list) => {
            let v = json!({"schema": "spinec.ptx.run/1", "ok": false, "diagnostics": diagnostics_json(&list)});
            let stdout = if o.json { print(&v) } else { String::new() };
            // An unknown kernel has no place in the text: the command was wrong, not the file.
            let usage = list.iter().any(|d| d.pos.line == 0);
            let exit_code = if usage { USAGE } else { FAILED };
            return Outcome { stdout, stderr: diagnostics_text(&o.file, &list), exit_code };
        }
    };
    let spec = match std::fs::read_to_string(&o.args) {
        Ok(t) => t,
        Err(e) => return failure(INPUT, format!("{}: {e}", o.args.display())),
    };
    let folder = o.args.parent().unwrap_or(Path::new("."));
    let bound = match args::bind(&spec, folder) {
        Ok(b) => b,
        Err(args::SpecError::Spec(m)) => return failure(USAGE, format!("{}: {m}", o.args.display())),
        Err(args::SpecError::File(m)) => return failure(INPUT, m),
    };
    let launch = Launch {
        grid: o.grid,
        block: o.block,
        cluster: o.cluster,
        shared: o.shared,
        args: bound.args,
        options: o.launch.clone(),
    };
    let report = match program.run(&bound.memory, &launch) {
        Ok(r) => r,
        Err(e) => return failure(USAGE, e.to_string()),
    };
    for (id, path) in &bound.outputs {
        if let Err(e) = std::fs::write(path, bound.memory.bytes(*id)) {
            return failure(INPUT, format!("{}: {e}", path.display()));
        }
    }
    present(o, &program, &bound.memory, &report)
}

fn present(o: &RunOptions, program: &Program, memory: &Memory, report: &Report) -> Outcome {
    let exit_code = if report.is_clean() { OK } else { FAILED };
    let unwritten: Vec<(String, u64)> =
        memory.ids().map(|id| (memory.name(id).to_string(), memory.unwritten(id))).filter(|u| u.1 > 0).collect();
    let unwritten = if o.launch.check { unwritten } else { Vec::new() };
    if o.json {
        let list: Vec<Value> = unwritten.iter().map(|(n, b)| json!({"buffer": n, "bytes": b})).collect();
        let v = json!({
            "schema": "spinec.ptx.run/1",
            "ok": report.is_clean(),
            "entry": program.name(),
            "arch": program.arch(),
            "findings": report.findings,
            "counters": if o.launch.count { json!(report.counters) } else { Value::Null },
            "unwritten": list,
            "output": report.output,
        });
        return Outcome { stdout: print(&v), stderr: String::new(), exit_code };
    }
    let mut stdout = report.output.clone();
    if o.launch.count {
        let _ = write!(stdout, "{}", report.counters);
    }
    let mut stderr = String::new();
    for f in &report.findings {
        let head = if f.severity == Severity::Error { "error" } else { "performance" };
        let _ = writeln!(stderr, "{head}: {f}");
    }
    for (name, bytes) in unwritten {
        let _ = writeln!(stderr, "note: {bytes} bytes of `{name}` were never written");
    }
    Outcome { stdout, stderr, exit_code }
}
