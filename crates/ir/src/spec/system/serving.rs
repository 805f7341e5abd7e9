//! What is served: requests, context, widths, pools.

use super::engine;
use super::values::Values;
use super::{Serve, Width};
use crate::diag::{Diagnostic, Diagnostics, codes, suggest};
use crate::spec::statics::Static;
use std::collections::BTreeMap;

pub(super) fn serve_values(values: &Values, diags: &mut Diagnostics) -> Serve {
    const KNOWN: [&str; 5] = ["requests", "context", "chunk", "draft_context", "tensor_parallel"];
    for (k, _) in &values.decl.serve {
        if !KNOWN.contains(&k.name.as_str()) {
            let mut d = Diagnostic::error(codes::UNKNOWN_KEY, k.span, format!("`{}` is not a key of `serve`", k.name));
            d = match suggest(&k.name, KNOWN) {
                Some(near) => d.help(format!("did you mean `{near}`?")),
                None => d.help(KNOWN.join(", ")),
            };
            diags.push(d);
        }
    }
    let get = |key: &str, default: Option<i64>, diags: &mut Diagnostics| -> i64 {
        let declared = values.decl.serve.iter().find(|(k, _)| k.name == key);
        let span = values.sets.get(&format!("serve.{key}")).map(|(_, s)| *s).or(declared.map(|(_, e)| e.span));
        let Some(span) = span else {
            return match default {
                Some(d) => d,
                None => {
                    diags.push(Diagnostic::error(
                        codes::MISSING_KEY,
                        values.decl.name.span,
                        format!("`serve` needs `{key}`"),
                    ));
                    1
                }
            };
        };
        match values.path(&["serve", key], span) {
            Ok(Static::Int(d)) if d.as_const().is_some_and(|v| v > 0) => d.as_const().unwrap_or(1),
            Ok(other) => {
                diags.push(Diagnostic::error(
                    codes::BOUNDS,
                    span,
                    format!("`{key}` is a positive integer, this is {other}"),
                ));
                1
            }
            Err(super::values::Miss::Absent(d)) => {
                diags.push(*d);
                1
            }
            Err(super::values::Miss::Reported) => 1,
        }
    };
    let requests = get("requests", None, diags);
    let context = get("context", None, diags);
    let chunk = get("chunk", None, diags);
    let draft_context = get("draft_context", Some(i64::MAX), diags);
    let parallel = get("tensor_parallel", Some(1), diags);
    if parallel != 1 && !values.decl.limits.iter().any(|l| l.require.to_string().contains("tensor_parallel")) {
        let declared = values.decl.serve.iter().find(|(k, _)| k.name == "tensor_parallel").map(|(_, e)| e.span);
        let span = values.sets.get("serve.tensor_parallel").map(|(_, s)| *s).or(declared);
        let text = format!("tensor parallelism over {parallel} devices is not supported");
        diags.push(match span {
            Some(span) => Diagnostic::error(codes::UNSUPPORTED, span, text),
            None => Diagnostic::error_nowhere(codes::UNSUPPORTED, text),
        });
    }
    let block = match values.decl.bindings.dims.iter().any(|(n, _)| n.name == "B") {
        true => values.binding(None, "B", values.decl.name.span).ok().and_then(|v| v.as_i64()).unwrap_or(1),
        false => 1,
    };
    Serve { requests, context, chunk, draft_context, block }
}

