//! What the plan of the release has to reach: launches, bytes, the bridge; and what must not grow with the number of layers.

mod plan_support;
mod support;

use plan_support::*;
use spinec_ir::ir::{Func, Module, OpId, ValueDef, ValueId};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::cost::{Totals, totals, unfused};
use spinec_ir::plan::role::Roles;
use spinec_ir::plan::traffic::stored_base;
use spinec_ir::plan::{CONTEXT, Family, Kernel, Mechanism, Phase, Place, Plan, Step, range};
use spinec_ir::ty::{Dim, Env};
use std::collections::BTreeSet;
use support::*;

const RELEASE: &str = SYSTEMS[3];
const LAWS: [&str; 3] = ["greedy", "sampled", "mixed"];

/// The phase whose name begins so.
fn phase(plan: &Plan, name: &str) -> usize {
    plan.module.funcs.iter().position(|f| f.name.starts_with(name)).unwrap_or_else(|| panic!("there is no {name}"))
}

/// Requests, rows of a verification, positions of a request.
fn env(n: i64) -> Env {
    Env::from([("N".to_owned(), n), ("W".to_owned(), 16), (CONTEXT.to_owned(), 8192)])
}

fn at(d: &Dim, n: i64) -> i64 {
    d.eval(&env(n)).unwrap_or_else(|| panic!("{d} has a value"))
}

fn sums(plan: &Plan, name: &str) -> Totals {
    totals(plan, phase(plan, name)).expect("nothing overflows")
}

/// Planned bytes over bytes that must move.
fn ratio(t: &Totals, n: i64) -> f64 {
    (at(&t.read, n) + at(&t.written, n)) as f64 / at(&t.must_move, n) as f64
}

#[test]
fn the_draft_is_launched_and_moves_little() {
    for law in LAWS {
        let module = phases(RELEASE, law);
        let plan = usual(module.clone());
        let t = sums(&plan, "draft");
        let launches = at(&t.launches, 1);
        assert!(launches <= 60, "{law}: {launches} launches");
        for (n, most) in [(1, 1.05), (8, 1.10)] {
            let r = ratio(&t, n);
            assert!((1.0..=most).contains(&r), "{law}: {r} at {n}");
        }
        let func = &module.funcs[module.funcs.iter().position(|f| f.name.starts_with("draft")).expect("it is there")];
        let naive = unfused(func).expect("nothing overflows");
        assert!(at(&naive.launches, 1) > 5 * launches, "{law}: {} launches unfused", naive.launches);
        for n in [1, 8] {
            let share = at(&t.activation, n) as f64 / at(&naive.activation, n) as f64;
            assert!(share <= 0.25, "{law}: {share} of the activations at {n}");
        }
    }
}

/// The most kernels an iteration of a loop launches.
fn layer(steps: &[Step]) -> usize {
    let of = |step: &Step| match step {
        Step::Launch(_) => 1,
        Step::Loop { body, .. } => layer(body),
        Step::Cases { arms, .. } => arms.iter().map(|a| layer(a)).max().unwrap_or(0),
    };
    steps.iter().map(of).sum()
}

#[test]
fn the_target_is_verified_by_few_launches_a_layer() {
    for law in LAWS {
        let plan = usual(phases(RELEASE, law));
        let t = sums(&plan, "verify");
        let p = &plan.phases[phase(&plan, "verify")];
        let layers: Vec<usize> =
            p.steps.iter().filter(|s| matches!(s, Step::Loop { .. })).map(|s| layer(std::slice::from_ref(s))).collect();
        assert!(!layers.is_empty() && layers.iter().all(|n| (1..=8).contains(n)), "{law}: {layers:?} a layer");
        let r = ratio(&t, 1);
        assert!((1.0..=1.03).contains(&r), "{law}: {r}");
    }
}

/// Products of a kernel by the last part of their weights' names.
fn weights(module: &Module, func: &Func, k: &Kernel) -> BTreeSet<String> {
    let linear = k.ops.iter().map(|id| func.op(*id)).filter(|op| op.code == Opcode::Linear);
    linear
        .filter_map(|op| match func.value(op.operands[1]).def {
            ValueDef::Result(w, _) => func.op(w).int("weight"),
            ValueDef::Param(..) => None,
        })
        .map(|w| module.weights[w as usize].name.rsplit('.').next().unwrap_or_default().to_owned())
        .collect()
}

