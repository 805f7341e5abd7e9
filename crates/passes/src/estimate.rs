//! How long the launches of a phase take on a device, by its record: nothing is measured here.

use crate::cost::Device;
use spinec_ir::ir::Func;
use spinec_ir::ops::Opcode;
use spinec_ir::plan::cost::launches;
use spinec_ir::plan::families::Family;
use spinec_ir::plan::{Kernel, Phase};
use spinec_ir::ty::{DType, Dim, Env};

/// What limits a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Bytes moved.
    Bandwidth,
    /// Arithmetic.
    Compute,
    /// Starting kernels.
    Launch,
}

impl Bound {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Bandwidth => "bandwidth",
            Bound::Compute => "compute",
            Bound::Launch => "launch",
        }
    }
}

/// Times of a phase in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Launches, and for each the longer of traffic and arithmetic.
    pub total: u128,
    /// What takes most of it.
    pub bound: Bound,
}

/// The estimate of a phase at the given values of symbols; `None` if a count has no value.
pub fn estimate(device: &Device, func: &Func, phase: &Phase, env: &Env) -> Option<Estimate> {
    let (mut starts, mut moving, mut computing) = (0u128, 0u128, 0u128);
    for (_, kernel, times) in launches(func, phase)? {
        let value = |d: &Dim| d.eval(env).and_then(|v| u128::try_from(v).ok());
        let times = value(&times)?;
        let mut bytes = 0u128;
        for access in kernel.reads.iter().chain(&kernel.writes) {
            bytes = value(&access.bytes)?.saturating_add(bytes);
        }
        let traffic = u128::saturating_mul(bytes, 1_000_000_000_000) / u128::from(device.bandwidth.max(1));
        let work =
            value(&kernel.flops)?.saturating_mul(1_000_000_000_000) / u128::from(rate(device, func, kernel).max(1));
        starts = times.saturating_mul(u128::from(device.launch_ps)).saturating_add(starts);
        if traffic >= work {
            moving = times.saturating_mul(traffic).saturating_add(moving);
        } else {
            computing = times.saturating_mul(work).saturating_add(computing);
        }
    }
    let bound = [(moving, Bound::Bandwidth), (computing, Bound::Compute), (starts, Bound::Launch)];
    let most = bound.iter().map(|b| b.0).max()?;
    let bound = bound.iter().find(|b| b.0 == most)?.1;
    Some(Estimate { total: starts.saturating_add(moving).saturating_add(computing), bound })
}

/// Operations a second of a kernel's arithmetic.
pub fn rate(device: &Device, func: &Func, kernel: &Kernel) -> u64 {
    let types = |id: &spinec_ir::ir::OpId| {
        let op = func.op(*id);
        op.operands.iter().chain(&op.results).filter_map(|v| func.tensor(*v)).map(|t| t.dtype).collect::<Vec<_>>()
    };
    let bytes = |id: &spinec_ir::ir::OpId| match func.op(*id).code {
        Opcode::Linear => func.op(*id).operands.get(1).and_then(|v| func.tensor(*v)).map(|t| t.dtype.bytes()),
        Opcode::Attention => func.op(*id).operands.first().and_then(|v| func.tensor(*v)).map(|t| t.dtype.bytes()),
        _ => None,
    };
    let narrow = kernel.ops.iter().filter_map(bytes).all(|n| n <= 2);
    if kernel.ops.iter().flat_map(types).any(|t| t == DType::F64) {
        device.flops_64
    } else if matches!(kernel.family, Family::Gemm | Family::Attention) && narrow {
        device.flops_16
    } else {
        device.flops_32
    }
}
