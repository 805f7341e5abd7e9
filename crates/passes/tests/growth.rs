//! Work of the compiler in counts, not in time: it does not grow with the number of layers.

mod support;

use spinec_ir::diag::render;
use spinec_ir::ir::Module;
use spinec_ir::spec::system::{Overrides, System};
use spinec_ir::spec::{Loaded, load};
use spinec_passes::pass::{self, Options, Program};
use support::*;

fn layers(n: usize) -> System {
    let over =
        Overrides { no_limits: true, sets: vec![("target.L".to_owned(), n.to_string())], ..Overrides::default() };
    let path = root().join("graphs/qwen3.8-27b-dspine.yaml").display().to_string();
    match load(&path, &Disk, &over) {
        Loaded::System(l) => {
            l.system.unwrap_or_else(|| panic!("{}", render(&l.diags.into_sorted(), &l.sources, false, 120)))
        }
        Loaded::Graph { .. } => panic!("it is a system"),
    }
}

/// Regions saturated, nodes and rounds of all of them, ops of the result.
fn work(module: Module) -> ([usize; 4], Program) {
    let p = pass::run(module, &Options::new(h200()), &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    let sum = |f: fn(&pass::RegionRecord) -> usize| p.regions.iter().map(f).sum();
    let ops = p.module.funcs.iter().map(|f| f.ops.len()).sum();
    ([p.regions.len(), sum(|r| r.saturation.nodes), sum(|r| r.saturation.iterations), ops], p)
}

#[test]
fn four_times_the_layers_are_the_same_work() {
    for law in ["greedy", "mixed"] {
        let (few, of_few) = work(phases_of(&layers(64), law));
        let (many, of_many) = work(phases_of(&layers(256), law));
        assert_eq!(few, many, "{law}");
        assert_eq!(of_few.load.funcs.len(), of_many.load.funcs.len());
        let ops = |p: &Program| p.load.funcs.iter().map(|f| f.ops.len()).sum::<usize>();
        assert_eq!(ops(&of_few), ops(&of_many));
        // Regions that occur in several phases are saturated once.
        assert!(few[0] < 40 && few[1] < 2_000 && few[2] < 150, "{law}: {few:?}");
    }
}
