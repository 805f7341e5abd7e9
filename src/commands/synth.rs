//! `spinec synth`: random checkpoints for a system.

use crate::args::SynthArgs;
use crate::exit::Exit;
use crate::files;
use crate::output;
use spinec_exec::synth::{SynthError, write_checkpoints_unless};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Writes one checkpoint directory for every checkpoint of the system.
pub fn run(args: &SynthArgs) -> Exit {
    match write(args) {
        Ok(()) => Exit::Ok,
        Err(exit) => exit,
    }
}

fn write(args: &SynthArgs) -> Result<(), Exit> {
    let (system, sources) = files::load_system(&args.spec, true)?;
    // Without a handler Ctrl-C ends the process at once; the next synth takes over the file it was writing.
    let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
    let written = write_checkpoints_unless(&system, &args.output, args.seed, &INTERRUPTED).map_err(|e| match e {
        SynthError::Stopped => Exit::Interrupted,
        SynthError::Spec(diags) => {
            output::diagnostics(diags, &sources);
            Exit::Usage
        }
        SynthError::NoConfig(_) => {
            output::error(&e.to_string());
            Exit::Checkpoint
        }
        SynthError::Write(_) => {
            output::error(&e.to_string());
            Exit::Failed
        }
    })?;
    for w in written {
        output::line(&format!("{}: {} tensors", w.dir.display(), w.tensors));
    }
    Ok(())
}