/// Values a kernel touches; a value that a loop carries is the one its body ends with.
fn touched(func: &Func, roles: &Roles, phase: &Phase, list: &[spinec_ir::plan::Access]) -> BTreeSet<ValueId> {
    let value = |a: &spinec_ir::plan::Access| match a.place {
        Place::Buffer(b) => Some(phase.buffers[b.index()].value),
        _ => None,
    };
    let carried = |v: ValueId| match func.value(v).def {
        ValueDef::Param(region, k) if region != func.body && k > 0 => {
            let next = func.region(region).yields[k as usize - 1];
            stored_base(func, roles, next).unwrap_or(next)
        }
        _ => v,
    };
    list.iter().filter_map(value).map(carried).collect()
}

/// Between the product that ends an MLP and the next layer's first product: three kernels, found by what they hand on.
#[test]
fn the_bridge_is_three_kernels() {
    for law in LAWS {
        let plan = usual(phases(RELEASE, law));
        let i = phase(&plan, "draft");
        let (func, p) = (&plan.module.funcs[i], &plan.phases[i]);
        let [_, large] = range(&plan.module);
        let roles = Roles::of(func, &large, plan.reassociate);
        let named = |name: &str| {
            let mut k = (0..p.kernels.len()).filter(|k| weights(&plan.module, func, &p.kernels[*k]).contains(name));
            let found = k.next().unwrap_or_else(|| panic!("no kernel multiplies {name}"));
            assert!(k.next().is_none(), "two kernels multiply {name}");
            found
        };
        let (down, qkv) = (named("down"), named("q"));
        assert!(weights(&plan.module, func, &p.kernels[qkv]).is_superset(&["k".to_owned(), "v".to_owned()].into()));
        let reads: Vec<_> = p.kernels.iter().map(|k| touched(func, &roles, p, &k.reads)).collect();
        let writes: Vec<_> = p.kernels.iter().map(|k| touched(func, &roles, p, &k.writes)).collect();
        // Kernels reached from one end without passing the other.
        let reach = |from: usize, to: usize, out: &[BTreeSet<ValueId>], into: &[BTreeSet<ValueId>]| {
            let mut seen = BTreeSet::from([from]);
            let mut stack = vec![from];
            while let Some(k) = stack.pop() {
                for next in (0..out.len()).filter(|n| !out[k].is_disjoint(&into[*n])) {
                    if next != to && seen.insert(next) {
                        stack.push(next);
                    }
                }
            }
            seen
        };
        let ahead = reach(down, qkv, &writes, &reads);
        let back = reach(qkv, down, &reads, &writes);
        let between: Vec<usize> = ahead.intersection(&back).copied().filter(|k| *k != down && *k != qkv).collect();
        assert_eq!(between.len(), 3, "{law}: {between:?}");
        // The read with the rows' norms, the maps of the code with gate and message, the write with residual and norm.
        let mechanisms = |k: usize| &p.kernels[between[k]].mechanisms;
        assert!(between.iter().all(|k| p.kernels[*k].family == Family::Gemm));
        assert!(mechanisms(0).contains(&Mechanism::PartialSums), "{law}");
        assert!(mechanisms(1).contains(&Mechanism::Packed) && mechanisms(1).contains(&Mechanism::BlockShift), "{law}");
        assert!(!p.kernels[between[2]].leaves.is_empty(), "{law}: the next norm is the next kernel's");
    }
}

/// Ops that need a whole row of a product.
fn row_work(code: Opcode) -> bool {
    use Opcode::*;
    matches!(
        code,
        Sum | Mean | ReduceMax | ReduceMin | Rms | Norm2 | Argmax | RmsNorm | L2Norm | Softmax | TopK | Sort | Cumsum
    )
}

/// No kernel of products forms a row of what it makes itself, and what it reads in parts it names.
#[test]
fn no_product_needs_other_blocks_of_its_kernel() {
    for spec in SYSTEMS {
        for law in LAWS {
            let plan = usual(phases(spec, law));
            for (func, p) in plan.module.funcs.iter().zip(&plan.phases) {
                for (k, kernel) in p.kernels.iter().enumerate().filter(|(_, k)| k.family == Family::Gemm) {
                    let partial = |v: ValueId| {
                        kernel.reads.iter().any(|a| match a.place {
                            Place::Buffer(b) => {
                                p.buffers[b.index()].partial && made_of(func, v, p.buffers[b.index()].value)
                            }
                            _ => false,
                        })
                    };
                    for id in kernel.ops.iter().filter(|id| row_work(func.op(**id).code)) {
                        let x = func.op(*id).operands[0];
                        assert!(partial(x), "{spec} {law} {} kernel {k}: {id:?} has no parts", func.name);
                        assert!(kernel.mechanisms.contains(&Mechanism::PartialSums), "{spec} {law} {} {k}", func.name);
                        assert!(!from_product(func, kernel, x), "{spec} {law} {} {k}: {id:?}", func.name);
                    }
                }
            }
        }
    }
}

