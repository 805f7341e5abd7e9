//! `spinec ptx`: checks and runs PTX on the CPU.

use crate::args::{PtxCommand, PtxRunArgs};
use crate::exit::Exit;
use crate::output;
use spinec_ir::diag::printable;
use spinec_ptx::cli::{self, CheckOptions, Outcome, RunOptions};
use std::io::Write;

/// Runs a `ptx` subcommand.
pub fn run(command: &PtxCommand) -> Exit {
    let outcome = match command {
        PtxCommand::Check(a) => cli::check(&CheckOptions { file: a.file.clone(), json: a.json }),
        PtxCommand::Run(a) => match options(a) {
            Ok(o) => cli::run(&o),
            Err(m) => {
                output::error(&m);
                return Exit::Usage;
            }
        },
    };
    show(&outcome)
}

fn options(a: &PtxRunArgs) -> Result<RunOptions, String> {
    let cluster = a.cluster.as_deref().map(cli::parse_dim3).transpose().map_err(|e| format!("--cluster: {e}"))?;
    Ok(RunOptions {
        file: a.file.clone(),
        entry: a.entry.clone(),
        grid: cli::parse_dim3(&a.grid).map_err(|e| format!("--grid: {e}"))?,
        block: cli::parse_dim3(&a.block).map_err(|e| format!("--block: {e}"))?,
        cluster,
        shared: a.shared,
        args: a.args.clone(),
        json: a.json,
        launch: spinec_ptx::Options { threads: 0, ..spinec_ptx::Options::default() },
    })
}

fn show(o: &Outcome) -> Exit {
    output::message(&printable(&o.stderr));
    let mut out = std::io::stdout().lock();
    output::written(out.write_all(printable(&o.stdout).as_bytes()).and_then(|()| out.flush()));
    match o.exit_code {
        cli::OK => Exit::Ok,
        cli::USAGE => Exit::Usage,
        cli::INPUT => Exit::Checkpoint,
        _ => Exit::Failed,
    }
}
