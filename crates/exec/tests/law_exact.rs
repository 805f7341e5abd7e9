//! The law of emitted tokens is the target's: all draft chains and all outcomes of every coin are enumerated.

mod support;

use spinec_exec::eval::{EvalOptions, eval_entry};
use spinec_exec::runtime::{Mode, RequestId};
use spinec_ir::spec::system::System;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::DType;
use std::collections::BTreeMap;
use support::cells::{Cell, cells, cumulative, product};
use support::coins::law;
use support::driver::{Driver, Values, part};
use support::pairs::{Recipe, edit};
use support::*;

/// A target and a proposer as tables.
struct Toy {
    vocabulary: usize,
    proposals: usize,
    parameters: (f64, i32, f64),
    /// Logits after a prefix of the block.
    logits: BTreeMap<Vec<usize>, Vec<f64>>,
    /// Candidates of each row, and the law over them after a prefix.
    candidates: Vec<Vec<usize>>,
    q: BTreeMap<Vec<usize>, Vec<f64>>,
}

impl Toy {
    fn new(vocabulary: usize, proposals: usize, kept: usize, parameters: (f64, i32, f64), seed: u64) -> Toy {
        let mut rng = Rng(seed * 2 + 1);
        let mut logits = BTreeMap::new();
        let mut q = BTreeMap::new();
        for n in 0..=proposals {
            for prefix in product(&vec![vocabulary; n]) {
                // f32 values, as the engine's logits are.
                logits.insert(prefix.clone(), (0..vocabulary).map(|_| f64::from((2.0 * rng.real()) as f32)).collect());
                let weights: Vec<f64> = (0..kept).map(|_| (1.5 * rng.real()).exp()).collect();
                let total: f64 = weights.iter().sum();
                q.insert(prefix, weights.into_iter().map(|w| w / total).collect());
            }
        }
        let candidates = (0..proposals)
            .map(|_| {
                let mut all: Vec<usize> = (0..vocabulary).collect();
                (0..kept).map(|_| all.remove(rng.below(all.len()))).collect()
            })
            .collect();
        Toy { vocabulary, proposals, parameters, logits, candidates, q }
    }

    fn p(&self, prefix: &[usize]) -> Vec<f64> {
        let (t, k, p) = self.parameters;
        law(&self.logits[prefix], t, k, p)
    }

    /// q of a row as a law over the vocabulary.
    fn wide_q(&self, prefix: &[usize]) -> Vec<f64> {
        let mut out = vec![0.0; self.vocabulary];
        if let Some(ids) = self.candidates.get(prefix.len()) {
            for (v, q) in ids.iter().zip(&self.q[prefix]) {
                out[*v] = *q;
            }
        }
        out
    }
}

/// One point in the space of coins, with the mass of its cell.
struct Case {
    chain: Vec<usize>,
    mass: f64,
    accept: Vec<f64>,
    last: f64,
    width: usize,
}

/// [`examine`] of a rule whose decisions change where the coins are cut.
fn law_error(system: &System, toy: &Toy, rows: Option<usize>, width: &dyn Fn(&[usize], &[f64]) -> usize) -> f64 {
    examine(system, toy, rows, width).expect("decisions are constant within a cell")
}