/// Whether a value is another or a view of it.
fn made_of(func: &Func, v: ValueId, of: ValueId) -> bool {
    v == of
        || matches!(func.value(v).def, ValueDef::Result(id, _)
            if matches!(func.op(id).code, Opcode::Cast | Opcode::Reshape | Opcode::Slice)
                && made_of(func, func.op(id).operands[0], of))
}

/// Whether a value comes from a product of the kernel, seen through everything the kernel holds.
fn from_product(func: &Func, kernel: &Kernel, v: ValueId) -> bool {
    let mut seen = BTreeSet::new();
    let mut stack = vec![v];
    while let Some(v) = stack.pop() {
        let ValueDef::Result(id, _) = func.value(v).def else { continue };
        let op = func.op(id);
        let access = matches!(op.code, Opcode::Cast | Opcode::Reshape | Opcode::Slice | Opcode::Broadcast);
        if !seen.insert(id) || !(kernel.ops.contains(&id) || access) {
            continue;
        }
        if op.code == Opcode::Linear && kernel.ops.contains(&id) {
            return true;
        }
        stack.extend(&op.operands);
    }
    false
}

/// A module with every loop that has `from` iterations running `to` times.
fn deeper(mut module: Module, from: i64, to: i64) -> Module {
    use spinec_ir::ir::Attr;
    let spread = |list: &[i64]| (0..to as usize).map(|i| list[i % from as usize]).collect::<Vec<i64>>();
    let mut grown: BTreeSet<usize> = BTreeSet::new();
    for f in &mut module.funcs {
        let loops: Vec<OpId> = (0..f.ops.len() as u32)
            .map(OpId)
            .filter(|id| {
                f.op(*id).code == Opcode::Loop && f.op(*id).dim("extent").and_then(Dim::as_const) == Some(from)
            })
            .collect();
        for id in loops {
            let region = f.op(id).regions[0];
            let index = f.region(region).params[0];
            f.ops[id.index()].attrs.insert("extent", Attr::Dim(Dim::from(to)));
            for op in &mut f.ops {
                if op.operands.first() != Some(&index) {
                    continue;
                }
                if let Some(select) = op.ints("select").map(spread) {
                    op.attrs.insert("select", Attr::Ints(select));
                }
                grown.extend(op.int("weight").filter(|_| op.code == Opcode::Weight).map(|w| w as usize));
            }
        }
    }
    for (i, w) in module.weights.iter_mut().enumerate().filter(|(i, _)| grown.contains(i)) {
        for l in w.loops.iter_mut().filter(|l| l.1 == from) {
            l.1 = to;
        }
        if !w.present.is_empty() {
            assert_eq!(w.loops.len(), 1, "weight {i} has one loop");
            w.present = (0..to as usize).map(|k| w.present[k % from as usize]).collect();
        }
    }
    for s in module.states.iter_mut().filter(|s| s.element.len() as i64 == from) {
        let mut next = 0;
        s.element = (0..to as usize)
            .map(|k| {
                let there = s.element[k % from as usize] >= 0;
                next += i64::from(there);
                if there { next - 1 } else { -1 }
            })
            .collect();
        s.count = next;
    }
    module
}

/// Four times the layers: the same kernels, the same decisions, four times the launches of the layers.
#[test]
fn plans_do_not_grow_with_layers() {
    let module = phases(RELEASE, "greedy");
    let small = usual(module.clone());
    let large = usual(deeper(module, 64, 256));
    let shape = |p: &Plan| -> Vec<(usize, usize, usize)> {
        p.phases.iter().map(|p| (p.kernels.len(), p.buffers.len(), p.decisions.len())).collect()
    };
    assert_eq!(shape(&small), shape(&large));
    let i = phase(&small, "verify");
    let launches = |p: &Plan| at(&totals(p, i).expect("nothing overflows").launches, 1);
    let outside = small.phases[i].steps.iter().filter(|s| matches!(s, Step::Launch(_))).count() as i64;
    assert_eq!(4 * (launches(&small) - outside), launches(&large) - outside);
}
