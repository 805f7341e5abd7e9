//! `spinec plan`: launches, traffic and memory of a system's phases.

use crate::args::PlanCommandArgs;
use crate::exit::Exit;
use crate::output;
use crate::planner::{self, Subject};
use serde_json::{Value, json};
use spinec_ir::diag::Span;
use spinec_ir::diag::json_range as range;
use spinec_ir::ir::{Func, OpId};
use spinec_ir::plan::cost::{Totals, totals, unfused};
use spinec_ir::plan::memory::{Memory, capacity, memory};
use spinec_ir::plan::{Phase, Plan, text};
use spinec_ir::ty::{Dim, Env};
use spinec_passes::compile::Compiled;
use spinec_passes::estimate::{Estimate, estimate};

/// Plans a system.
pub fn run(args: &PlanCommandArgs) -> Exit {
    match show(args) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn show(args: &PlanCommandArgs) -> Result<Exit, Exit> {
    let subject = planner::subject_for(&args.spec, &args.plan, args.requests, args.context)?;
    let compiled = subject.compile(&mut |_, _| {})?;
    if args.text {
        output::line(text::print(&compiled.plan).trim_end());
        return Ok(Exit::Ok);
    }
    let serve = &subject.system.serve;
    let whole = |n: i64| u64::try_from(n).unwrap_or(1).max(1);
    let requests = args.requests.unwrap_or(whole(serve.requests));
    let context = args.context.unwrap_or(whole(serve.context));
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let env = subject.env(signed(requests), signed(context));
    let plans = [&compiled.plan];
    let kept = |r: u64, c: u64| memory(&plans, &subject.env(signed(r), signed(c)), r, c);
    let memory = kept(requests, context).map_err(|why| {
        output::error(&format!("so many requests and positions fit no device: {why}"));
        Exit::DoesNotFit
    })?;
    let phases = phases(&subject, &compiled.plan, &env)?;
    let total = memory.total();
    let device = subject.options.device.memory;
    let fits = total <= device;
    if args.json {
        let caps = capacity(&|r, c| kept(r, c).ok().map(|m| m.total()), device, requests, context);
        let mut report = report(&subject, &compiled, &memory, &phases, fits, caps);
        report["planned_for"] = json!({
            "system": subject.system.name, "device": args.plan.device.as_deref().unwrap_or("h200"),
            "numerics": subject.numerics().name(), "law": args.plan.law.name(),
            "candidates": args.plan.candidates.name(), "requests": requests, "context": context,
        });
        output::json(&report);
    } else {
        print(&subject, &compiled, &memory, &phases, (requests, context), total);
    }
    if !fits {
        output::error(&format!(
            "{} requests of {context} positions take {}, the device has {}; fewer requests, a shorter context or a smaller --budget would fit",
            requests,
            bytes(total),
            bytes(device)
        ));
        return Ok(Exit::DoesNotFit);
    }
    Ok(Exit::Ok)
}

/// Figures of a phase at the values of the symbols.
struct Figures {
    name: String,
    fused: Numbers,
    /// With a kernel an op: of the rewritten phase.
    unfused: Numbers,
    /// Launches with a kernel an op, of the phase as it is written.
    written: i64,
    estimate: Estimate,
}

struct Numbers {
    launches: i64,
    read: i64,
    written: i64,
    activation: i64,
    must_move: i64,
    flops: i64,
}

fn phases(subject: &Subject, plan: &Plan, env: &Env) -> Result<Vec<Figures>, Exit> {
    let too_large = || {
        output::error("so many requests and positions fit no device: a count does not fit 64 bits");
        Exit::DoesNotFit
    };
    let mut out = Vec::new();
    for (i, (func, phase)) in plan.module.funcs.iter().zip(&plan.phases).enumerate() {
        let numbers = |t: Option<Totals>| {
            let t = t?;
            let value = |d: &Dim| d.eval(env);
            Some(Numbers {
                launches: value(&t.launches)?,
                read: value(&t.read)?,
                written: value(&t.written)?,
                activation: value(&t.activation)?,
                must_move: value(&t.must_move)?,
                flops: value(&t.flops)?,
            })
        };
        let before = subject.module.func(&func.name).unwrap_or(func);
        out.push(Figures {
            name: func.name.clone(),
            fused: numbers(totals(plan, i)).ok_or_else(too_large)?,
            unfused: numbers(unfused(func)).ok_or_else(too_large)?,
            written: numbers(unfused(before)).ok_or_else(too_large)?.launches,
            estimate: estimate(&subject.options.device, func, phase, env).ok_or_else(too_large)?,
        });
    }
    Ok(out)
}

fn print(
    subject: &Subject,
    compiled: &Compiled,
    memory: &Memory,
    phases: &[Figures],
    (requests, context): (u64, u64),
    total: u64,
) {
    let device = &subject.options.device;
    output::line(&format!(
        "{} on {}, {}, {requests} requests of {context} positions",
        subject.system.name,
        device.name,
        subject.numerics().name()
    ));
    output::line("");
    output::line(&format!(
        "{:<28}{:>9}{:>9}{:>12}{:>12}{:>12}{:>12}{:>10}{:>10}  bound",
        "phase", "launches", "written", "reads", "writes", "must move", "activation", "GFLOP", "est. us"
    ));
    for p in phases {
        output::line(&format!(
            "{:<28}{:>9}{:>9}{:>12}{:>12}{:>12}{:>12}{:>10.1}{:>10.1}  {}",
            p.name,
            p.fused.launches,
            p.written,
            bytes(p.fused.read as u64),
            bytes(p.fused.written as u64),
            bytes(p.fused.must_move as u64),
            bytes(p.fused.activation as u64),
            p.fused.flops as f64 / 1e9,
            p.estimate.total as f64 / 1e6,
            p.estimate.bound.name()
        ));
    }
    output::line("");
    output::line(&format!("{:<12}{:>12}  {:<10}{:>10}{:>12}", "memory", "bytes", "per", "count", "total"));
    for o in memory.owned.iter().filter(|o| o.bytes > 0) {
        output::line(&format!(
            "{:<12}{:>12}  {:<10}{:>10}{:>12}",
            o.owner,
            bytes(o.bytes),
            o.per.name(),
            o.count,
            bytes(o.total())
        ));
    }
    output::line(&format!("{:<12}{:>46}  of {}", "total", bytes(total), bytes(device.memory)));
    if !compiled.plan.derived.is_empty() {
        output::line("");
        output::line("derived weights");
        for d in &compiled.plan.derived {
            let w = compiled.plan.module.weight(d.weight);
            output::line(&format!(
                "  {:<12}{:<28}{:>12}  {} of {}",
                w.name,
                shape(w),
                bytes(d.bytes),
                d.reason,
                d.of.join(", ")
            ));
        }
    }
    let refused = refused(compiled);
    if !refused.is_empty() {
        output::line("derived weights that were refused");
        for (what, size, why) in refused {
            output::line(&format!("  {what}, {}: {why}", bytes(size)));
        }
    }
    for limit in &compiled.plan.limits_hit {
        output::note(limit);
    }
}

/// Type of a weight with the extents of its loops.
fn shape(w: &spinec_ir::ir::Weight) -> String {
    let there = w.present.iter().filter(|p| **p).count();
    let part = if w.present.is_empty() { String::new() } else { format!("{there} of ") };
    let loops: String = w.loops.iter().map(|(v, n)| format!("{part}{v}={n} ")).collect();
    format!("{loops}{}", w.ty)
}

/// Refused derived weights: what, bytes, why.
fn refused(compiled: &Compiled) -> Vec<(String, u64, String)> {
    let mut out: Vec<(String, u64, String)> = compiled
        .regions
        .iter()
        .flat_map(|r| &r.refused)
        .map(|r| {
            (r.what.clone(), r.bytes, format!("{} (would save {:.1} ns a run)", r.reason, r.saving_ps as f64 / 1000.0))
        })
        .collect();
    out.sort();
    out.dedup();
    out
}

fn report(
    subject: &Subject,
    compiled: &Compiled,
    memory: &Memory,
    phases: &[Figures],
    fits: bool,
    (max_context, max_requests): (u64, u64),
) -> Value {
    let plan = &compiled.plan;
    let owned: Vec<Value> = memory
        .owned
        .iter()
        .map(|o| json!({"owner": o.owner, "bytes": o.bytes, "per": o.per.name(), "count": o.count}))
        .collect();
    let mut derived: Vec<Value> = plan
        .derived
        .iter()
        .map(|d| {
            let w = plan.module.weight(d.weight);
            let dims: Vec<Value> =
                w.ty.dims.iter().map(|d| d.as_const().map_or(json!(d.to_string()), |n| json!(n))).collect();
            let loops: Vec<Value> = w.loops.iter().map(|(_, n)| json!(n)).collect();
            json!({
                "name": w.name, "shape": dims, "loops": loops, "dtype": w.ty.dtype.name(), "bytes": d.bytes,
                "kept": true, "reason": d.reason, "of": d.of,
            })
        })
        .collect();
    derived.extend(refused(compiled).into_iter().map(
        |(what, bytes, why)| json!({"name": what, "shape": null, "dtype": null, "bytes": bytes, "kept": false, "reason": why}),
    ));
    let figures: Vec<Value> = phases
        .iter()
        .map(|p| {
            json!({
                "name": p.name, "launches": p.fused.launches, "bytes_read": p.fused.read, "bytes_written": p.fused.written,
                "must_move_bytes": p.fused.must_move, "activation_bytes": p.fused.activation, "flops": p.fused.flops,
                "bound": p.estimate.bound.name(), "estimate_s": p.estimate.total as f64 / 1e12,
                "unfused": {
                    "launches": p.unfused.launches, "activation_bytes": p.unfused.activation,
                    "launches_as_written": p.written,
                },
            })
        })
        .collect();
    let mut kernels = Vec::new();
    let mut fusion = Vec::new();
    for (func, phase) in plan.module.funcs.iter().zip(&plan.phases) {
        for (i, k) in phase.kernels.iter().enumerate() {
            kernels.push(json!({
                "id": format!("{}.{i}", func.name), "phase": func.name, "family": k.family.name(),
                "ops": k.ops.iter().map(|id| describe(func, *id)).collect::<Vec<_>>(),
                "spans": spans(func, &k.ops)
                    .iter()
                    .map(|s| json!({"file": subject.sources.file(s.file).name, "range": range(*s, &subject.sources)}))
                    .collect::<Vec<_>>(),
                "mechanisms": k.mechanisms.iter().map(|m| m.name()).collect::<Vec<_>>(),
                "grid": k.grid.to_string(),
            }));
        }
        fusion.extend(decisions(func, phase));
    }
    json!({
        "schema": "spinec.plan/1",
        "fits": fits, "max_context": max_context, "max_requests": max_requests,
        "memory": owned,
        "arena": {
            "peak_bytes": memory.arena.peak, "lower_bound_bytes": memory.arena.lower_bound,
            "no_reuse_bytes": memory.arena.no_reuse,
        },
        "derived_weights": derived, "phases": figures, "kernels": kernels, "fusion": fusion,
        "rules": plan.rules, "limits_hit": plan.limits_hit,
    })
}

/// An op for people: its value's name, else what it is and where. A loop or a case goes by its node.
pub fn describe(func: &Func, id: OpId) -> String {
    let op = func.op(id);
    let name = op.results.iter().flat_map(|v| &func.value(*v).names).next();
    match name.filter(|_| op.regions.is_empty()) {
        None if !op.regions.is_empty() => format!("{} {}", op.code.name(), op.loc.path),
        Some(n) => format!("{} {n}", op.code.name()),
        None if op.loc.path.is_empty() => op.code.name().to_owned(),
        None => format!("{} in {}", op.code.name(), op.loc.path),
    }
}

/// Expressions of the YAML files that ops come from, each once, in order.
pub fn spans(func: &Func, ops: &[OpId]) -> Vec<Span> {
    let mut out = Vec::new();
    for span in ops.iter().filter_map(|id| func.op(*id).loc.span) {
        if !out.contains(&span) {
            out.push(span);
        }
    }
    out
}

fn decisions(func: &Func, phase: &Phase) -> Vec<Value> {
    let one = |d: &spinec_ir::plan::Decision| {
        json!({
            "phase": func.name, "ops": [describe(func, d.producer), describe(func, d.consumer)],
            "accepted": d.accepted, "reason": d.reason.name(), "detail": d.detail,
        })
    };
    phase.decisions.iter().map(one).collect()
}

/// Bytes for people, in binary units.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut x = n as f64;
    let mut unit = 0;
    while x >= 1024.0 && unit + 1 < UNITS.len() {
        x /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{x:.1} {}", UNITS[unit]) }
}