/// The largest error of the law of the first `proposals + 1` tokens. `width` chooses the verified rows from the chain and
/// its probabilities; `rows` are the rows of the call.
fn examine(
    system: &System,
    toy: &Toy,
    rows: Option<usize>,
    width: &dyn Fn(&[usize], &[f64]) -> usize,
) -> Result<f64, String> {
    let j = toy.proposals;
    let mut cases = Vec::new();
    for picks in product(&vec![toy.candidates[0].len(); j]) {
        let chain: Vec<usize> = picks.iter().enumerate().map(|(i, c)| toy.candidates[i][*c]).collect();
        let qs: Vec<f64> = picks.iter().enumerate().map(|(i, c)| toy.q[&chain[..i]][*c]).collect();
        let ps: Vec<Vec<f64>> = (0..=j).map(|i| toy.p(&chain[..i])).collect();
        let tests: Vec<Vec<Cell>> = (0..j).map(|i| cells(vec![ps[i][chain[i]] / qs[i]])).collect();
        let mut cuts = Vec::new();
        for (i, p) in ps.iter().enumerate() {
            let rest: Vec<f64> = p.iter().zip(toy.wide_q(&chain[..i])).map(|(p, q)| (p - q).max(0.0)).collect();
            cuts.extend(cumulative(&rest));
            cuts.extend(cumulative(p));
        }
        let finals = cells(cuts);
        let w = width(&chain, &qs);
        for which in product(&tests.iter().map(Vec::len).collect::<Vec<_>>()) {
            let at: Vec<Cell> = which.iter().enumerate().map(|(i, c)| tests[i][*c]).collect();
            for f in &finals {
                let mass = qs.iter().product::<f64>() * at.iter().map(|c| c.mass()).product::<f64>() * f.mass();
                for upper in [false, true] {
                    let accept = at.iter().map(|c| c.corner(upper)).collect();
                    cases.push(Case { chain: chain.clone(), mass, accept, last: f.corner(upper), width: w });
                }
            }
        }
    }
    let rows = rows.unwrap_or(j + 1);
    let (accepted, token) = verify(system, toy, &cases, rows);
    // The law of what is emitted, every emission continued by the target up to the full length.
    let mut got: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
    let mut total = 0.0;
    for (i, pair) in cases.chunks(2).enumerate() {
        let outcome = (accepted[2 * i], token[2 * i]);
        if outcome != (accepted[2 * i + 1], token[2 * i + 1]) {
            return Err(format!("an outcome changes within a cell of chain {:?}", pair[0].chain));
        }
        let mut emitted = pair[0].chain[..outcome.0 as usize].to_vec();
        emitted.push(outcome.1 as usize);
        assert!(emitted.len() <= pair[0].width);
        *got.entry(emitted).or_insert(0.0) += pair[0].mass;
        total += pair[0].mass;
    }
    assert!((total - 1.0).abs() < 1e-12, "the cells hold {total}");
    let mut error: f64 = 0.0;
    for whole in product(&vec![toy.vocabulary; j + 1]) {
        let conditional = |n: usize| toy.p(&whole[..n])[whole[n]];
        let want: f64 = (0..=j).map(conditional).product();
        let have: f64 = (1..=j + 1)
            .map(|n| got.get(&whole[..n]).copied().unwrap_or(0.0) * (n..=j).map(conditional).product::<f64>())
            .sum();
        error = error.max((want - have).abs());
    }
    Ok(error)
}

fn verify(system: &System, toy: &Toy, cases: &[Case], rows: usize) -> (Vec<i32>, Vec<i32>) {
    verify_rows(system, "verify", toy, cases, 0..rows)
}

