//! Exit codes, documented in the README and tested.

use crate::output;
use spinec_ir::diag::{Code, Diagnostics, Severity, codes, printable};
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok,
    /// Something was checked and found wrong, or a run failed.
    Failed,
    /// The command line or a spec is wrong.
    Usage,
    /// A checkpoint or a file of tensors is wrong.
    Checkpoint,
    /// It does not fit the serving bounds.
    DoesNotFit,
    /// A bug of this program.
    Bug,
    /// Interrupted by the user.
    Interrupted,
    /// Who read stdout went away before everything was written, as after SIGPIPE.
    ReaderGone,
}

impl Exit {
    /// The process exit code.
    pub fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Checkpoint => 3,
            Exit::DoesNotFit => 4,
            Exit::Bug => 70,
            Exit::Interrupted => 130,
            Exit::ReaderGone => 141,
        })
    }

    /// What errors in a spec and its checkpoints mean: a spec error wins over a checkpoint error.
    pub fn of(diags: &Diagnostics) -> Exit {
        let checkpoint = |c: Code| c == codes::CHECKPOINT || c == codes::CHECKPOINT_TENSOR;
        let errors: Vec<Code> = diags.iter().filter(|d| d.severity == Severity::Error).map(|d| d.code).collect();
        match errors.as_slice() {
            [] => Exit::Ok,
            all if all.iter().all(|c| checkpoint(c)) => Exit::Checkpoint,
            _ => Exit::Usage,
        }
    }
}

/// A panic is a bug; say so, and how to report it.
pub fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
    let text = info
        .payload()
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| info.payload().downcast_ref::<String>().cloned())
        .unwrap_or_default();
    // A closed pipe ends the program without a word, as with any other tool.
    if text.contains("failed printing to stdout") {
        return;
    }
    // A panic here would abort the process: output::message cannot.
    output::message(&format!(
        "bug in spinec {}: {} ({place})\nplease report it with the command line and the files that led here\n",
        env!("CARGO_PKG_VERSION"),
        printable(&text)
    ));
}
