//! Making plans in tests.
#![allow(dead_code)]

pub mod values;

use spinec_ir::ir::{Module, without_spans};
use spinec_ir::plan::Plan;
use spinec_ir::plan::verify::verify;
use spinec_ir::spec::device::Device;
use spinec_passes::fuse;
use spinec_passes::pass::{self, Options, Program};

/// The systems of the repository.
pub const SYSTEMS: [&str; 4] = [
    "graphs/spinal-demo.yaml",
    "graphs/hybrid-dspine.yaml",
    "graphs/hybrid-dflash.yaml",
    "graphs/qwen3.8-27b-dspine.yaml",
];

/// The device record of the repository.
pub fn h200() -> Device {
    let made = Device::from_yaml("h200.yaml", include_str!("../../../../devices/h200.yaml"));
    made.unwrap_or_else(|(_, diags)| panic!("{:?}", diags.into_sorted()))
}

/// A module through the passes.
pub fn rewritten(module: Module, options: &Options) -> Program {
    pass::run(module, options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// A module through passes and fusion.
pub fn planned(module: Module, options: &Options, fuse: bool) -> Plan {
    let how = fuse::Options { fuse, ..fuse::Options::of(options) };
    fuse::plan(rewritten(module, options), &how).unwrap_or_else(|e| panic!("{e}"))
}

/// As the command line plans.
pub fn usual(module: Module) -> Plan {
    planned(module, &Options::new(h200()), true)
}

/// A module through fusion alone.
pub fn fused(module: Module, how: &fuse::Options) -> Result<Plan, pass::PassError> {
    let load = Module { funcs: Vec::new(), states: Vec::new(), ..module.clone() };
    fuse::plan(Program { module, load, derived: Vec::new(), regions: Vec::new() }, how)
}

/// What the verifier says, a line each.
pub fn complaints(plan: &Plan) -> String {
    verify(plan).iter().map(|e| format!("{e}\n")).collect()
}

/// A plan without the spans of its modules, which text does not have.
pub fn unspanned(plan: &Plan) -> Plan {
    Plan { module: without_spans(&plan.module), load: without_spans(&plan.load), ..plan.clone() }
}

/// FNV-1a.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