/// `range`: the rows of the blocks that the call holds.
fn verify_rows(
    system: &System,
    entry: &str,
    toy: &Toy,
    cases: &[Case],
    range: std::ops::Range<usize>,
) -> (Vec<i32>, Vec<i32>) {
    let (n, j, kept) = (cases.len(), toy.proposals, toy.candidates[0].len());
    let (first, rows) = (range.start, range.len());
    let mut logits = Vec::new();
    let mut q = Vec::new();
    let mut ids = Vec::new();
    for c in cases {
        for t in range.clone() {
            // Rows past the width hold what was never computed for this request.
            logits.extend(if t < c.width { toy.logits[&c.chain[..t]].clone() } else { vec![3.5; toy.vocabulary] });
        }
        for t in 0..j {
            q.extend(&toy.q[&c.chain[..t]]);
            ids.extend(toy.candidates[t].iter().map(|v| *v as i32));
        }
    }
    let f32s = logits.iter().map(|x| *x as f32).collect();
    let (t, k, p) = toy.parameters;
    let mut given = BTreeMap::from([
        (
            "logits".to_string(),
            Tensor::new(DType::F32, vec![n, rows, toy.vocabulary], Data::F32(f32s)).expect("logits"),
        ),
        ("temperature_topk_topp".to_string(), Tensor::f64(vec![n, 3], [t, f64::from(k), p].repeat(n))),
        (
            "proposal".to_string(),
            Tensor::i32(vec![n, j], cases.iter().flat_map(|c| c.chain.iter().map(|v| *v as i32)).collect()),
        ),
        ("candidates".to_string(), Tensor::i32(vec![n, j, kept], ids)),
        ("q".to_string(), Tensor::f64(vec![n, j, kept], q)),
        ("accept_coins".to_string(), Tensor::f64(vec![n, j], cases.iter().flat_map(|c| c.accept.clone()).collect())),
        ("final_coin".to_string(), Tensor::f64(vec![n], cases.iter().map(|c| c.last).collect())),
        ("width".to_string(), Tensor::i32(vec![n], cases.iter().map(|c| c.width as i32).collect())),
    ]);
    if entry != "verify" {
        given.insert("first".to_string(), Tensor::i32(vec![n], vec![first as i32; n]));
    }
    let out = eval_entry(system, runtime(system).as_mut(), entry, &given, &EvalOptions::default())
        .unwrap_or_else(|e| panic!("{e:?}"))
        .tensors;
    (ints(&out["accepted"]), ints(&out["token"]))
}

/// Verification of rows that begin anywhere in a block.
const FROM: &str = r#"
entries:
  verify_from:
    symbols: {N: {min: 1}, W: {min: 1}, J: {min: 1}, C: {min: 1}, Y: {min: 1}}
    inputs:
      logits: "[N, W, Y]"
      temperature_topk_topp: "f64[N, 3]"
      proposal: "i32[N, J]"
      candidates: "i32[N, J, C]"
      q: "dist f64[N, J, C]"
      accept_coins: "f64[N, J]"
      final_coin: "f64[N]"
      width: "i32[N]"
      first: "i32[N]"
    nodes:
      s:
        call: verify.sampled
        args:
          logits: logits
          temperature: temperature_topk_topp[:, 0]
          top_k: cast(temperature_topk_topp[:, 1], i32)
          top_p: temperature_topk_topp[:, 2]
          proposal: proposal
          candidates: candidates
          q: q
          accept_coins: accept_coins
          final_coins: broadcast(final_coin[:, None], [N, W])
          width: width
          first: first
    outputs: {accepted: s.accepted, token: s.token}
"#;

/// Every outcome of every coin: steps of any size decide what the whole block does.
#[test]
fn verification_in_steps_decides_as_the_whole_block_does() {
    on_each(|| {
        let pair = Recipe { extra: FROM.to_string(), ..Recipe::default() }.build();
        let mut late = 0;
        for (seed, parameters) in LAWS.into_iter().enumerate() {
            let toy = Toy::new(4, 3, 2, parameters, seed as u64 + 20);
            for width in 1..=4 {
                let cases: Vec<Case> = product(&[2, 2, 2, 4, 4, 4, 5])
                    .into_iter()
                    .map(|w| Case {
                        chain: (0..3).map(|i| toy.candidates[i][w[i]]).collect(),
                        mass: 1.0,
                        accept: w[3..6].iter().map(|c| *c as f64 * 0.3).collect(),
                        last: w[6] as f64 * 0.21,
                        width,
                    })
                    .collect();
                let whole = verify(&pair.system, &toy, &cases, width);
                for step in 1..=3 {
                    let mut got = (vec![-1; cases.len()], vec![-1; cases.len()]);
                    let mut first = 0;
                    while first < width {
                        let rows = step.min(width - first);
                        let (accepted, token) =
                            verify_rows(&pair.system, "verify_from", &toy, &cases, first..first + rows);
                        for i in 0..cases.len() {
                            let on = got.0[i] < 0;
                            if on && !(accepted[i] as usize == first + rows && first + rows < width) {
                                (got.0[i], got.1[i]) = (accepted[i], token[i]);
                                late += usize::from(first > 0);
                            }
                        }
                        first += rows;
                    }
                    assert_eq!(got, whole, "{parameters:?}, width {width} in steps of {step}");
                }
            }
        }
        assert!(late > 1000, "{late} decisions after the first step");
    });
}

