//! Plans of the phases of a system: for the engine, and for commands that show them.

use crate::args::{PlanArgs, SpecArgs};
use crate::exit::Exit;
use crate::files;
use crate::output;
use spinec_exec::planned::Planned;
use spinec_exec::runtime::Runtime;
use spinec_ir::diag::SourceMap;
use spinec_ir::ir::Module;
use spinec_ir::plan::CONTEXT;
use spinec_ir::spec::device::Device;
use spinec_ir::spec::system::{System, engine};
use spinec_ir::ty::{Env, Numerics};
use spinec_passes::compile::{Compiled, compile, compile_recorded};
use spinec_passes::pass::{Options, PassError, Program, Ran};
use std::collections::BTreeMap;

/// A runtime that runs plans of the phases of a system.
pub fn planned(runtime: Box<dyn Runtime>, system: &System) -> Box<dyn Runtime> {
    let options = Options::for_system(built_in(), system);
    Box::new(Planned::new(runtime, Box::new(move |m| compile(m, &options).map_err(|e| e.to_string()))))
}

/// A system with its phases, for a command that plans.
pub struct Subject {
    pub system: System,
    pub sources: SourceMap,
    pub module: Module,
    pub options: Options,
}

/// Loads a system and lowers its phases. Plans are made for bf16 unless the command line says otherwise.
pub fn subject(spec: &SpecArgs, plan: &PlanArgs) -> Result<Subject, Exit> {
    subject_for(spec, plan, None, None)
}

/// [`subject`] for so many requests of so many positions, within the limits the system declares.
pub fn subject_for(
    spec: &SpecArgs,
    plan: &PlanArgs,
    requests: Option<u64>,
    context: Option<u64>,
) -> Result<Subject, Exit> {
    let mut spec = spec.clone();
    for (key, value) in [("serve.requests", requests), ("serve.context", context)] {
        spec.with.sets.extend(value.map(|n| format!("{key}={n}")));
    }
    spec.with.numerics = spec.with.numerics.or(Some(crate::args::NumericsArg::Bf16));
    let (system, sources) = files::load_system(&spec, false)?;
    let choices =
        BTreeMap::from([("law".to_owned(), plan.law.name()), ("candidates".to_owned(), plan.candidates.name())]);
    let asked = |phase: &str, output: &str| engine::OUTPUTS.iter().any(|o| o.phase == phase && o.name == output);
    let lowered = system.phase_module(&choices, &asked).map_err(|diags| {
        output::diagnostics(diags, &sources);
        Exit::Usage
    })?;
    if lowered.module.funcs.is_empty() {
        output::error(&format!("system `{}` has no phases to plan", system.name));
        return Err(Exit::Usage);
    }
    let mut options = Options::for_system(device(plan.device.as_deref())?, &system);
    options.budget = plan.budget;
    Ok(Subject { module: lowered.module, system, sources, options })
}

const H200: &str = include_str!("../devices/h200.yaml");

/// The record plans are made for when none is named.
fn built_in() -> Device {
    match Device::from_yaml("h200.yaml", H200) {
        Ok(d) => d,
        Err(_) => unreachable!("a test reads the built-in record"),
    }
}

/// The device record of a name or a file.
pub fn device(name: Option<&str>) -> Result<Device, Exit> {
    let Some(name) = name.filter(|n| *n != "h200") else { return Ok(built_in()) };
    let text = std::fs::read_to_string(name).map_err(|e| {
        output::error(&format!("device record {name}: {e}; the built-in record is `h200`, anything else is a file"));
        Exit::Usage
    })?;
    Device::from_yaml(name, &text).map_err(|(sources, diags)| {
        output::diagnostics(diags, &sources);
        Exit::Usage
    })
}

impl Subject {
    /// The plan of the phases with what the compiler recorded.
    pub fn compile(&self, observe: &mut dyn FnMut(&Ran, &Program)) -> Result<Compiled, Exit> {
        compile_recorded(self.module.clone(), &self.options, observe).map_err(|e| {
            output::error(&e.to_string());
            match e {
                PassError::Unknown(_) => Exit::Usage,
                _ => Exit::Bug,
            }
        })
    }

    /// Values of the symbols: so many requests, whole blocks and chunks, so many positions.
    pub fn env(&self, requests: i64, context: i64) -> Env {
        let mut env: Env =
            self.module.symbols.iter().filter_map(|s| Some((s.name.clone(), s.bounds.max.or(s.bounds.min)?))).collect();
        // The symbol that counts requests is the one the engine's inputs share: the first axis of every phase's first input.
        for func in &self.module.funcs {
            let first = func.region(func.body).params.first().and_then(|v| func.tensor(*v));
            if let Some(n) = first.and_then(|t| t.dims.first()).and_then(|d| d.as_symbol()) {
                env.insert(n.to_owned(), requests);
            }
        }
        env.insert(CONTEXT.to_owned(), context);
        env
    }

    /// The numerics the phases are typed in.
    pub fn numerics(&self) -> Numerics {
        self.module.numerics
    }
}
