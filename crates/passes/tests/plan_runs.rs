//! Figures of phases whose blocks run in some iterations of the loops around them, against a walk through every iteration.

mod plan_support;
mod support;

use plan_support::*;
use spinec_ir::ir::text::parse;
use spinec_ir::ir::{Func, RegionId, ValueDef};
use spinec_ir::ops::Opcode;
use spinec_ir::plan::cost::{Totals, totals, unfused};
use spinec_ir::plan::{CONTEXT, Plan, range};
use spinec_ir::spec::system::Overrides;
use spinec_ir::spec::{Loaded, load};
use spinec_ir::ty::{Dim, Env};
use spinec_passes::cost::Device;
use spinec_passes::estimate::estimate;
use spinec_passes::fuse;
use spinec_passes::pass::Options;
use spinec_passes::region;
use std::collections::BTreeMap;
use support::{Disk, phases, phases_of, root};

/// The plan of a system in `filetests/figures`.
fn planned(name: &str, sets: &[(&str, i64)]) -> Plan {
    let spec = root().join("crates/passes/tests/filetests/figures").join(name).join("sys.yaml");
    let sets = sets.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    match load(&spec.display().to_string(), &Disk, &Overrides { sets, ..Overrides::default() }) {
        Loaded::System(l) => usual(phases_of(&l.system.expect("the system is valid"), "greedy")),
        Loaded::Graph { .. } => panic!("{name} is a graph"),
    }
}

fn env() -> Env {
    Env::from([("N".to_owned(), 2), ("T".to_owned(), 3), ("W".to_owned(), 3), (CONTEXT.to_owned(), 16)])
}

fn at(d: &Dim) -> i64 {
    d.eval(&env()).unwrap_or_else(|| panic!("{d} has a value"))
}

fn figures(plan: &Plan, phase: usize) -> Totals {
    totals(plan, phase).expect("nothing overflows")
}

fn moved(t: &Totals) -> i64 {
    at(&t.read) + at(&t.written)
}

/// Counts how often every block runs by running through them.
fn run(func: &Func, block: RegionId, indices: &mut BTreeMap<RegionId, i64>, runs: &mut BTreeMap<RegionId, i64>) {
    *runs.entry(block).or_default() += 1;
    for id in &func.region(block).ops {
        let op = func.op(*id);
        match op.code {
            Opcode::Loop => {
                for i in 0..at(op.dim("extent").expect("a loop has an extent")) {
                    indices.insert(op.regions[0], i);
                    run(func, op.regions[0], indices, runs);
                }
            }
            Opcode::Cases => {
                let ValueDef::Param(body, 0) = func.value(op.operands[0]).def else { panic!("cases go by an index") };
                let arm = op.ints("select").expect("cases select")[indices[&body] as usize];
                run(func, op.regions[arm as usize], indices, runs);
            }
            _ => {}
        }
    }
}

fn runs(func: &Func) -> BTreeMap<RegionId, i64> {
    let mut out = BTreeMap::new();
    run(func, func.body, &mut BTreeMap::new(), &mut out);
    out
}