const LAWS: [(f64, i32, f64); 4] = [(1.0, 0, 1.0), (0.7, 3, 1.0), (1.3, 0, 0.8), (0.9, 4, 0.7)];

#[test]
fn sampled_verification_gives_the_law_of_the_target_at_every_width() {
    on_each(|| {
        let pair = Recipe::default().build();
        for (seed, parameters) in LAWS.into_iter().enumerate() {
            let toy = Toy::new(5, 2, 3, parameters, seed as u64 + 1);
            for w in 1..=3 {
                // As many rows as the width, and more: padding of a mate that verifies more.
                for rows in [w, 3] {
                    let e = law_error(&pair.system, &toy, Some(rows), &|_, _| w);
                    assert!(e < 1e-12, "{parameters:?}, width {w} of {rows} rows: {e:e}");
                }
            }
        }
        let toy = Toy::new(4, 3, 3, (0.8, 0, 0.95), 9);
        for w in 1..=4 {
            let e = law_error(&pair.system, &toy, None, &|_, _| w);
            assert!(e < 1e-12, "three proposals, width {w}: {e:e}");
        }
    });
}

/// One proposal that is certain: the law of a greedy proposer under a sampled verifier.
#[test]
fn certain_proposals_give_the_law_of_the_target() {
    on_each(|| {
        let pair = Recipe::default().build();
        let toy = Toy::new(5, 3, 1, (1.0, 0, 0.9), 4);
        for w in 1..=4 {
            let e = law_error(&pair.system, &toy, None, &|_, _| w);
            assert!(e < 1e-12, "width {w}: {e:e}");
        }
    });
}

/// Row 1 is verified if its own token looks likely: the decision looks at no later token.
fn by_own_token(_: &[usize], q: &[f64]) -> usize {
    if q[0] > 0.3 { 3 } else { 1 }
}

/// Row 1 is verified if the token behind it looks likely.
fn by_later_token(_: &[usize], q: &[f64]) -> usize {
    if q[1] > 0.3 { 2 } else { 1 }
}

#[test]
fn a_width_from_realised_tokens_up_to_its_row_is_exact_and_a_later_one_is_noticed() {
    on_each(|| {
        let pair = Recipe::default().build();
        for seed in 1..4 {
            let toy = Toy::new(4, 2, 3, (1.0, 0, 1.0), seed);
            let e = law_error(&pair.system, &toy, None, &by_own_token);
            assert!(e < 1e-12, "{e:e}");
            let e = law_error(&pair.system, &toy, None, &by_later_token);
            assert!(e > 1e-3, "a leak of a later token is seen: {e:e}");
        }
    });
}

/// A verifier that draws a fresh token at the cap, whatever was proposed there, is exact at fixed widths only.
#[test]
fn the_enumeration_notices_a_fresh_token_under_a_width_from_the_draft() {
    on_each(|| {
        let fresh = vec![
            edit("parts/verify.yaml", "(of < width[:, None])\n", "(of < width[:, None] - 1)\n"),
            edit(
                "parts/verify.yaml",
                "-take(qs, row, axis=1)",
                "where((row == width - 1)[:, None], cast(0, f64), -take(qs, row, axis=1))",
            ),
        ];
        let pair = Recipe { edits: fresh, ..Recipe::default() }.build();
        for seed in 1..4 {
            let toy = Toy::new(4, 2, 3, (1.0, 0, 1.0), seed);
            for w in 1..=3 {
                let e = law_error(&pair.system, &toy, None, &|_, _| w);
                assert!(e < 1e-12, "width {w}: {e:e}");
            }
            let e = law_error(&pair.system, &toy, None, &by_own_token);
            assert!(e > 1e-3, "{e:e}");
        }
    });
}

