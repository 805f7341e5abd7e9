//! Configurations of checkpoints, and the numerics that are asked for.

use super::decl::*;
use super::values::Config;
use super::{CheckpointRef, Overrides};
use crate::diag::{Diagnostic, Diagnostics, codes, suggest};
use crate::spec::load::Host;
use crate::ty::{Numerics, RuleClass};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn read_configs(
    decl: &SystemDecl,
    host: &dyn Host,
    over: &Overrides,
    diags: &mut Diagnostics,
) -> (Vec<CheckpointRef>, BTreeMap<String, Config>) {
    let mut refs = Vec::new();
    let mut configs = BTreeMap::new();
    for name in over.checkpoints.keys() {
        if !decl.checkpoints.iter().any(|c| c.name.name == *name) {
            let known: Vec<&str> = decl.checkpoints.iter().map(|c| c.name.name.as_str()).collect();
            diags.push(
                Diagnostic::error_nowhere(codes::SYSTEM, format!("the system has no checkpoint `{name}`"))
                    .help(format!("its checkpoints: {}", known.join(", "))),
            );
        }
    }
    for c in &decl.checkpoints {
        let (dir, span) = match (over.checkpoints.get(&c.name.name), &c.path) {
            (Some(dir), _) => (dir.clone(), None),
            (None, Some((dir, span))) => (dir.clone(), Some(*span)),
            (None, None) => {
                diags.push(
                    Diagnostic::error(
                        codes::CHECKPOINT,
                        c.name.span,
                        format!("checkpoint `{}` has no directory", c.name.name),
                    )
                    .help(format!("give one with --checkpoint {}=DIR, or write `path:`", c.name.name)),
                );
                continue;
            }
        };
        let dir = crate::spec::load::normal(&dir);
        refs.push(CheckpointRef {
            name: c.name.name.clone(),
            dir: dir.clone(),
            ignore: c.ignore.iter().map(|i| (i.pattern.clone(), i.reason.clone())).collect(),
        });
        let error = |text: String| match span {
            Some(span) => Diagnostic::error(codes::CHECKPOINT, span, text),
            None => Diagnostic::error_nowhere(codes::CHECKPOINT, text),
        };
        let path = format!("{dir}/config.json");
        let json = match host.read(&path) {
            Err(why) => {
                diags.push(
                    error(format!("{path} cannot be read: {why}")).help("a checkpoint is a directory with config.json"),
                );
                continue;
            }
            Ok(bytes) => match serde_json::from_slice::<serde_json::Value>(&bytes) {
                Ok(json) => json,
                Err(e) => {
                    diags.push(error(format!("{path} is not JSON: {e}")));
                    continue;
                }
            },
        };
        let mut at = &json;
        let mut found = true;
        let place = c.config.as_ref();
        for part in place.iter().flat_map(|(p, _)| p.split('.')) {
            match at.get(part) {
                Some(next) => at = next,
                None => {
                    let error = |text: String| match place {
                        Some((_, span)) => Diagnostic::error(codes::CHECKPOINT, *span, text),
                        None => error(text),
                    };
                    diags.push(error(format!(
                        "{path} has no `{part}`, which the system file names as the place of its keys"
                    )));
                    found = false;
                    break;
                }
            }
        }
        if !found {
            continue;
        }
        // Keys beside the named place stay visible: the place's own win.
        let mut merged = at.clone();
        if let (Some(inner), Some(outer)) = (merged.as_object_mut(), json.as_object()) {
            for (k, v) in outer {
                inner.entry(k.clone()).or_insert_with(|| v.clone());
            }
        }
        configs.insert(c.name.name.clone(), Config { dir, json: merged });
    }
    (refs, configs)
}

/// The numerics policy of the run and the classes of rules that may fire.
pub(super) fn numerics(
    decl: &SystemDecl,
    over: &Overrides,
    diags: &mut Diagnostics,
) -> (Numerics, BTreeSet<RuleClass>) {
    let given = decl.numerics.as_ref();
    let mut policy = Numerics::F32;
    if let Some(name) = given.and_then(|n| n.policy.as_ref()) {
        match Numerics::from_name(&name.name) {
            Some(known) => policy = known,
            None => diags.push(
                Diagnostic::error(
                    codes::BAD_ATTRIBUTE,
                    name.span,
                    format!("there is no numerics policy `{}`", name.name),
                )
                .help("f64, f32 or bf16"),
            ),
        }
    }
    let mut classes: BTreeSet<RuleClass> = RuleClass::DEFAULT.into();
    if let Some(rules) = given.and_then(|n| n.rules.as_ref()) {
        classes.clear();
        for name in rules {
            match RuleClass::from_name(&name.name) {
                Some(class) => {
                    classes.insert(class);
                }
                None => {
                    let known = RuleClass::ALL.map(RuleClass::name);
                    let help = match suggest(&name.name, known) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => known.join(", "),
                    };
                    diags.push(
                        Diagnostic::error(
                            codes::BAD_ATTRIBUTE,
                            name.span,
                            format!("there is no class of rules `{}`", name.name),
                        )
                        .help(help),
                    );
                }
            }
        }
    }
    (over.numerics.unwrap_or(policy), classes)
}
