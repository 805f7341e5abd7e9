//! The `spinec` command line: one file a subcommand.

mod args;
mod commands;
mod exit;
mod files;
mod numbers;
mod output;
mod planner;

use args::{Cli, Command};
use clap::Parser;
use exit::Exit;
use output::Delivery;
use spinec_ir::diag::printable;
use std::borrow::Cow;
use std::process::ExitCode;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(exit::report_panic));
    let outcome = std::panic::catch_unwind(|| match Cli::try_parse() {
        Ok(cli) => run(&cli),
        Err(e) => {
            // --help and --version are no errors.
            let plain = e.render().to_string();
            let printed = match printable(&plain) {
                Cow::Borrowed(_) => e.print(),
                // Somebody's arguments would act on the terminal.
                Cow::Owned(shown) => {
                    output::message(&shown);
                    Ok(())
                }
            };
            if e.use_stderr() {
                Exit::Usage
            } else {
                output::written(printed);
                Exit::Ok
            }
        }
    });
    let exit = match (outcome.unwrap_or(Exit::Bug), output::delivery()) {
        (Exit::Ok, Delivery::ReaderGone) => Exit::ReaderGone,
        (Exit::Ok, Delivery::Lost) => Exit::Failed,
        (exit, _) => exit,
    };
    exit.code()
}

fn run(cli: &Cli) -> Exit {
    match &cli.command {
        Command::Check(a) => commands::check::run(a),
        Command::Eval(a) => commands::eval::run(a),
        Command::Run(a) => commands::run::run(a),
        Command::Synth(a) => commands::synth::run(a),
        Command::Plan(a) => commands::plan::run(a),
        Command::Explain(a) => commands::explain::run(a),
        Command::WhyNot(a) => commands::why_not::run(a),
        Command::Passes(a) => commands::passes::run(a),
        Command::Ptx(c) => commands::ptx::run(c),
    }
}