/// Rules that are wrong in other ways change the law by much more than the bound.
#[test]
fn the_enumeration_notices_wrong_rules() {
    let wrong = [
        ("accepted whenever p is positive", edit("parts/verify.yaml", "coins * qd < pd", "0 * coins * qd < pd")),
        (
            "residual without subtraction",
            edit("parts/verify.yaml", "-take(qs, row, axis=1)", "0 * take(qs, row, axis=1)"),
        ),
        (
            "p before filters",
            edit(
                "parts/verify.yaml",
                "sampling_law(logits, temperature, top_k, top_p)",
                "sampling_law(logits, temperature, top_k * 0, top_p * 0 + 1)",
            ),
        ),
        (
            "the row before the rejection",
            edit("parts/verify.yaml", "p_row: take(p, row, axis=1)", "p_row: take(p, max(row - 1, 0), axis=1)"),
        ),
    ];
    for (what, change) in wrong {
        let pair = Recipe { edits: vec![change], ..Recipe::default() }.build();
        let toy = Toy::new(4, 2, 3, (0.8, 3, 0.9), 2);
        // A decision that moves where no coin is cut is seen as well.
        if let Ok(e) = examine(&pair.system, &toy, None, &|_, _| 3) {
            assert!(e > 1e-3, "{what}: {e:e}");
        }
    }
}

#[test]
fn greedy_verification_emits_the_target_s_own_chain_for_every_proposal() {
    on_each(|| {
        let pair = Recipe::default().build();
        let toy = Toy::new(4, 3, 1, (1.0, 0, 1.0), 3);
        let best = |prefix: &[usize]| -> usize {
            let l = &toy.logits[prefix];
            (0..l.len()).fold(0, |b, v| if l[v] > l[b] { v } else { b })
        };
        let mut chain: Vec<usize> = Vec::new();
        for _ in 0..4 {
            chain.push(best(&chain));
        }
        let mut counts = [0; 4];
        for w in 1..=4usize {
            let proposals = product(&[4, 4, 4]);
            let n = proposals.len();
            let logits: Vec<f32> = proposals
                .iter()
                .flat_map(|d| (0..4).flat_map(|t| toy.logits[&d[..t]].clone()))
                .map(|x| x as f32)
                .collect();
            let given = BTreeMap::from([
                (
                    "greedy_logits".to_string(),
                    Tensor::new(DType::F32, vec![n, 4, 4], Data::F32(logits)).expect("logits"),
                ),
                (
                    "greedy_proposal".to_string(),
                    Tensor::i32(vec![n, 3], proposals.iter().flatten().map(|v| *v as i32).collect()),
                ),
                ("greedy_width".to_string(), Tensor::i32(vec![n], vec![w as i32; n])),
            ]);
            let out =
                eval_entry(&pair.system, runtime(&pair.system).as_mut(), "verify", &given, &EvalOptions::default())
                    .unwrap_or_else(|e| panic!("{e:?}"))
                    .tensors;
            let (accepted, token) = (ints(&out["greedy_accepted"]), ints(&out["greedy_token"]));
            for (i, d) in proposals.iter().enumerate() {
                let same = d.iter().zip(&chain).take_while(|(a, b)| a == b).count().min(w - 1);
                assert_eq!((accepted[i] as usize, token[i] as usize), (same, chain[same]), "{d:?}, width {w}");
                counts[same] += 1;
            }
        }
        assert!(counts.iter().all(|c| *c > 0), "{counts:?}");
    });
}

/// One request of an enumeration through the phases.
struct Member {
    greedy: bool,
    parameters: (f64, i32, f64),
    anchor: u32,
    slot: RequestId,
    /// Logits after a prefix of the block, and the law they give.
    p: BTreeMap<Vec<usize>, Vec<f64>>,
    best: BTreeMap<Vec<usize>, usize>,
    got: BTreeMap<Vec<usize>, f64>,
}

/// q and candidates of row t of member i.
type Row<'a> = dyn Fn(&Values, usize, usize) -> (Vec<f64>, Vec<i32>) + 'a;

struct Batch {
    driver: Driver,
    members: Vec<Member>,
    law: &'static str,
}

