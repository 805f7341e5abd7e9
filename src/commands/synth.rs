//! `spinec synth`: random checkpoints for a system.

use crate::args::SynthArgs;
use crate::exit::Exit;
use crate::files;
use crate::output;
use spinec_exec::synth::{SynthError, write_checkpoints};
use std::io::Write;

/// Writes one checkpoint directory for every checkpoint of the system.
pub fn run(args: &SynthArgs) -> Exit {
    match write(args) {
        Ok(()) => Exit::Ok,
        Err(exit) => exit,
    }
}

fn write(args: &SynthArgs) -> Result<(), Exit> {
    let (system, sources) = files::load_system(&args.spec, true)?;
    let written = write_checkpoints(&system, &args.output, args.seed).map_err(|e| match e {
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
    let mut out = std::io::stdout().lock();
    for w in written {
        // A reader that went away is no error: the files are there.
        let _ = writeln!(out, "{}: {} tensors", w.dir.display(), w.tensors);
    }
    Ok(())
}
