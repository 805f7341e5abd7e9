//! Finding ops of a plan by node paths.

use spinec_ir::diag::suggest;
use spinec_ir::ir::{Func, OpId};
use spinec_ir::plan::Plan;

/// Ops of a function that compute a value of that path, or an intermediate of its expression; loop indices in the path
/// are not looked at.
pub fn ops_of(func: &Func, path: &str) -> Vec<OpId> {
    let plain = without_indices(path);
    if plain.is_empty() {
        return Vec::new();
    }
    let named = |id: &OpId| func.op(*id).results.iter().flat_map(|v| &func.value(*v).names).any(|n| **n == *plain);
    let within = |id: &OpId| *func.op(*id).loc.path == *plain;
    let all = || (0..func.ops.len() as u32).map(OpId);
    let found: Vec<OpId> = all().filter(named).collect();
    if found.is_empty() { all().filter(within).collect() } else { found }
}

/// `layers.3.x` as `layers.x`.
fn without_indices(path: &str) -> String {
    let parts: Vec<&str> = path.split('.').filter(|p| p.is_empty() || !p.chars().all(|c| c.is_ascii_digit())).collect();
    parts.join(".")
}

/// What to say when no function has a value of that path.
pub fn unknown(plan: &Plan, path: &str) -> String {
    let mut names: Vec<&str> = plan
        .module
        .funcs
        .iter()
        .flat_map(|f| {
            f.values.iter().flat_map(|v| v.names.iter().map(|n| &**n)).chain(f.ops.iter().map(|op| &*op.loc.path))
        })
        .filter(|n| !n.is_empty())
        .collect();
    names.sort_unstable();
    names.dedup();
    let plain = without_indices(path);
    let near = suggest(&plain, names.iter().copied());
    let help = near.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
    format!("no phase has a value `{path}`{help}")
}