const V: usize = 4;
const J: usize = 2;
const KEPT: usize = 2;

impl Batch {
    fn new(system: &System, members: &[(bool, (f64, i32, f64))]) -> Batch {
        let mut driver = Driver::probing(system);
        let greedy = members.iter().filter(|m| m.0).count();
        let law = if greedy == 0 { "sampled" } else { "mixed" };
        driver.phases_with_coins(system, law, "exact");
        let mut rng = Rng(17);
        let members = members
            .iter()
            .map(|(greedy, parameters)| {
                let length = 3 + rng.below(20);
                let prompt = rng.ids(length, V);
                let slot = driver.open();
                driver.feed(&[&prompt], &[slot], &[prompt.len()], Mode::Immediate);
                let anchor = rng.below(V) as u32;
                let (mut p, mut best) = (BTreeMap::new(), BTreeMap::new());
                for tail in product(&[V; J]) {
                    let rows: Vec<u32> = [anchor].into_iter().chain(tail.iter().map(|v| *v as u32)).collect();
                    let logits = driver.rows(&[&rows], &[slot], Mode::Tentative, 0).remove("logits").expect("logits");
                    for n in 0..=J {
                        let row = part(&logits, 0, n, n + 1).to_f64();
                        let (t, k, top_p) = *parameters;
                        p.insert(tail[..n].to_vec(), support::coins::law(&row, t, k, top_p));
                        best.insert(tail[..n].to_vec(), (0..V).fold(0, |b, v| if row[v] > row[b] { v } else { b }));
                    }
                }
                Member { greedy: *greedy, parameters: *parameters, anchor, slot, p, best, got: BTreeMap::new() }
            })
            .collect();
        Batch { driver, members, law }
    }

    fn given(&self) -> Values {
        let m = &self.members;
        let n = m.len();
        let position: Vec<i32> = m.iter().map(|m| self.driver.runtime.len(m.slot) as i32).collect();
        BTreeMap::from([
            ("anchor".to_string(), Tensor::i32(vec![n], m.iter().map(|m| m.anchor as i32).collect())),
            ("position".to_string(), Tensor::i32(vec![n], position)),
            (
                "greedy".to_string(),
                Tensor::new(DType::Bool, vec![n], Data::Bool(m.iter().map(|m| m.greedy).collect())).expect("flags"),
            ),
            ("temperature".to_string(), Tensor::f64(vec![n], m.iter().map(|m| m.parameters.0).collect())),
            ("top_k".to_string(), Tensor::i32(vec![n], m.iter().map(|m| m.parameters.1).collect())),
            ("top_p".to_string(), Tensor::f64(vec![n], m.iter().map(|m| m.parameters.2).collect())),
        ])
    }

    fn draft(&mut self, coins: &[Vec<f64>]) -> Values {
        let mut given = self.given();
        given.insert("coin1".into(), Tensor::f64(vec![coins.len(), J], coins.concat()));
        given.insert("seed".into(), Tensor::i32(vec![coins.len(), 2], vec![0; 2 * coins.len()]));
        let slots: Vec<RequestId> = self.members.iter().map(|m| m.slot).collect();
        self.driver.run(&format!("{}/draft", self.law), &given, &slots, Mode::Tentative)
    }

