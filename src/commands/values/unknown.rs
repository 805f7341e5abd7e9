//! What to say of a name nothing has.

use super::ValuePath;
use crate::args::{CandidatesArg, LawArg, PlanArgs, SpecArgs};
use crate::planner;
use spinec_ir::diag::suggest;
use spinec_ir::ir::{Func, Module};

/// What to say when no phase of a plan and no phase as it is written has a value of that path.
pub fn unknown(spec: &SpecArgs, plan: &PlanArgs, modules: [&Module; 2], path: &str) -> String {
    let parsed = match ValuePath::parse(path) {
        Ok(p) => p.anywhere(),
        Err(why) => return why,
    };
    if let Some(flags) = elsewhere(spec, plan, &parsed) {
        return format!("`{path}` is a value of another variant of its phase: add {flags}");
    }
    if let Some(why) = other(modules[0], path) {
        return why;
    }
    let mut names: Vec<&str> = Vec::new();
    for module in modules {
        names.extend(module.weights.iter().map(|w| &*w.name));
        for f in &module.funcs {
            names.extend(f.values.iter().flat_map(|v| v.names.iter().map(|n| &**n)));
            names.extend(f.ops.iter().map(|op| &*op.loc.path));
            names.extend(f.inputs.iter().chain(&f.outputs).map(String::as_str));
        }
    }
    names.retain(|n| !n.is_empty());
    names.sort_unstable();
    names.dedup();
    let inside = format!("{}.", parsed.plain);
    if let Some(part) = names.iter().find(|n| path == parsed.plain && n.starts_with(&inside)) {
        return format!("`{path}` stands for several values: name one, such as `{part}`");
    }
    let near = suggest(&parsed.plain, names.iter().copied());
    let help = near.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default();
    format!("no phase has a value `{path}`{help}")
}

/// What has that name and is no value.
fn other(module: &Module, path: &str) -> Option<String> {
    let weight = module.weights.iter().find(|w| w.source.as_ref().is_some_and(|s| s.tensor == path));
    if let Some(w) = weight {
        return Some(format!("`{path}` is a tensor of a checkpoint: the system calls it `{}`", w.name));
    }
    if module.states.iter().any(|s| s.name == path) {
        return Some(format!("`{path}` is a state and no value: `spinec explain` shows the kernels that use it"));
    }
    for f in &module.funcs {
        let phase = f.name.split('.').next().unwrap_or_default();
        let name = path.strip_prefix(phase).and_then(|rest| rest.strip_prefix('.'));
        if let Some(name) = name.filter(|n| f.outputs.iter().chain(&f.inputs).any(|o| o == n)) {
            return Some(format!("inputs and outputs of phases go by their own names: write `{name}`"));
        }
    }
    let phase = |f: &Func| f.name == path || f.name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    let kernel = module.funcs.iter().any(|f| path.strip_prefix(&*f.name).is_some_and(|rest| rest.starts_with('.')));
    if module.funcs.iter().any(phase) {
        return Some(format!("`{path}` is a phase and no value: `spinec plan` shows it"));
    }
    kernel.then(|| format!("`{path}` is no value, and no kernel that `spinec plan` shows"))
}

/// The flags that choose variants of the phases which have the value.
fn elsewhere(spec: &SpecArgs, plan: &PlanArgs, path: &ValuePath) -> Option<String> {
    let laws = [LawArg::Greedy, LawArg::Sampled, LawArg::Mixed];
    let candidates = [CandidatesArg::Coarse, CandidatesArg::Exact];
    // Fewest changes first.
    let mut choices: Vec<(LawArg, CandidatesArg)> =
        laws.into_iter().flat_map(|l| candidates.into_iter().map(move |c| (l, c))).collect();
    choices.sort_by_key(|(l, c)| usize::from(*l != plan.law) + usize::from(*c != plan.candidates));
    choices.into_iter().skip(1).find_map(|(law, candidates)| {
        let other = PlanArgs { law, candidates, ..plan.clone() };
        let subject = planner::subject(spec, &other).ok()?;
        let found = subject.module.funcs.iter().any(|f| !path.find(f).is_empty());
        let flag = |flag: &str, value: String, changed: bool| changed.then(|| format!("--{flag} {value}"));
        let flags = [
            flag("law", law.name(), law != plan.law),
            flag("candidates", candidates.name(), candidates != plan.candidates),
        ];
        found.then(|| flags.into_iter().flatten().collect::<Vec<_>>().join(" "))
    })
}