pub(super) fn width_values(values: &Values, serve: &Serve, diags: &mut Diagnostics) -> BTreeMap<String, Vec<Width>> {
    let laws = engine::CHOICES.iter().find(|c| c.name == "law").map_or(&[] as &[&str], |c| c.words);
    let mut out = BTreeMap::new();
    for (law, rules) in &values.decl.widths {
        if !laws.contains(&law.name.as_str()) {
            let mut d = Diagnostic::error(codes::SYSTEM, law.span, format!("there is no law `{}`", law.name));
            d = match suggest(&law.name, laws.iter().copied()) {
                Some(near) => d.help(format!("did you mean `{near}`?")),
                None => d.help(format!("widths are given for {}", laws.join(", "))),
            };
            diags.push(d);
        }
        let mut list: Vec<Width> = Vec::new();
        for (i, r) in rules.iter().enumerate() {
            if let Some(other) =
                rules[..i].iter().find(|o| o.requests.0 <= r.requests.1 && r.requests.0 <= o.requests.1)
            {
                diags.push(
                    Diagnostic::error(
                        codes::SYSTEM,
                        r.width.span,
                        format!("two rules for {} requests", r.requests.0.max(other.requests.0)),
                    )
                    .related(other.width.span, "the other rule")
                    .help("one rule decides each number of requests"),
                );
            }
            let Some(w) = values.eval(&r.width, None, &BTreeMap::new()) else { continue };
            match w.as_i64() {
                Some(width) if (1..=serve.block).contains(&width) => {
                    list.push(Width { from: r.requests.0, to: r.requests.1, width });
                }
                // A block without rows was reported.
                _ if serve.block < 1 => {}
                _ => {
                    let text = format!("a width is within 1..{}, this is {w}", serve.block);
                    let mut d = values.with_given(Diagnostic::error(codes::BOUNDS, r.width.span, text), &r.width, None);
                    if let Some((_, span)) = values.sets.get("B")
                        && !d.related.iter().any(|r| r.span == *span)
                    {
                        d = d.related(*span, "the block is set here");
                    }
                    diags.push(d.help("it counts the rows of a block that are verified, the anchor included"));
                }
            }
        }
        out.insert(law.name.clone(), list);
    }
    out
}

/// Pools say how a state is stored. What the run time cannot do is refused here, whatever the limits say.
pub(super) fn check_pools(values: &Values, component_files: &BTreeMap<String, usize>, diags: &mut Diagnostics) {
    for p in &values.decl.pools {
        let Some((component, state)) = &p.of else { continue };
        let Some(f) = component_files.get(&component.name).map(|f| &values.files.list[*f]) else {
            if !values.decl.components.iter().any(|c| c.name.name == component.name) {
                diags.push(Diagnostic::error(
                    codes::UNKNOWN_NAME,
                    component.span,
                    format!("there is no component `{}`", component.name),
                ));
            }
            continue;
        };
        let Some(s) = f.states.iter().find(|s| s.name.name == state.name) else {
            let mut d = Diagnostic::error(
                codes::UNKNOWN_NAME,
                state.span,
                format!("component `{}` has no state `{}`", component.name, state.name),
            );
            if let Some(near) = suggest(&state.name, f.states.iter().map(|s| s.name.name.as_str())) {
                d = d.help(format!("did you mean `{near}`?"));
            }
            diags.push(d);
            continue;
        };
        use crate::spec::ast::StateShape;
        let (fits, what) = match s.shape {
            StateShape::KvPool { .. } => ("dense", "key/value rows by position"),
            StateShape::Recurrent { .. } => ("replay", "a recurrent state"),
            StateShape::Window { .. } => ("window", "a convolution window"),
        };
        let limited =
            values.decl.limits.iter().any(|l| l.require.to_string().contains(&format!("{}.kind", p.name.name)));
        if p.kind.name != fits && !limited {
            diags.push(
                Diagnostic::error(
                    codes::UNSUPPORTED,
                    p.kind.span,
                    format!("`{}` is no way to store {what}", p.kind.name),
                )
                .help(format!("kind: {fits}; the window a layer reads never shrinks what a pool keeps")),
            );
        }
        if let Some(d) = &p.dtype {
            let limited =
                values.decl.limits.iter().any(|l| l.require.to_string().contains(&format!("{}.dtype", p.name.name)));
            if d.name != s.dtype.name && !limited {
                diags.push(
                    Diagnostic::error(
                        codes::UNSUPPORTED,
                        d.span,
                        format!("the pool is {}, but its state is declared {}", d.name, s.dtype.name),
                    )
                    .related(s.dtype.span, "declared here"),
                );
            }
        }
        if let Some(slots) = &p.slots
            && !values.decl.pools.iter().any(|q| q.name.name == slots.name)
        {
            diags.push(Diagnostic::error(
                codes::UNKNOWN_NAME,
                slots.span,
                format!("there is no pool `{}`", slots.name),
            ));
        }
        if let Some(ring) = &p.ring
            && let Some(v) = values.eval(ring, None, &BTreeMap::new())
            && !v.as_i64().is_some_and(|v| v > 0 && v & (v - 1) == 0)
        {
            let text = format!("a replay ring is a power of two, this is {v}");
            diags.push(values.with_given(Diagnostic::error(codes::BOUNDS, ring.span, text), ring, None));
        }
    }
}