    fn verify(
        &mut self,
        draft: &Values,
        accept: &[Vec<f64>],
        last: &[f64],
        rows: usize,
        widths: &[usize],
    ) -> Vec<Vec<usize>> {
        let n = self.members.len();
        let mut given = self.given();
        let position = ints(&given["position"]);
        given.extend(draft.iter().map(|(n, t)| (n.clone(), t.clone())));
        let positions = position.iter().flat_map(|p| (0..rows as i32).map(move |t| p + t)).collect();
        given.insert("positions".into(), Tensor::i32(vec![n, rows], positions));
        given.insert("width".into(), Tensor::i32(vec![n], widths.iter().map(|w| *w as i32).collect()));
        given.insert("first".into(), Tensor::i32(vec![n], vec![0; n]));
        given.insert("coin2".into(), Tensor::f64(vec![n, J], accept.concat()));
        let last: Vec<f64> = last.iter().flat_map(|u| vec![*u; rows]).collect();
        given.insert("coin3".into(), Tensor::f64(vec![n, rows], last.clone()));
        given.insert("coin4".into(), Tensor::f64(vec![n, rows], last));
        let seeds = Tensor::i32(vec![n, 2], vec![0; 2 * n]);
        given.insert("seed".into(), seeds);
        let slots: Vec<RequestId> = self.members.iter().map(|m| m.slot).collect();
        let out = self.driver.run(&format!("{}/verify", self.law), &given, &slots, Mode::Tentative);
        let (accepted, token, proposal) = (ints(&out["accepted"]), ints(&out["token"]), ints(&draft["proposal"]));
        (0..n)
            .map(|i| {
                let mut e: Vec<usize> =
                    proposal[i * J..i * J + accepted[i] as usize].iter().map(|t| *t as usize).collect();
                e.push(token[i] as usize);
                e
            })
            .collect()
    }

    /// Enumerates everything and returns the largest error of a sampled member's law. `widths[i]` rows of member i.
    fn law_error(&mut self, widths: &[usize]) -> f64 {
        let n = self.members.len();
        let rows = widths.iter().copied().max().expect("members");
        for m in &mut self.members {
            m.got.clear();
        }
        let q_row = |d: &Values, i: usize, t: usize| part(&d["q"], i, t, t + 1).to_f64();
        let ids = |d: &Values, i: usize, t: usize| ints(&part(&d["candidates"], i, t, t + 1));
        let first = self.draft(&vec![vec![0.5; J]; n]);
        let cuts1: Vec<Vec<Cell>> = (0..n).map(|i| cells(cumulative(&q_row(&first, i, 0)))).collect();
        for a in 0..KEPT {
            let u1: Vec<f64> = cuts1.iter().map(|c| c[a].corner(false)).collect();
            let second = self.draft(&u1.iter().map(|u| vec![*u, 0.5]).collect::<Vec<_>>());
            let cuts2: Vec<Vec<Cell>> = (0..n).map(|i| cells(cumulative(&q_row(&second, i, 1)))).collect();
            for b in 0..KEPT {
                let corners: Vec<Values> = [false, true]
                    .map(|upper| {
                        let coins: Vec<Vec<f64>> =
                            (0..n).map(|i| vec![cuts1[i][a].corner(upper), cuts2[i][b].corner(upper)]).collect();
                        self.draft(&coins)
                    })
                    .into();
                assert_eq!(
                    ints(&corners[0]["proposal"]),
                    ints(&corners[1]["proposal"]),
                    "a proposal changes within a cell"
                );
                self.outcomes(&corners[0], (a, b), &cuts1, &cuts2, rows, widths, &|d, i, t| {
                    (q_row(d, i, t), ids(d, i, t))
                });
            }
        }
        let mut error: f64 = 0.0;
        for m in self.members.iter().filter(|m| !m.greedy) {
            for whole in product(&[V; J + 1]) {
                let conditional = |k: usize| m.p[&whole[..k]][whole[k]];
                let want: f64 = (0..=J).map(conditional).product();
                let have: f64 = (1..=J + 1)
                    .map(|k| m.got.get(&whole[..k]).copied().unwrap_or(0.0) * (k..=J).map(conditional).product::<f64>())
                    .sum();
                error = error.max((want - have).abs());
            }
        }
        error
    }

