//! The extractor against the optimum, on random small problems.

mod support;

use support::h200;

use proptest::prelude::*;
use spinec_ir::ty::{Env, Numerics};
use spinec_passes::choose::{Wish, problem};
use spinec_passes::extract::{Choice, Problem, cheaper, exact, extract, greedy};
use spinec_passes::pack;
use spinec_passes::region::{cut, terms};
use spinec_passes::rules::{Rule, rules};
use spinec_passes::saturate::{Limits, saturate};

/// Problems of up to nine classes with up to four choices each; choices may need any class, so there are cycles.
fn problems() -> impl Strategy<Value = Problem> {
    let choice = |n: usize| (prop::collection::btree_set(0..n, 0..3), 1u64..60);
    (2usize..10).prop_flat_map(move |n| {
        let class = prop::collection::vec(choice(n), 1..4);
        let roots = prop::collection::btree_set(0..n, 1..3);
        (prop::collection::vec(class, n), roots).prop_map(|(classes, roots)| Problem {
            classes: classes
                .into_iter()
                .map(|c| {
                    c.into_iter().map(|(needs, cost)| Choice { needs: needs.into_iter().collect(), cost }).collect()
                })
                .collect(),
            roots: roots.into_iter().collect(),
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn picks_are_acyclic_complete_and_never_below_the_optimum(p in problems()) {
        match (extract(&p), exact(&p)) {
            (Some(picks), Some((best, _))) => {
                let cost = p.cost(&|c| picks[c]);
                prop_assert!(cost.is_some_and(|c| c >= best));
                let start = greedy(&p).and_then(|g| p.cost(&|c| g[c]));
                prop_assert!(cost <= start);
                // Every chosen class is needed.
                let used = p.order(&|c| picks[c]).map(|o| o.len());
                prop_assert_eq!(used, Some(picks.iter().flatten().count()));
            }
            (None, None) => {}
            (a, b) => prop_assert!(false, "extracted: {}, possible: {}", a.is_some(), b.is_some()),
        }
    }
}

fn choice(needs: &[usize], cost: u64) -> Choice {
    Choice { needs: needs.to_vec(), cost }
}

/// A fixed generator, so that the share of optima is a fact and not a chance.
#[test]
fn most_small_problems_are_solved_exactly() {
    let mut state = 7u64;
    let mut next = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let (mut optimal, mut solved) = (0, 0);
    for _ in 0..300 {
        let n = 3 + next(6) as usize;
        let classes = (0..n)
            .map(|k| {
                (0..1 + next(3))
                    .map(|i| {
                        let mut needs: Vec<usize> = (0..next(3)).map(|_| next(n as u64) as usize).collect();
                        needs.sort_unstable();
                        needs.dedup();
                        // The last classes can always be made.
                        if k + 2 > n && i == 0 {
                            needs.clear();
                        }
                        Choice { needs, cost: 1 + next(40) }
                    })
                    .collect()
            })
            .collect();
        let p = Problem { classes, roots: vec![0] };
        if let (Some(picks), Some((best, _))) = (extract(&p), exact(&p)) {
            solved += 1;
            optimal += usize::from(p.cost(&|c| picks[c]) == Some(best));
        }
    }
    assert!(solved > 150 && optimal * 100 >= solved * 97, "{optimal} of {solved}");
}

/// Two classes that can each be made from the other: only one of them is.
#[test]
fn a_cheap_cycle_is_no_answer() {
    let p = Problem {
        classes: vec![vec![choice(&[1], 1), choice(&[], 50)], vec![choice(&[0], 1), choice(&[], 10)]],
        roots: vec![0, 1],
    };
    let picks = extract(&p).expect("there is an answer");
    assert_eq!(p.cost(&|c| picks[c]), Some(11));
    assert_eq!(p.cost(&|_| Some(0)), None);
    let only_cycle = Problem { classes: vec![vec![choice(&[1], 1)], vec![choice(&[0], 1)]], roots: vec![0] };
    assert_eq!((extract(&only_cycle), exact(&only_cycle).is_some()), (None, false));
}

/// What several roots share is paid once, also where it is dearer for each alone.
#[test]
fn shared_work_is_counted_once() {
    let p = Problem {
        classes: vec![
            vec![choice(&[], 6), choice(&[2], 1)],
            vec![choice(&[], 6), choice(&[2], 1)],
            vec![choice(&[], 8)],
        ],
        roots: vec![0, 1],
    };
    let picks = extract(&p).expect("there is an answer");
    assert_eq!(p.cost(&|c| picks[c]), Some(10));
    assert_eq!(exact(&p).map(|(best, _)| best), Some(10));
}

/// Of equal costs the first choice is taken.
#[test]
fn ties_go_to_the_first_choice() {
    let p = Problem {
        classes: vec![
            vec![choice(&[1], 2), choice(&[2], 2), choice(&[], 7)],
            vec![choice(&[], 5)],
            vec![choice(&[], 5)],
        ],
        roots: vec![0],
    };
    let picks = extract(&p).expect("there is an answer");
    assert_eq!((picks[0], picks[2]), (Some(0), None));
}

/// On the draft phases of the shipped systems, saturated with every rule, nothing is cheaper than what is extracted by more
/// than a millionth: a view or two, which cost a picosecond each.
#[test]
fn the_regions_of_the_systems_are_extracted_optimally() {
    let all: Vec<&Rule> = rules().collect();
    let device = h200();
    let env = Env::from([("N".to_owned(), 8)]);
    let mut seen = 0;
    for spec in ["graphs/spinal-demo.yaml", "graphs/qwen3.8-27b-dspine.yaml"] {
        for law in ["greedy", "sampled"] {
            let module = support::draft(&support::system(spec, Numerics::BF16, &[]), law);
            let func = &module.funcs[0];
            let cut = cut(func);
            for i in 0..cut.regions.len() {
                let mut t = terms(&module, func, &cut, i).expect("a lowered function has terms");
                saturate(&mut t.graph, &all, Limits::default(), &mut None).expect("the rules are sound");
                pack::seed(&mut t.graph);
                let written = t.written();
                let wish = Wish {
                    device: &device,
                    env: &env,
                    narrow: true,
                    weights: &module.weights,
                    runs: 1,
                    written: &written,
                };
                let p = problem(&t.graph, &t.roots, &wish);
                let picks = extract(&p).expect("there is a term");
                let cost = p.cost(&|c| picks[c]).expect("the term is acyclic");
                let best = cheaper(&p, cost - cost / 1_000_000);
                assert_eq!(best.map(|(c, _)| (c, cost)), None, "{spec} {law} region {i}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 16);
}
