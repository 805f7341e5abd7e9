//! All passes and fusion in one call.

use crate::fuse;
use crate::pass::{self, Options, PassError, Program, Ran, RegionRecord};
use spinec_ir::ir::{Func, Module};
use spinec_ir::plan::Plan;
use spinec_ir::spec::system::engine;

/// Rewrites and fuses a module. Functions that decide tokens are rewritten by exact rules alone, so that plain decoding and
/// verification keep computing the same bits.
///
/// # Errors
/// See [`PassError`]: a bug of the compiler, whatever the spec, except for an unknown name in the options.
pub fn compile(module: Module, options: &Options) -> Result<Plan, PassError> {
    Ok(compile_recorded(module, options, &mut |_, _| {})?.plan)
}

/// A plan, and what the passes found out on the way.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The plan.
    pub plan: Plan,
    /// What happened in every distinct region.
    pub regions: Vec<RegionRecord>,
}

/// [`compile`] with its records; `observe` sees the program after each pass.
///
/// # Errors
/// As [`compile`].
pub fn compile_recorded(
    module: Module,
    options: &Options,
    observe: &mut dyn FnMut(&Ran, &Program),
) -> Result<Compiled, PassError> {
    let options = options_for(&module, options);
    let program = pass::run(module, &options, observe)?;
    let regions = program.regions.clone();
    Ok(Compiled { plan: fuse::plan(program, &fuse::Options::of(&options))?, regions })
}

/// The options with the functions that decide tokens named.
pub fn options_for(module: &Module, options: &Options) -> Options {
    let decides = |f: &&Func| f.outputs.iter().any(|o| engine::decides(o));
    let mut options = options.clone();
    options.exact.extend(module.funcs.iter().filter(decides).map(|f| f.name.clone()));
    options
}
