//! `spinec explain`: what an error code means.

use crate::args::ExplainArgs;
use crate::exit::Exit;
use crate::output;
use spinec_ir::diag::{CODES, code_info, suggest};

/// Prints the meaning of a code, or of all.
pub fn run(args: &ExplainArgs) -> Exit {
    let Some(code) = &args.code else {
        for (code, meaning) in CODES {
            output::line(&format!("{code}  {meaning}"));
        }
        return Exit::Ok;
    };
    match code_info(code) {
        Some(meaning) => {
            output::line(&format!("{code}: {meaning}"));
            Exit::Ok
        }
        None => {
            let near = suggest(code, CODES.iter().map(|(c, _)| *c));
            let help = near.map(|n| format!("; did you mean {n}?")).unwrap_or_default();
            output::error(&format!("there is no error code `{code}`{help}"));
            Exit::Usage
        }
    }
}
