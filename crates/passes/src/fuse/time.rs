//! How long a kernel takes on a device: what decides whether one kernel beats two.

use super::context::Context;
use super::legal::Form;
use spinec_ir::ir::OpId;
use spinec_ir::ops::Opcode;
use spinec_ir::plan::cost::flops;
use spinec_ir::plan::families::{Family, Mechanism};
use spinec_ir::plan::role::is_statistic;
use spinec_ir::plan::traffic::{state_writes, tensor_bytes};
use spinec_ir::ty::{DType, Dim, Env};
use std::collections::BTreeSet;

/// Columns of a long row a block takes on when the row is split.
pub(super) const SPLIT_COLUMNS: i64 = 8192;

/// Elements a block of a pointwise kernel takes on.
const POINTS: u64 = 1024;

/// Picoseconds of a kernel at the small and at the large end of the symbols.
pub(super) fn time(c: &Context, ops: &BTreeSet<OpId>, form: &Form) -> [u64; 2] {
    [0, 1].map(|end| at(c, ops, form, &c.range[end]))
}

fn at(c: &Context, ops: &BTreeSet<OpId>, form: &Form, env: &Env) -> u64 {
    let value = |d: &Dim| d.eval(env).and_then(|v| u128::try_from(v).ok()).unwrap_or(0);
    let mut bytes: u128 = form.reads.items.values().map(value).fold(0, u128::saturating_add);
    let mut work: u128 = 0;
    let mut wide = false;
    let mut narrow = true;
    for id in ops {
        if c.escapes(*id, ops) {
            let results = c.func.op(*id).results.iter().filter_map(|v| c.func.tensor(*v)).filter_map(tensor_bytes);
            bytes = bytes.saturating_add(results.map(|d| value(&d)).fold(0, u128::saturating_add));
        }
        bytes += state_writes(c.func, *id).map_or(0, |d| value(&d));
        work += flops(c.func, *id).map_or(0, |d| value(&d));
        let op = c.func.op(*id);
        let mut types = op.operands.iter().chain(&op.results).filter_map(|v| c.func.tensor(*v)).map(|t| t.dtype);
        wide |= types.any(|t| t == DType::F64);
        if op.code == Opcode::Linear {
            let weight = c.func.tensor(op.operands[1]).map_or(4, |t| t.dtype.bytes());
            narrow &= weight <= 2 && op.dtype("acc") == Some(DType::F32);
        }
    }
    let device = &c.options.device;
    let rate = match (wide, form.family) {
        (true, _) => device.flops_64,
        (false, Family::Gemm | Family::Attention) if narrow => device.flops_16,
        _ => device.flops_32,
    };
    // A kernel has the device's rates if its blocks fill the multiprocessors.
    let all = device.multiprocessors.max(1);
    let share = blocks(form, env).map_or(all, |n| n.clamp(1, all));
    let scaled = |n: u128, rate: u64, share: u64| {
        let ps = n.saturating_mul(1_000_000_000_000).saturating_mul(u128::from(all));
        u64::try_from(ps / u128::from(rate.max(1)).saturating_mul(u128::from(share))).unwrap_or(u64::MAX)
    };
    // Only long rows are split; what follows is left to the last block of a row.
    let mut ps = 0;
    if let Some((split, pieces)) = long_rows(c, ops, form, env) {
        let share = u64::try_from(pieces).unwrap_or(u64::MAX).clamp(1, all);
        ps = scaled(split.min(bytes), device.bandwidth, share);
        bytes = bytes.saturating_sub(split);
    }
    let rest = scaled(bytes, device.bandwidth, share).max(scaled(work, rate, share));
    device.launch_ps.saturating_add(ps).saturating_add(rest)
}

/// Bytes of the rows that are split over blocks, and how many pieces there are.
fn long_rows(c: &Context, ops: &BTreeSet<OpId>, form: &Form, env: &Env) -> Option<(u128, i64)> {
    if !form.mechanisms.contains(&Mechanism::SplitRow) {
        return None;
    }
    let mut found: Option<(u128, i64)> = None;
    for id in ops.iter().chain(&form.reads.inner_statistics) {
        let op = c.func.op(*id);
        let Some(t) = op.operands.first().and_then(|v| c.func.tensor(*v)) else { continue };
        let Some(last) = t.dims.last().and_then(|d| d.as_const()) else { continue };
        if last < 2 * SPLIT_COLUMNS || !(op.code == Opcode::TopK || is_statistic(op.code)) {
            continue;
        }
        let n = t.dims.iter().try_fold(1i64, |n, d| n.checked_mul(d.eval(env)?))?;
        let bytes = u128::try_from(n.checked_mul(t.dtype.bytes())?).ok()?;
        found = found.max(Some((bytes, n / SPLIT_COLUMNS)));
    }
    found
}

/// Blocks that work at once; `None` for kernels around products, which fill any device by splitting what they sum.
fn blocks(form: &Form, env: &Env) -> Option<u64> {
    if !form.family.is_row() {
        return None;
    }
    let n = form.rows.iter().try_fold(1i64, |n, d| n.checked_mul(d.eval(env)?));
    let n = n.and_then(|n| u64::try_from(n).ok()).unwrap_or(1);
    Some(if form.pointwise { n.div_ceil(POINTS) } else { n })
}