/// A match on the index of an outer loop within an inner one: all figures are those of running through the iterations.
#[test]
fn cases_of_an_outer_loop_run_as_often_as_they_are_taken() {
    for (g, launches) in [(1, 23), (4, 41), (64, 401)] {
        let plan = planned("nest", &[("target.G", g)]);
        for (i, (func, phase)) in plan.module.funcs.iter().zip(&plan.phases).enumerate() {
            let (runs, t) = (runs(func), figures(&plan, i));
            let sum = |of: &dyn Fn(&spinec_ir::plan::Kernel) -> i64| -> i64 {
                phase.kernels.iter().map(|k| runs[&k.block] * of(k)).sum()
            };
            let bytes = |list: &[spinec_ir::plan::Access]| -> i64 { list.iter().map(|a| at(&a.bytes)).sum() };
            assert_eq!(at(&t.launches), sum(&|_| 1), "G={g} {}", func.name);
            if func.name.starts_with("prefill") {
                assert_eq!(at(&t.launches), launches, "G={g}");
            }
            assert_eq!(at(&t.read), sum(&|k| bytes(&k.reads)), "G={g} {}", func.name);
            assert_eq!(at(&t.written), sum(&|k| bytes(&k.writes)), "G={g} {}", func.name);
            assert_eq!(at(&t.flops), sum(&|k| at(&k.flops)), "G={g} {}", func.name);
            for (block, n) in &runs {
                assert_eq!(region::runs(func, *block, &env()), *n as u64, "G={g} {} {block:?}", func.name);
            }
            // A device on which only launches take time counts them.
            let starts = Device { launch_ps: 1, bandwidth: u64::MAX, flops_16: u64::MAX, ..h200() };
            let starts = Device { flops_32: u64::MAX, flops_64: u64::MAX, ..starts };
            let total = estimate(&starts, func, phase, &env()).expect("a value").total;
            assert_eq!(i64::try_from(total), Ok(at(&t.launches)), "G={g} {}", func.name);
            let unfused = unfused(func).expect("nothing overflows");
            let ops =
                |block: &RegionId| func.region(*block).ops.iter().filter(|id| launched(func.op(**id).code)).count();
            let naive: i64 = runs.iter().map(|(block, n)| n * ops(block) as i64).sum();
            assert_eq!(at(&unfused.launches), naive, "G={g} {}", func.name);
        }
    }
}

/// Whether an op is a kernel where every op is one.
fn launched(code: Opcode) -> bool {
    use Opcode::*;
    !matches!(
        code,
        Const
            | DimValue
            | Weight
            | Iota
            | Fill
            | Reshape
            | Broadcast
            | Slice
            | Transpose
            | StateOpen
            | StateClose
            | Loop
            | Cases
    )
}

/// Elements of weights that some iteration reads are moved once: one layer of three reads 512 bytes a turn of the inner loop.
#[test]
fn what_must_move_grows_with_the_elements_that_are_read() {
    let must = |g: i64| -> Vec<i64> {
        let plan = planned("nest", &[("target.G", g)]);
        let each = (0..plan.phases.len()).map(|i| figures(&plan, i));
        each.map(|t| {
            assert!(at(&t.must_move) <= moved(&t), "G={g}: {} of {}", t.must_move, moved(&t));
            at(&t.must_move)
        })
        .collect()
    };
    let one = must(1);
    for g in [4, 64] {
        let more: Vec<i64> = must(g).iter().zip(&one).map(|(a, b)| a - b).collect();
        assert_eq!(more, vec![(g - 1) * 512; one.len()], "G={g}");
    }
}

/// In no phase more has to move than moves: of an input whose rows are taken by an index no more than is taken.
fn bounded(plan: &Plan) {
    for (i, func) in plan.module.funcs.iter().enumerate() {
        let t = figures(plan, i);
        for env in range(&plan.module) {
            let [must, read, written] = [&t.must_move, &t.read, &t.written].map(|d| d.eval(&env).expect("a value"));
            assert!(must <= read + written, "{}: {must} of {read} and {written}", func.name);
        }
    }
}

#[test]
fn no_more_must_move_than_moves() {
    let taken = planned("taken", &[]);
    bounded(&taken);
    // One token and the row it is taken by, what is looked up, the token and whether it is sound.
    let longer = |n: i64| {
        let env = Env::from([("T".to_owned(), n), (CONTEXT.to_owned(), 16)]);
        figures(&taken, 0).must_move.eval(&env)
    };
    assert!(longer(2).is_some() && longer(2) == longer(4), "tokens that are not taken count");
    for spec in SYSTEMS {
        bounded(&usual(phases(spec, "mixed")));
    }
    let dir = root().join("crates/passes/tests/filetests/plans");
    let mut files: Vec<_> = std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("the file can be read");
        let module = parse(&text).unwrap_or_else(|e| panic!("{}: {}", path.display(), e[0]));
        for fuse in [true, false] {
            let how = fuse::Options { fuse, ..fuse::Options::of(&Options::new(h200())) };
            bounded(&fused(module.clone(), &how).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        }
    }
}