    #[allow(clippy::too_many_arguments)]
    fn outcomes(
        &mut self,
        draft: &Values,
        (a, b): (usize, usize),
        cuts1: &[Vec<Cell>],
        cuts2: &[Vec<Cell>],
        rows: usize,
        widths: &[usize],
        row: &Row<'_>,
    ) {
        let n = self.members.len();
        let proposal = ints(&draft["proposal"]);
        let mut tests: Vec<Vec<Vec<Cell>>> = Vec::new();
        let mut finals: Vec<Vec<Cell>> = Vec::new();
        for (i, m) in self.members.iter().enumerate() {
            let chain: Vec<usize> = proposal[i * J..(i + 1) * J].iter().map(|t| *t as usize).collect();
            let mut mine = Vec::new();
            let mut cuts = Vec::new();
            for t in 0..=J {
                let p = &m.p[&chain[..t]];
                cuts.extend(cumulative(p));
                if t < J {
                    let (q, ids) = row(draft, i, t);
                    let mut wide = vec![0.0; V];
                    for (v, q) in ids.iter().zip(&q) {
                        wide[*v as usize] = *q;
                    }
                    mine.push(if m.greedy { cells(vec![]) } else { cells(vec![p[chain[t]] / wide[chain[t]]]) });
                    cuts.extend(cumulative(&p.iter().zip(&wide).map(|(p, q)| (p - q).max(0.0)).collect::<Vec<_>>()));
                }
            }
            tests.push(mine);
            finals.push(if m.greedy { cells(vec![]) } else { cells(cuts) });
        }
        // All members advance through their own cells in step; those with fewer repeat the last one without mass.
        let most = finals.iter().map(Vec::len).max().expect("members");
        for which in product(&[2; J]) {
            let at = |i: usize, t: usize| tests[i][t].get(which[t]);
            let accept: Vec<[Vec<f64>; 2]> = (0..n)
                .map(|i| {
                    [false, true]
                        .map(|upper| (0..J).map(|t| at(i, t).unwrap_or(&tests[i][t][0]).corner(upper)).collect())
                })
                .collect();
            for f in 0..most {
                let cell = |i: usize| finals[i].get(f);
                let [low, high] = [false, true].map(|upper| {
                    let coins: Vec<Vec<f64>> = accept.iter().map(|a| a[usize::from(upper)].clone()).collect();
                    let last: Vec<f64> = (0..n).map(|i| cell(i).unwrap_or(&finals[i][0]).corner(upper)).collect();
                    self.verify(draft, &coins, &last, rows, widths)
                });
                assert_eq!(low, high, "an outcome changes within a cell");
                for (i, m) in self.members.iter_mut().enumerate() {
                    if m.greedy {
                        let mut want = Vec::new();
                        for _ in 0..low[i].len() {
                            want.push(m.best[&want]);
                        }
                        assert_eq!(low[i], want, "a greedy row emits the most likely tokens");
                    }
                    let present = (0..J).all(|t| at(i, t).is_some());
                    if let (true, Some(cell)) = (present, cell(i)) {
                        let coins: f64 = (0..J).map(|t| at(i, t).map_or(0.0, |c| c.mass())).product();
                        let mass = cuts1[i][a].mass() * cuts2[i][b].mass() * coins * cell.mass();
                        *m.got.entry(low[i].clone()).or_insert(0.0) += mass;
                    }
                }
            }
        }
    }
}

#[test]
fn whole_cycles_give_the_law_of_the_target_in_sampled_and_mixed_batches() {
    on_each(|| {
        let recipe =
            Recipe { vocabulary: V, kept: KEPT, block: J + 1, kinds: "dfd", captured: &[0, 1], ..Recipe::default() };
        let pair = recipe.build();
        let sampled = [(false, (1.0, 0, 1.0)), (false, (0.8, 3, 1.0)), (false, (1.2, 0, 0.8))];
        let mixed = [(true, (1.0, 0, 1.0)), (false, (0.9, 0, 1.0)), (true, (1.0, 2, 0.5)), (false, (1.1, 3, 0.9))];
        for (members, all_widths) in [
            (&sampled[..], vec![vec![1; 3], vec![2; 3], vec![3; 3], vec![1, 3, 2]]),
            (&mixed[..], vec![vec![2; 4], vec![3; 4], vec![3, 2, 1, 3]]),
        ] {
            let mut batch = Batch::new(&pair.system, members);
            for widths in all_widths {
                let e = batch.law_error(&widths);
                assert!(e < 1e-12, "{} requests, widths {widths:?}: {e:e}", members.len());
            }
        }
    });
}
